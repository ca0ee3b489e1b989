"""Denavit-Hartenberg frames with six parameters, and their Lie derivatives.

Equations (15), (18) and (21)-(28) of Lee, Wang and Chirikjian, "O(n) mass matrix inversion for serial
manipulators and polypeptide chains using Lie derivatives". Legend, for joint k between bodies k-1 and k:

T_k         frame k in space, 4x4 homogeneous; origin o_k, axes x_k, y_k, z_k
Q_k         centre-of-mass frame of body k, seen from frame k: T_k^c = T_k Q_k
T           the relative transform T_k^{k-1} = T_{k-1}^-1 T_k
q           the six coordinates of T, always in the order alpha, beta, gamma, a, b, c
xi          twist (omega, v) of a body, in its own centre-of-mass frame; T^c moves to T^c exp(xi)

beta and b turn and shift along x_{k-1}, gamma and c along z_k. The four-parameter transform (23) has alpha = a = 0;
with the two dummies it covers SE(3), in one of three ways:

form A (24)   screw(e3, a, alpha) screw(e1, b, beta)  screw(e3, c, gamma)    singular at sin(beta) = 0
form B (25)   screw(e1, b, beta)  screw(e3, c, gamma) screw(e1, a, alpha)    singular at sin(gamma) = 0
form C (26)   screw(e1, b, beta)  screw(e2, a, alpha) screw(e3, c, gamma)    singular at cos(alpha) = 0

Form C is regular on the whole set alpha = a = 0 and is the one the solvers use. Lengths may be in any unit; angles
are in rad. The numpy functions work on any number of leading axes; `lie_rows` is the compiled kernel for one joint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from peptidyn.core.errors import ArgumentError

COORDINATES = ("alpha", "beta", "gamma", "a", "b", "c")
"""Names of the six coordinates, in the order of every array here."""

SE3_BASIS = np.zeros((6, 4, 4))
"""The basis E~_i of se(3), section 3.5: three rotations about x, y, z, then three translations."""
SE3_BASIS[0, 2, 1] = SE3_BASIS[1, 0, 2] = SE3_BASIS[2, 1, 0] = 1.0
SE3_BASIS[0, 1, 2] = SE3_BASIS[1, 2, 0] = SE3_BASIS[2, 0, 1] = -1.0
SE3_BASIS[3, 0, 3] = SE3_BASIS[4, 1, 3] = SE3_BASIS[5, 2, 3] = 1.0
SE3_BASIS.setflags(write=False)

_ALPHA, _BETA, _GAMMA, _A, _B, _C = range(6)

# Each form as its three screws: (axis number, column of the distance, column of the angle).
_SCREWS = {
    "A": ((2, _A, _ALPHA), (0, _B, _BETA), (2, _C, _GAMMA)),
    "B": ((0, _B, _BETA), (2, _C, _GAMMA), (0, _A, _ALPHA)),
    "C": ((0, _B, _BETA), (1, _A, _ALPHA), (2, _C, _GAMMA)),
}

_SINGULARITY = {"A": "sin(beta)", "B": "sin(gamma)", "C": "cos(alpha)"}

SINGULAR = 1e-8
"""Below this value of sin(beta), sin(gamma) or cos(alpha) fewer than half the digits of the angles are left."""


# ---------------------------------------------------------------------- transforms


def screw(axis: Any, distance: Any, angle: Any) -> np.ndarray:
    """Return screw(n, d, theta): a turn by theta about n and a shift by d along it (section 4.1).

    Parameters
    ----------
    axis : (..., 3) array_like
        Unit vectors n.
    distance, angle : (...) array_like
        d, and theta in rad; broadcast against each other and the axes.

    Returns
    -------
    (..., 4, 4) float64
    """
    n = np.asarray(axis, dtype=np.float64)
    d, theta = np.asarray(distance, dtype=np.float64), np.asarray(angle, dtype=np.float64)
    if n.shape[-1:] != (3,) or np.any(np.abs(np.sum(n * n, axis=-1) - 1.0) > 1e-9):
        raise ArgumentError("the axis of a screw must be a unit vector with 3 components; normalise it first")
    shape = np.broadcast_shapes(n.shape[:-1], d.shape, theta.shape)
    n = np.broadcast_to(n, (*shape, 3))
    cos, sin = np.cos(theta)[..., None, None], np.sin(theta)[..., None, None]
    cross = np.einsum("...i,ijk->...jk", n, SE3_BASIS[:3, :3, :3])
    T = np.zeros((*shape, 4, 4))
    T[..., :3, :3] = cos * np.eye(3) + sin * cross + (1.0 - cos) * n[..., :, None] * n[..., None, :]
    T[..., :3, 3] = d[..., None] * n
    T[..., 3, 3] = 1.0
    return T


def dh_transform(beta: Any, b: Any, c: Any, gamma: Any) -> np.ndarray:
    """Return the four-parameter transform (23), screw(e1, b, beta) screw(e3, c, gamma), of shape (..., 4, 4)."""
    beta, b, c, gamma = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (beta, b, c, gamma)))
    cb, sb, cg, sg = np.cos(beta), np.sin(beta), np.cos(gamma), np.sin(gamma)
    T = np.zeros((*beta.shape, 4, 4))
    T[..., 0, 0], T[..., 0, 1], T[..., 0, 3] = cg, -sg, b
    T[..., 1, 0], T[..., 1, 1], T[..., 1, 2], T[..., 1, 3] = sg * cb, cg * cb, -sb, -c * sb
    T[..., 2, 0], T[..., 2, 1], T[..., 2, 2], T[..., 2, 3] = sg * sb, cg * sb, cb, c * cb
    T[..., 3, 3] = 1.0
    return T


def transform(q: Any, form: str = "C") -> np.ndarray:
    """Return the six-parameter transform (24), (25) or (26).

    Parameters
    ----------
    q : (..., 6) array_like
        alpha, beta, gamma (rad), a, b, c.
    form : {"A", "B", "C"}

    Returns
    -------
    (..., 4, 4) float64
    """
    first, second, third = _factors(q, form)
    return first @ second @ third


def coordinates(T: Any, form: str = "C") -> np.ndarray:
    """Return the six coordinates of relative transforms: the inverse of `transform`.

    The ranges that make the answer unique are alpha in [-pi/2, pi/2] for form C (section 4.1), beta in [0, pi] for
    form A and gamma in [0, pi] for form B; all other angles lie in [-pi, pi].

    Parameters
    ----------
    T : (..., 4, 4) array_like
        Rigid transforms.
    form : {"A", "B", "C"}

    Returns
    -------
    (..., 6) float64
        alpha, beta, gamma (rad), a, b, c.

    Raises
    ------
    ArgumentError
        If T is where the form is singular, so that two of the angles turn about the same line.
    """
    _check_form(form)
    T = _transforms(T, "T")
    R, p = T[..., :3, :3], T[..., :3, 3]
    q = np.empty((*T.shape[:-2], 6))
    if form == "A":
        sin_beta = np.hypot(R[..., 0, 2], R[..., 1, 2])
        _check_regular(sin_beta, form)
        q[..., _ALPHA] = np.arctan2(R[..., 0, 2], -R[..., 1, 2])
        q[..., _BETA] = np.arctan2(sin_beta, R[..., 2, 2])
        q[..., _GAMMA] = np.arctan2(R[..., 2, 0], R[..., 2, 1])
        w = _turned_back(p, 2, q[..., _ALPHA])  # (b, -c sin(beta), a + c cos(beta))
        q[..., _B] = w[..., 0]
        q[..., _C] = -w[..., 1] / sin_beta
        q[..., _A] = w[..., 2] - q[..., _C] * R[..., 2, 2]
    elif form == "B":
        sin_gamma = np.hypot(R[..., 1, 0], R[..., 2, 0])
        _check_regular(sin_gamma, form)
        q[..., _BETA] = np.arctan2(R[..., 2, 0], R[..., 1, 0])
        q[..., _GAMMA] = np.arctan2(sin_gamma, R[..., 0, 0])
        q[..., _ALPHA] = np.arctan2(R[..., 0, 2], -R[..., 0, 1])
        w = _turned_back(p, 0, q[..., _BETA])  # (b + a cos(gamma), a sin(gamma), c)
        q[..., _C] = w[..., 2]
        q[..., _A] = w[..., 1] / sin_gamma
        q[..., _B] = w[..., 0] - q[..., _A] * R[..., 0, 0]
    else:
        cos_alpha = np.hypot(R[..., 0, 0], R[..., 0, 1])
        _check_regular(cos_alpha, form)
        q[..., _ALPHA] = np.arctan2(R[..., 0, 2], cos_alpha)
        q[..., _BETA] = np.arctan2(-R[..., 1, 2], R[..., 2, 2])
        q[..., _GAMMA] = np.arctan2(-R[..., 0, 1], R[..., 0, 0])
        q[..., _A] = (p[..., 1] * R[..., 2, 2] - p[..., 2] * R[..., 1, 2]) / cos_alpha
        q[..., _C] = (p[..., 1] * R[..., 1, 2] + p[..., 2] * R[..., 2, 2]) / cos_alpha**2
        q[..., _B] = p[..., 0] - R[..., 0, 2] * q[..., _C]
    return q


def inverse(T: Any) -> np.ndarray:
    """Return the inverse of rigid transforms, (..., 4, 4), without a general matrix inversion."""
    T = _transforms(T, "T")
    out = np.zeros_like(T)
    out[..., :3, :3] = np.swapaxes(T[..., :3, :3], -1, -2)
    out[..., :3, 3] = -np.einsum("...ji,...j->...i", T[..., :3, :3], T[..., :3, 3])
    out[..., 3, 3] = 1.0
    return out


def chain_transforms(relative: Any, base: Any = None) -> np.ndarray:
    """Return T_k = T_0 T_1^0 ... T_k^{k-1} for k = 1 .. n.

    Parameters
    ----------
    relative : (n, 4, 4) array_like
        T_k^{k-1} of every joint.
    base : (4, 4) array_like, optional
        T_0; the identity if not given.

    Returns
    -------
    (n, 4, 4) float64
    """
    relative = _transforms(relative, "relative")
    if relative.ndim != 3:
        raise ArgumentError(f"relative has shape {relative.shape}, expected (n, 4, 4), one transform per joint")
    current = np.eye(4) if base is None else _transforms(base, "base")
    frames = np.empty_like(relative)
    for k, step in enumerate(relative):
        frames[k] = current = current @ step
    return frames


# ---------------------------------------------------------------------- derivatives


def jacobian(q: Any, form: str = "C") -> np.ndarray:
    """Return the SE(3) Jacobian (15): column i is (T^-1 dT/dq_i)^v, so that (omega, v) = J dq/dt.

    Its determinant is sin^2(beta) for form A, sin^2(gamma) for form B and cos^2(alpha) for form C.

    Parameters
    ----------
    q : (..., 6) array_like
    form : {"A", "B", "C"}

    Returns
    -------
    (..., 6, 6) float64
        Rows omega, v in the frame of T; columns alpha, beta, gamma, a, b, c.
    """
    factors = _factors(q, form)
    shape = factors[0].shape[:-2]
    J = np.zeros((*shape, 6, 6))
    rest = np.broadcast_to(np.eye(4), (*shape, 4, 4))
    # A screw commutes with a turn or shift along its own axis, so each factor adds its two basis twists, carried
    # through the factors to its right by Ad(rest^-1).
    for factor, (axis, distance, angle) in zip(reversed(factors), reversed(_SCREWS[form]), strict=True):
        n = rest[..., axis, :3]
        J[..., :3, angle] = n
        J[..., 3:, angle] = np.cross(n, np.einsum("...ji,...j->...i", rest[..., :3, :3], rest[..., :3, 3]))
        J[..., 3:, distance] = n
        rest = factor @ rest
    return J


def relative_transform(Q_prev: Any, Tc_prev: Any, Tc: Any, Q: Any) -> np.ndarray:
    """Return T_k^{k-1} = Q_{k-1} (T_{k-1}^c)^-1 T_k^c Q_k^-1, eq. (21); every argument is (..., 4, 4)."""
    return _transforms(Q_prev, "Q_prev") @ inverse(Tc_prev) @ _transforms(Tc, "Tc") @ inverse(Q)


def transform_derivatives(Q_prev: Any, Tc_prev: Any, Tc: Any, Q: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the Lie derivatives (22) of T_k^{k-1} along the twists of the two bodies of the joint.

    Parameters
    ----------
    Q_prev, Tc_prev, Tc, Q : (..., 4, 4) array_like
        Q_{k-1}, T_{k-1}^c, T_k^c, Q_k. For a base that is fixed in space give the identity and T_0, and leave the
        first result unused.

    Returns
    -------
    previous, own : (..., 6, 4, 4) float64
        For j = k-1 and j = k: entry i is the derivative along xi^i, i over (omega, v).
    """
    Q_prev, Q = _transforms(Q_prev, "Q_prev"), _transforms(Q, "Q")
    between = inverse(Tc_prev) @ _transforms(Tc, "Tc")
    left, right, inverse_Q = (m[..., None, :, :] for m in (Q_prev, between, inverse(Q)))
    return -left @ SE3_BASIS @ right @ inverse_Q, left @ right @ SE3_BASIS @ inverse_Q


