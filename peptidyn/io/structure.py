"""`Structure`: a topology, positions and masses, and what was noticed while reading them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from peptidyn.core.atoms import LONGEST_BOND, Atoms
from peptidyn.core.errors import ArgumentError, SelectionError, StructureError
from peptidyn.core.units import plain_array
from peptidyn.io.composition import Missing, missing_atoms
from peptidyn.io.notes import Note, counted
from peptidyn.io.topology import (
    atoms_from_topology,
    bonds_of,
    copy_topology,
    masses_from_elements,
    reduced_box,
    select_atoms,
)
from peptidyn.io.virtual_sites import place_virtual_sites, virtual_sites, water_sites

if TYPE_CHECKING:
    import mdtraj
    from openmm import System
    from openmm.app import Topology

__all__ = ["Note", "Structure", "atoms_from_topology", "masses_from_elements"]


FARTHEST = 1e5
"""Coordinates beyond this (nm) are damage: squares and differences of them lose all digits."""


def check_finite(atoms: Atoms, positions: np.ndarray) -> None:
    """Raise StructureError, naming the atoms, unless all coordinates are finite and not absurdly large."""
    bad = np.flatnonzero(~np.isfinite(positions).all(axis=1))
    if bad.size:
        raise StructureError(
            f"coordinates are not finite numbers at {atoms.labels(bad)}; repair the file or remove these atoms"
        )
    far = np.flatnonzero((np.abs(positions) > FARTHEST).any(axis=1))
    if far.size:
        raise StructureError(
            f"coordinates are larger than {FARTHEST:g} nm at {atoms.labels(far)}; repair the file or remove these atoms"
        )


@dataclass(frozen=True, eq=False)
class Structure:
    """Atoms with positions and masses.

    Attributes
    ----------
    topology : openmm.app.Topology
        The same atoms in the same order, for OpenMM. Its bonds are those of `atoms`.
    positions : (n_atoms, 3) float64
        nm; read-only.
    masses : (n_atoms,) float64
        Da; read-only. From an OpenMM System when the structure was made with one, else from the elements.
    atoms : Atoms
        The plain table that the numeric core reads.
    name : str
        For people: the file name, or the sequence.
    notes : tuple of Note
        What was noticed while reading.
    virtual_sites : dict of int to tuple of int
        For every particle without mass that OpenMM places, the atoms that it is placed by.
    """

    topology: Topology
    positions: np.ndarray
    masses: np.ndarray
    atoms: Atoms
    name: str = "structure"
    notes: tuple[Note, ...] = field(default=())
    virtual_sites: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.n_atoms == 0:
            raise StructureError(f"{self.name} holds no atoms")
        if self.positions.shape != (self.n_atoms, 3):
            raise StructureError(
                f"positions have shape {self.positions.shape}, expected ({self.n_atoms}, 3), one row per atom"
            )
        check_finite(self.atoms, self.positions)
        for array in (self.positions, self.masses):
            array.setflags(write=False)

    @property
    def n_atoms(self) -> int:
        """Number of atoms."""
        return self.atoms.n_atoms

    @property
    def n_residues(self) -> int:
        """Number of residues."""
        return self.atoms.n_residues

    @cached_property
    def missing(self) -> tuple[Missing, ...]:
        """What the standard residues, caps and waters lack, residue by residue."""
        return tuple(missing_atoms(self.atoms))

    @property
    def missing_hydrogens(self) -> bool:
        """Whether any standard residue, cap or water lacks hydrogens."""
        return any(m.hydrogens for m in self.missing)

    @property
    def missing_heavy_atoms(self) -> bool:
        """Whether any standard residue, cap or water lacks heavy atoms."""
        return any(m.heavy for m in self.missing)

    def __repr__(self) -> str:
        return (
            f"<Structure {self.name}: {self.atoms.n_chains} chains, {self.n_residues} residues, {self.n_atoms} atoms>"
        )

    def notes_of(self, kind: str) -> Iterator[Note]:
        """Iterate over the notes of one kind."""
        return (note for note in self.notes if note.kind == kind)

    # ------------------------------------------------------------------ construction

    @classmethod
    def from_openmm(
        cls,
        topology: Topology,
        system: System | None,
        positions: Any,
        *,
        name: str = "structure",
        notes: tuple[Note, ...] = (),
    ) -> Structure:
        """Make a structure from an OpenMM Topology and System.

        The bonds are those of the topology. Atoms that have none there get those of the System: its bond terms and
        constraints. Molecules that are split at a wall of the topology's box are made whole.

        Parameters
        ----------
        topology : openmm.app.Topology
        system : openmm.System or None
            Gives the masses, the virtual sites with their positions, and bonds that the topology lacks; with None
            masses come from the elements, and sites of waters without element are virtual sites.
        positions : (n_atoms, 3) Quantity or array
            nm if plain.
        """
        atoms = atoms_from_topology(topology)
        xyz = plain_array(positions)
        if system is None:
            sites = water_sites(atoms)
            masses = masses_from_elements(atoms, sites)
        else:
            if system.getNumParticles() != atoms.n_atoms:
                raise StructureError(
                    f"the System has {system.getNumParticles()} particles but the Topology has {atoms.n_atoms} "
                    "atoms; make the System from this Topology"
                )
            from openmm import unit

            masses = np.array([system.getParticleMass(i).value_in_unit(unit.dalton) for i in range(atoms.n_atoms)])
            sites = virtual_sites(system)
        structure = cls(topology, xyz, masses, atoms, name, tuple(notes), sites)
        if system is not None:
            structure = structure._with_bonds_of(system)
        xyz, note = structure._whole()
        if sites and system is not None:
            xyz = place_virtual_sites(system, xyz)
        return structure if xyz is structure.positions else structure.with_positions(xyz).with_notes(*note)

    def _whole(self) -> tuple[np.ndarray, list[Note]]:
        """Return positions in which no molecule is split at a box wall, and a note if atoms had to move."""
        ends = self.positions[self.atoms.bonds]
        if np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1).max(initial=0.0) <= LONGEST_BOND:
            return self.positions, []
        from peptidyn.io.images import join_images

        return join_images(self.atoms, self.positions, self.topology.getPeriodicBoxVectors(), self.name)

    def _with_bonds_of(self, system: Any) -> Structure:
        """Return the structure with the bonds of a System added, for atoms that have none."""
        loose = (np.bincount(self.atoms.bonds.ravel(), minlength=self.n_atoms) == 0) & (self.masses > 0)
        if len(self.atoms.bonds):
            loose &= np.bincount(self.atoms.residue)[self.atoms.residue] > 1  # not ions
        if not loose.any():
            return self
        from peptidyn.io.system_bonds import bonds_of_system

        bonds = bonds_of(self.topology)
        found = {
            pair: kind
            for pair, kind in bonds_of_system(system, self.atoms, self.positions).items()
            if loose[list(pair)].any() and pair not in bonds
        }
        if not bonds and not found and self.n_atoms > self.n_residues:
            raise StructureError(
                f"{self.name}: neither the Topology nor the System has any bond, so nothing tells what is rigid; add "
                "bonds to the Topology (createStandardBonds), or use a System with bond terms or constraints"
            )
        if not found:
            return self
        topology = copy_topology(self.topology, {**bonds, **found})
        text = f"{counted(len(found), 'bond')} that the Topology lacks taken from the System"
        notes = (*self.notes, Note("system-bonds", text))
        return replace(self, topology=topology, atoms=atoms_from_topology(topology), notes=notes)

    @classmethod
    def from_mdtraj(cls, trajectory: mdtraj.Trajectory, frame: int = 0, *, name: str = "structure") -> Structure:
        """Make a structure from one frame of an MDTraj trajectory.

        Masses come from the elements; bonds and the unit cell are the trajectory's own.
        """
        n_frames = trajectory.n_frames
        if not -n_frames <= frame < n_frames:
            raise ArgumentError(f"frame {frame} does not exist: the trajectory has {n_frames} frames")
        topology = trajectory.topology.to_openmm()
        if trajectory.unitcell_vectors is not None:
            topology.setPeriodicBoxVectors(reduced_box(trajectory.unitcell_vectors[frame]))
        return cls.from_openmm(topology, None, trajectory.xyz[frame].astype(np.float64), name=name)

    def with_positions(self, positions: Any) -> Structure:
        """Return the same structure at other positions (nm)."""
        return replace(self, positions=plain_array(positions))

    def with_masses(self, masses: Any) -> Structure:
        """Return the same structure with other masses (Da)."""
        new = plain_array(masses)
        if new.shape != (self.n_atoms,):
            raise ArgumentError(f"masses have shape {new.shape}, expected ({self.n_atoms},)")
        return replace(self, masses=new)

    def with_notes(self, *notes: Note) -> Structure:
        """Return the same structure with these notes added."""
        return replace(self, notes=self.notes + notes)

    def subset(self, selection: Any) -> Structure:
        """Return a structure of some of the atoms, in the order they have here.

        Bonds among the chosen atoms stay. Notes stay too, unless all the atoms they are about are gone; bonds that
        are cut are noted (kind ``cut``).

        Parameters
        ----------
        selection : str, or integer indices, or (n_atoms,) bool
            An MDTraj selection, or the atoms themselves.
        """
        chosen = self.select(selection) if isinstance(selection, str) else self._indices(selection)
        topology = copy_topology(self.topology, bonds_of(self.topology), keep=chosen.tolist())
        new_index = {int(old): new for new, old in enumerate(chosen)}
        notes = [n for n in (note.renumbered(new_index) for note in self.notes) if n is not None]
        inside = np.zeros(self.n_atoms, dtype=bool)
        inside[chosen] = True
        cut = self.atoms.bonds[inside[self.atoms.bonds[:, 0]] != inside[self.atoms.bonds[:, 1]]]
        if len(cut):
            ends = [int(i) if inside[i] else int(j) for i, j in cut]
            text = f"{counted(len(cut), 'bond')} to atoms left out cut, at {self.atoms.labels(ends)}"
            notes.append(Note("cut", text, tuple(new_index[e] for e in ends)))
        return replace(
            self,
            topology=topology,
            positions=self.positions[chosen],
            masses=self.masses[chosen],
            atoms=atoms_from_topology(topology),
            notes=tuple(notes),
            virtual_sites=self._sites_among(new_index),
        )

    def _sites_among(self, new_index: dict[int, int]) -> dict[int, tuple[int, ...]]:
        """Return the virtual sites among some atoms, renumbered; StructureError if one loses an atom it needs."""
        sites = {}
        for site, parents in self.virtual_sites.items():
            if site not in new_index:
                continue
            if not new_index.keys() >= set(parents):
                raise StructureError(
                    f"{self.atoms.label(site)} is a virtual site, placed by atoms that were not chosen; choose whole "
                    "molecules"
                )
            sites[new_index[site]] = tuple(new_index[parent] for parent in parents)
        return sites

    def _indices(self, selection: Any) -> np.ndarray:
        given = np.asarray(selection)
        if given.dtype == bool:
            if given.shape != (self.n_atoms,):
                raise SelectionError(f"the mask has shape {given.shape}, expected ({self.n_atoms},)")
            given = np.flatnonzero(given)
        if given.size == 0:
            raise SelectionError(f"no atom of {self.name} was chosen")
        if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
            raise SelectionError(
                f"atoms are chosen by a list of integers, a mask or an MDTraj selection, not by {selection!r}"
            )
        if given.min() < 0 or given.max() >= self.n_atoms:
            raise SelectionError(f"atom indices must be within 0 and {self.n_atoms - 1}")
        return np.unique(given).astype(np.int64)

    # ------------------------------------------------------------------ use

    def select(self, selection: str) -> np.ndarray:
        """Return the indices of the atoms that an MDTraj selection matches.

        Raises SelectionError, naming the selection, when it cannot be parsed or matches nothing.
        """
        return select_atoms(self.to_mdtraj().topology, selection, self.name)

    def to_mdtraj(self) -> mdtraj.Trajectory:
        """Return the structure as an MDTraj trajectory of one frame (single precision), with its unit cell."""
        import mdtraj

        trajectory = mdtraj.Trajectory(
            self.positions[None].astype(np.float32), mdtraj.Topology.from_openmm(self.topology)
        )
        box = self.topology.getPeriodicBoxVectors()
        if box is not None:
            trajectory.unitcell_vectors = plain_array(box)[None].astype(np.float32)
        return trajectory

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a PDB (``.pdb``) or mmCIF (``.cif``) file; mmCIF keeps long names and all digits."""
        from peptidyn.io.writers import write_structure

        write_structure(self, path)
