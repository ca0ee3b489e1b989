"""Hydrogen mass repartitioning: where the mass comes from, and what stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
from named_molecules import changed, molecule
from openmm import unit
from random_trees import Beads

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.model.hydrogen_mass import repartition_hydrogen_mass, with_hydrogen_mass


def tree_of(parents, names, residue_names=("LIG",), residues=None, **sites):
    structure = molecule(parents, names, residues, residue_names)
    return ptd.build_tree(structure, "none", **sites)


@pytest.mark.parametrize("mass", [3.0, 3.0 * unit.dalton])
def test_hydrogens_take_mass_from_the_atom_they_are_bonded_to(mass):
    """CH3-OH and the ion beside it: 12 - 3 * 2 and 16 - 2; the total is as before."""
    tree = tree_of([-1, 0, 0, 0, 0, 4, -1], "C H1 H2 H3 O HO S")
    assert repartition_hydrogen_mass(tree, mass).tolist() == [6.0, 3.0, 3.0, 3.0, 14.0, 3.0, 32.0]
    assert tree.masses.tolist() == [12.0, 1.0, 1.0, 1.0, 16.0, 1.0, 32.0]


def test_hydrogens_may_become_lighter():
    assert repartition_hydrogen_mass(tree_of([-1, 0, 0], "C H1 H2"), 0.5).tolist() == [13.0, 0.5, 0.5]


def test_deuterium_is_hydrogen():
    structure = molecule([-1, 0, 0], "C H1 H2")
    deuterated = changed(structure, element=np.array(["C", "D", "H"]))
    deuterated = Beads(deuterated.atoms, deuterated.positions, np.array([12.0, 2.0, 1.0]))
    assert repartition_hydrogen_mass(ptd.build_tree(deuterated, "none"), 3.0).tolist() == [9.0, 3.0, 3.0]


def test_waters_and_hydrogens_without_one_heavy_atom_keep_their_masses():
    """Water; H2; an H+ alone; and the hydrogen of O-H-O, which two atoms would have to pay for."""
    water = tree_of([-1, 0, 0, -1, 3], "O H1 H2 C HC", ["HOH", "LIG"], [0, 0, 0, 1, 1])
    assert repartition_hydrogen_mass(water, 3.0).tolist() == [16.0, 1.0, 1.0, 10.0, 3.0]
    assert repartition_hydrogen_mass(tree_of([-1, 0], "H1 H2"), 3.0).tolist() == [1.0, 1.0]
    assert repartition_hydrogen_mass(tree_of([-1, -1, 1], "H1 C H2"), 3.0).tolist() == [1.0, 10.0, 3.0]
    assert repartition_hydrogen_mass(tree_of([-1, 0, 1, 0], "O1 H2 O3 H4"), 3.0).tolist() == [14.0, 1.0, 16.0, 3.0]


@pytest.mark.parametrize(("mass", "refused"), [(4.9, False), (5.0, True), (6.0, True)])
def test_every_atom_keeps_some_mass(mass, refused):
    """CH3: 12 - 3 (m - 1) is zero at 5 Da, and the carbon is named."""
    tree = tree_of([-1, 0, 0, 0], "C H1 H2 H3")
    if refused:
        with pytest.raises(ArgumentError, match=f"hydrogen_mass is {mass:g} Da, which leaves .*atom C without mass"):
            repartition_hydrogen_mass(tree, mass)
    else:
        assert repartition_hydrogen_mass(tree, mass)[0] == pytest.approx(12.0 - 3.0 * 3.9)
    with pytest.raises(ArgumentError, match="atom H1 without mass"):
        repartition_hydrogen_mass(tree, 0.0)


def test_virtual_sites_stay_without_mass():
    structure = molecule([-1, 0, 0, -1], "C H1 H2 H3")
    masses = np.array([12.0, 1.0, 1.0, 0.0])
    tree = ptd.build_tree(Beads(structure.atoms, structure.positions, masses, {3: (0, 1)}), "none")
    assert repartition_hydrogen_mass(tree, 3.0).tolist() == [8.0, 3.0, 3.0, 0.0]


def test_a_tree_with_heavier_hydrogens():
    tree = tree_of([-1, 0, 0], "C H1 H2")
    assert with_hydrogen_mass(tree, None) is tree
    heavy = with_hydrogen_mass(tree, 2.0)
    assert heavy.masses.tolist() == [10.0, 2.0, 2.0] and heavy.link_mass.tolist() == [14.0]
