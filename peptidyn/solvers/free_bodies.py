"""Bodies set free, and the six coordinates of every joint between them: what Fixman's method starts from.

Steps I to III of Lee, Wang & Chirikjian, "O(n) mass matrix inversion for serial manipulators and polypeptide chains
using Lie derivatives"; equation numbers are the paper's.

body b      a link with mass, or the base of a molecule; xi_b = (omega, velocity of the centre of mass), world axes
joint b     what lies between body b and its parent body; all soft coordinates there belong to it, so a bend and the
            torsion beside it are one joint. The joint of a root is its base: soft through and through
q = [s, h]  the six D-H coordinates (alpha, beta, gamma, a, b, c) of form C of every joint, split into soft and hard
A_b, B_b    Lie derivatives dq_b/dxi of joint b along the twists of its parent body and of body b: the two nonzero
            blocks of its rows in (20)
I_b, m_b    inertia about the centre of mass, made invertible by `peptidyn.solvers.inertia_sharing`, and mass
Lambda_b    I_b^-1 (+) 1/m_b; zero for a fixed base, 0 (+) 1/m for a single point
G           mass matrix of the free bodies in the coordinates q: J^T (I_1 (+) m_1 (+) ...) J, J^-1 the rows A, B

**Frames.** Both D-H frames of a joint are put on it as it stands: x along its first axis, z along the second where
there is one. So alpha = 0 and |det J| = cos^2(alpha) = 1: a torsion is beta, a sliding joint b. A bend and a torsion
are perpendicular and meet, so they are beta and gamma in either order, x_{k-1} being fixed in the parent and z_k in
the child. Joints of any other make (skew or parallel axes, three and more motions) are brought to this form by a
linear change of the six coordinates.

**Determinant.** J^-1 is triangular, with B_b on the diagonal: det G = prod_b det(I_b) m_b^3 / det(B_b)^2, where
|det B_b| = 1, unless the coordinates of joint b were changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from peptidyn.errors import SolverError
from peptidyn.model.dh import lie_rows
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC
from peptidyn.model.tree import Links, TreeModel
from peptidyn.solvers.inertia_sharing import invert_inertia, share_inertias
from peptidyn.solvers.protocol import UnsupportedError, raise_singular

DEPENDENT = 1e-10
"""Soft motions of one joint are one and the same if the sine between them is smaller than this."""


@dataclass(frozen=True, eq=False)
class FreeBodies:
    """The bodies of a tree in one configuration, set free.

    Attributes
    ----------
    link : (n_bodies,) int
        The link with each body's mass.
    up : (n_bodies,) int
        Parent body, which comes before it; -1 for roots.
    dof : (n,) int
        Degrees of freedom of the tree that are soft, in the order of vectors over the soft coordinates.
    n_soft : (n_bodies,) int
        Soft coordinates of each joint: the first rows of A and B.
    hard : (n_bodies,) int
        The first hard row of A and B, 6 if there is none.
    place : (n_bodies, 6) int
        Where each soft row stands in vectors over the soft coordinates.
    on_parent, on_child : (n_bodies, 6, 6)
        A and B.
    room : (2, n_bodies, 6, 6)
        For two more such matrices per joint, not written yet. It comes with A and B because one large allocation is
        handed out again by the C library at the next call, while several are returned to the system, page by page.
    inverse_inertia : (n_bodies, 3, 3), inverse_mass : (n_bodies,)
        The two parts of Lambda.
    log_det_G : float
        ln det G.
    """

    link: np.ndarray
    up: np.ndarray
    dof: np.ndarray
    n_soft: np.ndarray
    hard: np.ndarray
    place: np.ndarray
    on_parent: np.ndarray
    on_child: np.ndarray
    room: np.ndarray
    inverse_inertia: np.ndarray
    inverse_mass: np.ndarray
    log_det_G: float


def set_free(tree: TreeModel, links: Links, held: np.ndarray) -> FreeBodies:
    """Set the bodies of a tree free and take the Lie derivatives of their joints; O(n).

    Parameters
    ----------
    tree : TreeModel
    links : Links
        Its configuration.
    held : (n_dof,) bool
        Soft coordinates of the tree to count as hard.

    Raises
    ------
    SolverError
        Naming it, for a body without inertia about some axis, or a joint whose soft motions are dependent.
    """
    link, top, up = _fold(tree)
    n = len(link)
    inertia = links.inertia[link]
    share_inertias(link, top, up, tree.parent, tree.joint, links.axis, inertia)
    inverse_inertia, inverse_mass = np.zeros((n, 3, 3)), np.zeros(n)
    log_inertia, bad = _invert_inertias(link, tree.joint, links.mass, inertia, inverse_inertia, inverse_mass)
    if bad >= 0:
        raise_singular(tree, int(link[bad]))

    dof = np.flatnonzero(~held)
    soft_place = np.full(tree.n_dof, -1, dtype=np.int64)
    soft_place[dof] = np.arange(len(dof))
    blocks = np.empty((4, n, 6, 6))
    on_parent, on_child, room = blocks[0], blocks[1], blocks[2:]
    n_soft, hard = np.empty((2, n), dtype=np.int64)
    place = np.full((n, 6), -1, dtype=np.int64)
    log_change, bad = _take_derivatives(
        link, top, up, tree.parent, tree.joint, tree.dof, soft_place, links.p, links.axis, links.com,
        n_soft, hard, place, on_parent, on_child,
    )  # fmt: skip
    if bad >= 0:
        _raise_dependent(tree, int(link[bad]), int(top[bad]))
    log_det_G = log_inertia + 2.0 * log_change
    return FreeBodies(
        link, up, dof, n_soft, hard, place, on_parent, on_child, room, inverse_inertia, inverse_mass, log_det_G
    )


# ---------------------------------------------------------------------- I. bodies and joints


def _fold(tree: TreeModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the link, the first link of the joint and the parent body of every body."""
    roots = tree.parent < 0
    is_body = roots | (tree.link_mass > 0)
    n_children = np.bincount(tree.parent[~roots], minlength=tree.n_links)
    for l in np.flatnonzero(~is_body & (n_children != 1))[:1].tolist():
        if n_children[l] == 0:
            raise_singular(tree, l)
        raise UnsupportedError(
            f"link {l} has no mass and carries {n_children[l]} joints; the solver 'fixman' needs a body with mass "
            "where joints branch: use 'articulated' or 'dense'"
        )
    link = np.flatnonzero(is_body)
    top, up = np.empty_like(link), np.empty_like(link)
    _fold_links(tree.parent, is_body, link, top, up)
    return link, top, up


