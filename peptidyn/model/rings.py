"""Rings: which of them are cut at one bond, so that their torsions can move, and where.

A bond that is left out of the tree is held by the force field. Disulfide bonds and the bonds that close macrocycles are
always left out: a ring of more than eight atoms is no rigid body. Smaller rings stay rigid unless they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.model.graph import bridges
from peptidyn.model.soft import SoftRequest

MACROCYCLE = 8
"""Rings with more atoms than this are always cut."""

FLAT_RING = 0.015
"""Ring atoms farther (nm) than this from their common plane are puckered."""


@dataclass(frozen=True)
class Cuts:
    """Bonds that are left out of the tree.

    Attributes
    ----------
    bonds : (n_bonds,) bool
        Which bonds.
    ring_bonds : frozenset of (int, int)
        The bonds of rings that were cut because rings are soft: their atoms' coordinates are soft.
    """

    bonds: np.ndarray
    ring_bonds: frozenset[tuple[int, int]]


def find_cuts(atoms: Atoms, x: np.ndarray, soft: SoftRequest) -> Cuts:
    """Return the bonds to leave out of the tree of a molecule.

    Parameters
    ----------
    atoms : Atoms
    x : (n_atoms, 3), nm
        Tells puckered rings from flat ones.
    soft : SoftRequest
        Rings open where "rings" or "all" is asked for: with "rings" those that can pucker, with "all" every ring.
    """
    cut = disulfide_bonds(atoms)
    index = {bond: place for place, bond in enumerate(map(tuple, atoms.bonds.tolist()))}
    opened: set[tuple[int, int]] = set()
    while True:
        rings = find_rings(atoms, ~cut)
        shared = _shared_bonds(rings)
        changed: set[tuple[int, int]] = set()  # bonds of rings that were cut in this round
        for ring in rings:
            bonds = _bonds(ring)
            large = len(ring) > MACROCYCLE
            wanted = large or soft.asks("stiff", *ring) or _may_pucker(atoms, x, ring, shared, soft)
            if not wanted or changed.intersection(bonds):
                continue
            if soft.asks("ring", *ring):
                opened.update(bonds)
            # macrocycles keep the small rings they run through: those are judged for themselves
            candidates = [b for b in bonds if b not in shared] if large else bonds
            cut[index[max(candidates or bonds, key=lambda bond: (bond[1], -bond[0]))]] = True
            changed.update(bonds)
        if not changed:
            return Cuts(cut, frozenset(opened))


def disulfide_bonds(atoms: Atoms) -> np.ndarray:
    """Return a mask (n_bonds,) of the S-S bonds between different residues."""
    i, j = atoms.bonds[:, 0], atoms.bonds[:, 1]
    sulfur = (atoms.element[i] == "S") & (atoms.element[j] == "S")
    return sulfur & (atoms.residue[i] != atoms.residue[j])


def find_rings(atoms: Atoms, kept: np.ndarray) -> list[list[int]]:
    """Return the smallest ring through every ring bond, as atoms in their order, each ring once, large ones first.

    Parameters
    ----------
    atoms : Atoms
    kept : (n_bonds,) bool
        Bonds that count.
    """
    bonds = atoms.bonds[kept]
    cyclic = bonds[~bridges(atoms.n_atoms, bonds)]
    partners: dict[int, list[int]] = {}
    for i, j in cyclic.tolist():
        partners.setdefault(i, []).append(j)
        partners.setdefault(j, []).append(i)
    rings = {}
    for i, j in cyclic.tolist():
        ring = _smallest_ring(partners, i, j)
        rings[frozenset(ring)] = ring
    return sorted(rings.values(), key=lambda ring: (-len(ring), min(ring)))


def _smallest_ring(partners: dict[int, list[int]], start: int, end: int) -> list[int]:
    """Return the shortest way from `end` to `start` that does not use the bond between them."""
    before = {start: -1}
    queue = [start]
    for atom in queue:
        for other in partners[atom]:
            if other in before or (atom == start and other == end):
                continue
            before[other] = atom
            queue.append(other)
        if end in before:
            break
    ring = [end]
    while ring[-1] != start:
        ring.append(before[ring[-1]])
    return ring


def _bonds(ring: list[int]) -> list[tuple[int, int]]:
    return [(min(a, b), max(a, b)) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]


def _shared_bonds(rings: list[list[int]]) -> set[tuple[int, int]]:
    """Return the bonds that more than one ring has."""
    seen: set[tuple[int, int]] = set()
    shared: set[tuple[int, int]] = set()
    for ring in rings:
        bonds = set(_bonds(ring))
        shared |= seen & bonds
        seen |= bonds
    return shared


def _may_pucker(
    atoms: Atoms, x: np.ndarray, ring: list[int], shared: set[tuple[int, int]], soft: SoftRequest
) -> bool:  # fmt: skip
    """True for a ring that is asked for, is fused to no other and is not aromatic."""
    if not soft.asks("ring", *ring) or shared.intersection(_bonds(ring)):
        return False
    if any(len(atoms.neighbours[a]) > 3 for a in ring):
        return True
    centred = x[ring] - x[ring].mean(axis=0)
    normal = np.linalg.svd(centred)[2][2]
    return bool(np.abs(centred @ normal).max() > FLAT_RING)
