"""The U D U^T decomposition: its factors, its equations in Saha's paper, joints and bases of every kind, bad bodies."""

from __future__ import annotations

import extended_precision
import numpy as np
import pytest
from mechanisms import mechanism, random_mechanism, random_pose
from random_trees import beads, random_state, random_tree
from real_structures import VILLIN_IN_WATER, load

from peptidyn.core.errors import ArgumentError, SolverError
from peptidyn.model.build import build_tree
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.solvers.dense import mass_matrix
from peptidyn.solvers.dynamics import inverse_dynamics
from peptidyn.solvers.protocol import get_solver

UDU = get_solver("udu")


def matrices(tree, state):
    """Return U and D as matrices."""
    factor = UDU.factor(tree, state)
    one = np.eye(tree.n_dof)
    return factor.u_product(one), factor.d_product(one)


def error(found, expected) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def reverse_elimination(M):
    """Return U and D of M by appendix A of the paper, (25)-(30), on numbers."""
    n = len(M)
    L, U = M.copy(), np.eye(n)
    for k in range(n - 1, 0, -1):
        alpha = np.zeros(n)
        alpha[:k] = L[:k, k] / L[k, k]
        L -= np.outer(alpha, L[k])
        U[:, k] += alpha
    return U, np.diag(np.diag(L))


# ---------------------------------------------------------------------------- the factors


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize("soft", ["rotor", "all"])
@pytest.mark.parametrize("inertia", [False, True])
@pytest.mark.parametrize(("kind", "n"), [("serial", 30), ("branched", 50), ("star", 24), ("forest", 60)])
def test_factors_of_random_trees(kind, n, inertia, soft, base):
    tree = random_tree(kind, n, seed=1, base=base, soft=soft, inertia=inertia)
    state = random_state(tree, np.random.default_rng(2))
    U, D = matrices(tree, state)
    assert error(U @ D @ U.T, mass_matrix(tree, state)) < 1e-12
    assert np.array_equal(U, np.triu(U)) and np.array_equal(np.diag(U), np.ones(tree.n_dof))
    block = np.eye(tree.n_dof, dtype=bool)
    for root in np.flatnonzero(tree.parent < 0):
        start, width = tree.dof[root], {FREE: 6, POINT: 3, FIXED: 0}[int(tree.joint[root])]
        block[start : start + width, start : start + width] = True
        inside = U[start : start + width, start : start + width]
        assert np.array_equal(inside, np.eye(width))
    assert not D[~block].any()
    transposed = UDU.factor(tree, state).ut_product(np.eye(tree.n_dof))
    assert np.abs(transposed - U.T).max() < 1e-13 * np.abs(U).max()


def test_factors_are_those_of_reverse_gaussian_elimination():
    """With a fixed base D is diagonal and U is unique: the numbers of (25)-(30)."""
    for tree in (random_tree("serial", 20, seed=3, base="fixed"), random_mechanism(12, seed=4, root=FIXED)):
        rng = np.random.default_rng(5)
        state = random_state(tree, rng) if tree.n_atoms else random_pose(tree, rng)
        U, D = matrices(tree, state)
        expected_U, expected_D = reverse_elimination(mass_matrix(tree, state))
        assert error(U, expected_U) < 1e-11
        assert error(D, expected_D) < 1e-11


def test_element_formula_holds_for_the_lower_triangle_only():
    """(16), i_ij = p_i^T M~_i B_ij p_j, for i >= j; the printed range i <= j is wrong."""
    tree = random_mechanism(7, seed=8, root=FIXED, slides=0.0, massless=0.0)
    tree = mechanism(
        np.arange(7) - 1, tree.joint, tree.axis, tree.origin, tree.link_mass, tree.link_com, tree.link_inertia
    )
    state = random_pose(tree, np.random.default_rng(9))
    links = tree.links(state)

    def cross(r):
        return np.cross(np.eye(3), r)

    def B(i, j):
        result = np.eye(6)
        result[3:, :3] = cross(links.com[j] - links.com[i])
        return result

    p = [np.concatenate([e, np.cross(e, d)]) for e, d in zip(links.axis, links.com - links.p, strict=True)]
    M = np.zeros((7, 6, 6))
    M[:, :3, :3] = links.inertia
    M[:, 3:, 3:] = links.mass[:, None, None] * np.eye(3)
    composite = [sum(B(l, i).T @ M[l] @ B(l, i) for l in range(i, 7)) for i in range(7)]
    formula = np.array([[p[i] @ composite[i] @ B(i, j) @ p[j] for j in range(1, 7)] for i in range(1, 7)])
    expected = mass_matrix(tree, state)
    assert error(np.tril(formula), np.tril(expected)) < 1e-13
    assert error(np.triu(formula), np.triu(expected)) > 0.1
    factor = UDU.factor(tree, state)
    U, D = matrices(tree, state)
    assert error(U @ D @ U.T, expected) < 1e-13
    assert factor.d_product(np.eye(6))[5, 5] == pytest.approx(p[6] @ M[6] @ p[6], rel=1e-13)


@pytest.mark.parametrize("root", [FREE, FIXED])
def test_sliding_joints_and_massless_links(root):
    rng = np.random.default_rng(11)
    for seed in range(8):
        tree = random_mechanism(3 + 3 * seed, seed=seed, root=root)
        assert {PRISMATIC, REVOLUTE} & set(tree.joint.tolist())
        state = random_pose(tree, rng)
        U, D = matrices(tree, state)
        assert error(U @ D @ U.T, mass_matrix(tree, state)) < 1e-12
        a, v = rng.normal(size=(2, tree.n_dof))
        tau = inverse_dynamics(tree, state, v, a)
        assert error(UDU.accelerations(tree, state, v, tau), a) < 1e-9


