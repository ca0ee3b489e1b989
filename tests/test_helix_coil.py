"""Lifson-Roig against the sum over all conformations, melting curves against harmonic systems, R-hat."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.signal import lfilter

from peptidyn.analysis.helix_coil import LifsonRoig, count_weights, fit_lifson_roig
from peptidyn.analysis.melting import Curve, boltzmann_slopes, heat_capacity, melting_curve, melting_temperature
from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import r_hat
from peptidyn.core.units import BOLTZMANN

T = np.array([300.0, 340.0, 380.0])
SHAPE = 20
"""V / kT of 40 harmonic coordinates has a gamma distribution of this shape: <V> = 20 kT, and 20 k of heat capacity."""


@pytest.mark.parametrize("n", [3, 4, 7])
def test_the_partition_function_is_the_sum_over_all_conformations(n):
    model = LifsonRoig(1.4, 0.13)
    every = np.array(list(product([False, True], repeat=n)))
    counts = count_weights(every)
    weights = model.w ** counts[:, 0] * model.v ** counts[:, 1]
    assert model.log_partition(n) == pytest.approx(np.log(weights.sum()), abs=1e-12)
    mean = weights @ counts / weights.sum()
    assert model.mean_counts(n) == pytest.approx(mean, rel=1e-12)
    assert model.helix_content(n) == pytest.approx(mean[0] / (n - 2), rel=1e-12)
    found = fit_lifson_roig(n, *mean)
    assert (found.w, found.v) == pytest.approx((1.4, 0.13), rel=1e-5)


def test_counts_by_hand_and_zimm_bragg():
    helical = np.array([[1, 1, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=bool)
    assert count_weights(helical).tolist() == [[1, 3], [0, 2], [3, 2]]
    assert LifsonRoig(1.6, 0.25).s == pytest.approx(1.28) and LifsonRoig(1.6, 0.25).sigma == pytest.approx(0.0256)
    assert LifsonRoig(1.3, 0.05).log_partition(2000) == pytest.approx(2000 * np.log(1.3), rel=0.05)  # no overflow


def test_no_weights_fit_a_chain_that_is_all_coil():
    with pytest.raises(ArgumentError, match="no weights of Lifson and Roig"):
        fit_lifson_roig(10, 0.0, 1.0)


def harmonic(rng, frames):
    return BOLTZMANN * T[:, None] * rng.gamma(SHAPE, size=(len(T), frames))


def test_curves_and_their_errors():
    """<V> = 20 kT and its heat capacity, between the temperatures too.

    Deviations in units of errors from ten blocks have a t distribution of 9 degrees of freedom: the root mean square
    of 15 lies between 0.45 and 2.1 in all but 1 of 10^4 cases.
    """
    rng = np.random.default_rng(0)
    at = np.array([300.0, 320.0, 375.0])
    energy, capacity = [], []
    for _ in range(15):
        V = harmonic(rng, 200)
        curve = melting_curve(V, V, T, at, blocks=10)
        energy.append((curve.mean - SHAPE * BOLTZMANN * at) / curve.error)
        heat = heat_capacity(V, T, at, blocks=10)
        capacity.append((heat.mean - SHAPE * BOLTZMANN) / heat.error)
    for scores in (energy, capacity):
        size = np.sqrt(np.mean(np.square(scores), axis=0))
        assert (size > 0.45).all() and (size < 2.1).all()


def test_weights_of_frames_change_the_distribution():
    """exp(-b V) on top of exp(-V / kT): the mean becomes 20 / (1 / kT + b)."""
    V = harmonic(np.random.default_rng(1), 2000)
    b = 0.05
    curve = melting_curve(V, V, T, T[1:2], log_weights=-b * V)
    assert curve.mean[0] == pytest.approx(SHAPE / (1 / (BOLTZMANN * T[1]) + b), abs=4 * curve.error[0])
    assert abs(curve.mean[0] - SHAPE * BOLTZMANN * T[1]) > 20 * curve.error[0]


def test_energies_of_neighbours_have_the_ratio_of_boltzmann():
    """1 for harmonic systems at their temperatures; sampled at 360 K instead of 340 K, 1.417 and 0.472 by hand.

    ln of two gamma distributions of one shape differs by the slope of 1 / kT alone. False-alarm rate 1e-4 each.
    """
    rng = np.random.default_rng(6)
    slopes, errors = boltzmann_slopes(harmonic(rng, 4000), T)
    assert slopes == pytest.approx([1.0, 1.0], abs=4 * errors.max()) and errors.max() < 0.05
    wrong = BOLTZMANN * np.array([[300.0], [360.0], [380.0]]) * rng.gamma(SHAPE, size=(3, 4000))
    by_hand = [(1 / 300 - 1 / 360) / (1 / 300 - 1 / 340), (1 / 360 - 1 / 380) / (1 / 340 - 1 / 380)]
    assert boltzmann_slopes(wrong, T)[0] == pytest.approx(by_hand, abs=4 * errors.max())
    spread = [boltzmann_slopes(harmonic(rng, 500), T) for _ in range(60)]
    scores = np.array([(found - 1.0) / error for found, error in spread])
    assert 0.75 < np.sqrt((scores**2).mean()) < 1.25  # errors are those of the scatter


def test_melting_temperature_by_interpolation():
    T = np.array([300.0, 350.0, 400.0])
    y = np.array([0.9, 0.7, 0.3])
    curve = Curve(T, y, np.zeros(3), np.array([y + 0.02, y - 0.02]))
    value, error = melting_temperature(curve)
    assert value == pytest.approx(375.0) and error == pytest.approx(2.5)  # the jackknife of two blocks: half of 5 K
    assert np.isnan(melting_temperature(Curve(T, 0.1 * y, np.zeros(3), 0.1 * curve.replicates))[0])


def test_melting_refusals():
    V = harmonic(np.random.default_rng(2), 10)
    with pytest.raises(ArgumentError, match="one row per temperature"):
        melting_curve(V[:2], V, T, T)
    with pytest.raises(ArgumentError, match="too few for 10 blocks"):
        melting_curve(V, V, T, T, blocks=10)
    with pytest.raises(ArgumentError, match="3 runs of equal length"):
        melting_curve(V, V, T, T, runs=3)


def slow_series(rng, frames, memory):
    """Values (3, frames) of unit variance that three temperatures share and remember: x_t = a x_(t-1) + noise."""
    keep = np.exp(-1.0 / memory)
    noise = rng.standard_normal(frames)
    noise[1:] *= np.sqrt(1.0 - keep**2)
    return np.tile(lfilter([1.0], [1.0, -keep], noise), (len(T), 1))


def test_blocks_are_longer_than_what_frames_remember():
    """Values that have nothing to do with energies: the error is sqrt(g / n) with g = (1 + a) / (1 - a), 0.26 here.

    40 blocks of 15 frames, for a memory of 20, see a third to a half of it. An error from five blocks has a spread of a
    third, so the root mean square of 12 is good to a tenth; blocks of six memories see about 0.9 of the exact error.
    """
    rng, frames, memory = np.random.default_rng(4), 600, 20.0
    keep = np.exp(-1.0 / memory)
    exact = np.sqrt((1.0 + keep) / (1.0 - keep) / frames)
    found = {None: [], 40: []}
    for i in range(12):
        x, V = slow_series(rng, frames, memory), harmonic(rng, frames)
        for blocks, errors in found.items():
            if blocks is None or i < 3:
                errors.append(melting_curve(x, V, T, T[1:2], blocks=blocks).error[0])
    size = {blocks: float(np.sqrt(np.mean(np.square(errors)))) for blocks, errors in found.items()}
    assert size[None] == pytest.approx(exact, rel=0.4)
    assert size[40] < 0.6 * exact


def test_two_runs_that_disagree_have_the_error_of_two():
    """Means -1 and 1 of two runs, with little noise: 2 n blocks of which half are -1, an error of 1 / sqrt(2 n - 1)."""
    rng = np.random.default_rng(5)
    V = np.concatenate([harmonic(rng, 400)] * 2, axis=1)
    x = np.repeat([-1.0, 1.0], 400) + 1e-3 * rng.standard_normal((len(T), 800))
    curve = melting_curve(x, V, T, T[1:2], blocks=4, runs=2)
    assert curve.replicates.shape == (8, 1) and curve.mean[0] == pytest.approx(0.0, abs=0.01)
    assert curve.error[0] == pytest.approx(1 / np.sqrt(7), rel=0.1)
    assert curve.inefficiency < 3.0  # within runs; the jump between them is not correlation
    for memory, blocks in ((1.0, 10), (20.0, 6), (1000.0, 5)):
        assert len(melting_curve(x, V, T, T[1:2], runs=2, memory=memory).replicates) == 2 * blocks


def test_r_hat():
    """1 for equal means; sqrt(1 + 1/3) one standard deviation apart, since halves have means -1/2, -1/2, 1/2, 1/2."""
    x = np.random.default_rng(3).standard_normal((2, 20_000))
    assert r_hat(list(x)) == pytest.approx(1.0, abs=1e-3)
    assert r_hat([x[0] - 0.5, x[1] + 0.5]) == pytest.approx(np.sqrt(1 + 1 / 3), abs=0.01)
    assert r_hat([np.linspace(0, 1, 1000)]) > 1.5  # one series that drifts
    assert np.isnan(r_hat([np.zeros(10), np.zeros(10)]))
    with pytest.raises(ArgumentError, match="four values"):
        r_hat([np.zeros(3), np.zeros(3)])
