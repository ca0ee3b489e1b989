"""The U D U^T decomposition of the mass matrix by reverse Gaussian elimination; O(n).

S. K. Saha, "The UDU^T decomposition of manipulator inertia matrix": the mass matrix is written with the decoupled
natural orthogonal complement (NOC), M = T_d^T T_l^T diag(M_i) T_l T_d, and eliminated from its last column to its
first. U is unit upper triangular, D is diagonal. Equation numbers are those of the paper. Legend, for link k that
hangs on link j:

t_k = (omega_k; c'_k)   twist at the mass centre C_k, world axes (1); a massless link has C_k = its origin
B_kj, p_k               t_k = B_kj t_j + p_k theta'_k (3); B_kj carries twists from C_j to C_k, B_kj^T wrenches back (4)
M_k                     extended mass: inertia about C_k, mass (12)
M^_k                    articulated inertia at C_k: M^_{k,k+1} before, M^_kk after the elimination of column k (35)
psi_k = M^_k p_k        (32)
m^_k = p_k . psi_k      pivot: the k-th diagonal element of D (32); plus the joint inertia a_k, if there is one
psi^_k = psi_k / m^_k   (33)
eta, mu                 wrenches summed towards the base (37), twists summed towards the tips (39)

The paper treats serial chains of revolute joints on a fixed base. Here "k + 1" becomes "every child of k", which is all
that a tree changes: two columns of M couple only along one path, so the sums of (35), (37) run over children. A
prismatic joint has p_k = (0; e_k). A free or point root has a p of six or three columns; as M is eliminated from its
last column, the root's block comes last, so D is diagonal but for one block per root, at the place of its base
degrees of freedom. (16), i_ij = p_i^T M~_i B_ij p_j, holds for i >= j, and not for i <= j as printed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from peptidyn.core.jit import njit
from peptidyn.model.kinematics import FREE, POINT, PRISMATIC, link_snapshot
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.dynamics import inertia_of_links
from peptidyn.solvers.protocol import FactorPool, ReusableFactor, ReusingSolver, check_columns, raise_singular
from peptidyn.solvers.spatial_algebra import add_shifted_inertia, smallest_pivot

PIVOT_TOLERANCE = 1e-13
"""A pivot below this part of the numbers that it is the difference of is a zero: what is left is rounding error."""


# ---------------------------------------------------------------------- carrying twists and wrenches, many at a time


@njit(cache=True)
def _carry_twists(r, twist, out):
    """Write B_kj `twist` into `out`, both (6, m), with r = c_k - c_j: the velocity gains omega x r (4)."""
    for c in range(twist.shape[1]):
        x, y, z = twist[0, c], twist[1, c], twist[2, c]
        out[0, c] = x
        out[1, c] = y
        out[2, c] = z
        out[3, c] = twist[3, c] + y * r[2] - z * r[1]
        out[4, c] = twist[4, c] + z * r[0] - x * r[2]
        out[5, c] = twist[5, c] + x * r[1] - y * r[0]


@njit(cache=True)
def _add_wrenches(r, wrench, out):
    """Add B_kj^T `wrench` to `out`, both (6, m), with r = c_k - c_j: the torque gains r x force (4)."""
    for c in range(wrench.shape[1]):
        x, y, z = wrench[3, c], wrench[4, c], wrench[5, c]
        out[0, c] += wrench[0, c] + r[1] * z - r[2] * y
        out[1, c] += wrench[1, c] + r[2] * x - r[0] * z
        out[2, c] += wrench[2, c] + r[0] * y - r[1] * x
        out[3, c] += x
        out[4, c] += y
        out[5, c] += z


# ---------------------------------------------------------------------- decomposition


@njit(cache=True)
def _joint_twists(parent, joint, axis, origin, com, p, r):
    """Write the blocks of the decoupled NOC, (4): `p` (n_links, 6), and `r` (n_links, 3) = c_k - c_j of B_kj.

    For roots p is zero and r = (mass centre) - (base origin), which carries the base coordinates to C_k.
    """
    p[:] = 0.0
    for k in range(len(parent)):
        j = parent[k]
        for i in range(3):
            r[k, i] = com[k, i] - (origin[k, i] if j < 0 else com[j, i])
        if j < 0:
            continue
        if joint[k] == PRISMATIC:
            for i in range(3):
                p[k, 3 + i] = axis[k, i]
            continue
        dx, dy, dz = com[k, 0] - origin[k, 0], com[k, 1] - origin[k, 1], com[k, 2] - origin[k, 2]
        x, y, z = axis[k, 0], axis[k, 1], axis[k, 2]
        p[k, 0] = x
        p[k, 1] = y
        p[k, 2] = z
        p[k, 3] = y * dz - z * dy
        p[k, 4] = z * dx - x * dz
        p[k, 5] = x * dy - y * dx


@njit(cache=True)
def _extended_masses(mass, inertia, M_hat):
    """Start `M_hat` (n_links, 6, 6) with the extended masses M_k (12)."""
    M_hat[:] = 0.0
    for k in range(len(mass)):
        for i in range(3):
            M_hat[k, 3 + i, 3 + i] = mass[k]
            for c in range(3):
                M_hat[k, i, c] = inertia[k, i, c]


@njit(cache=True)
def _pivot(M, p, psi):
    """Write psi_k = M^_{k,k+1} p_k and return p_k . psi_k (32)."""
    m = 0.0
    for i in range(6):
        value = 0.0
        for c in range(6):
            value += M[i, c] * p[c]
        psi[i] = value
        m += p[i] * value
    return m


@njit(cache=True)
def _pivot_scale(M, revolute, d2):
    """Return the size of the numbers whose sum is the pivot: a trace of M^_k, about a point at distance^2 `d2`."""
    linear = M[3, 3] + M[4, 4] + M[5, 5]
    return M[0, 0] + M[1, 1] + M[2, 2] + d2 * linear if revolute else linear


@njit(cache=True)
def _reduce(M, psi, m):
    """Turn M^_{k,k+1} into M^_kk = M^_{k,k+1} - psi^_k psi_k^T, in place (35)."""
    for i in range(6):
        for c in range(i, 6):
            value = M[i, c] - psi[i] * psi[c] / m
            M[i, c] = value
            M[c, i] = value


@njit(cache=True)
def _eliminate_joints(parent, joint, joint_inertia, origin, com, p, r, M_hat, psi_hat, m_hat):
    """Reverse Gaussian elimination of the joint columns, (32)-(35), from the last link to the first.

    A joint inertia stands on the diagonal of M alone, so it enters the pivot of its own column and nothing else. On
    entry `M_hat` (n_links, 6, 6) holds the M_k; on return M^_kk, and the articulated inertia for roots. Writes
    `psi_hat` (n_links, 6) and `m_hat` (n_links,). Returns the link of a vanishing pivot, or -1.
    """
    psi = np.empty(6)
    for k in range(len(parent) - 1, -1, -1):
        j = parent[k]
        if j < 0:
            continue
        m = _pivot(M_hat[k], p[k], psi) + joint_inertia[k]
        dx, dy, dz = com[k, 0] - origin[k, 0], com[k, 1] - origin[k, 1], com[k, 2] - origin[k, 2]
        if not m > PIVOT_TOLERANCE * _pivot_scale(M_hat[k], joint[k] != PRISMATIC, dx * dx + dy * dy + dz * dz):
            return k
        m_hat[k] = m
        for i in range(6):
            psi_hat[k, i] = psi[i] / m
        _reduce(M_hat[k], psi, m)
        add_shifted_inertia(r[k], M_hat[k], M_hat[j])
    return -1


@njit(cache=True)
def _decompose(
    parent, joint, axis, origin, coordinate, molecule, q_reference, mass, com, inertia, base_position, base_rotation, q,
    joint_inertia, R, o, e, c, I, p, r, M_hat, psi_hat, m_hat, block, factor,
):  # fmt: skip
    """Place the links (R, o, e, c, I: see `link_snapshot`) and decompose M; return the link of a zero pivot, or -1."""
    link_snapshot(
        parent, joint, axis, origin, coordinate, molecule, q_reference, mass, com, inertia, base_position,
        base_rotation, q, R, o, e, c, I,
    )  # fmt: skip
    _joint_twists(parent, joint, e, o, c, p, r)
    _extended_masses(mass, I, M_hat)
    singular = _eliminate_joints(parent, joint, joint_inertia, o, c, p, r, M_hat, psi_hat, m_hat)
    if singular >= 0:
        return singular
    return _eliminate_bases(parent, joint, molecule, r, M_hat, block, factor)


@njit(cache=True)
def _first_base_row(kind):
    """Return the first of the six base coordinates (angular, linear) that a root of this kind has; 6 if none."""
    return 0 if kind == FREE else (3 if kind == POINT else 6)


@njit(cache=True)
def _eliminate_bases(parent, joint, molecule, r, M_hat, block, factor):
    """Write the root blocks of D, `block` (n_molecules, 6, 6), and their own elimination into `factor`.

    The block is m^ = p^T M^ p with the columns of the root's p in place of one (32). Its elimination is the same
    reverse one, u d u^T: `factor` holds u above the diagonal and d on it. Linear columns come last, hence are the
    first to be eliminated, which leaves the rotation about a centre of mass. Returns the link of a singular root,
    or -1.
    """
    size = np.empty(2)
    work = np.empty((6, 6))
    block[:] = 0.0
    for k in range(len(parent)):
        first = _first_base_row(joint[k])
        if parent[k] >= 0 or first == 6:
            continue
        m = block[molecule[k]]
        add_shifted_inertia(r[k], M_hat[k], m)
        size[0] = m[0, 0] + m[1, 1] + m[2, 2] if first == 0 else 1.0
        size[1] = m[3, 3] + m[4, 4] + m[5, 5]
        if not (size[0] > 0.0 and size[1] > 0.0 and smallest_pivot(m, first, size, work) > PIVOT_TOLERANCE):
            return k
        f = factor[molecule[k]]
        f[:] = m
        for c in range(5, first - 1, -1):
            for i in range(c):
                u = f[i, c] / f[c, c]
                for e in range(i + 1):
                    f[e, i] -= u * f[e, c]
            for i in range(c):
                f[i, c] /= f[c, c]
    return -1


# ---------------------------------------------------------------------- products and solutions with U, D, U^T


@njit(cache=True)
def _project(v, columns, c):
    """Return the product of `v` (6,) with column c of `columns` (6, m)."""
    value = 0.0
    for i in range(6):
        value += v[i] * columns[i, c]
    return value


@njit(cache=True)
def _base_wrenches(r, eta, at_origin):
    """Write the wrenches `eta` (6, m) at C_k, carried to the base origin, into `at_origin`."""
    at_origin[:] = 0.0
    _add_wrenches(r, eta, at_origin)


@njit(cache=True)
def _multiply_U(parent, joint, dof, p, r, psi_hat, x, eta, y):
    """Write U x into `y`, both (n_dof, m), by (22a): y_i = x_i + p_i . sum over l beyond i of B_li^T psi^_l x_l.

    `eta` is scratch (n_links, 6, m).
    """
    m = x.shape[1]
    at_origin = np.empty((6, m))
    eta[:] = 0.0
    for k in range(len(parent) - 1, -1, -1):
        d = dof[k]
        if parent[k] < 0:
            first = _first_base_row(joint[k])
            _base_wrenches(r[k], eta[k], at_origin)
            for i in range(first, 6):
                for c in range(m):
                    y[d + i - first, c] = x[d + i - first, c] + at_origin[i, c]
            continue
        for c in range(m):
            y[d, c] = x[d, c] + _project(p[k], eta[k], c)
            for i in range(6):
                eta[k, i, c] += psi_hat[k, i] * x[d, c]
        _add_wrenches(r[k], eta[k], eta[parent[k]])


@njit(cache=True)
def _solve_U(parent, joint, dof, p, r, psi_hat, tau, eta, tau_hat):
    """Write tau^ with U tau^ = tau into `tau_hat`, both (n_dof, m), by (36)-(37); `eta` is scratch (n_links, 6, m)."""
    m = tau.shape[1]
    at_origin = np.empty((6, m))
    eta[:] = 0.0
    for k in range(len(parent) - 1, -1, -1):
        d = dof[k]
        if parent[k] < 0:
            first = _first_base_row(joint[k])
            _base_wrenches(r[k], eta[k], at_origin)
            for i in range(first, 6):
                for c in range(m):
                    tau_hat[d + i - first, c] = tau[d + i - first, c] - at_origin[i, c]
            continue
        for c in range(m):
            tau_hat[d, c] = tau[d, c] - _project(p[k], eta[k], c)
            for i in range(6):
                eta[k, i, c] += psi_hat[k, i] * tau_hat[d, c]
        _add_wrenches(r[k], eta[k], eta[parent[k]])


@njit(cache=True)
def _multiply_D(parent, joint, dof, molecule, m_hat, block, x, y):
    """Write D x into `y`, both (n_dof, m) (20)."""
    for k in range(len(parent)):
        d = dof[k]
        if parent[k] >= 0:
            for c in range(x.shape[1]):
                y[d, c] = m_hat[k] * x[d, c]
            continue
        first = _first_base_row(joint[k])
        for i in range(first, 6):
            for c in range(x.shape[1]):
                value = 0.0
                for e in range(first, 6):
                    value += block[molecule[k], i, e] * x[d + e - first, c]
                y[d + i - first, c] = value


@njit(cache=True)
def _solve_D(parent, joint, dof, molecule, m_hat, factor, tau):
    """Replace tau^ by tau~ with D tau~ = tau^ in `tau` (n_dof, m) (section B, step 2)."""
    for k in range(len(parent)):
        d = dof[k]
        if parent[k] >= 0:
            for c in range(tau.shape[1]):
                tau[d, c] /= m_hat[k]
            continue
        first = _first_base_row(joint[k])
        f = factor[molecule[k]]
        row = d - first
        for c in range(tau.shape[1]):
            for i in range(5, first - 1, -1):
                for e in range(i + 1, 6):
                    tau[row + i, c] -= f[i, e] * tau[row + e, c]
            for i in range(first, 6):
                tau[row + i, c] /= f[i, i]
                for e in range(first, i):
                    tau[row + i, c] -= f[e, i] * tau[row + e, c]


@njit(cache=True)
def _base_twists(joint, r, d, rates, at_origin, mu):
    """Write the twist p theta' of a root at its mass centre into `mu` (6, m); `at_origin` is scratch (6, m)."""
    first = _first_base_row(joint)
    at_origin[:] = 0.0
    for i in range(first, 6):
        for c in range(rates.shape[1]):
            at_origin[i, c] = rates[d + i - first, c]
    _carry_twists(r, at_origin, mu)


