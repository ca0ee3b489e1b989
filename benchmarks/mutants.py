"""Would the tests notice? Puts single-line faults into the physics and reports those that the default tests let pass.

    python benchmarks/mutants.py [--only WORD] [--jobs N] [--seconds S] [--work FOLDER] [-o FOLDER]
    python benchmarks/mutants.py --made 100 --seed 1    # others, drawn from all that a rule makes of the same files
    python benchmarks/mutants.py --faults mine.toml --all --work FOLDER    # those of another list, by all default tests

The faults are those of `benchmarks/faults.toml`. Each is put into a copy of the project, in which the default tests of
its room are run; a test that fails has caught it. First the tests must pass without any fault. A fault whose tests run
longer than S seconds, or take 4 GB of memory, counts as caught: something has stopped converging.

With --all, a fault that the tests of its room let pass is tried with all other default tests that run one of its
lines, which a run of the whole suite under coverage tells (some minutes, kept in FOLDER; needs pytest-cov). A line
outside of functions runs once, at import: a fault there is tried with all tests that run any line of the file. For
lines that are not seen to run, in compiled functions and in commands, all default tests are asked, some minutes for
each. A fault of another list that names no tests has those that the list has for its file.

With --made the faults are not those of the list, which tests were written for, but a random choice of those that
`made_faults.py` makes: what share of them survives says how well tests see a fault that nobody thought of. Some change
nothing that matters, such as a tolerance, or a branch that saves time; those are to be read, not caught.

The copies stay in the folder that --work names, so that a second run finds compiled kernels there. So do the results,
in `results.json`: a fault is tried again only if its text, its file or one of its test files changed.
A run that was stopped goes on where it was. The exit status is 1 if a fault survives that is not listed with a reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import harness
from harness import Report
from line_tests import LineTests, record
from made_faults import made_faults
from peptidyn.core.errors import ArgumentError
from peptidyn.core.files import write_text
from peptidyn.core.progress import Progress

ROOT = Path(__file__).parents[1]
PACKAGE = "peptidyn"
COPIED = (
    PACKAGE, "tests", "benchmarks", "data", "examples", "docs", "conda", ".ci", ".github", "pyproject.toml",
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "LICENSE",
)  # fmt: skip

SECONDS = 600
"""Time for the tests of one fault."""

PYTEST = (
    "-x", "-q", "-o", "addopts=", "-m", "not slow and not browser", "--assert=plain", "--tb=no",
    "-p", "no:cacheprovider", "-p", "no:unraisableexception",
)  # fmt: skip
"""Only whether a test fails counts: half of the time of a small test file goes into plugins and better messages."""

UNCOMPILED = {"NUMBA_DISABLE_JIT": "1", "PEPTIDYN_LANES": "plain"}
NOTICED = ("caught", "timed out")
"""Outcomes of faults that tests notice."""

PASSED, FAILED, TIMED_OUT = 0, 1, -1
"""Exit status of a run; other negative ones are signals that ended it, all others mean that tests could not be run."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes
    ----------
    what : str
        What is wrong with it, in words.
    file : str
        Relative to the root of the project.
    old, new : str
        The text of the package, and what stands there instead.
    tests : tuple of str
        Files of the default tests that must notice it, the likeliest first.
    compiled : bool
        Whether kernels are compiled.
    reason : str
        Why no default test can notice it; empty for all that must be noticed.
    """

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    compiled: bool = True
    reason: str = ""


def read_faults(path: Path | None = None) -> list[Fault]:
    """Return all faults of a list, `benchmarks/faults.toml` unless another is named."""
    path = path or ROOT / "benchmarks" / "faults.toml"
    try:
        rooms = tomllib.loads(path.read_text(encoding="utf-8"))["room"]
        return [
            Fault(
                file=room["file"], tests=tuple(map(_test_path, room.get("tests", ()))),
                compiled=room.get("compiled", True), **fault,
            )
            for room in rooms
            for fault in room["fault"]
        ]  # fmt: skip
    except (KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        raise ArgumentError(
            f"{path.name} is no list of faults, which benchmarks/faults.toml is an example of: {error}"
        ) from error


def _test_path(name: str) -> str:
    """Return what pytest is asked for: ``moves::test_x`` is test_x of tests/test_moves.py."""
    file, _, test = name.partition("::")
    return f"tests/test_{file}.py" + (f"::{test}" if test else "")


def faulty(fault: Fault, text: str) -> str:
    """Return a file's text with the fault; ArgumentError unless what it replaces stands there exactly once."""
    if (count := text.count(fault.old)) != 1:
        raise ArgumentError(
            f"the fault {fault.what!r} replaces text that stands {count} times in {fault.file}, not once"
        )
    return text.replace(fault.old, fault.new)


