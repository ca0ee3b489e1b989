"""Random articulated molecules for tests: serial, branched, star, forest, with or without bends."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.model.build import build_tree
from peptidyn.model.tree import State, TreeModel


@dataclass(frozen=True, eq=False)
class Beads:
    """The least a structure must have for `build_tree`."""

    atoms: Atoms
    positions: np.ndarray
    masses: np.ndarray
    virtual_sites: dict[int, tuple[int, ...]] = field(default_factory=dict)


def beads(parents: list[int], rng: np.random.Generator) -> Beads:
    """Return atoms bonded as `parents` says (-1 starts a molecule), with random masses, bond angles and torsions.

    Bond angles lie between 60 and 130 degrees: a chain that can become straight has a singular mass matrix there.
    """
    n = len(parents)
    x = np.zeros((n, 3))
    for i, up in enumerate(parents):
        if up < 0:
            x[i] = rng.normal(scale=2.0, size=3)
            continue
        away = rng.normal(size=3)
        beside = parents[up] if parents[up] >= 0 else parents.index(up)
        if beside < i:
            along = x[up] - x[beside]
            along /= np.linalg.norm(along)
            side = away - (away @ along) * along
            angle = np.deg2rad(rng.uniform(60, 130))
            away = -np.cos(angle) * along + np.sin(angle) * side / np.linalg.norm(side)
        x[i] = x[up] + 0.15 * away / np.linalg.norm(away)
    bonds = sorted((up, i) for i, up in enumerate(parents) if up >= 0)
    atoms = Atoms(
        name=np.array([f"B{i}" for i in range(n)]),
        element=np.array([""] * n),
        residue=np.zeros(n, dtype=np.int64),
        residue_name=np.array(["MOL"]),
        residue_id=np.array(["1"]),
        residue_chain=np.zeros(1, dtype=np.int64),
        chain_id=np.array(["A"]),
        bonds=np.array(bonds, dtype=np.int64).reshape(-1, 2),
        bond_order=np.ones(len(bonds)),
    )
    return Beads(atoms, x, rng.uniform(1.0, 30.0, size=n))


def serial_parents(n: int) -> list[int]:
    return [i - 1 for i in range(n)]


def branched_parents(n: int, rng: np.random.Generator) -> list[int]:
    """Every atom hangs on one of the few before it, with at most four bonds each."""
    parents = [-1]
    count = [0]
    for i in range(1, n):
        choices = [j for j in range(max(0, i - 6), i) if count[j] < 4]
        up = int(rng.choice(choices))
        count[up] += 1
        count.append(1)
        parents.append(up)
    return parents


def star_parents(arms: int, length: int) -> list[int]:
    """A centre with `arms` arms of `length` atoms."""
    parents = [-1]
    for _ in range(arms):
        up = 0
        for _ in range(length):
            parents.append(up)
            up = len(parents) - 1
    return parents


def random_tree(
    kind: str, n: int, seed: int = 0, base: str = "free", soft: str = "rotor", inertia: bool = False
) -> TreeModel:
    """Return a random tree model of about `n` atoms.

    kind : "serial", "branched", "star" (more than three joints on one body), "forest" (molecules, rigid ones, points).
    inertia : whether joints have inertias of their own, as for steps of a few fs.
    """
    rng = np.random.default_rng(seed)
    if kind == "serial":
        parents = serial_parents(n)
    elif kind == "branched":
        parents = branched_parents(n, rng)
    elif kind == "star":
        parents = star_parents(6, max(3, n // 6))
    elif kind == "forest":
        parents = []
        for size in (n // 3, 3, 1, n // 3, 3, 1, max(4, n // 3)):
            part = branched_parents(size, rng)
            parents += [up if up < 0 else up + len(parents) for up in part]
    else:
        raise ValueError(kind)
    tree = build_tree(beads(parents, rng), soft=soft, base=base)
    return with_random_inertia(tree, rng) if inertia else tree


def with_random_inertia(tree: TreeModel, rng: np.random.Generator) -> TreeModel:
    """Return the tree with joint inertias of all sizes, some of them zero: up to 1 Da nm^2, and 300 Da for bonds."""
    inertia = rng.uniform(0.0, 1.0, tree.n_coordinates) * (rng.random(tree.n_coordinates) < 0.8)
    inertia[tree.stretch_index] *= 300.0
    return tree.with_joint_inertia(inertia)


def random_state(tree: TreeModel, rng: np.random.Generator, bend_range: float = 0.1) -> State:
    """Return a state with random torsions, slightly changed bends, phases and bonds, and random base poses."""
    q = tree.q_reference.copy()
    q[tree.torsion_index] = rng.uniform(-np.pi, np.pi, tree.n_torsions)
    q[tree.bend_index] += rng.uniform(-bend_range, bend_range, tree.n_bends)
    q[tree.phase_index] += rng.uniform(-bend_range, bend_range, tree.n_phases)
    q[tree.stretch_index] *= 1.0 + rng.uniform(-bend_range, bend_range, tree.n_stretches)
    rotation = rng.normal(size=(tree.n_molecules, 4))
    rotation /= np.linalg.norm(rotation, axis=1, keepdims=True)
    return tree.reference.replace(q=q, base_position=rng.normal(size=(tree.n_molecules, 3)), base_rotation=rotation)
