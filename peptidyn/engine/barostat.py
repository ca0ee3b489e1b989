"""Constant pressure: the Monte Carlo moves of OpenMM's MonteCarloBarostat, made on the molecules of a tree.

A move scales the box and the places of all molecules (of their base bodies) by one factor; orientations, soft
coordinates and momenta stay. With N molecules and the change of energy dE, a change of volume from V to V + dV is
accepted with min(1, exp(-w/kT)),

    w = dE + P dV - N kT ln((V + dV)/V) .

U_F does not depend on where molecules are, so it does not enter. K.-H. Chow and D. M. Ferguson, Comput. Phys. Commun.
91, 283 (1995); J. Aqvist et al., Chem. Phys. Lett. 384, 288 (2004).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import openmm

from peptidyn.core.errors import ModelError
from peptidyn.core.units import BOLTZMANN
from peptidyn.integrators.mover import Mover
from peptidyn.model.kinematics import FIXED
from peptidyn.model.tree import TreeModel

BAR = 0.0602214076
"""kJ/mol/nm^3 of one bar."""

FIRST_STEP, LARGEST_STEP = 0.01, 0.3
"""Largest change of volume at the start, and ever, as parts of the volume; as in OpenMM."""

TRIALS = 10
"""Moves after which the largest change of volume may be adapted."""


def find_barostat(system: Any) -> Any:
    """Return the MonteCarloBarostat of a System, or None."""
    found = [force for force in system.getForces() if isinstance(force, openmm.MonteCarloBarostat)]
    if len(found) > 1:
        raise ModelError("the System holds two MonteCarloBarostats; leave one of them")
    return found[0] if found else None


def check_barostat(force: Any, tree: TreeModel) -> None:
    """Raise ModelError if a MonteCarloBarostat cannot be honoured."""
    if (tree.joint[tree.parent < 0] == FIXED).any():
        raise ModelError("the System holds a MonteCarloBarostat and the base of the tree is fixed; use base='free'")
    if hasattr(force, "getScaleMoleculesAsRigid") and not force.getScaleMoleculesAsRigid():
        raise ModelError(
            "the MonteCarloBarostat scales single atoms, which would deform rigid bodies; set its "
            "scaleMoleculesAsRigid to True"
        )


class Barostat:
    """Volume moves every so many time steps; pressure and temperature are parameters of the Context.

    Parameters
    ----------
    force : openmm.MonteCarloBarostat
        Gives the frequency, and the seed if it is not 0.
    context : openmm.Context
        Its box gives the first step size.
    seed : numpy SeedSequence
        Of the random numbers, if the force has none.

    Attributes
    ----------
    volume_step : float
        Largest change of volume, nm^3.
    proposed, accepted : int
        Moves so far.
    """

    def __init__(self, force: Any, context: Any, seed: Any):
        self.frequency = int(force.getFrequency())
        self.rng = np.random.default_rng(force.getRandomNumberSeed() or seed)
        self.volume_step = FIRST_STEP * _volume(_box(context))
        self.proposed = self.accepted = 0
        self._recent = [0, 0]  # proposed and accepted since the step size was changed
        self._since = 0

    def count(self) -> bool:
        """Note that a time step was made; return whether a move is due."""
        self._since += 1
        if not self.frequency or self._since < self.frequency:
            return False
        self._since = 0
        return True

    def move(self, mover: Mover, context: Any, groups: int) -> bool:
        """Propose another volume, accept or reject it, and leave mover and Context accordingly; return which."""
        saved, box = mover.save(), _box(context)
        try:
            accepted = self._propose(mover, context, groups, saved, box)
        except BaseException as error:
            self._restore(mover, context, saved, box)
            if isinstance(error, openmm.OpenMMException) and "periodic box" in str(error):
                raise ModelError(
                    f"the barostat has made the periodic box narrower than twice the cutoff ({box[0, 0]:.2f} nm wide); "
                    "use a larger box, or a smaller cutoff"
                ) from error
            raise
        if not accepted:
            self._restore(mover, context, saved, box)
        self._adapt(accepted, _volume(box))
        return accepted

    def _propose(
        self, mover: Mover, context: Any, groups: int, saved: tuple[np.ndarray, ...], box: np.ndarray
    ) -> bool:  # fmt: skip
        volume = _volume(box)
        change = self.volume_step * (2.0 * self.rng.random() - 1.0)
        uniform = self.rng.random()
        if volume + change <= 0.0:
            return False  # steps follow the volume slowly
        scale = ((volume + change) / volume) ** (1.0 / 3.0)
        before = _energy(mover, context, groups)
        q, position, rotation, momentum = saved
        mover.restore((q, scale * position, rotation, momentum))
        context.setPeriodicBoxVectors(*(scale * box))
        after = _energy(mover, context, groups)
        kT = BOLTZMANN * context.getParameter(openmm.MonteCarloBarostat.Temperature())
        pressure = BAR * context.getParameter(openmm.MonteCarloBarostat.Pressure())
        work = after - before + pressure * change - mover.tree.n_molecules * kT * math.log1p(change / volume)
        return bool(work <= 0.0 or uniform < math.exp(-work / kT))  # false if it is not a number

    def _restore(self, mover: Mover, context: Any, saved: tuple[np.ndarray, ...], box: np.ndarray) -> None:
        mover.restore(saved)
        context.setPeriodicBoxVectors(*box)

    def _adapt(self, accepted: bool, volume: float) -> None:
        """Count the move, and change the step size as OpenMM does: between 25 and 75 % are to be accepted."""
        self.proposed += 1
        self.accepted += accepted
        self._recent[0] += 1
        self._recent[1] += accepted
        proposed, taken = self._recent
        if proposed < TRIALS or 0.25 * proposed <= taken <= 0.75 * proposed:
            return
        smaller = taken < 0.25 * proposed
        self.volume_step = self.volume_step / 1.1 if smaller else min(1.1 * self.volume_step, LARGEST_STEP * volume)
        self._recent = [0, 0]

    # ------------------------------------------------------------------ saving

    @property
    def state(self) -> dict[str, Any]:
        """What a continued run needs, of values that JSON holds."""
        own = {"volume_step": self.volume_step, "proposed": self.proposed, "accepted": self.accepted}
        return {**own, "recent": list(self._recent), "since": self._since, "rng": self.rng.bit_generator.state}

    @state.setter
    def state(self, saved: dict[str, Any]) -> None:
        self.volume_step = float(saved["volume_step"])
        self.proposed, self.accepted = int(saved["proposed"]), int(saved["accepted"])
        self._recent, self._since = [int(n) for n in saved["recent"]], int(saved["since"])
        self.rng.bit_generator.state = saved["rng"]


def _box(context: Any) -> np.ndarray:
    return np.array(context.getState().getPeriodicBoxVectors(asNumpy=True)._value)


def _volume(box: np.ndarray) -> float:
    return float(box[0, 0] * box[1, 1] * box[2, 2])


def _energy(mover: Mover, context: Any, groups: int) -> float:
    context.setPositions(mover.place())
    return context.getState(energy=True, groups=groups).getPotentialEnergy()._value
