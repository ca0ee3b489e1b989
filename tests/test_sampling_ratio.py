"""Energies at two temperatures: ln P2/P1 is linear with the right slope, for torsional HMC and Gibbs sampling. Slow."""

from __future__ import annotations

import butane
import pytest
from correlated_samples import check_ratio

import peptidyn as ptd

pytestmark = pytest.mark.slow


def test_energy_ratio_of_torsional_hmc_and_gibbs():
    """ln P2/P1 of the energies is linear with slope 1/kT1 - 1/kT2, for the rigid and for the flexible distribution."""
    T1, T2 = 400.0, 600.0
    for moves, n in (
        (lambda: [ptd.TorsionalHMC(0.03, 6)], 4000),
        (lambda: [ptd.TorsionalHMC(0.02, 4), ptd.CartesianHMC(0.008, 8)], 3000),
    ):
        series = []
        for T in (T1, T2):
            sampler = ptd.GibbsSampler(
                moves(), butane.make_tree(), butane.make_system(), T, platform="Reference", seed=3
            )
            sampler.run(100)
            series.append(sampler.run(n).energy)
        check_ratio(*series, T1, T2)
