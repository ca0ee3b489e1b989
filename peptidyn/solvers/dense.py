"""The oracle: M = J^T m J + diag(a) from the atoms, its triangular factor, log det. Slow, short and obvious; O(n^3).

For models without atoms (robot arms) the bodies' mass properties take the atoms' place:
M = sum over bodies of m J_v^T J_v + J_w^T I J_w.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack, solve_triangular

from peptidyn.core.errors import SolverError
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import Factor, Solver


def ancestors(tree: TreeModel) -> np.ndarray:
    """Return a mask (n_links, n_links): entry [l, a] is true if a is l or lies between l and its root."""
    mask = np.eye(tree.n_links, dtype=bool)
    for l in range(tree.n_links):
        if tree.parent[l] >= 0:
            mask[l] |= mask[tree.parent[l]]
    return mask


def point_jacobian(tree: TreeModel, state: State, link: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Jacobians of points and of the rotations of the links that carry them.

    Parameters
    ----------
    tree, state
    link : (n,) int
        Link of each point.
    x : (n, 3)
        World positions, nm.

    Returns
    -------
    J_v, J_w : (n, 3, n_dof)
        Velocity of the point, and angular velocity of its link, per unit generalised velocity.
    """
    links = tree.links(state)
    above = ancestors(tree)
    J_v = np.zeros((len(link), 3, tree.n_dof))
    J_w = np.zeros((len(link), 3, tree.n_dof))
    for l in range(tree.n_links):
        moved = above[link, l]
        r = x[moved] - links.p[l]
        k = tree.dof[l]
        if tree.joint[l] == FREE:
            for i, e in enumerate(np.eye(3)):
                J_v[moved, :, k + i] = np.cross(e, r)
                J_w[moved, :, k + i] = e
                J_v[moved, :, k + 3 + i] = e
        elif tree.joint[l] == POINT:
            for i, e in enumerate(np.eye(3)):
                J_v[moved, :, k + i] = e
        elif tree.joint[l] == PRISMATIC:
            J_v[moved, :, k] = links.axis[l]
        elif tree.joint[l] != FIXED:
            J_v[moved, :, k] = np.cross(links.axis[l], r)
            J_w[moved, :, k] = links.axis[l]
    return J_v, J_w


def jacobian(tree: TreeModel, state: State) -> np.ndarray:
    """Return J = dx/dq (n_atoms, 3, n_dof) of the atom positions."""
    return point_jacobian(tree, state, tree.atom_link, tree.positions(state))[0]


def weighted_jacobian(tree: TreeModel, state: State) -> np.ndarray:
    """Return B (n, n_dof) with M = B^T B: sqrt(m) J of the atoms (or bodies), and a row sqrt(a) per joint inertia."""
    joints = np.zeros((tree.n_coordinates, tree.n_dof))
    joints[np.arange(tree.n_coordinates), tree.coordinate_dof] = np.sqrt(tree.joint_inertia)
    return np.concatenate([_weighted_bodies(tree, state), joints[tree.joint_inertia > 0]])


def _weighted_bodies(tree: TreeModel, state: State) -> np.ndarray:
    """Return sqrt(m) J of the atoms, or of the bodies for models without atoms."""
    if tree.n_atoms:
        J = jacobian(tree, state).reshape(3 * tree.n_atoms, tree.n_dof)
        return np.repeat(np.sqrt(tree.masses), 3)[:, None] * J
    links = tree.links(state)
    J_v, J_w = point_jacobian(tree, state, np.arange(tree.n_links), links.com)
    moments, axes = np.linalg.eigh(links.inertia)
    root = np.sqrt(np.maximum(moments, 0.0))[:, :, None] * axes.transpose(0, 2, 1)
    linear = np.sqrt(links.mass)[:, None, None] * J_v
    return np.concatenate([linear, np.einsum("lij,ljk->lik", root, J_w)]).reshape(6 * tree.n_links, tree.n_dof)


def mass_matrix(tree: TreeModel, state: State) -> np.ndarray:
    """Return the mass matrix M (n_dof, n_dof), from the atoms; O(n^3).

    Parameters
    ----------
    tree : TreeModel
    state : State

    Returns
    -------
    (n_dof, n_dof) array
        Da nm^2 between two angles, Da nm between an angle and a translation, Da between two translations. The joint
        inertias of the tree are on its diagonal.
    """
    B = weighted_jacobian(tree, state)
    return B.T @ B


SMALLEST = 1e-10
"""Columns of sqrt(m) J, relative to the largest, and reciprocal condition numbers of R that are not singular."""


class DenseFactor(Factor):
    """M = R^T R, with R from the QR decomposition of sqrt(m) J: forming M first would square the condition number."""

    def __init__(self, B: np.ndarray):
        self._scale = np.linalg.norm(B, axis=0)  # to one scale for lengths and angles
        if not self._scale.min(initial=np.inf) > SMALLEST * self._scale.max(initial=0.0):
            raise SolverError(_SINGULAR)  # to scale would make a column of what rounding errors leave of a zero
        self._R = np.linalg.qr(B / self._scale, mode="r")
        if len(self._R):
            reciprocal_condition, _ = lapack.dtrcon(self._R)
            if not reciprocal_condition > SMALLEST:
                raise SolverError(_SINGULAR)

    def solve(self, b: np.ndarray) -> np.ndarray:
        scale = self._scale[:, None]
        half = solve_triangular(self._R, b / scale, trans="T")
        return solve_triangular(self._R, half) / scale

    def log_det(self) -> float:
        return 2.0 * float(np.log(np.abs(np.diag(self._R))).sum() + np.log(self._scale).sum())


_SINGULAR = (
    "the mass matrix is singular: a body has no inertia about one of its axes (a collinear molecule?); the other "
    "solvers name the body"
)


class DenseSolver(Solver):
    """M = J^T m J from the atoms, triangular factor (Fixman 1974, eq. 3 of Lee, Wang & Chirikjian 2007)."""

    name = "dense"
    paper = "definition of the mass matrix; O(n^3) oracle"
    takes_joint_inertia = True

    def _factor(self, tree: TreeModel, state: State) -> DenseFactor:
        return DenseFactor(weighted_jacobian(tree, state))
