"""The solver `spatial-operator`: Rodriguez & Kreutz (JPL 88-11, 1988, part I), for trees with any base; O(n).

The factors are in `peptidyn.solvers.spatial_factors`, with the legend and the corrections to print; the four
algorithms for forward dynamics in `peptidyn.solvers.spatial_dynamics`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import FactorPool, ReusableFactor, ReusingSolver, Solver, check_columns, raise_singular
from peptidyn.solvers.spatial_dynamics import ALGORITHMS, WORK
from peptidyn.solvers.spatial_factors import (
    PIVOT_TOLERANCE,
    Gains,
    empty_linkage,
    empty_poses,
    factor_links,
    inverse_square_root_columns,
    solve_columns,
    square_root_columns,
    sum_log_pivots,
)

DEFAULT_ALGORITHM = "fd4"
"""The fewest sweeps, and no bias torques that must cancel."""


class SpatialOperatorFactor(ReusableFactor):
    """M = (I + H Phi L) D (I + H Phi L)^T, (4.11), held as P, D and G.

    Attributes
    ----------
    links : Linkage
    gains : Gains
    """

    def __init__(self, tree: TreeModel):
        n = tree.n_links
        self.links = empty_linkage(tree)
        self.gains = Gains(
            P=np.empty((n, 6, 6)), D=np.empty(n), G=np.empty((n, 6)), C=np.empty((tree.n_molecules, 6, 6))
        )
        self._poses = empty_poses(tree)
        self._removed = np.empty((n, 2))
        self._work, self._rows = np.empty((WORK, n, 6)), np.empty((2, tree.n_dof))

    def refactor(self, tree: TreeModel, state: State) -> None:
        tree.check_state(state)
        configuration = state.base_position, state.base_rotation, state.q
        singular = factor_links(
            tree.link_arrays, configuration, self._poses, self.links, self.gains, self._removed, PIVOT_TOLERANCE
        )
        if singular >= 0:
            raise_singular(tree, singular)

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return M^-1 b (n_dof, m) by (4.16)."""
        return self._columns(solve_columns, b)

    def log_det(self) -> float:
        """Return ln det M = sum of ln D over the joints + ln det D(N) of the bases."""
        return float(sum_log_pivots(self.gains))

    def accelerations(self, v: np.ndarray, tau: np.ndarray, algorithm: str = DEFAULT_ALGORITHM) -> np.ndarray:
        """Return the generalised accelerations (n_dof,) by one of the algorithms."""
        theta = np.empty(len(tau))
        ALGORITHMS[algorithm](self.links, self.gains, v, tau, self._work, self._rows, theta)
        return theta

    def link_accelerations(self, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the spatial accelerations (n_links, 6) of all links by algorithm FD2."""
        self.accelerations(v, tau, "fd2")
        return self._work[-1].copy()

    def square_root(self, normals: np.ndarray) -> np.ndarray:
        """Return (I + H Phi L) D^(1/2) z for `normals` z (n_dof, m)."""
        return self._columns(square_root_columns, normals)

    def inverse_square_root(self, normals: np.ndarray) -> np.ndarray:
        """Return (I - H Psi L)^T D^(-T/2) z for `normals` z (n_dof, m)."""
        return self._columns(inverse_square_root_columns, normals)

    def _columns(self, kernel: Any, b: np.ndarray) -> np.ndarray:
        out = np.empty_like(b)
        kernel(self.links, self.gains, b, self._rows, self._work[0], out)
        return out


class SpatialOperatorSolver(ReusingSolver[SpatialOperatorFactor]):
    """Riccati factorisation of the mass matrix, filter and smoother sweeps, forward dynamics FD1 to FD4.

    Parameters
    ----------
    algorithm : {"fd1", "fd2", "fd3", "fd4"}, optional
        The forward dynamics behind `accelerations`; they agree to rounding. By default ``fd4``.
    """

    name = "spatial-operator"
    paper = "Rodriguez & Kreutz, Recursive mass matrix factorization and inversion, JPL 88-11 (1988)"
    takes_joint_inertia = True
    pool = FactorPool(SpatialOperatorFactor)

    def __init__(self, algorithm: str | None = None):
        if algorithm is not None:
            if algorithm not in ALGORITHMS:
                raise ArgumentError(
                    f"unknown forward dynamics algorithm {algorithm!r}; the algorithms are: {', '.join(ALGORITHMS)}"
                )
            self.name = f"spatial-operator:{algorithm}"
        self.algorithm = algorithm or DEFAULT_ALGORITHM

    def accelerations(
        self, tree: TreeModel, state: State, velocities: Any, tau: Any, algorithm: str | None = None
    ) -> np.ndarray:
        """Return what `Solver.accelerations` does, by the given algorithm or the solver's own."""
        solver = self if algorithm is None else SpatialOperatorSolver(algorithm)
        return Solver.accelerations(solver, tree, state, velocities, tau)

    def _accelerations(self, tree: TreeModel, state: State, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        return self._ask(tree, state, lambda factor: factor.accelerations(v, tau, self.algorithm))

    def link_accelerations(self, tree: TreeModel, state: State, velocities: Any, tau: Any) -> np.ndarray:
        """Return the spatial acceleration of every link under generalised forces `tau`, by algorithm FD2; O(n).

        Parameters
        ----------
        tree : TreeModel
        state : State
        velocities, tau : (n_dof,)

        Returns
        -------
        (n_links, 6)
            Angular acceleration, and acceleration of the link's origin, world axes.
        """
        v = tree.check_dof_vector("velocities", velocities)
        t = tree.check_dof_vector("tau", tau)
        return self._finite(self._ask(tree, state, lambda factor: factor.link_accelerations(v, t)))

    def square_root(self, tree: TreeModel, state: State, normals: Any) -> np.ndarray:
        """Return L z with L = (I + H Phi L) D^(1/2), L L^T = M: normals become momenta of covariance M; O(n).

        Parameters
        ----------
        tree : TreeModel
        state : State
        normals : (n_dof,) or (n_dof, m)
            Independent unit normals z, one sample per column.
        """
        return self._root(tree, state, normals, SpatialOperatorFactor.square_root)

    def inverse_square_root(self, tree: TreeModel, state: State, normals: Any) -> np.ndarray:
        """Return L^-T z = (I - H Psi L)^T D^(-T/2) z: normals become velocities of covariance M^-1; O(n).

        Arguments as in `square_root`; L is the factor that `square_root` applies.
        """
        return self._root(tree, state, normals, SpatialOperatorFactor.inverse_square_root)

    def _root(self, tree: TreeModel, state: State, normals: Any, apply: Callable) -> np.ndarray:
        z = check_columns("normals", normals, tree.n_dof)
        columns = z if z.ndim == 2 else z[:, None]
        return self._finite(self._ask(tree, state, lambda factor: apply(factor, columns))).reshape(z.shape)
