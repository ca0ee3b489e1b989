"""`compare_distributions`: whether two correlated samples have the same distribution, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import statistical_inefficiency

FEW = 20
"""Cells in which both samples together have fewer independent samples than this are joined into one."""


@dataclass(frozen=True)
class Comparison:
    """How two samples compare.

    Attributes
    ----------
    total_variation : float
        Half the sum of the differences of their histograms: 0 for equal ones, 1 for those that share no cell.
    noise : float
        What `total_variation` would be on average if the distributions were equal, by the number of independent samples
        alone; below about twice this value a difference cannot be seen.
    p_value : float
        Probability of a difference as large as that of the most different cell, if the distributions were equal.
    independent : (float, float)
        Independent samples of each.
    """

    total_variation: float
    noise: float
    p_value: float
    independent: tuple[float, float]

    def __str__(self) -> str:
        return (
            f"total variation {self.total_variation:.3f} ({self.noise:.3f} by chance), p = {self.p_value:.2g}, "
            f"{self.independent[0]:.0f} and {self.independent[1]:.0f} independent samples"
        )


def compare_distributions(a: Any, b: Any, *, bins: Any = 24, limits: Any = None) -> Comparison:
    """Compare the histograms of two samples, counting the autocorrelation of each.

    The population of every cell is compared in units of its standard error, and the p-value is that of the most
    different cell times the number of cells (Bonferroni). Errors are estimates themselves, so that small p-values are
    a few times as frequent as they say.

    Parameters
    ----------
    a, b : (n,) or (n, d)
        Samples in the order of time; for phi and psi of a residue, d = 2. Their lengths may differ.
    bins : int, edges (m + 1,), or a sequence of d of them
    limits : (low, high) or d of them, optional
        What `bins` cells span if it is a number; default from the smallest to the largest value. Angles have
        ``(-180, 180)``.
    """
    x, y = (_columns(name, values) for name, values in (("a", a), ("b", b)))
    if x.shape[1] != y.shape[1]:
        raise ArgumentError(f"a has {x.shape[1]} values per frame and b has {y.shape[1]}; give the same ones")
    edges = _edges(np.concatenate([x, y]), bins, limits)
    cells = [_cell_of(values, edges) for values in (x, y)]
    kinds, counts = np.unique(np.concatenate(cells), return_counts=True)
    differences, errors, rare, slowest = [], [], [], [1.0, 1.0]
    for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        inside = [(cell == kind).astype(np.float64) for cell in cells]
        g = [statistical_inefficiency(one) for one in inside] if count >= FEW else [1.0, 1.0]
        if sum(one.sum() / time for one, time in zip(inside, g, strict=True)) < FEW:
            rare.append(kind)
            continue
        slowest = [max(old, new) for old, new in zip(slowest, g, strict=True)]
        differences.append(inside[0].mean() - inside[1].mean())
        errors.append(_error(inside, g))
    if rare:
        inside = [np.isin(cell, rare).astype(np.float64) for cell in cells]
        differences.append(inside[0].mean() - inside[1].mean())
        errors.append(_error(inside, [statistical_inefficiency(one) for one in inside]))
    shares = [np.array([(cell == kind).mean() for kind in kinds]) for cell in cells]
    size = [len(cell) / time for cell, time in zip(cells, slowest, strict=True)]
    pooled = (size[0] * shares[0] + size[1] * shares[1]) / sum(size)
    spread = np.sqrt(pooled * (1.0 - pooled) * (1.0 / size[0] + 1.0 / size[1]))
    return Comparison(
        0.5 * float(np.abs(shares[0] - shares[1]).sum()),
        0.5 * math.sqrt(2.0 / math.pi) * float(spread.sum()),
        _p_value(np.array(differences), np.array(errors)),
        (size[0], size[1]),
    )


def _columns(name: str, values: Any) -> np.ndarray:
    x = np.asarray(values, dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or len(x) < 2:
        raise ArgumentError(f"{name} has shape {np.shape(values)}, expected (n,) or (n, d) with two frames or more")
    if not np.isfinite(x).all():
        raise ArgumentError(f"{name} holds values that are not finite numbers")
    return x


def _edges(values: np.ndarray, bins: Any, limits: Any) -> list[np.ndarray]:
    d = values.shape[1]
    several = isinstance(bins, Sequence) and not np.isscalar(bins[0])
    each = list(bins) if several or (isinstance(bins, Sequence) and d > 1) else [bins] * d
    spans = [None] * d if limits is None else [limits] * d if np.ndim(limits) == 1 else list(limits)
    if len(each) != d or len(spans) != d:
        raise ArgumentError(f"there are {d} values per frame, {len(each)} bins and {len(spans)} limits")
    return [np.histogram_bin_edges(x, n, span) for x, n, span in zip(values.T, each, spans, strict=True)]


def _cell_of(values: np.ndarray, edges: list[np.ndarray]) -> np.ndarray:
    """Return the number of the cell of every frame (n,); what lies outside belongs to the outermost cells."""
    cell = np.zeros(len(values), dtype=np.int64)
    for x, edge in zip(values.T, edges, strict=True):
        place = np.clip(np.searchsorted(edge, x, side="right") - 1, 0, len(edge) - 2)
        cell = cell * (len(edge) - 1) + place
    return cell


def _error(inside: list[np.ndarray], g: list[float]) -> float:
    """Standard error of the difference of two populations."""
    return math.sqrt(sum(time * one.var() / len(one) for one, time in zip(inside, g, strict=True)))


def _p_value(differences: np.ndarray, errors: np.ndarray) -> float:
    known = errors > 0
    if not known.any():
        return 1.0 if not differences.any() else 0.0
    largest = float(np.abs(differences[known] / errors[known]).max())
    return min(1.0, int(np.count_nonzero(known)) * math.erfc(largest / math.sqrt(2.0)))
