"""Compiled moves of molecules, run as short programs without Python in between.

A program is a row of moves, each with two numbers; it is run molecule by molecule, as molecules meet through forces
only. One compiled function runs them all, so that everything between two force calls is one call.

Drift A is RATTLE in minimal coordinates: from (q0, p0) find q1 such that

    J(q0)^T m (x(q1) - x(q0)) / h + a (q1 - q0) / h = p0,  then  p1 = J(q1)^T m (x(q1) - x(q0)) / h + a (q1 - q0) / h ,

with the joint inertia a. It is symmetric, symplectic and conserves linear and angular momentum. q1 is found by q1 <-
q1 (+) h M(q0)^-1 [residual] with the factor of M at q0, and where that does not converge by Anderson's method on the
same equations. Sums over atoms are taken body by body. With the centre of mass c, the second moments
C = sum m s s^T about it in the body's axes, the columns r_i of the rotation R1, and the rows b_i of C R0^T,

    sum m (x1 - x0) = m (c1 - c0),        sum m s0 x (x1 - x0) = sum m s1 x (x1 - x0) = sum b_i x r_i .

About an origin at rest, momenta of bodies are the same with c0 and with c1, so that p0 and p1 are projections of the
same wrenches. Vectors are single numbers of compiled code there, as in `peptidyn.kernels.lanes`: a chain has little
other arithmetic that can go on at once. Every drift leaves the factor of M at its end, which the next move needs.
"""

from __future__ import annotations

import math

import numpy as np

from peptidyn.core.jit import prange
from peptidyn.kernels import passes as kernels
from peptidyn.kernels.compiling import njit, on_disk
from peptidyn.kernels.lanes import (
    add6,
    at,
    combined,
    crosses,
    difference,
    get,
    get3,
    get6,
    get_vector,
    moved,
    put6,
    put_vector,
    scaled,
    total,
    turned,
)
from peptidyn.kernels.packing import BLADE, COM, INERTIA, MASS, MOMENT, PLATE, E
from peptidyn.kernels.passes import V_THEN_G, A, F, R, S
from peptidyn.model.kinematics import BEND, FLAT, FREE, POINT, PRISMATIC, STRETCH

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

# rows of a link during a drift, four numbers each: axes and position of the trial pose; b_i / h and c0
AXES, PLACE, ROWS, BEFORE, N_DRIFT = 0, 3, 4, 7, 8

ROUNDING = 1e-10
"""Corrections (nm or rad) below this that no longer shrink are rounding error, which grows with the chain."""

DRIFT_ITERATIONS = 40
"""If corrections with the factor at the start need more iterations than this, Anderson's method takes over."""

ANDERSON_ITERATIONS, ANDERSON_DEPTH = 150, 6
"""More iterations than this mean that the step is too large; and how many earlier ones are combined."""


@njit(cache=True, error_model="numpy", inline="always")
def _factor(packed, scratch, first, last, q, base_rotation):
    """Pose and factor the links of a molecule; return -1, or the link where M is singular."""
    w, turns, pivot, root = scratch
    kernels.set_configuration(first, last, packed, q, base_rotation, w, turns[2])
    kernels.sines(turns[2, first:last], turns[0, first:last], turns[1, first:last])
    kernels.outward(first, last, packed, turns[0], turns[1], turns[2], w, None)
    return kernels.factor(first, last, packed, w, pivot, root, None, None)


@njit(cache=True, error_model="numpy", inline="always")
def _put_base(joint, i, f0, f1, f2, f3, f4, f5, out):
    """Write the generalised forces of a base from the wrench on its molecule."""
    if joint == FREE:
        out[i], out[i + 1], out[i + 2] = f0, f1, f2
        i += 3
    if joint == FREE or joint == POINT:
        out[i], out[i + 1], out[i + 2] = f3, f4, f5


