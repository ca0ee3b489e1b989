"""Monte Carlo moves. All but `TorsionalLangevin` leave their distribution invariant exactly, whatever their step.

What the moves sample. Turning the part of a molecule behind a bond about that bond keeps volumes of Cartesian space:
the axis is fixed by the two atoms of the bond, and the rest turns rigidly. A torsion therefore has a flat measure, at
any fixed values of all other internal coordinates. Bending an angle t by a rigid rotation has the measure sin t. So

- `TorsionMove` and `PivotMove` turn torsions directly and accept with min(1, exp(-dV/kT)). No momentum is drawn and no
  mass enters, so U_F does not either.
- `TorsionalHMC` draws momenta, whose distribution has the factor sqrt(det M). U_F = (kT/2) ln(det M / J^2) in its
  Hamiltonian, with J the product of sin t over soft angles, takes that factor out again and leaves the same
  distribution J exp(-V/kT).
- `TorsionalLangevin` moves as `TorsionalHMC` does, without a Metropolis test: it is quicker and samples the same
  distribution with a time-step error.
- `CartesianHMC` moves atoms and samples exp(-V/kT) of the flexible System.

All but the last keep hard bond lengths and angles, and alone sample the rigid model. Mixed with Cartesian moves they
sample the torsions given the present geometry, which leaves the distribution of the flexible System as it is.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import openmm

from peptidyn.core.errors import ArgumentError, ModelError, SolverError
from peptidyn.core.units import plain
from peptidyn.engine.kinetic_metric import LANGEVIN_STEPS
from peptidyn.integrators.stepper import THERMAL_TOLERANCE, MetropolisStepper, Stepper
from peptidyn.io.virtual_sites import virtual_sites
from peptidyn.model.tree import TreeModel
from peptidyn.sampling.tuning import StepTuner
from peptidyn.sampling.walker import Walker

BACKBONE = ("phi", "psi")
"""Torsions that `PivotMove` turns."""


class Move(ABC):
    """A transition that leaves its distribution invariant, with a step size that can be tuned.

    Attributes
    ----------
    step : float
        Size of the move: the time step in ps, or the largest turn in rad.
    target : float
        Acceptance rate that tuning aims at.
    proposed, accepted : int
        Counted since the last `reset`.
    seconds : float
        Time spent in the move.
    force_calls : int
        Evaluations of energy or forces.
    tuner : StepTuner or None
        While a warm-up runs.
    """

    unit: ClassVar[str]
    largest: ClassVar[float] = math.inf
    """Steps larger than this mean nothing more."""

    cartesian: ClassVar[bool] = False
    """Whether bond lengths and angles change."""

    metropolised: ClassVar[bool] = True
    """Whether a Metropolis test keeps the distribution exact, and gives an acceptance rate to tune the step by."""

    recorded: ClassVar[tuple[str, ...]] = ()
    """Attributes that `settings` holds beside the step."""

    def __init__(self, step: float, target: float):
        if not (math.isfinite(step) and step > 0):
            raise ArgumentError(f"the step of {type(self).__name__} is {step:g}, expected a positive number")
        if not 0.0 < target < 1.0:
            raise ArgumentError(f"the target acceptance is {target:g}, expected a number between 0 and 1")
        self.step = step
        self.target = target
        self.tuner: StepTuner | None = None
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero."""
        self.proposed = self.accepted = self.force_calls = 0
        self.seconds = 0.0

    @property
    def acceptance(self) -> float:
        """Acceptance rate of the proposals; nan before the first."""
        return self.accepted / self.proposed if self.proposed else math.nan

    def apply(self, walker: Walker) -> bool:
        """Propose once; return whether the proposal was accepted. The walker is then in its next state either way."""
        begin, calls = time.perf_counter(), walker.force_calls
        accepted = self._propose(walker)
        self.proposed += 1
        self.accepted += accepted
        self.seconds += time.perf_counter() - begin
        self.force_calls += walker.force_calls - calls
        if self.tuner is not None:
            self.step = self.tuner.update(accepted)
        return accepted

    @abstractmethod
    def _propose(self, walker: Walker) -> bool: ...

    def step_at(self, temperature: float) -> float:
        """Return the step to begin with at a temperature, K."""
        return self.step

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to another process: settings and counters, nothing that belongs to a walker."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._unbind()

    def _unbind(self) -> None:
        """Forget the walker that was moved last."""
        return

    @property
    def settings(self) -> dict[str, Any]:
        """What the move does, as plain values; its step is part of it."""
        values = {"move": type(self).__name__, "step": self.step, **{n: getattr(self, n) for n in self.recorded}}
        return {name: None if value == math.inf else value for name, value in values.items()}


