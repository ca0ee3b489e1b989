"""Free bodies, the constrained directions of the joints between them, and the eliminated blocks of their forces.

The matrices of Yamane and Nakamura's method; `peptidyn.solvers.virtual_work` has the legend, the vectors and the
dynamics. Nothing here depends on forces or velocities.

A joint of k soft coordinates lets its bodies move along the k columns of S, (6, k), taken at the joint point. With the
QR decomposition S = Q R, the last 6 - k columns of Q are K^T, and K_J = (S^T S)^-1 S^T = R^-1 Q^T. So K K_J^T = 0 (11),
K has orthonormal rows, joint rates are q' = K_J r_C' (10), and K_J^T tau is the wrench that does the work of the
generalised forces tau. For one coordinate K_J is S^T.

Elimination. Y_i is the acceleration that a unit force makes at body i: A_i^-1 for the free body. R_i = H_ii Y_i H_ii^T
is the same at joint i, with all joints behind it in place. Then (41) reads M_i = (R_i + H_iu Y_u H_iu^T)^-1, where Y_u
knows the joint that was put on body u before, and joint i changes Y_u to Y_u - G H_iu Y_u, with G = Y_u H_iu^T M_i.
That difference is what (37) prints. Where a long branch hangs on a light body it is a small difference of large
numbers; the same matrix is therefore formed as a sum of squares, (1 - G H) Y (1 - G H)^T + G R G^T.

Joint inertias. A coordinate s with inertia a acts on both bodies with the force n_s = -a q'' along its row of K_J. Its
equation, K_J,s (r_C'' - h) + n_s / a = 0, is that of a constraint that yields by 1/a per unit force. These rows follow
those of K, and R_i gets 1/a on their diagonal; nothing else changes. ln det M gains sum ln a, as
det(M + diag a) = det M det(diag a) det(diag 1/a + M^-1), the last over the coordinates that have inertia.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peptidyn.core.jit import njit
from peptidyn.model.kinematics import POINT, PRISMATIC, link_snapshot
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.dynamics import inertia_of_links
from peptidyn.solvers.inertia_sharing import invert_inertia, share_inertias
from peptidyn.solvers.spatial_algebra import copy_matrix, fill_matrix
from peptidyn.solvers.split_links import FLOATING, GROUND, Parts

DEPENDENT_AXES = 1e-8
"""Soft coordinates of one joint with a sine below this between their motions are one coordinate."""

PIVOT_TOLERANCE = 1e-13
"""A pivot of M_i^-1 below this part of its diagonal entry is a zero: what is left is rounding error."""

OWN, UP = 0, 1
"""The two bodies of joint i: body i, and body up[i]."""


class Joints(NamedTuple):
    """The free bodies and the joints between them, over parts i; `Parts` says which joins which.

    Attributes
    ----------
    mobility : (n, 3, 3), lightness : (n,)
        A^-1: inverse inertia, inverse mass.
    rows : (n,) int
        N_C and the coordinates with joint inertia; 0 where there is no joint.
    row : (n, 6) int
        Row of each soft coordinate in K, from `link` towards the root: those with inertia come first.
    compliance : (n, 6)
        1/a of the rows with joint inertia a, zero for constrained directions.
    K : (n, 6, 6)
        The first N_C rows are K, the last k are K_J.
    arm : (n, 2, 3)
        The joint point as seen from the centres of mass of part i (OWN) and of part up[i] (UP).
    M : (n, 6, 6)
        M_i, over `rows` rows.
    """

    mobility: np.ndarray
    lightness: np.ndarray
    rows: np.ndarray
    row: np.ndarray
    compliance: np.ndarray
    K: np.ndarray
    arm: np.ndarray
    M: np.ndarray


# ---------------------------------------------------------------------- free bodies


@njit(cache=True)
def _list_bodies(parent, mass, link, top, up):
    """Write the bodies as `share_inertias` reads them, each (n_links,); return how many there are.

    `link`: with the mass, or a root; `top`: the first link of its joint; `up`: the parent body, -1 for roots.
    """
    number = np.empty(len(parent), np.int64)
    n = 0
    for l in range(len(parent)):
        if parent[l] >= 0 and mass[l] == 0.0:
            continue
        number[l] = n
        link[n] = l
        top[n] = l
        up[n] = -1
        if parent[l] >= 0:
            above = parent[l]
            while mass[above] == 0.0 and parent[above] >= 0:
                top[n] = above
                above = parent[above]
            up[n] = number[above]
        n += 1
    return n


class Bodies(NamedTuple):
    """The bodies as `share_inertias` reads them, and room for their inertias.

    Attributes
    ----------
    link, top, up : (n_bodies,) int
        See `_list_bodies`.
    inertia : (n_bodies, 3, 3)
        Scratch.
    shared : (n_links, 3, 3)
        Inertias that can be inverted.
    lent : (n_links, 3, 3)
        Inertia that each body was lent through its joint towards the root.
    """

    link: np.ndarray
    top: np.ndarray
    up: np.ndarray
    inertia: np.ndarray
    shared: np.ndarray
    lent: np.ndarray


def list_bodies(tree: TreeModel) -> Bodies:
    """Return the bodies of a tree; their inertias are not written yet."""
    n_links = tree.n_links
    link, top, up = np.empty((3, n_links), dtype=np.int64)
    n = _list_bodies(tree.parent, tree.link_mass, link, top, up)
    inertia, shared, lent = (np.empty((size, 3, 3)) for size in (n, n_links, n_links))
    return Bodies(link[:n].copy(), top[:n].copy(), up[:n].copy(), inertia, shared, lent)


@njit(cache=True)
def _share_inertias(parent, joint, axis, inertia, bodies):
    """Write `shared` and `lent` of Bodies; return whether anything was lent.

    A body's change is what its own joint gave, less what it gave on through the joints it carries.
    """
    link, up, shared, lent = bodies.link, bodies.up, bodies.shared, bodies.lent
    for b in range(len(link)):
        copy_matrix(inertia[link[b]], bodies.inertia[b])
    share_inertias(link, bodies.top, up, parent, joint, axis, bodies.inertia)
    for l in range(len(parent)):
        copy_matrix(inertia[l], shared[l])
        fill_matrix(lent[l], 0.0)
    anything = False
    for b in range(len(link) - 1, -1, -1):
        l = link[b]
        for i in range(3):
            for j in range(3):
                change = bodies.inertia[b, i, j] - inertia[l, i, j]
                anything = anything or change != 0.0
                shared[l, i, j] = bodies.inertia[b, i, j]
                lent[l, i, j] += change
                if up[b] >= 0:
                    lent[link[up[b]], i, j] += lent[l, i, j]
    return anything


@njit(cache=True)
def _free_bodies(joint, mass, inertia, parts, joints):
    """Write A^-1 of every part; return sum ln det A, and the link of a body whose inertia is singular, or -1."""
    log_det = 0.0
    for i in range(len(parts.link)):
        l = parts.link[i]
        m = mass[l] * parts.share[i]
        joints.lightness[i] = 1.0 / m
        log_det += 3.0 * np.log(m)
        if joint[l] == POINT:
            fill_matrix(joints.mobility[i], 0.0)
            continue
        det = invert_inertia(inertia[l], joints.mobility[i])
        if not det > 0.0:
            return 0.0, l
        for j in range(3):
            for k in range(3):
                joints.mobility[i, j, k] /= parts.share[i]
        log_det += np.log(det) + 3.0 * np.log(parts.share[i])
    return log_det, -1


# ---------------------------------------------------------------------- directions of joints


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
def _complement(S, k, row, Q, K):
    """Write K and K_J into `K` for a joint with motions S[:, :k]; return ln det S^T S, or nan if it is singular.

    Householder's QR; K_J by back substitution, coordinate s into row[s]. `S` is overwritten, `Q` (6, 6) is scratch.
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
        half_square = -alpha * S[s, s]  # of the Householder vector, which S[s:, s] now holds
        for j in range(s + 1, k):
            product = 0.0
            for i in range(s, 6):
                product += S[i, s] * S[i, j]
            for i in range(s, 6):
                S[i, j] -= product / half_square * S[i, s]
        for j in range(6):
            product = 0.0
            for i in range(s, 6):
                product += Q[j, i] * S[i, s]
            for i in range(s, 6):
                Q[j, i] -= product / half_square * S[i, s]
        S[s, s] = alpha
    for i in range(6):
        for r in range(6 - k):
            K[r, i] = Q[i, k + r]
        for s in range(k - 1, -1, -1):
            value = Q[i, s]
            for j in range(s + 1, k):
                value -= S[s, j] * K[row[j], i]
            K[row[s], i] = value / S[s, s]
    return log_det


