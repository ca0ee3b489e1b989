"""What PDB and mmCIF files say of a few atoms: names, numbers, cells, connections, column by column."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
from Bio.PDB.MMCIF2Dict import MMCIF2Dict
from openmm import app, unit

from peptidyn.core.errors import StructureError
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure
from peptidyn.io.writers import mmcif_text


def make(*chains, bonds=(), name="made", box=None):
    """A structure of chains, each a name and residues; a residue is its name, number, code and atoms (element first).

    Atoms are 0.3 nm apart along x, so that no two of them seem bonded.
    """
    topology = app.Topology()
    for chain_id, residues in chains:
        chain = topology.addChain(chain_id)
        for residue_name, number, code, atoms in residues:
            residue = topology.addResidue(residue_name, chain, number, code)
            for atom in atoms.split():
                topology.addAtom(atom, app.Element.getBySymbol(atom[0]), residue)
    made = list(topology.atoms())
    for i, j in bonds:
        topology.addBond(made[i], made[j])
    if box is not None:
        topology.setPeriodicBoxVectors(np.array(box) * unit.nanometer)
    x = np.zeros((len(made), 3))
    x[:, 0] = 0.3 * np.arange(len(made))
    return Structure.from_openmm(topology, None, x, name=name)


def columns(structure, table):
    """The columns of a table of the mmCIF text."""
    found = MMCIF2Dict(io.StringIO(mmcif_text(structure)))
    return {key.split(".")[1]: values for key, values in found.items() if key.startswith(f"{table}.")}


# ---------------------------------------------------------------------------- atoms


def test_columns_of_mmcif():
    structure = make(
        ("A", [("ALA", "-1", "", "N CA"), ("DG", "7", "B", "P"), ("LIG", "8", "", "C1")]),
        ("B", [("HOH", "7", "", "O")]),
    )
    atoms = columns(structure, "_atom_site")
    assert atoms["group_PDB"] == ["ATOM"] * 3 + ["HETATM"] * 2
    assert atoms["id"] == ["1", "2", "3", "4", "5"]
    assert atoms["type_symbol"] == ["N", "C", "P", "C", "O"]
    assert atoms["label_atom_id"] == atoms["auth_atom_id"] == ["N", "CA", "P", "C1", "O"]
    assert atoms["label_comp_id"] == atoms["auth_comp_id"] == ["ALA", "ALA", "DG", "LIG", "HOH"]
    assert atoms["label_asym_id"] == atoms["auth_asym_id"] == ["A"] * 4 + ["B"]
    assert atoms["label_seq_id"] == ["1", "1", "2", "3", "1"]
    assert atoms["auth_seq_id"] == ["-1", "-1", "7", "8", "7"]
    assert atoms["pdbx_PDB_ins_code"] == ["?", "?", "B", "?", "?"]
    assert [float(x) for x in atoms["Cartn_x"]] == pytest.approx([0, 3, 6, 9, 12], abs=1e-12)
    assert {*atoms["Cartn_y"], *atoms["Cartn_z"]} == {"0.000000000000"}
    assert set(atoms["pdbx_PDB_model_num"]) == {"1"} and set(atoms["occupancy"]) == {"1.00"}
    assert MMCIF2Dict(io.StringIO(mmcif_text(structure)))["data_"] == "made"


def test_coordinates_have_all_digits_and_axes():
    structure = make(("A", [("LIG", "1", "", "C1 C2")])).with_positions(
        [[0.1234567890123, 2.0, -3.0], [1.0, 5.5, 6.25]]
    )
    atoms = columns(structure, "_atom_site")
    found = np.array([[float(x) for x in atoms[f"Cartn_{axis}"]] for axis in "xyz"]).T
    assert found == pytest.approx(10 * structure.positions, abs=1e-12)


def test_chains_of_one_name_or_none_have_labels_of_their_own():
    """The first of a name keeps it; the author's name stays, if there is one."""
    one = [("LIG", "1", "", "C1")]
    atoms = columns(make(("A", one), (" ", one), ("B", one), ("A", one), ("", one), ("B", one)), "_atom_site")
    assert atoms["label_asym_id"] == ["A", "x2", "B", "x4", "x5", "x6"]
    assert atoms["auth_asym_id"] == ["A", ".", "B", "A", ".", "B"]
    assert atoms["label_seq_id"] == ["1"] * 6