def metropolis(change: float, uniform: float) -> bool:
    """Return whether a proposal is accepted that changes the reduced energy by `change`; never if it is not finite."""
    return math.isfinite(change) and uniform < math.exp(-max(0.0, change))


class TrajectoryMove(Move):
    """What hybrid Monte Carlo moves share: trajectories of a random number of time steps.

    Parameters
    ----------
    timestep : float or Quantity
        ps.
    steps : int
        Time steps of a trajectory.
    jitter : float
        The number of steps is drawn evenly from (1 - jitter) to (1 + jitter) times `steps`, so that no motion has the
        period of the trajectories. 0 keeps it.
    target : float
        Acceptance rate to tune the time step for.
    """

    unit = "ps"
    recorded: ClassVar[tuple[str, ...]] = ("steps", "jitter")

    def __init__(self, timestep: Any, steps: int, jitter: float, target: float):
        super().__init__(float(plain(timestep)), target)
        if steps < 1:
            raise ArgumentError(f"a trajectory has {steps} steps, expected 1 or more")
        if not 0.0 <= jitter < 1.0:
            raise ArgumentError(f"jitter is {jitter:g}, expected a number from 0 to below 1")
        self.steps, self.jitter = int(steps), float(jitter)

    def _draw_steps(self, rng: np.random.Generator) -> int:
        low, high = max(1, round((1.0 - self.jitter) * self.steps)), round((1.0 + self.jitter) * self.steps)
        return int(rng.integers(low, high + 1)) if high > low else self.steps


class TorsionalTrajectory(TrajectoryMove):
    """What trajectories in soft coordinates share: momenta that are kept in part, and a stepper bound to the walker."""

    recorded: ClassVar[tuple[str, ...]] = ("steps", "friction", "jitter")

    steps_per_period: ClassVar[float | None] = None
    """Time steps per period of the stiffest motion, for ``metric="auto"``; None: those of Metropolised dynamics."""

    def __init__(self, timestep: Any, steps: int, friction: Any, jitter: float, target: float):
        super().__init__(timestep, steps, jitter, target)
        self.friction = math.inf if friction is None else float(plain(friction))
        if not self.friction >= 0:
            raise ArgumentError(f"the friction is {self.friction:g} 1/ps, expected a number that is not negative")
        self._unbind()

    def _unbind(self) -> None:
        self._stepper: Stepper | None = None
        self._walker: Walker | None = None
        self._version = -1

    def _propose(self, walker: Walker) -> bool:
        stepper = self._bind(walker)
        stepper.timestep, stepper.kT = self.step, walker.kT
        if not walker.momenta_valid:
            stepper.draw_momenta()
            walker.momenta_valid = True
        moved = self._run(walker, stepper)
        self._version = walker.version
        return moved

    @abstractmethod
    def _run(self, walker: Walker, stepper: Any) -> bool:
        """Make one trajectory; return whether the walker has moved."""

    @abstractmethod
    def _make_stepper(self, walker: Walker) -> Stepper: ...

    def _bind(self, walker: Walker) -> Stepper:
        """Return the stepper of this walker; it keeps its forces while nobody else moves the walker."""
        mover = walker.mover
        if self._stepper is None or self._walker is not walker:
            self._stepper = self._make_stepper(walker)
            self._walker = walker
        elif self._version != walker.version:
            self._stepper.mover = mover
            self._stepper.forget()
        return self._stepper


