"""Lie derivatives of Denavit-Hartenberg coordinates as Lee, Wang and Chirikjian print them: the oracle of `lie_rows`.

Legend and form C are those of `peptidyn.model.dh`. Functions work on any number of leading axes.
"""

from __future__ import annotations

import numpy as np

from peptidyn.model import dh

SE3_BASIS = np.zeros((6, 4, 4))
"""The basis E~_i of se(3), section 3.5: three rotations about x, y, z, then three translations."""
SE3_BASIS[0, 2, 1] = SE3_BASIS[1, 0, 2] = SE3_BASIS[2, 1, 0] = 1.0
SE3_BASIS[0, 1, 2] = SE3_BASIS[1, 2, 0] = SE3_BASIS[2, 0, 1] = -1.0
SE3_BASIS[3, 0, 3] = SE3_BASIS[4, 1, 3] = SE3_BASIS[5, 2, 3] = 1.0


def coordinates(T):
    """Return alpha, beta, gamma, a, b, c (..., 6) of transforms (..., 4, 4), with alpha in [-pi/2, pi/2]."""
    R, p = T[..., :3, :3], T[..., :3, 3]
    cos_alpha = np.hypot(R[..., 0, 0], R[..., 0, 1])
    a = (p[..., 1] * R[..., 2, 2] - p[..., 2] * R[..., 1, 2]) / cos_alpha
    c = (p[..., 1] * R[..., 1, 2] + p[..., 2] * R[..., 2, 2]) / cos_alpha**2
    return np.stack(
        [
            np.arctan2(R[..., 0, 2], cos_alpha),
            np.arctan2(-R[..., 1, 2], R[..., 2, 2]),
            np.arctan2(-R[..., 0, 1], R[..., 0, 0]),
            a,
            p[..., 0] - R[..., 0, 2] * c,
            c,
        ],
        axis=-1,
    )


def jacobian(q):
    """Return the SE(3) Jacobian (15), (..., 6, 6): column i is (T^-1 dT/dq_i)^v, so that (omega, v) = J dq/dt."""
    alpha, beta, gamma, a, b, c = np.moveaxis(np.asarray(q, dtype=float), -1, 0)
    axes = np.eye(3)
    screws = ((0, b, beta, 4, 1), (1, a, alpha, 3, 0), (2, c, gamma, 5, 2))
    J = np.zeros((*alpha.shape, 6, 6))
    rest = np.broadcast_to(np.eye(4), (*alpha.shape, 4, 4))
    # A screw commutes with a turn or shift along its own axis, so each factor adds its two basis twists, carried
    # through the factors to its right by Ad(rest^-1).
    for axis, distance, angle, distance_column, angle_column in reversed(screws):
        n = rest[..., axis, :3]
        J[..., :3, angle_column] = n
        J[..., 3:, angle_column] = np.cross(n, np.einsum("...ji,...j->...i", rest[..., :3, :3], rest[..., :3, 3]))
        J[..., 3:, distance_column] = n
        rest = dh.screw(axes[axis], distance, angle) @ rest
    return J


def relative_transform(Q_prev, Tc_prev, Tc, Q):
    """Return T_k^{k-1} = Q_{k-1} (T_{k-1}^c)^-1 T_k^c Q_k^-1, eq. (21); every argument is (..., 4, 4)."""
    return Q_prev @ np.linalg.inv(Tc_prev) @ Tc @ np.linalg.inv(Q)


def transform_derivatives(Q_prev, Tc_prev, Tc, Q):
    """Return the Lie derivatives (22) of T_k^{k-1} along the twists of bodies k-1 and k, each (..., 6, 4, 4)."""
    between = np.linalg.inv(Tc_prev) @ Tc
    left, right, inverse_Q = (m[..., None, :, :] for m in (Q_prev, between, np.linalg.inv(Q)))
    return -left @ SE3_BASIS @ right @ inverse_Q, left @ right @ SE3_BASIS @ inverse_Q


def coordinate_derivatives(T, dT):
    """Return the Lie derivatives (28) of the six coordinates, (..., 6, m), as printed.

    `dT` (..., m, 4, 4) are the derivatives of T along m directions. d alpha uses n^2 + T13^2 = 1, as T is rigid.
    """
    (T11, T12, T13, _), (_, _, T23, T24), (_, _, T33, T34) = np.moveaxis(T[..., None, :3, :], (-2, -1), (0, 1))
    (D11, D12, D13, D14), (_, _, D23, D24), (_, _, D33, D34) = np.moveaxis(dT[..., :3, :], (-2, -1), (0, 1))
    n2 = T11**2 + T12**2
    n = np.sqrt(n2)
    n_dn = T11 * D11 + T12 * D12
    u, du = T24 * T33 - T34 * T23, T24 * D33 + T33 * D24 - T34 * D23 - T23 * D34  # a n and its derivative
    w, dw = T24 * T23 + T34 * T33, T24 * D23 + T23 * D24 + T34 * D33 + T33 * D34  # c n^2 and its derivative
    return np.stack(
        [
            (n2 * D13 - T13 * n_dn) / n,
            (T23 * D33 - T33 * D23) / (T23**2 + T33**2),
            (T12 * D11 - T11 * D12) / n2,
            du / n - u * n_dn / n**3,
            D14 - w * (n2 * D13 - 2.0 * T13 * n_dn) / n2**2 - T13 * dw / n2,
            dw / n2 - 2.0 * w * n_dn / n2**2,
        ],
        axis=-2,
    )
