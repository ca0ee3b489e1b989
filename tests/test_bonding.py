"""Bonds: gaps, disulfides, links, ions, ligands, and atoms at the same place."""

from __future__ import annotations

import numpy as np
import pytest
from structure_files import (
    BENZENE,
    atom_lines,
    bonded_names,
    hetatm,
    kinds,
    mmcif_text,
    molecules,
    residue_number,
    shifted,
    the_note,
    write,
)

from peptidyn.core.errors import StructureError
from peptidyn.io.bonding import PEPTIDE_BOND_LIMIT
from peptidyn.io.readers import load_structure


def test_a_gap_has_no_bond(tmp_path, villin):
    lines = [line for line in atom_lines(villin) if residue_number(line) not in (55, 56, 57)]
    structure = load_structure(write(tmp_path, lines))
    assert molecules(structure)[0] == 2
    assert "chain A, residue THR 54 and chain A, residue PHE 58" in the_note(structure, "gap")
    carbon, nitrogen = (
        np.flatnonzero((structure.atoms.name == n) & (structure.atoms.residue_id[structure.atoms.residue] == r))[0]
        for n, r in (("C", "54"), ("N", "58"))
    )
    assert [carbon, nitrogen] not in structure.atoms.bonds.tolist()


def test_the_limit_of_a_peptide_bond(tmp_path, villin):
    """Pull the chain apart at one bond, along it, to just below and just above the limit."""
    plain = load_structure(villin)
    residue = plain.atoms.residue_id.tolist().index("58")
    carbon = plain.positions[plain.atoms.residue_atoms[residue - 1]["C"]]
    nitrogen = plain.positions[plain.atoms.residue_atoms[residue]["N"]]
    direction = (nitrogen - carbon) / np.linalg.norm(nitrogen - carbon)
    for distance, gaps in ((0.99 * PEPTIDE_BOND_LIMIT, 0), (1.01 * PEPTIDE_BOND_LIMIT, 1)):
        move = 10 * (distance - np.linalg.norm(nitrogen - carbon)) * direction
        lines = [shifted(x, *move) if residue_number(x) >= 58 else x for x in atom_lines(villin)]
        structure = load_structure(write(tmp_path, lines))
        assert kinds(structure)["gap"] == gaps
        assert molecules(structure)[0] == 1 + gaps


@pytest.mark.parametrize(("name", "number"), [("C", 57), ("N", 58)])
def test_a_chain_without_an_atom_of_its_backbone_is_broken_there(tmp_path, villin, name, number):
    lines = [x for x in atom_lines(villin) if (x[12:16].strip(), residue_number(x)) != (name, number)]
    structure = load_structure(write(tmp_path, lines))
    note = the_note(structure, "gap")
    assert "the chain is broken in 1 place where atoms are missing" in note
    assert f"{number}, atom {name}" in note


@pytest.mark.parametrize(("apart", "gaps"), [(0.0, 0), (3.0, 1)])
def test_a_phosphate_bond_across_a_gap_is_none(tmp_path, apart, gaps):
    """The backbone of two nucleotides, a zigzag of bonds of 1.54 A; OpenMM's template bonds O3' to the next P."""
    names = ("P", "O5'", "C5'", "C4'", "C3'", "O3'")
    lines = [
        hetatm(6 * r + k + 1, name, "DA", "A", r + 1, (1.25 * (6 * r + k) + apart * r, 0.9 * (k % 2), 0.0), name[0])
        for r in range(2)
        for k, name in enumerate(names)
    ]
    structure = load_structure(write(tmp_path, lines))
    assert molecules(structure)[0] == 1 + gaps
    assert kinds(structure)["gap"] == gaps
    if gaps:
        assert "residue DA 1 and chain A, residue DA 2: O3' and P are 0.4" in the_note(structure, "gap")


def test_gap_from_numbering_alone_is_none(tmp_path, villin):
    """Numbers may jump where the chain does not."""
    lines = [
        f"{line[:22]}{residue_number(line) + (100 if residue_number(line) > 55 else 0):4d}{line[26:]}"
        for line in atom_lines(villin)
    ]
    assert kinds(load_structure(write(tmp_path, lines)))["gap"] == 0


def test_real_gap_and_modified_residue(integrase):
    structure = load_structure(integrase)
    assert "GLN 137 and chain A, residue MET 154" in the_note(structure, "gap")
    count, _ = molecules(structure)
    waters = int((structure.atoms.residue_name == "HOH").sum())
    assert count == 2 + waters
    assert len(structure.missing) == 186  # all but the two residues CAS


