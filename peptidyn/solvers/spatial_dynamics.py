"""Forward dynamics by the four algorithms FD1 to FD4 of Rodriguez & Kreutz (JPL 88-11, 1988, part I); all O(n).

They use the same P, D, G of `peptidyn.solvers.spatial_factors`, where the legend is, and differ in how the velocity
terms enter. In operators, with tip forces counted in T:

    fd1  (4.17)-(4.18)   T' = T - H phi (M phi^T a + b),  theta'' = (I - H Psi L)^T D^-1 (I - H Psi L) T'
    fd2  (5.5)-(5.6)     the same T';  alpha = psi^T H^T D^-1 (I - H Psi L) T' + phi^T a  for every link
    fd3  (5.8)-(5.10)    eps = T - H psi (S L T + M phi^T a + b),  theta'' = (I - H Psi L)^T D^-1 eps
    fd4  (5.13)-(5.15)   nu = D^-1 [(I - H Psi L) T - H psi~ P a - H psi b],
                         theta'' = (I - H Psi L)^T nu - L^T Psi^T (I - G H)^T a - G^T a

fd1 and fd2 sweep the tree four times, fd3 and fd4 three times; the sweep for V, which the paper joins to the first,
and the Riccati sweep, which it joins to the second, come on top here because factors are reused.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peptidyn.core.jit import njit
from peptidyn.solvers.spatial_algebra import (
    add_cross,
    add_inertia_times,
    add_shifted_force,
    add_shifted_motion,
)
from peptidyn.solvers.spatial_factors import (
    INVERSE,
    add_joint_motion,
    add_shifted_gain,
    dot6,
    filter_sweep,
    project,
    scale_innovations,
    smooth_sweep,
)


class Motion(NamedTuple):
    """Velocities and velocity terms of all links, each (n_links, 6).

    Attributes
    ----------
    V : angular velocity, velocity of the origin (2.25)
    a : bias acceleration (2.19), (2.32)
    b : bias force (2.23)
    """

    V: np.ndarray
    a: np.ndarray
    b: np.ndarray


@njit(cache=True)
def write_motion(links, rates, motion):
    """Write V, a, b for generalised velocities `rates` (n_dof,)."""
    motion.V[:] = 0.0
    motion.a[:] = 0.0
    motion.b[:] = 0.0
    velocity_sweep(links, rates, motion.V)
    bias_terms(links, rates, motion)


@njit(cache=True)
def velocity_sweep(links, rates, V):
    """Base to tips: V = phi^T H^T rates, (2.25), (5.13); `V` comes in as zeros."""
    for l in range(len(links.parent)):
        up, k, r = links.parent[l], links.dof[l], links.row[l]
        if up < 0:
            for i in range(6 - r):
                V[l, r + i] = rates[k + i]
            continue
        add_shifted_motion(links.arm[l], V[up], V[l])
        add_joint_motion(links, l, rates[k], V[l])


@njit(cache=True)
def bias_terms(links, rates, motion):
    """Fill a(k), (2.19) and (2.32), and b(k), (2.23), which come in as zeros; no sweep, every link by itself.

    A base has a(N) = 0 (b.7). The factor 2 of a sliding joint is missing in (2.32).
    """
    V, a, b = motion
    turned = np.empty(3)
    for l in range(len(links.parent)):
        up = links.parent[l]
        if up >= 0:
            w = V[up, :3]
            turned[:] = 0.0
            add_cross(w, links.arm[l], 1.0, turned)
            add_cross(w, turned, 1.0, a[l, 3:])
            rate = rates[links.dof[l]]
            if links.row[l] == 0:
                add_cross(w, links.h[l], rate, a[l])
            else:
                add_cross(w, links.h[l], 2.0 * rate, a[l, 3:])
        w, c, inertia = V[l, :3], links.c[l], links.inertia[l]
        turned[:] = 0.0
        add_cross(w, c, 1.0, turned)
        add_cross(w, turned, links.mass[l], b[l, 3:])
        # w x I w about the origin is w x I_c w + c x F, with the force F just found
        add_cross(c, b[l, 3:], 1.0, b[l])
        for i in range(3):
            turned[i] = inertia[i, 0] * w[0] + inertia[i, 1] * w[1] + inertia[i, 2] * w[2]
        add_cross(w, turned, 1.0, b[l])


@njit(cache=True)
def bias_acceleration_sweep(links, a, zeta):
    """Base to tips: zeta = phi^T a, (5.8)."""
    for l in range(len(links.parent)):
        zeta[l] = a[l]
        if links.parent[l] >= 0:
            add_shifted_motion(links.arm[l], zeta[links.parent[l]], zeta[l])


@njit(cache=True)
def bias_force(links, zeta, b, w):
    """Write w = M zeta + b of every link: what (4.17) and (5.9) sweep to the base."""
    for l in range(len(links.parent)):
        w[l] = b[l]
        add_inertia_times(links.mass[l], links.c[l], links.inertia[l], zeta[l], w[l])


@njit(cache=True)
def remove_bias_sweep(links, T, f, T_free):
    """Tips to base: T' = T - H phi w, (4.17), (5.5); `f` holds w on entry and phi w on return."""
    for l in range(len(links.parent) - 1, -1, -1):
        up, k, r = links.parent[l], links.dof[l], links.row[l]
        if up < 0:
            for i in range(6 - r):
                T_free[k + i] = T[k + i] - f[l, r + i]
            continue
        T_free[k] = T[k] - project(links, l, f[l])
        add_shifted_force(links.arm[l], f[l], f[up])


