"""Compiled moves of molecules, run as short programs without Python in between.

A program is a row of moves, each with two numbers; it is run molecule by molecule, as molecules meet through forces
only. One compiled function runs them all, so that everything between two force calls is one call.

Drift A is RATTLE in minimal coordinates: from (q0, p0) find q1 such that

    J(q0)^T m (x(q1) - x(q0)) / h = p0,        then        p1 = J(q1)^T m (x(q1) - x(q0)) / h .

It is symmetric, symplectic and conserves linear and angular momentum. q1 is found by q1 <- q1 (+) h M(q0)^-1 [residual]
with the factor of M at q0. Sums over atoms are taken body by body: with the centre of mass c, the second moments
C = sum m s s^T about it, and B = R1 C R0^T,

    sum m (x1 - x0) = m (c1 - c0),    sum m s0 x (x1 - x0) = sum m s1 x (x1 - x0) = axial(B),    axial_i = e_ijk B_kj .

Every drift leaves the factor of M at its end, which the next move needs.
"""

from __future__ import annotations

import math
from pathlib import Path

from numba import njit, prange

from peptidyn.model.kinematics import FREE, POINT, PRISMATIC
from peptidyn.solvers import articulated_kernels as kernels
from peptidyn.solvers.articulated_kernels import M1, POSITION, A, C, F, R, S, U
from peptidyn.solvers.articulated_model import BLADE, COM, MASS, MOMENT, PLATE
from peptidyn.solvers.lanes import add6, get, get3, get6, put6

FACTOR = 0
"""Poses and factor of the present configuration."""
PROJECT = 1
"""torque = J^T F of the atom forces."""
FIXMAN = 2
"""fixman = the Fixman torque per kT; once per factor."""
ADD_FIXMAN = 3
"""torque += a fixman."""
KICK = 4
"""B: momentum += a torque."""
DRIFT = 5
"""A: free motion for the time a, solved to the tolerance b."""
THERMALISE = 6
"""O: momentum = a momentum + b noise, noise ~ N(0, M)."""
POSITIONS = 7
"""Atom positions."""
VELOCITIES = 8
"""velocity = M^-1 momentum, and the twists of all links."""
ATOM_VELOCITIES = 9
"""Atom velocities, from the twists."""
LOG_DET = 10
"""ln det M."""
SAVE = 11
"""Keep configuration and momenta."""

N_POSE = POSITION + 3
"""Columns of a pose: the first ones of a row of the kernels."""

ROUNDING = 1e-10
"""Corrections (nm or rad) below this that no longer shrink are rounding error, which grows with the chain."""

DRIFT_ITERATIONS = 60
"""More iterations than this mean that the step is too large."""


@njit(cache=True, error_model="numpy")
def _factor(packed, scratch, first, last, q, base_rotation):
    """Pose and factor the links of a molecule; return -1, or the link where M is singular."""
    w, turns, pivot, root = scratch
    kernels.set_configuration(first, last, packed, q, base_rotation, w, turns[2])
    kernels.sines(turns[2, first:last], turns[0, first:last], turns[1, first:last])
    kernels.outward(first, last, packed, turns[0], turns[1], turns[2], w, None)
    return kernels.factor(first, last, packed, w, pivot, root, None, None)


