"""Names of residues: one list of waters, one table of variants."""

from __future__ import annotations

import pytest

from peptidyn.core.residues import WATERS, is_water, parent_name, protonation_variant, standard_name
from peptidyn.io.readers import load_structure

OPENMM_WATERS = "HOH H2O WAT SOL TIP3 TP3 TIP T4P SPC".split()
OTHER_WATERS = "TIP2 TIP4 TIP5 T3P T4E SPCE SPC2 OPC OPC3 DOD".split()


def pdb(residue: str, names: list[str]) -> str:
    lines = [
        f"HETATM{i:5d}  {name:<3} {residue:<4}A   1    {0.9 * i:8.3f}{0.5 * (i % 2):8.3f}{0.0:8.3f}  1.00  0.00"
        f"          {name[0]:>2}"
        for i, name in enumerate(names, start=1)
    ]
    return "\n".join([*lines, "END", ""])


@pytest.mark.parametrize("name", OPENMM_WATERS + OTHER_WATERS)
def test_every_name_of_water_is_read_as_water(tmp_path, name):
    assert name in WATERS
    path = tmp_path / "water.pdb"
    path.write_text(pdb(name, ["H1", "O", "H2"]))
    structure = load_structure(path)
    assert structure.atoms.residue_name.tolist() == ["HOH"]
    assert is_water(structure.atoms).tolist() == [True]


def test_no_water_is_forgotten():
    assert set(OPENMM_WATERS) | set(OTHER_WATERS) == WATERS


def test_a_lipid_with_the_name_of_a_water_is_no_water(tmp_path):
    path = tmp_path / "lipid.pdb"
    path.write_text(pdb("OPC", [f"C{i}" for i in range(9)]))
    structure = load_structure(path)
    assert structure.atoms.residue_name.tolist() == ["OPC"]
    assert is_water(structure.atoms).tolist() == [False]


@pytest.mark.parametrize(
    ("name", "standard", "state"),
    [
        ("ALA", "ALA", None),
        ("NALA", "ALA", None),
        ("HID", "HIS", "HID"),
        ("HSE", "HIS", "HIE"),
        ("CHIP", "HIS", "HIP"),
        ("HISH", "HIS", "HIP"),
        ("CYM", "CYS", "CYX"),
        ("CYSH", "CYS", None),
        ("GLUP", "GLU", "GLH"),
        ("LSN", "LYS", "LYN"),
        ("ARN", "ARN", None),
        ("NME", "NME", None),
        ("LIG", "LIG", None),
    ],
)
def test_variants(name, standard, state):
    assert standard_name(name, 12) == standard
    assert protonation_variant(name) == state


def test_variants_have_the_torsions_of_their_amino_acid():
    assert [parent_name(n) for n in ("HISD", "ARN", "TYM", "CYS2", "MSE")] == ["HIS", "ARG", "TYR", "CYS", "MSE"]
