"""The list of faults that tests must notice, and the machinery that tries them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mutants
from made_faults import made_faults
from mutants import Fault, choose, faulty, make_faults, read_faults
from peptidyn.core.errors import ArgumentError

ROOT = Path(mutants.__file__).parents[1]
FAULTS = read_faults()


@pytest.mark.parametrize("file", sorted({fault.file for fault in FAULTS}))
def test_every_fault_replaces_text_that_is_there_once(file):
    """Where code changes, its faults change with it: one that no longer applies tests nothing."""
    text = (ROOT / file).read_text(encoding="utf-8")
    for fault in (fault for fault in FAULTS if fault.file == file):
        broken = faulty(fault, text)
        assert broken != text
        compile(broken, file, "exec")


def test_the_faults_cover_the_rooms_of_physics():
    assert len(FAULTS) >= 300 and len({(f.file, f.what) for f in FAULTS}) == len(FAULTS)
    folders = {Path(fault.file).parent.name for fault in FAULTS}
    assert {"analysis", "core", "engine", "integrators", "kernels", "metric", "model", "sampling"} <= folders
    assert sum(bool(fault.reason) for fault in FAULTS) <= 0.05 * len(FAULTS)
    for test in {test for fault in FAULTS for test in fault.tests}:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8")


def test_text_that_is_missing_or_stands_twice_is_refused():
    fault = Fault("x", "file.py", "a = 1", "a = 2", ())
    assert faulty(fault, "a = 1\n") == "a = 2\n"
    for text in ("", "a = 1\na = 1\n"):
        with pytest.raises(ArgumentError, match=f"stands {text.count('a')} times in file.py"):
            faulty(fault, text)
    with pytest.raises(ArgumentError, match="no fault is about 'astrology'"):
        choose("astrology")
    assert {fault.file for fault in choose("swaps.py")} == {"peptidyn/sampling/swaps.py"}


def test_faults_of_another_list(tmp_path):
    mine = tmp_path / "mine.toml"
    text = (ROOT / "benchmarks" / "faults.toml").read_text(encoding="utf-8")
    mine.write_text("[[room]]" + text.split("[[room]]")[3], encoding="utf-8")
    chosen = choose(None, faults=mine)
    assert chosen == read_faults(mine) and 0 < len(chosen) < len(FAULTS) and set(chosen) < set(FAULTS)
    with pytest.raises(ArgumentError, match=r"'astrology'; .*mine.toml lists them"):
        choose("astrology", faults=mine)
    for damaged in ("[[room]]\nfile = 'x.py'\n", "room = 3\n", "room = \n", "fault = []\n"):
        mine.write_text(damaged, encoding="utf-8")
        with pytest.raises(ArgumentError, match=r"mine\.toml is no list of faults"):
            read_faults(mine)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="faults are tried in forks")
def test_faults_are_caught_survive_or_never_end(tmp_path, monkeypatch):
    """A small project: its test sees one of two faults, one never ends, and one ends the tests."""
    files = {
        "benchmarks/pytest_server.py": (ROOT / "benchmarks" / "pytest_server.py").read_text(encoding="utf-8"),
        "benchmarks/faults.toml": (
            "[[room]]\nfile = 'small/code.py'\ntests = ['code']\n"
            "[[room.fault]]\nwhat = 'seen'\nold = 'x + 1'\nnew = 'x - 1'\n"
            "[[room.fault]]\nwhat = 'unseen'\nold = 'x * 1'\nnew = 'x * 2'\nreason = 'nobody asks'\n"
            "[[room.fault]]\nwhat = 'endless'\nold = 'while x > 9'\nnew = 'while x > 0'\n"
            "[[room.fault]]\nwhat = 'deadly'\nold = 'return x + 1'\nnew = '__import__(\"os\").abort()'\n"
            "[[room]]\nfile = 'small/more.py'\n"
            "[[room.fault]]\nwhat = 'by others'\nold = 'x * 3'\nnew = 'x * 4'\n"
            "[[room.fault]]\nwhat = 'by none'\nold = 'x * 5'\nnew = 'x * 6'\n"
            "[[room.fault]]\nwhat = 'at import'\nold = 'THREE = 3'\nnew = 'THREE = 4'\n"
            "[[room]]\nfile = 'small/__main__.py'\n[[room.fault]]\nwhat = 'by a command'\nold = '3'\nnew = '4'\n"
        ),
        "small/__init__.py": "",
        "small/code.py": (
            "import time\n\ndef f(x):\n    while x > 9:\n        time.sleep(1)\n    return x + 1\n\n"
            "def g(x):\n    return x * 1\n"
        ),
        "small/more.py": "THREE = 3\n\ndef h(x):\n    return x * 3 + THREE - 3\n\ndef i(x):\n    return x * 5\n",
        "small/__main__.py": "print(3)\n",
        "tests/test_code.py": "from small.code import f\n\ndef test_f():\n    assert f(1) == 2\n",
        "tests/test_other.py": (
            "import subprocess\nimport sys\nimport pytest\nfrom small.more import h, i\n\n"
            "@pytest.mark.parametrize('x', [0, 1])\ndef test_h(x):\n    assert h(x) == 3 * x\n\n"
            "def test_command():\n    command = [sys.executable, '-m', 'small']\n"
            "    assert subprocess.check_output(command, text=True) == '3\\n'\n\n"
            "def test_i():\n    assert i(0) == 0\n\n"
            "def test_that_fails_anyway():\n    assert i(1) == h(1)\n"
        ),
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }
    for name, text in files.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path / "project")
    monkeypatch.setattr(mutants, "PACKAGE", "small")
    monkeypatch.setattr(mutants, "COPIED", ("small", "tests", "pyproject.toml"))
    report = mutants.measure(only="code.py", seconds=20, work=tmp_path / "work")
    outcome = {row["fault"]: (row["outcome"], row["test"]) for row in report["faults"]}
    assert outcome == {
        "seen": ("caught", "tests/test_code.py::test_f"), "unseen": ("survived", ""), "endless": ("timed out", ""),
        "deadly": ("caught", "tests were ended by SIGABRT"),
    }  # fmt: skip
    text = mutants.tables(report)
    assert "1 of 4 faults survived (25.0%)" in text and "- survived: small/code.py: unseen (nobody asks)" in text
    assert report["tried"] == 4 and "4 were tried now" in text
    again = mutants.measure(only="code.py", seconds=20, work=tmp_path / "work")  # nothing has changed
    assert again["tried"] == 0 and again["faults"] == report["faults"]
    # all tests that run a line: one of another file notices, one that does not fails without the fault as well
    rows = mutants.measure(only="more.py", seconds=20, work=tmp_path / "work", all_tests=True)["faults"]
    assert [(row["fault"], row["outcome"], row["test"]) for row in rows] == [
        ("by others", "caught", "tests/test_other.py::test_h[1]"), ("by none", "survived", ""),
        ("at import", "caught", "tests/test_other.py::test_h[0]"),
    ]  # fmt: skip
    (row,) = mutants.measure(only="command", seconds=20, work=tmp_path / "work", all_tests=True)["faults"]
    assert (row["outcome"], row["test"]) == ("caught", "tests/test_other.py::test_command")
    with pytest.raises(ArgumentError, match="name one with --work"):
        mutants.measure(only="more.py", all_tests=True)
    (tmp_path / "project/small/code.py").write_text(files["small/code.py"] + "\n")
    assert mutants.measure(only="seen", seconds=20, work=tmp_path / "work")["tried"] == 2  # "unseen" is about it, too
    # every fault was taken back
    assert (tmp_path / "work/copy-0/project/small/code.py").read_text() == files["small/code.py"] + "\n"
    (tmp_path / "project/tests/test_code.py").write_text("def test_f():\n    assert False\n")
    with pytest.raises(ArgumentError, match="without a fault: caught"):
        mutants.measure(only="unseen", seconds=10, work=tmp_path / "work")


SMALL = '''
def f(x, y):
    """Say something."""
    if x < 0:
        raise ValueError("x is negative, expected 0 or more")
    self.total += x
    if x > 2 and not y:
        return -np.sin(x) ** 2 + 0.5 * y
    return f"{x + 1}"
'''


def test_made_faults_are_single_changes_of_physics():
    """Each replaces lines that stand there once, and compiles; errors and texts for people are left alone."""
    made = made_faults(SMALL)
    changed = [SMALL.replace(old, new) for _, old, new in made]
    for (_, old, new), text in zip(made, changed, strict=True):
        assert SMALL.count(old) == 1 and old != new
        compile(text, "small", "exec")
        assert 'if x < 0:\n        raise ValueError("x is negative, expected 0 or more")' in text
        assert '"""Say something."""' in text and 'f"{x + 1}"' in text
    every = "\n".join(changed)
    for wanted in (
        "    pass\n", "(x < 2)", "x > 3", "(x > 2) or (not y)", "and (y)", "(np.sin(x) ** 2)", "(np).cos(x)",
        "(np.sin(x))", "** 3", "- (0.5 * y)", "1.0 * y",
    ):  # fmt: skip
        assert wanted in every
    assert len(set(changed)) == len(made) == 11


def test_made_faults_of_the_package_apply_to_it():
    """A set is the same for the same seed, and every fault of it can be put into its file."""
    chosen = make_faults(60, 3)
    assert len(set(chosen)) == 60 and chosen == make_faults(60, 3) != make_faults(60, 4)
    for fault in chosen:
        assert fault.tests and not fault.reason
        compile(faulty(fault, (ROOT / fault.file).read_text(encoding="utf-8")), fault.file, "exec")
    assert {fault.file for fault in make_faults(5, 0, "swaps")} == {"peptidyn/sampling/swaps.py"}
    assert choose(None, 60, 3) == chosen
