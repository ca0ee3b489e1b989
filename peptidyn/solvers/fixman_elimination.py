"""The extended Fixman solver: M^-1 and ln det M by way of the inverse mass matrix of the bodies set free; O(n).

Lee, Wang & Chirikjian, "O(n) mass matrix inversion for serial manipulators and polypeptide chains using Lie
derivatives", carried from chains to trees and from a fixed to a free base. Equation numbers are the paper's, symbols
those of `peptidyn.solvers.free_bodies`; N_b and n_b are the hard rows of A_b and B_b.

M is the soft block of the mass matrix G of the free bodies. So with the blocks (8) of H = G^-1, eq. (20),

    M^-1 = H11 - H12 H22^-1 H12^T      (6)            ln det M = ln det G + ln det H22      (Fixman's theorem)

Two joints give a nonzero block of H22 if they share a body: its graph is the line graph of the tree,

    H22[b, b] = n_b Lambda_b n_b^T + N_b Lambda_p N_b^T            p the parent body of b
    H22[b, p] = N_b Lambda_p n_p^T,    H22[b, c] = N_b Lambda_p N_c^T            c another joint on p

Take the joints from the leaves to the root. When b is eliminated, the joints left on p (its siblings, with rows N, and
p's own, with rows n) lose a product of their blocks with b,

    H22[c, d] - H22[c, b] H22[b, b]^-1 H22[b, d] = N_c (Lambda_p - K_b N_b Lambda_p) N_d^T,

where K_b = Lambda_p N_b^T H22[b, b]^-1: they are the same blocks with another Lambda_p. Fill never leaves the joints
of one body, and to change the 6x6 matrix Lambda_p is the whole update, however many joints body p has. The formulas
above with the current Lambdas are the blocks of the reduced matrix at every moment, each joint costs the same, and
ln det H22 is the sum of ln det H22[b, b] at the moments of elimination. The current Lambda is written as

    Lambda_p <- (1 - K_b N_b) Lambda_p (1 - K_b N_b)^T + K_b (n_b Lambda_b n_b^T) K_b^T,

the same matrix as a sum of squares: the bare difference loses half the digits where a long stiff branch hangs on a
light body. For the same reason `solve` follows (6) by one step of iterative refinement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.jit import njit
from peptidyn.model.kinematics import link_twists, project_wrenches
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.free_bodies import FreeBodies, joint_rows, row_scratch
from peptidyn.solvers.protocol import FactorPool, ReusableFactor, ReusingSolver, raise_unfit, refuse_joint_inertia

_PIVOT = 1e-14  # pivots of H22 smaller than this part of their diagonal entry hold rounding errors only


# ---------------------------------------------------------------------- IV. the blocks of H


class HBlocks(NamedTuple):
    """H = G^-1 in soft and hard coordinates, dense.

    Attributes
    ----------
    H11, H12, H22 : (n, n), (n, r), (r, r)
        The blocks (8); soft coordinates in the order of the tree, hard ones joint by joint.
    log_det_G : float
        ln det G of the bodies set free.
    hard_link : (r,) int
        The link at whose joint each hard coordinate is.
    """

    H11: np.ndarray
    H12: np.ndarray
    H22: np.ndarray
    log_det_G: float
    hard_link: np.ndarray


def h_blocks(tree: TreeModel, state: State, hard: str | int | Iterable[str | int] = ()) -> HBlocks:
    """Return the blocks (8) of H as dense matrices, to look at and to test with; O(n^2) memory.

    Parameters
    ----------
    tree : TreeModel
    state : State
    hard : str, int or several
        Soft coordinates of the tree to count as hard, as in `FixmanSolver.constrained`.
    """
    refuse_joint_inertia("fixman", tree)
    free = FreeBodies(tree, held_coordinates(tree, hard))
    free.place(tree, state)
    n_bodies, n_soft = len(free.link), len(free.dof)
    log_det_G = free.log_det_bodies
    ds, dh = np.zeros((n_soft, n_bodies, 6)), np.zeros((6 * n_bodies, n_bodies, 6))
    at, A, B = np.empty(6, dtype=np.int64), np.empty((6, 6)), np.empty((6, 6))
    scratch = row_scratch()
    hard_link: list[int] = []
    for b, up in enumerate(free.up.tolist()):
        n, first, change = joint_rows(b, free.joints, scratch, at, A, B)
        if not change > 0.0:
            free.raise_dependent(tree, b)
        log_det_G += 2.0 * np.log(change)
        start = len(hard_link)
        hard_link += [int(free.link[b])] * (6 - first)
        for body, rows in ((b, B), (up, A)):
            if body >= 0:
                ds[at[:n], body] = rows[:n]
                dh[start : len(hard_link), body] = rows[first:]
    dh = dh[: len(hard_link)]
    Lambda = np.empty((n_bodies, 6, 6))
    _fill_mobilities(free.inverse_inertia, free.inverse_mass, Lambda)
    ds_Lambda = np.einsum("kbi,bij->kbj", ds, Lambda)
    dh_Lambda = np.einsum("kbi,bij->kbj", dh, Lambda)
    return HBlocks(
        np.einsum("kbi,lbi->kl", ds_Lambda, ds),
        np.einsum("kbi,lbi->kl", ds_Lambda, dh),
        np.einsum("kbi,lbi->kl", dh_Lambda, dh),
        float(log_det_G),
        np.array(hard_link, dtype=np.int64),
    )


@njit(cache=True)
def _fill_mobilities(inverse_inertia, inverse_mass, Lambda):
    """Write Lambda = I^-1 (+) 1/m of every body, (n_bodies, 6, 6)."""
    for b in range(len(Lambda)):
        _fill_mobility(inverse_inertia[b], inverse_mass[b], Lambda[b])


@njit(cache=True)
def _fill_mobility(inverse_inertia, inverse_mass, Lambda):
    for i in range(3):
        for j in range(3):
            Lambda[i, j] = inverse_inertia[i, j]
            Lambda[i, 3 + j] = Lambda[3 + i, j] = 0.0
            Lambda[3 + i, 3 + j] = inverse_mass if i == j else 0.0


@njit(cache=True)
def _eliminate(joints, inverse_inertia, inverse_mass, n_soft, hard, at, rows, Lambda, gain):
    """Take the Lie derivatives of the joints and eliminate them, from the leaves to the root.

    Parameters
    ----------
    joints, inverse_inertia, inverse_mass
        Of `FreeBodies`.
    n_soft, hard : (n_bodies,) int, at : (n_bodies, 6) int, rows : (n_bodies, 6, 6)
        Output: what `joint_rows` gives for every joint; `rows` holds B.
    Lambda : (n_bodies, 6, 6)
        Output. It holds the Lambdas of the bodies until their joint is eliminated; the Cholesky factor of H22[b, b]
        then takes the place.
    gain : (n_bodies, 6, 6)
        Output: K^T of every joint. In both, rows and columns of hard coordinates keep the places they have in A and B.

    Returns
    -------
    float, float
        ln det H22, -sum ln |det B|.
    int, int
        A body whose pivot failed, or whose joint is dependent; -1 if there is none.
    """
    H_child, H, work, N_Lambda, N = np.empty((5, 6, 6))
    scratch = row_scratch()
    up = joints[2]
    log_det, log_change = 0.0, 0.0
    for b in range(len(up)):
        hard[b] = -1  # Lambda is not written yet
    for b in range(len(up) - 1, -1, -1):
        if hard[b] < 0:
            _fill_mobility(inverse_inertia[b], inverse_mass[b], Lambda[b])
        n_soft[b], hard[b], change = joint_rows(b, joints, scratch, at[b], N, rows[b])
        if not change > 0.0:
            return log_det, log_change, -1, b
        if change != 1.0:
            log_change += np.log(change)
        p = up[b]
        if p >= 0 and hard[p] < 0:
            _fill_mobility(inverse_inertia[p], inverse_mass[p], Lambda[p])
            hard[p] = 0
        if hard[b] == 6:
            continue
        _block(rows[b], Lambda[b], work, H_child)
        _block(N, Lambda[p], N_Lambda, H)
        for i in range(6):
            for j in range(i + 1):
                H[i, j] += H_child[i, j]
        if not _cholesky(H, hard[b], Lambda[b]):
            return log_det, log_change, b, -1
        for i in range(hard[b], 6):
            log_det += 2.0 * np.log(Lambda[b, i, i])
        _fill_gain(Lambda[b], hard[b], N_Lambda, gain[b])
        _update_mobility(N, hard[b], gain[b], H_child, N_Lambda, work, Lambda[p])
    return log_det, log_change, -1, -1


@njit(cache=True)
def _block(rows, Lambda, rows_Lambda, H):
    """Write `rows` Lambda, and the lower triangle of `rows` Lambda `rows`^T; each (6, 6)."""
    for i in range(6):
        for j in range(6):
            rows_Lambda[i, j] = 0.0
        for k in range(6):
            for j in range(6):
                rows_Lambda[i, j] += rows[i, k] * Lambda[k, j]
        for j in range(i + 1):
            total = 0.0
            for k in range(6):
                total += rows_Lambda[i, k] * rows[j, k]
            H[i, j] = total


@njit(cache=True)
def _cholesky(H, first, L):
    """Write the Cholesky factor of the block from row `first` on of H, a lower triangle; return whether it exists."""
    for i in range(first, 6):
        for j in range(first, i):
            total = H[i, j]
            for k in range(first, j):
                total -= L[i, k] * L[j, k]
            L[i, j] = total / L[j, j]
        pivot = H[i, i]
        for k in range(first, i):
            pivot -= L[i, k] * L[i, k]
        if not pivot > _PIVOT * H[i, i]:
            return False
        L[i, i] = np.sqrt(pivot)
    return True


@njit(cache=True)
def _fill_gain(L, first, N_Lambda, K):
    """Write K^T = H22[b, b]^-1 N Lambda, and replace N Lambda by L^-1 N Lambda."""
    for i in range(first, 6):
        for k in range(first, i):
            for j in range(6):
                N_Lambda[i, j] -= L[i, k] * N_Lambda[k, j]
        for j in range(6):
            N_Lambda[i, j] /= L[i, i]
            K[i, j] = N_Lambda[i, j]
    for i in range(5, first - 1, -1):
        for k in range(i + 1, 6):
            for j in range(6):
                K[i, j] -= L[k, i] * K[k, j]
        for j in range(6):
            K[i, j] /= L[i, i]


@njit(cache=True)
def _update_mobility(rows, first, K, H_child, X, work, Lambda):
    """Replace Lambda by (1 - K N) Lambda (1 - K N)^T + K (n Lambda_b n^T) K^T.

    With X = L^-1 N Lambda, the bare difference is D = Lambda - X^T X = (1 - K N) Lambda, and the answer is
    D - K (N D - H_child K^T), where H_child = n Lambda_b n^T is given by its lower triangle.
    """
    for k in range(first, 6):
        for i in range(6):
            for j in range(6):
                Lambda[i, j] -= X[k, i] * X[k, j]
    for i in range(first, 6):
        for j in range(6):
            work[i, j] = 0.0
        for k in range(6):
            for j in range(6):
                work[i, j] += rows[i, k] * Lambda[k, j]
        for k in range(first, 6):
            h = H_child[i, k] if i >= k else H_child[k, i]
            for j in range(6):
                work[i, j] -= h * K[k, j]
    for k in range(first, 6):
        for i in range(6):
            for j in range(6):
                Lambda[i, j] -= K[k, i] * work[k, j]
    for i in range(6):
        for j in range(i):
            Lambda[i, j] = Lambda[j, i] = 0.5 * (Lambda[i, j] + Lambda[j, i])


# ---------------------------------------------------------------------- V. solve


@njit(cache=True)
def _solve_once(link, up, com, n_soft, hard, at, rows, inverse_inertia, inverse_mass, gain, root, b, scratch, x):
    """Write M^-1 b (n,) by steps V of section 2.2; `scratch` is (4, n_bodies, 6).

    H11 b - H12 d = [ds/dxi] Lambda ([ds/dxi]^T b - [dh/dxi]^T d): the products with H go through the bodies. As
    A = -B X, those with the rows of a joint are B times the relative motion of its bodies.
    """
    wrench, twist, d, hard_wrench = scratch
    _gather_soft(link, up, com, n_soft, at, rows, b, wrench)
    _move(inverse_inertia, inverse_mass, wrench, twist)
    _substitute_forward(link, up, com, hard, rows, gain, twist, d)
    _substitute_back(link, up, com, hard, rows, gain, root, d, hard_wrench)
    for k in range(len(up)):
        for i in range(6):
            wrench[k, i] -= hard_wrench[k, i]
    _move(inverse_inertia, inverse_mass, wrench, twist)
    _read_soft(link, up, com, n_soft, at, rows, twist, x)


@njit(cache=True)
def _solve(
    parent, joint, dof, axis, p, mass, com, inertia, soft,
    link, up, n_soft, hard, at, rows, inverse_inertia, inverse_mass, gain, root,
    b, body_scratch, link_scratch, dof_scratch, x,
):  # fmt: skip
    """Write M^-1 b, column by column of `b` (n, m), with one step of iterative refinement.

    (6) is a small difference where b is large along stiff directions: the refinement recovers the digits. Scratch:
    (4, n_bodies, 6), (4, n_links, 3), (4, n_dof).
    """
    rate, product, residual, change = dof_scratch
    rate[:] = 0.0  # held coordinates are at rest
    n = len(soft)
    for column in range(b.shape[1]):
        for i in range(n):
            residual[i] = b[i, column]
            x[i, column] = 0.0
        for step in range(2):
            if step > 0:
                for i in range(n):
                    rate[soft[i]] = change[i]
                _multiply(parent, joint, dof, axis, p, mass, com, inertia, rate, link_scratch, product)
                for i in range(n):
                    residual[i] -= product[soft[i]]
            _solve_once(
                link, up, com, n_soft, hard, at, rows, inverse_inertia, inverse_mass, gain, root, residual,
                body_scratch, change,
            )  # fmt: skip
            for i in range(n):
                x[i, column] += change[i]


@njit(cache=True)
def _relative_twist(link, up, com, k, twist):
    """Return the twist of body k less that of its parent, carried to the centre of mass of body k."""
    p = up[k]
    t = twist[k]
    if p < 0:
        return t[0], t[1], t[2], t[3], t[4], t[5]
    c, o, s = com[link[k]], com[link[p]], twist[p]
    x, y, z = c[0] - o[0], c[1] - o[1], c[2] - o[2]
    return (
        t[0] - s[0],
        t[1] - s[1],
        t[2] - s[2],
        t[3] - s[3] - s[1] * z + s[2] * y,
        t[4] - s[4] - s[2] * x + s[0] * z,
        t[5] - s[5] - s[0] * y + s[1] * x,
    )


@njit(cache=True)
def _add_joint_wrench(link, up, com, k, first, end, rows, force, wrench):
    """Add rows^T force of joint k, rows `first` to `end`, to the wrenches of both its bodies."""
    w0, w1, w2, w3, w4, w5 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(first, end):
        f = force[i]
        w0 += rows[i, 0] * f
        w1 += rows[i, 1] * f
        w2 += rows[i, 2] * f
        w3 += rows[i, 3] * f
        w4 += rows[i, 4] * f
        w5 += rows[i, 5] * f
    t = wrench[k]
    t[0] += w0
    t[1] += w1
    t[2] += w2
    t[3] += w3
    t[4] += w4
    t[5] += w5
    p = up[k]
    if p >= 0:
        c, o, s = com[link[k]], com[link[p]], wrench[p]
        x, y, z = c[0] - o[0], c[1] - o[1], c[2] - o[2]
        s[0] -= w0 + y * w5 - z * w4
        s[1] -= w1 + z * w3 - x * w5
        s[2] -= w2 + x * w4 - y * w3
        s[3] -= w3
        s[4] -= w4
        s[5] -= w5


@njit(cache=True)
def _gather_soft(link, up, com, n_soft, at, rows, b, wrench):
    """Write [ds/dxi]^T b, a wrench (6,) on every body."""
    force = np.empty(6)
    wrench[:] = 0.0
    for k in range(len(up)):
        for i in range(n_soft[k]):
            force[i] = b[at[k, i]]
        _add_joint_wrench(link, up, com, k, 0, n_soft[k], rows[k], force, wrench)


@njit(cache=True)
def _move(inverse_inertia, inverse_mass, wrench, twist):
    """Write Lambda times the wrench of every body."""
    for k in range(len(wrench)):
        for i in range(3):
            total = 0.0
            for j in range(3):
                total += inverse_inertia[k, i, j] * wrench[k, j]
            twist[k, i] = total
            twist[k, 3 + i] = inverse_mass[k] * wrench[k, 3 + i]


@njit(cache=True)
def _read_soft(link, up, com, n_soft, at, rows, twist, x):
    """Write [ds/dxi] times the twists of the bodies."""
    for k in range(len(up)):
        t = _relative_twist(link, up, com, k, twist)
        for i in range(n_soft[k]):
            total = 0.0
            for j in range(6):
                total += rows[k, i, j] * t[j]
            x[at[k, i]] = total


@njit(cache=True)
def _substitute_forward(link, up, com, hard, rows, gain, twist, c):
    """Eliminate the right-hand side c = H12^T b = [dh/dxi] twist, from the leaves to the root.

    c of the joints left on body p loses H22[., b] H22[b, b]^-1 c_b = N K_b c_b, which `twist` of p takes up.
    """
    for k in range(len(up) - 1, -1, -1):
        if hard[k] == 6:
            continue
        t = _relative_twist(link, up, com, k, twist)
        s = twist[up[k]]
        for i in range(hard[k], 6):
            total = 0.0
            for j in range(6):
                total += rows[k, i, j] * t[j]
            c[k, i] = total
            for j in range(6):
                s[j] -= gain[k, i, j] * total


@njit(cache=True)
def _substitute_back(link, up, com, hard, rows, gain, root, d, wrench):
    """Turn the eliminated c into d = H22^-1 c in place, from the root to the leaves; write [dh/dxi]^T d as well.

    d_b = H22[b, b]^-1 c_b - K_b^T (the sum of N^T d over the joints of body p that were left when b was eliminated).
    """
    wrench[:] = 0.0
    for k in range(len(up)):
        if hard[k] == 6:
            continue
        _cholesky_solve(root[k], hard[k], d[k])
        w = wrench[up[k]]
        for i in range(hard[k], 6):
            total = d[k, i]
            for j in range(6):
                total -= gain[k, i, j] * w[j]
            d[k, i] = total
        _add_joint_wrench(link, up, com, k, hard[k], 6, rows[k], d[k], wrench)


@njit(cache=True)
def _cholesky_solve(L, first, x):
    """Replace the entries of `x` from `first` on by (L L^T)^-1 x."""
    for i in range(first, 6):
        for k in range(first, i):
            x[i] -= L[i, k] * x[k]
        x[i] /= L[i, i]
    for i in range(5, first - 1, -1):
        for k in range(i + 1, 6):
            x[i] -= L[k, i] * x[k]
        x[i] /= L[i, i]


@njit(cache=True)
def _multiply(parent, joint, dof, axis, p, mass, com, inertia, rate, scratch, product):
    """Write M rate = J^T (I (+) m) J rate, link by link, into `product` (n_dof,); `scratch` is (4, n_links, 3)."""
    w, u, torque, force = scratch
    link_twists(parent, joint, dof, axis, p, rate, w, u)
    for l in range(len(parent)):
        r0, r1, r2 = com[l, 0] - p[l, 0], com[l, 1] - p[l, 1], com[l, 2] - p[l, 2]
        f0 = mass[l] * (u[l, 0] + w[l, 1] * r2 - w[l, 2] * r1)
        f1 = mass[l] * (u[l, 1] + w[l, 2] * r0 - w[l, 0] * r2)
        f2 = mass[l] * (u[l, 2] + w[l, 0] * r1 - w[l, 1] * r0)
        force[l, 0], force[l, 1], force[l, 2] = f0, f1, f2
        torque[l, 0], torque[l, 1], torque[l, 2] = r1 * f2 - r2 * f1, r2 * f0 - r0 * f2, r0 * f1 - r1 * f0
        for i in range(3):
            for j in range(3):
                torque[l, i] += inertia[l, i, j] * w[l, j]
    project_wrenches(parent, joint, dof, axis, p, torque, force, product)


# ---------------------------------------------------------------------- the solver


class FixmanFactor(ReusableFactor):
    """H22 of one configuration, eliminated.

    Parameters
    ----------
    tree : TreeModel
    held : (n_dof,) bool, optional
        Soft coordinates of the tree that count as hard; none by default.

    Attributes
    ----------
    dof : (n,) int
        The degrees of freedom of the tree that are soft, in the order of the vectors of `solve`.
    """

    def __init__(self, tree: TreeModel, held: np.ndarray | None = None):
        free = FreeBodies(tree, np.zeros(tree.n_dof, dtype=bool) if held is None else held)
        n, links = len(free.link), free.links
        n_soft, hard, at = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty((n, 6), dtype=np.int64)
        rows, root, gain = np.empty((n, 6, 6)), np.empty((n, 6, 6)), np.empty((n, 6, 6))
        self._free = free
        self.topology, self.placed = (tree.parent, tree.joint, tree.dof), links
        self._eliminated = (free.inverse_inertia, free.inverse_mass, n_soft, hard, at, rows, root, gain)
        self._known = (
            *self.topology, links.axis, links.p, links.mass, links.com, links.inertia, free.dof, free.link, free.up,
            n_soft, hard, at, rows, free.inverse_inertia, free.inverse_mass, gain, root,
        )  # fmt: skip
        self._scratch = np.empty((4, n, 6)), np.empty((4, tree.n_links, 3)), np.empty((4, tree.n_dof))
        self._log_det = 0.0
        self.dof = free.dof

    def refactor(self, tree: TreeModel, state: State) -> None:
        free = self._free
        free.place(tree, state)
        log_det_H22, log_change, bad, dependent = _eliminate(free.joints, *self._eliminated)
        if dependent >= 0:
            free.raise_dependent(tree, dependent)
        if bad >= 0:
            raise_unfit("fixman", tree, state, int(free.link[bad]))
        self._log_det = free.log_det_bodies + 2.0 * log_change + log_det_H22

    def solve(self, b: np.ndarray) -> np.ndarray:
        x = np.empty(b.shape)
        _solve(*self._known, b, *self._scratch, x)
        return x

    def log_det(self) -> float:
        return self._log_det


class FixmanSolver(ReusingSolver[FixmanFactor]):
    """Soft and hard coordinates of free rigid bodies; H22 eliminated from the leaves to the root.

    Every body needs an inertia that can be inverted. `TreeModel` sees to that by sharing the mass of atoms on a joint
    between both its bodies, which leaves M as it is.
    """

    name = "fixman"
    paper = "Lee, Wang & Chirikjian 2007, O(n) mass matrix inversion using Lie derivatives (after Fixman 1974)"

    inverts_bodies = True
    pool = FactorPool(FixmanFactor)

    def constrained(self, tree: TreeModel, state: State, hard: str | int | Iterable[str | int]) -> FixmanFactor:
        """Factor M of the tree with some of its soft coordinates held: they join the hard ones.

        It is the M of a tree in which the bodies on both sides are merged (section 4.3: omega of a peptide).

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
        self._check(tree, state)
        factor = FixmanFactor(tree, held_coordinates(tree, hard))
        factor.refactor(tree, state)
        return factor


def held_coordinates(tree: TreeModel, hard: str | int | Iterable[str | int]) -> np.ndarray:
    """Return the mask (n_dof,) of the soft coordinates that `hard` names, by kind or by place in ``state.q``."""
    if isinstance(hard, str):
        hard = hard.replace(",", " ").split()
    kinds = np.array([c.kind for c in tree.coordinates])
    held = np.zeros(tree.n_dof, dtype=bool)
    for name in hard if isinstance(hard, Iterable) else [hard]:
        if isinstance(name, str):
            chosen = np.flatnonzero(kinds == name)
            if not chosen.size:
                known = ", ".join(sorted(set(kinds.tolist()))) or "none"
                raise ArgumentError(f"the tree has no soft coordinate of kind {name!r}; its kinds are: {known}")
        elif isinstance(name, int | np.integer) and 0 <= name < tree.n_coordinates:
            chosen = np.array([name])
        else:
            raise ArgumentError(f"hard holds {name!r}, expected kinds, or places from 0 to {tree.n_coordinates - 1}")
        held[tree.coordinate_dof[chosen]] = True
    return held
