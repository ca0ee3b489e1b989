"""`compare_distributions`: equal and unequal distributions of correlated samples, with known distances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

import peptidyn as ptd
from peptidyn.analysis.distributions import Comparison
from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import statistical_inefficiency


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


def turns(n, period):
    """Return 1 in every `period`-th frame, else 0: a series that counts frame by frame, since it never stays."""
    return np.arange(n) % period == 0


def test_two_cells_by_hand():
    """80 frames, half of them in the right cell, and 160, a quarter of them there."""
    a, b = np.where(turns(80, 2), 0.7, 0.2), np.where(turns(160, 4), 1.3, -0.1)  # the last two lie outside
    found = ptd.compare_distributions(a, b, bins=2, limits=(0, 1))
    assert found.total_variation == pytest.approx(0.25) and found.independent == (80.0, 160.0)
    # a third of all frames is in the right cell
    assert found.noise == pytest.approx(np.sqrt(2 / np.pi) * np.sqrt(2 / 9 * (1 / 80 + 1 / 160)))
    z = 0.25 / np.sqrt(0.25 / 80 + 0.1875 / 160)
    assert found.p_value == pytest.approx(2 * 2 * norm.sf(z), rel=1e-9)


def test_rare_cells_are_compared_together():
    """Cells 2 and 3 hold 8 frames of the first sample each, and none of the second: fewer than 20."""
    a, b = np.where(turns(160, 2), 0.5, 1.5), np.where(turns(160, 2), 1.5, 0.5)
    a[::20], a[10::20] = 2.5, 3.5
    found = ptd.compare_distributions(a, b, bins=4, limits=(0, 4))
    assert found.total_variation == pytest.approx(0.1) and found.independent == (160.0, 160.0)
    share = (0.4 + 0.5) / 2, 0.5, 0.025, 0.025
    spread = sum(np.sqrt(p * (1 - p) * 2 / 160) for p in share)
    assert found.noise == pytest.approx(0.5 * np.sqrt(2 / np.pi) * spread)
    z = 0.1 / np.sqrt(0.09 / 160)  # of both rare cells; the left one differs as much, with the larger error
    assert found.p_value == pytest.approx(3 * 2 * norm.sf(z), rel=1e-9)


def test_correlated_frames_count_less():
    """Stretches of 30 frames in one cell; errors and independent samples follow their correlation."""
    a, b = np.tile(np.repeat([0.2, 0.7], 30), 20), np.where(turns(1200, 4), 0.7, 0.2)
    g = statistical_inefficiency(a)
    found = ptd.compare_distributions(a, b, bins=2, limits=(0, 1))
    assert g > 5 and found.independent == (pytest.approx(1200 / g), 1200.0)
    z = 0.25 / np.sqrt(g * 0.25 / 1200 + 0.1875 / 1200)
    assert found.p_value == pytest.approx(2 * 2 * norm.sf(z), rel=1e-9)


@pytest.mark.parametrize("bins", [[2, 3], [[0, 1, 2], [0, 1, 2, 3]]])
def test_cells_of_two_columns(bins):
    """All six cells are told apart: shares 1..6 of 21 against 6..1."""
    cells = np.array([(i + 0.5, j + 0.5) for i in range(2) for j in range(3)])
    a, b = (np.tile(np.repeat(cells, shares, axis=0), (40, 1)) for shares in (range(1, 7), range(6, 0, -1)))
    limits = None if isinstance(bins[0], list) else [(0, 2), (0, 3)]
    found = ptd.compare_distributions(a, b, bins=bins, limits=limits)
    assert found.total_variation == pytest.approx((5 + 3 + 1) / 21)


def test_samples_of_one_cell_each():
    """Nothing varies, so that no error is known: they are equal, or they are not."""
    same, other = np.full(50, 0.2), np.full(50, 0.8)
    assert ptd.compare_distributions(same, same, bins=2, limits=(0, 1)).p_value == 1.0
    assert ptd.compare_distributions(same, other, bins=2, limits=(0, 1)).p_value == 0.0


def test_cells_may_be_given_in_several_ways():
    """Edges for one column; one number, one array of edges or one pair of limits for both of two columns."""
    a = np.tile([0.5, 1.5, 2.5, 2.5], 20)
    b = np.tile([0.5, 0.5, 1.5, 2.5], 20)
    for bins, limits in (([0, 1, 2, 3], None), (np.array([0.0, 1.0, 2.0, 3.0]), None), (3, (0, 3)), (3, [(0, 3)])):
        assert ptd.compare_distributions(a, b, bins=bins, limits=limits).total_variation == pytest.approx(0.25)
    x, y = np.stack([a, a], axis=1), np.stack([b, b[::-1]], axis=1)
    shares = [np.histogram2d(*z.T, bins=3, range=[(0, 3), (0, 3)])[0] / 80 for z in (x, y)]
    wanted = 0.5 * np.abs(shares[0] - shares[1]).sum()
    edges = np.arange(4.0)
    for bins, limits in (
        (3, (0, 3)),
        (edges, None),
        ([3, 3], (0, 3)),
        ((edges, edges), None),
        ([3, edges], [(0, 3), (9, 9)]),
    ):
        assert ptd.compare_distributions(x, y, bins=bins, limits=limits).total_variation == pytest.approx(wanted)
    with pytest.raises(ArgumentError, match="2 values per frame, 2 bins and 3 limits"):
        ptd.compare_distributions(x, y, bins=3, limits=[(0, 3)] * 3)


def test_cells_span_the_values_of_both_samples():
    """0 and 1 against 0 and 9: two cells from 0 to 9, of which the second holds half of one sample only."""
    a, b = np.where(turns(80, 2), 1.0, 0.0), np.where(turns(80, 2), 9.0, 0.0)
    for samples in ((a, b), (b, a), (a, -b)):
        assert ptd.compare_distributions(*samples, bins=2).total_variation == pytest.approx(0.5)


def test_values_on_an_edge_belong_to_the_cell_above_it():
    """But for the last edge, which is inside: 0 and 1 | 2 and 3."""
    a, b = np.tile([0.0, 1.0, 2.0, 3.0], 30), np.tile([0.5, 1.0, 2.5, 2.0], 30)
    assert ptd.compare_distributions(a, b, bins=[0, 2, 3]).total_variation == 0.0
    assert ptd.compare_distributions(a, b, bins=[0, 1, 2, 3]).total_variation == 0.0


def test_rare_cells_differ_by_the_share_of_both():
    """Five frames in each of the rare cells of both samples: together they do not differ, and p counts them once."""
    a, b = np.where(turns(160, 2), 0.5, 1.5), np.where(turns(160, 2), 0.5, 1.5)
    a[::32], b[1::32] = 2.5, 3.5
    found = ptd.compare_distributions(a, b, bins=4, limits=(0, 4))
    z = 5 / 160 / np.sqrt(2 * 75 / 160 * 85 / 160 / 160)
    assert found.p_value == pytest.approx(min(1.0, 3 * 2 * norm.sf(z)), rel=1e-6)
    assert found.total_variation == pytest.approx(0.5 * 4 * 5 / 160)


def test_the_text_names_both_samples():
    text = str(Comparison(0.1234, 0.0456, 0.00123, (80.0, 160.0)))
    assert text == "total variation 0.123 (0.046 by chance), p = 0.0012, 80 and 160 independent samples"
