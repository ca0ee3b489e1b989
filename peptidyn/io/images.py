"""Molecules that a periodic box has split: put together from the box, or refused if there is none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from peptidyn.core.atoms import LONGEST_BOND, Atoms
from peptidyn.core.errors import StructureError
from peptidyn.core.periodic import join_pieces
from peptidyn.core.units import plain_array
from peptidyn.io.bonding import longest_bonds, possible_bonds
from peptidyn.io.notes import Note, counted
from peptidyn.io.raw import number_or
from peptidyn.io.topology import Bonds

WALL = 1.5
"""Neighbours with consecutive numbers whose C and N are farther apart than this (nm) were split at a box wall."""


def join_images(
    atoms: Atoms, positions: np.ndarray, box: Any, name: str, recorded: Bonds | None = None
) -> tuple[np.ndarray, list[Note]]:
    """Return positions in which no molecule is split at a box wall, and a note if atoms had to move.

    Raises StructureError, naming the atoms, for a bond that is longer than `LONGEST_BOND` in every image.

    Parameters
    ----------
    atoms : Atoms
        With its bonds.
    positions : (n_atoms, 3), nm
    box : three vectors, Quantity or nm, or None
    name : str
        For messages.
    recorded : Bonds, optional
        Bonds that have not been settled yet: those between residues are then judged by distance, and may be missing.
    """
    x, bonds = positions, atoms.bonds
    if box is not None:
        known = bonds, longest_bonds(atoms, bonds)
        pairs, limit = known if recorded is None else possible_bonds(atoms, recorded)
        x = join_pieces(positions, plain_array(box), pairs, limit)
    if recorded is not None:
        bonds = bonds[atoms.residue[bonds[:, 0]] == atoms.residue[bonds[:, 1]]]
    length = np.linalg.norm(x[bonds[:, 0]] - x[bonds[:, 1]], axis=1)
    if len(bonds) and length.max() > LONGEST_BOND:
        i, j = bonds[length.argmax()].tolist()
        raise _split(atoms, i, j, float(length.max()), box is not None, name)
    if box is None and recorded is not None:
        _check_neighbours(atoms, x, name)
    moved = int((np.abs(x - positions).max(axis=1) > 1e-6).sum()) if x is not positions else 0
    if not moved:
        return positions, []
    return x, [Note("box", f"{counted(moved, 'atom')} moved to another periodic image, so that molecules are whole")]


def _check_neighbours(atoms: Atoms, x: np.ndarray, name: str) -> None:
    """Refuse chains that a box wall has split between two residues: a missing loop leaves a gap in the numbers."""
    for r in range(atoms.n_residues - 1):
        carbon, nitrogen = atoms.residue_atoms[r].get("C"), atoms.residue_atoms[r + 1].get("N")
        if carbon is None or nitrogen is None or atoms.residue_chain[r] != atoms.residue_chain[r + 1]:
            continue
        first, second = (number_or(text, math.nan) for text in atoms.residue_id[r : r + 2].tolist())
        if second - first != 1.0:
            continue
        length = float(np.linalg.norm(x[carbon] - x[nitrogen]))
        if length > WALL:
            raise _split(atoms, carbon, nitrogen, length, False, name, "; if it is a gap, end the chain there by TER")


def _split(
    atoms: Atoms, i: int, j: int, length: float, has_box: bool, name: str, otherwise: str = ""
) -> StructureError:  # fmt: skip
    reason = (
        "and no periodic image of the box makes it shorter: the box is not the one of these coordinates"
        if has_box
        else "as in a molecule split at the wall of a periodic box, and there is no box to put it together with"
    )
    return StructureError(
        f"{name}: the bond between {atoms.label(i)} and {atoms.label(j)} would be {length:.2f} nm long, {reason}; give "
        f"the box (CRYST1 in PDB, _cell in mmCIF), or make molecules whole first{otherwise}"
    )
