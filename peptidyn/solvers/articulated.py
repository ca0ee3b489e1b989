"""The default solver: articulated-body algebra in world axes, the fastest of the O(n) methods here.

It is the form that all five papers lead to once the recursion is written about one origin; the dynamics, the Fixman
potential and the integrators use its kernels directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import plain_array
from peptidyn.kernels.packing import pack
from peptidyn.kernels.states import (
    factor_and_solve,
    factor_state,
    forward_dynamics,
    forward_dynamics_states,
    inverse_diagonal_state,
    log_det_state,
    make_scratch,
    solve_state,
)
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import FactorPool, ReusableFactor, ReusingSolver, raise_singular


def moving_copy(state: State) -> tuple[np.ndarray, np.ndarray]:
    """Return q and base rotations that can be written: kernels are compiled for such arrays once."""
    return state.q.copy(), state.base_rotation.copy()


class ArticulatedFactor(ReusableFactor):
    """Gains U and pivots D of one tree in one configuration."""

    def __init__(self, tree: TreeModel):
        self.packed = pack(tree)
        self.scratch = make_scratch(self.packed, tree.n_molecules)
        self._column = np.empty(tree.n_dof)

    def refactor(self, tree: TreeModel, state: State) -> None:
        bad = factor_state(self.packed, self.scratch, *moving_copy(state))
        if bad >= 0:
            raise_singular(tree, bad)

    def solve(self, b: np.ndarray) -> np.ndarray:
        x = np.empty_like(b)
        for k in range(b.shape[1]):
            solve_state(self.packed, self.scratch, np.ascontiguousarray(b[:, k]), self._column)
            x[:, k] = self._column
        return x

    def log_det(self) -> float:
        return float(log_det_state(self.packed, self.scratch, None))

    def inverse_diagonal(self, n_coordinates: int) -> np.ndarray:
        """Return (M^-1)_ii of all soft coordinates; the factor is used up."""
        diagonal = np.empty(n_coordinates)
        inverse_diagonal_state(self.packed, self.scratch, diagonal)
        return diagonal


class ArticulatedSolver(ReusingSolver[ArticulatedFactor]):
    """Articulated-body factor about one origin per molecule, world axes."""

    name = "articulated"
    paper = "articulated-body algebra about one origin, world axes (the fast kernels of the dynamics)"
    takes_joint_inertia = True

    def __init__(self) -> None:
        self.pool = FactorPool(ArticulatedFactor)

    def _solve(self, tree: TreeModel, state: State, b: np.ndarray) -> np.ndarray:
        if b.ndim != 1:
            return super()._solve(tree, state, b)
        return self._in_one_call(factor_and_solve, tree, state, b)

    def inverse_diagonal(self, tree: TreeModel, state: State) -> np.ndarray:
        """Return (M^-1)_ii of all soft coordinates (n_coordinates,); O(n), without the rest of M^-1."""
        return self._ask(tree, state, lambda factor: factor.inverse_diagonal(tree.n_coordinates))

    def _accelerations(self, tree: TreeModel, state: State, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        return self._in_one_call(forward_dynamics, tree, state, v, tau)

    def _in_one_call(self, kernel: Callable, tree: TreeModel, state: State, *vectors: np.ndarray) -> np.ndarray:
        """Return what a kernel that factors by itself writes into its last argument (n_dof,)."""
        factor = self.pool.take(tree)
        x = np.empty(tree.n_dof)
        bad = kernel(factor.packed, factor.scratch, *moving_copy(state), *vectors, x)
        self.pool.give(tree, factor)
        if bad >= 0:
            raise_singular(tree, bad)
        return x

    def accelerations_of_states(
        self, tree: TreeModel, q: Any, velocities: Any, tau: Any, base_rotation: Any = None
    ) -> np.ndarray:
        """Return the generalised accelerations (n_states, n_dof) of many states at once, on all cores.

        Parameters
        ----------
        tree : TreeModel
        q : (n_states, n_coordinates), rad
        velocities, tau : (n_states, n_dof)
        base_rotation : (n_states, n_molecules, 4), optional
            Unit quaternions; default those of the reference for all states.
        """
        coordinates = plain_array(q)
        if coordinates.ndim != 2 or coordinates.shape[1] != tree.n_coordinates:
            raise ArgumentError(f"q has shape {coordinates.shape}, expected (n_states, {tree.n_coordinates})")
        n = len(coordinates)
        rotation = tree.reference.base_rotation[None].copy() if base_rotation is None else plain_array(base_rotation)
        parts = {
            "q": (coordinates, (n, tree.n_coordinates)),
            "velocities": (plain_array(velocities), (n, tree.n_dof)),
            "tau": (plain_array(tau), (n, tree.n_dof)),
            "base_rotation": (rotation, (1 if base_rotation is None else n, tree.n_molecules, 4)),
        }
        for name, (value, shape) in parts.items():
            if value.shape != shape:
                raise ArgumentError(f"{name} has shape {value.shape}, expected {shape}")
            if not np.isfinite(value).all():
                raise ArgumentError(f"{name} holds values that are not finite numbers")
        acc, bad = forward_dynamics_states(pack(tree), coordinates, rotation, parts["velocities"][0], parts["tau"][0])
        if bad >= 0:
            raise_singular(tree, bad)
        return self._finite(acc)