@njit(cache=True, error_model="numpy")
def _clear_wrenches(w, first, last):
    for l in range(first, last):
        put6(w, l, F, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@njit(cache=True, error_model="numpy")
def _sum_wrenches(packed, w, first, last, out):
    """Write the generalised forces S . f of the link wrenches f in w, which are summed towards the root."""
    parent, joint, dof, _, _, _, _ = packed
    for l in range(last - 1, first - 1, -1):
        f0, f1, f2, f3, f4, f5 = get6(w, l, F)
        i = dof[l]
        if parent[l] >= 0:
            s0, s1, s2, s3, s4, s5 = get6(w, l, S)
            out[i] = s0 * f0 + s1 * f1 + s2 * f2 + s3 * f3 + s4 * f4 + s5 * f5
            add6(w, parent[l], F, f0, f1, f2, f3, f4, f5)
            continue
        if joint[l] == FREE:
            out[i], out[i + 1], out[i + 2] = f0, f1, f2
            i += 3
        if joint[l] == FREE or joint[l] == POINT:
            out[i], out[i + 1], out[i + 2] = f3, f4, f5


@njit(cache=True, error_model="numpy")
def _project(packed, w, first, last, atoms, start, stop, origin, x, force, out):
    """Write J^T F of a molecule, whose atoms are start to stop of the table."""
    atom, link, _ = atoms
    _clear_wrenches(w, first, last)
    for n in range(start, stop):
        i = atom[n]
        rx, ry, rz = x[i, 0] - origin[0], x[i, 1] - origin[1], x[i, 2] - origin[2]
        fx, fy, fz = force[i, 0], force[i, 1], force[i, 2]
        add6(w, link[n], F, ry * fz - rz * fy, rz * fx - rx * fz, rx * fy - ry * fx, fx, fy, fz)
    _sum_wrenches(packed, w, first, last, out)


@njit(cache=True, error_model="numpy")
def _place_atoms(w, atoms, start, stop, origin, x):
    """Write the positions of the atoms start to stop of the table."""
    atom, link, local = atoms
    for n in range(start, stop):
        i, l = atom[n], link[n]
        a, b, c = local[n, 0], local[n, 1], local[n, 2]
        r00, r01, r02, r10, r11, r12 = get6(w, l, R)
        r20, r21, r22, px, py, pz = get6(w, l, R + 6)
        x[i, 0] = origin[0] + (px + r00 * a + r01 * b + r02 * c)
        x[i, 1] = origin[1] + (py + r10 * a + r11 * b + r12 * c)
        x[i, 2] = origin[2] + (pz + r20 * a + r21 * b + r22 * c)


@njit(cache=True, error_model="numpy")
def _move_atoms(w, atoms, start, stop, velocity):
    """Write the velocities of the atoms start to stop of the table, from the twists X of links about O."""
    atom, link, local = atoms
    for n in range(start, stop):
        i, l = atom[n], link[n]
        a, b, c = local[n, 0], local[n, 1], local[n, 2]
        r00, r01, r02, r10, r11, r12 = get6(w, l, R)
        r20, r21, r22, x, y, z = get6(w, l, R + 6)
        x, y, z = x + r00 * a + r01 * b + r02 * c, y + r10 * a + r11 * b + r12 * c, z + r20 * a + r21 * b + r22 * c
        wx, wy, wz, ux, uy, uz = get6(w, l, A)
        velocity[i, 0] = ux + wy * z - wz * y
        velocity[i, 1] = uy + wz * x - wx * z
        velocity[i, 2] = uz + wx * y - wy * x


@njit(cache=True, error_model="numpy")
def _solve(packed, scratch, first, last, b, x):
    """Write x = M^-1 b of a molecule; the columns A of w become link twists."""
    w, _, _, root = scratch
    _clear_wrenches(w, first, last)
    kernels.substitute(first, last, packed, w, b, x)
    kernels.back_substitute(first, last, packed, w, root, b, x)


@njit(cache=True, error_model="numpy")
def _fixman_torque(packed, scratch, first, last, bend, q, gradient, out):
    """Write -d/dq of ln(det M / J^2) / 2; zero for the base."""
    _, _, dof, coordinate, _, _, _ = packed
    if last - first < 2:
        return
    kernels.log_det_gradient(first, last, packed, scratch[0], scratch[3], gradient)
    for l in range(first + 1, last):
        c = coordinate[l]
        out[dof[l]] = -0.5 * gradient[c]
        if bend[c]:
            out[dof[l]] += 1.0 / math.tan(q[c])


@njit(cache=True, error_model="numpy")
def _thermalise(packed, scratch, first, last, keep, strength, normals, momentum):
    """p <- keep p + strength L z with L L^T = M and unit normals z (n_dof,)."""
    parent, joint, dof, _, molecule, constants, _ = packed
    w, _, pivot, root = scratch
    _clear_wrenches(w, first, last)
    for l in range(last - 1, first, -1):
        i = dof[l]
        u = math.sqrt(pivot[l]) * normals[i]
        s0, s1, s2, s3, s4, s5 = get6(w, l, S)
        f0, f1, f2, f3, f4, f5 = get6(w, l, F)
        momentum[i] = keep * momentum[i] + strength * (
            u + s0 * f0 + s1 * f1 + s2 * f2 + s3 * f3 + s4 * f4 + s5 * f5
        )  # fmt: skip
        u /= pivot[l]
        u0, u1, u2, u3, u4, u5 = get6(w, l, U)
        add6(w, parent[l], F, f0 + u0 * u, f1 + u1 * u, f2 + u2 * u, f3 + u3 * u, f4 + u4 * u, f5 + u5 * u)
    i = dof[first]
    if joint[first] == FREE:
        for j in range(6):
            total = w[first, F + j]
            for n in range(j + 1):
                total += root[molecule[first], 6 * j + n] * normals[i + n]
            momentum[i + j] = keep * momentum[i + j] + strength * total
    elif joint[first] == POINT:
        for j in range(3):
            momentum[i + j] = keep * momentum[i + j] + strength * math.sqrt(constants[first, MASS]) * normals[i + j]


# ---------------------------------------------------------------------------- drift


@njit(cache=True, error_model="numpy")
def _displace(packed, first, last, m, h, v, base_position, base_rotation, q):
    """Move a molecule in place by h v: (+) of the drift; return the largest change (nm or rad)."""
    _, joint, dof, coordinate, _, _, _ = packed
    largest = 0.0
    k = dof[first]
    if joint[first] == FREE:
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
    if joint[first] == FREE or joint[first] == POINT:
        for i in range(3):
            change = h * v[k + i]
            base_position[m, i] += change
            largest = max(largest, abs(change))
    for l in range(first + 1, last):
        change = h * v[dof[l]]
        q[coordinate[l]] += change
        largest = max(largest, abs(change))
    return largest


@njit(cache=True, error_model="numpy")
def _displacement_wrenches(packed, w, turns, trial, wrench, first, last, h, sx, sy, sz):
    """Pose links into `trial` and write axial(B) / h and m (c1 - c0) / h into `wrench`, and taken about O into w.

    The base origin has moved by sx, sy, sz.
    """
    parent, joint, _, _, _, constants, _ = packed
    for l in range(first, last):
        up = parent[l]
        if up >= 0:
            kernels.pose_link(
                constants, l, joint[l] == PRISMATIC, turns[2], turns[0], turns[1], trial, up, trial
            )  # fmt: skip
        a00, a01, a02, a10, a11, a12 = get6(w, l, R)
        a20, a21, a22 = get3(w, l, R + 6)
        b00, b01, b02, b10, b11, b12 = get6(trial, l, R)
        b20, b21, b22, x, y, z = get6(trial, l, R + 6)
        p, q, r = get3(constants, l, COM)
        cx, cy, cz = get3(w, l, C)
        m = get(constants, l, MASS) / h
        fx = m * (sx + x - cx + b00 * p + b01 * q + b02 * r)
        fy = m * (sy + y - cy + b10 * p + b11 * q + b12 * r)
        fz = m * (sz + z - cz + b20 * p + b21 * q + b22 * r)
        s = get(constants, l, MOMENT)
        nx = s * (a10 * b20 - a20 * b10 + a11 * b21 - a21 * b11 + a12 * b22 - a22 * b12)
        ny = s * (a20 * b00 - a00 * b20 + a21 * b01 - a01 * b21 + a22 * b02 - a02 * b22)
        nz = s * (a00 * b10 - a10 * b00 + a01 * b11 - a11 * b01 + a02 * b12 - a12 * b02)
        u0, u1, u2, v0, v1, v2 = get6(w, l, M1)
        p, q, r = get3(constants, l, PLATE)
        x, y, z = b00 * p + b01 * q + b02 * r, b10 * p + b11 * q + b12 * r, b20 * p + b21 * q + b22 * r
        nx, ny, nz = nx - u1 * z + u2 * y, ny - u2 * x + u0 * z, nz - u0 * y + u1 * x
        p, q, r = get3(constants, l, BLADE)
        x, y, z = b00 * p + b01 * q + b02 * r, b10 * p + b11 * q + b12 * r, b20 * p + b21 * q + b22 * r
        nx, ny, nz = nx - v1 * z + v2 * y, ny - v2 * x + v0 * z, nz - v0 * y + v1 * x
        nx, ny, nz = nx / h, ny / h, nz / h
        put6(wrench, l, 0, nx, ny, nz, fx, fy, fz)
        put6(w, l, F, nx + cy * fz - cz * fy, ny + cz * fx - cx * fz, nz + cx * fy - cy * fx, fx, fy, fz)


@njit(cache=True, error_model="numpy")
def _load_wrenches(w, wrench, first, last):
    """Take the wrenches at centres of mass about O, into the columns f of w."""
    for l in range(first, last):
        nx, ny, nz, fx, fy, fz = get6(wrench, l, 0)
        x, y, z = get3(w, l, C)
        put6(w, l, F, nx + y * fz - z * fy, ny + z * fx - x * fz, nz + x * fy - y * fx, fx, fy, fz)


@njit(cache=True, error_model="numpy")
def _drift(packed, scratch, trial, wrench, first, last, m, h, tolerance, base_position, base_rotation, q, momentum, v):
    """Drift molecule m, whose factor is at hand; return the iterations, or -1 if it did not converge.

    On success q, base and momentum are the new ones, with their factor.
    """
    w, turns, pivot, root = scratch
    ox, oy, oz = base_position[m, 0], base_position[m, 1], base_position[m, 2]
    _clear_wrenches(w, first, last)
    count = 0
    before = 0.0  # none yet
    while True:
        # the first pass has no displacement yet: its residual is the momentum itself
        kernels.substitute(first, last, packed, w, momentum, v)
        kernels.back_substitute(first, last, packed, w, root, momentum, v)
        largest = _displace(packed, first, last, m, h, v, base_position, base_rotation, q)
        kernels.set_configuration(first, last, packed, q, base_rotation, trial, turns[2])
        kernels.sines(turns[2, first:last], turns[0, first:last], turns[1, first:last])
        for i in range(3):
            trial[first, POSITION + i] = 0.0
        _displacement_wrenches(
            packed, w, turns, trial, wrench, first, last, h, base_position[m, 0] - ox, base_position[m, 1] - oy,
            base_position[m, 2] - oz,
        )  # fmt: skip
        # corrections shrink by a constant factor, so that two of them tell what the next one would be
        if largest < tolerance or (largest < 0.1 * before and largest * largest < 0.1 * tolerance * before):
            break
        if largest < ROUNDING and largest > 0.3 * before and count > 1:
            break
        count += 1
        if count > DRIFT_ITERATIONS or not largest < 1e3:
            return -1
        before = largest
    for i in range(9):
        w[first, R + i] = trial[first, R + i]
    kernels.outward(first, last, packed, turns[0], turns[1], turns[2], w, None)
    _load_wrenches(w, wrench, first, last)
    _sum_wrenches(packed, w, first, last, momentum)
    return count if kernels.factor(first, last, packed, w, pivot, root, None, None) < 0 else -1


# ---------------------------------------------------------------------------- programs


@njit(cache=True, error_model="numpy")
def run_range(program, numbers, start, stop, packed, scratch, layout, motion, vectors, cartesian, status):
    """Run a program for molecules start to stop; see `run`."""
    molecule_link, molecule_dof, molecule_atom, atom, link, local, bend = layout
    base_position, base_rotation, q, momentum, saved_position, saved_rotation, saved_q, saved_momentum = motion
    torque, fixman, gradient, normals, velocity, log_det, trial, wrench = vectors
    x, force, atom_velocity = cartesian
    _, _, _, coordinate, _, _, _ = packed
    atoms = (atom, link, local)
    for m in range(start, stop):
        first, last = molecule_link[m], molecule_link[m + 1]
        d0, d1 = molecule_dof[m], molecule_dof[m + 1]
        a0, a1 = molecule_atom[m], molecule_atom[m + 1]
        status[m] = 0
        for step in range(len(program)):
            move, a, b = program[step], numbers[step, 0], numbers[step, 1]
            if move == FACTOR:
                bad = _factor(packed, scratch, first, last, q, base_rotation)
                if bad >= 0:
                    status[m] = -2 - bad
                    break
            elif move == PROJECT:
                _project(packed, scratch[0], first, last, atoms, a0, a1, base_position[m], x, force, torque)
            elif move == FIXMAN:
                _fixman_torque(packed, scratch, first, last, bend, q, gradient, fixman)
            elif move == ADD_FIXMAN:
                for i in range(d0, d1):
                    torque[i] += a * fixman[i]
            elif move == KICK:
                for i in range(d0, d1):
                    momentum[i] += a * torque[i]
            elif move == DRIFT:
                count = _drift(
                    packed, scratch, trial, wrench, first, last, m, a, b, base_position, base_rotation, q, momentum,
                    velocity,
                )  # fmt: skip
                if count < 0:
                    status[m] = -1
                    break
                status[m] = max(status[m], count)
            elif move == THERMALISE:
                _thermalise(packed, scratch, first, last, a, b, normals, momentum)
            elif move == POSITIONS:
                _place_atoms(scratch[0], atoms, a0, a1, base_position[m], x)
            elif move == VELOCITIES:
                _solve(packed, scratch, first, last, momentum, velocity)
            elif move == ATOM_VELOCITIES:
                _move_atoms(scratch[0], atoms, a0, a1, atom_velocity)
            elif move == LOG_DET:
                log_det[m] = kernels.log_det(first, last, packed, scratch[2], scratch[3])
            elif move == SAVE:
                for i in range(3):
                    saved_position[m, i] = base_position[m, i]
                for i in range(4):
                    saved_rotation[m, i] = base_rotation[m, i]
                for i in range(d0, d1):
                    saved_momentum[i] = momentum[i]
                for l in range(first + 1, last):
                    saved_q[coordinate[l]] = q[coordinate[l]]


@njit(cache=True, error_model="numpy", parallel=True)
def run_parallel(program, numbers, batches, packed, scratch, layout, motion, vectors, cartesian, status):
    """Run a program for all molecules, on all cores."""
    n = len(status)
    for b in prange(batches):
        run_range(
            program, numbers, b * n // batches, (b + 1) * n // batches, packed, scratch, layout, motion, vectors,
            cartesian, status,
        )  # fmt: skip


def kernels_on_disk() -> bool:
    """True if the moves were compiled by an earlier run and are kept in the cache of compiled code."""
    return any(Path(run_range._cache.cache_path).glob("moves.run_range-*.nbi"))
