"""Monte Carlo moves by hand: one proposal with given random numbers, accepted just below its probability only."""

from __future__ import annotations

import copy
import math

import butane
import numpy as np
import openmm
import pytest
from correlated_samples import autoregressive
from scripted_random import Script

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import BOLTZMANN
from peptidyn.integrators.stepper import THERMAL_TOLERANCE
from peptidyn.sampling.gibbs import Samples
from peptidyn.sampling.moves import metropolis
from peptidyn.sampling.tuning import StepTuner
from peptidyn.sampling.walker import Walker
from peptidyn.solvers.dense import mass_matrix

T = 600.0
KT = BOLTZMANN * T
F = 1.3
"""Torsion from which moves start, rad."""


def rigid_energy(f):
    return butane.torsion_energy(f) + butane.ends_energy(*[butane.BOND] * 3, *[butane.ANGLE] * 2, f)


def make_walker(temperature=T, torsion=F, **options):
    tree = butane.make_tree()
    x = tree.positions(tree.reference.replace(torsions=[torsion]))
    return Walker(tree, butane.make_system(), temperature, positions=x, platform="Reference", seed=1, **options)


@pytest.mark.parametrize(
    ("change", "uniform", "accepted"),
    [
        (-5.0, 0.999999, True), (0.0, 0.999999, True), (1.0, 0.3678, True), (1.0, 0.3679, False),
        (-math.inf, 0.5, False), (math.inf, 0.0, False), (math.nan, 0.5, False),
    ],
)  # fmt: skip
def test_metropolis(change, uniform, accepted):
    assert metropolis(change, uniform) is accepted


# ---------------------------------------------------------------------------- torsion moves


def uphill_turn():
    """Return a place between -step and step whose turn costs between 0.5 and 2 kT."""
    step = np.deg2rad(60)
    places = np.linspace(0.02, 0.98, 97)
    costs = np.array([rigid_energy(F - step + 2 * step * s) - rigid_energy(F) for s in places])
    return float(places[np.flatnonzero((0.5 * KT < costs) & (costs < 2 * KT))[0]]), step


@pytest.mark.parametrize("accept", [True, False])
def test_a_torsion_move_by_hand(accept):
    place, step = uphill_turn()
    turn = -step + 2 * step * place
    cost = rigid_energy(F + turn) - rigid_energy(F)
    walker = make_walker()
    walker.mover.thermalise(0.0, KT, np.random.default_rng(0))
    walker.momenta_valid = True
    walker.rng = Script((), [place, math.exp(-cost / KT) * (1 + (-1e-5 if accept else 1e-5))], [0.0])
    move = ptd.TorsionMove(turn=60)
    assert move.apply(walker) is accept and walker.rng.used_up
    f = F + turn if accept else F
    assert walker.q[0] == pytest.approx(f, abs=1e-9)
    assert walker.energy() == pytest.approx(rigid_energy(f), abs=1e-7)
    assert walker.energy_at(walker.positions()) == pytest.approx(rigid_energy(f), abs=1e-7)
    assert walker.momenta_valid is not accept  # they belong to the mass matrix of one configuration
    assert (move.proposed, move.accepted) == (1, int(accept))


def test_tries_are_proposals_of_their_own():
    """Down, refused, up: every try has its own torsion, turn, Metropolis number and energy call."""
    place, step = uphill_turn()
    walker = make_walker()
    cost = rigid_energy(F - step + 2 * step * place) - rigid_energy(F)
    kept, refused = (math.exp(-cost / KT) * f for f in (1 - 1e-5, 1 + 1e-5))
    walker.energy()
    calls = walker.force_calls
    walker.rng = Script((), [place, refused, place, kept, 1.0 - place, refused], [0.0, 0.0, 0.0])
    move = ptd.TorsionMove(turn=60, tries=3)
    assert move.apply(walker) and walker.rng.used_up
    assert (move.proposed, move.accepted, move.force_calls) == (3, 2, 3) and walker.force_calls == calls + 3
    assert walker.q[0] == pytest.approx(F, abs=1e-9)  # up and down again
    assert move.settings["tries"] == 3 == ptd.PivotMove(tries=3).settings["tries"]
    walker.rng = Script((), [place, refused] * 2, [0.0] * 2)
    assert not ptd.TorsionMove(turn=60, tries=2).apply(walker)
    walker.rng = Script((), [place, kept, place, 1.0], [0.0] * 2)
    assert ptd.TorsionMove(turn=60, tries=2).apply(walker) and walker.rng.used_up  # the first of two
    with pytest.raises(ArgumentError, match="TorsionMove has 0 tries"):
        ptd.TorsionMove(tries=0)


