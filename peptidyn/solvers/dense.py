"""The oracle: M = J^T m J from the atoms, Cholesky, log det. Slow, short and obvious; O(n^3).

For models without atoms (robot arms) the bodies' mass properties take the atoms' place:
M = sum over bodies of m J_v^T J_v + J_w^T I J_w.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from peptidyn.errors import SolverError
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


def mass_matrix(tree: TreeModel, state: State) -> np.ndarray:
    """Return the mass matrix M (n_dof, n_dof), from the atoms; O(n^3)."""
    if tree.n_atoms:
        J = jacobian(tree, state).reshape(3 * tree.n_atoms, tree.n_dof)
        return J.T @ (np.repeat(tree.masses, 3)[:, None] * J)
    links = tree.links(state)
    J_v, J_w = point_jacobian(tree, state, np.arange(tree.n_links), links.com)
    return np.einsum("l,lik,lim->km", links.mass, J_v, J_v) + np.einsum("lik,lij,ljm->km", J_w, links.inertia, J_w)


class DenseFactor(Factor):
    """Cholesky factor of M."""

    def __init__(self, M: np.ndarray):
        scale = np.sqrt(np.diag(M))
        try:
            # scaled to unit diagonal, a pivot near the rounding error means a singular matrix
            self._factor = cho_factor(M / np.outer(scale, scale), lower=True) if len(M) else None
        except LinAlgError as error:
            raise SolverError(_SINGULAR) from error
        if self._factor is not None and not np.diag(self._factor[0]).min() > 1e-7:
            raise SolverError(_SINGULAR)
        self._scale = scale

    def solve(self, b: np.ndarray) -> np.ndarray:
        if self._factor is None:
            return b.copy()
        return cho_solve(self._factor, b / self._scale[:, None]) / self._scale[:, None]

    def log_det(self) -> float:
        if self._factor is None:
            return 0.0
        return 2.0 * float(np.log(np.diag(self._factor[0])).sum() + np.log(self._scale).sum())


_SINGULAR = (
    "the mass matrix is singular: a body has no inertia about one of its axes (a collinear molecule?); the other "
    "solvers name the body"
)


class DenseSolver(Solver):
    """M = J^T m J from the atoms, Cholesky factor (Fixman 1974, eq. 3 of Lee, Wang & Chirikjian 2007)."""

    name = "dense"
    paper = "definition of the mass matrix; O(n^3) oracle"

    def factor(self, tree: TreeModel, state: State) -> DenseFactor:
        return DenseFactor(mass_matrix(tree, state))
