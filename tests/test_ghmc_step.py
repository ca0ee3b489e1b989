"""One step by hand: GHMC with given random numbers, and splittings letter by letter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from random_trees import random_state, random_tree
from scripted_random import Script

import peptidyn as ptd
from peptidyn.integrators.mover import Mover
from peptidyn.integrators.stepper import MetropolisStepper, Stepper
from peptidyn.solvers.dense import mass_matrix

KT, FRICTION, STEP, LENGTH = 2.5, 7.0, 0.01, 3
STRENGTH = 30.0


@pytest.fixture(scope="module")
def tree():
    return ptd.bead_chain(6, 0.15, 1.9, [12.0, 3.0, 7.0, 12.0, 8.0, 5.0], torsion=[1.0, 2.0, -1.0])


def potential(mover, want_energy=True):
    """V = k sum cos(q + place), and its torques."""
    phase = mover.q + np.arange(mover.tree.n_coordinates)
    torque = np.zeros(mover.tree.n_dof)
    torque[mover.tree.coordinate_dof] = STRENGTH * np.sin(phase)
    return STRENGTH * float(np.cos(phase).sum()), torque


def in_one_array():
    """Return `potential` that writes torques into the same array every time, as integrators do."""
    there = np.empty(0)

    def forces(mover, want_energy):
        nonlocal there
        energy, torque = potential(mover)
        there = torque if not len(there) else there
        there[:] = torque
        return energy, there

    return forces


def total_energy(mover):
    """V + p M^-1 p / 2 with the dense mass matrix."""
    p = mover.momentum
    return potential(mover)[0] + 0.5 * float(p @ np.linalg.solve(mass_matrix(mover.tree, mover.state), p))


def start(tree, seed):
    rng = np.random.default_rng(seed)
    mover = Mover(tree, random_state(tree, rng))
    mover.thermalise(0.0, KT, rng)
    return mover, rng.standard_normal((2, tree.n_dof))


def keep():
    """What half of the thermostat keeps of the momenta."""
    return math.exp(-FRICTION * 0.5 * STEP * LENGTH)


def propose(mover):
    """The trajectory by hand."""
    for _ in range(LENGTH):
        mover.kick(potential(mover)[1], 0.5 * STEP)
        assert mover.drift(STEP)
        mover.kick(potential(mover)[1], 0.5 * STEP)


def by_hand(tree, seed, accept):
    """Return the mover after one GHMC step that is accepted or not, and the change of the energy in it."""
    mover, normals = start(tree, seed)
    mover.thermalise(keep(), KT, Script(normals[:1]))
    saved, before = mover.save(), total_energy(mover)
    propose(mover)
    change = total_energy(mover) - before
    if not accept:
        mover.restore(saved)
        mover.momentum = -mover.momentum
    mover.thermalise(keep(), KT, Script(normals[1:]))
    return mover, change


def stepper_of(mover, script, forces=potential, **options):
    return MetropolisStepper(mover, forces, STEP, KT, FRICTION, script, steps=LENGTH, **options)


def same(one, two, tolerance=1e-10):
    return all(np.abs(a - b).max() < tolerance * max(1.0, np.abs(b).max()) for a, b in zip(one, two, strict=True))


@pytest.fixture(scope="module")
def uphill(tree):
    """Seed of a step that gains between 0.05 and 3 kT, so that exp(-change / kT) is neither 0 nor 1."""
    return next(seed for seed in range(200) if 0.05 * KT < by_hand(tree, seed, True)[1] < 3 * KT)


@pytest.fixture(scope="module")
def downhill(tree):
    return next(seed for seed in range(200) if by_hand(tree, seed, True)[1] < -0.05 * KT)


@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize("forces", [potential, in_one_array()], ids=["new arrays", "one array"])
def test_one_step_by_hand(tree, uphill, forces, accept):
    """Accepted with a number just below exp(-dH / kT), rejected just above; in all else the step is as by hand."""
    expected, change = by_hand(tree, uphill, accept)
    threshold = math.exp(-change / KT)
    mover, normals = start(tree, uphill)
    script = Script(normals, [threshold * (1 + (-1e-8 if accept else 1e-8))])
    stepper = stepper_of(mover, script, forces)
    assert stepper.step()
    assert (stepper.proposed, stepper.accepted) == (1, int(accept))
    assert script.used_up
    assert same(mover.save(), expected.save())
    # what is kept for the next step belongs to where the mover is
    energy, torque = potential(mover)
    assert stepper.potential_energy() == pytest.approx(energy, rel=1e-10)
    assert np.abs(stepper._evaluate() - torque).max() < 1e-9 * STRENGTH


def test_lower_energies_are_accepted_without_asking(tree, downhill):
    expected, _ = by_hand(tree, downhill, True)
    mover, normals = start(tree, downhill)
    stepper = stepper_of(mover, Script(normals))
    stepper.step()
    assert stepper.acceptance == 1.0 and same(mover.save(), expected.save())


def test_thermostats_side_by_side_draw_their_own_noise(tree):
    """The second half of one and the first half of the next wait for the same call, and share no numbers."""
    mover, normals = start(tree, 3)
    more = np.random.default_rng(4).standard_normal((2, tree.n_dof))
    hand, _ = start(tree, 3)
    for draw in (*normals, *more):
        hand.thermalise(keep(), KT, Script([draw]))
        hand.flush()
    for draw in (*normals, *more):
        mover.thermalise(keep(), KT, Script([draw]))
    assert np.array_equal(mover.momentum, hand.momentum)


@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize("forces", [potential, in_one_array()], ids=["new arrays", "one array"])
def test_two_steps_in_a_row(tree, uphill, forces, accept):
    """Forces that were kept from the first step are right in the second."""
    hand, change = by_hand(tree, uphill, accept)
    more = np.random.default_rng(5).standard_normal((2, tree.n_dof))
    hand.thermalise(keep(), KT, Script(more[:1]))
    propose(hand)
    hand.thermalise(keep(), KT, Script(more[1:]))
    mover, normals = start(tree, uphill)
    number = math.exp(-change / KT) * (1 + (-1e-8 if accept else 1e-8))
    stepper = stepper_of(mover, Script([*normals, *more], [number, 0.0]), forces)
    stepper.step()
    stepper.step()
    assert same(mover.save(), hand.save(), 1e-9)


def test_energies_are_asked_for_where_a_trajectory_begins_and_ends(tree, downhill):
    """Forces once per time step, and none again where the next trajectory begins."""
    mover, normals = start(tree, downhill)
    calls = []

    def forces(mover, want_energy):
        calls.append(want_energy)
        energy, torque = potential(mover)
        return (energy if want_energy else math.nan), torque

    stepper = stepper_of(mover, Script([*normals, *normals], [0.0, 0.0]), forces)
    stepper.step()
    trajectory = [False] * (LENGTH - 1) + [True]
    assert stepper.accepted == 1 and calls == [True, *trajectory]
    stepper.step()
    assert calls == [True, *trajectory, *trajectory]


@pytest.mark.parametrize("energy", [math.nan, -math.inf, math.inf])
def test_energies_that_are_no_numbers_are_rejected(tree, energy):
    mover, normals = start(tree, 1)
    calls = []

    def forces(mover, want_energy):
        calls.append(want_energy)
        value, torque = potential(mover)
        return (value if len(calls) == 1 else energy), torque

    q = mover.q.copy()
    stepper = stepper_of(mover, Script(normals, [1e-300]), forces)
    stepper.step()
    assert stepper.accepted == 0 and np.array_equal(mover.q, q)


# ---------------------------------------------------------------------------- the way back


class Astray(Mover):
    """A mover whose way back ends beside the start, in one part of the configuration, or fails."""

    part, failing, drifts = 0, False, 0

    def drift(self, h, tolerance=1e-13):
        self.drifts += 1
        if self.drifts % 2:
            return super().drift(h, tolerance)
        done = super().drift(h, tolerance)
        saved = [part.copy() for part in self.save()]
        saved[self.part].flat[-1] += 0.0 if self.failing else 1e-6
        self.restore(tuple(saved))
        return done and not self.failing


@pytest.mark.parametrize(("part", "failing"), [(0, False), (1, False), (2, False), (0, True)])
def test_what_does_not_lead_back_is_rejected(tree, downhill, part, failing):
    """Soft coordinates, base positions and base rotations must all come back; momenta then do."""
    plain, normals = start(tree, downhill)
    mover = Astray(tree, plain.state, plain.momentum)
    mover.part, mover.failing = part, failing
    before = mover.save()
    stepper = MetropolisStepper(mover, potential, STEP, KT, FRICTION, Script(normals, [1e-300]))
    stepper.step()
    assert mover.drifts == 2 and stepper.accepted == 0
    assert all(np.array_equal(a, b) for a, b in zip(mover.save()[:3], before[:3], strict=True))


def test_every_drift_of_a_trajectory_must_lead_back(tree, downhill):
    """The first of three that does not is the last that is made."""
    plain, normals = start(tree, downhill)
    mover = Astray(tree, plain.state, plain.momentum)
    stepper = stepper_of(mover, Script(normals, [1e-300]))
    stepper.step()
    assert mover.drifts == 2 and stepper.accepted == 0


def test_the_check_can_be_left_out_and_changes_nothing_else(tree, downhill):
    ends = []
    for check in (True, False):
        mover, normals = start(tree, downhill)
        stepper = stepper_of(mover, Script(normals), check_reverse=check)
        stepper.step()
        ends.append(mover.save())
    assert same(*ends)
    plain, normals = start(tree, downhill)
    mover = Astray(tree, plain.state, plain.momentum)
    mover.drifts = 1  # every drift counts as a way back, and none is asked for
    stepper = MetropolisStepper(mover, potential, STEP, KT, FRICTION, Script(normals, [1e-300]), check_reverse=False)
    stepper.step()
    assert mover.drifts == 2 and stepper.accepted == 1


# ---------------------------------------------------------------------------- splittings


@pytest.mark.parametrize(
    ("word", "letters"),
    [
        ("BAB", [("B", 0.5), ("A", 1.0), ("B", 0.5)]),
        ("BAOAB", [("B", 0.5), ("A", 0.5), ("O", 1.0), ("A", 0.5), ("B", 0.5)]),
        ("OBABO", [("O", 0.5), ("B", 0.5), ("A", 1.0), ("B", 0.5), ("O", 0.5)]),
        ("BABAB", [("B", 1 / 3), ("A", 0.5), ("B", 1 / 3), ("A", 0.5), ("B", 1 / 3)]),
    ],
)
def test_a_splitting_letter_by_letter(tree, word, letters):
    mover, normals = start(tree, 8)
    normals = np.concatenate([normals, normals[::-1] + 0.3])
    hand, _ = start(tree, 8)
    given = list(normals)
    for _ in range(2):
        for letter, fraction in letters:
            h = fraction * STEP
            if letter == "A":
                assert hand.drift(h)
            elif letter == "B":
                hand.momentum = hand.momentum + h * potential(hand)[1]
            else:
                hand.thermalise(math.exp(-FRICTION * h), KT, Script([given.pop(0)]))
                hand.flush()
    stepper = Stepper(mover, potential, STEP, word, KT, FRICTION, Script(normals))
    assert stepper.step() and stepper.step()
    assert same(mover.save(), hand.save())


def test_the_thermostat_by_hand(tree):
    """p <- c p + sqrt((1 - c^2) kT) L z with L L^T = M: from p = 0, p M^-1 p = (1 - c^2) kT z.z."""
    z = np.random.default_rng(0).standard_normal(tree.n_dof)
    mover = Mover(tree)
    mover.thermalise(0.6, KT, Script([z]))
    noise = mover.momentum.copy()
    M = mass_matrix(tree, mover.state)
    assert noise @ np.linalg.solve(M, noise) == pytest.approx((1 - 0.36) * KT * z @ z, rel=1e-10)
    assert mover.kinetic_energy() == pytest.approx(0.32 * KT * z @ z, rel=1e-10)
    p = np.arange(1.0, tree.n_dof + 1)
    mover.momentum = p
    mover.thermalise(0.6, KT, Script([z]))
    assert np.abs(mover.momentum - 0.6 * p - noise).max() < 1e-12


def test_a_failed_step_changes_nothing():
    """Not the stored energy either: the next step starts with the forces of where the mover is."""
    tree = random_tree("branched", 16, seed=2)
    mover, _ = start(tree, 0)
    mover.momentum = 200.0 * mover.momentum
    stepper = Stepper(mover, potential, 0.05)
    before, energy = mover.save(), stepper.potential_energy()
    assert not stepper.step()
    assert all(np.array_equal(a, b) for a, b in zip(mover.save(), before, strict=True))
    assert stepper.potential_energy() == energy


def everything(mover):
    """What a mover says about where it is."""
    return mover.positions(), mover.velocities(), mover.fixman_torque(), np.array([mover.fixman_energy()])


@pytest.mark.parametrize("how", ["drift", "set_state", "restore", "undo"])
def test_nothing_that_was_computed_outlives_a_move(tree, how):
    """Positions, velocities, U_F and its torque are those of a new mover at the same place."""
    mover, _ = start(tree, 2)
    other, _ = start(tree, 9)
    before = mover.save()
    mover.mark()
    everything(mover)
    if how == "drift":
        assert mover.drift(STEP)
    elif how == "set_state":
        mover.set_state(other.state)
    elif how == "restore":
        mover.restore(other.save())
    else:
        assert mover.drift(STEP)
        everything(mover)
        mover.mark()
        mover.flush()
        assert mover.drift(2 * STEP)
        everything(mover)
        mover.undo()
        assert not np.array_equal(mover.q, before[0])
    fresh = Mover(tree, mover.state, mover.momentum)
    for a, b in zip(everything(mover), everything(fresh), strict=True):
        assert np.abs(a - b).max() < 1e-10 * max(1.0, np.abs(b).max())


def test_moves_that_wait_are_made_before_something_is_set(tree):
    """A kick that was noted changes the momenta there were, not those that are set; a new place does not drop it."""
    mover, normals = start(tree, 4)
    p, torque = mover.momentum.copy(), potential(mover)[1]
    mover.kick(torque, STEP)
    mover.momentum = normals[0]
    assert np.array_equal(mover.momentum, normals[0])
    mover.momentum = p
    mover.kick(torque, STEP)
    mover.set_state(tree.reference)
    assert np.abs(mover.momentum - p - STEP * torque).max() < 1e-12
    assert np.array_equal(mover.q, tree.q_reference)


@pytest.mark.parametrize("name", ["q", "base_position", "base_rotation", "momentum"])
def test_moves_that_wait_are_made_before_something_is_read(tree, name):
    mover, _ = start(tree, 4)
    other, _ = start(tree, 4)
    before = getattr(mover, name).copy()
    mover.note_drift(STEP)
    assert other.drift(STEP)
    found = getattr(mover, name)
    assert np.array_equal(found, getattr(other, name)) and not np.array_equal(found, before)


def test_two_kicks_with_torques_of_their_own(tree):
    mover, normals = start(tree, 4)
    p = mover.momentum.copy()
    mover.kick(normals[0], 0.5)
    mover.kick(normals[1], 2.0)
    assert np.abs(mover.momentum - p - 0.5 * normals[0] - 2.0 * normals[1]).max() < 1e-12
