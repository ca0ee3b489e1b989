"""Positions -> state: measured soft coordinates, superposed molecules, and the misfit of every rigid unit.

One compiled kernel does a frame; `fit_frames` runs it over many frames on all cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit, prange

from peptidyn.model.geometry import best_rotation, matrix_to_quaternion
from peptidyn.model.kinematics import link_poses, measure_coordinates, place_atoms
from peptidyn.model.state import State

if TYPE_CHECKING:
    from peptidyn.model.tree import TreeModel


@dataclass(frozen=True, eq=False)
class Fit:
    """A state and how well it fits the positions it was made from.

    Attributes
    ----------
    state : State
    misfit : (n_links,)
        Largest deviation (nm) of an atom of each rigid unit after the unit's own best rigid superposition.
    rebuilt_rmsd : float
        Root-mean-square distance (nm) between the given positions and those rebuilt from the state.
    """

    state: State
    misfit: np.ndarray
    rebuilt_rmsd: float

    @property
    def max_misfit(self) -> float:
        """Deviation of the most deformed unit, nm."""
        return float(self.misfit.max(initial=0.0))

    @property
    def worst_link(self) -> int:
        """Link of the most deformed unit."""
        return int(self.misfit.argmax())


@njit(cache=True)
def _superpose_molecules(molecule, mass, y, x, base_position, base_rotation):
    """Superpose the atoms y of every molecule, built at the identity base, on x."""
    n_molecules = len(base_position)
    total = np.zeros(n_molecules)
    cy = np.zeros((n_molecules, 3))
    cx = np.zeros((n_molecules, 3))
    for a in range(len(molecule)):
        m = molecule[a]
        total[m] += mass[a]
        for i in range(3):
            cy[m, i] += mass[a] * y[a, i]
            cx[m, i] += mass[a] * x[a, i]
    for m in range(n_molecules):
        for i in range(3):
            cy[m, i] /= total[m]
            cx[m, i] /= total[m]
    covariance = np.zeros((n_molecules, 3, 3))
    for a in range(len(molecule)):
        m = molecule[a]
        for i in range(3):
            for j in range(3):
                covariance[m, i, j] += mass[a] * (y[a, i] - cy[m, i]) * (x[a, j] - cx[m, j])
    R = np.empty((3, 3))
    for m in range(n_molecules):
        best_rotation(covariance[m], R)
        matrix_to_quaternion(R, base_rotation[m])
        for i in range(3):
            base_position[m, i] = cx[m, i] - R[i, 0] * cy[m, 0] - R[i, 1] * cy[m, 1] - R[i, 2] * cy[m, 2]


@njit(cache=True)
def _unit_misfits(share_start, share_atom, reference, x, out):
    """Write for every link the largest deviation of its unit's atoms after a best rigid superposition."""
    covariance = np.empty((3, 3))
    R = np.empty((3, 3))
    a = np.empty(3)
    b = np.empty(3)
    for l in range(len(share_start) - 1):
        start, end = share_start[l], share_start[l + 1]
        out[l] = 0.0
        if end - start < 2:
            continue
        a[:] = 0.0
        b[:] = 0.0
        for s in range(start, end):
            for i in range(3):
                a[i] += reference[share_atom[s], i]
                b[i] += x[share_atom[s], i]
        a /= end - start
        b /= end - start
        covariance[:] = 0.0
        for s in range(start, end):
            n = share_atom[s]
            for i in range(3):
                for j in range(3):
                    covariance[i, j] += (reference[n, i] - a[i]) * (x[n, j] - b[j])
        best_rotation(covariance, R)
        worst = 0.0
        for s in range(start, end):
            n = share_atom[s]
            square = 0.0
            for i in range(3):
                d = x[n, i] - b[i]
                for j in range(3):
                    d -= R[i, j] * (reference[n, j] - a[j])
                square += d * d
            worst = max(worst, square)
        out[l] = math.sqrt(worst)