def test_turns_are_even_between_minus_and_plus():
    for place, turn in ((0.0, -0.01), (0.5, 0.0), (1.0, 0.01)):
        walker = make_walker(1e9)
        walker.rng = Script((), [place, 0.0], [0.0])
        ptd.TorsionMove(turn=np.rad2deg(0.01)).apply(walker)
        assert walker.q[0] == pytest.approx(F + turn, abs=1e-12)


def test_every_torsion_is_chosen_alike():
    chain = ptd.bead_chain(6, 0.15, 1.9, 12.0, torsion=[1.0, 2.0, -1.0])
    system = openmm.System()
    for _ in range(6):
        system.addParticle(12.0)
    for place, chosen in ((0.0, 0), (0.5, 1), (0.99, 2)):
        walker = Walker(chain, system, T, platform="Reference")
        walker.rng = Script((), [1.0, 0.0], [place])
        ptd.TorsionMove(turn=10).apply(walker)
        assert np.flatnonzero(np.abs(walker.q - chain.q_reference) > 1e-6).tolist() == [chosen]


# ---------------------------------------------------------------------------- Cartesian moves


def verlet(x, v, masses, step, steps):
    """Velocity Verlet in numpy, with forces from a Context of its own; return positions and the total energy."""
    context = openmm.Context(
        butane.make_system(), openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference")
    )

    def force(x):
        context.setPositions(x)
        state = context.getState(forces=True, energy=True)
        return np.array(state.getForces(asNumpy=True)._value), state.getPotentialEnergy()._value

    f, _ = force(x)
    for _ in range(steps):
        v = v + 0.5 * step * f / masses
        x = x + step * v
        f, energy = force(x)
        v = v + 0.5 * step * f / masses
    return x, energy + 0.5 * float((masses * v * v).sum()), energy


@pytest.mark.parametrize("accept", [True, False])
def test_a_cartesian_move_by_hand(accept):
    step, steps = 0.013, 5
    masses = np.full((4, 1), butane.MASS) * np.array([[1.0], [2.0], [0.5], [1.0]])
    for seed in range(100):
        z = np.random.default_rng(seed).standard_normal((4, 3))
        walker = make_walker()
        walker.masses = masses.ravel()
        integrator = walker.context.getIntegrator()
        integrator.setPerDofVariableByName("inertia", [openmm.Vec3(m, m, m) for m in walker.masses.tolist()])
        x = walker.positions()
        v = np.sqrt(KT / masses) * z
        before = walker.energy() + 0.5 * float((masses * v * v).sum())
        end, total, energy = verlet(x, v, masses, step, steps)
        if 0.3 * KT < total - before < 3 * KT:
            break
    threshold = math.exp(-(total - before) / KT)
    walker.rng = Script([z], [threshold * (1 + (-1e-5 if accept else 1e-5))])
    move = ptd.CartesianHMC(step, steps, jitter=0.0)
    assert move.apply(walker) is accept and walker.rng.used_up
    assert np.abs(walker.positions() - (end if accept else x)).max() < 1e-7
    if accept:
        assert walker.energy() == pytest.approx(energy, abs=1e-5)
        assert np.abs(walker.tree.positions(walker.tree.reference) - end).max() < 1e-7  # the new geometry


# ---------------------------------------------------------------------------- torsional trajectories


def test_forces_of_trajectories_are_slopes_of_v_and_u_f():
    walker = make_walker()
    mover, tree = walker.mover, walker.tree

    def energy(f):
        mover.set_state(tree.reference.replace(torsions=[f]))
        return walker.torsional_forces(mover, True)[0]

    def by_hand(f):
        M = mass_matrix(tree, tree.reference.replace(torsions=[f]))
        return rigid_energy(f) + 0.5 * KT * np.linalg.slogdet(M)[1]

    for f in (0.4, 1.3, 2.9):
        assert energy(f) - energy(2.0) == pytest.approx(by_hand(f) - by_hand(2.0), abs=1e-8)
        slope = (by_hand(f + 1e-5) - by_hand(f - 1e-5)) / 2e-5
        mover.set_state(tree.reference.replace(torsions=[f]))
        torque = walker.torsional_forces(mover, False)[1]
        mover.flush()
        assert torque[tree.coordinate_dof[0]] == pytest.approx(-slope, rel=1e-5)


