"""Fixman's method for point masses: M^-1 and ln det M from the inverse mass matrix of the atoms set free; O(n).

Lee & Chirikjian, "A new perspective on O(n) mass-matrix inversion for serial revolute manipulators" (the equation
numbers below), and section 2 of Lee, Wang & Chirikjian 2007; carried from chains to every molecule of a tree model.
`peptidyn.solvers.planar_arm` is the paper's own example.

x           positions of the N atoms; m their masses, each three times
q = [s, h]  3N internal coordinates: soft ones (torsions, soft angles, the base) and hard ones (all others)
B_s, B_h    the rows of soft and of hard coordinates in dq/dx; see `point_elimination_rows`
G, H        mass matrix of the free atoms in q, and its inverse (5): H = [B_s; B_h] m^-1 [B_s; B_h]^T

M is the soft block of G, so with the blocks (7) of H, here H11, H12, H22,

    M^-1 = H11 - H12 H22^-1 H12^T      (12)            ln det M = ln det G + ln det H22      (8)

where ln det G = ln det m - 2 ln |det dq/dx|, and dq/dx is block triangular. H11 and H12 are never formed: (13) is

    v = m^-1 B_s^T b,      e = H22^-1 B_h v,      M^-1 b = B_s (v - m^-1 B_h^T e)

in which the bracket holds the velocities of the atoms.

**Elimination.** H22 = B_h C B_h^T with C = m^-1. Eliminating the rows y of one block leaves for all other rows

    B_h C B_h^T - B_h C y^T (y C y^T)^-1 y C B_h^T = B_h (C - Y Y^T) B_h^T,      Y = C y^T L^-T,      y C y^T = L L^T

that is, the same matrix with another C: the mobility of the atoms while the coordinates of y are held. C differs from
m^-1 for the atoms of the front only (see `point_elimination_plan`), at most six at a time in a polypeptide. The
pivots L of all blocks make ln det H22, and with the gains Y and the rows they hold the whole triangular factor of H22.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse

from peptidyn.core.jit import njit
from peptidyn.model.kinematics import (
    atom_velocities,
    gather_wrenches,
    link_snapshot,
    link_twists,
    place_atoms,
    project_wrenches,
)
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.point_elimination_plan import Plan, make_plan
from peptidyn.solvers.point_elimination_rows import sparse_rows, write_rows
from peptidyn.solvers.protocol import FactorPool, ReusableFactor, ReusingSolver, raise_singular
from peptidyn.solvers.spatial_algebra import copy_matrix, fill_matrix

_PIVOT = 1e-14  # pivots of H22 smaller than this part of what free atoms would give hold rounding errors only


# ---------------------------------------------------------------------- elimination of H22


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
    """Factor H22 from the leaves to the root; return ln det H22, and a block with a singular pivot, or -1."""
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
    fill_matrix(v, 0.0)
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
    """Solve the upper triangle, root to leaves: `e` becomes H22^-1 B_h v, `g_sum` (n_atoms, 3) becomes B_h^T e."""
    fill_matrix(g_sum, 0.0)
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
def _apply_inverse(blocks, fronts, mobility, soft, hard, factors, gains, b, v, w, e, out):
    """Write M^-1 b (n_dof,), by (13); `v`, `w` (n_atoms, 3) and `e` (number of hard coordinates,) are scratch."""
    _spread(blocks, soft, mobility, b, v)
    copy_matrix(v, w)
    _sweep_up(blocks, fronts, hard, factors, gains, w, e)
    _sweep_down(blocks, fronts, hard, factors, gains, e, w)
    for a in range(len(mobility)):
        for i in range(3):
            v[a, i] -= mobility[a] * w[a, i]
    _gather(blocks, soft, v, out)


class _Motion(NamedTuple):
    """What the product J^T m J v needs: arrays of the tree, and of its links and atoms in one configuration."""

    parent: np.ndarray
    joint: np.ndarray
    dof: np.ndarray
    atom_link: np.ndarray
    masses: np.ndarray
    axis: np.ndarray
    p: np.ndarray
    x: np.ndarray


@njit(cache=True)
def _momenta(motion, rates, v, twist, wrench, out):
    """Write M s' = J^T m J s' (n_dof,); `v` (n_atoms, 3), `twist` and `wrench` (2, n_links, 3) are scratch."""
    parent, joint, dof, link = motion.parent, motion.joint, motion.dof, motion.atom_link
    link_twists(parent, joint, dof, motion.axis, motion.p, rates, twist[0], twist[1])
    atom_velocities(link, motion.x, motion.p, twist[0], twist[1], v)
    for a in range(len(v)):
        for i in range(3):
            v[a, i] *= motion.masses[a]
    gather_wrenches(link, motion.x, motion.p, v, wrench[0], wrench[1])
    project_wrenches(parent, joint, dof, motion.axis, motion.p, wrench[0], wrench[1], out)


class _Scratch(NamedTuple):
    """Scratch of `_solve`.

    v, w : (n_atoms, 3).  e : (number of hard coordinates,).  twist, wrench : (2, n_links, 3).  rows : (3, n_dof).
    """

    v: np.ndarray
    w: np.ndarray
    e: np.ndarray
    twist: np.ndarray
    wrench: np.ndarray
    rows: np.ndarray


@njit(cache=True)
def _solve(blocks, fronts, motion, mobility, soft, hard, factors, gains, refinements, scratch, rhs, out):
    """Write M^-1 b for every column of `rhs` (n_dof, m), with steps of iterative refinement."""
    v, w, e, twist, wrench, rows = scratch
    b, x, product = rows[0], rows[1], rows[2]
    for c in range(rhs.shape[1]):
        for d in range(len(rhs)):
            b[d] = rhs[d, c]
            out[d, c] = 0.0
        for step in range(refinements + 1):
            if step > 0:
                _momenta(motion, x, v, twist, wrench, product)
                for d in range(len(rhs)):
                    b[d] -= product[d]
            _apply_inverse(blocks, fronts, mobility, soft, hard, factors, gains, b, v, w, e, x)
            for d in range(len(rhs)):
                out[d, c] += x[d]


# ---------------------------------------------------------------------- the solver


class FixmanPointsFactor(ReusableFactor):
    """Rows dq/dx of one tree in one configuration, with H22 factored.

    Parameters
    ----------
    tree : TreeModel
    plan : Plan

    Attributes
    ----------
    log_det_G : float
        ln det G, of all atoms set free.
    log_det_H22 : float
        ln det H22, of the hard coordinates.
    """

    def __init__(self, tree: TreeModel, plan: Plan):
        blocks = plan.blocks
        self._plan = plan
        self.topology, self.placed = (tree.parent, tree.joint, tree.dof), tree.empty_links()
        self._motion = _Motion(
            *self.topology, tree.atom_link, tree.masses, self.placed.axis, self.placed.p, np.empty((tree.n_atoms, 3))
        )
        sizes = (blocks.soft_at[-1], blocks.hard_at[-1], blocks.factor_at[-1], blocks.gain_at[-1])
        self._soft, self._hard, self._factors, self._gains = (np.empty(size) for size in sizes)
        self._matrices = np.empty(plan.fronts.store)
        self._scratch = _Scratch(
            v=np.empty((tree.n_atoms, 3)), w=np.empty((tree.n_atoms, 3)), e=np.empty(blocks.n_hard.sum()),
            twist=np.empty((2, tree.n_links, 3)), wrench=np.empty((2, tree.n_links, 3)), rows=np.empty((3, tree.n_dof)),
        )  # fmt: skip
        self._log_det_masses = float(3.0 * np.log(tree.masses[plan.mobility > 0]).sum())
        self.log_det_G = self.log_det_H22 = 0.0

    def refactor(self, tree: TreeModel, state: State) -> None:
        tree.check_state(state)
        plan, links, x = self._plan, self.placed, self._motion.x
        link_snapshot(
            *tree.link_arrays, state.base_position, state.base_rotation, state.q, links.R, links.p, links.axis,
            links.com, links.inertia,
        )  # fmt: skip
        place_atoms(tree.atom_link, tree.local, links.R, links.p, x)
        log_scale, bad = write_rows(
            plan.blocks, plan.frames, x, tree.joint, links.axis, links.p, self._soft, self._hard
        )  # fmt: skip
        if bad < 0:
            self.log_det_H22, bad = _eliminate(
                plan.blocks, plan.fronts, self._hard, plan.mobility, self._matrices, self._factors, self._gains
            )
        if bad >= 0:
            raise_singular(tree, int(plan.blocks.link[bad]))
        self.log_det_G = self._log_det_masses + 2.0 * log_scale

    def solve(self, b: np.ndarray, refinements: int = 1) -> np.ndarray:
        """Return M^-1 b by (12); O(n) per column.

        The momenta of a whole molecule, put on the three carriers of its root unit, are large forces that almost cancel
        in the bracket of (13). One step of iterative refinement, x + M^-1 (b - J^T m J x), gives back the digits that
        are lost there.

        Parameters
        ----------
        b : (n_dof, m)
        refinements : int
            Number of such steps.
        """
        plan = self._plan
        out = np.empty(b.shape)
        _solve(
            plan.blocks, plan.fronts, self._motion, plan.mobility, self._soft, self._hard, self._factors, self._gains,
            refinements, self._scratch, b, out,
        )  # fmt: skip
        return out

    def log_det(self) -> float:
        """Return ln det M by Fixman's theorem (8)."""
        return self.log_det_G + self.log_det_H22

    def rows(self) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
        """Return dq/dx as sparse matrices: B_s (n_dof, 3 n_atoms) in the order of the degrees of freedom, and B_h."""
        blocks = self._plan.blocks
        n_columns = 3 * len(self._plan.mobility)
        soft = sparse_rows(blocks, blocks.n_soft, np.diff(blocks.column_at), self._soft, n_columns)
        hard = sparse_rows(blocks, blocks.n_hard, blocks.n_hard_columns, self._hard, n_columns)
        return soft[np.argsort(blocks.dof)], hard


class FixmanPointsSolver(ReusingSolver[FixmanPointsFactor]):
    """M^-1 = H11 - H12 H22^-1 H12^T over bond-angle-torsion coordinates of all atoms.

    The plan of a tree is made at its first use, and kept as long as the tree. Models without atoms are refused.
    """

    name = "fixman-points"
    paper = (
        "K. Lee & G. S. Chirikjian, A new perspective on O(n) mass-matrix inversion for serial revolute manipulators"
    )

    def __init__(self) -> None:
        self._plans: WeakKeyDictionary[TreeModel, Plan] = WeakKeyDictionary()
        self.pool = FactorPool(self._make_factor)

    def _make_factor(self, tree: TreeModel) -> FixmanPointsFactor:
        plan = self._plans.get(tree)
        if plan is None:
            plan = self._plans[tree] = make_plan(tree)
        return FixmanPointsFactor(tree, plan)