def test_a_chain_with_the_label_of_another():
    """A chain of the author may have the name that a nameless one would get: labels are all different."""
    one = [("LIG", "1", "", "C1")]
    structure = make(("", one), ("x1", one), ("x3", one), ("x3", one))
    assert columns(structure, "_atom_site")["label_asym_id"] == ["x1", "x2", "x3", "x4"]


@pytest.mark.parametrize(
    ("name", "data"), [("a b.pdb", "ab.pdb"), ("  ", "structure"), ("", "structure"), ("x", "x"), ("a\tb\nc", "abc")]
)
def test_names_of_data(name, data):
    text = mmcif_text(make(("A", [("LIG", "1", "", "C1")]), name=name))
    assert text.startswith(f"data_{data}\n")


@pytest.mark.parametrize(
    ("box", "cell"),
    [
        (np.diag([2.0, 3.0, 4.0]), (20, 30, 40, 90, 90, 90)),
        ([[2, 0, 0], [1, np.sqrt(3), 0], [0, 0, 3]], (20, 20, 30, 90, 90, 60)),
        ([[3, 0, 0], [0, 2, 0], [1, 0, np.sqrt(3)]], (30, 20, 20, 90, 60, 90)),
        ([[3, 0, 0], [0, 2, 0], [0, -1, np.sqrt(3)]], (30, 20, 20, 120, 90, 90)),
    ],
)
def test_cells_are_in_angstrom_and_degrees(tmp_path, box, cell):
    structure = make(("A", [("LIG", "1", "", "C1")]), box=box)
    found = columns(structure, "_cell")
    names = ("length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma")
    assert [float(found[name][0]) for name in names] == pytest.approx(cell, abs=1e-8)
    structure.write(tmp_path / "x.pdb")
    (line,) = [line for line in (tmp_path / "x.pdb").read_text().splitlines() if line.startswith("CRYST1")]
    ends = (6, 15, 24, 33, 40, 47, 54)
    assert [float(line[a:b]) for a, b in pairwise(ends)] == pytest.approx(cell, abs=0.01)


def test_without_a_box_there_is_no_cell():
    assert columns(make(("A", [("LIG", "1", "", "C1")])), "_cell") == {}


# ---------------------------------------------------------------------------- connections


def connections(structure):
    """Kind and both ends (label of the chain, number in it, residue, atom) of every connection."""
    rows = columns(structure, "_struct_conn")
    if not rows:
        return []
    ends = [
        list(zip(*(rows[f"ptnr{k}_label_{name}_id"] for name in ("asym", "seq", "comp", "atom")), strict=True))
        for k in (1, 2)
    ]
    assert rows["id"] == [f"bond{k + 1}" for k in range(len(rows["id"]))]
    return [(kind, " ".join(a), " ".join(b)) for kind, a, b in zip(rows["conn_type_id"], *ends, strict=True)]


def test_bonds_of_templates_are_no_connections():
    """Within standard residues, and from C and O3' to N and P of the next residue."""
    peptide = ("A", [("ALA", "1", "", "N CA C"), ("ALA", "2", "", "N CA C")])
    assert connections(make(peptide, bonds=[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)])) == []
    strand = ("A", [("DG", "1", "", "P O3'"), ("DA", "2", "", "P O3'")])
    assert connections(make(strand, bonds=[(1, 2)])) == []
    assert connections(make(peptide)) == []


