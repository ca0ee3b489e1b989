"""What walkers and moves keep, drop and choose, one statement at a time."""

from __future__ import annotations

import butane
import numpy as np
import openmm
import pytest
from scripted_random import Script

import peptidyn as ptd
from peptidyn.engine.kinetic_metric import LANGEVIN_STEPS
from peptidyn.integrators.stepper import Stepper
from peptidyn.sampling.gibbs import Samples
from peptidyn.sampling.moves import metric_timestep
from peptidyn.sampling.walker import Walker


def make_walker(torsion=1.3, system=None):
    tree = butane.make_tree()
    x = tree.positions(tree.reference.replace(torsions=[torsion]))
    return Walker(tree, system or butane.make_system(), 600.0, positions=x, platform="Reference", seed=1)


@pytest.mark.parametrize("turns", [-2, 0, 3])
def test_torsions_lie_between_minus_and_plus_pi(turns):
    walker = make_walker()
    q, *rest = walker.mover.save()
    walker.mover.restore((q + 2.0 * np.pi * turns, *rest))
    assert walker.q == pytest.approx([1.3], abs=1e-12)


def test_u_f_of_a_walker_is_at_its_temperature():
    walker = make_walker()
    for temperature in (300.0, 450.0):
        walker.set_temperature(temperature)
        tree = walker.tree
        expected = ptd.FixmanPotential(tree, temperature).energy(tree.state(walker.positions()))
        assert walker.fixman_energy() == pytest.approx(expected, rel=1e-9)


def test_motion_is_not_removed_within_trajectories():
    system = butane.make_system()
    system.addForce(openmm.CMMotionRemover())
    walker = make_walker(system=system)  # its System lives as long as it does
    names = [force.getName() for force in walker.context.getSystem().getForces()]
    assert "CMMotionRemover" not in names and len(names) == 4


def test_restored_momenta_are_drawn_anew_unless_they_were_valid():
    walker = make_walker()
    saved = walker.checkpoint()
    for valid in (False, True):
        walker.restore({**saved, "momenta_valid": valid})
        assert walker.momenta_valid is valid


def test_a_restored_walker_draws_the_numbers_of_its_checkpoint():
    walker = make_walker()
    saved = walker.checkpoint()
    first = walker.rng.random(3)
    walker.restore(saved)
    assert np.array_equal(walker.rng.random(3), first)


def test_the_metric_is_that_of_the_longest_step():
    hmc, langevin = ptd.TorsionalHMC(0.004, 2), ptd.TorsionalLangevin(0.016, 2)
    assert metric_timestep([hmc, langevin, ptd.CartesianHMC(0.9, 1)]) == (0.016, None)
    assert metric_timestep([langevin, ptd.TorsionalLangevin(0.008, 2)]) == (0.016, LANGEVIN_STEPS)
    assert metric_timestep([ptd.TorsionMove()]) == (None, None)


def test_several_torsions_turn_by_angles_of_their_own():
    """A chain without forces accepts everything: two of its three torsions turn, each by its own angle."""
    tree = ptd.bead_chain(6, 0.15, 1.9, 14.0)
    system = openmm.System()
    for mass in tree.masses:
        system.addParticle(mass)
    walker = Walker(tree, system, 300.0, platform="Reference", seed=2)
    before = walker.mover.q.copy()
    assert ptd.TorsionMove(count=2, turn=20.0).apply(walker)
    turned = walker.mover.q - before
    angles = turned[turned != 0.0]
    assert len(angles) == 2 and abs(angles[0] - angles[1]) > 1e-3 and np.abs(angles).max() < np.deg2rad(20.0)


def test_after_a_trajectory_that_failed_forces_and_momenta_are_new(monkeypatch):
    """Forces of the place where it failed must not kick the next one, and its momenta are drawn at the temperature."""
    normals = np.random.default_rng(3).standard_normal((5, 7))
    p = 2.0 * np.arange(1.0, 8.0)
    ends = []
    for fails in (False, True):
        walker, move = make_walker(), ptd.TorsionalLangevin(0.01, 2, friction=5.0)
        walker.mover.momentum = p
        walker.momenta_valid = True
        walker.rng = Script(normals if fails else normals[3:])  # two steps, new momenta; then two steps again
        if fails:
            with monkeypatch.context() as patched:
                patched.setattr(
                    move, "_make_steps", lambda walker, stepper: stepper.step() and stepper.step() and False
                )
                assert not move.apply(walker)
            other = make_walker()
            drawn = Stepper(
                other.mover, other.torsional_forces, 0.01, "BAOAB", other.kT, 5.0, Script(normals[2:3]), 1e-6
            )
            drawn.draw_momenta()
            assert np.abs(walker.mover.momentum - other.mover.momentum).max() < 1e-12
            walker.mover.momentum = p
        assert move.apply(walker) and walker.rng.used_up
        ends.append(walker.mover.save())
    for a, b in zip(*ends, strict=True):
        assert np.abs(a - b).max() < 1e-9


