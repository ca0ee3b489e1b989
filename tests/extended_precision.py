"""The mass matrix and its algebra in extended precision (longdouble): an oracle with three more digits than M has.

For long chains the condition number of M reaches 1e9 and more, so that M, once rounded to float64, no longer determines
M^-1 to 1e-9. The O(n) methods never form M and are better than that; this oracle can tell.
"""

from __future__ import annotations

import numpy as np

from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.dense import ancestors

Long = np.longdouble
AVAILABLE = np.finfo(Long).eps < 1e-18
"""Whether this machine's longdouble is longer than float64."""


def mass_matrix(tree: TreeModel, state: State) -> np.ndarray:
    """Return M (n_dof, n_dof) from the mass properties of the links."""
    links = tree.links(state)
    p, axis, com, inertia, mass = (a.astype(Long) for a in (links.p, links.axis, links.com, links.inertia, links.mass))
    above = ancestors(tree)
    n = tree.n_dof
    J_v, J_w = np.zeros((2, tree.n_links, 3, n), dtype=Long)
    for l in range(tree.n_links):
        moved, k, kind = above[:, l], tree.dof[l], tree.joint[l]
        r = com[moved] - p[l]
        if kind in (FREE, POINT):
            for i, e in enumerate(np.eye(3, dtype=Long)):
                J_v[moved, :, k + i + (3 if kind == FREE else 0)] = e
                if kind == FREE:
                    J_w[moved, :, k + i] = e
                    J_v[moved, :, k + i] = np.cross(e, r)
        elif kind == PRISMATIC:
            J_v[moved, :, k] = axis[l]
        elif kind != FIXED:
            J_w[moved, :, k] = axis[l]
            J_v[moved, :, k] = np.cross(axis[l], r)
    rotating = np.einsum("lij,ljk->lik", inertia, J_w)
    moving = mass[:, None, None] * J_v
    return J_w.reshape(-1, n).T @ rotating.reshape(-1, n) + J_v.reshape(-1, n).T @ moving.reshape(-1, n)


def solve(M: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
    """Return M^-1 b and ln det M, by Cholesky's method."""
    n = len(M)
    L, x = M.copy(), b.astype(Long)
    for k in range(n):
        L[k, k] = np.sqrt(L[k, k])
        L[k + 1 :, k] /= L[k, k]
        L[k + 1 :, k + 1 :] -= np.outer(L[k + 1 :, k], L[k + 1 :, k])
        x[k] /= L[k, k]
        x[k + 1 :] -= np.outer(L[k + 1 :, k], x[k])
    for k in range(n - 1, -1, -1):
        x[k] = (x[k] - L[k + 1 :, k] @ x[k + 1 :]) / L[k, k]
    return x.astype(np.float64), float(2 * np.log(np.diag(L)).sum())


def log_det(tree: TreeModel, state: State) -> float:
    """Return ln det M of a tree of torsions and bends in O(n), about each link's own origin, with poses as exact as M.

    `solve` gives the same for short chains; for 3,000 torsions it would take hours.
    """
    R, p = np.zeros((tree.n_links, 3, 3), dtype=Long), np.zeros((tree.n_links, 3), dtype=Long)
    P = np.zeros((tree.n_links, 6, 6), dtype=Long)
    axis = tree.axis.astype(Long)
    for l, up in enumerate(tree.parent.tolist()):
        if up < 0:
            R[l], p[l] = _rotation(state.base_rotation[tree.molecule[l]]), state.base_position[tree.molecule[l]]
        else:
            c = tree.coordinate[l]
            turn, K = Long(state.q[c]) - Long(tree.q_reference[c]), _cross(axis[l] / np.sqrt(axis[l] @ axis[l]))
            p[l] = p[up] + R[up] @ (tree.origin[l].astype(Long) - tree.origin[up].astype(Long))
            R[l] = R[up] @ (np.eye(3, dtype=Long) + np.sin(turn) * K + (1 - np.cos(turn)) * (K @ K))
        C, m = _cross(R[l] @ tree.link_com[l].astype(Long)), Long(tree.link_mass[l])
        P[l, :3, :3] = R[l] @ tree.link_inertia[l].astype(Long) @ R[l].T + m * (C @ C.T)
        P[l, :3, 3:], P[l, 3:, :3], P[l, 3:, 3:] = m * C, m * C.T, m * np.eye(3, dtype=Long)
    total = Long(0)
    for l in range(tree.n_links - 1, -1, -1):
        up = tree.parent[l]
        if up < 0:
            L = P[l].copy()
            for k in range(6):
                total += np.log(L[k, k])
                L[k + 1 :, k + 1 :] -= np.outer(L[k + 1 :, k], L[k + 1 :, k]) / L[k, k]
            continue
        a = R[l] @ axis[l]
        h = np.concatenate([a / np.sqrt(a @ a), np.zeros(3, dtype=Long)])
        U = P[l] @ h
        total += np.log(h @ U)
        shift = np.eye(6, dtype=Long)
        shift[:3, 3:] = _cross(p[l] - p[up])
        P[up] += shift @ (P[l] - np.outer(U, U) / (h @ U)) @ shift.T
    return float(total)


def _rotation(quaternion: np.ndarray) -> np.ndarray:
    w, x, y, z = quaternion.astype(Long) / np.sqrt((quaternion.astype(Long) ** 2).sum())
    K = _cross(np.array([x, y, z]))
    return np.eye(3, dtype=Long) + 2 * w * K + 2 * (K @ K)


def _cross(v: np.ndarray) -> np.ndarray:
    out = np.zeros((3, 3), dtype=Long)
    out[0, 1], out[0, 2], out[1, 2] = -v[2], v[1], -v[0]
    return out - out.T
