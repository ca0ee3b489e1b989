"""`ExchangeRun`: what a replica exchange run has written so far, replica by replica and temperature by temperature."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import mdtraj
import numpy as np

from peptidyn.core.errors import ArgumentError, CheckpointError
from peptidyn.core.files import replacing
from peptidyn.engine.run_files import SUMMARY, TOPOLOGY
from peptidyn.io.quiet import quiet_readers
from peptidyn.io.structure import Structure
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import ExchangeSettings
from peptidyn.sampling.exchange import count_round_trips, rates
from peptidyn.sampling.storage import ENERGIES, EXCHANGES, TRAJECTORY, ExchangeFolder

CHUNK = 500
"""Frames that are in memory at a time while a trajectory is written."""

NEAR = 0.5
"""How far a temperature (K) may be from one of the ladder and still mean it."""


class ExchangeRun:
    """The folder of a replica exchange run that is finished, interrupted or going on.

    Parameters
    ----------
    folder : str or path
        Written by `peptidyn exchange`, or by `ReplicaExchange`.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = RunFolder(folder)
        self.path = self.folder.path
        self._files = ExchangeFolder(self.path, len(sorted(self.path.glob("replica-*"))))
        for name in (EXCHANGES, TOPOLOGY):
            if not (self.path / name).exists():
                raise ArgumentError(f"{self.path} holds no replica exchange run: there is no {name} in it")
        self._files.check_not_lost()
        self._files.check_files()
        self._about, _ = self._files.read_checkpoint()
        if not self.n_frames:
            raise ArgumentError(f"the replica exchange run in {self.path} has written no frame yet; continue it first")

    # ------------------------------------------------------------------ the run

    @property
    def temperatures(self) -> np.ndarray:
        """Of the ladder, (n_levels,), K."""
        return np.array(self._about["identity"]["temperatures"])

    @property
    def n_replicas(self) -> int:
        """Number of replicas, and of temperatures."""
        return len(self._about["identity"]["temperatures"])

    @property
    def n_frames(self) -> int:
        """Frames of every replica."""
        return int(self._about["frames"])

    @property
    def moves(self) -> list[dict[str, Any]]:
        """Settings of the moves."""
        return self._about["identity"]["moves"]

    @property
    def acceptance(self) -> np.ndarray:
        """Acceptance rate of exchanges between neighbouring temperatures, (n_levels - 1,); nan where none yet."""
        return rates(np.array(self._about["accepted"]), np.array(self._about["attempted"]))

    @property
    def move_acceptance(self) -> np.ndarray:
        """Acceptance rate of every move at every temperature, (n_levels, n_moves); nan where none was proposed."""
        counts = np.array(self._about["move_counts"])
        return rates(counts[..., 1], counts[..., 0])

    @property
    def force_calls(self) -> int:
        """Energy and force evaluations of all replicas."""
        return int(np.array(self._about["move_counts"])[..., 2].sum())

    @cached_property
    def settings(self) -> ExchangeSettings | None:
        """Of `peptidyn exchange`; None if the run was made with `ReplicaExchange`."""
        if (self.path / ExchangeSettings.stored_as).exists():
            return self.folder.read_settings(ExchangeSettings())
        if "settings" in self.summary:
            raise CheckpointError(
                f"{self.path} has lost {ExchangeSettings.stored_as}, the settings that {SUMMARY} beside it belongs to; "
                "put the file back"
            )
        return None

    @property
    def summary(self) -> dict[str, Any]:
        """What summary.json holds; empty if the run was killed, or is going on."""
        return self.folder.summary

    @property
    def ending(self) -> str:
        """``finished``; or ``unfinished``, if it was interrupted or killed, or goes on.

        A run of `peptidyn exchange` is finished when its summary is written.
        """
        if self.settings is None:
            return "finished"
        return "finished" if self.summary and len(self.walk) >= self.settings.iterations else "unfinished"

    @cached_property
    def structure(self) -> Structure:
        """The atoms that were simulated."""
        return self._files.read_structure()

    @cached_property
    def walk(self) -> np.ndarray:
        """Level of each replica during every iteration, (n_iterations, n_replicas) int."""
        return self._files.read_walk(self._about["iterations"])

    @property
    def round_trips(self) -> np.ndarray:
        """How often each replica went from the lowest temperature to the highest and back, (n_replicas,)."""
        return count_round_trips(self.walk, self.n_replicas)

    @cached_property
    def rows(self) -> np.ndarray:
        """Energies of all frames, (n_replicas, n_frames); see `peptidyn.sampling.storage.ENERGY_ROW`."""
        files = self._files
        return np.stack([np.load(files.replica(r) / ENERGIES)[: self.n_frames] for r in range(self.n_replicas)])

    # ------------------------------------------------------------------ one temperature

    def level(self, temperature: float | None) -> int:
        """Return which temperature of the ladder is meant, counted from the lowest; None means the lowest."""
        if temperature is None:
            return 0
        nearest = int(np.abs(self.temperatures - temperature).argmin())
        if abs(self.temperatures[nearest] - temperature) > NEAR:
            ladder = ", ".join(f"{T:.1f}" for T in self.temperatures)
            raise ArgumentError(f"no replica was at temperature={temperature:g}; the run in {self.path} has {ladder} K")
        return nearest

    def places(self, level: int) -> np.ndarray:
        """Return replica and frame, (n, 2) int, of all frames at a temperature, in the order of iterations."""
        replica, frame = np.nonzero(self.rows["level"] == level)
        order = np.argsort(self.rows["iteration"][replica, frame], kind="stable")
        return np.stack([replica[order], frame[order]], axis=1)

    def energies(self, level: int) -> np.ndarray:
        """Return the rows of all frames at a temperature, in the order of `places`."""
        return self.rows[tuple(self.places(level).T)]

    def frames(self, places: np.ndarray, atoms: np.ndarray | None = None) -> mdtraj.Trajectory:
        """Return frames at `places` (n, 2), in that order; `atoms` are those to read, all if not given."""
        parts = list(self._read(places, max(1, len(places)), atoms))
        topology = self.structure.to_mdtraj().topology
        return mdtraj.Trajectory(
            parts[0][0] if parts else np.empty((0, topology.n_atoms, 3)),
            topology if atoms is None else topology.subset(atoms),
        )

    def write_trajectory(self, path: str | os.PathLike[str], temperature: float | None = None) -> int:
        """Write all frames at one temperature, in the order of iterations; return how many they are.

        Parameters
        ----------
        path : str or path
            ``.dcd`` or ``.xtc``; it appears when it is complete.
        temperature : float, optional
            K; the lowest if not given.
        """
        target = Path(path)
        if target.suffix not in (".dcd", ".xtc"):
            raise ArgumentError(f"cannot write {target}: its name must end in .dcd or .xtc")
        level = self.level(temperature)
        places = self.places(level)
        if not len(places):
            raise ArgumentError(f"no replica has been at {self.temperatures[level]:.1f} K yet; continue the run first")
        iteration = self.rows["iteration"][tuple(places.T)].astype(np.float32)
        with (
            replacing(target) as temporary,
            quiet_readers(),
            mdtraj.open(str(temporary), "w", force_overwrite=True) as out,
        ):
            done = 0
            for xyz, lengths, angles in self._read(places, CHUNK, None):
                if target.suffix == ".dcd":
                    out.write(10.0 * xyz, cell_lengths=None if lengths is None else 10.0 * lengths, cell_angles=angles)
                else:
                    box = None
                    if lengths is not None and angles is not None:
                        vectors = mdtraj.utils.lengths_and_angles_to_box_vectors(*lengths.T, *angles.T)
                        box = np.stack(vectors, axis=1).astype(np.float32)
                    out.write(xyz, time=iteration[done : done + len(xyz)], box=box)
                done += len(xyz)
        return len(places)

    def _read(
        self, places: np.ndarray, chunk: int, atoms: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]]:
        """Yield positions (n, n_atoms, 3) and box lengths, nm, and box angles, degrees, of up to `chunk` frames each.

        Frames of one replica come in their order, so that files are read forward.
        """
        with ExitStack() as stack, quiet_readers():
            files = {
                r: stack.enter_context(mdtraj.open(str(self._files.replica(r) / TRAJECTORY)))
                for r in np.unique(places[:, 0]).tolist()
            }
            for begin in range(0, len(places), chunk):
                part = places[begin : begin + chunk]
                found: dict[int, tuple[Any, Any, Any]] = {}
                for r, file in files.items():
                    mine = np.flatnonzero(part[:, 0] == r)
                    for first, last in _runs(part[mine, 1]):
                        file.seek(int(part[mine[first], 1]))
                        xyz, lengths, angles = file.read(n_frames=last - first, atom_indices=atoms)
                        for place, i in zip(mine[first:last].tolist(), range(last - first), strict=True):
                            found[place] = xyz[i], *((None, None) if lengths is None else (lengths[i], angles[i]))
                yield _joined([found[place] for place in range(len(part))])


def _joined(frames: list[tuple[Any, Any, Any]]) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return single frames as arrays, lengths in nm instead of Å; box lengths and angles are None without a box."""
    xyz, lengths, angles = zip(*frames, strict=True)
    boxed = all(one is not None and (one > 0).all() for one in lengths)
    return 0.1 * np.array(xyz), 0.1 * np.array(lengths) if boxed else None, np.array(angles) if boxed else None


def _runs(frames: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield first and last (exclusive) place of every stretch of consecutive numbers in `frames`."""
    if len(frames):
        yield from pairwise([0, *(np.flatnonzero(np.diff(frames) != 1) + 1).tolist(), len(frames)])