@njit(cache=True)
def _multiply_UT(parent, joint, dof, p, r, psi_hat, x, mu, y):
    """Write U^T x into `y`, both (n_dof, m), the transpose of (22a); `mu` is scratch (n_links, 6, m)."""
    m = x.shape[1]
    at_origin = np.empty((6, m))
    for k in range(len(parent)):
        d = dof[k]
        if parent[k] < 0:
            _base_twists(joint[k], r[k], d, x, at_origin, mu[k])
            for i in range(6 - _first_base_row(joint[k])):
                for c in range(m):
                    y[d + i, c] = x[d + i, c]
            continue
        _carry_twists(r[k], mu[parent[k]], mu[k])
        for c in range(m):
            y[d, c] = x[d, c] + _project(psi_hat[k], mu[k], c)
            for i in range(6):
                mu[k, i, c] += p[k, i] * x[d, c]


@njit(cache=True)
def _solve_UT(parent, joint, dof, p, r, psi_hat, theta, mu):
    """Replace tau~ by theta'' with U^T theta'' = tau~ in `theta` (n_dof, m), by (38)-(39); `mu` (n_links, 6, m)."""
    m = theta.shape[1]
    at_origin = np.empty((6, m))
    for k in range(len(parent)):
        d = dof[k]
        if parent[k] < 0:
            _base_twists(joint[k], r[k], d, theta, at_origin, mu[k])
            continue
        _carry_twists(r[k], mu[parent[k]], mu[k])
        for c in range(m):
            theta[d, c] -= _project(psi_hat[k], mu[k], c)
            for i in range(6):
                mu[k, i, c] += p[k, i] * theta[d, c]