@njit(cache=True)
def _fit_frame(
    parent, joint, axis, origin, coordinate, molecule, q_reference, atom_link, local, mass, share_start, share_atom,
    coordinate_atoms, reference, x, q, base_position, base_rotation, misfit,
):  # fmt: skip
    """Fit one frame x; fills q, base_position, base_rotation, misfit and returns the rebuilt RMSD."""
    n_links, n_atoms = len(parent), len(x)
    R = np.empty((n_links, 3, 3))
    p = np.empty((n_links, 3))
    y = np.empty((n_atoms, 3))
    measure_coordinates(coordinate_atoms, x, q)
    base_position[:] = 0.0
    base_rotation[:] = 0.0
    base_rotation[:, 0] = 1.0
    link_poses(parent, joint, axis, origin, coordinate, molecule, q_reference, base_position, base_rotation, q, R, p)
    place_atoms(atom_link, local, R, p, y)
    _superpose_molecules(molecule[atom_link], mass, y, x, base_position, base_rotation)
    link_poses(parent, joint, axis, origin, coordinate, molecule, q_reference, base_position, base_rotation, q, R, p)
    place_atoms(atom_link, local, R, p, y)
    _unit_misfits(share_start, share_atom, reference, x, misfit)
    square = 0.0
    for a in range(n_atoms):
        for i in range(3):
            square += (y[a, i] - x[a, i]) ** 2
    return math.sqrt(square / max(n_atoms, 1))


@njit(cache=True, parallel=True)
def _fit_frames(
    parent, joint, axis, origin, coordinate, molecule, q_reference, atom_link, local, mass, share_start, share_atom,
    coordinate_atoms, reference, x, q, base_position, base_rotation, worst, worst_link, rmsd,
):  # fmt: skip
    for f in prange(len(x)):
        misfit = np.empty(len(parent))
        rmsd[f] = _fit_frame(
            parent, joint, axis, origin, coordinate, molecule, q_reference, atom_link, local, mass, share_start,
            share_atom, coordinate_atoms, reference, x[f], q[f], base_position[f], base_rotation[f], misfit,
        )  # fmt: skip
        worst_link[f] = np.argmax(misfit)
        worst[f] = misfit[worst_link[f]]


def _fixed_arguments(tree: TreeModel) -> tuple[np.ndarray, ...]:
    return (
        tree.parent, tree.joint, tree.axis, tree.origin, tree.coordinate, tree.molecule, tree.q_reference,
        tree.atom_link, tree.local, tree.masses, *tree.unit_members, tree.coordinate_atoms,
        tree.positions(tree.reference),
    )  # fmt: skip


def fit_state(tree: TreeModel, x: np.ndarray) -> Fit:
    """Fit one set of positions (n_atoms, 3), nm; see `TreeModel.fit`."""
    q = np.empty(tree.n_coordinates)
    base_position = np.empty((tree.n_molecules, 3))
    base_rotation = np.empty((tree.n_molecules, 4))
    misfit = np.empty(tree.n_links)
    rmsd = _fit_frame(*_fixed_arguments(tree), x, q, base_position, base_rotation, misfit)
    return Fit(State.make(tree, q, base_position, base_rotation), misfit, float(rmsd))


@dataclass(frozen=True, eq=False)
class FrameFits:
    """Fits of many frames.

    Attributes
    ----------
    q : (n_frames, n_coordinates), rad
    base_position : (n_frames, n_molecules, 3), nm
    base_rotation : (n_frames, n_molecules, 4)
    misfit : (n_frames,)
        Deviation (nm) of the most deformed rigid unit of each frame.
    worst_link : (n_frames,) int
        Link of that unit.
    rebuilt_rmsd : (n_frames,), nm
    """

    q: np.ndarray
    base_position: np.ndarray
    base_rotation: np.ndarray
    misfit: np.ndarray
    worst_link: np.ndarray
    rebuilt_rmsd: np.ndarray


def fit_frames(tree: TreeModel, frames: np.ndarray) -> FrameFits:
    """Fit many frames (n_frames, n_atoms, 3), nm, on all cores."""
    n = len(frames)
    x = np.ascontiguousarray(frames, dtype=np.float64)
    out = FrameFits(
        q=np.empty((n, tree.n_coordinates)),
        base_position=np.empty((n, tree.n_molecules, 3)),
        base_rotation=np.empty((n, tree.n_molecules, 4)),
        misfit=np.empty(n),
        worst_link=np.empty(n, dtype=np.int64),
        rebuilt_rmsd=np.empty(n),
    )
    _fit_frames(
        *_fixed_arguments(tree), x, out.q, out.base_position, out.base_rotation, out.misfit, out.worst_link,
        out.rebuilt_rmsd,
    )  # fmt: skip
    return out
