"""Exchanges of temperatures between replicas, by Gibbs sampling over all pairs.

Configurations stay, and temperatures are assigned to them anew. An assignment s of replicas to levels has the
probability exp(-sum over replicas r of u[s(r), r]), with u[k, r] the reduced energy of replica r at level k. Many pairs
of replicas, drawn at random, exchange their levels or not by a Metropolis test, which leaves that distribution
invariant; enough of them draw an assignment that is nearly independent of the one before. Replicas then travel farther
per exchange than by single exchanges of neighbours. The idea is that of J. D. Chodera and M. R. Shirts, J. Chem. Phys.
135, 194110 (2011).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.moves import metropolis

MOST_ATTEMPTS = 20_000
"""Pairs that are tried in one exchange, at most; with up to 27 replicas it is the third power of their number."""


@dataclass(frozen=True, eq=False)
class Swaps:
    """What an exchange did.

    Attributes
    ----------
    levels : (n_replicas,) int
        The level that each replica has now.
    attempted, accepted : (n_replicas - 1,) int
        Attempts between replicas at neighbouring levels, counted at the lower one. Every single attempt leaves the
        joint distribution invariant, so their ratio is the acceptance rate of plain exchanges of neighbours.
    """

    levels: np.ndarray
    attempted: np.ndarray
    accepted: np.ndarray


def reduced_energies(potential: np.ndarray, metric: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
    """Return u = V / kT_k + U_F / kT of configurations at all temperatures, (..., n_levels).

    Parameters
    ----------
    potential : (...)
        V, kJ/mol.
    metric : (...)
        U_F / kT, which is the same at every temperature.
    temperatures : (n_levels,)
        K.
    """
    beta = 1.0 / (BOLTZMANN * np.asarray(temperatures))
    return np.asarray(potential)[..., None] * beta + np.asarray(metric)[..., None]


def exchange_change(u: np.ndarray, levels: np.ndarray, i: int, j: int) -> float:
    """Return how the sum of reduced energies changes if replicas i and j exchange levels; `u` as for `swap_pairs`."""
    a, b = levels[i], levels[j]
    return float(u[i, b] + u[j, a] - u[i, a] - u[j, b])


def swap_pairs(u: np.ndarray, levels: np.ndarray, rng: np.random.Generator, attempts: int | None = None) -> Swaps:
    """Try to exchange the levels of pairs of replicas, drawn at random.

    Parameters
    ----------
    u : (n_replicas, n_levels)
        Reduced energies of every replica at every level.
    levels : (n_replicas,) int
        Present levels; they stay as they are.
    rng : numpy Generator
    attempts : int, optional
        Pairs to try; the third power of the number of replicas if not given, and 20,000 at most.
    """
    n = len(levels)
    count = min(n**3, MOST_ATTEMPTS) if attempts is None else attempts
    levels = levels.copy()
    attempted, accepted = np.zeros((2, n - 1), dtype=np.int64)
    first = rng.integers(n, size=count)
    second = (first + rng.integers(1, n, size=count)) % n
    for i, j, uniform in zip(first.tolist(), second.tolist(), rng.random(count).tolist(), strict=True):
        a, b = levels[i], levels[j]
        swapped = metropolis(exchange_change(u, levels, i, j), uniform)
        if abs(a - b) == 1:
            attempted[min(a, b)] += 1
            accepted[min(a, b)] += swapped
        if swapped:
            levels[i], levels[j] = b, a
    return Swaps(levels, attempted, accepted)
