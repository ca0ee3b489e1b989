"""`build_tree`: from a structure and the list of soft coordinates to a frozen `TreeModel`.

The rigid bodies are what remains connected when the joints are taken out of the bond graph. Bonds that close loops,
disulfides first, are cut before (`peptidyn.model.rings`); a rigid selection is joined by extra edges. A bond can be a
joint only if it is a bridge of that graph, so rings and rigid selections become rigid by one and the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.model import chemistry
from peptidyn.model.chemistry import Bend, Rotor
from peptidyn.model.graph import components
from peptidyn.model.joints import Joints, Phase, Stretch, find_joints
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.model.reference_geometry import reference_geometry
from peptidyn.model.rings import find_cuts
from peptidyn.model.soft import BY_ATOM, DEFAULT_SOFT, SoftRequest
from peptidyn.model.tree import Coordinate, TreeModel, coordinate_atoms

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
        What may move: ``phi psi chi`` (default), ``omega``, ``methyl``, ``angles``, ``heavy``, ``rings``, ``all``, ...;
        see `peptidyn.model.soft`. Everything else is hard. Parts separated by semicolons may be confined to a
        selection: ``"phi psi chi; all in residue 10 to 14"``.
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
    request = SoftRequest(structure, soft)
    check_masses(atoms, masses)
    check_distances(atoms, x)
    chemistry.check_backbone(atoms)

    cuts = find_cuts(atoms, x, request)
    glue = _rigid_edges(structure, rigid)
    open_atoms = atoms.without_bonds(cuts.bonds)
    kept = open_atoms.bonds
    molecule = components(atoms.n_atoms, np.concatenate([kept, glue]))
    roots = _root_atoms(open_atoms, molecule, root, inner=bool(request.kinds & BY_ATOM))
    joints, hard_bonds = find_joints(open_atoms, x, request, glue, cuts, roots)
    is_joint = np.array([(j, k) in joints for j, k in kept.tolist()], dtype=bool)
    hard_edges = np.concatenate([kept[~is_joint], glue])
    body = components(atoms.n_atoms, hard_edges)
    layout = _lay_out(atoms, body, molecule, joints, roots, base)
    geometry: dict[str, Any] = reference_geometry(layout, x, masses)
    return TreeModel(
        **layout.__dict__, **geometry, masses=masses, hard_bonds=tuple(hard_bonds), cut_bonds=atoms.bonds[cuts.bonds]
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


def _root_atoms(atoms: Atoms, molecule: np.ndarray, root: int | None, inner: bool) -> np.ndarray:
    """Return an atom of the root body of every molecule: its first one, or `root`.

    With `inner`, an atom at the end of its molecule gives way to the one it hangs on, as angles are measured there.
    """
    roots = np.unique(molecule, return_index=True)[1]
    if root is not None:
        roots[molecule[root]] = root
    if inner:
        for m, atom in enumerate(roots.tolist()):
            beside = atoms.neighbours[atom]
            if len(beside) == 1 and len(atoms.neighbours[beside[0]]) > 1:
                roots[m] = beside[0]
    return roots


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
    joints: Joints,
    roots: np.ndarray,
    base: str,
) -> _Layout:
    """Number links and degrees of freedom, molecule by molecule, in topological order."""
    n_molecules = int(molecule.max()) + 1
    edges: dict[int, list[tuple[int, int, int]]] = {}  # body -> (other body, own atom, other atom)
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
    joint_kind = np.where(is_root, root_joint[link_molecule], REVOLUTE)
    coordinate = np.where(is_root, -1, np.arange(n_links) - link_molecule - 1)
    dof = molecule_dof[link_molecule] + np.where(is_root, 0, base_dof[link_molecule] + within - 1)

    parent = np.full(n_links, -1, dtype=np.int64)
    joint_atoms = np.full((n_links, 3), -1, dtype=np.int64)
    body_link = np.empty(int(body.max()) + 1, dtype=np.int64)
    body_link[body[roots]] = molecule_link[:-1]

    coordinates: list[Coordinate] = []
    common: list[tuple[int, int]] = []  # (link, atom): atoms of a neighbour that a unit shares
    for m in np.flatnonzero(links_per_molecule > 1).tolist():
        next_link = int(molecule_link[m]) + 1
        for up, down, near, far in _walk(int(body[roots[m]]), edges):
            above = int(body_link[up])
            joint = joints[min(near, far), max(near, far)]
            for part, triple in joint.sequence(near, far):
                parent[next_link] = above
                joint_atoms[next_link] = triple
                if isinstance(part, Stretch):
                    joint_kind[next_link] = PRISMATIC
                coordinates.append(_coordinate(atoms, part, int(dof[next_link])))
                above = next_link
                next_link += 1
            body_link[down] = above
            near_common, far_common = joint.common_atoms(near, far)
            if near_common:
                common.append((above, near))
            if far_common:
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


_MOTIONS: dict[type, str] = {Rotor: "torsion", Phase: "phase", Bend: "bend", Stretch: "stretch"}


def _coordinate(atoms: Atoms, source: Rotor | Phase | Bend | Stretch, dof: int) -> Coordinate:
    residue = source.residue
    named = source.kind in ("phase", "angle", "bond", "rotor")
    return Coordinate(
        kind=source.kind,
        motion=_MOTIONS[type(source)],
        atoms=source.atoms,
        chain=str(atoms.chain_id[atoms.residue_chain[residue]]),
        residue=residue,
        residue_name=str(atoms.residue_name[residue]),
        residue_id=str(atoms.residue_id[residue]),
        dof=dof,
        names=tuple(str(atoms.name[a]) for a in source.atoms) if named else (),
    )
