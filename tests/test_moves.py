"""Monte Carlo moves one by one: what they sample, what they count, what they refuse."""

from __future__ import annotations

import copy
import math
import pickle

import butane
import numpy as np
import openmm
import pytest
from correlated_samples import EDGES, histogram_p_value
from real_structures import DATA
from scipy import special

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError, ModelError
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.tuning import StepTuner
from peptidyn.sampling.walker import Walker

T = 600.0


def alanine(soft: str = "phi psi", solvent: str = "vacuum"):
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = ptd.make_system(structure.topology, solvent)
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    return structure, system, ptd.build_tree(structure, soft)


@pytest.mark.parametrize(
    ("move", "n"),
    [(ptd.TorsionMove(turn=120), 8000), (ptd.TorsionalHMC(0.035, 6), 2500)],
    ids=["TorsionMove", "TorsionalHMC"],
)
def test_torsional_moves_sample_the_rigid_distribution(move, n):
    """1-D quadrature is the oracle; false-alarm rate 1e-4 per case."""
    sampler = ptd.GibbsSampler(
        [copy.copy(move)], butane.make_tree(), butane.make_system(), T, platform="Reference", seed=5
    )
    samples = sampler.run(n)
    assert not sampler.exact
    assert histogram_p_value(samples.q[:, 0], butane.rigid_distribution(T, EDGES)) > 1e-4
    if n > 5000:  # enough to tell the two distributions apart
        assert histogram_p_value(samples.q[:, 0], butane.exact(T, EDGES)["torsion"]) < 1e-4


def langevin_exchange(*temperatures, timestep=0.02, seed=4, **options):
    options = {"sweeps": 2, **options}
    return ptd.ReplicaExchange(
        butane.make_tree(), butane.make_system(), temperatures, moves=[ptd.TorsionalLangevin(timestep, 10, friction=5)],
        platform="Reference", seed=seed, **options,
    )  # fmt: skip


def test_langevin_replicas_sample_the_rigid_distribution():
    """At 600 K, beside 300 K, with steps so short that their error cannot be seen; false-alarm rate 1e-4."""
    exchange = langevin_exchange(300.0, T).run(1500)
    _, q = exchange.at_temperature(1)
    assert histogram_p_value(q[:, 0], butane.rigid_distribution(T, EDGES)) > 1e-4
    # no trajectory was dropped, and every step, and one energy at the end of a stretch, is a force call
    assert exchange.move_acceptance.tolist() == [[1.0], [1.0]]
    assert exchange.steps[:, 0] == pytest.approx([0.02, 0.02 / math.sqrt(2.0)])
    assert exchange.move_counts[:, 0, 2].sum() == pytest.approx(2 * 1500 * 21, rel=0.01)


