"""Statistics of weighted, correlated samples."""

from __future__ import annotations

import numpy as np
import pytest
from correlated_samples import autoregressive

from peptidyn.core.statistics import kish_size, statistical_inefficiency, weighted_average, weighted_histogram


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_statistical_inefficiency_of_a_known_process(rho):
    g = np.mean([statistical_inefficiency(autoregressive(20000, rho, np.random.default_rng(s))) for s in range(5)])
    assert g == pytest.approx((1 + rho) / (1 - rho), rel=0.1)


def test_statistical_inefficiency_of_a_constant():
    assert statistical_inefficiency(np.full(100, 3.0)) == 1.0


def test_error_bars_cover_the_truth():
    """Of 200 series, the mean lies within two standard errors in about 95 %; fewer than 88 % has odds of 1e-5."""
    inside = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = autoregressive(4000, 0.8, rng)
        w = np.exp(0.3 * x)  # the weighted distribution is normal with mean 0.3
        mean, error = weighted_average(x, w)
        inside += abs(mean - 0.3) < 2 * error
    assert inside >= 176


def test_weighted_histogram_is_a_density():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 50000)
    density, error, edges = weighted_histogram(x, x, 10, (0.0, 1.0))  # weight x: density 2 x
    middle = 0.5 * (edges[1:] + edges[:-1])
    assert (density * np.diff(edges)).sum() == pytest.approx(1.0)
    assert np.abs((density - 2 * middle) / error).max() < 5
    assert kish_size(np.ones(7)) == pytest.approx(7)


def test_both_ends_of_a_histogram_are_inside():
    """Of the values 0, 0.5, 1 and 2 three lie in [0, 1]; 0.5 belongs to the upper of two bins, and 1 too."""
    density, _, _ = weighted_histogram(np.array([0.0, 0.5, 1.0, 2.0]), np.ones(4), 2, (0.0, 1.0))
    assert density * 0.5 == pytest.approx([0.25, 0.5])
