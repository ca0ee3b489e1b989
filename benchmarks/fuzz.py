"""Does damaged input end in one sentence, or in a traceback, in changed numbers, or without end?

    python benchmarks/fuzz.py [--structures N] [--folders N] [--options N] [--kills N] [--first N] [--seed N] [-o DIR]

Structure files are damaged and read; an atom line that is not in the structure must be in a note. Folders of runs and
of replica exchange are damaged and continued or reported: the command must refuse them with one sentence, or give what
it gives without the damage. Sets of options with hostile values must be refused or run, and leave no folder when they
are refused; runs that would be long are interrupted. With --kills, runs and replica exchange are killed (SIGKILL) at
random moments, and must be identical after --resume.

Every case follows from the seed and its number; --first is the number that all kinds begin with, so that long counts
can be split. Cases that went wrong are printed when they are met. The exit status is 1 if there were any.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import harness
from damage import NUMBERS, damage_file, damage_text, files_of
from harness import Report
from peptidyn.cli import main as peptidyn
from peptidyn.core.errors import PeptidynError
from peptidyn.core.progress import Progress
from peptidyn.engine.run_files import SUMMARY
from peptidyn.engine.systems import load_force_field
from peptidyn.io.readers import load_structure

DATA = Path(__file__).parents[1] / "data"
QUICK = ("--solvent", "vacuum", "--platform", "Reference", "--equilibrate", "0ps", "--no-relax", "-q")
SMALL = ("--replicas", "2", "--tmin", "300", "--tmax", "301", "--interval", "10", "--warm-up", "0")
EXCHANGE = ("--workers", "1", "--solvent", "vacuum", "--platform", "Reference", "--no-relax", "-q", *SMALL)

MOST_SHOWN = 20
"""Bad cases that a report lists."""


@dataclass
class Outcomes:
    """What became of many cases.

    Attributes
    ----------
    counts : Counter
        ``done``, ``refused``, ``raw`` (another error than those of peptidyn, or more than one line of text), ``silent``
        (something was changed or left out, and nothing said so).
    bad : list of str
        The first raw and silent ones.
    slowest : (float, str)
        CPU seconds, and the case.
    """

    counts: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "none")

    def add(self, case: str, outcome: str, detail: str, seconds: float) -> None:
        self.counts[outcome] += 1
        self.slowest = max(self.slowest, (seconds, case))
        if outcome in ("raw", "silent") and len(self.bad) < MOST_SHOWN:
            self.bad.append(f"{outcome}: {case}: {detail}")
            print(self.bad[-1], file=sys.stderr, flush=True)


def judge(cases: Iterator[tuple[str, Callable[[], tuple[str, str]]]], count: int, what: str) -> dict[str, Any]:
    """Run cases, each a name and a function that returns its outcome and a detail."""
    outcomes = Outcomes()
    with Progress(count, what, "cases") as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case, run in cases:
            begin = time.process_time()
            try:
                outcome, detail = run()
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                outcome, detail = "raw", f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            outcomes.add(case, outcome, detail, time.process_time() - begin)
            bar.advance(1)
    counts = {kind: outcomes.counts[kind] for kind in ("done", "refused", "raw", "silent")}
    print(f"{what}: {counts}, peak memory {peak_memory()} MB", file=sys.stderr, flush=True)
    return {**counts, "bad": outcomes.bad, "slowest": list(outcomes.slowest)}


# ---------------------------------------------------------------------------- structure files


def structure_cases(
    count: int, seed: int, folder: Path, first: int = 0
) -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
    """Yield cases of damaged structure files, which are written to `folder`."""
    sources = _sources(folder)
    for number in range(first, first + count):
        rng = np.random.default_rng([seed, 1, number])
        name, data = sources[int(rng.integers(len(sources)))]
        damaged, kinds = damage_text(data, rng)
        file = folder / f"case{Path(name).suffix}"

        def run(file: Path = file, damaged: bytes = damaged) -> tuple[str, str]:
            file.write_bytes(damaged)
            return read_damaged(file)

        yield f"structure {number}, {name}, {kinds}", run


def _sources(folder: Path) -> list[tuple[str, bytes]]:
    """Return small files of both formats, with their names."""
    small = DATA / "ala1.pdb"
    structure = load_structure(small)
    structure.write(folder / "whole.cif")
    lines = small.read_bytes()
    end = lines.index(b"END") if b"END" in lines else len(lines)
    models = b"MODEL        1\n" + lines[:end] + b"ENDMDL\nMODEL        2\n" + lines[:end] + b"ENDMDL\nEND\n"
    cell = f"CRYST1{30:9.3f}{30:9.3f}{30:9.3f}{90:7.2f}{90:7.2f}{90:7.2f} P 1           1\n".encode()
    return [
        ("ala1.pdb", lines), ("ala1.cif", (folder / "whole.cif").read_bytes()), ("models.pdb", models),
        ("cell.pdb", cell + lines),
    ]  # fmt: skip


def read_damaged(file: Path) -> tuple[str, str]:
    """Return what becomes of a structure file that may be damaged; see `Outcomes`."""
    try:
        structure = load_structure(file)
    except PeptidynError as error:
        return ("raw", "two lines") if "\n" in str(error) else ("refused", str(error))
    lost = count_atom_lines(file) - structure.n_atoms
    said = any(note.kind in ("altloc", "models", "dropped", "skipped") for note in structure.notes)
    if lost > 0 and not said:
        return "silent", f"{lost} of the atom lines are not in the structure, and no note says so"
    return "done", ""


def count_atom_lines(file: Path) -> int:
    """Return how many lines look like atoms of the first model, in PDB or as rows of mmCIF."""
    count = 0
    for line in file.read_bytes().decode("latin-1").replace("\r", "\n").split("\n"):
        if line.startswith(("ENDMDL", "END ")) or line.strip() == "END":
            break
        if line.startswith(("ATOM  ", "HETATM")) and (file.suffix == ".pdb" or len(line.split()) >= 18):
            count += 1
    return count


# ---------------------------------------------------------------------------- folders


def make_folders(work: Path) -> None:
    """Make the folders that are damaged: a run, a killed run and a replica exchange, and the same of another seed."""
    for name, seed in (("run", "5"), ("foreign-run", "6")):
        command = ["run", str(DATA / "ala1.pdb"), *QUICK, "--report", "2", "--steps", "12", "--seed", seed]
        assert peptidyn([*command, "-o", str(work / name)]) == 0
        command = ["exchange", str(DATA / "ala1.pdb"), *EXCHANGE, "--iterations", "3", "--seed", seed]
        assert peptidyn([*command, "-o", str(work / name.replace("run", "exchange"))]) == 0


@contextlib.contextmanager
def without_pictures() -> Iterator[None]:
    """Leave out what costs most and damage does not reach.

    Pictures at the end of runs; drawing those of a report, of which a digest of what they show is written; reading the
    files of force fields again and again; and averages by MBAR, which hardly converge for a handful of frames.
    """
    with (
        patch("peptidyn.analysis.run_plots.plot_run"),
        patch("peptidyn.analysis.exchange_plots.plot_exchange"),
        patch("matplotlib.figure.Figure.savefig", write_digest),
        patch("peptidyn.engine.systems.load_force_field", kept_force_field),
        patch("peptidyn.sampling.exchange.ReplicaExchange._energy_summary", lambda self: {}),
    ):
        yield


_loaded: dict[str, Any] = {}


def kept_force_field(*arguments: Any) -> Any:
    """Return what `load_force_field` returns, from the files only once."""
    key = repr(arguments)
    if key not in _loaded:
        _loaded[key] = load_force_field(*arguments)
    return _loaded[key]


def write_digest(figure: Any, file: Any, **options: Any) -> None:
    """Write, in place of a picture, a digest of the numbers and words in it."""
    shown: list[Any] = [figure.get_suptitle()]
    for axes in figure.axes:
        shown += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), axes.get_xlim(), axes.get_ylim()]
        shown += [text.get_text() for text in axes.texts]
        shown += [np.asarray(line.get_xydata(), dtype=np.float64).tobytes() for line in axes.lines]
        shown += [np.asarray(image.get_array(), dtype=np.float64).tobytes() for image in axes.images]
        shown += [patch.get_path().vertices.tobytes() + repr(patch.get_extents()).encode() for patch in axes.patches]
        for part in axes.collections:
            values = part.get_array()
            shown.append(np.ma.filled(part.get_offsets(), np.nan).tobytes())
            shown.append(b"" if values is None else np.ma.filled(values, np.nan).tobytes())
            shown += [path.vertices.tobytes() for path in part.get_paths()]
    file.write(hashlib.sha256(repr(shown).encode()).digest())


@dataclass(frozen=True)
class Use:
    """What is done with a folder.

    Attributes
    ----------
    source : str
        The folder of `make_folders`.
    arguments : str
        Of the command line; ``{}`` is the folder.
    result : str
        The file that comes of it; empty for those that go on with the run.
    """

    source: str
    arguments: str
    result: str = ""


USES = {
    "run": Use("run", "run --resume --steps 16 -q -o {}"),
    "exchange": Use("exchange", "exchange --resume --iterations 4 --workers 1 -q -o {}"),
    "report of a run": Use("run", "report -q --overwrite {}", "report.html"),
    "report of an exchange": Use("exchange", "report -q --overwrite {}", "report.html"),
    "extract": Use("exchange", "extract -q {0} -o {0}/extracted.dcd", "extracted.dcd"),
}


def folder_cases(
    count: int, seed: int, work: Path, uses: Sequence[str] = tuple(USES), first: int = 0
) -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
    """Yield cases of damaged folders, made from those of `make_folders`."""
    wanted = {name: _answer(work, USES[name], None)[2] for name in uses}
    for number in range(first, first + count):
        rng = np.random.default_rng([seed, 2, number])
        name = uses[int(rng.integers(len(uses)))]
        source = work / USES[name].source
        chosen = files_of(source)
        file = chosen[int(rng.integers(len(chosen)))].relative_to(source)
        cases: list[str] = []

        def run(name: str = name, file: Path = file, rng: Any = rng, cases: list[str] = cases) -> tuple[str, str]:
            status, error, found = _answer(work, USES[name], file, rng, cases)
            if status == 2:
                return ("refused", error) if error.count("\n") == 1 else ("raw", f"{cases}: {error!r}")
            if status != 0:
                return "raw", f"exit status {status}"
            # a run without a summary was killed, and its report says so
            killed = isinstance(found, bytes) and b"killed, or is still running" in found
            told = file.name == SUMMARY and cases == ["gone"] and killed
            return ("done", "") if told or found == wanted[name] else ("silent", f"{cases}: other results")

        yield f"folder {number}, {name}, {file}", run


def _answer(
    work: Path, use: Use, file: Path | None, rng: Any = None, cases: list[str] | None = None
) -> tuple[int, str, Any]:
    """Return exit status, standard error and results of a command on a copy of a folder, perhaps damaged."""
    folder = work / "case"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(work / use.source, folder)
    if file is not None and cases is not None:
        cases.append(damage_file(folder / file, work / f"foreign-{use.source}" / file, rng))
    status, error = call([word.format(folder) for word in use.arguments.split()])
    result = folder / use.result
    return status, error, contents_of(result) if use.result and status == 0 else run_contents(folder)


def call(arguments: Sequence[str]) -> tuple[int, str]:
    """Return exit status and standard error of the command line, called in this process."""
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = peptidyn(list(arguments))
        except SystemExit as stop:  # argparse prints how the command is used before its sentence
            return int(stop.code or 0), f"{error.getvalue().splitlines()[-1]}\n"
    return status, error.getvalue()


def run_contents(folder: Path) -> dict[str, Any]:
    """Return all data of a run or of replica exchange."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix in (".npy", ".csv", ".xtc", ".dcd") and path.is_file():
            found[name] = contents_of(path)
        elif path.name == "torsions.npz" and path.is_file():
            with contextlib.suppress(Exception), np.load(path) as file:  # it may be the damaged one
                found[name] = {key: file[key].tobytes() for key in file.files}
    return found