def room_of(file: str, known: Sequence[Fault]) -> tuple[tuple[str, ...], bool]:
    """Return the tests of all known faults of a file and its own test file, and whether it is tried compiled."""
    own, here = f"tests/test_{Path(file).name}", [fault for fault in known if fault.file == file]
    every = dict.fromkeys(test for fault in here for test in fault.tests)
    if (ROOT / own).exists():
        every[own] = None
    tests = tuple(test for test in every if "::" not in test or test.partition("::")[0] not in every)
    return tests, all(fault.compiled for fault in here)


def make_faults(count: int, seed: int, only: str | None = None) -> list[Fault]:
    """Return faults by rule in the files of the list, with its tests for a file and the test file of the same name.

    A file is drawn by the square root of the number of its faults, then one of them.
    """
    known = read_faults()
    pool = {}
    for file in dict.fromkeys(fault.file for fault in known):
        if only is None or only.lower() in file.lower():
            text, (tests, compiled) = (ROOT / file).read_text(encoding="utf-8"), room_of(file, known)
            pool[file] = [Fault(what, file, old, new, tests, compiled) for what, old, new in made_faults(text)]
    rng, drawn = random.Random(seed), set()
    files, weights = list(pool), [len(made) ** 0.5 for made in pool.values()]
    while len(drawn) < min(count, sum(map(len, pool.values()))):
        drawn.add(rng.choice(pool[rng.choices(files, weights)[0]]))
    return sorted(drawn, key=lambda fault: (fault.file, fault.what))


def choose(only: str | None, made: int = 0, seed: int = 0, faults: Path | None = None) -> list[Fault]:
    """Return the faults of a list, or made ones; with `only` those whose file (or description) holds this word."""
    if made:
        chosen = make_faults(made, seed, only)
    else:
        chosen = [f for f in read_faults(faults) if only is None or only.lower() in f"{f.file} {f.what}".lower()]
    if not chosen:
        raise ArgumentError(f"no fault is about {only!r}; {faults or 'benchmarks/faults.toml'} lists them")
    for fault in chosen:
        faulty(fault, (ROOT / fault.file).read_text(encoding="utf-8"))
    return [fault if fault.tests else _with_room(fault) for fault in chosen]


def _with_room(fault: Fault) -> Fault:
    tests, compiled = room_of(fault.file, read_faults())
    return replace(fault, tests=tests, compiled=compiled)


class Results:
    """What came of faults, kept in a file so that another run need not try them again.

    Parameters
    ----------
    folder : path, optional
        Where ``results.json`` is; without it nothing is kept.
    """

    def __init__(self, folder: Path | None):
        self._path = None if folder is None else Path(folder) / "results.json"
        self._rows: dict[str, dict[str, Any]] = {}
        if self._path is not None and self._path.is_file():
            self._rows = json.loads(self._path.read_text(encoding="utf-8"))

    def find(self, key: str, *outcomes: str) -> dict[str, Any] | None:
        """Return the row that was kept under this key, if its outcome is one of these, or None."""
        row = self._rows.get(key)
        return row if row is not None and row["outcome"] in outcomes else None

    def keep(self, key: str, row: dict[str, Any]) -> None:
        """Store a row under its key, in the file as well."""
        self._rows[key] = row
        if self._path is not None:
            write_text(self._path, json.dumps(self._rows, indent=1) + "\n")


def key_of(fault: Fault, all_tests: bool = False) -> str:
    """Return a digest of the fault, of the file it is put into and of the files of its tests, as they are now."""
    what = repr((fault.file, fault.old, fault.new, fault.tests, fault.compiled))
    return _digest(what, [ROOT / fault.file, *(_all_sources() if all_tests else _test_files(fault))])


def key_of_room(fault: Fault) -> str:
    """Return a digest of the tests of a fault and of all sources, as they are now."""
    sources = [path for path in _all_sources() if path.parent != ROOT / "tests"]
    return _digest(repr((fault.tests, fault.compiled)), [*sources, *_test_files(fault)])


def _all_sources() -> list[Path]:
    return sorted(path for name in COPIED for path in (ROOT / name).rglob("*.py"))


def _test_files(fault: Fault) -> list[Path]:
    return sorted({ROOT / test.partition("::")[0] for test in fault.tests})


