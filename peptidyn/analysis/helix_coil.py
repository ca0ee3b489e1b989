"""The helix-coil model of Lifson and Roig: its partition function, averages, and a fit to what was sampled.

Every residue is helical (h) or not (c). A conformation of a chain has the weight w for every h between two h, v for
every other h, and 1 for every c; beyond the ends there is c. S. Lifson, A. Roig, J. Chem. Phys. 34, 1963 (1961). w says
how much a hydrogen-bonded helix grows, v how costly its ends are. In the terms of Zimm and Bragg s = w / (1 + v) and
sigma = v^2 / (1 + v)^4 (H. Qian, J. A. Schellman, J. Phys. Chem. 96, 3987 (1992)).

With equal w and v for all residues the likelihood of sampled conformations depends on the mean numbers of both kinds of
h alone: the fit finds w and v with which the model has these means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from peptidyn.core.errors import ArgumentError

_START, _END = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])


@dataclass(frozen=True)
class LifsonRoig:
    """Statistical weights of the model.

    Attributes
    ----------
    w, v : float
        Of a helical residue between two helical ones, and of any other helical residue.
    """

    w: float
    v: float

    @property
    def s(self) -> float:
        """Propagation parameter of Zimm and Bragg."""
        return self.w / (1.0 + self.v)

    @property
    def sigma(self) -> float:
        """Nucleation parameter of Zimm and Bragg."""
        return self.v**2 / (1.0 + self.v) ** 4

    def log_partition(self, n: int) -> float:
        """Return ln Z of a chain of `n` residues."""
        return _log_partition(n, math.log(self.w), math.log(self.v))[0]

    def mean_counts(self, n: int) -> tuple[float, float]:
        """Return the mean numbers of residues with weight w and with weight v in a chain of `n` residues."""
        return _log_partition(n, math.log(self.w), math.log(self.v))[1]

    def helix_content(self, n: int) -> float:
        """Return the part of the n - 2 inner residues that are helical with both neighbours."""
        return self.mean_counts(n)[0] / (n - 2)


def count_weights(helical: np.ndarray) -> np.ndarray:
    """Return how many residues of every frame have the weight w, and how many v: (n_frames, 2).

    Parameters
    ----------
    helical : (n_frames, n_residues) bool
        Of one chain; see `peptidyn.analysis.observables.helical_residues`.
    """
    inner = helical[:, :-2] & helical[:, 1:-1] & helical[:, 2:]
    w = inner.sum(axis=1)
    return np.stack([w, helical.sum(axis=1) - w], axis=1)


def fit_lifson_roig(n: int, mean_w: float, mean_v: float) -> LifsonRoig:
    """Return the weights with which chains of `n` residues have these mean numbers of both kinds of helical residues.

    Parameters
    ----------
    n : int
    mean_w, mean_v : float
        Means of the columns of `count_weights`.
    """
    if n < 3 or not (0.0 < mean_w < n - 2 and 0.0 < mean_v and mean_w + mean_v < n):
        raise ArgumentError(
            f"a chain of {n} residues, of which {mean_w:g} are helical between helical neighbours and {mean_v:g} "
            "elsewhere, has no weights of Lifson and Roig; both must be there, and some coil"
        )

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, counts = _log_partition(n, float(x[0]), float(x[1]))
        wanted = np.array([mean_w, mean_v])
        return value - float(wanted @ x), np.array(counts) - wanted

    found = minimize(loss, np.array([0.0, -2.0]), jac=True, method="BFGS", options={"gtol": 1e-9})
    return LifsonRoig(math.exp(found.x[0]), math.exp(found.x[1]))


def _log_partition(n: int, log_w: float, log_v: float) -> tuple[float, tuple[float, float]]:
    """Return ln Z and its derivatives by ln w and ln v: vectors along the chain, scaled so that they stay finite."""
    w, v = math.exp(log_w), math.exp(log_v)
    matrix = np.array([[w, v, 0.0], [0.0, 0.0, 1.0], [v, v, 1.0]])
    by_w, by_v = np.zeros((3, 3)), np.zeros((3, 3))
    by_w[0, 0] = w
    by_v[0, 1] = by_v[2, 0] = by_v[2, 1] = v
    row, row_w, row_v, log_z = _START, np.zeros(3), np.zeros(3), 0.0
    for _ in range(n):
        row_w = row_w @ matrix + row @ by_w
        row_v = row_v @ matrix + row @ by_v
        row = row @ matrix
        scale = row.max()
        row, row_w, row_v, log_z = row / scale, row_w / scale, row_v / scale, log_z + math.log(scale)
    z = float(row @ _END)
    return log_z + math.log(z), (float(row_w @ _END) / z, float(row_v @ _END) / z)
