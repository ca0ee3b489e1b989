"""Temperatures of replica exchange from energies that a short run has sampled."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import BOLTZMANN

MOST = 200
"""Temperatures of a ladder, at most."""


def normal_acceptance(mean: float, variance: float) -> float:
    """Return the mean of min(1, exp(-D)) over D that is normally distributed."""
    if variance <= 0:
        return math.exp(-max(0.0, mean))
    s = math.sqrt(variance)
    return float(np.exp(log_ndtr(-mean / s)) + np.exp(-mean + 0.5 * variance + log_ndtr(mean / s - s)))


def choose_temperatures(
    temperatures: Sequence[float] | np.ndarray, energies: Sequence[np.ndarray], acceptance: float = 0.3
) -> np.ndarray:
    """Return temperatures (K) from the lowest to the highest one, between which neighbours exchange equally often.

    Energies are taken as normally distributed at every temperature, with means and variances of V / kT that change
    linearly between those that were sampled. Acceptance rates are then known, and temperatures are placed one after the
    other. At last all gaps are made a little smaller, so that the ladder ends at the highest temperature: rates are at
    least the one asked for.

    Parameters
    ----------
    temperatures : (n,)
        K, rising: those of a short run.
    energies : sequence of (n_i,)
        V of its frames at every temperature, kJ/mol, without the part that was not in equilibrium.
    acceptance : float
        Wanted acceptance rate of exchanges between neighbours.
    """
    T = np.asarray(temperatures, dtype=np.float64)
    if len(T) < 2 or len(energies) != len(T) or min(map(len, energies)) < 2 or (np.diff(T) <= 0).any():
        raise ArgumentError("choosing temperatures needs two rising ones or more, with two energies or more at each")
    if not 0.0 < acceptance < 1.0:
        raise ArgumentError(f"the acceptance rate is {acceptance:g}, expected a number between 0 and 1")
    # <V> never falls with T; a short run may say otherwise
    mean = np.maximum.accumulate([np.mean(e) for e in energies])
    spread = np.array([np.std(e) for e in energies]) / (BOLTZMANN * T)

    def rate(a: float, b: float) -> float:
        m = [float(np.interp(t, T, mean)) for t in (a, b)]
        v = [(BOLTZMANN * t * float(np.interp(t, T, spread))) ** 2 for t in (a, b)]
        step = 1.0 / (BOLTZMANN * a) - 1.0 / (BOLTZMANN * b)
        return normal_acceptance(step * (m[1] - m[0]), step**2 * (v[0] + v[1]))

    chosen = [float(T[0])]
    while rate(chosen[-1], T[-1]) < acceptance:
        low = chosen[-1]
        chosen.append(float(brentq(lambda high, low: rate(low, high) - acceptance, low * (1 + 1e-9), T[-1], (low,))))
        if len(chosen) > MOST:
            raise ArgumentError(f"more than {MOST} temperatures are needed; bring the ends closer or accept less")
    # the last gap is shorter than the others: spread what is left over all of them
    ladder = np.array([*chosen, float(T[-1])])
    if len(ladder) > 2:
        # rates fall as erfc of the gap, nearly linearly
        full = len(ladder) - 2 + min(1.0, (1.0 - rate(ladder[-2], ladder[-1])) / (1.0 - acceptance))
        places = np.linspace(0.0, full, len(ladder))
        known = np.append(np.arange(len(ladder) - 1.0), full)
        ladder[1:-1] = np.exp(np.interp(places, known, np.log(ladder)))[1:-1]
    return ladder
