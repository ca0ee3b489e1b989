"""Residues: the names of amino acids, caps and water, what a residue is by its atoms, textbook side-chain torsions."""

from __future__ import annotations

from collections.abc import Container
from types import MappingProxyType

import numpy as np

from peptidyn.core.atoms import Atoms

_SIDE_CHAINS = {
    "ARG": "CG CD NE CZ NH1", "ASN": "CG OD1", "ASP": "CG OD1", "CYS": "SG", "GLN": "CG CD OE1", "GLU": "CG CD OE1",
    "HIS": "CG ND1", "ILE": "CG1 CD1", "LEU": "CG CD1", "LYS": "CG CD CE NZ", "MET": "CG SD CE", "MSE": "CG SE CE",
    "PHE": "CG CD1", "SER": "OG", "THR": "OG1", "TRP": "CG CD1", "TYR": "CG CD1", "VAL": "CG1",
}  # fmt: skip
"""The atoms beyond CB along which chi1, chi2, ... are counted (IUPAC-IUB 1970). Proline's belong to its ring."""

CHI: dict[str, tuple[tuple[str, ...], ...]] = {
    name: tuple(zip(*(("N", "CA", "CB", *path.split())[k:] for k in range(4)), strict=False))
    for name, path in _SIDE_CHAINS.items()
}
"""Atoms of chi1, chi2, ..., as MDTraj and Biopython name them."""

THREE_LETTER = MappingProxyType(
    dict(
        A="ALA", R="ARG", N="ASN", D="ASP", C="CYS", Q="GLN", E="GLU", G="GLY", H="HIS", I="ILE",
        L="LEU", K="LYS", M="MET", F="PHE", P="PRO", S="SER", T="THR", W="TRP", Y="TYR", V="VAL",
    )
)  # fmt: skip
"""The twenty amino acids: one-letter to three-letter codes."""

STANDARD = tuple(THREE_LETTER.values())

BACKBONE = ("N", "CA", "C")

_STATES = {
    "HIS HID": "HID HSD HISA HISD", "HIS HIE": "HIE HSE HISB HISE", "HIS HIP": "HIP HSP HISH", "HIS": "HIN",
    "ASP ASH": "ASH ASPP", "GLU GLH": "GLH GLUP", "CYS CYX": "CYX CYM CYS2", "CYS": "CYSH", "LYS LYN": "LYN LSN",
    "LYS": "LYSH", "ARG": "ARN", "TYR": "TYM",
}  # fmt: skip
VARIANTS = {
    name: (parent, state[0] if state else None)
    for key, names in _STATES.items()
    for parent, *state in [key.split()]
    for name in names.split()
}
"""Names of protonation variants in files: the amino acid, and OpenMM's name of the state, if it is a certain one."""

_UNKNOWN_STATES = frozenset({"HIN", "ARN", "TYM"})
"""OpenMM lists no hydrogens for these: under the name of the amino acid they would seem to lack some."""

ACYL_CAPS = frozenset({"ACE", "FOR"})
AMINE_CAPS = frozenset({"NME", "NMA", "NH2", "NHE"})

WATER = "HOH"
WATERS = frozenset("HOH WAT H2O TIP TIP2 TIP3 TIP4 TIP5 TP3 T3P T4P T4E SOL SPC SPC2 SPCE OPC OPC3 DOD".split())
"""Names of water; all but HOH become HOH when a file is read."""

_MOST_SITES = 6
"""No water model has more atoms and extra particles. In the Protein Data Bank OPC is a lipid."""

HYDROGENS = frozenset({"H", "D"})

_AMINO_NAMES = frozenset(STANDARD) | frozenset(VARIANTS) | {"MSE"}


def parent_name(name: str) -> str:
    """Return the amino acid that `name` is a protonation variant of, or `name` itself."""
    return VARIANTS[name][0] if name in VARIANTS else name


def standard_name(name: str, n_atoms: int) -> str:
    """Return the standard name of a residue of `n_atoms`: CYS for ``CYM``, ALA for ``NALA``, HOH for ``SPCE``."""
    name = _within_chain(name)
    if name in WATERS and n_atoms <= _MOST_SITES:
        return WATER
    return name if name in _UNKNOWN_STATES else parent_name(name)


def protonation_variant(name: str) -> str | None:
    """Return OpenMM's name of the protonation state that a residue name in a file states, if it states one."""
    return VARIANTS.get(_within_chain(name), ("", None))[1]


def _within_chain(name: str) -> str:
    """Return the name of AMBER's residues at chain ends without the N or C before it."""
    return name[1:] if len(name) == 4 and name[0] in "NC" and name[1:] in _AMINO_NAMES else name


def is_water(atoms: Atoms) -> np.ndarray:
    """Return a mask (n_residues,) of waters: a residue with a name of water, and no more atoms than water has."""
    size = np.bincount(atoms.residue, minlength=atoms.n_residues)
    return np.isin(atoms.residue_name, sorted(WATERS)) & (size <= _MOST_SITES)


def has_backbone(names: Container[str]) -> bool:
    """True if N, CA and C are among the names."""
    return all(name in names for name in BACKBONE)


def is_amino_acid(atoms: Atoms, residue: int) -> bool:
    """True if the residue has N, CA and C bonded in this order, whatever its name."""
    table = atoms.residue_atoms[residue]
    if not has_backbone(table):
        return False
    bonded = atoms.neighbours[table["CA"]]
    return table["N"] in bonded and table["C"] in bonded


def missing_backbone(atoms: Atoms) -> list[tuple[int, list[str]]]:
    """Return (residue, names) for amino acids, known by name, that lack some of N, CA, C.

    A residue reduced to one atom that is bonded to nothing is a stray atom, not a residue, and is not listed.
    """
    lacking = []
    for residue in np.flatnonzero(np.isin(atoms.residue_name, list(_AMINO_NAMES))).tolist():
        table = atoms.residue_atoms[residue]
        names = [name for name in BACKBONE if name not in table]
        if names and (len(table) > 1 or atoms.neighbours[next(iter(table.values()))]):
            lacking.append((residue, names))
    return lacking


def is_hydrogen(atoms: Atoms) -> np.ndarray:
    """Return a mask (n_atoms,) of hydrogen and deuterium."""
    return np.isin(atoms.element, sorted(HYDROGENS))
