"""Fixman's method for point masses: M^-1 and ln det M from the inverse mass matrix of the atoms set free; O(n).

Fixman's theorem and its extension by Lee & Chirikjian, "A new perspective on O(n) mass-matrix inversion for serial
revolute manipulators" (equation numbers of this file), also section 2 of Lee, Wang & Chirikjian; carried from planar
chains to all molecules of a tree model. `peptidyn.solvers.planar_arm` has the paper's own example.

x           positions of the atoms, 3N numbers; m their masses, each three times
q = [a, b]  as many internal coordinates, split into soft ones (torsions, opened angles, the base) and hard ones
B_s, B_h    rows of soft and of hard coordinates in dq/dx: Wilson's B matrix
G, H        mass matrix of the free atoms in q, and its inverse (5): H = [B_s; B_h] m^-1 [B_s; B_h]^T

M is the soft block of G, so with the blocks (7) of H

    M^-1 = H_aa - H_ab H_bb^-1 H_ab^T      (12)            ln det M = ln det G + ln det H_bb      (8)

and ln det G = ln det m - 2 ln |det dq/dx|, where dq/dx is block triangular.

**Rows.** The coordinates of an atom are its bond length r, bond angle theta and torsion phi with respect to three
reference atoms: polar coordinates in the frame that these span. Wilson's rows are e_r, e_theta / r and e_phi /
(r sin theta), applied to the velocity of the atom as seen from that frame. Hard rows may be combined at will, and soft
rows may take up hard ones, without any change of (12) or of det(dq/dx). So the three hard coordinates of an atom enter
as its displacement in the frame along three fixed directions, and the angles' singularity at sin theta = 0 is not
there. At a joint, the velocities d of the carriers (see `fixman_points_plan`) seen from the parent unit obey d = T s',
with a column of T for each soft coordinate. From T = [Q_1 Q_2] [R; 0] follow the soft rows R^-1 Q_1^T d, the hard
rows Q_2^T d and the block's factor 1 / det R of det(dq/dx). For one torsion this is e_phi / (r sin theta) again.

**Elimination.** H_bb = B_h m^-1 B_h^T. Eliminating the rows y of one block changes the rest of the matrix to

    B_h (C - C y^T (y C y^T)^-1 y C) B_h^T          C = m^-1 at the start

so the Schur complement of H_bb is H_bb with another C: the mobility of atoms whose hard coordinates y are held. It is
kept for the atoms of the front, where it is not diagonal. With the pivot y C y^T = L L^T and the gain Y = C y^T L^-T
the update is C - Y Y^T, ln det H_bb the sum of 2 ln det L, and H_bb^-1 is applied by one sweep from the leaves to the
root and one back. H_aa and H_ab are never formed: (13) is evaluated as v = m^-1 B_s^T b, e = H_bb^-1 B_h v and
M^-1 b = B_s (v - m^-1 B_h^T e), where the last bracket is the velocity of every atom.
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse
from numba import njit

from peptidyn.model.kinematics import FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.fixman_points_plan import Plan, make_plan
from peptidyn.solvers.protocol import Factor, Solver, raise_singular

_DEPENDENT = 1e-7  # a motion whose part independent of the others is this small against its lever is no motion
_PIVOT = 1e-14  # pivots of H_bb smaller than this part of what free atoms would give hold rounding errors only

_WORLD_AXES = np.eye(3)


# ---------------------------------------------------------------------- rows dq/dx


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
def _write_rows(blocks, frames, x, joint, axis, p, soft, hard):
    """Write the rows of all coordinates (18)-(21); return -ln |det dq/dx|, and a block that cannot move, or -1."""
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


# ---------------------------------------------------------------------- elimination of H_bb


@njit(cache=True)
def _assemble(fronts, f, mobility, matrices, C):
    """Write the mobility `C` of a front's atoms: what earlier fronts left of it, 1/m for atoms touched first here."""
    first, n = fronts.atom_at[f], fronts.atom_at[f + 1] - fronts.atom_at[f]
    for s in range(n):
        source = fronts.source[first + s]
        for t in range(s + 1):
            if source >= 0 and fronts.source[first + t] == source:
                width = 3 * (fronts.atom_at[source + 1] - fronts.atom_at[source])
                at = fronts.matrix_at[source]
                u, v = 3 * fronts.source_slot[first + s], 3 * fronts.source_slot[first + t]
                for i in range(3):
                    for j in range(3):
                        C[3 * s + i, 3 * t + j] = matrices[at + (u + i) * width + v + j]
            else:
                own = mobility[fronts.atom[first + s]] if s == t else 0.0
                for i in range(3):
                    for j in range(3):
                        C[3 * s + i, 3 * t + j] = own if i == j else 0.0
            for i in range(3):
                for j in range(3):
                    C[3 * t + j, 3 * s + i] = C[3 * s + i, 3 * t + j]