def contents_of(file: Path) -> bytes:
    """Return what is in a file; of DCD without its header, which holds the date."""
    return file.read_bytes()[276:] if file.suffix == ".dcd" else file.read_bytes()


# ---------------------------------------------------------------------------- options

TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\n",
    "../..",
    "/dev/null",
    "x" * 5000,
    "\udcff",
    "--",
    "nan",
    "9" * 400,
    "🙂",
    "%s{0}",
    "-1",
)

_WHOLE = ("-1", "0", "4294967296", "9" * 30, "9" * 5000, "1.5", "nan", "", "1e3", "-" + "9" * 30)
_TIMES = ("inf", "1e999ps", "1e300ns", "nanps", "-1ps", "1", "0ps", "1e-300fs", "9" * 400 + "us", "", "ps", "1e15us")

HOSTILE: dict[str, dict[str, Sequence[str]]] = {
    "run": {
        "--time": _TIMES, "--equilibrate": _TIMES[:6], "--report": (*_TIMES, *_WHOLE), "--steps": _WHOLE,
        "--seed": _WHOLE, "--threads": _WHOLE, "--pivots": _WHOLE, "--temperature": NUMBERS, "--timestep": NUMBERS,
        "--friction": NUMBERS, "--pH": NUMBERS,
        "--hydrogen-mass": NUMBERS, "--padding": NUMBERS, "--ions": NUMBERS, "--cutoff": NUMBERS, "--platform": TEXTS,
        "--solvent": TEXTS, "--forcefield": TEXTS, "--soft": TEXTS, "--preset": TEXTS, "--metric": TEXTS,
        "--rigid": TEXTS,
        "--select": TEXTS, "--ensemble": TEXTS, "--trajectory": TEXTS, "--config": TEXTS,
    },
    "exchange": {
        "--replicas": _WHOLE, "--tmin": NUMBERS, "--tmax": NUMBERS, "--iterations": _WHOLE, "--interval": _WHOLE[:1],
        "--pivots": _WHOLE,
        "--warm-up": ("-1", "9" * 5000, "x"), "--seed": _WHOLE, "--threads": _WHOLE, "--workers": ("-1", "0", "9" * 30),
        "--friction": NUMBERS, "--pH": NUMBERS, "--platform": TEXTS, "--solvent": TEXTS, "--select": TEXTS,
    },
    "build": {"--phi": (*NUMBERS, *TEXTS), "--psi": NUMBERS, "--omega": NUMBERS},
    "inspect": {"--soft": TEXTS, "--rigid": TEXTS},
    "fixman": {"--residue": TEXTS, "--chain": TEXTS, "--soft": TEXTS, "--plot": ("\0", "/dev/null/x.png")},
}  # fmt: skip
"""Values that options may be given, by command."""


