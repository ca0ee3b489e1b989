"""Basins, averages over temperatures, ladders and MBAR: statements with numbers that can be worked out by hand."""

from __future__ import annotations

import logging
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from peptidyn.analysis.melting import (
    Curve,
    boltzmann_slopes,
    heat_capacity,
    melting_curve,
    melting_temperature,
)
from peptidyn.analysis.observables import basin_of, is_helical
from peptidyn.analysis.transitions import count_transitions, well_of
from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import r_hat, statistical_inefficiency, weighted_average
from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.ladders import choose_temperatures, normal_acceptance
from peptidyn.sampling.mbar import MOST_FRAMES, TemperatureMBAR, temperature_weights
from peptidyn.sampling.swaps import swap_pairs

T = np.array([300.0, 400.0, 500.0])


def test_edges_of_the_helix_and_of_the_basins():
    """-100 < phi < -30 and -67 < psi < -7 are helical; alpha has phi < 0 and -120 <= psi < 60, left phi >= 0."""
    phi = np.array([-99.9, -100.1, -30.1, -29.9, -60.0, -60.0, -60.0, -60.0])
    psi = np.array([-40.0, -40.0, -40.0, -40.0, -66.9, -67.1, -7.1, -6.9])
    assert is_helical(phi, psi).tolist() == [True, False] * 2 + [True, False] * 2
    phi = np.array([-60.0, -60.0, -60.0, -60.0, -0.1, 0.0, 60.0])
    psi = np.array([-120.0, -120.1, 59.9, 60.0, 0.0, 0.0, 170.0])
    assert basin_of(phi, psi).tolist() == [0, 1, 0, 1, 0, 2, 2]


def test_wells_are_periodic_and_transitions_count_both_ways():
    assert well_of([-170.0, 170.0, 10.0, -10.0, 185.0], "omega").tolist() == [0, 0, 1, 1, 0]
    assert count_transitions([0.0, 180.0, 0.0, -175.0], "omega") == 3


def test_the_first_core_that_is_reached_is_no_transition():
    assert well_of([90.0, 0.0, 180.0], "omega").tolist() == [-1, 1, 0]
    assert count_transitions([90.0, 0.0, 180.0], "omega") == 1


def test_blocks_of_a_curve_are_consecutive_frames():
    """Equal energies: all frames count alike, and the jackknife over ten blocks is the error of ten block means."""
    means = np.array([0.3, 0.1, 0.8, 0.5, 0.9, 0.2, 0.4, 0.7, 0.6, 0.0])
    values = np.tile(np.repeat(means, 4), (3, 1))
    curve = melting_curve(values, np.zeros(values.shape), T, T[1:2], blocks=10)
    assert curve.mean[0] == pytest.approx(0.45)
    assert curve.error[0] == pytest.approx(means.std(ddof=1) / np.sqrt(10))  # 0.0957


def two_energies(mean, spread):
    """Two energies with this mean and standard deviation."""
    return np.array([mean - spread, mean + spread])


def test_a_mean_energy_that_falls_counts_as_level():
    """<V> never falls with T: 90 kJ/mol at 400 K after 100 at 300 K is taken as 100."""
    low, high = two_energies(100.0, 8.0), two_energies(160.0, 14.0)
    fallen, level = two_energies(90.0, 11.0), two_energies(100.0, 11.0)
    found = choose_temperatures(T, [low, fallen, high])
    assert found == pytest.approx(choose_temperatures(T, [low, level, high]), rel=1e-12)
    assert len(found) > 3


def test_neighbours_of_a_ladder_exchange_equally_often():
    """Rates by quadrature over the difference of two normal energies, whose mean and spread are those of 60 kT."""
    k = 60
    energies = [two_energies(k * BOLTZMANN * t, np.sqrt(k) * BOLTZMANN * t) for t in T]
    ladder = choose_temperatures(T, energies, 0.3)
    rates = []
    for a, b in pairwise(ladder):
        step = 1 / (BOLTZMANN * a) - 1 / (BOLTZMANN * b)
        difference = norm(k * BOLTZMANN * (b - a), np.sqrt(k) * BOLTZMANN * np.hypot(a, b))
        low, high = difference.ppf([1e-9, 1 - 1e-9])
        rates.append(quad(lambda d: min(1.0, np.exp(-step * d)) * difference.pdf(d), low, high, points=[0.0])[0])  # noqa: B023
    assert len(rates) == 3
    assert min(rates) > 0.3 and max(rates) - min(rates) < 0.05
    assert rates[0] == pytest.approx(rates[1], abs=1e-6)  # equal parts of equal gaps


