"""Rings and long loops: which are cut, at which bond, what becomes soft in them, and what is said of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from named_molecules import MASSES
from random_trees import Beads, beads

import peptidyn as ptd
from peptidyn.core.atoms import Atoms
from peptidyn.model.rings import describe_cuts, find_rings, long_loops


def carbons(bonds, positions=None, elements=None, residues=None):
    """Return atoms with these bonds of order 1; without positions, anywhere."""
    n = max(map(max, bonds)) + 1
    x = np.random.default_rng(0).normal(size=(n, 3)) if positions is None else np.array(positions)
    elements = ["C"] * n if elements is None else list(elements)
    owner = np.zeros(n, dtype=np.int64) if residues is None else np.array(residues)
    count = int(owner.max()) + 1
    atoms = Atoms(
        name=np.array([f"{e}{i}" for i, e in enumerate(elements)]), element=np.array(elements), residue=owner,
        residue_name=np.array(["LIG"] * count), residue_id=np.array([str(r + 1) for r in range(count)]),
        residue_chain=np.zeros(count, dtype=np.int64), chain_id=np.array(["A"]),
        bonds=np.array(sorted(tuple(sorted(bond)) for bond in bonds)), bond_order=np.ones(len(bonds)),
    )  # fmt: skip
    return Beads(atoms, x, np.array([MASSES[e] for e in elements]))


def path(*atoms):
    """Return the bonds along a row of atoms."""
    return list(pairwise(atoms))


def circle(n):
    """Return the bonds of a ring of n atoms."""
    return path(*range(n), 0)


def crown(n, pucker=0.03):
    """Return positions of a regular ring, bonds of about 0.15 nm, whose atoms stand in turn above and below."""
    angle = 2 * np.pi * np.arange(n) / n
    radius = 0.075 / np.sin(np.pi / n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), pucker * (-1.0) ** np.arange(n)], axis=1)


def cuts(structure, soft="phi", **options):
    return ptd.build_tree(structure, soft, **options).cut_bonds.tolist()


# ---------------------------------------------------------------------------- finding them


def test_the_smallest_ring_through_every_bond_is_found_large_ones_first():
    """A ring of four and one of five that share the bond 1-2, and a tail."""
    bonds = np.array([(0, 1), (0, 3), (1, 2), (1, 6), (2, 3), (2, 4), (4, 5), (5, 6), (6, 7)])
    kept = np.ones(len(bonds), dtype=bool)
    assert find_rings(bonds, kept) == [(2, 3, 5, 6, 7), (0, 1, 2, 4)]
    kept[2] = False  # without the bond 1-2 there is one ring of seven
    assert find_rings(bonds, kept) == [(0, 1, 3, 4, 5, 6, 7)]
    assert find_rings(bonds[:0], kept[:0]) == []


def test_bonds_within_a_group_close_no_ring():
    """A row of four atoms whose ends are of one group: three bonds from it to itself; a bond within it counts not."""
    ends = np.array([(0, 1), (1, 2), (2, 0), (0, 0)])
    assert find_rings(ends, np.ones(4, dtype=bool)) == [(0, 1, 2)]


# ---------------------------------------------------------------------------- where they are cut


def test_a_ring_is_cut_at_its_last_atom():
    """Where the bond leads to the lower atom: of 7-8 and 0-8 the second."""
    assert cuts(carbons(circle(9), crown(9))) == [[0, 8]]


@pytest.mark.parametrize("lengths", [(5, 5, 5), (4, 6, 8)])
def test_three_paths_between_two_atoms_are_cut_twice(lengths):
    """Two bonds close loops, whatever the ring they are found in, and the molecule stays in one piece."""
    bonds, start = [], 2
    for length in lengths:
        bonds += path(0, *range(start, start + length), 1)
        start += length
    tree = ptd.build_tree(carbons(bonds), "all")
    assert len(tree.cut_bonds) == 2 and tree.n_molecules == 1
    assert tree.n_coordinates == 3 * tree.n_atoms - 6


def test_two_rings_at_one_bond_are_cut_one_after_the_other():
    """Naphthalene, with everything soft: first the ring with the first bond, at 0-5; then what remains, at 0-9."""
    x = [(0.0, 0.075), (0.0, -0.075), (0.13, -0.15), (0.26, -0.075), (0.26, 0.075), (0.13, 0.15)]
    positions = [(u, v, 0.0) for u, v in [*x, *((-u, v) for u, v in x[2:])]]
    structure = carbons([*circle(6), *path(1, 6, 7, 8, 9, 0)], positions)
    assert cuts(structure, "all") == [[0, 5], [0, 9]] and cuts(structure, "rings bends bonds") == []
    assert ptd.build_tree(structure, "all").n_coordinates == 3 * 10 - 6


def test_a_large_ring_is_cut_before_the_small_one_it_runs_through():
    """Twelve atoms on a circle, of which 10, 11 and 0 are in a ring of five: 9-10 is no bond of that."""
    positions = [*crown(12, 0.0), (0.38, 0.0, 0.12), (0.30, -0.26, 0.12)]
    structure = carbons([*path(*range(11)), (0, 11), (10, 11), (10, 13), (12, 13), (0, 12)], positions)
    assert cuts(structure) == [[9, 10]]
    assert cuts(structure, "all") == [[9, 10], [10, 13]]


@pytest.mark.parametrize(("pucker", "cut"), [(0.014, []), (0.016, [[0, 5]])])
def test_a_ring_is_flat_within_a_distance_of_its_plane(pucker, cut):
    """0.015 nm, of atoms above and below."""
    assert cuts(carbons(circle(6), crown(6, pucker)), "rings") == cut


def test_one_atom_out_of_the_plane_puckers_a_ring():
    """An envelope, up or down."""
    x = crown(5, 0.0)
    x[0, 2] = 0.05
    assert cuts(carbons(circle(5), x), "rings") == [[0, 4]]
    x[0, 2] = -0.05
    assert cuts(carbons(circle(5), x), "rings") == [[0, 4]]
    x[0, 2] = 0.01
    assert cuts(carbons(circle(5), x), "rings") == []


def test_sulfur_and_carbon_of_two_residues_are_no_disulfide():
    assert cuts(carbons(path(0, 1, 2, 3), elements="CSCC", residues=[0, 0, 1, 1])) == []
    assert cuts(carbons(path(0, 1, 2, 3), elements="CSSC", residues=[0, 0, 1, 1])) == [[1, 2]]


# ---------------------------------------------------------------------------- what is soft in them


@pytest.mark.parametrize(("soft", "n"), [("rings", 3 * 9 - 6), ("rotor", 6), ("all", 3 * 9 - 6), ("none", 0)])
def test_coordinates_of_a_large_ring(soft, n):
    """Nine atoms, cut at one bond: 8 lengths, 7 angles and 6 torsions with "rings", torsions alone without."""
    tree = ptd.build_tree(carbons(circle(9), crown(9)), soft)
    assert tree.n_coordinates == n and len(tree.cut_bonds) == 1
    assert tree.n_torsions == (6 if n else 0) and tree.n_bends == (7 if n > 6 else 0)


@pytest.mark.parametrize(("inside", "n"), [("index 0 to 8", 21), ("index 0 to 7", 0)])
def test_a_ring_is_soft_where_all_of_it_is_selected(inside, n):
    names = carbons(circle(9), crown(9))
    names = type("Selectable", (Beads,), {"select": lambda self, text: np.arange(int(text.split()[-1]) + 1)})(
        names.atoms, names.positions, names.masses
    )
    assert ptd.build_tree(names, f"rings in {inside}").n_coordinates == n


def test_a_rigid_selection_closes_loops_of_its_own():
    """Opposite atoms of a ring of six held together: two short loops, rigid with them. In one of 22, each is cut."""
    assert cuts(carbons(circle(6), crown(6)), "rings", rigid=[0, 3]) == []
    assert ptd.build_tree(carbons(circle(6), crown(6)), "all", rigid=[0, 3]).n_coordinates == 0
    assert cuts(carbons(circle(6), crown(6)), "rings", rigid=[0]) == [[0, 5]]
    tree = ptd.build_tree(carbons(circle(22), crown(22)), "rings", rigid=[0, 11])
    assert len(tree.cut_bonds) == 2 and tree.n_coordinates == 0 and tree.atom_link[0] == tree.atom_link[11]
    assert ptd.build_tree(carbons(circle(22), crown(22)), "rotor", rigid=[0, 11]).n_coordinates == 16


# ---------------------------------------------------------------------------- what is said of them


@pytest.mark.parametrize(("n", "long"), [(5, False), (8, False), (9, True), (12, True)])
def test_long_loops_are_those_of_more_than_eight_atoms(n, long):
    """Atoms within two bonds of either end of the bond that is cut; the walk does not go through that bond."""
    atoms = carbons(circle(n)).atoms
    expected = [({0, 1, 2}, {n - 1, n - 2, n - 3})] if long else []
    assert long_loops(atoms, np.array([[0, n - 1]])) == expected
    assert long_loops(atoms, np.empty((0, 2), dtype=int)) == []


def test_loops_are_walked_without_any_bond_that_is_cut():
    """Ten atoms in a ring, of which two opposite ones are bonded: 0 and 9 are nine bonds apart, or six by 2-7."""
    atoms = carbons([*circle(10), (2, 7)]).atoms
    assert long_loops(atoms, np.array([[0, 9], [2, 7]])) == [({0, 1, 2}, {7, 8, 9})]
    assert long_loops(atoms, np.array([[0, 9]])) == []
    branched = carbons([*circle(10), (0, 10), (10, 11), (11, 12)]).atoms
    assert long_loops(branched, np.array([[0, 9]])) == [({0, 1, 2, 10, 11}, {7, 8, 9})]


def test_cuts_are_described_by_their_atoms():
    atoms = carbons(path(*range(9))).atoms
    name = "chain A, residue LIG 1, atom C{}".format
    assert describe_cuts(atoms, np.empty((0, 2), dtype=int)) == []
    assert describe_cuts(atoms, np.array([[0, 1]])) == [
        f"1 bond that closes a loop is left out of the tree and held by the force field: {name(0)} - {name(1)}"
    ]
    (many,) = describe_cuts(atoms, np.array(path(*range(9))))
    listed = "; ".join(f"{name(i)} - {name(i + 1)}" for i in range(5))
    assert many == (
        f"8 bonds that close loops are left out of the tree and held by the force field: {listed}; and 3 more"
    )
    (five,) = describe_cuts(atoms, np.array(path(*range(6))))
    assert five.endswith(f"{name(4)} - {name(5)}")


def test_molecules_without_loops_have_no_cuts():
    assert cuts(beads([-1, 0, 1, 2, -1, 4, 5], np.random.default_rng(0)), "all") == []
