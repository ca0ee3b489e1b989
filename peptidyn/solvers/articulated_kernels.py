"""Compiled kernels of the articulated-body algebra in world axes.

All spatial vectors of a molecule are taken about one origin O, its base origin, so that no shift operators are
needed. With S = (a, (p - O) x a) for a revolute joint and (0, a) for a prismatic one:

    tip to base    P_b = I_b + sum over children (P_c - U_c U_c^T / D_c),   U = P S,   D = S . U
    base           Cholesky factor of P_0 (6 x 6 for a free molecule; a mass for a point; nothing if fixed)
    ln det M       sum of ln D + ln det P_0
    base to tip    Y_0 = P_0^-1,   Y_b = S S^T / D + t Y_parent t^T,   t = I - S U^T / D
    d ln det M / d q_b = -2 tr(Y_parent (P_b - U_b U_b^T / D_b) crm(S_b))

Symmetric 6 x 6 matrices are stored by their upper triangle in full arrays; spatial velocities are (angular, linear),
forces (torque, force).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from peptidyn.model.kinematics import FREE, POINT, PRISMATIC

PIVOT = 1e-13
"""A pivot below this fraction of the terms it is the sum of is rounding error: the matrix is singular."""


@njit(cache=True)
def spatial_axes(parent, joint, axis, R, p, S):
    """Write the motion axis S (n_links, 6) of every inner joint about its molecule's base origin; zero for roots."""
    ox = oy = oz = 0.0
    for l in range(len(parent)):
        if parent[l] < 0:
            ox, oy, oz = p[l, 0], p[l, 1], p[l, 2]
            for i in range(6):
                S[l, i] = 0.0
            continue
        ax = R[l, 0, 0] * axis[l, 0] + R[l, 0, 1] * axis[l, 1] + R[l, 0, 2] * axis[l, 2]
        ay = R[l, 1, 0] * axis[l, 0] + R[l, 1, 1] * axis[l, 1] + R[l, 1, 2] * axis[l, 2]
        az = R[l, 2, 0] * axis[l, 0] + R[l, 2, 1] * axis[l, 1] + R[l, 2, 2] * axis[l, 2]
        if joint[l] == PRISMATIC:
            S[l, 0] = S[l, 1] = S[l, 2] = 0.0
            S[l, 3], S[l, 4], S[l, 5] = ax, ay, az
        else:
            rx, ry, rz = p[l, 0] - ox, p[l, 1] - oy, p[l, 2] - oz
            S[l, 0], S[l, 1], S[l, 2] = ax, ay, az
            S[l, 3], S[l, 4], S[l, 5] = ry * az - rz * ay, rz * ax - rx * az, rx * ay - ry * ax


@njit(cache=True)
def spatial_inertias(parent, mass, com, inertia, R, p, P):
    """Write the spatial inertia P (n_links, 6, 6), upper triangle, of every link about its molecule's base origin."""
    ox = oy = oz = 0.0
    for l in range(len(parent)):
        if parent[l] < 0:
            ox, oy, oz = p[l, 0], p[l, 1], p[l, 2]
        m = mass[l]
        r00, r01, r02 = R[l, 0, 0], R[l, 0, 1], R[l, 0, 2]
        r10, r11, r12 = R[l, 1, 0], R[l, 1, 1], R[l, 1, 2]
        r20, r21, r22 = R[l, 2, 0], R[l, 2, 1], R[l, 2, 2]
        c0, c1, c2 = com[l, 0], com[l, 1], com[l, 2]
        x = p[l, 0] + r00 * c0 + r01 * c1 + r02 * c2 - ox
        y = p[l, 1] + r10 * c0 + r11 * c1 + r12 * c2 - oy
        z = p[l, 2] + r20 * c0 + r21 * c1 + r22 * c2 - oz
        i00, i01, i02 = inertia[l, 0, 0], inertia[l, 0, 1], inertia[l, 0, 2]
        i11, i12, i22 = inertia[l, 1, 1], inertia[l, 1, 2], inertia[l, 2, 2]
        # rows of R I
        a0, a1, a2 = (
            r00 * i00 + r01 * i01 + r02 * i02,
            r00 * i01 + r01 * i11 + r02 * i12,
            r00 * i02 + r01 * i12 + r02 * i22,
        )
        b0, b1, b2 = (
            r10 * i00 + r11 * i01 + r12 * i02,
            r10 * i01 + r11 * i11 + r12 * i12,
            r10 * i02 + r11 * i12 + r12 * i22,
        )
        d0, d1, d2 = (
            r20 * i00 + r21 * i01 + r22 * i02,
            r20 * i01 + r21 * i11 + r22 * i12,
            r20 * i02 + r21 * i12 + r22 * i22,
        )
        P[l, 0, 0] = a0 * r00 + a1 * r01 + a2 * r02 + m * (y * y + z * z)
        P[l, 0, 1] = a0 * r10 + a1 * r11 + a2 * r12 - m * x * y
        P[l, 0, 2] = a0 * r20 + a1 * r21 + a2 * r22 - m * x * z
        P[l, 1, 1] = b0 * r10 + b1 * r11 + b2 * r12 + m * (x * x + z * z)
        P[l, 1, 2] = b0 * r20 + b1 * r21 + b2 * r22 - m * y * z
        P[l, 2, 2] = d0 * r20 + d1 * r21 + d2 * r22 + m * (x * x + y * y)
        P[l, 0, 3] = P[l, 1, 4] = P[l, 2, 5] = 0.0
        P[l, 0, 4], P[l, 0, 5] = -m * z, m * y
        P[l, 1, 3], P[l, 1, 5] = m * z, -m * x
        P[l, 2, 3], P[l, 2, 4] = -m * y, m * x
        P[l, 3, 3] = P[l, 4, 4] = P[l, 5, 5] = m
        P[l, 3, 4] = P[l, 3, 5] = P[l, 4, 5] = 0.0