@njit(cache=True)
def _joint_directions(parent, joint, axis, origin, com, parts, joints):
    """Write K, K_J (9)-(11) and the arms of every joint.

    Returns sum ln det S^T S, and the link of a joint whose soft coordinates depend on each other, or -1.
    """
    S, Q = np.empty((6, 6)), np.empty((6, 6))
    log_det = 0.0
    for i in range(len(parts.link)):
        u, k, l = parts.up[i], parts.soft[i], parts.link[i]
        if u == FLOATING:
            continue
        if k > 6:
            return 0.0, l
        _joint_motions(parent, joint, axis, origin, l, k, S)
        value = _complement(S, k, joints.row[i], Q, joints.K[i])
        if not np.isfinite(value):
            return 0.0, l
        log_det += value
        # the parts of one body are welded at their common centre of mass
        o = origin[l] if k > 0 else com[l]
        for e in range(3):
            joints.arm[i, OWN, e] = o[e] - com[l, e]
            joints.arm[i, UP, e] = o[e] - com[parts.link[u], e] if u >= 0 else 0.0
    return log_det, -1


# ---------------------------------------------------------------------- path 1: the blocks


@njit(cache=True)
def _constraint_rows(K, n, r, H):
    """Write H = K X into `H` (n, 6); X takes motions at a centre of mass to those at a point `r` away from it."""
    for s in range(n):
        x, y, z = K[s, 3], K[s, 4], K[s, 5]
        H[s, 0] = K[s, 0] + r[1] * z - r[2] * y
        H[s, 1] = K[s, 1] + r[2] * x - r[0] * z
        H[s, 2] = K[s, 2] + r[0] * y - r[1] * x
        H[s, 3] = x
        H[s, 4] = y
        H[s, 5] = z


