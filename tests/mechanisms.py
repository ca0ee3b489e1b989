"""Articulated mechanisms without atoms: revolute and sliding joints, massless links, any kind of base."""

from __future__ import annotations

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.model.state import State
from peptidyn.model.tree import Coordinate, TreeModel

BASE_DOF = {FREE: 6, POINT: 3, FIXED: 0}


def mechanism(parent, joint, axis, origin, mass, com, inertia) -> TreeModel:
    """Return a TreeModel of bodies with given mass properties, in the order of `TreeModel`'s attributes.

    `com` is relative to `origin`; inertias are about the centre of mass. Links of one molecule must be consecutive.
    """
    parent = np.array(parent, dtype=np.int64)
    joint = np.array(joint, dtype=np.int64)
    n = len(parent)
    roots = parent < 0
    width = np.array([BASE_DOF.get(int(kind), 1) for kind in joint])
    first = np.concatenate([[0], np.cumsum(width)])
    starts = np.append(np.flatnonzero(roots), n)
    unit = np.array(axis, dtype=np.float64)
    unit[roots] = 0.0
    unit[~roots] /= np.linalg.norm(unit[~roots], axis=1, keepdims=True)
    coordinates = tuple(
        Coordinate("joint", "slide" if joint[l] == PRISMATIC else "torsion", (), "", 0, "", "", int(first[l]))
        for l in np.flatnonzero(~roots)
    )
    none = np.empty(0, dtype=np.int64)
    text = np.empty(0, dtype=str)
    atoms = Atoms(text, text, none, text, text, none, text, none.reshape(0, 2), np.empty(0))
    return TreeModel(
        parent=parent,
        joint=joint,
        axis=unit,
        origin=np.array(origin, dtype=np.float64),
        coordinate=np.where(roots, -1, np.cumsum(~roots) - 1),
        dof=first[:-1],
        molecule=np.cumsum(roots) - 1,
        molecule_link=starts,
        molecule_dof=first[starts],
        link_mass=np.array(mass, dtype=np.float64),
        link_com=np.array(com, dtype=np.float64),
        link_inertia=np.array(inertia, dtype=np.float64),
        q_reference=np.zeros(int((~roots).sum())),
        masses=np.empty(0),
        atom_link=none,
        local=np.empty((0, 3)),
        share_link=none,
        share_atom=none,
        share_weight=np.empty(0),
        joint_atoms=np.full((n, 3), -1),
        coordinates=coordinates,
        hard_bonds=(),
        cut_bonds=none.reshape(0, 2),
        atoms=atoms,
        base="fixed" if FIXED in joint else "free",
    )


def random_inertia(rng: np.random.Generator) -> np.ndarray:
    """Return the inertia (3, 3) of a random cloud of five points of one nm and one Da."""
    x = rng.normal(size=(5, 3))
    x -= x.mean(axis=0)
    return np.sum(x * x) * np.eye(3) - x.T @ x


def random_mechanism(n: int, seed: int, root: int = FREE, slides: float = 0.4, massless: float = 0.3) -> TreeModel:
    """Return a random tree of `n` bodies.

    Parameters
    ----------
    n : int
        Bodies with mass.
    seed : int
    root : int
        FREE or FIXED.
    slides : float
        Share of sliding joints.
    massless : float
        Share of joints with a second coordinate, between which there is a massless link.
    """
    rng = np.random.default_rng(seed)
    parent, joint, mass = [-1], [root], [float(rng.uniform(1, 20))]
    bodies = [0]
    for _ in range(n - 1):
        above = int(rng.choice(bodies[-4:]))
        for weight in ([0.0] if rng.random() < massless else []) + [float(rng.uniform(1, 20))]:
            parent.append(above)
            joint.append(PRISMATIC if rng.random() < slides else REVOLUTE)
            mass.append(weight)
            above = len(parent) - 1
        bodies.append(above)
    links = len(parent)
    heavy = np.array(mass) > 0
    origin = np.zeros((links, 3))
    for l in range(1, links):
        origin[l] = origin[parent[l]] + 0.3 * rng.normal(size=3)
    inertia = np.array([random_inertia(rng) * 0.1 if h else np.zeros((3, 3)) for h in heavy])
    com = np.where(heavy[:, None], 0.2 * rng.normal(size=(links, 3)), 0.0)
    return mechanism(parent, joint, rng.normal(size=(links, 3)), origin, mass, com, inertia)


def random_pose(tree: TreeModel, rng: np.random.Generator) -> State:
    """Return a state with random joints (rad, or tenths of nm) and random base poses."""
    rotation = rng.normal(size=(tree.n_molecules, 4))
    rotation /= np.linalg.norm(rotation, axis=1, keepdims=True)
    q = rng.uniform(-np.pi, np.pi, tree.n_coordinates)
    sliding = np.array([c.motion == "slide" for c in tree.coordinates], dtype=bool)
    q[sliding] *= 0.1
    return tree.reference.replace(q=q, base_position=rng.normal(size=(tree.n_molecules, 3)), base_rotation=rotation)
