"""Torsion-space integrators for OpenMM: NVE, Langevin and GHMC.

In a script they stand where OpenMM's own integrators stand:

    integrator = ptd.TorsionLangevinIntegrator(tree, 300*kelvin, 1/picosecond, 8*femtoseconds)
    simulation = app.Simulation(topology, system, integrator)

The tree holds bonds and angles, so constraints of the System must lie inside its rigid units. How they drive a Context
is in `peptidyn.engine.torsion_integrator`.
"""

from __future__ import annotations

import math
from typing import Any

from openmm import unit

from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import BOLTZMANN, plain
from peptidyn.engine.kinetic_metric import (
    metropolis_steps,
)
from peptidyn.engine.torsion_integrator import TorsionIntegrator
from peptidyn.integrators.stepper import THERMAL_TOLERANCE, MetropolisStepper, Stepper
from peptidyn.metric.fixman_potential import check_temperature
from peptidyn.model.tree import TreeModel


class TorsionVerletIntegrator(TorsionIntegrator):
    """Constant energy: BAB with the RATTLE drift in minimal coordinates. Symplectic and reversible.

    Parameters
    ----------
    tree : TreeModel
    timestep : float or Quantity
        ps.
    fixman : bool
        Add U_F at `temperature` to the potential energy.
    temperature : float or Quantity
        K; needed with fixman only.
    seed : int, optional
        For `set_velocities_to_temperature`; the motion itself uses no random numbers.
    hydrogen_mass : float or Quantity, optional
        Repartition masses so that hydrogens (not those of water) have this mass, Da.
    metric : {"physical", "auto"} or (n_coordinates,) array, optional
        Joint inertias: none; those with which the time step can be made, from the System (see `joint_inertia`); or
        given ones, Da nm^2 (Da for bond lengths). Default those of the tree, which has none unless they were set. With
        U_F they do not change what is sampled; rates are then not physical.
    """

    def __init__(
        self,
        tree: TreeModel,
        timestep: Any,
        *,
        fixman: bool = False,
        temperature: Any = 300.0,
        seed: int | None = None,
        hydrogen_mass: Any = None,
        metric: Any = None,
    ):
        super().__init__(tree, timestep, fixman, check_temperature(temperature), seed, hydrogen_mass, metric)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "temperature": self._kT / BOLTZMANN}

    def _make_stepper(self) -> Stepper:
        return Stepper(self.mover, self._forces, self.getStepSize()._value, "BAB")


class _ThermalIntegrator(TorsionIntegrator):
    """Temperature and friction, settable while running. A MonteCarloBarostat of the System is honoured."""

    takes_barostat = True

    def __init__(
        self,
        tree: TreeModel,
        temperature: Any,
        friction: Any,
        timestep: Any,
        *,
        fixman: bool = True,
        seed: int | None = None,
        hydrogen_mass: Any = None,
        metric: Any = None,
    ):
        self._temperature = check_temperature(temperature)
        self._friction = _check_friction(friction)
        super().__init__(tree, timestep, fixman, self._temperature, seed, hydrogen_mass, metric)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "temperature": self._temperature, "friction": self._friction}

    def getTemperature(self) -> Any:
        """Return the temperature of the heat bath."""
        return self._temperature * unit.kelvin

    def setTemperature(self, temperature: Any) -> None:
        """Set the temperature of the heat bath, K; U_F follows it."""
        self._temperature = check_temperature(temperature)
        self._kT = BOLTZMANN * self._temperature
        self._stepper.kT = self._kT
        self._stepper.forget()

    @property
    def settings(self) -> dict[str, Any]:
        """What a continued run must share with this one; temperature in K, friction in 1/ps."""
        return {**super().settings, "temperature": self._temperature, "friction": self._friction}

    def getFriction(self) -> Any:
        """Return the friction coefficient."""
        return self._friction / unit.picosecond

    def setFriction(self, friction: Any) -> None:
        """Set the friction coefficient, 1/ps."""
        self._friction = _check_friction(friction)
        self._stepper.friction = self._friction


