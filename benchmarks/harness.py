"""What all benchmarks share: clocks, tables, what is said about the machine, and the command line.

All tasks of a benchmark run in one process, in rounds A, B, C, A, B, C ..., so that a change of clock rate or load
meets all of them alike. In its turn a task is called for some milliseconds; the minimum over all calls of all rounds
counts. Every task is called once beforehand, so compilation is never part of a time.

Two clocks are read for every call. The CPU time of the calling thread is the work itself and hardly depends on what
else the machine does; wall time is what a user waits. On a quiet machine the two agree for whatever runs on one thread.

A script has a function `measure`, whose keywords are the options of its command line and which returns a dictionary;
`tables`, which makes text of it; and, if there is a picture, `draw`. `run` does the rest.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

if "numpy" not in sys.modules:  # which reads these when it is loaded; all methods are compared on one thread
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(variable, "1")

import numpy as np

from peptidyn._version import __version__
from peptidyn.analysis.plots import new_figure
from peptidyn.core.errors import PeptidynError
from peptidyn.core.files import write_text
from peptidyn.core.progress import Progress

Key = TypeVar("Key", bound=Hashable)
Task = Callable[[], object]
Report = Mapping[str, Any]

BURST = 0.02
"""Seconds for which a task is called in its turn of a round; at least one call."""

BUDGET = 10.0
"""Seconds after which a slow task takes no further part in the rounds."""

PACKAGES = ("numpy", "scipy", "numba", "mdtraj", "openmm", "pin", "mujoco")


# ---------------------------------------------------------------------------- clocks


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one task: minima of CPU and wall time, median of wall time; and the number of calls."""

    cpu: float
    wall: float
    median: float
    calls: int


def first_calls(tasks: Mapping[Key, Task]) -> dict[Key, float]:
    """Call every task once; return the wall seconds, with compilation or loading of compiled code in them."""
    seconds = {}
    for key, task in tasks.items():
        start = time.perf_counter()
        task()
        seconds[key] = time.perf_counter() - start
    return seconds


def interleave(
    tasks: Mapping[Key, Task], rounds: int, cpu_clock: Callable[[], float] = time.thread_time
) -> dict[Key, Timing]:
    """Time tasks in interleaved rounds; see the top of this file.

    Parameters
    ----------
    tasks : mapping from any key to a function without arguments
        Each has been called before.
    rounds : int
        At least 1.
    cpu_clock : function
        ``time.thread_time``, or ``time.process_time`` for tasks that run on several threads.
    """
    samples: dict[Key, list[tuple[float, float]]] = {key: [] for key in tasks}
    collecting = gc.isenabled()
    gc.disable()
    try:
        with Progress(rounds * len(tasks), "measuring", unit="turns") as bar:
            for _ in range(rounds):
                for key, task in tasks.items():
                    if sum(wall for _, wall in samples[key]) < BUDGET:
                        samples[key] += _burst(task, cpu_clock)
                    bar.advance(1)
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


def on_threads(n: int, task: Task) -> Any:
    """Return what `task` returns, with n threads for compiled code, or all if there are fewer."""
    import numba

    usual = numba.get_num_threads()
    numba.set_num_threads(min(n, usual))
    try:
        return task()
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


# ---------------------------------------------------------------------------- tables


def cell(value: float | None, digits: int = 1, scale: float = 1.0) -> str:
    """Return a number for a table; a dash for None."""
    return "-" if value is None else f"{scale * value:,.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table that is aligned for reading; the first column to the left, the others to the right."""
    lines = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    for line in lines:
        line[:] = [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
    listed = Path("/proc/cpuinfo")
    if listed.is_file():
        for line in listed.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def load() -> float | None:
    """Return the mean number of running processes over the last minute, or None where the system does not tell."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def describe_machine(report: Report) -> str:
    """Return lines on the machine of a report and its load."""
    m = report["machine"]
    packages = ", ".join(f"{name} {m[name]}" for name in ("python", "peptidyn", *PACKAGES) if name in m)
    before, after = report["load"]
    busy = "not known" if before is None else f"{before:.2f} before, {after:.2f} after (one-minute averages)"
    if before is not None and before > 0.5:
        busy += "; busy: CPU times hold, wall times and times on several threads are too long"
    return (
        f"machine: {m['cpu']}, {m['cores']} cores, {m['system']}, BLAS threads: {m['blas_threads']}\n"
        f"versions: {packages}\nload: {busy}"
    )


# ---------------------------------------------------------------------------- command line


def parser(file: str, doc: str, repeats: int | None = None) -> argparse.ArgumentParser:
    """Return the parser of a script with the options that scripts share.

    Parameters
    ----------
    file, doc : str
        The script's ``__file__`` and ``__doc__``.
    repeats : int, optional
        Default of ``--repeats``; there is no such option without it.
    """
    made = argparse.ArgumentParser(
        prog=Path(file).name, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if repeats is not None:
        made.add_argument(
            "--repeats",
            type=positive,
            default=repeats,
            metavar="N",
            help=f"rounds of measurements (default: {repeats})",
        )
    made.add_argument(
        "-o", dest="folder", type=Path, metavar="FOLDER", help="write the results there, as numbers, tables and picture"
    )
    return made


def positive(text: str) -> int:
    """Return a positive whole number of the command line."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def sizes(text: str) -> list[int]:
    """Return numbers of torsions, separated by commas: sorted, without repeats, and even, as a residue has two."""
    return sorted({n + n % 2 for n in map(positive, text.split(","))})


def add_sizes(script: argparse.ArgumentParser, default: Sequence[int]) -> None:
    """Add the option ``--sizes``."""
    usual = ",".join(map(str, default))
    script.add_argument(
        "--sizes", type=sizes, default=list(default), metavar="N,N,...", help=f"numbers of torsions (default: {usual})"
    )


def run(
    script: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    measure: Callable[..., dict[str, Any]],
    tables: Callable[[Report], str],
    draw: Callable[[Report, Path], None] | None = None,
) -> int:
    """Parse, measure, print, write; return the exit status: 0 done, 2 a sentence on standard error."""
    options = vars(script.parse_args(arguments))
    folder, name = options.pop("folder"), Path(script.prog).stem
    try:
        if folder is not None:  # what could go wrong with files is found before minutes of measuring
            folder.mkdir(parents=True, exist_ok=True)
            if draw is not None:
                new_figure()  # raises if matplotlib is missing
        before = load()
        found = measure(**options)
        report = {"benchmark": name, "machine": machine(), "load": [before, load()], **options, **found}
        print(text := f"{tables(report)}\n\n{describe_machine(report)}")
        if folder is not None:
            write(folder, name, report, text, draw)
    except (PeptidynError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    return 0


def write(
    folder: Path, name: str, report: Report, text: str, draw: Callable[[Report, Path], None] | None = None
) -> None:
    """Write a report as numbers, as tables and, if it can be drawn, as a picture."""
    write_text(folder / f"{name}.json", json.dumps(report, indent=1, default=str) + "\n")
    write_text(folder / f"{name}.md", text + "\n")
    if draw is not None:
        draw(report, folder / f"{name}.png")
