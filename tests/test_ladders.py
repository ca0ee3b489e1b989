"""Temperatures chosen from energies, against harmonic systems whose acceptance rates are known."""

from __future__ import annotations

import numpy as np
import pytest

from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.ladders import choose_temperatures, normal_acceptance

SHAPE = 60
"""V / kT of 120 harmonic coordinates has a gamma distribution of this shape."""


def energies(T, rng, n):
    return [BOLTZMANN * t * rng.gamma(SHAPE, size=n) for t in T]


@pytest.mark.parametrize("wanted", [0.2, 0.4])
def test_neighbours_exchange_as_often_as_asked(wanted):
    """The rate of every pair of the ladder, from fresh energies, is at least the one asked for, and not far above."""
    rng = np.random.default_rng(1)
    pilot = np.array([280.0, 350.0, 430.0, 500.0])
    T = choose_temperatures(pilot, energies(pilot, rng, 2000), wanted)
    assert T[0] == 280.0 and T[-1] == pytest.approx(500.0) and (np.diff(T) > 0).all()
    fresh = energies(T, rng, 20_000)
    for k in range(len(T) - 1):
        step = 1 / (BOLTZMANN * T[k]) - 1 / (BOLTZMANN * T[k + 1])
        rate = np.minimum(1, np.exp(-step * (fresh[k + 1] - fresh[k]))).mean()
        assert wanted - 0.03 < rate < wanted + 0.2  # the model of normal energies is good to 0.03
    assert len(choose_temperatures(pilot, energies(pilot, rng, 2000), 0.1)) < len(T)


def test_acceptance_of_normal_changes_by_quadrature():
    rng = np.random.default_rng(2)
    for mean, variance in ((1.0, 2.0), (3.0, 1.0), (0.5, 0.0)):
        D = mean + np.sqrt(variance) * rng.standard_normal(400_000)
        assert normal_acceptance(mean, variance) == pytest.approx(np.minimum(1, np.exp(-D)).mean(), abs=0.003)


def test_close_ends_need_no_temperature_between_them():
    rng = np.random.default_rng(3)
    T = np.array([300.0, 305.0])
    assert choose_temperatures(T, energies(T, rng, 100)).tolist() == pytest.approx([300.0, 305.0])


def test_refusals():
    with pytest.raises(ArgumentError, match="two rising ones"):
        choose_temperatures([300.0], [np.zeros(5)])
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        choose_temperatures([300.0, 400.0], [np.zeros(5), np.ones(5)], 1.2)
