"""Files appear whole or not at all, and progress is shown."""

from __future__ import annotations

import io
import os

import pytest

from peptidyn.core.errors import OutputError, PeptidynError
from peptidyn.core.files import replacing, write_text
from peptidyn.core.progress import Progress
from peptidyn.core.tables import write_csv


def test_replaces_only_when_complete(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "one")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "one"
    with replacing(path, durable=True) as temporary:
        temporary.write_text("two")
    assert path.read_text() == "two"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_permissions_are_those_of_a_new_file(tmp_path):
    write_text(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_errors_are_one_sentence(tmp_path):
    with pytest.raises(OutputError, match=r"cannot write .*missing/a.txt: No such file or directory") as caught:
        write_text(tmp_path / "missing" / "a.txt", "x")
    assert isinstance(caught.value, PeptidynError)


def test_a_full_disk_leaves_nothing_behind(tmp_path, file_size_limit):
    """The size limit of the process stands in for the disk: writing beyond it fails in the same way."""
    with file_size_limit(20_000), pytest.raises(OutputError, match="cannot write"):
        write_csv(tmp_path / "big.csv", ("a", "b"), ((i, i) for i in range(100_000)))
    assert os.listdir(tmp_path) == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal_and_elsewhere():
    terminal, log = Terminal(), io.StringIO()
    for stream in (terminal, log):
        with Progress(10, "work", stream=stream, interval=0.0) as bar:
            for _ in range(10):
                bar.advance(1, "fine")
    assert "[####" in terminal.getvalue() and terminal.getvalue().endswith(" \r")  # the bar is wiped at the end
    assert "\n" not in terminal.getvalue()
    assert "\r" not in log.getvalue()
    assert log.getvalue().splitlines()[-1].startswith("work: 100%  10/10 frames")
    for total, line in ((None, "work: 6 frames"), (5, "work: 100%  5/5 frames, 00:00 left")):
        log = io.StringIO()
        with Progress(total, "work", stream=log, interval=0.0) as bar:
            bar.advance(6)  # more than expected
        assert log.getvalue() == line + "\n"
    later = io.StringIO()
    with Progress(3, "work", stream=later) as bar:
        bar.advance(1)
    assert later.getvalue() == ""  # the first line comes after ten seconds
    silent = io.StringIO()
    with Progress(None, "work", stream=silent, enabled=False) as bar:
        bar.advance(5)
    assert silent.getvalue() == ""
