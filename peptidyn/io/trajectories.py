"""Trajectory files -> frames: everything MDTraj reads, streamed in chunks.

Memory does not grow with the number of frames. Every frame is made whole if it has a periodic box, and checked: finite
coordinates, no bond longer than bonds are.
"""

from __future__ import annotations

import bz2
import gzip
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peptidyn.core.atoms import LONGEST_BOND, Atoms
from peptidyn.core.checks import all_finite
from peptidyn.core.errors import ArgumentError, TrajectoryError
from peptidyn.core.jit import njit
from peptidyn.core.periodic import make_whole, spanning_order
from peptidyn.io.plain_paths import plain_path
from peptidyn.io.quiet import quiet_readers
from peptidyn.io.raw import PDB, extension
from peptidyn.io.topology import select_atoms

if TYPE_CHECKING:
    import mdtraj

_WITH_TOPOLOGY = (".h5", ".hdf5", ".lh5", ".gsd")
_COUNTED = (".xtc", ".dcd", ".trr", ".nc", ".h5")


class TrajectoryFile:
    """A trajectory file as a stream of frames of known atoms.

    Parameters
    ----------
    atoms : Atoms
        What the frames are to hold.
    path, top, chosen, chunk, stride
        As `path`, `top`, `atoms`, `chunk` and `stride` of `peptidyn.open_trajectory`.
    """

    def __init__(
        self,
        atoms: Atoms,
        path: str | os.PathLike[str],
        top: Any,
        chosen: str | np.ndarray | None,
        chunk: int,
        stride: int,
    ):
        self.atoms, self.path, self._chunk, self._stride = atoms, Path(path), int(chunk), int(stride)
        if not self.path.is_file():
            raise TrajectoryError(f"there is no trajectory file {self.path}")
        if self.path.stat().st_size == 0:
            raise TrajectoryError(f"the trajectory file {self.path} is empty")
        if chunk < 1 or stride < 1:
            raise ArgumentError(f"chunk is {chunk} and stride is {stride}, expected whole numbers of at least 1")
        self._topology = _file_topology(atoms, self.path, top)
        if isinstance(chosen, str):
            chosen = select_atoms(self._topology, chosen, "the trajectory's topology")
        self._chosen = None if chosen is None else np.asarray(chosen, dtype=np.int64)
        found = self._topology.n_atoms if self._chosen is None else len(self._chosen)
        if found != atoms.n_atoms:
            hint = "give atoms= to choose those of the tree" if found > atoms.n_atoms else "give the matching topology"
            raise TrajectoryError(f"{self.path} holds {found} atoms but the tree has {atoms.n_atoms}; {hint}")
        self._spanning = spanning_order(atoms)

    @property
    def n_frames(self) -> int | None:
        """Number of frames that will be read, if the format tells it without reading them."""
        if self.path.suffix.lower() not in _COUNTED:
            return None
        import mdtraj

        with plain_path(self.path) as path, quiet_readers(), mdtraj.open(path) as file:
            return -(-len(file) // self._stride)

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Iterate over chunks of n frames: places in the file (n,), times (n,) in ps, positions (n, n_atoms, 3) in nm.

        Where a format has no times, the places stand for them.
        """
        count = 0
        for xyz, box, time in self._read():
            index = (count + np.arange(len(xyz))) * self._stride
            count += len(xyz)
            yield index, index.astype(np.float64) if time is None else time, self._checked(xyz, box, index)
        if count == 0:
            raise TrajectoryError(f"{self.path} holds no frames")

    def frame(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the positions (n_atoms, 3), nm, of one frame, made whole, and its box vectors (3, 3) or None.

        Parameters
        ----------
        number : int
            Counted from 0 with the stride of this object; negative numbers count from the end.
        """
        total = self.n_frames if number < 0 else None
        if number < 0 and total is None:
            total = sum(len(xyz) for xyz, _, _ in self._read())
        wanted, first = number if total is None else total + number, 0
        for xyz, box, _ in self._read():
            here = wanted - first
            if 0 <= here < len(xyz):
                xyz, box = xyz[here : here + 1], None if box is None else box[here : here + 1]
                xyz = self._checked(xyz, box, np.array([wanted]))
                return xyz[0], None if box is None else box[0]
            first += len(xyz)
        raise TrajectoryError(f"{self.path} has no frame {number}: it holds {first or total} frames, counted from 0")

    def _checked(self, xyz: np.ndarray, box: np.ndarray | None, index: np.ndarray) -> np.ndarray:
        """Return frames with all molecules whole, in place; TrajectoryError for those that make no sense."""
        self._check_finite(xyz, index)
        if box is not None:
            make_whole(xyz, box, np.linalg.inv(box), *self._spanning)
        self._check_bonds(xyz, index, box is not None)
        return xyz

    def _read(self) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]]:
        """Yield positions (n, n_atoms, 3) float64, box vectors (n, 3, 3) or None, and times or None."""
        if extension(self.path) in PDB:
            yield from _pdb_models(self.path, self._topology.n_atoms, self._chosen, self._chunk, self._stride)
            return
        import mdtraj

        top = {} if extension(self.path) in _WITH_TOPOLOGY else {"top": self._topology}
        try:
            with plain_path(self.path) as path:
                chunks = mdtraj.iterload(path, chunk=self._chunk, stride=self._stride, atom_indices=self._chosen, **top)
                while (part := _next_quietly(chunks)) is not None:
                    yield part.xyz.astype(np.float64), _box(part.unitcell_vectors), part.time.astype(np.float64)
        except (OSError, RuntimeError, ValueError, TypeError, EOFError) as error:
            raise TrajectoryError(
                f"cannot read {self.path} ({str(error).strip() or type(error).__name__}); check that the file is "
                f"complete and belongs to a system of {self._topology.n_atoms} atoms"
            ) from error

    def _check_finite(self, xyz: np.ndarray, index: np.ndarray) -> None:
        if not all_finite(xyz):
            frame, atom = np.argwhere(~np.isfinite(xyz).all(axis=2))[0]
            raise TrajectoryError(
                f"frame {index[frame]} of {self.path}: the coordinates of {self.atoms.label(int(atom))} are not "
                "finite numbers"
            )

    def _check_bonds(self, xyz: np.ndarray, index: np.ndarray, has_box: bool) -> None:
        bonds = self.atoms.bonds
        length, frame, bond = _longest_bond(xyz, bonds)
        if length > LONGEST_BOND:
            i, j = bonds[bond].tolist()
            fix = (
                "topology and trajectory do not list the same atoms in the same order"
                if has_box
                else "either topology and trajectory do not match, or molecules are broken across a periodic boundary "
                "and the trajectory has no box: write it with its box, or make molecules whole first"
            )
            raise TrajectoryError(
                f"frame {index[frame]} of {self.path}: the bond between {self.atoms.label(i)} and "
                f"{self.atoms.label(j)} is {length:.2f} nm long; {fix}"
            )