LONGEST, INTERRUPTED = 3.0, 130
"""CPU seconds after which a command is interrupted, since options may ask for runs of years; its exit status then."""


@contextlib.contextmanager
def interrupting(seconds: float) -> Iterator[None]:
    """Interrupt what runs within, as Ctrl-C does, whenever it has taken this CPU time (not on Windows)."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: Any) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def option_cases(
    count: int, seed: int, work: Path, first: int = 0
) -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
    """Yield cases of commands with one to three hostile options."""
    start, file = {
        "run": [*QUICK, "--steps", "1"],
        "exchange": [*EXCHANGE, "--iterations", "1"],
        "build": ["-q"], "inspect": [], "fixman": ["--map", str(DATA / "ala1.pdb"), "--residue", "2", "-q"],
    }, str(DATA / "ala1.pdb")  # fmt: skip
    names = ("run", "run", "run", "exchange", "exchange", "build", "inspect", "fixman")
    for number in range(first, first + count):
        rng = np.random.default_rng([seed, 3, number])
        command = names[int(rng.integers(len(names)))]
        options = HOSTILE[command]
        flags = list(options)
        chosen = [
            flags[int(i)] for i in rng.choice(len(flags), int(rng.integers(1, min(3, len(flags)) + 1)), replace=False)
        ]
        given = {flag: options[flag][int(rng.integers(len(options[flag])))] for flag in chosen}
        base = without(start[command], given)
        target = work / ("out.pdb" if command == "build" else "out")
        place = {"run": [file], "exchange": [file], "build": ["AA"], "inspect": [file], "fixman": []}[command]
        output = [] if command in ("inspect", "fixman") else ["-o", str(target)]
        arguments = [command, *place, *base, *(f"{flag}={value}" for flag, value in given.items()), *output]

        def run(arguments: list[str] = arguments, target: Path = target) -> tuple[str, str]:
            remove(target)
            with interrupting(LONGEST):
                status, error = call(arguments)
            if status == 2:
                if error.count("\n") != 1:
                    return "raw", f"the message is {error!r}"
                return ("silent", "a folder was left behind") if target.exists() else ("refused", error)
            return ("done", "") if status in (0, INTERRUPTED) else ("raw", f"exit status {status}")

        yield f"options {number}, {command}, {str(given)[:200]}", run


def without(arguments: Sequence[str], given: dict[str, str]) -> list[str]:
    """Return arguments without the flags that are given, and what goes with them: steps with a time."""
    taken = {*given, *({"--steps"} if "--time" in given else ())}
    kept, skip = [], False
    for one in arguments:
        if skip:
            skip = False
        elif one in taken:
            skip = True
        else:
            kept.append(one)
    return kept


def remove(path: Path) -> None:
    """Remove a file or a folder, if there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# ---------------------------------------------------------------------------- kills


