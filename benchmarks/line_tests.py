"""Which default tests run a line of the package, the quickest first: one run of all of them under coverage tells.

What stands outside of functions runs once, whichever tests depend on it: all tests that run any line of the file are
named for it. Lines of compiled functions run where coverage does not look: for those, all tests are.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from peptidyn.core.errors import ArgumentError
from peptidyn.core.files import write_text

OTHER_SUBJECTS = ("tests/test_mutants.py", "tests/test_project_files.py")
"""Tests that look at the text of the files: a fault that they notice is noticed as a change, not as a fault."""


def record(project: Path, package: str, folder: Path, digest: str) -> LineTests:
    """Run the default tests of a project under coverage, unless the folder has such a record with the same digest."""
    kept = folder / "line_tests.json"
    if not (kept.is_file() and json.loads(kept.read_text(encoding="utf-8"))["digest"] == digest):
        print("the default tests are run once under coverage, some minutes", file=sys.stderr, flush=True)
        environment = {**os.environ, "PYTHONPATH": str(project), "COVERAGE_FILE": str(folder / "coverage")}
        command = [
            sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=no", f"--junitxml={folder / 'tests.xml'}",
            f"--cov={package}", "--cov-context=test", "--cov-report=",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
        if done.returncode not in (0, 1):  # a test that needs more than the copy fails, and is not asked
            raise ArgumentError(f"the default tests cannot be run under coverage: {(done.stdout + done.stderr)[-500:]}")
        write_text(kept, json.dumps({"digest": digest, "seconds": _seconds(folder / "tests.xml")}) + "\n")
    return LineTests(folder)


def _seconds(report: Path) -> dict[str, float]:
    """Return the time of every test function that passed with all its parameters."""
    seconds: dict[str, float] = {}
    failed = set()
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        seconds[name] = seconds.get(name, 0.0) + float(case.get("time", 0.0))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
    return {name: time for name, time in seconds.items() if name not in failed}


class LineTests:
    """A record of which tests run which lines.

    Parameters
    ----------
    folder : path
        Where the record is.
    """

    def __init__(self, folder: Path):
        from coverage import CoverageData

        self._seconds = json.loads((folder / "line_tests.json").read_text(encoding="utf-8"))["seconds"]
        self._data = CoverageData(str(folder / "coverage"))
        self._data.read()
        self._contexts: dict[str, dict[int, list[str]]] = {}

    def running(self, file: str, text: str, part: str) -> tuple[str, ...]:
        """Return the tests that run any line of a part of a file's text, the quickest first.

        Where coverage cannot tell, these are the tests that run any line of the file, or all tests.
        """
        first = text.partition(part)[0].count("\n") + 1
        lines = set(range(first, first + part.count("\n") + 1))
        contexts = self._contexts_of(file)
        tests = _tests(contexts, lines if lines & _lines_in_functions(text) else contexts)
        tests &= self._seconds.keys()
        asked = [test for test in tests or self._seconds if not test.startswith(OTHER_SUBJECTS)]
        return tuple(sorted(asked, key=lambda test: (self._seconds[test], test)))

    def _contexts_of(self, file: str) -> dict[int, list[str]]:
        if file not in self._contexts:
            measured = [path for path in self._data.measured_files() if path.endswith(f"/{file}")]
            self._contexts[file] = self._data.contexts_by_lineno(measured[0]) if measured else {}
        return self._contexts[file]


def _tests(contexts: dict[int, list[str]], lines: Iterable[int]) -> set[str]:
    """Return the test functions that run any of these lines."""
    return {context.partition("|")[0].partition("[")[0] for line in lines for context in contexts.get(line, ())}


def _lines_in_functions(text: str) -> set[int]:
    """Return the lines of all function bodies, which run when something calls them."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return {line for f in functions for line in range(f.body[0].lineno, (f.end_lineno or f.lineno) + 1)}
