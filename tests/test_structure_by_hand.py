"""Structures of a few atoms: frames of MDTraj, boxes, virtual sites, bonds of a System, subsets, all by hand."""

from __future__ import annotations

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, SelectionError, StructureError
from peptidyn.core.units import plain_array
from peptidyn.io.notes import Note
from peptidyn.io.structure import Structure


def make_topology(*residues, bonds=()):
    """A topology of one chain of residues, each given as its name and its atoms, and bonds between atoms."""
    topology = app.Topology()
    chain = topology.addChain("A")
    for name, atoms in residues:
        residue = topology.addResidue(name, chain)
        for atom in atoms.split():
            element = None if atom == "M" else app.Element.getBySymbol("Na" if atom == "NA" else atom[0])
            topology.addAtom(atom, element, residue)
    made = list(topology.atoms())
    for i, j in bonds:
        topology.addBond(made[i], made[j])
    return topology


def make_system(*masses):
    system = openmm.System()
    for mass in masses:
        system.addParticle(mass)
    return system


# ---------------------------------------------------------------------------- frames of MDTraj

PAIR = make_topology(("LIG", "C1 C2"), ("NA", "NA"), bonds=[(0, 1)])
X = np.array([[0.1, 0.2, 0.3], [0.25, 0.2, 0.3], [1.0, 1.1, 1.2]])


def four_frames():
    """Frames that move by 0.1 nm, in triclinic boxes that grow by 0.5 nm."""
    boxes = np.array([[[2, 0, 0], [0.5, 2, 0], [-0.4, 0.3, 2]]] * 4) + 0.5 * np.arange(4)[:, None, None] * np.eye(3)
    trajectory = mdtraj.Trajectory(X + 0.1 * np.arange(4)[:, None, None], mdtraj.Topology.from_openmm(PAIR))
    trajectory.unitcell_vectors = boxes.astype(np.float32)
    return trajectory, boxes


@pytest.mark.parametrize("frame", [0, 1, 3, -1, -4])
def test_a_frame_has_its_own_positions_and_box(frame):
    trajectory, boxes = four_frames()
    structure = Structure.from_mdtraj(trajectory, frame, name="later")
    assert structure.name == "later"
    assert structure.positions == pytest.approx(X + 0.1 * (frame % 4), abs=1e-6)
    assert plain_array(structure.topology.getPeriodicBoxVectors()) == pytest.approx(boxes[frame], abs=1e-6)
    back = structure.to_mdtraj()
    assert back.unitcell_vectors[0] == pytest.approx(boxes[frame], abs=1e-6)
    assert back.xyz.shape == (1, 3, 3) and back.xyz[0] == pytest.approx(X + 0.1 * (frame % 4), abs=1e-6)
    assert [bond[0].index for bond in back.topology.bonds] == [0]


def test_frames_that_do_not_exist_and_boxes_that_are_none():
    trajectory, _ = four_frames()
    for frame in (4, -5):
        with pytest.raises(ArgumentError, match=f"frame {frame} does not exist: the trajectory has 4 frames"):
            Structure.from_mdtraj(trajectory, frame)
    trajectory.unitcell_vectors = None
    structure = Structure.from_mdtraj(trajectory, 1)
    assert structure.topology.getPeriodicBoxVectors() is None and structure.to_mdtraj().unitcell_vectors is None


# ---------------------------------------------------------------------------- positions, masses, names


@pytest.mark.parametrize(("value", "message"), [(np.nan, "not finite"), (np.inf, "not finite"), (-2e5, "larger than")])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_bad_coordinate_is_enough(value, message, axis):
    x = X.copy()
    x[1, axis] = value
    with pytest.raises(
        StructureError, match=rf"coordinates are {message}.* at chain A, residue LIG 1, atom C2; repair"
    ):
        Structure.from_openmm(PAIR, None, x)
    x[1, axis] = 9e4  # far, but a number
    assert Structure.from_openmm(make_topology(("NA", "NA"), ("NA", "NA")), None, x[1:]).positions[0, axis] == 9e4


