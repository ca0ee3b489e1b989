"""`SimulationWalker`: the configuration of a simulation, for Monte Carlo moves between its time steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.torsion_integrator import TorsionIntegrator
from peptidyn.integrators.mover import Mover
from peptidyn.model.tree import TreeModel


class SimulationWalker:
    """What `TorsionMove` and `PivotMove` need of a walker, in the Context of a torsion integrator.

    A turn samples exp(-V/kT) of the soft coordinates, as dynamics with the Fixman potential does, so both may take
    turns. Momenta belong to a configuration through its mass matrix: after a turn they are drawn anew, as time steps
    have them (`Stepper.draw_momenta`).

    Parameters
    ----------
    integrator : TorsionLangevinIntegrator or TorsionGHMCIntegrator
        Bound to `context`, and with the Fixman potential.
    context : openmm.Context

    Attributes
    ----------
    mover : Mover
        The configuration, while a move is made.
    momenta_valid : bool
        Whether the momenta of the integrator still belong to the configuration.
    force_calls : int
        Evaluations of energies so far.
    """

    mover: Mover

    def __init__(self, integrator: TorsionIntegrator, context: Any):
        if not hasattr(integrator, "getTemperature") or not integrator.fixman:
            raise ArgumentError(
                "Monte Carlo moves between time steps need a heat bath and the Fixman potential: without the second, "
                "dynamics samples another distribution; use TorsionLangevinIntegrator or TorsionGHMCIntegrator with "
                "fixman=True"
            )
        self._integrator, self._context = integrator, context
        self.momenta_valid = True
        self.force_calls = 0
        self._energy = math.nan

    @property
    def tree(self) -> TreeModel:
        """The tree that is moved."""
        return self._integrator.tree

    @property
    def kT(self) -> float:
        """Of the heat bath, kJ/mol."""
        return BOLTZMANN * self._integrator.getTemperature()._value  # type: ignore[attr-defined]

    @property
    def rng(self) -> np.random.Generator:
        """That of the integrator, which checkpoints hold."""
        return self._integrator.rng

    def apply(self, move: Any) -> bool:
        """Let a move act, and leave its outcome in the Context; return whether something was accepted."""
        self.mover = self._integrator.lend_mover()
        self._energy = math.nan
        try:
            return move.apply(self)
        finally:
            # in any case: the Context has trial positions
            self._integrator.set_motion(self.mover.state, self.mover.momentum if self.momenta_valid else None)
            self.momenta_valid = True

    def energy(self) -> float:
        """Return V of the configuration, kJ/mol."""
        if math.isnan(self._energy):
            self._energy = self.energy_at(self.mover.positions())
        return self._energy

    def energy_at(self, x: np.ndarray) -> float:
        """Return V at positions (n_atoms, 3), nm."""
        self._context.setPositions(x)
        self.force_calls += 1
        groups = self._integrator.getIntegrationForceGroups()
        return self._context.getState(energy=True, groups=groups).getPotentialEnergy()._value

    def changed(self, energy: float = math.nan) -> None:
        """Note that the configuration is another one, with this energy (kJ/mol) if it is known."""
        self._energy = energy
