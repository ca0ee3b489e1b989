"""Compiled drift and thermostat of a forest, molecule by molecule.

Drift A is RATTLE in minimal coordinates: from (q0, p0) find q1 such that

    J(q0)^T m (x(q1) - x(q0)) / h = p0,        then        p1 = J(q1)^T m (x(q1) - x(q0)) / h .

It is symmetric, symplectic and conserves linear and angular momentum. q1 is found by q1 <- q1 (+) h M(q0)^-1 [residual]
with the factor of M at q0. Sums over atoms are taken body by body: with the centre of mass c, the second moments
C = sum m s s^T about it, and A = R1 C R0^T,

    sum m (x1 - x0) = m (c1 - c0),    sum m s0 x (x1 - x0) = sum m s1 x (x1 - x0) = axial(A),    axial_i = e_ijk A_kj .

`layout` holds the arrays of the model: (parent within the molecule, joint, axis, origin, coordinate, molecule, dof,
q_reference, mass, com, inertia, second moments, first link and first dof of every molecule).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from peptidyn.model.kinematics import FREE, POINT, link_poses
from peptidyn.solvers import articulated_kernels as articulated


@njit(cache=True)
def pose_molecule(layout, m, base_position, base_rotation, q, R, p):
    """Write the poses of the links of molecule m."""
    parent, joint, axis, origin, coordinate, molecule, _, q_reference = layout[:8]
    s, e = layout[12][m], layout[12][m + 1]
    link_poses(
        parent[s:e], joint[s:e], axis[s:e], origin[s:e], coordinate[s:e], molecule[s:e], q_reference, base_position,
        base_rotation, q, R[s:e], p[s:e],
    )  # fmt: skip


@njit(cache=True)
def factor_molecule(layout, m, R, p, S, P, U, D, root):
    """Factor M of molecule m at the poses R, p; return -1, or the link where it is singular."""
    parent, joint, axis, _, _, molecule = layout[:6]
    mass, com, inertia = layout[8:11]
    s, e = layout[12][m], layout[12][m + 1]
    articulated.spatial_axes(parent[s:e], joint[s:e], axis[s:e], R[s:e], p[s:e], S[s:e])
    articulated.spatial_inertias(parent[s:e], mass[s:e], com[s:e], inertia[s:e], R[s:e], p[s:e], P[s:e])
    bad = articulated.factor(parent[s:e], joint[s:e], molecule[s:e], S[s:e], P[s:e], U[s:e], D[s:e], root)
    return bad if bad < 0 else bad + s


@njit(cache=True)
def factor_range(layout, start, stop, base_position, base_rotation, q, R, p, S, P, U, D, root, status):
    """Pose and factor molecules start to stop; status (n_molecules,) is -1 or the singular link."""
    for m in range(start, stop):
        pose_molecule(layout, m, base_position, base_rotation, q, R, p)
        status[m] = factor_molecule(layout, m, R, p, S, P, U, D, root)


@njit(cache=True, parallel=True)
def factor_forest(layout, batches, base_position, base_rotation, q, R, p, S, P, U, D, root, status):
    """Pose and factor every molecule, on all cores."""
    n = len(status)
    for b in prange(batches):
        factor_range(
            layout, b * n // batches, (b + 1) * n // batches, base_position, base_rotation, q, R, p, S, P, U, D, root,
            status,
        )  # fmt: skip


@njit(cache=True)
def _displacement_wrench(layout, l, h, R0, p0, R1, p1, out):
    """Write axial(A) / h and m (c1 - c0) / h of link l into out (6,)."""
    mass, com, second = layout[8], layout[9], layout[11]
    for i in range(3):
        d = p1[l, i] - p0[l, i]
        for k in range(3):
            d += (R1[l, i, k] - R0[l, i, k]) * com[l, k]
        out[3 + i] = mass[l] * d / h
    a = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            total = 0.0
            for k in range(3):
                row = second[l, k, 0] * R0[l, j, 0] + second[l, k, 1] * R0[l, j, 1] + second[l, k, 2] * R0[l, j, 2]
                total += R1[l, i, k] * row
            a[i, j] = total
    out[0] = (a[2, 1] - a[1, 2]) / h
    out[1] = (a[0, 2] - a[2, 0]) / h
    out[2] = (a[1, 0] - a[0, 1]) / h


@njit(cache=True)
def _project(layout, m, R, p, S, wrench, f, out):
    """Write the generalised momentum of link wrenches (spin, force at the centre of mass) at the poses R, p.

    f (n_links, 6) is scratch; S are the joint axes at these poses.
    """
    parent, joint, dof, com = layout[0], layout[1], layout[6], layout[9]
    s, e = layout[12][m], layout[12][m + 1]
    ox, oy, oz = p[s, 0], p[s, 1], p[s, 2]
    for l in range(s, e):
        x, y, z = p[l, 0] - ox, p[l, 1] - oy, p[l, 2] - oz
        for k in range(3):
            x += R[l, 0, k] * com[l, k]
            y += R[l, 1, k] * com[l, k]
            z += R[l, 2, k] * com[l, k]
        fx, fy, fz = wrench[l, 3], wrench[l, 4], wrench[l, 5]
        f[l, 0] = wrench[l, 0] + y * fz - z * fy
        f[l, 1] = wrench[l, 1] + z * fx - x * fz
        f[l, 2] = wrench[l, 2] + x * fy - y * fx
        f[l, 3], f[l, 4], f[l, 5] = fx, fy, fz
    for l in range(e - 1, s - 1, -1):
        k = dof[l]
        if l > s:
            total = 0.0
            up = s + parent[l]
            for i in range(6):
                total += S[l, i] * f[l, i]
                f[up, i] += f[l, i]
            out[k] = total
        elif joint[l] == FREE:
            for i in range(6):
                out[k + i] = f[l, i]
        elif joint[l] == POINT:
            for i in range(3):
                out[k + i] = f[l, 3 + i]


@njit(cache=True)
def _move(layout, m, h, v, base_position, base_rotation, q):
    """Move molecule m in place by h v: (+) of the drift; return the largest change (nm or rad)."""
    joint, coordinate, dof = layout[1], layout[4], layout[6]
    s, e = layout[12][m], layout[12][m + 1]
    largest = 0.0
    k = dof[s]
    if joint[s] == FREE:
        wx, wy, wz = h * v[k], h * v[k + 1], h * v[k + 2]
        angle = math.sqrt(wx * wx + wy * wy + wz * wz)
        c = math.cos(0.5 * angle)
        n = 0.5 if angle < 1e-8 else math.sin(0.5 * angle) / angle
        x, y, z = n * wx, n * wy, n * wz
        a, b, d, g = base_rotation[m, 0], base_rotation[m, 1], base_rotation[m, 2], base_rotation[m, 3]
        r0 = c * a - x * b - y * d - z * g
        r1 = c * b + x * a + y * g - z * d
        r2 = c * d - x * g + y * a + z * b
        r3 = c * g + x * d - y * b + z * a
        norm = math.sqrt(r0 * r0 + r1 * r1 + r2 * r2 + r3 * r3)
        base_rotation[m, 0], base_rotation[m, 1] = r0 / norm, r1 / norm
        base_rotation[m, 2], base_rotation[m, 3] = r2 / norm, r3 / norm
        largest = angle
        k += 3
    if joint[s] == FREE or joint[s] == POINT:
        for i in range(3):
            change = h * v[k + i]
            base_position[m, i] += change
            largest = max(largest, abs(change))
    for l in range(s + 1, e):
        change = h * v[dof[l]]
        q[coordinate[l]] += change
        largest = max(largest, abs(change))
    return largest


@njit(cache=True)
def _drift_molecule(
    layout, m, h, tolerance, most, base_position, base_rotation, q, momentum, R, p, R1, p1, S, P, U, D, root, wrench, f,
    g, v,
):  # fmt: skip
    """Drift molecule m, whose factor is at the present poses R, p; return the iterations, or -1 if it did not converge.

    On success q, base and momentum are the new ones, and R, p the new poses.
    """
    parent, joint, axis, _, _, molecule, dof = layout[:7]
    s, e = layout[12][m], layout[12][m + 1]
    d0, d1 = layout[13][m], layout[13][m + 1]
    g[d0:d1] = 0.0
    count = 0
    while True:
        # the first pass has no displacement yet: its residual is the momentum itself
        for k in range(d0, d1):
            g[k] = momentum[k] - g[k]
        articulated.solve(
            parent[s:e], joint[s:e], molecule[s:e], dof[s:e], S[s:e], P[s:e], U[s:e], D[s:e], root, g, v, f[s:e]
        )
        largest = _move(layout, m, h, v, base_position, base_rotation, q)
        pose_molecule(layout, m, base_position, base_rotation, q, R1, p1)
        for l in range(s, e):
            _displacement_wrench(layout, l, h, R, p, R1, p1, wrench[l])
        if largest < tolerance:
            break
        count += 1
        if count > most or not largest < 1e3:
            return -1
        _project(layout, m, R, p, S, wrench, f, g)
    articulated.spatial_axes(parent[s:e], joint[s:e], axis[s:e], R1[s:e], p1[s:e], S[s:e])
    _project(layout, m, R1, p1, S, wrench, f, momentum)
    for l in range(s, e):
        for i in range(3):
            p[l, i] = p1[l, i]
            for j in range(3):
                R[l, i, j] = R1[l, i, j]
    return count


@njit(cache=True)
def drift_range(
    layout, start, stop, h, tolerance, most, base_position, base_rotation, q, momentum, R, p, R1, p1, S, P, U, D, root,
    wrench, f, g, v, status,
):  # fmt: skip
    """Drift molecules start to stop by h; status (n_molecules,) holds the iterations, or -1 without convergence."""
    for m in range(start, stop):
        status[m] = _drift_molecule(
            layout, m, h, tolerance, most, base_position, base_rotation, q, momentum, R, p, R1, p1, S, P, U, D, root,
            wrench, f, g, v,
        )  # fmt: skip


@njit(cache=True, parallel=True)
def drift_forest(
    layout, batches, h, tolerance, most, base_position, base_rotation, q, momentum, R, p, R1, p1, S, P, U, D, root,
    wrench, f, g, v, status,
):  # fmt: skip
    """Drift every molecule by h, on all cores."""
    n = len(status)
    for b in prange(batches):
        drift_range(
            layout, b * n // batches, (b + 1) * n // batches, h, tolerance, most, base_position, base_rotation, q,
            momentum, R, p, R1, p1, S, P, U, D, root, wrench, f, g, v, status,
        )  # fmt: skip


@njit(cache=True)
def momentum_noise(layout, S, P, U, D, root, normals, f, out):
    """Write L z with L L^T = M for unit normals z (n_dof,): momenta of covariance M from the factor at hand."""
    parent, joint, _, _, _, _, dof = layout[:7]
    for m in range(len(layout[12]) - 1):
        s, e = layout[12][m], layout[12][m + 1]
        f[s:e] = 0.0
        for l in range(e - 1, s, -1):
            k = dof[l]
            up = s + parent[l]
            u = math.sqrt(D[l]) * normals[k]
            total = u
            for i in range(6):
                total += S[l, i] * f[l, i]
                f[up, i] += f[l, i] + U[l, i] * u / D[l]
            out[k] = total
        k = dof[s]
        if joint[s] == FREE:
            for i in range(6):
                total = f[s, i]
                for j in range(i + 1):
                    total += root[m, i, j] * normals[k + j]
                out[k + i] = total
        elif joint[s] == POINT:
            for i in range(3):
                out[k + i] = math.sqrt(P[s, 3, 3]) * normals[k + i]
