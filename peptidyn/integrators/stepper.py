"""Steps composed of moves: symmetric splittings, and Metropolised ones (GHMC).

A `Stepper` needs a `Mover` and a function that returns the potential energy and the generalised forces at the mover's
present configuration. Forces are evaluated once per configuration and reused by the kick of the next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.integrators.mover import DRIFT_TOLERANCE, Mover
from peptidyn.integrators.splitting import parse_splitting

Forces = Callable[[Mover, bool], tuple[float, np.ndarray]]
"""(mover, want_energy) -> (energy in kJ/mol or nan, generalised forces (n_dof,))"""

THERMAL_TOLERANCE = 1e-6
"""Drifts between random kicks are solved to this (nm or rad). The energy that this adds or takes is five orders of
magnitude below what a heat bath exchanges (`benchmarks/drift_tolerance.py`)."""

REVERSE_TOLERANCE = 1e-8
"""A drift that does not lead back to its start within this (nm or rad) is not reversible, and is rejected."""


class Stepper:
    """A symmetric splitting of the dynamics.

    Parameters
    ----------
    mover : Mover
    forces : callable
        See `Forces`.
    timestep : float
        ps.
    splitting : str
        ``BAB`` or any other symmetric word; ``BAOAB`` with a thermostat.
    kT : float
        kJ/mol, for O.
    friction : float
        1/ps, for O.
    rng : numpy Generator, for O
    tolerance : float
        To which drifts are solved (nm or rad).

    Attributes
    ----------
    repeats : bool
        Whether a step asks for forces once, before its last kick, so that `run_cycles` can make it.
    """

    def __init__(
        self,
        mover: Mover,
        forces: Forces,
        timestep: float,
        splitting: str = "BAB",
        kT: float = 0.0,
        friction: float = 0.0,
        rng: np.random.Generator | None = None,
        tolerance: float = DRIFT_TOLERANCE,
    ):
        self.moves = parse_splitting(splitting)
        letters = "".join(letter for letter, _ in self.moves)
        self.repeats = letters.strip("B") == letters[1:-1] and letters.count("B") == 2 and letters.count("O") <= 1
        if any(letter == "O" for letter, _ in self.moves) and (rng is None or not kT > 0):
            raise ArgumentError(f"the splitting {splitting!r} needs kT > 0 and a random generator for its thermostat")
        self.mover = mover
        self.forces = forces
        self.timestep = timestep
        self.kT = kT
        self.friction = friction
        self.rng = rng
        self.tolerance = tolerance
        self.forget()

    def forget(self) -> None:
        """Drop the stored forces: the mover was moved from outside."""
        self._torque: np.ndarray | None = None
        self._energy = math.nan

    def _evaluate(self, want_energy: bool = False) -> np.ndarray:
        if self._torque is None or (want_energy and math.isnan(self._energy)):
            self._energy, self._torque = self.forces(self.mover, want_energy)
        return self._torque

    def potential_energy(self) -> float:
        """Return the energy of the present configuration, kJ/mol."""
        self._evaluate(want_energy=True)
        return self._energy

    def step(self) -> bool:
        """Make one time step. Return False, with everything as before, if a drift did not converge."""
        self.mover.mark()
        drifting = False
        for letter, fraction in self.moves:
            h = fraction * self.timestep
            if letter == "B":
                if drifting and not self.mover.flush():
                    return self._fail()
                drifting = False
                self.mover.kick(self._evaluate(), h)
            elif letter == "O":
                self._thermalise(h)
            else:
                self.mover.note_drift(h, self.tolerance)
                self.forget()
                drifting = True
        return not drifting or self.mover.flush() or self._fail()

    def run_cycles(self, count: int, server: np.ndarray) -> int:
        """Make `count` time steps with forces of a server, after one by `step`; return how many were made.

        The steps are those that `step` makes, random numbers included. After a failure, `undo` of the mover goes back
        to the end of the last step that was made.
        """
        assert self.repeats and self._torque is not None
        begin = self.mover.pending()
        self.mover.mark()
        draws = 0
        for letter, fraction in self.moves[:-1]:
            h = fraction * self.timestep
            if letter == "B":
                self.mover.kick(self._torque, h)
            elif letter == "O":
                self.mover.note_thermalise(math.exp(-self.friction * h), self.kT)
                draws = self.mover.tree.n_dof
            else:
                self.mover.note_drift(h, self.tolerance)
        noise = np.empty((count, 0)) if not draws else self.rng.standard_normal((count, draws))  # type: ignore[union-attr]
        self._energy = math.nan
        return self.mover.run_cycles(begin, noise, server)

    def draw_momenta(self) -> None:
        """Draw new momenta, as the ends of steps have them when positions are in equilibrium.

        BAOAB samples positions well at large steps because momenta are a little too cold: those of an oscillator of
        frequency w have the variance kT M (1 - (h w)^2 / 4) at the ends of steps. Momenta with the variance kT M would
        heat stiff motions up until friction has taken the excess away. With r ~ N(0, kT M) and the torques tau at the
        start, and after a drift of h/2 from there,

            p = r + h/4 (tau(h/2) - tau(0))

        has that variance up to (h w)^4 / 64; this takes one more force call. A drift that fails leaves r.
        """
        assert self.rng is not None
        mover = self.mover
        mover.thermalise(0.0, self.kT, self.rng)
        start, before = mover.save(), self._torque_now()
        if mover.drift(0.5 * self.timestep, self.tolerance):
            self.forget()
            change = self._torque_now() - before
            mover.restore(start)
            mover.momentum += 0.25 * self.timestep * change
        self.forget()

    def _torque_now(self) -> np.ndarray:
        """Return the generalised forces (n_dof,) of the present configuration; a copy."""
        torque = self._evaluate()
        self.mover.flush()
        return torque.copy()

    def _fail(self) -> bool:
        self.mover.undo()
        self.forget()
        return False

    def _thermalise(self, h: float) -> None:
        assert self.rng is not None
        self.mover.thermalise(math.exp(-self.friction * h), self.kT, self.rng)


class MetropolisStepper(Stepper):
    """GHMC: O/2 [BAB, accepted with min(1, exp(-dH/kT)), momenta flipped on rejection] O/2. Samples exactly.

    A drift that does not converge, or does not lead back to where it came from, is rejected.
    """

    def __init__(
        self,
        mover: Mover,
        forces: Forces,
        timestep: float,
        kT: float,
        friction: float,
        rng: np.random.Generator,
        steps: int = 1,
        check_reverse: bool = True,
    ):
        super().__init__(mover, forces, timestep, "BAB", kT, friction, rng)
        self.repeats = False
        self.steps = steps
        self.check_reverse = check_reverse
        self.proposed = 0
        self.accepted = 0

    def draw_momenta(self) -> None:
        """Draw new momenta, N(0, kT M): the Metropolis test knows the error of the step."""
        assert self.rng is not None
        self.mover.thermalise(0.0, self.kT, self.rng)

    @property
    def acceptance(self) -> float:
        """Acceptance rate of all proposals; nan before the first."""
        return self.accepted / self.proposed if self.proposed else math.nan

    def step(self) -> bool:
        """Make one GHMC step of `steps` time steps. Always succeeds: what fails is rejected."""
        assert self.rng is not None
        duration = self.timestep * self.steps
        self._thermalise(0.5 * duration)
        saved = self.mover.save()
        torque = self._evaluate(want_energy=True)
        energy = self._energy
        before = energy + self.mover.kinetic_energy()
        torque = torque.copy()  # the forces of the proposal may go into the same array
        self.proposed += 1
        change = self._propose(before)
        if change <= 0.0 or self.rng.random() < math.exp(-change / self.kT):
            self.accepted += 1
        else:
            self.mover.restore(saved)
            self.mover.momentum *= -1.0
            self._torque, self._energy = torque, energy
        self._thermalise(0.5 * duration)
        return True

    def _propose(self, before: float) -> float:
        """Run the trajectory; return the change of the total energy, or infinity if it failed."""
        for left in reversed(range(self.steps)):
            self.mover.kick(self._evaluate(), 0.5 * self.timestep)
            start = self.mover.save()
            if not self.mover.drift(self.timestep) or (self.check_reverse and not self._leads_back(start)):
                return math.inf
            self.forget()
            self.mover.kick(self._evaluate(want_energy=not left), 0.5 * self.timestep)
        change = self._energy + self.mover.kinetic_energy() - before
        return change if math.isfinite(change) else math.inf

    def _leads_back(self, start: tuple[np.ndarray, ...]) -> bool:
        """True if the reversed drift returns to `start`; the mover stays where it is."""
        end = self.mover.save()
        self.mover.momentum *= -1.0
        back = self.mover.drift(self.timestep)
        distance = max(
            float(np.abs(a - b).max(initial=0.0)) for a, b in zip(self.mover.save()[:3], start[:3], strict=True)
        )
        self.mover.restore(end)
        return back and distance < REVERSE_TOLERANCE
