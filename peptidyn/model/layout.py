"""Bodies and joints -> links: numbers of links and degrees of freedom, parents, coordinates, shared atoms."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.model.chemistry import Soft
from peptidyn.model.joints import Joints
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.model.tree import Coordinate, coordinate_atoms

Edges = dict[int, list[tuple[int, int, int]]]
"""By body: (other body, own atom, other atom) of every joint."""


@dataclass
class Layout:
    """The part of a TreeModel that does not depend on geometry; attributes as there."""

    parent: np.ndarray
    joint: np.ndarray
    coordinate: np.ndarray
    dof: np.ndarray
    molecule: np.ndarray
    molecule_link: np.ndarray
    molecule_dof: np.ndarray
    joint_atoms: np.ndarray
    atoms: Atoms
    base: str
    coordinates: tuple[Coordinate, ...] = ()
    atom_link: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    share_link: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    share_atom: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    share_weight: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def coordinate_atoms(self) -> np.ndarray:
        """As in TreeModel."""
        return coordinate_atoms(self.coordinates)


def lay_out(
    atoms: Atoms, body: np.ndarray, molecule: np.ndarray, joints: Joints, roots: np.ndarray, base: str
) -> Layout:  # fmt: skip
    """Number links and degrees of freedom, molecule by molecule, in topological order.

    Parameters
    ----------
    atoms : Atoms
    body, molecule : (n_atoms,) int
        Rigid body and molecule of every atom.
    joints : Joints
    roots : (n_molecules,) int
        An atom of the root body of every molecule.
    base : {"free", "fixed"}
    """
    n_molecules = int(molecule.max()) + 1
    edges: Edges = {}
    links_per_molecule = np.ones(n_molecules, dtype=np.int64)
    for (j, k), joint in joints.items():
        edges.setdefault(int(body[j]), []).append((int(body[k]), j, k))
        edges.setdefault(int(body[k]), []).append((int(body[j]), k, j))
        links_per_molecule[molecule[j]] += len(joint)
    molecule_link = np.concatenate([[0], np.cumsum(links_per_molecule)])
    n_links = int(molecule_link[-1])

    size = np.bincount(molecule, minlength=n_molecules)
    base_dof = np.where(size == 1, 3, 6) if base == "free" else np.zeros(n_molecules, dtype=np.int64)
    molecule_dof = np.concatenate([[0], np.cumsum(base_dof + links_per_molecule - 1)])
    root_joint = np.where(size == 1, POINT, FREE) if base == "free" else np.full(n_molecules, FIXED)
    link_molecule = np.repeat(np.arange(n_molecules), links_per_molecule)
    within = np.arange(n_links) - molecule_link[link_molecule]
    is_root = within == 0
    body_link = np.empty(int(body.max()) + 1, dtype=np.int64)
    body_link[body[roots]] = molecule_link[:-1]
    layout = Layout(
        parent=np.full(n_links, -1, dtype=np.int64),
        joint=np.where(is_root, root_joint[link_molecule], REVOLUTE).astype(np.int64),
        coordinate=np.where(is_root, -1, np.arange(n_links) - link_molecule - 1),
        dof=molecule_dof[link_molecule] + np.where(is_root, 0, base_dof[link_molecule] + within - 1),
        molecule=link_molecule,
        molecule_link=molecule_link,
        molecule_dof=molecule_dof,
        joint_atoms=np.full((n_links, 3), -1, dtype=np.int64),
        atoms=atoms,
        base=base,
    )
    walks = {m: _walk(int(body[roots[m]]), edges) for m in np.flatnonzero(links_per_molecule > 1).tolist()}
    common = _hang_links(layout, walks, joints, body_link)
    _share_atoms(layout, body_link[body], common)
    return layout


def _hang_links(
    layout: Layout, walks: dict[int, list[tuple[int, int, int, int]]], joints: Joints, body_link: np.ndarray
) -> list[tuple[int, int]]:  # fmt: skip
    """Fill in parents, joints and coordinates; return (link, atom) for the atoms of a neighbour that a unit shares."""
    coordinates: list[Coordinate] = []
    common: list[tuple[int, int]] = []
    for m, walk in walks.items():
        next_link = int(layout.molecule_link[m]) + 1
        for up, down, near, far in walk:
            above = int(body_link[up])
            joint = joints[min(near, far), max(near, far)]
            for part, triple in joint.sequence(near, far):
                layout.parent[next_link] = above
                layout.joint_atoms[next_link] = triple
                if part.motion == "stretch":
                    layout.joint[next_link] = PRISMATIC
                coordinates.append(_coordinate(layout.atoms, part, int(layout.dof[next_link])))
                above = next_link
                next_link += 1
            body_link[down] = above
            near_common, far_common = joint.common_atoms(near, far)
            if near_common:
                common.append((above, near))
            if far_common:
                common.append((int(body_link[up]), far))
    layout.coordinates = tuple(coordinates)
    return common


def _share_atoms(layout: Layout, atom_link: np.ndarray, common: list[tuple[int, int]]) -> None:
    """Fill in which link carries every atom, and which links share its mass, in equal parts."""
    shared = np.array(common, dtype=np.int64).reshape(-1, 2)
    layout.atom_link = atom_link
    layout.share_link = np.concatenate([atom_link, shared[:, 0]])
    layout.share_atom = np.concatenate([np.arange(len(atom_link)), shared[:, 1]])
    layout.share_weight = 1.0 / np.bincount(layout.share_atom, minlength=len(atom_link))[layout.share_atom]


def _walk(root: int, edges: Edges) -> list[tuple[int, int, int, int]]:
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


def _coordinate(atoms: Atoms, source: Soft, dof: int) -> Coordinate:
    residue = source.residue
    named = source.kind in ("phase", "angle", "bond", "rotor")
    return Coordinate(
        kind=source.kind,
        motion=source.motion,
        atoms=source.atoms,
        chain=str(atoms.chain_id[atoms.residue_chain[residue]]),
        residue=residue,
        residue_name=str(atoms.residue_name[residue]),
        residue_id=str(atoms.residue_id[residue]),
        dof=dof,
        names=tuple(str(atoms.name[a]) for a in source.atoms) if named else (),
    )
