"""The moves of a `Mover` one by one, on six beads and a point: forces, kicks, velocities, marks.

They are small enough to run uncompiled, as those of test_kernels_by_hand.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_trees import beads, random_state, with_random_inertia

import peptidyn as ptd
from peptidyn.core.errors import SolverError
from peptidyn.integrators.mover import Mover
from peptidyn.kernels import motions
from peptidyn.kernels.packing import pack
from peptidyn.kernels.states import log_det_states
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
    for now, then in zip(mover.save()[:3], saved, strict=False):
        assert np.array_equal(now, then)
    assert not np.array_equal(mover.momentum, saved[3])
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


# ---------------------------------------------------------------------------- several moves in one program


def test_the_worst_of_several_drifts_is_reported(mover):
    """Of every molecule; the second drift is so short that one iteration will do."""
    mover.note_drift(0.002)
    assert mover.flush()
    alone = mover.iterations.copy()
    assert alone[0] > 3
    mover.restore((mover.q.copy(), *(a.copy() for a in (mover.base_position, mover.base_rotation, mover.momentum))))
    mover.note_drift(1e-9)
    assert mover.flush()
    assert mover.iterations[0] < alone[0]
    mover.note_drift(0.002)
    mover.note_drift(1e-9)
    assert mover.flush()
    assert mover.iterations[0] > 3


def test_moves_after_a_drift_that_failed_are_not_made(mover):
    """Nor are they a success: momenta thousands of times too large, a kick, and a drift of no length."""
    mover.momentum *= 3e3
    mover.note_drift(0.01)
    mover.kick(mover._torque, 1.0)
    mover.note_drift(1e-12)
    p = mover._momentum[:-3].copy()
    mover._torque[:] = 1.0
    assert not mover.flush()
    assert mover.iterations[0] == -1 and mover.iterations[1] >= 0
    assert np.array_equal(mover._momentum[:-3], p)


@pytest.mark.parametrize("first", [True, False], ids=["before others", "behind others"])
def test_moves_from_a_singular_configuration_are_not_made(first):
    """A torsion whose last bond lies along its axis: the link is known, in whatever molecule it is."""
    tree = build_tree(beads([-1, 0, 1, 2, -1, 4, 5, 6], np.random.default_rng(2)), soft="rotor bends")
    bend = tree.bend_index[1 if first else 3]
    q = tree.q_reference.copy()
    q[bend] = np.pi
    link = log_det_states(pack(tree), q[None].copy(), tree.reference.base_rotation[None].copy(), False)[2]
    m = tree.molecule[link]
    assert m == (0 if first else 1) and tree.parent[link] >= 0
    own = slice(tree.molecule_dof[m], tree.molecule_dof[m + 1])
    mover = Mover(tree, tree.reference.replace(q=q))
    for _ in range(2):
        mover.momentum = np.ones(tree.n_dof)
        with pytest.raises(SolverError, match="singular at the"):
            mover.drift(0.001)
        assert mover._status[m] == -2 - link and mover._status[1 - m] > 0
        assert (mover._momentum[own] == 1.0).all()


def test_one_molecule_that_fails_is_enough(mover):
    """Whichever it is: the point drifts on, the six beads do not, and the drift as a whole has failed."""
    rng = np.random.default_rng(5)
    for parents in ([-1, -1, 1, 2, 3, 4], [-1, 0, 1, 2, 3, -1]):
        tree = build_tree(beads(parents, rng), soft="rotor")
        one = Mover(tree)
        momentum = np.zeros(tree.n_dof)
        momentum[tree.coordinate_dof] = 1e4
        one.momentum = momentum
        assert not one.drift(0.05)
        assert sorted(one.iterations >= 0) == [False, True] and np.array_equal(one.momentum, momentum)


def test_friction_keeps_a_share_of_all_momenta(mover):
    """p <- c p + sqrt((1 - c^2) kT) L z, with the same z: of base, point and joints."""
    before, c, kT = mover.momentum.copy(), 0.6, 2.5
    mover.thermalise(0.0, kT, np.random.default_rng(3))
    noise = mover.momentum.copy()
    mover.momentum = before
    mover.thermalise(c, kT, np.random.default_rng(3))
    assert close(mover.momentum, c * before + 0.8 * noise)
    mover.thermalise(1.0, kT, np.random.default_rng(4))
    assert close(mover.momentum, c * before + 0.8 * noise)


def test_the_noise_of_a_point_has_the_variance_of_its_mass(mover):
    tree = mover.tree
    z = np.random.default_rng(3).standard_normal(tree.n_dof)
    mover.thermalise(0.0, 2.5, np.random.default_rng(3))
    assert mover.momentum[-3:] == pytest.approx(np.sqrt(2.5 * tree.masses[-1]) * z[-3:], rel=1e-12)
