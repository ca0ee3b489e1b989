"""`compare_distributions`: equal and unequal distributions of correlated samples, with known distances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError


def correlated(n, rho, rng, columns=1):
    """Return a normal AR(1) series (n, columns)."""
    noise = np.sqrt(1 - rho**2) * rng.normal(size=(n, columns))
    noise[0] = rng.normal(size=columns)
    return lfilter([1], [1, -rho], noise, axis=0)


def test_total_variation_of_shifted_normals():
    """2 Phi(d / 2) - 1 for unit normals at the distance d; noise at 20,000 independent samples is 0.01."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=20_000), rng.normal(0.5, 1, 20_000)
    found = ptd.compare_distributions(a, b, bins=40)
    assert found.total_variation == pytest.approx(2 * norm.cdf(0.25) - 1, abs=0.015)
    assert found.p_value < 1e-10 and 0.003 < found.noise < 0.03
    assert str(found).startswith(f"total variation {found.total_variation:.3f} (")


@pytest.mark.parametrize("columns", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_equal_distributions_of_correlated_samples_agree(columns):
    """100 pairs: p-values below 0.01 in 7 or more would happen once in 10^4, and in 20 or more with errors that are
    30% too small. Distances are as large as the noise says."""
    rng = np.random.default_rng(columns)
    alarms, ratios = 0, []
    for _ in range(100):
        a, b = (correlated(n, 0.9, rng, columns) for n in (4000, 6000))
        found = ptd.compare_distributions(a, b, bins=8, limits=(-3, 3))
        alarms += found.p_value < 0.01
        ratios.append(found.total_variation / found.noise)
    assert alarms < 7
    assert 0.6 < np.mean(ratios) < 1.2


def test_without_counting_correlation_equal_distributions_would_not_agree():
    """Shuffled samples have lost their correlation, and the same difference becomes significant."""
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(20):
        a, b = (rng.permutation(correlated(4000, 0.95, rng)) for _ in range(2))
        alarms += ptd.compare_distributions(a, b, bins=8, limits=(-3, 3)).p_value < 0.01
    assert alarms > 10


def test_one_cell_differs():
    rng = np.random.default_rng(6)
    a = rng.uniform(0, 1, 5000)
    b = np.where(rng.uniform(size=5000) < 0.05, 0.55, rng.uniform(0, 1, 5000))
    found = ptd.compare_distributions(a, b, bins=10, limits=(0, 1))
    assert found.p_value < 1e-6 and found.total_variation == pytest.approx(0.045, abs=0.015)
    assert ptd.compare_distributions(a, a).p_value == 1.0


def test_refusals():
    with pytest.raises(ArgumentError, match="a has 1 values per frame and b has 2"):
        ptd.compare_distributions(np.zeros(5), np.zeros((5, 2)))
    with pytest.raises(ArgumentError, match="two frames"):
        ptd.compare_distributions([1.0], [2.0, 3.0])
    with pytest.raises(ArgumentError, match="not finite"):
        ptd.compare_distributions([1.0, np.nan], [2.0, 3.0])
    with pytest.raises(ArgumentError, match="2 values per frame, 3 bins"):
        ptd.compare_distributions(np.zeros((5, 2)), np.zeros((5, 2)), bins=[2, 2, 2])
