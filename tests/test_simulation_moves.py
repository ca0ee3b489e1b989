"""Monte Carlo moves between time steps of a simulation, followed by hand."""

from __future__ import annotations

import butane
import numpy as np
import pytest
from scripted_random import Script

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import BOLTZMANN
from peptidyn.integrators.mover import Mover

T, START, TURN = 600.0, 1.3, 0.4


def make_simulation(kind=ptd.TorsionLangevinIntegrator, **options):
    tree, system = butane.make_tree(), butane.make_system()
    integrator = kind(tree, T, 1.0, 0.004, seed=1, **options)
    simulation = ptd.TorsionSimulation(butane.make_topology(), system, integrator, "Reference")
    simulation.context.setPositions(tree.positions(tree.reference.replace(torsions=[START])))
    simulation.set_velocities_to_temperature(T)
    simulation.step(2)
    return simulation


def energy(torsion, groups=(2, 3)):
    """V by hand: bonds and angles stay as they are."""
    tree = butane.make_tree()
    x = tree.positions(tree.reference.replace(torsions=[torsion]))
    r = butane.SIGMA / np.linalg.norm(x[0] - x[3])
    return (2 in groups) * butane.torsion_energy(torsion) + (3 in groups) * 4 * butane.EPSILON * (r**12 - r**6)


def motion(simulation):
    state = simulation.context.getState(positions=True, velocities=True)
    return [np.array(v._value) for v in (state.getPositions(asNumpy=True), state.getVelocities(asNumpy=True))]


def turn(simulation, accept, groups=(2, 3)):
    """Turn the torsion by a given angle, with a random number just below or above the probability to accept it.

    Returns what `apply` does, and the torsion before.
    """
    (q,) = simulation.integrator.motion()[0].q
    ratio = np.exp(-(energy(q + TURN, groups) - energy(q, groups)) / (BOLTZMANN * T))
    assert ratio < 0.95
    normals = np.random.default_rng(5).standard_normal((1, simulation.tree.n_dof)) if accept else []
    place = 0.5 + 0.5 * TURN / np.pi
    script = Script(normals, [place, ratio * (1 + (-1e-6 if accept else 1e-6))], [0.0])
    simulation.integrator.rng = simulation.integrator._stepper.rng = script
    moved = simulation.apply(ptd.TorsionMove(turn=180.0))
    assert script.used_up
    return moved, q


def step_correction(simulation, mover):
    """h/4 times the change of all torques, U_F included, over a drift of h/2, by differences of energies."""
    fixman, place = ptd.FixmanPotential(simulation.tree, T), simulation.tree.coordinate_dof[0]
    later = Mover(simulation.tree, mover.state, mover.momentum)
    assert later.drift(0.5 * 0.004)

    def torque(q, d=1e-5):
        states = [simulation.tree.reference.replace(torsions=[q + s * d]) for s in (1, -1)]
        up, down = (energy(s.torsions[0]) + fixman.energy(s) for s in states)
        return (down - up) / (2 * d)

    correction = np.zeros(simulation.tree.n_dof)
    correction[place] = 0.25 * 0.004 * (torque(later.q[0]) - torque(mover.q[0]))
    return correction


@pytest.mark.parametrize("kind", [ptd.TorsionLangevinIntegrator, ptd.TorsionGHMCIntegrator])
def test_an_accepted_turn_is_in_the_context_with_momenta_of_its_own(kind):
    simulation = make_simulation(kind)
    time, before = simulation.context.getTime()._value, motion(simulation)
    moved, q = turn(simulation, accept=True)
    state, momenta = simulation.integrator.motion()
    assert moved and state.q == pytest.approx([q + TURN], abs=1e-12)
    hand = Mover(simulation.tree, state)
    hand.thermalise(0.0, BOLTZMANN * T, Script(np.random.default_rng(5).standard_normal((1, simulation.tree.n_dof))))
    if kind is ptd.TorsionLangevinIntegrator:
        hand.momentum += step_correction(simulation, hand)
    assert momenta == pytest.approx(hand.momentum, abs=1e-6)
    x, v = motion(simulation)
    assert x == pytest.approx(simulation.tree.positions(state), abs=1e-12)
    assert v == pytest.approx(hand.atom_velocities(), abs=1e-6) and not np.allclose(v, before[1])
    assert (simulation.context.getTime()._value, simulation.context.getStepCount()) == (time, 2)


