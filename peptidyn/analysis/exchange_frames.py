"""Frames of a replica exchange run at one temperature."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from peptidyn.core.errors import ArgumentError
from peptidyn.runs.exchange_run import ExchangeRun

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
    run = ExchangeRun(folder)
    if not 0 <= level < run.n_replicas:
        raise ArgumentError(
            f"the level is {level}, and {run.path} has {run.n_replicas} replicas; expected 0 to {run.n_replicas - 1}"
        )
    return run.frames(run.places(level))