def _next_quietly(chunks: Iterator[mdtraj.Trajectory]) -> mdtraj.Trajectory | None:
    with quiet_readers():
        return next(chunks, None)


def _file_topology(atoms: Atoms, file: Path, top: Any) -> mdtraj.Topology:
    import mdtraj

    if isinstance(top, mdtraj.Topology):
        return top
    if isinstance(top, mdtraj.Trajectory):
        return top.topology
    source = top
    if source is None and extension(file) in (*PDB, *_WITH_TOPOLOGY):
        source = file
    if source is None:
        return _mdtraj_topology(atoms)
    if not Path(source).is_file():
        raise TrajectoryError(f"there is no topology file {source}")
    if extension(Path(source)) in PDB:
        return _pdb_topology(Path(source))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with plain_path(source) as path:
                return mdtraj.load_topology(path)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, IndexError) as error:
        raise TrajectoryError(f"cannot read a topology from {source} ({str(error).strip()})") from error


def _mdtraj_topology(table: Atoms) -> mdtraj.Topology:
    """Return atoms as an MDTraj topology without bonds."""
    import mdtraj

    topology = mdtraj.Topology()
    chains = [topology.add_chain(chain_id) for chain_id in table.chain_id.tolist()]
    residues = [
        topology.add_residue(name, chains[chain])
        for name, chain in zip(table.residue_name.tolist(), table.residue_chain.tolist(), strict=True)
    ]
    virtual = mdtraj.core.element.virtual
    for name, symbol, residue in zip(table.name.tolist(), table.element.tolist(), table.residue.tolist(), strict=True):
        element = mdtraj.core.element.get_by_symbol(symbol) if symbol else virtual
        topology.add_atom(name, element, residues[residue])
    return topology


