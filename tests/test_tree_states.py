"""States of a tree and their parts, and what a tree with another geometry or other masses knows."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from named_molecules import molecule
from random_trees import Beads, beads, random_state

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError


@pytest.fixture(scope="module")
def soft():
    """A branched molecule of six atoms with everything soft."""
    return ptd.build_tree(molecule([-1, 0, 1, 1, 2, 2], "CX2 C1 C2 CX1 CX9 CX3"), "all")


# ---------------------------------------------------------------------------- states


def test_parts_of_a_state_are_its_coordinates(soft):
    state = soft.reference.replace(q=np.arange(12.0))
    assert state.torsions.tolist() == [6.0] and state.phases.tolist() == [0.0, 7.0]
    assert state.bends.tolist() == [1.0, 3.0, 8.0, 10.0] and state.stretches.tolist() == [2.0, 4.0, 5.0, 9.0, 11.0]
    other = state.replace(torsions=[60.0], phases=[10.0, 70.0], bends=[11.0, 13.0, 18.0, 20.0], stretches=[0.5] * 5)
    assert other.q.tolist() == [10.0, 11.0, 0.5, 13.0, 0.5, 0.5, 60.0, 70.0, 18.0, 0.5, 20.0, 0.5]
    assert np.array_equal(state.q, np.arange(12.0))
    assert other.replace(q=np.zeros(12)).q.tolist() == [0.0] * 12
    assert repr(other) == "<State: 12 soft coordinates, 1 molecules>"


def test_a_changed_state_keeps_the_rest():
    two = ptd.build_tree(beads([-1, 0, 1, 2, -1, 4, 5, 6], np.random.default_rng(0)), "rotor")
    state = random_state(two, np.random.default_rng(1))
    turned = np.array([[0.6, 0.8, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    for name, value in (("q", [0.1, 0.2]), ("base_position", np.ones((2, 3))), ("base_rotation", turned)):
        other = state.replace(**{name: value})
        for part in ("q", "base_position", "base_rotation"):
            expected = np.asarray(value) if part == name else getattr(state, part)
            assert np.array_equal(getattr(other, part), expected), (name, part)
        assert other.tree is two


def test_states_refuse_what_is_ambiguous(soft):
    with pytest.raises(ArgumentError, match="give either q, or torsions, bends, phases, stretches, not both"):
        soft.reference.replace(q=soft.q_reference, phases=[0.0, 0.0])
    two = ptd.build_tree(beads([-1, 0, -1, 2], np.random.default_rng(0)), "rotor")
    with pytest.raises(ArgumentError, match="base_rotation 1 is not a unit quaternion"):
        two.reference.replace(base_rotation=[[1.0, 0.0, 0.0, 0.0], [0.9, 0.0, 0.0, 0.0]])


def test_a_state_is_a_copy_of_what_it_was_made_from(soft):
    q, position = soft.q_reference.copy(), np.zeros((1, 3))
    state = soft.reference.replace(q=q, base_position=position)
    q[0], position[0, 0] = 5.0, 5.0
    assert state.q[0] == soft.q_reference[0] and state.base_position[0, 0] == 0.0
    assert not state.q.flags.writeable and not state.base_position.flags.writeable
    assert not pickle.loads(pickle.dumps(state)).base_position.flags.writeable


def test_a_state_of_another_tree_is_refused(soft):
    """Other numbers of links or of coordinates; a tree with another geometry takes it."""
    chain = ptd.build_tree(beads([-1, 0, 1, 2, 3], np.random.default_rng(0)), "rotor")
    longer = ptd.build_tree(beads([-1, 0, 1, 2, 3, 4], np.random.default_rng(0)), "rotor")
    more = ptd.build_tree(beads([-1, 0, 1, 2, 3, -1], np.random.default_rng(0)), "rotor")  # as many coordinates
    for other in (longer, more, soft):
        for call in (chain.positions, chain.links, chain.poses):
            with pytest.raises(ArgumentError, match="the state belongs to another tree"):
                call(other.reference)
    chain.positions(chain.with_geometry(1.01 * chain.positions(chain.reference)).reference)
    chain.check_state(chain.reference)


def test_the_tolerance_of_states_is_the_callers():
    tree = ptd.build_tree(beads([-1, 0, 1], np.random.default_rng(0)), "none")
    x = 1.01 * tree.positions(tree.reference)  # deformed by one or two thousandths of a nm
    worst = tree.fit(x).max_misfit
    assert 5e-4 < worst < 2e-3
    tree.state(x)
    tree.state(x, tolerance=1.01 * worst)
    with pytest.raises(ModelError, match=f"it is deformed by {worst:.2e} nm, more than {0.99 * worst:.1e}"):
        tree.state(x, tolerance=0.99 * worst)
    with pytest.raises(ModelError, match=r"more than 2\.0e-03"):
        tree.state(1.1 * tree.positions(tree.reference))


# ---------------------------------------------------------------------------- other geometry, masses, inertias

ASKED = ["reference", "link_arrays", "fingerprint", "groups", "torsions", "bends", "unit_members", "measure", "n_dof",
         "n_bodies", "coordinate_atoms", "coordinate_dof", "virtual_sites", "torsion_index"]  # fmt: skip


def same_links(tree, other, state):
    """True if two trees have the same snapshot of links in a state."""
    one, two = tree.links(state), other.links(state)
    return all(np.allclose(getattr(one, n), getattr(two, n), atol=1e-13) for n in one.__dataclass_fields__)


@pytest.mark.parametrize("change", ["geometry", "masses", "inertia"])
def test_a_changed_tree_knows_nothing_stale(soft, change):
    """Everything is asked of a tree before; a changed one answers as a tree does that was made anew."""
    structure = molecule([-1, 0, 1, 1, 2, 2], "CX2 C1 C2 CX1 CX9 CX3")
    rng = np.random.default_rng(0)
    x = structure.positions + 0.02 * rng.normal(size=(6, 3))
    masses, inertia = rng.uniform(1.0, 20.0, 6), rng.uniform(0.0, 1.0, 12)
    for name in ASKED:
        getattr(soft, name)
    if change == "geometry":
        found, fresh = soft.with_geometry(x), ptd.build_tree(Beads(structure.atoms, x, structure.masses), "all")
    elif change == "masses":
        found = soft.with_masses(masses)
        fresh = ptd.build_tree(Beads(structure.atoms, structure.positions, masses), "all")
    else:
        found, fresh = soft.with_joint_inertia(inertia), replace(soft, joint_inertia=inertia)
    state = random_state(found, rng)
    assert same_links(found, fresh, state) and same_links(found, soft, state) == (change == "inertia")
    assert found.fingerprint == fresh.fingerprint != soft.fingerprint
    assert np.allclose(found.positions(state), fresh.positions(state), atol=1e-14)
    assert np.array_equal(found.masses, fresh.masses) and np.array_equal(found.joint_inertia, fresh.joint_inertia)
    assert np.allclose(found.reference.q, found.q_reference) and found.reference.tree is found
    assert np.allclose(found.positions(found.reference), x if change == "geometry" else structure.positions, atol=1e-14)
    assert np.allclose(found.center_of_mass(state), found.masses @ found.positions(state) / found.masses.sum())
    for name in ("coordinate_dof", "measure", "torsion_index", "coordinate_atoms"):
        assert np.array_equal(getattr(found, name), getattr(soft, name))
    v = rng.normal(size=18)
    assert np.allclose(found.momenta(state, v), ptd.mass_matrix(found, state) @ v, atol=1e-10)


def test_other_masses_and_geometries_keep_the_inertias_of_joints(soft):
    inert = soft.with_joint_inertia(np.arange(12.0))
    x = 1.1 * soft.positions(soft.reference)
    for other in (inert.with_masses(2.0 * soft.masses), inert.with_geometry(x)):
        assert np.array_equal(other.joint_inertia, np.arange(12.0))
    heavy = soft.with_masses(2.0 * soft.masses).with_geometry(x)
    assert np.array_equal(heavy.masses, 2.0 * soft.masses) and heavy.link_mass.sum() == 2.0 * soft.masses.sum()


@pytest.mark.parametrize(
    ("masses", "phrase"), [([0.0], "is 0 Da"), ([-1.0], "is -1 Da"), ([np.nan], "is nan Da"), ([np.inf], "is inf Da")]
)
def test_masses_are_positive_numbers(soft, masses, phrase):
    new = soft.masses.copy()
    new[[2, 4]] = masses
    with pytest.raises(ModelError, match=rf"atom C2 {phrase} \(2 such atoms\), but every atom needs a positive one"):
        soft.with_masses(new)
    with pytest.raises(ArgumentError, match=r"masses have shape \(5,\), expected \(6,\)"):
        soft.with_masses(new[:5])


def test_vectors_are_numbers_of_the_right_shape(soft):
    for bad, where in ((np.nan, 3), (np.inf, 17), (-np.inf, 0)):
        v = np.zeros(18)
        v[where] = bad
        with pytest.raises(ArgumentError, match=f"velocities holds values that are not finite numbers, at {where}"):
            soft.velocities(soft.reference, v)
    with pytest.raises(ArgumentError, match=r"forces have shape \(6,\), expected \(6, 3\)"):
        soft.generalized_forces(soft.reference, np.zeros(6))
    with pytest.raises(ArgumentError, match=r"positions have shape \(5, 3\), expected \(6, 3\)"):
        soft.fit(np.zeros((5, 3)))


def test_fingerprints_tell_trees_apart():
    """Base, masses, geometry, which links carry which atoms, joint inertias."""
    chain = beads([-1, 0, 1, 2, 3], np.random.default_rng(0))
    tree = ptd.build_tree(chain, "rotor")
    others = [
        ptd.build_tree(chain, "rotor", base="fixed"),
        ptd.build_tree(chain, "none"),
        ptd.build_tree(chain, "rotor", root=4),
        tree.with_masses(chain.masses + [0.0, 0.0, 0.0, 0.0, 1e-9]),
        tree.with_geometry(chain.positions + 1e-9),
        tree.with_joint_inertia([0.0, 1e-9]),
    ]
    ethane = molecule([-1, 0, 1, 1, 2, 2], "C0 C1 C2 C3 C4 N5")
    two = ptd.build_tree(ethane, "rotor")  # C4 and N5 are in one body; C4 measures its torsion
    aside = np.zeros((6, 3))
    aside[5] = 1e-9
    others += [
        two,
        ptd.build_tree(replace(ethane, masses=ethane.masses[[0, 1, 2, 3, 5, 4]]), "rotor"),
        ptd.build_tree(replace(ethane, positions=ethane.positions + aside), "rotor"),
    ]
    prints = [tree.fingerprint, *(other.fingerprint for other in others)]
    assert len(set(prints)) == len(prints) and {len(p) for p in prints} == {32}
    assert ptd.build_tree(chain, "rotor").fingerprint == tree.fingerprint
