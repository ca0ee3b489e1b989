"""`GibbsSampler` and its samples: what is given to the walker, what is recorded, and what the report says."""

from __future__ import annotations

import butane
import numpy as np
import pytest

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, SamplingError
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.sampling.gibbs import Samples
from peptidyn.sampling.walker import walker_tree


def sampler_of(*moves, **options):
    options = {"platform": "Reference", "seed": 3, **options}
    return ptd.GibbsSampler(
        moves or [ptd.TorsionMove(turn=60)], butane.make_tree(), butane.make_system(), 600.0, **options
    )


@pytest.fixture(scope="module")
def glycine():
    structure = ptd.build_peptide("G")
    system = ptd.make_system(structure.topology, "vacuum")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    return ptd.build_tree(structure, "all"), system


def test_what_is_given_reaches_the_walker(glycine):
    """The metric is that of the trajectories' step, whichever move comes first, at the start that is given."""
    tree, system = glycine
    x = tree.positions(tree.reference)
    x[3] += 0.005
    moves = [ptd.TorsionMove(), ptd.TorsionalHMC(0.007, 2)]
    sampler = ptd.GibbsSampler(
        moves, tree, system, 450.0, positions=x, hydrogen_mass=3.0, metric="auto", platform="CPU",
        properties={"Threads": "1"}, seed=11,
    )  # fmt: skip
    walker = sampler.walker
    assert walker.temperature == pytest.approx(450.0) and np.abs(walker.positions() - x).max() < 1e-12
    assert walker.masses.min() == pytest.approx(3.0)
    wanted = walker_tree(tree, system, 450.0, x, 3.0, "auto", 0.007).joint_inertia
    assert walker.tree.joint_inertia == pytest.approx(wanted) and wanted.any()
    platform = walker.context.getPlatform()
    assert platform.getName() == "CPU" and platform.getPropertyValue(walker.context, "Threads") == "1"
    assert walker.rng.random() == np.random.default_rng(11).random()


def test_a_start_without_an_energy_is_refused():
    x = butane.make_tree().positions(butane.make_tree().reference)
    x[3] = x[0]
    with pytest.raises(SamplingError, match="minimise the structure first"):
        sampler_of(positions=x)


def test_one_cartesian_move_makes_the_sampling_flexible():
    assert sampler_of(ptd.TorsionMove(), ptd.CartesianHMC(0.004, 2)).exact
    assert not sampler_of(ptd.TorsionMove()).exact


@pytest.mark.parametrize(("sweeps", "every"), [(0, 1), (3, 0)])
def test_numbers_of_sweeps(sweeps, every):
    with pytest.raises(ArgumentError, match="expected 1 or more"):
        sampler_of().run(sweeps, every=every)


def test_statistics_are_of_all_runs_since_the_reset():
    sampler = sampler_of()
    first, second = sampler.run(30), sampler.run(20)
    assert 0.0 < first.seconds < 60.0 and first.positions is None
    q = np.concatenate([first.q, second.q])
    spread = 1.0 - abs(np.exp(1j * q).mean()) ** 2
    changed = sampler._jumps[0, 0] / 50 / (2.0 * spread)
    assert sampler.records()[0].autocorrelation == pytest.approx((2.0 - changed) / changed)
    sampler.reset()
    (record,) = sampler.records()
    assert np.isnan(record.autocorrelation) and (record.proposed, record.seconds, record.force_calls) == (0, 0.0, 0)
    assert np.isnan(record.acceptance) and sampler.sweeps == 50 and "samples" not in sampler.report()


def test_changes_larger_than_the_variance_are_worth_one_sample_each():
    sampler = sampler_of()
    sampler.run(4)
    sampler._jumps[0] = 100.0
    (record,) = sampler.records()
    assert record.autocorrelation == 1.0 and record.effective_per_second == pytest.approx(4 / record.seconds)


def test_every_warm_up_is_recorded_and_no_turn_exceeds_half_a_circle():
    sampler = sampler_of(ptd.TorsionMove(turn=170, target=0.01))
    records = [sampler.warm_up(6), sampler.warm_up(4)]
    assert sampler.warm_ups == records and [record.sweeps for record in records] == [6, 4]
    for record in records:
        (tuner,) = record.tuners
        assert record.frozen == [tuner.final] and max(tuner.steps) <= np.pi * (1 + 1e-12)
        assert (tuner.target, tuner.largest) == (0.01, np.pi)
    assert sampler.moves[0].step == records[1].frozen[0] and sampler.moves[0].tuner is None


