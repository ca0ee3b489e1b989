"""What the frames of a run look like: RMSD, secondary structure, single hydrogen bonds, wells of torsions.

`peptidyn.analysis.observables` has the averages. MDTraj finds secondary structure (DSSP) and hydrogen bonds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import mdtraj
import numpy as np

from peptidyn.analysis.estimates import Estimate, estimate
from peptidyn.analysis.observables import (
    end_to_end_distance,
    helix_content,
    hydrogen_bonds,
    radius_of_gyration,
    ramachandran_basins,
)
from peptidyn.analysis.transitions import CORES, THREEFOLD
from peptidyn.core.errors import ArgumentError

HELIX, STRAND, COIL = "H", "E", "C"
"""Letters of the secondary structure, as in MDTraj's simplified DSSP."""


@dataclass(frozen=True, eq=False)
class Conformations:
    """Frames of a run, and what is measured in them; what is not asked for is not computed.

    Parameters
    ----------
    frames : mdtraj.Trajectory
        Without water; whole molecules.
    reference : (n_atoms, 3), nm
        What distances are taken from.
    """

    frames: mdtraj.Trajectory
    reference: np.ndarray

    @cached_property
    def residues(self) -> list[int]:
        """Places of the residues with a backbone: N, CA, C and O."""
        backbone = {"N", "CA", "C", "O"}
        return [r.index for r in self.frames.topology.residues if backbone <= {a.name for a in r.atoms}]

    def name(self, residue: int) -> str:
        """Return a residue as text."""
        one = self.frames.topology.residue(residue)
        return f"{one.name} {one.resSeq}"

    @cached_property
    def backbone(self) -> np.ndarray:
        """Atoms N, CA and C of all amino acids; all heavy atoms if there are none."""
        top, residues = self.frames.topology, set(self.residues)
        found = [a.index for a in top.atoms if a.name in ("N", "CA", "C") and a.residue.index in residues]
        heavy = [a.index for a in top.atoms if a.element.symbol != "H"]
        return np.array(found or heavy or range(top.n_atoms), dtype=np.int64)

    @cached_property
    def rmsd(self) -> Estimate:
        """Root mean square distance of the backbone from the reference, superposed, nm."""
        reference = mdtraj.Trajectory(self.reference, self.frames.topology)
        return estimate(mdtraj.rmsd(self.frames, reference, atom_indices=self.backbone), name="RMSD", unit="nm")

    @cached_property
    def averages(self) -> dict[str, Estimate]:
        """Helix content, hydrogen bonds of backbones, sizes and RMSD, by name; without what the molecule has not."""
        found = {}
        for measure in (helix_content, hydrogen_bonds, radius_of_gyration, end_to_end_distance):
            try:
                one = measure(self.frames)
            except ArgumentError:  # no peptide, several chains, or a chain too short
                continue
            found[one.name] = one
        return {**found, self.rmsd.name: self.rmsd}

    @cached_property
    def basins(self) -> Estimate | None:
        """Populations of the basins of the Ramachandran plot, by residue; None if no residue has phi and psi."""
        try:
            return ramachandran_basins(self.frames)
        except ArgumentError:
            return None

    @cached_property
    def secondary(self) -> np.ndarray:
        """Letter of every residue in `residues` by DSSP, (n_frames, n_residues)."""
        if not self.residues:
            return np.empty((self.frames.n_frames, 0), dtype="U1")
        return mdtraj.compute_dssp(self.frames, simplified=True)[:, self.residues].astype("U1")

    @cached_property
    def bonds(self) -> tuple[np.ndarray, np.ndarray]:
        """Donor and acceptor (m, 2) of all hydrogen bonds, also of side chains, and where they are, (n_frames, m).

        The criterion is that of `hydrogen_bonds`. Bonds through different hydrogens of one donor count as one.
        """
        n = self.frames.n_frames
        if not self.frames.topology.n_bonds:  # donors are found by the bonds of their hydrogens
            return np.empty((0, 2), dtype=np.int64), np.zeros((n, 0), dtype=bool)
        found = mdtraj.wernet_nilsson(self.frames, exclude_water=True, periodic=False)
        pairs = sorted({(int(d), int(a)) for frame in found for d, _, a in frame})
        place = {pair: column for column, pair in enumerate(pairs)}
        present = np.zeros((n, len(pairs)), dtype=bool)
        for row, frame in zip(present, found, strict=True):
            row[[place[int(d), int(a)] for d, _, a in frame]] = True
        return np.array(pairs, dtype=np.int64).reshape(-1, 2), present


def nearest_well(degrees: np.ndarray, kind: str) -> np.ndarray:
    """Return the well whose centre is nearest to each angle (n,), degrees: an index into the cores of its kind."""
    centres = np.array([centre for centre, _ in CORES.get(kind, THREEFOLD)])
    return np.abs((np.asarray(degrees)[:, None] - centres + 180.0) % 360.0 - 180.0).argmin(axis=1)