@njit(cache=True)
def _fold_links(parent, is_body, link, top, up):
    """Fold the massless links above every body into its joint."""
    number = np.empty(len(parent), np.int64)
    for b in range(len(link)):
        number[link[b]] = b
        l = link[b]
        while parent[l] >= 0 and not is_body[parent[l]]:
            l = parent[l]
        top[b] = l
        up[b] = number[parent[l]] if parent[l] >= 0 else -1


@njit(cache=True)
def _invert_inertias(link, joint, mass, inertia, inverse_inertia, inverse_mass):
    """Write the parts of Lambda; return the sum of ln det(I) m^3 and a singular body, or -1."""
    log_det = 0.0
    for b in range(len(link)):
        l = link[b]
        if joint[l] == FIXED:
            continue
        if not mass[l] > 0.0:
            return log_det, b
        inverse_mass[b] = 1.0 / mass[l]
        log_det += 3.0 * np.log(mass[l])
        if joint[l] != POINT:
            det = invert_inertia(inertia[b], inverse_inertia[b])
            if not det > 0.0:
                return log_det, b
            log_det += np.log(det)
    return log_det, -1


# ---------------------------------------------------------------------- II, III. coordinates and Lie derivatives


@njit(cache=True)
def _take_derivatives(
    link, top, up, parent, joint, dof, soft_place, p, axis, com, n_soft, hard, place, on_parent, on_child
):
    """Write the rows A, B of every joint, soft ones first; return -sum ln |det B| and a dependent joint, or -1.

    `soft_place` (n_dof,) is where each coordinate stands among the soft ones, -1 if it is held.
    """
    T, S, v = np.empty((3, 3)), np.empty((6, 6)), np.empty(6)
    Q, Q_up, Tc, Tc_up = np.eye(4), np.eye(4), np.eye(4), np.eye(4)
    log_det = 0.0
    for b in range(len(link)):
        if up[b] < 0:
            l = link[b]
            n_soft[b], hard[b] = _base_rows(joint[l], p[l], com[l], on_parent[b], on_child[b]), 6
            for i in range(n_soft[b]):
                place[b, i] = soft_place[dof[l] + i]
            continue
        n = _place_frames(link[b], top[b], parent, axis, T)
        if n > 6:
            return log_det, b
        origin = p[top[b]]
        _com_frame(T, com[link[up[b]]], origin, Tc_up, Q_up)
        _com_frame(T, com[link[b]], origin, Tc, Q)
        lie_rows(Q_up, Tc_up, Tc, Q, on_parent[b], on_child[b])
        _soft_directions(link[b], n, parent, joint, axis, p, origin, T, S)
        change = _separate(S, n, v, on_parent[b], on_child[b])
        if not change > 0.0:
            return log_det, b
        log_det += np.log(change)
        n_soft[b] = _hold(link[b], n, parent, dof, soft_place, place[b], on_parent[b], on_child[b])
        hard[b] = n_soft[b]
    return log_det, -1