def _digest(what: str, files: Sequence[Path]) -> str:
    return hashlib.sha256("\0".join([what, *(file.read_text(encoding="utf-8") for file in files)]).encode()).hexdigest()


class Workshop:
    """A copy of the project in which one fault at a time is tried.

    Parameters
    ----------
    folder : path
        Where the copy and what is compiled from it are kept.
    """

    def __init__(self, folder: Path):
        self.project, self.cache, self.output = folder / "project", folder / "compiled", folder / "output"
        self.cache.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.project, ignore_errors=True)
        self.project.mkdir()
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.project / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, self.project / name)
        environment = {
            **os.environ, "PYTHONPATH": str(self.project), "NUMBA_CACHE_DIR": str(self.cache), "OMP_NUM_THREADS": "1",
            "OPENMM_CPU_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        self._server = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks" / "pytest_server.py")], cwd=self.project, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def close(self) -> None:
        """End the process that runs the tests."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    @contextmanager
    def broken(self, fault: Fault) -> Iterator[None]:
        """Hold the fault in the copy; the file is afterwards what it was, its time included."""
        path = self.project / fault.file
        text, stat = path.read_bytes(), path.stat()
        path.write_text(faulty(fault, text.decode()), encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(text)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def test(self, fault: Fault, seconds: float) -> tuple[str, str]:
        """Run the tests of a fault as the copy is now; return what came of it, and the first test that failed."""
        assert self._server.stdin is not None and self._server.stdout is not None
        quiet = [] if fault.compiled else ["-W", "ignore::RuntimeWarning"]  # numpy warns where compiled code does not
        request = {
            "arguments": [*PYTEST, *quiet, *fault.tests],
            "environment": {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | ({} if fault.compiled else UNCOMPILED),
            "seconds": seconds,
            "output": str(self.output),
        }
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        status = int(answer) if answer else 3
        if status == TIMED_OUT:
            return "timed out", ""
        said = self.output.read_text(encoding="utf-8", errors="replace")
        if status < 0 and status != -signal.SIGKILL:  # which comes from outside: the system is short of memory
            return "caught", f"tests were ended by {signal.Signals(-status).name}"
        first = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
        where = first[1] if first else (said.strip().splitlines() or ["no output"])[-1]
        return {PASSED: ("survived", ""), FAILED: ("caught", where)}.get(status, ("not run", where))


@contextmanager
def _workshops(jobs: int, work: Path | None) -> Iterator[SimpleQueue[Workshop]]:
    """Give a queue of workshops, in `work` or in a temporary folder."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if work is None else Path(work).resolve()
        made = [Workshop(folder / f"copy-{i}") for i in range(jobs)]
        free: SimpleQueue[Workshop] = SimpleQueue()
        for shop in made:
            free.put(shop)
        try:
            yield free
        finally:
            for shop in made:
                shop.close()


def attempt(
    shops: SimpleQueue[Workshop], fault: Fault, seconds: float, broken: bool, others: LineTests | None = None
) -> dict[str, Any]:
    """Run the tests of a fault in the next free workshop, with the fault or without it; return its row.

    With `others`, a fault that they let pass is tried with all tests that run its lines.
    """
    shop, begin = shops.get(), time.perf_counter()
    try:
        with shop.broken(fault) if broken else nullcontext():
            outcome, test = shop.test(fault, seconds) if fault.tests else ("survived", "")
            if outcome == "survived" and others is not None:
                tests = others.running(fault.file, (ROOT / fault.file).read_text(encoding="utf-8"), fault.old)
                if tests:
                    outcome, test = shop.test(replace(fault, tests=tests, compiled=True), 4 * seconds)
    finally:
        shops.put(shop)
    spent = round(time.perf_counter() - begin, 1)
    if broken and outcome != "caught":
        print(f"{outcome}: {fault.file}: {fault.what} {test}", file=sys.stderr, flush=True)
    return {"fault": fault.what, "file": fault.file, "outcome": outcome, "test": test, "seconds": spent}