def test_a_point_root_that_carries_a_joint():
    """Its three columns have no rotation; the arm turns, the root does not."""
    one = np.eye(3)
    tree = mechanism(
        [-1, 0], [POINT, REVOLUTE], [[0, 0, 0], [0, 0, 1]], np.zeros((2, 3)), [2.0, 3.0], [[0, 0, 0], [0.5, 0, 0]],
        [0 * one, 0.1 * one],
    )  # fmt: skip
    U, D = matrices(tree, tree.reference)
    expected = np.diag([5.0, 5.0, 5.0, 0.1 + 3.0 * 0.25])
    expected[1, 3] = expected[3, 1] = 3.0 * 0.5
    assert np.abs(U @ D @ U.T - expected).max() < 1e-14


def test_solvated_protein_with_opened_angles():
    """U D U^T x is the momentum of the atoms moving with rates x, in a system of thousands of molecules."""
    tree = build_tree(load(VILLIN_IN_WATER), "phi psi chi omega methyl angles")
    assert tree.n_bends and tree.n_molecules > 1000
    rng = np.random.default_rng(6)
    state = random_state(tree, rng)
    x = rng.normal(size=tree.n_dof)
    factor = UDU.factor(tree, state)
    found = factor.u_product(factor.d_product(factor.ut_product(x)))
    assert error(found, tree.momenta(state, x)) < 1e-12


# ---------------------------------------------------------------------------- solutions


@pytest.mark.skipif(not extended_precision.AVAILABLE, reason="longdouble is float64 here")
@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize(("kind", "n"), [("serial", 203), ("branched", 300), ("star", 120)])
def test_long_chains_against_extended_precision(kind, n, base):
    tree = random_tree(kind, n, seed=0, base=base)
    rng = np.random.default_rng(0)
    state = random_state(tree, rng)
    b = rng.normal(size=(tree.n_dof, 2))
    expected, log_det = extended_precision.solve(extended_precision.mass_matrix(tree, state), b)
    assert error(UDU.solve(tree, state, b), expected) < 1e-10
    assert UDU.log_det(tree, state) == pytest.approx(log_det, rel=1e-12)


def test_many_right_hand_sides_are_solved_one_by_one():
    tree = random_tree("forest", 60, seed=7)
    rng = np.random.default_rng(8)
    factor = UDU.factor(tree, random_state(tree, rng))
    b = rng.normal(size=(tree.n_dof, 5))
    for product in (factor.solve, factor.u_product, factor.ut_product, factor.d_product):
        together = product(b)
        for c in range(5):
            assert np.array_equal(product(b[:, c : c + 1].copy())[:, 0], together[:, c])
    assert factor.solve(np.empty((tree.n_dof, 0))).shape == (tree.n_dof, 0)
    assert factor.u_product(b[:, 0]).shape == (tree.n_dof,)


def test_nothing_to_solve():
    tree = build_tree(beads([-1, 0, 1], np.random.default_rng(0)), soft="rotor", base="fixed")
    assert tree.n_dof == 0
    assert UDU.log_det(tree, tree.reference) == 0.0
    assert UDU.solve(tree, tree.reference, np.empty(0)).shape == (0,)
    assert UDU.factor(tree, tree.reference).u_product(np.empty((0, 2))).shape == (0, 2)


# ---------------------------------------------------------------------------- bad input


def rod(tilt):
    """Return the inertia of a rod of unit length along `tilt`, 1 Da at each end."""
    u = np.array(tilt) / np.linalg.norm(tilt)
    return 0.5 * (np.eye(3) - np.outer(u, u))


@pytest.mark.parametrize("tilt", [(0, 0, 1), (1e-4, 0, 1), (1, 2, 3), (1, 1e-5, 0), (0.3, 1, 1e-6)])
def test_a_rod_is_refused_in_any_direction(tilt):
    zero = np.zeros((1, 3))
    free = mechanism([-1], [FREE], zero, zero, [2.0], zero, [rod(tilt)])
    with pytest.raises(SolverError, match="singular at the body"):
        UDU.factor(free, random_pose(free, np.random.default_rng(1)))
    zeros = np.zeros((2, 3))
    turned_about_itself = mechanism(
        [-1, 0], [FIXED, REVOLUTE], [(0, 0, 0), tilt], zeros, [1.0, 2.0], zeros, [np.eye(3), rod(tilt)]
    )
    with pytest.raises(SolverError, match="singular at the body"):
        UDU.log_det(turned_about_itself, random_pose(turned_about_itself, np.random.default_rng(2)))


def test_a_massless_tip_is_refused():
    zeros = np.zeros((2, 3))
    for kind in (REVOLUTE, PRISMATIC):
        tree = mechanism([-1, 0], [FREE, kind], np.ones((2, 3)), zeros, [1.0, 0.0], zeros, [np.eye(3), 0 * np.eye(3)])
        with pytest.raises(SolverError, match="singular"):
            UDU.solve(tree, tree.reference, np.ones(7))


def test_products_check_their_argument():
    tree = random_tree("serial", 8)
    factor = UDU.factor(tree, tree.reference)
    for product in (factor.u_product, factor.ut_product, factor.d_product):
        with pytest.raises(ArgumentError, match=r"x has shape \(4,\), expected \(11,\)"):
            product(np.zeros(4))