def test_errors_of_mbar_are_those_of_the_slowest_temperature_and_frames_are_of_the_whole_run():
    rng = np.random.default_rng(4)
    n = 3 * MOST_FRAMES
    slow = np.convolve(rng.standard_normal(n + 29), np.ones(30), "valid")
    slow[: n // 3] = rng.standard_normal(n // 3)  # the first third says nothing about the rest
    fast = rng.standard_normal(n)
    mbar = TemperatureMBAR([fast, slow], T[:2])
    assert mbar.inefficiency == pytest.approx(statistical_inefficiency(slow[::3]))
    assert mbar.inefficiency > 4.0 > statistical_inefficiency(fast[::3])


def test_weights_of_two_levels_by_hand():
    """Ten frames at each of two temperatures, of energy 0 or e: the equations of MBAR, and the weights they give.

    exp(-f_i) = sum over frames of exp(-V / kT_i) / m(V) with the mixture m(V) = sum_k N_k exp(f_k - V / kT_k), and the
    weights at T_i are proportional to exp(-V / kT_i) / m(V).
    """
    e = 4.0
    V = np.array([[0.0] * 7 + [e] * 3, [0.0] * 5 + [e] * 5])
    beta = 1 / (BOLTZMANN * T[:2])
    weights, f = temperature_weights(V, T[:2], T[:2])
    counts = {0.0: 12, e: 8}
    mixture = {v: sum(10 * np.exp(f[k] - beta[k] * (v - V.mean())) for k in range(2)) for v in counts}
    for i in range(2):
        assert sum(n * np.exp(f[i] - beta[i] * (v - V.mean())) / mixture[v] for v, n in counts.items()) == (
            pytest.approx(1.0, abs=1e-6)
        )
        expected = np.exp(-beta[i] * V.ravel()) / np.where(V.ravel() > 0, mixture[e], mixture[0.0])
        assert weights[i] == pytest.approx(expected / expected.sum(), rel=1e-9)


def test_the_inefficiency_of_a_short_series_lag_by_lag():
    """Sums over lags written out; a series that ends far from where it began is not taken as periodic."""
    x = np.array([0.0, 1.0, 1.5, 3.0, 3.5, 3.0, 5.0, 6.5, 6.0, 8.0, 9.5, 9.0])
    d = x - x.mean()
    rho = [sum(d[i] * d[i + k] for i in range(len(d) - k)) / (d @ d) for k in range(len(d))]
    tau, least = 0.0, np.inf
    for k in range(0, len(d) - 1, 2):
        pair = rho[k] + rho[k + 1]
        if pair <= 0.0:
            break
        least = min(least, pair)
        tau += least
    assert statistical_inefficiency(x) == pytest.approx(2.0 * tau - 1.0, rel=1e-12)
    assert 2.0 * tau - 1.0 > 3.0


def test_the_error_of_a_weighted_mean_by_hand():
    """1, 2, 6 with weights 1, 2, 1: the mean is 11/4, and influences 3 w (x - mean) are -21/16, -18/16, 39/16."""
    mean, error = weighted_average(np.array([1.0, 2.0, 6.0]), np.array([1.0, 2.0, 1.0]))
    assert mean == pytest.approx(2.75)
    assert error == pytest.approx(np.sqrt((21**2 + 18**2 + 39**2) / 16**2 / 3 / 3))


def test_r_hat_of_one_series_that_steps_up():
    """Halves 0, 1, 0, 1 and 3, 4, 3, 4: variances 1/3 within and 9/2 between, so sqrt(3/4 + 27/2)."""
    assert r_hat([np.array([0.0, 1, 0, 1, 3, 4, 3, 4])]) == pytest.approx(np.sqrt(0.75 + 13.5))


def test_r_hat_looks_at_the_ends_of_longer_series():
    short, long = np.array([0.0, 1, 0, 1, 3, 4, 3, 4]), np.array([90.0, 80, 2, 0, 1, 1, 0, 2, 1, 3])
    assert r_hat([short, long]) == pytest.approx(r_hat([short, long[2:]]))
    assert r_hat([long[:9]]) == pytest.approx(r_hat([long[1:9]]))


@pytest.mark.parametrize(
    ("options", "blocks", "slowest"),
    [
        ({}, 10, 1.0),  # at most
        ({"memory": 15.0}, 6, 15.0),  # 300 frames are six blocks of three times 15 frames
        ({"memory": 1000.0}, 5, 1000.0),  # at least
        ({"runs": 2, "memory": 7.0}, 14, 7.0),  # 150 frames of each run are seven blocks
        ({"blocks": 3, "memory": 7.0}, 3, 7.0),
    ],
)
def test_how_many_blocks_a_curve_has(options, blocks, slowest):
    values = np.tile([0.0, 1.0], (3, 150))  # frame by frame up and down, which counts as independent
    curve = melting_curve(values, np.zeros(values.shape), T, T[:1], **options)
    assert len(curve.replicates) == blocks and curve.inefficiency == pytest.approx(slowest)


def test_a_short_run_has_blocks_of_two_frames():
    curve = melting_curve(np.tile([0.0, 1.0], (3, 3)), np.zeros((3, 6)), T, T[:1])
    assert len(curve.replicates) == 3


def test_the_inefficiency_of_a_curve_is_that_of_the_slowest_value_in_any_run():
    """Equal energies; the second value lasts long in the second of two runs, and is far from its mean there."""
    rng = np.random.default_rng(2)
    first, second = rng.standard_normal((2, 400)), np.tile([1.0, -1.0], (2, 200))
    second[1] = np.repeat(rng.standard_normal(20), 20)
    values = np.stack([first.ravel(), second.ravel()], axis=1)
    curve = melting_curve(values[None], np.zeros((1, 800)), T[:1], T[:1], runs=2)
    slowest = statistical_inefficiency(second[1])
    assert slowest > 5 and curve.inefficiency == pytest.approx(slowest, rel=1e-9)


def test_weights_of_frames_count_in_a_curve():
    """Equal energies and weights 1 and 3: the mean of 0 and 1 is 3/4, whatever all of them are multiplied with."""
    values = np.tile([0.0, 1.0], (2, 10))
    weights = np.log(np.tile([1.0, 3.0], (2, 10))) + 800.0
    curve = melting_curve(values, np.zeros(values.shape), T[:2], T[:1], log_weights=weights, blocks=5)
    assert curve.mean == pytest.approx([0.75]) and curve.error == pytest.approx([0.0], abs=1e-9)


def test_the_heat_capacity_by_hand():
    """Energies 100 and 106 in equal parts at 300 K have the variance 9; one of ten blocks is another one."""
    energies = np.tile([100.0, 106.0], 20)[None]
    energies[0, :4] = 103.0
    found = heat_capacity(energies, T[:1], T[:1], blocks=10)
    unit = BOLTZMANN * 300.0**2
    assert found.mean == pytest.approx([9.0 * 0.9 / unit])
    without = np.array([9.0] + [9.0 * 8 / 9] * 9) / unit
    assert found.error[0] == pytest.approx(np.sqrt(0.9 * ((without - without.mean()) ** 2).sum()))


def test_a_curve_melts_where_it_last_falls_through_one_half():
    """From 0.8 at 320 K to 0.3 at 340 K: 0.5 is three fifths of the way. Before, it fell and rose again."""
    at, y = np.array([280.0, 300.0, 320.0, 340.0, 360.0]), np.array([0.9, 0.4, 0.8, 0.3, 0.1])
    curve = Curve(at, y, np.zeros(5), np.array([y, y + 0.1]), 1.0)
    found, error = melting_temperature(curve)
    assert found == pytest.approx(332.0)
    assert error == pytest.approx(np.sqrt(0.5 * 2 * 2.0**2))  # 332 and 336 K without either of two blocks
    assert melting_temperature(curve, 0.35)[0] == pytest.approx(338.0)
    assert np.isnan(melting_temperature(Curve(at, y + 1.0, np.zeros(5), np.array([y, y]) + 1.0, 1.0))[0])


def test_slopes_of_two_energies_are_their_odds():
    """Energies 0 and e: the likeliest slope is the ratio of odds, and its variance the sum of 1 / n of all counts."""
    e, n, high = 5.0, 120, (30, 40, 60)  # frames with the energy e at every temperature, as even as can be
    energies = np.array([np.where(np.arange(n) % (n // k) == 0, e, 0.0) for k in high])
    slopes, errors = boltzmann_slopes(energies, T)
    beta = 1 / (BOLTZMANN * T)
    for i in range(2):
        odds = [np.log(k / (n - k)) for k in high[i : i + 2]]
        step = e * (beta[i] - beta[i + 1])
        assert slopes[i] == pytest.approx((odds[1] - odds[0]) / step, rel=1e-8)
        variance = sum(1 / k + 1 / (n - k) for k in high[i : i + 2])
        assert errors[i] == pytest.approx(np.sqrt(variance) / step, rel=1e-8)
    slow = np.sort(energies, axis=1)[:, ::-1]  # all of one energy first
    memory = max(statistical_inefficiency(one) for one in slow[:2])
    assert boltzmann_slopes(slow, T)[1][0] == pytest.approx(np.sqrt(memory) * errors[0], rel=1e-8)


@pytest.mark.parametrize(
    ("kind", "cores"),
    [
        ("phi", [(-160, -40), (30, 90)]), ("psi", [(-80, 0), (100, 200)]), ("omega", [(120, 240), (-60, 60)]),
        ("chi1", [(30, 90), (150, 210), (-90, -30)]), ("rotor", [(30, 90), (150, 210), (-90, -30)]),
    ],
)  # fmt: skip
def test_cores_of_the_wells(kind, cores):
    """Both edges belong to a core; a degree beyond them no well was reached yet."""
    for index, (low, high) in enumerate(cores):
        for edge, inner in ((low, 1), (high, -1)):
            for angle in (edge, edge + inner, edge - 360.0):
                assert well_of([angle], kind).tolist() == [index], angle
            assert well_of([edge - inner], kind).tolist() == [-1], edge


def test_transitions_are_counted_from_the_first_core_on():
    """The first well of the list counts as all others do."""
    assert count_transitions([100.0, -60.0, 60.0, 0.0, -60.0], "phi") == 2
    assert count_transitions([60.0, 60.0], "phi") == 0 and count_transitions([0.0], "phi") == 0


def test_frames_between_cores_stay_where_they_came_from():
    assert well_of([60.0, 0.0, -60.0, 0.0, 120.0, 60.0, 120.0], "phi").tolist() == [1, 1, 0, 0, 0, 1, 1]


def test_replicates_leave_out_one_block_with_its_weights():
    """Equal energies, two temperatures, three blocks of two frames; weights differ from frame to frame."""
    rng = np.random.default_rng(3)
    values, log_weights = rng.normal(size=(2, 6)), rng.normal(size=(2, 6))
    curve = melting_curve(values, np.zeros((2, 6)), T[:2], T[:2], log_weights=log_weights, blocks=3)
    w = np.exp(log_weights)
    means = []
    for block in range(3):
        keep = np.arange(6) // 2 != block
        means.append((w * values)[:, keep].sum() / w[:, keep].sum())
    assert curve.replicates == pytest.approx(np.tile(np.array(means)[:, None], 2))
    assert curve.mean == pytest.approx([(w * values).sum() / w.sum()] * 2)
    error = np.sqrt(2 / 3 * ((np.array(means) - np.mean(means)) ** 2).sum())
    assert curve.error == pytest.approx([error] * 2)
    assert curve.derived(lambda mean: mean[0] ** 2) == pytest.approx(
        (curve.mean[0] ** 2, np.sqrt(2 / 3 * ((np.array(means) ** 2 - np.mean(np.array(means) ** 2)) ** 2).sum()))
    )
    both = curve.derived(lambda mean: 3.0 * mean)
    assert both[0] == pytest.approx(3.0 * curve.mean) and both[1] == pytest.approx(3.0 * curve.error)


@pytest.mark.parametrize(
    ("shape", "levels", "options"),
    [
        ((3, 8), 2, {}), ((2, 9), 2, {"runs": 2}), ((2, 3), 2, {}), ((2, 8), 2, {"blocks": 5}),
        ((2, 8), 2, {"runs": 3}), ((2, 4), 2, {"runs": 2, "blocks": 2}),
    ],
)  # fmt: skip
def test_curves_that_are_refused(shape, levels, options):
    with pytest.raises(ArgumentError):
        melting_curve(np.zeros(shape), np.zeros(shape), T[:levels], T[:1], **options)


def test_shapes_of_curves_must_agree():
    good = np.zeros((2, 8))
    for values, energies, weights in ((np.zeros((2, 7)), good, None), (good, good, np.zeros((2, 7)))):
        with pytest.raises(ArgumentError, match="one row per temperature"):
            melting_curve(values, energies, T[:2], T[:1], log_weights=weights)


def test_options_of_the_heat_capacity_are_those_of_curves():
    energies = np.tile([100.0, 106.0, 99.0, 107.0], 15)[None]
    found = heat_capacity(energies, T[:1], T[:1], blocks=3, runs=2, memory=7.0)
    assert len(found.replicates) == 6 and found.inefficiency == 7.0
    assert found.mean == pytest.approx([energies.var() / (BOLTZMANN * 300.0**2)])
    at = heat_capacity(energies, T[1:2], T[1:2], blocks=3)
    assert at.mean == pytest.approx([energies.var() / (BOLTZMANN * 400.0**2)])


@pytest.mark.parametrize("slower", [0, 1])
def test_the_slower_of_two_temperatures_gives_the_error_of_a_slope(slower):
    """In the same frames in another order the slope is the same, and its error grows with the inefficiency."""
    energies = np.array([np.tile([0.0, 5.0, 0.0, 0.0], 30), np.tile([0.0, 5.0], 60)])
    slopes, errors = boltzmann_slopes(energies, T[:2])
    energies[slower] = np.sort(energies[slower])
    memory = statistical_inefficiency(energies[slower])
    found, larger = boltzmann_slopes(energies, T[:2])
    assert memory > 5 and found == pytest.approx(slopes) and larger == pytest.approx(np.sqrt(memory) * errors)


def test_every_pair_has_its_own_slope():
    """Energies with the right ratio at all temperatures, and an offset that changes nothing: all slopes are 1."""
    levels, beta = np.arange(4.0), 1 / (BOLTZMANN * T)
    energies = []
    for b in beta:
        p = np.exp(-b * levels)
        counts = np.round(20_000 * p / p.sum()).astype(int)
        one = np.repeat(levels, counts)
        energies.append(np.random.default_rng(1).permutation(np.resize(one, 20_000)) + 4000.0)
    slopes, _ = boltzmann_slopes(np.array(energies), T)
    assert slopes == pytest.approx([1.0, 1.0], abs=2e-3)


def test_long_series_are_thinned_to_at_most_so_many_frames():
    energies = [np.arange(MOST_FRAMES + 1.0), np.arange(1.5 * MOST_FRAMES), np.arange(float(MOST_FRAMES))]
    mbar = TemperatureMBAR(energies, T)
    parts = [e[::2] for e in energies[:2]] + [energies[2]]
    assert np.array_equal(mbar._energy, np.concatenate(parts))


def test_the_level_of_messages_is_left_as_it_was():
    logger = logging.getLogger("pymbar")
    before = logger.level
    try:
        logger.setLevel(logging.INFO)
        temperature_weights(np.array([[0.0, 1.0], [0.5, 2.0]]), T[:2], T[:1])
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize(
    ("temperatures", "energies", "acceptance"),
    [
        ([300.0], [[1.0, 2.0]], 0.3), ([300.0, 400.0], [[1.0, 2.0]], 0.3), ([300.0, 400.0], [[1.0], [1.0, 2.0]], 0.3),
        ([300.0, 300.0], [[1.0, 2.0]] * 2, 0.3), ([300.0, 400.0], [[1.0, 2.0]] * 2, 0.0),
        ([300.0, 400.0], [[1.0, 2.0]] * 2, 1.0),
    ],
)  # fmt: skip
def test_ladders_that_are_refused(temperatures, energies, acceptance):
    with pytest.raises(ArgumentError):
        choose_temperatures(temperatures, [np.array(e) for e in energies], acceptance)


def test_a_ladder_that_would_be_too_long_is_refused(monkeypatch):
    monkeypatch.setattr("peptidyn.sampling.ladders.MOST", 3)
    energies = [two_energies(100.0 * t, 2.0 * t) for t in (1.0, 2.0, 3.0)]
    with pytest.raises(ArgumentError, match="more than 3 temperatures"):
        choose_temperatures(T, energies)


def test_acceptance_of_changes_that_are_certain():
    assert normal_acceptance(2.0, 0.0) == pytest.approx(np.exp(-2.0)) and normal_acceptance(-2.0, 0.0) == 1.0


@pytest.mark.parametrize(("n", "attempts"), [(27, 19683), (28, 20_000)])
def test_no_exchange_tries_more_than_20000_pairs(n, attempts):
    """What the generator gave for it: two replicas and a number for every attempt."""
    rng, same = np.random.default_rng(5), np.random.default_rng(5)
    swap_pairs(np.zeros((n, n)), np.arange(n), rng)
    same.integers(n, size=attempts), same.integers(1, n, size=attempts), same.random(attempts)
    assert rng.random() == same.random()
