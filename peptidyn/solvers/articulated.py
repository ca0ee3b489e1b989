"""The default solver: articulated-body algebra in world axes, the fastest of the O(n) methods here.

It is the form that all five papers lead to once the recursion is written about one origin; the dynamics, the Fixman
potential and the integrators use its kernels directly.
"""

from __future__ import annotations

import numpy as np

from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers import articulated_kernels as kernels
from peptidyn.solvers.protocol import Factor, Solver, raise_singular


class ArticulatedFactor(Factor):
    """Articulated inertias P, gains U and pivots D of one tree in one configuration."""

    def __init__(self, tree: TreeModel, state: State, velocities: np.ndarray | None = None):
        n = tree.n_links
        self.tree = tree
        self.S, self.U = np.empty((n, 6)), np.empty((n, 6))
        self.P = np.empty((n, 6, 6))
        self.D = np.empty(n)
        self.root = np.empty((tree.n_molecules, 6, 6))
        R, p = tree.poses(state)
        kernels.spatial_axes(tree.parent, tree.joint, tree.axis, R, p, self.S)
        kernels.spatial_inertias(tree.parent, tree.link_mass, tree.link_com, tree.link_inertia, R, p, self.P)
        if velocities is not None:
            self.V, self.C, self.f = np.empty((3, n, 6))
            kernels.velocity_terms(
                tree.parent, tree.joint, tree.dof, self.S, self.P, velocities, self.V, self.C, self.f
            )
        bad = kernels.factor(tree.parent, tree.joint, tree.molecule, self.S, self.P, self.U, self.D, self.root)
        if bad >= 0:
            raise_singular(tree, bad)

    def solve(self, b: np.ndarray) -> np.ndarray:
        t = self.tree
        x = np.empty_like(b)
        scratch = np.empty((t.n_links, 6))
        column = np.empty(t.n_dof)
        for k in range(b.shape[1]):
            kernels.solve(
                t.parent, t.joint, t.molecule, t.dof, self.S, self.P, self.U, self.D, self.root,
                np.ascontiguousarray(b[:, k]), column, scratch,
            )  # fmt: skip
            x[:, k] = column
        return x

    def log_det(self) -> float:
        t = self.tree
        return float(kernels.log_det(t.parent, t.joint, t.molecule, self.P, self.D, self.root))

    def log_det_gradient(self) -> np.ndarray:
        """Return d ln det M / d q (n_coordinates,)."""
        t = self.tree
        gradient = np.empty(t.n_coordinates)
        kernels.log_det_gradient(
            t.parent, t.joint, t.molecule, t.coordinate, self.S, self.P, self.U, self.D, self.root,
            np.empty((t.n_links, 6, 6)), gradient,
        )  # fmt: skip
        return gradient


class ArticulatedSolver(Solver):
    """Articulated-body factor about one origin per molecule, world axes."""

    name = "articulated"
    paper = "articulated-body algebra about one origin, world axes (the fast kernels of the dynamics)"

    def factor(self, tree: TreeModel, state: State) -> ArticulatedFactor:
        return ArticulatedFactor(tree, state)

    def _accelerations(self, tree: TreeModel, state: State, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        f = ArticulatedFactor(tree, state, velocities=v)
        acc = np.empty(tree.n_dof)
        kernels.accelerations(
            tree.parent, tree.joint, tree.molecule, tree.dof, f.S, f.P, f.U, f.D, f.root, f.V, f.C, f.f, tau, acc
        )
        return acc
