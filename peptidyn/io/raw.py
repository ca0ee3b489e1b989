"""What a format reader hands over, and the residue names that mean a standard residue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from peptidyn.core.errors import StructureError
from peptidyn.io.notes import Note, counted, some

if TYPE_CHECKING:
    from openmm.app import Topology


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


# OpenMM's readers know the usual names of protonation states and of water; these are the ones they do not.
_ALIASES = {
    **{"CYM": "CYS", "CYS2": "CYS", "CYSH": "CYS", "LYN": "LYS", "LSN": "LYS", "LYSH": "LYS", "HSE": "HIS"},
    **{"HISA": "HIS", "HISB": "HIS", "HISD": "HIS", "HISE": "HIS", "HISH": "HIS", "ASPP": "ASP", "GLUP": "GLU"},
    **{"TIP4": "HOH", "TIP5": "HOH", "T3P": "HOH", "T4E": "HOH", "OPC": "HOH", "OPC3": "HOH", "SPCE": "HOH"},
    **{"SPC2": "HOH", "DOD": "HOH"},
}
_AMINO_ACIDS = frozenset(
    "ALA ARG ASN ASP CYS CYX GLN GLU GLY HID HIE HIP HIS ILE LEU LYS MET PHE PRO SER THR TRP TYR VAL".split()
)


def standard_name(residue_name: str) -> str:
    """Return a residue name that OpenMM's readers know: ``CYM`` -> ``CYS``, AMBER's end residue ``NALA`` -> ``ALA``."""
    if residue_name in _ALIASES:
        return _ALIASES[residue_name]
    if len(residue_name) == 4 and residue_name[0] in "NC" and residue_name[1:] in _AMINO_ACIDS:
        return residue_name[1:]
    return residue_name


_VARIANTS = {
    **{"HID": "HID", "HSD": "HID", "HISA": "HID", "HISD": "HID", "HIE": "HIE", "HSE": "HIE", "HISB": "HIE"},
    **{"HISE": "HIE", "HIP": "HIP", "HSP": "HIP", "HISH": "HIP", "ASH": "ASH", "ASPP": "ASH", "GLH": "GLH"},
    **{"GLUP": "GLH", "CYX": "CYX", "CYM": "CYX", "CYS2": "CYX", "LYN": "LYN", "LSN": "LYN"},
}


def protonation_variant(residue_name: str) -> str | None:
    """Return OpenMM's name of the protonation state that a residue name in a file states, if it states one."""
    if len(residue_name) == 4 and residue_name[1:] in _VARIANTS:
        residue_name = residue_name[1:]
    return _VARIANTS.get(residue_name)
