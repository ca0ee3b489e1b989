"""`GibbsSampler`: moves in turn, steps tuned in a warm-up, and how well each of them works."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError, SamplingError
from peptidyn.core.progress import Progress
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.model.tree import TreeModel
from peptidyn.sampling.moves import Move, check_moves, metric_timestep
from peptidyn.sampling.tuning import StepTuner
from peptidyn.sampling.walker import Walker


@dataclass(frozen=True, eq=False)
class Samples:
    """What a sampler has visited, one entry per sweep that was recorded.

    Attributes
    ----------
    q : (n, n_coordinates)
        All soft coordinates, rad.
    energy : (n,)
        Potential energy V, without U_F, kJ/mol.
    positions : (n, n_atoms, 3) or None
        nm, float32, if they were asked for.
    seconds : float
        Time it took.
    tree : TreeModel
        What the columns of `q` are: ``tree.coordinates``.
    """

    q: np.ndarray
    energy: np.ndarray
    positions: np.ndarray | None
    seconds: float
    tree: TreeModel

    def __len__(self) -> int:
        return len(self.energy)

    @property
    def torsions(self) -> np.ndarray:
        """The torsions, (n, n_torsions), rad, in the order of ``tree.torsions``."""
        return self.q[:, self.tree.torsion_index]

    def column(self, kind: str, residue: int | None = None) -> np.ndarray:
        """Return one soft coordinate (n,), rad, by its kind (and the index of its residue if there are several)."""
        found = [i for i, c in enumerate(self.tree.coordinates) if c.kind == kind and residue in (None, c.residue)]
        if len(found) != 1:
            raise ArgumentError(f"{len(found)} soft coordinates are called {kind!r}; name one by kind and residue")
        return self.q[:, found[0]]

    @property
    def autocorrelation_times(self) -> dict[str, float]:
        """Statistical inefficiency g = 1 + 2 tau, in recorded sweeps, of the energy and of every soft coordinate.

        Of a torsion the slower of its cosine and sine counts.
        """
        times = {"energy": statistical_inefficiency(self.energy)}
        for i, c in enumerate(self.tree.coordinates):
            parts = (np.cos(self.q[:, i]), np.sin(self.q[:, i])) if c.motion == "torsion" else (self.q[:, i],)
            atoms = ["-".join(c.names)] if c.names else []
            name = ":".join([c.kind, *atoms, c.chain, f"{c.residue_name}{c.residue_id}"])
            times[name] = max(map(statistical_inefficiency, parts))
        return times

    @property
    def effective_samples(self) -> float:
        """Independent samples of the slowest soft coordinate, or of the energy if that is slower."""
        return len(self) / max(self.autocorrelation_times.values())


@dataclass
class MoveRecord:
    """How one move did since the last reset.

    Attributes
    ----------
    name, unit : str
    step : float
        Present step: ps or rad.
    proposed : int
    acceptance : float
    seconds : float
    force_calls : int
    autocorrelation : float
        Proposals per independent sample of the coordinate that this move changes least, if it were used alone: from
        the mean squared change d per proposal, relative to the variance s, as (1 + r) / (1 - r) with r = 1 - d / (2 s).
    effective_per_second : float
        Independent samples of that coordinate per second spent in the move.
    """

    name: str
    unit: str
    step: float
    proposed: int
    acceptance: float
    seconds: float
    force_calls: int
    autocorrelation: float
    effective_per_second: float


@dataclass
class WarmUp:
    """Record of a warm-up: steps and outcomes of every move, and the steps that were frozen."""

    sweeps: int
    tuners: list[StepTuner] = field(default_factory=list)
    frozen: list[float] = field(default_factory=list)


class GibbsSampler:
    """Applies moves in turn. With a Cartesian move among them it samples the flexible System exactly.

    Torsional moves sample the torsions at the bond lengths and angles that are there, Cartesian moves change these;
    each is accepted or rejected at the full energy, so the mixture samples exp(-V/kT) without a time-step error.
    Without a Cartesian move bond lengths and angles stay as they are, and the rigid model is sampled.

    Parameters
    ----------
    moves : sequence of Move
        Applied in this order in every sweep. Integrators without a Metropolis step are refused.
    tree, system, temperature, positions, hydrogen_mass, metric, platform, properties, seed
        As for `Walker`. With ``metric="auto"`` joint inertias follow from the first time step of `TorsionalHMC`.

    Attributes
    ----------
    moves : list of Move
    walker : Walker
    sweeps : int
        Done so far, warm-up included.
    warm_ups : list of WarmUp
        Record of the tuning of steps.
    """

    def __init__(
        self,
        moves: Sequence[Move],
        tree: TreeModel,
        system: Any,
        temperature: Any,
        *,
        positions: Any = None,
        hydrogen_mass: Any = None,
        metric: Any = None,
        platform: Any = None,
        properties: dict[str, str] | None = None,
        seed: Any = None,
    ):
        self.moves = check_moves(moves, system)
        self.walker = Walker(
            tree, system, temperature, positions=positions, hydrogen_mass=hydrogen_mass, metric=metric,
            timestep=metric_timestep(self.moves)[0], platform=platform, properties=properties, seed=seed,
        )  # fmt: skip
        energy = self.walker.energy()
        if not math.isfinite(energy):
            raise SamplingError(f"the energy of the start is {energy}: atoms overlap; minimise the structure first")
        self.sweeps = 0
        self.warm_ups: list[WarmUp] = []
        self._jumps = np.zeros((len(self.moves), tree.n_coordinates))
        self._samples: list[Samples] = []

    @property
    def exact(self) -> bool:
        """Whether the flexible System is sampled: a move is Cartesian, or everything is soft. Else the rigid model."""
        tree = self.walker.tree
        return any(move.cartesian for move in self.moves) or tree.n_dof == 3 * tree.n_atoms

    # ------------------------------------------------------------------ running

    def sweep(self) -> None:
        """Apply every move once."""
        before = self.walker.q
        for i, move in enumerate(self.moves):
            if move.apply(self.walker):
                after = self.walker.q
                self._jumps[i] += 2.0 - 2.0 * np.cos(after - before)
                before = after
        self.sweeps += 1

    def warm_up(self, sweeps: int = 200, *, progress: bool = False) -> WarmUp:
        """Tune the steps of all moves, then freeze them; counters start again.

        Nothing that is sampled meanwhile counts: a step that depends on outcomes breaks detailed balance.

        Returns
        -------
        WarmUp
            Also appended to `warm_ups`.
        """
        record = WarmUp(sweeps)
        try:
            for move in self.moves:
                move.tuner = StepTuner(move.step, move.target, move.largest)
                record.tuners.append(move.tuner)
            with Progress(sweeps, "warm-up", "sweeps", progress) as bar:
                for _ in range(sweeps):
                    self.sweep()
                    bar.advance(1)
        finally:
            for move in self.moves:
                if move.tuner is not None:
                    move.step = move.tuner.final
                    move.tuner = None
                record.frozen.append(move.step)
        self.warm_ups.append(record)
        self.reset()
        return record

    def reset(self) -> None:
        """Start all statistics again; the configuration and the steps stay."""
        for move in self.moves:
            move.reset()
        self._jumps[:] = 0.0
        self._samples.clear()

    def run(self, sweeps: int, *, every: int = 1, positions: bool = False, progress: bool = False) -> Samples:
        """Sample; record every `every` sweeps.

        Parameters
        ----------
        sweeps : int
        every : int
            Sweeps between records.
        positions : bool
            Keep positions too.
        progress : bool
        """
        if sweeps < 1 or every < 1:
            raise ArgumentError(f"sweeps is {sweeps} and every is {every}, expected 1 or more")
        count, walker = sweeps // every, self.walker
        q = np.empty((count, walker.tree.n_coordinates))
        energy = np.empty(count)
        x = np.empty((count, walker.tree.n_atoms, 3), dtype=np.float32) if positions else None
        begin = time.perf_counter()
        with Progress(sweeps, "sampling", "sweeps", progress) as bar:
            for i in range(1, sweeps + 1):
                self.sweep()
                bar.advance(1)
                if i % every == 0:
                    place = i // every - 1
                    q[place], energy[place] = walker.q, walker.energy()
                    if x is not None:
                        x[place] = walker.positions()
        samples = Samples(q, energy, x, time.perf_counter() - begin, walker.tree)
        self._samples.append(samples)
        return samples

    # ------------------------------------------------------------------ judging

    def records(self) -> list[MoveRecord]:
        """Return how every move did since the warm-up; variances come from what `run` recorded."""
        q = np.concatenate([s.q for s in self._samples]) if self._samples else np.empty((0, self._jumps.shape[1]))
        # 2 - 2 cos(dq) is the squared change of (cos q, sin q), whose variance is 1 - |mean|^2
        spread = 1.0 - np.abs(np.exp(1j * q).mean(axis=0)) ** 2 if len(q) > 1 else np.full(q.shape[1], math.nan)
        records = []
        for move, jumps in zip(self.moves, self._jumps, strict=True):
            time_alone = rate = math.nan
            changed = jumps / max(1, move.proposed) / (2.0 * np.maximum(spread, 1e-300))
            if (changed > 0).any():  # never without samples, whose spread is nan
                r = max(0.0, 1.0 - float(changed[changed > 0].min()))
                time_alone = (1.0 + r) / (1.0 - r) if r < 1.0 else math.inf
                rate = move.proposed / time_alone / move.seconds if move.seconds > 0 else math.nan
            outcome = (move.proposed, move.acceptance, move.seconds, move.force_calls, time_alone, rate)
            records.append(MoveRecord(type(move).__name__, move.unit, move.step, *outcome))
        return records

    def report(self) -> str:
        """Return a table of the moves, and the autocorrelation of the whole chain, as text."""
        lines = [
            f"{'move':<14}{'step':>12}{'proposed':>10}{'accepted':>10}{'forces':>10}{'s':>9}{'g alone':>10}{'eff/s':>9}"
        ]
        for r in self.records():
            step = f"{1000 * r.step:.2f} fs" if r.unit == "ps" else f"{np.rad2deg(r.step):.1f} deg"
            lines.append(
                f"{r.name:<14}{step:>12}{r.proposed:>10}{r.acceptance:>10.3f}{r.force_calls:>10}{r.seconds:>9.1f}"
                f"{r.autocorrelation:>10.1f}{r.effective_per_second:>9.2f}"
            )
        for samples in self._samples[-1:]:
            times = samples.autocorrelation_times
            slowest = max(times, key=lambda name: times[name])
            independent = len(samples) / times[slowest]
            lines.append(
                f"{len(samples)} samples; slowest is {slowest} with g = {times[slowest]:.1f} (energy "
                f"{times['energy']:.1f}): {independent:.0f} independent, {independent / samples.seconds:.2f} per s"
            )
        return "\n".join(lines)
