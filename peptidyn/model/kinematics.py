"""Forward kinematics of a forest of links, compiled, O(n), float64.

A link l hangs on ``parent[l] < l`` by one revolute or prismatic joint, or is the root of a molecule. The reference
configuration is part of the model: `axis` and `origin` are the joint's direction and a point on it, in the world
axes of the reference, so a pose is a rotation R and the world position p of the link's origin:

    root:       R = R(quaternion)                   p = base position
    revolute:   R = R_parent Rot(axis, d)           p = p_parent + R_parent (origin - origin_parent)
    prismatic:  R = R_parent                        p = p_parent + R_parent (origin - origin_parent + d axis)

with d = q - q_reference. Hard coordinates therefore never move: atoms sit at ``p + R local``.

Generalised velocities v hold, molecule after molecule, the base (angular velocity, then velocity of the base
origin, both along world axes; points have the last three only, fixed bases none) and then the joint rates.
"""

from __future__ import annotations

import math

import numpy as np

from peptidyn.core.geometry import bond_angle, dihedral, quaternion_to_matrix, rotate_about
from peptidyn.core.jit import njit

REVOLUTE, PRISMATIC, FREE, POINT, FIXED = 0, 1, 2, 3, 4
"""Joint kinds: two inner ones, and three kinds of root with 6, 3 and 0 degrees of freedom."""

FLAT, BEND, STRETCH = 0, 1, 2
"""Measure of a soft coordinate in Cartesian space: 1 (torsions, phases), sin(angle), length^2."""


@njit(cache=True)
def measure_coordinates(coordinate_atoms, x, q):
    """Write the dihedral (four atoms), angle (three) or distance (two, the others are -1) of every soft coordinate."""
    for c in range(len(coordinate_atoms)):
        i, j, k, l = coordinate_atoms[c, 0], coordinate_atoms[c, 1], coordinate_atoms[c, 2], coordinate_atoms[c, 3]
        if l >= 0:
            q[c] = dihedral(x[i], x[j], x[k], x[l])
        elif k >= 0:
            q[c] = bond_angle(x[i], x[j], x[k])
        else:
            dx, dy, dz = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1], x[j, 2] - x[i, 2]
            q[c] = math.sqrt(dx * dx + dy * dy + dz * dz)


@njit(cache=True)
def link_poses(parent, joint, axis, origin, coordinate, molecule, q_reference, base_position, base_rotation, q, R, p):
    """Write the pose of every link: `R` (n_links, 3, 3) and `p` (n_links, 3)."""
    for l in range(len(parent)):
        up = parent[l]
        if up < 0:
            quaternion_to_matrix(base_rotation[molecule[l]], R[l])
            for i in range(3):
                p[l, i] = base_position[molecule[l], i]
            continue
        d = q[coordinate[l]] - q_reference[coordinate[l]]
        sx = origin[l, 0] - origin[up, 0]
        sy = origin[l, 1] - origin[up, 1]
        sz = origin[l, 2] - origin[up, 2]
        if joint[l] == PRISMATIC:
            sx += d * axis[l, 0]
            sy += d * axis[l, 1]
            sz += d * axis[l, 2]
            for i in range(3):
                for j in range(3):
                    R[l, i, j] = R[up, i, j]
        else:
            rotate_about(R[up], axis[l], d, R[l])
        for i in range(3):
            p[l, i] = p[up, i] + R[up, i, 0] * sx + R[up, i, 1] * sy + R[up, i, 2] * sz


@njit(cache=True)
def place_atoms(atom_link, local, R, p, x):
    """Write atom positions `x` (n_atoms, 3) from the link poses."""
    for a in range(len(atom_link)):
        l = atom_link[a]
        for i in range(3):
            x[a, i] = p[l, i] + R[l, i, 0] * local[a, 0] + R[l, i, 1] * local[a, 1] + R[l, i, 2] * local[a, 2]


@njit(cache=True)
def world_axes(parent, joint, axis, R, out):
    """Write the joint axes in world axes, `out` (n_links, 3); zero for roots."""
    for l in range(len(parent)):
        # a revolute axis is unchanged by its own rotation, so the link's own R serves for both joint kinds
        inner = joint[l] == REVOLUTE or joint[l] == PRISMATIC
        for i in range(3):
            value = R[l, i, 0] * axis[l, 0] + R[l, i, 1] * axis[l, 1] + R[l, i, 2] * axis[l, 2]
            out[l, i] = value if inner else 0.0


@njit(cache=True)
def link_twists(parent, joint, dof, a, p, v, w, u):
    """Write angular velocity `w` and velocity `u` of the origin of every link, each (n_links, 3), from rates `v`."""
    for l in range(len(parent)):
        up = parent[l]
        if up < 0:
            k = dof[l]
            for i in range(3):
                w[l, i] = v[k + i] if joint[l] == FREE else 0.0
                u[l, i] = v[k + 3 + i] if joint[l] == FREE else (v[k + i] if joint[l] == POINT else 0.0)
            continue
        rate = v[dof[l]]
        rx, ry, rz = p[l, 0] - p[up, 0], p[l, 1] - p[up, 1], p[l, 2] - p[up, 2]
        u[l, 0] = u[up, 0] + w[up, 1] * rz - w[up, 2] * ry
        u[l, 1] = u[up, 1] + w[up, 2] * rx - w[up, 0] * rz
        u[l, 2] = u[up, 2] + w[up, 0] * ry - w[up, 1] * rx
        for i in range(3):
            w[l, i] = w[up, i]
            if joint[l] == PRISMATIC:
                u[l, i] += a[l, i] * rate
            else:
                w[l, i] += a[l, i] * rate


