"""Momenta that are drawn for large steps: those that a thermostat of such steps would leave.

An oscillator of frequency w that makes steps h by BAOAB has exact positions and momenta with the variance
kT M (1 - (h w)^2 / 4). Momenta with the variance kT M would heat it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scripted_random import Script

import peptidyn as ptd
from peptidyn.integrators.mover import Mover
from peptidyn.integrators.stepper import MetropolisStepper, Stepper
from peptidyn.solvers.dense import mass_matrix

KT, K, STEPS_PER_PERIOD = 2.5, 4e5, 8.0


@pytest.fixture(scope="module")
def tree():
    """Four beads whose torsion has nearly all of its inertia from its joint: it is an oscillator."""
    return ptd.bead_chain(4, 0.15, 1.9, 12.0, torsion=[1.0]).with_joint_inertia([50.0])


def oscillator(tree, calls=None):
    """Return the forces of V = K (q - 1)^2 / 2, without U_F."""
    place = tree.coordinate_dof[0]

    def forces(mover, want_energy):
        torque = np.zeros(tree.n_dof)
        torque[place] = -K * (mover.q[0] - 1.0)
        if calls is not None:
            calls.append(mover.q[0])
        return 0.5 * K * (mover.q[0] - 1.0) ** 2, torque

    return forces


def frequency(tree):
    """w = sqrt(K / I) with the inertia I that answers a torque on the torsion alone."""
    place = tree.coordinate_dof[0]
    return math.sqrt(K * np.linalg.inv(mass_matrix(tree, tree.reference))[place, place])


def make(tree, calls=None, kind=Stepper, **options):
    h = 2.0 * math.pi / (STEPS_PER_PERIOD * frequency(tree))
    mover = Mover(tree)
    extra = {"splitting": "BAOAB"} if kind is Stepper else {}
    return kind(
        mover, oscillator(tree, calls), h, kT=KT, friction=0.0, rng=np.random.default_rng(1), **extra, **options
    )


@pytest.mark.parametrize("displacement", [0.0, 0.003])
def test_momenta_of_an_oscillator_by_hand(tree, displacement):
    """p = r (1 - (h w)^2 / 8): its square is that of BAOAB, 1 - (h w)^2 / 4, up to (h w)^4 / 64."""
    stepper = make(tree)
    start = tree.reference.replace(torsions=[1.0 + displacement])
    stepper.mover.set_state(start)
    normals = np.random.default_rng(3).standard_normal(tree.n_dof)
    stepper.rng = Script([normals])
    stepper.draw_momenta()
    hand = Mover(tree, start)
    hand.thermalise(0.0, KT, Script([normals]))
    place, h = tree.coordinate_dof[0], stepper.timestep
    rate = np.linalg.solve(mass_matrix(tree, start), hand.momentum)[place]
    hand.momentum[place] -= 0.25 * h * K * (0.5 * h * rate)
    assert np.array_equal(stepper.mover.q, start.q)
    others = np.arange(tree.n_dof) != place
    assert stepper.mover.momentum[others] == pytest.approx(hand.momentum[others], abs=1e-12)
    # the rate of the torsion changes a little within the drift, as the beads turn too
    assert stepper.mover.momentum[place] == pytest.approx(hand.momentum[place], rel=2e-3)
    assert abs(stepper.mover.momentum[place] - hand.momentum[place]) < 0.02 * abs(0.125 * h * h * K * rate)


def test_steps_go_on_with_forces_of_the_start(tree):
    calls: list[float] = []
    stepper = make(tree, calls)
    stepper.draw_momenta()
    assert len(calls) == 2 and calls[0] == pytest.approx(1.0, abs=1e-12) and abs(calls[1] - 1.0) > 1e-6
    assert stepper.step() and calls[2] == calls[0] and len(calls) == 4


def test_metropolised_steps_have_the_momenta_of_the_heat_bath(tree):
    calls: list[float] = []
    stepper = make(tree, calls, MetropolisStepper)
    normals = np.random.default_rng(3).standard_normal(tree.n_dof)
    stepper.rng = Script([normals])
    stepper.draw_momenta()
    hand = Mover(tree)
    hand.thermalise(0.0, KT, Script([normals]))
    assert not calls and np.array_equal(stepper.mover.momentum, hand.momentum)


def test_steps_after_them_do_not_heat(tree):
    """Positions in equilibrium, new momenta, and 1 to 8 steps without friction: a period.

    The mean of K (q - 1)^2 / kT is 1; with momenta of variance kT M it would be 1.09. 8,000 values that are independent
    in pairs at least have a standard error of 0.022 at most: three of them are a false alarm in 0.3% of seeds.
    """
    stepper, rng = make(tree), np.random.default_rng(7)
    found = []
    for _ in range(1000):
        stepper.mover.set_state(tree.reference.replace(torsions=[1.0 + math.sqrt(KT / K) * rng.standard_normal()]))
        stepper.forget()
        stepper.draw_momenta()
        for _ in range(8):
            stepper.step()
            found.append(K * (stepper.mover.q[0] - 1.0) ** 2 / KT)
    assert abs(np.mean(found) - 1.0) < 0.066
