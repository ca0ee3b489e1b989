"""What `inspect` says of a structure and its tree: values by hand and from the structure, and its text line by line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import peptidyn as ptd
from peptidyn.analysis.inspection import format_inspection, inspect_tree

ANGLES = {"phi": -57.0, "psi": -47.0}


@pytest.fixture(scope="module")
def two_alanines():
    """Capped AA: phi and psi are soft, and everything in its first residue."""
    structure = ptd.build_peptide("AA", **ANGLES)
    tree = ptd.build_tree(structure, "phi psi; all in resid 1")
    return structure, tree, inspect_tree(structure, tree)


def measured(x, c):
    """Return an angle between atoms (degrees), or the length of a bond (nm)."""
    p = x[c["indices"]]
    bonds = np.diff(p, axis=0)
    if len(p) == 2:
        return np.linalg.norm(bonds[0])
    if len(p) == 3:
        return np.rad2deg(np.arccos(-bonds[0] @ bonds[1] / np.linalg.norm(bonds[0]) / np.linalg.norm(bonds[1])))
    a, b, c = bonds
    return np.rad2deg(np.arctan2(np.linalg.norm(b) * a @ np.cross(b, c), np.cross(a, b) @ np.cross(b, c)))


def test_soft_coordinates_are_those_of_the_atoms(two_alanines):
    structure, tree, report = two_alanines
    rows = report["soft_coordinates"]
    assert len(rows) == tree.n_coordinates > 20
    for row, c in zip(rows, tree.coordinates, strict=True):
        assert row["atoms"] == [structure.atoms.name[i] for i in row["indices"]] and row["chain"] == "A"
        assert (row["kind"], row["motion"]) == (c.kind, c.motion)
        assert ("nm" in row, "degrees" in row) == (c.motion == "stretch", c.motion != "stretch")
        value = measured(structure.positions, row)
        difference = row.get("nm", row.get("degrees")) - value
        if c.motion == "torsion":
            difference = (difference + 180.0) % 360.0 - 180.0
        if c.motion != "phase":  # a phase is an angle about the bond from another one
            assert abs(difference) < 1e-4
    named = {(row["kind"], row["residue"]): row["degrees"] for row in rows if row["motion"] == "torsion"}
    assert named["phi", "ALA 2"] == pytest.approx(-57.0) and named["psi", "ALA 3"] == pytest.approx(-47.0)
    assert json.loads(json.dumps(report)) == report


def test_counts_of_what_is_soft_and_what_is_rigid(two_alanines):
    structure, tree, report = two_alanines
    assert report["torsions"] == {"phi": 2, "psi": 2, "methyl": 1}
    dof = report["degrees_of_freedom"]
    kinds = [c.motion for c in tree.coordinates]
    for name, motion in (("torsions", "torsion"), ("phases", "phase"), ("bends", "bend"), ("stretches", "stretch")):
        assert dof[name] == sum(report[name].values()) == kinds.count(motion) > 0
    assert dof["base"] == 6 and dof["total"] == 6 + len(kinds)
    assert report["stretches"] == {"bond": kinds.count("stretch")} and report["bends"]["N-CA-C"] == 1
    assert report["rigid"] == [
        {"kind": "methyl", "why": "not asked for", "count": 3},  # of both caps and of the other alanine
        {"kind": "omega", "why": "not asked for", "count": 3},
    ]
    assert report["bodies"] == tree.n_bodies and report["molecules"] == {"free": 1}
    assert report["atoms"] == structure.n_atoms and report["mass"] == pytest.approx(structure.masses.sum(), abs=1e-4)
    units = report["rigid_units"]
    assert sum(unit["mass"] for unit in units) == pytest.approx(structure.masses.sum(), abs=1e-3)
    assert sorted(i for unit in units for i in unit["atoms"]) == list(range(structure.n_atoms))
    ca = next(unit for unit in units if unit["name"] == "alpha carbon of ALA 3 (chain A)")
    names = structure.atoms.name
    assert ca["kind"] == "alpha carbon" and sorted(names[ca["atoms"]]) == ["CA", "CB", "HA", "HB1", "HB2", "HB3"]
    assert sorted(names[ca["shared"]]) == ["C", "N"]  # of the units beside it, to which it is bonded


SOLVATED = """\
ATOM      1  N   ALA A  11      -0.677  -1.230  -0.491  1.00  0.00           N
ATOM      2  H1  ALA A  11      -0.131  -2.162  -0.491  1.00  0.00           H
ATOM      3  H2  ALA A  11      -1.280  -1.180   0.320  1.00  0.00           H
ATOM      4  H3  ALA A  11      -1.260  -1.180  -1.310  1.00  0.00           H
ATOM      5  CA  ALA A  11      -0.001   0.064  -0.491  1.00  0.00           C
ATOM      6  HA  ALA A  11      -0.280   0.596  -1.399  1.00  0.00           H
ATOM      7  C   ALA A  11       1.499  -0.110  -0.491  1.00  0.00           C
ATOM      8  O   ALA A  11       2.065  -0.922   0.251  1.00  0.00           O
ATOM      9  OXT ALA A  11       2.100   0.700  -1.250  1.00  0.00           O
ATOM     10  CB  ALA A  11      -0.509   0.856   0.727  1.00  0.00           C
ATOM     11  HB1 ALA A  11      -0.131   1.878   0.680  1.00  0.00           H
ATOM     12  HB2 ALA A  11      -1.598   0.873   0.718  1.00  0.00           H
ATOM     13  HB3 ALA A  11      -0.164   0.377   1.643  1.00  0.00           H
TER      14      ALA A  11
HETATM   15  O   HOH     7      10.000  10.000  10.000  1.00  0.00           O
HETATM   16  H1  HOH     7      10.957  10.000  10.000  1.00  0.00           H
HETATM   17  H2  HOH     7       9.760  10.927  10.000  1.00  0.00           H
HETATM   18  O   HOH     8      15.000  10.000  10.000  1.00  0.00           O
HETATM   19  H1  HOH     8      15.957  10.000  10.000  1.00  0.00           H
HETATM   20  H2  HOH     8      14.760  10.927  10.000  1.00  0.00           H
HETATM   21 NA    NA     9      10.000  15.000  10.000  1.00  0.00          NA
END
"""


def test_chains_and_molecules_of_a_solvated_residue(tmp_path):
    """A peptide of one residue, two water molecules and an ion, which is a single atom."""
    (tmp_path / "x.pdb").write_text(SOLVATED)
    structure = ptd.load_structure(tmp_path / "x.pdb")
    report = inspect_tree(structure, ptd.build_tree(structure))
    assert report["chains"] == [
        {"id": "A", "residues": 1, "kinds": {"amino acid": 1}, "span": "ALA 11 - ALA 11"},
        {"id": "", "residues": 3, "kinds": {"water": 2, "other residue": 1}, "span": "HOH 7 - NA 9"},
    ]
    assert list(report["molecules"].items()) == [("free", 3), ("single atoms", 1)]
    assert report["units"]["water"] == 2 and report["units"]["ion"] == 1 and list(report["units"])[-1] == "ion"
    assert not {unit["kind"] for unit in report["rigid_units"]} & {"water", "ion"} and report["rigid_units"]
    text = format_inspection(report)
    assert "  A        1 amino acid" in text and "  (blank)  2 waters, 1 other residue" in text
    fixed = inspect_tree(structure, ptd.build_tree(structure, base="fixed"))
    assert fixed["molecules"]["with a fixed base"] >= 3 and "free" not in fixed["molecules"]


def test_a_loop_that_is_cut():
    """Between two frozen parts: the bond that is left out has the labels of both of its atoms, and a note says so."""
    structure = ptd.build_peptide("A" * 7)
    tree = ptd.build_tree(structure, rigid="resid 1 to 2 or resid 6 to 7")
    report = inspect_tree(structure, tree)
    ((i, j),) = tree.cut_bonds.tolist()
    assert report["cut_bonds"] == [[structure.atoms.label(i), structure.atoms.label(j)]] and i != j
    assert f"  {structure.atoms.label(i)}  --  {structure.atoms.label(j)}" in format_inspection(report)


def test_notes_and_frames_are_those_that_were_given():
    structure = ptd.build_peptide("AP")
    tree = ptd.build_tree(structure)
    report = inspect_tree(structure, tree)
    assert [note["text"] for note in report["notes"]] == [note.text for note in structure.notes] != []
    assert {note["kind"] for note in report["notes"]} == {"proline"} and report["frames"] == []
    assert {"kind": "phi", "why": "in a ring", "count": 1} in report["rigid"]


def test_the_text_line_by_line():
    report = {
        "name": "x.pdb", "atoms": 30, "mass": 123.4567,
        "chains": [{"id": "A", "residues": 3, "kinds": {"amino acid": 2, "water": 1}, "span": "ALA 1 - HOH 3"}],
        "molecules": {"free": 2, "single atoms": 1},
        "bodies": 7, "units": {"peptide plane": 1, "cap": 2},
        "torsions": {"phi": 2, "psi": 1}, "phases": {}, "bends": {"N-CA-C": 4}, "stretches": {"bond": 5},
        "degrees_of_freedom": {"total": 21, "base": 9, "torsions": 3, "phases": 0, "bends": 4, "stretches": 5},
        "rigid": [{"kind": "omega", "why": "not asked for", "count": 12}],
        "cut_bonds": [["one", "other"]],
        "notes": [{"kind": "gap", "text": "a note " + "word " * 20 + "end"}],
    }  # fmt: skip
    assert format_inspection(report).split("\n") == [
        "x.pdb: 30 atoms, 123.46 Da",
        "",
        "Chains",
        "  A        2 amino acids, 1 water           ALA 1 - HOH 3",
        "",
        "Tree",
        "  molecules           2 free, 1 single atoms",
        "  rigid bodies        7      1 peptide plane, 2 cap",
        "  soft torsions       3      2 phi, 1 psi",
        "  soft bond angles    4      4 N-CA-C",
        "  soft bond lengths   5      5 bond",
        "  degrees of freedom  21     9 base + 12 soft",
        "",
        "Made rigid (besides bond lengths, bond angles and rings that are not soft)",
        "      12 omega     not asked for",
        "",
        "Bonds left out of the tree (they would close loops; the force field holds them)",
        "  one  --  other",
        "",
        "Notes",
        "  - a note " + "word " * 19 + "word",
        "    end",
    ]
    bare = {**report, "rigid": [], "cut_bonds": [], "notes": []}
    assert format_inspection(bare).split("\n")[-1].startswith("  degrees of freedom")
    assert "soft phases" in format_inspection(
        {**bare, "phases": {"phase": 2}, "degrees_of_freedom": {**report["degrees_of_freedom"], "phases": 2}}
    )
