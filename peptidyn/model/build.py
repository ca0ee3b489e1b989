"""`build_tree`: from a structure and the list of soft coordinates to a frozen `TreeModel`.

The rigid bodies are what remains connected when the soft bonds are taken out of the bond graph. Disulfide bonds are
left out first, because they close loops; a rigid selection is joined by extra edges. A bond can be soft only if it
is a bridge of that graph, so rings and rigid selections become rigid by one and the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.core.residues import is_amino_acid
from peptidyn.model import chemistry
from peptidyn.model.chemistry import DEFAULT_SOFT, Bend, Rotor
from peptidyn.model.graph import bridges, components
from peptidyn.model.kinematics import FIXED, FREE, POINT, REVOLUTE
from peptidyn.model.reference_geometry import reference_geometry
from peptidyn.model.tree import Coordinate, HardBond, TreeModel, coordinate_atoms

COINCIDING = 1e-3
"""Bonded atoms nearer than this (nm) define no direction."""

Selection = str | Sequence[int] | np.ndarray


def build_tree(
    structure: Any,
    soft: str | Iterable[str] = DEFAULT_SOFT,
    base: str = "free",
    rigid: Selection | Sequence[Selection] | None = None,
    root: int | None = None,
) -> TreeModel:
    """Build the tree model of a structure.

    Parameters
    ----------
    structure : Structure
        Atoms, positions (nm) and masses (Da). Its positions become the reference geometry.
    soft : str or iterable of str
        What may move: ``phi psi chi`` (default), ``omega``, ``methyl``, ``polar``, ``angles``, ...; see
        `peptidyn.model.chemistry.WORDS`. Everything else is hard: bond lengths, angles, rings, proline's phi.
    base : {"free", "fixed"}
        Whether molecules float (6 base degrees of freedom; 3 for a single atom) or their root bodies are welded.
    rigid : MDTraj selection, atom indices, or a sequence of them, optional
        Each selection is frozen into one body, with everything that lies between its atoms.
    root : int, optional
        An atom whose body becomes the root of its molecule. By default the body of a molecule's first atom.

    Returns
    -------
    TreeModel
    """
    atoms: Atoms = structure.atoms
    x = np.ascontiguousarray(structure.positions, dtype=np.float64)
    masses = np.array(structure.masses, dtype=np.float64)
    if base not in ("free", "fixed"):
        raise ArgumentError(f"base is {base!r}, expected 'free' or 'fixed'")
    if root is not None and not 0 <= root < atoms.n_atoms:
        raise ArgumentError(f"root is {root}, expected an atom index between 0 and {atoms.n_atoms - 1}")
    kinds = chemistry.parse_soft(soft)
    check_masses(atoms, masses)
    check_distances(atoms, x)
    chemistry.check_backbone(atoms)

    cut = chemistry.disulfide_bonds(atoms)
    glue = _rigid_edges(structure, rigid)
    open_atoms = atoms.without_bonds(cut)
    kept = open_atoms.bonds
    joints, hard_bonds = _find_joints(open_atoms, x, kinds, glue)
    is_joint = np.zeros(len(kept), dtype=bool)
    for index, (j, k) in enumerate(kept.tolist()):
        is_joint[index] = (j, k) in joints
    hard_edges = np.concatenate([kept[~is_joint], glue])
    body = components(atoms.n_atoms, hard_edges)
    molecule = components(atoms.n_atoms, np.concatenate([kept, glue]))
    layout = _lay_out(atoms, body, molecule, joints, root, base)
    geometry: dict[str, Any] = reference_geometry(layout, x, masses)
    return TreeModel(
        **layout.__dict__, **geometry, masses=masses, hard_bonds=tuple(hard_bonds), cut_bonds=atoms.bonds[cut]
    )


def check_masses(atoms: Atoms, masses: np.ndarray) -> None:
    """Raise ModelError, naming atoms, unless every mass is a positive number."""
    if masses.shape != (atoms.n_atoms,):
        raise ArgumentError(f"masses have shape {masses.shape}, expected ({atoms.n_atoms},)")
    bad = np.flatnonzero(~(np.isfinite(masses) & (masses > 0)))
    if bad.size:
        raise ModelError(
            f"the mass of {atoms.label(int(bad[0]))} is {masses[bad[0]]:g} Da ({bad.size} such atoms); every atom "
            "needs a positive mass: remove virtual sites and frozen particles"
        )


def check_distances(atoms: Atoms, x: np.ndarray) -> None:
    """Raise ModelError, naming both, if two bonded atoms coincide."""
    length = np.linalg.norm(x[atoms.bonds[:, 0]] - x[atoms.bonds[:, 1]], axis=1)
    bad = np.flatnonzero(~(length > COINCIDING))
    if bad.size:
        i, j = atoms.bonds[bad[0]].tolist()
        raise ModelError(
            f"{atoms.label(i)} and {atoms.label(j)} are bonded and {length[bad[0]]:.1e} nm apart: their coordinates "
            "coincide; repair the structure"
        )


def _rigid_edges(structure: Any, rigid: Any) -> np.ndarray:
    """Return edges (n, 2) that tie the atoms of every rigid selection together."""
    if rigid is None:
        return np.empty((0, 2), dtype=np.int64)
    one = isinstance(rigid, str) or all(isinstance(entry, int | np.integer) for entry in rigid)
    edges = []
    for selection in [rigid] if one else rigid:
        if isinstance(selection, str):
            chosen = structure.select(selection)
        else:
            chosen = np.unique(np.asarray(selection, dtype=np.int64))
            if not len(chosen) or chosen[0] < 0 or chosen[-1] >= structure.atoms.n_atoms:
                raise ArgumentError(
                    f"rigid= holds atom indices outside 0 to {structure.atoms.n_atoms - 1}, or none at all"
                )
        edges.append(np.stack([np.full(len(chosen) - 1, chosen[0]), chosen[1:]], axis=1))
    return np.concatenate(edges).astype(np.int64).reshape(-1, 2)


@dataclass
class _Joint:
    """What is soft at one bond."""

    torsion: Rotor | None = None
    bend: Bend | None = None


def _find_joints(
    atoms: Atoms, x: np.ndarray, kinds: frozenset[str], glue: np.ndarray
) -> tuple[dict[tuple[int, int], _Joint], list[HardBond]]:
    """Return the soft bonds (keys: sorted atom pairs), and the bonds that could turn but do not."""
    acyclic = bridges(atoms.n_atoms, atoms.bonds)
    movable = bridges(atoms.n_atoms, np.concatenate([atoms.bonds, glue]))[: len(atoms.bonds)]
    ring = _pairs(atoms.bonds[~acyclic])
    frozen = _pairs(atoms.bonds[~movable])
    rotors, stiff = chemistry.find_rotors(atoms, x, acyclic)

    joints: dict[tuple[int, int], _Joint] = {}
    hard: list[HardBond] = []
    for rotor in rotors:
        j, k = rotor.atoms[1], rotor.atoms[2]
        key = (min(j, k), max(j, k))
        if rotor.kind not in kinds:
            hard.append(HardBond(rotor.kind, key, "not asked for"))
        elif key in frozen:
            hard.append(HardBond(rotor.kind, key, "inside a rigid selection"))
        else:
            joints[key] = _Joint(torsion=rotor)
    for bond, why in stiff.items():
        hard.append(HardBond("rotor", tuple(atoms.bonds[bond].tolist()), why))
    hard.extend(_ring_phi(atoms, ring))
    for bend in chemistry.find_bends(atoms, kinds):
        j, k = bend.atoms[1], bend.atoms[2]
        key = (min(j, k), max(j, k))
        if key in frozen:
            hard.append(HardBond(bend.kind, key, "in a ring" if key in ring else "inside a rigid selection"))
        else:
            joints.setdefault(key, _Joint()).bend = bend
    return joints, hard


def _pairs(bonds: np.ndarray) -> set[tuple[int, ...]]:
    return set(map(tuple, bonds.tolist()))


def _ring_phi(atoms: Atoms, ring: set[tuple[int, ...]]) -> list[HardBond]:
    """Return the phi bonds that lie in a ring: proline's."""
    found = []
    for residue in range(atoms.n_residues):
        if is_amino_acid(atoms, residue):
            n, ca = atoms.residue_atoms[residue]["N"], atoms.residue_atoms[residue]["CA"]
            key = (min(n, ca), max(n, ca))
            if key in ring:
                found.append(HardBond("phi", key, "in a ring"))
    return found


