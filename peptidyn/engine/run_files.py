"""The files of a run in one folder: how a folder is begun, cleared, checked and read again, and by one run at a time.

What single runs and replica exchange have in common; `peptidyn.sampling.storage` adds the files of replicas, and
`peptidyn.runs.run_folder` settings and results.

A folder shows whether it is as the run left it. Settings, topology, summary and checkpoints carry a checksum
(`peptidyn.core.sealed_files`). Files that grow do not; every checkpoint vouches for them with their lengths and
checksums, for which only what was added since the last one is read. The checkpoint before the last one is kept.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from peptidyn.core.errors import ArgumentError, CheckpointError, OutputError, StructureError
from peptidyn.core.sealed_files import Extent, check_extent, measure_extent, read_sealed_text, write_sealed_text
from peptidyn.engine import checkpoints
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure
from peptidyn.io.writers import mmcif_text

TOPOLOGY, TOPOLOGY_PDB, SUMMARY = "topology.cif", "topology.pdb", "summary.json"

CHECKPOINT, PREVIOUS = "checkpoint.npz", "checkpoint-previous.npz"

LOCK = "lock"
"""An empty file. Whoever writes to the folder has it locked; the system takes the lock from a process that ends."""

WRITTEN = (
    TOPOLOGY, TOPOLOGY_PDB, CHECKPOINT, PREVIOUS, SUMMARY, "run.toml", "exchange.toml", "trajectory.dcd",
    "trajectory.xtc", "log.csv", "torsions.npz", "torsions.npz.rows", "exchanges.csv", "report.html", "*.png",
    "replica-*/trajectory.dcd", "replica-*/torsions.npy", "replica-*/energies.npy", "reduced.npy", "u_kn.npz",
)  # fmt: skip
"""Everything that runs, replica exchange and their reports write: what is removed when a run is replaced."""

_FRAMES = ("log.csv", "trajectory.*", "torsions.npz*", "replica-*/*")
"""Files that exist only after the first checkpoint was written."""


class RunFiles:
    """The folder of a run. As a context manager it lets go of the folder at the end.

    Parameters
    ----------
    path : str or path
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._lock: FileLock | None = None
        self._made: list[Path] = []
        self._extents: dict[str, Extent] = {}

    @property
    def kind(self) -> str:
        """What its checkpoints are of."""
        exchange = any((self.path / name).exists() for name in ("exchange.toml", "exchanges.csv"))
        return checkpoints.EXCHANGE if exchange else checkpoints.SIMULATION

    @property
    def checkpoint(self) -> Path:
        """Where the run continues from."""
        return self.path / CHECKPOINT

    @property
    def previous(self) -> Path:
        """The checkpoint before the last one."""
        return self.path / PREVIOUS

    # ------------------------------------------------------------------ beginning and ending

    def make(self, overwrite: bool) -> None:
        """Make the folder and lock it. One that is not empty is refused, or cleared of an earlier run.

        Other files in it stay.
        """
        self._check_free(overwrite)
        try:
            self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot make the folder {self.path}: {getattr(error, 'strerror', error)}") from error
        self.lock()
        self._check_free(overwrite)  # nobody was faster
        self._clear()

    def _check_free(self, overwrite: bool) -> None:
        try:
            found = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot read the folder {self.path}: {getattr(error, 'strerror', error)}") from error
        if self.path.exists() and not self.path.is_dir():
            raise ArgumentError(f"{self.path} is a file; choose another folder=")
        if found - {LOCK} and not overwrite:
            raise ArgumentError(
                f"the folder {self.path} is not empty; choose another folder=, continue the run in it with "
                "resume=True, or replace it with overwrite=True"
            )

    def lock(self) -> None:
        """Keep all others from writing to the folder until `release`; OutputError if somebody does so now."""
        if self._lock is not None:
            return
        lock = FileLock(self.path / LOCK, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise OutputError(
                f"another process, or an object of this one that was not closed, writes to {self.path}; wait until it "
                "ends, or choose another folder="
            ) from error
        except NotImplementedError:
            warnings.warn(
                f"the file system of {self.path} has no locks: nothing keeps a second run from writing there",
                stacklevel=2,
            )
        except OSError as error:
            raise OutputError(f"cannot write to {self.path}: {error.strerror or error}") from error
        self._lock = lock

    def release(self) -> None:
        """Let others write to the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def discard(self) -> None:
        """Remove a run that failed before it began, and the folders that were made for it."""
        self._clear()
        self.release()
        if self._made:
            (self.path / LOCK).unlink(missing_ok=True)
        for folder in self._made:
            with suppress(OSError):  # what others have put there stays
                folder.rmdir()

    def _clear(self) -> None:
        """Remove all that runs write; other files stay."""
        self._remove("{}")
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Remove files that a killed run was writing; they never got their names."""
        self._remove(".{}.*")

    def _remove(self, pattern: str) -> None:
        for name in WRITTEN:
            for path in self.path.glob(pattern.format(name)):
                path.unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn errors of the system within the block, which writes files of a run that has begun, into OutputError."""
        try:
            yield
        except OutputError:
            raise
        except OSError as error:
            raise OutputError(
                f"cannot write to {self.path}: {error.strerror or error}; the run can be resumed from its last "
                "checkpoint"
            ) from error

    # ------------------------------------------------------------------ what a checkpoint vouches for

    def growing(self) -> Iterable[str]:
        """Return the names of the files that grow while the run goes on."""
        return ()

    def vouch(self) -> dict[str, Extent]:
        """Return the extents of the growing files, for the next checkpoint; only what is new in them is read."""
        return {
            name: measure_extent(self.path / name, self._extents.get(name))
            for name in self.growing()
            if (self.path / name).exists()
        }

    def keep_previous(self) -> None:
        """Keep the checkpoint that is there under another name, before a new one takes its place."""
        if not self.checkpoint.exists():
            return
        temporary = self.path / f".{PREVIOUS}.new"
        with self.writing():
            temporary.unlink(missing_ok=True)
            try:
                os.link(self.checkpoint, temporary)
            except OSError:  # a file system without links
                shutil.copyfile(self.checkpoint, temporary)
            os.replace(temporary, self.previous)

    def read_checkpoint(self, names: tuple[str, ...] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the description and the named arrays of the checkpoint; a damaged one says what can be saved."""
        try:
            return checkpoints.read(self.checkpoint, self.kind, names)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self._what_is_left()}") from error

    def check_files(self) -> None:
        """Raise CheckpointError, which names the file and what can be saved, unless all is as the run left it.

        Files may have grown after the last checkpoint. Afterwards `vouch` goes on from what the checkpoint says.
        """
        about, _ = self.read_checkpoint()
        try:
            read_sealed_text(self.path / TOPOLOGY)
            self._extents = self.check_extents(about)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self._what_is_left()}") from error

    def check_extents(self, about: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Extent]:
        """Return the extents that the description of a checkpoint holds; CheckpointError where files do not fit them.

        Parameters
        ----------
        about : mapping
        names : iterable of str, optional
            Files to compare; all if not given.
        """
        stored = about.get("extra", about).get("files")
        if stored is None:
            raise CheckpointError(f"{self.checkpoint} was not written by a run in this folder")
        extents = {name: Extent(*numbers) for name, numbers in stored.items()}
        for name in extents if names is None else names:
            if name in extents:
                self._check_extent(name, extents[name])
        return extents

    def _check_extent(self, name: str, extent: Extent) -> None:
        check_extent(self.path / name, extent)

    def check_not_lost(self) -> None:
        """Refuse to start again where frames were written and their checkpoint is gone."""
        if self.checkpoint.exists():
            return
        found = [path for pattern in _FRAMES for path in self.path.glob(pattern)]
        if found or self.previous.exists():
            raise CheckpointError(f"{self.checkpoint} is missing; {self._what_is_left()}")

    def _what_is_left(self) -> str:
        """Say, as the end of a sentence, what can be done about a file that is damaged."""
        try:
            about, _ = checkpoints.read(self.previous, self.kind, ())
            self.check_extents(about)
            read_sealed_text(self.path / TOPOLOGY)
        except CheckpointError:
            return (
                "put a copy of the file there if you have one, or replace the run with overwrite=True; the other files "
                "can still be read"
            )
        done = f"step {about['step']}" if "step" in about else f"iteration {about['iterations']}"
        return f"copy {PREVIOUS} to {CHECKPOINT} to continue from {done}, which is whole"

    # ------------------------------------------------------------------ the atoms

    def write_structure(self, structure: Structure) -> None:
        """Write the atoms as mmCIF with all digits, which `read_structure` reads, and as PDB for other programs.

        The PDB file is left out if the format cannot hold the structure.
        """
        write_sealed_text(self.path / TOPOLOGY, mmcif_text(structure))
        with suppress(StructureError):
            structure.write(self.path / TOPOLOGY_PDB)

    def read_structure(self) -> Structure:
        """Return the atoms; if there is a checkpoint, the periodic box is the one of the run to the last bit."""
        read_sealed_text(self.path / TOPOLOGY)
        return self.with_box(load_structure(self.path / TOPOLOGY, extra_particles=True))

    def with_box(self, structure: Structure) -> Structure:
        """Give a structure with a periodic box the one where the run is, and return it."""
        if structure.topology.getPeriodicBoxVectors() is not None and self.checkpoint.exists():
            structure.topology.setPeriodicBoxVectors(self.read_checkpoint(("box",))[1]["box"])
        return structure
