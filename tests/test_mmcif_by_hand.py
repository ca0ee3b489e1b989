"""mmCIF tables of a few rows: which column says what, residues and chains, connections, what is damaged."""

from __future__ import annotations

import numpy as np
import pytest

from peptidyn.core.errors import StructureError
from peptidyn.core.units import plain_array
from peptidyn.io.mmcif_format import read_mmcif
from peptidyn.io.readers import load_structure


def row(name, chain="A", number="1", residue="LIG", xyz=(0.0, 0.0, 0.0), **others):
    """A row of atom_site as the archive writes it; `others` are columns that differ, "" for none."""
    values = {
        "group_PDB": "HETATM",
        "type_symbol": name[0],
        "label_atom_id": name,
        "label_alt_id": ".",
        "label_comp_id": residue,
        "label_asym_id": chain,
        "label_seq_id": number,
        "pdbx_PDB_ins_code": "?",
        "Cartn_x": xyz[0],
        "Cartn_y": xyz[1],
        "Cartn_z": xyz[2],
        "occupancy": "1.00",
        "auth_seq_id": number,
        "auth_asym_id": chain,
        "pdbx_PDB_model_num": "1",
    }
    return {**values, **others}


def cif(*rows, without=(), extra=""):
    """The text of a file; columns are those of the first row, but those that are left out."""
    columns = [name for name in rows[0] if name not in without]
    lines = ["data_X", "#", extra, "loop_", *(f"_atom_site.{name}" for name in columns)]
    return "\n".join([*lines, *(" ".join(str(r[name]) for name in columns) for r in rows), "#", ""])


def read(*rows, model=0, **options):
    return read_mmcif(cif(*rows, **options), model, "x.cif")


def residues(raw):
    """Residues by the author: chain, number, code, and the names of their atoms; one list for every chain."""
    return [
        [
            (
                raw.chain_ids[chain.index],
                *raw.residue_ids[residue.index],
                residue.name,
                " ".join(atom.name for atom in residue.atoms()),
            )
            for residue in chain.residues()
        ]
        for chain in raw.topology.chains()
    ]


# ---------------------------------------------------------------------------- names


def test_the_names_of_the_author_come_first():
    author = {"auth_atom_id": "C9", "auth_comp_id": "XYZ", "auth_asym_id": "Q", "auth_seq_id": "-5"}
    raw = read(row("C1", chain="A", number="7", residue="LIG", **author, pdbx_PDB_ins_code="B"))
    assert residues(raw) == [[("Q", "-5", "B", "XYZ", "C9")]] and raw.file_names == ["XYZ"]
    blank = dict.fromkeys(author, "?")
    raw = read(row("C1", number="7", **{**blank, "auth_comp_id": "."}))
    assert residues(raw) == [[("", "7", "", "LIG", "C1")]]  # a chain has no other name than the author's
    raw = read(row("C1", number="7"), without=("auth_asym_id", "auth_seq_id", "pdbx_PDB_ins_code"))
    assert residues(raw) == [[("A", "7", "", "LIG", "C1")]]


def test_values_that_are_missing_in_some_rows():
    """Every row for itself has the author's name, or that of the label."""
    rows = [row("C1", auth_comp_id="XYZ", auth_seq_id="3"), row("C2", number="4", auth_comp_id="?", auth_seq_id=".")]
    assert residues(read(*rows)) == [[("A", "3", "", "XYZ", "C1"), ("A", "4", "", "LIG", "C2")]]


def test_atoms_are_named_by_either_column():
    rows = [row("C1", auth_atom_id="C7")]
    assert residues(read(*rows, without=("label_atom_id",))) == [[("A", "1", "", "LIG", "C7")]]
    for gone, message in (
        (("label_atom_id", "auth_atom_id"), "its table _atom_site has no column label_atom_id"),
        (("Cartn_y",), "its table _atom_site has no column Cartn_y"),
        (("Cartn_z",), "its table _atom_site has no column Cartn_z"),
        (("Cartn_x",), "holds no atoms"),
    ):
        with pytest.raises(StructureError, match=message):
            read(*rows, without=gone)


