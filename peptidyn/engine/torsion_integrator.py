"""`TorsionIntegrator`: what the torsion-space integrators for OpenMM share.

It is an openmm.CustomIntegrator whose step() moves a `Mover` and asks the Context for forces. After every step() the
Context has the right positions, velocities, time and step count. Subclasses choose the stepper; they are in
`peptidyn.engine.torsion_integrators`.
"""

from __future__ import annotations

import gc
import math
import weakref
from functools import cached_property
from typing import Any

import numpy as np
import openmm
from openmm import unit

from peptidyn.core.errors import ArgumentError, ModelError, StepError
from peptidyn.core.units import BOLTZMANN, plain
from peptidyn.engine.barostat import Barostat, find_barostat
from peptidyn.engine.context_vectors import read_forces, read_vectors
from peptidyn.engine.failed_steps import explain_failed_step
from peptidyn.engine.force_server import ForceServer, serve
from peptidyn.engine.kinetic_metric import (
    LANGEVIN_STEPS,
    check_metric,
    joint_inertia,
    slow_torsions,
    tree_with_metric,
)
from peptidyn.engine.stock_simulation import NoticesSimulation
from peptidyn.engine.system_check import check_constraints, check_system, check_tree
from peptidyn.integrators.mover import Mover
from peptidyn.integrators.stepper import Stepper
from peptidyn.metric.fixman_potential import check_temperature
from peptidyn.model.hydrogen_mass import with_hydrogen_mass
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import get_solver

CYCLES = 50
"""Steps that compiled code makes at a time; Ctrl-C waits for them."""

_LOST_CLASS = (
    "(none, because this is a torsion integrator of peptidyn without its class, which OpenMM's XML does not hold; save "
    "with TorsionSimulation.save_checkpoint, continue with load_checkpoint, and copy with copy.deepcopy)"
)
"""What OpenMM's own step() names when it is called on what was left of an integrator: the variable it cannot write."""

TOO_HOT = 5.0
"""Times the temperature of the heat bath: hotter velocities are not those of the tree."""


