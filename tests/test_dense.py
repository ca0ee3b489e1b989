"""The dense oracle and the dynamics beside it, tested on their own: closed forms, finite differences, Lagrange."""

from __future__ import annotations

import numpy as np
import pytest
from random_bodies import make_bodies
from random_trees import beads, random_state, random_tree

from peptidyn.core.errors import ArgumentError, SolverError
from peptidyn.model.beads import bead_chain
from peptidyn.model.build import build_tree
from peptidyn.model.kinematics import FREE
from peptidyn.solvers.dense import jacobian, mass_matrix
from peptidyn.solvers.dynamics import bias_forces, inverse_dynamics, kinetic_energy
from peptidyn.solvers.protocol import get_solver

KINDS = ["serial", "branched", "star", "forest"]


def rotor_pair(masses, base="fixed"):
    """Two heavy axis beads and one bead on each side: a pendulum about the axis when the base is fixed."""
    x = np.array([[0.0, 0.3, 0.0], [0.0, 0.0, 0.0], [0.2, 0.0, 0.0], [0.2, 0.4, 0.0]])
    system = beads([-1, 0, 1, 2], np.random.default_rng(0))
    return build_tree(type(system)(system.atoms, x, np.asarray(masses, dtype=float)), soft="rotor", base=base)


def test_pendulum_closed_form():
    """A bead at distance 0.4 from the axis: M = m r^2, no bias, whatever the angle."""
    tree = rotor_pair([1.0, 2.0, 3.0, 5.0])
    for angle in (0.3, 1.0, 2.5):
        state = tree.reference.replace(torsions=[angle])
        assert mass_matrix(tree, state) == pytest.approx(np.array([[5.0 * 0.4**2]]), rel=1e-13)
        assert bias_forces(tree, state, [3.0]) == pytest.approx([0.0], abs=1e-13)
        assert get_solver("dense").log_det(tree, state) == pytest.approx(np.log(0.8), rel=1e-13)


