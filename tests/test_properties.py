"""Property tests: what root choice, rigid motions and atom order must not change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from real_structures import DATA, load
from scipy.spatial.transform import Rotation

from peptidyn.model.build import build_tree
from peptidyn.model.tree import TreeModel

SOFT = "phi psi chi omega methyl polar angles"
NAMES = ["all20.pdb", "ala10-helix.pdb", "ala1.pdb"]

names = st.sampled_from(NAMES)
seeds = st.integers(0, 2**32 - 1)


def coordinates_by_atoms(tree: TreeModel) -> dict[tuple[int, ...], float]:
    """Return the value of every soft coordinate by its atoms, read in the direction of the smaller end."""
    return {
        min(c.atoms, c.atoms[::-1]): value for c, value in zip(tree.coordinates, tree.reference.q.tolist(), strict=True)
    }


def same_angles(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(abs(np.angle(np.exp(1j * (a[k] - b[k])))) < 1e-9 for k in a)


def sizes(tree: TreeModel) -> tuple:
    return (
        tree.n_bodies, tree.n_links, tree.n_torsions, tree.n_bends, tree.n_dof, tree.n_molecules,
        np.round(np.sort(tree.link_mass), 9).tolist(), round(float(tree.masses.sum()), 9),
    )  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(names, seeds)
def test_root_choice(name, seed):
    structure = load(DATA / name)
    root = int(np.random.default_rng(seed).integers(structure.n_atoms))
    tree, other = build_tree(structure, SOFT), build_tree(structure, SOFT, root=root)
    assert other.atom_link[root] == 0 or other.parent[other.atom_link[root]] == -1
    assert sizes(tree) == sizes(other)
    assert same_angles(coordinates_by_atoms(tree), coordinates_by_atoms(other))
    # the same soft coordinates describe the same shape from either root
    rng = np.random.default_rng(seed)
    change = {k: rng.uniform(-0.2, 0.2) for k in coordinates_by_atoms(tree)}
    shapes = []
    for t in (tree, other):
        q = t.reference.q + np.array([change[min(c.atoms, c.atoms[::-1])] for c in t.coordinates])
        shapes.append(t.positions(t.reference.replace(q=q)))
    a, b = (x - tree.masses @ x / tree.masses.sum() for x in shapes)
    turned, _ = Rotation.align_vectors(a, b)
    assert np.abs(turned.apply(b) - a).max() < 1e-9


@settings(deadline=None, max_examples=40)
@given(names, seeds)
def test_rigid_motion(name, seed):
    structure = load(DATA / name)
    rng = np.random.default_rng(seed)
    turn = Rotation.random(rng=rng)
    x = turn.apply(structure.positions.copy()) + rng.normal(scale=5.0, size=3)
    tree, moved = build_tree(structure, SOFT), build_tree(structure.with_positions(x), SOFT)
    assert sizes(tree) == sizes(moved)
    assert same_angles(coordinates_by_atoms(tree), coordinates_by_atoms(moved))
    assert np.abs(tree.positions(tree.state(x)) - x).max() < 1e-10


@settings(deadline=None, max_examples=40)
@given(names, seeds)
def test_atom_order_within_residues(name, seed):
    structure = load(DATA / name)
    rng = np.random.default_rng(seed)
    order = np.concatenate(
        [rng.permutation(np.flatnonzero(structure.atoms.residue == r)) for r in range(structure.n_residues)]
    )
    new_index = np.argsort(order)
    atoms = structure.atoms
    bonds = np.sort(new_index[atoms.bonds], axis=1)
    by_bond = np.lexsort((bonds[:, 1], bonds[:, 0]))
    shuffled_atoms = replace(
        atoms,
        name=atoms.name[order],
        element=atoms.element[order],
        residue=atoms.residue[order],
        bonds=bonds[by_bond],
        bond_order=atoms.bond_order[by_bond],
    )
    shuffled = replace(
        structure, atoms=shuffled_atoms, positions=structure.positions[order], masses=structure.masses[order]
    )
    tree, other = build_tree(structure, SOFT), build_tree(shuffled, SOFT)
    assert sizes(tree) == sizes(other)
    back = {
        min(t := tuple(int(order[a]) for a in atoms_), t[::-1]): value
        for atoms_, value in coordinates_by_atoms(other).items()
    }
    assert same_angles(coordinates_by_atoms(tree), back)