def test_elements_and_positions():
    """The element is that of its column; where that says nothing it is unknown, whatever the name."""
    rows = [row("CA", xyz=(1.5, -2.25, 3.125), type_symbol="CA"), row("CB", xyz=(9.0, 8.0, 7.0), type_symbol="C")]
    raw = read(*rows)
    assert [atom.element.symbol for atom in raw.topology.atoms()] == ["Ca", "C"]
    assert raw.positions == pytest.approx(np.array([[0.15, -0.225, 0.3125], [0.9, 0.8, 0.7]]), abs=1e-12)
    raw = read(row("O1", type_symbol="?"), row("N2", type_symbol="."))
    assert [atom.element for atom in raw.topology.atoms()] == [None, None]
    for axis, message in enumerate(("'x 0.0 0.0'", "'0.0 x 0.0'", "'0.0 0.0 x'")):
        xyz = ["0.0"] * 3
        xyz[axis] = "x"
        with pytest.raises(
            StructureError, match=f"the coordinates {message} of chain A, residue 1, atom C1 are not th"
        ):
            read(row("C1", xyz=xyz))


def test_models_come_in_the_order_of_the_file():
    rows = [row("C1", xyz=(k, 0, 0), pdbx_PDB_model_num=number) for k, number in enumerate(("7", "2", "7"))]
    rows[2].update(label_atom_id="C2")
    assert read(*rows).positions[:, 0] == pytest.approx([0.0, 0.2])
    assert read(*rows, model=1).positions[:, 0] == pytest.approx([0.1])
    with pytest.raises(StructureError, match="no model 2: it holds 2 models"):
        read(*rows, model=2)
    assert len(read(*rows[:2], without=("pdbx_PDB_model_num",)).positions) == 2


def test_an_occupancy_that_is_not_given_is_one():
    rows = [
        row("C1", label_alt_id=letter, occupancy=occupancy, xyz=(k, 0, 0))
        for k, (letter, occupancy) in enumerate((("A", "0.9"), ("B", "?"), ("C", "0.95")))
    ]
    raw = read(*rows)
    assert raw.positions[:, 0] == pytest.approx([0.1])
    assert "chain A, residue 1" in raw.notes[0].text and raw.notes[0].kind == "altloc"


# ---------------------------------------------------------------------------- residues and chains


@pytest.mark.parametrize(
    ("change", "n"),
    [
        ({}, 1),
        ({"auth_seq_id": "2"}, 2),
        ({"pdbx_PDB_ins_code": "A"}, 2),
        ({"label_seq_id": "2"}, 2),
        ({"auth_asym_id": "B"}, 2),
        ({"label_asym_id": "B"}, 2),
        ({"label_comp_id": "XYZ"}, 2),
        ({"auth_asym_id": "B", "label_asym_id": "B"}, 2),
    ],
)
def test_what_tells_one_residue_from_the_next(change, n):
    raw = read(row("C1"), row("C2"), row("C3", **change), row("C4", **change))
    names = [names for chain in residues(raw) for *_, names in chain]
    assert names == (["C1 C2 C3 C4"] if n == 1 else ["C1 C2", "C3 C4"])


def test_two_residues_at_one_site_are_alternatives():
    """LEU with 0.6 and ILE with 0.4; the atom without a letter belongs to both."""
    rows = [
        row("N", residue="LEU", label_alt_id="A", occupancy="0.4"),
        row("CG", residue="LEU", label_alt_id="A", occupancy="0.4"),
        row("N", residue="ILE", label_alt_id="B", occupancy="0.6", xyz=(0.1, 0, 0)),
        row("CG1", residue="ILE", label_alt_id="B", occupancy="0.6"),
        row("CA", residue="ALA", number="2"),
    ]
    assert residues(read(*rows)) == [[("A", "1", "", "ILE", "N CG1"), ("A", "2", "", "ALA", "CA")]]


