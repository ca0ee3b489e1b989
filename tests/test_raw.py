"""What both format readers share: endings of names, unit cells, models, fields that may be damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peptidyn.core.errors import StructureError
from peptidyn.io.raw import altloc_note, extension, is_cell, models_note, number_or, one_line


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("1UBQ.PDB.gz", ".pdb"),
        ("a.pdb", ".pdb"),
        ("a.CIF.BZ2", ".cif"),
        ("a.b.ent", ".ent"),
        ("a.gz", ""),
        ("pdb", ""),
        ("a.gz.pdb", ".pdb"),
        ("a.pdb/b.cif", ".cif"),
    ],
)
def test_endings_without_those_of_packed_files(name, ending):
    assert extension(Path(name)) == ending


@pytest.mark.parametrize(
    "values",
    [
        (20, 30, 40, 90, 90, 90),
        (2, 2, 2, 90, 90, 90),
        (1e6, 10, 10, 90, 90, 90),
        (10, 10, 10, 60, 60, 90),  # 1 - 1/4 - 1/4
        (10, 10, 10, 60, 60, 60),  # 1 - 3/4 + 1/4
        (10, 10, 10, 109.4712, 109.4712, 109.4712),  # 1 - 1/3 - 2/27: a truncated octahedron
        (10, 10, 10, 90, 90, 120),
        (10, 10, 10, 115, 115, 115),
        (10, 10, 10, 30, 45, 60),
        (10, 10, 10, 100, 70, 35),
    ],
)
def test_unit_cells(values):
    assert is_cell(values, "file: ")


@pytest.mark.parametrize(
    "values",
    [
        (1, 1, 1, 90, 90, 90),
        (1.9, 30, 40, 90, 90, 90),
        (20, 30, 1, 90, 90, 90),
        (0, 0, 0, 0, 0, 0),
        (20, 30, 40, 90, 0, 90),
        (20, 30, 40, 90, 90, -90),
    ],
)
def test_cells_that_stand_for_none(values):
    assert not is_cell(values, "file: ")


@pytest.mark.parametrize(
    "values",
    [
        (2e6, 30, 40, 90, 90, 90),
        (20, 30, 40, 180, 90, 90),
        (20, 30, 40, 90, 90, 200),
        (20, 30, 40, 120, 120, 120),  # flat
        (20, 30, 40, 130, 130, 130),
        (20, 30, 40, 30, 30, 90),
        (20, 30, 40, 30, 60, 90),  # flat
        (20, 30, 40, 100, 60, 30),
        (20, np.nan, 40, 90, 90, 90),
        (20, np.inf, 40, 90, 90, 90),
        (20, 30, 40, 90, np.nan, 90),
    ],
)
def test_cells_that_cannot_be(values):
    with pytest.raises(
        StructureError, match=r"^file, line 3: the unit cell .* cannot be; repair or remove it"
    ) as caught:
        is_cell(values, "file, line 3: ")
    assert " ".join(f"{value:g}" for value in values) in str(caught.value)


def test_models_are_counted_from_zero():
    assert models_note(1, 0, "file") == []
    (note,) = models_note(2, 1, "file")
    assert (note.kind, note.text) == ("models", "file holds 2 models; this is model 1, counted from 0")
    with pytest.raises(StructureError, match="file has no model 2: it holds 2 models, counted from 0"):
        models_note(2, 2, "file")
    with pytest.raises(StructureError, match="file has no model 1: it holds 1 model, counted from 0"):
        models_note(1, 1, "file")
    with pytest.raises(StructureError, match="file holds no atoms"):
        models_note(0, 0, "file")


def test_choices_among_alternate_locations_are_listed():
    assert altloc_note([]) == []
    (note,) = altloc_note(["a"])
    assert (note.kind, note.text) == ("altloc", "alternate locations chosen by occupancy in 1 residue: a")
    (note,) = altloc_note([str(k) for k in range(12)])
    assert note.text.endswith("in 12 residues: 0; 1; 2; 3; 4; 5; 6; 7; 8; 9; and 2 more")


def test_fields_that_are_empty_or_damaged():
    assert [number_or(text, 7.0) for text in ("0.50", " 0.0 ", "", "   ", "x", "1.0.0")] == [0.5, 0, 7, 7, 7, 7]
    assert one_line(ValueError(" two\n  lines ")) == "two lines"