@njit(cache=True)
def atom_velocities(atom_link, x, p, w, u, out):
    """Write atom velocities J v into `out` (n_atoms, 3)."""
    for n in range(len(atom_link)):
        l = atom_link[n]
        rx, ry, rz = x[n, 0] - p[l, 0], x[n, 1] - p[l, 1], x[n, 2] - p[l, 2]
        out[n, 0] = u[l, 0] + w[l, 1] * rz - w[l, 2] * ry
        out[n, 1] = u[l, 1] + w[l, 2] * rx - w[l, 0] * rz
        out[n, 2] = u[l, 2] + w[l, 0] * ry - w[l, 1] * rx


@njit(cache=True)
def gather_wrenches(atom_link, x, p, force, torque_out, force_out):
    """Sum atom forces into a force and a torque about the origin of every link."""
    torque_out[:] = 0.0
    force_out[:] = 0.0
    for n in range(len(atom_link)):
        l = atom_link[n]
        rx, ry, rz = x[n, 0] - p[l, 0], x[n, 1] - p[l, 1], x[n, 2] - p[l, 2]
        fx, fy, fz = force[n, 0], force[n, 1], force[n, 2]
        force_out[l, 0] += fx
        force_out[l, 1] += fy
        force_out[l, 2] += fz
        torque_out[l, 0] += ry * fz - rz * fy
        torque_out[l, 1] += rz * fx - rx * fz
        torque_out[l, 2] += rx * fy - ry * fx


@njit(cache=True)
def project_wrenches(parent, joint, dof, a, p, torque, force, out):
    """Write the generalised forces J^T F into `out` (n_dof,); `torque` and `force` (n_links, 3) are summed in place."""
    for l in range(len(parent) - 1, -1, -1):
        up = parent[l]
        if up < 0:
            k = dof[l]
            if joint[l] == FREE:
                for i in range(3):
                    out[k + i] = torque[l, i]
                    out[k + 3 + i] = force[l, i]
            elif joint[l] == POINT:
                for i in range(3):
                    out[k + i] = force[l, i]
            continue
        if joint[l] == PRISMATIC:
            out[dof[l]] = a[l, 0] * force[l, 0] + a[l, 1] * force[l, 1] + a[l, 2] * force[l, 2]
        else:
            out[dof[l]] = a[l, 0] * torque[l, 0] + a[l, 1] * torque[l, 1] + a[l, 2] * torque[l, 2]
        rx, ry, rz = p[l, 0] - p[up, 0], p[l, 1] - p[up, 1], p[l, 2] - p[up, 2]
        torque[up, 0] += torque[l, 0] + ry * force[l, 2] - rz * force[l, 1]
        torque[up, 1] += torque[l, 1] + rz * force[l, 0] - rx * force[l, 2]
        torque[up, 2] += torque[l, 2] + rx * force[l, 1] - ry * force[l, 0]
        for i in range(3):
            force[up, i] += force[l, i]


@njit(cache=True)
def link_inertias(mass, com, inertia, R, p, c, world):
    """Write the centre of mass `c` (n_links, 3) and the inertia about it, `world` (n_links, 3, 3), in world axes."""
    half = np.empty((3, 3))
    for l in range(len(mass)):
        for i in range(3):
            c[l, i] = p[l, i] + R[l, i, 0] * com[l, 0] + R[l, i, 1] * com[l, 1] + R[l, i, 2] * com[l, 2]
        for i in range(3):
            for j in range(3):
                half[i, j] = (
                    R[l, i, 0] * inertia[l, 0, j] + R[l, i, 1] * inertia[l, 1, j] + R[l, i, 2] * inertia[l, 2, j]
                )
        for i in range(3):
            for j in range(i, 3):
                value = half[i, 0] * R[l, j, 0] + half[i, 1] * R[l, j, 1] + half[i, 2] * R[l, j, 2]
                world[l, i, j] = value
                world[l, j, i] = value


@njit(cache=True)
def link_snapshot(
    parent, joint, axis, origin, coordinate, molecule, q_reference, mass, com, inertia, base_position, base_rotation, q,
    R, p, world_axis, world_com, world_inertia,
):  # fmt: skip
    """Write poses, joint axes, centres of mass and inertias of all links in the world, in one compiled call."""
    link_poses(parent, joint, axis, origin, coordinate, molecule, q_reference, base_position, base_rotation, q, R, p)
    world_axes(parent, joint, axis, R, world_axis)
    link_inertias(mass, com, inertia, R, p, world_com, world_inertia)
