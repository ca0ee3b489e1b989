"""Denavit-Hartenberg frames with six parameters.

Equations (18) and (23)-(28) of Lee, Wang and Chirikjian, "O(n) mass matrix inversion for serial
manipulators and polypeptide chains using Lie derivatives". Legend, for joint k between bodies k-1 and k:

T_k         frame k in space, 4x4 homogeneous; origin o_k, axes x_k, y_k, z_k
Q_k         centre-of-mass frame of body k, seen from frame k: T_k^c = T_k Q_k
T           the relative transform T_k^{k-1} = T_{k-1}^-1 T_k
q           the six coordinates of T, always in the order alpha, beta, gamma, a, b, c
xi          twist (omega, v) of a body, in its own centre-of-mass frame; T^c moves to T^c exp(xi)

beta and b turn and shift along x_{k-1}, gamma and c along z_k. The four-parameter transform (23) has alpha = a = 0;
with the two dummies it covers SE(3). Of the paper's three ways to do so this is form C (26),

    T = screw(e1, b, beta) screw(e2, a, alpha) screw(e3, c, gamma)

which is singular at cos(alpha) = 0; forms A and B are singular on the set alpha = a = 0 itself, at sin(beta) = 0 and
sin(gamma) = 0. Lengths may be in any unit; angles are in rad. The numpy functions work on any number of leading axes;
their Lie derivatives are in `peptidyn.solvers.lie_rows`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError

COORDINATES = ("alpha", "beta", "gamma", "a", "b", "c")
"""Names of the six coordinates, in the order of every array here."""


def screw(axis: Any, distance: Any, angle: Any) -> np.ndarray:
    """Return screw(n, d, theta): a turn by theta about n and a shift by d along it (section 4.1).

    Parameters
    ----------
    axis : (..., 3) array_like
        Unit vectors n.
    distance, angle : (...) array_like
        d, and theta in rad; broadcast against each other and the axes.

    Returns
    -------
    (..., 4, 4) float64
    """
    n = np.asarray(axis, dtype=np.float64)
    d, theta = np.asarray(distance, dtype=np.float64), np.asarray(angle, dtype=np.float64)
    if n.shape[-1:] != (3,) or np.any(np.abs(np.sum(n * n, axis=-1) - 1.0) > 1e-9):
        raise ArgumentError("the axis of a screw must be a unit vector with 3 components; normalise it first")
    shape = np.broadcast_shapes(n.shape[:-1], d.shape, theta.shape)
    n = np.broadcast_to(n, (*shape, 3))
    cos, sin = np.cos(theta)[..., None, None], np.sin(theta)[..., None, None]
    cross = np.cross(np.eye(3), n[..., None, :])  # the matrix that takes r to n x r
    T = np.zeros((*shape, 4, 4))
    T[..., :3, :3] = cos * np.eye(3) + sin * cross + (1.0 - cos) * n[..., :, None] * n[..., None, :]
    T[..., :3, 3] = d[..., None] * n
    T[..., 3, 3] = 1.0
    return T


def dh_transform(beta: Any, b: Any, c: Any, gamma: Any) -> np.ndarray:
    """Return the four-parameter transform (23), screw(e1, b, beta) screw(e3, c, gamma), of shape (..., 4, 4)."""
    e1, _, e3 = np.eye(3)
    return screw(e1, b, beta) @ screw(e3, c, gamma)


def transform(q: Any) -> np.ndarray:
    """Return the six-parameter transform (26), (..., 4, 4), of coordinates `q` (..., 6)."""
    q = np.asarray(q, dtype=np.float64)
    if q.shape[-1:] != (6,):
        raise ArgumentError(f"q has shape {q.shape}, expected (..., 6): {', '.join(COORDINATES)}")
    alpha, beta, gamma, a, b, c = np.moveaxis(q, -1, 0)
    e1, e2, e3 = np.eye(3)
    return screw(e1, b, beta) @ screw(e2, a, alpha) @ screw(e3, c, gamma)


def chain_transforms(relative: Any, base: Any = None) -> np.ndarray:
    """Return T_k = T_0 T_1^0 ... T_k^{k-1} for k = 1 .. n.

    Parameters
    ----------
    relative : (n, 4, 4) array_like
        T_k^{k-1} of every joint.
    base : (4, 4) array_like, optional
        T_0; the identity if not given.

    Returns
    -------
    (n, 4, 4) float64
    """
    relative = np.asarray(relative, dtype=np.float64)
    if relative.ndim != 3 or relative.shape[1:] != (4, 4):
        raise ArgumentError(f"relative has shape {relative.shape}, expected (n, 4, 4), one transform per joint")
    current = np.eye(4) if base is None else np.asarray(base, dtype=np.float64)
    frames = np.empty_like(relative)
    for k, step in enumerate(relative):
        frames[k] = current = current @ step
    return frames
