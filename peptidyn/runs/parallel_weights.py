"""Analysis of many trajectory files at once, on the backends of `peptidyn.sampling.backends`.

Every file is one task. A file that cannot be read is listed with the reason; the others are analysed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.metric.fixman_weights import FixmanWeights, fixman_weights
from peptidyn.model.trajectory_states import open_trajectory
from peptidyn.model.tree import TreeModel
from peptidyn.sampling.backends import make_backend

Paths = Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, eq=False)
class FileResults:
    """One result per file.

    Attributes
    ----------
    files : list of Path
    values : list
        Result of each file; None where it failed.
    failures : dict
        Reason for each file that failed.
    """

    files: list[Path]
    values: list[Any]
    failures: dict[Path, str]

    @property
    def good(self) -> list[Any]:
        """The results that there are."""
        return [value for value in self.values if value is not None]


def weigh_files(
    tree: TreeModel, files: Paths, temperature: float, *, top: Any = None, backend: Any = "serial",
    workers: int | None = None,
) -> FileResults:  # fmt: skip
    """Return the `FixmanWeights` of every file.

    Weights are normalised within each file; ``exp(-energy / kT)`` of all of them weighs frames of different files
    against each other.

    Parameters
    ----------
    tree : TreeModel
    files : sequence of path
        Trajectories; see `open_trajectory`.
    temperature : float
        K.
    top : path, optional
        Topology of the files.
    backend, workers
        ``serial``, ``threads``, ``processes``, or a dask.distributed Client.
    """
    return _map(_weigh, tree, files, (float(temperature), top), backend, workers)


def measure_files(
    tree: TreeModel, files: Paths, *, top: Any = None, stride: int = 1, backend: Any = "serial",
    workers: int | None = None,
) -> FileResults:  # fmt: skip
    """Return the soft torsions (n_frames, n_torsions), rad, of every file; parameters as in `weigh_files`."""
    return _map(_measure, tree, files, (top, stride), backend, workers)


def histogram_files(
    tree: TreeModel, files: Paths, bins: int = 36, *, top: Any = None, stride: int = 1, backend: Any = "serial",
    workers: int | None = None,
) -> tuple[np.ndarray, np.ndarray, FileResults]:  # fmt: skip
    """Return the density of every soft torsion over all files, and the bin edges.

    Returns
    -------
    density : (n_torsions, bins), 1/rad
    edges : (bins + 1,), rad
    results : FileResults
        Counts (n_torsions, bins) of every file.
    """
    if bins < 1:
        raise ArgumentError(f"bins is {bins}, expected 1 or more")
    results = _map(_count, tree, files, (top, stride, bins), backend, workers)
    edges = np.linspace(-np.pi, np.pi, bins + 1)
    counts = sum(results.good, np.zeros((tree.n_torsions, bins)))
    total = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, total, out=np.zeros_like(counts), where=total > 0) / (edges[1] - edges[0]), edges, results


def _map(
    function: Callable[..., Any], tree: TreeModel, files: Paths, options: tuple[Any, ...], backend: Any,
    workers: int | None,
) -> FileResults:  # fmt: skip
    paths = [Path(file).absolute() for file in files]
    if not paths:
        raise ArgumentError("there are no files to analyse")
    with closing(make_backend(backend, workers)) as engine:
        outcomes = engine.run(function, [(str(path), *options) for path in paths], tree)
    failures = {p: str(o) or type(o).__name__ for p, o in zip(paths, outcomes, strict=True) if isinstance(o, Exception)}
    return FileResults(paths, [None if isinstance(o, Exception) else o for o in outcomes], failures)


def _weigh(tree: TreeModel, path: str, temperature: float, top: Any) -> FixmanWeights:
    return fixman_weights(tree, path, temperature, top=top)


def _measure(tree: TreeModel, path: str, top: Any, stride: int) -> np.ndarray:
    parts = [chunk.torsions for chunk in open_trajectory(tree, path, top, stride=stride).chunks()]
    return np.concatenate(parts) if parts else np.empty((0, tree.n_torsions))


def _count(tree: TreeModel, path: str, top: Any, stride: int, bins: int) -> np.ndarray:
    torsions = _measure(tree, path, top, stride)
    wrapped = (torsions + np.pi) % (2 * np.pi) - np.pi
    edges = np.linspace(-np.pi, np.pi, bins + 1)
    return np.array([np.histogram(column, edges)[0] for column in wrapped.T], dtype=np.float64)
