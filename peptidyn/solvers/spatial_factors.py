"""The factors of the mass matrix by Rodriguez & Kreutz (JPL 88-11, 1988, part I), for trees with any base; O(n).

The mass matrix and its inverse have closed-form factors (4.11), (4.16), which a Riccati recursion from the tips to
the base provides, as a Kalman filter would:

    M    = (I + H Phi L) D (I + H Phi L)^T
    M^-1 = (I - H Psi L)^T D^-1 (I - H Psi L)

Legend (the paper's symbols; links in world axes, each about its own origin O(k), a point on its joint axis)

    H(k)       H^T is the joint's motion per unit rate: (h; 0) revolute (2.16), (0; h) prismatic (2.31)
    phi(k)     shift from link k to its parent: phi f for forces, phi^T V for velocities (2.16); `arm` is its l
    M(k)       spatial inertia (2.15)                       V(k), alpha(k)  spatial velocity and acceleration (2.14)
    P(k)       articulated inertia (4.5)                    a(k), b(k)      bias acceleration (2.19), force (2.23)
    D(k)       H P H^T (4.6), plus the joint inertia        z(k), eps, nu   filter state, innovations, D^-1 eps (4.20)
    G(k)       P H^T D^-1 (5.12)                            lambda(k)       smoother state (4.22)
    L, psi     phi G (a.12), phi (I - G H) (4.7): never formed, so that the 6-vectors below are all there is
    T, theta   generalised forces and coordinates; tip forces f(0) are part of T here, by J^T F

Where this file departs from print
 - The paper numbers links from the tip (1) to the base (N). Here parent[l] < l, so k = 1 .. N is
   l = n_links - 1 .. 0.
 - Trees: "k - 1" becomes every child of k, and what arrives from the children is summed. In operators, S of (5.2) has
   its identities at (parent(k), k); all identities of appendix A hold as they stand.
 - Mobile base (appendix B): H(N) = I_6 and D(N) = P(N), kept as its Cholesky factor C, a(N) = 0 ((b.7) misprints
   alpha). A point has H(N) = [0, I_3], a welded base no row at all.
 - (2.32) lacks a factor: a sliding joint has a = (0; w x (w x l) + 2 w x h rate).
 - A joint inertia is added to D(k), as the variance of the measurement is in a Kalman filter. The sweeps stay as they
   are; of the identities of appendix A only (a.47) uses H G = 1, which holds no more.
 - (4.5) must run to k = N; (4.20) must read eps = T' - H z; (5.13) must read V = phi^T H^T rate.

Accuracy: about each link's own origin P(k) stays of the size of a few links, because the joints between take the
rest out of it, and ln det M keeps 12 digits or more at 3,000 torsions. The exception is a chain that is stiff in some
direction whatever its joints do: in an exactly planar zigzag that lies askew to the world's axes P(k) grows with n^3
beside D(k) of one link, and ln det M keeps 8 digits at 3,000 torsions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from peptidyn.core.jit import njit
from peptidyn.model.kinematics import FIXED, POINT, PRISMATIC, link_snapshot
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.dynamics import inertia_of_links
from peptidyn.solvers.spatial_algebra import (
    add_cross,
    add_shifted_force,
    add_shifted_inertia,
    add_shifted_motion,
    add_spatial_inertia,
    cholesky,
    multiply_lower,
    smallest_pivot,
    solve_lower,
    solve_lower_transposed,
)

PIVOT_TOLERANCE = 1e-13
"""A pivot D(k) below this share of the inertia it was computed from is a zero: what is left is rounding error."""


class Linkage(NamedTuple):
    """A tree in one configuration, as the sweeps read it.

    Attributes
    ----------
    parent, molecule, dof : (n_links,) int
        As in `TreeModel`.
    row : (n_links,) int
        Where H selects from a 6-vector: the axis acts on components row to row + 2 (0 revolute, 3 prismatic); a root
        selects components row to 5 (0 free, 3 point, 6 welded).
    h, arm, c : (n_links, 3)
        Joint axis; from the parent's origin to the link's (zero for roots); from the link's origin to its centre of
        mass.
    mass : (n_links,)
    inertia : (n_links, 3, 3)
        About the centre of mass.
    joint_inertia : (n_links,)
        Of the joint's own coordinate; zero for roots.
    """

    parent: np.ndarray
    molecule: np.ndarray
    dof: np.ndarray
    row: np.ndarray
    h: np.ndarray
    arm: np.ndarray
    c: np.ndarray
    mass: np.ndarray
    inertia: np.ndarray
    joint_inertia: np.ndarray


class Gains(NamedTuple):
    """What the Riccati recursion leaves behind.

    Attributes
    ----------
    P : (n_links, 6, 6)
        Articulated inertias (4.5).
    D : (n_links,)
        H P H^T (4.6) and the joint inertia; 1 for roots.
    G : (n_links, 6)
        Kalman gains P H^T D^-1 (5.12); 0 for roots.
    C : (n_molecules, 6, 6)
        Lower Cholesky factors of D(N) of the bases; rows that a base does not have are those of the identity.
    """

    P: np.ndarray
    D: np.ndarray
    G: np.ndarray
    C: np.ndarray


def empty_linkage(tree: TreeModel) -> Linkage:
    """Return a Linkage whose configuration, h, arm, c and inertia, is not written yet."""
    row = np.zeros(tree.n_links, dtype=np.int64)
    row[(tree.joint == PRISMATIC) | (tree.joint == POINT)] = 3
    row[tree.joint == FIXED] = 6
    h, arm, c = (np.empty((tree.n_links, 3)) for _ in range(3))
    inertia = np.empty((tree.n_links, 3, 3))
    return Linkage(
        tree.parent, tree.molecule, tree.dof, row, h, arm, c, tree.link_mass, inertia, inertia_of_links(tree)
    )


def empty_poses(tree: TreeModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scratch for `place_links`: rotation (n_links, 3, 3), origin and centre of mass (n_links, 3) of links."""
    return np.empty((tree.n_links, 3, 3)), np.empty((tree.n_links, 3)), np.empty((tree.n_links, 3))


