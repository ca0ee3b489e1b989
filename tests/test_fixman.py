"""The extended Fixman solver (Lee, Wang & Chirikjian): blocks of H, elimination, held coordinates, any joint."""

from __future__ import annotations

import re
from dataclasses import replace

import extended_precision
import numpy as np
import pytest
from random_bodies import make_bodies, random_bodies, random_pose
from random_trees import beads, random_state, random_tree, serial_parents, star_parents
from real_structures import VILLIN_IN_WATER, load

from peptidyn.core.errors import ArgumentError, SolverError, UnsupportedError
from peptidyn.io.peptides import build_peptide
from peptidyn.model.beads import bead_chain
from peptidyn.model.build import build_tree
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.solvers.dense import mass_matrix
from peptidyn.solvers.fixman_elimination import FixmanSolver, h_blocks
from peptidyn.solvers.protocol import get_solver

SOLVER = FixmanSolver()
BENDS = "phi psi chi omega methyl angles"


def relative(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def check(tree, state, tolerance=1e-9):
    """Compare solve, log_det and accelerations with M in extended precision."""
    rng = np.random.default_rng(0)
    b, v, tau = rng.normal(size=(3, tree.n_dof))
    M = extended_precision.mass_matrix(tree, state)
    expected, log_det = extended_precision.solve(M, b[:, None])
    assert relative(SOLVER.solve(tree, state, b), expected[:, 0]) < tolerance
    assert SOLVER.log_det(tree, state) == pytest.approx(log_det, abs=1e-10 * max(1, tree.n_dof))
    dense = get_solver("dense").accelerations(tree, state, v, tau)
    assert relative(SOLVER.accelerations(tree, state, v, tau), dense) < 10 * tolerance


# ---------------------------------------------------------------------- against the definition of M


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize(
    ("kind", "n"),
    [("serial", 4), ("serial", 9), ("serial", 303), ("branched", 30), ("branched", 300), ("star", 40), ("forest", 90)],
)
def test_random_trees(kind, n, base):
    for seed in range(3 if n < 100 else 1):
        tree = random_tree(kind, n, seed=seed, base=base)
        check(tree, random_state(tree, np.random.default_rng(seed)))


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize("soft", ["phi psi chi", "N-CA-C phi", BENDS])
@pytest.mark.parametrize("root", [0, -1])
def test_a_peptide_with_bends_in_both_orders(soft, root, base):
    """Seen from the other end of the chain, a torsion that came before its bend comes after it."""
    structure = build_peptide("GAPWKS")
    tree = build_tree(structure, soft, base=base, root=root % structure.n_atoms)
    check(tree, random_state(tree, np.random.default_rng(1)))


@pytest.mark.parametrize("soft", ["phi psi chi", BENDS])
def test_a_protein(soft):
    tree = build_tree(load(VILLIN_IN_WATER).subset("protein"), soft)
    check(tree, random_state(tree, np.random.default_rng(2)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("roots", [(FREE,), (FIXED,), (POINT,), (FREE, FIXED, POINT, FREE)])
def test_joints_of_every_make(roots, seed):
    """Sliding joints, and two motions at one joint along axes that neither meet nor are perpendicular."""
    tree = random_bodies(roots, 20, seed=seed)
    check(tree, random_pose(tree, np.random.default_rng(seed)))


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_two_hundred_joints_on_one_body(base):
    rng = np.random.default_rng(3)
    tree = build_tree(beads(star_parents(200, 2), rng), soft="rotor", base=base)
    assert np.bincount(tree.parent[1:] + 1).max() == 200
    check(tree, random_state(tree, rng))


def test_a_rigid_domain_with_joints_all_around():
    """One body is 60 beads of the chain frozen into one; the side chains hang on it."""
    parents = serial_parents(60)
    for i in range(60):
        parents += [i, len(parents), len(parents) + 1]
    tree = build_tree(beads(parents, np.random.default_rng(4)), soft="rotor", rigid=list(range(60)))
    assert np.bincount(tree.parent[1:] + 1).max() == 60
    check(tree, random_state(tree, np.random.default_rng(5)))


def test_nothing_can_move():
    tree = build_tree(beads([-1, 0, 1, -1], np.random.default_rng(0)), soft="rotor", base="fixed")
    assert tree.n_dof == 0
    assert SOLVER.log_det(tree, tree.reference) == 0.0
    assert SOLVER.solve(tree, tree.reference, np.empty((0, 2))).shape == (0, 2)


def test_a_single_point():
    tree = build_tree(beads([-1], np.random.default_rng(0)), soft="rotor")
    assert SOLVER.log_det(tree, tree.reference) == pytest.approx(3 * np.log(tree.masses[0]))
    np.testing.assert_allclose(SOLVER.solve(tree, tree.reference, np.arange(3.0)), np.arange(3.0) / tree.masses[0])


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_no_digits_are_lost_on_a_long_stiff_chain(base):
    """A planar zigzag is rigid in its plane: inertias grow with the cube of its length, the light beads do not."""
    tree = bead_chain(3003, 0.15, np.deg2rad(110), 12.0, base=base)
    other = get_solver("udu").log_det(tree, tree.reference)
    assert SOLVER.log_det(tree, tree.reference) == pytest.approx(other, rel=1e-12)


def test_no_digits_are_lost_where_forces_are_large():
    """Forces that move a long chain as a whole are large; the accelerations are a small difference in (6)."""
    tree = random_tree("serial", 303, seed=0)
    state = random_state(tree, np.random.default_rng(0))
    M = extended_precision.mass_matrix(tree, state)
    b = (M @ np.random.default_rng(1).normal(size=tree.n_dof)).astype(float)
    expected = extended_precision.solve(M, b[:, None])[0][:, 0]
    weight = np.sqrt(np.diag(M)).astype(float)
    error = np.abs(weight * (SOLVER.solve(tree, state, b) - expected)).max() / np.abs(weight * expected).max()
    assert error < 2e-10


# ---------------------------------------------------------------------- the blocks of H


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize("kind", ["serial", "branched", "star", "forest"])
def test_schur_complement_is_the_inverse(kind, base):
    tree = random_tree(kind, 40, seed=7, base=base)
    state = random_state(tree, np.random.default_rng(8))
    H = h_blocks(tree, state)
    M = mass_matrix(tree, state)
    schur = H.H11 - H.H12 @ np.linalg.solve(H.H22, H.H12.T)
    assert relative(schur, np.linalg.inv(M)) < 1e-10
    log_det = H.log_det_G + np.linalg.slogdet(H.H22)[1]
    assert log_det == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-9)
    assert relative(SOLVER.solve(tree, state, np.eye(tree.n_dof)), schur) < 1e-10
    assert SOLVER.log_det(tree, state) == pytest.approx(log_det, abs=1e-9)


def test_blocks_of_trees_with_joint_inertia_are_refused():
    tree = random_tree("serial", 4, seed=0)
    heavier = tree.with_joint_inertia(np.ones(tree.n_coordinates))
    with pytest.raises(UnsupportedError, match="'fixman' has no joint inertias"):
        h_blocks(heavier, heavier.reference)


def test_six_coordinates_per_body():
    """f + r = 6 n for free bodies; a point has three, a fixed base none."""
    tree = random_tree("forest", 60, seed=1)
    H = h_blocks(tree, tree.reference)
    points = np.count_nonzero(tree.joint == POINT)
    assert points == 2
    assert len(H.H11) + len(H.H22) == 6 * (tree.n_bodies - points) + 3 * points


def test_h22_is_the_line_graph_of_the_tree():
    """Blocks of two joints are zero unless the joints share a body; H11 of a chain is tridiagonal."""
    tree = random_tree("branched", 60, seed=2, base="fixed")
    H = h_blocks(tree, random_state(tree, np.random.default_rng(3)))
    for b in range(1, tree.n_links):
        for c in range(1, b):
            shared = {b, int(tree.parent[b])} & {c, int(tree.parent[c])} - {0}
            block = H.H22[np.ix_(H.hard_link == b, H.hard_link == c)]
            assert block.shape == (5, 5)
            assert bool(shared) == bool(np.any(block != 0.0))
    chain = random_tree("serial", 30, seed=2)
    H11 = h_blocks(chain, chain.reference).H11
    assert np.count_nonzero(np.triu(H11[6:, 6:], 2)) == 0


@pytest.mark.parametrize("soft", ["phi psi chi", BENDS])
def test_joints_of_molecules_have_unit_jacobians(soft):
    """Torsions, and bends with torsions, are D-H coordinates as they are: ln det G is that of the inertias alone."""
    tree = build_tree(build_peptide("AWPK"), soft)
    state = random_state(tree, np.random.default_rng(0))
    bodies = tree.link_mass > 0
    expected = np.linalg.slogdet(tree.link_inertia[bodies])[1].sum() + 3 * np.log(tree.link_mass[bodies]).sum()
    assert h_blocks(tree, state).log_det_G == pytest.approx(expected, abs=1e-10)


# ---------------------------------------------------------------------- held coordinates


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_omega_held_is_omega_merged(base):
    """A peptide plane of two bodies with omega held and the plane as one body have the same M^-1 and ln det M."""
    structure = build_peptide("AAWGK")
    root = next(i for i, name in enumerate(structure.atoms.name) if name == "CA")
    soft = build_tree(structure, "phi psi chi omega", base=base, root=root)
    merged = build_tree(structure, "phi psi chi", base=base, root=root)
    assert soft.n_coordinates > merged.n_coordinates
    rng = np.random.default_rng(1)
    angle = {(c.kind, c.residue): rng.uniform(-3, 3) for c in merged.torsions}
    q = [angle.get((c.kind, c.residue), q0) for c, q0 in zip(soft.coordinates, soft.q_reference, strict=True)]
    state = soft.reference.replace(q=q)
    held = SOLVER.constrained(
        soft, state, hard=sorted({c.kind for c in soft.coordinates if c.kind in ("omega", "amide")})
    )
    state = merged.reference.replace(q=[angle[c.kind, c.residue] for c in merged.torsions])
    assert len(held.dof) == merged.n_dof

    # the same base in both trees, then the coordinates by name
    place = {(c.kind, c.residue): c.dof for c in merged.coordinates}
    left = {c.dof: (c.kind, c.residue) for c in soft.coordinates}
    order = [place[left[dof]] if dof in left else dof for dof in held.dof.tolist()]
    inverse = SOLVER.solve(merged, state, np.eye(merged.n_dof))[np.ix_(order, order)]
    assert relative(held.solve(np.eye(len(order))), inverse) < 1e-11
    assert held.log_det() == pytest.approx(SOLVER.log_det(merged, state), abs=1e-9)


def test_held_coordinates_by_kind_and_by_place():
    tree = build_tree(build_peptide("AWK"), BENDS)
    state = random_state(tree, np.random.default_rng(2))
    kinds = [c.kind for c in tree.coordinates]
    chosen = [i for i, kind in enumerate(kinds) if kind in ("omega", "N-CA-C")]
    assert len(chosen) > 3
    by_kind = SOLVER.constrained(tree, state, "omega N-CA-C")
    by_place = SOLVER.constrained(tree, state, chosen)
    M = mass_matrix(tree, state)
    keep = np.setdiff1d(np.arange(tree.n_dof), tree.coordinate_dof[chosen])
    np.testing.assert_array_equal(by_kind.dof, keep)
    b = np.random.default_rng(3).normal(size=(len(keep), 2))
    for hard in ("omega,N-CA-C", set(chosen)):
        np.testing.assert_array_equal(by_kind.solve(b), SOLVER.constrained(tree, state, hard).solve(b))
    np.testing.assert_array_equal(by_kind.solve(b), by_place.solve(b))
    one = SOLVER.constrained(tree, state, chosen[1])
    np.testing.assert_array_equal(one.dof, np.delete(np.arange(tree.n_dof), tree.coordinate_dof[chosen[1]]))
    small = M[np.ix_(keep, keep)]
    assert relative(by_kind.solve(b), np.linalg.solve(small, b)) < 1e-9
    assert by_kind.log_det() == pytest.approx(np.linalg.slogdet(small)[1], abs=1e-9)
    H = h_blocks(tree, state, hard=chosen)
    assert relative(H.H11 - H.H12 @ np.linalg.solve(H.H22, H.H12.T), np.linalg.inv(small)) < 1e-9
    assert SOLVER.constrained(tree, state, ()).log_det() == SOLVER.log_det(tree, state)


def test_every_coordinate_held_leaves_one_rigid_body():
    tree = random_tree("branched", 30, seed=4)
    state = random_state(tree, np.random.default_rng(5))
    held = SOLVER.constrained(tree, state, range(tree.n_coordinates))
    np.testing.assert_array_equal(held.dof, np.arange(6))
    M = mass_matrix(tree, state)[:6, :6]
    assert relative(held.solve(np.eye(6)), np.linalg.inv(M)) < 1e-11
    assert held.log_det() == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-10)


def test_unknown_coordinates_are_refused():
    tree = build_tree(build_peptide("AAA"), "phi psi")
    with pytest.raises(ArgumentError, match=r"no soft coordinate of kind 'omega'; its kinds are: .*phi"):
        SOLVER.constrained(tree, tree.reference, "omega")
    with pytest.raises(ArgumentError, match="hard holds 99"):
        SOLVER.constrained(tree, tree.reference, [0, 99])
    for place in (1.5, -1, tree.n_coordinates):
        with pytest.raises(ArgumentError, match=re.escape(f"hard holds {place}, expected kinds, or places from 0 to")):
            SOLVER.constrained(tree, tree.reference, [place])


def test_held_coordinates_do_not_hide_what_is_refused_otherwise():
    tree, other = random_tree("serial", 8, seed=1), random_tree("serial", 9, seed=1)
    with pytest.raises(ArgumentError, match="another tree"):
        SOLVER.constrained(tree, other.reference, [0])
    heavier = tree.with_joint_inertia(np.ones(tree.n_coordinates))
    with pytest.raises(UnsupportedError, match="no joint inertias"):
        SOLVER.constrained(heavier, heavier.reference, [0])


# ---------------------------------------------------------------------- bodies that are hard to invert


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize("root", [0, -1])
def test_bends_without_hydrogens(root, base):
    """N and the alpha carbon of glycine are then lines of two masses, and take inertia from their neighbours."""
    full = build_peptide("GAGWPG", caps=False)
    structure = full.subset(full.atoms.element != "H")
    tree = build_tree(structure, "phi psi omega angles", base=base, root=root % structure.n_atoms)
    moments = np.linalg.eigvalsh(tree.link_inertia[tree.link_mass > 0])
    assert np.count_nonzero(moments[:, 0] < 1e-12 * moments[:, 2]) >= 4
    check(tree, random_state(tree, np.random.default_rng(6)))


def test_a_line_on_a_fixed_base():
    """A rod in a universal joint: nothing turns it about its own axis, so that inertia there does not matter."""
    rod = np.diag([0.3, 0.3, 0.0])
    tree = make_bodies(
        [-1, 0, 1], [FIXED, REVOLUTE, REVOLUTE], [[0, 0, 0], [1, 0, 0], [0, 1, 0]], np.zeros((3, 3)), [0, 0, 2.0],
        [[0, 0, 0], [0, 0, 0], [0, 0, 0.5]], [np.zeros((3, 3)), np.zeros((3, 3)), rod], base="fixed",
    )  # fmt: skip
    state = tree.reference.replace(q=[0.3, 0.4])
    M = np.diag([(0.3 + 2.0 * 0.25) * np.cos(0.4) ** 2, 0.3 + 2.0 * 0.25])
    np.testing.assert_allclose(SOLVER.solve(tree, state, np.eye(2)), np.linalg.inv(M), atol=1e-13)
    assert SOLVER.log_det(tree, state) == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-13)


