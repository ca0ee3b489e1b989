"""Links of a tree: their order, what coordinates are called, and what `build_tree` is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from named_molecules import changed, coordinates, molecule, selectable
from random_trees import Beads

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.model.kinematics import BEND, FIXED, FLAT, FREE, POINT, PRISMATIC, REVOLUTE, STRETCH


@pytest.fixture(scope="module")
def soft():
    """A branched molecule of six atoms with everything soft."""
    return ptd.build_tree(molecule([-1, 0, 1, 1, 2, 2], "CX2 C1 C2 CX1 CX9 CX3"), "all")


# ---------------------------------------------------------------------------- order


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_degrees_of_freedom_are_numbered_molecule_by_molecule(base):
    """An ion, a row of four, a rigid row of three, and another ion: 3, 6 + 1, 6 and 3, or none for the bases."""
    tree = ptd.build_tree(molecule([-1, -1, 1, 2, 3, -1, 5, 6, -1], "C0 C1 C2 C3 C4 C5 C6 C7 C8"), "rotor", base=base)
    free = base == "free"
    assert tree.molecule_dof.tolist() == ([0, 3, 10, 16, 19] if free else [0, 0, 1, 1, 1])
    assert tree.dof.tolist() == ([0, 3, 9, 10, 16] if free else [0, 0, 0, 1, 1])
    assert tree.joint.tolist() == (
        [POINT, FREE, REVOLUTE, FREE, POINT] if free else [FIXED, FIXED, REVOLUTE, FIXED, FIXED]
    )
    assert tree.parent.tolist() == [-1, -1, 1, -1, -1] and tree.molecule.tolist() == [0, 1, 1, 2, 3]
    assert tree.molecule_link.tolist() == [0, 1, 3, 4, 5] and tree.coordinate.tolist() == [-1, -1, 0, -1, -1]
    assert tree.n_dof == (19 if free else 1) and tree.coordinate_dof.tolist() == ([9] if free else [0])
    assert tree.n_molecules == 4 and tree.n_bodies == tree.n_links == 5 and tree.n_coordinates == 1


def test_small_branches_come_first():
    """On atom 1 hang a row of bodies and, after it in the file, a fork of fewer bodies: the fork comes first."""
    row, fork = [1, 2, 3, 4, 5, 6], [1, 8, 9, 9, 10, 11]
    parents = [-1, 0, *row[:6], *fork]
    tree = ptd.build_tree(molecule(parents, " ".join(f"C{i}" for i in range(len(parents)))), "rotor")
    assert [atoms[1:3] for _, _, atoms in coordinates(tree)] == [
        (1, 8), (8, 9), (9, 10), (9, 11), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6),
    ]  # fmt: skip


def test_equal_branches_come_in_the_order_of_their_atoms():
    tree = ptd.build_tree(molecule([-1, 0, 1, 1, 3, 2], "C0 C1 C2 C3 C4 C5"), "rotor")
    assert [atoms[1:3] for _, _, atoms in coordinates(tree)] == [(1, 2), (1, 3)]


def test_coordinates_say_where_they_are():
    """Residue, chain and number as in the file; atoms by name where the kind does not tell them."""
    names, residues = "C1 C2 C3 C4 C5 C6 C7 C8", [0, 0, 0, 0, 1, 1, 1, 1]
    two = molecule([-1, 0, 1, 2, -1, 4, 5, 6], names, residues, ["LIG", "XYZ"], [0, 1])
    two = changed(two, residue_id=np.array(["12", "7A"]))
    tree = ptd.build_tree(two, "rotor")
    assert [str(c) for c in tree.torsions] == [
        "rotor C1-C2-C3-C4 of chain A, residue LIG 12",
        "rotor C5-C6-C7-C8 of chain B, residue XYZ 7A",
    ]
    second = tree.torsions[1]
    assert (second.chain, second.residue, second.residue_name, second.residue_id) == ("B", 1, "XYZ", "7A")
    assert str(replace(second, chain=" ")) == "rotor C5-C6-C7-C8 of residue XYZ 7A"
    bonds = [str(c) for c in ptd.build_tree(two, "all").coordinates if c.residue == 1 and c.motion != "torsion"]
    assert bonds[:2] == [f"{what} of chain B, residue XYZ 7A" for what in ("angle C7-C6-C5", "bond C6-C5")]
    (phi,) = ptd.build_tree(ptd.build_peptide("A"), "phi").torsions
    assert phi.names == () and str(phi) == "phi of chain A, residue ALA 2"


def test_groups_of_coordinates(soft):
    """Two phases, four angles, five lengths and one torsion, in the order of test_soft_places."""
    motions = [motion for motion, _, _ in coordinates(soft)]
    assert {name: places.tolist() for name, places in soft.groups.items()} == {
        "torsions": [6], "phases": [0, 7], "bends": [1, 3, 8, 10], "stretches": [2, 4, 5, 9, 11],
    }  # fmt: skip
    assert (soft.n_torsions, soft.n_phases, soft.n_bends, soft.n_stretches) == (1, 2, 4, 5)
    of = {"torsion": FLAT, "phase": FLAT, "bend": BEND, "stretch": STRETCH}
    assert soft.measure.tolist() == [of[motion] for motion in motions]
    joint = {"stretch": PRISMATIC}
    assert soft.joint.tolist() == [FREE, *(joint.get(motion, REVOLUTE) for motion in motions)]
    assert soft.describe_coordinates() == "1 torsions, 2 phases, 4 bends, 5 stretches"
    assert repr(soft) == (
        "<TreeModel: 1 molecules, 6 bodies, 1 torsions, 2 phases, 4 bends, 5 stretches, 18 degrees of freedom, 6 atoms>"
    )
    assert [c.motion for c in soft.torsions] == ["torsion"] and [c.motion for c in soft.bends] == ["bend"] * 4
    rigid = ptd.build_tree(molecule([-1, 0], "C1 C2"), "none")
    assert rigid.describe_coordinates() == "0 torsions"


# ---------------------------------------------------------------------------- what is asked for


def test_rigid_selections_of_every_form():
    """One text or list of atoms, numbers of numpy, several of them in a list; the last atom of each belongs to it."""
    structure = selectable(molecule([-1, 0, 1, 2, 3, 4, 5, 6, 7], "C0 C1 C2 C3 C4 C5 C6 C7 C8"))

    def held(rigid):
        links = ptd.build_tree(structure, "rotor", rigid=rigid).atom_link
        return [b.atoms for b in ptd.build_tree(structure, "rotor", rigid=rigid).hard_bonds], len(np.unique(links))

    one = ([(1, 2), (2, 3), (3, 4)], 4)
    for rigid in (
        "1 4",
        [4, 1],
        (1, 4),
        np.array([1, 4]),
        list(np.array([1, 4])),
        ["1 4"],
        [[1, 4]],
        [np.array([4, 1, 4])],
    ):
        assert held(rigid) == one, rigid
    assert held(["1 3", "5 6"]) == held([[1, 2, 3], [6, 5]]) == ([(1, 2), (2, 3), (5, 6)], 4)
    assert held(None) == held([3]) == ([], 7)
    for bad in ([1, 9], [-1, 2], [], [[1, 2], [9]], [[]]):
        with pytest.raises(ArgumentError, match="rigid= holds atom indices outside 0 to 8, or none at all"):
            held(bad)


@pytest.mark.parametrize("root", [-1, 6])
def test_the_root_is_an_atom(soft, root):
    structure = molecule([-1, 0, 1, 1, 2, 2], "CX2 C1 C2 CX1 CX9 CX3")
    with pytest.raises(ArgumentError, match=f"root is {root}, expected an atom index between 0 and 5"):
        ptd.build_tree(structure, root=root)


@pytest.mark.parametrize(("length", "refused"), [(0.0, True), (0.9e-3, True), (1.1e-3, False), (np.nan, True)])
def test_bonded_atoms_are_apart(length, refused):
    structure = molecule([-1, 0, 1], "C1 C2 C3")
    structure.positions[2] = structure.positions[1] + [0.0, length, 0.0]
    if not refused:
        ptd.build_tree(structure, "none")
        return
    with pytest.raises(ModelError, match=r"atom C2 and .*atom C3 are bonded and (0.0e\+00|9.0e-04|nan) nm apart"):
        ptd.build_tree(structure, "none")


def test_all_atoms_that_place_a_virtual_site_are_in_one_body():
    """Atom 6 is placed by three atoms: the first two of them on one side of the bond that turns, the last beyond."""
    structure = molecule([-1, 0, 1, 1, 2, 2, -1], "C0 C1 C2 C3 C4 C5 H6")
    masses = np.where(np.arange(7) == 6, 0.0, structure.masses)
    site = Beads(structure.atoms, structure.positions, masses, {6: (0, 1, 3)})
    tree = ptd.build_tree(site, "rotor")
    assert tree.atom_link[6] == tree.atom_link[0] and tree.virtual_sites.tolist() == [6] and tree.n_molecules == 1
    ptd.build_tree(replace(site, virtual_sites={6: (0, 1, 2)}), "rotor")  # on the axis
    with pytest.raises(ModelError, match=r"atom H6 is a virtual site that .*atom C0; .*atom C1; .*atom C4 place"):
        ptd.build_tree(replace(site, virtual_sites={6: (0, 1, 4)}), "rotor")
