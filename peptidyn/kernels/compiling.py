"""How kernels that use lanes are compiled, and whether an earlier run has done so."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peptidyn.core import jit
from peptidyn.kernels.lanes import KIND


def _hash_sources() -> str:
    """Return a hash of the files that compiled kernels are made of."""
    kernels = Path(__file__).parent
    package = kernels.parent
    files = [*sorted(kernels.glob("*.py")), package / "model" / "kinematics.py", package / "core" / "geometry.py"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


_SOURCES = _hash_sources()


def njit(**options: Any) -> Callable[[Callable], Any]:
    """Return njit(**options) for kernels that use lanes.

    The cache of compiled code knows functions by file and name, not by what they call. So the names there hold the kind
    of lanes and the state of the sources: a kernel never runs with an older version of what it calls.
    """

    def decorate(function: Callable) -> Any:
        function.__qualname__ += f"_{KIND}_{_SOURCES}"
        return jit.njit(**options)(function)

    return decorate


def on_disk(kernel: Any) -> bool:
    """True if a kernel was compiled by an earlier run and is kept in the cache of compiled code."""
    name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.py_func.__qualname__}"
    return any(Path(kernel._cache.cache_path).glob(f"{name}-*.nbi"))
