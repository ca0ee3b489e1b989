"""The metric with every coordinate soft, by Wilson's B matrix: sparse, from atoms alone, by no tree recursion.

With 3 n coordinates q of n atoms the Jacobian dx/dq is square, B = dq/dx is its inverse, and

    det(J^T m J + A) = det(J)^2 det(m + B^T A B) ,      det J = product of r^2 sin(angle) .

Every row of B has at most four atoms, so m + B^T A B is sparse and its determinant costs O(n).
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import splu

from peptidyn.model.tree import TreeModel


def b_matrix(tree: TreeModel, x: np.ndarray):
    """Return B (n_coordinates, 3 n_atoms), sparse, at positions `x`, which may be complex."""
    parts = []
    for motion, derive in (("stretch", _stretch), ("bend", _bend), ("torsion", _dihedral), ("phase", _dihedral)):
        places = np.array([i for i, c in enumerate(tree.coordinates) if c.motion == motion], dtype=np.int64)
        if not len(places):
            continue
        atoms = np.array([tree.coordinates[i].atoms for i in places])
        for column, vector in zip(atoms.T, derive(*(x[a] for a in atoms.T)), strict=True):
            for axis in range(3):
                parts.append((places, 3 * column + axis, vector[:, axis]))
    row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    return coo_array((value, (row, column)), shape=(tree.n_coordinates, 3 * tree.n_atoms)).tocsc()


def log_det_factor(tree: TreeModel, x: np.ndarray) -> np.ndarray:
    """Return the diagonal of U, whose product is det(m + B^T A B), at positions `x`, which may be complex."""
    B = b_matrix(tree, x)
    S = diags_array(np.repeat(tree.masses, 3).astype(x.dtype)) + B.T @ (diags_array(tree.joint_inertia) @ B)
    options = {"SymmetricMode": True}
    return splu(S.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).U.diagonal()


def log_metric(tree: TreeModel, x: np.ndarray) -> float:
    """Return ln(det M / J^2) at positions `x`, which the Jacobian leaves out."""
    return float(np.log(log_det_factor(tree, x)).sum())


def log_metric_derivative(tree: TreeModel, x: np.ndarray, dx: np.ndarray) -> float:
    """Return the derivative of ln(det M / J^2) when atoms move by `dx`, by a complex step: exact to rounding."""
    size = 1e-30
    u = log_det_factor(tree, x + 1j * size * dx)
    return float((u.imag / u.real).sum() / size)


def _dot(a, b):
    return (a * b).sum(axis=1, keepdims=True)


def _stretch(j, k):
    u = (k - j) / np.sqrt(_dot(k - j, k - j))
    return -u, u


def _bend(i, j, k):
    a, b = i - j, k - j
    ra, rb = np.sqrt(_dot(a, a)), np.sqrt(_dot(b, b))
    a, b = a / ra, b / rb
    cosine = _dot(a, b)
    sine = np.sqrt(1 - cosine**2)
    first, last = (cosine * a - b) / (ra * sine), (cosine * b - a) / (rb * sine)
    return first, -first - last, last


def _dihedral(i, j, k, l):
    u, v, w = j - i, k - j, l - k
    m, n = np.cross(u, v), np.cross(v, w)
    length = np.sqrt(_dot(v, v))
    first, last = -m * length / _dot(m, m), n * length / _dot(n, n)
    along, behind = -_dot(u, v) / _dot(v, v), -_dot(w, v) / _dot(v, v)
    second = (along - 1) * first - behind * last
    return first, second, -first - second - last, last
