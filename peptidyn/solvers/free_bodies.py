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

from typing import NoReturn

import numpy as np

from peptidyn.core.errors import SolverError
from peptidyn.core.jit import njit
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC, link_snapshot
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.inertia_sharing import invert_inertia, share_inertias
from peptidyn.solvers.lie_rows import lie_rows
from peptidyn.solvers.protocol import raise_singular, raise_unfit

DEPENDENT = 1e-10
"""Soft motions of one joint are one and the same if the sine between them is smaller than this."""


class FreeBodies:
    """The bodies of a tree, set free; `place` puts them into a configuration, `joint_rows` gives the rows of a joint.

    Parameters
    ----------
    tree : TreeModel
    held : (n_dof,) bool
        Soft coordinates of the tree to count as hard.

    Attributes
    ----------
    link : (n_bodies,) int
        The link with each body's mass.
    up : (n_bodies,) int
        Parent body, which comes before it; -1 for roots.
    dof : (n,) int
        Degrees of freedom of the tree that are soft, in the order of vectors over the soft coordinates.
    links : Links
        The configuration.
    inverse_inertia : (n_bodies, 3, 3), inverse_mass : (n_bodies,)
        The two parts of Lambda.
    log_det_bodies : float
        ln det of the bodies' own inertias and masses.
    joints : tuple of arrays
        What `joint_rows` reads of the bodies and of their configuration.
    """

    def __init__(self, tree: TreeModel, held: np.ndarray):
        self.link, self._top, self.up = _fold(tree)
        self.dof = np.flatnonzero(~held)
        self._soft_place = np.full(tree.n_dof, -1, dtype=np.int64)
        self._soft_place[self.dof] = np.arange(len(self.dof))
        n = len(self.link)
        self.links = tree.empty_links()
        self._inertia, self.inverse_inertia, self.inverse_mass = np.empty((n, 3, 3)), np.empty((n, 3, 3)), np.empty(n)
        self.log_det_bodies = 0.0
        links = self.links
        self._written = links.R, links.p, links.axis, links.com, links.inertia
        self.joints = (
            self.link, self._top, self.up, tree.parent, tree.joint, tree.dof, self._soft_place, links.p, links.axis,
            links.com,
        )  # fmt: skip

    def place(self, tree: TreeModel, state: State) -> None:
        """Put the bodies into a configuration; raise, naming the body, if one has no inertia about some axis."""
        tree.check_state(state)
        self.log_det_bodies, singular = _place(
            tree.link_arrays, (state.base_position, state.base_rotation, state.q), self._written,
            self.link, self._top, self.up, self._inertia, self.inverse_inertia, self.inverse_mass,
        )  # fmt: skip
        if singular >= 0:
            raise_unfit("fixman", tree, state, int(self.link[singular]))

    def raise_dependent(self, tree: TreeModel, body: int) -> NoReturn:
        """Raise SolverError for a joint whose soft motions are dependent."""
        _raise_dependent(tree, int(self.link[body]), int(self._top[body]))


@njit(cache=True)
def _place(tree, state, links, link, top, up, inertia, inverse_inertia, inverse_mass):
    """Place the links and invert the inertias; return the sum of ln det(I) m^3 and a singular body, or -1."""
    link_snapshot(*tree, *state, *links)
    parent, joint, mass = tree[0], tree[1], tree[7]
    for b in range(len(link)):
        inertia[b] = links[4][link[b]]
    share_inertias(link, top, up, parent, joint, links[2], inertia)
    return _invert_inertias(link, joint, mass, inertia, inverse_inertia, inverse_mass)


# ---------------------------------------------------------------------- I. bodies and joints


def _fold(tree: TreeModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the link, the first link of the joint and the parent body of every body."""
    roots = tree.parent < 0
    is_body = roots | (tree.link_mass > 0)
    n_children = np.bincount(tree.parent[~roots], minlength=tree.n_links)
    for l in np.flatnonzero(~is_body & (n_children != 1))[:1].tolist():
        if n_children[l] == 0:
            raise_singular(tree, l)
        raise_unfit("fixman", tree, tree.reference, l, f"link {l} has no mass and carries {n_children[l]} joints")
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
        inverse_mass[b] = 0.0
        inverse_inertia[b] = 0.0
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
def row_scratch():
    """Return the scratch of `joint_rows`."""
    return np.empty((3, 3)), np.empty((6, 6)), np.empty(6), np.eye(4), np.eye(4), np.eye(4), np.eye(4)


@njit(cache=True)
def joint_rows(b, joints, scratch, at, A, B):
    """Write the rows A, B of one joint, each (6, 6), soft ones first.

    Parameters
    ----------
    b : int
        The body.
    joints
        Of `FreeBodies`.
    scratch
        Of `row_scratch`.
    at : (6,) int
        Output: where each soft row stands in vectors over the soft coordinates.
    A, B : (6, 6)
        Output: the Lie derivatives along twists of the parent body and of body b. They see relative motion alone, so
        that A = -B X, where X carries the parent's twist to the centre of mass of body b.

    Returns
    -------
    int
        Number of soft rows.
    int
        The first hard row, 6 if there is none.
    float
        1 / |det B|; 0 if the soft motions of the joint are dependent.
    """
    link, top, up, parent, joint, dof, soft_place, p, axis, com = joints
    T, S, v, Q, Q_up, Tc, Tc_up = scratch
    if up[b] < 0:
        l = link[b]
        n = _base_rows(joint[l], p[l], com[l], A, B)
        for i in range(n):
            at[i] = soft_place[dof[l] + i]
        return n, 6, 1.0
    n = _place_frames(link[b], top[b], parent, axis, T)
    if n > 6:
        return 0, 0, 0.0
    origin = p[top[b]]
    _com_frame(T, com[link[up[b]]], origin, Tc_up, Q_up)
    _com_frame(T, com[link[b]], origin, Tc, Q)
    lie_rows(Q_up, Tc_up, Tc, Q, A, B)
    _soft_directions(link[b], n, parent, joint, axis, p, origin, T, S)
    change = _separate(S, n, v, A, B)
    n_soft = _hold(link[b], n, parent, dof, soft_place, at, A, B)
    return n_soft, n_soft, change


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


def _raise_dependent(tree: TreeModel, link: int, top: int) -> NoReturn:
    chain = [link]
    while chain[-1] != top:
        chain.append(int(tree.parent[chain[-1]]))
    soft = ", ".join(str(tree.coordinates[tree.coordinate[l]]) for l in reversed(chain))
    raise SolverError(
        f"the mass matrix is singular at the {tree.unit(link).name}: the soft coordinates of its joint move it in the "
        f"same way ({soft}); leave one of them hard"
    )