def test_selenomethionine_without_records(tmp_path, villin):
    """MSE is unknown to OpenMM: its bonds and links are found without CONECT."""
    lines = []
    for line in atom_lines(villin):
        if residue_number(line) == 53:
            line = f"HETATM{line[6:17]}MSE{line[20:]}"
            if line[12:16] == " SD ":
                line = f"{line[:12]}SE  {line[16:76]}SE"
        lines.append(line)
    plain, structure = load_structure(villin), load_structure(write(tmp_path, lines))
    np.testing.assert_array_equal(structure.atoms.bonds, plain.atoms.bonds)
    assert "MSE 53" in the_note(structure, "inferred-bonds")
    complete = load_structure(write(tmp_path, lines), add_hydrogens=True)
    assert "MSE 53" in the_note(complete, "renamed")
    assert complete.atoms.residue_name.tolist() == plain.atoms.residue_name.tolist()
    assert complete.atoms.name.tolist() == plain.atoms.name.tolist()
    np.testing.assert_array_equal(complete.positions, plain.positions)
    np.testing.assert_allclose(complete.masses, plain.masses)


def test_bpti_has_three_disulfides(further_structure):
    structure = load_structure(further_structure("bpti.pdb"))
    assert kinds(structure) == {"disulfide": 3}
    sulfurs = np.flatnonzero(structure.atoms.name == "SG")
    assert all(len(structure.atoms.neighbours[s]) == 2 for s in sulfurs)


def test_disulfide_by_distance_and_not_between_thiols(tmp_path, villin):
    """Two cysteines made of serines, brought together; a hydrogen on sulfur speaks against the bond."""

    def cysteine(number, chain, offset, with_hydrogen):
        out = []
        for line in atom_lines(villin):
            name = line[12:16].strip()
            if residue_number(line) != 43 or (name == "HG" and not with_hydrogen):
                continue
            if name == "OG":
                line = f"{line[:12]} SG {line[16:76]} S"
            out.append(shifted(f"{line[:17]}CYS {chain}{number:4d}{line[26:]}", *offset))
        return out

    first = cysteine(1, "A", (0, 0, 0), False)
    sulfur = next(np.array([float(x[a : a + 8]) for a in (30, 38, 46)]) for x in first if x[12:16] == " SG ")
    beta = next(np.array([float(x[a : a + 8]) for a in (30, 38, 46)]) for x in first if x[12:16] == " CB ")
    away = (sulfur - beta) / np.linalg.norm(sulfur - beta)
    centre = sulfur + 1.02 * away
    mirrored = []
    for x in cysteine(2, "B", (0, 0, 0), False):
        xyz = (2 * centre[k] - float(x[30 + 8 * k : 38 + 8 * k]) for k in range(3))
        mirrored.append(f"{x[:30]}{''.join(f'{value:8.3f}' for value in xyz)}{x[54:]}")
    structure = load_structure(write(tmp_path, [*first, "TER", *mirrored, "TER"]))
    assert "CYS 1, atom SG and chain B, residue CYS 2, atom SG (0.204 nm)" in the_note(structure, "disulfide")
    assert molecules(structure)[0] == 1
    thiol = [x for x in cysteine(1, "A", (0, 0, 0), True)]
    reduced = load_structure(write(tmp_path, [*thiol, "TER", *mirrored, "TER"]))
    assert kinds(reduced)["disulfide"] == 0
    assert molecules(reduced)[0] == 2
    completed = load_structure(write(tmp_path, [*first, "TER", *mirrored, "TER"]), add_hydrogens=True)
    assert not any("HG" in table for table in completed.atoms.residue_atoms)


def test_ions_stay_ions_whatever_is_recorded(tmp_path, villin):
    lines = atom_lines(villin)
    oxygen = next(x for x in lines if x[12:16] == " OD1" and residue_number(x) == 44)
    near = np.array([float(oxygen[a : a + 8]) for a in (30, 38, 46)]) + [0, 0, 2.1]
    zinc = hetatm(900, "ZN", "ZN", "A", 101, near, "ZN")
    water = hetatm(901, "O", "HOH", "A", 102, near + [0, 0, 2.1], "O")
    records = [f"CONECT  900{int(oxygen[6:11]):5d}  901", f"CONECT  901  900{int(oxygen[6:11]):5d}"]
    structure = load_structure(write(tmp_path, [*lines, "TER", zinc, water, *records]))
    assert not structure.atoms.neighbours[596]
    assert not structure.atoms.neighbours[597]
    cif = tmp_path / "x.cif"
    partners = "".join(
        f"_struct_conn.ptnr{end}_{key}\n"
        for end in (1, 2)
        for key in ("label_asym_id", "label_seq_id", "label_atom_id", "auth_asym_id", "auth_seq_id")
    )
    connections = "loop_\n_struct_conn.id\n_struct_conn.conn_type_id\n" + partners
    connections += "m1 metalc A 4 OD1 A 44 B . ZN A 101\nc1 covale A 4 OD1 A 44 B . ZN A 101\n#\n"
    cif.write_text(mmcif_text([*lines, zinc, water], extra=connections))
    from_cif = load_structure(cif)
    np.testing.assert_array_equal(from_cif.atoms.bonds, structure.atoms.bonds)
    assert from_cif.atoms.chain_id.tolist() == ["A", "A"]
    assert "ZN 101" in the_note(from_cif, "coordination")


