"""Frames of a replica exchange run at one temperature."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.engine.run_files import TOPOLOGY_PDB
from peptidyn.io.quiet import quiet_readers
from peptidyn.runs.run_folder import RunFolder
from peptidyn.sampling.storage import ENERGIES, TRAJECTORY, ExchangeFolder

if TYPE_CHECKING:
    import mdtraj


def exchange_frames(folder: str | os.PathLike[str], level: int = 0) -> mdtraj.Trajectory:
    """Return all frames that were sampled at one temperature, in the order of iterations.

    Parameters
    ----------
    folder : str or path
        Of a replica exchange run.
    level : int
        Of the temperature, counted from the lowest.
    """
    import mdtraj

    path = RunFolder(folder).path
    count = len(sorted(path.glob("replica-*")))
    if not 0 <= level < count:
        raise ArgumentError(f"the level is {level}, and {path} has {count} replicas; expected 0 to {count - 1}")
    files = ExchangeFolder(path, count)
    parts, iterations = [], []
    top = mdtraj.load_topology(str(path / TOPOLOGY_PDB))
    for r in range(count):
        rows = np.load(files.replica(r) / ENERGIES)
        chosen = np.flatnonzero(rows["level"] == level)
        if len(chosen):
            with quiet_readers():
                parts.append(mdtraj.load(str(files.replica(r) / TRAJECTORY), top=top).xyz[chosen])
            iterations.append(rows["iteration"][chosen])
    order = np.argsort(np.concatenate(iterations), kind="stable")
    return mdtraj.Trajectory(np.concatenate(parts)[order], top)
