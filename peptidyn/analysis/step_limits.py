"""Which soft coordinates are fastest, and so limit the time step."""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.core.units import BOLTZMANN
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import get_solver


def shortest_half(angles: Any) -> np.ndarray:
    """Return the standard deviation (n,), rad, of every column of `angles` (n_frames, n) within its main well.

    It is that of a normal distribution whose middle half is as wide as the shortest arc with half of the frames, so
    visits to other wells hardly count.
    """
    frames = np.sort(np.mod(np.asarray(angles, dtype=np.float64), 2.0 * np.pi), axis=0)
    half = len(frames) // 2 + 1
    twice = np.concatenate([frames, frames + 2.0 * np.pi])
    arcs = twice[half - 1 : half - 1 + len(frames)] - frames
    return arcs.min(axis=0) / (2.0 * 0.6744897501960817)


def estimate_periods(tree: TreeModel, q: Any, temperature: float, *, frames: int = 5) -> np.ndarray:
    """Return the period (n_coordinates,), ps, with which every soft coordinate swings in its well.

    A harmonic coordinate with thermal spread sigma and thermal speed v = sqrt(kT (M^-1)_ii) has the period
    2 pi sigma / v. Steps must stay well below the shortest period; a leapfrog step beyond a third of it is unstable.

    Parameters
    ----------
    tree : TreeModel
    q : (n_frames, n_coordinates), rad
        Soft coordinates along a trajectory, in the order of ``tree.coordinates``; ten frames or more.
    temperature : float
        K.
    frames : int
        How many of them M is averaged over.
    """
    path = np.asarray(q, dtype=np.float64)
    unit = np.zeros((tree.n_dof, tree.n_coordinates))
    unit[tree.coordinate_dof, np.arange(tree.n_coordinates)] = 1.0
    solver, reference = get_solver("articulated"), tree.reference
    inverse = np.zeros(tree.n_coordinates)
    chosen = np.unique(np.linspace(0, len(path) - 1, frames).astype(int))
    for frame in chosen:
        state = reference.replace(q=path[frame])
        columns = solver.solve(tree, state, unit)
        inverse += columns[tree.coordinate_dof, np.arange(tree.n_coordinates)] / len(chosen)
    return 2.0 * np.pi * shortest_half(path) / np.sqrt(BOLTZMANN * temperature * inverse)
