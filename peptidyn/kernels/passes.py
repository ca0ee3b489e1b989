"""Compiled passes of the articulated-body algebra in world axes, for one state or four states side by side.

All spatial vectors of a molecule are taken about one origin O, its base origin, so that no shift operators are
needed. With r from O to the link's origin, S = (a, r x a) for a revolute joint and (0, a) for a prismatic one:

    outward   poses, S, spatial inertias I; with velocities also twists V, the accelerations A that they cause without
              any joint acceleration, A = A_parent + V x S rate, and the wrench f = I A + V x* I V that A needs
    inward    P = I + sum over children (P_c - U_c G_c^T),  U = P S,  D = S . U + a,  G = U / D,
              u = tau - S . f,  f_parent += f + G u,
              where a is the joint inertia: the matrix is M = J^T m J + diag(a)
    base      Cholesky factor of P_0 (6 x 6 for a free molecule; a mass for a point; nothing if fixed)
    outward   x = u / D - G . X_parent,  X = X_parent + S x

Forward dynamics is these passes one after the other: f carries bias and substitution at once. Without the second
outward pass they give ln det M = sum of ln D + ln det P_0, and its gradient by one more:

    outward   Y_0 = P_0^-1,  Y = S S^T / D + t Y_parent t^T,  t = 1 - S G^T
              d ln det M / d q = -2 tr(Y_parent (P - U G^T) crm(S))

Everything about a link is one row of the array `w`, whose columns are named below; symmetric 6 x 6 matrices are 21
numbers, [[A, B], [B^T, C]] with A and C by their upper triangles, B in full. Spatial velocities are (angular, linear),
forces (torque, force).

Arrays over links or degrees of freedom have a last axis of length 4 more if four states are worked on; see
`peptidyn.kernels.lanes`. Links `first` to `last` must be whole molecules.
"""

from __future__ import annotations

import math

import numpy as np

from peptidyn.kernels.compiling import njit
from peptidyn.kernels.lanes import add3, add6, all_above, at, get, get3, get6, plus, put, put3, put6, put_at, zero
from peptidyn.kernels.packing import BLADE, COM, INERTIA, MASS, PLATE, SPHERE, E
from peptidyn.model.kinematics import FREE, POINT, PRISMATIC

START = np.int64(0)
"""The first link or molecule. A plain 0 in a call would be a type of its own for numba, which compiles it apart."""

PIVOT = 1e-13
"""A pivot below this fraction of the terms it is the sum of is rounding error: the matrix is singular."""

_OPTIONS = {"cache": True, "error_model": "numpy"}
# no fastmath: its freedoms are used differently when a kernel is compiled and when it comes from the cache, so that a
# resumed run would differ in the last bits from one that was never interrupted; measured, it gains nothing here

# columns of `w`: rotation (row by row), position from O, motion axis, the twist V on the way out and then the gain G,
# accelerations A or X, wrench f and a free column, so that f can be written as twice four numbers, inverse pivot,
# inertia P (later Y)
R, POSITION, S, V_THEN_G, A, F, INVERSE, P, N_COLUMNS = 0, 9, 12, 18, 24, 30, 37, 38, 59

PLACE = (
    (0, 1, 2, 6, 7, 8), (1, 3, 4, 9, 10, 11), (2, 4, 5, 12, 13, 14),
    (6, 9, 12, 15, 16, 17), (7, 10, 13, 16, 18, 19), (8, 11, 14, 17, 19, 20),
)  # fmt: skip
"""Places of the elements of a symmetric 6 x 6 matrix among its 21 numbers."""


# ---------------------------------------------------------------------------- angles