@njit(cache=True)
def _responses(blocks, b, hard, C, width, P):
    """Write `P` (width, n_hard) = C y^T, y the hard rows of block b."""
    n_hard, n_columns = blocks.n_hard[b], blocks.n_hard_columns[b]
    for u in range(width):
        for r in range(n_hard):
            P[u, r] = 0.0
    for g in range(n_columns):
        s = blocks.slot[blocks.column_at[b] + g]
        if s < 0:
            continue
        for r in range(n_hard):
            at = blocks.hard_at[b] + 3 * (r * n_columns + g)
            y0, y1, y2 = hard[at], hard[at + 1], hard[at + 2]
            for u in range(width):
                P[u, r] += C[u, 3 * s] * y0 + C[u, 3 * s + 1] * y1 + C[u, 3 * s + 2] * y2


@njit(cache=True)
def _pivot(blocks, b, hard, mobility, P, S, free):
    """Write the pivot `S` (n_hard, n_hard) = y C y^T, lower triangle, and its diagonal for free atoms, `free`."""
    n_hard, n_columns = blocks.n_hard[b], blocks.n_hard_columns[b]
    for r in range(n_hard):
        free[r] = 0.0
        for q in range(r + 1):
            S[r, q] = 0.0
    for g in range(n_columns):
        s = blocks.slot[blocks.column_at[b] + g]
        own = mobility[blocks.column[blocks.column_at[b] + g]]
        for r in range(n_hard):
            at = blocks.hard_at[b] + 3 * (r * n_columns + g)
            y0, y1, y2 = hard[at], hard[at + 1], hard[at + 2]
            free[r] += own * (y0 * y0 + y1 * y1 + y2 * y2)
            for q in range(r + 1):
                if s >= 0:
                    S[r, q] += y0 * P[3 * s, q] + y1 * P[3 * s + 1, q] + y2 * P[3 * s + 2, q]
                else:
                    to = blocks.hard_at[b] + 3 * (q * n_columns + g)
                    S[r, q] += own * (y0 * hard[to] + y1 * hard[to + 1] + y2 * hard[to + 2])


@njit(cache=True)
def _cholesky(S, n, floor, L):
    """Write the Cholesky factor of S (n, n); return its ln det, NaN if a pivot is not above its `floor`."""
    log_det = 0.0
    for r in range(n):
        for q in range(r + 1):
            s = S[r, q]
            for i in range(q):
                s -= L[r, i] * L[q, i]
            if q < r:
                L[r, q] = s / L[q, q]
                L[q, r] = 0.0
            else:
                if not s > _PIVOT * floor[r]:
                    return math.nan
                L[r, r] = math.sqrt(s)
                log_det += math.log(s)
    return log_det


@njit(cache=True)
def _eliminate(blocks, fronts, hard, mobility, matrices, factors, gains):
    """Factor H_bb from the leaves to the root; return ln det H_bb, and a block with a singular pivot, or -1."""
    widest, tallest = 1, 1
    for f in range(len(fronts.block_at) - 1):
        widest = max(widest, 3 * (fronts.atom_at[f + 1] - fronts.atom_at[f]))
    for b in range(len(blocks.n_hard)):
        tallest = max(tallest, blocks.n_hard[b])
    P, S, free = np.empty((widest, tallest)), np.empty((tallest, tallest)), np.empty(tallest)
    log_det = 0.0
    for f in range(len(fronts.block_at) - 1):
        width = 3 * (fronts.atom_at[f + 1] - fronts.atom_at[f])
        C = matrices[fronts.matrix_at[f] : fronts.matrix_at[f] + width * width].reshape((width, width))
        _assemble(fronts, f, mobility, matrices, C)
        for b in range(fronts.block_at[f], fronts.block_at[f + 1]):
            n_hard = blocks.n_hard[b]
            L = factors[blocks.factor_at[b] : blocks.factor_at[b + 1]].reshape((n_hard, n_hard))
            Y = gains[blocks.gain_at[b] : blocks.gain_at[b + 1]].reshape((width, n_hard))
            _responses(blocks, b, hard, C, width, P)
            _pivot(blocks, b, hard, mobility, P, S, free)
            added = _cholesky(S, n_hard, free, L)
            if math.isnan(added):
                return log_det, b
            log_det += added
            for u in range(width):
                for r in range(n_hard):
                    s = P[u, r]
                    for q in range(r):
                        s -= Y[u, q] * L[r, q]
                    Y[u, r] = s / L[r, r]
            for u in range(width):
                for v in range(u + 1):
                    s = 0.0
                    for r in range(n_hard):
                        s += Y[u, r] * Y[v, r]
                    C[u, v] -= s
                    C[v, u] = C[u, v]
    return log_det, -1


# ---------------------------------------------------------------------- solving