class TorsionalHMC(TorsionalTrajectory):
    """Hybrid Monte Carlo in soft coordinates: BAB trajectories under V + U_F, accepted at the full Hamiltonian.

    Its kinetic energy has the joint inertias of the walker, with which larger steps are accepted; see `Walker`.

    Parameters
    ----------
    timestep, steps, jitter, target
        As for `TrajectoryMove`.
    friction : float or Quantity, optional
        1/ps. Momenta are kept in part from one trajectory to the next: exp(-friction duration). Without it every
        trajectory starts with new momenta.
    """

    def __init__(
        self,
        timestep: Any = 0.004,
        steps: int = 20,
        *,
        friction: Any = None,
        jitter: float = 0.2,
        target: float = 0.85,
    ):
        super().__init__(timestep, steps, friction, jitter, target)

    def _make_stepper(self, walker: Walker) -> MetropolisStepper:
        return MetropolisStepper(walker.mover, walker.torsional_forces, self.step, walker.kT, self.friction, walker.rng)

    def _run(self, walker: Walker, stepper: MetropolisStepper) -> bool:
        stepper.steps = self._draw_steps(walker.rng)
        before = stepper.accepted
        stepper.step()
        accepted = stepper.accepted > before
        if accepted:
            walker.changed(walker.last_potential)
        return accepted


class TorsionalLangevin(TorsionalTrajectory):
    """Langevin dynamics in soft coordinates: BAOAB under V + U_F, without a Metropolis test.

    It samples what `TorsionalHMC` samples with a time-step error, which is that of `TorsionLangevinIntegrator` with the
    same step and metric, and explores faster: nothing turns momenta around. `ReplicaExchange` takes it; `GibbsSampler`,
    which promises exact sampling, does not. A trajectory with a step that cannot be made is dropped, and goes on from
    its start with new momenta; it counts as not accepted.

    Parameters
    ----------
    timestep : float or Quantity
        ps, up to 300 K. At higher temperatures `ReplicaExchange` makes it shorter by sqrt(300 K / T), so that atoms
        move as far per step.
    steps : int
        Time steps of a trajectory.
    friction : float or Quantity
        1/ps.
    """

    metropolised = False
    recorded = ("steps", "friction")
    steps_per_period = LANGEVIN_STEPS

    def __init__(self, timestep: Any = 0.016, steps: int = 50, *, friction: Any = 1.0):
        super().__init__(timestep, steps, friction, 0.0, 0.99)

    def step_at(self, temperature: float) -> float:
        """Return the time step at a temperature (K), ps."""
        return self.step * min(1.0, math.sqrt(300.0 / temperature))

    def _make_stepper(self, walker: Walker) -> Stepper:
        return Stepper(
            walker.mover, walker.torsional_forces, self.step, "BAOAB", walker.kT, self.friction, walker.rng,
            tolerance=THERMAL_TOLERANCE,
        )  # fmt: skip

    def _run(self, walker: Walker, stepper: Stepper) -> bool:
        mover = walker.mover
        saved = mover.save()
        with suppress(openmm.OpenMMException, SolverError):  # what numbers that are not finite lead to
            if self._make_steps(walker, stepper) and np.isfinite(mover.momentum).all():
                walker.changed()
                return True
        mover.restore(saved)
        stepper.forget()
        stepper.draw_momenta()
        return False

    def _make_steps(self, walker: Walker, stepper: Stepper) -> bool:
        """Make the steps of a trajectory, in compiled code where that can ask for forces; return whether all were."""
        if walker.server is None:
            return all(stepper.step() for _ in range(self.steps))
        left = self.steps - 1
        walker.force_calls += left
        return stepper.step() and stepper.run_cycles(left, walker.server.calls) == left


