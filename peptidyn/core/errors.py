"""Every error peptidyn raises on purpose.

One base class, so that ``except PeptidynError`` catches all of them; each kind is also the builtin a
caller would expect. A message is one sentence or two: what is wrong, where (chain, residue, atom), what
was expected, and the next thing to try.
"""

from __future__ import annotations


class PeptidynError(Exception):
    """Base class of all errors raised by peptidyn."""


class StructureError(PeptidynError, ValueError):
    """A structure file, or a structure, that cannot be used as it is."""


class TrajectoryError(PeptidynError, ValueError):
    """A trajectory that cannot be read, or does not fit its topology."""


class SelectionError(PeptidynError, ValueError):
    """An atom selection that cannot be parsed or matches nothing."""


class ModelError(PeptidynError, ValueError):
    """A tree model that cannot be built from what was given."""


class SolverError(PeptidynError, ArithmeticError):
    """Linear algebra that has no answer (a singular body, a collinear molecule)."""


class UnsupportedError(PeptidynError, NotImplementedError):
    """A quantity that a solver's method does not have."""


class StepError(PeptidynError, RuntimeError):
    """A time step that could not be made: too large, or the forces are not finite."""


class SamplingError(PeptidynError, RuntimeError):
    """Sampling that cannot begin or go on: energies that are not finite numbers."""


class BackendError(PeptidynError, RuntimeError):
    """Workers that cannot be reached, or die again and again."""


class CheckpointError(PeptidynError, ValueError):
    """A checkpoint that cannot be read, or belongs to another model or integrator."""


class ArgumentError(PeptidynError, ValueError):
    """An argument of the wrong shape, range or name."""


class OutputError(PeptidynError, OSError):
    """A file that cannot be written: full disk, missing folder, no permission."""


class MissingDependencyError(PeptidynError, ImportError):
    """An optional package is needed and is not installed."""

    @classmethod
    def of(cls, what: str, extra: str) -> MissingDependencyError:
        """Return the error of a part of peptidyn: `what` it needs, and the `extra` of the project that brings it."""
        return cls(f'{what}, which is not installed; install it with: pip install "peptidyn[{extra}]"')