def try_faults(
    faults: Sequence[Fault], shops: SimpleQueue[Workshop], results: Results, jobs: int, seconds: float,
    others: LineTests | None = None,
) -> Iterator[Any]:  # fmt: skip
    """Yield (fault, row) for each, room by room, after the tests of its room have passed without a fault."""
    rooms: dict[Any, list[Fault]] = {}
    for fault in faults:
        rooms.setdefault((fault.tests, fault.compiled), []).append(fault)
    with ThreadPoolExecutor(jobs) as pool, Progress(len(rooms) + len(faults), "mutants", "runs") as bar:
        for room in rooms.values():
            key = key_of_room(room[0])
            if room[0].tests and results.find(key, "survived") is None:
                row = attempt(shops, room[0], 10 * seconds, False)  # which also compiles
                if row["outcome"] != "survived":
                    raise ArgumentError(f"{' '.join(room[0].tests)} without a fault: {row['outcome']}: {row['test']}")
                results.keep(key, {**row, "fault": "none"})
            bar.advance(1)
            rows = pool.map(lambda fault: attempt(shops, fault, seconds, True, others), room)
            for fault, row in zip(room, rows, strict=True):
                yield fault, row
                bar.advance(1, f"{row['outcome']}: {row['fault']}"[:60])


def _line_tests(shops: SimpleQueue[Workshop], work: Path | None) -> LineTests:
    """Return which tests run which lines, as a run in one of the workshops tells or told."""
    if work is None:
        raise ArgumentError("which tests run which lines is kept in a folder: name one with --work")
    shop = shops.get()
    try:
        return record(shop.project, PACKAGE, Path(work).resolve(), _digest("", _all_sources()))
    finally:
        shops.put(shop)


def measure(
    only: str | None = None, jobs: int = 1, seconds: float = SECONDS, work: Path | None = None, made: int = 0,
    seed: int = 0, faults: Path | None = None, all_tests: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Try all faults, or those about a word, or made ones; return a row for each, and how many survived."""
    chosen, results = choose(only, made, seed, faults), Results(work)
    keys = {fault: key_of(fault, all_tests) for fault in chosen}
    rows = {fault: row for fault in chosen if (row := results.find(keys[fault], *NOTICED, "survived")) is not None}
    untried = [fault for fault in chosen if fault not in rows]
    if untried:
        with _workshops(jobs, work) as shops:
            others = _line_tests(shops, work) if all_tests else None
            for fault, row in try_faults(untried, shops, results, jobs, seconds, others):
                results.keep(keys[fault], row)
                rows[fault] = row
    found = [{**rows[fault], "reason": fault.reason} for fault in chosen]
    return {
        "faults": found, "tried": len(untried), "survivors": sum(row["outcome"] == "survived" for row in found),
    }  # fmt: skip


def tables(report: Report) -> str:
    """Return the report as text for people."""
    rows = report["faults"]
    by_file: dict[str, list[str]] = {}
    for row in rows:
        by_file.setdefault(row["file"], []).append(row["outcome"])
    head = harness.table(
        ["file", "faults", "survived"], [(name, len(all_), all_.count("survived")) for name, all_ in by_file.items()]
    )
    share = 100.0 * report["survivors"] / len(rows)
    lines = [head, "", f"{report['survivors']} of {len(rows)} faults survived ({share:.1f}%)"]
    lines.append(f"{report['tried']} were tried now, the others by an earlier run in the same folder")
    for row in rows:
        if row["outcome"] not in NOTICED:
            why = f" ({row['reason']})" if row["reason"] else f" {row['test']}".rstrip()
            lines.append(f"- {row['outcome']}: {row['file']}: {row['fault']}{why}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    script = harness.parser(__file__, __doc__ or "")
    script.add_argument("--only", metavar="WORD", help="only faults whose file or description holds this")
    script.add_argument("--jobs", type=harness.positive, default=1, metavar="N", help="faults at a time (default: 1)")
    script.add_argument(
        "--seconds", type=harness.positive, default=SECONDS, metavar="S",
        help=f"time for the tests of one fault (default: {SECONDS})",
    )  # fmt: skip
    script.add_argument(
        "--made", type=harness.positive, default=0, metavar="N", help="try N faults made by rule, not those of the list"
    )
    script.add_argument("--seed", type=int, default=0, help="of the choice of made faults (default: 0)")
    script.add_argument("--faults", type=Path, metavar="FILE", help="try those of another list of the same form")
    script.add_argument(
        "--all", action="store_true", dest="all_tests", help="ask all default tests that run a line of the fault"
    )
    script.add_argument("--work", type=Path, metavar="FOLDER", help="keep the copies there (default: a temporary one)")
    unexplained: list[dict[str, Any]] = []

    def judged(**options: Any) -> dict[str, Any]:
        found = measure(**options)
        unexplained.extend(row for row in found["faults"] if row["outcome"] not in NOTICED and not row["reason"])
        return found

    return harness.run(script, arguments, judged, tables) or int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
