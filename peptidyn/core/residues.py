"""What a residue is, judged by its atoms, and the textbook side-chain torsions of the amino acids."""

from __future__ import annotations

import numpy as np

from peptidyn.core.atoms import Atoms

CHI: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "ARG": (
        ("N", "CA", "CB", "CG"),
        ("CA", "CB", "CG", "CD"),
        ("CB", "CG", "CD", "NE"),
        ("CG", "CD", "NE", "CZ"),
        ("CD", "NE", "CZ", "NH1"),
    ),
    "ASN": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "OD1")),
    "ASP": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "OD1")),
    "CYS": (("N", "CA", "CB", "SG"),),
    "GLN": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "CD"), ("CB", "CG", "CD", "OE1")),
    "GLU": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "CD"), ("CB", "CG", "CD", "OE1")),
    "HIS": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "ND1")),
    "ILE": (("N", "CA", "CB", "CG1"), ("CA", "CB", "CG1", "CD1")),
    "LEU": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "CD1")),
    "LYS": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "CD"), ("CB", "CG", "CD", "CE"), ("CG", "CD", "CE", "NZ")),
    "MET": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "SD"), ("CB", "CG", "SD", "CE")),
    "MSE": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "SE"), ("CB", "CG", "SE", "CE")),
    "PHE": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "CD1")),
    "SER": (("N", "CA", "CB", "OG"),),
    "THR": (("N", "CA", "CB", "OG1"),),
    "TRP": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "CD1")),
    "TYR": (("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "CD1")),
    "VAL": (("N", "CA", "CB", "CG1"),),
}
"""Atoms of chi1, chi2, ... (IUPAC-IUB 1970), as MDTraj and Biopython name them."""

STANDARD = ("ALA ARG ASN ASP CYS GLN GLU GLY HIS ILE LEU LYS MET PHE PRO SER THR TRP TYR VAL").split()
"""The twenty amino acids."""

VARIANTS = {
    "HID": "HIS", "HIE": "HIS", "HIP": "HIS", "HSD": "HIS", "HSE": "HIS", "HSP": "HIS", "HIN": "HIS",
    "CYX": "CYS", "CYM": "CYS", "ASH": "ASP", "GLH": "GLU", "LYN": "LYS", "ARN": "ARG", "TYM": "TYR",
}  # fmt: skip
"""Protonation variants and what they are variants of."""

WATERS = frozenset("HOH WAT H2O TIP TIP2 TIP3 TIP4 TIP5 TP3 T3P T4P SOL SPC DOD".split())

NUCLEOTIDES = frozenset("A C G U I DA DC DG DT DU DI".split())

_AMINO_NAMES = frozenset(STANDARD) | frozenset(VARIANTS) | {"MSE"}


def parent_name(name: str) -> str:
    """Return the amino acid that `name` is a protonation variant of, or `name` itself."""
    return VARIANTS.get(name, name)


def is_amino_acid(atoms: Atoms, residue: int) -> bool:
    """True if the residue has N, CA and C bonded in this order, whatever its name."""
    table = atoms.residue_atoms[residue]
    if not ("N" in table and "CA" in table and "C" in table):
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
        names = [name for name in ("N", "CA", "C") if name not in table]
        if names and (len(table) > 1 or atoms.neighbours[next(iter(table.values()))]):
            lacking.append((residue, names))
    return lacking


def is_hydrogen(atoms: Atoms) -> np.ndarray:
    """Return a mask (n_atoms,) of hydrogen and deuterium."""
    return (atoms.element == "H") | (atoms.element == "D")
