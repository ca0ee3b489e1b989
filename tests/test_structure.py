"""The Structure: from OpenMM and MDTraj, selections, subsets, copies."""

from __future__ import annotations

import numpy as np
import pytest
from structure_files import atom_lines, kinds, named_bonds, residue_number, the_note, write

from peptidyn.core.errors import ArgumentError, SelectionError, StructureError
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure


def test_from_openmm_takes_masses_of_the_system(villin):
    from openmm import unit
    from openmm.app import ForceField, PDBFile

    pdb = PDBFile(str(villin))
    system = ForceField("amber14-all.xml").createSystem(pdb.topology, hydrogenMass=3 * unit.dalton)
    structure = Structure.from_openmm(pdb.topology, system, pdb.positions)
    assert structure.masses[structure.atoms.element == "H"] == pytest.approx(3.0)
    assert structure.masses.sum() == pytest.approx(load_structure(villin).masses.sum(), rel=1e-4)
    np.testing.assert_array_equal(structure.atoms.bonds, load_structure(villin).atoms.bonds)
    np.testing.assert_allclose(structure.positions, load_structure(villin).positions, atol=1e-12)
    system.addParticle(1.0)
    with pytest.raises(StructureError, match="597 particles but the Topology has 596"):
        Structure.from_openmm(pdb.topology, system, pdb.positions)


def test_from_openmm_checks_positions(villin):
    structure = load_structure(villin)
    with pytest.raises(StructureError, match=r"shape \(5, 3\), expected \(596, 3\)"):
        Structure.from_openmm(structure.topology, None, np.zeros((5, 3)))
    bad = structure.positions.copy()
    bad[7] = np.nan
    with pytest.raises(StructureError, match="MET 41, atom CE"):
        Structure.from_openmm(structure.topology, None, bad)


def test_virtual_sites_keep_their_place_and_zero_mass_in_a_system():
    from openmm import System
    from openmm.app import Element, Topology

    def four_sites(name):
        topology = Topology()
        residue = topology.addResidue(name, topology.addChain())
        for atom, symbol in (("O", "O"), ("H1", "H"), ("H2", "H"), ("M", None)):
            topology.addAtom(atom, Element.getBySymbol(symbol) if symbol else None, residue)
        oxygen, *hydrogens, _ = topology.atoms()
        for hydrogen in hydrogens:
            topology.addBond(oxygen, hydrogen)
        return topology

    system = System()
    for mass in (16.0, 1.0, 1.0, 0.0):
        system.addParticle(mass)
    xyz = 0.02 * np.arange(12.0).reshape(4, 3)
    for name in ("HOH", "LIG"):
        assert Structure.from_openmm(four_sites(name), system, xyz).masses[3] == 0.0
    assert Structure.from_openmm(four_sites("HOH"), None, xyz).masses[3] == 0.0  # water may have such a site
    with pytest.raises(StructureError, match="element of chain 1, residue LIG 1, atom M is unknown"):
        Structure.from_openmm(four_sites("LIG"), None, xyz)


def test_round_trip_through_mdtraj(villin, integrase):
    for path in (villin, integrase):
        structure = load_structure(path)
        again = Structure.from_mdtraj(structure.to_mdtraj())
        np.testing.assert_array_equal(again.atoms.bonds, structure.atoms.bonds)
        np.testing.assert_array_equal(again.atoms.bond_order, structure.atoms.bond_order)
        assert again.atoms.name.tolist() == structure.atoms.name.tolist()
        assert again.atoms.chain_id.tolist() == structure.atoms.chain_id.tolist()
        np.testing.assert_allclose(again.positions, structure.positions, atol=1e-6)
        np.testing.assert_allclose(again.masses, structure.masses)
        boxes = [s.topology.getPeriodicBoxVectors() for s in (structure, again)]
        if boxes[0] is not None:
            np.testing.assert_allclose(*(np.array([[x for x in v] for v in b._value]) for b in boxes), atol=1e-5)


def test_from_mdtraj_frame(villin):
    import mdtraj

    trajectory = mdtraj.load(str(villin))
    assert Structure.from_mdtraj(trajectory, frame=-1).n_atoms == 596
    with pytest.raises(ArgumentError, match="frame 3 does not exist: the trajectory has 1 frames"):
        Structure.from_mdtraj(trajectory, frame=3)


def test_subset_keeps_bonds_and_notes(tmp_path, villin):
    lines = [x for x in atom_lines(villin) if residue_number(x) not in (55, 56)]
    lines = [x for x in lines if (residue_number(x), x[12:16].strip()) not in {(47, "CZ"), (70, "NZ")}]
    structure = load_structure(write(tmp_path, lines))
    assert kinds(structure)["gap"] == 1
    chosen = structure.select("resid 0 to 9")
    for selection in ("resid 0 to 9", chosen, chosen[::-1].tolist(), np.isin(np.arange(structure.n_atoms), chosen)):
        part = structure.subset(selection)
        assert part.n_residues == 10
        np.testing.assert_array_equal(part.positions, structure.positions[chosen])
        np.testing.assert_array_equal(part.masses, structure.masses[chosen])
        assert named_bonds(part) == {
            bond for bond in named_bonds(structure) if all(int(end.split()[4].rstrip(",")) <= 50 for end in bond)
        }
        assert kinds(part)["gap"] == 0  # the gap is elsewhere
        assert kinds(part)["missing-atoms"] == 1  # residue 47 is in the subset
        assert "1 bond to atoms left out cut, at chain A, residue VAL 50, atom C" in the_note(part, "cut")
        note = next(part.notes_of("missing-atoms"))
        assert {str(part.atoms.residue_id[part.atoms.residue[a]]) for a in note.atoms} == {"47"}


@pytest.mark.parametrize(
    "selection", ["name XX", "name is what", [], [0, 9999], [-1], [0.5], np.zeros(3, dtype=bool), [[1, 2]], None]
)
def test_subset_of_nothing_or_nonsense(villin, selection):
    with pytest.raises(SelectionError):
        load_structure(villin).subset(selection)


def test_selections(villin):
    structure = load_structure(villin)
    assert len(structure.select("name CA")) == 36
    with pytest.raises(SelectionError, match="matches no atom"):
        structure.select("name XYZ")
    with pytest.raises(SelectionError, match="cannot read the selection"):
        structure.select("name is what")


def test_structures_are_frozen(villin):
    structure = load_structure(villin)
    with pytest.raises(ValueError, match="read-only"):
        structure.positions[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        structure.masses[0] = 0
    moved = structure.with_positions(structure.positions + 1.0)
    assert moved.notes == structure.notes
    heavier = structure.with_masses(2 * structure.masses)
    np.testing.assert_array_equal(heavier.masses, 2 * structure.masses)
    with pytest.raises(ArgumentError, match="masses have shape"):
        structure.with_masses([1.0])
