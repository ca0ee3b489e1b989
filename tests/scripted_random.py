"""A random generator whose numbers are written down beforehand, so that one step can be followed by hand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class Script:
    """Stands in for numpy's Generator and gives the numbers it was made with; one too many is an IndexError.

    Parameters
    ----------
    normals : (n, m)
        One row for each call of `standard_normal`.
    uniforms : numbers between 0 and 1
        For `random`, and as the place between low and high for `uniform`.
    integers : numbers between 0 and 1
        As the place between low and high for `integers`.
    """

    def __init__(self, normals: Iterable = (), uniforms: Iterable[float] = (), integers: Iterable[float] = ()):
        self.normals, self.uniforms, self.places = list(normals), list(uniforms), list(integers)

    def standard_normal(self, size=None, out=None):
        row = np.asarray(self.normals.pop(0), dtype=float)
        if out is None:
            return row.reshape(size)
        out[:] = row
        return out

    def random(self):
        return self.uniforms.pop(0)

    def uniform(self, low, high, size):
        return np.array([low + (high - low) * self.uniforms.pop(0) for _ in range(size)])

    def integers(self, low, high=None):
        low, high = (0, low) if high is None else (low, high)
        return min(high - 1, low + int(self.places.pop(0) * (high - low)))

    @property
    def used_up(self) -> bool:
        """Whether every number was asked for."""
        return not (self.normals or self.uniforms or self.places)
