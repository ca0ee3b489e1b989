"""The moves of a `Mover` one by one, on six beads and a point: forces, kicks, velocities, marks.

They are small enough to run uncompiled, as those of test_kernels_by_hand.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_trees import beads, random_state, with_random_inertia

import peptidyn as ptd
from peptidyn.integrators.mover import Mover
from peptidyn.kernels import motions
from peptidyn.model.build import build_tree
from peptidyn.solvers.dynamics import bias_forces


@pytest.fixture
def mover():
    rng = np.random.default_rng(5)
    tree = with_random_inertia(build_tree(beads([-1, 0, 1, 2, 3, 2, -1], rng), soft="all"), rng)
    made = Mover(tree, random_state(tree, rng))
    made.thermalise(0.0, 2.5, rng)
    made.flush()
    return made


@pytest.fixture
def forces(mover):
    return np.random.default_rng(6).normal(size=(mover.tree.n_atoms, 3))


def close(a, b, tolerance=1e-10):
    return np.abs(a - b).max() < tolerance * np.abs(b).max()


def test_forces_are_projected_on_all_motions(mover, forces):
    assert close(mover.project(forces), mover.tree.generalized_forces(mover.state, forces))


def test_the_fixman_torque_is_added_at_its_temperature(mover, forces):
    alone, fixman = mover.project(forces), mover.fixman_torque()
    torque = mover.load_forces(forces, 2.5)
    mover.flush()
    assert close(torque, alone + 2.5 * fixman) and np.abs(fixman).max() > 0.1


def test_the_fixman_torque_on_a_fixed_base_is_a_slope():
    """Of ln(det M / J^2) / 2, with the dense determinant, for a chain whose first body is held."""
    rng, h = np.random.default_rng(9), 1e-5
    tree = build_tree(beads([-1, 0, 1, 2, 3, 2], rng), soft="all", base="fixed")
    state = random_state(tree, rng)

    def energy(change):
        moved = state.replace(q=state.q + change)
        return 0.5 * np.linalg.slogdet(ptd.mass_matrix(tree, moved))[1] - tree.log_jacobian(moved.q)

    wanted = np.array([(energy(-e) - energy(e)) / (2 * h) for e in h * np.eye(tree.n_coordinates)])
    assert close(Mover(tree, state).fixman_torque()[tree.coordinate_dof], wanted, 1e-7)


@pytest.mark.parametrize("own", [True, False], ids=["the mover's array", "another array"])
def test_a_kick_adds_the_torque_times_the_time(mover, forces, own):
    before = mover.momentum.copy()
    torque = mover.project(forces)
    mover.project(2.0 * forces)  # what another array holds counts, not what was projected last
    mover.kick(mover.load_forces(forces) if own else torque, 0.3)
    assert close(mover.momentum, before + 0.3 * torque)


def test_atoms_move_as_the_tree_says(mover):
    assert close(mover.atom_velocities(), mover.tree.velocities(mover.state, mover.velocities()))


def test_a_new_configuration_has_its_own_positions(mover):
    tree = mover.tree
    mover.place()
    mover.set_state(other := random_state(tree, np.random.default_rng(7)))
    assert close(mover.place(), tree.positions(other), 1e-12)
    assert close(mover.velocities(), np.linalg.solve(ptd.mass_matrix(tree, other), mover.momentum), 1e-9)


def test_undo_goes_back_to_the_mark_with_the_momenta(mover, forces):
    saved = mover.save()
    mover.mark()
    mover.kick(mover.project(forces), 1.0)
    assert mover.drift(0.002)  # which marks the momenta after the kick
    mover.undo()
    assert np.array_equal(mover.q, saved[0]) and not np.array_equal(mover.momentum, saved[3])
    assert close(mover.momentum, saved[3] + mover.project(forces))


@pytest.mark.parametrize(("motion", "q", "change"), [("bend", np.pi - 0.05, 0.1), ("stretch", 0.15, -0.2)])
def test_coordinates_do_not_leave_their_range(motion, q, change):
    """An angle that would open beyond 180 degrees, and a bond that would pass through zero: the drift says which."""
    chain = build_tree(beads([-1, 0, 1], np.random.default_rng(1)), soft="all").with_joint_inertia([1e3, 1e3, 1e3])
    place = int((chain.bend_index if motion == "bend" else chain.stretch_index)[-1])
    values = chain.q_reference.copy()
    values[place] = q
    mover = Mover(chain, chain.reference.replace(q=values))
    momentum = np.zeros(chain.n_dof)
    momentum[chain.coordinate_dof[place]] = 1e3 * change / 0.01
    mover.momentum = momentum
    assert not mover.drift(0.01) and mover.out_of_range == place
    mover.momentum = 0.3 * momentum
    assert mover.drift(0.01) and mover.q[place] == pytest.approx(q + 0.3 * change, rel=0.02)


def test_accelerations_are_those_of_the_dense_matrix(mover):
    """M a + c = tau, with the velocity-dependent forces c of inverse dynamics."""
    tree, state, rng = mover.tree, mover.state, np.random.default_rng(8)
    v, tau = rng.normal(size=(2, tree.n_dof))
    found = ptd.get_solver("articulated").accelerations(tree, state, v, tau)
    wanted = np.linalg.solve(ptd.mass_matrix(tree, state), tau - bias_forces(tree, state, v))
    assert close(found, wanted, 1e-8)


@pytest.mark.parametrize("batches", [1, 2, 3, 5])
def test_molecules_move_alike_in_batches_and_in_a_row(batches):
    """Every molecule is in exactly one batch, also where their numbers do not divide: each gets the same kick."""
    rng = np.random.default_rng(7)
    tree = build_tree(beads([-1, 0, 1, -1, 3, -1, -1, 6, 7], rng), soft="all")  # four molecules
    mover = Mover(tree)
    mover.flush()
    before, torque = mover.momentum.copy(), rng.normal(size=tree.n_dof)
    mover.kick(torque, 1.0)
    program = mover._take_program()
    motions.run_parallel(*program, batches, *mover._arguments)
    assert tree.n_molecules == 4 and close(mover.momentum - before, torque)