class TorsionLangevinIntegrator(_ThermalIntegrator):
    """Langevin dynamics in torsion space: BAOAB, with the Fixman torque unless switched off.

    Parameters
    ----------
    tree : TreeModel
    temperature : float or Quantity
        K.
    friction : float or Quantity
        1/ps.
    timestep : float or Quantity
        ps.
    fixman : bool
        Add U_F, so that configurations are sampled with exp(-V/kT) and not with sqrt(det M) exp(-V/kT).
    seed : int, optional
    hydrogen_mass : float or Quantity, optional
        Repartition masses so that hydrogens (not those of water) have this mass, Da. With U_F it does not change
        what is sampled.
    metric : {"physical", "auto"} or (n_coordinates,) array, optional
        Joint inertias: none; those with which the time step can be made, from the System (see `joint_inertia`); or
        given ones, Da nm^2 (Da for bond lengths). Default those of the tree, which has none unless they were set. With
        U_F they do not change what is sampled; rates are then not physical.
    """

    def _make_stepper(self) -> Stepper:
        h = self.getStepSize()._value
        return Stepper(
            self.mover, self._forces, h, "BAOAB", self._kT, self._friction, self.rng, tolerance=THERMAL_TOLERANCE
        )


class TorsionGHMCIntegrator(_ThermalIntegrator):
    """Generalised hybrid Monte Carlo in torsion space: exact sampling at any step size.

    Parameters are those of `TorsionLangevinIntegrator`, and

    check_reverse : bool
        Verify that every drift leads back to its start, and reject it if not.
    """

    @property
    def steps_per_period(self) -> float:
        """Time steps per period of the stiffest motion, for ``metric="auto"``: with these, 0.9 are accepted."""
        return metropolis_steps(self.tree)

    def __init__(
        self,
        tree: TreeModel,
        temperature: Any,
        friction: Any,
        timestep: Any,
        *,
        fixman: bool = True,
        seed: int | None = None,
        hydrogen_mass: Any = None,
        metric: Any = None,
        check_reverse: bool = True,
    ):
        self._check_reverse = check_reverse
        options: dict[str, Any] = {"fixman": fixman, "seed": seed, "hydrogen_mass": hydrogen_mass, "metric": metric}
        super().__init__(tree, temperature, friction, timestep, **options)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "check_reverse": self._check_reverse}

    def _make_stepper(self) -> MetropolisStepper:
        h = self.getStepSize()._value
        return MetropolisStepper(
            self.mover, self._forces, h, self._kT, self._friction, self.rng, check_reverse=self._check_reverse
        )

    def _before_step(self) -> None:
        self._before = self.mover.save(), self.counters, self.rng.bit_generator.state

    def _go_back(self, rng_state: Any) -> None:
        saved, self.counters, self.rng.bit_generator.state = self._before
        self.mover.restore(saved)
        self._stepper.forget()

    @property
    def acceptance(self) -> float:
        """Acceptance rate of all proposals so far; nan before the first."""
        assert isinstance(self._stepper, MetropolisStepper)
        return self._stepper.acceptance

    @property
    def counters(self) -> dict[str, int]:
        """Proposals made, those accepted, and drifts that Anderson's method solved."""
        assert isinstance(self._stepper, MetropolisStepper)
        own = {"proposed": self._stepper.proposed, "accepted": self._stepper.accepted}
        return {**own, "fallbacks": self.mover.fallbacks}

    @counters.setter
    def counters(self, values: dict[str, int]) -> None:
        assert isinstance(self._stepper, MetropolisStepper)
        self._stepper.proposed, self._stepper.accepted = values["proposed"], values["accepted"]
        self.mover.fallbacks = values.get("fallbacks", 0)


def _check_friction(friction: Any) -> float:
    value = float(plain(friction))
    if not (math.isfinite(value) and value >= 0):
        raise ArgumentError(f"the friction is {value:g} 1/ps, expected a number that is not negative")
    return value
