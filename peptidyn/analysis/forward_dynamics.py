"""Forward dynamics by the articulated kernels in one compiled call on scratch made once.

The call is that of `ArticulatedSolver.accelerations`, without what Python does around it, so that kernels are compared
with kernels.
"""

from __future__ import annotations

import numpy as np

from peptidyn.kernels.packing import pack
from peptidyn.kernels.states import forward_dynamics, forward_dynamics_states, make_scratch
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import raise_singular


class ForwardDynamics:
    """Forward dynamics of one tree.

    Parameters
    ----------
    tree : TreeModel
    state : State
        Its base poses are used for all configurations.
    """

    def __init__(self, tree: TreeModel, state: State):
        self.tree = tree
        self._packed = pack(tree)
        self._scratch = make_scratch(self._packed, tree.n_molecules)
        self._rotation = state.base_rotation.copy()

    def one(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the accelerations (n_dof,) for q (n_coordinates,), v and tau (n_dof,)."""
        acc = np.empty(self.tree.n_dof)
        self._check(forward_dynamics(self._packed, self._scratch, q, self._rotation, v, tau, acc))
        return acc

    def many(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the accelerations (n_states, n_dof) for q (n_states, n_coordinates), v and tau (n_states, n_dof)."""
        acc, bad = forward_dynamics_states(self._packed, q, self._rotation[None], v, tau)
        self._check(bad)
        return acc

    def _check(self, bad: int) -> None:
        if bad >= 0:
            raise_singular(self.tree, bad)