@njit(cache=True)
def _gain(P, S, U):
    """Write U = P S from the upper triangle of P; return D = S . U and the sum of the sizes of its terms."""
    for i in range(6):
        total = 0.0
        for j in range(i):
            total += P[j, i] * S[j]
        for j in range(i, 6):
            total += P[i, j] * S[j]
        U[i] = total
    D = 0.0
    size = 0.0
    for i in range(6):
        D += S[i] * U[i]
        size += abs(S[i] * U[i])
    return D, size


@njit(cache=True)
def _cholesky6(P, L):
    """Write the lower Cholesky factor of P (upper triangle) into L; return False if P is singular."""
    for i in range(6):
        for j in range(i + 1):
            total = P[j, i]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i == j:
                if not total > PIVOT * P[i, i]:
                    return False
                L[i, i] = math.sqrt(total)
            else:
                L[i, j] = total / L[j, j]
    return True


@njit(cache=True)
def factor(parent, joint, molecule, S, P, U, D, root):
    """Turn spatial inertias P into articulated ones, in place; write U (n_links, 6), D (n_links,), root (n_mol, 6, 6).

    Returns -1, or the link at which the mass matrix is singular.
    """
    for l in range(len(parent) - 1, -1, -1):
        up = parent[l]
        if up < 0:
            if joint[l] == FREE:
                if not _cholesky6(P[l], root[molecule[l]]):
                    return l
            elif joint[l] == POINT:
                if not P[l, 3, 3] > 0.0:
                    return l
            continue
        d, size = _gain(P[l], S[l], U[l])
        if not d > PIVOT * size:
            return l
        D[l] = d
        inverse = 1.0 / d
        for i in range(6):
            scaled = U[l, i] * inverse
            for j in range(i, 6):
                P[up, i, j] += P[l, i, j] - scaled * U[l, j]
    return -1


@njit(cache=True)
def log_det(parent, joint, molecule, P, D, root):
    """Return ln det M from the factor."""
    total = 0.0
    product = 1.0  # several pivots per logarithm
    for l in range(len(parent)):
        if parent[l] >= 0:
            product *= D[l]
        elif joint[l] == FREE:
            for i in range(6):
                product *= root[molecule[l], i, i] ** 2
        elif joint[l] == POINT:
            product *= P[l, 3, 3] ** 3
        if not 1e-100 < product < 1e100:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@njit(cache=True)
def _solve_root(L, b):
    """Solve L L^T x = b in place, for b (6,)."""
    for i in range(6):
        total = b[i]
        for k in range(i):
            total -= L[i, k] * b[k]
        b[i] = total / L[i, i]
    for i in range(5, -1, -1):
        total = b[i]
        for k in range(i + 1, 6):
            total -= L[k, i] * b[k]
        b[i] = total / L[i, i]