def _box(vectors: np.ndarray | None) -> np.ndarray | None:
    """Return box vectors (n, 3, 3) as rows, or None if there are none or they are no box."""
    if vectors is None or not np.all(np.abs(np.linalg.det(vectors)) > 0):
        return None
    return np.ascontiguousarray(vectors, dtype=np.float64)


@njit(cache=True)
def _longest_bond(xyz, bonds):
    """Return the length (nm) of the longest bond of all frames, its frame and its place in `bonds` (n, 2)."""
    longest, frame, bond = 0.0, 0, 0
    for f in range(len(xyz)):
        for n in range(len(bonds)):
            i, j = bonds[n, 0], bonds[n, 1]
            dx, dy, dz = xyz[f, i, 0] - xyz[f, j, 0], xyz[f, i, 1] - xyz[f, j, 1], xyz[f, i, 2] - xyz[f, j, 2]
            square = dx * dx + dy * dy + dz * dz
            if square > longest:
                longest, frame, bond = square, f, n
    return math.sqrt(longest), frame, bond


# ---------------------------------------------------------------------------- multi-model PDB


def _open_text(path: Path) -> Any:
    opened: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    return opened.get(path.suffix.lower(), open)(path, "rt")


def _pdb_topology(path: Path) -> mdtraj.Topology:
    """Return the topology of the first model of a PDB file, as MDTraj reads it."""
    import tempfile

    import mdtraj

    with tempfile.NamedTemporaryFile("w", suffix=".pdb") as first, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _open_text(path) as lines:
            for line in lines:
                if line.startswith("ENDMDL"):
                    break
                first.write(line)
        first.flush()
        try:
            return mdtraj.load_pdb(first.name).topology
        except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
            raise TrajectoryError(f"cannot read a topology from {path} ({str(error).strip()})") from error


def _pdb_models(
    path: Path, n_atoms: int, chosen: np.ndarray | None, chunk: int, stride: int
) -> Iterator[tuple[np.ndarray, np.ndarray | None, None]]:
    """Stream the models of a PDB file; MDTraj would read all of them before giving the first."""
    frames: list[np.ndarray] = []
    boxes: list[np.ndarray | None] = []
    box: np.ndarray | None = None
    for number, (xyz, cell) in enumerate(_models(path)):
        box = cell if cell is not None else box
        if number % stride:
            continue
        if len(xyz) != n_atoms:
            raise TrajectoryError(f"model {number} of {path} has {len(xyz)} atoms, the first has {n_atoms}")
        frames.append(xyz if chosen is None else xyz[chosen])
        boxes.append(box)
        if len(frames) == chunk:
            yield np.stack(frames), _stacked(boxes), None
            frames, boxes = [], []
    if frames:
        yield np.stack(frames), _stacked(boxes), None


def _stacked(boxes: list[np.ndarray | None]) -> np.ndarray | None:
    found = [box for box in boxes if box is not None]
    return np.stack(found) if len(found) == len(boxes) else None


def _models(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield positions (nm) of every model, first alternate location only, and the box if one was stated."""
    rows: list[tuple[float, float, float]] = []
    seen: set[str] = set()
    box = None
    with _open_text(path) as lines:
        for line in lines:
            record = line[:6]
            if record in ("ATOM  ", "HETATM"):
                identity = line[12:16] + line[17:27]
                if line[16] != " " and identity in seen:
                    continue
                seen.add(identity)
                try:
                    rows.append((float(line[30:38]), float(line[38:46]), float(line[46:54])))
                except ValueError as error:
                    raise TrajectoryError(f"{path}: cannot read coordinates in the line {line.rstrip()!r}") from error
            elif record == "CRYST1":
                box = _cryst1(line)
            elif record == "ENDMDL" and rows:
                yield 0.1 * np.array(rows), box
                rows, seen = [], set()
    if rows:
        yield 0.1 * np.array(rows), box


def _cryst1(line: str) -> np.ndarray | None:
    """Return the box (3, 3) of a CRYST1 record; None for the 1 x 1 x 1 box that stands for no box."""
    from mdtraj.utils import lengths_and_angles_to_box_vectors

    a, b, c = (0.1 * float(line[s]) for s in (slice(6, 15), slice(15, 24), slice(24, 33)))
    angles = (float(line[s]) for s in (slice(33, 40), slice(40, 47), slice(47, 54)))
    if min(a, b, c) < LONGEST_BOND:
        return None
    return np.array(lengths_and_angles_to_box_vectors(a, b, c, *angles), dtype=np.float64)
