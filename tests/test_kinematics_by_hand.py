"""Forward kinematics of a few atoms: coordinates are what they measure, and forces their slopes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from openmm import unit
from random_trees import beads, random_state
from scipy.spatial.transform import Rotation

from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.core.points import bond_angle, dihedral
from peptidyn.model.beads import bead_chain
from peptidyn.model.build import build_tree
from peptidyn.model.kinematics import link_inertias


@pytest.fixture(scope="module")
def tree():
    return build_tree(beads([-1, 0, 1, 2, 3, 2], np.random.default_rng(3)), soft="all")


def measured(atoms, x):
    points = [x[a] for a in atoms]
    return {2: lambda a, b: np.linalg.norm(a - b), 3: bond_angle, 4: dihedral}[len(points)](*points)


def test_every_coordinate_is_what_its_atoms_measure(tree):
    """Torsions and phases as dihedrals, bends as angles, stretches as distances; at a state far from the reference."""
    state = random_state(tree, np.random.default_rng(0), bend_range=0.3)
    x = tree.positions(state)
    assert {c.motion for c in tree.coordinates} == {"torsion", "phase", "bend", "stretch"}
    for value, coordinate in zip(state.q, tree.coordinates, strict=True):
        change = value - measured(coordinate.atoms, x)
        assert abs(np.angle(np.exp(1j * change)) if len(coordinate.atoms) == 4 else change) < 1e-10, coordinate
    assert np.abs(tree.state(x).q - np.where(np.abs(state.q) > np.pi, np.nan, state.q)).max() < 1e-9


def test_generalised_forces_are_slopes_of_the_work(tree):
    """J^T F of every soft coordinate, and of turns and shifts of the base, by differences of F . x."""
    rng = np.random.default_rng(1)
    state, F, h = random_state(tree, rng), rng.normal(size=(tree.n_atoms, 3)), 1e-6
    forces = tree.generalized_forces(state, F)
    for k, place in enumerate(tree.coordinate_dof):
        e = np.zeros(tree.n_coordinates)
        e[k] = h
        work = (F * (tree.positions(state.replace(q=state.q + e)) - tree.positions(state.replace(q=state.q - e)))).sum()
        assert forces[place] == pytest.approx(work / (2 * h), abs=1e-7)
    x = tree.positions(state)
    assert forces[3:6] == pytest.approx(F.sum(axis=0), abs=1e-12)
    assert forces[:3] == pytest.approx(np.cross(x - state.base_position[0], F).sum(axis=0), abs=1e-12)


def test_velocities_are_slopes_of_positions(tree):
    rng = np.random.default_rng(2)
    state, v, h = random_state(tree, rng), rng.normal(size=tree.n_dof), 1e-6
    v[:6] = 0.0
    rate = v[tree.coordinate_dof]
    moved = [tree.positions(state.replace(q=state.q + sign * h * rate)) for sign in (1, -1)]
    assert np.abs(tree.velocities(state, v) - (moved[0] - moved[1]) / (2 * h)).max() < 1e-7
    inert = tree.with_joint_inertia(rng.random(tree.n_coordinates))
    expected = tree.generalized_forces(state, tree.masses[:, None] * tree.velocities(state, v))
    expected[tree.coordinate_dof] += inert.joint_inertia * rate
    assert inert.momenta(state, v) == pytest.approx(expected, abs=1e-12)


def test_a_fixed_base_stays_where_it_is():
    """It has no coordinates of its own: forces on all others are those of the free tree, and its atoms do not move."""
    chain = beads([-1, 0, 1, 2, 3, 2], np.random.default_rng(3))
    free, fixed = (build_tree(chain, soft="all", base=base) for base in ("free", "fixed"))
    rng = np.random.default_rng(4)
    q, F, rate = random_state(free, rng).q, rng.normal(size=(free.n_atoms, 3)), rng.normal(size=free.n_coordinates)
    states = [tree.reference.replace(q=q) for tree in (free, fixed)]
    assert fixed.n_dof == fixed.n_coordinates == free.n_dof - 6
    assert fixed.generalized_forces(states[1], F) == pytest.approx(free.generalized_forces(states[0], F)[6:], abs=1e-12)
    expected = free.velocities(states[0], np.concatenate([np.zeros(6), rate]))
    assert fixed.velocities(states[1], rate) == pytest.approx(expected, abs=1e-12)


def test_single_atoms_among_molecules():
    """An ion, a chain of four and another ion: forces on ions are their own, and nobody else's."""
    tree = build_tree(beads([-1, -1, 1, 2, 3, -1], np.random.default_rng(5)), soft="rotor")
    rng = np.random.default_rng(6)
    state, F = random_state(tree, rng), rng.normal(size=(6, 3))
    forces, chain = tree.generalized_forces(state, F), slice(1, 5)
    assert tree.n_dof == 3 + 7 + 3
    assert forces[:3] == pytest.approx(F[0], abs=1e-14) and forces[10:] == pytest.approx(F[5], abs=1e-14)
    x = tree.positions(state)
    arm = x[chain] - state.base_position[1]
    assert forces[3:6] == pytest.approx(np.cross(arm, F[chain]).sum(axis=0), abs=1e-12)
    assert forces[6:9] == pytest.approx(F[chain].sum(axis=0), abs=1e-12)
    axis = (x[3] - x[2]) / np.linalg.norm(x[3] - x[2])
    assert forces[9] == pytest.approx(axis @ np.cross(x[4] - x[3], F[4]), abs=1e-12)
    v = rng.normal(size=13)
    moving = tree.velocities(state, v)
    assert np.array_equal(moving[0], v[:3]) and np.array_equal(moving[5], v[10:])
    turning = v[6:9] + np.cross(v[3:6], arm)
    turning[3] += v[9] * np.cross(axis, x[4] - x[3])
    assert moving[chain] == pytest.approx(turning, abs=1e-12)
    assert tree.momenta(state, v) == pytest.approx(tree.generalized_forces(state, tree.masses[:, None] * moving))