def set_colder(walker, move):
    walker.set_temperature(200.0)


def turn(walker, move):
    while not ptd.TorsionMove(turn=30).apply(walker):
        pass


def shake(walker, move):
    while not ptd.CartesianHMC(0.004, 4).apply(walker):
        pass
    assert walker.mover is not None


def shorten(walker, move):
    move.step = 0.005


@pytest.mark.parametrize("between", [set_colder, turn, shake, shorten])
@pytest.mark.parametrize("kind", [ptd.TorsionalHMC, ptd.TorsionalLangevin])
def test_what_happens_between_trajectories_counts(kind, between):
    """The next trajectory is that of a new move and a new walker at the same place: nothing old is kept."""
    walker, move = make_walker(), kind(0.03, 6, friction=5.0)
    for _ in range(3):
        move.apply(walker)
    between(walker, move)
    saved = walker.checkpoint()
    other, fresh = make_walker(walker.temperature), copy.copy(move)
    fresh._unbind()
    other.restore(copy.deepcopy(saved))
    for name, value in other.checkpoint().items():
        assert np.array_equal(value, saved[name]), name  # nothing of the place before is left
    for _ in range(4):
        assert move.apply(walker) == fresh.apply(other)
        assert walker.energy() == pytest.approx(other.energy(), rel=1e-12)
        assert walker.energy() == pytest.approx(walker.energy_at(walker.positions()), abs=1e-9)
        assert np.abs(walker.mover.momentum - other.mover.momentum).max() < 1e-12
        assert np.abs(walker.positions() - other.positions()).max() < 1e-12


@pytest.mark.parametrize("between", [turn, shake])
def test_momenta_of_another_geometry_are_not_used(between):
    """Without friction momenta are kept, and after another move they are drawn anew all the same."""
    walker, move = make_walker(), ptd.TorsionalHMC(0.001, 1, friction=0.0)
    move.apply(walker)
    between(walker, move)
    assert not walker.momenta_valid and not walker.checkpoint()["momentum"].any()
    walker.mover.momentum = 1e5 * np.ones(7)
    move.apply(walker)
    assert walker.momenta_valid and walker.mover.kinetic_energy() < 20 * KT


def test_langevin_trajectories_by_hand():
    """BAOAB with the forces of V and U_F, momenta of such steps, and the step that a temperature allows."""
    walker, move = make_walker(), ptd.TorsionalLangevin(0.01, 2, friction=5.0)
    normals = np.random.default_rng(3).standard_normal((3, 7))
    walker.rng = Script(normals)
    assert move.apply(walker) and walker.rng.used_up
    other = make_walker()
    hand = other.mover

    def torque():
        found = other.torsional_forces(hand, False)[1]
        hand.flush()
        return found.copy()

    hand.thermalise(0.0, KT, Script(normals[:1]))
    start, before = hand.save(), torque()
    assert hand.drift(0.005, THERMAL_TOLERANCE)
    change = torque() - before
    hand.restore(start)
    hand.momentum = hand.momentum + 0.0025 * change
    for row in normals[1:]:
        for letter in "BAOAB":
            if letter == "A":
                assert hand.drift(0.005, THERMAL_TOLERANCE)
            elif letter == "O":
                hand.thermalise(math.exp(-5.0 * 0.01), KT, Script([row]))
            else:
                hand.momentum = hand.momentum + 0.005 * torque()
    for a, b in zip(walker.mover.save(), hand.save(), strict=True):
        assert np.abs(a - b).max() < 1e-7
    assert walker.energy() == pytest.approx(rigid_energy(float(hand.q[0])), abs=1e-5)
    assert move.step_at(300.0) == move.step_at(200.0) == 0.01 and move.step_at(1200.0) == pytest.approx(0.005)


def test_a_langevin_trajectory_that_fails_goes_on_from_its_start():
    walker, move = make_walker(), ptd.TorsionalLangevin(0.5, 3, friction=5.0)
    walker.mover.momentum = 50.0 * np.arange(1.0, 8.0)
    walker.momenta_valid = True
    x, energy = walker.positions(), walker.energy()
    assert not move.apply(walker)
    assert np.array_equal(walker.positions(), x) and walker.energy() == energy
    assert walker.momenta_valid and walker.mover.kinetic_energy() < 20 * KT


