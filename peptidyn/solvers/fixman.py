"""The extended Fixman solver: M^-1 and ln det M from the inverse mass matrix of the bodies set free; O(n).

Lee, Wang & Chirikjian, "O(n) mass matrix inversion for serial manipulators and polypeptide chains using Lie
derivatives", carried from chains to trees and from a fixed to a free base. Equation numbers are the paper's.

body b      a link with mass, or the base of a molecule; xi_b = (omega, velocity of the centre of mass), world axes
joint b     what lies between body b and its parent body; all soft coordinates there belong to it (a bend and the
            torsion beside it are one joint). The joint of a root is its base: soft through and through
q = [s, h]  the six D-H coordinates (alpha, beta, gamma, a, b, c) of form C of every joint, split into soft and hard
A_b, B_b    Lie derivatives dq_b/dxi of joint b along the twists of its parent body and of body b: the two nonzero
            blocks of its rows in (20); soft rows first. N_b, n_b: the hard rows alone of A_b and of B_b
Lambda_b    I_b^-1 (+) 1/m_b; zero for a fixed base, 0 (+) 1/m for a single point
G, H        mass matrix of the free bodies in q, and its inverse (20)

M is the soft block of G, so with the blocks (8) of H

    M^-1 = H11 - H12 H22^-1 H12^T      (6)            ln det M = ln det G + ln det H22      (Fixman's theorem)

and G = J^T (I_1 (+) m_1 (+) ...) J has the determinant prod_b det(I_b) m_b^3 det(B_b)^-2, since J^-1 is triangular.

**Frames.** Both D-H frames of a joint are put on it as it stands: x along the first joint axis, z along the second
where there is one. So alpha = 0 and |det J| = cos^2(alpha) = 1: a torsion is beta, a sliding joint b. A bend and a
torsion are perpendicular and meet, so they are beta and gamma in either order, x_{k-1} being fixed in the parent and
z_k in the child. Joints of any other make (skew or parallel axes, three and more motions) are brought to this form by
a linear change of the six coordinates, whose determinant then enters det(B_b).

**Elimination.** Blocks of H22 are nonzero where two joints share a body: its graph is the line graph of the tree,

    H22[b, b] = n_b Lambda_b n_b^T + N_b Lambda_p N_b^T            p the parent body of b
    H22[b, p] = N_b Lambda_p n_p^T,    H22[b, c] = N_b Lambda_p N_c^T            c another joint on p

Take joints from the leaves to the root. When b is eliminated, the joints left on p (its siblings, and p's own) get

    H22[c, d] -> H22[c, d] - H22[c, b] H22[b, b]^-1 H22[b, d] = N_c (Lambda_p - K_b N_b Lambda_p) N_d^T

with K_b = Lambda_p N_b^T H22[b, b]^-1: the same blocks with another Lambda_p. Fill never leaves the joints of one body,
and changing the 6x6 matrix Lambda_p is the whole update, however many joints body p has. So each joint costs the
same, the blocks above with the current Lambda are the blocks of the reduced matrix, and ln det H22 is the sum of
ln det H22[b, b] at the moments of elimination. Current Lambdas are written as sums of squares,

    Lambda_p <- (1 - K_b N_b) Lambda_p (1 - K_b N_b)^T + K_b (n_b Lambda_b n_b^T) K_b^T

which is the same matrix and keeps all its digits where a light body carries a heavy branch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from peptidyn.errors import ArgumentError
from peptidyn.model.dh import lie_rows
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC
from peptidyn.model.state import State
from peptidyn.model.tree import Links, TreeModel
from peptidyn.solvers.protocol import Factor, Solver, UnsupportedError, raise_singular

SINGULAR_INERTIA = 1e-12
"""A body whose least moment of inertia is this small a part of the sum of all three counts as a line or a point."""

_DEPENDENT = 1e-10  # soft motions of one joint with a sine below this between them are one motion
_PIVOT = 1e-14  # pivots of H22 smaller than this part of their diagonal entry hold rounding errors only


# ---------------------------------------------------------------------- I. bodies and joints


@dataclass(frozen=True, eq=False)
class _Bodies:
    """The links as the free bodies of section 3.6: (n_bodies,) integers each."""

    link: np.ndarray  # the link with the body's mass
    top: np.ndarray  # the first link of its joint; the links from there to `link` hold the soft coordinates
    up: np.ndarray  # parent body; -1 for roots


def _find_bodies(tree: TreeModel) -> _Bodies:
    roots = tree.parent < 0
    is_body = roots | (tree.link_mass > 0)
    n_children = np.bincount(tree.parent[~roots], minlength=tree.n_links)
    for l in np.flatnonzero(~is_body & (n_children != 1))[:1].tolist():
        if n_children[l] == 0:
            raise_singular(tree, l)
        raise UnsupportedError(
            f"link {l} has no mass and carries {n_children[l]} joints; the solver 'fixman' needs a body with mass "
            "where joints branch: use 'spatial-operator', 'udu' or 'dense'"
        )
    link = np.flatnonzero(is_body)
    top, up = np.empty_like(link), np.empty_like(link)
    _fold_links(tree.parent, is_body, link, top, up)
    return _Bodies(link, top, up)


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
def _fill_mobilities(link, joint, mass, inertia, mobility):
    """Write Lambda = I^-1 (+) 1/m of every body; return the sum of ln det(I) m^3 and a singular body, or -1."""
    L = np.empty((3, 3))
    log_det = 0.0
    mobility[:] = 0.0
    for b in range(len(link)):
        l = link[b]
        if joint[l] == FIXED:
            continue
        if not mass[l] > 0.0:
            return log_det, b
        log_det += 3.0 * np.log(mass[l])
        for i in range(3):
            mobility[b, 3 + i, 3 + i] = 1.0 / mass[l]
        if joint[l] == POINT:
            continue
        if not _cholesky(inertia[l], 3, L):
            return log_det, b
        _invert_cholesky(L, mobility[b])
        trace = inertia[l, 0, 0] + inertia[l, 1, 1] + inertia[l, 2, 2]
        inverse_trace = mobility[b, 0, 0] + mobility[b, 1, 1] + mobility[b, 2, 2]
        if not trace * inverse_trace * SINGULAR_INERTIA < 1.0:
            return log_det, b
        log_det += 2.0 * np.log(L[0, 0] * L[1, 1] * L[2, 2])
    return log_det, -1


# ---------------------------------------------------------------------- II, III. coordinates and Lie derivatives


@njit(cache=True)
def _fill_lie_derivatives(
    link, top, up, parent, joint, dof, place, p, axis, com, n_soft, n_hard, soft_place, on_parent, on_child
):
    """Write the rows A, B of every joint, soft ones first; return -sum ln |det B| and a singular body, or -1.

    `place` (n_dof,) is where each coordinate stands among the soft ones, -1 if it is held.
    """
    T, S = np.zeros((3, 3)), np.empty((6, 6))
    Q, Q_up, Tc, Tc_up = np.eye(4), np.eye(4), np.eye(4), np.eye(4)
    log_det = 0.0
    for b in range(len(link)):
        if up[b] < 0:
            l = link[b]
            n_soft[b], n_hard[b] = _base_rows(joint[l], p[l], com[l], on_parent[b], on_child[b]), 0
            for i in range(n_soft[b]):
                soft_place[b, i] = place[dof[l] + i]
            continue
        n = _place_frames(link[b], top[b], parent, axis, T)
        if n > 6:
            return log_det, b
        origin = p[top[b]]
        _com_frame(T, com[link[up[b]]], origin, Tc_up, Q_up)
        _com_frame(T, com[link[b]], origin, Tc, Q)
        lie_rows(Q_up, Tc_up, Tc, Q, on_parent[b], on_child[b])
        _soft_directions(link[b], n, parent, joint, axis, p, origin, T, S)
        change = _separate(S, n, on_parent[b], on_child[b])
        if not change > 0.0:
            return log_det, b
        log_det += np.log(change)
        n_soft[b] = _hold_coordinates(link[b], n, parent, dof, place, soft_place[b], on_parent[b], on_child[b])
        n_hard[b] = 6 - n_soft[b]
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
    x[:] = axis[top]
    along, length = 0.0, 0.0
    if second >= 0:
        for i in range(3):
            along += axis[second, i] * x[i]
        for i in range(3):
            z[i] = axis[second, i] - along * x[i]
            length += z[i] * z[i]
    if length < 1e-6:
        least = np.argmin(np.abs(x))
        for i in range(3):
            z[i] = (1.0 if i == least else 0.0) - x[least] * x[i]
        length = 1.0 - x[least] * x[least]
    for i in range(3):
        z[i] /= np.sqrt(length)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        y[i] = z[j] * x[k] - z[k] * x[j]
    return n


@njit(cache=True)
def _com_frame(T, com, origin, Tc, Q):
    """Write T^c and Q = T^-1 T^c of one body for D-H axes `T`, seen from the joint: no lever arm is a long one."""
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
def _separate(S, n, A, B):
    """Replace the six coordinates by the n soft ones, with directions `S`, and 6 - n hard ones that S leaves alone.

    With Householder's S = Q [R; 0] the new rows are [R^-1 0; 0 1] Q^T times the old ones. For one torsion or slide, or
    a bend and a torsion, S holds unit vectors and Q only sorts the rows. Returns |det R|, or 0 if S is dependent.
    """
    v = np.empty(6)
    size = 1.0
    for c in range(n):
        whole, below = 0.0, 0.0
        for i in range(6):
            v[i] = S[i, c] if i >= c else 0.0
            whole += S[i, c] * S[i, c]
            below += v[i] * v[i]
        if not below > _DEPENDENT**2 * whole:
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
def _hold_coordinates(link, n, parent, dof, place, soft_place, A, B):
    """Move the rows of held coordinates behind the soft ones; return the number of soft ones."""
    l = link
    for i in range(n - 1, -1, -1):
        soft_place[i] = place[dof[l]]
        l = parent[l]
    n_soft = 0
    for i in range(n):
        if soft_place[i] >= 0:
            soft_place[n_soft] = soft_place[i]
            for j in range(6):
                A[n_soft, j], A[i, j] = A[i, j], A[n_soft, j]
                B[n_soft, j], B[i, j] = B[i, j], B[n_soft, j]
            n_soft += 1
    return n_soft


@dataclass(frozen=True, eq=False)
class _Partition:
    """The free bodies in soft and hard coordinates: everything that H (20) is made of."""

    bodies: _Bodies
    dof: np.ndarray  # (n,) degrees of freedom of the tree that are soft, in order
    n_soft: np.ndarray  # (n_bodies,) soft rows of each joint; the hard ones follow them
    n_hard: np.ndarray
    soft_place: np.ndarray  # (n_bodies, 6) where each soft row stands in vectors over the soft coordinates
    on_parent: np.ndarray  # (n_bodies, 6, 6) A
    on_child: np.ndarray  # (n_bodies, 6, 6) B
    mobility: np.ndarray  # (n_bodies, 6, 6) Lambda
    log_det_G: float


def _partition(tree: TreeModel, state: State, held: np.ndarray) -> _Partition:
    """Set the bodies free and take their Lie derivatives; `held` (n_dof,) marks coordinates to count as hard."""
    bodies = _find_bodies(tree)
    links: Links = tree.links(state)
    n = len(bodies.link)
    mobility, on_parent, on_child = np.empty((3, n, 6, 6))
    n_soft, n_hard = np.empty((2, n), dtype=np.int64)
    soft_place = np.full((n, 6), -1, dtype=np.int64)
    dof = np.flatnonzero(~held)
    place = np.full(tree.n_dof, -1, dtype=np.int64)
    place[dof] = np.arange(len(dof))
    log_inertia, bad = _fill_mobilities(bodies.link, tree.joint, links.mass, links.inertia, mobility)
    if bad >= 0:
        raise_singular(tree, int(bodies.link[bad]))
    log_change, bad = _fill_lie_derivatives(
        bodies.link, bodies.top, bodies.up, tree.parent, tree.joint, tree.dof, place, links.p, links.axis, links.com,
        n_soft, n_hard, soft_place, on_parent, on_child,
    )  # fmt: skip
    if bad >= 0:
        raise_singular(tree, int(bodies.link[bad]))
    return _Partition(
        bodies, dof, n_soft, n_hard, soft_place, on_parent, on_child, mobility, log_inertia + 2.0 * log_change
    )


# ---------------------------------------------------------------------- IV. the blocks of H


class HBlocks(NamedTuple):
    """H = G^-1 in soft and hard coordinates, dense.

    Attributes
    ----------
    H11, H12, H22 : (n, n), (n, r), (r, r)
        The blocks (8).
    log_det_G : float
        ln det G of the bodies set free.
    hard_link : (r,) int
        The link whose joint each hard coordinate belongs to.
    """

    H11: np.ndarray
    H12: np.ndarray
    H22: np.ndarray
    log_det_G: float
    hard_link: np.ndarray


def h_blocks(tree: TreeModel, state: State, hard: str | int | Iterable[str | int] = ()) -> HBlocks:
    """Return the blocks (8) of H as dense matrices, O(n^2) memory: to look at and to test with.

    Parameters
    ----------
    tree : TreeModel
    state : State
    hard : str, int or several
        Soft coordinates of the tree to count as hard, as in `FixmanSolver.constrained`.
    """
    part = _partition(tree, state, _held(tree, hard))
    n_bodies, n_hard = len(part.n_soft), part.n_hard
    start = np.concatenate([[0], np.cumsum(n_hard)])
    ds = np.zeros((len(part.dof), n_bodies, 6))
    dh = np.zeros((start[-1], n_bodies, 6))
    for b, up in enumerate(part.bodies.up.tolist()):
        s = part.n_soft[b]
        soft, hard_rows = part.soft_place[b, :s], slice(start[b], start[b + 1])
        for body, rows in ((b, part.on_child[b]), (up, part.on_parent[b])):
            if body >= 0:
                ds[soft, body] = rows[:s]
                dh[hard_rows, body] = rows[s : s + n_hard[b]]
    ds_mobile = np.einsum("kbi,bij->kbj", ds, part.mobility)
    dh_mobile = np.einsum("kbi,bij->kbj", dh, part.mobility)
    return HBlocks(
        np.einsum("kbi,lbi->kl", ds_mobile, ds),
        np.einsum("kbi,lbi->kl", ds_mobile, dh),
        np.einsum("kbi,lbi->kl", dh_mobile, dh),
        part.log_det_G,
        np.repeat(part.bodies.link, n_hard),
    )


@njit(cache=True)
def _add_block(rows, s, h, Lambda, work, H):
    """Add N Lambda N^T, N the `h` hard rows from row `s` on, to the lower triangle of `H`; leave N Lambda in `work`."""
    for i in range(h):
        for j in range(6):
            total = 0.0
            for k in range(6):
                total += rows[s + i, k] * Lambda[k, j]
            work[i, j] = total
        for j in range(i + 1):
            total = 0.0
            for k in range(6):
                total += work[i, k] * rows[s + j, k]
            H[i, j] += total


@njit(cache=True)
def _eliminate(up, n_soft, n_hard, on_parent, on_child, mobility, gain, root):
    """Eliminate the joints from the leaves to the root; return ln det H22 and the body of a failed pivot, or -1.

    Written: `gain` (n_bodies, 6, 6), K of every joint, and `root`, the Cholesky factors of the pivots H22[b, b].
    `mobility` enters as the Lambdas of the bodies and leaves as the current ones of the empty reduced matrix.
    """
    H_child, H, work, N_Lambda = np.empty((4, 6, 6))
    log_det = 0.0
    for b in range(len(up) - 1, -1, -1):
        s, h, p = n_soft[b], n_hard[b], up[b]
        if h == 0:
            continue
        H_child[:] = 0.0
        _add_block(on_child[b], s, h, mobility[b], work, H_child)
        H[:] = H_child
        _add_block(on_parent[b], s, h, mobility[p], N_Lambda, H)
        if not _cholesky(H, h, root[b]):
            return log_det, b
        for i in range(h):
            log_det += 2.0 * np.log(root[b, i, i])
        for j in range(6):
            for i in range(h):
                gain[b, j, i] = N_Lambda[i, j]
            _cholesky_solve(root[b], h, gain[b, j])
        _update_mobility(on_parent[b], s, h, gain[b], H_child, N_Lambda, work, mobility[p])
    return log_det, -1


@njit(cache=True)
def _update_mobility(rows, s, h, K, H_child, N_Lambda, work, Lambda):
    """Replace Lambda_p by (1 - K N) Lambda_p (1 - K N)^T + K (n Lambda_b n^T) K^T; `H_child` is the inner matrix."""
    for i in range(6):
        for j in range(6):  # (1 - K N) Lambda
            for k in range(h):
                Lambda[i, j] -= K[i, k] * N_Lambda[k, j]
    for i in range(6):
        for k in range(h):
            total = 0.0
            for j in range(6):
                total += Lambda[i, j] * rows[s + k, j]
            for j in range(h):  # the lower triangle of a symmetric matrix
                total -= K[i, j] * (H_child[k, j] if k >= j else H_child[j, k])
            work[i, k] = total
    for i in range(6):
        for j in range(i + 1):
            total = Lambda[i, j]
            for k in range(h):
                total -= work[i, k] * K[j, k]
            Lambda[i, j] = total
    for i in range(6):
        for j in range(i):
            Lambda[j, i] = Lambda[i, j]


# ---------------------------------------------------------------------- V. solve


@njit(cache=True)
def _solve(up, n_soft, n_hard, soft_place, on_parent, on_child, mobility, gain, root, b, x):
    """Write M^-1 b by steps V of section 2.2, column by column of `b` (n, m).

    H11 b - H12 d = [ds/dxi] Lambda ([ds/dxi]^T b - [dh/dxi]^T d): the products with H go through the bodies.
    """
    n = len(up)
    wrench, twist, d = np.empty((3, n, 6))
    for column in range(b.shape[1]):
        _gather_soft(up, n_soft, soft_place, on_parent, on_child, b[:, column], wrench)
        _move(mobility, wrench, twist)
        _substitute_forward(up, n_soft, n_hard, on_parent, on_child, gain, twist, d)
        _substitute_back(up, n_soft, n_hard, on_parent, on_child, gain, root, d, twist)
        for k in range(n):
            for i in range(6):
                wrench[k, i] -= twist[k, i]
        _move(mobility, wrench, twist)
        _read_soft(up, n_soft, soft_place, on_parent, on_child, twist, x[:, column])


@njit(cache=True)
def _gather_soft(up, n_soft, soft_place, on_parent, on_child, b, wrench):
    """Write [ds/dxi]^T b, a wrench (6,) on every body."""
    wrench[:] = 0.0
    for k in range(len(up)):
        for i in range(n_soft[k]):
            force = b[soft_place[k, i]]
            for j in range(6):
                wrench[k, j] += on_child[k, i, j] * force
            if up[k] >= 0:
                for j in range(6):
                    wrench[up[k], j] += on_parent[k, i, j] * force


@njit(cache=True)
def _move(mobility, wrench, twist):
    """Write Lambda times the wrench of every body."""
    for k in range(len(mobility)):
        for i in range(6):
            total = 0.0
            for j in range(6):
                total += mobility[k, i, j] * wrench[k, j]
            twist[k, i] = total


@njit(cache=True)
def _read_soft(up, n_soft, soft_place, on_parent, on_child, twist, x):
    """Write [ds/dxi] times the twists of the bodies."""
    for k in range(len(up)):
        for i in range(n_soft[k]):
            total = 0.0
            for j in range(6):
                total += on_child[k, i, j] * twist[k, j]
            if up[k] >= 0:
                for j in range(6):
                    total += on_parent[k, i, j] * twist[up[k], j]
            x[soft_place[k, i]] = total


@njit(cache=True)
def _substitute_forward(up, n_soft, n_hard, on_parent, on_child, gain, twist, c):
    """Eliminate the right-hand side c = H12^T b = [dh/dxi] twist, from the leaves to the root.

    c of the joints left on body p loses H22[., b] H22[b, b]^-1 c_b = N_. K_b c_b, which `twist` of p takes up.
    """
    for k in range(len(up) - 1, -1, -1):
        s, p = n_soft[k], up[k]
        for i in range(n_hard[k]):
            total = 0.0
            for j in range(6):
                total += on_child[k, s + i, j] * twist[k, j] + on_parent[k, s + i, j] * twist[p, j]
            c[k, i] = total
        for j in range(6):
            for i in range(n_hard[k]):
                twist[p, j] -= gain[k, j, i] * c[k, i]


@njit(cache=True)
def _substitute_back(up, n_soft, n_hard, on_parent, on_child, gain, root, d, wrench):
    """Turn the eliminated c into d = H22^-1 c in place, from the root to the leaves; write [dh/dxi]^T d as well.

    d_b = H22[b, b]^-1 c_b - K_b^T (the sum of N^T d over the joints of body p that were left when b was eliminated).
    """
    wrench[:] = 0.0
    for k in range(len(up)):
        s, h, p = n_soft[k], n_hard[k], up[k]
        if h == 0:
            continue
        _cholesky_solve(root[k], h, d[k])
        for i in range(h):
            for j in range(6):
                d[k, i] -= gain[k, j, i] * wrench[p, j]
        for i in range(h):
            for j in range(6):
                wrench[k, j] += on_child[k, s + i, j] * d[k, i]
                wrench[p, j] += on_parent[k, s + i, j] * d[k, i]


# ---------------------------------------------------------------------- small symmetric matrices


@njit(cache=True)
def _cholesky(H, n, L):
    """Write the Cholesky factor of the leading n x n block, given by its lower triangle; return whether it exists."""
    for i in range(n):
        for j in range(i):
            total = H[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            L[i, j] = total / L[j, j]
        pivot = H[i, i]
        for k in range(i):
            pivot -= L[i, k] * L[i, k]
        if not pivot > _PIVOT * H[i, i]:
            return False
        L[i, i] = np.sqrt(pivot)
    return True


@njit(cache=True)
def _cholesky_solve(L, n, x):
    """Replace the first n entries of `x` by (L L^T)^-1 x."""
    for i in range(n):
        for k in range(i):
            x[i] -= L[i, k] * x[k]
        x[i] /= L[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            x[i] -= L[k, i] * x[k]
        x[i] /= L[i, i]


@njit(cache=True)
def _invert_cholesky(L, out):
    """Write (L L^T)^-1 of the 3 x 3 factor `L` into the upper left corner of `out`."""
    for j in range(3):
        for i in range(3):
            out[j, i] = 1.0 if i == j else 0.0
        _cholesky_solve(L, 3, out[j])
    for i in range(3):
        for j in range(i):
            out[i, j] = out[j, i] = 0.5 * (out[i, j] + out[j, i])


# ---------------------------------------------------------------------- the solver


class FixmanFactor(Factor):
    """H22 of one configuration, eliminated.

    Attributes
    ----------
    dof : (n,) int
        The degrees of freedom of the tree that are soft, in the order of the vectors of `solve`.
    """

    def __init__(self, tree: TreeModel, state: State, held: np.ndarray):
        part = _partition(tree, state, held)
        n = len(part.n_soft)
        self._part = part
        self._gain, self._root = np.zeros((2, n, 6, 6))
        log_det_H22, bad = _eliminate(
            part.bodies.up, part.n_soft, part.n_hard, part.on_parent, part.on_child, part.mobility.copy(), self._gain,
            self._root,
        )  # fmt: skip
        if bad >= 0:
            raise_singular(tree, int(part.bodies.link[bad]))
        self._log_det = part.log_det_G + log_det_H22
        self.dof = part.dof

    def solve(self, b: np.ndarray) -> np.ndarray:
        part = self._part
        x = np.empty_like(b)
        _solve(
            part.bodies.up, part.n_soft, part.n_hard, part.soft_place, part.on_parent, part.on_child, part.mobility,
            self._gain, self._root, b, x,
        )  # fmt: skip
        return x

    def log_det(self) -> float:
        return self._log_det


class FixmanSolver(Solver):
    """Soft and hard coordinates of free rigid bodies; H22 eliminated from the leaves to the root.

    Every body needs an inertia that can be inverted. `TreeModel` sees to that by sharing the mass of atoms on a joint
    between both its bodies, which leaves M as it is.
    """

    name = "fixman"
    paper = "Lee, Wang & Chirikjian 2007, O(n) mass matrix inversion using Lie derivatives (after Fixman 1974)"

    def factor(self, tree: TreeModel, state: State) -> FixmanFactor:
        return FixmanFactor(tree, state, np.zeros(tree.n_dof, dtype=bool))

    def constrained(self, tree: TreeModel, state: State, hard: str | int | Iterable[str | int]) -> FixmanFactor:
        """Factor M of the tree with some of its soft coordinates held: they join the hard ones.

        The same M as that of a tree in which the bodies on both sides are merged (section 4.3: omega of a peptide).

        Parameters
        ----------
        tree : TreeModel
        state : State
        hard : str, int or several
            Kinds of coordinates (``"omega"``), or their places in ``state.q``.

        Returns
        -------
        FixmanFactor
            Over the degrees of freedom that are left, listed in its `dof`.
        """
        return FixmanFactor(tree, state, _held(tree, hard))


def _held(tree: TreeModel, hard: str | int | Iterable[str | int]) -> np.ndarray:
    """Return the mask (n_dof,) of the coordinates that `hard` names."""
    if isinstance(hard, str):
        hard = hard.replace(",", " ").split()
    names = list(hard) if isinstance(hard, Iterable) else [hard]
    kind = np.array([c.kind for c in tree.coordinates])
    held = np.zeros(tree.n_dof, dtype=bool)
    for name in names:
        if isinstance(name, str):
            chosen = np.flatnonzero(kind == name)
            if not chosen.size:
                known = ", ".join(sorted(set(kind))) or "none"
                raise ArgumentError(f"the tree has no soft coordinate of kind {name!r}; its kinds are: {known}")
        elif 0 <= name < tree.n_coordinates and int(name) == name:
            chosen = np.array([name], dtype=np.int64)
        else:
            raise ArgumentError(f"hard holds {name!r}, expected kinds or places from 0 to {tree.n_coordinates - 1}")
        held[tree.coordinate_dof[chosen]] = True
    return held
