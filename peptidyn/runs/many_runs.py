"""Many independent runs, one table of results.

Every run is a `peptidyn.run` in a folder of its own, made by the worker that has it; on a cluster the folder must be on
a file system that all workers share. A run whose worker was lost is continued from its checkpoint by another one. A run
that fails is listed with the reason, and the others go on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.tables import write_csv
from peptidyn.runs.run import run
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import RunSettings, resolve_settings
from peptidyn.sampling.backends import make_backend

TABLE = "ensemble.csv"

COLUMNS = (
    "run", "file", "seed", "status", "time_ps", "frames", "potential_kJ_per_mol", "temperature_K", "acceptance",
    "ns_per_day", "folder", "error",
)  # fmt: skip
"""Of the table: one row per run."""


@dataclass(frozen=True)
class EnsembleResult:
    """What became of all runs.

    Attributes
    ----------
    folder : Path
        With a folder per run and the table as ``ensemble.csv``.
    rows : list of dict
        One per run, with the keys `COLUMNS`; None where there is no value.
    """

    folder: Path
    rows: list[dict[str, Any]]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Rows of the runs that failed; ``error`` says why."""
        return [row for row in self.rows if row["status"] == "failed"]

    def column(self, name: str) -> np.ndarray:
        """Return one numeric column (n_runs,); nan for runs that failed."""
        if name not in COLUMNS:
            raise ArgumentError(f"the table has no column {name!r}; it has {', '.join(COLUMNS)}")
        return np.array([np.nan if row[name] is None else row[name] for row in self.rows], dtype=np.float64)


def run_ensemble(
    items: Sequence[int | str | os.PathLike[str]],
    settings: Mapping[str, Any] | RunSettings | None = None,
    *,
    folder: str | os.PathLike[str] = "ensemble",
    client: Any = None,
    backend: Any = "serial",
    workers: int | None = None,
) -> EnsembleResult:
    """Run many independent simulations.

    Parameters
    ----------
    items : sequence
        Seeds (int), for repeated runs of the structure in `settings`, or structure files, one run each.
    settings : mapping or RunSettings
        As for `peptidyn.run`: ``{"file": "x.pdb", "time": "100ps", "preset": "angles"}``.
    folder : path
        For the runs and the table. Runs in it that are complete are taken as they are, and unfinished ones continued.
    client : dask.distributed.Client, optional
        Use its workers.
    backend, workers
        Without a client: ``serial``, ``threads`` or ``processes``, and how many.

    Returns
    -------
    EnsembleResult
    """
    if not len(items):
        raise ArgumentError("there is nothing to run: give seeds, or structure files")
    given = _given(settings)
    target = Path(folder).absolute()
    tasks = []
    for i, item in enumerate(items):
        if isinstance(item, int | np.integer):
            own = {**given, "seed": int(item)}
        else:
            own = {"seed": i, **given, "file": os.fspath(item)}
        if own.get("file") is not None:
            own["file"] = str(Path(own["file"]).absolute())  # workers may have another current folder
        tasks.append((i, own, str(target / f"run-{i:03d}")))
    with closing(make_backend(backend if client is None else client, workers)) as engine:
        outcomes = engine.run(_run_one, tasks)
    rows = [_row(task, outcome) for task, outcome in zip(tasks, outcomes, strict=True)]
    target.mkdir(parents=True, exist_ok=True)
    write_csv(target / TABLE, COLUMNS, (row.values() for row in rows))
    return EnsembleResult(target, rows)


def _given(settings: Mapping[str, Any] | RunSettings | None) -> dict[str, Any]:
    """Return settings by name; wrong names are refused here, not in every run."""
    if isinstance(settings, RunSettings):
        default = RunSettings()
        names = settings.__dataclass_fields__
        return {name: value for name in names if (value := getattr(settings, name)) != getattr(default, name)}
    given = dict(settings or {})
    resolve_settings({name: value for name, value in given.items() if name != "file"})
    return given


def _run_one(_: Any, index: int, given: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run, or continue, one simulation; return its summary."""
    resume = RunFolder(folder).checkpoint.exists()
    given = {} if resume else given
    return run(folder=folder, resume=resume, overwrite=not resume, progress=False, say=lambda _: None, **given).summary


def _row(task: tuple[int, dict[str, Any], str], outcome: Any) -> dict[str, Any]:
    index, given, folder = task
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"run": index, "file": given.get("file"), "seed": given["seed"], "folder": folder}
    if isinstance(outcome, Exception):
        return row | {"status": "failed", "error": str(outcome) or type(outcome).__name__}
    return row | {"status": "done", **{name: outcome[name] for name in COLUMNS if name in outcome}}
