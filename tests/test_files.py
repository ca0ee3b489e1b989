"""Files appear whole or not at all, and progress is shown."""

from __future__ import annotations

import io
import os

import pytest

from peptidyn.core.errors import OutputError, PeptidynError
from peptidyn.core.files import replacing, write_text
from peptidyn.core.progress import Progress, format_time
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
            bar.interval = 0.0
            for _ in range(10):
                bar.advance(1, "fine")
    assert "\r" in terminal.getvalue() and "[####" in terminal.getvalue()
    assert "\r" not in log.getvalue()
    assert log.getvalue().splitlines()[-1].startswith("work: 100%  10/10 frames")
    silent = io.StringIO()
    with Progress(None, "work", stream=silent, enabled=False) as bar:
        bar.advance(5)
    assert silent.getvalue() == ""


def test_times():
    assert [format_time(s) for s in (0.2, 59.4, 65, 3661, float("inf"))] == ["0 s", "59 s", "1:05", "1:01:01", "?"]
