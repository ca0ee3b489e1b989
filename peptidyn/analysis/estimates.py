"""`Estimate`: an average over the frames of a trajectory with its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import weighted_average


@dataclass(frozen=True, eq=False)
class Estimate:
    """An average with its standard error, which counts the autocorrelation of the frames.

    Attributes
    ----------
    values : (n_frames, ...)
        Of every frame.
    mean, error : (...)
        Numbers, or arrays if a frame has several values.
    name, unit : str
        What it is; ``""`` without a unit.
    labels : tuple of str
        What the values of a frame are, if there are several.
    """

    values: np.ndarray
    mean: Any
    error: Any
    name: str
    unit: str = ""
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if np.ndim(self.mean) == 0:
            return f"{self.name}: {with_error(self.mean, self.error)}{unit}"
        names = self.labels or tuple(str(i) for i in range(len(self.mean)))
        parts = []
        for label, mean, error in zip(names, self.mean, self.error, strict=True):
            cells = zip(np.ravel(mean), np.ravel(error), strict=True)
            parts.append(f"{label} " + " ".join(with_error(m, e) for m, e in cells))
        return f"{self.name}: {', '.join(parts)}{unit}"


def estimate(
    values: Any, weights: Any = None, *, name: str = "", unit: str = "", labels: tuple[str, ...] = ()
) -> Estimate:
    """Return the average of `values` (n_frames, ...) over frames in the order of time, with its standard error.

    Parameters
    ----------
    values : (n_frames, ...)
    weights : (n_frames,), optional
        Of the frames, e.g. ``fixman_weights(...).weights``; they need not be normalised. Default all equal.
    name, unit, labels
        As in `Estimate`.
    """
    x = np.asarray(values, dtype=np.float64)
    if not len(x):
        raise ArgumentError(f"there are no frames to average{f' the {name}' if name else ''} over")
    mean, error = weighted_average(x, np.ones(len(x)) if weights is None else weights)
    constant = (x == x[0]).all(axis=0)  # rounding would make an error of what never changed
    mean, error = np.where(constant, x[0], mean), np.where(constant, 0.0, error)
    if x.ndim == 1:
        return Estimate(x, float(mean), float(error), name, unit, labels)
    return Estimate(x, mean, error, name, unit, labels)


def with_error(value: float, error: float) -> str:
    """Return a number with the error of its last digits in brackets: ``0.314(12)``."""
    if not (math.isfinite(value) and math.isfinite(error)) or error <= 0.0:
        return f"{value:.6g}({error:g})"
    digits = 1 - math.floor(math.log10(error))  # two digits of the error
    if digits <= 0:
        return f"{round(value, digits):.0f}({round(error, digits):.0f})"
    last = round(error * 10**digits)
    return f"{value:.{digits}f}({last})"