def test_a_rejected_turn_leaves_everything_as_it_was():
    simulation = make_simulation()
    before = motion(simulation)
    moved, _ = turn(simulation, accept=False)
    assert not moved and all(np.array_equal(a, b) for a, b in zip(motion(simulation), before, strict=True))


def test_a_rejected_turn_after_an_accepted_one_keeps_the_momenta():
    simulation = make_simulation()
    turn(simulation, accept=True)
    before, calls = motion(simulation), simulation._walker.force_calls
    moved, _ = turn(simulation, accept=False)
    assert not moved and all(np.array_equal(a, b) for a, b in zip(motion(simulation), before, strict=True))
    assert simulation._walker.force_calls - calls == calls > 0


def test_dynamics_goes_on_from_the_outcome():
    """Forces that were kept belong to the configuration before; steps after a turn must not use them."""
    simulation, other = make_simulation(), make_simulation()
    turn(simulation, accept=True)
    other.integrator.set_motion(*simulation.integrator.motion())
    for one in (simulation, other):
        one.integrator.rng = np.random.default_rng(9)
        one.integrator._stepper.rng = one.integrator.rng
        one.step(3)
    assert all(np.array_equal(a, b) for a, b in zip(motion(simulation), motion(other), strict=True))


@pytest.mark.parametrize("accept", [True, False])
def test_a_turn_after_dynamics_starts_with_the_energy_of_where_it_is(accept):
    """Steps between two turns change the energy, which the outcome of the first turn must not stand for."""
    simulation = make_simulation()
    turn(simulation, accept=True)
    (before,) = simulation.integrator.motion()[0].q
    simulation.integrator.rng = simulation.integrator._stepper.rng = np.random.default_rng(9)
    simulation.step(3)
    assert abs(energy(simulation.integrator.motion()[0].q[0]) - energy(before)) > 1e-3
    assert turn(simulation, accept)[0] is accept


def test_a_mover_is_lent_where_the_context_is():
    """Positions that were set from outside count at once; new joint inertias leave the mover where it is."""
    simulation = make_simulation()
    tree = simulation.tree
    simulation.context.setPositions(tree.positions(tree.reference.replace(torsions=[2.2])))
    assert simulation.integrator.lend_mover().q == pytest.approx([2.2], abs=1e-9)
    simulation.integrator.set_joint_inertia([3.0])
    assert simulation.integrator.mover.q == pytest.approx([2.2], abs=1e-9)
    assert simulation.integrator.mover.tree.joint_inertia.tolist() == [3.0]


@pytest.mark.parametrize("accept", [True, False])
def test_energies_are_those_of_the_integrators_force_groups(accept):
    """Without the end atoms, which change the probability of the turn by far more than the margin of the test."""
    simulation = make_simulation()
    simulation.integrator.setIntegrationForceGroups({0, 1, 2})
    assert turn(simulation, accept, groups=(2,))[0] is accept


def test_what_samples_something_else_is_refused():
    tree = butane.make_tree()
    verlet = ptd.TorsionVerletIntegrator(tree, 0.004)
    constant = ptd.TorsionSimulation(butane.make_topology(), butane.make_system(), verlet, "Reference")
    for simulation in (constant, make_simulation(fixman=False)):
        with pytest.raises(ArgumentError, match="need a heat bath and the Fixman potential"):
            simulation.apply(ptd.TorsionMove())
    for move in (ptd.TorsionMove, ptd.TorsionalHMC(), "pivot"):
        with pytest.raises(ArgumentError, match="is not a move that turns torsions"):
            make_simulation().apply(move)
