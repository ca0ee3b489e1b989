"""The articulated passes over whole states: one state at a time, or many, four side by side and on all cores."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, get_thread_id

from peptidyn.core.jit import prange
from peptidyn.kernels import passes as kernels
from peptidyn.kernels.compiling import njit
from peptidyn.kernels.lanes import LANES
from peptidyn.kernels.packing import Packed
from peptidyn.kernels.passes import START

BATCHES = 4
"""Many states are divided into this many batches per thread."""

KEPT = 1 << 26
"""Bytes: scratch arrays of many states up to this size wait for the next call, as new memory costs more than it."""

_IDLE: list[np.ndarray] = []


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
    kernels.set_configuration(START, n, packed, q, base_rotation, w, turns[2])
    kernels.sines(turns[2], turns[0], turns[1])
    kernels.outward(START, n, packed, turns[0], turns[1], turns[2], w, None)
    return kernels.factor(START, n, packed, w, pivot, root, None, None)


@njit(cache=True, error_model="numpy", nogil=True)
def solve_state(packed, scratch, b, x):
    """Write x = M^-1 b for vectors (n_dof,) with the factor at hand."""
    w, _, pivot, root = scratch
    n = len(pivot)
    kernels.clear_wrenches(START, n, w)
    kernels.substitute(START, n, packed, w, b, x)
    kernels.back_substitute(START, n, packed, w, root, b, x)


@njit(cache=True, error_model="numpy", nogil=True)
def factor_and_solve(packed, scratch, q, base_rotation, b, x):
    """Write x = M^-1 b for vectors (n_dof,) of one state, in one go; return -1, or the link where M is singular."""
    w, turns, pivot, root = scratch
    n = len(pivot)
    kernels.set_configuration(START, n, packed, q, base_rotation, w, turns[2])
    kernels.sines(turns[2], turns[0], turns[1])
    kernels.outward(START, n, packed, turns[0], turns[1], turns[2], w, None)
    kernels.clear_wrenches(START, n, w)
    bad = kernels.factor(START, n, packed, w, pivot, root, b, x)
    if bad < 0:
        kernels.back_substitute(START, n, packed, w, root, b, x)
    return bad


@njit(cache=True, error_model="numpy", nogil=True)
def forward_dynamics(packed, scratch, q, base_rotation, v, tau, x):
    """Write the accelerations x (n_dof,) of one state; return -1, or the link at which M is singular."""
    w, turns, pivot, root = scratch
    n = len(pivot)
    kernels.set_configuration(START, n, packed, q, base_rotation, w, turns[2])
    kernels.sines(turns[2], turns[0], turns[1])
    kernels.outward(START, n, packed, turns[0], turns[1], turns[2], w, v)
    bad = kernels.factor(START, n, packed, w, pivot, root, tau, x)
    if bad < 0:
        kernels.back_substitute(START, n, packed, w, root, tau, x)
    return bad


@njit(cache=True, error_model="numpy", nogil=True)
def log_det_state(packed, scratch, gradient):
    """Return ln det M from the factor at hand, and write its gradient (n_coordinates,) unless that is None."""
    w, _, pivot, root = scratch
    n = len(pivot)
    if gradient is not None:
        kernels.log_det_gradient(START, n, packed, w, pivot, root, gradient)
    return kernels.log_det(START, n, packed, pivot, root)


@njit(cache=True, error_model="numpy", nogil=True)
def inverse_diagonal_state(packed, scratch, diagonal):
    """Write (M^-1)_ii of all soft coordinates into diagonal (n_coordinates,), from the factor at hand."""
    w, _, pivot, root = scratch
    kernels.inverse_diagonal(START, len(pivot), packed, w, root, diagonal)


# ---------------------------------------------------------------------------- many states


@njit(cache=True, error_model="numpy")
def _divide(memory, packed, n_molecules):
    """Return scratch arrays for four states side by side, and what is left of the memory (numbers,)."""
    n = len(packed[0])
    a = n * kernels.N_COLUMNS * LANES
    b = a + 3 * n * LANES
    c = b + n * LANES
    d = c + n_molecules * 36 * LANES
    scratch = (
        memory[:a].reshape((n, kernels.N_COLUMNS, LANES)), memory[a:b].reshape((3, n, LANES)),
        memory[b:c].reshape((n, LANES)), memory[c:d].reshape((n_molecules, 36, LANES)),
    )  # fmt: skip
    return scratch, memory[d:]


@njit(cache=True, error_model="numpy")
def _configure_lanes(packed, w, turns, start, stop, q, base_rotation):
    """Put states start to start + 4 into the lanes; beyond `stop` the last one is repeated."""
    n = len(packed[0])
    for k in range(LANES):
        s = min(start + k, stop - 1)
        kernels.set_configuration(
            START, n, packed, q[s], base_rotation[s % len(base_rotation)], w[:, :, k], turns[2, :, k]
        )
    flat = turns.reshape((3, n * LANES))
    kernels.sines(flat[2], flat[0], flat[1])


@njit(cache=True, error_model="numpy")
def _log_det_range(memory, packed, start, stop, q, base_rotation, value, gradient, status):
    """Evaluate states start to stop; gradient has no rows if it is not wanted."""
    (w, turns, pivot, root), rest = _divide(memory, packed, base_rotation.shape[1])
    n = len(pivot)
    slopes = rest[: q.shape[1] * LANES].reshape((q.shape[1], LANES))
    for first in range(start, stop, LANES):
        _configure_lanes(packed, w, turns, first, stop, q, base_rotation)
        kernels.outward(START, n, packed, turns[0], turns[1], turns[2], w, None)
        bad = kernels.factor(START, n, packed, w, pivot, root, None, None)
        if bad < 0 and len(gradient):
            kernels.log_det_gradient(START, n, packed, w, pivot, root, slopes)
        for k in range(min(LANES, stop - first)):
            status[first + k] = bad
            if bad < 0:
                value[first + k] = kernels.log_det(START, n, packed, pivot[:, k], root[:, :, k])
                if len(gradient):
                    for i in range(q.shape[1]):
                        gradient[first + k, i] = slopes[i, k]


@njit(cache=True, error_model="numpy")
def _forward_dynamics_range(memory, packed, start, stop, q, base_rotation, v, tau, x, status):
    """Write the accelerations of states start to stop."""
    (w, turns, pivot, root), rest = _divide(memory, packed, base_rotation.shape[1])
    n = len(pivot)
    vectors = rest[: 3 * v.shape[1] * LANES].reshape((3, v.shape[1], LANES))
    rate, push, change = vectors[0], vectors[1], vectors[2]
    for first in range(start, stop, LANES):
        _configure_lanes(packed, w, turns, first, stop, q, base_rotation)
        for k in range(LANES):
            s = min(first + k, stop - 1)
            for i in range(v.shape[1]):
                rate[i, k], push[i, k] = v[s, i], tau[s, i]
        kernels.outward(START, n, packed, turns[0], turns[1], turns[2], w, rate)
        bad = kernels.factor(START, n, packed, w, pivot, root, push, change)
        if bad < 0:
            kernels.back_substitute(START, n, packed, w, root, push, change)
        for k in range(min(LANES, stop - first)):
            status[first + k] = bad
            for i in range(v.shape[1]):
                x[first + k, i] = change[i, k]


@njit(cache=True, error_model="numpy", parallel=True)
def _many(memory, packed, batches, q, base_rotation, v, tau, value, gradient, status):
    """Evaluate states on all cores: ln det M, or, unless v is None, accelerations (in `gradient`).

    memory (threads, numbers) is cut into scratch arrays for the states that a thread works on.
    """
    groups = (len(q) + LANES - 1) // LANES
    for b in prange(batches):
        start, stop = LANES * (b * groups // batches), min(LANES * ((b + 1) * groups // batches), len(q))
        own = memory[get_thread_id()]
        if v is None:
            _log_det_range(own, packed, start, stop, q, base_rotation, value, gradient, status)
        else:
            _forward_dynamics_range(own, packed, start, stop, q, base_rotation, v, tau, gradient, status)


def _evaluate(
    packed: Packed, q: np.ndarray, base_rotation: np.ndarray, v: np.ndarray | None, tau: np.ndarray | None,
    value: np.ndarray, gradient: np.ndarray,
) -> int:  # fmt: skip
    """Call `_many`; return -1 or the largest link at which a mass matrix is singular."""
    threads = get_num_threads()
    n_states, n_molecules = len(q), base_rotation.shape[1]
    vectors = q.shape[1] if v is None else 3 * v.shape[1]
    numbers = LANES * (len(packed[0]) * (kernels.N_COLUMNS + 4) + 36 * n_molecules + vectors)
    memory = _IDLE.pop() if _IDLE else np.empty((0, 0))
    if memory.shape[0] < threads or memory.shape[1] < numbers:
        memory = np.empty((threads, numbers))
    status = np.full(n_states, -1, dtype=np.int64)
    batches = max(1, min(BATCHES * threads, n_states // LANES))
    _many(memory, packed, batches, q, base_rotation, v, tau, value, gradient, status)
    if memory.nbytes <= KEPT and not _IDLE:
        _IDLE.append(memory)
    return int(status.max(initial=-1))


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
    value, gradient = np.empty(len(q)), np.zeros((len(q) if want_gradient else 0, q.shape[1]))
    bad = _evaluate(packed, q, base_rotation, None, None, value, gradient)
    return value, gradient, bad


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
    x = np.empty_like(v)
    bad = _evaluate(packed, q, base_rotation, v, tau, np.empty(0), x)
    return x, bad
