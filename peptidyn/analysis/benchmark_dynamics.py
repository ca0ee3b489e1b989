"""Forward dynamics by the articulated kernels in one compiled call on scratch made once.

The calls are those of `ArticulatedSolver.accelerations`, without what Python does between them, so that kernels are
compared with kernels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from peptidyn.model.kinematics import link_poses
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers import articulated_kernels as kernels
from peptidyn.solvers.protocol import raise_singular


@njit(cache=True)
def _forward_dynamics(
    parent, joint, axis, origin, coordinate, dof, molecule, q_reference, mass, com, inertia, base_position,
    base_rotation, q, v, tau, acc, R, p, S, U, P, D, root, V, C, f,
):  # fmt: skip
    """Write the accelerations of one configuration; return -1, or the link at which M is singular."""
    link_poses(parent, joint, axis, origin, coordinate, molecule, q_reference, base_position, base_rotation, q, R, p)
    kernels.spatial_axes(parent, joint, axis, R, p, S)
    kernels.spatial_inertias(parent, mass, com, inertia, R, p, P)
    kernels.velocity_terms(parent, joint, dof, S, P, v, V, C, f)
    bad = kernels.factor(parent, joint, molecule, S, P, U, D, root)
    if bad < 0:
        kernels.accelerations(parent, joint, molecule, dof, S, P, U, D, root, V, C, f, tau, acc)
    return bad


@njit(cache=True)
def _forward_dynamics_many(
    parent, joint, axis, origin, coordinate, dof, molecule, q_reference, mass, com, inertia, base_position,
    base_rotation, q, v, tau, acc, R, p, S, U, P, D, root, V, C, f,
):  # fmt: skip
    """The same for many configurations, q (n_states, n_coordinates), one after the other."""
    for s in range(len(q)):
        bad = _forward_dynamics(
            parent, joint, axis, origin, coordinate, dof, molecule, q_reference, mass, com, inertia, base_position,
            base_rotation, q[s], v, tau, acc[s], R, p, S, U, P, D, root, V, C, f,
        )  # fmt: skip
        if bad >= 0:
            return bad
    return -1


class ForwardDynamics:
    """Forward dynamics of one tree.

    Parameters
    ----------
    tree : TreeModel
    state : State
        Its base poses are used for all configurations.
    """

    def __init__(self, tree: TreeModel, state: State):
        n = tree.n_links
        self.tree = tree
        self._model = (
            tree.parent, tree.joint, tree.axis, tree.origin, tree.coordinate, tree.dof, tree.molecule,
            tree.q_reference, tree.link_mass, tree.link_com, tree.link_inertia, state.base_position,
            state.base_rotation,
        )  # fmt: skip
        self._scratch = (
            np.empty((n, 3, 3)), np.empty((n, 3)), np.empty((n, 6)), np.empty((n, 6)), np.empty((n, 6, 6)),
            np.empty(n), np.empty((tree.n_molecules, 6, 6)), np.empty((n, 6)), np.empty((n, 6)), np.empty((n, 6)),
        )  # fmt: skip

    def one(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the accelerations (n_dof,) for q (n_coordinates,), v and tau (n_dof,)."""
        acc = np.empty(self.tree.n_dof)
        self._check(_forward_dynamics(*self._model, q, v, tau, acc, *self._scratch))
        return acc

    def many(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the accelerations (n_states, n_dof) for q (n_states, n_coordinates), the same v and tau for all."""
        acc = np.empty((len(q), self.tree.n_dof))
        self._check(_forward_dynamics_many(*self._model, q, v, tau, acc, *self._scratch))
        return acc

    def _check(self, bad: int) -> None:
        if bad >= 0:
            raise_singular(self.tree, bad)