def test_positions_and_masses_keep_their_units():
    structure = Structure.from_openmm(PAIR, None, 10 * X * unit.angstrom, name="pair")
    assert structure.positions == pytest.approx(X) and structure.name == "pair"
    assert structure.masses == pytest.approx([12.011, 12.011, 22.990], rel=1e-4)
    assert repr(structure) == "<Structure pair: 1 chains, 2 residues, 3 atoms>"
    moved = structure.with_positions((X + 1.0) * unit.nanometer).with_notes(Note("one", "first"))
    assert moved.positions == pytest.approx(X + 1.0) and structure.positions == pytest.approx(X)
    more = moved.with_notes(Note("two", "second"), Note("one", "third"))
    assert [note.text for note in more.notes] == ["first", "second", "third"]
    assert [note.text for note in more.notes_of("one")] == ["first", "third"]
    assert more.with_masses([1.0, 2.0, 3.0] * unit.dalton).masses.tolist() == [1.0, 2.0, 3.0]
    assert more.with_masses([1.0, 2.0, 3.0]).notes == more.notes
    for wrong in ([1.0, 2.0], np.ones(4), 1.0):
        with pytest.raises(ArgumentError, match="masses have shape"):
            structure.with_masses(wrong)
    with pytest.raises(StructureError, match="nothing holds no atoms"):
        Structure.from_openmm(app.Topology(), None, np.zeros((0, 3)), name="nothing")


def test_what_is_missing():
    whole = ptd.build_peptide("AA")
    assert whole.missing == () and not whole.missing_hydrogens and not whole.missing_heavy_atoms
    bare = whole.subset("not (resid 1 and name HA)")
    assert bare.missing_hydrogens and not bare.missing_heavy_atoms and [m.residue for m in bare.missing] == [1]
    no_oxygen = whole.subset("not (resid 2 and name O)")
    assert no_oxygen.missing_heavy_atoms and not no_oxygen.missing_hydrogens


# ---------------------------------------------------------------------------- virtual sites


def water_and_pair():
    """TIP4P's M halfway between O and the middle of both H, after a pair of carbons of 13 and 14 Da."""
    topology = make_topology(("LIG", "C1 C2"), ("HOH", "O H1 H2 M"), bonds=[(0, 1), (2, 3), (2, 4)])
    system = make_system(13.0, 14.0, 16.0, 1.0, 2.0, 0.0)
    system.setVirtualSite(5, openmm.ThreeParticleAverageSite(2, 3, 4, 0.5, 0.25, 0.25))
    x = np.array([[0, 0, 0], [0.15, 0, 0], [1, 1, 1], [1.08, 1, 1], [1, 1.08, 1], [1.5, 1.5, 1.5]])
    return topology, system, x


M = [1.02, 1.02, 1.0]


def test_virtual_sites_are_placed_and_known():
    structure = Structure.from_openmm(*water_and_pair(), name="site", notes=(Note("a", "b"),))
    assert structure.virtual_sites == {5: (2, 3, 4)}
    assert structure.positions[5] == pytest.approx(M) and structure.positions[:5] == pytest.approx(
        water_and_pair()[2][:5]
    )
    assert structure.masses.tolist() == [13.0, 14.0, 16.0, 1.0, 2.0, 0.0]
    assert structure.name == "site" and structure.notes == (Note("a", "b"),)
    topology, _, x = water_and_pair()
    without = Structure.from_openmm(topology, None, x)  # nothing tells where the site belongs
    assert without.virtual_sites == {5: (2, 3, 4)} and without.positions[5] == pytest.approx([1.5, 1.5, 1.5])


