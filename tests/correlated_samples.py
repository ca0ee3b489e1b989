"""Correlated samples compared with exact averages and with each other; errors count the autocorrelation time."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from peptidyn.analysis.distributions import compare_distributions
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.core.units import BOLTZMANN

EDGES = np.linspace(-np.pi, np.pi, 13)
"""Bins of a torsion, 30 degrees each."""


def autoregressive(n: int, rho: float, rng: np.random.Generator) -> np.ndarray:
    """Return a stationary AR(1) series: g = (1 + rho) / (1 - rho)."""
    x = np.empty(n)
    x[0] = rng.normal()
    noise = np.sqrt(1 - rho**2) * rng.normal(size=n)
    for i in range(1, n):
        x[i] = rho * x[i - 1] + noise[i]
    return x


def histogram_p_value(torsion: np.ndarray, expected: np.ndarray) -> float:
    """p-value of chi squared over bins, thinned to independent samples; bins with less than 5 are joined."""
    parts = (np.cos(torsion), np.sin(torsion), np.cos(2 * torsion), np.cos(3 * torsion))
    thin = math.ceil(max(map(statistical_inefficiency, parts)))
    found = np.histogram(torsion[::thin], EDGES)[0]
    wanted = expected / expected.sum() * found.sum()
    small = wanted < 5
    found = np.append(found[~small], found[small].sum())
    wanted = np.append(wanted[~small], wanted[small].sum())
    keep = wanted > 0
    return float(stats.chisquare(found[keep], wanted[keep] * found[keep].sum() / wanted[keep].sum()).pvalue)


def mean_and_error(x: np.ndarray) -> tuple[float, float]:
    return float(x.mean()), float(x.std() * math.sqrt(statistical_inefficiency(x) / len(x)))


def agree(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two series have the same mean within 4 standard errors."""
    (m1, e1), (m2, e2) = mean_and_error(a), mean_and_error(b)
    return abs(m1 - m2) < 4 * math.hypot(e1, e2)


def histograms_agree(a: np.ndarray, b: np.ndarray, rate: float = 1e-5, edges: np.ndarray = EDGES) -> bool:
    """Whether two correlated series have the same histogram, with the given rate of false alarms."""
    return compare_distributions(a, b, bins=edges).p_value > rate


def energy_ratio_slope(cold: np.ndarray, hot: np.ndarray) -> tuple[float, float]:
    """Return the slope of ln(P_hot / P_cold) over the energy and its standard error, by maximum likelihood.

    Given that it is one of both samples, a configuration of energy E is hot with probability 1 / (1 + exp(-(a + b E))):
    logistic regression finds b, without bins. Samples are thinned first.
    """
    parts = [x[:: math.ceil(statistical_inefficiency(x))] for x in (cold, hot)]
    E = np.concatenate(parts)
    E0, scale = E.mean(), E.std()
    X = np.stack([np.ones(len(E)), (E - E0) / scale], axis=1)
    y = np.concatenate([np.zeros(len(parts[0])), np.ones(len(parts[1]))])
    w = np.zeros(2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-X @ w))
        H = (X * (p * (1 - p))[:, None]).T @ X
        w = w + np.linalg.solve(H, X.T @ (y - p))
    return w[1] / scale, math.sqrt(np.linalg.inv(H)[1, 1]) / scale


def check_ratio(cold: np.ndarray, hot: np.ndarray, T1: float, T2: float) -> None:
    slope, error = energy_ratio_slope(cold, hot)
    wanted = 1 / (BOLTZMANN * T1) - 1 / (BOLTZMANN * T2)
    assert error < 0.25 * wanted, "too few samples to say anything"
    assert abs(slope - wanted) < 4 * error, (slope, wanted, error)