@njit(cache=True)
def _base_rows(kind, origin, com, A, B):
    """Write the rows of a base: angular velocity and velocity of the base origin, the last alone for a point."""
    A[:] = 0.0
    B[:] = 0.0
    first = 0
    if kind == FREE:
        for i in range(3):
            B[i, i] = 1.0
        first = 3
    elif kind != POINT:
        return 0
    for i in range(3):  # velocity at the origin: v + omega x (origin - com)
        j, k = (i + 1) % 3, (i + 2) % 3
        B[first + i, 3 + i] = 1.0
        B[first + i, j] = origin[k] - com[k]
        B[first + i, k] = com[j] - origin[j]
    return first + 3


@njit(cache=True)
def _place_frames(link, top, parent, axis, T):
    """Write the axes x, y, z of both D-H frames of a joint as columns of `T`; return its number of soft coordinates.

    x lies along the first joint axis; z along the part of the second one perpendicular to x, if there is one.
    """
    n, second, l = 1, -1, link
    while l != top:
        second = l
        l = parent[l]
        n += 1
    x, y, z = T[:, 0], T[:, 1], T[:, 2]
    length = 0.0
    for i in range(3):
        x[i] = axis[top, i]
    if second >= 0:
        along = x[0] * axis[second, 0] + x[1] * axis[second, 1] + x[2] * axis[second, 2]
        for i in range(3):
            z[i] = axis[second, i] - along * x[i]
            length += z[i] * z[i]
    if length < 1e-6:
        least = 0
        for i in range(1, 3):
            if abs(x[i]) < abs(x[least]):
                least = i
        for i in range(3):
            z[i] = -x[least] * x[i]
        z[least] += 1.0
        length = 1.0 - x[least] * x[least]
    for i in range(3):
        z[i] /= np.sqrt(length)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        y[i] = z[j] * x[k] - z[k] * x[j]
    return n


@njit(cache=True)
def _com_frame(T, com, origin, Tc, Q):
    """Write T^c and Q = T^-1 T^c of one body for D-H axes `T`, seen from the joint, so that no lever arm is long."""
    for i in range(3):
        Tc[i, 3] = com[i] - origin[i]
        for j in range(3):
            Q[i, j] = T[j, i]
    for i in range(3):
        Q[i, 3] = T[0, i] * Tc[0, 3] + T[1, i] * Tc[1, 3] + T[2, i] * Tc[2, 3]


