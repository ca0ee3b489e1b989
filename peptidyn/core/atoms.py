"""The plain description of a molecular system: names, elements, residues, chains, bonds.

This is what the numeric core reads. It knows nothing of OpenMM, MDTraj or Biopython; `peptidyn.io` makes it
from their objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

LONGEST_BOND = 0.5
"""A bond longer than this (nm) is not a bond: the molecule is broken or the topology is another one's."""

Node = TypeVar("Node", bound=Hashable)


def steps_from(start: Node, neighbours: Callable[[Node], Iterable[Node]]) -> dict[Node, int]:
    """Return the number of steps from `start` to everything that can be reached, nearest first."""
    found, front = {start: 0}, [start]
    for node in front:
        for other in neighbours(node):
            if other not in found:
                found[other] = found[node] + 1
                front.append(other)
    return found


@dataclass(frozen=True, eq=False)
class Atoms:
    """Atoms, residues, chains and bonds as flat arrays.

    Attributes
    ----------
    name : (n_atoms,) str
        Atom names, e.g. ``CA``.
    element : (n_atoms,) str
        Element symbols (``C``, ``Se``); the empty string when unknown.
    residue : (n_atoms,) int
        Index of the residue of each atom.
    residue_name : (n_residues,) str
        e.g. ``ALA``.
    residue_id : (n_residues,) str
        Sequence number with insertion code, as in the file: ``52`` or ``52A``.
    residue_chain : (n_residues,) int
        Index of the chain of each residue.
    chain_id : (n_chains,) str
        Chain names, as in the file.
    bonds : (n_bonds, 2) int
        Atom pairs, each with the smaller index first, sorted, without repeats.
    bond_order : (n_bonds,) float
        1, 2, 3, 1.5 for aromatic; 0 when unknown.
    """

    name: np.ndarray
    element: np.ndarray
    residue: np.ndarray
    residue_name: np.ndarray
    residue_id: np.ndarray
    residue_chain: np.ndarray
    chain_id: np.ndarray
    bonds: np.ndarray
    bond_order: np.ndarray

    @property
    def n_atoms(self) -> int:
        return len(self.name)

    @property
    def n_residues(self) -> int:
        return len(self.residue_name)

    @property
    def n_chains(self) -> int:
        return len(self.chain_id)

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """For every atom the bonded atoms, in increasing order."""
        lists: list[list[int]] = [[] for _ in range(self.n_atoms)]
        for i, j in self.bonds.tolist():
            lists[i].append(j)
            lists[j].append(i)
        for bonded in lists:
            bonded.sort()
        return lists

    @cached_property
    def residue_atoms(self) -> list[dict[str, int]]:
        """For every residue a mapping from atom name to atom index."""
        tables: list[dict[str, int]] = [{} for _ in range(self.n_residues)]
        for index, (name, residue) in enumerate(zip(self.name.tolist(), self.residue.tolist(), strict=True)):
            tables[residue].setdefault(name, index)
        return tables

    def without_bonds(self, mask: np.ndarray) -> Atoms:
        """Return the same atoms without the bonds that `mask` (n_bonds,) marks."""
        return replace(self, bonds=self.bonds[~mask], bond_order=self.bond_order[~mask])

    def residue_label(self, residue: int) -> str:
        """Return e.g. ``chain A, residue GLY 12``."""
        chain = str(self.chain_id[self.residue_chain[residue]]).strip()
        where = f"chain {chain}, " if chain else ""
        return f"{where}residue {self.residue_name[residue]} {self.residue_id[residue]}"

    def label(self, atom: int) -> str:
        """Return e.g. ``chain A, residue GLY 12, atom H``."""
        return f"{self.residue_label(int(self.residue[atom]))}, atom {self.name[atom]}"

    def labels(self, atoms: Iterable[int], most: int = 5) -> str:
        """Return the labels of a few atoms in one phrase, with how many were left out."""
        atoms = list(atoms)
        text = "; ".join(self.label(a) for a in atoms[:most])
        return text if len(atoms) <= most else f"{text}; and {len(atoms) - most} more"
