"""Averages over all temperatures of a replica exchange run, as functions of temperature, with errors.

Frames of all temperatures are weighted by the multistate estimator MBAR (`peptidyn.sampling.mbar`). Errors are those of
a jackknife over blocks of consecutive iterations, all temperatures together: free energies are solved anew without each
block, so what replicas share by exchanging is counted. Blocks are longer than what replicas remember: a conformation
that lasts longer than a block would be counted as several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import expit

from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.mbar import temperature_weights

FEWEST_BLOCKS, MOST_BLOCKS = 5, 10
BLOCK = 3.0
"""Length of a block of the jackknife, in statistical inefficiencies: longer if there were more than ten such blocks,
shorter if there were fewer than five."""


@dataclass(frozen=True, eq=False)
class Curve:
    """An average as a function of temperature.

    Attributes
    ----------
    temperatures : (t,)
        K.
    mean, error : (t, ...)
    replicates : (n_blocks, t, ...)
        The average without each block.
    inefficiency : float
        Iterations that count as one independent one.
    """

    temperatures: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    replicates: np.ndarray
    inefficiency: float = np.nan

    def derived(self, function: Callable[[np.ndarray], Any]) -> tuple[Any, Any]:
        """Return ``function(mean)`` and its standard error, by the same jackknife."""
        value = np.asarray(function(self.mean), dtype=np.float64)
        error = jackknife_error(np.array([function(one) for one in self.replicates], dtype=np.float64))
        return (float(value), float(error)) if value.ndim == 0 else (value, error)


def melting_curve(
    values: np.ndarray,
    energies: np.ndarray,
    temperatures: np.ndarray,
    at: np.ndarray,
    *,
    log_weights: np.ndarray | None = None,
    blocks: int | None = None,
    runs: int = 1,
    memory: float = 1.0,
) -> Curve:
    """Return the averages of `values` at temperatures `at`, from the frames of all sampled temperatures.

    Parameters
    ----------
    values : (n_levels, n_frames, ...)
        Of the frames sampled at every temperature, in the order of iterations.
    energies : (n_levels, n_frames)
        V of the same frames, kJ/mol.
    temperatures : (n_levels,)
        K, at which they were sampled.
    at : (t,)
        K; between the lowest and the highest of `temperatures`.
    log_weights : (n_levels, n_frames), optional
        Logarithms of weights of the frames, for averages over another distribution: ``U_F / kT`` gives those that the
        rigid model has without the Fixman potential.
    blocks : int, optional
        Of the jackknife, in every run. By default 5 to 10, three times as long as the statistical inefficiency.
    runs : int
        Independent runs of equal length whose frames follow one another.
    memory : float
        Statistical inefficiency of the values along replicas, if it is known. At one temperature exchanges hide how
        long a conformation lasts.
    """
    x, V = np.asarray(values, dtype=np.float64), np.asarray(energies, dtype=np.float64)
    T, at = np.asarray(temperatures, dtype=np.float64), np.atleast_1d(np.asarray(at, dtype=np.float64))
    extra = np.zeros(V.shape) if log_weights is None else np.asarray(log_weights, dtype=np.float64)
    if x.shape[:2] != V.shape or V.shape[0] != len(T) or extra.shape != V.shape:
        raise ArgumentError(
            f"values, energies and log_weights have shapes {x.shape}, {V.shape} and {extra.shape}; expected "
            f"({len(T)}, n_frames) of all, one row per temperature"
        )
    length, rest = divmod(V.shape[1], runs)
    if length < 2 * (blocks or 2) or rest:
        raise ArgumentError(
            f"{V.shape[1]} frames per temperature are too few for {blocks or 2} blocks of two frames in each of {runs} "
            "runs of equal length; run longer"
        )
    weights, free = _weights(V, extra, T, at, None)
    mean = _average(weights, x)
    slowest = max(memory, _inefficiency(weights, x, mean, runs))
    count = runs * (blocks or min(length // 2, int(np.clip(length / (BLOCK * slowest), FEWEST_BLOCKS, MOST_BLOCKS))))
    place = np.arange(V.shape[1]) * count // V.shape[1]
    others = [place != block for block in range(count)]
    replicates = np.array([_average(_weights(V[:, i], extra[:, i], T, at, free)[0], x[:, i]) for i in others])
    return Curve(at, mean, jackknife_error(replicates), replicates, slowest)


def _weights(
    V: np.ndarray, extra: np.ndarray, T: np.ndarray, at: np.ndarray, free: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (t, n_levels, n_frames) with the sum 1, and free energies to start the next solution from."""
    weights, free = temperature_weights(V, T, at, free)
    weights = weights * np.exp(extra.ravel() - extra.max())
    weights /= weights.sum(axis=1, keepdims=True)
    return weights.reshape(len(at), *V.shape), free


