"""PDB files: names, numbers, chains, models, boxes, elements."""

from __future__ import annotations

import numpy as np
import pytest
from structure_files import BENZENE, atom_lines, hetatm, mmcif_text, molecules, residue_number, shifted, the_note, write

from peptidyn.core.errors import StructureError
from peptidyn.io.readers import load_structure


def test_insertion_codes_make_residues_of_their_own(tmp_path, villin):
    """Residues 51, 52, 53 become 51, 51A, 51B."""
    codes = {52: "A", 53: "B"}
    lines = [
        f"{line[:22]}  51{codes[residue_number(line)]}{line[27:]}" if residue_number(line) in codes else line
        for line in atom_lines(villin)
    ]
    plain, structure = load_structure(villin), load_structure(write(tmp_path, lines))
    assert structure.atoms.residue_id.tolist()[9:14] == ["50", "51", "51A", "51B", "54"]
    np.testing.assert_array_equal(structure.atoms.bonds, plain.atoms.bonds)
    cif = tmp_path / "x.cif"
    cif.write_text(mmcif_text(lines))
    from_cif = load_structure(cif)
    assert from_cif.atoms.residue_id.tolist() == structure.atoms.residue_id.tolist()
    np.testing.assert_array_equal(from_cif.atoms.bonds, plain.atoms.bonds)


def test_blank_chain_names_and_several_chains(tmp_path, villin):
    lines = atom_lines(villin)
    first = [f"{line[:21]} {line[22:]}" for line in lines]
    second = [shifted(f"{line[:21]}B{line[22:]}", dx=60.0) for line in lines]
    structure = load_structure(write(tmp_path, [*first, "TER", *second, "TER"]))
    assert [c.strip() for c in structure.atoms.chain_id.tolist()] == ["", "B"]
    assert structure.atoms.residue_label(0) == "residue MET 41"
    assert molecules(structure)[0] == 2


def test_two_models(tmp_path, villin):
    lines = atom_lines(villin)
    moved = [shifted(line, dx=1.0) for line in lines]
    with_records = ["MODEL        1", *lines, "ENDMDL", "MODEL        2", *moved, "ENDMDL", "END"]
    ended_only = [*lines, "END", *moved, "END"]
    for text in (with_records, ended_only):
        path = write(tmp_path, text)
        first, second = load_structure(path), load_structure(path, model=1)
        np.testing.assert_allclose(second.positions - first.positions, [[0.1, 0, 0]] * 596, atol=1e-9)
        assert "2 models" in the_note(first, "models")
        with pytest.raises(StructureError, match="no model 2: it holds 2 models"):
            load_structure(path, model=2)
    cif = tmp_path / "x.cif"
    rows = mmcif_text(lines).rstrip("#\n") + "\n" + mmcif_text(moved, model="7").split("pdbx_PDB_model_num\n")[1]
    cif.write_text(rows)
    np.testing.assert_allclose(load_structure(cif, model=1).positions, load_structure(path, model=1).positions)


def test_models_of_a_real_file(further_structure):
    path = further_structure("1vii-3frames.pdb")
    frames = [load_structure(path, model=k) for k in range(3)]
    assert [f.n_atoms for f in frames] == [596] * 3
    assert [the_note(f, "models")[-23:] for f in frames] == [f"model {k}, counted from 0" for k in range(3)]


def test_box_is_kept_and_a_placeholder_is_not(tmp_path, villin):
    lines = atom_lines(villin)
    cell = "CRYST1   40.000   50.000   60.000  90.00  90.00  90.00 P 1           1"
    boxed = load_structure(write(tmp_path, [cell, *lines]))
    edges = np.diag(np.array([[x for x in v] for v in boxed.topology.getPeriodicBoxVectors()._value]))
    np.testing.assert_allclose(edges, [4.0, 5.0, 6.0])
    dummy = cell.replace("40.000", " 1.000").replace("50.000", " 1.000").replace("60.000", " 1.000")
    assert load_structure(write(tmp_path, [dummy, *lines])).topology.getPeriodicBoxVectors() is None
    cif = tmp_path / "x.cif"
    unknown = "\n".join(f"_cell.{k} ?" for k in ("length_a", "length_b", "length_c", "angle_alpha")) + "\n#\n"
    cif.write_text(mmcif_text(lines, extra=unknown))
    assert load_structure(cif).topology.getPeriodicBoxVectors() is None


