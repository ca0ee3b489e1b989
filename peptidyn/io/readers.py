"""`load_structure`: PDB and mmCIF files become a `Structure`.

Lines or rows of one model and one conformer are picked, OpenMM's own readers make the topology from them
(elements, standard names, large files, unit cell), and the bonds are then judged by distance. What was noticed
on the way is kept in the structure's notes; what makes no sense is a StructureError.
"""

from __future__ import annotations

import bz2
import gzip
import operator
import os
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError, StructureError
from peptidyn.core.residues import WATER, protonation_variant
from peptidyn.io.bonding import coincidence_error, coincident_pairs, settle_bonds
from peptidyn.io.images import join_images
from peptidyn.io.notes import Note, counted, some
from peptidyn.io.raw import MMCIF, PACKED, PDB, RawStructure, extension
from peptidyn.io.structure import Structure, check_finite
from peptidyn.io.topology import atoms_from_topology, bonds_of, copy_topology, masses_from_elements


def load_structure(
    path: str | os.PathLike[str],
    *,
    model: int = 0,
    add_hydrogens: bool | None = False,
    pH: float = 7.0,
    extra_particles: bool = False,
) -> Structure:
    """Read a structure file.

    Parameters
    ----------
    path : str or path
        ``.pdb``, ``.ent``, ``.cif``, ``.mmcif`` or ``.pdbx``, plain or with ``.gz`` or ``.bz2``.
    model : int
        Which model of the file, counted from 0.
    add_hydrogens : bool or None
        Complete the structure: missing hydrogens and missing heavy atoms of existing residues are added, MSE becomes
        MET, and chain ends, also those at a gap, become charged ends. Atoms that are there do not move, and
        missing residues are not built. None does so only if something is missing; without it, that is only noted.
    pH : float
        For the protonation of added hydrogens.
    extra_particles : bool
        Keep the sites without mass that water models have (TIP4P's M), as virtual sites.

    Returns
    -------
    Structure
        Chains, residues and insertion codes have the author's names; atom names and residue names are standard ones
        (``HID`` becomes ``HIS``; its hydrogens stay as they are).

    Raises
    ------
    StructureError
        With one sentence that names the place, for a file that cannot be read or makes no sense.

    Notes
    -----
    - Alternate locations: per residue the conformer with the highest occupancy, the first among equals.
    - A chain is broken where C and N are further apart than `peptidyn.io.bonding.PEPTIDE_BOND_LIMIT`.
    - A molecule that was split at a wall of the file's box is made whole. Without a box it is refused.
    - Disulfides come from records and distances. Metal contacts are not bonds.
    - Extra particles of water models (TIP4P's M) are left out unless asked for: they have no mass, and force fields
      that need them say where they are.
    """
    model = _model_index(model)
    path = Path(path)
    text, is_mmcif = _read_text(path)
    raw = _read(text, is_mmcif, model, path.name)
    structure = _settle(raw, path.name, extra_particles)
    variants = {r: v for r, name in enumerate(raw.file_names) if (v := protonation_variant(name)) is not None}
    if add_hydrogens or (add_hydrogens is None and structure.missing):
        from peptidyn.io.completion import complete

        structure = complete(structure, pH=pH, variants=variants)
    return structure.with_notes(*missing_notes(structure))


def _model_index(model: int) -> int:
    try:
        index = operator.index(model)
    except TypeError:
        index = -1
    if index < 0:
        raise ArgumentError(f"model must be an integer counted from 0, not {model!r}")
    return index


