"""Angles, rotations and rigid superposition in float64, compiled.

Conventions: positions in nm, angles in rad, dihedrals as in `peptidyn.core.points`. Quaternions are (w, x, y, z), unit,
and rotate from the reference frame to the world. By hand, not scipy's Rotation: kernels call them once per body.
"""

from __future__ import annotations

import math

import numpy as np

from peptidyn.core import points
from peptidyn.core.jit import njit

dihedral = njit(cache=True)(points.dihedral)
bond_angle = njit(cache=True)(points.bond_angle)


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
    """Write into `out` the proper rotation R that maximises tr(R @ covariance).

    With ``covariance = sum_i w_i a_i b_i^T`` (a: centred reference, b: centred target), R turns the reference
    onto the target. Rank-deficient covariances (linear or point-like bodies) give one of the optimal rotations.

    The quaternion of R is the eigenvector of the largest eigenvalue of a symmetric matrix (4, 4) (Horn 1987), found by
    Jacobi rotations.
    """
    xx, xy, xz = covariance[0, 0], covariance[0, 1], covariance[0, 2]
    yx, yy, yz = covariance[1, 0], covariance[1, 1], covariance[1, 2]
    zx, zy, zz = covariance[2, 0], covariance[2, 1], covariance[2, 2]
    A, V = np.empty((4, 4)), np.empty((4, 4))
    A[0, 0], A[1, 1], A[2, 2], A[3, 3] = xx + yy + zz, xx - yy - zz, yy - xx - zz, zz - xx - yy
    A[0, 1], A[0, 2], A[0, 3] = yz - zy, zx - xz, xy - yx
    A[1, 2], A[1, 3], A[2, 3] = xy + yx, zx + xz, yz + zy
    for i in range(4):
        for j in range(4):
            V[i, j] = 1.0 if i == j else 0.0
            if j < i:
                A[i, j] = A[j, i]
    _diagonalise4(A, V)
    best = 0
    for i in range(1, 4):
        if A[i, i] > A[best, best]:
            best = i
    quaternion_to_matrix(V[:, best], out)


@njit(cache=True, inline="always")
def _diagonalise4(A, V):
    """Turn the symmetric `A` (4, 4) into its eigenvalues, `V` (4, 4), the identity before, into its eigenvectors."""
    for _ in range(12):
        off, on = 0.0, 0.0
        for i in range(4):
            on += A[i, i] * A[i, i]
            for j in range(i):
                off += A[i, j] * A[i, j]
        if not off > 1e-32 * on:
            return
        for i in range(3):
            for j in range(i + 1, 4):
                if A[i, j] == 0.0:
                    continue
                ratio = (A[j, j] - A[i, i]) / (2.0 * A[i, j])
                t = math.copysign(1.0, ratio) / (abs(ratio) + math.sqrt(1.0 + ratio * ratio))
                c = 1.0 / math.sqrt(1.0 + t * t)
                s = t * c
                for k in range(4):
                    x, y = A[k, i], A[k, j]
                    A[k, i], A[k, j] = c * x - s * y, s * x + c * y
                    x, y = V[k, i], V[k, j]
                    V[k, i], V[k, j] = c * x - s * y, s * x + c * y
                for k in range(4):
                    x, y = A[i, k], A[j, k]
                    A[i, k], A[j, k] = c * x - s * y, s * x + c * y


@njit(cache=True)
def improve_rotation(covariance, R):
    """Turn `R`, a rotation near the one of `best_rotation`, into that one; return whether it was found.

    Newton's steps: a turn of R by a small vector w changes tr(R @ covariance) by g.w - w.H w / 2. Where they end with a
    positive definite H, the maximum is the only one, because every other stationary rotation has a negative direction.
    """
    for _ in range(8):
        m00, m01, m02 = _row_times(R, 0, covariance)
        m10, m11, m12 = _row_times(R, 1, covariance)
        m20, m21, m22 = _row_times(R, 2, covariance)
        h00, h11, h22 = m11 + m22, m00 + m22, m00 + m11
        h01, h02, h12 = -0.5 * (m01 + m10), -0.5 * (m02 + m20), -0.5 * (m12 + m21)
        size = h00 + h11 + h22
        minor = h00 * h11 - h01 * h01
        c00, c01, c02 = h11 * h22 - h12 * h12, h02 * h12 - h01 * h22, h01 * h12 - h02 * h11
        determinant = h00 * c00 + h01 * c01 + h02 * c02
        if not (h00 > 0.0 and minor > 0.0 and determinant > 1e-9 * size * size * size):
            return False
        g0, g1, g2 = m12 - m21, m20 - m02, m01 - m10
        c11, c12, c22 = h00 * h22 - h02 * h02, h01 * h02 - h00 * h12, minor
        w0 = (c00 * g0 + c01 * g1 + c02 * g2) / determinant
        w1 = (c01 * g0 + c11 * g1 + c12 * g2) / determinant
        w2 = (c02 * g0 + c12 * g1 + c22 * g2) / determinant
        square = w0 * w0 + w1 * w1 + w2 * w2
        if square > 1.0:
            return False
        # the unit quaternion (1, w/2) turns by w up to w^3, which the next step finds
        f = 2.0 / (4.0 + square)
        for i in range(3):
            x, y, z = R[0, i], R[1, i], R[2, i]
            tx, ty, tz = w1 * z - w2 * y, w2 * x - w0 * z, w0 * y - w1 * x
            R[0, i] = x + f * (2.0 * tx + w1 * tz - w2 * ty)
            R[1, i] = y + f * (2.0 * ty + w2 * tx - w0 * tz)
            R[2, i] = z + f * (2.0 * tz + w0 * ty - w1 * tx)
        if square < 1e-20:
            return True
    return False


@njit(cache=True, inline="always")
def _row_times(R, i, C):
    """Return row i of R @ C, both (3, 3)."""
    a, b, c = R[i, 0], R[i, 1], R[i, 2]
    return (
        a * C[0, 0] + b * C[1, 0] + c * C[2, 0],
        a * C[0, 1] + b * C[1, 1] + c * C[2, 1],
        a * C[0, 2] + b * C[1, 2] + c * C[2, 2],
    )
