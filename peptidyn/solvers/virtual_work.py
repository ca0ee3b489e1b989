"""Forward dynamics from constraint forces, by the principle of virtual work; O(n).

K. Yamane and Y. Nakamura, "O(N) forward dynamics computation of open kinematic chains based on the principle of virtual
work". Every body is first taken as free. The constraint force of every joint is then found while bodies are added one
by one from the tips to the root (path 1), corrected from the root to the tips (path 2), and gives the accelerations.
Equation numbers are those of the paper. Legend, for body i that joint i joins to body u on the side of the root:

theta'_i                spatial velocity of body i: (angular velocity; velocity of the centre of mass), world axes
A_i, b_i                spatial inertia (of a block for rotation and one for translation), gyroscopic force
o_i                     joint point: the origin of body i's link; r_C is the relative motion of bodies i and u there
K_i  (N_C, 6)           constrained directions, K r_C' = 0 (9); rows orthonormal
K_Ji (k, 6)             joint rates q' = K_J r_C' (10), and K K_J^T = 0 (11); k soft coordinates, N_C = 6 - k
H_ii, H_iu              K_i times the Jacobians of r_C by the motion of body i and of body u
n_J, n_i                joint torques, constraint force (N_C,)
h_i                     K_i times the relative acceleration that velocities alone cause (29)
t_i                     all forces on body i but the constraint forces (28)
a_i, S_i, S_ij          right-hand side, diagonal and off-diagonal blocks of the system for all constraint forces (31)
M_i                     inverse of the block of joint i after the elimination of all joints behind it (41)
Phi                     that system's matrix (34)

Departures from print. (16): the Jacobians are those of body 0. (23), (28): t_i = f_i + H_Ji^T n_Ji - b_i less
H_Jj,i^T n_Jj of every joint j that body i carries, from the start. After (32): a_i = h_i + H_iu A_u^-1 t_u - H_ii A_i^-1
t_i. (53): the forces of the joints that body i carries enter with -H_Ji,i A_i^-1 H_j,i^T; here the body accelerations
(48) are formed and differenced (49), which is the same sum. (38): Lambda starts at body 0; a welded base has A^-1 = 0.

Branched chains: bodies carry at most two joints towards the tips, `peptidyn.solvers.split_links`. Two such joints,
j = 1 and 2, couple through their body by S_21, and adding the joint of the body itself needs the four blocks of
Phi^-1 (43) at both: that is one elimination of the pair, 1 before 2, for matrices and for right-hand sides.

Joints of several soft coordinates have the motions S (6, k) of their axes; then K_J = (S^T S)^-1 S^T, and n_J = tau
does the work of the generalised forces. K comes from the QR decomposition of S. The determinant of the mass matrix
follows from Fixman's theorem with orthonormal K: ln det M = sum ln det A_i + sum ln det S^T S + ln det Phi.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from peptidyn.model.kinematics import FREE, POINT, PRISMATIC, link_twists
from peptidyn.model.state import State
from peptidyn.model.tree import Links, TreeModel
from peptidyn.solvers.protocol import Factor, Solver, raise_singular
from peptidyn.solvers.spatial_algebra import add_cross
from peptidyn.solvers.split_links import FLOATING, Parts, next_body, split_links

SINGULAR_INERTIA = 1e-10
"""Bodies whose principal moments of inertia differ by more than this factor leave too few digits of A^-1."""

DEPENDENT_AXES = 1e-8
"""Soft coordinates of one joint with a sine below this between their motions are one coordinate."""

PIVOT_TOLERANCE = 1e-13
"""A pivot of Phi below this part of its entry before the elimination is a zero: what is left is rounding error."""


class Joints(NamedTuple):
    """The free bodies and the joints between them, over parts i; `Parts` says which joins which.

    Attributes
    ----------
    com, point : (n, 3)
        Centre of mass; joint point o.
    mobility : (n, 3, 3), lightness : (n,)
        A^-1: inverse inertia, inverse mass.
    rows : (n,) int
        N_C.
    K, K_J : (n, 6, 6)
        The first N_C and k rows count.
    H_own, H_up : (n, 6, 6)
        H_ii and H_iu, N_C rows.
    """

    com: np.ndarray
    point: np.ndarray
    mobility: np.ndarray
    lightness: np.ndarray
    rows: np.ndarray
    K: np.ndarray
    K_J: np.ndarray
    H_own: np.ndarray
    H_up: np.ndarray


class Blocks(NamedTuple):
    """The eliminated system of constraint forces, over parts i.

    Attributes
    ----------
    M : (n, 6, 6)
    S_down : (n, 2, 6, 6)
        S_ij for both joints j that part i carries.
    S_pair : (n, 6, 6)
        S_21 of those two joints.
    """

    M: np.ndarray
    S_down: np.ndarray
    S_pair: np.ndarray


# ---------------------------------------------------------------------- small matrices


@njit(cache=True)
def _invert_inertia(I, share, out):
    """Write the inverse of `share` I (3, 3) into `out`; return ln det, or nan if I is singular."""
    a, b, c = I[0, 0] * share, I[1, 1] * share, I[2, 2] * share
    d, e, f = I[1, 2] * share, I[0, 2] * share, I[0, 1] * share
    out[0, 0], out[1, 1], out[2, 2] = b * c - d * d, a * c - e * e, a * b - f * f
    out[0, 1] = out[1, 0] = e * d - f * c
    out[0, 2] = out[2, 0] = f * d - e * b
    out[1, 2] = out[2, 1] = f * e - d * a
    det = a * out[0, 0] + f * out[0, 1] + e * out[0, 2]
    trace, minors = a + b + c, out[0, 0] + out[1, 1] + out[2, 2]
    # trace(I) trace(I^-1) bounds the ratio of the moments and, unlike pivots, cannot hide a singular direction
    if not det > SINGULAR_INERTIA * trace * minors:
        return np.nan
    for i in range(3):
        for j in range(3):
            out[i, j] /= det
    return np.log(det)


@njit(cache=True)
def _complement(S, k, Q, K, K_J):
    """Write K and K_J of a joint with the motions S[:, :k] (6, k); return ln det S^T S, or nan if it is singular.

    Householder QR: S = Q R, K = the last 6 - k columns of Q, K_J = R^-1 Q^T by back substitution. `S` is overwritten;
    `Q` (6, 6) is scratch.
    """
    for i in range(6):
        for j in range(6):
            Q[i, j] = 1.0 if i == j else 0.0
    log_det = 0.0
    for s in range(k):
        whole = 0.0
        left = 0.0
        for i in range(6):
            whole += S[i, s] * S[i, s]
            if i >= s:
                left += S[i, s] * S[i, s]
        if not left > DEPENDENT_AXES * DEPENDENT_AXES * whole:
            return np.nan
        alpha = -np.copysign(np.sqrt(left), S[s, s])
        log_det += np.log(left)
        S[s, s] -= alpha
        length = left - alpha * (S[s, s] + alpha)  # half of v.v, v the Householder vector that S[s:, s] now holds
        for j in range(s + 1, k):
            product = 0.0
            for i in range(s, 6):
                product += S[i, s] * S[i, j]
            for i in range(s, 6):
                S[i, j] -= product / length * S[i, s]
        for j in range(6):
            product = 0.0
            for i in range(s, 6):
                product += Q[j, i] * S[i, s]
            for i in range(s, 6):
                Q[j, i] -= product / length * S[i, s]
        S[s, s] = alpha
    for i in range(6):
        for r in range(6 - k):
            K[r, i] = Q[i, k + r]
        for s in range(k - 1, -1, -1):
            value = Q[i, s]
            for j in range(s + 1, k):
                value -= S[s, j] * K_J[j, i]
            K_J[s, i] = value / S[s, s]
    return log_det


@njit(cache=True)
def _invert_block(Phi, n, size, L, out):
    """Write the inverse of the leading n x n block of `Phi` into `out` (6, 6); return ln det, or nan if singular.

    `size` (6,): the diagonal before the elimination. `L` (6, 6) is scratch: the inverse of the Cholesky factor.
    """
    log_det = 0.0
    for j in range(n):
        for i in range(j, n):
            value = Phi[i, j]
            for e in range(j):
                value -= L[i, e] * L[j, e]
            if i > j:
                L[i, j] = value / L[j, j]
            elif value > PIVOT_TOLERANCE * size[j]:
                L[j, j] = np.sqrt(value)
                log_det += np.log(value)
            else:
                return np.nan
    for j in range(n):
        L[j, j] = 1.0 / L[j, j]
        for i in range(j + 1, n):
            value = 0.0
            for e in range(j, i):
                value -= L[i, e] * L[e, j]
            L[i, j] = value / L[i, i]
    for i in range(n):
        for j in range(i + 1):
            value = 0.0
            for e in range(i, n):
                value += L[e, i] * L[e, j]
            out[i, j] = value
            out[j, i] = value
    return log_det


@njit(cache=True)
def _force_rows(K, rows, r, out):
    """Write K X into `out` (rows, 6), where X takes motions at a centre of mass to those at a point `r` away from it."""
    for s in range(rows):
        x, y, z = K[s, 3], K[s, 4], K[s, 5]
        out[s, 0] = K[s, 0] + r[1] * z - r[2] * y
        out[s, 1] = K[s, 1] + r[2] * x - r[0] * z
        out[s, 2] = K[s, 2] + r[0] * y - r[1] * x
        out[s, 3] = x
        out[s, 4] = y
        out[s, 5] = z


@njit(cache=True)
def _yield(mobility, lightness, H, rows, out):
    """Write H A^-1 into `out` (rows, 6)."""
    for s in range(rows):
        for i in range(3):
            out[s, i] = mobility[i, 0] * H[s, 0] + mobility[i, 1] * H[s, 1] + mobility[i, 2] * H[s, 2]
            out[s, 3 + i] = lightness * H[s, 3 + i]


@njit(cache=True)
def _add_product(A, B, rows, inner, columns, sign, out):
    """Add sign A B^T to `out` (rows, columns); A is (rows, inner), B (columns, inner)."""
    for i in range(rows):
        for j in range(columns):
            value = 0.0
            for e in range(inner):
                value += A[i, e] * B[j, e]
            out[i, j] += sign * value


# ---------------------------------------------------------------------- free bodies and joints


@njit(cache=True)
def _free_bodies(joint, mass, com, inertia, parts, joints):
    """Write A^-1 of every part; return sum ln det A, and the link of a body whose inertia is singular, or -1."""
    log_det = 0.0
    for i in range(len(parts.link)):
        l = parts.link[i]
        m = mass[l] * parts.share[i]
        joints.lightness[i] = 1.0 / m
        joints.com[i] = com[l]
        log_det += 3.0 * np.log(m)
        if joint[l] == POINT:
            joints.mobility[i] = 0.0
            continue
        value = _invert_inertia(inertia[l], parts.share[i], joints.mobility[i])
        if not np.isfinite(value):
            return 0.0, l
        log_det += value
    return log_det, -1


@njit(cache=True)
def _joint_motions(parent, joint, axis, origin, l, k, S):
    """Write the motions S (6, k) of the coordinates between link `l` and its next body, at the origin of `l`.

    Column 0 is the coordinate of `l` itself; the others follow towards the root.
    """
    o = l
    for s in range(k):
        a = axis[l]
        for i in range(3):
            S[i, s] = 0.0 if joint[l] == PRISMATIC else a[i]
            S[3 + i, s] = a[i] if joint[l] == PRISMATIC else 0.0
        if joint[l] != PRISMATIC:
            x, y, z = origin[o, 0] - origin[l, 0], origin[o, 1] - origin[l, 1], origin[o, 2] - origin[l, 2]
            S[3, s] = a[1] * z - a[2] * y
            S[4, s] = a[2] * x - a[0] * z
            S[5, s] = a[0] * y - a[1] * x
        l = parent[l]


@njit(cache=True)
def _joint_directions(parent, joint, axis, origin, parts, joints):
    """Write K, K_J (9)-(11), H_own and H_up (13) of every joint.

    Returns sum ln det S^T S, and the link of a joint whose soft coordinates depend on each other, or -1.
    """
    S, Q = np.empty((2, 6, 6))
    r = np.empty(3)
    log_det = 0.0
    for i in range(len(parts.link)):
        u, k, l = parts.up[i], parts.soft[i], parts.link[i]
        joints.rows[i] = 0
        if u == FLOATING:
            continue
        if k > 6:
            return 0.0, l
        # the parts of one body are welded at their common centre of mass
        joints.point[i] = origin[l] if k > 0 else joints.com[i]
        _joint_motions(parent, joint, axis, origin, l, k, S)
        value = _complement(S, k, Q, joints.K[i], joints.K_J[i])
        if not np.isfinite(value):
            return 0.0, l
        log_det += value
        joints.rows[i] = 6 - k
        for e in range(3):
            r[e] = joints.point[i, e] - joints.com[i, e]
        _force_rows(joints.K[i], 6 - k, r, joints.H_own[i])
        if u >= 0:
            for e in range(3):
                r[e] = joints.point[i, e] - joints.com[u, e]
            _force_rows(joints.K[i], 6 - k, r, joints.H_up[i])
    return log_det, -1


# ---------------------------------------------------------------------- path 1, matrices


@njit(cache=True)
def _free_block(joints, u, i, Y, Phi, size):
    """Write S_i = H_ii A_i^-1 H_ii^T + H_iu A_u^-1 H_iu^T (32) into `Phi`, and its diagonal into `size` (6,).

    `Y` (6, 6) is scratch, and holds H_ii A_i^-1 on return.
    """
    n = joints.rows[i]
    Phi[:] = 0.0
    if u >= 0:
        _yield(joints.mobility[u], joints.lightness[u], joints.H_up[i], n, Y)
        _add_product(Y, joints.H_up[i], n, 6, n, 1.0, Phi)
    _yield(joints.mobility[i], joints.lightness[i], joints.H_own[i], n, Y)
    _add_product(Y, joints.H_own[i], n, 6, n, 1.0, Phi)
    for s in range(n):
        size[s] = Phi[s, s]


@njit(cache=True)
def _add_joint(joints, blocks, i, down, Y, P, Phi):
    """Turn S_i in `Phi` into S_i - sum S_ij [Phi^-1]_jk S_ik^T (37), with S_ij = -H_ii A_i^-1 H_j,i^T (39).

    j and k run over the one or two joints in `down`. `Y` holds H_ii A_i^-1; `P` (2, 6, 6) is scratch.
    """
    n = joints.rows[i]
    first, second = down[0], down[1]
    for side in range(2):
        j = down[side]
        if j < 0:
            continue
        S = blocks.S_down[i, side]
        S[:] = 0.0
        _add_product(Y, joints.H_up[j], n, 6, joints.rows[j], -1.0, S)
    if first >= 0:
        m = joints.rows[first]
        P[0] = 0.0
        _add_product(blocks.S_down[i, 0], blocks.M[first], n, m, m, 1.0, P[0])
        _add_product(P[0], blocks.S_down[i, 0], n, m, n, -1.0, Phi)
    if second >= 0:
        m = joints.rows[second]
        R = P[1]
        R[:] = blocks.S_down[i, 1]
        if first >= 0:
            _add_product(P[0], blocks.S_pair[i], n, joints.rows[first], m, -1.0, R)
        P[0] = 0.0
        _add_product(R, blocks.M[second], n, m, m, 1.0, P[0])
        _add_product(P[0], R, n, m, n, -1.0, Phi)


@njit(cache=True)
def _couple_pair(joints, i, first, second, M_first, Y, S_pair, Phi):
    """Write S_21 = H_2,i A_i^-1 H_1,i^T of two joints on part i, and subtract S_21 M_1 S_21^T from `Phi` of joint 2."""
    m, n = joints.rows[first], joints.rows[second]
    _yield(joints.mobility[i], joints.lightness[i], joints.H_up[second], n, Y)
    S_pair[:] = 0.0
    _add_product(Y, joints.H_up[first], n, 6, m, 1.0, S_pair)
    Y[:] = 0.0
    _add_product(S_pair, M_first, n, m, m, 1.0, Y)
    _add_product(Y, S_pair, n, m, n, -1.0, Phi)


@njit(cache=True)
def _path_1_matrices(parts, joints, blocks, Phi, size):
    """Write M_i and the S blocks of every joint, from the tips to the roots (37)-(43).

    `Phi` (n, 6, 6) and `size` (n, 6) are scratch. Returns ln det Phi, and the link of a vanishing pivot, or -1.
    """
    Y, L = np.empty((2, 6, 6))
    P = np.empty((2, 6, 6))
    log_det = 0.0
    for i in range(len(parts.link) - 1, -1, -1):
        for side in range(2):
            j = parts.down[i, side]
            if j < 0:
                continue
            if side == 1 and parts.down[i, 0] >= 0:
                first = parts.down[i, 0]
                _couple_pair(joints, i, first, j, blocks.M[first], Y, blocks.S_pair[i], Phi[j])
            value = _invert_block(Phi[j], joints.rows[j], size[j], L, blocks.M[j])
            if not np.isfinite(value):
                return 0.0, parts.link[j]
            log_det += value
        if parts.up[i] == FLOATING:
            continue
        _free_block(joints, parts.up[i], i, Y, Phi[i], size[i])
        _add_joint(joints, blocks, i, parts.down[i], Y, P, Phi[i])
        if parts.up[i] >= 0:
            continue
        value = _invert_block(Phi[i], joints.rows[i], size[i], L, blocks.M[i])
        if not np.isfinite(value):
            return 0.0, parts.link[i]
        log_det += value
    return log_det, -1


# ---------------------------------------------------------------------- forces and velocities


@njit(cache=True)
def _add_wrench(r, wrench, sign, out):
    """Add the wrenches (6, m) at a point `r` away from a centre of mass, taken there, times `sign`, to `out` (6, m)."""
    for c in range(wrench.shape[1]):
        x, y, z = wrench[3, c], wrench[4, c], wrench[5, c]
        out[0, c] += sign * (wrench[0, c] + r[1] * z - r[2] * y)
        out[1, c] += sign * (wrench[1, c] + r[2] * x - r[0] * z)
        out[2, c] += sign * (wrench[2, c] + r[0] * y - r[1] * x)
        out[3, c] += sign * x
        out[4, c] += sign * y
        out[5, c] += sign * z


@njit(cache=True)
def _joint_wrench(parent, dof, l, k, K_J, tau, out):
    """Write the wrenches K_J^T n_J of the joint torques between link `l` and its next body, at o, into `out` (6, m)."""
    out[:] = 0.0
    for s in range(k):
        for i in range(6):
            for c in range(tau.shape[1]):
                out[i, c] += K_J[s, i] * tau[dof[l], c]
        l = parent[l]


@njit(cache=True)
def _applied_forces(parent, joint, dof, origin, parts, joints, tau, t):
    """Write t_i of (28), as corrected above and without b_i, into `t` (n, 6, m), from the forces `tau` (n_dof, m)."""
    wrench = np.empty((6, tau.shape[1]))
    r = np.empty(3)
    t[:] = 0.0
    for i in range(len(parts.link)):
        u, l, k = parts.up[i], parts.link[i], parts.soft[i]
        if u == FLOATING:
            start = 0 if joint[l] == FREE else 3
            wrench[:] = 0.0
            for e in range(start, 6):
                for c in range(tau.shape[1]):
                    wrench[e, c] = tau[dof[l] + e - start, c]
            for e in range(3):
                r[e] = origin[l, e] - joints.com[i, e]
            _add_wrench(r, wrench, 1.0, t[i])
        elif k > 0:
            _joint_wrench(parent, dof, l, k, joints.K_J[i], tau, wrench)
            for e in range(3):
                r[e] = joints.point[i, e] - joints.com[i, e]
            _add_wrench(r, wrench, 1.0, t[i])
            if u >= 0:
                for e in range(3):
                    r[e] = joints.point[i, e] - joints.com[u, e]
                _add_wrench(r, wrench, -1.0, t[u])


@njit(cache=True)
def _gyroscopic_forces(inertia, parts, w, t):
    """Subtract b_i = (omega x I omega; 0) from `t` (n, 6, 1)."""
    momentum = np.empty(3)
    for i in range(len(parts.link)):
        l = parts.link[i]
        for e in range(3):
            momentum[e] = inertia[l, e, 0] * w[l, 0] + inertia[l, e, 1] * w[l, 1] + inertia[l, e, 2] * w[l, 2]
        add_cross(w[l], momentum, -parts.share[i], t[i, :3, 0])


@njit(cache=True)
def _add_centripetal(w, r, sign, turn, out):
    """Add sign w x (w x r) to `out` (3,); `turn` (3,) is scratch."""
    turn[:] = 0.0
    add_cross(w, r, 1.0, turn)
    add_cross(w, turn, sign, out)


@njit(cache=True)
def _velocity_accelerations(parent, joint, dof, mass, axis, origin, com, parts, w, v, h):
    """Write the relative acceleration at o that velocities alone cause into `h` (n, 6, 1).

    The part of r_C'' that neither body's theta'' nor q'' makes. Axes turn with the links that hold them: a revolute one
    adds omega x axis q' to the angular acceleration, a sliding one twice that to the linear one; offsets between
    origins add omega x (omega x r).
    """
    r, g, turn = np.empty((3, 3))
    h[:] = 0.0
    for i in range(len(parts.link)):
        l = parts.link[i]
        if parts.soft[i] == 0:
            continue
        angular, linear = h[i, :3, 0], h[i, 3:, 0]
        o = origin[l]
        for e in range(3):
            r[e] = o[e] - com[l, e]
        _add_centripetal(w[l], r, -1.0, turn, linear)
        body = next_body(parent, mass, l)
        for _ in range(parts.soft[i]):
            up = parent[l]
            start = com[up] if up == body else origin[up]
            for e in range(3):
                r[e] = origin[l, e] - start[e]
            _add_centripetal(w[up], r, 1.0, turn, linear)
            g[:] = 0.0
            add_cross(w[up], axis[l], v[dof[l]], g)
            for e in range(3):
                r[e] = o[e] - origin[l, e]
                if joint[l] == PRISMATIC:
                    linear[e] += 2.0 * g[e]
                else:
                    angular[e] += g[e]
            if joint[l] != PRISMATIC:
                add_cross(g, r, 1.0, linear)
            l = up


# ---------------------------------------------------------------------- paths 1 and 2, vectors


@njit(cache=True)
def _free_accelerations(joints, t, x):
    """Write A_i^-1 t_i into `x`; both (n, 6, m)."""
    for i in range(len(t)):
        m = joints.mobility[i]
        for c in range(t.shape[2]):
            for e in range(3):
                x[i, e, c] = m[e, 0] * t[i, 0, c] + m[e, 1] * t[i, 1, c] + m[e, 2] * t[i, 2, c]
                x[i, 3 + e, c] = joints.lightness[i] * t[i, 3 + e, c]


@njit(cache=True)
def _add_columns(A, rows, inner, x, sign, out):
    """Add sign A x to `out`; A is (rows, inner), x (inner, m), out (rows, m)."""
    for i in range(rows):
        for e in range(inner):
            a = sign * A[i, e]
            for c in range(x.shape[1]):
                out[i, c] += a * x[e, c]


@njit(cache=True)
def _add_columns_transposed(A, rows, inner, x, sign, out):
    """Add sign A^T x to `out`; A is (rows, inner), x (rows, m), out (inner, m)."""
    for i in range(rows):
        for e in range(inner):
            a = sign * A[i, e]
            for c in range(x.shape[1]):
                out[e, c] += a * x[i, c]


@njit(cache=True)
def _solve_pair(joints, blocks, i, down, x, y):
    """Replace right-hand sides by forces at the joints that part i carries: n_1 and n_2, in `x` (n, 6, m).

    (40) for joint 1, then for joint 2, then (35) for joint 1 again. `y` (6, m) is scratch.
    """
    first, second = down[0], down[1]
    if first >= 0:
        m = joints.rows[first]
        y[:] = 0.0
        _add_columns(blocks.M[first], m, m, x[first], 1.0, y)
        x[first] = y
    if second >= 0:
        n = joints.rows[second]
        if first >= 0:
            _add_columns(blocks.S_pair[i], n, joints.rows[first], x[first], -1.0, x[second])
        y[:] = 0.0
        _add_columns(blocks.M[second], n, n, x[second], 1.0, y)
        x[second] = y
        if first >= 0:
            m = joints.rows[first]
            y[:] = 0.0
            _add_columns_transposed(blocks.S_pair[i], n, m, x[second], 1.0, y)
            _add_columns(blocks.M[first], m, m, y, -1.0, x[first])


@njit(cache=True)
def _path_1(parts, joints, blocks, free, h, force):
    """Write the constraint force of every joint before the joints towards the root exist, `force` (n, 6, m), (40).

    The right-hand sides are a_i = h_i + H_iu A_u^-1 t_u - H_ii A_i^-1 t_i, with A^-1 t in `free` (n, 6, m).
    """
    y = np.empty((6, force.shape[2]))
    force[:] = 0.0
    for i in range(len(parts.link) - 1, -1, -1):
        _solve_pair(joints, blocks, i, parts.down[i], force, y)
        u, n = parts.up[i], joints.rows[i]
        if u == FLOATING:
            continue
        _add_columns(joints.K[i], n, 6, h[i], 1.0, force[i])
        _add_columns(joints.H_own[i], n, 6, free[i], -1.0, force[i])
        if u >= 0:
            _add_columns(joints.H_up[i], n, 6, free[u], 1.0, force[i])
        for side in range(2):
            j = parts.down[i, side]
            if j >= 0:
                _add_columns(blocks.S_down[i, side], n, joints.rows[j], force[j], -1.0, force[i])
        if u < 0:
            y[:] = 0.0
            _add_columns(blocks.M[i], n, n, force[i], 1.0, y)
            force[i] = y


@njit(cache=True)
def _path_2(parts, joints, blocks, change, force):
    """Turn `force` (n, 6, m) into the constraint forces of the whole system, from the roots to the tips (47).

    `change` (n, 6, m) is scratch.
    """
    y = np.empty((6, force.shape[2]))
    for i in range(len(parts.link)):
        if parts.up[i] == FLOATING:
            continue
        for side in range(2):
            j = parts.down[i, side]
            if j >= 0:
                change[j] = 0.0
                _add_columns_transposed(
                    blocks.S_down[i, side], joints.rows[i], joints.rows[j], force[i], 1.0, change[j]
                )
        _solve_pair(joints, blocks, i, parts.down[i], change, y)
        for side in range(2):
            j = parts.down[i, side]
            if j >= 0:
                force[j] -= change[j]


@njit(cache=True)
def _add_constraint_forces(parts, joints, force, t):
    """Add the constraint forces H_ii^T n_i - sum H_ji^T n_j to `t` (n, 6, m), the right-hand side of (48)."""
    for i in range(len(parts.link)):
        _add_columns_transposed(joints.H_own[i], joints.rows[i], 6, force[i], 1.0, t[i])
        if parts.up[i] >= 0:
            _add_columns_transposed(joints.H_up[i], joints.rows[i], 6, force[i], -1.0, t[parts.up[i]])


@njit(cache=True)
def _add_motion(r, x, sign, out):
    """Add sign times the motion `x` (6, m) of a body, at a point `r` away from its centre of mass, to `out` (6, m)."""
    for c in range(x.shape[1]):
        out[0, c] += sign * x[0, c]
        out[1, c] += sign * x[1, c]
        out[2, c] += sign * x[2, c]
        out[3, c] += sign * (x[3, c] + x[1, c] * r[2] - x[2, c] * r[1])
        out[4, c] += sign * (x[4, c] + x[2, c] * r[0] - x[0, c] * r[2])
        out[5, c] += sign * (x[5, c] + x[0, c] * r[1] - x[1, c] * r[0])


@njit(cache=True)
def _joint_accelerations(parent, joint, dof, origin, parts, joints, x, h, q):
    """Write q'' = K_J (r_C'' - h) (49) into `q` (n_dof, m), from body accelerations `x`; bases have their own.

    `x` and `h` are (n, 6, m).
    """
    r = np.empty(3)
    relative = np.empty((6, q.shape[1]))
    for i in range(len(parts.link)):
        u, l = parts.up[i], parts.link[i]
        relative[:] = 0.0
        if u == FLOATING:
            for e in range(3):
                r[e] = origin[l, e] - joints.com[i, e]
            _add_motion(r, x[i], 1.0, relative)
            start = 0 if joint[l] == FREE else 3
            for e in range(start, 6):
                q[dof[l] + e - start] = relative[e]
            continue
        for e in range(3):
            r[e] = joints.point[i, e] - joints.com[i, e]
        _add_motion(r, x[i], 1.0, relative)
        if u >= 0:
            for e in range(3):
                r[e] = joints.point[i, e] - joints.com[u, e]
            _add_motion(r, x[u], -1.0, relative)
        relative -= h[i]
        for s in range(parts.soft[i]):
            q[dof[l]] = 0.0
            _add_columns(joints.K_J[i, s : s + 1], 1, 6, relative, 1.0, q[dof[l] : dof[l] + 1])
            l = parent[l]


@njit(cache=True)
def _base_velocity_terms(joint, dof, origin, parts, joints, w, q):
    """Add omega x (omega x r) to the accelerations of the base origins, which are not the centres of mass."""
    r, turn = np.empty((2, 3))
    for i in range(len(parts.link)):
        l = parts.link[i]
        if parts.up[i] == FLOATING and joint[l] == FREE:
            for e in range(3):
                r[e] = origin[l, e] - joints.com[i, e]
            _add_centripetal(w[l], r, 1.0, turn, q[dof[l] + 3 : dof[l] + 6])


@njit(cache=True)
def _constraint_wrenches(parent, joint, dof, axis, origin, parts, joints, force, tau, out):
    """Write the constraint wrench at every link, `out` (n_links, 6): the joint's whole wrench less the own torque."""
    total = np.empty((6, 1))
    out[:] = 0.0
    for i in range(len(parts.link)):
        l, k = parts.link[i], parts.soft[i]
        if k == 0:
            continue
        _joint_wrench(parent, dof, l, k, joints.K_J[i], tau, total)
        _add_columns_transposed(joints.K[i], joints.rows[i], 6, force[i], 1.0, total)
        for _ in range(k):
            x, y, z = (
                joints.point[i, 0] - origin[l, 0],
                joints.point[i, 1] - origin[l, 1],
                joints.point[i, 2] - origin[l, 2],
            )
            out[l, 0] = total[0, 0] + y * total[5, 0] - z * total[4, 0]
            out[l, 1] = total[1, 0] + z * total[3, 0] - x * total[5, 0]
            out[l, 2] = total[2, 0] + x * total[4, 0] - y * total[3, 0]
            for e in range(3):
                out[l, 3 + e] = total[3 + e, 0]
                out[l, (3 if joint[l] == PRISMATIC else 0) + e] -= tau[dof[l], 0] * axis[l, e]
            l = parent[l]