@njit(cache=True)
def solve(parent, joint, molecule, dof, S, P, U, D, root, b, x, f):
    """Write x = M^-1 b for vectors (n_dof,); f (n_links, 6) is scratch."""
    f[:] = 0.0
    for l in range(len(parent) - 1, -1, -1):
        up = parent[l]
        if up < 0:
            continue
        u = b[dof[l]]
        for i in range(6):
            u -= S[l, i] * f[l, i]
        x[dof[l]] = u
        u /= D[l]
        for i in range(6):
            f[up, i] += f[l, i] + U[l, i] * u
    for l in range(len(parent)):
        up = parent[l]
        k = dof[l]
        if up < 0:
            if joint[l] == FREE:
                for i in range(6):
                    f[l, i] = b[k + i] - f[l, i]
                _solve_root(root[molecule[l]], f[l])
                for i in range(6):
                    x[k + i] = f[l, i]
            else:
                f[l, :] = 0.0
                if joint[l] == POINT:
                    for i in range(3):
                        x[k + i] = b[k + i] / P[l, 3, 3]
            continue
        a = x[k]
        for i in range(6):
            a -= U[l, i] * f[up, i]
        a /= D[l]
        x[k] = a
        for i in range(6):
            f[l, i] = f[up, i] + S[l, i] * a


@njit(cache=True)
def _cross_motion(V, W, out):
    """Write the spatial cross product V x W of motions."""
    out[0] = V[1] * W[2] - V[2] * W[1]
    out[1] = V[2] * W[0] - V[0] * W[2]
    out[2] = V[0] * W[1] - V[1] * W[0]
    out[3] = V[1] * W[5] - V[2] * W[4] + V[4] * W[2] - V[5] * W[1]
    out[4] = V[2] * W[3] - V[0] * W[5] + V[5] * W[0] - V[3] * W[2]
    out[5] = V[0] * W[4] - V[1] * W[3] + V[3] * W[1] - V[4] * W[0]


@njit(cache=True)
def velocity_terms(parent, joint, dof, S, I, v, V, C, f):
    """Write link twists V, velocity-product accelerations C and bias forces f = V x* I V, each (n_links, 6).

    `I` holds the spatial inertias before they are turned into articulated ones.
    """
    h = np.empty(6)
    for l in range(len(parent)):
        up = parent[l]
        k = dof[l]
        if up < 0:
            for i in range(6):
                V[l, i] = v[k + i] if joint[l] == FREE else 0.0
                C[l, i] = 0.0
            if joint[l] == POINT:
                for i in range(3):
                    V[l, 3 + i] = v[k + i]
        else:
            rate = v[k]
            _cross_motion(V[up], S[l], C[l])
            for i in range(6):
                V[l, i] = V[up, i] + S[l, i] * rate
                C[l, i] *= rate
        for i in range(6):
            total = 0.0
            for j in range(i):
                total += I[l, j, i] * V[l, j]
            for j in range(i, 6):
                total += I[l, i, j] * V[l, j]
            h[i] = total
        V0, V1, V2, V3, V4, V5 = V[l, 0], V[l, 1], V[l, 2], V[l, 3], V[l, 4], V[l, 5]
        f[l, 0] = V1 * h[2] - V2 * h[1] + V4 * h[5] - V5 * h[4]
        f[l, 1] = V2 * h[0] - V0 * h[2] + V5 * h[3] - V3 * h[5]
        f[l, 2] = V0 * h[1] - V1 * h[0] + V3 * h[4] - V4 * h[3]
        f[l, 3] = V1 * h[5] - V2 * h[4]
        f[l, 4] = V2 * h[3] - V0 * h[5]
        f[l, 5] = V0 * h[4] - V1 * h[3]


@njit(cache=True)
def accelerations(parent, joint, molecule, dof, S, P, U, D, root, V, C, f, tau, acc):
    """Write the generalised accelerations `acc` (n_dof,) under `tau`; `f` (bias forces) is used up."""
    for l in range(len(parent) - 1, -1, -1):
        up = parent[l]
        if up < 0:
            continue
        u = tau[dof[l]]
        for i in range(6):
            u -= S[l, i] * f[l, i] + U[l, i] * C[l, i]
        acc[dof[l]] = u
        u /= D[l]
        for i in range(6):
            total = f[l, i] + U[l, i] * u
            for j in range(i):
                total += P[l, j, i] * C[l, j]
            for j in range(i, 6):
                total += P[l, i, j] * C[l, j]
            f[up, i] += total
    for l in range(len(parent)):
        up = parent[l]
        k = dof[l]
        if up < 0:
            if joint[l] == FREE:
                for i in range(6):
                    f[l, i] = tau[k + i] - f[l, i]
                _solve_root(root[molecule[l]], f[l])
                for i in range(6):
                    acc[k + i] = f[l, i]
                # the base origin is a point of the body: from the rate of the twist to the point's acceleration
                acc[k + 3] += V[l, 1] * V[l, 5] - V[l, 2] * V[l, 4]
                acc[k + 4] += V[l, 2] * V[l, 3] - V[l, 0] * V[l, 5]
                acc[k + 5] += V[l, 0] * V[l, 4] - V[l, 1] * V[l, 3]
            else:
                f[l, :] = 0.0
                if joint[l] == POINT:
                    for i in range(3):
                        acc[k + i] = tau[k + i] / P[l, 3, 3]
            continue
        a = acc[k]
        for i in range(6):
            a -= U[l, i] * f[up, i]
        a /= D[l]
        acc[k] = a
        for i in range(6):
            f[l, i] = f[up, i] + C[l, i] + S[l, i] * a


