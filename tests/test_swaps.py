"""Exchanges of temperatures: one attempt by hand, and the distribution of assignments against all permutations."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chi2

from peptidyn.sampling.moves import metropolis
from peptidyn.sampling.swaps import exchange_change, reduced_energies, swap_pairs


# D = (1 / R 300 K - 1 / R 400 K) (16 - 10 kJ/mol) = 0.100227 mol/kJ x 6 kJ/mol = 0.60136, and exp(-D) = 0.54807
@pytest.mark.parametrize("metric", [(0.0, 0.0, 0.0), (20.0, -20.0, 3.0)], ids=["no U_F", "U_F drops out"])
def test_the_criterion_by_hand(metric):
    u = reduced_energies(np.array([10.0, 16.0, -1000.0]), np.array(metric), np.array([300.0, 400.0, 500.0]))
    change = exchange_change(u, np.array([0, 1, 2]), 0, 1)
    assert change == pytest.approx(0.60136, abs=1e-5)
    assert exchange_change(u, np.array([1, 0, 2]), 0, 1) == pytest.approx(-0.60136, abs=1e-5)
    assert metropolis(change, 0.547) and not metropolis(change, 0.549) and metropolis(-change, 0.999999)


def test_assignments_have_their_probabilities():
    """exp(-sum of u) over the 24 permutations of 4 levels. 4,000 draws; chi-squared fails in 1 of 10,000 cases."""
    rng = np.random.default_rng(3)
    u = rng.normal(size=(4, 4))
    every = list(permutations(range(4)))
    weights = np.array([np.exp(-u[np.arange(4), s].sum()) for s in every])
    counts, levels = dict.fromkeys(every, 0), np.arange(4)
    for _ in range(4000):
        levels = swap_pairs(u, levels, rng).levels  # 64 attempts: successive assignments are independent
        counts[tuple(levels.tolist())] += 1
    expected = 4000 * weights / weights.sum()
    assert (((np.array(list(counts.values())) - expected) ** 2) / expected).sum() < chi2.ppf(1 - 1e-4, 23)


def test_counts_are_of_neighbours_and_give_the_acceptance_of_neighbours():
    """Of configurations that have their equilibrium distribution, here harmonic ones, whatever the other attempts do.

    20,000 exchanges of 3 replicas in 2 dimensions, V / kT exponential; the mean of min(1, exp(-D)) over independent
    pairs has a standard error of 0.002, and attempts of one exchange are correlated: 0.012 is 4 standard errors.
    """
    rng = np.random.default_rng(5)
    T = np.array([300.0, 400.0, 700.0])
    kT = 0.00831446261815324 * T
    attempted, accepted = np.zeros(2), np.zeros(2)
    for _ in range(20_000):
        V = rng.exponential(kT)
        swaps = swap_pairs(reduced_energies(V, np.zeros(3), T), np.arange(3), rng, attempts=6)
        assert sorted(swaps.levels.tolist()) == [0, 1, 2]
        attempted, accepted = attempted + swaps.attempted, accepted + swaps.accepted
    # for V exponential, min(1, exp(-D)) averages to 2 T_cold / (T_cold + T_hot)
    expected = 2 * T[:-1] / (T[:-1] + T[1:])
    assert accepted / attempted == pytest.approx(expected, abs=0.012)
    assert attempted.sum() == pytest.approx(20_000 * 6 * 2 / 3, rel=0.02)  # one pair of three are no neighbours


def test_nothing_is_exchanged_with_an_infinite_energy():
    u = np.array([[0.0, np.inf], [0.0, 0.0]])
    swaps = swap_pairs(u, np.array([0, 1]), np.random.default_rng(0))
    assert swaps.levels.tolist() == [0, 1] and swaps.attempted.tolist() == [8] and swaps.accepted.tolist() == [0]
