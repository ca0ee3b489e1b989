"""Files of a replica exchange run. Only the driver writes them, and readers may open them at any time.

=============================  ==================================================================================
topology.cif                   the atoms, in the order of the trajectories, with all digits
topology.pdb                   the same for other programs, as far as the format can hold it
exchanges.csv                  per iteration: temperature level of every replica, and how many changed it at its end
reduced.npy                    reduced energies of all frames at all temperatures, (frame, sampled at, evaluated at)
u_kn.npz                       the same as u_kn, N_k and temperatures (K), for pymbar; written when a run ends
checkpoint.npz                 where to continue; checkpoint-previous.npz is the one before it
replica-00/trajectory.dcd      one frame per report; opens with mdtraj
replica-00/torsions.npy        all soft coordinates, rad and nm; opens with numpy.load
replica-00/energies.npy        iteration, level, temperature (K), potential, fixman (kJ/mol); a structured array
=============================  ==================================================================================

A replica keeps its configuration; exchanges change its temperature. The checkpoint is written last and says how much
the other files hold; a resumed run cuts them back to that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from openmm import app

from peptidyn.core.errors import ArgumentError, CheckpointError, OutputError
from peptidyn.core.files import write_text
from peptidyn.core.sealed_files import NPY_HEADER, write_npz
from peptidyn.engine import checkpoints
from peptidyn.engine.run_files import RunFiles
from peptidyn.engine.trajectory_frames import keep_frames
from peptidyn.io.structure import Structure
from peptidyn.sampling.replicas import Stretch
from peptidyn.sampling.walker import Checkpoint

EXCHANGES, TRAJECTORY, TORSIONS, ENERGIES = "exchanges.csv", "trajectory.dcd", "torsions.npy", "energies.npy"
REDUCED, U_KN = "reduced.npy", "u_kn.npz"

ENERGY_ROW = np.dtype(
    [("iteration", "<i8"), ("level", "<i4"), ("temperature", "<f8"), ("potential", "<f8"), ("fixman", "<f8")]
)
"""One frame in energies.npy; `level` counts temperatures from the lowest."""

_ARRAYS = ("joint_inertia", "geometry", "q", "base_position", "base_rotation", "momentum", "momenta_valid")


class ExchangeFolder(RunFiles):
    """The folder of a replica exchange run.

    Parameters
    ----------
    path : path
    n_replicas : int
    """

    def __init__(self, path: str | os.PathLike[str], n_replicas: int):
        super().__init__(path)
        self.n_replicas = n_replicas

    @classmethod
    def at(cls, place: str | os.PathLike[str] | ExchangeFolder | None, n_replicas: int) -> ExchangeFolder | None:
        """Return the folder at a path; a folder stays what it is, and None is none."""
        return place if place is None or isinstance(place, ExchangeFolder) else cls(place, n_replicas)

    @property
    def kind(self) -> str:
        """What its checkpoints are of."""
        return checkpoints.EXCHANGE

    def growing(self) -> Iterable[str]:
        """Return the names of the files that grow while the run goes on."""
        yield from (EXCHANGES, REDUCED)
        for i in range(self.n_replicas):
            yield from (f"{self.replica(i).name}/{name}" for name in (TRAJECTORY, TORSIONS, ENERGIES))

    def replica(self, index: int) -> Path:
        """Return the folder of one replica."""
        return self.path / f"replica-{index:02d}"

    # ------------------------------------------------------------------ beginning and resuming

    def begin(self, structure: Structure, overwrite: bool) -> None:
        """Make the folder with its topology, and an empty table of exchanges."""
        self.make(overwrite)
        try:
            for i in range(self.n_replicas):
                self.replica(i).mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make the folder {self.path}: {error.strerror}") from error
        self.write_structure(structure)
        levels = (f"level_of_replica_{i}" for i in range(self.n_replicas))
        write_text(self.path / EXCHANGES, ",".join(["iteration", *levels, "exchanged"]) + "\n")

    def cut_back(self, iterations: int, frames: int) -> None:
        """Cut all files back to what a checkpoint vouches for."""
        for i in range(self.n_replicas):
            folder = self.replica(i)
            keep_frames(folder / TRAJECTORY, frames)
            for name in (TORSIONS, ENERGIES):
                keep_rows(folder / name, frames)
        keep_rows(self.path / REDUCED, frames)
        table = self.path / EXCHANGES
        lines = table.read_bytes().splitlines(True)
        if len(lines) < iterations + 1:
            raise CheckpointError(f"{table} holds fewer than the {iterations} iterations that were written to it")
        os.truncate(table, sum(map(len, lines[: iterations + 1])))

    def read_walk(self, iterations: int) -> np.ndarray:
        """Return the level of every replica during the first iterations, (n_iterations, n_replicas) int.

        Lines behind them, which no checkpoint vouches for, are not read.
        """
        lines = (self.path / EXCHANGES).read_bytes().splitlines()[1 : 1 + iterations]
        cells = [line.split(b",")[1 : 1 + self.n_replicas] for line in lines]
        return np.array(cells, dtype=np.int64).reshape(-1, self.n_replicas)

    # ------------------------------------------------------------------ going on

    def append(self, index: int, stretch: Stretch, rows: np.ndarray, topology: Any, frames: int) -> None:
        """Append the frames of a stretch to the files of a replica that hold `frames` frames already."""
        if not len(rows):
            return
        folder = self.replica(index)
        with self.writing():
            with open(folder / TRAJECTORY, "r+b" if frames else "wb") as file:
                out = app.DCDFile(file, topology, 1.0, 0, 1, append=frames > 0)
                for x in stretch.positions:
                    out.writeModel(x)
            append_rows(folder / TORSIONS, stretch.q, frames)
            append_rows(folder / ENERGIES, rows, frames)

    def append_exchange(self, iteration: int, levels: np.ndarray, exchanged: int) -> None:
        """Append one line to the table of exchanges; `exchanged` replicas had another level afterwards."""
        with self.writing(), open(self.path / EXCHANGES, "a", encoding="utf-8") as file:
            file.write(",".join(map(str, [iteration, *levels.tolist(), exchanged])) + "\n")

    def append_reduced(self, reduced: np.ndarray, frames: int) -> None:
        """Append reduced energies (n, n_levels, n_levels) to a file that holds `frames` frames already.

        The first level is the one a frame was sampled at, the second the one it is evaluated at.
        """
        if len(reduced):
            with self.writing():
                append_rows(self.path / REDUCED, reduced, frames)

    def write_u_kn(self, u_kn: np.ndarray, N_k: np.ndarray, temperatures: np.ndarray) -> None:
        """Write reduced energies as pymbar takes them; see `ReplicaExchange.u_kn`."""
        with self.writing():
            write_npz(self.path / U_KN, {"u_kn": u_kn, "N_k": N_k, "temperatures": temperatures})

    # ------------------------------------------------------------------ checkpoints

    def save(self, about: dict[str, Any], replicas: list[Checkpoint], box: np.ndarray) -> None:
        """Write the checkpoint; it replaces the earlier one when it is complete and on disk."""
        arrays = {name: np.array([replica[name] for replica in replicas]) for name in _ARRAYS}
        about = {**about, "rng": [replica["rng"] for replica in replicas]}
        extents = self.vouch()
        self.keep_previous()
        checkpoints.write(self.checkpoint, self.kind, {**about, "files": extents}, {"box": box, **arrays})
        self._extents = extents

    def load(self) -> tuple[dict[str, Any], list[Checkpoint]]:
        """Return the description and the replicas that `save` was given."""
        about, arrays = self.read_checkpoint(_ARRAYS)
        states = about.pop("rng")
        replicas = [{**{name: arrays[name][i] for name in _ARRAYS}, "rng": state} for i, state in enumerate(states)]
        return about, replicas


# ---------------------------------------------------------------------------- npy files that grow


def append_rows(path: Path, rows: np.ndarray, there: int) -> None:
    """Append rows to an npy file that holds `there` rows; it can be loaded at any moment."""
    with open(path, "r+b" if there else "w+b") as file:
        if not there:
            file.write(_npy_header(rows, 0))
        file.seek(0, os.SEEK_END)
        file.write(np.ascontiguousarray(rows).tobytes())
        file.flush()
        file.seek(0)
        file.write(_npy_header(rows, there + len(rows)))


def keep_rows(path: Path, count: int) -> None:
    """Cut an npy file that `append_rows` wrote back to its first `count` rows; with 0 it is removed."""
    if count == 0:
        path.unlink(missing_ok=True)
        return
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CheckpointError(f"cannot go on with {path}: it is missing or damaged") from error
    size = NPY_HEADER + count * rows.dtype.itemsize * int(np.prod(rows.shape[1:]))
    if len(rows) < count or path.stat().st_size < size:
        raise CheckpointError(f"{path} holds {len(rows)} frames, fewer than the {count} that were written to it")
    header = _npy_header(rows, count)
    del rows
    with open(path, "r+b") as file:
        file.write(header)
        file.truncate(size)


def _npy_header(rows: np.ndarray, count: int) -> bytes:
    """Return a header of fixed length for an array like `rows` with `count` rows; format 1.0 of numpy."""
    about = {
        "descr": np.lib.format.dtype_to_descr(rows.dtype),
        "fortran_order": False,
        "shape": (count, *rows.shape[1:]),
    }
    text = repr(about).encode("latin1")
    room = NPY_HEADER - 10 - len(text) - 1
    if room < 0:
        raise ArgumentError(f"the header of an npy file has {len(text)} bytes and only {NPY_HEADER - 11} fit")
    return np.lib.format.magic(1, 0) + (NPY_HEADER - 10).to_bytes(2, "little") + text + b" " * room + b"\n"