@njit(cache=True)
def _spread(blocks, soft, mobility, b_vector, v):
    """Write v = m^-1 B_s^T b (n_atoms, 3): the velocities that the generalised impulses give to free atoms."""
    v[:] = 0.0
    for b in range(len(blocks.link)):
        width = blocks.column_at[b + 1] - blocks.column_at[b]
        for r in range(blocks.n_soft[b]):
            force = b_vector[blocks.dof[blocks.dof_at[b] + r]]
            at = blocks.soft_at[b] + 3 * r * width
            for g in range(width):
                a = blocks.column[blocks.column_at[b] + g]
                for i in range(3):
                    v[a, i] += force * soft[at + 3 * g + i]
    for a in range(len(v)):
        for i in range(3):
            v[a, i] *= mobility[a]


@njit(cache=True)
def _sweep_up(blocks, fronts, hard, factors, gains, v, e):
    """Solve the lower triangle, leaves to root: `e` = D^-1/2 L^-1 B_h v, by blocks; `v` (n_atoms, 3) is used up."""
    at_e = 0
    for f in range(len(fronts.block_at) - 1):
        first, n = fronts.atom_at[f], fronts.atom_at[f + 1] - fronts.atom_at[f]
        for b in range(fronts.block_at[f], fronts.block_at[f + 1]):
            n_hard, n_columns = blocks.n_hard[b], blocks.n_hard_columns[b]
            L, Y = blocks.factor_at[b], blocks.gain_at[b]
            for r in range(n_hard):
                s = 0.0
                at = blocks.hard_at[b] + 3 * r * n_columns
                for g in range(n_columns):
                    a = blocks.column[blocks.column_at[b] + g]
                    s += hard[at] * v[a, 0] + hard[at + 1] * v[a, 1] + hard[at + 2] * v[a, 2]
                    at += 3
                for q in range(r):
                    s -= factors[L + r * n_hard + q] * e[at_e + q]
                e[at_e + r] = s / factors[L + r * n_hard + r]
            for t in range(n):
                a = fronts.atom[first + t]
                for i in range(3):
                    s = 0.0
                    for r in range(n_hard):
                        s += gains[Y] * e[at_e + r]
                        Y += 1
                    v[a, i] -= s
            at_e += n_hard


@njit(cache=True)
def _sweep_down(blocks, fronts, hard, factors, gains, e, g_sum):
    """Solve the upper triangle, root to leaves: `e` becomes H_bb^-1 B_h v, `g_sum` (n_atoms, 3) becomes B_h^T e."""
    g_sum[:] = 0.0
    at_e = len(e)
    for f in range(len(fronts.block_at) - 2, -1, -1):
        first, n = fronts.atom_at[f], fronts.atom_at[f + 1] - fronts.atom_at[f]
        for b in range(fronts.block_at[f + 1] - 1, fronts.block_at[f] - 1, -1):
            n_hard, n_columns = blocks.n_hard[b], blocks.n_hard_columns[b]
            at_e -= n_hard
            L, Y = blocks.factor_at[b], blocks.gain_at[b]
            for t in range(n):
                a = fronts.atom[first + t]
                for i in range(3):
                    for r in range(n_hard):
                        e[at_e + r] -= gains[Y] * g_sum[a, i]
                        Y += 1
            for r in range(n_hard - 1, -1, -1):
                s = e[at_e + r]
                for q in range(r + 1, n_hard):
                    s -= factors[L + q * n_hard + r] * e[at_e + q]
                e[at_e + r] = s / factors[L + r * n_hard + r]
                at = blocks.hard_at[b] + 3 * r * n_columns
                for g in range(n_columns):
                    a = blocks.column[blocks.column_at[b] + g]
                    for i in range(3):
                        g_sum[a, i] += hard[at + i] * e[at_e + r]
                    at += 3


@njit(cache=True)
def _gather(blocks, soft, v, out):
    """Write B_s v (n_dof,): the rates of the soft coordinates for atom velocities `v` (n_atoms, 3)."""
    for b in range(len(blocks.link)):
        width = blocks.column_at[b + 1] - blocks.column_at[b]
        for r in range(blocks.n_soft[b]):
            s = 0.0
            at = blocks.soft_at[b] + 3 * r * width
            for g in range(width):
                a = blocks.column[blocks.column_at[b] + g]
                s += soft[at] * v[a, 0] + soft[at + 1] * v[a, 1] + soft[at + 2] * v[a, 2]
                at += 3
            out[blocks.dof[blocks.dof_at[b] + r]] = s


