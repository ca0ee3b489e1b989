"""Statistics of weighted, correlated samples."""

from __future__ import annotations

import numpy as np
import pytest
from correlated_samples import autoregressive

from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import kish_size, r_hat, statistical_inefficiency, weighted_average, weighted_histogram


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


# ---------------------------------------------------------------------------- numbers worked out by hand


def summed_by_hand(series):
    """Geyer's initial monotone sequence, lag by lag."""
    x = np.array(series) - np.mean(series)
    n = len(x)
    rho = [sum(x[k] * x[k + lag] for k in range(n - lag)) / sum(x * x) for lag in range(n)]
    total, last = 0.0, np.inf
    for lag in range(0, n - 1, 2):
        pair = rho[lag] + rho[lag + 1]
        if pair <= 0:
            break
        last = min(last, pair)
        total += last
    return max(1.0, 2.0 * total - 1.0)


@pytest.mark.parametrize("n", [4, 5, 6, 7, 20, 51])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e6])
def test_inefficiency_lag_by_lag(n, scale):
    rng = np.random.default_rng(n)
    for walk in (rng.normal(size=n), np.cumsum(rng.normal(size=n)), np.arange(n) // (n // 2), 5.0 + np.arange(n) ** 2):
        assert statistical_inefficiency(scale * walk) == pytest.approx(summed_by_hand(walk), rel=1e-9)


def test_inefficiency_of_small_series():
    """0, 0, 1, 1 has rho of 1, 1/4, -1/2, -1/4: g = 2 (1 + 1/4) - 1. Three values are too few, ups and downs give 1."""
    assert statistical_inefficiency(np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(1.5)
    assert statistical_inefficiency(np.array([0.0, 0.0, 1.0])) == 1.0
    assert statistical_inefficiency(np.array([1.0, -1.0] * 10)) == 1.0


def test_rounding_errors_of_a_constant_are_no_fluctuations():
    """1e9 with the last digit up in the second half: a series of the same shape about zero has g far above one."""
    shape = np.repeat([0.0, 1.0], 50)
    assert statistical_inefficiency(1e9 + 1.2e-7 * shape) == 1.0
    assert (
        statistical_inefficiency(1.2e-7 * shape) == pytest.approx(summed_by_hand(shape)) and summed_by_hand(shape) > 20
    )


def test_the_error_of_a_weighted_average_is_that_of_its_influence():
    """Values that stay for ten frames, of which every other one hardly counts: g of the values alone is larger."""
    x, w = np.repeat([0.0, 1.0, 0.0, 3.0, 1.0, 2.0], 10), np.tile([1.0, 0.01], 30)
    mean = (w @ x) / w.sum()
    influence = 60 * w / w.sum() * (x - mean)
    assert summed_by_hand(x) > 1.3 * summed_by_hand(influence) > 1.3
    expected = np.sqrt(summed_by_hand(influence) * np.mean(influence**2) / 60)
    assert weighted_average(x, w) == (pytest.approx(mean), pytest.approx(expected))


def test_a_weighted_average_and_its_error():
    """Values 1, 2, 6 and 3 with weights 1, 1, 2 and 4: mean (1 + 2 + 12 + 12) / 8; two columns at once."""
    x, w = np.array([1.0, 2.0, 6.0, 3.0]), np.array([1.0, 1.0, 2.0, 4.0])
    mean, error = weighted_average(x, w)
    influence = 4 * w / 8 * (x - 3.375)
    expected = np.sqrt(summed_by_hand(influence) * np.mean(influence**2) / 4)
    assert mean.shape == error.shape == () and mean == pytest.approx(3.375) and error == pytest.approx(expected)
    means, errors = weighted_average(np.stack([x, -2 * x], axis=1), 10 * w)
    assert means == pytest.approx([3.375, -6.75]) and errors == pytest.approx([expected, 2 * expected])
    for wrong in (w[:3], np.append(w, 1.0)):
        with pytest.raises(ArgumentError, match=f"values has 4 entries but there are {len(wrong)} weights"):
            weighted_average(x, wrong)


def test_a_histogram_with_bins_of_any_width():
    """Of six values one is below and one above; those on an inner edge belong to the bin above."""
    x, w = np.array([-1.0, 0.0, 0.5, 1.0, 4.9, 5.1]), np.array([2.0, 1.0, 1.0, 3.0, 1.0, 2.0])
    density, error, edges = weighted_histogram(x, w, np.array([0.0, 1.0, 5.0]))
    assert edges.tolist() == [0.0, 1.0, 5.0]
    assert density == pytest.approx([2 / 10 / 1, 4 / 10 / 4])
    for k, (inside, width) in enumerate(zip(([0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0]), (1.0, 4.0), strict=True)):
        mean, alone = weighted_average(np.array(inside, float), w)
        assert density[k] == pytest.approx(mean / width) and error[k] == pytest.approx(alone / width)
    _, _, edges = weighted_histogram(x, w, 4, (0.0, 2.0))
    assert edges == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])
    assert weighted_histogram(x, w, 2)[2] == pytest.approx([-1.0, 2.05, 5.1])


def test_potential_scale_reduction_by_hand():
    """Halves (0, 2), (4, 6), (1, 3), (1, 3): variances 2, means 1, 5, 2, 2, whose variance is 3; the first 9 is cut."""
    assert r_hat([np.array([0.0, 2.0, 4.0, 6.0]), np.array([9.0, 1.0, 3.0, 1.0, 3.0])]) == pytest.approx(np.sqrt(2.0))
    longer = r_hat([np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])])
    assert longer == pytest.approx(np.sqrt(2 / 3 + 4.5 / 1.0))
    assert np.isnan(r_hat([np.ones(4), np.ones(6)]))
    assert r_hat([np.array([0.0, 0.0, 1.0, 1.1])]) > 1.1
    for short in ([np.arange(3.0)], [np.arange(9.0), np.arange(3.0)]):
        with pytest.raises(ArgumentError, match="four values or more"):
            r_hat(short)


def test_the_number_of_equal_weights():
    """(1 + 1 + 2)^2 / (1 + 1 + 4)"""
    assert kish_size(np.array([1.0, 1.0, 2.0])) == pytest.approx(16 / 6)
    assert kish_size(np.array([0.0, 5.0])) == pytest.approx(1.0)