def test_a_langevin_trajectory_that_fails_late_goes_back_to_its_start(monkeypatch):
    """Not to the step before the one that failed: what happened on the way would depend on the failure."""
    walker, move = make_walker(), ptd.TorsionalLangevin(0.01, 3, friction=5.0)
    monkeypatch.setattr(move, "_make_steps", lambda walker, stepper: stepper.step() and stepper.step() and False)
    q, energy = walker.q, walker.energy()
    for _ in range(2):
        assert not move.apply(walker)
        assert np.array_equal(walker.q, q) and walker.energy() == energy
    monkeypatch.undo()
    assert move.apply(walker) and not np.array_equal(walker.q, q)
    assert walker.energy() == pytest.approx(walker.energy_at(walker.positions()), abs=1e-9)


def test_numbers_of_steps_are_even_over_the_jitter():
    move = ptd.TorsionalHMC(0.01, 20, jitter=0.2)
    assert [move._draw_steps(Script((), (), [p])) for p in (0.0, 0.5, 0.999)] == [16, 20, 24]
    assert ptd.CartesianHMC(0.001, 7, jitter=0.0)._draw_steps(Script()) == 7


# ---------------------------------------------------------------------------- what samples are worth


def test_correlated_samples_count_less():
    """AR(1) with rho = 0.9 has g = 19: 8000 samples are worth 421; a torsion is periodic."""
    rng, n, rho = np.random.default_rng(7), 8000, 0.9
    slow = autoregressive(n, rho, rng)
    tree = butane.make_tree()
    white = rng.standard_normal(n)
    by_energy = Samples(white[:, None] * 0.1, slow, None, 1.0, tree)
    turns = 2 * np.pi * rng.integers(-3, 4, n)  # whole turns change nothing
    by_torsion = Samples((0.1 * slow + turns)[:, None], white, None, 1.0, tree)
    for samples in (by_energy, by_torsion):
        assert samples.effective_samples == pytest.approx(n * (1 - rho) / (1 + rho), rel=0.25)


def test_a_sampler_records_every_sweep_after_it_was_made():
    sampler = ptd.GibbsSampler(
        [ptd.TorsionMove(turn=60)], butane.make_tree(), butane.make_system(), T, platform="Reference", seed=3
    )
    samples = sampler.run(12, every=2)
    assert sampler.sweeps == sampler.moves[0].proposed == 12 and len(samples) == 6
    assert samples.q[-1, 0] == sampler.walker.q[0] and samples.energy[-1] == sampler.walker.energy()
    assert samples.energy == pytest.approx(rigid_energy(samples.q[:, 0]), abs=1e-7) and np.ptp(samples.energy) > 0.1


@pytest.mark.parametrize("target", [0.1, 0.5, 0.9])
def test_steps_of_the_tuner_by_hand(target):
    """ln h changes by (accepted - target) c (b + n)^-0.6; c = 1/2 of the rarer outcome, b so that the first change is
    at most that of a factor of two."""
    rare = min(target, 1.0 - target)
    c = 0.5 / rare
    b = max(0.0, (c * (1.0 - rare) / np.log(2.0)) ** (1 / 0.6) - 1.0)
    tuner, log = StepTuner(0.3, target), np.log(0.3)
    assert tuner.final == pytest.approx(0.3, rel=1e-12)  # before the first proposal
    for n, accepted in enumerate((True, False, False, True, True), start=1):
        log += (accepted - target) * c * (b + n) ** -0.6
        assert tuner.update(accepted) == pytest.approx(np.exp(log), rel=1e-12)
        if n == 1:
            assert abs(log - np.log(0.3)) <= np.log(2.0) + 1e-12


def test_a_frozen_step_is_the_geometric_mean_of_the_second_half():
    tuner = StepTuner(1.0, 0.5)
    for accepted in (True, True, False, True, False, True):
        tuner.update(accepted)
    assert tuner.steps[0] == 1.0 and tuner.steps[2] > tuner.steps[1] > 1.0 > tuner.steps[3] / tuner.steps[2]
    assert tuner.final == pytest.approx(float(np.prod(tuner.steps[3:]) ** (1 / 3)), rel=1e-12)
