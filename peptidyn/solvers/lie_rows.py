"""Lie derivatives of Denavit-Hartenberg coordinates: the rows of J^-1 that belong to one joint, compiled.

Equations (20)-(22) and (28) of Lee, Wang and Chirikjian; see `peptidyn.model.dh` for the legend and form C.
"""

from __future__ import annotations

import numpy as np

from peptidyn.core.jit import njit


@njit(cache=True)
def lie_rows(Q_prev, Tc_prev, Tc, Q, out_prev, out):
    """Fill the two 6x6 blocks d(alpha, beta, gamma, a, b, c)_k / d xi_j of form C, for j = k-1 and j = k.

    These are the nonzero blocks of row k of J^-1 in eq. (20): the numbers of (28) with (21) and (22), which the tests
    write out as printed, at about the cost of forty dot products. No memory is allocated.

    Parameters
    ----------
    Q_prev, Tc_prev, Tc, Q : (4, 4) float64
        Q_{k-1}, T_{k-1}^c, T_k^c, Q_k. cos(alpha) of the joint must not vanish (form C).
    out_prev, out : (6, 6) float64
        Written in full. Rows alpha, beta, gamma, a, b, c; columns omega, v in the centre-of-mass frame of the body.

    Notes
    -----
    In space, with x = x_{k-1}, z = z_k and y = z x x / cos(alpha), the joint moves by

        omega = alpha' y + beta' x + gamma' z,            r = o_k - o_{k-1} = b x + a y + c z,
        dr/dt seen from frame k-1 = b' x + a' y + c' z + beta' x x (a y + c z) + alpha' y x c z,

    and x.y = y.z = 0, x.z = sin(alpha). Dotting with y and with the vectors reciprocal to x and z in their plane,
    x* = (x - sin(alpha) z) / cos^2(alpha) and z* = (z - sin(alpha) x) / cos^2(alpha), solves both lines.
    """
    center, center_prev = _column(Tc, 3), _column(Tc_prev, 3)
    origin, origin_prev = _frame_origin(Tc, Q), _frame_origin(Tc_prev, Q_prev)
    x, z = _frame_axis(Tc_prev, Q_prev, 0), _frame_axis(Tc, Q, 2)
    sin_alpha = _dot(x, z)
    y = _cross(z, x)
    cos2 = _dot(y, y)
    cos_alpha = np.sqrt(cos2)
    y = (y[0] / cos_alpha, y[1] / cos_alpha, y[2] / cos_alpha)
    x_star = _reciprocal(x, z, sin_alpha, cos2)
    z_star = _reciprocal(z, x, sin_alpha, cos2)

    r = _difference(origin, origin_prev)
    a, c = _dot(r, y), _dot(r, z_star)
    # What beta' and alpha' add to (a', b', c'), from x x y = (z - sin(alpha) x) / cos(alpha), x x z = -cos(alpha) y
    # and y x z = (x - sin(alpha) z) / cos(alpha).
    by_beta = (c * cos_alpha, a * sin_alpha / cos_alpha, -a / cos_alpha)
    by_alpha = (0.0, -c / cos_alpha, c * sin_alpha / cos_alpha)
    # A twist of body k-1 moves frame k the other way, as seen from frame k-1.
    _fill_rows(out_prev, Tc_prev, -1.0, _difference(origin, center_prev), x_star, y, z_star, by_alpha, by_beta)
    _fill_rows(out, Tc, 1.0, _difference(origin, center), x_star, y, z_star, by_alpha, by_beta)


@njit(cache=True)
def _fill_rows(rows, Tc, sign, arm, x_star, y, z_star, by_alpha, by_beta):
    """Fill one block of `lie_rows`; `arm` goes from the centre of mass of the moving body to o_k."""
    for i in range(3):
        e = (sign * Tc[0, i], sign * Tc[1, i], sign * Tc[2, i])
        v = _cross(e, arm)
        alpha, beta, gamma = _dot(y, e), _dot(x_star, e), _dot(z_star, e)
        rows[0, i], rows[0, 3 + i] = alpha, 0.0
        rows[1, i], rows[1, 3 + i] = beta, 0.0
        rows[2, i], rows[2, 3 + i] = gamma, 0.0
        rows[3, i], rows[3, 3 + i] = _dot(y, v) + by_alpha[0] * alpha + by_beta[0] * beta, alpha
        rows[4, i], rows[4, 3 + i] = _dot(x_star, v) + by_alpha[1] * alpha + by_beta[1] * beta, beta
        rows[5, i], rows[5, 3 + i] = _dot(z_star, v) + by_alpha[2] * alpha + by_beta[2] * beta, gamma


# Vectors are tuples of three floats: they live in registers, so that the kernel allocates nothing.


@njit(cache=True)
def _dot(u, v):
    return u[0] * v[0] + u[1] * v[1] + u[2] * v[2]


@njit(cache=True)
def _cross(u, v):
    return u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]


@njit(cache=True)
def _difference(u, v):
    return u[0] - v[0], u[1] - v[1], u[2] - v[2]


@njit(cache=True)
def _reciprocal(u, w, sin, cos2):
    return (u[0] - sin * w[0]) / cos2, (u[1] - sin * w[1]) / cos2, (u[2] - sin * w[2]) / cos2


@njit(cache=True)
def _column(T, j):
    return T[0, j], T[1, j], T[2, j]


@njit(cache=True)
def _rotated(T, u):
    return (
        T[0, 0] * u[0] + T[0, 1] * u[1] + T[0, 2] * u[2],
        T[1, 0] * u[0] + T[1, 1] * u[1] + T[1, 2] * u[2],
        T[2, 0] * u[0] + T[2, 1] * u[1] + T[2, 2] * u[2],
    )


@njit(cache=True)
def _frame_axis(Tc, Q, j):
    """Axis j of T = T^c Q^-1, in space."""
    return _rotated(Tc, (Q[j, 0], Q[j, 1], Q[j, 2]))


@njit(cache=True)
def _frame_origin(Tc, Q):
    """Origin of T = T^c Q^-1, in space."""
    back = (
        Q[0, 0] * Q[0, 3] + Q[1, 0] * Q[1, 3] + Q[2, 0] * Q[2, 3],
        Q[0, 1] * Q[0, 3] + Q[1, 1] * Q[1, 3] + Q[2, 1] * Q[2, 3],
        Q[0, 2] * Q[0, 3] + Q[1, 2] * Q[1, 3] + Q[2, 2] * Q[2, 3],
    )
    return _difference(_column(Tc, 3), _rotated(Tc, back))