class CartesianHMC(TrajectoryMove):
    """Hybrid Monte Carlo of all atoms: velocity Verlet in the Context, accepted at the full Hamiltonian.

    Bond lengths, angles and rings change, so the time step is that of flexible molecular dynamics, about 1 fs. Energies
    are added up in double precision.

    Parameters
    ----------
    timestep, steps, jitter, target
        As for `TrajectoryMove`.
    """

    cartesian = True

    def __init__(self, timestep: Any = 0.001, steps: int = 20, *, jitter: float = 0.2, target: float = 0.85):
        super().__init__(timestep, steps, jitter, target)

    def _propose(self, walker: Walker) -> bool:
        context, masses = walker.context, walker.masses[:, None]
        x = walker.positions()
        before = walker.energy()
        v = np.sqrt(walker.kT / masses) * walker.rng.standard_normal(x.shape)
        steps = self._draw_steps(walker.rng)
        uniform = walker.rng.random()
        before += 0.5 * float((masses * v * v).sum())
        context.setPositions(x)
        context.setVelocities(v)
        integrator = context.getIntegrator()
        integrator.setStepSize(self.step)
        walker.force_calls += steps + 2  # one at the start, and one for the energy at the end
        try:
            integrator.step(steps)
            state = context.getState(positions=True, velocities=True, energy=True)
        except openmm.OpenMMException:
            return False  # the trajectory left the range of numbers: a proposal of zero probability
        energy = state.getPotentialEnergy()._value
        v = np.asarray(state.getVelocities(asNumpy=True)._value, dtype=np.float64)
        change = energy + 0.5 * float((masses * v * v).sum()) - before
        if not metropolis(change / walker.kT, uniform):
            return False
        walker.set_positions(state.getPositions(asNumpy=True)._value, energy)
        return True


class TorsionMove(Move):
    """Turn one soft torsion, or several at once, by random angles.

    Parameters
    ----------
    kinds : sequence of str, optional
        Torsions to choose from, e.g. ``["phi", "psi"]``; all if not given.
    turn : float
        Largest turn, degrees; turns are drawn evenly between its negative and itself.
    count : int
        How many torsions turn at once.
    tries : int
        Proposals in a row, each with its own Metropolis test and one energy call.
    target : float
        Acceptance to tune the turn for.
    """

    unit = "rad"
    largest = math.pi
    recorded = ("kinds", "count", "tries")

    def __init__(
        self,
        kinds: Sequence[str] | None = None,
        *,
        turn: float = 30.0,
        count: int = 1,
        tries: int = 1,
        target: float = 0.4,
    ):
        super().__init__(float(np.deg2rad(turn)), target)
        self.kinds = None if kinds is None else tuple([kinds] if isinstance(kinds, str) else kinds)
        if count < 1:
            raise ArgumentError(f"{type(self).__name__} turns {count} torsions at once, expected 1 or more")
        if tries < 1:
            raise ArgumentError(f"{type(self).__name__} has {tries} tries, expected 1 or more")
        self.count, self.tries = count, tries
        self._unbind()

    def apply(self, walker: Walker) -> bool:
        """Propose `tries` times; return whether a proposal was accepted."""
        accepted = False
        for _ in range(self.tries):
            accepted |= super().apply(walker)
        return accepted

    def _unbind(self) -> None:
        self._places: np.ndarray | None = None
        self._walker: Walker | None = None

    def _propose(self, walker: Walker) -> bool:
        places, mover, rng = self._choices(walker), walker.mover, walker.rng
        count = min(self.count, len(places))
        chosen = places[rng.integers(len(places))] if count == 1 else rng.choice(places, count, replace=False)
        turns = rng.uniform(-self.step, self.step, count)
        uniform = rng.random()
        before = walker.energy()
        saved = mover.save()
        q = mover.q.copy()
        q[chosen] += turns if count > 1 else turns[0]
        mover.restore((q, *saved[1:]))
        energy = walker.energy_at(mover.positions())
        if metropolis((energy - before) / walker.kT, uniform):
            walker.momenta_valid = False  # momenta that were kept belong to the mass matrix before
            walker.changed(energy)
            return True
        mover.restore(saved)
        return False

    def _choices(self, walker: Walker) -> np.ndarray:
        if self._places is None or self._walker is not walker:
            tree = walker.tree
            there = sorted({c.kind for c in tree.torsions})
            for kind in self.kinds or ():
                if kind not in there:
                    raise ArgumentError(
                        f"{type(self).__name__} shall turn {kind!r} and the tree has no such soft torsion; it has "
                        f"{', '.join(there) or 'none'}"
                    )
            self._places = self.places(tree)
            if not len(self._places):
                raise ArgumentError(f"{type(self).__name__} finds no soft torsion in the tree; give build_tree some")
            self._walker = walker
        return self._places

    def places(self, tree: TreeModel) -> np.ndarray:
        """Return the coordinates (n,) of a tree that may be turned."""
        found = [i for i in tree.torsion_index.tolist() if not self.kinds or tree.coordinates[i].kind in self.kinds]
        return np.array(found, dtype=np.int64)


