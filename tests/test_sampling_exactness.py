"""What the samplers sample, against exact averages and long Cartesian runs. Slow.

Every comparison is of samples thinned, or error bars widened, by the autocorrelation time. Histograms: false-alarm rate
1e-4 each; means and slopes: 4 standard errors, 6e-5 each.
"""

from __future__ import annotations

import math

import butane
import numpy as np
import pytest
from test_moves import EDGES, histogram_p_value

import peptidyn as ptd
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.replicas import run_stretch

pytestmark = pytest.mark.slow


def mean_and_error(x: np.ndarray) -> tuple[float, float]:
    return float(x.mean()), float(x.std() * math.sqrt(statistical_inefficiency(x) / len(x)))


def agree(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two series have the same mean within 4 standard errors."""
    (m1, e1), (m2, e2) = mean_and_error(a), mean_and_error(b)
    return abs(m1 - m2) < 4 * math.hypot(e1, e2)


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


# ---------------------------------------------------------------------------- butane: exact averages


def test_gibbs_sampling_of_flexible_butane_is_exact():
    T = 400.0
    sampler = ptd.GibbsSampler(
        [ptd.TorsionalHMC(0.02, 6), ptd.CartesianHMC(0.006, 8)], butane.make_tree(), butane.make_system(), T,
        platform="Reference", seed=11,
    )  # fmt: skip
    sampler.warm_up(300)
    samples = sampler.run(8000, positions=True)
    exact = butane.exact(T, EDGES, 1_000_000)
    assert histogram_p_value(samples.q[:, 0], exact["torsion"]) > 1e-4
    mean, error = mean_and_error(samples.energy)
    assert abs(mean - exact["total"]) < 4 * error and error < 0.03 * exact["total"]
    x = samples.positions.astype(np.float64)
    bonds = 0.5 * butane.K_BOND * ((np.linalg.norm(np.diff(x, axis=1), axis=2) - butane.BOND) ** 2).sum(axis=1)
    mean, error = mean_and_error(bonds)
    assert abs(mean - exact["bonds"]) < 4 * error and error < 0.03 * exact["bonds"]


def test_the_ratio_check_finds_a_wrong_temperature():
    rng = np.random.default_rng(0)
    T1, T2 = 400.0, 600.0
    cold, hot = (rng.gamma(3.5, BOLTZMANN * T, 2000) for T in (T1, T2))
    check_ratio(cold, hot, T1, T2)
    with pytest.raises(AssertionError):
        check_ratio(cold, 0.85 * hot, T1, T2)


def test_a_stretch_is_a_pure_function():
    """The same stretch twice, with others in between, gives the same bits."""
    with ptd.ReplicaExchange(
        butane.make_tree(), butane.make_system(), [300, 400], moves=[ptd.TorsionalHMC(0.01, 3, friction=1.0)],
        platform="Reference",
    ) as exchange:  # fmt: skip
        task = (exchange.replicas[0], 300.0, [0.01], 3, 1)
        first = run_stretch(exchange.recipe, *task)
        run_stretch(exchange.recipe, exchange.replicas[1], 400.0, [0.02], 2, 1)
        second = run_stretch(exchange.recipe, *task)
    assert np.array_equal(first.q, second.q) and first.final_potential == second.final_potential