def test_virtual_sites_of_a_subset_have_its_numbers():
    structure = Structure.from_openmm(*water_and_pair())
    for chosen in ("water", [5, 4, 3, 2], np.arange(6) > 1):
        water = structure.subset(chosen)
        assert water.virtual_sites == {3: (0, 1, 2)} and water.masses.tolist() == [16.0, 1.0, 2.0, 0.0]
        assert water.positions == pytest.approx(structure.positions[2:]) and water.atoms.bonds.tolist() == [
            [0, 1],
            [0, 2],
        ]
    assert structure.subset([0, 2, 3, 4, 5]).virtual_sites == {4: (1, 2, 3)}
    assert structure.subset([0, 1]).virtual_sites == {} == structure.subset([1, 2, 3]).virtual_sites
    with pytest.raises(StructureError, match="HOH 2, atom M is a virtual site, placed by atoms that were not chosen"):
        structure.subset([0, 2, 3, 5])


def test_a_site_without_mass_gets_no_bond():
    """A bond term holds it at its oxygen, as lone pairs and Drude particles are held."""
    topology, system, x = water_and_pair()
    force = openmm.HarmonicBondForce()
    force.addBond(2, 5, 0.03, 1e5)
    system.addForce(force)
    structure = Structure.from_openmm(topology, system, x)
    assert structure.atoms.bonds.tolist() == [[0, 1], [2, 3], [2, 4]] and structure.notes == ()


def test_a_split_water_is_put_together_before_its_site_is_placed():
    topology, system, x = water_and_pair()
    topology.setPeriodicBoxVectors(np.diag([3.0, 3.0, 3.0]) * unit.nanometer)
    x[3] += [3.0, 0.0, 0.0]
    structure = Structure.from_openmm(topology, system, x)
    assert structure.positions[3] == pytest.approx([1.08, 1.0, 1.0]) and structure.positions[5] == pytest.approx(M)
    (note,) = structure.notes
    assert note.kind == "box" and note.text.startswith("1 atom moved to another periodic image")


# ---------------------------------------------------------------------------- bonds of a System


def two_molecules(*bonds):
    """Two C-O, an ion and a site without mass; bonds of the topology, and bonds of 0.15 nm in the System."""
    topology = make_topology(("LIG", "C1 O1"), ("LIG", "C1 O1"), ("NA", "NA"), ("XXX", "M"), bonds=bonds)
    system = make_system(12.0, 16.0, 12.0, 16.0, 23.0, 0.0)
    force = openmm.HarmonicBondForce()
    for i, j in ((0, 1), (3, 2), (3, 4)):  # the last, to the ion, is too long for a bond
        force.addBond(i, j, 0.15 if j < 4 else 0.6, 1e5)
    system.addForce(force)
    x = np.array([[0, 0, 0], [0.15, 0, 0], [0, 1, 0], [0.15, 1, 0], [0.5, 1.5, 0], [2, 2, 2]])
    return topology, system, x


@pytest.mark.parametrize(("known", "taken"), [((), "2 bonds"), ([(0, 1)], "1 bond"), ([(2, 3)], "1 bond")])
def test_atoms_without_bonds_get_those_of_the_system(known, taken):
    notes = (Note("a", "b"),)
    structure = Structure.from_openmm(*two_molecules(*known), notes=notes)
    assert structure.atoms.bonds.tolist() == [[0, 1], [2, 3]]
    assert [sorted((b[0].index, b[1].index)) for b in structure.topology.bonds()] == [[0, 1], [2, 3]]
    text = f"{taken} that the Topology lacks taken from the System"
    assert structure.notes == (*notes, Note("system-bonds", text))


def test_atoms_with_bonds_keep_those_that_they_have():
    """All but ion and site have bonds: further ones of the System are none, nor is one to the ion. Orders stay."""
    topology, system, x = two_molecules((0, 1), (2, 3))
    for i, j in ((1, 2), (3, 4), (3, 5)):
        system.getForce(0).addBond(i, j, 0.15, 1e5)
    structure = Structure.from_openmm(topology, system, x)
    assert structure.atoms.bonds.tolist() == [[0, 1], [2, 3]] and structure.notes == ()
    topology, system, x = two_molecules()
    atoms = list(topology.atoms())
    topology.addBond(atoms[0], atoms[1], app.Double, 2)
    structure = Structure.from_openmm(topology, system, x)
    assert structure.atoms.bond_order.tolist() == [2.0, 0.0]


