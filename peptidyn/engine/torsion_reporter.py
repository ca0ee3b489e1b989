"""`TorsionReporter`: energies and soft coordinates of a running simulation, to CSV or npz.

Frames are appended as they come: to the CSV file itself, or, for npz, to a file of plain float64 rows beside it
(``torsions.npz.rows``) from which `close` makes the npz. A run that was killed so loses nothing that was reported.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from peptidyn.core.errors import ArgumentError, CheckpointError
from peptidyn.core.sealed_files import extent_of_bytes, read_npz, write_npz
from peptidyn.model.kinematics import FLAT, STRETCH
from peptidyn.model.tree import Coordinate

QUANTITIES = {
    "step": "step",
    "time": "time_ps",
    "potential": "potential_kJ_per_mol",
    "kinetic": "kinetic_kJ_per_mol",
    "fixman": "fixman_kJ_per_mol",
    "total": "total_kJ_per_mol",
    "temperature": "temperature_K",
    "acceptance": "acceptance",
    "iterations": "solver_iterations",
}
"""Names in npz files, and the columns of CSV files."""

EXTENT = "rows_extent"
"""Of npz files: size (bytes) and checksum of the rows that the file was made from; see `Extent`."""


class TorsionReporter:
    """Reports energies and soft coordinates; append it to ``simulation.reporters`` like OpenMM's own reporters.

    Reported are step, time (ps), potential energy of the force field, kinetic energy, Fixman potential (0 when it is
    off), their sum, which NVE conserves (kJ/mol), kinetic temperature (K), acceptance rate (nan unless
    GHMC), iterations of the last drift, and every soft coordinate: angles in degrees in CSV and in radians in npz, bond
    lengths in nm.

    Parameters
    ----------
    file : str or path
        ``.csv`` or ``.npz``. An existing file is replaced, unless `append`.
    interval : int
        Steps between reports.
    coordinates : bool
        Report soft coordinates too.
    append : bool
        Go on behind the frames that are there.
    keep : int, optional
        With `append`: how many of them to keep; all if not given.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        interval: int,
        *,
        coordinates: bool = True,
        append: bool = False,
        keep: int | None = None,
    ):
        self.path = Path(file)
        if self.path.suffix not in (".csv", ".npz"):
            raise ArgumentError(f"cannot tell the format of {self.path}: its name must end in .csv or .npz")
        if interval < 1:
            raise ArgumentError(f"the report interval is {interval}, expected a number of steps of 1 or more")
        self.interval = interval
        self.coordinates = coordinates
        self._append = append
        self._keep = keep
        self._out: IO[Any] | None = None
        self._tree: Any = None

    # ------------------------------------------------------------------ the OpenMM side

    def describeNextReport(self, simulation: Any) -> dict[str, Any]:
        """Tell the Simulation when the next report is due; the integrator is asked for everything in it."""
        steps = self.interval - simulation.currentStep % self.interval
        return {"steps": steps, "periodic": None, "include": []}

    def report(self, simulation: Any, state: Any) -> None:
        """Append one frame."""
        self.open(simulation)
        row = self._row(simulation, state)
        assert self._out is not None
        if self.path.suffix == ".csv":
            head, q = row[: len(QUANTITIES)], row[len(QUANTITIES) :]
            if self.coordinates:
                q = np.where(self._tree.measure == STRETCH, q, np.rad2deg(q))
            cells = [f"{head[0]:.0f}", *(f"{x:.6f}" for x in head[1:-1]), f"{head[-1]:.0f}", *(f"{x:.6f}" for x in q)]
            self._out.write(",".join(cells) + "\n")
        else:
            self._out.write(row.tobytes())
        self._out.flush()

    def _row(self, simulation: Any, state: Any) -> np.ndarray:
        integrator = simulation.integrator
        with_fixman, fixman = integrator.potential_energy(), integrator.fixman_energy()
        kinetic = integrator.kinetic_energy()
        energies = (with_fixman - fixman, kinetic, fixman, with_fixman + kinetic)
        temperature = integrator.computeSystemTemperature()._value
        # times are sums over steps, whose last digits depend on where the run paused
        head = (simulation.currentStep, round(state.getTime()._value, 9), *energies, temperature)
        solver = (getattr(integrator, "acceptance", np.nan), integrator.solver_iterations)
        q = integrator.motion()[0].q.copy() if self.coordinates else np.empty(0)
        if self.coordinates:
            turns = integrator.tree.measure == FLAT
            q[turns] = (q[turns] + np.pi) % (2.0 * np.pi) - np.pi
        return np.concatenate([head, solver, q])

    # ------------------------------------------------------------------ the files

    @property
    def _stream(self) -> Path:
        """The file that frames are appended to."""
        return self.path if self.path.suffix == ".csv" else self.path.with_name(self.path.name + ".rows")

    def open(self, simulation: Any) -> None:
        """Open the file, unless it is open; the first report does it too."""
        if self._out is not None:
            return
        self._tree = simulation.integrator.tree
        if self.path.suffix == ".csv":
            self._open_csv()
        else:
            self._open_rows()

    def _open_csv(self) -> None:
        columns = [*QUANTITIES.values(), *(_label(c) for c in self._tree.coordinates if self.coordinates)]
        header = ",".join(columns) + "\n"
        lines = self._stream.read_bytes().splitlines(True) if self._goes_on() else []
        if lines and lines[0].decode("utf-8") != header:
            raise ArgumentError(f"{self.path} holds other columns than this simulation reports; choose another name")
        whole = [line for line in lines[1:] if line.endswith(b"\n")]
        frames = whole if self._keep is None else whole[: self._keep]
        self._require(len(frames))
        if lines:  # cut in place: the file is never without the frames it keeps
            os.truncate(self._stream, len(lines[0]) + sum(map(len, frames)))
        self._out = open(self._stream, "a" if lines else "w", encoding="utf-8")
        if not lines:
            self._out.write(header)
            self._out.flush()

    def _open_rows(self) -> None:
        if self._append and not self._stream.exists() and self.path.exists():
            rows = rows_of_table(self.path, read_npz(self.path), self._tree, self.coordinates)
            self._stream.write_bytes(rows.tobytes())
        frames = 0
        if self._goes_on():
            size = self._stream.stat().st_size // (8 * self._width)
            frames = size if self._keep is None else min(size, self._keep)
            os.truncate(self._stream, frames * 8 * self._width)
        self._require(frames)
        self._out = open(self._stream, "ab" if self._append else "wb")

    def _goes_on(self) -> bool:
        return self._append and self._stream.exists()

    def _require(self, frames: int) -> None:
        if self._append and self._keep is not None and frames < self._keep:
            raise CheckpointError(f"{self.path} holds {frames} frames, fewer than the {self._keep} to go on from")

    @property
    def _width(self) -> int:
        return row_width(self._tree, self.coordinates)

    def close(self) -> None:
        """Close the file; for npz, write it from the rows. A file that was never opened is not touched."""
        if self._out is None:
            return
        self._out.close()
        self._out = None
        if self.path.suffix == ".npz":
            rows = np.fromfile(self._stream).reshape(-1, self._width)
            extent = {EXTENT: np.array(extent_of_bytes(rows.tobytes()))}
            coordinates = _coordinates(rows, self._tree) if self.coordinates else {}
            write_npz(self.path, {**_columns(rows), **coordinates, **extent})
            self._stream.unlink()