@njit(cache=True)
def _solve(parent, joint, dof, molecule, p, r, psi_hat, m_hat, factor, b, scratch, x):
    """Write M^-1 b into `x`, both (n_dof, m), by the three systems (24); `scratch` is (n_links, 6, m)."""
    _solve_U(parent, joint, dof, p, r, psi_hat, b, scratch, x)
    _solve_D(parent, joint, dof, molecule, m_hat, factor, x)
    _solve_UT(parent, joint, dof, p, r, psi_hat, x, scratch)


@njit(cache=True)
def _log_det(parent, joint, molecule, m_hat, factor):
    """Return ln det D; det U = 1."""
    value = 0.0
    for k in range(len(parent)):
        if parent[k] >= 0:
            value += math.log(m_hat[k])
            continue
        for i in range(_first_base_row(joint[k]), 6):
            value += math.log(factor[molecule[k], i, i])
    return value


# ---------------------------------------------------------------------- the solver


class UDUFactor(ReusableFactor):
    """M = U D U^T of one tree in one configuration (21).

    Rows and columns are in the order of the degrees of freedom, base to tip. U is upper triangular with a unit
    diagonal (identity blocks for bases), D diagonal but for the 6x6 block of a free root and the 3x3 block of a point.
    Every method costs O(n) per column.
    """

    def __init__(self, tree: TreeModel):
        n, n_molecules = tree.n_links, tree.n_molecules
        self.topology = (tree.parent, tree.joint, tree.dof)
        self._molecule = tree.molecule
        self._shape = n, tree.n_dof
        self.placed = links = tree.empty_links()
        self._p, self._psi_hat = np.empty((n, 6)), np.empty((n, 6))
        self._r = np.empty((n, 3))
        self._m_hat = np.empty(n)
        self._block, self._base_factor = np.empty((n_molecules, 6, 6)), np.empty((n_molecules, 6, 6))
        self._one_column = np.empty((n, 6, 1))
        self._joint_inertia = inertia_of_links(tree)
        self._written = (
            links.R, links.p, links.axis, links.com, links.inertia, self._p, self._r, np.empty((n, 6, 6)),
            self._psi_hat, self._m_hat, self._block, self._base_factor,
        )  # fmt: skip

    def refactor(self, tree: TreeModel, state: State) -> None:
        tree.check_state(state)
        singular = _decompose(
            *tree.link_arrays, state.base_position, state.base_rotation, state.q, self._joint_inertia, *self._written
        )
        if singular >= 0:
            raise_singular(tree, singular)

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return M^-1 b, by the three triangular and diagonal systems (24)."""
        x = np.empty(b.shape)
        _solve(
            *self.topology, self._molecule, self._p, self._r, self._psi_hat, self._m_hat, self._base_factor, b,
            self._scratch(b.shape[1]), x,
        )  # fmt: skip
        return x

    def log_det(self) -> float:
        """Return ln det M = ln det D, because det U = 1."""
        parent, joint, _ = self.topology
        return float(_log_det(parent, joint, self._molecule, self._m_hat, self._base_factor))

    def u_product(self, x: Any) -> np.ndarray:
        """Return U x for `x` (n_dof,) or (n_dof, m)."""
        columns, shape = self._columns(x)
        y = np.empty_like(columns)
        _multiply_U(*self.topology, self._p, self._r, self._psi_hat, columns, self._scratch(columns.shape[1]), y)
        return y.reshape(shape)

    def ut_product(self, x: Any) -> np.ndarray:
        """Return U^T x for `x` (n_dof,) or (n_dof, m)."""
        columns, shape = self._columns(x)
        y = np.empty_like(columns)
        _multiply_UT(*self.topology, self._p, self._r, self._psi_hat, columns, self._scratch(columns.shape[1]), y)
        return y.reshape(shape)

    def d_product(self, x: Any) -> np.ndarray:
        """Return D x for `x` (n_dof,) or (n_dof, m)."""
        columns, shape = self._columns(x)
        y = np.empty_like(columns)
        _multiply_D(*self.topology, self._molecule, self._m_hat, self._block, columns, y)
        return y.reshape(shape)

    def _scratch(self, m: int) -> np.ndarray:
        return self._one_column if m == 1 else np.empty((self._shape[0], 6, m))

    def _columns(self, x: Any) -> tuple[np.ndarray, tuple[int, ...]]:
        n = self._shape[1]
        values = check_columns("x", x, n)
        width = 1 if values.ndim == 1 else values.shape[1]
        return np.ascontiguousarray(values).reshape(n, width), values.shape


class UDUSolver(ReusingSolver[UDUFactor]):
    """M = U D U^T by reverse Gaussian elimination (Saha); forward dynamics by (23)-(24).

    As in section 5 of the paper, tau of the forward dynamics is the applied force less the bias forces, which inverse
    dynamics gives at zero acceleration.
    """

    name = "udu"
    paper = "S. K. Saha, The UDU^T decomposition of manipulator inertia matrix"
    takes_joint_inertia = True
    pool = FactorPool(UDUFactor)
