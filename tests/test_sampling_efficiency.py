"""The script that compares samplers: how it finds steps, what it counts, what it marks. Speeds are never judged."""

from __future__ import annotations

import numpy as np
import pytest

import peptidyn as ptd
import sampling_efficiency as script
import sampling_report as report_of


@pytest.fixture(scope="module")
def alanine():
    return script.prepare(script.MOLECULES["capped alanine"])


@pytest.mark.parametrize("begin", [-4, 2, 3, 9])
def test_the_ladder_leads_to_the_last_rung_that_is_accepted(begin):
    rung, found, measured = begin, False, {}
    while not found:
        assert rung not in measured, "no rung is measured twice"
        measured[rung] = 0.95 if rung <= 2 else 0.85
        rung, found = script._climb(measured, rung)
    assert rung == 2


@pytest.mark.slow
def test_steps_are_the_largest_with_the_wanted_acceptance(alanine):
    """At the step that was found nine of ten proposals pass, and clearly less at twice that step."""
    method = script.METHODS["torsions, HMC"]
    (step,) = script.find_steps(alanine, method, 100)
    outcomes = []
    for factor in (1.0, 2.0):
        sampler = script.make_sampler(alanine, method, "helix", [factor * step], 5)
        sampler.run(200)
        outcomes.append(sampler.moves[0].acceptance)
    assert (
        outcomes[0] > 0.84 and outcomes[1] < outcomes[0] - 0.03
    )  # four standard errors below 0.9; the search has its own


def test_starts_share_the_hard_geometry(alanine):
    """Bond lengths, angles and omegas of one relaxed structure in both basins."""
    tree = ptd.build_tree(alanine.structure("helix"), "phi psi chi")
    for name, basin in (("helix", 0), ("polyproline II", 1)):
        x = alanine.start("helix", name)
        assert (
            np.abs(tree.positions(tree.state(x)) - x).max() < 1e-9
        )  # what no rigid unit can follow would be left over
        phi, psi = script.dihedrals(x[None], alanine.backbone)[0, 0]
        assert report_of.basin_of(phi, psi) == basin


def test_crossings_need_the_middle_of_the_other_well():
    psi = np.deg2rad([-30, -50, 60, 100, 60, -20, 100, 130, -175, 150, 95, -40, -150, 170])
    assert report_of.count_crossings(psi) == 3
    assert report_of.count_entries(np.deg2rad([-60, 5, -80, 60, 20, 70, -100, 50])) == 2


def chain(rng, populations, n=4000, hold=20):
    """A chain that jumps between alpha, beta and left with given populations."""
    where = np.repeat(rng.choice(3, n // hold, p=populations), hold)
    centre = np.deg2rad([[-70, -30], [-70, 150], [60, 40]])[where]
    angles = (centre + 0.1 * rng.standard_normal((n, 2)))[:, None, :].astype(np.float32)
    return {"angles": angles, "calls": 10 * n, "seconds": 1.0, "accepted": [910], "proposed": [1000]}


def test_judging_known_chains():
    rng = np.random.default_rng(1)
    right, wrong = ([chain(rng, p) for _ in range(8)] for p in ([0.3, 0.5, 0.2], [0.6, 0.4, 0.0]))
    stuck = [chain(rng, p) for p in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]) for _ in range(4)]
    outcome = {
        name: report_of.judge(chains, [0.004])
        for name, chains in {report_of.REFERENCE: right, "again": right[::-1], "wrong": wrong, "stuck": stuck}.items()
    }
    report_of.mark(outcome)
    assert [one["verdict"] for one in outcome.values()] == ["reference", "agrees", "differs", "not converged"]
    one = outcome[report_of.REFERENCE]
    for value, error, exact in zip(one["populations"], one["population_errors"], [0.375, 0.625, 0.2], strict=True):
        assert abs(value - exact) < 5 * error
    # samples are held for 20 frames of 10 evaluations: 200 evaluations each
    assert one["independent_per_million"][1] == pytest.approx(5000, rel=0.25)
    assert one["r_hat"] < 1.05 < outcome["stuck"]["r_hat"]
    assert one["acceptance"] == [0.91] and outcome["wrong"]["left_entries"] == 0 < one["left_entries"]
    report = {"molecules": {"x": {
        "chains": 8, "temperature_K": 300.0, "platform": "Reference", "methods": outcome,
        "calls_per_chain": dict.fromkeys(outcome, 40000),
    }}}  # fmt: skip
    text = report_of.tables(report)
    assert "**differs**" in text and "**not converged**" in text and "reference" in text