def test_waters_without_numbers_begin_where_a_name_comes_again():
    unnumbered = {"residue": "HOH", "number": "."}
    rows = [row(name, **unnumbered) for name in ("O", "H1", "H2", "O", "H1", "H2", "O")]
    assert [names for *_, names in residues(read(*rows))[0]] == ["O H1 H2", "O H1 H2", "O"]
    letters = [row("O", **unnumbered, label_alt_id=letter, occupancy="0.5") for letter in "AB"]
    assert [names for *_, names in residues(read(*letters, *rows[:1]))[0]] == ["O"] * 2
    numbered = [row(name) for name in ("C1", "C2", "C1")]
    assert [names for *_, names in residues(read(*numbered))[0]] == ["C1 C2 C1"]


def test_chains_end_with_each_polymer():
    """One chain of the author: two polymers, then ligand, ion and water, none of them a polymer."""
    rows = [
        row("CA", chain="A", number="1", residue="ALA"),
        row("CA", chain="A", number="2", residue="GLY"),
        row("CA", chain="B", number="1", residue="SER", auth_asym_id="A", auth_seq_id="11"),
        row("C1", chain="C", number=".", auth_asym_id="A", auth_seq_id="101"),
        row("NA", chain="D", number=".", auth_asym_id="A", auth_seq_id="102", residue="NA", type_symbol="NA"),
        row("O", chain="E", number=".", auth_asym_id="A", auth_seq_id="201", residue="HOH"),
        row("O", chain="F", number=".", auth_asym_id="X", auth_seq_id="201", residue="HOH"),
    ]
    found = [[(chain, number, name) for chain, number, _, name, _ in part] for part in residues(read(*rows))]
    assert found == [
        [("A", "1", "ALA"), ("A", "2", "GLY")],
        [("A", "11", "SER")],
        [("A", "101", "LIG"), ("A", "102", "NA"), ("A", "201", "HOH")],
        [("X", "201", "HOH")],
    ]


# ---------------------------------------------------------------------------- cell, bonds, connections


@pytest.mark.parametrize(
    ("angles", "box"),
    [
        ((90, 90, 90), [[2, 0, 0], [0, 3, 0], [0, 0, 4]]),
        ((60, 90, 90), [[2, 0, 0], [0, 3, 0], [0, 2 - 3, np.sqrt(12)]]),
        ((90, 60, 90), [[2, 0, 0], [0, 3, 0], [2 - 2, 0, np.sqrt(12)]]),
        ((90, 90, 60), [[2, 0, 0], [1.5 - 2, 1.5 * np.sqrt(3), 0], [0, 0, 4]]),
    ],
)
def test_the_cell_becomes_the_reduced_box(angles, box):
    names = ("length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma")
    lines = [f"_cell.{name} {value}" for name, value in zip(names, (20, 30, 40, *angles), strict=True)]
    raw = read(row("C1"), extra="\n".join([*lines, "#"]))
    found = plain_array(raw.topology.getPeriodicBoxVectors())
    # c - b of 60 degrees and b, c - a of 60 degrees may be taken with either sign where they are half a box
    assert np.abs(np.abs(found) - np.abs(box)).max() < 1e-6
    assert read(row("C1"), extra="\n".join([*lines[:-1], "#"])).topology.getPeriodicBoxVectors() is None


