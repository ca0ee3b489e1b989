"""Angles between points, and points placed by them: plain functions that need nothing but numpy.

Angles in rad. A dihedral follows IUPAC: looking along j -> k, a clockwise turn of the far bond is positive, so that
turning the atoms beyond k about the axis j -> k by +d (right hand) adds d. `peptidyn.core.geometry` compiles the two
angles; they stand here so that whoever builds a peptide need not import numba or scipy, each slower than the building.
"""

from __future__ import annotations

from math import cos, sin
from typing import Any

import numpy as np


def dihedral(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the dihedral angle of four points, in (-pi, pi]; each is (3,), or (3, n) for n angles at once."""
    b1x, b1y, b1z = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    b2x, b2y, b2z = c[0] - b[0], c[1] - b[1], c[2] - b[2]
    b3x, b3y, b3z = d[0] - c[0], d[1] - c[1], d[2] - c[2]
    n1x, n1y, n1z = b1y * b2z - b1z * b2y, b1z * b2x - b1x * b2z, b1x * b2y - b1y * b2x
    n2x, n2y, n2z = b2y * b3z - b2z * b3y, b2z * b3x - b2x * b3z, b2x * b3y - b2y * b3x
    length = np.sqrt(b2x * b2x + b2y * b2y + b2z * b2z)
    sine = length * (b1x * n2x + b1y * n2y + b1z * n2z)
    cosine = n1x * n2x + n1y * n2y + n1z * n2z
    return np.arctan2(sine, cosine)


def bond_angle(a: Any, b: Any, c: Any) -> Any:
    """Return the angle a-b-c of three points, in [0, pi]; each is (3,), or (3, n) for n angles at once."""
    ux, uy, uz = a[0] - b[0], a[1] - b[1], a[2] - b[2]
    vx, vy, vz = c[0] - b[0], c[1] - b[1], c[2] - b[2]
    wx, wy, wz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
    return np.arctan2(np.sqrt(wx * wx + wy * wy + wz * wz), ux * vx + uy * vy + uz * vz)


def cross(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the vector product of two vectors (numpy's takes ten times as long for a single pair)."""
    return np.array([u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]])


def unit(v: np.ndarray) -> np.ndarray:
    """Return `v` scaled to length one."""
    return v / np.sqrt(v @ v)


def place(a: np.ndarray, b: np.ndarray, c: np.ndarray, length: float, angle: float, dihedral: float) -> np.ndarray:
    """Return the point d with |c d| = `length`, angle b-c-d = `angle` and dihedral a-b-c-d = `dihedral`."""
    axis = unit(c - b)
    normal = unit(cross(b - a, axis))
    sine = sin(angle)
    return c + length * (
        -cos(angle) * axis + sine * cos(dihedral) * cross(normal, axis) + sine * sin(dihedral) * normal
    )


def rotated(v: np.ndarray, axis: np.ndarray, angle: float) -> np.ndarray:
    """Return vectors (..., 3) turned by `angle` about the unit vector `axis` (Rodrigues)."""
    along = np.multiply.outer(v @ axis, axis)
    return v * cos(angle) + np.cross(axis, v) * sin(angle) + along * (1.0 - cos(angle))
