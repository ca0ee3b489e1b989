"""Frames -> states: soft coordinates and base poses of every frame, with the misfit of its most deformed rigid unit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.io.trajectories import TrajectoryFile
from peptidyn.model.fitting import FrameFits, fit_frames
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel


@dataclass(frozen=True, eq=False)
class Frame:
    """One frame of a trajectory.

    Attributes
    ----------
    index : int
        Place in the file, from 0.
    time : float
        ps, as in the file; the index where the format has no times.
    state : State
        Soft coordinates as measured, every molecule superposed on its atoms.
    misfit : float
        Deviation (nm) of the most deformed rigid unit after its own best rigid superposition.
    worst_link : int
        Link of that unit: ``tree.unit(worst_link).name``.
    rebuilt_rmsd : float
        Root-mean-square distance (nm) between the frame and the positions rebuilt from the state.
    """

    index: int
    time: float
    state: State
    misfit: float
    worst_link: int
    rebuilt_rmsd: float


@dataclass(frozen=True, eq=False)
class FrameChunk:
    """Some consecutive frames as arrays.

    Attributes
    ----------
    tree : TreeModel
    index : (n,) int
        Places of the frames in the file.
    time : (n,), ps
    fits : FrameFits
        q, base_position, base_rotation, misfit, worst_link, rebuilt_rmsd of every frame.
    """

    tree: TreeModel
    index: np.ndarray
    time: np.ndarray
    fits: FrameFits

    def __len__(self) -> int:
        return len(self.index)

    @property
    def torsions(self) -> np.ndarray:
        """Torsions (n, n_torsions), rad."""
        return self.fits.q[:, self.tree.torsion_index]

    def frames(self) -> Iterator[Frame]:
        """Iterate over the single frames."""
        f = self.fits
        for i in range(len(self)):
            yield Frame(
                index=int(self.index[i]),
                time=float(self.time[i]),
                state=State.make(self.tree, f.q[i], f.base_position[i], f.base_rotation[i]),
                misfit=float(f.misfit[i]),
                worst_link=int(f.worst_link[i]),
                rebuilt_rmsd=float(f.rebuilt_rmsd[i]),
            )


class TrajectoryReader:
    """A trajectory file, read as states of a tree. Make one with `open_trajectory`; iterate as often as you like."""

    def __init__(self, tree: TreeModel, file: TrajectoryFile):
        self.tree = tree
        self._file = file

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def n_frames(self) -> int | None:
        """Number of frames that will be read, if the format tells it without reading them."""
        return self._file.n_frames

    def __iter__(self) -> Iterator[Frame]:
        for chunk in self.chunks():
            yield from chunk.frames()

    def chunks(self) -> Iterator[FrameChunk]:
        """Iterate over chunks of frames as arrays."""
        for index, time, xyz in self._file.chunks():
            yield FrameChunk(self.tree, index, time, fit_frames(self.tree, xyz))


def open_trajectory(
    tree: TreeModel,
    path: str | os.PathLike[str],
    top: Any = None,
    *,
    atoms: str | np.ndarray | None = None,
    chunk: int = 100,
    stride: int = 1,
) -> TrajectoryReader:
    """Open a trajectory as a stream of states of `tree`.

    Parameters
    ----------
    tree : TreeModel
    path : path
        xtc, dcd, trr, h5, nc, multi-model pdb, or anything else that MDTraj reads.
    top : path, mdtraj.Topology or mdtraj.Trajectory, optional
        Topology of the file. By default the file is taken to hold the atoms of the tree.
    atoms : MDTraj selection or atom indices, optional
        Which atoms of the file are those of the tree (``protein``, when the file holds water and the tree does not).
    chunk : int
        Frames read at a time; sets the memory that is used.
    stride : int
        Read every stride-th frame.

    Returns
    -------
    TrajectoryReader
    """
    return TrajectoryReader(tree, TrajectoryFile(tree.atoms, path, top, atoms, chunk, stride))
