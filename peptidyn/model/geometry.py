"""Angles, rotations and rigid superposition in float64, compiled.

Conventions: positions in nm, angles in rad. A dihedral follows IUPAC: looking along j -> k, a clockwise turn of
the far bond is positive, so that turning the atoms beyond k about the axis j -> k by +d (right hand) adds d.
Quaternions are (w, x, y, z), unit, and rotate from the reference frame to the world.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True)
def dihedral(a, b, c, d):
    """Return the dihedral angle of four points (3,), in (-pi, pi]."""
    b1x, b1y, b1z = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    b2x, b2y, b2z = c[0] - b[0], c[1] - b[1], c[2] - b[2]
    b3x, b3y, b3z = d[0] - c[0], d[1] - c[1], d[2] - c[2]
    n1x, n1y, n1z = b1y * b2z - b1z * b2y, b1z * b2x - b1x * b2z, b1x * b2y - b1y * b2x
    n2x, n2y, n2z = b2y * b3z - b2z * b3y, b2z * b3x - b2x * b3z, b2x * b3y - b2y * b3x
    length = math.sqrt(b2x * b2x + b2y * b2y + b2z * b2z)
    sine = length * (b1x * n2x + b1y * n2y + b1z * n2z)
    cosine = n1x * n2x + n1y * n2y + n1z * n2z
    return math.atan2(sine, cosine)


@njit(cache=True)
def bond_angle(a, b, c):
    """Return the angle a-b-c of three points (3,), in [0, pi]."""
    ux, uy, uz = a[0] - b[0], a[1] - b[1], a[2] - b[2]
    vx, vy, vz = c[0] - b[0], c[1] - b[1], c[2] - b[2]
    wx, wy, wz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
    return math.atan2(math.sqrt(wx * wx + wy * wy + wz * wz), ux * vx + uy * vy + uz * vz)


@njit(cache=True)
def wrap(angle):
    """Return `angle` in (-pi, pi]."""
    turns = math.ceil((angle - math.pi) / (2.0 * math.pi))
    return angle - 2.0 * math.pi * turns


@njit(cache=True)
def rotate_about(R, axis, angle, out):
    """Write ``R @ Rot(axis, angle)`` into `out` (Rodrigues); `axis` is a unit vector."""
    s = math.sin(angle)
    h = math.sin(0.5 * angle)
    t = 2.0 * h * h
    x, y, z = axis[0], axis[1], axis[2]
    for i in range(3):
        r0, r1, r2 = R[i, 0], R[i, 1], R[i, 2]
        # row vector times (I + s K + t K^2), with K the cross-product matrix of the axis
        k0, k1, k2 = r1 * z - r2 * y, r2 * x - r0 * z, r0 * y - r1 * x
        m0, m1, m2 = k1 * z - k2 * y, k2 * x - k0 * z, k0 * y - k1 * x
        out[i, 0] = r0 + s * k0 + t * m0
        out[i, 1] = r1 + s * k1 + t * m1
        out[i, 2] = r2 + s * k2 + t * m2


@njit(cache=True)
def quaternion_to_matrix(q, out):
    """Write the rotation matrix of the unit quaternion `q` (4,) into `out` (3, 3)."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    out[0, 0] = 1.0 - 2.0 * (y * y + z * z)
    out[0, 1] = 2.0 * (x * y - w * z)
    out[0, 2] = 2.0 * (x * z + w * y)
    out[1, 0] = 2.0 * (x * y + w * z)
    out[1, 1] = 1.0 - 2.0 * (x * x + z * z)
    out[1, 2] = 2.0 * (y * z - w * x)
    out[2, 0] = 2.0 * (x * z - w * y)
    out[2, 1] = 2.0 * (y * z + w * x)
    out[2, 2] = 1.0 - 2.0 * (x * x + y * y)


@njit(cache=True)
def matrix_to_quaternion(R, out):
    """Write the unit quaternion of the rotation matrix `R` (3, 3), with w >= 0, into `out` (4,)."""
    trace = R[0, 0] + R[1, 1] + R[2, 2]
    if trace > 0.0:
        s = 2.0 * math.sqrt(1.0 + trace)
        w, x, y, z = 0.25 * s, (R[2, 1] - R[1, 2]) / s, (R[0, 2] - R[2, 0]) / s, (R[1, 0] - R[0, 1]) / s
    elif R[0, 0] >= R[1, 1] and R[0, 0] >= R[2, 2]:
        s = 2.0 * math.sqrt(1.0 + R[0, 0] - R[1, 1] - R[2, 2])
        w, x, y, z = (R[2, 1] - R[1, 2]) / s, 0.25 * s, (R[0, 1] + R[1, 0]) / s, (R[0, 2] + R[2, 0]) / s
    elif R[1, 1] >= R[2, 2]:
        s = 2.0 * math.sqrt(1.0 + R[1, 1] - R[0, 0] - R[2, 2])
        w, x, y, z = (R[0, 2] - R[2, 0]) / s, (R[0, 1] + R[1, 0]) / s, 0.25 * s, (R[1, 2] + R[2, 1]) / s
    else:
        s = 2.0 * math.sqrt(1.0 + R[2, 2] - R[0, 0] - R[1, 1])
        w, x, y, z = (R[1, 0] - R[0, 1]) / s, (R[0, 2] + R[2, 0]) / s, (R[1, 2] + R[2, 1]) / s, 0.25 * s
    norm = math.sqrt(w * w + x * x + y * y + z * z)
    if w < 0.0:
        norm = -norm
    out[0], out[1], out[2], out[3] = w / norm, x / norm, y / norm, z / norm


@njit(cache=True)
def best_rotation(covariance, out):
    """Write into `out` the proper rotation R that maximises tr(R @ covariance) (Kabsch).

    With ``covariance = sum_i w_i a_i b_i^T`` (a: centred reference, b: centred target), R turns the reference
    onto the target. Rank-deficient covariances (linear or point-like bodies) give one of the optimal rotations.
    """
    u, _, vt = np.linalg.svd(covariance)
    v = vt.T
    determinant = np.linalg.det(v) * np.linalg.det(u)
    for i in range(3):
        for j in range(3):
            last = v[i, 2] * u[j, 2]
            out[i, j] = v[i, 0] * u[j, 0] + v[i, 1] * u[j, 1] + (last if determinant > 0.0 else -last)