@njit(cache=True)
def _soft_directions(link, n, parent, joint, axis, p, origin, T, S):
    """Write d(alpha, beta, gamma, a, b, c)/d(soft coordinates) of one joint into the first n columns of `S`."""
    l = link
    for column in range(n - 1, -1, -1):
        u = axis[l]
        for j in range(3):  # alpha, a go with y; beta, b with x; gamma, c with z
            e = T[:, (1, 0, 2)[j]]
            along = e[0] * u[0] + e[1] * u[1] + e[2] * u[2]
            if joint[l] == PRISMATIC:
                S[j, column], S[3 + j, column] = 0.0, along
            else:
                r0, r1, r2 = origin[0] - p[l, 0], origin[1] - p[l, 1], origin[2] - p[l, 2]
                S[j, column] = along
                S[3 + j, column] = (
                    e[0] * (u[1] * r2 - u[2] * r1) + e[1] * (u[2] * r0 - u[0] * r2) + e[2] * (u[0] * r1 - u[1] * r0)
                )
        l = parent[l]


@njit(cache=True)
def _separate(S, n, v, A, B):
    """Replace the six coordinates by the n soft ones, with directions `S`, and 6 - n hard ones that S leaves alone.

    With Householder's S = Q [R; 0] the new rows are [R^-1 0; 0 1] Q^T times the old ones. For one torsion or slide, or
    a bend and a torsion, S holds unit vectors and Q only sorts the rows. Returns |det R|, or 0 if S is dependent.
    """
    size = 1.0
    for c in range(n):
        whole, below = 0.0, 0.0
        for i in range(6):
            v[i] = S[i, c] if i >= c else 0.0
            whole += S[i, c] * S[i, c]
            below += v[i] * v[i]
        if not below > DEPENDENT**2 * whole:
            return 0.0
        r = -np.copysign(np.sqrt(below), v[c])
        scale = 1.0 / (below - r * v[c])
        v[c] -= r
        for j in range(c + 1, n):
            _reflect(v, scale, c, S, j)
        for j in range(6):
            _reflect(v, scale, c, A, j)
            _reflect(v, scale, c, B, j)
        S[c, c] = r
        size *= abs(r)
    for c in range(n - 1, -1, -1):
        for j in range(6):
            for i in range(c + 1, n):
                A[c, j] -= S[c, i] * A[i, j]
                B[c, j] -= S[c, i] * B[i, j]
            A[c, j] /= S[c, c]
            B[c, j] /= S[c, c]
    return size


@njit(cache=True)
def _reflect(v, scale, first, X, j):
    """Reflect column j of `X`: x - scale v (v.x); `v` is zero before `first`."""
    along = 0.0
    for i in range(first, 6):
        along += v[i] * X[i, j]
    for i in range(first, 6):
        X[i, j] -= scale * along * v[i]


@njit(cache=True)
def _hold(link, n, parent, dof, soft_place, place, A, B):
    """Move the rows of held coordinates behind the soft ones; return the number of soft ones."""
    l = link
    for i in range(n - 1, -1, -1):
        place[i] = soft_place[dof[l]]
        l = parent[l]
    n_soft = 0
    for i in range(n):
        if place[i] >= 0:
            place[n_soft] = place[i]
            for j in range(6):
                A[n_soft, j], A[i, j] = A[i, j], A[n_soft, j]
                B[n_soft, j], B[i, j] = B[i, j], B[n_soft, j]
            n_soft += 1
    return n_soft


def _raise_dependent(tree: TreeModel, link: int, top: int) -> None:
    chain = [link]
    while chain[-1] != top:
        chain.append(int(tree.parent[chain[-1]]))
    soft = ", ".join(str(tree.coordinates[tree.coordinate[l]]) for l in reversed(chain))
    raise SolverError(
        f"the mass matrix is singular at the {tree.unit(link).name}: the soft coordinates of its joint move it in the "
        f"same way ({soft}); leave one of them hard"
    )
