"""Files appear whole or not at all, and progress is shown."""

from __future__ import annotations

import io
import os
from types import SimpleNamespace

import pytest

import peptidyn.core.progress as progress_module
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


def test_the_temporary_file_lies_beside_and_has_the_same_ending(tmp_path):
    """So that it can be renamed, and libraries that look at the ending write the same format."""
    path = tmp_path / "frame.dcd"
    with replacing(path) as temporary:
        assert temporary.parent == tmp_path and temporary.suffix == ".dcd" and temporary.name.startswith(".frame.dcd.")
        temporary.write_text("x")
        assert not path.exists()
    assert os.listdir(tmp_path) == ["frame.dcd"]
    with pytest.raises(OutputError), replacing(path) as temporary:
        temporary.write_text("half")
        raise OSError
    assert os.listdir(tmp_path) == ["frame.dcd"] and path.read_text() == "x"


def test_the_mask_of_the_user_holds_and_stays(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "x")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_text_has_all_letters(tmp_path):
    write_text(tmp_path / "a", "Å ψ 漢\n")
    assert (tmp_path / "a").read_bytes() == "Å ψ 漢\n".encode()


@pytest.mark.parametrize("durable", [False, True])
def test_bytes_are_on_the_disk_if_asked_for(tmp_path, monkeypatch, durable):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with replacing(tmp_path / "a", durable=durable) as temporary:
        temporary.write_text("four")
        assert synced == []
    assert synced == ([4] if durable else [])


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the test sets."""
    found = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def test_lines_of_a_log_come_every_ten_seconds(clock):
    """200 ps of 1000 in 20 s leave 80 s; the time is that since the beginning, and the note is that of the moment."""
    log = io.StringIO()
    with Progress(1000, "run", "ps", stream=log) as bar:
        for now, amount, note in ((109, 100, "early"), (120, 100, ", 300 K"), (125, 100, "between"), (130, 0, "")):
            clock.now = float(now)
            bar.advance(amount, note)
        assert bar.done == 300
    assert log.getvalue().splitlines() == [
        "run:  20%  200/1,000 ps, 01:20 left, , 300 K",
        "run:  30%  300/1,000 ps, 01:10 left",
    ]


def test_a_log_without_a_total_and_one_that_is_not_wanted(clock):
    for enabled, expected in ((True, ["run: 1,500 steps, hot", "run: 3,000 steps"]), (False, [])):
        log = io.StringIO()
        clock.now = 100.0
        with Progress(None, "run", "steps", enabled, log, interval=5.0) as bar:
            for now, note in ((105, "hot"), (106, ""), (110.0, "")):
                clock.now = float(now)
                bar.advance(1500 if now != 106 else 0, note)
        assert log.getvalue().splitlines() == expected


def test_a_terminal_is_drawn_often_and_wiped():
    terminal = Terminal()
    with Progress(10, "run", "ps", stream=terminal) as bar:
        assert bar.on_terminal and bar.interval == 0.2
        bar._bar.mininterval = 0.0
        bar.advance(4, "cold")
        assert "40%" in terminal.getvalue() and "4/10 ps" in terminal.getvalue() and "cold" in terminal.getvalue()
        bar.advance(4)
        assert "80%" in terminal.getvalue()
        bar.advance(4)  # more than expected
        assert "100%" in terminal.getvalue() and "12/10" not in terminal.getvalue() and bar.done == 12
    assert terminal.getvalue().endswith(" \r")
    assert Progress(1, "x", stream=terminal, interval=0.1).interval == 0.1
    assert Progress(1, "x", stream=io.StringIO()).interval == 10.0
    silent = Terminal()
    with Progress(10, "run", stream=silent, enabled=False) as bar:
        bar.advance(5)
    assert silent.getvalue() == ""
