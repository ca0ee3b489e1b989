"""The articulated passes over whole states: one state at a time, or many, four side by side and on all cores."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, njit, prange

from peptidyn.solvers import articulated_kernels as kernels
from peptidyn.solvers.articulated_model import Packed
from peptidyn.solvers.lanes import LANES

BATCHES = 4
"""Many states are divided into this many batches per thread, each with scratch arrays of its own."""


Scratch = tuple[np.ndarray, ...]
"""What the passes write for one state: w (n_links, columns), turns (3, n_links) with sines, cosines and displacements
of the joints, pivot (n_links,), root (n_molecules, 36)."""


def make_scratch(packed: Packed, n_molecules: int) -> Scratch:
    """Return scratch arrays for one state."""
    n = len(packed[0])
    return np.empty((n, kernels.N_COLUMNS)), np.empty((3, n)), np.empty(n), np.empty((n_molecules, 36))


# ---------------------------------------------------------------------------- one state


@njit(cache=True, error_model="numpy", nogil=True)
def factor_state(packed, scratch, q, base_rotation):
    """Factor the mass matrix of one state; return -1, or the link at which it is singular."""
    w, turns, pivot, root = scratch
    n = len(pivot)
    kernels.set_configuration(0, n, packed, q, base_rotation, w, turns[2])
    kernels.sines(turns[2], turns[0], turns[1])
    kernels.outward(0, n, packed, turns[0], turns[1], turns[2], w, None)
    return kernels.factor(0, n, packed, w, pivot, root, None, None)


@njit(cache=True, error_model="numpy", nogil=True)
def solve_state(packed, scratch, b, x):
    """Write x = M^-1 b for vectors (n_dof,) with the factor at hand."""
    w, _, pivot, root = scratch
    n = len(pivot)
    for l in range(n):
        for i in range(6):
            w[l, kernels.F + i] = 0.0
    kernels.substitute(0, n, packed, w, b, x)
    kernels.back_substitute(0, n, packed, w, root, b, x)


@njit(cache=True, error_model="numpy", nogil=True)
def factor_and_solve(packed, scratch, q, base_rotation, b, x):
    """Write x = M^-1 b for vectors (n_dof,) of one state, in one go; return -1, or the link where M is singular."""
    w, turns, pivot, root = scratch
    n = len(pivot)
    kernels.set_configuration(0, n, packed, q, base_rotation, w, turns[2])
    kernels.sines(turns[2], turns[0], turns[1])
    kernels.outward(0, n, packed, turns[0], turns[1], turns[2], w, None)
    for l in range(n):
        for i in range(6):
            w[l, kernels.F + i] = 0.0
    bad = kernels.factor(0, n, packed, w, pivot, root, b, x)
    if bad < 0:
        kernels.back_substitute(0, n, packed, w, root, b, x)
    return bad


@njit(cache=True, error_model="numpy", nogil=True)
def forward_dynamics(packed, scratch, q, base_rotation, v, tau, x):
    """Write the accelerations x (n_dof,) of one state; return -1, or the link at which M is singular."""
    w, turns, pivot, root = scratch
    n = len(pivot)
    kernels.set_configuration(0, n, packed, q, base_rotation, w, turns[2])
    kernels.sines(turns[2], turns[0], turns[1])
    kernels.outward(0, n, packed, turns[0], turns[1], turns[2], w, v)
    bad = kernels.factor(0, n, packed, w, pivot, root, tau, x)
    if bad < 0:
        kernels.back_substitute(0, n, packed, w, root, tau, x)
    return bad


@njit(cache=True, error_model="numpy", nogil=True)
def log_det_state(packed, scratch, gradient):
    """Return ln det M from the factor at hand, and write its gradient (n_coordinates,) unless that is None."""
    w, _, pivot, root = scratch
    n = len(pivot)
    if gradient is not None:
        kernels.log_det_gradient(0, n, packed, w, root, gradient)
    return kernels.log_det(0, n, packed, pivot, root)


# ---------------------------------------------------------------------------- many states


@njit(cache=True, error_model="numpy")
def _make_lanes(packed, n_molecules):
    """Return scratch arrays for four states side by side."""
    n = len(packed[0])
    return (
        np.empty((n, kernels.N_COLUMNS, LANES)), np.empty((3, n, LANES)), np.empty((n, LANES)),
        np.empty((n_molecules, 36, LANES)),
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _configure_lanes(packed, w, turns, start, stop, q, base_rotation):
    """Put states start to start + 4 into the lanes; beyond `stop` the last one is repeated."""
    n = len(packed[0])
    for k in range(LANES):
        s = min(start + k, stop - 1)
        kernels.set_configuration(0, n, packed, q[s], base_rotation[s % len(base_rotation)], w[:, :, k], turns[2, :, k])
    flat = turns.reshape((3, n * LANES))
    kernels.sines(flat[2], flat[0], flat[1])


@njit(cache=True, error_model="numpy")
def _log_det_range(packed, start, stop, q, base_rotation, value, gradient, status):
    """Evaluate states start to stop with one set of scratch arrays; gradient has no rows if it is not wanted."""
    w, turns, pivot, root = _make_lanes(packed, base_rotation.shape[1])
    n = len(pivot)
    slopes = np.empty((q.shape[1] if len(gradient) else 0, LANES))
    for first in range(start, stop, LANES):
        _configure_lanes(packed, w, turns, first, stop, q, base_rotation)
        kernels.outward(0, n, packed, turns[0], turns[1], turns[2], w, None)
        bad = kernels.factor(0, n, packed, w, pivot, root, None, None)
        if bad < 0 and len(gradient):
            kernels.log_det_gradient(0, n, packed, w, root, slopes)
        for k in range(min(LANES, stop - first)):
            status[first + k] = bad
            if bad < 0:
                value[first + k] = kernels.log_det(0, n, packed, pivot[:, k], root[:, :, k])
                if len(gradient):
                    for i in range(q.shape[1]):
                        gradient[first + k, i] = slopes[i, k]


@njit(cache=True, error_model="numpy")
def _forward_dynamics_range(packed, start, stop, q, base_rotation, v, tau, x, status):
    """Write the accelerations of states start to stop with one set of scratch arrays."""
    w, turns, pivot, root = _make_lanes(packed, base_rotation.shape[1])
    n = len(pivot)
    vectors = np.empty((3, v.shape[1], LANES))
    rate, push, change = vectors[0], vectors[1], vectors[2]
    for first in range(start, stop, LANES):
        _configure_lanes(packed, w, turns, first, stop, q, base_rotation)
        for k in range(LANES):
            s = min(first + k, stop - 1)
            for i in range(v.shape[1]):
                rate[i, k], push[i, k] = v[s, i], tau[s, i]
        kernels.outward(0, n, packed, turns[0], turns[1], turns[2], w, rate)
        bad = kernels.factor(0, n, packed, w, pivot, root, push, change)
        if bad < 0:
            kernels.back_substitute(0, n, packed, w, root, push, change)
        for k in range(min(LANES, stop - first)):
            status[first + k] = bad
            for i in range(v.shape[1]):
                x[first + k, i] = change[i, k]


@njit(cache=True, error_model="numpy", parallel=True)
def _many(packed, batches, q, base_rotation, v, tau, value, gradient, status):
    """Evaluate states on all cores: ln det M, or, unless v is None, accelerations (in `gradient`)."""
    groups = (len(q) + LANES - 1) // LANES
    for b in prange(batches):
        start, stop = LANES * (b * groups // batches), min(LANES * ((b + 1) * groups // batches), len(q))
        if v is None:
            _log_det_range(packed, start, stop, q, base_rotation, value, gradient, status)
        else:
            _forward_dynamics_range(packed, start, stop, q, base_rotation, v, tau, gradient, status)


def _batches(n_states: int) -> int:
    return max(1, min(BATCHES * get_num_threads(), n_states // LANES))


def log_det_states(
    packed: Packed, q: np.ndarray, base_rotation: np.ndarray, want_gradient: bool
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return ln det M (n_states,), its gradients (n_states, n_coordinates; empty if not wanted), and -1 or a bad link.

    Parameters
    ----------
    packed : Packed
    q : (n_states, n_coordinates)
    base_rotation : (n_states, n_molecules, 4), or (1, n_molecules, 4) for all states
    want_gradient : bool
    """
    n = len(q)
    value, status = np.empty(n), np.empty(n, dtype=np.int64)
    gradient = np.zeros((n if want_gradient else 0, q.shape[1]))
    _many(packed, _batches(n), q, base_rotation, None, None, value, gradient, status)
    return value, gradient, int(status.max(initial=-1))


def forward_dynamics_states(
    packed: Packed, q: np.ndarray, base_rotation: np.ndarray, v: np.ndarray, tau: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return the accelerations (n_states, n_dof), and -1 or a link at which a mass matrix is singular.

    Parameters
    ----------
    packed : Packed
    q : (n_states, n_coordinates)
    base_rotation : (n_states, n_molecules, 4), or (1, n_molecules, 4) for all states
    v, tau : (n_states, n_dof)
    """
    n = len(q)
    x, status = np.empty_like(v), np.empty(n, dtype=np.int64)
    _many(packed, _batches(n), q, base_rotation, v, tau, status.astype(np.float64), x, status)
    return x, int(status.max(initial=-1))