def test_two_link_arm_closed_form():
    """The planar two-link arm: M = [[a + 2 c cos t, b + c cos t], [., b]], bias from its Christoffel symbols."""
    from peptidyn.solvers.dh_chain import DHChain

    l1, l2, m1, m2 = 0.7, 0.4, 2.0, 3.0
    t1, t2 = 0.4, 1.1
    tiny = np.zeros((2, 3)) + 1e-9
    chain = DHChain(
        beta=[0, 0], b=[0, l1], c=[0, 0], gamma=[t1, t2], mass=[m1, m2], com=[(l1, 0, 0), (l2, 0, 0)], inertia=tiny,
        soft="gamma",
    )  # fmt: skip
    a, b, c = (m1 + m2) * l1**2 + m2 * l2**2, m2 * l2**2, m2 * l1 * l2
    expected = np.array([[a + 2 * c * np.cos(t2), b + c * np.cos(t2)], [b + c * np.cos(t2), b]])
    assert chain.mass_matrix() == pytest.approx(expected, rel=1e-7)
    w1, w2 = 0.9, -1.7
    h = -c * np.sin(t2)
    bias = np.array([h * w2 * (2 * w1 + w2), -h * w1**2])
    assert bias_forces(chain.tree, chain.state, [w1, w2]) == pytest.approx(bias, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", ["free", "fixed"])
def test_jacobian_is_the_derivative_of_positions(kind, base):
    tree = random_tree(kind, 15, seed=1, base=base)
    state = random_state(tree, np.random.default_rng(2))
    J = jacobian(tree, state)
    for c, dof in enumerate(tree.coordinate_dof.tolist()):
        step = np.zeros(tree.n_coordinates)
        step[c] = 1e-5
        plus, minus = (tree.positions(state.replace(q=state.q + s * step)) for s in (1, -1))
        assert np.abs((plus - minus) / 2e-5 - J[:, :, dof]).max() < 1e-8
    v = np.random.default_rng(0).normal(size=tree.n_dof)
    assert np.abs(J @ v - tree.velocities(state, v)).max() < 1e-12 * max(1.0, np.abs(v).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", ["free", "fixed"])
def test_mass_matrix_gives_the_kinetic_energy(kind, base):
    tree = random_tree(kind, 20, seed=3, base=base)
    rng = np.random.default_rng(4)
    state = random_state(tree, rng)
    M = mass_matrix(tree, state)
    v = rng.normal(size=tree.n_dof)
    K = 0.5 * (tree.masses[:, None] * tree.velocities(state, v) ** 2).sum()
    assert 0.5 * v @ M @ v == pytest.approx(K, rel=1e-12)
    assert kinetic_energy(tree, state, v) == pytest.approx(K, rel=1e-12)
    assert M @ v == pytest.approx(tree.momenta(state, v), rel=1e-10, abs=1e-10)
    # the matrix by second differences of the kinetic energy, which is quadratic in v
    i, j = rng.integers(tree.n_dof, size=2)
    e, f = np.eye(tree.n_dof)[i], np.eye(tree.n_dof)[j]
    mixed = kinetic_energy(tree, state, e + f) - kinetic_energy(tree, state, e) - kinetic_energy(tree, state, f)
    assert mixed == pytest.approx(M[i, j], rel=1e-9, abs=1e-9 * np.abs(M).max())


def _complex_positions(tree, q):
    """Positions of a fixed-base tree for complex soft coordinates, written out in plain numpy."""
    R = np.empty((tree.n_links, 3, 3), dtype=complex)
    p = np.empty((tree.n_links, 3), dtype=complex)
    for l in range(tree.n_links):
        up = tree.parent[l]
        if up < 0:
            R[l], p[l] = np.eye(3), tree.origin[l]
            continue
        d = q[tree.coordinate[l]] - tree.q_reference[tree.coordinate[l]]
        x, y, z = tree.axis[l]
        K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        R[l] = R[up] @ (np.eye(3) + np.sin(d) * K + (1 - np.cos(d)) * K @ K)
        p[l] = p[up] + R[up] @ (tree.origin[l] - tree.origin[up])
    return p[tree.atom_link] + np.einsum("aij,aj->ai", R[tree.atom_link], tree.local.astype(complex))


@pytest.mark.parametrize("kind", ["serial", "branched", "star"])
def test_bias_forces_obey_lagrange(kind):
    """d/dt (dT/dv) - dT/dq at zero acceleration, all derivatives of positions by complex step."""
    tree = random_tree(kind, 12, seed=6, base="fixed")
    rng = np.random.default_rng(8)
    q = rng.uniform(-np.pi, np.pi, tree.n_coordinates)
    v = rng.normal(size=tree.n_coordinates)
    n, m = tree.n_coordinates, tree.masses[:, None]
    h = 1e-30

    def jac(point):
        return np.stack([_complex_positions(tree, point + 1j * h * e).imag / h for e in np.eye(n)], axis=2)

    # J^T m d(Jv)/dt needs dJ/dt = sum_k dJ/dq_k v_k: central difference along v of the complex-step Jacobian
    s = 1e-4
    dJ = (8 * (jac(q + s * v) - jac(q - s * v)) - (jac(q + 2 * s * v) - jac(q - 2 * s * v))) / (12 * s)
    expected = np.einsum("aik,ai->k", jac(q), m * (dJ @ v))
    found = bias_forces(tree, tree.reference.replace(q=q), v)
    assert np.abs(found - expected).max() < 1e-8 * np.abs(expected).max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", ["free", "fixed"])
def test_forward_and_inverse_dynamics_are_inverse(kind, base):
    tree = random_tree(kind, 30, seed=9, base=base)
    rng = np.random.default_rng(10)
    state = random_state(tree, rng)
    v, a = rng.normal(size=(2, tree.n_dof))
    tau = inverse_dynamics(tree, state, v, a)
    assert get_solver("dense").accelerations(tree, state, v, tau) == pytest.approx(a, rel=1e-8, abs=1e-8)


def test_trimer_and_four_beads_closed_form():
    chain = bead_chain(4, 1.0, np.pi / 2, 1.0)
    for a in np.linspace(-3.0, 3.0, 7):
        log_det = get_solver("dense").log_det(chain, chain.reference.replace(torsions=[np.pi - a]))
        c = np.cos(a)
        assert np.exp(log_det) / (35 + 4 * c - 16 * c**2 + c**4) == pytest.approx(2.0, rel=1e-12)
    welded = bead_chain(4, 1.0, np.pi / 2, 1.0, base="fixed")
    values = [get_solver("dense").log_det(welded, welded.reference.replace(torsions=[t])) for t in (0.1, 1.5, 3.0)]
    assert np.ptp(values) < 1e-12


def test_bead_chain_arguments():
    with pytest.raises(ArgumentError, match=r"np\.deg2rad"):
        bead_chain(5, 1.0, 110.0, 1.0)
    with pytest.raises(ArgumentError, match="at least 3"):
        bead_chain(2, 1.0, 1.0, 1.0)
    with pytest.raises(ArgumentError, match="expected 1 or 5"):
        bead_chain(5, 1.0, 1.9, [1.0, 2.0])


def test_dense_refuses_singular_molecules():
    pair = build_tree(beads([-1, 0], np.random.default_rng(0)), soft="rotor")
    with pytest.raises(SolverError, match="singular"):
        get_solver("dense").log_det(pair, pair.reference)


def test_a_rod_without_atoms_has_moments_that_are_zero_but_for_rounding():
    """The least moment of 1 - u u^T may come out a little below zero; M of a free rod is its inertia and its mass."""
    for seed in range(20):
        u = np.random.default_rng(seed).normal(size=3)
        rod = np.eye(3) - np.outer(u, u) / (u @ u)
        zero = np.zeros((1, 3))
        tree = make_bodies([-1], [FREE], zero, zero, [2.0], zero, [rod])
        M = mass_matrix(tree, tree.reference)
        assert M[:3, :3] == pytest.approx(rod, abs=1e-14)
        assert M[3:, 3:] == pytest.approx(2.0 * np.eye(3))
