"""Positions -> state: measured soft coordinates, superposed molecules, and the misfit of every rigid unit; O(n).

One compiled kernel does a frame; `fit_frames` runs it over many frames on all cores. The pose of a unit in the state is
near its best superposition, so that two or three of Newton's steps from there usually find it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peptidyn.core.geometry import best_rotation, improve_rotation, matrix_to_quaternion
from peptidyn.core.jit import njit, prange
from peptidyn.model.kinematics import link_poses, measure_coordinates, place_atoms
from peptidyn.model.state import State

if TYPE_CHECKING:
    from peptidyn.model.tree import TreeModel


BATCHES = 32
"""Pieces that a chunk of frames is divided into for the threads."""

WORTH_THREADS = 500_000
"""Atoms in all frames together, some tens of milliseconds of work, below which threads cost more than they give."""


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


@njit(cache=True, inline="always")
def _superpose_molecules(molecule, atom_link, mass, y, x, sums, turn, base_position, base_rotation):
    """Superpose the atoms y of every molecule, built at the identity base, on x; `turn` (n_molecules, 3, 3) is R.

    `sums` (n_molecules, 6, 3) is scratch: the two centres of mass, the total mass, the covariance.
    """
    n_molecules = len(base_position)
    for m in range(n_molecules):
        for i in range(6):
            for j in range(3):
                sums[m, i, j] = 0.0
    for a in range(len(x)):
        m = molecule[atom_link[a]]
        sums[m, 2, 0] += mass[a]
        for i in range(3):
            sums[m, 0, i] += mass[a] * y[a, i]
            sums[m, 1, i] += mass[a] * x[a, i]
    for m in range(n_molecules):
        for i in range(3):
            sums[m, 0, i] /= sums[m, 2, 0]
            sums[m, 1, i] /= sums[m, 2, 0]
    for a in range(len(x)):
        m = molecule[atom_link[a]]
        for i in range(3):
            for j in range(3):
                sums[m, 3 + i, j] += mass[a] * (y[a, i] - sums[m, 0, i]) * (x[a, j] - sums[m, 1, j])
    for m in range(n_molecules):
        R = turn[m]
        best_rotation(sums[m, 3:], R)
        matrix_to_quaternion(R, base_rotation[m])
        for i in range(3):
            base_position[m, i] = (
                sums[m, 1, i] - R[i, 0] * sums[m, 0, 0] - R[i, 1] * sums[m, 0, 1] - R[i, 2] * sums[m, 0, 2]
            )


@njit(cache=True, inline="always")
def _rebuilt_rmsd(molecule, atom_link, y, x, turn, base_position):
    """Return the RMSD between x and the atoms y of the identity base, moved to the superposed bases."""
    square = 0.0
    for a in range(len(x)):
        m = molecule[atom_link[a]]
        for i in range(3):
            moved = turn[m, i, 0] * y[a, 0] + turn[m, i, 1] * y[a, 1] + turn[m, i, 2] * y[a, 2]
            square += (base_position[m, i] + moved - x[a, i]) ** 2
    return math.sqrt(square / max(len(x), 1))


@njit(cache=True, inline="always")
def _unit_misfits(share_start, share_atom, reference, x, molecule, turn, pose, out):
    """Write for every link the largest deviation of its unit's atoms after a best rigid superposition.

    `pose` (n_links, 3, 3) holds the rotations of the links for bases at the identity.
    """
    covariance, R = np.empty((3, 3)), np.empty((3, 3))
    for l in range(len(share_start) - 1):
        start, end = share_start[l], share_start[l + 1]
        out[l] = 0.0
        if end - start < 2:
            continue
        ax = ay = az = bx = by = bz = 0.0
        for s in range(start, end):
            n = share_atom[s]
            ax += reference[n, 0]
            ay += reference[n, 1]
            az += reference[n, 2]
            bx += x[n, 0]
            by += x[n, 1]
            bz += x[n, 2]
        share = 1.0 / (end - start)
        a, b = (share * ax, share * ay, share * az), (share * bx, share * by, share * bz)
        for i in range(3):
            for j in range(3):
                covariance[i, j] = 0.0
        for s in range(start, end):
            n = share_atom[s]
            for i in range(3):
                for j in range(3):
                    covariance[i, j] += (reference[n, i] - a[i]) * (x[n, j] - b[j])
        T = turn[molecule[l]]
        for i in range(3):
            for j in range(3):
                R[i, j] = T[i, 0] * pose[l, 0, j] + T[i, 1] * pose[l, 1, j] + T[i, 2] * pose[l, 2, j]
        if not improve_rotation(covariance, R):
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
            if square > worst:
                worst = square
        out[l] = math.sqrt(worst)


@njit(cache=True)
def _fit_frame(tree, x, scratch, q, base_position, base_rotation, misfit):
    """Fit one frame x; fills q, base_position, base_rotation, misfit and returns the rebuilt RMSD.

    `tree` is `_fixed_arguments`, `scratch` what `_make_scratch` returns.
    """
    (parent, joint, axis, origin, coordinate, molecule, q_reference, atom_link, local, mass, share_start, share_atom,
     coordinate_atoms, reference) = tree  # fmt: skip
    R, p, y, turn, sums = scratch
    measure_coordinates(coordinate_atoms, x, q)
    for m in range(len(base_position)):
        for i in range(3):
            base_position[m, i] = 0.0
            base_rotation[m, i + 1] = 0.0
        base_rotation[m, 0] = 1.0
    link_poses(parent, joint, axis, origin, coordinate, molecule, q_reference, base_position, base_rotation, q, R, p)
    place_atoms(atom_link, local, R, p, y)
    _superpose_molecules(molecule, atom_link, mass, y, x, sums, turn, base_position, base_rotation)
    _unit_misfits(share_start, share_atom, reference, x, molecule, turn, R, misfit)
    return _rebuilt_rmsd(molecule, atom_link, y, x, turn, base_position)


@njit(cache=True)
def _make_scratch(n_links, n_atoms, n_molecules):
    """Return rotations and positions of links, atoms, turns of molecules, and sums over them."""
    return (
        np.empty((n_links, 3, 3)), np.empty((n_links, 3)), np.empty((n_atoms, 3)), np.empty((n_molecules, 3, 3)),
        np.empty((n_molecules, 6, 3)),
    )  # fmt: skip


@njit(cache=True)
def _fit_range(tree, x, q, base_position, base_rotation, worst, worst_link, rmsd, start, stop):
    """Fit the frames start to stop, with one set of scratch arrays."""
    n_links = len(tree[0])
    scratch = _make_scratch(n_links, x.shape[1], base_position.shape[1])
    misfit = np.empty(n_links)
    for f in range(start, stop):
        rmsd[f] = _fit_frame(tree, x[f], scratch, q[f], base_position[f], base_rotation[f], misfit)
        peak = 0
        for l in range(n_links):
            if misfit[l] > misfit[peak]:
                peak = l
        worst_link[f] = peak
        worst[f] = misfit[peak]


@njit(cache=True, parallel=True)
def _fit_frames(tree, x, q, base_position, base_rotation, worst, worst_link, rmsd, n_batches):
    """Fit many frames; threads take consecutive batches."""
    n = len(x)
    for batch in prange(n_batches):
        start, stop = batch * n // n_batches, (batch + 1) * n // n_batches
        _fit_range(tree, x, q, base_position, base_rotation, worst, worst_link, rmsd, start, stop)


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
    scratch = _make_scratch(tree.n_links, tree.n_atoms, tree.n_molecules)
    rmsd = _fit_frame(_fixed_arguments(tree), x, scratch, q, base_position, base_rotation, misfit)
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
    """Fit many frames (n_frames, n_atoms, 3), nm; on all cores where it pays."""
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
    arguments = (
        _fixed_arguments(tree), x, out.q, out.base_position, out.base_rotation, out.misfit, out.worst_link,
        out.rebuilt_rmsd,
    )  # fmt: skip
    if n * tree.n_atoms < WORTH_THREADS:
        _fit_range(*arguments, 0, n)
    else:
        _fit_frames(*arguments, min(n, BATCHES))
    return out
