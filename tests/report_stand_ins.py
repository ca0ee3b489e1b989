"""Runs in memory for the tables of reports, with frames and energies that are written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mdtraj
import numpy as np

import peptidyn as ptd
from peptidyn.sampling.exchange import count_round_trips
from peptidyn.sampling.storage import ENERGY_ROW


@dataclass
class Run:
    """Stands in for `RunFolder`."""

    settings: Any
    tree: ptd.TreeModel
    structure: ptd.Structure
    table: dict[str, np.ndarray]
    summary: dict[str, Any] = field(default_factory=dict)
    trajectory: Path | None = None
    ending: str = "finished"
    path: Path = Path("some/run")

    @property
    def n_frames(self) -> int:
        return len(self.table["time"])

    @property
    def q(self) -> np.ndarray:
        q = np.empty((self.n_frames, self.tree.n_coordinates))
        for name, places in self.tree.groups.items():
            q[:, places] = self.table[name]
        return q


def make_table(tree: ptd.TreeModel, torsions: np.ndarray, **columns: Any) -> dict[str, np.ndarray]:
    """Return the table of a run with torsions (n_frames, n), degrees, 0.5 ps and 100 steps apart, from 2 ps on."""
    n = len(torsions)
    table = {name: np.zeros(n) for name in ("potential", "kinetic", "fixman", "total", "temperature")}
    table |= {"time": 2.0 + 0.5 * np.arange(n), "step": 400 + 100 * np.arange(n), "acceptance": np.full(n, np.nan)}
    table |= {"torsions": np.deg2rad(torsions), "iterations": np.full(n, 4)}
    chosen = tree.torsions
    table |= {f"torsion_{name}": np.array([getattr(c, name) for c in chosen]) for name in ("kind", "chain", "residue")}
    table |= {
        f"torsion_{name}": np.array([getattr(c, name) for c in chosen]) for name in ("residue_name", "residue_id")
    }
    for name in ("phases", "bends", "stretches"):
        table[name] = np.tile(tree.q_reference[tree.groups[name]], (n, 1))
    return {**table, **{name: np.asarray(values) for name, values in columns.items()}}


@dataclass
class Ladder:
    """Stands in for `ExchangeRun`: replica r holds level r in all frames, which are of iterations 10, 12, 14, ..."""

    structure: ptd.Structure
    temperatures: np.ndarray
    x: np.ndarray
    """(n_levels, n_frames, n_atoms, 3)"""
    potential: np.ndarray
    """(n_levels, n_frames)"""
    walk: np.ndarray
    moves: list[dict[str, Any]] = field(default_factory=list)
    settings: Any = None
    summary: dict[str, Any] = field(default_factory=dict)
    ending: str = "finished"
    path: Path = Path("some/ladder")
    force_calls: int = 1234

    @property
    def n_replicas(self) -> int:
        return len(self.temperatures)

    @property
    def n_frames(self) -> int:
        return self.x.shape[1]

    @property
    def round_trips(self) -> np.ndarray:
        return count_round_trips(self.walk, self.n_replicas)

    @property
    def acceptance(self) -> np.ndarray:
        return np.linspace(0.3, 0.5, self.n_replicas - 1)

    @property
    def move_acceptance(self) -> np.ndarray:
        return np.linspace(0.1, 0.9, self.n_replicas * len(self.moves)).reshape(self.n_replicas, -1)

    def places(self, level: int) -> np.ndarray:
        return np.array([(level, frame) for frame in range(self.n_frames)])

    def energies(self, level: int) -> np.ndarray:
        rows = np.zeros(self.n_frames, ENERGY_ROW)
        rows["iteration"], rows["level"] = 10 + 2 * np.arange(self.n_frames), level
        rows["temperature"], rows["potential"] = self.temperatures[level], self.potential[level]
        return rows

    def frames(self, places: np.ndarray, atoms: np.ndarray | None = None) -> mdtraj.Trajectory:
        frames = mdtraj.Trajectory(self.x[tuple(places.T)], self.structure.to_mdtraj().topology)
        return frames if atoms is None else frames.atom_slice(atoms)
