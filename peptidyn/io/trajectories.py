"""Trajectories -> states: everything MDTraj reads, streamed in chunks.

Memory does not grow with the number of frames. Every frame is made whole if it has a periodic box, and becomes soft
coordinates and base poses, with the misfit of its most deformed rigid unit.
"""

from __future__ import annotations

import gzip
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, prange

from peptidyn.core.checks import all_finite
from peptidyn.core.errors import ArgumentError, SelectionError, TrajectoryError
from peptidyn.io.quiet import quiet_readers
from peptidyn.model.fitting import FrameFits, fit_frames
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel

if TYPE_CHECKING:
    import mdtraj

LONGEST_BOND = 0.5
"""A bond longer than this (nm) is no bond: the molecule is broken or the topology is another one's."""

_PDB = (".pdb", ".pdb.gz", ".ent", ".ent.gz")


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

    def __init__(
        self, tree: TreeModel, path: Path, topology: mdtraj.Topology, atoms: np.ndarray | None, chunk: int, stride: int
    ):
        self.tree = tree
        self.path = path
        self._topology = topology
        self._atoms = atoms
        self._chunk = chunk
        self._stride = stride
        self._bond_order, self._bond_from = _spanning_order(tree)

    @property
    def n_frames(self) -> int | None:
        """Number of frames that will be read, if the format tells it without reading them."""
        if _extension(self.path) not in (".xtc", ".dcd", ".trr", ".nc", ".h5"):
            return None
        import mdtraj

        with quiet_readers(), mdtraj.open(str(self.path)) as file:
            return -(-len(file) // self._stride)

    def __iter__(self) -> Iterator[Frame]:
        for chunk in self.chunks():
            yield from chunk.frames()

    def chunks(self) -> Iterator[FrameChunk]:
        """Iterate over chunks of frames as arrays."""
        count = 0
        for xyz, box, time in self._read():
            index = (count + np.arange(len(xyz))) * self._stride
            count += len(xyz)
            self._check_finite(xyz, index)
            if box is not None:
                _make_whole(xyz, box, np.linalg.inv(box), self._bond_order, self._bond_from)
            self._check_bonds(xyz, index, box is not None)
            times = index.astype(np.float64) if time is None else time
            yield FrameChunk(self.tree, index, times, fit_frames(self.tree, xyz))
        if count == 0:
            raise TrajectoryError(f"{self.path} holds no frames")

    def _read(self) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]]:
        """Yield positions (n, n_atoms, 3) float64, box vectors (n, 3, 3) or None, and times or None."""
        if _extension(self.path) in _PDB:
            yield from _pdb_models(self.path, self._topology.n_atoms, self._atoms, self._chunk, self._stride)
            return
        import mdtraj

        top = {} if _extension(self.path) in _WITH_TOPOLOGY else {"top": self._topology}
        try:
            chunks = mdtraj.iterload(
                str(self.path), chunk=self._chunk, stride=self._stride, atom_indices=self._atoms, **top
            )
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
                f"frame {index[frame]} of {self.path}: the coordinates of {self.tree.atoms.label(int(atom))} are not "
                "finite numbers"
            )

    def _check_bonds(self, xyz: np.ndarray, index: np.ndarray, has_box: bool) -> None:
        bonds = self.tree.atoms.bonds
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
                f"frame {index[frame]} of {self.path}: the bond between {self.tree.atoms.label(i)} and "
                f"{self.tree.atoms.label(j)} is {length:.2f} nm long; {fix}"
            )


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
    file = Path(path)
    if not file.is_file():
        raise TrajectoryError(f"there is no trajectory file {file}")
    if file.stat().st_size == 0:
        raise TrajectoryError(f"the trajectory file {file} is empty")
    if chunk < 1 or stride < 1:
        raise ArgumentError(f"chunk is {chunk} and stride is {stride}, expected whole numbers of at least 1")
    topology = _file_topology(tree, file, top)
    chosen = _chosen_atoms(topology, atoms)
    names = [a.name for a in topology.atoms]
    if chosen is not None:
        names = [names[i] for i in chosen]
    if len(names) != tree.n_atoms:
        hint = "give atoms= to choose those of the tree" if len(names) > tree.n_atoms else "give the matching topology"
        raise TrajectoryError(f"{file} holds {len(names)} atoms but the tree has {tree.n_atoms}; {hint}")
    return TrajectoryReader(tree, file, topology, chosen, int(chunk), int(stride))


_WITH_TOPOLOGY = (".h5", ".hdf5", ".lh5", ".gsd")


