"""Numbers of several states side by side as one number of compiled code, so that one kernel serves one state or four.

Kernels read and write rows of an array through `get3`, `put3` and their like. Where the array is (rows, columns) they
see floats. Where it is (rows, columns, LANES), column c of a row holds the numbers of LANES states, and the kernels see
lanes, which add, multiply and divide like floats. Nothing else in a kernel changes. Indices are not checked and must
not be negative. Vectors of space, for chains of arithmetic that cannot be spread over states, have names of their own
instead of operators: `get_vector`, `combined`, `crosses` and their like.

There are two implementations of these names. `lanes_vector` uses vector instructions of the processor through
internals of numba, and is what runs unless the environment variable PEPTIDYN_LANES is "plain". `lanes_plain` needs
public names of numba only. It is slower, and it stands in, with a warning, if a release of numba has changed what the
other one needs.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import Any

import numba

from peptidyn.core.errors import ArgumentError


def _choose() -> str:
    """Return "vector" or "plain": what is asked for, as far as this numba has it."""
    wanted = os.environ.get("PEPTIDYN_LANES", "vector")
    if wanted not in ("vector", "plain"):
        raise ArgumentError(f"PEPTIDYN_LANES is {wanted!r}; it may be 'vector' (the default) or 'plain'.")
    if wanted == "vector":
        try:
            import_module("peptidyn.kernels.lanes_vector")
        except Exception as error:  # whatever a changed internal raises, the plain implementation does not need it
            warnings.warn(
                f"The vector kernels of peptidyn do not work with numba {numba.__version__} "
                f"({type(error).__name__}: {error}). Plain ones are used: same results, but slower. "
                "Set PEPTIDYN_LANES=plain to use them without this message.",
                RuntimeWarning, stacklevel=2,
            )  # fmt: skip
            return "plain"
    return wanted


KIND = _choose()
"""Which implementation is used: "vector" or "plain"."""

_implementation = import_module(f"peptidyn.kernels.lanes_{KIND}")


def __getattr__(name: str) -> Any:
    return getattr(_implementation, name)