@pytest.mark.parametrize(
    ("chains", "bond", "expected"),
    [
        # a ring of a peptide, backwards; and C of one residue to the N of the next but one
        ([("A", [("ALA", "1", "", "N"), ("ALA", "2", "", "C")])], (0, 1), ("covale", "A 1 ALA N", "A 2 ALA C")),
        (
            [("A", [("ALA", "1", "", "C"), ("GLY", "2", "", "CA"), ("SER", "5", "", "N")])],
            (0, 2),
            ("covale", "A 1 ALA C", "A 3 SER N"),
        ),
        ([("A", [("ALA", "1", "", "C"), ("ALA", "2", "", "CA")])], (0, 1), ("covale", "A 1 ALA C", "A 2 ALA CA")),
        ([("A", [("ALA", "1", "", "C"), ("LIG", "2", "", "N")])], (0, 1), ("covale", "A 1 ALA C", "A 2 LIG N")),
        ([("A", [("LIG", "1", "", "C"), ("ALA", "2", "", "N")])], (0, 1), ("covale", "A 1 LIG C", "A 2 ALA N")),
        ([("A", [("CYS", "4", "", "SG"), ("CYS", "9", "", "SG")])], (0, 1), ("disulf", "A 1 CYS SG", "A 2 CYS SG")),
        ([("A", [("CYS", "4", "", "SG"), ("LIG", "9", "", "C1")])], (0, 1), ("covale", "A 1 CYS SG", "A 2 LIG C1")),
        ([("A", [("LIG", "1", "", "S1 S2")])], (0, 1), ("covale", "A 1 LIG S1", "A 1 LIG S2")),
        ([("A", [("LIG", "1", "", "C1 O7")])], (0, 1), ("covale", "A 1 LIG C1", "A 1 LIG O7")),
        (
            [("A", [("DG", "1", "", "O3'"), ("DA", "2", "", "C2"), ("DA", "3", "", "P")])],
            (0, 2),
            ("covale", "A 1 DG O3'", "A 3 DA P"),
        ),
        (
            [
                ("A", [("GLY", "1", "", "CA"), ("ALA", "2", "", "CB")]),
                ("B", [("SER", "3", "", "CA"), ("LIG", "4", "", "C7")]),
            ],
            (1, 3),
            ("covale", "A 2 ALA CB", "B 2 LIG C7"),
        ),
    ],
)  # fmt: skip
def test_connections(chains, bond, expected):
    """Bonds that no template names."""
    structure = make(*chains)
    topology = structure.topology
    atoms = list(topology.atoms())
    topology.addBond(atoms[bond[0]], atoms[bond[1]])
    x = structure.positions.copy()
    x[bond[1]] = x[bond[0]] + [0.0, 0.2, 0.0]
    assert connections(Structure.from_openmm(topology, None, x)) == [expected]


def test_connections_are_read_back(tmp_path):
    """Between chains of one name too, by their labels."""
    one = [("LIG", "1", "", "C1")]
    structure = make(("A", one), ("A", one), ("A", [("LIG", "1", "", "C1 S2"), ("LIG", "2", "", "S1")]))
    topology = structure.topology
    atoms = list(topology.atoms())
    for i, j in ((0, 2), (3, 4)):
        topology.addBond(atoms[i], atoms[j])
    x = np.array([[0, 0, 0], [1, 0, 0], [0.2, 0, 0], [2, 0, 0], [2.22, 0, 0]])
    Structure.from_openmm(topology, None, x).write(tmp_path / "x.cif")
    assert load_structure(tmp_path / "x.cif").atoms.bonds.tolist() == [[0, 2], [3, 4]]


# ---------------------------------------------------------------------------- files


def test_endings_of_either_case(tmp_path):
    structure = make(("A", [("LIG", "12", "C", "C1"), ("LIG", "7", "", "C2")]))
    for name in ("x.PDB", "x.Ent", "x.CIF", "x.mmcif", "x.pdbx"):
        structure.write(tmp_path / name)
        again = load_structure(tmp_path / name)
        assert again.atoms.residue_id.tolist() == ["12C", "7"] and again.atoms.chain_id.tolist() == ["A"]


def test_pdb_files_hold_no_date(tmp_path):
    make(("A", [("LIG", "1", "", "C1")])).write(tmp_path / "x.pdb")
    lines = (tmp_path / "x.pdb").read_text().splitlines()
    assert [line[:6].strip() for line in lines] == ["HETATM", "TER", "END"]


@pytest.mark.parametrize(
    ("residue", "atom", "fits"),
    [("LIG", "C123", True), ("LIG", "C1234", False), ("LIGA", "C1", False), ("LI", "C", True)],
)
def test_names_that_fit_into_pdb(tmp_path, residue, atom, fits):
    structure = make(("A", [(residue, "1", "", atom)]))
    if fits:
        structure.write(tmp_path / "x.pdb")
        assert load_structure(tmp_path / "x.pdb").atoms.name.tolist() == [atom]
    else:
        too_long = residue if len(residue) > 3 else atom
        with pytest.raises(StructureError, match=f"the names {too_long} are too long for the PDB format; write a .cif"):
            structure.write(tmp_path / "x.pdb")
    structure.write(tmp_path / "x.cif")
    again = load_structure(tmp_path / "x.cif")
    assert (again.atoms.residue_name.tolist(), again.atoms.name.tolist()) == ([residue], [atom])