def test_a_bond_between_atoms_of_which_one_has_none_is_taken():
    """C2-C3 and C3-C4 of a chain are known; C1-C2 is missing there, and the shortcut C2-C4 is no bond that lacks."""
    topology = make_topology(("LIG", "C1 C2 C3 C4"), bonds=[(1, 2), (2, 3)])
    system = make_system(12.0, 12.0, 12.0, 12.0)
    force = openmm.HarmonicBondForce()
    for pair in ((0, 1), (1, 2), (1, 3)):
        force.addBond(*pair, 0.15, 1e5)
    system.addForce(force)
    x = 0.15 * np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 0]])
    structure = Structure.from_openmm(topology, system, x)
    assert structure.atoms.bonds.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert "1 bond that" in structure.notes[0].text


def test_ions_alone_need_no_bonds():
    """A System of ions has none; one of molecules must have some."""
    ions = make_topology(("NA", "NA"), ("NA", "NA"))
    assert len(Structure.from_openmm(ions, make_system(23.0, 23.0), X[:2]).atoms.bonds) == 0
    with pytest.raises(StructureError, match="pair: neither the Topology nor the System has any bond"):
        Structure.from_openmm(make_topology(("LIG", "C1 C2")), make_system(12.0, 12.0), X[:2], name="pair")


# ---------------------------------------------------------------------------- subsets


def test_cut_bonds_are_named_by_the_atoms_that_stay():
    """Of the chain 0-1-2-3-4-5 the atoms 1, 2 and 5 stay: cut at 1, 2 and 5, which are 0, 1 and 2 then."""
    topology = make_topology(("LIG", "C0 C1 C2 C3 C4 C5"), bonds=[(k, k + 1) for k in range(5)])
    x = 0.15 * np.array([[k, 0, 0] for k in range(6)])
    notes = (Note("file", "all"), Note("three", "of three", (0, 1, 5)), Note("gone", "of two", (3, 4)))
    structure = Structure.from_openmm(topology, make_system(*range(11, 17)), x, name="chain", notes=notes)
    part = structure.subset([5, 1, 2, 2])
    label = "chain A, residue LIG 1, atom C{}".format
    text = f"3 bonds to atoms left out cut, at {label(1)}; {label(2)}; {label(5)}"
    assert part.notes == (Note("file", "all"), Note("three", "of three", (0, 2)), Note("cut", text, (0, 1, 2)))
    assert part.name == "chain" and part.atoms.name.tolist() == ["C1", "C2", "C5"]
    assert part.masses.tolist() == [12.0, 13.0, 16.0] and part.positions == pytest.approx(x[[1, 2, 5]])
    assert part.atoms.bonds.tolist() == [[0, 1]] and part.topology.getNumBonds() == 1
    whole = structure.subset(range(6))
    assert whole.notes == structure.notes and whole.atoms.bonds.tolist() == structure.atoms.bonds.tolist()


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ([0, 3], "atom indices must be within 0 and 2"),
        ([-1, 0], "atom indices must be within 0 and 2"),
        ([True, False], r"the mask has shape \(2,\), expected \(3,\)"),
        ([False] * 3, "no atom of structure was chosen"),
        ([0.0, 1.0], "atoms are chosen by a list of integers, a mask or an MDTraj selection"),
        ([[0, 1]], "atoms are chosen by a list of integers"),
    ],
)
def test_atoms_that_cannot_be_chosen(selection, message):
    structure = Structure.from_openmm(PAIR, None, X)
    with pytest.raises(SelectionError, match=message):
        structure.subset(selection)
    assert structure.subset([2]).atoms.name.tolist() == ["NA"]  # the last one can