@njit(cache=True, error_model="numpy", inline="always")
def _project(packed, w, first, last, atoms, origin, x, force, out):
    """Write J^T F of a molecule."""
    parent, joint, dof, _, _, _, _ = packed
    atom, _, link_atom = atoms
    kernels.clear_wrenches(first, last, w)
    for l in range(last - 1, first - 1, -1):
        f0, f1, f2, f3, f4, f5 = get6(w, l, F)
        for n in range(link_atom[l], link_atom[l + 1]):
            i = atom[n]
            rx, ry, rz = x[i, 0] - origin[0], x[i, 1] - origin[1], x[i, 2] - origin[2]
            fx, fy, fz = force[i, 0], force[i, 1], force[i, 2]
            f0, f1, f2 = f0 + (ry * fz - rz * fy), f1 + (rz * fx - rx * fz), f2 + (rx * fy - ry * fx)
            f3, f4, f5 = f3 + fx, f4 + fy, f5 + fz
        if parent[l] >= 0:
            s0, s1, s2, s3, s4, s5 = get6(w, l, S)
            out[dof[l]] = (s0 * f0 + s1 * f1) + (s2 * f2 + s3 * f3) + (s4 * f4 + s5 * f5)
            add6(w, parent[l], F, f0, f1, f2, f3, f4, f5)
        else:
            _put_base(joint[l], dof[l], f0, f1, f2, f3, f4, f5, out)


@njit(cache=True, error_model="numpy", inline="always")
def _place_atoms(w, first, last, atoms, origin, x):
    """Write the positions of the atoms of a molecule."""
    atom, local, link_atom = atoms
    for l in range(first, last):
        r00, r01, r02, r10, r11, r12 = get6(w, l, R)
        r20, r21, r22, px, py, pz = get6(w, l, R + 6)
        for n in range(link_atom[l], link_atom[l + 1]):
            i = atom[n]
            a, b, c = get3(local, n, 0)
            x[i, 0] = origin[0] + (px + r00 * a + r01 * b + r02 * c)
            x[i, 1] = origin[1] + (py + r10 * a + r11 * b + r12 * c)
            x[i, 2] = origin[2] + (pz + r20 * a + r21 * b + r22 * c)


@njit(cache=True, error_model="numpy", inline="always")
def _move_atoms(w, first, last, atoms, velocity):
    """Write the velocities of the atoms of a molecule, from the twists X of links about O."""
    atom, local, link_atom = atoms
    for l in range(first, last):
        r00, r01, r02, r10, r11, r12 = get6(w, l, R)
        r20, r21, r22, px, py, pz = get6(w, l, R + 6)
        wx, wy, wz, ux, uy, uz = get6(w, l, A)
        for n in range(link_atom[l], link_atom[l + 1]):
            i = atom[n]
            a, b, c = get3(local, n, 0)
            x = px + r00 * a + r01 * b + r02 * c
            y = py + r10 * a + r11 * b + r12 * c
            z = pz + r20 * a + r21 * b + r22 * c
            velocity[i, 0] = ux + wy * z - wz * y
            velocity[i, 1] = uy + wz * x - wx * z
            velocity[i, 2] = uz + wx * y - wy * x


@njit(cache=True, error_model="numpy", inline="always")
def _solve(packed, scratch, first, last, b, x):
    """Write x = M^-1 b of a molecule; the columns A of w become link twists."""
    w, _, _, root = scratch
    kernels.clear_wrenches(first, last, w)
    kernels.substitute(first, last, packed, w, b, x)
    kernels.back_substitute(first, last, packed, w, root, b, x)


@njit(cache=True, error_model="numpy", inline="always")
def _fixman_torque(packed, scratch, first, last, measure, q, gradient, out):
    """Write -d/dq of ln(det M / J^2) / 2; zero for the base."""
    _, _, dof, coordinate, _, _, _ = packed
    w, _, pivot, root = scratch
    if last - first < 2:
        return
    kernels.log_det_gradient(first, last, packed, w, pivot, root, gradient)
    for l in range(first + 1, last):
        c = coordinate[l]
        out[dof[l]] = -0.5 * gradient[c]
        if measure[c] == BEND:
            out[dof[l]] += 1.0 / math.tan(q[c])
        elif measure[c] == STRETCH:
            out[dof[l]] += 2.0 / q[c]


