"""Chains of point beads with free torsions: the simplest molecules with an interesting metric."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError
from peptidyn.core.points import place
from peptidyn.core.units import plain, plain_array
from peptidyn.model.build import build_tree
from peptidyn.model.tree import TreeModel


@dataclass(frozen=True, eq=False)
class _Beads:
    """What `build_tree` needs of a structure."""

    atoms: Atoms
    positions: np.ndarray
    masses: np.ndarray
    virtual_sites: dict[int, tuple[int, ...]] = field(default_factory=dict)


def bead_chain(
    n: int, bond_length: Any, bond_angle: Any, masses: Any = 1.0, *, torsion: Any = np.pi, base: str = "free"
) -> TreeModel:
    """Return the tree model of a chain of `n` point beads with rigid bonds and angles and free torsions.

    Parameters
    ----------
    n : int
        Number of beads, at least 3; the chain has n - 3 torsions.
    bond_length : float or Quantity
        nm.
    bond_angle : float or Quantity
        rad, strictly between 0 and pi.
    masses : float, (n,) array or Quantity
        Da.
    torsion : float or (n - 3,) array or Quantity
        Torsions of the reference configuration, rad; default pi, the planar zigzag.
    base : {"free", "fixed"}

    Returns
    -------
    TreeModel
    """
    if int(n) != n or n < 3:
        raise ArgumentError(f"n is {n}, expected a whole number of at least 3 beads")
    n = int(n)
    length, angle = float(plain(bond_length)), float(plain(bond_angle))
    if not length > 0:
        raise ArgumentError(f"bond_length is {length:g} nm, expected a positive length")
    if not 0 < angle < np.pi:
        raise ArgumentError(
            f"bond_angle is {angle:g} rad, expected a value between 0 and pi; give degrees as np.deg2rad({angle:g}) or "
            "as a Quantity"
        )
    mass = np.broadcast_to(plain_array(masses), (n,)).copy() if np.size(masses) in (1, n) else None
    if mass is None:
        raise ArgumentError(f"masses has {np.size(masses)} entries, expected 1 or {n}")
    torsions = plain_array(torsion)
    if torsions.size not in (1, n - 3):
        raise ArgumentError(f"torsion has {torsions.size} entries, expected 1 or {n - 3}")
    atoms = Atoms(
        name=np.array([f"B{i + 1}" for i in range(n)]),
        element=np.array([""] * n),
        residue=np.zeros(n, dtype=np.int64),
        residue_name=np.array(["BEADS"]),
        residue_id=np.array(["1"]),
        residue_chain=np.zeros(1, dtype=np.int64),
        chain_id=np.array(["A"]),
        bonds=np.stack([np.arange(n - 1), np.arange(1, n)], axis=1),
        bond_order=np.ones(n - 1),
    )
    positions = _chain_positions(n, length, angle, np.broadcast_to(torsions, (max(n - 3, 1),)))
    return build_tree(_Beads(atoms, positions, mass), soft="rotor", base=base)


def _chain_positions(n: int, length: float, angle: float, torsions: np.ndarray) -> np.ndarray:
    """Place beads one after the other by bond length, angle and torsion."""
    x = np.zeros((n, 3))
    x[1] = (length, 0.0, 0.0)
    x[2] = x[1] + length * np.array([-np.cos(angle), np.sin(angle), 0.0])
    for i in range(3, n):
        x[i] = place(x[i - 3], x[i - 2], x[i - 1], length, angle, torsions[i - 3])
    return x