@njit(cache=True, error_model="numpy")
def sines(x, sine, cosine):
    """Write sin x and cos x of flat arrays; to one unit in the last place up to 1e5, in vector instructions."""
    largest = 0.0
    for i in range(len(x)):
        largest = max(largest, abs(x[i]))
    if not largest < 1e5:
        for i in range(len(x)):
            sine[i], cosine[i] = math.sin(x[i]), math.cos(x[i])
        return
    for i in range(len(x)):
        # n quarter turns, taken off in three parts of pi / 2 so that none of the products is rounded
        n = np.floor(x[i] * 0.6366197723675814 + 0.5)
        y = x[i] - n * 1.5707963267341256
        y = y - n * 6.077100506303966e-11
        y = y - n * 2.0222662487959506e-21
        z = y * y
        s = y + y * z * (-1.66666666666666324348e-01 + z * (8.33333333332248946124e-03 + z * (
            -1.98412698298579493134e-04 + z * (2.75573137070700676789e-06 + z * (
                -2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))))  # fmt: skip
        c = 1.0 - 0.5 * z + z * z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * (
            2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07 + z * (
                2.08757232129817482790e-09 - z * 1.13596475577881948265e-11)))))  # fmt: skip
        quadrant = n - 4.0 * np.floor(0.25 * n)
        odd = (quadrant == 1.0) | (quadrant == 3.0)
        sine[i] = (c if odd else s) * (1.0 if quadrant < 1.5 else -1.0)
        cosine[i] = (s if odd else c) * (-1.0 if (quadrant == 1.0) | (quadrant == 2.0) else 1.0)


@njit(cache=True, error_model="numpy")
def set_root(rotation, row):
    """Write the rotation of a root, given as a unit quaternion, into its row of w."""
    a, x, y, z = rotation[0], rotation[1], rotation[2], rotation[3]
    row[R] = 1.0 - 2.0 * (y * y + z * z)
    row[R + 1] = 2.0 * (x * y - a * z)
    row[R + 2] = 2.0 * (x * z + a * y)
    row[R + 3] = 2.0 * (x * y + a * z)
    row[R + 4] = 1.0 - 2.0 * (x * x + z * z)
    row[R + 5] = 2.0 * (y * z - a * x)
    row[R + 6] = 2.0 * (x * z - a * y)
    row[R + 7] = 2.0 * (y * z + a * x)
    row[R + 8] = 1.0 - 2.0 * (x * x + y * y)


@njit(cache=True, error_model="numpy")
def set_configuration(first, last, packed, q, base_rotation, w, turn):
    """Write what `outward` starts from: joint displacements into turn (n_links,), rotations of roots into w.

    w is (n_links, columns) and turn (n_links,), also where they are one state of four; q (n_coordinates,),
    base_rotation (n_molecules, 4).
    """
    parent, _, _, coordinate, molecule, _, q_reference = packed
    for l in range(first, last):
        if parent[l] < 0:
            set_root(base_rotation[molecule[l]], w[l])
            turn[l] = 0.0
        else:
            c = coordinate[l]
            turn[l] = q[c] - q_reference[c]


# ---------------------------------------------------------------------------- outward: poses, inertias, bias


@njit(**_OPTIONS, forceinline=True)
def pose_link(constants, l, prismatic, turn, sine, cosine, w, up, out):
    """Write rotation and position of a link into `out` from those of its parent in w; return axis and position."""
    r00, r01, r02, r10, r11, r12 = get6(w, up, R)
    r20, r21, r22, px, py, pz = get6(w, up, R + 6)
    e00, e01, e02, e10, e11, e12 = get6(constants, l, E)
    e20, e21, e22, a, b, c = get6(constants, l, E + 6)
    px, py, pz = px + r00 * a + r01 * b + r02 * c, py + r10 * a + r11 * b + r12 * c, pz + r20 * a + r21 * b + r22 * c
    x0, x1, x2 = r00 * e00 + r01 * e10 + r02 * e20, r10 * e00 + r11 * e10 + r12 * e20, r20 * e00 + r21 * e10 + r22 * e20
    y0, y1, y2 = r00 * e01 + r01 * e11 + r02 * e21, r10 * e01 + r11 * e11 + r12 * e21, r20 * e01 + r21 * e11 + r22 * e21
    z0, z1, z2 = r00 * e02 + r01 * e12 + r02 * e22, r10 * e02 + r11 * e12 + r12 * e22, r20 * e02 + r21 * e12 + r22 * e22
    if prismatic:
        d = at(turn, l)
        px, py, pz = px + d * z0, py + d * z1, pz + d * z2
    else:
        s, c = at(sine, l), at(cosine, l)
        x0, y0 = c * x0 + s * y0, c * y0 - s * x0
        x1, y1 = c * x1 + s * y1, c * y1 - s * x1
        x2, y2 = c * x2 + s * y2, c * y2 - s * x2
    put6(out, l, R, x0, y0, z0, x1, y1, z1)
    put6(out, l, R + 6, x2, y2, z2, px, py, pz)
    return z0, z1, z2, px, py, pz


