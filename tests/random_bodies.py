"""Tree models of rigid bodies without atoms, for tests: revolute and prismatic joints, massless links, every base."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel

ROOT_DOF = {FREE: 6, POINT: 3, FIXED: 0}


def make_bodies(
    parent: Sequence[int], joint: Sequence[int], axis, origin, mass, com, inertia, base: str = "free"
) -> TreeModel:
    """Return a tree model of bodies given link by link; the links of a molecule are consecutive.

    axis, origin, com : (n, 3); com relative to `origin`, which is the base origin for roots. inertia : (n, 3, 3).
    """
    n = len(parent)
    kinds = np.array(joint, dtype=np.int64)
    roots = np.array(parent) < 0
    widths = np.array([ROOT_DOF.get(kind, 1) for kind in joint])
    dof = np.concatenate([[0], np.cumsum(widths)])
    first = np.append(np.flatnonzero(roots), n)
    no_atoms = np.empty(0, dtype=np.int64)
    no_names = np.empty(0, dtype=np.str_)
    atoms = Atoms(
        no_names,
        no_names,
        no_atoms,
        no_names,
        no_names,
        no_atoms,
        no_names,
        np.empty((0, 2), dtype=np.int64),
        np.empty(0),
    )
    return TreeModel(
        parent=np.array(parent, dtype=np.int64),
        joint=kinds,
        axis=np.array(axis, dtype=float),
        origin=np.array(origin, dtype=float),
        coordinate=np.where(roots, -1, np.cumsum(~roots) - 1),
        dof=dof[:-1],
        molecule=np.cumsum(roots) - 1,
        molecule_link=first,
        molecule_dof=dof[first],
        link_mass=np.array(mass, dtype=float),
        link_com=np.array(com, dtype=float),
        link_inertia=np.array(inertia, dtype=float),
        q_reference=np.zeros(int((~roots).sum())),
        masses=np.empty(0),
        atom_link=no_atoms,
        local=np.empty((0, 3)),
        share_link=no_atoms,
        share_atom=no_atoms,
        share_weight=np.empty(0),
        joint_atoms=np.full((n, 3), -1, dtype=np.int64),
        coordinates=(),
        hard_bonds=(),
        cut_bonds=np.empty((0, 2), dtype=np.int64),
        atoms=atoms,
        base=base,
    )


def random_bodies(roots: Sequence[int], n: int, seed: int = 0) -> TreeModel:
    """Return a forest with one molecule of `n` random bodies per kind of root.

    A third of the joints slides. About one inner link in four is massless, and then carries the joint that follows.
    """
    rng = np.random.default_rng(seed)
    parent: list[int] = []
    joint: list[int] = []
    mass: list[float] = []
    for root in roots:
        start = len(parent)
        for k in range(n):
            if k == 0:
                parent.append(-1)
            elif mass[-1] == 0.0:
                parent.append(len(parent) - 1)
            else:
                parent.append(int(rng.choice([l for l in range(start, len(parent)) if mass[l] > 0.0])))
            joint.append(root if k == 0 else int(rng.choice([REVOLUTE, REVOLUTE, PRISMATIC])))
            hollow = 0 < k < n - 1 and mass[-1] > 0.0 and rng.uniform() < 0.25
            mass.append(0.0 if hollow else rng.uniform(1.0, 30.0))
    count = len(parent)
    axis = rng.normal(size=(count, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    axis[np.array(parent) < 0] = 0.0
    heavy = np.array(mass) > 0.0
    points = 0.2 * rng.normal(size=(count, 5, 3))  # the inertia of a few points is that of a possible body
    points -= points.mean(axis=1, keepdims=True)
    square = (points**2).sum(axis=(1, 2))[:, None, None] * np.eye(3) - np.einsum("lai,laj->lij", points, points)
    return make_bodies(
        parent,
        joint,
        axis,
        origin=0.5 * rng.normal(size=(count, 3)),
        mass=mass,
        com=0.2 * rng.normal(size=(count, 3)) * heavy[:, None],
        inertia=square * np.array(mass)[:, None, None] / 5.0,
    )


def random_pose(tree: TreeModel, rng: np.random.Generator) -> State:
    """Return a state with every coordinate and base pose at random."""
    rotation = rng.normal(size=(tree.n_molecules, 4))
    rotation /= np.linalg.norm(rotation, axis=1, keepdims=True)
    return State.make(tree, rng.normal(size=tree.n_coordinates), rng.normal(size=(tree.n_molecules, 3)), rotation)
