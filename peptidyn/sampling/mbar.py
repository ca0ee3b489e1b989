"""What all temperatures of a replica exchange run say together, by the multistate estimator MBAR.

M. R. Shirts and J. D. Chodera, J. Chem. Phys. 129, 124105 (2008); pymbar solves it. The reduced potentials are V/kT_i:
U_F/kT is the same at every temperature and drops out of the weights.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
from scipy.special import logsumexp

from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.core.units import BOLTZMANN

MOST_FRAMES = 500
"""Frames per temperature that are used, at most."""

SOLVED = 1e-7
"""How far sums of weights may be from one."""


class TemperatureMBAR:
    """Overlap of temperatures, and averages of the energy at any temperature between them.

    Parameters
    ----------
    energies : list of (n_i,)
        V of the frames at every temperature, kJ/mol, in the order in which they were sampled.
    temperatures : (m,)
        K.
    """

    def __init__(self, energies: list[np.ndarray], temperatures: np.ndarray):
        thinned = [e[:: -(-len(e) // MOST_FRAMES) or 1] for e in energies]
        self.inefficiency = max(statistical_inefficiency(e) for e in thinned if len(e))
        self._energy = np.concatenate(thinned)
        counts = np.array([len(e) for e in thinned])
        self._mbar = _solved(self._reduced(temperatures), counts)

    def _reduced(self, temperatures: np.ndarray) -> np.ndarray:
        # shifted, which changes free energies only, so that exponents stay small
        return (self._energy - self._energy.mean())[None] / (BOLTZMANN * np.asarray(temperatures)[:, None])

    @property
    def overlap(self) -> np.ndarray:
        """Probability (m, m) that a frame of temperature i is found at temperature j; rows sum to one.

        Neighbours that share less than 0.03 are hardly connected.
        """
        return self._mbar.compute_overlap()["matrix"]

    def mean_energy(self, temperatures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return <V> (n,) at temperatures (n,), K, and its standard error, kJ/mol.

        The error counts all frames as correlated as those of the slowest temperature.
        """
        result = self._mbar.compute_expectations(self._energy, self._reduced(temperatures))
        return result["mu"], np.sqrt(self.inefficiency) * result["sigma"]


def temperature_weights(
    energies: np.ndarray, temperatures: np.ndarray, at: np.ndarray, free: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of all frames at temperatures `at`, and the reduced free energies of the sampled ones.

    Parameters
    ----------
    energies : (n_levels, n_frames)
        V of the frames at every sampled temperature, kJ/mol.
    temperatures : (n_levels,)
        K.
    at : (t,)
        K.
    free : (n_levels,), optional
        Free energies to start from.

    Returns
    -------
    weights : (t, n_levels * n_frames)
        Each row sums to one.
    free : (n_levels,)
    """
    n, count = energies.shape
    V = energies.ravel() - energies.mean()
    beta = 1.0 / (BOLTZMANN * np.asarray(temperatures))
    solved = _solved(beta[:, None] * V, np.full(n, count), free)
    # ln of the mixture of all sampled distributions, in which every frame was drawn
    terms = np.log(count) + solved.f_k[:, None] - beta[:, None] * V
    mixture = logsumexp(terms, axis=0)
    log_weights = -V[None] / (BOLTZMANN * np.asarray(at)[:, None]) - mixture
    return np.exp(log_weights - logsumexp(log_weights, axis=1)[:, None]), np.array(solved.f_k)


def energies_by_level(rows: np.ndarray, count: int) -> list[np.ndarray]:
    """Return V (n_i,), kJ/mol, of the frames at each of `count` temperatures, in the order of iterations.

    Parameters
    ----------
    rows : (n,)
        Frames of all replicas; see `peptidyn.sampling.storage.ENERGY_ROW`.
    count : int
    """
    rows = rows[np.argsort(rows["iteration"], kind="stable")]
    return [rows["potential"][rows["level"] == level] for level in range(count)]


def _solved(reduced: np.ndarray, counts: np.ndarray, free: np.ndarray | None = None) -> Any:
    """Return pymbar's solution, checked: the weights of all frames sum to one at every sampled temperature.

    pymbar's own test is another one: of a handful of frames it may search on for half a minute after it has found the
    solution, and then warn. Its messages are left out; when imported it recommends jax.
    """
    logger = logging.getLogger("pymbar")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        from pymbar import MBAR

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for way in ([{"method": "hybr"}], "robust"):
                mbar = MBAR(reduced, counts, solver_protocol=way, initial_f_k=free)
                off = np.abs(mbar.W_nk.sum(axis=0) - 1.0)[counts > 0].max()
                if off < SOLVED:
                    return mbar
    finally:
        logger.setLevel(level)
    warnings.warn(
        f"MBAR has not converged: weights of a temperature sum to 1 only to {off:.1g}; averages over all temperatures "
        "may be wrong; neighbouring temperatures may be too far apart",
        stacklevel=3,
    )
    return mbar
