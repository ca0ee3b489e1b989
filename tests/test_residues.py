"""Names of residues: one list of waters, one table of variants."""

from __future__ import annotations

import pytest
from Bio.Data.PDBData import protein_letters_1to3
from mdtraj.geometry import dihedral

from peptidyn.core.residues import (
    ACYL_CAPS,
    AMINE_CAPS,
    CHI,
    STANDARD,
    THREE_LETTER,
    WATERS,
    has_backbone,
    is_water,
    parent_name,
    protonation_variant,
    standard_name,
)
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


def test_codes_of_amino_acids():
    """As Biopython has them."""
    assert dict(THREE_LETTER) == {one: three.upper() for one, three in protein_letters_1to3.items()}
    assert set(STANDARD) == set(THREE_LETTER.values()) and len(STANDARD) == 20
    assert {"ACE", "FOR"} == ACYL_CAPS and {"NME", "NMA", "NH2", "NHE"} == AMINE_CAPS


def test_side_chain_torsions_are_those_of_the_recommendations():
    """MDTraj lists the atoms of chi1 to chi5 without the residue: each of ours is there, and ours are as many."""
    lists = [dihedral.CHI1_ATOMS, dihedral.CHI2_ATOMS, dihedral.CHI3_ATOMS, dihedral.CHI4_ATOMS, dihedral.CHI5_ATOMS]
    for name, torsions in CHI.items():
        for k, atoms in enumerate(torsions):
            assert list(atoms) in lists[k] or name == "MSE", name
            assert atoms[:3] == (torsions[k - 1][1:] if k else ("N", "CA", "CB")), name
    counts = {name: len(torsions) for name, torsions in CHI.items()}
    assert counts == {
        "ARG": 5, "ASN": 2, "ASP": 2, "CYS": 1, "GLN": 3, "GLU": 3, "HIS": 2, "ILE": 2, "LEU": 2, "LYS": 4, "MET": 3,
        "MSE": 3, "PHE": 2, "SER": 1, "THR": 1, "TRP": 2, "TYR": 2, "VAL": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("residue", "last"),
    [
        # of two atoms at a fork the one that the recommendations of 1970 number first
        ("ARG", "NH1"), ("ASN", "OD1"), ("ASP", "OD1"), ("GLN", "OE1"), ("GLU", "OE1"), ("HIS", "ND1"), ("ILE", "CD1"),
        ("LEU", "CD1"), ("LYS", "NZ"), ("MET", "CE"), ("PHE", "CD1"), ("THR", "OG1"), ("TRP", "CD1"), ("TYR", "CD1"),
        ("VAL", "CG1"), ("SER", "OG"), ("CYS", "SG"), ("MSE", "CE"),
    ],
)  # fmt: skip
def test_the_last_atom_of_a_side_chain(residue, last):
    assert CHI[residue][-1][-1] == last


def test_paths_that_fork_twice():
    assert [atoms[-1] for atoms in CHI["ILE"]] == ["CG1", "CD1"]
    assert [atoms[-1] for atoms in CHI["MSE"]] == ["CG", "SE", "CE"]
    assert [atoms[-1] for atoms in CHI["ARG"]] == ["CG", "CD", "NE", "CZ", "NH1"]


@pytest.mark.parametrize(
    ("state", "parent", "names"),
    [
        ("HID", "HIS", "HID HSD HISA HISD"),
        ("HIE", "HIS", "HIE HSE HISB HISE"),
        ("HIP", "HIS", "HIP HSP HISH"),
        ("ASH", "ASP", "ASH ASPP"),
        ("GLH", "GLU", "GLH GLUP"),
        ("CYX", "CYS", "CYX CYM CYS2"),
        ("LYN", "LYS", "LYN LSN"),
        (None, "CYS", "CYSH CYS"),
        (None, "LYS", "LYSH LYS"),
        (None, "HIS", "HIS"),
    ],
)
def test_states_of_protonation_by_every_name(state, parent, names):
    """AMBER's, CHARMM's and GROMACS's names; AMBER puts N or C before those at the ends of chains."""
    for name in names.split():
        assert standard_name(name, 12) == parent_name(name) == parent and protonation_variant(name) == state
        for end in "NC" if len(name) == 3 else "":
            assert standard_name(end + name, 12) == parent and protonation_variant(end + name) == state


def test_names_that_stay():
    """States whose hydrogens nobody lists, residues that only look like others, caps."""
    for name in ("HIN", "ARN", "TYM", "NME", "NMA", "ACE", "XALA", "NLIG", "CHOL", "MSE", "SEP"):
        assert standard_name(name, 12) == name and protonation_variant(name) is None
    assert standard_name("NMSE", 17) == "MSE" and standard_name("CTYM", 20) == "TYM"
    assert [standard_name("SOL", n) for n in (1, 6, 7)] == ["HOH", "HOH", "SOL"]


def test_a_backbone_has_three_atoms():
    assert has_backbone({"N": 0, "CA": 1, "C": 2, "O": 3})
    for names in (("N", "CA", "O"), ("CA", "C"), ("N", "C"), ()):
        assert not has_backbone(names)