@njit(**_OPTIONS)
def outward(first, last, packed, sine, cosine, turn, w, v):
    """Write poses, motion axes, spatial inertias, and, unless v is None, the bias wrenches at velocities v (n_dof,).

    sine, cosine and turn (n_links,) belong to the joint displacements. Root rotations are in w. f is not touched unless
    there are velocities.
    """
    parent, joint, dof, _, _, constants, _ = packed
    for l in range(first, last):
        up = parent[l]
        if up < 0:
            put3(w, l, POSITION, 0.0, 0.0, 0.0)
            put6(w, l, S, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            if v is not None:
                _move_root(joint[l] == FREE, dof[l], v, w, l)
        else:
            prismatic = joint[l] == PRISMATIC
            z0, z1, z2, px, py, pz = pose_link(constants, l, prismatic, turn, sine, cosine, w, up, w)
            s0, s1, s2, s3, s4, s5 = z0, z1, z2, py * z2 - pz * z1, pz * z0 - px * z2, px * z1 - py * z0
            if prismatic:
                s0, s1, s2, s3, s4, s5 = 0.0 * z0, 0.0 * z1, 0.0 * z2, z0, z1, z2
            put6(w, l, S, s0, s1, s2, s3, s4, s5)
            if v is not None:
                _move_link(at(v, dof[l]), s0, s1, s2, s3, s4, s5, w, up, l)
        if constants[l, MASS] > 0.0:
            _body(constants, l, w, v is not None)
        else:
            _no_body(w, l, v is not None)


@njit(**_OPTIONS, forceinline=True)
def _move_root(free, i, v, w, l):
    """Write twist and acceleration of a root. Its origin moves straight on: about the fixed O, A = -w x velocity."""
    put6(w, l, V_THEN_G, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    put6(w, l, A, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    if free:
        a, b, c, x, y, z = at(v, i), at(v, i + 1), at(v, i + 2), at(v, i + 3), at(v, i + 4), at(v, i + 5)
        put6(w, l, V_THEN_G, a, b, c, x, y, z)
        put3(w, l, A + 3, y * c - z * b, z * a - x * c, x * b - y * a)


@njit(**_OPTIONS, forceinline=True)
def _move_link(rate, s0, s1, s2, s3, s4, s5, w, up, l):
    """Write twist and acceleration of a link: V = V_parent + S rate, A = A_parent + V_parent x S rate."""
    wx, wy, wz, ux, uy, uz = get6(w, up, V_THEN_G)
    ax, ay, az, gx, gy, gz = get6(w, up, A)
    s0, s1, s2, s3, s4, s5 = s0 * rate, s1 * rate, s2 * rate, s3 * rate, s4 * rate, s5 * rate
    put6(w, l, V_THEN_G, wx + s0, wy + s1, wz + s2, ux + s3, uy + s4, uz + s5)
    put6(
        w, l, A, ax + wy * s2 - wz * s1, ay + wz * s0 - wx * s2, az + wx * s1 - wy * s0,
        gx + wy * s5 - wz * s4 + uy * s2 - uz * s1,
        gy + wz * s3 - wx * s5 + uz * s0 - ux * s2,
        gz + wx * s4 - wy * s3 + ux * s1 - uy * s0,
    )  # fmt: skip


@njit(**_OPTIONS, forceinline=True)
def _no_body(w, l, moving):
    """Write the spatial inertia of a massless link, and with `moving` its bias wrench: zero."""
    put6(w, l, P, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    put6(w, l, P + 6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    put3(w, l, P + 12, 0.0, 0.0, 0.0)
    put6(w, l, P + 15, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    if moving:
        put6(w, l, F, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@njit(**_OPTIONS, forceinline=True)
def _body(constants, l, w, moving):
    """Write the spatial inertia of a link, whose pose is there; with `moving` its bias wrench too."""
    r00, r01, r02, r10, r11, r12 = get6(w, l, R)
    r20, r21, r22, x, y, z = get6(w, l, R + 6)
    a, b, c = get3(constants, l, COM)
    x, y, z = x + r00 * a + r01 * b + r02 * c, y + r10 * a + r11 * b + r12 * c, z + r20 * a + r21 * b + r22 * c
    a, b, c = get3(constants, l, PLATE)
    u0, u1, u2 = r00 * a + r01 * b + r02 * c, r10 * a + r11 * b + r12 * c, r20 * a + r21 * b + r22 * c
    a, b, c = get3(constants, l, BLADE)
    v0, v1, v2 = r00 * a + r01 * b + r02 * c, r10 * a + r11 * b + r12 * c, r20 * a + r21 * b + r22 * c
    m, s = get(constants, l, MASS), get(constants, l, SPHERE)
    mx, my, mz = m * x, m * y, m * z
    i00, i01, i02 = s + u0 * u0 + v0 * v0, u0 * u1 + v0 * v1, u0 * u2 + v0 * v2
    i11, i12, i22 = s + u1 * u1 + v1 * v1, u1 * u2 + v1 * v2, s + u2 * u2 + v2 * v2
    xx, yy, zz = mx * x, my * y, mz * z
    put6(w, l, P, i00 + yy + zz, i01 - mx * y, i02 - mx * z, i11 + xx + zz, i12 - my * z, i22 + xx + yy)
    put6(w, l, P + 6, 0.0, -mz, my, mz, 0.0, -mx)
    put3(w, l, P + 12, -my, mx, 0.0)
    put6(w, l, P + 15, m, 0.0, 0.0, m, 0.0, m)
    if moving:
        wx, wy, wz, ux, uy, uz = get6(w, l, V_THEN_G)
        ax, ay, az, gx, gy, gz = get6(w, l, A)
        # velocity and acceleration of the centre of mass
        ux, uy, uz = ux + wy * z - wz * y, uy + wz * x - wx * z, uz + wx * y - wy * x
        fx = m * (gx + ay * z - az * y + wy * uz - wz * uy)
        fy = m * (gy + az * x - ax * z + wz * ux - wx * uz)
        fz = m * (gz + ax * y - ay * x + wx * uy - wy * ux)
        # spin, and the torque about O
        hx, hy, hz = i00 * wx + i01 * wy + i02 * wz, i01 * wx + i11 * wy + i12 * wz, i02 * wx + i12 * wy + i22 * wz
        nx = i00 * ax + i01 * ay + i02 * az + wy * hz - wz * hy + y * fz - z * fy
        ny = i01 * ax + i11 * ay + i12 * az + wz * hx - wx * hz + z * fx - x * fz
        nz = i02 * ax + i12 * ay + i22 * az + wx * hy - wy * hx + x * fy - y * fx
        put6(w, l, F, nx, ny, nz, fx, fy, fz)


# ---------------------------------------------------------------------------- inward: factor and substitution


@njit(**_OPTIONS)
def factor(first, last, packed, w, pivot, root, tau, x):
    """Turn the inertias in w into gains G and pivots (n_links,), and write the roots' Cholesky factors.

    root is (n_molecules, 36). Unless tau is None, the forward substitution of tau (n_dof,) less the bias goes with it:
    x (n_dof,) gets u / D, and w the wrenches f. Returns -1, or the link at which a mass matrix is singular.
    """
    parent, joint, dof, _, molecule, constants, _ = packed
    for l in range(last - 1, first - 1, -1):
        up = parent[l]
        if up < 0:
            if joint[l] == FREE:
                if not _factor_root(w, l, root, molecule[l]):
                    return l
            elif joint[l] == POINT and not all_above(get(w, l, P + 15), 0.0 * get(w, l, P + 15)):
                return l
            continue
        s0, s1, s2, s3, s4, s5 = get6(w, l, S)
        a00, a01, a02, a11, a12, a22 = get6(w, l, P)
        b00, b01, b02, b10, b11, b12 = get6(w, l, P + 6)
        b20, b21, b22 = get3(w, l, P + 12)
        c00, c01, c02, c11, c12, c22 = get6(w, l, P + 15)
        u0 = a00 * s0 + a01 * s1 + a02 * s2 + b00 * s3 + b01 * s4 + b02 * s5
        u1 = a01 * s0 + a11 * s1 + a12 * s2 + b10 * s3 + b11 * s4 + b12 * s5
        u2 = a02 * s0 + a12 * s1 + a22 * s2 + b20 * s3 + b21 * s4 + b22 * s5
        u3 = b00 * s0 + b10 * s1 + b20 * s2 + c00 * s3 + c01 * s4 + c02 * s5
        u4 = b01 * s0 + b11 * s1 + b21 * s2 + c01 * s3 + c11 * s4 + c12 * s5
        u5 = b02 * s0 + b12 * s1 + b22 * s2 + c02 * s3 + c12 * s4 + c22 * s5
        t0, t1, t2, t3, t4, t5 = s0 * u0, s1 * u1, s2 * u2, s3 * u3, s4 * u4, s5 * u5
        own = get(constants, l, INERTIA)
        d = t0 + t1 + t2 + t3 + t4 + t5 + own
        # each of the 36 terms of S . P S is at most the mean of two of these six; U itself may be rounding error
        size = a00 * s0 * s0 + a11 * s1 * s1 + a22 * s2 * s2 + c00 * s3 * s3 + c11 * s4 * s4 + c22 * s5 * s5 + own
        if not all_above(d, PIVOT * size):
            return l
        inverse = 1.0 / d
        put_at(pivot, l, d)
        put(w, l, INVERSE, inverse)
        g0, g1, g2, g3, g4, g5 = u0 * inverse, u1 * inverse, u2 * inverse, u3 * inverse, u4 * inverse, u5 * inverse
        put6(w, l, V_THEN_G, g0, g1, g2, g3, g4, g5)
        add6(
            w, up, P, a00 - u0 * g0, a01 - u0 * g1, a02 - u0 * g2, a11 - u1 * g1, a12 - u1 * g2, a22 - u2 * g2
        )  # fmt: skip
        add6(
            w, up, P + 6, b00 - u0 * g3, b01 - u0 * g4, b02 - u0 * g5, b10 - u1 * g3, b11 - u1 * g4, b12 - u1 * g5
        )  # fmt: skip
        add3(w, up, P + 12, b20 - u2 * g3, b21 - u2 * g4, b22 - u2 * g5)
        add6(
            w, up, P + 15, c00 - u3 * g3, c01 - u3 * g4, c02 - u3 * g5, c11 - u4 * g4, c12 - u4 * g5, c22 - u5 * g5
        )  # fmt: skip
        if tau is not None:
            f0, f1, f2, f3, f4, f5 = get6(w, l, F)
            u = at(tau, dof[l]) - (s0 * f0 + s1 * f1 + s2 * f2 + s3 * f3 + s4 * f4 + s5 * f5)
            put_at(x, dof[l], u * inverse)
            add6(w, up, F, f0 + g0 * u, f1 + g1 * u, f2 + g2 * u, f3 + g3 * u, f4 + g4 * u, f5 + g5 * u)
    return -1


@njit(**_OPTIONS)
def clear_wrenches(first, last, w):
    """Set the wrenches f to zero."""
    for l in range(first, last):
        put6(w, l, F, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@njit(**_OPTIONS)
def substitute(first, last, packed, w, b, x):
    """Forward substitution with the factor in w: u = b - S . f, x = u / D, f_parent += f + G u, with f from w.

    A wrench goes to the link before in registers, as a chain waits for nothing else.
    """
    parent, _, dof, _, _, _, _ = packed
    none = zero(w)
    c0, c1, c2, c3, c4, c5 = none, none, none, none, none, none
    for l in range(last - 1, first - 1, -1):
        up = parent[l]
        if up < 0:
            add6(w, l, F, c0, c1, c2, c3, c4, c5)
            c0, c1, c2, c3, c4, c5 = none, none, none, none, none, none
            continue
        s0, s1, s2, s3, s4, s5 = get6(w, l, S)
        g0, g1, g2, g3, g4, g5 = get6(w, l, V_THEN_G)
        f0, f1, f2, f3, f4, f5 = get6(w, l, F)
        tau = at(b, dof[l])
        c0, c1, c2, c3, c4, c5 = c0 + f0, c1 + f1, c2 + f2, c3 + f3, c4 + f4, c5 + f5
        u = tau - ((s0 * c0 + s1 * c1) + (s2 * c2 + s3 * c3) + (s4 * c4 + s5 * c5))
        put_at(x, dof[l], u * get(w, l, INVERSE))
        c0, c1, c2, c3, c4, c5 = plus(c0, g0, u), plus(c1, g1, u), plus(c2, g2, u), plus(c3, g3, u), plus(
            c4, g4, u), plus(c5, g5, u)  # fmt: skip
        if up != l - 1:
            add6(w, up, F, c0, c1, c2, c3, c4, c5)
            c0, c1, c2, c3, c4, c5 = none, none, none, none, none, none


# ---------------------------------------------------------------------------- outward: back substitution


@njit(**_OPTIONS)
def back_substitute(first, last, packed, w, root, b, x):
    """Turn x (n_dof,), which holds u / D, into M^-1 (b - bias), with the wrenches f that came with it in w."""
    parent, joint, dof, _, molecule, constants, _ = packed
    none = zero(w)
    a0, a1, a2, a3, a4, a5 = none, none, none, none, none, none
    for l in range(first, last):
        up = parent[l]
        i = dof[l]
        if up < 0:
            put6(w, l, A, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            if joint[l] == FREE:
                for j in range(6):
                    put(w, l, A + j, at(b, i + j) - get(w, l, F + j))
                _solve_root(root, molecule[l], w, l, A)
                for j in range(6):
                    put_at(x, i + j, get(w, l, A + j))
            elif joint[l] == POINT:
                for j in range(3):
                    put_at(x, i + j, (at(b, i + j) - get(w, l, F + 3 + j)) / get(constants, l, MASS))
                    put(w, l, A + 3 + j, at(x, i + j))
            a0, a1, a2, a3, a4, a5 = get6(w, l, A)
            continue
        if up != l - 1:
            a0, a1, a2, a3, a4, a5 = get6(w, up, A)
        g0, g1, g2, g3, g4, g5 = get6(w, l, V_THEN_G)
        s0, s1, s2, s3, s4, s5 = get6(w, l, S)
        a = at(x, i) - ((g0 * a0 + g1 * a1) + (g2 * a2 + g3 * a3) + (g4 * a4 + g5 * a5))
        put_at(x, i, a)
        a0, a1, a2, a3, a4, a5 = plus(a0, s0, a), plus(a1, s1, a), plus(a2, s2, a), plus(a3, s3, a), plus(
            a4, s4, a), plus(a5, s5, a)  # fmt: skip
        put6(w, l, A, a0, a1, a2, a3, a4, a5)


# ---------------------------------------------------------------------------- roots: 6 x 6


@njit(cache=True, error_model="numpy")
def _factor_root(w, l, root, m):
    """Write the lower Cholesky factor of P of link l into root[m]; return False if P is singular."""
    for i in range(6):
        for j in range(i + 1):
            total = get(w, l, P + PLACE[i][j])
            size = total
            for n in range(j):
                total = total - get(root, m, 6 * i + n) * get(root, m, 6 * j + n)
            if i > j:
                put(root, m, 6 * i + j, total / get(root, m, 7 * j))
            elif all_above(total, PIVOT * size):
                put(root, m, 7 * i, math.sqrt(total))
            else:
                return False
    return True


@njit(cache=True, error_model="numpy")
def _solve_root(root, m, w, l, c):
    """Solve L L^T y = b in place, for the six columns of w that start at c."""
    for i in range(6):
        total = get(w, l, c + i)
        for n in range(i):
            total = total - get(root, m, 6 * i + n) * get(w, l, c + n)
        put(w, l, c + i, total / get(root, m, 7 * i))
    for i in range(5, -1, -1):
        total = get(w, l, c + i)
        for n in range(i + 1, 6):
            total = total - get(root, m, 6 * n + i) * get(w, l, c + n)
        put(w, l, c + i, total / get(root, m, 7 * i))


@njit(cache=True, error_model="numpy")
def _invert_root(root, m, w, l):
    """Write the inverse of L L^T into the columns P of link l; A is scratch."""
    for j in range(6):
        put6(w, l, A, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        put(w, l, A + j, 1.0)
        _solve_root(root, m, w, l, A)
        for i in range(j + 1):
            put(w, l, P + PLACE[i][j], get(w, l, A + i))


# ---------------------------------------------------------------------------- ln det M


@njit(cache=True, error_model="numpy")
def log_det(first, last, packed, pivot, root):
    """Return ln det M of links first to last, from pivot (n_links,) and root (n_molecules, 36) of one state."""
    parent, joint, _, _, molecule, constants, _ = packed
    total = 0.0
    product = 1.0  # several pivots per logarithm
    for l in range(first, last):
        if parent[l] >= 0:
            product *= pivot[l]
        elif joint[l] == FREE:
            for i in range(6):
                product *= root[molecule[l], 7 * i] ** 2
        elif joint[l] == POINT:
            product *= constants[l, MASS] ** 3
        if not 1e-100 < product < 1e100:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@njit(**_OPTIONS)
def log_det_gradient(first, last, packed, w, pivot, root, gradient):
    """Write d ln det M / d q into gradient (n_coordinates,), from the factor in w, whose P it uses up."""
    parent, _, _, coordinate, _, _, _ = packed
    for l in range(first, last):
        up = parent[l]
        if up < 0:
            _begin_y(l, last, packed, w, root)
            continue
        s0, s1, s2, s3, s4, s5 = get6(w, l, S)
        u0, u1, u2, u3, u4, u5 = get6(w, l, V_THEN_G)
        # Y of the parent: d, e and g are its blocks
        d00, d01, d02, d11, d12, d22 = get6(w, up, P)
        e00, e01, e02, e10, e11, e12 = get6(w, up, P + 6)
        e20, e21, e22 = get3(w, up, P + 12)
        g00, g01, g02, g11, g12, g22 = get6(w, up, P + 15)
        w0 = d00 * u0 + d01 * u1 + d02 * u2 + e00 * u3 + e01 * u4 + e02 * u5
        w1 = d01 * u0 + d11 * u1 + d12 * u2 + e10 * u3 + e11 * u4 + e12 * u5
        w2 = d02 * u0 + d12 * u1 + d22 * u2 + e20 * u3 + e21 * u4 + e22 * u5
        w3 = e00 * u0 + e10 * u1 + e20 * u2 + g00 * u3 + g01 * u4 + g02 * u5
        w4 = e01 * u0 + e11 * u1 + e21 * u2 + g01 * u3 + g11 * u4 + g12 * u5
        w5 = e02 * u0 + e12 * u1 + e22 * u2 + g02 * u3 + g12 * u4 + g22 * u5
        uw = u0 * w0 + u1 * w1 + u2 * w2 + u3 * w3 + u4 * w4 + u5 * w5
        # tr(Y P crm(s)): crm is made of cross-product matrices, so only antisymmetric parts of Y P count
        a00, a01, a02, a11, a12, a22 = get6(w, l, P)
        b00, b01, b02, b10, b11, b12 = get6(w, l, P + 6)
        b20, b21, b22 = get3(w, l, P + 12)
        c00, c01, c02, c11, c12, c22 = get6(w, l, P + 15)
        x = (
            d01 * a02 + d11 * a12 + d12 * a22 + e10 * b20 + e11 * b21 + e12 * b22
            - d02 * a01 - d12 * a11 - d22 * a12 - e20 * b10 - e21 * b11 - e22 * b12
            + e01 * b02 + e11 * b12 + e21 * b22 + g01 * c02 + g11 * c12 + g12 * c22
            - e02 * b01 - e12 * b11 - e22 * b21 - g02 * c01 - g12 * c11 - g22 * c12
        )  # fmt: skip
        y = (
            d02 * a00 + d12 * a01 + d22 * a02 + e20 * b00 + e21 * b01 + e22 * b02
            - d00 * a02 - d01 * a12 - d02 * a22 - e00 * b20 - e01 * b21 - e02 * b22
            + e02 * b00 + e12 * b10 + e22 * b20 + g02 * c00 + g12 * c01 + g22 * c02
            - e00 * b02 - e10 * b12 - e20 * b22 - g00 * c02 - g01 * c12 - g02 * c22
        )  # fmt: skip
        z = (
            d00 * a01 + d01 * a11 + d02 * a12 + e00 * b10 + e01 * b11 + e02 * b12
            - d01 * a00 - d11 * a01 - d12 * a02 - e10 * b00 - e11 * b01 - e12 * b02
            + e00 * b01 + e10 * b11 + e20 * b21 + g00 * c01 + g01 * c11 + g02 * c12
            - e01 * b00 - e11 * b10 - e21 * b20 - g01 * c00 - g11 * c01 - g12 * c02
        )  # fmt: skip
        a = (
            d01 * b02 + d11 * b12 + d12 * b22 + e10 * c02 + e11 * c12 + e12 * c22
            - d02 * b01 - d12 * b11 - d22 * b21 - e20 * c01 - e21 * c11 - e22 * c12
        )  # fmt: skip
        b = (
            d02 * b00 + d12 * b10 + d22 * b20 + e20 * c00 + e21 * c01 + e22 * c02
            - d00 * b02 - d01 * b12 - d02 * b22 - e00 * c02 - e01 * c12 - e02 * c22
        )  # fmt: skip
        c = (
            d00 * b01 + d01 * b11 + d02 * b21 + e00 * c01 + e01 * c11 + e02 * c12
            - d01 * b00 - d11 * b10 - d12 * b20 - e10 * c00 - e11 * c01 - e12 * c02
        )  # fmt: skip
        trace = s0 * x + s1 * y + s2 * z + s3 * a + s4 * b + s5 * c
        # G . crm(s) w
        x, y, z = s1 * w2 - s2 * w1, s2 * w0 - s0 * w2, s0 * w1 - s1 * w0
        a, b, c = s1 * w5 - s2 * w4, s2 * w3 - s0 * w5, s0 * w4 - s1 * w3
        m0, m1, m2 = s4 * w2 - s5 * w1, s5 * w0 - s3 * w2, s3 * w1 - s4 * w0
        sandwich = u0 * x + u1 * y + u2 * z + u3 * (a + m0) + u4 * (b + m1) + u5 * (c + m2)
        put_at(gradient, coordinate[l], -2.0 * (trace - at(pivot, l) * sandwich))
        # Y = Y_parent - s w^T - w s^T + s s^T (1 / D + G . w) for w = Y_parent G, written with w - s curve for w
        curve = 0.5 * (get(w, l, INVERSE) + uw)
        w0, w1, w2 = w0 - s0 * curve, w1 - s1 * curve, w2 - s2 * curve
        w3, w4, w5 = w3 - s3 * curve, w4 - s4 * curve, w5 - s5 * curve
        put6(
            w, l, P, d00 - 2.0 * s0 * w0, d01 - s0 * w1 - w0 * s1, d02 - s0 * w2 - w0 * s2,
            d11 - 2.0 * s1 * w1, d12 - s1 * w2 - w1 * s2, d22 - 2.0 * s2 * w2,
        )  # fmt: skip
        put6(
            w, l, P + 6, e00 - s0 * w3 - w0 * s3, e01 - s0 * w4 - w0 * s4, e02 - s0 * w5 - w0 * s5,
            e10 - s1 * w3 - w1 * s3, e11 - s1 * w4 - w1 * s4, e12 - s1 * w5 - w1 * s5,
        )  # fmt: skip
        put3(w, l, P + 12, e20 - s2 * w3 - w2 * s3, e21 - s2 * w4 - w2 * s4, e22 - s2 * w5 - w2 * s5)
        put6(
            w, l, P + 15, g00 - 2.0 * s3 * w3, g01 - s3 * w4 - w3 * s4, g02 - s3 * w5 - w3 * s5,
            g11 - 2.0 * s4 * w4, g12 - s4 * w5 - w4 * s5, g22 - 2.0 * s5 * w5,
        )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _begin_y(l, last, packed, w, root):
    """Write Y of the root link l into its columns P: P^-1, or nothing where it cannot turn; none is needed if alone."""
    parent, joint, _, _, molecule, _, _ = packed
    if joint[l] != FREE:
        for i in range(21):
            put(w, l, P + i, 0.0)
    elif l + 1 < last and parent[l + 1] >= 0:
        _invert_root(root, molecule[l], w, l)


@njit(**_OPTIONS)
def inverse_diagonal(first, last, packed, w, root, diagonal):
    """Write (M^-1)_ii of all soft coordinates into diagonal (n_coordinates,), from the factor in w, whose P it uses up.

    It is 1 / D + G . Y_parent G, with Y as in `log_det_gradient`.
    """
    parent, _, _, coordinate, _, _, _ = packed
    for l in range(first, last):
        up = parent[l]
        if up < 0:
            _begin_y(l, last, packed, w, root)
            continue
        own = get(w, l, INVERSE)
        for i in range(6):
            total = zero(w)
            for j in range(6):
                total = total + get(w, up, P + PLACE[i][j]) * get(w, l, V_THEN_G + j)
            put(w, l, A + i, total)
            own = own + get(w, l, V_THEN_G + i) * total
        put_at(diagonal, coordinate[l], own)
        for i in range(6):
            s, y = get(w, l, S + i), get(w, l, A + i)
            for j in range(i + 1):
                t, z = get(w, l, S + j), get(w, l, A + j)
                put(w, l, P + PLACE[i][j], get(w, up, P + PLACE[i][j]) - s * z - y * t + s * t * own)