def coordinate_derivatives(T: Any, dT: Any) -> np.ndarray:
    """Return the Lie derivatives (28) of the six coordinates of form C, as printed in the paper.

    Parameters
    ----------
    T : (..., 4, 4) array_like
        Relative transforms T_k^{k-1}.
    dT : (..., m, 4, 4) array_like
        Their derivatives along m directions, e.g. from `transform_derivatives`.

    Returns
    -------
    (..., 6, m) float64
        Rows alpha, beta, gamma, a, b, c.

    Notes
    -----
    d alpha uses n^2 + T13^2 = 1, which holds because T is rigid.
    """
    T = _transforms(T, "T")
    dT = np.asarray(dT, dtype=np.float64)
    (T11, T12, T13, _), (_, _, T23, T24), (_, _, T33, T34) = np.moveaxis(T[..., None, :3, :], (-2, -1), (0, 1))
    (D11, D12, D13, D14), (_, _, D23, D24), (_, _, D33, D34) = np.moveaxis(dT[..., :3, :], (-2, -1), (0, 1))
    n2 = T11**2 + T12**2
    n = np.sqrt(n2)
    _check_regular(n, "C")
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


# ---------------------------------------------------------------------- the compiled kernel


@njit(cache=True)
def lie_rows(Q_prev, Tc_prev, Tc, Q, out_prev, out):
    """Fill the two 6x6 blocks d(alpha, beta, gamma, a, b, c)_k / d xi_j of form C, for j = k-1 and j = k.

    These are the nonzero blocks of row k of J^-1 in eq. (20): the same numbers as
    ``coordinate_derivatives(T, dT)`` with (21), (22) and (28), at about the cost of forty dot products. No memory
    is allocated.

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


# ---------------------------------------------------------------------- private


def _factors(q: Any, form: str) -> list[np.ndarray]:
    _check_form(form)
    q = np.asarray(q, dtype=np.float64)
    if q.shape[-1:] != (6,):
        raise ArgumentError(f"q has shape {q.shape}, expected (..., 6): {', '.join(COORDINATES)}")
    return [screw(np.eye(3)[axis], q[..., distance], q[..., angle]) for axis, distance, angle in _SCREWS[form]]


def _turned_back(p: np.ndarray, axis: int, angle: np.ndarray) -> np.ndarray:
    turn = screw(np.eye(3)[axis], 0.0, angle)[..., :3, :3]
    return np.einsum("...ji,...j->...i", turn, p)


def _transforms(value: Any, name: str) -> np.ndarray:
    T = np.asarray(value, dtype=np.float64)
    if T.shape[-2:] != (4, 4):
        raise ArgumentError(f"{name} has shape {T.shape}, expected (..., 4, 4) homogeneous transforms")
    return T


def _check_form(form: str) -> None:
    if form not in _SCREWS:
        raise ArgumentError(f"form {form!r} does not exist; choose one of {', '.join(map(repr, _SCREWS))}")


def _check_regular(value: np.ndarray, form: str) -> None:
    if np.any(value < SINGULAR):
        raise ArgumentError(
            f"form {form} has no unique coordinates where {_SINGULARITY[form]} = 0 (here {np.min(value):.1e}); "
            "choose another form for this joint"
        )
