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
from numba import njit

from peptidyn.errors import ArgumentError
from peptidyn.model.kinematics import link_twists, project_wrenches
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.free_bodies import set_free
from peptidyn.solvers.protocol import Factor, Solver, raise_singular

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
    free = set_free(tree, tree.links(state), held_coordinates(tree, hard))
    n_bodies, n_hard = len(free.link), 6 - free.hard
    start = np.concatenate([[0], np.cumsum(n_hard)])
    ds = np.zeros((len(free.dof), n_bodies, 6))
    dh = np.zeros((start[-1], n_bodies, 6))
    for b, up in enumerate(free.up.tolist()):
        soft = free.place[b, : free.n_soft[b]]
        for body, rows in ((b, free.on_child[b]), (up, free.on_parent[b])):
            if body >= 0:
                ds[soft, body] = rows[: len(soft)]
                dh[start[b] : start[b + 1], body] = rows[free.hard[b] :]
    Lambda = np.zeros((n_bodies, 6, 6))
    _fill_mobilities(free.inverse_inertia, free.inverse_mass, Lambda)
    ds_Lambda = np.einsum("kbi,bij->kbj", ds, Lambda)
    dh_Lambda = np.einsum("kbi,bij->kbj", dh, Lambda)
    return HBlocks(
        np.einsum("kbi,lbi->kl", ds_Lambda, ds),
        np.einsum("kbi,lbi->kl", ds_Lambda, dh),
        np.einsum("kbi,lbi->kl", dh_Lambda, dh),
        free.log_det_G,
        np.repeat(free.link, n_hard),
    )


@njit(cache=True)
def _fill_mobilities(inverse_inertia, inverse_mass, Lambda):
    """Write Lambda = I^-1 (+) 1/m of every body, (n_bodies, 6, 6)."""
    for b in range(len(Lambda)):
        for i in range(3):
            for j in range(3):
                Lambda[b, i, j] = inverse_inertia[b, i, j]
                Lambda[b, i, 3 + j] = Lambda[b, 3 + i, j] = 0.0
                Lambda[b, 3 + i, 3 + j] = inverse_mass[b] if i == j else 0.0


@njit(cache=True)
def _eliminate(up, hard, on_parent, on_child, Lambda, gain):
    """Eliminate the joints from the leaves to the root; return ln det H22 and the body of a failed pivot, or -1.

    `Lambda` (n_bodies, 6, 6) enters as the Lambdas of the bodies. Those are needed until their joint is eliminated; its
    Cholesky factor of H22[b, b] then takes the place. `gain` (n_bodies, 6, 6) is written: K^T of every joint. In both,
    rows and columns of hard coordinates keep the places they have in A and B.
    """
    H_child, H, work, N_Lambda = np.empty((4, 6, 6))
    log_det = 0.0
    for b in range(len(up) - 1, -1, -1):
        if hard[b] == 6:
            continue
        Lambda_p = Lambda[up[b]]
        _block(on_child[b], Lambda[b], work, H_child)
        _block(on_parent[b], Lambda_p, N_Lambda, H)
        for i in range(6):
            for j in range(i + 1):
                H[i, j] += H_child[i, j]
        if not _cholesky(H, hard[b], Lambda[b]):
            return log_det, b
        for i in range(hard[b], 6):
            log_det += 2.0 * np.log(Lambda[b, i, i])
        _fill_gain(Lambda[b], hard[b], N_Lambda, gain[b])
        _update_mobility(on_parent[b], hard[b], gain[b], H_child, N_Lambda, work, Lambda_p)
    return log_det, -1


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
def _solve(up, n_soft, hard, place, on_parent, on_child, inverse_inertia, inverse_mass, gain, root, b, x):
    """Write M^-1 b by steps V of section 2.2, column by column of `b` (n, m).

    H11 b - H12 d = [ds/dxi] Lambda ([ds/dxi]^T b - [dh/dxi]^T d): the products with H go through the bodies.
    """
    n = len(up)
    wrench, twist, d, hard_wrench = np.empty((4, n, 6))
    for column in range(b.shape[1]):
        _gather_soft(up, n_soft, place, on_parent, on_child, b[:, column], wrench)
        _move(inverse_inertia, inverse_mass, wrench, twist)
        _substitute_forward(up, hard, on_parent, on_child, gain, twist, d)
        _substitute_back(up, hard, on_parent, on_child, gain, root, d, hard_wrench)
        for k in range(n):
            for i in range(6):
                wrench[k, i] -= hard_wrench[k, i]
        _move(inverse_inertia, inverse_mass, wrench, twist)
        _read_soft(up, n_soft, place, on_parent, on_child, twist, x[:, column])