def test_a_line_on_a_point():
    """The same rod on a point of 3 Da, which cannot turn: 5 Da in space, 0.8 in the joint, 2 * 0.5 in between."""
    rod, none = np.diag([0.3, 0.3, 0.0]), np.zeros((3, 3))
    tree = make_bodies(
        [-1, 0, 1], [POINT, REVOLUTE, REVOLUTE], [[0, 0, 0], [1, 0, 0], [0, 1, 0]], none, [3.0, 0, 2.0],
        [[0, 0, 0], [0, 0, 0], [0, 0, 0.5]], [none, none, rod],
    )  # fmt: skip
    M = np.diag([5.0, 5.0, 5.0, 0.8, 0.8])
    M[0, 4] = M[4, 0] = 1.0  # y x z = x
    M[1, 3] = M[3, 1] = -1.0  # x x z = -y
    np.testing.assert_allclose(SOLVER.solve(tree, tree.reference, np.eye(5)), np.linalg.inv(M), atol=1e-13)
    assert SOLVER.log_det(tree, tree.reference) == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-13)


def test_a_line_that_can_turn_about_itself_is_named():
    structure = build_peptide("AAA")
    tree = build_tree(structure)
    link = tree.n_links - 1
    across = np.eye(3) - np.outer(tree.axis[link], tree.axis[link])
    inertia, com = tree.link_inertia.copy(), tree.link_com.copy()
    inertia[link], com[link] = across @ inertia[link] @ across, 0.0
    broken = replace(tree, link_inertia=inertia, link_com=com)
    with pytest.raises(SolverError, match="singular at the"):
        SOLVER.solve(broken, broken.reference, np.ones(tree.n_dof))