def test_ligand_without_records(tmp_path, villin):
    ligand = [hetatm(700 + k, name, "LIG", "A", 101, xyz, e) for k, (name, xyz, e) in enumerate(BENZENE)]
    structure = load_structure(write(tmp_path, [*atom_lines(villin), "TER", *ligand]))
    ring = {frozenset((f"C{k + 1}", f"C{(k + 1) % 6 + 1}")) for k in range(6)}
    assert bonded_names(structure, 36) == ring | {frozenset((f"C{k + 1}", f"H{k + 1}")) for k in range(6)}
    assert "LIG 101" in the_note(structure, "inferred-bonds")
    assert structure.masses[-1] == pytest.approx(1.008, abs=0.001)


def test_complete_records_are_trusted(tmp_path):
    """A strained bond that distances would not show is there when it is recorded, and then nothing is inferred."""
    xyz = {"C1": (0, 0, 0), "C2": (1.5, 0, 0), "C3": (1.5, 2.05, 0), "C4": (0, 2.05, 0)}
    atoms = [hetatm(k + 1, name, "LIG", "A", 1, at, "C") for k, (name, at) in enumerate(xyz.items())]
    records = ["CONECT    1    2    4", "CONECT    2    3", "CONECT    3    4"]
    structure = load_structure(write(tmp_path, [*atoms, *records]))
    assert len(structure.atoms.bonds) == 4
    assert kinds(structure)["inferred-bonds"] == 0
    assert len(load_structure(write(tmp_path, atoms)).atoms.bonds) == 2


def test_a_linked_sugar_is_part_of_the_chain(tmp_path, villin):
    """An unknown residue within bonding distance of asparagine, as in glycosylation."""
    lines = [x for x in atom_lines(villin) if not (residue_number(x) == 60 and x[12:16].strip() == "HD22")]
    nitrogen, hydrogen = (
        np.array([float(x[a : a + 8]) for a in (30, 38, 46)])
        for name in ("ND2", "HD22")
        for x in atom_lines(villin)
        if residue_number(x) == 60 and x[12:16].strip() == name
    )
    direction = (hydrogen - nitrogen) / np.linalg.norm(hydrogen - nitrogen)
    at = nitrogen + 1.45 * direction
    sugar = [
        hetatm(800, "C1", "NAG", "A", 201, at, "C"),
        hetatm(801, "O5", "NAG", "A", 201, at + 1.42 * direction, "O"),
    ]
    structure = load_structure(write(tmp_path, [*lines, "TER", *sugar]))
    assert molecules(structure)[0] == 1
    assert "ASN 60, atom ND2 - chain A, residue NAG 201, atom C1" in the_note(structure, "link")


def test_odd_hydrogen_names_are_bonded_by_distance(tmp_path, villin):
    lines = [
        f"{x[:12]} HQ{k % 10}{x[16:]}" if residue_number(x) == 50 and x[76:78] == " H" else x
        for k, x in enumerate(atom_lines(villin))
    ]
    structure = load_structure(write(tmp_path, lines))
    np.testing.assert_array_equal(structure.atoms.bonds, load_structure(villin).atoms.bonds)
    assert "9 atoms" in the_note(structure, "inferred-bonds")
    assert not structure.missing_hydrogens


def test_coinciding_atoms_of_one_molecule_in_different_residues(tmp_path, villin):
    lines = atom_lines(villin)
    at = next(k for k, x in enumerate(lines) if residue_number(x) == 60 and x[12:16].strip() == "OD1")
    other = next(k for k, x in enumerate(lines) if residue_number(x) == 61 and x[12:16].strip() == "N")
    lines[at] = f"{lines[at][:30]}{lines[other][30:54]}{lines[at][54:]}"
    with pytest.raises(StructureError, match="residue LEU 61, atom N of one molecule are at the same place"):
        load_structure(write(tmp_path, lines))


def test_overlap_of_different_molecules_is_noted(tmp_path, villin):
    lines = atom_lines(villin)
    xyz = [float(lines[100][a : a + 8]) for a in (30, 38, 46)]
    structure = load_structure(write(tmp_path, [*lines, hetatm(700, "O", "HOH", "W", 1, xyz, "O")]))
    assert "residue HOH 1, atom O" in the_note(structure, "overlap")


def test_all_coordinates_equal(tmp_path, villin):
    lines = [f"{x[:30]}{'   0.000' * 3}{x[54:]}" for x in atom_lines(villin)]
    with pytest.raises(StructureError, match="at the same place"):
        load_structure(write(tmp_path, lines))