class PivotMove(TorsionMove):
    """Turn the whole chain behind one backbone bond (phi or psi) by any angle: from basin to basin in one energy call.

    In turn with `TorsionalHMC` of a tree in which everything is soft, which lets bonds and angles follow, it samples
    small peptides in implicit solvent many times faster than dynamics alone. In a folded protein, or among water
    molecules, hardly any such turn is accepted.

    Parameters
    ----------
    turn : float
        Largest turn, degrees.
    tries : int
        Proposals in a row, each with its own Metropolis test and one energy call; about as many as the trajectory
        before has steps is a good choice.
    target : float
        Acceptance to tune the turn for; low, since a large turn is the point of the move.
    """

    def __init__(self, *, turn: float = 180.0, tries: int = 1, target: float = 0.1):
        super().__init__(BACKBONE, turn=turn, tries=tries, target=target)

    def places(self, tree: TreeModel) -> np.ndarray:
        """Return the phi and psi (n,) that can turn far; those in rings would tear the bond that closes them."""
        return np.setdiff1d(super().places(tree), list(_loop_coordinates(tree)))


def _loop_coordinates(tree: TreeModel) -> set[int]:
    """Return the coordinates that change the length of a bond which was left out of the tree."""
    parent, coordinate = tree.parent.tolist(), tree.coordinate.tolist()

    def above(atom: int) -> set[int]:
        found, link = set(), int(tree.atom_link[atom])
        while link >= 0:
            found.add(coordinate[link])
            link = parent[link]
        return found

    return set().union(*(above(i) ^ above(j) for i, j in tree.cut_bonds.tolist()))


def metric_timestep(moves: Sequence[Move]) -> tuple[float | None, float | None]:
    """Return the time step (ps) for which a metric is chosen, and its steps per period of the stiffest motion.

    It is the longest of all trajectories in soft coordinates, None if there are none. The second is None where the
    metric is to suit Metropolised dynamics.
    """
    trajectories = [move for move in moves if isinstance(move, TorsionalTrajectory)]
    periods = [move.steps_per_period for move in trajectories]
    step = max((move.step for move in trajectories), default=None)
    return step, None if None in periods or not periods else max(p for p in periods if p is not None)


def check_moves(moves: Sequence[Any], system: Any, *, exact: bool = True) -> list[Move]:
    """Return the moves as a list; refuse, with the reason, what is not a move or cannot move `system`.

    For `exact` sampling moves without a Metropolis test are refused, too.
    """
    if not moves:
        raise ArgumentError("no moves were given; start with [TorsionalHMC(), CartesianHMC()]")
    for move in moves:
        name = move.__name__ if isinstance(move, type) else type(move).__name__
        if isinstance(move, Move) and (move.metropolised or not exact):
            continue
        if isinstance(move, type) and issubclass(move, Move):
            raise ArgumentError(f"{name} is a class; give an instance of it: {name}()")
        if isinstance(move, Move) or "Langevin" in name or "Integrator" in name:
            raise ArgumentError(
                f"{name} has no Metropolis step: its time step biases energies by per cents, and mixed with exact "
                "moves nothing would correct that; use CartesianHMC or TorsionalHMC"
            )
        raise ArgumentError(f"{name} is not a move; expected TorsionalHMC, CartesianHMC, TorsionMove or PivotMove")
    if len({id(move) for move in moves}) < len(moves):
        raise ArgumentError("the same move object stands twice among the moves; make one object for each")
    if any(move.cartesian for move in moves) and (system.getNumConstraints() or virtual_sites(system)):
        raise ModelError(
            "CartesianHMC moves every atom, and the System has constraints or virtual sites; create it with "
            "constraints=None and rigidWater=False, and without four-site water"
        )
    return list(moves)