@pytest.mark.parametrize("soft", ["rotor", "all"])
def test_bodies_are_made_of_shares_of_atoms(soft):
    """Mass, centre of mass and the six moments of every link by sums over its shares; each atom is shared out whole."""
    tree = build_tree(beads([-1, 0, 1, 2, 3, 2, -1, 6, 7], np.random.default_rng(5)), soft=soft)
    x = tree.positions(tree.reference)
    assert np.bincount(tree.share_atom, weights=tree.share_weight) == pytest.approx(np.ones(tree.n_atoms), abs=1e-15)
    assert (tree.share_weight < 1.0).any() or soft == "all"
    for l in range(tree.n_links):
        own = tree.share_link == l
        m, r = tree.masses[tree.share_atom[own]] * tree.share_weight[own], x[tree.share_atom[own]]
        centre = m @ r / m.sum() if own.any() else tree.origin[l]
        d = r - centre
        inertia = sum((w * (e @ e * np.eye(3) - np.outer(e, e)) for w, e in zip(m, d, strict=True)), np.zeros((3, 3)))
        assert tree.link_mass[l] == pytest.approx(m.sum(), rel=1e-14)
        assert tree.origin[l] + tree.link_com[l] == pytest.approx(centre, abs=1e-14)
        assert tree.link_inertia[l] == pytest.approx(inertia, abs=1e-13)
        unit, at = tree.unit(l), set(tree.share_atom[own].tolist())
        assert set(unit.atoms.tolist()) == {a for a in range(tree.n_atoms) if tree.atom_link[a] == l}
        assert set(unit.shared.tolist()) == at - set(unit.atoms.tolist())
        assert unit.com == pytest.approx(centre, abs=1e-14)


def test_the_base_is_at_the_centre_of_mass_of_the_atoms_that_are_its_own():
    """One rigid molecule of 1, 2 and 5 Da on a right angle: (2 * 0.1, 5 * 0.1) / 8."""
    corner = beads([-1, 0, 0], np.random.default_rng(0))
    x = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.1, 0.0]])
    tree = build_tree(replace(corner, positions=x, masses=np.array([1.0, 2.0, 5.0])), soft="none")
    assert tree.reference.base_position[0] == pytest.approx([0.025, 0.0625, 0.0], abs=1e-16)
    assert tree.link_mass[0] == 8.0


def test_a_bead_chain_is_as_it_was_asked_for():
    """Lengths 0.15 nm, angles of 1.9, torsions of 1 and -2 in this order."""
    tree = bead_chain(5, 0.15, 1.9, torsion=[1.0, -2.0])
    x = tree.positions(tree.reference)
    assert np.linalg.norm(np.diff(x, axis=0), axis=1) == pytest.approx([0.15] * 4, rel=1e-14)
    assert [bond_angle(*x[i : i + 3]) for i in range(3)] == pytest.approx([1.9] * 3, rel=1e-12)
    assert [dihedral(*x[i : i + 4]) for i in range(2)] == pytest.approx([1.0, -2.0], rel=1e-12)
    with pytest.raises(ArgumentError, match="torsion has 3 entries, expected 1 or 2"):
        bead_chain(5, 0.15, 1.9, torsion=[1.0, 2.0, 3.0])


