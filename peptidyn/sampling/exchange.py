"""Replica exchange in temperature.

Every replica samples exp(-u_i) at its temperature T_i, with the reduced potential

    u_i(x) = (V(x) + U_F,i(x)) / kT_i ,        U_F,i = (kT_i / 2) ln(det M / J^2) ,

and two replicas exchange temperatures with probability min(1, exp(-D)),

    D = u_i(x_j) + u_j(x_i) - u_i(x_i) - u_j(x_j) .

At the end of an iteration many pairs try this, neighbours or not (`peptidyn.sampling.swaps`).

U_F,i / kT_i is the same function at every temperature, so it drops out of D; it is in u because it is in what the
replicas sample. Momenta are scaled by sqrt(T_new / T_old), after which kinetic energies drop out as well.

Between exchanges every replica runs a stretch (`peptidyn.sampling.replicas`) on whatever worker is free. Exchanges,
files and checkpoints are the driver's, which writes while workers already run the next stretches. Results depend on the
seed alone, not on where stretches ran, on platforms that are deterministic (Reference).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import openmm

from peptidyn.core.errors import ArgumentError, CheckpointError, OutputError, SamplingError
from peptidyn.core.progress import Progress
from peptidyn.core.units import BOLTZMANN, plain, plain_array
from peptidyn.engine.kinetic_metric import check_metric
from peptidyn.io.structure import Structure
from peptidyn.metric.fixman_potential import check_temperature
from peptidyn.model.tree import TreeModel
from peptidyn.sampling.backends import make_backend, start_tasks
from peptidyn.sampling.mbar import TemperatureMBAR, energies_by_level
from peptidyn.sampling.moves import Move, TorsionalHMC, check_moves, metric_timestep
from peptidyn.sampling.replicas import Recipe, Stretch, run_stretch, start_checkpoint, tune_stretch
from peptidyn.sampling.storage import ENERGIES, ENERGY_ROW, REDUCED, TORSIONS, ExchangeFolder
from peptidyn.sampling.swaps import reduced_energies, swap_pairs
from peptidyn.sampling.walker import walker_tree

_COUNTS = ("levels", "steps", "attempted", "accepted", "move_counts")
"""Arrays of the driver that a checkpoint holds."""


def geometric_temperatures(lowest: Any, highest: Any, count: int) -> np.ndarray:
    """Return `count` temperatures (K) from `lowest` to `highest` with a constant ratio."""
    low, high = check_temperature(lowest), check_temperature(highest)
    if count < 2 or not high > low:
        raise ArgumentError(f"{count} temperatures from {low:g} to {high:g} K make no ladder; give two or more, rising")
    return low * (high / low) ** (np.arange(count) / (count - 1))


class ReplicaExchange:
    """Replicas at a ladder of temperatures that exchange places.

    Parameters
    ----------
    tree : TreeModel
    system : openmm.System
        Flexible; as for `GibbsSampler`.
    temperatures : sequence of float or Quantity
        K, rising; one replica for each.
    moves : sequence of Move, optional
        A sweep of a replica; by default torsional HMC with partly kept momenta. With a `CartesianHMC` among them the
        flexible System is sampled. `TorsionalLangevin` is allowed; sampling is then exact up to its time-step error.
    sweeps : int
        Sweeps between exchanges.
    every : int, optional
        Sweeps between frames; by default one frame per stretch, at its end.
    positions : (n_atoms, 3) or (n_replicas, n_atoms, 3), nm, optional
        Where to start; the reference of the tree if not given.
    hydrogen_mass : float or Quantity, optional
    metric : {"physical", "auto"} or (n_coordinates,) array, optional
        Joint inertias, as for `Walker`; "auto" takes the longest time step of `TorsionalHMC` and `TorsionalLangevin`. A
        resumed run keeps those it began with.
    platform : str, optional
    properties : dict, optional
        Of the platform.
    seed : int
    backend : {"serial", "threads", "processes"} or dask.distributed.Client
        Where replicas run.
    workers : int, optional
    folder : path or ExchangeFolder, optional
        Where to write; see `peptidyn.sampling.storage`. Without it everything stays in memory.
    topology : openmm.app.Topology
        For the files; needed with `folder`.
    resume : bool
        Continue the run in `folder`, which must have been made with the same arguments.
    overwrite : bool
        Replace an earlier run in `folder`.

    Attributes
    ----------
    temperatures : (n_replicas,)
        K.
    levels : (n_replicas,) int
        Temperature that each replica has now, counted from the lowest.
    walk : (n_iterations, n_replicas) int
        Level of each replica during every iteration that is done.
    steps : (n_replicas, n_moves)
        Steps of the moves at every temperature.
    attempted, accepted : (n_replicas - 1,) int
        Exchanges between neighbouring temperatures; those between others are not counted.
    frames : int
        Of every replica so far.
    tuned : bool
        Whether a warm-up is done.
    """

    _pending: Callable[[], list[Any]] | None = None
    """Stretches of the next iteration that were started already."""

    def __init__(
        self,
        tree: TreeModel,
        system: Any,
        temperatures: Sequence[Any] | np.ndarray,
        *,
        moves: Sequence[Move] | None = None,
        sweeps: int = 10,
        every: int | None = None,
        positions: Any = None,
        hydrogen_mass: Any = None,
        metric: Any = None,
        platform: str | None = None,
        properties: dict[str, str] | None = None,
        seed: int = 0,
        backend: Any = "serial",
        workers: int | None = None,
        folder: str | os.PathLike[str] | ExchangeFolder | None = None,
        topology: Any = None,
        resume: bool = False,
        overwrite: bool = False,
    ):
        self.temperatures = np.array([check_temperature(T) for T in temperatures])
        if len(self.temperatures) < 2 or (np.diff(self.temperatures) <= 0).any():
            raise ArgumentError("temperatures must be two or more, each higher than the one before")
        if sweeps < 1 or (every is not None and not 1 <= every <= sweeps):
            raise ArgumentError(f"sweeps is {sweeps} and every is {every}; expected 1 or more, every not above sweeps")
        chosen = [TorsionalHMC(0.004, 10, friction=1.0)] if moves is None else check_moves(moves, system, exact=False)
        self.sweeps, self.every = sweeps, sweeps if every is None else every
        mass = None if hydrogen_mass is None else float(plain(hydrogen_mass))
        self._topology = topology
        self.folder = ExchangeFolder.at(folder, len(self.temperatures))
        start = None if resume else self._starts(tree, positions)
        tree = self._tree_of(tree, system, start, mass, metric, metric_timestep(chosen))
        self.recipe = Recipe(
            tree, openmm.XmlSerializer.serialize(system), tuple(chosen), mass, platform, dict(properties or {})
        )
        self.backend = make_backend(backend, workers)
        n, self._seed = len(self.temperatures), seed
        seeds = np.random.SeedSequence(seed).spawn(n + 1)
        self._rng = np.random.default_rng(seeds[n])
        self.levels = np.arange(n)
        self.steps = np.array([[move.step_at(T) for move in chosen] for T in self.temperatures])
        self.attempted, self.accepted = np.zeros((2, n - 1), dtype=np.int64)
        self.move_counts = np.zeros((n, len(chosen), 3), dtype=np.int64)
        self.frames, self.tuned = 0, False
        self._walk: list[np.ndarray] = []
        self._memory: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(n)]
        self._reduced: list[np.ndarray] = []
        self._box = np.array([plain(v) for v in system.getDefaultPeriodicBoxVectors()])
        if start is None:
            self._resume_locked()
            return
        self.replicas = [start_checkpoint(self.recipe, x, s) for x, s in zip(start, seeds, strict=False)]
        self._check_start(start)
        if self.folder is not None:
            if topology is None:
                raise ArgumentError("files need topology=, the openmm Topology of the System")
            self.folder.begin(Structure.from_openmm(topology, system, start[0]), overwrite)
            self._save()

    def _starts(self, tree: TreeModel, positions: Any) -> np.ndarray:
        n = len(self.temperatures)
        x = tree.positions(tree.reference) if positions is None else plain_array(positions)
        if x.shape == (tree.n_atoms, 3):
            return np.tile(x, (n, 1, 1))
        if x.shape != (n, tree.n_atoms, 3):
            raise ArgumentError(
                f"positions have shape {x.shape}, expected ({tree.n_atoms}, 3) or ({n}, {tree.n_atoms}, 3)"
            )
        return x

    def _tree_of(
        self, tree: TreeModel, system: Any, start: np.ndarray | None, mass: Any, metric: Any,
        timestep: tuple[float | None, float | None],
    ) -> TreeModel:  # fmt: skip
        """Return the tree with the joint inertias of the run: a run that is resumed has chosen its own already.

        `timestep` is what `metric_timestep` returns.
        """
        word = check_metric(metric)
        if start is None and word == "auto":
            inertia = self._resumed_folder().load()[1][0]["joint_inertia"]
            fits = inertia.shape == (tree.n_coordinates,)
            tree = tree.with_joint_inertia(inertia) if fits else tree  # another tree is refused by its name later
        else:
            x = None if start is None else start[0]
            made = walker_tree(tree, system, self.temperatures[-1], x, mass, metric, *timestep)
            tree = tree.with_joint_inertia(made.joint_inertia)
        some = tree.joint_inertia.any()
        digest = hashlib.sha256(tree.joint_inertia.tobytes()).hexdigest()[:8]
        self._metric = f"{word or 'given'} {digest}" if some or word == "auto" else "physical"
        return tree

    def _check_start(self, start: np.ndarray) -> None:
        """Refuse a System that does not fit, and starts without a finite energy, before anything is written."""
        walker = self.recipe.make_walker(self.temperatures[0])
        for i, x in enumerate(start):
            if i and np.array_equal(x, start[i - 1]):
                continue
            energy = walker.energy_at(x)
            if not math.isfinite(energy):
                raise SamplingError(
                    f"the energy of replica {i} is {energy}: atoms overlap; minimise the structure first"
                )

    # ------------------------------------------------------------------ running

    @property
    def iterations(self) -> int:
        """Iterations that are done."""
        return len(self._walk)

    @property
    def walk(self) -> np.ndarray:
        """Level of each replica during every iteration, (n_iterations, n_replicas) int."""
        return np.array(self._walk, dtype=np.int64).reshape(-1, len(self.temperatures))

    def warm_up(self, sweeps: int = 100) -> list[list[Any]]:
        """Tune the steps of the moves at every temperature, then freeze them; return the records, level by level.

        Moves without a Metropolis test move too, and keep their steps; their record is None.
        """
        if self.iterations:
            raise ArgumentError("steps are tuned before the first iteration: what was sampled would depend on them")
        order = np.argsort(self.levels)
        tasks = [(self.replicas[r], self.temperatures[k], self.steps[k], sweeps) for k, r in enumerate(order)]
        outcomes = self._gathered(self.backend.run(tune_stretch, tasks, self.recipe), order)
        for k, (r, (checkpoint, tuners)) in enumerate(zip(order, outcomes, strict=True)):
            self.replicas[r] = checkpoint
            self.steps[k] = [
                h if tuner is None else tuner.final for h, tuner in zip(self.steps[k], tuners, strict=True)
            ]
        self.tuned = True
        if self.folder is not None:
            self._save()
        return [tuners for _, tuners in outcomes]

    def run(
        self, iterations: int, *, progress: bool = False, stop: Callable[[], bool] = lambda: False
    ) -> ReplicaExchange:
        """Go on until `iterations` iterations are done in all: a stretch of every replica, then exchanges.

        Parameters
        ----------
        iterations : int
            Total; a resumed run counts those it has done.
        progress : bool
        stop : callable
            Asked after every iteration; True ends the run, which can be resumed.
        """
        left = iterations - self.iterations
        with Progress(max(left, 0), "replica exchange", "iterations", progress) as bar:
            try:
                while self.iterations < iterations and not stop():
                    self._iterate(self.iterations + 1 < iterations)
                    rate = self.accepted.sum() / max(1, self.attempted.sum())
                    bar.advance(1, f"{100 * rate:.0f}% of exchanges accepted")
            finally:
                self._pending = None
        if self.folder is not None and self.frames:
            self.folder.write_u_kn(*self.u_kn(), self.temperatures)
        return self

    def _begin(self) -> Callable[[], list[Any]]:
        """Start a stretch of every replica; return what waits for them."""
        tasks = [
            (self.replicas[r], self.temperatures[k], self.steps[k], self.sweeps, self.every)
            for r, k in enumerate(self.levels)
        ]
        return start_tasks(self.backend, run_stretch, tasks, self.recipe)

    def _iterate(self, more: bool) -> None:
        """Make one iteration; if there are `more`, the next stretches run while files are written.

        If it fails, memory and the checkpoint hold the iteration before.
        """
        wait, self._pending = self._pending or self._begin(), None
        stretches: list[Stretch] = self._gathered(wait(), np.arange(len(self.temperatures)))
        for r, stretch in enumerate(stretches):
            if not math.isfinite(stretch.final_potential):
                raise self._failed(r, f"its energy is {stretch.final_potential}")
        before, there = self._position(), self.frames
        self._advance(stretches)
        if more:
            self._pending = self._begin()
        try:
            self._write(stretches, there)
        except OutputError:
            self._pending = None
            self._go_back(before)
            raise

    def _advance(self, stretches: list[Stretch]) -> None:
        """Take over the stretches and exchange temperatures, in memory."""
        potential = np.array([stretch.final_potential for stretch in stretches])
        metric = np.array([stretch.final_metric for stretch in stretches])
        swaps = swap_pairs(reduced_energies(potential, metric, self.temperatures), self.levels, self._rng)
        self.attempted = self.attempted + swaps.attempted
        self.accepted = self.accepted + swaps.accepted
        for r, (stretch, k) in enumerate(zip(stretches, self.levels, strict=True)):
            self.move_counts[k] += np.array(stretch.counts)
            scale = math.sqrt(self.temperatures[swaps.levels[r]] / self.temperatures[k])
            self.replicas[r] = {**stretch.checkpoint, "momentum": scale * stretch.checkpoint["momentum"]}
        self._walk.append(self.levels)
        self.levels = swaps.levels
        self.frames += self.sweeps // self.every

    def _position(self) -> tuple[Any, ...]:
        """Return all that an iteration changes in memory."""
        counts = {name: getattr(self, name).copy() for name in _COUNTS}
        return self._rng.bit_generator.state, counts, list(self.replicas), self.frames, self.iterations

    def _go_back(self, position: tuple[Any, ...]) -> None:
        """Undo an iteration that could not be written, in memory and in files, so that the same run may try again."""
        self._rng.bit_generator.state, counts, self.replicas, self.frames, done = position
        vars(self).update(counts)
        del self._walk[done:]
        assert self.folder is not None
        with suppress(OSError):  # what cannot be cut now is cut when the run is resumed
            self.folder.cut_back(self.iterations, self.frames)

    def _gathered(self, outcomes: list[Any], replicas: np.ndarray) -> list[Any]:
        """Return the outcomes, or raise what went wrong in one of them."""
        for r, outcome in zip(replicas.tolist(), outcomes, strict=True):
            if isinstance(outcome, Exception):
                raise self._failed(r, str(outcome) or type(outcome).__name__) from outcome
        return outcomes

    def _failed(self, replica: int, reason: str) -> SamplingError:
        kept = f"; all replicas are kept as they were after iteration {self.iterations}"
        if self.folder is not None:
            kept += f", in {self.folder.path}, from where the run can be resumed"
        T = self.temperatures[self.levels[replica]]
        return SamplingError(
            f"replica {replica} at {T:.1f} K failed in iteration {self.iterations + 1}: {reason}{kept}"
        )

    # ------------------------------------------------------------------ files

    def _rows(self, stretch: Stretch, level: int) -> np.ndarray:
        """Return energies of the frames of a stretch of the last iteration, at a level."""
        rows = np.empty(len(stretch.potential), ENERGY_ROW)
        rows["iteration"] = self.iterations - 1
        rows["level"] = level
        rows["temperature"] = self.temperatures[level]
        rows["potential"] = stretch.potential
        rows["fixman"] = BOLTZMANN * self.temperatures[level] * stretch.metric
        return rows

    def _write(self, stretches: list[Stretch], there: int) -> None:
        """Keep the last iteration, before which there were `there` frames, in memory or in files."""
        levels = self._walk[-1]
        by_level = [stretches[r] for r in np.argsort(levels)]
        potential, metric = (np.array([getattr(s, name) for s in by_level]).T for name in ("potential", "metric"))
        reduced = reduced_energies(potential, metric, self.temperatures)
        rows = [self._rows(stretch, int(k)) for stretch, k in zip(stretches, levels, strict=True)]
        if self.folder is None:
            self._reduced.append(reduced)
            for memory, row, stretch in zip(self._memory, rows, stretches, strict=True):
                memory.append((row, stretch.q))
            return
        for r, stretch in enumerate(stretches):
            self.folder.append(r, stretch, rows[r], self._topology, there)
        self.folder.append_exchange(self.iterations - 1, levels, int(np.count_nonzero(levels != self.levels)))
        self.folder.append_reduced(reduced, there)
        self._save()

    @property
    def _identity(self) -> dict[str, Any]:
        """What a resumed run must share."""
        return {
            "tree": _topology_hash(self.recipe.tree),
            "system": hashlib.sha256(self.recipe.system.encode()).hexdigest()[:32],
            "moves": [move.settings for move in self.recipe.moves],
            "hydrogen_mass": self.recipe.hydrogen_mass,
            "metric": self._metric,
            "temperatures": self.temperatures.tolist(),
            "sweeps": self.sweeps,
            "every": self.every,
            "seed": self._seed,
        }

    def _save(self) -> None:
        assert self.folder is not None
        about = {
            "identity": self._identity,
            "exchange_rng": self._rng.bit_generator.state,
            **{name: getattr(self, name).tolist() for name in _COUNTS},
            "frames": self.frames,
            "iterations": self.iterations,
            "tuned": self.tuned,
        }
        self.folder.save(about, self.replicas, self._box)

    def _resume_locked(self) -> None:
        """Continue the run in the folder, which is let go of if that fails."""
        folder = self._resumed_folder()
        folder.lock()
        try:
            folder.check_files()
            self._resume(folder)
        except BaseException:
            folder.release()
            raise

    def _resumed_folder(self) -> ExchangeFolder:
        if self.folder is None:
            raise ArgumentError("resume needs the folder of the run")
        return self.folder

    def _resume(self, folder: ExchangeFolder) -> None:
        about, self.replicas = folder.load()
        there, here = about["identity"], json.loads(json.dumps(self._identity))
        for name in {**there, **here}:
            if there.get(name) != here.get(name):
                raise CheckpointError(
                    f"the run in {folder.path} was made with another {name} ({there.get(name)}, now "
                    f"{here.get(name)}); resume it with the arguments it began with"
                )
        self._rng.bit_generator.state = about["exchange_rng"]
        vars(self).update({name: np.array(about[name]) for name in _COUNTS})
        self.frames, self.tuned = about["frames"], about["tuned"]
        folder.cut_back(about["iterations"], self.frames)
        self._walk = list(folder.read_walk(about["iterations"]))

    # ------------------------------------------------------------------ results

    @property
    def acceptance(self) -> np.ndarray:
        """Acceptance rate of exchanges between neighbouring temperatures, (n_replicas - 1,); nan where none yet."""
        return rates(self.accepted, self.attempted)

    @property
    def move_acceptance(self) -> np.ndarray:
        """Acceptance rate of every move at every temperature, (n_replicas, n_moves); nan where none was proposed."""
        return rates(self.move_counts[..., 1], self.move_counts[..., 0])

    @property
    def round_trips(self) -> np.ndarray:
        """How often each replica went from the lowest temperature to the highest and back, (n_replicas,) int."""
        return count_round_trips(self.walk, len(self.temperatures))

    def frames_of(self, replica: int) -> tuple[np.ndarray, np.ndarray]:
        """Return energies (see `storage.ENERGY_ROW`) and soft coordinates (n, n_coordinates) of a replica."""
        if not self.frames:
            return np.empty(0, ENERGY_ROW), np.empty((0, self.recipe.tree.n_coordinates))
        if self.folder is not None:
            folder = self.folder.replica(replica)
            return np.load(folder / ENERGIES), np.load(folder / TORSIONS)
        rows, q = zip(*self._memory[replica], strict=True)
        return np.concatenate(rows), np.concatenate(q)

    def at_temperature(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Return energies and soft coordinates of all frames at one temperature, in the order of iterations."""
        if not 0 <= level < len(self.temperatures):
            raise ArgumentError(f"the level is {level}, expected 0 to {len(self.temperatures) - 1}")
        rows, q = zip(*(self.frames_of(r) for r in range(len(self.temperatures))), strict=True)
        energies, coordinates = np.concatenate(rows), np.concatenate(q)
        chosen = np.flatnonzero(energies["level"] == level)
        chosen = chosen[np.argsort(energies["iteration"][chosen], kind="stable")]
        return energies[chosen], coordinates[chosen]

    def u_kn(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the reduced energies of all frames at all temperatures, as ``pymbar.MBAR(u_kn, N_k)`` takes them.

        Returns
        -------
        u_kn : (n_replicas, n_replicas * frames)
            u = (V + U_F) / kT_k at temperature k; frames are sorted by the temperature they were sampled at, then by
            time. U_F / kT is the same at every temperature and drops out of differences.
        N_k : (n_replicas,) int
            Frames sampled at every temperature: equally many.
        """
        n = len(self.temperatures)
        if not self.frames:
            return np.empty((n, 0)), np.zeros(n, dtype=np.int64)
        u = np.concatenate(self._reduced) if self.folder is None else np.load(self.folder.path / REDUCED)
        return u.transpose(2, 1, 0).reshape(n, -1), np.full(n, len(u))

    def summary(self) -> dict[str, Any]:
        """Return the outcome as plain values: temperatures, acceptance rates, overlaps, mean energies, steps."""
        return {
            "temperatures_K": self.temperatures.tolist(),
            "iterations": self.iterations,
            "frames_per_replica": self.frames,
            "exchange_acceptance": _plain_rates(self.acceptance),
            "round_trips": self.round_trips.tolist(),
            **self._energy_summary(),
            "moves": [move.settings for move in self.recipe.moves],
            "steps": self.steps.tolist(),
            "move_acceptance": [_plain_rates(row) for row in self.move_acceptance],
            "force_calls": int(self.move_counts[..., 2].sum()),
        }

    def _energy_summary(self) -> dict[str, Any]:
        """Overlap of neighbouring temperatures and <V> with its standard error, kJ/mol, from all frames by MBAR."""
        if self.frames < 2:
            return {}
        rows = np.concatenate([self.frames_of(r)[0] for r in range(len(self.temperatures))])
        mbar = TemperatureMBAR(energies_by_level(rows, len(self.temperatures)), self.temperatures)
        mean, error = mbar.mean_energy(self.temperatures)
        return {
            "neighbour_overlap": mbar.overlap.diagonal(1).tolist(),
            "mean_potential_kJ_per_mol": mean.tolist(),
            "mean_potential_error_kJ_per_mol": error.tolist(),
        }

    def close(self) -> None:
        """End the workers that were started for this run, and let others write to its folder."""
        self.backend.close()
        if self.folder is not None:
            self.folder.release()

    def __enter__(self) -> ReplicaExchange:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def rates(accepted: np.ndarray, proposed: np.ndarray) -> np.ndarray:
    """Return accepted / proposed; nan where nothing was proposed."""
    return np.divide(accepted, proposed, out=np.full(proposed.shape, math.nan), where=proposed > 0)


def _plain_rates(rates: np.ndarray) -> list[float | None]:
    return [None if math.isnan(rate) else rate for rate in rates.tolist()]


def _topology_hash(tree: TreeModel) -> str:
    """Hash what a tree is apart from its geometry, which checkpoints hold for every replica."""
    digest = hashlib.sha256(repr([(c.kind, c.atoms) for c in tree.coordinates]).encode())
    for part in (tree.parent, tree.joint, tree.atom_link, tree.masses):
        digest.update(part.tobytes())
    return digest.hexdigest()[:32]


def count_round_trips(walk: np.ndarray, n_levels: int) -> np.ndarray:
    """Return how often each column of `walk` (n, n_replicas) went from level 0 to the highest and back to 0."""
    trips = np.zeros(walk.shape[1], dtype=np.int64)
    for r, levels in enumerate(walk.T):
        ends = levels[(levels == 0) | (levels == n_levels - 1)]
        turns = ends[np.insert(np.diff(ends) != 0, 0, True)] if ends.size else ends
        first = int(turns.size > 0 and turns[0] != 0)
        trips[r] = max(0, (turns.size - first - 1) // 2)
    return trips
