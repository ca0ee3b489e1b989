"""The rows dq/dx of `fixman-points`: Wilson's B matrix of bond, angle and torsion coordinates, compiled; O(n).

The coordinates of an atom are its bond length r, bond angle theta and torsion phi with respect to three reference
atoms: its polar coordinates in the frame that these span. The rows of the B matrix are e_r, e_theta / r and
e_phi / (r sin theta), applied to d, the velocity of the atom as seen from that frame.

Hard rows may be combined at will, and soft rows may take up hard ones: neither changes H11 - H12 H22^-1 H12^T, and only
the scale of hard rows enters both det(dq/dx) and det H22, where it cancels. So the three hard coordinates of an atom
enter as the three Cartesian components of d, and the singularity of the angles at sin theta = 0 is not there.

At a joint, the velocities d of all carriers (see `point_elimination_plan`), seen from the frame of the parent unit, are
d = T s' with a column of T for each soft coordinate s. From T = [Q_1 Q_2] [R; 0] (Householder) follow

    soft rows R^-1 Q_1^T d,      hard rows Q_2^T d,      and the factor 1 / |det R| of |det dq/dx|.

For one torsion T = r sin theta e_phi, so that the soft row is Wilson's, and the hard rows span those of bond and angle.
For a free root there is no frame, T has six columns, and the hard rows are the three distances of the triple.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse

from peptidyn.core.jit import njit
from peptidyn.model.kinematics import FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.solvers.point_elimination_plan import Blocks

_DEPENDENT = 1e-7  # a motion whose part independent of the others is this small against its lever is no motion
_WORLD_AXES = np.eye(3)


@njit(cache=True)
def _frame_rotation(x, frame, omega):
    """Write the angular velocity of a frame per velocity of its three atoms, `omega` (3, 9).

    The z axis runs from the first atom to the second, the third lies in the xz plane.
    """
    a, b, c = frame
    zx, zy, zz = x[b, 0] - x[a, 0], x[b, 1] - x[a, 1], x[b, 2] - x[a, 2]
    length = math.sqrt(zx * zx + zy * zy + zz * zz)
    zx, zy, zz = zx / length, zy / length, zz / length
    xx, xy, xz = x[c, 0] - x[a, 0], x[c, 1] - x[a, 1], x[c, 2] - x[a, 2]
    along = xx * zx + xy * zy + xz * zz
    xx, xy, xz = xx - along * zx, xy - along * zy, xz - along * zz
    height = math.sqrt(xx * xx + xy * xy + xz * xz)
    ex, ez = (xx / height, xy / height, xz / height), (zx, zy, zz)
    ey = (zy * ex[2] - zz * ex[1], zz * ex[0] - zx * ex[2], zx * ex[1] - zy * ex[0])
    for i in range(3):
        for j in range(3):
            of_b = (ey[i] * ex[j] - ex[i] * ey[j] - along / height * ez[i] * ey[j]) / length
            of_c = ez[i] * ey[j] / height
            omega[i, j] = -of_b - of_c
            omega[i, 3 + j] = of_b
            omega[i, 6 + j] = of_c


@njit(cache=True)
def _carried(omega, origin, r, out):
    """Write the velocity of a point at `r` that a frame carries, per velocity of the frame's atoms, `out` (3, 9)."""
    rx, ry, rz = r[0] - origin[0], r[1] - origin[1], r[2] - origin[2]
    for j in range(9):
        wx, wy, wz = omega[0, j], omega[1, j], omega[2, j]
        out[0, j] = wy * rz - wz * ry
        out[1, j] = wz * rx - wx * rz
        out[2, j] = wx * ry - wy * rx
    for i in range(3):
        out[i, i] += 1.0


@njit(cache=True)
def _turn(w, r, origin, out):
    """Write the velocity of a point at `r` that turns about the axis `w` through `origin`."""
    rx, ry, rz = r[0] - origin[0], r[1] - origin[1], r[2] - origin[2]
    out[0] = w[1] * rz - w[2] * ry
    out[1] = w[2] * rx - w[0] * rz
    out[2] = w[0] * ry - w[1] * rx


@njit(cache=True)
def _joint_motions(blocks, b, x, joint, axis, p, T, lever):
    """Write the velocities of own atoms per soft coordinate, `T` (3 n_own, n_soft), and their scale (n_soft,)."""
    n_own, k = blocks.n_own[b], 0
    at = blocks.moved_at[b]
    for l in blocks.joint[blocks.joint_at[b] : blocks.joint_at[b + 1]]:
        kind = joint[l]
        n_turns = 3 if kind == FREE else (1 if kind == REVOLUTE else 0)
        n_shifts = 3 if kind == FREE or kind == POINT else (1 if kind == PRISMATIC else 0)
        square = 0.0
        for o in range(n_own):
            r = x[blocks.column[blocks.column_at[b] + o]]
            motion = T[3 * o : 3 * o + 3, k : k + n_turns + n_shifts]
            motion[:] = 0.0
            if not blocks.moved[at + o]:
                continue
            for i in range(3):
                square += (r[i] - p[l, i]) ** 2
            for j in range(n_turns):
                _turn(_WORLD_AXES[j] if kind == FREE else axis[l], r, p[l], motion[:, j])
            for j in range(n_shifts):
                motion[:, n_turns + j] = axis[l] if kind == PRISMATIC else _WORLD_AXES[j]
        for j in range(n_turns + n_shifts):
            lever[k + j] = math.sqrt(square) if j < n_turns else 1.0
        at += n_own
        k += n_turns + n_shifts


