"""How benchmarks measure: interleaved rounds, minima, warm kernels; and what they say about the machine.

All tasks of a benchmark run in one process, in rounds A, B, C, A, B, C ..., so that a change of clock rate or load
meets all of them alike. In its turn a task is called for some milliseconds; the minimum over all calls of all rounds
counts. Every task is called once beforehand, so compilation is never part of a time.

Two clocks are read for every call. The CPU time of the calling thread is the work itself and hardly depends on what
else the machine does; wall time is what a user waits. On a quiet machine the two agree for whatever runs on one thread.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from peptidyn._version import __version__
from peptidyn.core.errors import ArgumentError
from peptidyn.core.files import write_text
from peptidyn.core.progress import Progress
from peptidyn.io.peptides import build_peptide
from peptidyn.model.build import build_tree
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Task = Callable[[], object]

BURST = 0.02
"""Seconds for which a task is called in its turn of a round; at least one call."""

BUDGET = 10.0
"""Seconds after which a slow task takes no further part in the rounds."""

PACKAGES = ("numpy", "scipy", "numba", "mdtraj", "openmm", "pin", "mujoco")


# ---------------------------------------------------------------------------- clocks


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one task.

    Attributes
    ----------
    cpu, wall : float
        Minima over all calls, of CPU time and of wall time.
    median : float
        Median of the wall time.
    calls : int
    """

    cpu: float
    wall: float
    median: float
    calls: int


def check_rounds(rounds: int) -> None:
    """Raise ArgumentError unless there is at least one round."""
    if rounds < 1:
        raise ArgumentError(f"the number of repeats is {rounds}, expected at least 1")


def first_calls(tasks: Mapping[Key, Task]) -> dict[Key, float]:
    """Call every task once; return the wall seconds, with compilation or loading of compiled code in them."""
    seconds = {}
    for key, task in tasks.items():
        start = time.perf_counter()
        task()
        seconds[key] = time.perf_counter() - start
    return seconds


def interleave(
    tasks: Mapping[Key, Task],
    rounds: int,
    progress: Progress | None = None,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> dict[Key, Timing]:
    """Time tasks in interleaved rounds; see the top of this file.

    Parameters
    ----------
    tasks : mapping from any key to a function without arguments
        Each has been called before.
    rounds : int
        At least 1.
    progress : Progress, optional
        Advanced by one for every turn of a task.
    cpu_clock : function
        ``time.thread_time``, or ``time.process_time`` for tasks that run on several threads.

    Returns
    -------
    dict from key to Timing
    """
    check_rounds(rounds)
    samples: dict[Key, list[tuple[float, float]]] = {key: [] for key in tasks}
    spent = dict.fromkeys(tasks, 0.0)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for key, task in tasks.items():
                if spent[key] < BUDGET:
                    turn = _burst(task, cpu_clock)
                    spent[key] += sum(wall for _, wall in turn)
                    samples[key] += turn
                if progress is not None:
                    progress.advance(1)
    finally:
        if collecting:
            gc.enable()
    return {key: _summary(taken) for key, taken in samples.items()}


def _burst(task: Task, cpu_clock: Callable[[], float]) -> list[tuple[float, float]]:
    """Return (CPU, wall) seconds of as many calls as fit into the burst."""
    taken: list[tuple[float, float]] = []
    end = time.perf_counter() + BURST
    while not taken or time.perf_counter() < end:
        wall, cpu = time.perf_counter(), cpu_clock()
        task()
        cpu, wall = cpu_clock() - cpu, time.perf_counter() - wall
        taken.append((cpu, wall))
    return taken


def _summary(taken: list[tuple[float, float]]) -> Timing:
    cpu, wall = np.array(taken).T
    return Timing(float(cpu.min()), float(wall.min()), float(np.median(wall)), len(taken))


def on_threads(n: int, work: Callable[[], Result]) -> Result:
    """Return what `work` returns, with n threads for compiled code."""
    import numba

    usual = numba.get_num_threads()
    numba.set_num_threads(n)
    try:
        return work()
    finally:
        numba.set_num_threads(usual)


def growth_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Return the exponent k of seconds ~ sizes^k over the last decade of sizes, by least squares of logarithms.

    None if fewer than two sizes lie within a factor of ten of the largest, or a time is not positive.
    """
    n, t = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    last = n * 10.0 >= n.max() if n.size else np.zeros(0, dtype=bool)
    if np.count_nonzero(last) < 2 or not (t[last] > 0).all():
        return None
    return float(np.polyfit(np.log(n[last]), np.log(t[last]), 1)[0])


# ---------------------------------------------------------------------------- molecules


def check_sizes(sizes: Sequence[int]) -> list[int]:
    """Return sizes sorted, without repeats, and even, as a residue has two torsions.

    Raises ArgumentError if there is none, or one is not positive.
    """
    chosen = sorted({n + n % 2 for n in sizes})
    if not chosen:
        raise ArgumentError("no sizes are given, expected numbers of torsions such as 30,100,300")
    if chosen[0] < 1:
        raise ArgumentError(f"a size is {min(sizes)}, expected a positive number of torsions")
    return chosen


def polyalanine(n_torsions: int, seed: int = 1) -> tuple[TreeModel, State]:
    """Return a capped polyalanine with soft phi and psi and free base, and a state near the alpha helix.

    A residue has two torsions, so `n_torsions` is even. They are off the helix by 0.1 rad, normally distributed, so
    that no symmetry helps a solver.
    """
    structure = build_peptide("A" * (n_torsions // 2))
    tree = build_tree(structure, soft="phi psi")
    noise = 0.1 * np.random.default_rng(seed).standard_normal(tree.n_torsions)
    return tree, tree.reference.replace(torsions=tree.reference.torsions + noise)


# ---------------------------------------------------------------------------- machine


def machine() -> dict[str, Any]:
    """Return processor, cores, threads, and versions of what the times depend on."""
    import numba

    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": numba.config.NUMBA_NUM_THREADS,
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "default"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "peptidyn": __version__,
        **{name: found for name in PACKAGES if (found := _version(name)) is not None},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    table = Path("/proc/cpuinfo")
    if table.is_file():
        for line in table.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def load() -> float | None:
    """Return the mean number of running processes over the last minute, or None where the system does not tell."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def format_machine(report: Mapping[str, Any]) -> list[str]:
    """Return lines on the machine of a report and its load."""
    m = report["machine"]
    packages = ", ".join(f"{name} {m[name]}" for name in ("python", "peptidyn", *PACKAGES) if name in m)
    before, after = report["load"]
    busy = "not known" if before is None else f"{before:.2f} before, {after:.2f} after (one-minute averages)"
    if before is not None and before > 0.5:
        busy += "; busy: CPU times hold, wall times and times on several threads are too long"
    return [
        f"machine  {m['cpu']}, {m['cores']} cores, {m['system']}, BLAS threads: {m['blas_threads']}",
        f"         {packages}",
        f"load     {busy}",
    ]


def write_json(report: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a report; the file appears only when it is complete."""
    write_text(path, json.dumps(report, indent=1) + "\n")
