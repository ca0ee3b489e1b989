"""What the samplers sample, against exact averages and long Cartesian runs. Slow.

Every comparison is of samples thinned, or error bars widened, by the autocorrelation time. Histograms: false-alarm rate
1e-4 each; means and slopes: 4 standard errors, 6e-5 each.
"""

from __future__ import annotations

import butane
import numpy as np
import pytest
from correlated_samples import EDGES, check_ratio, histogram_p_value, mean_and_error

import peptidyn as ptd
from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.replicas import run_stretch

pytestmark = pytest.mark.slow


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