@njit(cache=True)
def smooth_accelerations_sweep(links, gains, a, nu, lam, zeta, alpha, theta):
    """Base to tips: theta'' and the spatial accelerations alpha = lambda + zeta of all links, (4.21b)-(4.22b)."""
    smooth_sweep(links, gains, nu, lam, theta)
    bias_acceleration_sweep(links, a, zeta)
    for l in range(len(links.parent)):
        for i in range(6):
            alpha[l, i] = lam[l, i] + zeta[l, i]


@njit(cache=True)
def biased_filter_sweep(links, gains, motion, T, z, eps):
    """Tips to base: eps = T - H z with z = Psi L T + psi~ P a + psi b, (5.14), (5.16); `z` comes in as zeros.

    With y = z + P a, what link k sends to its parent, psi z + L T + psi P a, is phi [y + G (T - H y)].
    """
    y = np.empty(6)
    for l in range(len(links.parent) - 1, -1, -1):
        up, k, r = links.parent[l], links.dof[l], links.row[l]
        for i in range(6):
            z[l, i] += motion.b[l, i]
        if up < 0:
            for i in range(6 - r):
                eps[k + i] = T[k + i] - z[l, r + i]
            continue
        eps[k] = T[k] - project(links, l, z[l])
        for i in range(6):
            y[i] = z[l, i] + dot6(gains.P[l, i], motion.a[l])
        add_shifted_force(links.arm[l], y, z[up])
        add_shifted_gain(links, gains, l, T[k] - project(links, l, y), z[up])


@njit(cache=True)
def biased_smooth_sweep(links, gains, a, nu, lam, theta):
    """Base to tips: theta'' and lambda = alpha, (5.15), (5.17).

    With x = phi^T lambda(parent) + a, (5.17) is theta'' = nu - G^T x and lambda = x + H^T theta''.
    """
    for l in range(len(links.parent)):
        up, k, r = links.parent[l], links.dof[l], links.row[l]
        lam[l] = a[l]
        if up < 0:
            for i in range(6 - r):
                theta[k + i] = nu[k + i]
                lam[l, r + i] += nu[k + i]
            continue
        add_shifted_motion(links.arm[l], lam[up], lam[l])
        theta[k] = nu[k] - dot6(gains.G[l], lam[l])
        add_joint_motion(links, l, theta[k], lam[l])


# ---------------------------------------------------------------------- the four algorithms
#
# Each takes generalised velocities `rates` and forces T and writes theta'', all (n_dof,). Scratch: `work`
# (WORK, n_links, 6), of which the first three parts are the motion, and `rows` (2, n_dof).

WORK = 7
"""6-vectors per link that the algorithms need as scratch."""


@njit(cache=True)
def fd1(links, gains, rates, T, work, rows, theta):
    """Forward dynamics by (4.17)-(4.22)."""
    _write_innovations(links, gains, rates, T, work, rows)
    smooth_sweep(links, gains, rows[0], work[3], theta)


@njit(cache=True)
def fd2(links, gains, rates, T, work, rows, theta):
    """Forward dynamics by (5.5), (4.19)-(4.20) and (4.21b)-(4.22b).

    The last part of `work` becomes alpha, the spatial acceleration of every link (5.6).
    """
    _write_innovations(links, gains, rates, T, work, rows)
    _, a, _, _, zeta, lam, alpha = work
    smooth_accelerations_sweep(links, gains, a, rows[0], lam, zeta, alpha, theta)


@njit(cache=True)
def _write_innovations(links, gains, rates, T, work, rows):
    """Write D^-1 (I - H Psi L) T' with the torques T' free of bias, (4.17)-(4.20), into the first of `rows`."""
    V, a, b, z, zeta, _, _ = work
    eps, T_free = rows
    write_motion(links, rates, Motion(V, a, b))
    _remove_bias(links, a, b, T, zeta, z, T_free)
    z[:] = 0.0
    filter_sweep(links, gains, T_free, z, eps)
    scale_innovations(links, gains, INVERSE, eps)


@njit(cache=True)
def _remove_bias(links, a, b, T, zeta, f, T_free):
    """Write T' = T - H phi (M phi^T a + b), (4.17): Newton-Euler with theta'' = 0."""
    bias_acceleration_sweep(links, a, zeta)
    bias_force(links, zeta, b, f)
    remove_bias_sweep(links, T, f, T_free)


@njit(cache=True)
def fd3(links, gains, rates, T, work, rows, theta):
    """Forward dynamics by (5.8)-(5.10)."""
    V, a, b, z, zeta, _, _ = work
    eps = rows[0]
    write_motion(links, rates, Motion(V, a, b))
    bias_acceleration_sweep(links, a, zeta)
    bias_force(links, zeta, b, z)
    filter_sweep(links, gains, T, z, eps)
    scale_innovations(links, gains, INVERSE, eps)
    smooth_sweep(links, gains, eps, z, theta)


@njit(cache=True)
def fd4(links, gains, rates, T, work, rows, theta):
    """Forward dynamics by (5.16)-(5.17)."""
    V, a, b, z, lam, _, _ = work
    eps = rows[0]
    motion = Motion(V, a, b)
    write_motion(links, rates, motion)
    z[:] = 0.0
    biased_filter_sweep(links, gains, motion, T, z, eps)
    scale_innovations(links, gains, INVERSE, eps)
    biased_smooth_sweep(links, gains, a, eps, lam, theta)


ALGORITHMS = {"fd1": fd1, "fd2": fd2, "fd3": fd3, "fd4": fd4}
