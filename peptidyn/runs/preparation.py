"""From a file to the structure that is simulated: completed, and in the solvent that was asked for.

Implicit solvent and vacuum: waters are left out in implicit solvent and stay in vacuum. Explicit solvent: a file whose
box is full of water is taken as it is; otherwise a cubic box of water, with ions that neutralise it, is put around
what the file holds. Waters have the virtual sites of the model that was asked for, whatever the file had.
"""

from __future__ import annotations

import numpy as np
import openmm
from openmm import app, unit

from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.core.residues import is_water
from peptidyn.core.units import plain_array
from peptidyn.engine.inputs import LoadedSystem, load_system
from peptidyn.engine.systems import CUTOFF, FOUR_SITES, IMPLICIT, WATER_MODELS, load_force_field, undescribed
from peptidyn.io.notes import Note, counted
from peptidyn.io.peptides import build_peptide
from peptidyn.io.quiet import seeded
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure
from peptidyn.io.topology import bonds_of, copy_topology
from peptidyn.runs.settings import ModelSettings, RunSettings

PADDING = 1.0
"""Default layer of water around a molecule, nm."""

FULL_BOX, DENSEST_BOX = 0.8, 1.6
"""A box with waters and a density between these, g/cm^3, is taken as solvated."""

BULK = 0.5
"""Waters with more than this part of the mass of everything else are bulk water; crystals hold fewer."""

_GRAMS_PER_CM3 = 1.66053907e-3
"""Of one Da/nm^3."""


def prepare_structure(settings: ModelSettings) -> Structure:
    """Return the structure to simulate: read or built, completed, and in its solvent.

    Its bonds and chain names are in the form in which a resumed run reads them from topology.cif, so that both have the
    same forces in the same order.
    """
    if settings.start is not None:
        from peptidyn.runs.starting_points import starting_structure  # reads folders of runs, which need this file

        structure = starting_structure(settings)
        if settings.brings_parameters:
            return structure
    elif settings.brings_parameters:
        return load_prepared(settings).structure
    elif settings.file is None:
        structure = build_peptide("A" * 10)
    else:
        structure = load_structure(settings.file, model=settings.model, add_hydrogens=None, pH=settings.pH)
    if settings.select is not None:
        structure = _select(structure, settings.select, settings.pH)
    if settings.solvent in IMPLICIT:
        structure = _without_waters(structure, settings)
    else:
        structure = _with_sites(structure, settings)
        if settings.solvent in WATER_MODELS:
            structure = _in_water(structure, settings)
    chains = [chain.id.strip() for chain in structure.topology.chains()]
    topology = copy_topology(structure.topology, bonds_of(structure.topology), chain_ids=chains)
    return Structure.from_openmm(topology, None, structure.positions, name=structure.name, notes=structure.notes)


def load_prepared(settings: ModelSettings) -> LoadedSystem:
    """Return what a prmtop, psf or top file holds."""
    assert settings.file is not None
    return load_system(
        settings.file, settings.coordinates, parameters=settings.parameters, include=settings.include,
        solvent=settings.solvent, cutoff=settings.cutoff,
    )  # fmt: skip


def find_waters(structure: Structure) -> np.ndarray:
    """Return a mask (n_atoms,) of the atoms of waters."""
    return is_water(structure.atoms)[structure.atoms.residue]


def _select(structure: Structure, selection: str, pH: float) -> Structure:
    """Return the chosen atoms; where whole residues are left out of a chain, its new ends are completed."""
    chosen = structure.select(selection)
    part = structure.subset(chosen)
    residues = np.unique(structure.atoms.residue[chosen])
    if part.missing and np.isin(structure.atoms.residue, residues).sum() == len(chosen):
        from peptidyn.io.completion import complete  # which imports PDBFixer

        part = complete(part, pH=pH)
    return part


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


def _with_sites(structure: Structure, settings: ModelSettings) -> Structure:
    """Return the structure with the virtual sites of its waters that the solvent needs, and no others."""
    waters = _count_residues(structure, find_waters(structure))
    wanted = waters if settings.solvent in FOUR_SITES else 0
    if len(structure.virtual_sites) == wanted:
        return structure
    if structure.virtual_sites:
        structure = structure.subset(np.setdiff1d(np.arange(structure.n_atoms), list(structure.virtual_sites)))
    if not wanted:
        return structure
    field = load_force_field(settings.solvent, settings.forcefield)
    modeller = app.Modeller(structure.topology, structure.positions * unit.nanometer)
    try:
        modeller.addExtraParticles(field)
    except ValueError as error:
        raise ModelError(undescribed(field, structure.topology, error)) from error
    return Structure.from_openmm(
        modeller.topology, None, modeller.positions, name=structure.name, notes=structure.notes
    )  # fmt: skip


def _in_water(structure: Structure, settings: ModelSettings) -> Structure:
    """Return the structure in a box of water: its own if it has one, else a new one.

    A file that is full of water but has no box that fits is refused, unless a new box is asked for by padding.
    """
    water = find_waters(structure)
    if settings.padding is not None or not water.any():
        return add_water(structure, settings)
    density = _density(structure)
    number = counted(_count_residues(structure, water), "water")
    if FULL_BOX <= density <= DENSEST_BOX or (settings.start is not None and density):
        note = Note("solvent", f"the box of the file is used: {number}, {density:.2f} g/cm3")
        return structure.with_notes(note)
    if structure.masses[water].sum() > BULK * structure.masses[~water].sum():
        box = f"a box in which their density would be {density:.2g} g/cm3" if density else "no periodic box"
        raise ArgumentError(
            f"{structure.name} holds {number} and {box}; give the file the box it was made with (CRYST1 in PDB, _cell "
            "in mmCIF) to simulate these waters, select='not water' to replace them by a new box, or padding=1.0 to "
            "keep them and add so much water (nm) around"
        )
    return add_water(structure, settings)


def _density(structure: Structure) -> float:
    """Return the mass in the periodic box, g/cm^3; 0 without a box."""
    box = structure.topology.getPeriodicBoxVectors()
    if box is None:
        return 0.0
    return _GRAMS_PER_CM3 * float(structure.masses.sum()) / abs(np.linalg.det(plain_array(box)))


def _filling(solvent: str) -> str:
    """Return the water of Modeller.addSolvent that is nearest to a solvent."""
    return "spce" if solvent == "spce" else "tip4pew" if solvent in FOUR_SITES else "tip3p"


def add_water(structure: Structure, settings: ModelSettings) -> Structure:
    """Return the structure in the middle of a new cubic box of water, neutralised, with salt if asked for.

    The side of the box is the diameter of the structure plus twice the padding. Waters of the file stay.
    """
    padding = PADDING if settings.padding is None else settings.padding
    low, high = structure.positions.min(axis=0), structure.positions.max(axis=0)
    diameter = 2.0 * float(np.linalg.norm(structure.positions - 0.5 * (low + high), axis=1).max())
    breathes = isinstance(settings, RunSettings) and settings.pressure is not None  # the box may become smaller
    side = max(diameter + 2.0 * padding, 2.0 * (settings.cutoff or CUTOFF) + (0.2 if breathes else 0.02))
    field = load_force_field(settings.solvent, settings.forcefield)
    modeller = app.Modeller(structure.topology, structure.positions * unit.nanometer)
    try:
        with seeded(settings.seed):
            modeller.addSolvent(
                field,
                model=_filling(settings.solvent),
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