def make_linkage(tree: TreeModel, state: State) -> Linkage:
    """Return what the sweeps need of a tree in one configuration."""
    tree.check_state(state)
    links = empty_linkage(tree)
    place_links(tree.link_arrays, (state.base_position, state.base_rotation, state.q), empty_poses(tree), links)
    return links


@njit(cache=True)
def place_links(tree, state, poses, links):
    """Write h, arm, c and inertia of a Linkage.

    `tree` is `TreeModel.link_arrays`, `state` holds base_position, base_rotation and q, `poses` is scratch. c comes
    from the link's own geometry, as com - p loses digits far from the origin.
    """
    R, p, world_com = poses
    link_snapshot(*tree, *state, R, p, links.h, world_com, links.inertia)
    com = tree[8]
    for l in range(len(links.parent)):
        up = links.parent[l]
        for i in range(3):
            links.arm[l, i] = p[l, i] - p[up, i] if up >= 0 else 0.0
            links.c[l, i] = R[l, i, 0] * com[l, 0] + R[l, i, 1] * com[l, 1] + R[l, i, 2] * com[l, 2]


# ---------------------------------------------------------------------- one joint


@njit(cache=True)
def project(links, l, f):
    """Return H f of an inner joint."""
    r = links.row[l]
    return links.h[l, 0] * f[r] + links.h[l, 1] * f[r + 1] + links.h[l, 2] * f[r + 2]


@njit(cache=True)
def add_joint_motion(links, l, rate, x):
    """Add H^T rate of an inner joint to `x` (6,)."""
    r = links.row[l]
    for i in range(3):
        x[r + i] += links.h[l, i] * rate


@njit(cache=True)
def add_shifted_gain(links, gains, l, scale, out):
    """Add L(k) scale to `out` (6,), with L = phi G (a.12)."""
    G = gains.G[l]
    add_cross(links.arm[l], G[3:], scale, out)
    for i in range(6):
        out[i] += scale * G[i]