@njit(cache=True, error_model="numpy", inline="always")
def _thermalise(packed, scratch, first, last, m, keep, strength, normals, momentum):
    """p <- keep p + strength L z with L L^T = M and unit normals z (n_dof,)."""
    parent, joint, dof, _, _, constants, _ = packed
    w, _, pivot, root = scratch
    kernels.clear_wrenches(first, last, w)
    for l in range(last - 1, first, -1):
        i = dof[l]
        u = math.sqrt(pivot[l]) * normals[i]
        s0, s1, s2, s3, s4, s5 = get6(w, l, S)
        f0, f1, f2, f3, f4, f5 = get6(w, l, F)
        momentum[i] = keep * momentum[i] + strength * (
            u + ((s0 * f0 + s1 * f1) + (s2 * f2 + s3 * f3) + (s4 * f4 + s5 * f5))
        )  # fmt: skip
        g0, g1, g2, g3, g4, g5 = get6(w, l, V_THEN_G)
        add6(w, parent[l], F, f0 + g0 * u, f1 + g1 * u, f2 + g2 * u, f3 + g3 * u, f4 + g4 * u, f5 + g5 * u)
    i = dof[first]
    if joint[first] == FREE:
        for j in range(6):
            total = w[first, F + j]
            for n in range(j + 1):
                total += root[m, 6 * j + n] * normals[i + n]
            momentum[i + j] = keep * momentum[i + j] + strength * total
    elif joint[first] == POINT:
        for j in range(3):
            momentum[i + j] = keep * momentum[i + j] + strength * math.sqrt(constants[first, MASS]) * normals[i + j]


# ---------------------------------------------------------------------------- drift


@njit(cache=True, error_model="numpy", inline="always")
def _turn_base(wx, wy, wz, rotation):
    """Turn a base in place by the vector w; return the angle."""
    angle = math.sqrt(wx * wx + wy * wy + wz * wz)
    c = math.cos(0.5 * angle)
    n = 0.5 if angle < 1e-8 else math.sin(0.5 * angle) / angle
    x, y, z = n * wx, n * wy, n * wz
    a, b, d, g = rotation[0], rotation[1], rotation[2], rotation[3]
    r0 = c * a - x * b - y * d - z * g
    r1 = c * b + x * a + y * g - z * d
    r2 = c * d - x * g + y * a + z * b
    r3 = c * g + x * d - y * b + z * a
    norm = math.sqrt(r0 * r0 + r1 * r1 + r2 * r2 + r3 * r3)
    rotation[0], rotation[1], rotation[2], rotation[3] = r0 / norm, r1 / norm, r2 / norm, r3 / norm
    return angle


@njit(cache=True, error_model="numpy", inline="always")
def _displace(packed, turn, first, last, m, h, v, base_position, base_rotation, q):
    """Move a molecule in place by h v: (+) of the drift; return the largest change (nm or rad)."""
    _, joint, dof, coordinate, _, _, q_reference = packed
    largest = 0.0
    k = dof[first]
    if joint[first] == FREE:
        largest = _turn_base(h * v[k], h * v[k + 1], h * v[k + 2], base_rotation[m])
        k += 3
    if joint[first] == FREE or joint[first] == POINT:
        for i in range(3):
            change = h * v[k + i]
            base_position[m, i] += change
            largest = max(largest, abs(change))
    for l in range(first + 1, last):
        c = coordinate[l]
        change = h * v[dof[l]]
        q[c] += change
        turn[l] = q[c] - q_reference[c]
        largest = max(largest, abs(change))
    return largest


@njit(cache=True, error_model="numpy", inline="always")
def _leave(packed, first, last, h, momentum, q, start, target):
    """Write what the displacements of bodies must still give: the momentum less that of joint inertias."""
    _, _, dof, coordinate, _, constants, _ = packed
    rate = 1.0 / h
    for l in range(first + 1, last):
        c = coordinate[l]
        target[dof[l]] = momentum[dof[l]] - constants[l, INERTIA] * (rate * (q[c] - start[c]))