def _average(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return averages (t, ...)."""
    return np.tensordot(weights, x, axes=2)


def _inefficiency(weights: np.ndarray, x: np.ndarray, mean: np.ndarray, runs: int) -> float:
    """Return the largest statistical inefficiency of what iterations add to an average, w (x - mean), in any run."""
    flat, means = x.reshape(*x.shape[:2], -1), mean.reshape(len(mean), -1)
    influence = np.einsum("tkn,knc->tnc", weights, flat) - weights.sum(axis=1)[..., None] * means[:, None]
    series = influence.transpose(0, 2, 1).reshape(-1, runs, x.shape[1] // runs)
    return max(statistical_inefficiency(one) for curve in series for one in curve)


def heat_capacity(energies: np.ndarray, temperatures: np.ndarray, at: np.ndarray, **options: Any) -> Curve:
    """Return the heat capacity of the potential energy, (<V^2> - <V>^2) / kT^2, kJ/mol/K.

    Parameters
    ----------
    energies, temperatures, at
        As for `melting_curve`.
    **options
        Of `melting_curve`.
    """
    V = np.asarray(energies, dtype=np.float64)
    centred = V - V.mean()
    moments = melting_curve(np.stack([centred, centred**2], axis=2), V, temperatures, at, **options)

    def capacity(m: np.ndarray) -> np.ndarray:
        return (m[..., 1] - m[..., 0] ** 2) / (BOLTZMANN * moments.temperatures**2)

    replicates = np.array([capacity(one) for one in moments.replicates])
    return Curve(
        moments.temperatures, capacity(moments.mean), jackknife_error(replicates), replicates, moments.inefficiency
    )


def melting_temperature(curve: Curve, half: float = 0.5) -> tuple[float, float]:
    """Return the temperature (K) at which a falling curve passes `half`, and its error; nan if it does not."""

    def crossing(y: np.ndarray) -> float:
        above = y >= half
        places = np.flatnonzero(above[:-1] & ~above[1:])
        if not len(places):
            return np.nan
        i = places[-1]
        T = curve.temperatures
        return float(T[i] + (T[i + 1] - T[i]) * (y[i] - half) / (y[i] - y[i + 1]))

    return curve.derived(crossing)


def boltzmann_slopes(energies: np.ndarray, temperatures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whether energies of neighbouring temperatures have the ratio of Boltzmann: 1 for each pair if they do.

    ln p_b(V) / p_a(V) is a straight line in V with the slope 1/kT_a - 1/kT_b, whatever the density of states. The slope
    that is most likely, by logistic regression, is returned relative to that (M. R. Shirts, J. Chem. Theory Comput. 9,
    909, 2013). A thermostat, time step or exchange that is wrong at one temperature shows here, without a reference.

    Parameters
    ----------
    energies : (n_levels, n_frames)
        V at every temperature in the order of iterations, kJ/mol.
    temperatures : (n_levels,)
        K.

    Returns
    -------
    slopes, errors : (n_levels - 1,)
    """
    V, beta = np.asarray(energies, dtype=np.float64), 1.0 / (BOLTZMANN * np.asarray(temperatures, dtype=np.float64))
    slopes, errors = np.empty((2, len(V) - 1))
    for i, (low, high) in enumerate(pairwise(V)):
        both, warm = np.concatenate([low, high]), np.repeat([0.0, 1.0], [len(low), len(high)])
        unit = both.std()
        x = np.column_stack([np.ones(len(both)), (both - both.mean()) / unit])
        found = np.array([0.0, 1.0])
        for _ in range(50):
            p = expit(x @ found)
            curvature = (x * (p * (1.0 - p))[:, None]).T @ x
            step = np.linalg.solve(curvature, x.T @ (warm - p))
            found += step
            if np.abs(step).max() < 1e-10:
                break
        memory = max(statistical_inefficiency(low), statistical_inefficiency(high))
        expected = (beta[i] - beta[i + 1]) * unit
        slopes[i] = found[1] / expected
        errors[i] = np.sqrt(memory * np.linalg.inv(curvature)[1, 1]) / expected
    return slopes, errors


def jackknife_error(replicates: np.ndarray) -> np.ndarray:
    """Return the standard error (...) of an average from its values without each block (n_blocks, ...)."""
    n = len(replicates)
    return np.sqrt((n - 1) / n * ((replicates - replicates.mean(axis=0)) ** 2).sum(axis=0))
