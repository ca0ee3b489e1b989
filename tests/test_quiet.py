"""Libraries that print or draw random numbers, and names of files that they cannot open."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from peptidyn.io.plain_paths import plain_path
from peptidyn.io.quiet import quiet_readers, seeded


def test_what_compiled_code_writes_is_discarded(capfd):
    print("before", end=" ")
    print("warned", end=" ", file=sys.stderr)  # what Python has not yet written is not lost
    with pytest.raises(KeyError), quiet_readers():
        os.write(1, b"greeting")
        os.write(2, b"complaint")
        raise KeyError
    os.write(1, b"after")
    os.write(2, b"too")
    assert capfd.readouterr() == ("before after", "warned too")


def test_no_descriptor_is_left_open():
    def descriptors():
        return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0

    before = descriptors()
    for _ in range(3):
        with quiet_readers():
            pass
    assert descriptors() == before


def test_random_numbers_follow_from_the_seed_and_go_on_as_before():
    random.seed(5)
    expected = [random.random() for _ in range(4)]
    random.seed(5)
    found = [random.random()]
    with seeded(11):
        inside = [random.random(), random.random()]
    found.append(random.random())
    with pytest.raises(KeyError), seeded(11):
        assert random.random() == inside[0]
        raise KeyError
    found.append(random.random())
    with seeded(12):
        assert random.random() != inside[0]
    found.append(random.random())
    assert found == expected


def test_plain_names_stay(tmp_path):
    with plain_path(tmp_path / "a b.xtc") as path:
        assert path == str(tmp_path / "a b.xtc")


@pytest.mark.parametrize("links", [True, False])
def test_other_names_are_replaced_by_a_link_or_a_copy(tmp_path, monkeypatch, links):
    """Also a relative one, and one in a folder with such a name; the ending stays, and nothing is left behind."""
    folder = tmp_path / "Prøve"
    folder.mkdir()
    (folder / "bahn.xtc").write_bytes(b"frames")
    monkeypatch.chdir(tmp_path)
    if not links:

        def refuse(self, target):
            raise OSError

        monkeypatch.setattr(Path, "symlink_to", refuse)
    for name in (folder / "bahn.xtc", "Prøve/bahn.xtc"):
        with plain_path(name) as path:
            assert path.isascii() and path.endswith(".xtc") and isinstance(path, str)
            assert Path(path).read_bytes() == b"frames" and Path(path).is_symlink() == links
        assert not Path(path).exists() and not Path(path).parent.exists()
    assert (folder / "bahn.xtc").read_bytes() == b"frames"