def kill_cases(
    count: int, seed: int, work: Path, first: int = 0
) -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
    """Yield cases of runs, and half as many of replica exchange, that are killed at a random moment and resumed.

    Every second one has everything soft, and pivot moves between time steps.
    """
    starts = {
        "run": (["run", str(DATA / "ala1.pdb"), *QUICK, "--report", "2", "--seed", "5"], "--steps", "200"),
        "exchange": (["exchange", str(DATA / "ala1.pdb"), *EXCHANGE, "--seed", "5"], "--iterations", "40"),
    }
    more = ((), ("--preset", "flexible", "--ensemble", "langevin", "--pivots", "50"))
    commands, wanted = {}, {}
    for name, (start, *length) in starts.items():
        for kind, options in enumerate(more):
            remove(work / "case")
            commands[name, kind] = [*start, *length, *options, "-o", str(work / "case")]
            assert call(commands[name, kind])[0] == 0
            wanted[name, kind] = run_contents(work / "case")
    for name, number in [(n, first + i) for n, m in (("run", count), ("exchange", count // 2)) for i in range(m)]:
        rng = np.random.default_rng([seed, 4 if name == "run" else 5, number])

        def run(name: str = name, kind: int = number % 2, rng: Any = rng) -> tuple[str, str]:
            folder = work / "case"
            remove(folder)
            done = kill(commands[name, kind], folder, name, float(rng.random()))
            status, error = call(
                [name, "--resume", "-q", *(["--workers", "1"] if name == "exchange" else []), "-o", str(folder)]
            )
            if status != 0:
                return "raw", f"killed {done}: {error}"
            same = run_contents(folder) == wanted[name, kind]
            return ("done", "") if same else ("silent", f"killed {done}: other frames")

        yield f"kill {number}, {name}{' with pivots' if number % 2 else ''}", run


def kill(arguments: Sequence[str], folder: Path, name: str, when: float) -> str:
    """Start the command line and kill it when about this part of its files is written; return how far it was."""
    table = folder / ("log.csv" if name == "run" else "exchanges.csv")
    lines = {"run": 100, "exchange": 40}[name]
    command = [sys.executable, "-m", "peptidyn", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None and not (table.exists() and table.read_bytes().count(b"\n") > when * lines):
            time.sleep(0.002)
        time.sleep(0.01 * (when * 997.0 % 1.0))  # anywhere between two frames
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return f"after {len(table.read_bytes().splitlines()) if table.exists() else 0} lines of {table.name}"


# ---------------------------------------------------------------------------- the script


def measure(
    structures: int = 2000, folders: int = 200, options: int = 300, kills: int = 0, first: int = 0, seed: int = 1
) -> dict[str, Any]:
    """Run all cases; return the outcomes by kind, and the peak memory of this process (MB)."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if structures:
            found["structures"] = judge(structure_cases(structures, seed, work, first=first), structures, "structures")
        if folders:
            with without_pictures():
                make_folders(work)
                found["folders"] = judge(folder_cases(folders, seed, work, first=first), folders, "folders")
        if options:
            found["options"] = judge(option_cases(options, seed, work, first=first), options, "options")
        if kills:
            with without_pictures():
                found["kills"] = judge(kill_cases(kills, seed, work, first=first), kills + kills // 2, "kills")
    return {"outcomes": found, "peak_MB": peak_memory()}


def peak_memory() -> float | None:
    """Return the largest memory of this process so far, MB; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def tables(report: Report) -> str:
    """Return the report as text for people."""
    rows, bad = [], []
    for kind, one in report["outcomes"].items():
        seconds, case = one["slowest"]
        rows.append([kind, one["done"], one["refused"], one["raw"], one["silent"], f"{seconds:.1f} s: {case[:60]}"])
        bad += one["bad"]
    head = ["cases", "done", "refused", "raw errors", "silent changes", "slowest (CPU)"]
    peak = report["peak_MB"]
    memory = "" if peak is None else f"\n\npeak memory: {peak:,.0f} MB"
    return harness.table(head, rows) + memory + "".join(f"\n\n{line}" for line in bad)


def _count(text: str) -> int:
    if (value := int(text)) < 0:
        raise ValueError(text)
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    for name, default, what in (
        ("structures", 2000, "damaged structure files"), ("folders", 200, "damaged folders"),
        ("options", 300, "sets of options"), ("kills", 0, "runs that are killed, and half as many replica exchanges"),
        ("first", 0, "number of the first case of every kind"), ("seed", 1, "of all cases"),
    ):  # fmt: skip
        script.add_argument(f"--{name}", type=_count, default=default, metavar="N", help=f"{what} (default: {default})")
    bad: list[str] = []

    def judged(**options: Any) -> dict[str, Any]:
        found = measure(**options)
        bad.extend(line for one in found["outcomes"].values() for line in one["bad"])
        return found

    return harness.run(script, arguments, judged, tables) or int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