def test_beads_have_their_masses_and_their_base():
    """One mass for all or one for each; torsions are 180 degrees unless given; lengths and angles may have units."""
    chain = bead_chain(4, 0.15, 1.9, [1.0, 2.0, 3.0, 4.0], base="fixed")
    assert chain.masses.tolist() == [1.0, 2.0, 3.0, 4.0] and chain.base == "fixed" and chain.n_dof == 1
    assert abs(chain.reference.torsions[0]) == pytest.approx(np.pi, abs=1e-12)
    assert bead_chain(3, 0.15, 1.9).masses.tolist() == [1.0] * 3 and bead_chain(3, 0.15, 1.9).n_torsions == 0
    assert bead_chain(3, 0.15, 1.9, [5.0]).masses.tolist() == [5.0] * 3 and bead_chain(3, 0.15, 1.9).base == "free"
    given = bead_chain(
        np.int64(5), 1.5 * unit.angstrom, 110.0 * unit.degrees, 12.0 * unit.dalton, torsion=[60.0, 90.0] * unit.degrees
    )
    assert given.positions(given.reference)[1] == pytest.approx([0.15, 0.0, 0.0], abs=1e-15)
    assert np.rad2deg(given.reference.torsions) == pytest.approx([60.0, 90.0]) and given.masses.tolist() == [12.0] * 5
    equal = bead_chain(5, 0.15, 1.9, torsion=1.0)
    assert equal.reference.torsions == pytest.approx([1.0, 1.0]) and equal.atoms.name.tolist() == [
        "B1",
        "B2",
        "B3",
        "B4",
        "B5",
    ]


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        ((2, 0.15, 1.9), "n is 2, expected a whole number of at least 3"),
        ((3.5, 0.15, 1.9), "n is 3.5, expected a whole number"),
        ((4, 0.0, 1.9), "bond_length is 0 nm, expected a positive length"),
        ((4, -0.1, 1.9), "bond_length is -0.1 nm"),
        ((4, np.nan, 1.9), "bond_length is nan nm"),
        ((4, 0.15, 0.0), "bond_angle is 0 rad, expected a value between 0 and pi"),
        ((4, 0.15, np.pi), "bond_angle is 3.14159 rad"),
        ((4, 0.15, 110.0), r"give degrees as np.deg2rad\(110\)"),
        ((4, 0.15, np.nan), "bond_angle is nan rad"),
        ((4, 0.15, 1.9, [1.0, 2.0]), "masses has 2 entries, expected 1 or 4"),
        ((4, 0.15, 1.9, [1.0] * 5), "masses has 5 entries, expected 1 or 4"),
    ],
)
def test_beads_that_make_no_chain_are_refused(arguments, phrase):
    with pytest.raises(ArgumentError, match=phrase):
        bead_chain(*arguments)


def test_a_straight_angle_has_no_axis():
    """A bend that a new geometry straightens, but for what rounding leaves."""
    tree = build_tree(beads([-1, 0, 1], np.random.default_rng(1)), soft="all")
    straight = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.2, 1e-9, 0.0]])
    with pytest.raises(ModelError, match="no joint axis can be drawn"):
        tree.with_geometry(straight)
    tree.with_geometry(straight + [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1e-2, 0.0]])


def test_inertias_turn_with_their_links():
    """R I R^T about the centre p + R c, with inertias that have all six components."""
    rng = np.random.default_rng(4)
    R = Rotation.random(3, rng).as_matrix()
    p, com, inertia = rng.normal(size=(3, 3)), rng.normal(size=(3, 3)), rng.normal(size=(3, 3, 3))
    inertia += inertia.transpose(0, 2, 1)
    centre, world = np.empty((3, 3)), np.empty((3, 3, 3))
    link_inertias(np.ones(3), com, inertia, R, p, centre, world)
    assert np.abs(centre - p - np.einsum("lij,lj->li", R, com)).max() < 1e-14
    assert np.abs(world - R @ inertia @ R.transpose(0, 2, 1)).max() < 1e-14


def test_the_state_of_a_molecule_that_was_moved_as_a_whole():
    """Its soft coordinates stay, and the base goes along: rebuilt atoms lie where they were given."""
    tree = build_tree(beads([-1, 0, 1, 2, 2, 4], np.random.default_rng(3)), "rotor")
    turn = Rotation.from_rotvec([0.3, -1.1, 0.8]).as_matrix()
    x = tree.positions(tree.reference) @ turn.T + [0.4, -0.2, 1.5]
    state = tree.state(x)
    assert np.abs(tree.positions(state) - x).max() < 1e-12
    assert np.abs(state.base_position - (tree.reference.base_position @ turn.T + [0.4, -0.2, 1.5])).max() < 1e-12


