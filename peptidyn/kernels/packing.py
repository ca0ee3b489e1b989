"""A tree as the articulated kernels read it: a few packed arrays, made once per tree.

Every link gets axes of its own in which its joint axis is z, so that a torsion mixes two columns of a rotation and the
joint axis is the third. With Z those axes in the reference, the pose of a link is R = R_tree Z, and

    R = R_parent E Rot(z, d),       E = Z_parent^T Z,       r = r_parent + R_parent offset .

The inertia about the centre of mass is written with its smallest principal moment and two vectors, I = s 1 + u u^T +
v v^T, which turn with R: two products of a matrix and a vector in place of R I R^T.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from peptidyn.model.tree import TreeModel

# columns of `constants`
E, OFFSET, COM, MASS, SPHERE, PLATE, BLADE, MOMENT, INERTIA, N_CONSTANTS = 0, 9, 12, 15, 16, 17, 20, 23, 24, 25


Packed = tuple[np.ndarray, ...]
"""Arrays over links, all read-only:

parent, joint, dof, coordinate, molecule : (n_links,) int
    As in `TreeModel`.
constants : (n_links, N_CONSTANTS)
    E (9), offset from the parent's origin in the parent's axes (3), centre of mass in own axes (3), mass, smallest
    principal moment s, the vectors u and v (3 each), tr(I) / 2 - s, and the joint inertia.
q_reference : (n_coordinates,)

A plain tuple, because that is what compiled functions take fastest.
"""

_PACKED: WeakKeyDictionary[TreeModel, Packed] = WeakKeyDictionary()


def link_axes(tree: TreeModel) -> np.ndarray:
    """Return Z (n_links, 3, 3): the own axes of every link as columns; z is the joint axis, the identity for roots."""
    z = tree.axis.copy()
    roots = tree.parent < 0
    z[roots] = (0.0, 0.0, 1.0)
    # x: any direction off z
    x = np.zeros_like(z)
    x[np.arange(len(z)), np.abs(z).argmin(axis=1)] = 1.0
    y = np.cross(z, x)
    y /= np.linalg.norm(y, axis=1)[:, None]
    Z = np.stack([np.cross(y, z), y, z], axis=2)
    Z[roots] = np.eye(3)
    return Z


def pack(tree: TreeModel) -> Packed:
    """Return the packed arrays of a tree; they are made once."""
    packed = _PACKED.get(tree)
    if packed is None:
        packed = _PACKED[tree] = _pack(tree)
    return packed


def _pack(tree: TreeModel) -> Packed:
    Z = link_axes(tree)
    up = np.maximum(tree.parent, 0)
    moments, axes = np.linalg.eigh(tree.link_inertia)
    moments = np.maximum(moments, 0.0)
    own = np.einsum("lji,ljk->lik", Z, axes)
    constants = np.zeros((tree.n_links, N_CONSTANTS))
    constants[:, E : E + 9] = np.einsum("lji,ljk->lik", Z[up], Z).reshape(-1, 9)
    constants[:, OFFSET : OFFSET + 3] = np.einsum("lji,lj->li", Z[up], tree.origin - tree.origin[up])
    constants[:, COM : COM + 3] = np.einsum("lji,lj->li", Z, tree.link_com)
    constants[:, MASS] = tree.link_mass
    constants[:, SPHERE] = moments[:, 0]
    for column, k in ((PLATE, 1), (BLADE, 2)):
        constants[:, column : column + 3] = own[:, :, k] * np.sqrt(moments[:, k] - moments[:, 0])[:, None]
    constants[:, MOMENT] = 0.5 * moments.sum(axis=1) - moments[:, 0]
    inner = tree.coordinate >= 0
    constants[inner, INERTIA] = tree.joint_inertia[tree.coordinate[inner]]
    constants.setflags(write=False)
    return tree.parent, tree.joint, tree.dof, tree.coordinate, tree.molecule, constants, tree.q_reference


def pack_molecules(tree: TreeModel, molecules: np.ndarray) -> tuple[Packed, np.ndarray]:
    """Return the packed arrays of some molecules alone (a mask over molecules), and the links that are theirs."""
    links = np.flatnonzero(molecules[tree.molecule])
    parent, joint, dof, coordinate, molecule, constants, q_reference = pack(tree)
    place = np.full(tree.n_links + 1, -1, dtype=np.int64)
    place[links] = np.arange(len(links))
    new = np.cumsum(molecules) - 1
    part = (
        place[parent[links]], joint[links], dof[links], coordinate[links], new[molecule[links]], constants[links],
        q_reference,
    )  # fmt: skip
    for array in part:
        array.setflags(write=False)
    return part, links
