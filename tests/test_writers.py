"""Structure files that are written: read back, by OpenMM too, and refused where the format is too small."""

from __future__ import annotations

import numpy as np
import pytest
from real_structures import OPENMM_DATA, read
from structure_files import atom_lines, hetatm, mmcif_text, residue_number

from peptidyn.core.errors import OutputError, StructureError
from peptidyn.io.readers import load_structure


@pytest.mark.parametrize("suffix", ["pdb", "cif", "pdbx"])
def test_written_files_read_back(tmp_path, structure_file, suffix):
    structure = read(structure_file)
    if structure.n_atoms > 2000:
        structure = structure.subset(np.arange(2000))
    path = tmp_path / f"out.{suffix}"
    structure.write(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    again = load_structure(path)
    assert again.atoms.name.tolist() == structure.atoms.name.tolist()
    assert again.atoms.element.tolist() == structure.atoms.element.tolist()
    assert again.atoms.residue_name.tolist() == structure.atoms.residue_name.tolist()
    assert again.atoms.residue_id.tolist() == structure.atoms.residue_id.tolist()
    assert [c.strip() for c in again.atoms.chain_id] == [c.strip() for c in structure.atoms.chain_id]
    np.testing.assert_array_equal(again.atoms.bonds, structure.atoms.bonds)
    np.testing.assert_allclose(again.positions, structure.positions, rtol=0, atol=6e-5 if suffix == "pdb" else 1e-12)
    boxes = [s.topology.getPeriodicBoxVectors() for s in (structure, again)]
    assert (boxes[0] is None) == (boxes[1] is None)
    if boxes[0] is not None:
        np.testing.assert_allclose(*(np.array([[x for x in v] for v in b._value]) for b in boxes), atol=2e-4)


def test_openmm_reads_what_is_written(tmp_path, integrase):
    from openmm.app import PDBFile, PDBxFile

    structure = load_structure(integrase)
    for suffix, reader in (("pdb", PDBFile), ("cif", PDBxFile)):
        path = tmp_path / f"out.{suffix}"
        structure.write(path)
        topology = reader(str(path)).topology
        assert topology.getNumAtoms() == structure.n_atoms
        # OpenMM draws a bond across the gap; all others are the same.
        assert topology.getNumBonds() == len(structure.atoms.bonds) + 1


def test_mmcif_keeps_long_names_and_codes(tmp_path, villin):
    path = tmp_path / "x.cif"
    lines = [f"{x[:26]}B{x[27:]}" if residue_number(x) == 50 else x for x in atom_lines(villin)]
    path.write_text(mmcif_text(lines, chain="LONG"))
    structure = load_structure(path)
    structure.write(tmp_path / "y.cif")
    again = load_structure(tmp_path / "y.cif")
    assert again.atoms.chain_id.tolist() == ["LONG"]
    assert "50B" in again.atoms.residue_id


def test_names_too_long_for_pdb(tmp_path):
    path = tmp_path / "x.cif"
    path.write_text(mmcif_text([hetatm(1, "C1", "LIG", "A", 1, (0, 0, 0), "C")]).replace("LIG", "LONGER"))
    structure = load_structure(path)
    with pytest.raises(StructureError, match=r"LONGER .* too long for the PDB format; write a .cif"):
        structure.write(tmp_path / "y.pdb")
    with pytest.raises(StructureError, match="coordinates are larger than 100000 nm"):
        load_structure(OPENMM_DATA / "tip3p.pdb").with_positions(np.full((2685, 3), 1e9))
    assert not (tmp_path / "y.pdb").exists()


def test_failed_writes_leave_nothing(tmp_path, villin):
    structure = load_structure(villin)
    with pytest.raises(StructureError, match=r"must end in one of \.pdb"):
        structure.write(tmp_path / "x.xyz")
    with pytest.raises(OutputError, match="cannot write"):
        structure.write(tmp_path / "no folder" / "x.pdb")
    (tmp_path / "taken.pdb").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        structure.write(tmp_path / "taken.pdb")
    assert [p.name for p in tmp_path.iterdir()] == ["taken.pdb"]
