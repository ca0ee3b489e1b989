"""What a format reader hands over, and which file names mean which format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peptidyn.core.errors import StructureError
from peptidyn.io.notes import Note, counted, some

if TYPE_CHECKING:
    from openmm.app import Topology


PDB = (".pdb", ".ent")
MMCIF = (".cif", ".mmcif", ".pdbx")
PACKED = (".gz", ".bz2")

CELL = ("length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma")
"""Of a unit cell, as mmCIF names them."""


def extension(path: Path) -> str:
    """Return how the name of a file ends, in lower case and without .gz or .bz2: ``.pdb`` of ``1UBQ.PDB.gz``."""
    return Path(path.stem if path.suffix.lower() in PACKED else path.name).suffix.lower()


@dataclass(frozen=True)
class RawStructure:
    """One model of a file, one location per atom, names made standard; its bonds are not judged yet.

    Attributes
    ----------
    topology : openmm.app.Topology
        As OpenMM's reader made it: bonds of residue templates and of records.
    positions : (n_atoms, 3) float64
        nm.
    file_names : list of str
        The name of every residue in the file, before it was made standard.
    notes : list of Note
    links : list of (int, int)
        Further recorded bonds.
    chain_ids, residue_ids : list or None
        The author's names, where OpenMM's topology has others; residues as (id, insertion code).
    """

    topology: Topology
    positions: np.ndarray
    file_names: list[str]
    notes: list[Note]
    links: list[tuple[int, int]] = field(default_factory=list)
    chain_ids: list[str] | None = None
    residue_ids: list[tuple[str, str]] | None = None


_SMALLEST_CELL, _LARGEST_CELL = 2.0, 1e6
"""Edges, Angstrom. NMR entries carry a cell of 1 x 1 x 1, which means none."""


def number_or(text: str, otherwise: float) -> float:
    """Return the number in a field of a file, or another one for a field that is empty or damaged."""
    try:
        return float(text)
    except ValueError:
        return otherwise


def one_line(error: Exception) -> str:
    """Return the message of another library as one line."""
    return " ".join(str(error).split())


def is_cell(values: Sequence[float], where: str) -> bool:
    """Return whether three lengths (Angstrom) and three angles (degrees) are a unit cell, or stand for none.

    Raises StructureError, which begins with `where`, for numbers that are neither: too large, not finite, or angles
    that no cell has.
    """
    lengths, angles = np.array(values[:3]), np.array(values[3:])
    if (lengths < _SMALLEST_CELL).any() or (angles <= 0).any():
        return False
    fine = bool((lengths <= _LARGEST_CELL).all() and (angles < 180.0).all())
    if fine:
        cosines = np.cos(np.deg2rad(angles))
        fine = 1.0 - (cosines**2).sum() + 2.0 * cosines.prod() > 1e-6  # the square of the volume over lengths
    if not fine:
        shown = " ".join(f"{value:g}" for value in values)
        raise StructureError(
            f"{where}the unit cell {shown} (lengths in A, angles in degrees) cannot be; repair or remove it"
        )
    return True


def models_note(n_models: int, model: int, name: str) -> list[Note]:
    """Check that the model exists; say so if there are others.

    Raises StructureError, with the number of models, when it does not.
    """
    if n_models == 0:
        raise StructureError(f"{name} holds no atoms")
    if model >= n_models:
        raise StructureError(f"{name} has no model {model}: it holds {counted(n_models, 'model')}, counted from 0")
    if n_models == 1:
        return []
    return [Note("models", f"{name} holds {n_models} models; this is model {model}, counted from 0")]


def altloc_note(choices: list[str]) -> list[Note]:
    """Say which alternate locations were chosen."""
    if not choices:
        return []
    where = counted(len(choices), "residue")
    return [Note("altloc", f"alternate locations chosen by occupancy in {where}: {some(choices, most=10)}")]
