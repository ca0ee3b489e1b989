"""Checks of arrays that cost little beside the O(n) work that follows."""

from __future__ import annotations

import math

from peptidyn.core.jit import njit


@njit(cache=True)
def all_finite(x):
    """Return whether an array of any shape holds finite numbers only."""
    for value in x.flat:
        if not math.isfinite(value):
            return False
    return True
