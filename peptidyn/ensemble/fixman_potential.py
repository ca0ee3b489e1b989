"""The Fixman potential: energy and torque in O(n) from one factorisation.

Rigid dynamics samples sqrt(det M) exp(-V/kT) over the soft coordinates. The potential

    U_F = (kT / 2) ln(det M / J^2),      J = product of sin(angle) over the opened bond angles

removes the factor sqrt(det M) and leaves the natural measure: flat in torsions, sin(angle) in opened angles.
ln det M is a sum over molecules; rigid molecules, waters and ions add constants. It does not depend on where a
molecule is or how it is turned, so the base components of the torque are zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from peptidyn.errors import ArgumentError, SolverError
from peptidyn.model.kinematics import link_poses
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers import articulated_kernels as kernels
from peptidyn.solvers.articulated import ArticulatedSolver
from peptidyn.solvers.protocol import raise_singular
from peptidyn.units import BOLTZMANN, plain, plain_array

STRAIGHT = 1e-7
"""Opened bond angles whose sine is smaller than this have no defined metric."""


FEW_STATES = 4
"""Fewer states than this are not worth starting threads for."""


@njit(cache=True)
def _evaluate(
    parent, joint, axis, origin, coordinate, molecule, q_reference, mass, com, inertia, bend, q, gradient,
    want_gradient, R, p, S, U, P, D, root, Y,
):  # fmt: skip
    """Return (ln det M - 2 ln J, status) of one configuration and write its gradient; bases at the identity."""
    n_molecules = len(root)
    base_position = np.zeros((n_molecules, 3))
    base_rotation = np.zeros((n_molecules, 4))
    base_rotation[:, 0] = 1.0
    link_poses(parent, joint, axis, origin, coordinate, molecule, q_reference, base_position, base_rotation, q, R, p)
    kernels.spatial_axes(parent, joint, axis, R, p, S)
    kernels.spatial_inertias(parent, mass, com, inertia, R, p, P)
    bad = kernels.factor(parent, joint, molecule, S, P, U, D, root)
    if bad >= 0:
        return math.nan, bad
    value = kernels.log_det(parent, joint, molecule, P, D, root)
    if want_gradient:
        kernels.log_det_gradient(parent, joint, molecule, coordinate, S, P, U, D, root, Y, gradient)
    for b in bend:
        sine = abs(math.sin(q[b]))
        value -= 2.0 * math.log(sine) if sine > STRAIGHT else math.inf
        if want_gradient:
            gradient[b] -= 2.0 / math.tan(q[b])
    return value, -1


@njit(cache=True)
def _evaluate_range(
    parent, joint, axis, origin, coordinate, molecule, q_reference, mass, com, inertia, bend, q, n_molecules, value,
    gradient, status, want_gradient, start, stop,
):  # fmt: skip
    """Evaluate the configurations start to stop of q (n_states, n_coordinates), with one set of scratch arrays."""
    n_links = len(parent)
    R = np.empty((n_links, 3, 3))
    p = np.empty((n_links, 3))
    S = np.empty((n_links, 6))
    U = np.empty((n_links, 6))
    P = np.empty((n_links, 6, 6))
    Y = np.empty((n_links if want_gradient else 0, 6, 6))
    D = np.empty(n_links)
    root = np.empty((n_molecules, 6, 6))
    for s in range(start, stop):
        value[s], status[s] = _evaluate(
            parent, joint, axis, origin, coordinate, molecule, q_reference, mass, com, inertia, bend, q[s],
            gradient[s if want_gradient else 0], want_gradient, R, p, S, U, P, D, root, Y,
        )  # fmt: skip


@njit(cache=True, parallel=True)
def _evaluate_parallel(
    parent, joint, axis, origin, coordinate, molecule, q_reference, mass, com, inertia, bend, q, n_molecules, value,
    gradient, status, want_gradient, n_batches,
):  # fmt: skip
    """Evaluate many configurations; threads take consecutive batches of states."""
    n_states = len(q)
    for batch in prange(n_batches):
        _evaluate_range(
            parent, joint, axis, origin, coordinate, molecule, q_reference, mass, com, inertia, bend, q, n_molecules,
            value, gradient, status, want_gradient, batch * n_states // n_batches, (batch + 1) * n_states // n_batches,
        )  # fmt: skip


class FixmanPotential:
    """U_F of a tree at a temperature.

    Parameters
    ----------
    tree : TreeModel
    temperature : float or Quantity
        K, positive.
    """

    def __init__(self, tree: TreeModel, temperature: Any):
        self.tree = tree
        self.temperature = check_temperature(temperature)
        self.kT = BOLTZMANN * self.temperature
        self._links, self._arguments, self.constant = _flexible_part(tree)

    def log_metric(self, q: Any) -> np.ndarray:
        """Return ln(det M / J^2) of many configurations.

        Parameters
        ----------
        q : (n_states, n_coordinates), rad
        """
        return self._many(q, False)[0]

    def energy(self, state: State) -> float:
        """Return U_F, kJ/mol."""
        return float(0.5 * self.kT * self.log_metric(state.q[None])[0])

    def torque(self, state: State) -> np.ndarray:
        """Return -dU_F/dq over all degrees of freedom (n_dof,), kJ/mol/rad; base components are zero."""
        return self.energy_and_torque(state)[1]

    def energy_and_torque(self, state: State) -> tuple[float, np.ndarray]:
        """Return U_F (kJ/mol) and -dU_F/dq (n_dof,) from one factorisation."""
        value, gradient = self._many(state.q[None], True)
        torque = np.zeros(self.tree.n_dof)
        torque[self.tree.coordinate_dof] = -0.5 * self.kT * gradient[0]
        return float(0.5 * self.kT * value[0]), torque

    def energies(self, q: Any) -> np.ndarray:
        """Return U_F (n_states,), kJ/mol, of configurations `q` (n_states, n_coordinates), on all cores."""
        return 0.5 * self.kT * self.log_metric(q)

    def energies_and_torques(self, q: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return U_F (n_states,) and -dU_F/dq (n_states, n_coordinates) of many configurations, on all cores."""
        value, gradient = self._many(q, True)
        return 0.5 * self.kT * value, -0.5 * self.kT * gradient

    def _many(self, q: Any, want_gradient: bool) -> tuple[np.ndarray, np.ndarray]:
        coordinates = plain_array(q)
        if coordinates.ndim != 2 or coordinates.shape[1] != self.tree.n_coordinates:
            raise ArgumentError(f"q has shape {coordinates.shape}, expected (n_states, {self.tree.n_coordinates})")
        if not np.isfinite(coordinates).all():
            raise ArgumentError("q holds values that are not finite numbers")
        n = len(coordinates)
        value = np.empty(n)
        status = np.empty(n, dtype=np.int64)
        gradient = np.zeros((n if want_gradient else 1, self.tree.n_coordinates))
        if len(self._links):
            n_molecules = int(self._arguments[5].max()) + 1
            arguments = (*self._arguments, coordinates, n_molecules, value, gradient, status, want_gradient)
            if n < FEW_STATES:
                _evaluate_range(*arguments, 0, n)
            else:
                _evaluate_parallel(*arguments, min(n, 64))
            bad = np.flatnonzero(status >= 0)
            if bad.size:
                raise_singular(self.tree, int(self._links[status[bad[0]]]))
        else:
            value[:] = 0.0
        value += self.constant
        if not np.isfinite(value).all():
            raise SolverError("an opened bond angle is 0 or 180 degrees, where the metric is singular")
        return value, gradient


