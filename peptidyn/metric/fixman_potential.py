"""The Fixman potential: energy and torque in O(n) from one factorisation.

Rigid dynamics samples sqrt(det M) exp(-V/kT) over the soft coordinates. The potential

    U_F = (kT / 2) ln(det M / J^2),      J = product of r^2 and sin(angle) over the soft bond lengths and angles

removes the factor sqrt(det M) and leaves the natural measure: flat in torsions, sin(angle) in soft angles, r^2 in soft
bond lengths. M holds the joint inertias of the tree: whatever they are, U_F removes what they do to the distribution.
ln det M is a sum over molecules; rigid molecules, waters and ions add constants. It does not depend on where a
molecule is or how it is turned, so the base components of the torque are zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError, SolverError
from peptidyn.core.units import BOLTZMANN, plain, plain_array
from peptidyn.kernels.packing import pack_molecules
from peptidyn.kernels.states import Scratch, factor_state, log_det_state, log_det_states, make_scratch
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import raise_singular

STRAIGHT = 1e-7
"""Soft bond angles whose sine is smaller than this have no defined metric."""


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
        # molecules without soft coordinates add a constant, and are left out of what is evaluated again and again
        flexible = np.diff(tree.molecule_link) > 1
        self.constant = _evaluate(tree, ~flexible)
        self._packed, self._links = pack_molecules(tree, flexible)
        self._rotation = np.zeros((1, int(flexible.sum()), 4))
        self._rotation[:, :, 0] = 1.0
        self._curved = bool(len(tree.bend_index) + len(tree.stretch_index))
        self._idle: list[Scratch] = []

    def __reduce__(self) -> Any:
        """Send to other processes what it is made from: the packed arrays would come to be writable there."""
        return FixmanPotential, (self.tree, self.temperature)

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
        bad = -1
        if len(coordinates) == 1:
            value, gradient, bad = self._one(coordinates[0], want_gradient)
        elif len(self._links):
            value, gradient, bad = log_det_states(self._packed, coordinates, self._rotation, want_gradient)
        else:
            value, gradient = np.zeros(len(coordinates)), np.zeros_like(coordinates)
        if bad >= 0:
            raise_singular(self.tree, int(self._links[bad]))
        value += self.constant
        if self._curved:
            self._add_jacobian(coordinates, value, gradient if want_gradient else None)
        return value, gradient

    def _add_jacobian(self, q: np.ndarray, value: np.ndarray, gradient: np.ndarray | None) -> None:
        """Add -2 ln J, which angles and bond lengths have, and its gradient unless that is None."""
        bends, stretches = self.tree.bend_index, self.tree.stretch_index
        for places, singular, what in (
            (bends, np.abs(np.sin(q[:, bends])) < STRAIGHT, "is 0 or 180 degrees"),
            (stretches, ~(q[:, stretches] > 0.0), "has no positive length"),
        ):
            if singular.any():
                where = self.tree.coordinates[places[int(singular.any(axis=0).argmax())]]
                raise SolverError(f"{where} {what}, where the metric is singular")
        value -= 2.0 * self.tree.log_jacobian(q)
        if gradient is not None:
            gradient[:, bends] -= 2.0 / np.tan(q[:, bends])
            gradient[:, stretches] -= 4.0 / q[:, stretches]

    def _one(self, q: np.ndarray, want_gradient: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Evaluate one configuration, without the cost of threads."""
        scratch = self._idle.pop() if self._idle else make_scratch(self._packed, self._rotation.shape[1])
        gradient = np.zeros((1, len(q)))
        bad = factor_state(self._packed, scratch, q, self._rotation[0])
        value = log_det_state(self._packed, scratch, gradient[0] if want_gradient else None) if bad < 0 else math.nan
        self._idle.append(scratch)
        return np.array([value]), gradient, bad


def check_temperature(temperature: Any) -> float:
    """Return the temperature in K; raise ArgumentError unless it is a positive number."""
    value = float(plain(temperature))
    if not (math.isfinite(value) and value > 0):
        raise ArgumentError(f"the temperature is {value:g} K, expected a positive number")
    return value


def _evaluate(tree: TreeModel, molecules: np.ndarray) -> float:
    """Return ln det M of some molecules (a mask over molecules) in the reference configuration."""
    packed, links = pack_molecules(tree, molecules)
    scratch = make_scratch(packed, int(molecules.sum()))
    bad = factor_state(packed, scratch, tree.reference.q.copy(), tree.reference.base_rotation[molecules])
    if bad >= 0:
        raise_singular(tree, int(links[bad]))
    return float(log_det_state(packed, scratch, None))