@pytest.mark.parametrize(("soft", "missing"), [("all", ["phi 2", "phi 4"]), ("phi psi chi", [])])
def test_pivots_turn_nothing_within_rings(soft, missing):
    """Where rings are soft, phi of proline would tear the bond that closes its ring."""
    tree = ptd.build_tree(ptd.build_peptide("APAP"), soft)
    named = {f"{c.kind} {c.residue}": i for i, c in enumerate(tree.coordinates) if c.kind in ("phi", "psi")}
    places = ptd.PivotMove().places(tree).tolist()
    assert [name for name, i in named.items() if i not in places] == missing and set(places) < set(range(tree.n_dof))
    assert sorted(named.values()) == sorted(ptd.TorsionMove(["phi", "psi"]).places(tree).tolist())
    assert len(ptd.TorsionMove().places(tree)) == tree.n_torsions


def free_chain(moves=1):
    """Return a sampler of a chain of three torsions without forces."""
    tree, system = ptd.bead_chain(6, 0.15, 1.9, 12.0), openmm.System()
    for mass in tree.masses:
        system.addParticle(mass)
    chosen = [ptd.TorsionMove() for _ in range(moves)]
    return ptd.GibbsSampler(chosen, tree, system, 300.0, platform="Reference", seed=1)


def test_a_sweep_adds_up_the_squared_changes_of_cosine_and_sine(monkeypatch):
    """Every move has its own: the second turns other torsions than the first."""
    sampler = free_chain(moves=2)
    turns = np.array([[0.7, 0.0, -2.0], [0.0, 0.4, 0.0]])

    def applying(turn):
        def apply(walker):
            walker.mover.set_state(walker.mover.state.replace(q=walker.mover.q + turn))
            walker.changed()
            return True

        return apply

    for move, turn in zip(sampler.moves, turns, strict=True):
        monkeypatch.setattr(move, "apply", applying(turn))
    sampler.sweep()
    sampler.sweep()
    assert sampler._jumps == pytest.approx(2 * (2 - 2 * np.cos(turns)))


def test_a_warm_up_freezes_what_its_record_says_and_leaves_no_statistics():
    """The last step that was tried is further than the mean of the second half."""
    sampler = free_chain()
    sampler.moves[0].step = 1e-3  # grows with every proposal, for all are accepted
    (tuner,) = sampler.warm_up(8).tuners
    assert sampler.moves[0].step == pytest.approx(np.exp(np.mean(np.log(tuner.steps[4:]))))
    assert tuner.steps[-1] > 1.1 * sampler.moves[0].step
    assert not sampler._jumps.any() and sampler.moves[0].proposed == 0


def test_a_move_is_judged_by_the_coordinate_that_it_changes_least():
    """Coordinates that are +-90 degrees half of the time have the variance 1; the third is never changed."""
    sampler = free_chain()
    move = sampler.moves[0]
    q = np.tile([[np.pi / 2], [-np.pi / 2]], (4, 3))
    sampler._samples.append(Samples(q, np.zeros(8), None, 1.0, sampler.walker.tree))
    sampler._jumps[0] = [4.0, 1.0, 0.0]
    move.proposed, move.seconds = 10, 2.0
    (record,) = sampler.records()
    r = 1 - 1.0 / 10 / 2
    assert record.autocorrelation == pytest.approx((1 + r) / (1 - r))
    assert record.effective_per_second == pytest.approx(10 / record.autocorrelation / 2)


def test_recorded_positions_are_those_of_the_recorded_torsions():
    tree = butane.make_tree()
    sampler = ptd.GibbsSampler(
        [ptd.TorsionMove(tries=3)], tree, butane.make_system(), 600.0, platform="Reference", seed=1
    )
    samples = sampler.run(6, every=2, positions=True)
    expected = [tree.positions(tree.reference.replace(torsions=q)) for q in samples.q]
    assert np.ptp(samples.q) > 0.1 and samples.positions.shape == (3, 4, 3)
    assert np.abs(pair_distances(samples.positions) - pair_distances(np.array(expected))).max() < 1e-5


def pair_distances(x):
    return np.linalg.norm(x[:, :, None] - x[:, None], axis=-1)