def test_bonds_of_the_dictionary_of_components(tmp_path):
    """Of the file's own dictionary, with their orders; 0.2 nm are too far for a bond that is found by distance."""
    rows = [row("C1"), row("C2", xyz=(2.0, 0, 0)), row("C3", xyz=(2.0, 2.0, 0))]
    bonds = (
        "loop_\n_chem_comp_bond.comp_id\n_chem_comp_bond.atom_id_1\n_chem_comp_bond.atom_id_2\n"
        "_chem_comp_bond.value_order\nLIG C1 C2 doub\nLIG C2 C3 sing\n#"
    )
    for extra, expected in ((bonds, [[0, 1], [1, 2]]), ("", [])):
        (tmp_path / "x.cif").write_text(cif(*rows, extra=extra))
        assert load_structure(tmp_path / "x.cif").atoms.bonds.tolist() == expected


LIGANDS = [
    row("C1", chain="A", number="1"),
    row("O2", chain="A", number="1"),
    row("C1", chain="A", number="2"),
    row("C1", chain="B", number=".", auth_asym_id="A", auth_seq_id="7"),
    row("C1", chain="C", number=".", auth_asym_id="A", auth_seq_id="7", pdbx_PDB_ins_code="K"),
    row("S1", chain="D", number="1", auth_asym_id="Q", auth_seq_id="5", auth_atom_id="SX"),
]
ENDS = ("label_asym_id", "label_seq_id", "label_atom_id", "auth_asym_id", "auth_seq_id", "symmetry")


def links(*connections, rows=LIGANDS):
    """The bonds of connections, each a kind and two ends; an end is asym, seq, atom, auth asym, auth seq, symmetry."""
    columns = [f"ptnr{k}_{name}" for k in (1, 2) for name in ENDS]
    columns += ["pdbx_ptnr1_PDB_ins_code", "pdbx_ptnr2_PDB_ins_code"]
    lines = ["loop_", "_struct_conn.conn_type_id", *(f"_struct_conn.{name}" for name in columns)]
    for kind, one, other in connections:
        codes = [end[6] if len(end) > 6 else "?" for end in (one, other)]
        lines.append(" ".join([kind, *one[:6], *other[:6], *codes]))
    for each in rows:
        each.setdefault("auth_atom_id", each["label_atom_id"])
    return read(*rows, extra="\n".join([*lines, "#"])).links


C1, O2 = ("A", "1", "C1", "A", "1", "1_555"), ("A", "1", "O2", "A", "1", "1_555")
SECOND = ("A", "2", "C1", "A", "2", "1_555")
LIGAND, WITH_CODE = ("B", ".", "C1", "A", "7", "1_555"), ("C", ".", "C1", "A", "7", "1_555", "K")
SULFUR = ("D", "1", "S1", "Q", "5", "1_555")


@pytest.mark.parametrize(
    ("connections", "bonds"),
    [
        ([("covale", C1, SECOND)], [(0, 2)]),
        ([("covale", SECOND, C1)], [(0, 2)]),
        ([("COVALE", O2, SECOND)], [(1, 2)]),
        ([("covale_base", O2, SECOND)], [(1, 2)]),
        ([("disulf", SULFUR, C1)], [(0, 5)]),
        ([("modres", O2, SULFUR)], [(1, 5)]),
        ([("metalc", C1, SECOND)], []),
        ([("hydrog", C1, SECOND)], []),
        ([("covale", C1, LIGAND)], [(0, 3)]),
        ([("covale", C1, WITH_CODE)], [(0, 4)]),
        ([("covale", LIGAND, WITH_CODE)], [(3, 4)]),
        ([("covale", C1, C1)], []),
        ([("covale", C1, (*SECOND[:5], "2_655"))], []),
        ([("covale", (*C1[:5], "2_655"), (*SECOND[:5], "2_655"))], [(0, 2)]),
        ([("covale", C1, ("A", "3", "C1", "A", "3", "1_555"))], []),
        ([("covale", C1, ("A", "2", "C9", "A", "2", "1_555"))], []),
        ([("metalc", O2, SULFUR), ("covale", C1, SECOND), ("disulf", SECOND, SULFUR)], [(0, 2), (2, 5)]),
        # the author's names alone, and those of the label where the author's are others
        ([("covale", ("?", "?", "C1", "A", "1", "."), ("?", "?", "C1", "A", "2", "."))], [(0, 2)]),
        ([("covale", ("A", "1", "C1", "?", "?", "."), ("D", "1", "S1", "?", "?", "."))], [(0, 5)]),
        ([("covale", C1, ("?", "?", "S1", "Q", "5", "1_555"))], [(0, 5)]),
    ],
)
def test_connections_that_are_bonds(connections, bonds):
    assert links(*connections) == bonds