def test_a_warm_up_uses_the_steps_that_it_tunes():
    sampler = sampler_of(ptd.TorsionMove(turn=1, target=0.4))
    used, apply = [], sampler.moves[0].apply
    sampler.moves[0].apply = lambda walker: (used.append(sampler.moves[0].step), apply(walker))[1]
    (tuner,) = sampler.warm_up(5).tuners
    assert used == pytest.approx(tuner.steps) and len(set(used)) == 5


# ---------------------------------------------------------------------------- samples


def test_columns_of_samples():
    """Torsions are picked out of all soft coordinates; one is named by its kind, and its residue where it must be."""
    tree = ptd.build_tree(ptd.build_peptide("AG"), "phi psi angles")
    q = np.arange(4.0 * tree.n_coordinates).reshape(4, -1)
    samples = Samples(q, np.zeros(4), None, 1.0, tree)
    assert np.array_equal(samples.torsions, q[:, [i for i, c in enumerate(tree.coordinates) if c.motion == "torsion"]])
    assert not np.array_equal(samples.torsions, q[:, :4])
    for i, c in enumerate(tree.coordinates):
        assert np.array_equal(samples.column(c.kind, c.residue), q[:, i])
    with pytest.raises(ArgumentError, match="2 soft coordinates are called 'phi'"):
        samples.column("phi")
    with pytest.raises(ArgumentError, match="0 soft coordinates are called 'chi1'"):
        samples.column("chi1", 1)
    one = Samples(q[:, :1], np.zeros(4), None, 1.0, butane.make_tree())
    assert np.array_equal(one.column(one.tree.coordinates[0].kind), q[:, 0])


def slow(n, stay):
    """A series that stays `stay` frames at each of random values."""
    return np.repeat(np.random.default_rng(stay).standard_normal(n // stay), stay)


def test_autocorrelation_times_have_names():
    """Of a torsion that lies about 90 degrees the cosine counts, of one about 0 the sine; of a length itself."""
    tree = ptd.build_tree(ptd.build_peptide("G"), "phi psi; angles in resid 1")
    assert [c.motion for c in tree.coordinates].count("bend") >= 1
    n, fast = 240, np.tile([1.0, -1.0], 120)
    q = np.zeros((n, tree.n_coordinates))
    names = {}
    for i, c in enumerate(tree.coordinates):
        name = f"{c.kind}:{'-'.join(c.names) + ':' if c.names else ''}{c.chain}:{c.residue_name}{c.residue_id}"
        if c.motion == "torsion":
            q[:, i] = (0.5 * np.pi if c.kind == "phi" else 0.0) + 0.01 * slow(n, 12 if c.kind == "phi" else 20)
            part = np.cos if c.kind == "phi" else np.sin
            names[name] = statistical_inefficiency(part(q[:, i]))
        else:
            q[:, i] = 1.9 + 0.01 * slow(n, 8)
            names[name] = statistical_inefficiency(q[:, i])
    samples = Samples(q, fast, None, 2.0, tree)
    times = samples.autocorrelation_times
    assert times == pytest.approx({"energy": 1.0, **names})
    assert "phi:A:GLY2" in times and min(names.values()) > 3.0
    assert samples.effective_samples == pytest.approx(n / max(names.values()))


def test_the_report_line_by_line():
    sampler = sampler_of(ptd.TorsionMove(turn=60), ptd.CartesianHMC(0.0015, 4))
    turn, shake = sampler.moves
    turn.proposed, turn.accepted, turn.force_calls, turn.seconds = 40, 10, 41, 2.0
    shake.proposed, shake.accepted, shake.force_calls, shake.seconds = 8, 6, 48, 4.0
    tree = sampler.walker.tree
    q = np.tile([[0.5 * np.pi], [-0.5 * np.pi]], (20, 1))
    sampler._jumps[:] = [[20.0], [16.0]]  # 0.5 and 2 per proposal, of twice the variance 1
    sampler._samples += [Samples(q, np.zeros(40), None, 1.0, tree), Samples(q[:20], slow(20, 5), None, 4.0, tree)]
    head, first, second, last = sampler.report().split("\n")
    assert head.split() == ["move", "step", "proposed", "accepted", "forces", "s", "g", "alone", "eff/s"]
    assert first.split() == ["TorsionMove", "60.0", "deg", "40", "0.250", "41", "2.0", "7.0", "2.86"]
    assert second.split() == ["CartesianHMC", "1.50", "fs", "8", "0.750", "48", "4.0", "1.0", "2.00"]
    g = statistical_inefficiency(slow(20, 5))
    assert g > 1.5
    assert last == (
        f"20 samples; slowest is energy with g = {g:.1f} (energy {g:.1f}): {20 / g:.0f} independent, {5 / g:.2f} per s"
    )
