"""How kernels that use lanes are compiled, and whether an earlier run has done so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from peptidyn.kernels.lanes import KIND


def njit(**options: Any) -> Callable[[Callable], Any]:
    """Return numba.njit(**options) for kernels that use lanes.

    The cache of compiled code knows functions by file and name, not by what they call. So kernels on plain lanes have
    names of their own there.
    """

    def decorate(function: Callable) -> Any:
        if KIND == "plain":
            function.__qualname__ += "_plain"
        return numba.njit(**options)(function)

    return decorate


def on_disk(kernel: Any) -> bool:
    """True if a kernel was compiled by an earlier run and is kept in the cache of compiled code."""
    name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.py_func.__qualname__}"
    return any(Path(kernel._cache.cache_path).glob(f"{name}-*.nbi"))