def _label(c: Coordinate) -> str:
    name = ":".join([c.kind, *(["-".join(c.names)] if c.names else []), c.chain, f"{c.residue_name}{c.residue_id}"])
    return f"{name}_{'nm' if c.motion == 'stretch' else 'deg'}"


def read_torsions(path: str | os.PathLike[str], tree: Any) -> dict[str, np.ndarray]:
    """Return what a `TorsionReporter` wrote to an npz file, also if it was killed before it made the file.

    Parameters
    ----------
    path : str or path
        The npz file; if rows lie beside it, which only a reporter that was not closed leaves, they are read.
    tree : TreeModel
        The one of the simulation; rows are read by it.

    Returns
    -------
    dict
        The arrays of the npz file: those of `QUANTITIES` (n_frames,), ``torsions``, ``phases``, ``bends``
        (rad) and ``stretches`` (nm), each (n_frames, number of them), and what they belong to. A last row that is not
        complete is left out.
    """
    file = Path(path)
    stream = file.with_name(file.name + ".rows")
    if not stream.exists():
        return read_npz(file)
    width = row_width(tree)
    numbers = np.fromfile(stream)
    rows = numbers[: len(numbers) // width * width].reshape(-1, width)
    return {**_columns(rows), **_coordinates(rows, tree)}


def _columns(rows: np.ndarray) -> dict[str, np.ndarray]:
    table = {name: rows[:, i] for i, name in enumerate(QUANTITIES)}
    for name in ("step", "iterations"):
        table[name] = table[name].astype(np.int64)
    return table


def _coordinates(rows: np.ndarray, tree: Any) -> dict[str, np.ndarray]:
    q = rows[:, len(QUANTITIES) :]
    table = {}
    for name, places in tree.groups.items():
        table[name] = q[:, places]
        group = [tree.coordinates[i] for i in places]
        one = group[0].motion if group else {"stretches": "stretch"}.get(name, name[:-1])
        for field in ("kind", "chain", "residue_name", "residue_id"):
            table[f"{one}_{field}"] = np.array([getattr(c, field) for c in group], dtype=str)
        table[f"{one}_residue"] = np.array([c.residue for c in group], dtype=np.int64)
    return table


def row_width(tree: Any, coordinates: bool = True) -> int:
    """Return how many numbers a frame has in the file of rows."""
    return len(QUANTITIES) + (tree.n_coordinates if coordinates else 0)


def rows_of_table(
    path: str | os.PathLike[str], table: dict[str, np.ndarray], tree: Any, coordinates: bool = True
) -> np.ndarray:
    """Return the frames of an npz file as the rows (n_frames, width) it was made from.

    Parameters
    ----------
    path : str or path
        The file, for messages: CheckpointError if it does not fit the tree.
    table : dict
        What the file holds.
    tree : TreeModel
    coordinates : bool
        Whether it holds soft coordinates.
    """
    try:
        head = np.stack([table[name].astype(np.float64) for name in QUANTITIES], axis=1)
        q = np.empty((len(head), tree.n_coordinates if coordinates else 0))
        for name, places in tree.groups.items() if coordinates else ():
            q[:, places] = table[name].reshape(len(head), len(places))  # one column is not taken for all
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} does not hold the soft coordinates of this run") from error
    return np.concatenate([head, q], axis=1)
