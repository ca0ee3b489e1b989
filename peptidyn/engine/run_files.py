"""The files of a run in one folder: their names, and how a folder is begun, cleared and read again.

What single runs and replica exchange have in common; `peptidyn.sampling.storage` adds the files of replicas, and
`peptidyn.runs.run_folder` settings and results.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from peptidyn.core.errors import ArgumentError, OutputError, StructureError
from peptidyn.engine import checkpoints
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure

TOPOLOGY, TOPOLOGY_PDB, CHECKPOINT, SUMMARY = "topology.cif", "topology.pdb", "checkpoint.npz", "summary.json"

WRITTEN = (
    TOPOLOGY, TOPOLOGY_PDB, CHECKPOINT, SUMMARY, "run.toml", "exchange.toml", "trajectory.dcd", "trajectory.xtc",
    "log.csv", "torsions.npz", "torsions.npz.rows", "exchanges.csv", "report.html", "*.png", "replica-*/trajectory.dcd",
    "replica-*/torsions.npy", "replica-*/energies.npy", "reduced.npy", "u_kn.npz",
)  # fmt: skip
"""Everything that runs, replica exchange and their reports write: what is removed when a run is replaced."""


class RunFiles:
    """The folder of a run.

    Parameters
    ----------
    path : str or path
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    @property
    def checkpoint(self) -> Path:
        """Where the run continues from."""
        return self.path / CHECKPOINT

    def make(self, overwrite: bool) -> None:
        """Make the folder. One that is not empty is refused, or cleared of an earlier run; other files in it stay."""
        if self.path.exists() and not self.path.is_dir():
            raise ArgumentError(f"{self.path} is a file; choose another folder=")
        if self.path.is_dir() and any(self.path.iterdir()):
            if not overwrite:
                raise ArgumentError(
                    f"the folder {self.path} is not empty; choose another folder=, continue the run in it with "
                    "resume=True, or replace it with overwrite=True"
                )
            for pattern in WRITTEN:
                for path in self.path.glob(pattern):
                    path.unlink(missing_ok=True)
            self.remove_unfinished()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make the folder {self.path}: {error.strerror}") from error

    def remove_unfinished(self) -> None:
        """Remove files that a killed run was writing; they never got their names."""
        for pattern in WRITTEN:
            for path in self.path.glob(f".{pattern}.*"):
                path.unlink(missing_ok=True)

    def cannot_write(self, error: OSError) -> OutputError:
        """Return what to raise when a file of a run that has begun cannot be written."""
        return OutputError(
            f"cannot write to {self.path}: {error.strerror or error}; the run can be resumed from its last checkpoint"
        )

    # ------------------------------------------------------------------ the atoms

    def write_structure(self, structure: Structure) -> None:
        """Write the atoms as mmCIF with all digits, which `read_structure` reads, and as PDB for other programs.

        The PDB file is left out if the format cannot hold the structure.
        """
        structure.write(self.path / TOPOLOGY)
        with suppress(StructureError):
            structure.write(self.path / TOPOLOGY_PDB)

    def read_structure(self) -> Structure:
        """Return the atoms; if there is a checkpoint, the periodic box is the one of the run to the last bit."""
        structure = load_structure(self.path / TOPOLOGY)
        if structure.topology.getPeriodicBoxVectors() is not None and self.checkpoint.exists():
            _, arrays = checkpoints.read(self.checkpoint, ("box",))
            structure.topology.setPeriodicBoxVectors(arrays["box"])
        return structure