def test_langevin_in_compiled_code_is_langevin_in_python(monkeypatch):
    """Bit by bit, on the Reference platform: steps, random numbers, force calls."""
    compiled = langevin_exchange(300.0, T).run(5)
    monkeypatch.setattr("peptidyn.sampling.walker.serve", lambda tree, context: None)
    monkeypatch.setattr("peptidyn.sampling.replicas._idle", {})  # walkers are made anew
    python = langevin_exchange(300.0, T).run(5)
    for one, other in zip(compiled.at_temperature(0), python.at_temperature(0), strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(compiled.move_counts, python.move_counts)


def test_langevin_steps_that_cannot_be_made_are_counted_and_leave_the_walker_in_place():
    exchange = langevin_exchange(300.0, T, timestep=5.0).run(3)
    assert np.isfinite(exchange.at_temperature(1)[0]["potential"]).all()
    assert (exchange.move_counts[:, 0, 1] < exchange.move_counts[:, 0, 0]).all()


def test_langevin_is_not_tuned_and_not_exact():
    exchange = langevin_exchange(300.0, T)
    assert [record for level in exchange.warm_up(3) for record in level] == [None, None]
    assert exchange.steps[0, 0] == 0.02
    with pytest.raises(ArgumentError, match="TorsionalLangevin has no Metropolis step"):
        ptd.GibbsSampler([ptd.TorsionalLangevin()], butane.make_tree(), butane.make_system(), T)


def test_joint_inertias_do_not_change_the_distribution():
    """With an inertia of ten times that of the torsion itself; false-alarm rate 1e-4."""
    tree, system = butane.make_tree(), butane.make_system()
    sampler = ptd.GibbsSampler(
        [ptd.TorsionalHMC(0.1, 6)], tree, system, T, metric=[1.0], platform="Reference", seed=5
    )  # fmt: skip
    assert sampler.walker.tree.joint_inertia[0] == 1.0
    samples = sampler.run(2500)
    assert histogram_p_value(samples.q[:, 0], butane.rigid_distribution(T, EDGES)) > 1e-4


def test_the_metric_of_a_step_makes_large_steps_acceptable():
    """Everything soft at 8 fs: bond lengths oscillate with 10 fs, and with their joint inertias with 96 fs."""
    structure, system, tree = alanine("all")
    relaxed = ptd.TorsionSimulation(
        structure.topology, system, ptd.TorsionVerletIntegrator(tree, 0.001), "Reference"
    )  # fmt: skip
    relaxed.minimize_torsions(10.0, 200)
    start = relaxed.context.getState(positions=True).getPositions(asNumpy=True)
    rates = {}
    for metric in ("auto", "physical"):
        moves = [ptd.TorsionalHMC(0.008, 5)]
        sampler = ptd.GibbsSampler(
            moves, tree, system, 300.0, positions=start, metric=metric, platform="Reference", seed=2
        )  # fmt: skip
        frozen = sampler.walker.tree.joint_inertia
        sampler.run(60)
        assert np.array_equal(sampler.walker.tree.joint_inertia, frozen)
        rates[metric] = moves[0].acceptance
        ptd.CartesianHMC(0.0005, 5).apply(sampler.walker)
        assert np.array_equal(sampler.walker.tree.joint_inertia, frozen)  # also with another reference geometry
    assert rates["auto"] > 0.6 and rates["physical"] < 0.1


def test_a_walker_refuses_what_does_not_fit_its_metric():
    _, system, tree = alanine("phi psi angles")
    with pytest.raises(ArgumentError, match="give timestep="):
        Walker(tree, system, T, metric="auto")
    with pytest.raises(ArgumentError, match="give timestep="):
        ptd.GibbsSampler([ptd.TorsionMove()], tree, system, T, metric="auto")
    with pytest.raises(ArgumentError, match="metric is 'quick'"):
        Walker(tree, system, T, metric="quick")
    auto = Walker(tree, system, T, metric="auto", timestep=0.016, platform="Reference")
    with pytest.raises(CheckpointError, match="another kinetic metric"):
        Walker(tree, system, T, platform="Reference").restore(auto.checkpoint())


def test_turns_between_trajectories_sample_the_flexible_distribution():
    """Everything soft with a chosen metric, and turns of the torsion by any angle; oracle and rates as below."""
    x = butane.make_tree().positions(butane.make_tree().reference)
    structure = ptd.Structure.from_openmm(butane.make_topology(), butane.make_system(), x)
    moves = [ptd.TorsionalHMC(0.012, 5), ptd.TorsionMove(turn=180, tries=2)]
    sampler = ptd.GibbsSampler(
        moves, ptd.build_tree(structure, soft="all"), butane.make_system(), T, metric="auto", platform="Reference",
        seed=3,
    )  # fmt: skip
    assert sampler.exact and sampler.walker.tree.joint_inertia.any()
    samples, exact = sampler.run(1500), butane.exact(T, EDGES)
    assert 0.5 < moves[0].acceptance < 1.0 and 0.1 < moves[1].acceptance < 0.9 and moves[1].proposed == 3000
    torsion = sampler.walker.tree.torsion_index[0]
    assert histogram_p_value(samples.q[:, torsion], exact["torsion"]) > 1e-4
    error = samples.energy.std() * math.sqrt(statistical_inefficiency(samples.energy) / len(samples))
    assert abs(samples.energy.mean() - exact["total"]) < 4 * error


@pytest.mark.slow
def test_mixing_with_cartesian_moves_samples_the_flexible_distribution():
    """Independent weighted draws are the oracle; false-alarm rate 1e-4 for the histogram, 4 sigma for each mean."""
    sampler = ptd.GibbsSampler(
        [ptd.TorsionMove(turn=120), ptd.CartesianHMC(0.008, 6)], butane.make_tree(), butane.make_system(), T,
        platform="Reference", seed=2,
    )  # fmt: skip
    sampler.warm_up(200)
    samples = sampler.run(8000)
    exact = butane.exact(T, EDGES)
    assert sampler.exact
    assert histogram_p_value(samples.q[:, 0], exact["torsion"]) > 1e-4
    error = samples.energy.std() * math.sqrt(statistical_inefficiency(samples.energy) / len(samples))
    assert abs(samples.energy.mean() - exact["total"]) < 4 * error


def test_rejected_proposals_leave_everything_as_it_was():
    _, system, tree = alanine()
    for move in (ptd.TorsionalHMC(1.0, 2), ptd.CartesianHMC(0.05, 20), ptd.TorsionMove(turn=179)):
        walker = Walker(tree, system, 1.0, platform="Reference", seed=1)  # at 1 K everything large is refused
        x, energy = walker.positions(), walker.energy()
        outcomes = [move.apply(walker) for _ in range(10)]
        assert not all(outcomes)
        assert move.proposed == 10 and move.accepted == sum(outcomes) and move.acceptance == sum(outcomes) / 10
        if not any(outcomes):
            assert np.array_equal(walker.positions(), x) and walker.energy() == energy
        assert math.isclose(walker.energy_at(walker.positions()), walker.energy(), rel_tol=1e-9)


def test_energy_stays_that_of_the_configuration():
    """Whatever moves do, the stored energy is the energy of the positions, and hard coordinates follow them."""
    _, system, tree = alanine("phi psi omega angles")
    walker = Walker(tree, system, T, platform="Reference", seed=3, hydrogen_mass=3.0)
    moves = [
        ptd.TorsionalHMC(0.004, 3, friction=2.0),
        ptd.CartesianHMC(0.001, 5),
        ptd.TorsionMove(count=2),
        ptd.PivotMove(),
    ]
    for _ in range(15):
        for move in moves:
            move.apply(walker)
            assert math.isclose(walker.energy(), walker.energy_at(walker.positions()), rel_tol=1e-9, abs_tol=1e-7)
            assert np.abs(walker.mover.positions() - walker.positions()).max() < 1e-12
    assert all(move.accepted for move in moves[:3])


def test_cartesian_moves_give_the_tree_their_geometry():
    _, system, tree = alanine()
    walker = Walker(tree, system, T, platform="Reference", seed=1)
    before = walker.tree
    assert any(ptd.CartesianHMC(0.001, 10).apply(walker) for _ in range(5))
    after = walker.tree
    assert after.coordinates == before.coordinates and np.array_equal(after.parent, before.parent)
    assert np.abs(after.positions(after.reference) - walker.positions()).max() < 1e-12
    assert np.abs(after.local - before.local).max() > 1e-4


def test_kept_momenta_are_drawn_anew_after_another_move():
    """Momenta belong to the mass matrix of one geometry; partly kept ones must not outlive it."""
    _, system, tree = alanine()
    walker = Walker(tree, system, T, platform="Reference", seed=1)
    torsional = ptd.TorsionalHMC(0.004, 2, friction=0.1)
    torsional.apply(walker)
    assert walker.momenta_valid
    while not ptd.CartesianHMC(0.0005, 5).apply(walker):
        pass
    assert walker.mover is not None and not walker.momenta_valid


def test_checkpoints_continue_bit_for_bit():
    _, system, tree = alanine("phi psi angles")
    moves = [ptd.TorsionalHMC(0.004, 3, friction=1.0), ptd.CartesianHMC(0.001, 5), ptd.TorsionMove()]

    def go(walker, n):
        own = [copy.copy(move) for move in moves]
        for _ in range(n):
            for move in own:
                move.apply(walker)
        return walker.checkpoint()

    first = Walker(tree, system, T, platform="Reference", seed=4)
    saved = go(first, 4)
    first.restore(saved)
    one = go(first, 4)
    other = Walker(tree, system, T, platform="Reference", seed=99)
    other.restore(pickle.loads(pickle.dumps(saved)))
    two = go(other, 4)
    for name in one:
        assert np.array_equal(one[name], two[name]) if name != "rng" else one[name] == two[name], name


def test_langevin_is_refused_with_the_reason():
    _, system, tree = alanine()
    langevin = ptd.TorsionLangevinIntegrator(tree, T, 1.0, 0.004), openmm.LangevinMiddleIntegrator(T, 1.0, 0.002)
    for integrator in langevin:
        with pytest.raises(ArgumentError, match="has no Metropolis step"):
            ptd.GibbsSampler([ptd.TorsionalHMC(), integrator], tree, system, T)


def test_bad_arguments_are_named():
    structure, system, tree = alanine()
    with pytest.raises(ArgumentError, match="it has phi, psi"):
        ptd.GibbsSampler([ptd.TorsionMove(["chi1"])], tree, system, T, platform="Reference").run(1)
    with pytest.raises(ArgumentError, match="is a class"):
        ptd.GibbsSampler([ptd.PivotMove], tree, system, T)
    with pytest.raises(ArgumentError, match="no moves"):
        ptd.GibbsSampler([], tree, system, T)
    twice = ptd.PivotMove()
    with pytest.raises(ArgumentError, match="stands twice"):
        ptd.GibbsSampler([twice, twice], tree, system, T)
    with pytest.raises(ArgumentError, match="expected 1 or more"):
        ptd.TorsionalHMC(steps=0)
    with pytest.raises(ArgumentError, match="positive"):
        ptd.CartesianHMC(timestep=-1)
    constrained = ptd.make_system(structure.topology, "vacuum")
    constrained.addConstraint(0, 1, 0.1)
    with pytest.raises(ModelError, match="moves every atom"):
        ptd.GibbsSampler([ptd.CartesianHMC()], tree, constrained, T)
    crushed = structure.positions.copy()
    crushed[1] = crushed[0]
    with pytest.raises(Exception, match="minimise"):
        ptd.GibbsSampler([ptd.CartesianHMC()], tree, system, T, positions=crushed, platform="Reference")


def test_tuning_finds_the_wanted_acceptance_and_is_recorded():
    rng = np.random.default_rng(0)
    tuner, step = StepTuner(1.0, 0.7), 1.0
    for _ in range(2000):  # acceptance exp(-step): 0.7 at step 0.357
        step = tuner.update(rng.random() < math.exp(-step))
    assert abs(tuner.final + math.log(0.7)) < 0.05
    assert len(tuner.steps) == len(tuner.outcomes) == 2000
    capped = StepTuner(1.0, 0.1, largest=2.0)
    for _ in range(50):
        assert capped.update(True) <= 2.0


@pytest.mark.parametrize("target", [0.4, 0.85, 0.92, 0.97])
@pytest.mark.parametrize("start", [0.2, 3.0])
def test_tuning_reaches_high_targets_from_afar(start, target):
    """200 proposals of a hybrid Monte Carlo, with the acceptance of its theory; mean of 60 searches.

    Rejections are what tells steps apart, so the tolerance is a part of 1 - target.
    """
    rng = np.random.default_rng(3)
    best = math.sqrt(2.0 * special.erfcinv(target))
    found = []
    for _ in range(60):
        tuner = StepTuner(start * best, target)
        step = start * best
        for outcome in rng.random(200):
            step = tuner.update(bool(outcome < special.erfc(step**2 / 2)))
        found.append(special.erfc(tuner.final**2 / 2))
    assert abs(np.mean(found) - target) < 0.35 * (1 - target)


def test_warm_up_freezes_steps_and_reports():
    sampler = ptd.GibbsSampler(
        [ptd.TorsionMove(turn=5), ptd.CartesianHMC(0.001, 5)], butane.make_tree(), butane.make_system(), T,
        platform="Reference", seed=1,
    )  # fmt: skip
    record = sampler.warm_up(300)
    steps = [move.step for move in sampler.moves]
    assert steps == record.frozen and steps[0] > np.deg2rad(5) and steps[1] > 0.001
    assert [len(t.steps) for t in record.tuners] == [300, 300]
    samples = sampler.run(600)
    assert [move.step for move in sampler.moves] == steps
    for move, target in zip(sampler.records(), (0.4, 0.85), strict=True):
        at_limit = move.step > 0.9 * np.pi and move.unit == "rad"
        assert abs(move.acceptance - target) < 0.15 or (at_limit and move.acceptance > target)
        assert move.proposed == 600 and move.force_calls >= 600 and move.seconds > 0
        assert move.autocorrelation >= 1 and move.effective_per_second > 0
    assert samples.effective_samples <= 600
    text = sampler.report()
    assert "CartesianHMC" in text and "independent" in text


def test_same_seed_same_samples():
    def sample(seed):
        moves = [ptd.TorsionMove(), ptd.CartesianHMC(0.004, 3)]
        sampler = ptd.GibbsSampler(moves, butane.make_tree(), butane.make_system(), T, platform="Reference", seed=seed)
        return sampler.run(20).energy

    assert np.array_equal(sample(1), sample(1)) and not np.array_equal(sample(1), sample(2))


def test_centre_of_mass_remover_does_not_act_within_trajectories():
    """It would change momenta, and the trajectory could not be run backwards."""
    system = butane.make_system()
    system.addForce(openmm.CMMotionRemover(1))
    walker = Walker(butane.make_tree(), system, T, platform="Reference", seed=1)
    assert not any(isinstance(f, openmm.CMMotionRemover) for f in walker.context.getSystem().getForces())
    assert any(isinstance(f, openmm.CMMotionRemover) for f in system.getForces())


def test_hydrogen_mass_changes_speed_but_not_energy():
    _, system, tree = alanine()
    light = Walker(tree, system, T, platform="Reference", seed=1)
    heavy = Walker(tree, system, T, platform="Reference", seed=1, hydrogen_mass=3.0)
    assert heavy.energy() == pytest.approx(light.energy(), rel=1e-12)
    assert heavy.masses.sum() == pytest.approx(light.masses.sum()) and heavy.masses.min() == pytest.approx(3.0)
    assert heavy.kT == BOLTZMANN * T