def _extension(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def _next_quietly(chunks: Iterator[mdtraj.Trajectory]) -> mdtraj.Trajectory | None:
    with quiet_readers():
        return next(chunks, None)


def _file_topology(tree: TreeModel, file: Path, top: Any) -> mdtraj.Topology:
    import mdtraj

    if isinstance(top, mdtraj.Topology):
        return top
    if isinstance(top, mdtraj.Trajectory):
        return top.topology
    source = top
    if source is None and _extension(file) in (*_PDB, *_WITH_TOPOLOGY):
        source = file
    if source is None:
        return _tree_topology(tree)
    if not Path(source).is_file():
        raise TrajectoryError(f"there is no topology file {source}")
    if _extension(Path(source)) in _PDB:
        return _pdb_topology(Path(source))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mdtraj.load_topology(str(source))
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, IndexError) as error:
        raise TrajectoryError(f"cannot read a topology from {source} ({str(error).strip()})") from error


def _tree_topology(tree: TreeModel) -> mdtraj.Topology:
    """Return the atoms of the tree as an MDTraj topology."""
    import mdtraj

    table = tree.atoms
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


def _chosen_atoms(topology: mdtraj.Topology, atoms: str | np.ndarray | None) -> np.ndarray | None:
    if atoms is None:
        return None
    if not isinstance(atoms, str):
        return np.asarray(atoms, dtype=np.int64)
    try:
        chosen = topology.select(atoms)
    except Exception as error:  # MDTraj raises whatever its parser meets
        raise SelectionError(f"cannot read the selection {atoms!r}; use the MDTraj selection language") from error
    if not len(chosen):
        raise SelectionError(f"the selection {atoms!r} matches no atom of the trajectory's topology")
    return chosen


def _box(vectors: np.ndarray | None) -> np.ndarray | None:
    """Return box vectors (n, 3, 3) as rows, or None if there are none or they are no box."""
    if vectors is None or not np.all(np.abs(np.linalg.det(vectors)) > 0):
        return None
    return np.ascontiguousarray(vectors, dtype=np.float64)


# ---------------------------------------------------------------------------- multi-model PDB


def _open_text(path: Path) -> Any:
    return gzip.open(path, "rt") if path.suffix == ".gz" else open(path)


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
    box: np.ndarray | None = None
    for number, (xyz, cell) in enumerate(_models(path)):
        box = cell if cell is not None else box
        if number % stride:
            continue
        if len(xyz) != n_atoms:
            raise TrajectoryError(f"model {number} of {path} has {len(xyz)} atoms, the first has {n_atoms}")
        frames.append(xyz if chosen is None else xyz[chosen])
        if len(frames) == chunk:
            yield np.stack(frames), _repeat(box, len(frames)), None
            frames = []
    if frames:
        yield np.stack(frames), _repeat(box, len(frames)), None


def _repeat(box: np.ndarray | None, n: int) -> np.ndarray | None:
    return None if box is None else np.ascontiguousarray(np.broadcast_to(box, (n, 3, 3)))


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


# ---------------------------------------------------------------------------- periodic boxes


def _spanning_order(tree: TreeModel) -> tuple[np.ndarray, np.ndarray]:
    """Return atoms in breadth-first order of the bond graph, and for each the bonded atom it was reached from."""
    neighbours = tree.atoms.neighbours
    reached = np.zeros(tree.n_atoms, dtype=bool)
    order: list[int] = []
    source: list[int] = []
    for start in range(tree.n_atoms):
        if reached[start]:
            continue
        reached[start] = True
        queue = [start]
        for atom in queue:
            for other in neighbours[atom]:
                if not reached[other]:
                    reached[other] = True
                    queue.append(other)
                    order.append(other)
                    source.append(atom)
    return np.array(order, dtype=np.int64), np.array(source, dtype=np.int64)


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


@njit(cache=True, parallel=True)
def _make_whole(xyz, box, inverse, atom, source):
    """Shift atoms by box vectors, in place, so that every bond is the shortest image."""
    for f in prange(len(xyz)):
        for n in range(len(atom)):
            a, b = atom[n], source[n]
            dx = xyz[f, a, 0] - xyz[f, b, 0]
            dy = xyz[f, a, 1] - xyz[f, b, 1]
            dz = xyz[f, a, 2] - xyz[f, b, 2]
            for k in range(3):
                turns = np.round(dx * inverse[f, 0, k] + dy * inverse[f, 1, k] + dz * inverse[f, 2, k])
                if turns != 0.0:
                    for i in range(3):
                        xyz[f, a, i] -= turns * box[f, k, i]