def test_more_residues_and_atoms_than_the_columns_count(tmp_path):
    """Numbers go on in hexadecimal after 9,999 residues and 99,999 atoms, in CONECT records too."""
    n, lines = 10_200, []
    for k in range(n):
        x, y, z = 3.1 * (k % 25), 3.1 * (k // 25 % 25), 3.1 * (k // 625)
        line = hetatm(0, "O", "HOH", "A", 0, (x, y, z), "O")
        lines.append(f"HETATM{_column(95_000 + k, 5)}{line[11:22]}{_column(k + 1, 4)}{line[26:]}")
    ring = [hetatm(0, name, "LIG", "B", 1, xyz, element) for name, xyz, element in BENZENE[:6]]
    far = [shifted(line, dx=200.0 + 0.4 * k) for k, line in enumerate(ring)]  # too stretched to be inferred
    lines += [f"HETATM{_column(100_500 + k, 5)}{line[11:]}" for k, line in enumerate(far)]
    bonds = [f"CONECT{_column(100_500 + k, 5)}{_column(100_501 + k, 5)}" for k in range(5)]
    structure = load_structure(write(tmp_path, [*lines, *bonds]))
    assert structure.n_residues == n + 1
    assert structure.atoms.residue_id[n - 1] == str(n)
    assert structure.atoms.bonds.tolist() == [[n + k, n + k + 1] for k in range(5)]


def _column(number, width):
    """A number as OpenMM and VMD go on when it has more digits than the column."""
    limit = 10**width
    return f"{number:{width}d}" if number < limit else f"{number - limit + 10 * 16 ** (width - 1):{width}X}"


def test_lines_that_repeat_an_atom_are_one_atom(tmp_path, villin):
    """Some programs write side chains twice. A copy elsewhere is an error, as `bad_files` of test_readers.py has it.

    Two waters at one place remain two.
    """
    lines = [*atom_lines(villin), *(hetatm(700 + k, "O", "HOH", "W", k, (40, 40, 40), "O") for k in range(2))]
    plain = load_structure(write(tmp_path, lines))
    assert plain.n_atoms == len(lines)
    lines = [copy for line in lines for copy in [line] * (1 + (line[12:16] == " CG "))]
    structure = load_structure(write(tmp_path, lines))
    np.testing.assert_array_equal(structure.positions, plain.positions)
    np.testing.assert_array_equal(structure.atoms.bonds, plain.atoms.bonds)
    count = np.count_nonzero(plain.atoms.name == "CG")
    note = the_note(structure, "skipped")
    assert f"{count} lines left out that repeat an atom at the same place: chain A, residue MET 41, atom CG" in note


def test_standard_names(tmp_path, villin):
    """Old hydrogen names, AMBER's end residues and protonation states, CHARMM's histidine and water."""
    lines = atom_lines(villin)
    first = residue_number(lines[0])
    changed = []
    for line in lines:
        if residue_number(line) == first:
            line = f"{line[:17]}NMET{line[21:]}"
        if line[17:20] == "LYS" and residue_number(line) == 48 and line[12:16] != " HZ3":
            line = f"{line[:17]}LYN{line[20:]}"
        if line[12:16] == " H  ":
            line = f"{line[:12]} HN {line[16:]}"
        changed.append(line)
    changed = [line for line in changed if not (residue_number(line) == 48 and line[12:16].strip() == "HZ3")]
    changed.append(hetatm(900, "OH2", "TIP", "W", 1, (40, 40, 40), "O").replace("TIP W", "TIP3W"))
    structure = load_structure(write(tmp_path, changed))
    assert "NMET to MET (1)" in the_note(structure, "renamed")
    assert "LYN to LYS (1)" in the_note(structure, "renamed")
    assert "TIP3 to HOH (1)" in the_note(structure, "renamed")
    assert structure.n_atoms == 596
    assert {"HN", "NMET", "LYN"}.isdisjoint({*structure.atoms.name.tolist(), *structure.atoms.residue_name.tolist()})
    assert all(len(structure.atoms.neighbours[i]) == 1 for i in np.flatnonzero(structure.atoms.element == "H"))


def test_missing_element_column(tmp_path, villin):
    plain = load_structure(villin)
    structure = load_structure(write(tmp_path, [line[:66] for line in atom_lines(villin)]))
    assert structure.atoms.element.tolist() == plain.atoms.element.tolist()
    assert "596 atoms" in the_note(structure, "guessed-elements")


def test_nitrogen_named_na_is_no_sodium(tmp_path):
    lines = [
        hetatm(1, "NA", "HEM", "A", 1, (0, 0, 0), "N")[:66],
        hetatm(2, "C1A", "HEM", "A", 1, (1.37, 0, 0), "C")[:66],
        hetatm(3, "NA", "NA", "A", 2, (9, 9, 9), "NA")[:66],
    ]
    assert load_structure(write(tmp_path, lines)).atoms.element.tolist() == ["N", "C", "Na"]