def check_temperature(temperature: Any) -> float:
    """Return the temperature in K; raise ArgumentError unless it is a positive number."""
    value = float(plain(temperature))
    if not (math.isfinite(value) and value > 0):
        raise ArgumentError(f"the temperature is {value:g} K, expected a positive number")
    return value


def _flexible_part(tree: TreeModel) -> tuple[np.ndarray, tuple[np.ndarray, ...], float]:
    """Return the links of molecules with soft coordinates, their arrays, and ln det M of all other molecules."""
    sizes = np.diff(tree.molecule_link)
    flexible = (sizes > 1)[tree.molecule]
    links = np.flatnonzero(flexible)
    place = np.full(tree.n_links + 1, -1, dtype=np.int64)
    place[links] = np.arange(len(links))
    molecule = np.unique(tree.molecule[links], return_inverse=True)[1].astype(np.int64)
    arguments = (
        place[tree.parent[links]], tree.joint[links], tree.axis[links], tree.origin[links], tree.coordinate[links],
        molecule, tree.q_reference, tree.link_mass[links], tree.link_com[links], tree.link_inertia[links],
        tree.bend_index,
    )  # fmt: skip
    return links, arguments, _rigid_log_det(tree, ~flexible)


def _rigid_log_det(tree: TreeModel, rigid: np.ndarray) -> float:
    """Return ln det M of the molecules without soft coordinates: a constant."""
    if not rigid.any():
        return 0.0
    factor = ArticulatedSolver().factor(tree, tree.reference)
    roots = np.flatnonzero(rigid)
    log_det = kernels.log_det(
        np.full(len(roots), -1), tree.joint[roots], tree.molecule[roots], factor.P[roots], factor.D[roots], factor.root
    )
    return float(log_det)
