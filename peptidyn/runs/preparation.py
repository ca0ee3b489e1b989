"""From a file to the structure that is simulated: completed, and in the solvent that was asked for.

Implicit solvent and vacuum: waters are left out in implicit solvent and stay in vacuum. Explicit solvent: a file whose
box is full of water is taken as it is; otherwise a cubic box of water, with ions that neutralise it, is put around
what the file holds.
"""

from __future__ import annotations

import numpy as np
import openmm
from openmm import app, unit

from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.core.periodic import make_whole, spanning_order
from peptidyn.core.residues import is_water
from peptidyn.core.units import plain_array
from peptidyn.engine.inputs import LoadedSystem, load_system
from peptidyn.engine.systems import IMPLICIT, WATER_MODELS, load_force_field, undescribed
from peptidyn.io.notes import Note, counted
from peptidyn.io.peptides import build_peptide
from peptidyn.io.quiet import seeded
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure
from peptidyn.io.topology import bonds_of, copy_topology
from peptidyn.runs.settings import ModelSettings

PADDING = 1.0
"""Default layer of water around a molecule, nm."""

FULL_BOX = 0.8
"""A box with waters and at least this density, g/cm^3, is taken as solvated."""

_GRAMS_PER_CM3 = 1.66053907e-3
"""Of one Da/nm^3."""


def prepare_structure(settings: ModelSettings) -> Structure:
    """Return the structure to simulate: read or built, completed, and in its solvent.

    Its bonds and chain names are in the form in which a resumed run reads them from topology.cif, so that both have the
    same forces in the same order.
    """
    if settings.brings_parameters:
        return load_prepared(settings).structure
    if settings.file is None:
        structure = build_peptide("A" * 10)
    else:
        structure = load_structure(settings.file, add_hydrogens=None, pH=settings.pH)
        if settings.select is not None:
            structure = structure.subset(settings.select)
    if settings.solvent in IMPLICIT:
        structure = _without_waters(structure, settings)
    elif settings.solvent in WATER_MODELS:
        structure = _in_water(structure, settings)
    chains = [chain.id.strip() for chain in structure.topology.chains()]
    topology = copy_topology(structure.topology, bonds_of(structure.topology), chain_ids=chains)
    return Structure.from_openmm(topology, None, structure.positions, name=structure.name, notes=structure.notes)


def load_prepared(settings: ModelSettings) -> LoadedSystem:
    """Return what a prmtop, psf or top file holds, with molecules made whole."""
    assert settings.file is not None
    loaded = load_system(
        settings.file, settings.coordinates, parameters=settings.parameters, include=settings.include,
        solvent=settings.solvent, cutoff=settings.cutoff,
    )  # fmt: skip
    whole = make_molecules_whole(loaded.structure)
    if whole is loaded.structure:
        return loaded
    placed = Structure.from_openmm(whole.topology, loaded.system, whole.positions, name=whole.name, notes=whole.notes)
    return LoadedSystem(placed, loaded.system)


def find_waters(structure: Structure) -> np.ndarray:
    """Return a mask (n_atoms,) of the atoms of waters."""
    return is_water(structure.atoms)[structure.atoms.residue]


def _count_residues(structure: Structure, mask: np.ndarray) -> int:
    return len(np.unique(structure.atoms.residue[mask]))


def _without_waters(structure: Structure, settings: ModelSettings) -> Structure:
    water = find_waters(structure)
    if water.all():
        raise ArgumentError(f"{settings.file} holds water only; implicit solvent leaves nothing to simulate")
    if not water.any():
        return structure
    number = counted(_count_residues(structure, water), "water")
    note = Note("water", f"{number} left out: the solvent {settings.solvent} is implicit")
    return structure.subset(~water).with_notes(note)


# ---------------------------------------------------------------------------- explicit solvent


def _in_water(structure: Structure, settings: ModelSettings) -> Structure:
    """Return the structure in a box of water: its own if it has one, else a new one."""
    water = find_waters(structure)
    density = _density(structure)
    if settings.padding is None and water.any() and density >= FULL_BOX:
        number = counted(_count_residues(structure, water), "water")
        note = Note("solvent", f"the box of the file is used: {number}, {density:.2f} g/cm3")
        return make_molecules_whole(structure).with_notes(note)
    return add_water(structure, settings)


def _density(structure: Structure) -> float:
    """Return the mass in the periodic box, g/cm^3; 0 without a box."""
    box = structure.topology.getPeriodicBoxVectors()
    if box is None:
        return 0.0
    return _GRAMS_PER_CM3 * float(structure.masses.sum()) / abs(np.linalg.det(plain_array(box)))


def add_water(structure: Structure, settings: ModelSettings) -> Structure:
    """Return the structure in the middle of a new cubic box of water, neutralised, with salt if asked for.

    The side of the box is the diameter of the structure plus twice the padding. Waters of the file stay.
    """
    padding = PADDING if settings.padding is None else settings.padding
    low, high = structure.positions.min(axis=0), structure.positions.max(axis=0)
    diameter = 2.0 * float(np.linalg.norm(structure.positions - 0.5 * (low + high), axis=1).max())
    side = max(diameter + 2.0 * padding, 2.0 * settings.cutoff + 0.02)
    field = load_force_field(settings.solvent, settings.forcefield)
    modeller = app.Modeller(structure.topology, structure.positions * unit.nanometer)
    try:
        with seeded(settings.seed):
            modeller.addSolvent(
                field,
                model="spce" if settings.solvent == "spce" else "tip3p",
                boxSize=openmm.Vec3(side, side, side) * unit.nanometer,
                ionicStrength=settings.ions * unit.molar,
            )
    except ValueError as error:
        raise ModelError(undescribed(field, structure.topology, error)) from error
    new = Structure.from_openmm(modeller.topology, None, modeller.positions, name=structure.name, notes=structure.notes)
    added = is_water(new.atoms)[structure.n_residues :]
    waters = int(added.sum())
    text = f"{counted(waters, 'water')} and {counted(len(added) - waters, 'ion')} added in a cubic box of {side:.2f} nm"
    kept = _count_residues(structure, find_waters(structure))
    if kept:
        text += f"; {counted(kept, 'water')} of the file kept"
    return new.with_notes(Note("solvent", text))


def make_molecules_whole(structure: Structure) -> Structure:
    """Return the structure with every atom at the periodic image that is nearest to an atom it is bonded to."""
    box = structure.topology.getPeriodicBoxVectors()
    if box is None:
        return structure
    x = structure.positions[None].copy()
    edges = plain_array(box)[None]
    make_whole(x, edges, np.linalg.inv(edges), *spanning_order(structure.atoms))
    moved = int((np.abs(x[0] - structure.positions).max(axis=1) > 1e-6).sum())
    if not moved:
        return structure
    note = Note("box", f"{counted(moved, 'atom')} moved to another periodic image, so that molecules are whole")
    return structure.with_positions(x[0]).with_notes(note)