class TorsionIntegrator(NoticesSimulation, openmm.CustomIntegrator):
    """What the torsion integrators share: the Context, the forces, the Fixman torque."""

    takes_barostat = False
    """Whether a MonteCarloBarostat in the System is honoured."""

    @property
    def steps_per_period(self) -> float:
        """Time steps per period of the stiffest motion, for ``metric="auto"``."""
        return LANGEVIN_STEPS

    def __init__(
        self, tree: TreeModel, timestep: Any, fixman: bool, temperature: float, seed: int | None, hydrogen_mass: Any,
        metric: Any,
    ):  # fmt: skip
        check_tree(tree)
        h = float(plain(timestep))
        if not h > 0:
            raise ArgumentError(f"the time step is {h:g} ps, expected a positive time")
        super().__init__(h)
        self.addComputePerDof(_LOST_CLASS, "0")  # fails when it is executed, which step() below never does
        self._system_masses = tree.masses
        tree = with_hydrogen_mass(tree, hydrogen_mass)
        self.metric = check_metric(metric)
        self.tree = tree if metric is None or self.metric == "auto" else tree_with_metric(tree, metric)
        self._metric_step = h if self.metric == "auto" else math.inf
        self._metric_due = self.metric == "auto"
        self.fixman = fixman
        self._kT = BOLTZMANN * temperature
        sequence = np.random.SeedSequence(seed)
        self.rng = np.random.default_rng(sequence)
        self._barostat_seed = sequence.spawn(1)[0]
        self.barostat: Barostat | None = None
        self._mover: Mover | None = None
        self._force = np.zeros((self.tree.n_atoms, 3))
        self._sites = self.tree.virtual_sites
        self._context: Any = None
        self._server: ForceServer | None = None
        self._begun = self._done = 0  # time steps of a call of step()
        self._known: tuple[np.ndarray, np.ndarray] | None = None
        self._surroundings: tuple[Any, ...] = ()
        self.notes: list[str] = []

    # ------------------------------------------------------------------ copies

    def _arguments(self) -> dict[str, Any]:
        """Return what the constructor needs for an integrator like this one."""
        return {"tree": self.tree, "timestep": self.getStepSize()._value, "fixman": self.fixman}

    def __reduce__(self) -> Any:
        same = {name: getattr(self, name) for name in ("_system_masses", "metric", "_metric_step", "_metric_due")}
        chosen = (self.getConstraintTolerance(), self.getIntegrationForceGroups(), self.getRandomNumberSeed())
        return _remake, (type(self), self._arguments(), same, chosen, self.rng.bit_generator.state)

    def __copy__(self) -> TorsionIntegrator:
        """Return an integrator with the same settings, metric and random numbers to come, bound to no Context."""
        remake, arguments = self.__reduce__()
        return remake(*arguments)

    def __deepcopy__(self, memo: Any) -> TorsionIntegrator:
        return self.__copy__()  # trees do not change, so that both may have the same

    @property
    def mover(self) -> Mover:
        """What is moved. It is made when first needed: the reference geometry may change before."""
        if self._mover is None:
            self._mover = Mover(self.tree)
        return self._mover

    @cached_property
    def _stepper(self) -> Stepper:
        return self._make_stepper()

    def _make_stepper(self) -> Stepper:
        raise TypeError("use TorsionVerletIntegrator, TorsionLangevinIntegrator or TorsionGHMCIntegrator")

    # ------------------------------------------------------------------ the OpenMM side

    def _check(self, system: Any) -> None:
        """Raise ModelError if `system` cannot be driven; the constructor of openmm.app.Simulation calls it."""
        self.notes = check_system(self.tree, system, self._system_masses, barostat=self.takes_barostat)

    def bind(self, context: Any) -> None:
        """Take `context`, made with this integrator, as the one to drive; refuse a System that does not fit."""
        self._check(context.getSystem())
        force = find_barostat(context.getSystem())
        self.barostat = None if force is None else Barostat(force, context, self._barostat_seed)
        self._context = weakref.ref(context)
        context.setVelocitiesToTemperature = self.set_velocities_to_temperature  # OpenMM's knows no joint inertias
        self._server = None if self.barostat is not None else serve(self.tree, context)
        self._known = None
        if self._metric_due:
            inertia = joint_inertia(
                self.tree, context.getSystem(), self._metric_step, steps_per_period=self.steps_per_period,
                temperature=self._kT / BOLTZMANN,
            )  # fmt: skip
            self.set_joint_inertia(inertia)
        if self.tree.joint_inertia.any():
            self.notes.append(
                f"{np.count_nonzero(self.tree.joint_inertia)} of {self.tree.n_coordinates} soft coordinates have joint "
                "inertias: configurations are sampled as without, but rates and velocities are not physical"
                + ("" if self.fixman else "; without the Fixman potential the distribution depends on the inertias")
            )
            self.notes += slow_torsions(self.tree)

    def set_joint_inertia(self, inertia: Any) -> None:
        """Take joint inertias (n_coordinates,) for good; the configuration stays, and momenta become zero."""
        self._metric_due = False
        self._take_tree(self.tree.with_joint_inertia(inertia), None if self._mover is None else self.mover.state)

    def _take_tree(self, tree: TreeModel, state: State | None = None) -> None:
        """Go on with `tree`, at `state`; a mover that there is already stays if the tree is the same."""
        self._known = None
        if tree.fingerprint == self.tree.fingerprint:
            return
        self.tree = tree
        if self._mover is not None:
            fallbacks = self._mover.fallbacks
            self._mover = self._stepper.mover = Mover(tree, state)
            self._mover.fallbacks = fallbacks
            self._stepper.forget()

    def set_tree(self, tree: TreeModel) -> None:
        """Go on with `tree`: the present one with another reference geometry. Positions are read again."""
        if tree.coordinates != self.tree.coordinates or not np.array_equal(tree.masses, self.tree.masses):
            raise ModelError("the new tree has other soft coordinates or masses; make a new integrator for it")
        context = self._context() if self._context is not None else None
        if context is not None:
            before, after = (check_constraints(t, context.getSystem()) for t in (self.tree, tree))
            self.notes = [note for note in self.notes if note not in before] + after
        self._take_tree(tree)

    def motion(self) -> tuple[State, np.ndarray]:
        """Return the configuration and the momenta (n_dof,) that the Context is in."""
        self._read(self._find_context())
        return self.mover.state, self.mover.momentum.copy()

    def lend_mover(self) -> Mover:
        """Return the mover, at the configuration of the Context, to be moved from outside; `set_motion` ends that."""
        self._read(self._find_context())
        self._stepper.forget()
        self._known = None
        return self.mover

    def set_motion(self, state: State, momenta: Any = None) -> None:
        """Put a configuration and momenta (n_dof,) into the Context; time and step count stay.

        Without momenta new ones are drawn at the temperature of the heat bath, as time steps have them.
        """
        context, h = self._find_context(), self.getStepSize()._value
        self.mover.set_state(state)
        self._stepper.forget()
        if momenta is None:
            self._stepper.timestep = h
            self._stepper.draw_momenta()
        else:
            self.mover.momentum = self.tree.check_dof_vector("momenta", momenta)
        self._write(context, 0)

    @property
    def settings(self) -> dict[str, Any]:
        """What a continued run must share with this one: kind, step (ps), Fixman potential and its kT (kJ/mol)."""
        return {
            "kind": type(self).__name__,
            "timestep": self.getStepSize()._value,
            "fixman": self.fixman,
            "kT": self._kT if self.fixman else 0.0,
        }

    @property
    def counters(self) -> dict[str, int]:
        """What the integrator counts beside steps: drifts that Anderson's method solved; GHMC also its proposals."""
        return {"fallbacks": self.mover.fallbacks}

    @counters.setter
    def counters(self, values: dict[str, int]) -> None:
        unknown = [name for name in values if name not in self.counters]
        if unknown:
            raise ArgumentError(f"{type(self).__name__} counts no {', '.join(unknown)}")
        self.mover.fallbacks = values.get("fallbacks", 0)

    @property
    def drift_fallbacks(self) -> int:
        """Times that the usual iterations did not solve a drift, and Anderson's method on the same equations did.

        One in many thousand steps is nothing to worry about; more of them mean that the time step is near its limit.
        """
        return self.mover.fallbacks

    @property
    def solver_iterations(self) -> int:
        """Iterations of the last drift, in the molecule that needed most."""
        return int(self.mover.iterations.max(initial=0))

    def _find_context(self) -> Any:
        """Return the Context that holds this integrator; OpenMM keeps that link on the Context only."""
        context = self._context() if self._context is not None else None
        if context is not None:
            return context
        for holder in gc.get_referrers(self):
            owners = gc.get_referrers(holder) if isinstance(holder, dict) else [holder]
            for owner in owners:
                if isinstance(owner, openmm.Context) and getattr(owner, "_integrator", None) is self:
                    self.bind(owner)
                    return owner
        raise ModelError("this integrator is not bound to a Context; create a Context or Simulation with it first")

    def _read(self, context: Any) -> None:
        """Take positions and velocities from the Context if they are not those left there by the last step.

        Forces that were kept from the last step are dropped if they may have changed since: by force groups, by
        parameters of the Context, or by its box.
        """
        if len(self._sites):
            context.computeVirtualSites()
        state = context.getState(positions=True, velocities=True, parameters=True)
        x, v = self._motion_of(state)
        if len(x) > 1 and not x.any():
            raise ModelError(
                "the Context has no positions yet; give them first: context.setPositions(structure.positions)"
            )
        surroundings = (
            self.getIntegrationForceGroups(), dict(state.getParameters()),
            state.getPeriodicBoxVectors(asNumpy=True)._value.tolist(),
        )  # fmt: skip
        if surroundings != self._surroundings:
            self._stepper.forget()
        self._surroundings = surroundings
        if self._known is not None and np.array_equal(x, self._known[0]) and np.array_equal(v, self._known[1]):
            return
        if self._known is None or not np.array_equal(x, self._known[0]):
            self.mover.set_state(self._state_of(x))
        self.mover.momentum = self._momenta(v)
        self._stepper.forget()
        if self._known is None:
            self._check_velocities()

    def _state_of(self, x: np.ndarray) -> State:
        """Return the state of positions (n_atoms, 3) that were put into the Context from outside."""
        try:
            return self.tree.state(x)
        except ModelError as error:
            what = str(error).split(";")[0]
            raise ModelError(
                f"{what}; minimise with TorsionSimulation.minimizeEnergy(), which keeps rigid units, or take the "
                "positions as the geometry of a TorsionSimulation: use_geometry(positions)"
            ) from error

    def _check_velocities(self) -> None:
        """Refuse velocities that OpenMM drew atom by atom where joint inertias make them far too hot."""
        if not self.tree.joint_inertia.any():
            return
        T = 2.0 * self.mover.kinetic_energy() / (self.tree.n_dof * BOLTZMANN)
        if T > TOO_HOT * self._kT / BOLTZMANN:
            raise ModelError(
                f"with joint inertias the velocities in the Context have a temperature of {T:.0f} K, and the heat bath "
                f"has {self._kT / BOLTZMANN:.0f} K; setVelocitiesToTemperature of OpenMM knows no joint inertias: call "
                "integrator.set_velocities_to_temperature(temperature) instead"
            )

    def _motion_of(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return positions (n_atoms, 3), nm, and velocities, nm/ps, of an OpenMM State."""
        shape = (self.tree.n_atoms, 3)
        return (
            read_vectors(state, openmm.State.Positions, np.empty(shape)),
            read_vectors(state, openmm.State.Velocities, np.empty(shape)),
        )

    def _momenta(self, v: np.ndarray) -> np.ndarray:
        """Return the momenta (n_dof,) of atom velocities (n_atoms, 3): J^T m v, and a dq/dt of joint inertias a."""
        momenta = self.mover.project(self.tree.masses[:, None] * v)
        if self.tree.joint_inertia.any() and momenta.any():
            physical = self.tree.with_joint_inertia(np.zeros(self.tree.n_coordinates))
            rates = get_solver("articulated").solve(physical, self.mover.state, momenta)
            places = self.tree.coordinate_dof
            momenta[places] += self.tree.joint_inertia * rates[places]
        return momenta

    def _write(self, context: Any, steps: int) -> None:
        """Leave positions, velocities, time and step count in the Context."""
        context.setPositions(self.mover.place())
        if len(self._sites):
            context.computeVirtualSites()  # rounding apart they are there; readers compare positions bit by bit
        context.setVelocities(self.mover.atom_velocities())
        if steps:
            context.setTime(context.getTime()._value + steps * self.getStepSize()._value)
            context.setStepCount(context.getStepCount() + steps)
        self._known = self._motion_of(context.getState(positions=True, velocities=True))

    def _forces(self, mover: Mover, want_energy: bool) -> tuple[float, np.ndarray]:
        """Potential energy (with U_F) and generalised forces at the mover's configuration."""
        context = self._context()
        context.setPositions(mover.place())
        state = context.getState(forces=True, energy=want_energy, groups=self.getIntegrationForceGroups())
        torque = mover.load_forces(read_forces(state, self._force, self._sites), self._kT if self.fixman else 0.0)
        if not want_energy:
            if not math.isfinite(self._force.sum()):
                raise StepError("the forces are not finite numbers")
            return math.nan, torque
        energy = state.getPotentialEnergy()._value  # what tells GHMC that forces are not finite
        return energy + (self._kT * mover.fixman_energy() if self.fixman else 0.0), torque

    def step(self, steps: int) -> None:
        """Advance the simulation by `steps` time steps.

        Whatever interrupts it, the Context is left after the last step that was finished, and counts that one.
        """
        context = self._find_context()
        self._stepper.timestep = self.getStepSize()._value
        if self._stepper.timestep > self._metric_step * (1.0 + 1e-12):
            raise ArgumentError(
                f"the kinetic metric was chosen for steps of {1e3 * self._metric_step:g} fs and stays as it is; make a "
                f"new integrator for steps of {1e3 * self._stepper.timestep:g} fs"
            )
        self._read(context)
        self._begun = self._done = 0
        rng_state = self.rng.bit_generator.state
        try:
            while self._done < steps:
                self._before_step()
                self._begun = self._done + 1
                if not self._stepper.step():
                    raise StepError("a drift did not converge")
                self._done = self._begun
                if self._server is not None and self._stepper.repeats:
                    self._run_cycles(self._server, steps)
                if self.barostat is not None and self.barostat.count():
                    self._change_volume(self.barostat, context)
        except BaseException as error:
            if self._begun > self._done:
                self._go_back(rng_state)
            if isinstance(error, StepError):
                raise self._step_error(context) from None
            raise
        finally:
            self._write(context, self._done)  # also after none: forces were asked for at trial positions

    def _change_volume(self, barostat: Barostat, context: Any) -> None:
        """Let the barostat make a move; forces of another volume are not kept."""
        if barostat.move(self.mover, context, self.getIntegrationForceGroups()):
            self._stepper.forget()

    def _run_cycles(self, server: ForceServer, steps: int) -> None:
        """Make the rest of `steps` time steps in compiled code, after one that Python has made."""
        server.set_groups(self.getIntegrationForceGroups())
        while self._done < steps:
            before, wanted = self._done, min(self._done + CYCLES, steps)
            self.mover.cycles[:] = 0  # counted while they are made: an interrupt may come at any time
            self._begun = wanted
            try:
                made = self._stepper.run_cycles(wanted - before, server.calls)
            except BaseException:
                self._done = before - 1 + int(self.mover.cycles[0])  # the end of the step before the last mark
                self.mover.forget_moves()
                raise
            self._fallbacks_before = self.mover.fallbacks
            self._done = before + made
            if made < wanted - before:
                self._force[:] = self.mover.forces
                raise StepError("a drift did not converge, or forces are not finite")

    def _before_step(self) -> None:
        """Keep what `_go_back` needs beside the mark that a step makes."""
        self._fallbacks_before = self.mover.fallbacks

    def _go_back(self, rng_state: Any) -> None:
        """Undo an unfinished step, its random numbers included; `rng_state` is that before the first one."""
        self.mover.flush()  # the mark itself may be waiting
        self.mover.undo()
        self.mover.fallbacks = self._fallbacks_before
        self._stepper.forget()
        self.rng.bit_generator.state = rng_state
        draws = sum(letter == "O" for letter, _ in self._stepper.moves)
        for _ in range(self._done * draws):
            self.rng.standard_normal(self.tree.n_dof)

    def _step_error(self, context: Any) -> StepError:
        h = self.getStepSize()._value
        step, time = context.getStepCount() + self._done, context.getTime()._value + self._done * h
        what = explain_failed_step(self.mover, self._force, h)
        return StepError(f"step {step} at {time:.4f} ps could not be made; {what}")

    def computeSystemTemperature(self) -> Any:
        """Return the kinetic temperature over the torsional degrees of freedom and the base's."""
        self._read(self._find_context())
        return 2.0 * self.mover.kinetic_energy() / (self.tree.n_dof * BOLTZMANN) * unit.kelvin

    def set_velocities_to_temperature(self, temperature: Any, randomSeed: int | None = None) -> None:
        """Draw new momenta at a temperature (K) and put the velocities into the Context.

        With `randomSeed` they are drawn from a generator of their own, as in OpenMM.
        """
        context = self._find_context()
        self._read(context)
        rng = self.rng if randomSeed is None else np.random.default_rng(randomSeed)
        self.mover.thermalise(0.0, BOLTZMANN * check_temperature(temperature), rng)
        self._write(context, 0)

    def potential_energy(self) -> float:
        """Return the potential energy that the dynamics uses, U_F included when it is on, kJ/mol."""
        self._read(self._find_context())
        return self._stepper.potential_energy()

    def fixman_energy(self) -> float:
        """Return the part of `potential_energy` that is U_F, kJ/mol; 0 when it is off."""
        self._read(self._find_context())
        return self._kT * self.mover.fixman_energy() if self.fixman else 0.0

    def kinetic_energy(self) -> float:
        """Return the kinetic energy, with repartitioned masses if there are any, kJ/mol."""
        self._read(self._find_context())
        return self.mover.kinetic_energy()

    def total_energy(self) -> float:
        """Return kinetic plus potential energy (with U_F when it is on), kJ/mol: what NVE conserves."""
        return self.potential_energy() + self.mover.kinetic_energy()


def _remake(
    kind: type[TorsionIntegrator], arguments: dict[str, Any], same: dict[str, Any], chosen: tuple[float, int, int],
    rng_state: Any,
) -> TorsionIntegrator:  # fmt: skip
    """Return the copy of an integrator; see `TorsionIntegrator.__reduce__`."""
    integrator = kind(**arguments)
    for name, value in same.items():
        setattr(integrator, name, value)
    integrator.setConstraintTolerance(chosen[0])
    integrator.setIntegrationForceGroups(chosen[1])
    integrator.setRandomNumberSeed(chosen[2])
    integrator.rng.bit_generator.state = rng_state
    return integrator