def test_soft_motions_that_are_the_same_are_refused():
    tree = build_tree(build_peptide("AAA"), "phi psi N-CA-C")
    link = next(l for l in range(1, tree.n_links) if tree.link_mass[tree.parent[l]] == 0)
    axis, origin = tree.axis.copy(), tree.origin.copy()
    axis[link], origin[link] = axis[link - 1], origin[link - 1]
    broken = replace(tree, axis=axis, origin=origin)
    with pytest.raises(SolverError, match=r"move it in the same way .*N-CA-C"):
        SOLVER.log_det(broken, broken.reference)


def test_massless_links_must_not_branch_or_end():
    parts = dict(axis=[[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], origin=np.zeros((4, 3)), com=np.zeros((4, 3)))
    parts |= dict(joint=[FREE, REVOLUTE, REVOLUTE, REVOLUTE], inertia=[np.eye(3), 0 * np.eye(3), np.eye(3), np.eye(3)])
    fork = make_bodies([-1, 0, 1, 1], mass=[1.0, 0.0, 1.0, 1.0], **parts)
    with pytest.raises(UnsupportedError, match="link 1 has no mass and carries 2 joints"):
        SOLVER.log_det(fork, fork.reference)
    tip = make_bodies([-1, 0, 0, 0], mass=[1.0, 0.0, 1.0, 1.0], **parts)
    with pytest.raises(SolverError, match="singular"):
        SOLVER.log_det(tip, tip.reference)


def test_a_sliding_pair_in_closed_form():
    """A bead on a rail on a cart on a rail at right angles: M is diagonal."""
    tree = make_bodies(
        [-1, 0, 1], [FIXED, PRISMATIC, PRISMATIC], [[0, 0, 0], [1, 0, 0], [0, 1, 0]], np.zeros((3, 3)), [0, 3.0, 2.0],
        np.zeros((3, 3)), [np.eye(3)] * 3, base="fixed",
    )  # fmt: skip
    np.testing.assert_allclose(SOLVER.solve(tree, tree.reference, np.eye(2)), np.diag([1 / 5, 1 / 2]), atol=1e-15)
    assert SOLVER.log_det(tree, tree.reference) == pytest.approx(np.log(10.0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("held", [(), (0, 3, 4), (1, 2, 6)])
def test_blocks_of_joints_of_every_make(held, seed):
    """Several motions at one joint, turning and sliding, skew to each other: their coordinates are not those of D-H."""
    tree = random_bodies((FREE, FIXED, POINT), 5, seed=seed)
    assert (tree.link_mass == 0).any()
    state = random_pose(tree, np.random.default_rng(seed))
    keep = np.setdiff1d(np.arange(tree.n_dof), tree.coordinate_dof[list(held)])
    M = mass_matrix(tree, state)[np.ix_(keep, keep)]
    H = h_blocks(tree, state, hard=held)
    assert relative(H.H11 - H.H12 @ np.linalg.solve(H.H22, H.H12.T), np.linalg.inv(M)) < 1e-8
    log_det = H.log_det_G + np.linalg.slogdet(H.H22)[1]
    assert log_det == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-9)
    factor = SOLVER.constrained(tree, state, held)
    assert factor.log_det() == pytest.approx(log_det, abs=1e-9)
    b = np.random.default_rng(seed).normal(size=(len(keep), 2))
    assert relative(factor.solve(b), np.linalg.solve(M, b)) < 1e-8
    # hard coordinates stand at the link with the mass; six less the soft ones that are left
    expected = []
    for l in range(tree.n_links):
        if tree.parent[l] >= 0 and tree.link_mass[l] > 0:
            joint = [l]
            while tree.link_mass[tree.parent[joint[-1]]] == 0 and tree.parent[tree.parent[joint[-1]]] >= 0:
                joint.append(int(tree.parent[joint[-1]]))
            expected += [l] * (6 - sum(tree.coordinate[k] not in held for k in joint))
    assert H.hard_link.tolist() == expected


@pytest.mark.parametrize("root", [FREE, FIXED])
@pytest.mark.parametrize("k", [3, 4, 5, 6])
def test_joints_of_up_to_six_coordinates(k, root):
    """Three bodies, turning and sliding against each other in k ways; then with all but one of each joint held."""
    rng = np.random.default_rng(10 + k)
    n, heavy = 1 + 2 * k, np.arange(1 + 2 * k) % k == 0
    axis = rng.normal(size=(n, 3))
    points = rng.normal(size=(n, 5, 3))
    inertia = np.einsum("lai,lai->l", points, points)[:, None, None] * np.eye(3) - points.transpose(0, 2, 1) @ points
    tree = make_bodies(
        np.arange(n) - 1, [root, *2 * [REVOLUTE, PRISMATIC, REVOLUTE, PRISMATIC, REVOLUTE, PRISMATIC][:k]],
        axis / np.linalg.norm(axis, axis=1)[:, None] * (np.arange(n) > 0)[:, None], 0.3 * rng.normal(size=(n, 3)),
        np.where(heavy, rng.uniform(1, 5, n), 0.0), rng.normal(size=(n, 3)) * heavy[:, None],
        inertia * heavy[:, None, None],
    )  # fmt: skip
    state = random_pose(tree, rng)
    check(tree, state)
    H = h_blocks(tree, state)
    assert len(H.H22) == 2 * (6 - k)
    held = [i for i in range(2 * k) if i not in (1, k)]
    keep = np.setdiff1d(np.arange(tree.n_dof), tree.coordinate_dof[held])
    M = mass_matrix(tree, state)[np.ix_(keep, keep)]
    factor, b = SOLVER.constrained(tree, state, held), rng.normal(size=(len(keep), 2))
    assert relative(factor.solve(b), np.linalg.solve(M, b)) < 1e-9
    assert factor.log_det() == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-10)
