"""The planar arm of N links with a point mass at the end of each: the worked example of Fixman's method.

Section III of Lee & Chirikjian, "A new perspective on O(n) mass-matrix inversion for serial revolute manipulators";
equation numbers are the paper's. Joint angles theta are soft, link lengths L are hard:

x_i         end of link i (14), x_0 = 0 fixed;  phi_i = theta_1 + ... + theta_i its direction
u_i, n_i    unit vectors along link i and perpendicular to it (u_i turned by +90 degrees)
H           inverse mass matrix of the free points in (theta, L) (22), with the blocks H_tt, H_tL, H_LL (23)

    dL_i/dt   = u_i . (v_i - v_{i-1})                                                    (18)
    dphi_i/dt = n_i . (v_i - v_{i-1}) / L_i        dtheta_i/dt = dphi_i/dt - dphi_{i-1}/dt      instead of (20), (21)
    M^-1      = H_tt - H_tL H_LL^-1 H_tL^T                                               (12)
    ln det M  = sum_i ln(m_i^2 L_i^2) + ln det H_LL                                       (8)

This departs from print in three places. (21) divides by sin(theta) and has d_{i-1} where its last term needs d_i; the
rows above are the gradient of theta in every configuration, the straight arm included. The two H_tL of (25) stand in
the wrong order there; (12) is right. The sums (23) run over l = 1 .. N, because x_0 does not move.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from scipy.linalg import cho_solve_banded, cholesky_banded

from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import plain_array


class PlanarArm:
    """A planar arm in one configuration.

    Parameters
    ----------
    lengths : (N,) array_like
        L, nm.
    masses : (N,) array_like
        m, Da; mass i sits at the end of link i.
    angles : (N,) array_like
        theta, rad; each link's against the one before, the first against the x axis.

    Attributes
    ----------
    positions : (N, 2)
        Ends of the links, nm.
    """

    def __init__(self, lengths: Any, masses: Any, angles: Any):
        L, m, theta = plain_array(lengths), plain_array(masses), plain_array(angles)
        if L.ndim != 1 or not L.size or L.shape != m.shape or L.shape != theta.shape:
            raise ArgumentError(
                f"lengths, masses and angles have shapes {L.shape}, {m.shape} and {theta.shape}, expected the same "
                "number of entries in each, and at least one"
            )
        for name, values in (("lengths", L), ("masses", m)):
            bad = values[~(np.isfinite(values) & (values > 0))]
            if bad.size:
                raise ArgumentError(f"{name} holds {bad[0]:g}, expected positive numbers")
        if not np.isfinite(theta).all():
            raise ArgumentError("angles holds values that are not finite numbers")
        direction = np.cumsum(theta)
        self._L, self._m = L, m
        self._u = np.stack([np.cos(direction), np.sin(direction)], axis=1)
        self._n = np.stack([-np.sin(direction), np.cos(direction)], axis=1)
        self.positions = np.cumsum(L[:, None] * self._u, axis=0)
        self._factor = cholesky_banded(self._length_block(), lower=True)

    @property
    def n_links(self) -> int:
        return len(self._L)

    def _length_block(self) -> np.ndarray:
        """Return H_LL (23), which is tridiagonal (24): its diagonal, and the one below it."""
        mobility = 1.0 / self._m
        band = np.zeros((2, self.n_links))
        band[0] = mobility
        band[0, 1:] += mobility[:-1]
        band[1, :-1] = -mobility[:-1] * (self._u[:-1] * self._u[1:]).sum(axis=1)
        return band

    def solve(self, b: Any) -> np.ndarray:
        """Return M^-1 b for `b` (N,) or (N, k), by (13); O(N) per column."""
        rhs = plain_array(b)
        if rhs.ndim not in (1, 2) or rhs.shape[0] != self.n_links:
            raise ArgumentError(f"b has shape {rhs.shape}, expected ({self.n_links},) or ({self.n_links}, k)")
        if not np.isfinite(rhs).all():
            raise ArgumentError("b holds values that are not finite numbers")
        columns = rhs.reshape(self.n_links, -1)
        v = self._spread(self._turning(), _backward_difference(columns))
        e = cho_solve_banded((self._factor, True), self._gather(self._u, v))
        v -= self._spread(self._u, e)
        return _forward_difference(self._gather(self._turning(), v)).reshape(rhs.shape)

    def log_det(self) -> float:
        """Return ln det M, by Fixman's theorem (8); O(N)."""
        log_det_G = 2.0 * np.log(self._m * self._L).sum()
        return float(log_det_G + 2.0 * np.log(self._factor[0]).sum())

    def mass_matrix(self) -> np.ndarray:
        """Return M = J^T m J (N, N), from its definition (4); O(N^3)."""
        joints = np.concatenate([np.zeros((1, 2)), self.positions[:-1]])
        r = self.positions[:, None, :] - joints[None, :, :]
        J = np.stack([-r[..., 1], r[..., 0]], axis=-1) * np.tri(self.n_links)[..., None]
        return np.einsum("lik,ljk,l->ij", J, J, self._m)

    def rows(self) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
        """Return dtheta/dx and dL/dx as sparse matrices (N, 2N)."""
        n = self.n_links
        step = scipy.sparse.eye_array(n) - scipy.sparse.eye_array(n, k=-1)

        def along(w: np.ndarray) -> scipy.sparse.csr_array:
            picks = scipy.sparse.csr_array((w.ravel(), np.arange(2 * n), np.arange(0, 2 * n + 1, 2)), shape=(n, 2 * n))
            return picks @ scipy.sparse.kron(step, np.eye(2))

        return (step @ along(self._turning())).tocsr(), along(self._u).tocsr()

    def _turning(self) -> np.ndarray:
        return self._n / self._L[:, None]

    def _gather(self, w: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return w_i . (v_i - v_{i-1}) for velocities `v` (N, 2, k)."""
        relative = v.copy()
        relative[1:] -= v[:-1]
        return np.einsum("ij,ijk->ik", w, relative)

    def _spread(self, w: np.ndarray, f: np.ndarray) -> np.ndarray:
        """Return the velocities (N, 2, k) of free points after impulses `f` (N, k) along w: `_gather` transposed."""
        impulse = w[:, :, None] * f[:, None, :]
        impulse[:-1] -= impulse[1:].copy()
        return impulse / self._m[:, None, None]


def _forward_difference(a: np.ndarray) -> np.ndarray:
    """Return a_i - a_{i-1}."""
    return np.diff(a, axis=0, prepend=0.0)


def _backward_difference(a: np.ndarray) -> np.ndarray:
    """Return a_i - a_{i+1}: the transpose of `_forward_difference`."""
    return -np.diff(a, axis=0, append=0.0)
