"""Damaged structure files, damaged folders and hostile options, drawn from a seed: one sentence, or all as it was.

`benchmarks/fuzz.py` makes the cases, and any number of them.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from real_structures import DATA

import damage
import fuzz
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, StructureError
from peptidyn.io.readers import load_structure
from peptidyn.runs.settings import ExchangeSettings, RunSettings, resolve_settings
from peptidyn.sampling.backends import make_backend

pytestmark = pytest.mark.usefixtures("blank_pictures")

LINES = (DATA / "ala1.pdb").read_text().splitlines()


def assert_no_bad(found, count):
    assert found["bad"] == [] and found["raw"] == found["silent"] == 0
    assert found["done"] + found["refused"] == count and found["refused"] > 0


def test_damaged_structure_files(tmp_path):
    assert_no_bad(fuzz.judge(fuzz.structure_cases(250, 11, tmp_path), 250, "structures"), 250)


@pytest.mark.slow
def test_more_damaged_structure_files(tmp_path):
    assert_no_bad(fuzz.judge(fuzz.structure_cases(2500, 12, tmp_path), 2500, "structures"), 2500)


def test_damaged_folders(tmp_path):
    with fuzz.without_pictures():
        fuzz.make_folders(tmp_path)
        cases = fuzz.folder_cases(12, 13, tmp_path, uses=("run", "exchange"))
        assert_no_bad(fuzz.judge(cases, 12, "folders"), 12)


@pytest.mark.slow
def test_more_damaged_folders(tmp_path):
    with fuzz.without_pictures():
        fuzz.make_folders(tmp_path)
        assert_no_bad(fuzz.judge(fuzz.folder_cases(60, 14, tmp_path), 60, "folders"), 60)


def test_hostile_options(tmp_path):
    assert_no_bad(fuzz.judge(fuzz.option_cases(40, 15, tmp_path), 40, "options"), 40)


@pytest.mark.slow
def test_more_hostile_options(tmp_path):
    assert_no_bad(fuzz.judge(fuzz.option_cases(200, 16, tmp_path), 200, "options"), 200)


@pytest.mark.slow
def test_runs_killed_at_random_moments_are_identical_after_resuming(tmp_path):
    with fuzz.without_pictures():
        found = fuzz.judge(fuzz.kill_cases(4, 17, tmp_path), 6, "kills")
    assert found["bad"] == [] and found["done"] == 6


def test_the_judge_sees_raw_errors_and_lost_atoms(tmp_path, monkeypatch):
    """The fuzz tests can fail: a reader that loses an atom, and one that raises something of its own, are seen."""
    file = tmp_path / "x.pdb"
    file.write_text("\n".join(LINES))
    assert fuzz.read_damaged(file) == ("done", "")
    structure = load_structure(file)
    monkeypatch.setattr(fuzz, "load_structure", lambda path: structure.subset(np.arange(structure.n_atoms - 1)))
    assert fuzz.read_damaged(file)[0] == "silent"

    def broken(path):
        raise ZeroDivisionError

    monkeypatch.setattr(fuzz, "load_structure", broken)
    found = fuzz.judge(iter([("one", lambda: fuzz.read_damaged(file))]), 1, "one")
    assert found["raw"] == 1 and "ZeroDivisionError" in found["bad"][0]


def test_damage_changes_every_kind_of_file(tmp_path):
    rng = np.random.default_rng(1)
    data = "\n".join(LINES).encode()
    assert sum(damage.damage_text(data, rng)[0] != data for _ in range(60)) > 50
    for name, content in (("a.csv", b"1,2\n"), ("c.npz", None)):
        ways = set()
        for _ in range(60):
            file = tmp_path / name
            fuzz.remove(file)
            buffer = io.BytesIO()
            np.savez(buffer, q=np.arange(4.0))
            file.write_bytes(content or buffer.getvalue())
            ways.add(damage.damage_file(file, tmp_path / "none", rng).split(" ")[0])
        assert {"bit", "bytes", "short", "empty", "junk", "gone", "folder", "longer"} <= ways
        assert ("array" in ways) == (name == "c.npz")


# ---------------------------------------------------------------------------- cases of their own


def read(tmp_path, lines, name="x.pdb"):
    file = tmp_path / name
    file.write_text("\n".join(lines) + "\n")
    return load_structure(file)


@pytest.mark.parametrize(
    "cell", [(np.inf, 30, 30, 90, 90, 90), (np.nan, 30, 30, 90, 90, 90), (1e8, 30, 30, 90, 90, 90),
             (30, 30, 30, 10, 10, 170), (30, 30, 30, 180, 90, 90), (30, 30, 30, np.inf, 90, 90)], ids=str
)  # fmt: skip
def test_cells_that_cannot_be(tmp_path, cell):
    lengths, angles = "".join(f"{x:9.3g}" for x in cell[:3]), "".join(f"{x:7.3g}" for x in cell[3:])
    with pytest.raises(StructureError, match=r"x\.pdb, line 1: the unit cell .* cannot be"):
        read(tmp_path, [f"CRYST1{lengths}{angles} P 1", *LINES])
    load_structure(DATA / "ala1.pdb").write(tmp_path / "whole.cif")
    head, rest = (tmp_path / "whole.cif").read_text().split("\n", 1)
    names = ("length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma")
    table = [f"_cell.{name} {value:g}" for name, value in zip(names, cell, strict=True)]
    with pytest.raises(StructureError, match=r"the unit cell .* cannot be"):
        read(tmp_path, [head, *table, rest], "x.cif")


@pytest.mark.parametrize("lengths", [(0, 0, 0), (1, 1, 1)], ids=["zero", "one"])
def test_cells_that_stand_for_none(tmp_path, lengths):
    text = "".join(f"{x:9.3f}" for x in lengths)
    structure = read(tmp_path, [f"CRYST1{text}  90.00  90.00  90.00 P 1", *LINES])
    assert structure.topology.getPeriodicBoxVectors() is None


def test_tables_that_are_damaged(tmp_path):
    half, empty = ["loop_", "_a.b", "_a.c", "1"], ["loop_", "loop_", "_a.b", "1"]
    for lines in (["loop_", "1 2 3"], empty, ["_a.b"], half, ["HETATM 1"]):
        with pytest.raises(StructureError, match=r"x\.cif"):
            read(tmp_path, ["data_x", *lines], "x.cif")


def test_coordinates_that_overflow(tmp_path):
    load_structure(DATA / "ala1.pdb").write(tmp_path / "whole.cif")
    text = (tmp_path / "whole.cif").read_text()
    x = text.split("ATOM")[1].split() if "ATOM" in text else []
    number = next(word for word in (x or text.split()) if word.count(".") == 1 and len(word) > 10)
    for value, phrase in (("1e300", "larger than 100000 nm"), ("1e999", "not finite"), ("nan", "not finite")):
        with pytest.raises(StructureError, match=phrase), warnings.catch_warnings():
            warnings.simplefilter("error")
            read(tmp_path, [text.replace(number, value, 1)], "x.cif")


def test_atoms_whose_first_word_is_damaged_are_noted(tmp_path):
    k = next(i for i, line in enumerate(LINES) if line.startswith(("ATOM", "HETATM")))
    whole = load_structure(DATA / "ala1.pdb")
    structure = read(tmp_path, [*LINES[:k], "ATQM  " + LINES[k][6:], *LINES[k + 1 :]])
    (note,) = structure.notes_of("skipped")
    assert structure.n_atoms == whole.n_atoms - 1 and "1 line" in note.text and "ATQM" in note.text
    assert not list(whole.notes_of("skipped"))


@pytest.mark.parametrize(
    ("kind", "given", "phrase"),
    [
        (RunSettings, {"time": "1e999ps"}, "time is '1e999ps'"),
        (RunSettings, {"time": "1e15us"}, "steps, expected at most"),
        (RunSettings, {"equilibrate": "1e300ns"}, "equilibrate"),
        (RunSettings, {"report": "9" * 5000}, "report is"),
        (RunSettings, {"steps": 2**70}, "expected at most"),
        (RunSettings, {"seed": -1}, "seed is -1, expected 0 or more"),
        (RunSettings, {"seed": 10**5000}, "seed is a whole number of 16610 bits"),
        (RunSettings, {"pH": float("inf")}, "pH is inf"),
        (RunSettings, {"pH": float("nan")}, "pH is nan"),
        (RunSettings, {"temperature": 10**400}, "too large"),
        (RunSettings, {"temperature": 1e300}, "at most 100000"),
        (RunSettings, {"threads": 2**32}, "at most 4096"),
        (RunSettings, {"file": "a\0b.pdb"}, "NUL byte"),
        (RunSettings, {"rigid": ["a\0b"]}, "NUL byte"),
        (RunSettings, {"select": "\udcff"}, "not text in UTF-8"),
        (RunSettings, {"padding": 1e6, "solvent": "tip3p"}, "at most 100"),
        (ExchangeSettings, {"replicas": 2**32}, "at most 10000"),
        (ExchangeSettings, {"tmax": 1e300}, "at most 100000"),
        (ExchangeSettings, {"iterations": 2**80}, "expected at most"),
    ],
    ids=lambda value: None,
)
def test_absurd_settings(kind, given, phrase):
    with pytest.raises(ArgumentError, match=phrase) as caught:
        resolve_settings(given, base=kind())
    assert len(str(caught.value)) < 300


def test_refused_options_leave_no_folder(tmp_path, capsys):
    ala1, folder = str(DATA / "ala1.pdb"), tmp_path / "new" / "x"
    for arguments, phrase in (
        (["--platform", "Warp"], "there is no platform 'Warp'"),
        (["--platform", "Reference", "--threads", "2"], "takes no number of threads"),
        (["--pH", "inf"], "pH is inf"),
        (["--config", "a\0b"], "NUL byte"),
    ):
        try:
            status = main(["run", ala1, "--steps", "1", *arguments, "-o", str(folder)])
        except SystemExit as stop:
            status = stop.code
        error = capsys.readouterr().err
        assert status == 2 and phrase in error.splitlines()[-1], error
        assert not folder.parent.exists()
    with pytest.raises(ArgumentError, match="workers is 100000, expected 1 to 4096"):
        make_backend("threads", 100_000)