def test_a_connection_is_a_bond_of_the_structure(tmp_path):
    """C1 and C2 of two ligands, 0.2 nm apart, which is too far for a bond that is found by distance."""
    rows = [row("C1"), row("C2", number="2", xyz=(2.0, 0, 0)), row("C3", number="3", xyz=(9.0, 0, 0))]
    names = [f"_struct_conn.ptnr{k}_{name}" for k in (1, 2) for name in ENDS[:3]]
    connection = "\n".join(["loop_", "_struct_conn.conn_type_id", *names, "covale A 1 C1 A 2 C2", "#"])
    (tmp_path / "x.cif").write_text(cif(*rows, extra=connection))
    structure = load_structure(tmp_path / "x.cif")
    assert structure.atoms.bonds.tolist() == [[0, 1]]
    assert [residue.id for residue in structure.topology.residues()] == ["1", "2", "3"]


def test_a_connection_does_not_undo_what_the_dictionary_says(tmp_path):
    """The double bond of the dictionary is listed as a connection again: it stays double."""
    rows = [row("C1"), row("C2", xyz=(1.4, 0, 0))]
    bonds = (
        "loop_\n_chem_comp_bond.comp_id\n_chem_comp_bond.atom_id_1\n_chem_comp_bond.atom_id_2\n"
        "_chem_comp_bond.value_order\nLIG C1 C2 doub\n#\n"
    )
    names = [f"_struct_conn.ptnr{k}_{name}" for k in (1, 2) for name in ENDS[:3]]
    connection = "\n".join(["loop_", "_struct_conn.conn_type_id", *names, "covale A 1 C1 A 1 C2", "#"])
    (tmp_path / "x.cif").write_text(cif(*rows, extra=bonds))
    alone = load_structure(tmp_path / "x.cif")
    (tmp_path / "x.cif").write_text(cif(*rows, extra=bonds + connection))
    both = load_structure(tmp_path / "x.cif")
    assert both.atoms.bonds.tolist() == alone.atoms.bonds.tolist() == [[0, 1]]
    assert both.atoms.bond_order.tolist() == alone.atoms.bond_order.tolist()
    assert [bond.type for bond in both.topology.bonds()] == [bond.type for bond in alone.topology.bonds()]


# ---------------------------------------------------------------------------- damage


def test_tables_that_break_off():
    with pytest.raises(StructureError, match="the table _cell breaks off"):
        read(row("C1"), extra="loop_\n_cell.length_a\n_cell.length_b\n1 2 3\n#")
    archive = f"data_X\n_audit_conform.dict_name mmcif_pdbx.dic\n#\n{cif(row('C1'), row('C2')).partition('#')[2]}"
    assert len(read_mmcif(archive, 0, "x.cif").positions) == 2
    for group in ("HETATM", "ATOM"):
        cut = archive.replace("HETATM", group).rstrip("#\n") + "\n"
        with pytest.raises(StructureError, match="the table _atom_site breaks off"):
            read_mmcif(cut, 0, "x.cif")
    assert len(read_mmcif(cif(row("C1"), row("C2")).rstrip("#\n"), 0, "x.cif").positions) == 2  # of another program
    with pytest.raises(StructureError, match="'stray' stands outside of all tables"):
        read_mmcif("data_X\nstray word\n" + cif(row("C1")).partition("#")[2], 0, "x.cif")