def test_langevin_with_a_metric_is_a_method(alanine):
    """It counts its calls, has no proposals, and moves from the start it was given."""
    method = script.METHODS["flexible, Langevin 24 fs"]
    made = script.run_langevin(alanine, method, "polyproline II", 100, 1)
    assert made["calls"] == 100 and made["angles"].shape == (4, 1, 2) and made["proposed"] == []
    phi, psi = made["angles"][0, 0]
    assert report_of.basin_of(phi, psi) == 1 and np.ptp(made["angles"][:, 0], axis=0).min() > 0.01


@pytest.mark.parametrize("label", [report_of.REFERENCE, "flexible, Langevin 24 fs"])
def test_replica_exchange_is_a_method(alanine, label):
    """Calls of all four replicas count, steps and one energy each; frames are those of one; 5% are left out."""
    method = script.METHODS[f"{label}, exchange"]
    made = script.run_exchange(alanine, method, "polyproline II", 8 * 400, 1)
    assert made["angles"].shape == (7, 1, 2) and made["calls"] == 7 * 4 * 101
    assert made["trips"].shape == (4,) and np.ptp(made["angles"][:, 0], axis=0).min() > 0.01


def test_distance_from_a_long_reference():
    """Half of the frames in the wrong bin are a distance of one half; it is counted in force calls of all chains."""
    alpha, beta = np.deg2rad([-70.0, -40.0]), np.deg2rad([-70.0, 150.0])
    reference = report_of.ramachandran([np.tile(alpha, (10, 2, 1))])
    assert reference.shape == (2, report_of.BINS, report_of.BINS) and (reference.sum(axis=(1, 2)) == 1.0).all()
    angles = np.tile(alpha, (256, 2, 1))
    angles[128:, 1] = beta
    chains = [{"angles": angles, "calls": 2560}] * 2
    found = report_of.distances(chains, reference)
    assert found["calls"][-1] == 5120 and found["calls"][0] == pytest.approx(40)
    assert found["worst"][-1] == 0.5 and found["mean"][-1] == 0.25 and found["worst"][-2] == 0.0


def test_variations_of_starts_and_from_the_reference():
    """Chains by turns from two starts: residue 0 is always in alpha, residue 1 of the second start always in beta."""
    alpha, beta = np.deg2rad([-70.0, -40.0]), np.deg2rad([-70.0, 150.0])
    first, second = np.tile(alpha, (8, 2, 1)), np.tile(alpha, (8, 2, 1))
    second[:, 1] = beta
    chains = [{"angles": angles} for angles in (first, second, first, second)]
    assert report_of.variations(chains, chains[:1]) == (1.0, 0.5)


def test_helix_content():
    alpha, beta = np.deg2rad([-70.0, -40.0]), np.deg2rad([-70.0, 150.0])
    angles = np.array([[alpha] * 4, [alpha, alpha, alpha, beta], [alpha, beta, alpha, alpha]])
    assert report_of.helix_content(angles) == pytest.approx((2 + 1 + 0) / 6)
    assert np.isnan(report_of.helix_content(angles[:, :2]))


def test_chains_are_kept_with_their_settings(tmp_path):
    folder, made = script.Folder(tmp_path), []

    def run():
        made.append(1)
        return {"angles": np.arange(3.0)}

    for key in ({"seed": 1}, {"seed": 1}, {"seed": 2}):
        assert folder.chain("a b", key, run)["angles"].tolist() == [0.0, 1.0, 2.0]
    assert len(made) == 2
    assert folder.steps({"a": 1}, 10, lambda: [1.0]) == folder.steps({"a": 1}, 10, lambda: [2.0]) == [1.0]
    assert folder.steps({"a": 1}, 10, lambda: [3.0], again=True) == [3.0]