def _read_text(path: Path) -> tuple[str, bool]:
    """Return the text of the file and whether it is mmCIF."""
    name = path.name
    suffix = extension(path)
    if suffix not in PDB + MMCIF:
        allowed, packed = ", ".join(PDB + MMCIF), " or ".join(PACKED)
        raise StructureError(
            f"cannot tell the format of {name}: its name must end in {allowed}, or one of these with {packed}"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StructureError(f"cannot read {path}: {error.strerror}") from error
    if path.suffix.lower() in PACKED:
        kind, unpack = ("gzip", gzip.decompress) if path.suffix.lower() == ".gz" else ("bzip2", bz2.decompress)
        try:
            data = unpack(data)
        except (EOFError, OSError, ValueError, zlib.error) as error:
            raise StructureError(f"cannot unpack {name} ({error}); is it cut short, or not {kind}?") from error
    if not data.strip():
        raise StructureError(f"{name} is empty")
    if b"\0" in data or data.startswith(b"\x1f\x8b"):
        raise StructureError(f"{name} is a binary file, not a text file in PDB or mmCIF format")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # remarks of old files; junk fails below for want of atoms
    _check_format(text, suffix in MMCIF, name)
    return text, suffix in MMCIF


def _check_format(text: str, is_mmcif: bool, name: str) -> None:
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    looks_mmcif = next(lines, "").lower().startswith("data_")
    if looks_mmcif and not is_mmcif:
        raise StructureError(f"{name} holds mmCIF text; let its name end in .cif")
    if is_mmcif and not looks_mmcif:
        raise StructureError(f"{name} is not an mmCIF file: it does not start with a line data_...")


def _read(text: str, is_mmcif: bool, model: int, name: str) -> RawStructure:
    if is_mmcif:
        from peptidyn.io.mmcif_format import read_mmcif

        return read_mmcif(text, model, name)
    from peptidyn.io.pdb_format import read_pdb

    return read_pdb(text, model, name)


def _settle(raw: RawStructure, name: str, extra_particles: bool) -> Structure:
    """Make a structure of what a format reader found: elements known, bonds judged, no two atoms in one place."""
    notes = [*raw.notes, *_renamed_note(raw)]
    bonds = bonds_of(raw.topology)
    for link in raw.links:
        bonds.setdefault(link, (None, None))
    topology = copy_topology(raw.topology, bonds, chain_ids=raw.chain_ids, residue_ids=raw.residue_ids)
    atoms = atoms_from_topology(topology)
    check_finite(atoms, raw.positions)
    keep, dropped_note = _without_extra_particles(atoms)
    positions, whole = raw.positions, topology
    if len(keep) < atoms.n_atoms:
        notes += [] if extra_particles else dropped_note
        topology = copy_topology(topology, bonds, keep=keep)
        positions = positions[keep]
        atoms = atoms_from_topology(topology)
    masses_from_elements(atoms)  # raises for elements that nobody knows, before distances are judged by them
    recorded = bonds_of(topology)
    positions, image_note = join_images(atoms, positions, topology.getPeriodicBoxVectors(), name, recorded)
    notes += image_note
    settled, bond_notes = settle_bonds(atoms, positions, recorded)
    topology = copy_topology(topology, settled)
    atoms = atoms_from_topology(topology)
    notes += bond_notes
    notes += _overlap_note(atoms, positions)
    if extra_particles and len(keep) < len(raw.positions):
        topology = copy_topology(whole, {(keep[i], keep[j]): kind for (i, j), kind in settled.items()})
        positions = _with_extra_particles(atoms_from_topology(topology), raw.positions, positions, keep)
    return Structure.from_openmm(topology, None, positions, name=name, notes=tuple(notes))


def _renamed_note(raw: RawStructure) -> list[Note]:
    names = zip(raw.file_names, (residue.name for residue in raw.topology.residues()), strict=True)
    changes = Counter((old, new) for old, new in names if old != new)
    if not changes:
        return []
    listed = ", ".join(f"{old} to {new} ({n})" for (old, new), n in changes.items())
    return [Note("renamed", f"residue names were made standard, their atoms stay as they are: {listed}")]


def _without_extra_particles(atoms: Atoms) -> tuple[list[int], list[Note]]:
    """Leave out the sites without mass that water models have; any other unknown element is an error later on."""
    in_water = atoms.residue_name[atoms.residue] == WATER
    extra = np.flatnonzero((atoms.element == "") & in_water)
    keep = np.setdiff1d(np.arange(atoms.n_atoms), extra).tolist()
    if not extra.size:
        return keep, []
    text = (
        f"{counted(extra.size, 'extra particle')} of water, which have no mass, left out: {atoms.labels(extra, most=2)}"
    )
    return keep, [Note("dropped", text)]


def _with_extra_particles(atoms: Atoms, read: np.ndarray, settled: np.ndarray, keep: list[int]) -> np.ndarray:
    """Return positions of all atoms; extra particles go with the first atom of their water, if that was moved."""
    positions = read.copy()
    positions[keep] = settled
    first = np.searchsorted(atoms.residue, atoms.residue)
    extra = np.setdiff1d(np.arange(atoms.n_atoms), keep)
    positions[extra] += (positions - read)[first[extra]]
    return positions


def _overlap_note(atoms: Atoms, positions: np.ndarray) -> list[Note]:
    pairs = coincident_pairs(positions)
    if not pairs:
        return []
    n = atoms.n_atoms
    graph = coo_matrix((np.ones(len(atoms.bonds)), (atoms.bonds[:, 0], atoms.bonds[:, 1])), shape=(n, n))
    molecule = connected_components(graph, directed=False)[1]
    for i, j in pairs:
        if molecule[i] == molecule[j]:
            raise coincidence_error(atoms, i, j)
    shown = some([f"{atoms.label(i)} and {atoms.label(j)}" for i, j in pairs])
    text = f"atoms of different molecules are at the same place: {shown}"
    return [Note("overlap", text, tuple(a for pair in pairs for a in pair))]


def missing_notes(structure: Structure) -> list[Note]:
    """Say what the standard residues, caps and waters of a structure lack."""
    notes = []
    for kind, what in (("missing-atoms", "heavy"), ("missing-hydrogens", "hydrogens")):
        lacking = [(m.residue, getattr(m, what)) for m in structure.missing if getattr(m, what)]
        if lacking:
            atoms = structure.atoms
            count = sum(len(names) for _, names in lacking)
            shown = some([f"{atoms.residue_label(r)} lacks {', '.join(names)}" for r, names in lacking])
            missing = counted(count, "heavy atom" if what == "heavy" else "hydrogen")
            concerned = tuple(a for r, _ in lacking for a in structure.atoms.residue_atoms[r].values())
            notes.append(Note(kind, f"{missing} missing in {counted(len(lacking), 'residue')}: {shown}", concerned))
    return notes
