"""Small molecules whose atoms have names, elements and residues, for tests of what the model makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from random_trees import Beads

from peptidyn.core.atoms import Atoms
from peptidyn.core.points import place
from peptidyn.io.structure import Structure

MASSES = {"H": 1.0, "C": 12.0, "N": 14.0, "O": 16.0, "S": 32.0}


def molecule(
    parents: Sequence[int],
    names: str,
    residues: Sequence[int] | None = None,
    residue_names: Sequence[str] = ("LIG",),
    chains: Sequence[int] | None = None,
    order: float = 1.0,
) -> Beads:
    """Return atoms with these names, each bonded to its parent (-1 starts a molecule); bonds have one `order`.

    The element is the first letter of a name. Residues are numbered from 1, chains are A, B, ... All angles are about
    tetrahedral, and atoms on the same parent lie 120 degrees apart around its own bond.
    """
    labels = names.split()
    bonds = np.array([(up, i) for i, up in enumerate(parents) if up >= 0], dtype=np.int64).reshape(-1, 2)
    ranked = bonds[np.lexsort((bonds[:, 1], bonds[:, 0]))]
    count = len(residue_names)
    owner = np.zeros(count, dtype=np.int64) if chains is None else np.array(chains)
    atoms = Atoms(
        name=np.array(labels),
        element=np.array([name[0] for name in labels]),
        residue=np.zeros(len(labels), dtype=np.int64) if residues is None else np.array(residues),
        residue_name=np.array(residue_names),
        residue_id=np.array([str(r + 1) for r in range(count)]),
        residue_chain=owner,
        chain_id=np.array([chr(ord("A") + c) for c in range(int(owner.max()) + 1)]),
        bonds=ranked,
        bond_order=np.full(len(ranked), order),
    )
    return Beads(atoms, tetrahedral(parents), np.array([MASSES[name[0]] for name in labels]))


def tetrahedral(parents: Sequence[int]) -> np.ndarray:
    """Return positions of atoms that hang on `parents`, 0.15 nm from them; molecules are 2 nm apart."""
    x, children = np.zeros((len(parents), 3)), [0] * len(parents)
    first = {up: i for i, up in reversed(list(enumerate(parents)))}  # of the children of an atom
    for i, up in enumerate(parents):
        if up < 0:
            x[i] = (0.0, 0.0, 2.0 * i)
            continue
        number, before = children[up], parents[up]
        children[up] += 1
        if before < 0 and number == 0:
            x[i] = x[up] + (0.15, 0.0, 0.0)
            continue
        before = first[up] if before < 0 else before
        beyond = parents[before] if parents[before] not in (-1, up) else -1
        far = x[before] + (0.02, 0.11, 0.05) if beyond < 0 else x[beyond]
        x[i] = place(far, x[before], x[up], 0.15, 1.91, 1.0 + 2.0944 * number)
    return x


def changed(structure: Structure | Beads, **arrays: np.ndarray) -> Beads:
    """Return a structure with other arrays of its atoms."""
    return Beads(replace(structure.atoms, **arrays), structure.positions, structure.masses)


def renamed(structure: Structure | Beads, **names: str) -> Beads:
    """Return a structure with other atom names, ``renamed(s, CD1="CD")``."""
    return changed(structure, name=np.array([names.get(str(name), str(name)) for name in structure.atoms.name]))


def without(structure: Structure, *chosen: int) -> Structure:
    """Return a structure without some atoms."""
    return structure.subset(np.setdiff1d(np.arange(structure.n_atoms), chosen))


def atom(structure: Structure | Beads, residue: int, name: str) -> int:
    """Return the atom of this name in a residue, counted from 0."""
    return structure.atoms.residue_atoms[residue][name]


def torsions(tree) -> list[tuple[str, str]]:
    """Return kind and atom names of every torsion, in order."""
    return [(c.kind, " ".join(str(tree.atoms.name[a]) for a in c.atoms)) for c in tree.torsions]


class Selectable(Beads):
    """A structure whose selections are numbers of atoms, ``"all in 2 3 4"``."""

    def select(self, text: str) -> np.ndarray:
        return np.array(text.split(), dtype=np.int64)


def selectable(structure: Beads) -> Selectable:
    """Return the structure with selections by number."""
    return Selectable(structure.atoms, structure.positions, structure.masses, structure.virtual_sites)


def coordinates(tree) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return motion, kind and atoms of every coordinate, in order."""
    return [(c.motion, c.kind, c.atoms) for c in tree.coordinates]