@njit(cache=True, error_model="numpy", inline="always")
def _start_drift(packed, w, first, last, h, rows):
    """Write what the drift needs of the present poses: b_i / h and c0 of all links."""
    _, _, _, _, _, constants, _ = packed
    rate = 1.0 / h
    for l in range(first, last):
        if constants[l, MASS] == 0.0:
            continue
        r00, r01, r02, r10, r11, r12 = get6(w, l, R)
        r20, r21, r22, x, y, z = get6(w, l, R + 6)
        a, b, c = get3(constants, l, COM)
        rows[l, BEFORE, 0] = x + r00 * a + r01 * b + r02 * c
        rows[l, BEFORE, 1] = y + r10 * a + r11 * b + r12 * c
        rows[l, BEFORE, 2] = z + r20 * a + r21 * b + r22 * c
        # C = s 1 - u u^T - v v^T
        s = get(constants, l, MOMENT)
        a, b, c = get3(constants, l, PLATE)
        d, e, f = get3(constants, l, BLADE)
        for k, (rx, ry, rz) in enumerate(((r00, r01, r02), (r10, r11, r12), (r20, r21, r22))):
            u, v = rate * (rx * a + ry * b + rz * c), rate * (rx * d + ry * e + rz * f)
            rows[l, ROWS, k] = rate * s * rx - u * a - v * d
            rows[l, ROWS + 1, k] = rate * s * ry - u * b - v * e
            rows[l, ROWS + 2, k] = rate * s * rz - u * c - v * f


@njit(cache=True, error_model="numpy", inline="always")
def _trial_pose(rows, l):
    """Return the axes and the position of the trial pose of a link."""
    return (
        get_vector(rows, l, AXES), get_vector(rows, l, AXES + 1), get_vector(rows, l, AXES + 2),
        get_vector(rows, l, PLACE),
    )  # fmt: skip