@njit(cache=True)
def _gather_soft(up, n_soft, place, on_parent, on_child, b, wrench):
    """Write [ds/dxi]^T b, a wrench (6,) on every body."""
    wrench[:] = 0.0
    for k in range(len(up)):
        for i in range(n_soft[k]):
            force = b[place[k, i]]
            for j in range(6):
                wrench[k, j] += on_child[k, i, j] * force
            if up[k] >= 0:
                for j in range(6):
                    wrench[up[k], j] += on_parent[k, i, j] * force


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
def _read_soft(up, n_soft, place, on_parent, on_child, twist, x):
    """Write [ds/dxi] times the twists of the bodies."""
    for k in range(len(up)):
        for i in range(n_soft[k]):
            total = 0.0
            for j in range(6):
                total += on_child[k, i, j] * twist[k, j]
            if up[k] >= 0:
                for j in range(6):
                    total += on_parent[k, i, j] * twist[up[k], j]
            x[place[k, i]] = total


@njit(cache=True)
def _substitute_forward(up, hard, on_parent, on_child, gain, twist, c):
    """Eliminate the right-hand side c = H12^T b = [dh/dxi] twist, from the leaves to the root.

    c of the joints left on body p loses H22[., b] H22[b, b]^-1 c_b = N K_b c_b, which `twist` of p takes up.
    """
    for k in range(len(up) - 1, -1, -1):
        p = up[k]
        for i in range(hard[k], 6):
            total = 0.0
            for j in range(6):
                total += on_child[k, i, j] * twist[k, j] + on_parent[k, i, j] * twist[p, j]
            c[k, i] = total
        for i in range(hard[k], 6):
            for j in range(6):
                twist[p, j] -= gain[k, i, j] * c[k, i]


@njit(cache=True)
def _substitute_back(up, hard, on_parent, on_child, gain, root, d, wrench):
    """Turn the eliminated c into d = H22^-1 c in place, from the root to the leaves; write [dh/dxi]^T d as well.

    d_b = H22[b, b]^-1 c_b - K_b^T (the sum of N^T d over the joints of body p that were left when b was eliminated).
    """
    wrench[:] = 0.0
    for k in range(len(up)):
        p = up[k]
        _cholesky_solve(root[k], hard[k], d[k])
        for i in range(hard[k], 6):
            for j in range(6):
                d[k, i] -= gain[k, i, j] * wrench[p, j]
        for i in range(hard[k], 6):
            for j in range(6):
                wrench[k, j] += on_child[k, i, j] * d[k, i]
                wrench[p, j] += on_parent[k, i, j] * d[k, i]


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
def _subtract_product(parent, joint, dof, axis, p, mass, com, inertia, soft, n_dof, x, b):
    """Replace `b` (n, m) by b - M x, with M = J^T (I (+) m) J applied link by link; held coordinates are at rest."""
    n = len(parent)
    w, u, torque, force = np.empty((4, n, 3))
    rate, product = np.zeros(n_dof), np.zeros(n_dof)
    for column in range(b.shape[1]):
        for i in range(len(soft)):
            rate[soft[i]] = x[i, column]
        link_twists(parent, joint, dof, axis, p, rate, w, u)
        for l in range(n):
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
        for i in range(len(soft)):
            b[i, column] -= product[soft[i]]


# ---------------------------------------------------------------------- the solver


class FixmanFactor(Factor):
    """H22 of one configuration, eliminated.

    Attributes
    ----------
    dof : (n,) int
        The degrees of freedom of the tree that are soft, in the order of the vectors of `solve`.
    """

    def __init__(self, tree: TreeModel, state: State, held: np.ndarray):
        links = tree.links(state)
        free = set_free(tree, links, held)
        root, gain = free.room
        _fill_mobilities(free.inverse_inertia, free.inverse_mass, root)
        log_det_H22, bad = _eliminate(free.up, free.hard, free.on_parent, free.on_child, root, gain)
        if bad >= 0:
            raise_singular(tree, int(free.link[bad]))
        self._tree, self._links = tree, links
        self._free, self._root, self._gain = free, root, gain
        self._log_det = free.log_det_G + log_det_H22
        self.dof = free.dof

    def solve(self, b: np.ndarray) -> np.ndarray:
        tree, links = self._tree, self._links
        x = self._solve_once(b)
        # (6) is a small difference where b is large along stiff directions: one step of refinement recovers the digits
        residual = b.copy()
        _subtract_product(
            tree.parent, tree.joint, tree.dof, links.axis, links.p, links.mass, links.com, links.inertia, self.dof,
            tree.n_dof, x, residual,
        )  # fmt: skip
        x += self._solve_once(residual)
        return x

    def _solve_once(self, b: np.ndarray) -> np.ndarray:
        free = self._free
        x = np.empty_like(b)
        _solve(
            free.up, free.n_soft, free.hard, free.place, free.on_parent, free.on_child, free.inverse_inertia,
            free.inverse_mass, self._gain, self._root, b, x,
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
        return FixmanFactor(tree, state, held_coordinates(tree, hard))


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