@njit(cache=True)
def _solve(blocks, fronts, mobility, soft, hard, factors, gains, rhs, out):
    """Evaluate (13) for every column of `rhs` (n_dof, m)."""
    n_atoms = len(mobility)
    v, w, g_sum = np.empty((n_atoms, 3)), np.empty((n_atoms, 3)), np.empty((n_atoms, 3))
    e = np.empty(blocks.n_hard.sum())
    column = np.empty(len(rhs))
    for c in range(rhs.shape[1]):
        for d in range(len(rhs)):
            column[d] = rhs[d, c]
        _spread(blocks, soft, mobility, column, v)
        w[:] = v
        _sweep_up(blocks, fronts, hard, factors, gains, w, e)
        _sweep_down(blocks, fronts, hard, factors, gains, e, g_sum)
        for a in range(n_atoms):
            for i in range(3):
                v[a, i] -= mobility[a] * g_sum[a, i]
        _gather(blocks, soft, v, column)
        for d in range(len(rhs)):
            out[d, c] = column[d]


# ---------------------------------------------------------------------- the solver


class FixmanPointsFactor(Factor):
    """Rows dq/dx of one tree in one configuration, with H_bb factored.

    Attributes
    ----------
    log_det_g : float
        ln det G, of all atoms set free.
    log_det_hbb : float
        ln det H_bb, of the hard coordinates.
    """

    def __init__(self, tree: TreeModel, state: State, plan: Plan):
        links = tree.links(state)
        blocks, fronts = plan.blocks, plan.fronts
        self._tree, self._plan = tree, plan
        sizes = [at[-1] for at in (blocks.soft_at, blocks.hard_at, blocks.factor_at, blocks.gain_at)]
        store = np.empty(sum(sizes))  # in one piece, which the C library hands out again without new pages
        self._soft, self._hard, self._factors, self._gains = np.split(store, np.cumsum(sizes)[:-1])
        matrices = np.empty(fronts.store)
        log_scale, bad = _write_rows(
            blocks, plan.frames, tree.positions(state), tree.joint, links.axis, links.p, self._soft, self._hard
        )
        if bad < 0:
            self.log_det_hbb, bad = _eliminate(
                blocks, fronts, self._hard, plan.mobility, matrices, self._factors, self._gains
            )
        if bad >= 0:
            raise_singular(tree, int(blocks.link[bad]))
        moving = plan.mobility > 0
        self.log_det_g = float(3.0 * np.log(tree.masses[moving]).sum() + 2.0 * log_scale)

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return M^-1 b, eqs. (12) and (13); O(n) per column."""
        plan = self._plan
        out = np.empty(b.shape)
        _solve(
            plan.blocks, plan.fronts, plan.mobility, self._soft, self._hard, self._factors, self._gains, b, out
        )  # fmt: skip
        return out

    def log_det(self) -> float:
        """Return ln det M by Fixman's theorem (8)."""
        return self.log_det_g + self.log_det_hbb

    def rows(self) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
        """Return dq/dx as sparse matrices: B_s (n_dof, 3 n_atoms) in the order of the degrees of freedom, and B_h."""
        blocks = self._plan.blocks
        shape = 3 * self._tree.n_atoms
        soft = _sparse(blocks, blocks.n_soft, np.diff(blocks.column_at), self._soft, shape)
        hard = _sparse(blocks, blocks.n_hard, blocks.n_hard_columns, self._hard, shape)
        place = np.empty(self._tree.n_dof, dtype=np.int64)
        place[blocks.dof] = np.arange(self._tree.n_dof)
        return soft[place], hard


def _sparse(blocks, n_rows: np.ndarray, n_columns: np.ndarray, values: np.ndarray, width: int) -> scipy.sparse.csr_array:
    """Return rows stored block by block as one sparse matrix."""
    columns = [
        np.tile((3 * blocks.column[start : start + n, None] + np.arange(3)).ravel(), rows)
        for start, n, rows in zip(blocks.column_at[:-1], n_columns, n_rows, strict=True)
    ]
    indices = np.concatenate([np.empty(0, dtype=np.int64), *columns])
    offsets = np.concatenate([[0], np.cumsum(np.repeat(3 * n_columns, n_rows))])
    return scipy.sparse.csr_array((values.copy(), indices, offsets), shape=(int(n_rows.sum()), width))


class FixmanPointsSolver(Solver):
    """M^-1 = H_aa - H_ab H_bb^-1 H_ab^T over bond-angle-torsion coordinates of all atoms.

    The plan of a tree is made at its first use, and kept as long as the tree. Models without atoms are refused.
    """

    name = "fixman-points"
    paper = "K. Lee & G. S. Chirikjian, A new perspective on O(n) mass-matrix inversion for serial revolute manipulators"

    def __init__(self) -> None:
        self._plans: WeakKeyDictionary[TreeModel, Plan] = WeakKeyDictionary()

    def factor(self, tree: TreeModel, state: State) -> FixmanPointsFactor:
        plan = self._plans.get(tree)
        if plan is None:
            plan = self._plans[tree] = make_plan(tree)
        return FixmanPointsFactor(tree, state, plan)