@njit(cache=True)
def _multiply_symmetric(A, B, n, inner, out):
    """Write A B (n, inner) into `out` for a symmetric B (inner, inner)."""
    for i in range(n):
        for j in range(inner):
            value = 0.0
            for e in range(inner):
                value += A[i, e] * B[j, e]
            out[i, j] = value


@njit(cache=True)
def _close_symmetric(A, B, n, inner, add, out):
    """Write A B^T, or add it, to `out` (n, n), where the product is known to be symmetric; A, B (n, inner)."""
    for i in range(n):
        for j in range(i + 1):
            value = out[i, j] if add else 0.0
            for e in range(inner):
                value += A[i, e] * B[j, e]
            out[i, j] = value
            out[j, i] = value


@njit(cache=True)
def _invert_block(A, n, L, out):
    """Write the inverse of the leading n x n block of A into `out`; return ln det, or nan if it is singular.

    `L` (6, 6) is scratch: Cholesky's factor, then its inverse.
    """
    log_det = 0.0
    for j in range(n):
        for i in range(j, n):
            value = A[i, j]
            for e in range(j):
                value -= L[i, e] * L[j, e]
            if i > j:
                L[i, j] = value / L[j, j]
            elif value > PIVOT_TOLERANCE * A[j, j]:
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
def _own_response(mobility, lightness, Y):
    """Write Y = A^-1 of a free body into `Y` (6, 6)."""
    fill_matrix(Y, 0.0)
    for i in range(3):
        Y[3 + i, 3 + i] = lightness
        for j in range(3):
            Y[i, j] = mobility[i, j]


@njit(cache=True)
def _add_joint(K, n, r, R, Y, work):
    """Put a joint on a body: replace R of the joint by M (41), and Y of the body by the one that knows it.

    `K`, `n`, `r`: constrained directions, their number, the joint point as seen from the body. `work` (5, 6, 6) is
    scratch. Returns ln det M^-1, or nan if it is singular.
    """
    H, HY, L, G, T = work[0], work[1], work[2], work[3], work[4]
    _constraint_rows(K, n, r, H)
    _multiply_symmetric(H, Y, n, 6, HY)
    for i in range(n):
        for j in range(n):
            T[i, j] = R[i, j]
    _close_symmetric(HY, H, n, 6, True, R)
    log_det = _invert_block(R, n, L, R)
    if not np.isfinite(log_det):
        return log_det
    for i in range(6):
        for j in range(n):
            value = 0.0
            for e in range(n):
                value += HY[e, i] * R[e, j]
            G[i, j] = value
    _multiply_symmetric(G, T, 6, n, L)  # G R
    for i in range(6):
        for j in range(6):
            value = 1.0 if i == j else 0.0
            for e in range(n):
                value -= G[i, e] * H[e, j]
            HY[i, j] = value  # 1 - G H
    _multiply_symmetric(HY, Y, 6, 6, T)
    _close_symmetric(T, HY, 6, 6, False, Y)
    _close_symmetric(L, G, 6, n, True, Y)
    return log_det