@njit(cache=True)
def _orthogonalise(T, m, k, Q):
    """Factor T (m, k) = Q R by Householder reflections: R takes the place of T, `Q` (m, m) is orthogonal."""
    for i in range(m):
        for j in range(m):
            Q[i, j] = 1.0 if i == j else 0.0
    for c in range(k):
        square = 0.0
        for i in range(c, m):
            square += T[i, c] * T[i, c]
        norm = math.sqrt(square)
        if norm == 0.0 or c == m - 1:
            continue
        alpha = -norm if T[c, c] > 0.0 else norm
        scale = square - alpha * T[c, c]  # half the squared length of the reflection's normal, T[c:, c] - alpha e_c
        T[c, c] -= alpha
        for j in range(c + 1, k):
            s = 0.0
            for i in range(c, m):
                s += T[i, c] * T[i, j]
            s /= scale
            for i in range(c, m):
                T[i, j] -= s * T[i, c]
        for i in range(m):
            s = 0.0
            for j in range(c, m):
                s += Q[i, j] * T[j, c]
            s /= scale
            for j in range(c, m):
                Q[i, j] -= s * T[j, c]
        T[c, c] = alpha
        for i in range(c + 1, m):
            T[i, c] = 0.0


@njit(cache=True)
def _soft_combinations(Q, R, m, k, Z):
    """Write the pseudo-inverse of T: `Z` (k, m) = R^-1 Q_1^T."""
    for c in range(m):
        for i in range(k - 1, -1, -1):
            s = Q[c, i]
            for j in range(i + 1, k):
                s -= R[i, j] * Z[j, c]
            Z[i, c] = s / R[i, i]


@njit(cache=True)
def _write_row(blocks, b, n_columns, combination, carried, out, at):
    """Write the row of one coordinate: `combination` (3 n_own,) of the own atoms' velocities seen from the frame."""
    n_own = blocks.n_own[b]
    first = blocks.column_at[b]
    for g in range(n_columns):
        if g < n_own:
            for j in range(3):
                out[at + 3 * g + j] = combination[3 * g + j]
            continue
        r = 3 * blocks.reference[first + g]
        for j in range(3):
            s = 0.0
            for i in range(3 * n_own):
                s += combination[i] * carried[i, r + j]
            out[at + 3 * g + j] = -s


@njit(cache=True)
def write_rows(blocks, frames, x, joint, axis, p, soft, hard):
    """Write the rows of all coordinates.

    Parameters
    ----------
    blocks, frames
        Of the plan.
    x : (n_atoms, 3)
        Positions, nm.
    joint : (n_links,) int
    axis, p : (n_links, 3)
        Joint axes and points on them, in the world.
    soft, hard : (soft_at[-1],), (hard_at[-1],)
        Output: rows, one after the other, each with three values per column of its block.

    Returns
    -------
    float
        -ln |det dq/dx|.
    int
        A block with soft coordinates that move nothing, or -1.
    """
    omega = np.empty((3, 9))
    tall, wide = 1, 1
    for b in range(len(blocks.link)):
        tall, wide = max(tall, 3 * blocks.n_own[b]), max(wide, blocks.n_soft[b])
    carried = np.zeros((tall, 9))
    T, Q, Z = np.empty((tall, wide)), np.empty((tall, tall)), np.empty((wide, tall))
    column, lever = np.empty(tall), np.empty(wide)
    log_scale = 0.0
    for b in range(len(blocks.link)):
        m, k, f = 3 * blocks.n_own[b], blocks.n_soft[b], blocks.frame[b]
        if f >= 0:
            _frame_rotation(x, frames[f], omega)
            for o in range(blocks.n_own[b]):
                own = blocks.column[blocks.column_at[b] + o]
                _carried(omega, x[frames[f, 0]], x[own], carried[3 * o : 3 * o + 3])
        _joint_motions(blocks, b, x, joint, axis, p, T, lever)
        _orthogonalise(T, m, k, Q)
        for i in range(k):
            if not abs(T[i, i]) > _DEPENDENT * lever[i]:
                return log_scale, b
            log_scale += math.log(abs(T[i, i]))
        _soft_combinations(Q, T, m, k, Z)
        at, width = blocks.soft_at[b], blocks.column_at[b + 1] - blocks.column_at[b]
        for i in range(k):
            _write_row(blocks, b, width, Z[i], carried, soft, at)
            at += 3 * width
        at, width = blocks.hard_at[b], blocks.n_hard_columns[b]
        for c in range(k, m):
            for i in range(m):
                column[i] = Q[i, c]
            _write_row(blocks, b, width, column, carried, hard, at)
            at += 3 * width
    return log_scale, -1


def sparse_rows(
    blocks: Blocks, n_rows: np.ndarray, n_columns: np.ndarray, values: np.ndarray, width: int
) -> scipy.sparse.csr_array:
    """Return rows stored block by block, `n_rows` of `n_columns` atoms each, as one matrix with `width` columns."""
    columns = [
        np.tile((3 * blocks.column[start : start + n, None] + np.arange(3)).ravel(), rows)
        for start, n, rows in zip(blocks.column_at[:-1], n_columns, n_rows, strict=True)
    ]
    indices = np.concatenate([np.empty(0, dtype=np.int64), *columns])
    offsets = np.concatenate([[0], np.cumsum(np.repeat(3 * n_columns, n_rows))])
    return scipy.sparse.csr_array((values.copy(), indices, offsets), shape=(int(n_rows.sum()), width))