@njit(cache=True, error_model="numpy", inline="always")
def _displacement_wrenches(packed, w, turns, rows, first, last, h):
    """Pose links and write the wrenches of their displacements over h, about the O of before, into f.

    The root's pose is in `rows`, with its position from that O.
    """
    parent, joint, _, _, _, constants, _ = packed
    sine, cosine, turn = turns[0], turns[1], turns[2]
    rate = 1.0 / h
    x, y, z, p = _trial_pose(rows, first)
    for l in range(first, last):
        up = parent[l]
        if up >= 0:
            if up != l - 1:
                x, y, z, p = _trial_pose(rows, up)
            e00, e01, e02, e10, e11, e12 = get6(constants, l, E)
            e20, e21, e22, a, b, c = get6(constants, l, E + 6)
            p = total(p, combined(a, x, b, y, c, z))
            x, y, z = combined(e00, x, e10, y, e20, z), combined(e01, x, e11, y, e21, z), combined(
                e02, x, e12, y, e22, z)  # fmt: skip
            if joint[l] == PRISMATIC:
                p = moved(p, at(turn, l), z)
            else:
                x, y = turned(x, y, at(sine, l), at(cosine, l))
            put_vector(rows, l, AXES, x)
            put_vector(rows, l, AXES + 1, y)
            put_vector(rows, l, AXES + 2, z)
            put_vector(rows, l, PLACE, p)
        if constants[l, MASS] == 0.0:
            put6(w, l, F, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            continue
        before = get_vector(rows, l, BEFORE)
        a, b, c = get3(constants, l, COM)
        f = scaled(constants[l, MASS] * rate, difference(total(p, combined(a, x, b, y, c, z)), before))
        b0, b1, b2 = get_vector(rows, l, ROWS), get_vector(rows, l, ROWS + 1), get_vector(rows, l, ROWS + 2)
        # the torque first: what it writes into a fourth column is overwritten
        put_vector(w, l, F, crosses(b0, x, b1, y, b2, z, before, f))
        put_vector(w, l, F + 3, f)


@njit(cache=True, error_model="numpy", inline="always")
def _sum_wrenches(packed, w, first, last, sx, sy, sz, out):
    """Write the generalised forces S . f of the wrenches f in w, which were taken about O - s."""
    parent, joint, dof, _, _, _, _ = packed
    for l in range(last - 1, first - 1, -1):
        f0, f1, f2, f3, f4, f5 = get6(w, l, F)
        n0, n1, n2 = f0 - (sy * f5 - sz * f4), f1 - (sz * f3 - sx * f5), f2 - (sx * f4 - sy * f3)
        if parent[l] >= 0:
            s0, s1, s2, s3, s4, s5 = get6(w, l, S)
            out[dof[l]] = (s0 * n0 + s1 * n1) + (s2 * n2 + s3 * f3) + (s4 * f4 + s5 * f5)
            add6(w, parent[l], F, f0, f1, f2, f3, f4, f5)
        else:
            _put_base(joint[l], dof[l], n0, n1, n2, f3, f4, f5, out)


@njit(cache=True, error_model="numpy")
def _pose_trial(packed, w, turns, rows, first, last, m, h, ox, oy, oz, base_position, base_rotation):
    """Pose a molecule at its trial configuration, and write the wrenches of its displacement from the start."""
    kernels.sines(turns[2, first:last], turns[0, first:last], turns[1, first:last])
    kernels.set_root(base_rotation[m], w[first])
    for i in range(3):
        for k in range(3):
            rows[first, AXES + i, k] = w[first, R + 3 * k + i]
    rows[first, PLACE, 0], rows[first, PLACE, 1] = base_position[m, 0] - ox, base_position[m, 1] - oy
    rows[first, PLACE, 2] = base_position[m, 2] - oz
    _displacement_wrenches(packed, w, turns, rows, first, last, h)


@njit(cache=True, error_model="numpy", inline="always")
def _correct(packed, w, root, first, last, target, v):
    """Write the correction v = M(q0)^-1 [residual], with the wrenches of the displacement in w."""
    kernels.substitute(first, last, packed, w, target, v)
    kernels.back_substitute(first, last, packed, w, root, target, v)


@njit(cache=True, error_model="numpy", inline="always")
def _valid(packed, first, last, measure, q):
    """True if all soft angles lie between 0 and pi, and all soft bonds have a length."""
    _, _, _, coordinate, _, _, _ = packed
    for l in range(first + 1, last):
        c = coordinate[l]
        if measure[c] != FLAT and not (q[c] > 0.0 and (measure[c] == STRETCH or q[c] < math.pi)):
            return False
    return True


@njit(cache=True, error_model="numpy", inline="always")
def _drift(
    packed, scratch, rows, first, last, m, d0, d1, h, tolerance, measure, base_position, base_rotation, q, momentum, v,
    target, start,
):  # fmt: skip
    """Drift molecule m, whose factor is at hand; return the iterations, or -1 if it did not converge.

    On success q, base and momentum are the new ones, with their factor. A configuration in which a soft angle or bond
    length leaves its range is no success.
    """
    w, turns, pivot, root = scratch
    ox, oy, oz = base_position[m, 0], base_position[m, 1], base_position[m, 2]
    r0, r1, r2, r3 = base_rotation[m, 0], base_rotation[m, 1], base_rotation[m, 2], base_rotation[m, 3]
    _start_drift(packed, w, first, last, h, rows)
    _, _, dof, coordinate, _, constants, _ = packed
    for i in range(d0, d1):
        target[i] = momentum[i]
    for l in range(first + 1, last):
        start[coordinate[l]] = q[coordinate[l]]
    kernels.clear_wrenches(first, last, w)
    heavy = False  # whether joints have inertias
    for l in range(first + 1, last):
        heavy = heavy or constants[l, INERTIA] > 0.0
    count = 0
    before = 0.0  # none yet
    while True:
        # the first pass has no displacement yet: its residual is the momentum itself
        _correct(packed, w, root, first, last, target, v)
        largest = _displace(packed, turns[2], first, last, m, h, v, base_position, base_rotation, q)
        if heavy:
            _leave(packed, first, last, h, momentum, q, start, target)
        _pose_trial(packed, w, turns, rows, first, last, m, h, ox, oy, oz, base_position, base_rotation)
        # corrections shrink by a constant factor, so that two of them tell what the next one would be
        if largest < tolerance or (largest < 0.1 * before and largest * largest < 0.1 * tolerance * before):
            break
        if largest < ROUNDING and largest > 0.3 * before and count > 1:
            break
        count += 1
        if count > DRIFT_ITERATIONS or not largest < 1e3:
            for l in range(first + 1, last):
                q[coordinate[l]] = start[coordinate[l]]
            base_position[m, 0], base_position[m, 1], base_position[m, 2] = ox, oy, oz
            base_rotation[m, 0], base_rotation[m, 1], base_rotation[m, 2], base_rotation[m, 3] = r0, r1, r2, r3
            count = _anderson(
                packed, scratch, rows, first, last, m, d0, d1, h, tolerance, base_position, base_rotation, q, momentum,
                v, target, start,
            )  # fmt: skip
            if count < 0:
                return -1
            break
        before = largest
    if not _valid(packed, first, last, measure, q):
        return -1
    for l in range(first + 1, last):
        target[dof[l]] = constants[l, INERTIA] * ((q[coordinate[l]] - start[coordinate[l]]) / h)
    kernels.outward(first, last, packed, turns[0], turns[1], turns[2], w, None)
    _sum_wrenches(
        packed, w, first, last, base_position[m, 0] - ox, base_position[m, 1] - oy, base_position[m, 2] - oz, momentum
    )  # fmt: skip
    if heavy:
        for l in range(first + 1, last):
            momentum[dof[l]] += target[dof[l]]
    return count if kernels.factor(first, last, packed, w, pivot, root, None, None) < 0 else -1


@njit(cache=True, error_model="numpy")
def _anderson(
    packed, scratch, rows, first, last, m, d0, d1, h, tolerance, base_position, base_rotation, q, momentum, v, target,
    start,
):  # fmt: skip
    """Solve the equations of the drift by Anderson's method; return the iterations, or -1 if it did not converge.

    The unknown is the displacement y (n_dof,) from the start, the rotation of the base as a vector. With the
    corrections f(y) = h M(q0)^-1 [residual], the next y is the mixture of earlier y + f whose f nearly cancel.
    """
    w, turns, _, root = scratch
    _, joint, dof, coordinate, _, _, q_reference = packed
    n = d1 - d0
    origin, rotation = base_position[m].copy(), base_rotation[m].copy()
    # y, f, and their changes in the iterations before
    y, f, dy, df = np.zeros(n), np.zeros(n), np.zeros((ANDERSON_DEPTH, n)), np.zeros((ANDERSON_DEPTH, n))
    mix = np.zeros(ANDERSON_DEPTH)
    before = math.inf
    for count in range(ANDERSON_ITERATIONS):
        for i in range(4):
            base_rotation[m, i] = rotation[i]
        k = 0
        if joint[first] == FREE:
            _turn_base(y[0], y[1], y[2], base_rotation[m])
            k = 3
        if joint[first] == FREE or joint[first] == POINT:
            for i in range(3):
                base_position[m, i] = origin[i] + y[k + i]
        for l in range(first + 1, last):
            c = coordinate[l]
            q[c] = start[c] + y[dof[l] - d0]
            turns[2, l] = q[c] - q_reference[c]
        _leave(packed, first, last, h, momentum, q, start, target)
        _pose_trial(
            packed, w, turns, rows, first, last, m, h, origin[0], origin[1], origin[2], base_position, base_rotation
        )  # fmt: skip
        if before < tolerance:
            return DRIFT_ITERATIONS + count
        _correct(packed, w, root, first, last, target, v)
        largest = 0.0
        place = (count - 1) % ANDERSON_DEPTH
        for i in range(n):
            change = h * v[d0 + i]
            df[place, i] = change - f[i]
            f[i] = change
            largest = max(largest, abs(change))
        if not largest < 1e3:
            return -1
        rounding = largest < ROUNDING and largest > 0.3 * before
        before = 0.0 if rounding else largest
        used = 0 if rounding else min(count, ANDERSON_DEPTH)
        _mix(df, f, used, mix)
        place = count % ANDERSON_DEPTH
        for i in range(n):
            change = f[i]
            for j in range(used):
                change -= mix[j] * (dy[j, i] + df[j, i])
            y[i] += change
            dy[place, i] = change
    return -1


@njit(cache=True, error_model="numpy")
def _mix(df, f, used, mix):
    """Write the coefficients (used,) whose combination of the rows of df is nearest to f; normal equations."""
    a = np.zeros((used, used + 1))
    for i in range(used):
        for j in range(used):
            for k in range(len(f)):
                a[i, j] += df[i, k] * df[j, k]
        for k in range(len(f)):
            a[i, used] += df[i, k] * f[k]
        a[i, i] *= 1.0 + 1e-12
    for i in range(used):
        if not a[i, i] > 0.0:
            a[i, i] = 1e300
        for j in range(i + 1, used):
            factor = a[j, i] / a[i, i]
            for k in range(i, used + 1):
                a[j, k] -= factor * a[i, k]
    for i in range(used - 1, -1, -1):
        total = a[i, used]
        for j in range(i + 1, used):
            total -= a[i, j] * mix[j]
        mix[i] = total / a[i, i]


# ---------------------------------------------------------------------------- programs


@njit(cache=True, error_model="numpy")
def run_range(program, numbers, start, stop, packed, scratch, layout, motion, vectors, cartesian, status):
    """Run a program for molecules start to stop; return the smallest of their status.

    The status of a molecule is the most iterations of a drift, -1 if one failed, or -2 - l if M is singular at link l.
    """
    molecule_link, molecule_dof, atom, local, link_atom, measure = layout
    base_position, base_rotation, q, momentum, saved_position, saved_rotation, saved_q, saved_momentum = motion
    torque, fixman, gradient, normals, velocity, log_det, rows, target, origin = vectors
    x, force, atom_velocity = cartesian
    _, _, _, coordinate, _, _, _ = packed
    atoms = (atom, local, link_atom)
    worst = 0
    for m in range(start, stop):
        first, last = molecule_link[m], molecule_link[m + 1]
        d0, d1 = molecule_dof[m], molecule_dof[m + 1]
        status[m] = 0
        for step in range(len(program)):
            move, a, b = program[step], numbers[step, 0], numbers[step, 1]
            if move == FACTOR:
                bad = _factor(packed, scratch, first, last, q, base_rotation)
                if bad >= 0:
                    status[m] = -2 - bad
                    break
            elif move == PROJECT:
                _project(packed, scratch[0], first, last, atoms, base_position[m], x, force, torque)
            elif move == FIXMAN:
                _fixman_torque(packed, scratch, first, last, measure, q, gradient, fixman)
            elif move == ADD_FIXMAN:
                for i in range(d0, d1):
                    torque[i] += a * fixman[i]
            elif move == KICK:
                for i in range(d0, d1):
                    momentum[i] += a * torque[i]
            elif move == DRIFT:
                count = _drift(
                    packed, scratch, rows, first, last, m, d0, d1, a, b, measure, base_position, base_rotation, q,
                    momentum, velocity, target, origin,
                )  # fmt: skip
                if count < 0:
                    status[m] = -1
                    break
                status[m] = max(status[m], count)
            elif move == THERMALISE:
                _thermalise(packed, scratch, first, last, m, a, b, normals, momentum)
            elif move == POSITIONS:
                _place_atoms(scratch[0], first, last, atoms, base_position[m], x)
            elif move == VELOCITIES:
                _solve(packed, scratch, first, last, momentum, velocity)
            elif move == ATOM_VELOCITIES:
                _move_atoms(scratch[0], first, last, atoms, atom_velocity)
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
        worst = min(worst, status[m])
    return worst


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
    return on_disk(run_range)