# ---------------------------------------------------------------------- the solver


class VirtualWorkFactor(Factor):
    """The eliminated system of constraint forces of one tree in one configuration."""

    def __init__(self, tree: TreeModel, state: State):
        self._tree = tree
        self._links: Links = tree.links(state)
        self._parts: Parts = split_links(tree)
        n = len(self._parts.link)
        self._joints = Joints(
            com=np.empty((n, 3)),
            point=np.empty((n, 3)),
            mobility=np.empty((n, 3, 3)),
            lightness=np.empty(n),
            rows=np.empty(n, dtype=np.int64),
            K=np.empty((n, 6, 6)),
            K_J=np.empty((n, 6, 6)),
            H_own=np.empty((n, 6, 6)),
            H_up=np.empty((n, 6, 6)),
        )
        self._blocks = Blocks(M=np.empty((n, 6, 6)), S_down=np.empty((n, 2, 6, 6)), S_pair=np.empty((n, 6, 6)))
        links = self._links
        bodies, singular = _free_bodies(tree.joint, links.mass, links.com, links.inertia, self._parts, self._joints)
        axes = constraints = 0.0
        if singular < 0:
            axes, singular = _joint_directions(tree.parent, tree.joint, links.axis, links.p, self._parts, self._joints)
        if singular < 0:
            constraints, singular = _path_1_matrices(
                self._parts, self._joints, self._blocks, np.empty((n, 6, 6)), np.empty((n, 6))
            )
        if singular >= 0:
            raise_singular(tree, singular)
        self._log_det = bodies + axes + constraints

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return M^-1 b: the accelerations from rest under the generalised forces b."""
        shape = (len(self._parts.link), 6, b.shape[1])
        return self._accelerate(b, self._applied(b), np.zeros(shape))[0]

    def log_det(self) -> float:
        """Return ln det M, by Fixman's theorem."""
        return self._log_det

    def accelerations(self, v: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the accelerations (n_dof,), and the constraint wrenches (n_links, 6) at every joint.

        Parameters
        ----------
        v, tau : (n_dof,)
            Generalised velocities and forces.
        """
        tree, links = self._tree, self._links
        w, u = np.empty((2, tree.n_links, 3))
        link_twists(tree.parent, tree.joint, tree.dof, links.axis, links.p, v, w, u)
        column = tau[:, None]
        t = self._applied(column)
        _gyroscopic_forces(links.inertia, self._parts, w, t)
        h = np.empty_like(t)
        _velocity_accelerations(
            tree.parent, tree.joint, tree.dof, links.mass, links.axis, links.p, links.com, self._parts, w, v, h
        )
        q, force = self._accelerate(column, t, h)
        acceleration = q[:, 0].copy()
        _base_velocity_terms(tree.joint, tree.dof, links.p, self._parts, self._joints, w, acceleration)
        wrenches = np.empty((tree.n_links, 6))
        _constraint_wrenches(
            tree.parent, tree.joint, tree.dof, links.axis, links.p, self._parts, self._joints, force, column, wrenches
        )
        return acceleration, wrenches

    def _applied(self, tau: np.ndarray) -> np.ndarray:
        tree = self._tree
        t = np.empty((len(self._parts.link), 6, tau.shape[1]))
        _applied_forces(tree.parent, tree.joint, tree.dof, self._links.p, self._parts, self._joints, tau, t)
        return t

    def _accelerate(self, tau: np.ndarray, t: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return q'' (n_dof, m) and the constraint forces n (n_parts, 6, m); `t` is overwritten."""
        tree, parts, joints, blocks = self._tree, self._parts, self._joints, self._blocks
        x, force = np.empty((2, *t.shape))
        _free_accelerations(joints, t, x)
        _path_1(parts, joints, blocks, x, h, force)
        _path_2(parts, joints, blocks, x, force)
        _add_constraint_forces(parts, joints, force, t)
        _free_accelerations(joints, t, x)
        q = np.empty_like(tau)
        _joint_accelerations(tree.parent, tree.joint, tree.dof, self._links.p, parts, joints, x, h, q)
        return q, force


class VirtualWorkSolver(Solver):
    """Constraint forces of all joints by the principle of virtual work, from tips to roots and back (48)-(53).

    Every body needs an invertible inertia of its own, which the mass shared across joints gives to bodies of two atoms
    and more. Welded and free bases, sliding joints, and joints of several coordinates are covered.
    """

    name = "virtual-work"
    paper = "K. Yamane & Y. Nakamura, O(N) forward dynamics of open kinematic chains by the principle of virtual work"

    def factor(self, tree: TreeModel, state: State) -> VirtualWorkFactor:
        return VirtualWorkFactor(tree, state)

    def _accelerations(self, tree: TreeModel, state: State, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        return self.factor(tree, state).accelerations(v, tau)[0]

    def constraint_forces(self, tree: TreeModel, state: State, velocities: Any, tau: Any) -> np.ndarray:
        """Return the constraint wrench at every joint, (n_links, 6).

        Row l is the wrench that the parent exerts on link l through the constraint of their joint, in world axes: the
        torque about the joint point (the origin of link l, on its axis), kJ/mol, then the force, kJ/mol/nm. It does no
        work along the joint's own coordinate. Roots, which no constraint holds, and a welded base have zeros.

        The generalised forces `tau` act as torques (forces, if sliding) between parent and link along the joint's axis
        and as an external wrench on the base. Forces on atoms, given as tau = J^T F, therefore move the system as they
        should, but the constraint wrenches are those of the equivalent joint torques. Masses of atoms that lie on an
        axis are divided between two bodies as `TreeModel` says, and so is the force that moves them.

        Parameters
        ----------
        tree : TreeModel
        state : State
        velocities, tau : (n_dof,)
        """
        v = tree.check_dof_vector("velocities", velocities)
        t = tree.check_dof_vector("tau", tau)
        return self._finite(self.factor(tree, state).accelerations(v, t)[1])