@dataclass
class _Layout:
    """The part of a TreeModel that does not depend on geometry; attributes as there."""

    parent: np.ndarray
    joint: np.ndarray
    coordinate: np.ndarray
    dof: np.ndarray
    molecule: np.ndarray
    molecule_link: np.ndarray
    molecule_dof: np.ndarray
    atom_link: np.ndarray
    share_link: np.ndarray
    share_atom: np.ndarray
    share_weight: np.ndarray
    joint_atoms: np.ndarray
    coordinates: tuple[Coordinate, ...]
    atoms: Atoms
    base: str

    @property
    def coordinate_atoms(self) -> np.ndarray:
        """As in TreeModel."""
        return coordinate_atoms(self.coordinates)


def _lay_out(
    atoms: Atoms,
    body: np.ndarray,
    molecule: np.ndarray,
    joints: dict[tuple[int, int], _Joint],
    root: int | None,
    base: str,
) -> _Layout:
    """Number links and degrees of freedom, molecule by molecule, in topological order."""
    n_molecules = int(molecule.max()) + 1
    edges: dict[int, list[tuple[int, int, int]]] = {}  # body -> (other body, own atom, other atom)
    links_per_molecule = np.ones(n_molecules, dtype=np.int64)
    for (j, k), joint in joints.items():
        edges.setdefault(int(body[j]), []).append((int(body[k]), j, k))
        edges.setdefault(int(body[k]), []).append((int(body[j]), k, j))
        links_per_molecule[molecule[j]] += (joint.torsion is not None) + (joint.bend is not None)
    molecule_link = np.concatenate([[0], np.cumsum(links_per_molecule)])
    n_links = int(molecule_link[-1])

    size = np.bincount(molecule, minlength=n_molecules)
    base_dof = np.where(size == 1, 3, 6) if base == "free" else np.zeros(n_molecules, dtype=np.int64)
    molecule_dof = np.concatenate([[0], np.cumsum(base_dof + links_per_molecule - 1)])
    root_joint = np.where(size == 1, POINT, FREE) if base == "free" else np.full(n_molecules, FIXED)

    link_molecule = np.repeat(np.arange(n_molecules), links_per_molecule)
    within = np.arange(n_links) - molecule_link[link_molecule]
    roots = within == 0
    joint_kind = np.where(roots, root_joint[link_molecule], REVOLUTE)
    coordinate = np.where(roots, -1, np.arange(n_links) - link_molecule - 1)
    dof = molecule_dof[link_molecule] + np.where(roots, 0, base_dof[link_molecule] + within - 1)

    parent = np.full(n_links, -1, dtype=np.int64)
    joint_atoms = np.full((n_links, 3), -1, dtype=np.int64)
    body_link = np.empty(int(body.max()) + 1, dtype=np.int64)
    first_atom = np.unique(molecule, return_index=True)[1]
    if root is not None:
        first_atom[molecule[root]] = root
    body_link[body[first_atom]] = molecule_link[:-1]

    coordinates: list[Coordinate] = []
    common: list[tuple[int, int]] = []  # (link, atom): atoms of a neighbour that a unit shares
    for m in np.flatnonzero(links_per_molecule > 1).tolist():
        next_link = int(molecule_link[m]) + 1
        for up, down, near, far in _walk(int(body[first_atom[m]]), edges):
            above = int(body_link[up])
            joint = joints[min(near, far), max(near, far)]
            for rotor_or_bend, triple in _joint_sequence(joint, near, far):
                parent[next_link] = above
                joint_atoms[next_link] = triple
                coordinates.append(_coordinate(atoms, rotor_or_bend, int(dof[next_link])))
                above = next_link
                next_link += 1
            body_link[down] = above
            # an atom is common to both bodies if it lies on every axis of the joint
            centre = joint.bend.atoms[1] if joint.bend is not None else -1
            if centre in (-1, near):
                common.append((above, near))
            if centre in (-1, far):
                common.append((int(body_link[up]), far))

    atom_link = body_link[body]
    shared = np.array(common, dtype=np.int64).reshape(-1, 2)
    share_link = np.concatenate([atom_link, shared[:, 0]])
    share_atom = np.concatenate([np.arange(atoms.n_atoms), shared[:, 1]])
    return _Layout(
        parent=parent,
        joint=joint_kind.astype(np.int64),
        coordinate=coordinate.astype(np.int64),
        dof=dof.astype(np.int64),
        molecule=link_molecule.astype(np.int64),
        molecule_link=molecule_link.astype(np.int64),
        molecule_dof=molecule_dof.astype(np.int64),
        atom_link=atom_link.astype(np.int64),
        share_link=share_link,
        share_atom=share_atom,
        share_weight=1.0 / np.bincount(share_atom, minlength=atoms.n_atoms)[share_atom],
        joint_atoms=joint_atoms,
        coordinates=tuple(coordinates),
        atoms=atoms,
        base=base,
    )