@njit(cache=True)
def dot6(x, y):
    """Return x . y of two 6-vectors."""
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3] + x[4] * y[4] + x[5] * y[5]


# ---------------------------------------------------------------------- factorisation


@njit(cache=True)
def factor_links(tree, state, poses, links, gains, removed, tolerance):
    """Place the links and sweep: all that a factor of another state needs; arguments of the two functions below."""
    place_links(tree, state, poses, links)
    return riccati_sweep(links, gains, removed, tolerance)


@njit(cache=True)
def riccati_sweep(links, gains, removed, tolerance):
    """Tips to base: P, D, G of every link and C of every base, (4.4)-(4.6), (b.2).

    `removed` (n_links, 2) is scratch. Returns the first link whose pivot vanishes, or -1.

    A pivot counts as zero against the traces of everything that was summed into P(k), before the children's joints
    took their share out of it: that is the size of the rounding errors in P(k).
    """
    P, D, G, C = gains
    rest = np.empty((6, 6))
    L = np.empty(6)
    size = np.empty(2)
    P[:] = 0.0
    removed[:] = 0.0
    for l in range(len(D) - 1, -1, -1):
        add_spatial_inertia(links.mass[l], links.c[l], links.inertia[l], P[l])
        size[0] = P[l, 0, 0] + P[l, 1, 1] + P[l, 2, 2] + removed[l, 0]
        size[1] = P[l, 3, 3] + P[l, 4, 4] + P[l, 5, 5] + removed[l, 1]
        up, r = links.parent[l], links.row[l]
        if up < 0:
            D[l] = 1.0
            G[l] = 0.0
            if not smallest_pivot(P[l], r, size, rest) > tolerance:
                return l
            cholesky(P[l], r, C[links.molecule[l]])
            continue
        for i in range(6):
            G[l, i] = P[l, i, r] * links.h[l, 0] + P[l, i, r + 1] * links.h[l, 1] + P[l, i, r + 2] * links.h[l, 2]
        D[l] = project(links, l, G[l]) + links.joint_inertia[l]
        if not D[l] > tolerance * size[r // 3]:
            return l
        for i in range(6):
            for j in range(i + 1):
                value = P[l, i, j] - G[l, i] * G[l, j] / D[l]
                rest[i, j] = value
                rest[j, i] = value
        for i in range(6):
            G[l, i] /= D[l]
            L[i] = 0.0
        add_shifted_inertia(links.arm[l], rest, P[up])
        add_shifted_force(links.arm[l], G[l], L)
        removed[up, 0] += D[l] * (L[0] * L[0] + L[1] * L[1] + L[2] * L[2])
        removed[up, 1] += D[l] * (L[3] * L[3] + L[4] * L[4] + L[5] * L[5])
    return -1


# ---------------------------------------------------------------------- the factors as sweeps


@njit(cache=True)
def filter_sweep(links, gains, T, z, eps):
    """Tips to base: eps = T - H psi (S L T + w), (4.19)-(4.20), (5.9); with w = 0 it is (I - H Psi L) T.

    `z` (n_links, 6) holds the driving forces w on entry and the filter states on return. With L = phi G the update
    psi z + L T of (4.20) is phi (z + G eps).
    """
    for l in range(len(links.parent) - 1, -1, -1):
        up, k, r = links.parent[l], links.dof[l], links.row[l]
        if up < 0:
            for i in range(6 - r):
                eps[k + i] = T[k + i] - z[l, r + i]
            continue
        eps[k] = T[k] - project(links, l, z[l])
        add_shifted_force(links.arm[l], z[l], z[up])
        add_shifted_gain(links, gains, l, eps[k], z[up])


@njit(cache=True)
def innovations_sweep(links, gains, eps, z, y):
    """Tips to base: y = (I + H Phi L) eps, the innovations representation (4.13); `z` comes in as zeros."""
    for l in range(len(links.parent) - 1, -1, -1):
        up, k, r = links.parent[l], links.dof[l], links.row[l]
        if up < 0:
            for i in range(6 - r):
                y[k + i] = eps[k + i] + z[l, r + i]
            continue
        y[k] = eps[k] + project(links, l, z[l])
        add_shifted_force(links.arm[l], z[l], z[up])
        add_shifted_gain(links, gains, l, eps[k], z[up])


@njit(cache=True)
def smooth_sweep(links, gains, nu, lam, theta):
    """Base to tips: theta = (I - H Psi L)^T nu and lambda = psi^T H^T nu, (4.21)-(4.22).

    With x = phi^T lambda(parent), (4.22) is theta = nu - G^T x and lambda = x + H^T theta.
    """
    for l in range(len(links.parent)):
        up, k, r = links.parent[l], links.dof[l], links.row[l]
        lam[l] = 0.0
        if up < 0:
            for i in range(6 - r):
                theta[k + i] = nu[k + i]
                lam[l, r + i] = nu[k + i]
            continue
        add_shifted_motion(links.arm[l], lam[up], lam[l])
        theta[k] = nu[k] - dot6(gains.G[l], lam[l])
        add_joint_motion(links, l, theta[k], lam[l])


INVERSE, ROOT, INVERSE_ROOT = 0, 1, 2


@njit(cache=True)
def scale_innovations(links, gains, power, x):
    """Replace `x` (n_dof,) by D^-1 x (INVERSE), D^(1/2) x (ROOT) or D^(-T/2) x (INVERSE_ROOT).

    D^(1/2) of a base is its Cholesky factor C.
    """
    for l in range(len(links.parent)):
        k, r = links.dof[l], links.row[l]
        if links.parent[l] < 0:
            C, base = gains.C[links.molecule[l]], x[k : k + 6 - r]
            if power == ROOT:
                multiply_lower(C, r, base)
                continue
            if power == INVERSE:
                solve_lower(C, r, base)
            solve_lower_transposed(C, r, base)
        elif power == INVERSE:
            x[k] /= gains.D[l]
        elif power == ROOT:
            x[k] *= np.sqrt(gains.D[l])
        else:
            x[k] /= np.sqrt(gains.D[l])


@njit(cache=True)
def sum_log_pivots(gains):
    """Return ln det M = sum of ln D over the joints + ln det D(N) of the bases."""
    value = 0.0
    for l in range(len(gains.D)):
        value += math.log(gains.D[l])
    for m in range(len(gains.C)):
        for i in range(6):
            value += 2.0 * math.log(gains.C[m, i, i])
    return value


@njit(cache=True)
def solve_columns(links, gains, b, rows, z, out):
    """Write M^-1 b, (4.16), column by column; `b` and `out` are (n_dof, m).

    Scratch, here and below: `rows` (2, n_dof), `z` (n_links, 6).
    """
    eps, theta = rows
    for column in range(b.shape[1]):
        theta[:] = b[:, column]
        z[:] = 0.0
        filter_sweep(links, gains, theta, z, eps)
        scale_innovations(links, gains, INVERSE, eps)
        smooth_sweep(links, gains, eps, z, theta)
        out[:, column] = theta


@njit(cache=True)
def square_root_columns(links, gains, normals, rows, z, out):
    """Write (I + H Phi L) D^(1/2) z of every column z of `normals` (n_dof, m), by (4.12)-(4.13)."""
    eps, y = rows
    for column in range(normals.shape[1]):
        eps[:] = normals[:, column]
        z[:] = 0.0
        scale_innovations(links, gains, ROOT, eps)
        innovations_sweep(links, gains, eps, z, y)
        out[:, column] = y


@njit(cache=True)
def inverse_square_root_columns(links, gains, normals, rows, z, out):
    """Write (I - H Psi L)^T D^(-T/2) z of every column z of `normals` (n_dof, m), by (4.21)-(4.22)."""
    nu, theta = rows
    for column in range(normals.shape[1]):
        nu[:] = normals[:, column]
        scale_innovations(links, gains, INVERSE_ROOT, nu)
        smooth_sweep(links, gains, nu, z, theta)
        out[:, column] = theta