@njit(cache=True)
def _path_1_blocks(parts, joints):
    """Write M_i of every joint, from the tips to the roots (37)-(43).

    On the way joints.M[i] holds R_i, until the joint is put on its upper body. Returns ln det of the whole system and
    of the joint inertias, and the link of a vanishing pivot, or -1.
    """
    Y, H, HY = np.empty((6, 6)), np.empty((6, 6)), np.empty((6, 6))
    work = np.empty((5, 6, 6))
    log_det = 0.0
    for i in range(len(parts.link) - 1, -1, -1):
        _own_response(joints.mobility[i], joints.lightness[i], Y)
        for j in parts.down[i]:
            if j >= 0:
                value = _add_joint(joints.K[j], joints.rows[j], joints.arm[j, UP], joints.M[j], Y, work)
                if not np.isfinite(value):
                    return 0.0, parts.link[j]
                log_det += value
        if parts.up[i] == FLOATING:
            continue
        n = joints.rows[i]
        _constraint_rows(joints.K[i], n, joints.arm[i, OWN], H)
        _multiply_symmetric(H, Y, n, 6, HY)
        _close_symmetric(HY, H, n, 6, False, joints.M[i])
        for s in range(6 - parts.soft[i], n):
            joints.M[i, s, s] += joints.compliance[i, s]
            log_det -= np.log(joints.compliance[i, s])
        if parts.up[i] == GROUND:
            value = _invert_block(joints.M[i], n, work[0], joints.M[i])
            if not np.isfinite(value):
                return 0.0, parts.link[i]
            log_det += value
    return log_det, -1


def empty_joints(tree: TreeModel, parts: Parts) -> Joints:
    """Return the joints between the parts of a tree; what depends on the configuration is not written yet."""
    n = len(parts.link)
    rows, row, compliance = np.zeros(n, dtype=np.int64), np.zeros((n, 6), dtype=np.int64), np.zeros((n, 6))
    _list_rows(tree.parent, inertia_of_links(tree), parts, rows, row, compliance)
    return Joints(
        mobility=np.empty((n, 3, 3)),
        lightness=np.empty(n),
        rows=rows,
        row=row,
        compliance=compliance,
        K=np.empty((n, 6, 6)),
        arm=np.empty((n, 2, 3)),
        M=np.empty((n, 6, 6)),
    )


@njit(cache=True)
def _list_rows(parent, joint_inertia, parts, rows, row, compliance):
    """Write rows, row and compliance of Joints, which come in as zeros."""
    for i in range(len(parts.link)):
        k = parts.soft[i]
        if parts.up[i] == FLOATING or k > 6:
            continue
        n = 6 - k
        for with_inertia in (True, False):
            l = parts.link[i]
            for s in range(k):
                a = joint_inertia[l]
                if (a > 0.0) == with_inertia:
                    row[i, s] = n
                    compliance[i, n] = 1.0 / a if with_inertia else 0.0
                    n += 1
                l = parent[l]
            if with_inertia:
                rows[i] = n


@njit(cache=True)
def eliminate_joints(tree, state, links, bodies, parts, joints):
    """Set the bodies free, join them again and eliminate the constraint forces of the joints; O(n).

    Parameters
    ----------
    tree : tuple
        `TreeModel.link_arrays`.
    state : tuple
        base_position, base_rotation, q.
    links : tuple
        Output: R, p, axis, com, inertia of a Links.
    bodies : Bodies, parts : Parts
    joints : Joints
        Output.

    Returns
    -------
    float
        ln det M of the tree, by Fixman's theorem: sum ln det A + sum ln det S^T S + ln det of the eliminated system
        + sum ln a.
    int
        A link whose inertia cannot be inverted or whose joint has dependent coordinates; -1 if there is none.
    bool
        Whether a body was lent inertia; see `peptidyn.solvers.inertia_sharing`.
    """
    link_snapshot(*tree, *state, *links)
    parent, joint, mass = tree[0], tree[1], tree[7]
    _, origin, axis, com, inertia = links
    lends = _share_inertias(parent, joint, axis, inertia, bodies)
    free, singular = _free_bodies(joint, mass, bodies.shared, parts, joints)
    if singular >= 0:
        return 0.0, singular, lends
    axes, singular = _joint_directions(parent, joint, axis, origin, com, parts, joints)
    if singular >= 0:
        return 0.0, singular, lends
    constraints, singular = _path_1_blocks(parts, joints)
    return free + axes + constraints, singular, lends