def _walk(root: int, edges: dict[int, list[tuple[int, int, int]]]) -> list[tuple[int, int, int, int]]:
    """Return (parent body, body, parent's atom, body's atom) in depth-first order, small branches first.

    Side chains so come before the rest of the backbone, and coordinates follow the sequence.
    """
    order: list[tuple[int, int, int, int]] = []
    stack = [(-1, root, -1, -1)]
    while stack:
        entry = stack.pop()
        order.append(entry)
        up, here = entry[0], entry[1]
        stack.extend((here, other, own, far) for other, own, far in edges[here] if other != up)
    weight: dict[int, int] = {}
    children: dict[int, list[tuple[int, int, int, int]]] = {}
    for entry in reversed(order):
        up, here = entry[0], entry[1]
        weight[here] = 1 + sum(weight[child[1]] for child in children.get(here, ()))
        children.setdefault(up, []).append(entry)
    for entries in children.values():
        entries.sort(key=lambda e: (-weight[e[1]], -e[3]))  # reversed: the stack pops the last one first
    walk: list[tuple[int, int, int, int]] = []
    stack = list(children.get(root, ()))
    while stack:
        entry = stack.pop()
        walk.append(entry)
        stack.extend(children.get(entry[1], ()))
    return walk


def _joint_sequence(joint: _Joint, near: int, far: int) -> list[tuple[Rotor | Bend, tuple[int, int, int]]]:
    """Return the coordinates of a joint from the parent to the child, with the atoms that give their axes.

    A bend whose central atom is the parent's comes before the torsion, one whose central atom is the child's after it:
    either way its axis is perpendicular to the plane of its three atoms.
    """
    sequence: list[tuple[Rotor | Bend, tuple[int, int, int]]] = []
    if joint.torsion is not None:
        sequence.append((joint.torsion, (-1, near, far)))
    if joint.bend is not None:
        i, centre, k = joint.bend.atoms
        if centre == near:
            sequence.insert(0, (joint.bend, (i, centre, k)))
        else:
            sequence.append((joint.bend, (k, centre, i)))
    return sequence


def _coordinate(atoms: Atoms, source: Rotor | Bend, dof: int) -> Coordinate:
    residue = source.residue
    return Coordinate(
        kind=source.kind,
        motion="torsion" if isinstance(source, Rotor) else "bend",
        atoms=source.atoms,
        chain=str(atoms.chain_id[atoms.residue_chain[residue]]),
        residue=residue,
        residue_name=str(atoms.residue_name[residue]),
        residue_id=str(atoms.residue_id[residue]),
        dof=dof,
    )
