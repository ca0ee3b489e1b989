"""Rigid units: what moves as one body, its mass, centre of mass and inertia, and a name for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peptidyn.core.residues import ACYL_CAPS, AMINE_CAPS, HYDROGENS, WATERS, is_amino_acid

if TYPE_CHECKING:
    from peptidyn.model.tree import TreeModel


@dataclass(frozen=True, eq=False)
class RigidUnit:
    """One rigid body.

    Attributes
    ----------
    name : str
        e.g. ``peptide plane ALA 3 - ALA 4 (chain A)``.
    kind : str
        ``peptide plane``, ``alpha carbon``, ``side chain``, ``terminus``, ``cap``, ``water``, ``ion``, ``molecule``.
    link : int
        Its link in the tree.
    atoms : (n,) int
        Atoms that only this unit carries.
    shared : (m,) int
        Atoms on the axes of its joints that belong to a neighbouring unit as well.
    mass : float
        Da, shared masses counted by their share.
    com : (3,)
        Centre of mass in the reference configuration, nm.
    inertia : (3, 3)
        Inertia about the centre of mass in reference axes, Da nm^2.
    """

    name: str
    kind: str
    link: int
    atoms: np.ndarray
    shared: np.ndarray
    mass: float
    com: np.ndarray
    inertia: np.ndarray


def same_unit(tree: TreeModel) -> Callable[[Iterable[int]], bool]:
    """Return a function that tells whether atoms all belong to one rigid unit."""
    start, atoms = tree.unit_members
    units: list[set[int]] = [set() for _ in range(tree.n_atoms)]
    for link in range(tree.n_links):
        for atom in atoms[start[link] : start[link + 1]].tolist():
            units[atom].add(link)

    def inside(members: Iterable[int]) -> bool:
        return bool(set.intersection(*(units[atom] for atom in members)))

    return inside


def describe_unit(tree: TreeModel, link: int) -> RigidUnit:
    """Return the rigid unit that `link` carries."""
    start, atoms = tree.unit_members
    members = atoms[start[link] : start[link + 1]]
    own = members[tree.atom_link[members] == link]
    shared = members[tree.atom_link[members] != link]
    kind, name = _name_unit(tree, own)
    return RigidUnit(
        name=name,
        kind=kind,
        link=link,
        atoms=np.sort(own),
        shared=np.sort(shared),
        mass=float(tree.link_mass[link]),
        com=tree.origin[link] + tree.link_com[link],
        inertia=tree.link_inertia[link].copy(),
    )


def _name_unit(tree: TreeModel, own: np.ndarray) -> tuple[str, str]:
    atoms = tree.atoms
    if not len(own):
        return "body", "body"
    residues = np.unique(atoms.residue[own])
    first, last = int(residues[0]), int(residues[-1])
    chain = str(atoms.chain_id[atoms.residue_chain[first]]).strip()
    where = f" (chain {chain})" if chain else ""

    def named(residue: int) -> str:
        return f"{atoms.residue_name[residue]} {atoms.residue_id[residue]}"

    if atoms.residue_name[first] in WATERS:
        return "water", f"water {named(first)}{where}"
    if len(own) == 1 and not atoms.neighbours[int(own[0])]:
        return "ion", f"ion {named(first)}{where}"
    members = set(own.tolist())
    planes = [
        (r, int(atoms.residue[n]))
        for r in residues.tolist()
        for c in [atoms.residue_atoms[r].get("C", -1)]
        if c in members
        for n in atoms.neighbours[c]
        if n in members and atoms.name[n] == "N" and atoms.residue[n] != r
    ]
    if planes:
        start, end = planes[0][0], planes[-1][1]
        kind = "peptide plane" if len(planes) == 1 else "peptide planes"
        return kind, f"{kind} {named(start)} - {named(end)}{where}"
    amino = is_amino_acid(atoms, first)
    table = atoms.residue_atoms[first]
    if amino and table["CA"] in members:
        return "alpha carbon", f"alpha carbon of {named(first)}{where}"
    if amino and (table["N"] in members or table["C"] in members):
        return "terminus", f"terminus of {named(first)}{where}"
    if amino:
        lead = atoms.name[min(members, key=lambda a: (atoms.element[a] in HYDROGENS, a))]
        return "side chain", f"side-chain unit {lead} of {named(first)}{where}"
    kind = "cap" if atoms.residue_name[first] in ACYL_CAPS | AMINE_CAPS else "molecule"
    span = named(first) if first == last else f"{named(first)} - {named(last)}"
    return kind, f"{kind} {span}{where}"
