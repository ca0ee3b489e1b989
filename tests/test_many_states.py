"""Many states at once: side by side in lanes, in batches, in memory that is used again."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from random_bodies import make_bodies
from random_trees import beads, random_state, with_random_inertia

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, SolverError
from peptidyn.kernels import states
from peptidyn.kernels.packing import link_axes, pack, pack_molecules
from peptidyn.model.build import build_tree
from peptidyn.model.kinematics import FIXED, REVOLUTE
from peptidyn.solvers.dense import mass_matrix
from peptidyn.solvers.dynamics import bias_forces

SOLVER = ptd.get_solver("articulated")
NUMBERS = [1, 2, 4, 5, 43]
"""Less than there are lanes, as many, and a number that divides neither into lanes nor into batches."""


@pytest.fixture(scope="module")
def case():
    """Two molecules and a point with joint inertias, in 43 states, and what dense algebra says of each."""
    rng = np.random.default_rng(5)
    tree = with_random_inertia(build_tree(beads([-1, 0, 1, 2, -1, -1, 5, 6, 7, 6], rng), soft="all"), rng)
    made = [random_state(tree, rng) for _ in range(max(NUMBERS))]
    v, tau = rng.normal(size=(2, len(made), tree.n_dof))
    matrices = [mass_matrix(tree, state) for state in made]
    wanted = [np.linalg.solve(M, tau[k] - bias_forces(tree, made[k], v[k])) for k, M in enumerate(matrices)]
    log_det = np.array([np.linalg.slogdet(M)[1] for M in matrices])
    q, rotation = np.stack([s.q for s in made]), np.stack([s.base_rotation for s in made])
    return tree, q, rotation, v, tau, np.array(wanted), log_det


@pytest.mark.parametrize("n", NUMBERS)
def test_every_state_gets_its_own_answer(case, n):
    """Accelerations, ln det M and its gradient, forwards and backwards, whatever was in memory before."""
    tree, q, rotation, v, tau, wanted, log_det = case
    for order in (slice(0, n), slice(None, -n - 1, -1)):
        found = SOLVER.accelerations_of_states(tree, q[order], v[order], tau[order], rotation[order])
        assert np.abs(found - wanted[order]).max() < 1e-8 * np.abs(wanted[order]).max()
        value, slopes, bad = states.log_det_states(pack(tree), q[order].copy(), rotation[order].copy(), True)
        assert bad == -1 and value == pytest.approx(log_det[order], abs=1e-9)
        for k, one in list(enumerate(range(*order.indices(len(q)))))[-6:]:
            alone = states.log_det_states(pack(tree), q[one : one + 1], rotation[one : one + 1], True)[1][0]
            assert slopes[k] == pytest.approx(alone, rel=1e-9, abs=1e-9)
        value, slopes, bad = states.log_det_states(pack(tree), q[order].copy(), rotation[order].copy(), False)
        assert value == pytest.approx(log_det[order], abs=1e-9) and slopes.shape == (0, tree.n_coordinates)


def test_gradients_are_slopes(case):
    tree, q, rotation, *_ = case
    h, steps = 1e-5, 1e-5 * np.eye(tree.n_coordinates)
    _, slopes, _ = states.log_det_states(pack(tree), q[:3], rotation[:3], True)
    for k in range(3):
        up, down = (
            states.log_det_states(pack(tree), q[k] + sign * steps, rotation[k : k + 1], False)[0] for sign in (1, -1)
        )
        assert slopes[k] == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-5)


def test_bases_of_all_states_are_those_of_the_reference_unless_given(case):
    tree, q, _, v, tau, *_ = case
    found = SOLVER.accelerations_of_states(tree, q[:6], v[:6], tau[:6])
    same = np.repeat(tree.reference.base_rotation[None], 6, axis=0)
    assert np.array_equal(found, SOLVER.accelerations_of_states(tree, q[:6], v[:6], tau[:6], same))
    assert found[5] == pytest.approx(
        SOLVER.accelerations(tree, tree.reference.replace(q=q[5]), v[5], tau[5]), rel=1e-8, abs=1e-8
    )


@pytest.mark.parametrize("wrong", range(4))
def test_every_argument_is_checked(case, wrong):
    """Its shape, and that it holds numbers; the message says which."""
    tree, q, rotation, v, tau, *_ = case
    given, name = [q[:3], v[:3], tau[:3], rotation[:3]], ("q", "velocities", "tau", "base_rotation")[wrong]
    for bad in (np.nan, np.inf):
        changed = [array.copy() for array in given]
        changed[wrong][-1].flat[-1] = bad
        with pytest.raises(ArgumentError, match=f"{name} holds values that are not finite"):
            SOLVER.accelerations_of_states(tree, *changed)
    for shape in ((2, *given[wrong].shape[1:]), (3, 1, *given[wrong].shape[2:])):
        changed = given.copy()
        changed[wrong] = np.ones(shape)
        told = "velocities" if wrong == 0 and shape[0] == 2 else name  # q says how many states there are
        with pytest.raises(ArgumentError, match=f"{told} has shape .*, expected"):
            SOLVER.accelerations_of_states(tree, *changed)


def test_no_states_are_none(case):
    tree, q, rotation, v, tau, *_ = case
    assert SOLVER.accelerations_of_states(tree, q[:0], v[:0], tau[:0], rotation[:0]).shape == (0, tree.n_dof)
    value, slopes, bad = states.log_det_states(pack(tree), q[:0], rotation[:0], True)
    assert value.shape == (0,) and slopes.shape == (0, tree.n_coordinates) and bad == -1


@pytest.mark.parametrize("place", [0, 3, 9])
def test_one_singular_state_is_noticed_wherever_it_stands(place):
    chain = build_tree(beads([-1, 0, 1, 2], np.random.default_rng(2)), soft="rotor bends")
    q = np.tile(chain.q_reference, (10, 1))
    q[place, chain.bend_index[-1]] = np.pi
    rotation, zeros = chain.reference.base_rotation[None].copy(), np.zeros((10, chain.n_dof))
    link = states.log_det_states(pack(chain), q, rotation, False)[2]
    assert 0 < link < chain.n_links and link == states.log_det_states(pack(chain), q, rotation, True)[2]
    with pytest.raises(SolverError, match="singular at the"):
        SOLVER.accelerations_of_states(chain, q, zeros, zeros)


def test_memory_waits_for_the_next_call_unless_it_is_much(case, monkeypatch):
    tree, q, rotation, *_ = case
    packed = pack(tree)
    monkeypatch.setattr(states, "_IDLE", [])
    states.log_det_states(packed, q, rotation, True)
    (kept,) = states._IDLE
    states.log_det_states(packed, q, rotation, True)
    assert len(states._IDLE) == 1 and states._IDLE[0] is kept
    larger = build_tree(beads([-1] * 200, np.random.default_rng(1)), soft="none")
    states.log_det_states(pack(larger), np.empty((3, 0)), larger.reference.base_rotation[None].copy(), False)
    assert len(states._IDLE) == 1 and states._IDLE[0].shape[1] > kept.shape[1]  # too small for it
    two = np.zeros((1, 1))
    monkeypatch.setattr(states, "_IDLE", [two, kept])
    states.log_det_states(packed, q, rotation, True)
    assert states._IDLE == [two]  # another thread has left its own meanwhile
    monkeypatch.setattr(states, "_IDLE", [])
    monkeypatch.setattr(states, "KEPT", kept.nbytes - 1)
    states.log_det_states(packed, q, rotation, True)
    assert not states._IDLE


# ---------------------------------------------------------------------------- packed trees


def test_a_tree_is_packed_once_and_nobody_writes_into_it(case):
    tree = case[0]
    packed = pack(tree)
    assert pack(tree) is packed and not any(array.flags.writeable for array in packed)
    other = build_tree(beads([-1, 0, 1, 2], np.random.default_rng(0)), soft="all")
    kept = weakref.ref(pack(other)[5])
    del other
    gc.collect()
    assert kept() is None


def test_axes_of_links_are_right_handed_with_the_joint_as_z():
    """Also where it lies along an axis of the world; roots have the axes of the world."""
    along = [*np.eye(3), *-np.eye(3), [0.6, 0.8, 0.0], [0.0, -0.6, 0.8], np.full(3, 3**-0.5)]
    n = 1 + len(along)
    tree = make_bodies(
        np.arange(n) - 1, [FIXED] + [REVOLUTE] * (n - 1), [[0, 0, 0], *along], np.zeros((n, 3)), np.ones(n),
        np.zeros((n, 3)), [np.eye(3)] * n, base="fixed",
    )  # fmt: skip
    Z = link_axes(tree)
    assert np.array_equal(Z[0], np.eye(3))
    assert np.abs(np.einsum("lij,lik->ljk", Z, Z) - np.eye(3)).max() < 1e-14
    assert np.linalg.det(Z) == pytest.approx(np.ones(n))
    assert Z[1:, :, 2] == pytest.approx(np.array(along))


def test_molecules_by_themselves():
    """Of four molecules the second and the last: their links, renumbered, have the ln det of their part of M."""
    rng = np.random.default_rng(3)
    parents = [-1, 0, 1, 2, -1, 4, 5, 6, 5, -1, -1, 10, 11, 12]
    tree = with_random_inertia(build_tree(beads(parents, rng), soft="all"), rng)
    state, chosen = random_state(tree, rng), np.array([False, True, False, True])
    part, links = pack_molecules(tree, chosen)
    assert links.tolist() == [l for l in range(tree.n_links) if tree.molecule[l] in (1, 3)]
    assert not any(array.flags.writeable for array in part)
    q, rotation = state.q[None].copy(), state.base_rotation[None].copy()
    value, slopes, bad = states.log_det_states(part, q, rotation[:, chosen], True)
    dof = np.concatenate([np.arange(tree.molecule_dof[m], tree.molecule_dof[m + 1]) for m in (1, 3)])
    M = mass_matrix(tree, state)[np.ix_(dof, dof)]
    assert bad == -1 and value[0] == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-9)
    whole = states.log_det_states(pack(tree), q, rotation, True)[1]
    inner = tree.coordinate[links][tree.parent[links] >= 0]
    assert slopes[0, inner] == pytest.approx(whole[0, inner], rel=1e-9, abs=1e-9)
