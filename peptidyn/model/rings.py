"""Rings: which of them are cut at one bond, so that their torsions can move, and where.

A bond that is left out of the tree is held by the force field. Disulfide bonds and bonds that close macrocycles are
always left out: a ring of more than eight atoms is no rigid body, and neither is a long loop between two parts of one
rigid selection. Smaller rings stay rigid unless they are asked for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.model.graph import bridges, components
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


def find_cuts(atoms: Atoms, x: np.ndarray, soft: SoftRequest, glue: np.ndarray) -> Cuts:
    """Return the bonds to leave out of the tree.

    Parameters
    ----------
    atoms : Atoms
    x : (n_atoms, 3), nm
        Tells puckered rings from flat ones.
    soft : SoftRequest
        Rings open where "rings" or "all" is asked for: with "rings" those that can pucker, with "all" every ring.
    glue : (n, 2) int
        Edges that tie rigid selections together: they close loops too, and a long loop is not part of the selection.
    """
    cut = disulfide_bonds(atoms)
    node = components(atoms.n_atoms, glue)
    opened: set[int] = set()
    while True:
        rings = find_rings(node[atoms.bonds], ~cut)
        shared = {bond for bond, count in Counter(bond for ring in rings for bond in ring).items() if count > 1}
        changed: set[int] = set()  # bonds of rings that were cut in this round
        for ring in rings:
            large = len(ring) > MACROCYCLE
            members = sorted(set(atoms.bonds[list(ring)].ravel().tolist()))
            closed = len(members) == len(ring)  # not by a rigid selection
            small = closed and (soft.asks("stiff", *members) or _may_pucker(atoms, x, ring, members, shared, soft))
            if not (large or small) or changed.intersection(ring):
                continue
            if closed and soft.asks("ring", *members):
                opened.update(ring)
            # macrocycles keep the small rings they run through: those are judged for themselves
            candidates = [bond for bond in ring if bond not in shared] if large else []
            cut[max(candidates or ring, key=lambda bond: (atoms.bonds[bond, 1], -atoms.bonds[bond, 0]))] = True
            changed.update(ring)
        if not changed:
            return Cuts(cut, frozenset(map(tuple, atoms.bonds[sorted(opened)].tolist())))


def describe_cuts(atoms: Atoms, cut_bonds: np.ndarray) -> list[str]:
    """Return a sentence about the bonds (n, 2) that were left out of a tree; no sentence if there are none."""
    if not len(cut_bonds):
        return []
    listed = [f"{atoms.label(i)} - {atoms.label(j)}" for i, j in cut_bonds[:5].tolist()]
    more = f"; and {len(cut_bonds) - 5} more" if len(cut_bonds) > 5 else ""
    number = "1 bond that closes a loop is" if len(cut_bonds) == 1 else f"{len(cut_bonds)} bonds that close loops are"
    return [f"{number} left out of the tree and held by the force field: {'; '.join(listed)}{more}"]


def long_loops(atoms: Atoms, cut_bonds: np.ndarray) -> list[tuple[set[int], set[int]]]:
    """Return the atoms within two bonds of either end of every cut bond (n, 2) that closes more than a small ring."""
    cut = {frozenset(bond) for bond in cut_bonds.tolist()}

    def around(atom: int, n_bonds: int) -> set[int]:
        reached = {atom}
        for _ in range(n_bonds):
            reached |= {b for a in reached for b in atoms.neighbours[a] if frozenset((a, b)) not in cut}
        return reached

    return [(around(i, 2), around(j, 2)) for i, j in cut_bonds.tolist() if j not in around(i, MACROCYCLE - 1)]


def disulfide_bonds(atoms: Atoms) -> np.ndarray:
    """Return a mask (n_bonds,) of the S-S bonds between different residues."""
    i, j = atoms.bonds[:, 0], atoms.bonds[:, 1]
    sulfur = (atoms.element[i] == "S") & (atoms.element[j] == "S")
    return sulfur & (atoms.residue[i] != atoms.residue[j])


def find_rings(ends: np.ndarray, kept: np.ndarray) -> list[tuple[int, ...]]:
    """Return the smallest ring through every ring bond, as numbers of bonds, each ring once, large ones first.

    Parameters
    ----------
    ends : (n_bonds, 2) int
        What every bond joins: atoms, or groups of atoms. Bonds within one group close no ring.
    kept : (n_bonds,) bool
        Bonds that count.
    """
    chosen = np.flatnonzero(kept & (ends[:, 0] != ends[:, 1]))
    cyclic = chosen[~bridges(int(ends.max(initial=-1)) + 1, ends[chosen])]
    partners: dict[int, list[tuple[int, int]]] = {}
    for bond, (i, j) in zip(cyclic.tolist(), ends[cyclic].tolist(), strict=True):
        partners.setdefault(i, []).append((j, bond))
        partners.setdefault(j, []).append((i, bond))
    rings = {tuple(sorted(_smallest_ring(partners, bond, *ends[bond].tolist()))) for bond in cyclic.tolist()}
    return sorted(rings, key=lambda ring: (-len(ring), ring))


def _smallest_ring(partners: dict[int, list[tuple[int, int]]], bond: int, start: int, end: int) -> list[int]:
    """Return `bond`, from `start` to `end`, with the bonds of the shortest other way between them."""
    before: dict[int, tuple[int, int]] = {start: (-1, -1)}
    queue = [start]
    for place in queue:
        for other, via in partners[place]:
            if other not in before and via != bond:
                before[other] = place, via
                queue.append(other)
        if end in before:
            break
    ring = [bond]
    while end != start:
        end, via = before[end]
        ring.append(via)
    return ring


def _may_pucker(
    atoms: Atoms, x: np.ndarray, ring: tuple[int, ...], members: list[int], shared: set[int], soft: SoftRequest
) -> bool:  # fmt: skip
    """True for a ring that is asked for, is fused to no other and is not aromatic."""
    if not soft.asks("ring", *members) or shared.intersection(ring):
        return False
    if any(len(atoms.neighbours[a]) > 3 for a in members):
        return True
    centred = x[members] - x[members].mean(axis=0)
    normal = np.linalg.svd(centred)[2][2]
    return bool(np.abs(centred @ normal).max() > FLAT_RING)