def test_axes_and_origins_of_joints():
    """A torsion turns about a -> b through b, a bond stretches from b, an angle a-b-c opens about (a-b) x (c-b) at b.

    The atoms are at (1, 0, 0), (0, 0, 0), (0, 2, 0) and (0, 2, 3), in tenths of a nm; the tree begins at the second.
    """
    row = beads([-1, 0, 1, 2], np.random.default_rng(0))
    x = 0.1 * np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 2.0, 3.0]])
    tree = build_tree(replace(row, positions=x, masses=np.array([1.0, 2.0, 3.0, 4.0])), "all")
    rows = [(c.motion, c.atoms) for c in tree.coordinates]
    assert rows == [
        ("bend", (2, 1, 0)), ("stretch", (1, 0)), ("stretch", (1, 2)), ("torsion", (0, 1, 2, 3)), ("bend", (1, 2, 3)),
        ("stretch", (2, 3)),
    ]  # fmt: skip
    expected = [
        ((0.0, 0.0, -1.0), x[1]), ((1.0, 0.0, 0.0), x[0]), ((0.0, 1.0, 0.0), x[2]), ((0.0, 1.0, 0.0), x[2]),
        ((-1.0, 0.0, 0.0), x[2]), ((0.0, 0.0, 1.0), x[3]),
    ]  # fmt: skip
    assert tree.axis[1:] == pytest.approx(np.array([axis for axis, _ in expected]), abs=1e-15)
    assert tree.origin[1:] == pytest.approx(np.array([origin for _, origin in expected]), abs=1e-15)
    assert tree.axis[0].tolist() == [0.0, 0.0, 0.0] and tree.origin[0].tolist() == [0.0, 0.0, 0.0]
    right = np.pi / 2
    assert tree.q_reference == pytest.approx([right, 0.1, 0.2, dihedral(*x), right, 0.3]) and dihedral(
        *x
    ) == pytest.approx(-right)
    assert tree.link_mass.tolist() == [2.0, 0.0, 1.0, 0.0, 3.0, 0.0, 4.0]
    assert not tree.link_com[[1, 3, 5]].any() and not tree.link_inertia[[1, 3, 5]].any()
    # every coordinate is opened by a little: which atoms move, and where to
    moves = {
        0: {0: (0.0, -0.1, 0.0)}, 1: {0: (1.0, 0.0, 0.0)}, 2: {2: (0.0, 1.0, 0.0), 3: (0.0, 1.0, 0.0)},
        3: {3: (0.3, 0.0, 0.0)}, 4: {3: (0.0, 0.3, 0.0)}, 5: {3: (0.0, 0.0, 1.0)},
    }  # fmt: skip
    for k, moved in moves.items():
        v = np.zeros(tree.n_dof)
        v[tree.coordinate_dof[k]] = 1.0
        slopes = np.zeros((4, 3))
        for a, slope in moved.items():
            slopes[a] = slope
        assert tree.velocities(tree.reference, v) == pytest.approx(slopes, abs=1e-14), rows[k]


def test_a_snapshot_of_links_is_that_of_its_state():
    """Poses, axes, centres and inertias of links of a moved chain: each is that of the atoms it carries."""
    tree = build_tree(beads([-1, 0, 1, 2, 3, 2, -1], np.random.default_rng(3)), soft="all")
    state = random_state(tree, np.random.default_rng(0))
    links, x = tree.links(state), tree.positions(state)
    R, p = tree.poses(state)
    assert np.array_equal(links.R, R) and np.array_equal(links.p, p) and np.array_equal(links.mass, tree.link_mass)
    assert np.abs(np.einsum("lij,lkj->lik", R, R) - np.eye(3)).max() < 1e-12
    for l in range(tree.n_links):
        own = tree.atom_link == l
        assert np.abs(p[l] + tree.local[own] @ R[l].T - x[own]).max(initial=0.0) < 1e-14
        if tree.parent[l] < 0:
            assert not links.axis[l].any() and np.array_equal(p[l], state.base_position[tree.molecule[l]])
            continue
        first, centre, last = tree.joint_atoms[l]
        axis = x[last] - x[centre]
        if first >= 0:
            axis = np.cross(x[first] - x[centre], axis)
        assert links.axis[l] == pytest.approx(axis / np.linalg.norm(axis), abs=1e-12)
        if own.any():
            assert links.com[l] == pytest.approx(tree.masses[own] @ x[own] / tree.masses[own].sum(), abs=1e-13)
