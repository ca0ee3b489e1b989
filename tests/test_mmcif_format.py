"""mmCIF files: the same structures as from PDB files, and what only mmCIF can say."""

from __future__ import annotations

import numpy as np
from structure_files import atom_lines, kinds, mmcif_text, the_note, with_alternates, write

from peptidyn.io.readers import load_structure


def test_the_same_entry_as_pdb_and_as_mmcif(further_structure):
    pdb, cif = (load_structure(further_structure(f"1A8O.{suffix}")) for suffix in ("pdb", "cif"))
    assert cif.n_atoms == pdb.n_atoms == 644
    for column in ("name", "element", "residue", "residue_name", "residue_id", "residue_chain", "chain_id", "bonds"):
        np.testing.assert_array_equal(getattr(cif.atoms, column), getattr(pdb.atoms, column), err_msg=column)
    np.testing.assert_allclose(cif.positions, pdb.positions, rtol=0, atol=1e-12)
    assert pdb.atoms.chain_id.tolist() == ["A", "A"]
    assert kinds(pdb)["disulfide"] == kinds(cif)["disulfide"] == 1
    assert kinds(pdb)["gap"] == 0
    box = [s.topology.getPeriodicBoxVectors() for s in (pdb, cif)]
    np.testing.assert_allclose(*(np.array([[x for x in v] for v in b._value]) for b in box), atol=1e-6)


def test_long_chain_names_of_mmcif(tmp_path, villin):
    path = tmp_path / "x.cif"
    path.write_text(mmcif_text(atom_lines(villin), chain="AAA-2"))
    structure = load_structure(path)
    assert structure.atoms.chain_id.tolist() == ["AAA-2"]
    assert structure.atoms.residue_id.tolist()[0] == "41"


def test_alternates_in_mmcif(tmp_path, villin):
    lines = with_alternates(atom_lines(villin), 50, "AB", (0.4, 0.6), residue_names=["VAL", "VAL"])
    expected = load_structure(write(tmp_path, lines))
    path = tmp_path / "x.cif"
    path.write_text(mmcif_text(lines))
    structure = load_structure(path)
    np.testing.assert_allclose(structure.positions, expected.positions, atol=1e-12)
    assert the_note(structure, "altloc") == the_note(expected, "altloc")


def test_symmetry_copies_are_not_bonded(tmp_path, villin):
    lines = atom_lines(villin)
    extra = (
        "loop_\n_struct_conn.id\n_struct_conn.conn_type_id\n_struct_conn.ptnr1_label_asym_id\n"
        "_struct_conn.ptnr1_label_seq_id\n_struct_conn.ptnr1_label_atom_id\n_struct_conn.ptnr1_symmetry\n"
        "_struct_conn.ptnr2_label_asym_id\n_struct_conn.ptnr2_label_seq_id\n_struct_conn.ptnr2_label_atom_id\n"
        "_struct_conn.ptnr2_symmetry\ncovale1 covale A 1 SD 1_555 A 13 SD 2_555\n#\n"
    )
    cif = tmp_path / "x.cif"
    cif.write_text(mmcif_text(lines, extra=extra))
    structure = load_structure(cif)
    np.testing.assert_array_equal(structure.atoms.bonds, load_structure(villin).atoms.bonds)
    assert kinds(structure)["dropped-bond"] == 0
    # The same without a symmetry column is a bond of impossible length.
    cif.write_text(mmcif_text(lines, extra=extra.replace("2_555", "1_555")))
    structure = load_structure(cif)
    np.testing.assert_array_equal(structure.atoms.bonds, load_structure(villin).atoms.bonds)
    assert "MET 41, atom SD - chain A, residue MET 53, atom SD" in the_note(structure, "dropped-bond")