@njit(cache=True)
def _inverse_root(L, Y):
    """Write the inverse of L L^T (6 x 6), full, into Y."""
    column = np.empty(6)
    for j in range(6):
        column[:] = 0.0
        column[j] = 1.0
        _solve_root(L, column)
        for i in range(6):
            Y[i, j] = column[i]


@njit(cache=True)
def log_det_gradient(parent, joint, molecule, coordinate, S, P, U, D, root, Y, gradient):
    """Write d ln det M / d q (n_coordinates,) from the factor; Y (n_links, 6, 6) is scratch.

    The lower triangles of P are filled in on the way.
    """
    w = np.empty(6)
    for l in range(len(parent)):
        up = parent[l]
        if up < 0:
            if joint[l] == FREE:
                _inverse_root(root[molecule[l]], Y[l])
            else:
                Y[l, :, :] = 0.0
                if joint[l] == POINT:
                    for i in range(3, 6):
                        Y[l, i, i] = 1.0 / P[l, 3, 3]
            continue
        Yp, Pl, s, u = Y[up], P[l], S[l], U[l]
        for i in range(1, 6):
            for j in range(i):
                Pl[i, j] = Pl[j, i]
        uw = 0.0
        for i in range(6):
            w[i] = _dot(Yp[i], u)
            uw += w[i] * u[i]
        inverse = 1.0 / D[l]
        gradient[coordinate[l]] = -2.0 * (_trace(Yp, Pl, s) - inverse * _sandwich(u, s, w))
        curve = inverse + uw * inverse * inverse
        Yl = Y[l]
        for i in range(6):
            si, wi = s[i] * inverse, w[i] * inverse - s[i] * curve
            for j in range(6):
                Yl[i, j] = Yp[i, j] - si * w[j] - wi * s[j]


@njit(cache=True, inline="always")
def _dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3] + a[4] * b[4] + a[5] * b[5]


@njit(cache=True, inline="always")
def _trace(Y, P, s):
    """Return tr(Y P crm(s)) for symmetric Y and P, where crm(s) = [[w~, 0], [v~, w~]] for s = (w, v).

    crm(s) is built of cross-product matrices, so only antisymmetric parts of Y P count.
    """
    x = _dot(Y[1], P[2]) - _dot(Y[2], P[1]) + _dot(Y[4], P[5]) - _dot(Y[5], P[4])
    y = _dot(Y[2], P[0]) - _dot(Y[0], P[2]) + _dot(Y[5], P[3]) - _dot(Y[3], P[5])
    z = _dot(Y[0], P[1]) - _dot(Y[1], P[0]) + _dot(Y[3], P[4]) - _dot(Y[4], P[3])
    a = _dot(Y[1], P[5]) - _dot(Y[2], P[4])
    b = _dot(Y[2], P[3]) - _dot(Y[0], P[5])
    c = _dot(Y[0], P[4]) - _dot(Y[1], P[3])
    return s[0] * x + s[1] * y + s[2] * z + s[3] * a + s[4] * b + s[5] * c


@njit(cache=True, inline="always")
def _sandwich(u, s, w):
    """Return u . crm(s) w."""
    return (
        u[0] * (s[1] * w[2] - s[2] * w[1])
        + u[1] * (s[2] * w[0] - s[0] * w[2])
        + u[2] * (s[0] * w[1] - s[1] * w[0])
        + u[3] * (s[1] * w[5] - s[2] * w[4] + s[4] * w[2] - s[5] * w[1])
        + u[4] * (s[2] * w[3] - s[0] * w[5] + s[5] * w[0] - s[3] * w[2])
        + u[5] * (s[0] * w[4] - s[1] * w[3] + s[3] * w[1] - s[4] * w[0])
    )
