"""Completion: missing heavy atoms and hydrogens added.

PDBFixer's residue templates say how residues look, OpenMM's Modeller which hydrogens they carry. Nothing is fetched
from the network, atoms that are there keep their coordinates to the last bit, no residue is built where a loop is
missing, and the same input gives the same output.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError, StructureError
from peptidyn.core.residues import HYDROGENS, WATER, has_backbone
from peptidyn.core.units import plain_array
from peptidyn.io.altlocs import site_name
from peptidyn.io.bonding import settle_bonds
from peptidyn.io.composition import Hydrogen, missing_atoms, standard_residues
from peptidyn.io.notes import Note, counted, some
from peptidyn.io.placement import Shape, Surroundings, place_heavy_atoms, place_hydrogens
from peptidyn.io.quiet import seeded
from peptidyn.io.structure import Structure
from peptidyn.io.topology import atoms_from_topology, bonds_of, copy_topology

if TYPE_CHECKING:
    from openmm.app import Topology

_SEED = 20
_NEIGHBOUR_LIMIT = 0.45
"""CA-CA distance (nm) of chain neighbours at most, where C or N is missing; 0.38 is usual."""

_REJUDGED = frozenset({"gap", "disulfide", "stray", "pieces", "long-bond", "close-contact", "overlap"})
"""Notes that the bonds of the completed structure decide anew."""


def complete(structure: Structure, *, pH: float = 7.0, variants: Mapping[int, str] | None = None) -> Structure:
    """Add missing heavy atoms of existing residues, chain ends, and hydrogens.

    Parameters
    ----------
    structure : Structure
    pH : float
        Decides protonation where neither hydrogens that are there nor `variants` do.
    variants : mapping of residue index to OpenMM's variant names (``HID``, ``ASH``, ``CYX`` ...)

    Returns
    -------
    Structure
        With notes of kinds ``completed``, ``renamed`` (MSE to MET), ``dropped`` and ``not-completed``. Chain ends,
        also at gaps, are charged ends. Existing atoms are where they were.
    """
    if not 0 <= pH <= 14:
        raise ArgumentError(f"pH must be between 0 and 14, not {pH}")
    variants = dict(variants or {})
    whole, variants = _without_hopeless_residues(structure, variants)
    whole = _deuterium_to_hydrogen(_selenium_to_sulfur(whole))
    starts = _segment_starts(whole)
    apart = copy_topology(whole.topology, bonds_of(whole.topology), break_before=starts)
    with seeded(_SEED):
        heavy_topology, heavy_positions = _add_heavy_atoms(apart, whole.positions)
        topology, positions = _add_hydrogen_atoms(heavy_topology, heavy_positions, pH, variants)
    return _assemble(whole, apart, topology, positions, pH)


# ---------------------------------------------------------------------- before


def _without_hopeless_residues(structure: Structure, variants: dict[int, str]) -> tuple[Structure, dict[int, str]]:
    """Leave out amino acids with so little of their backbone that nothing says where the rest would be."""
    atoms = structure.atoms
    amino = {name for name, residue in standard_residues().items() if residue.is_amino_acid}
    tables = zip(atoms.residue_name.tolist(), atoms.residue_atoms, strict=True)
    few = [name in amino and len(table.keys() & {"N", "CA", "C", "CB"}) < 3 for name, table in tables]
    hopeless = np.flatnonzero(few).tolist()
    if not hopeless:
        return structure, variants
    keep = np.flatnonzero(~np.isin(atoms.residue, hopeless))
    if not keep.size:
        raise StructureError(f"{structure.name} cannot be completed: its residues lack most of their backbone atoms")
    shift = {old: new for new, old in enumerate(np.unique(atoms.residue[keep]).tolist())}
    named = some([atoms.residue_label(r) for r in hopeless])
    text = f"{counted(len(hopeless), 'residue')} with less than three of N, CA, C, CB left out: {named}"
    remaining = structure.subset(keep)
    notes = [note for note in remaining.notes if note.kind != "cut"]
    remaining = replace(remaining, notes=(*notes, Note("dropped", text)))
    return remaining, {shift[r]: v for r, v in variants.items() if r in shift}


def _selenium_to_sulfur(structure: Structure) -> Structure:
    """MSE is MET made visible to X-rays; force fields know MET."""
    from openmm.app import element

    atoms = structure.atoms
    residues = np.flatnonzero(atoms.residue_name == "MSE").tolist()
    selenium = [a for r in residues for a in atoms.residue_atoms[r].values() if atoms.element[a] == "Se"]
    kinds = dict.fromkeys(selenium, ("SD", element.sulfur))
    named = some([atoms.residue_label(r) for r in residues])
    text = f"MSE was made MET, its sulfur where the selenium was: {named}"
    return _renamed(structure, dict.fromkeys(residues, "MET"), kinds, text)


def _deuterium_to_hydrogen(structure: Structure) -> Structure:
    """Neutron structures name exchanged hydrogens D; force fields know H."""
    from openmm.app import element

    atoms = structure.atoms
    found = np.flatnonzero(atoms.element == "D").tolist()
    kinds = {a: (site_name(str(atoms.name[a]), "D"), element.hydrogen) for a in found}
    return _renamed(structure, {}, kinds, f"{counted(len(kinds), 'deuterium atom')} made hydrogen")


def _renamed(structure: Structure, residues: dict[int, str], kinds: dict[int, Any], text: str) -> Structure:
    """Return the structure with other residue names, atom names and elements, and a note; itself if there are none."""
    if not residues and not kinds:
        return structure
    bonds = bonds_of(structure.topology)
    topology = copy_topology(structure.topology, bonds, residue_names=residues, atom_kinds=kinds)
    notes = (*structure.notes, Note("renamed", text, tuple(kinds)))
    return Structure.from_openmm(topology, None, structure.positions, name=structure.name, notes=notes)


def _segment_starts(structure: Structure) -> set[int]:
    """Residues that start a piece of chain: PDBFixer and Modeller join whatever follows in one chain."""
    atoms = structure.atoms
    ends = np.sort(atoms.residue[atoms.bonds], axis=1)
    joined = set(ends[ends[:, 1] == ends[:, 0] + 1, 1].tolist())
    polymer = [_in_polymer(atoms, r) for r in range(atoms.n_residues)]
    apart = [s for s in range(1, len(polymer)) if (polymer[s - 1] or polymer[s]) and s not in joined]
    return {s for s in apart if not _may_be_loose(atoms, s, structure.positions)}


def _in_polymer(atoms: Atoms, residue: int) -> bool:
    name = str(atoms.residue_name[residue])
    return (name in standard_residues() and name != WATER) or has_backbone(atoms.residue_atoms[residue])


def _may_be_loose(atoms: Atoms, residue: int, positions: np.ndarray) -> bool:
    """Whether this residue follows the one before, and only lacks the atom that would show it."""
    before, here = atoms.residue_atoms[residue - 1], atoms.residue_atoms[residue]
    if atoms.residue_chain[residue - 1] != atoms.residue_chain[residue] or ("C" in before and "N" in here):
        return False
    if "CA" not in before or "CA" not in here:
        return False
    return bool(np.linalg.norm(positions[before["CA"]] - positions[here["CA"]]) < _NEIGHBOUR_LIMIT)


# ---------------------------------------------------------------------- the libraries


def _add_heavy_atoms(topology: Topology, positions: np.ndarray) -> tuple[Topology, np.ndarray]:
    """Add the missing heavy atoms of residues that are there, and OXT at the ends of the pieces of chain."""
    from openmm.app import Element

    atoms = atoms_from_topology(topology)
    shapes = _shapes()
    surroundings = Surroundings(positions)
    linked: dict[int, dict[str, np.ndarray]] = defaultdict(dict)
    for i, j in atoms.bonds.tolist():
        if atoms.residue[i] != atoms.residue[j]:
            linked[int(atoms.residue[i])][str(atoms.name[i])] = positions[j]
            linked[int(atoms.residue[j])][str(atoms.name[j])] = positions[i]
    for r in range(1, atoms.n_residues):
        if _may_be_loose(atoms, r, positions):
            if (nitrogen := atoms.residue_atoms[r].get("N")) is not None:
                linked[r - 1]["C"] = positions[nitrogen]
            if (carbon := atoms.residue_atoms[r - 1].get("C")) is not None:
                linked[r]["N"] = positions[carbon]
    added: dict[int, dict[str, np.ndarray]] = {}
    for lack in missing_atoms(atoms):
        shape = shapes.get(str(atoms.residue_name[lack.residue]))
        if lack.heavy and shape is not None:
            present = {name: positions[a] for name, a in atoms.residue_atoms[lack.residue].items()}
            places = place_heavy_atoms(shape, present, lack.heavy, linked[lack.residue], surroundings)
            if places:
                added[lack.residue] = places
    if not added:
        return topology, positions
    # heavy atoms of standard residues have elements of one letter, with which their names begin
    extra = {r: [(name, Element.getBySymbol(name[0])) for name in places] for r, places in added.items()}
    bigger = copy_topology(topology, bonds_of(topology), extra_atoms=extra)
    bigger.createStandardBonds()
    rows = []
    for r, members in enumerate(np.split(positions, np.flatnonzero(np.diff(atoms.residue)) + 1)):
        rows += [*members, *added.get(r, {}).values()]
    return bigger, np.array(rows)


@cache
def _shapes() -> dict[str, Shape]:
    """The residue templates that PDBFixer ships.

    Only their coordinates are used. PDBFixer's own placement may mirror a template that is fitted to few atoms, which
    turns L into D amino acids.
    """
    from pdbfixer import PDBFixer

    shapes = {}
    for name, template in PDBFixer(pdbfile=io.StringIO(_ANY_PDB)).templates.items():
        xyz = plain_array(template.positions)
        names = [atom.name for atom in template.topology.atoms()]
        neighbours: dict[str, list[str]] = {n: [] for n in names}
        for bond in template.topology.bonds():
            neighbours[bond[0].name].append(bond[1].name)
            neighbours[bond[1].name].append(bond[0].name)
        shapes[name] = Shape(dict(zip(names, xyz, strict=True)), {n: tuple(v) for n, v in neighbours.items()})
    return shapes


_ANY_PDB = "ATOM      1  O   HOH A   1       0.000   0.000   0.000  1.00  0.00           O\nEND\n"


def _add_hydrogen_atoms(
    topology: Topology, positions: np.ndarray, pH: float, variants: Mapping[int, str]
) -> tuple[Topology, np.ndarray]:
    """Let OpenMM's Modeller say which hydrogens there are; it only puts them roughly in place."""
    from openmm import Platform, unit
    from openmm.app import Modeller

    wanted = [_variant(residue, variants.get(residue.index)) for residue in topology.residues()]
    _spare_closed_rings(topology, wanted, pH)
    modeller = Modeller(topology, positions * unit.nanometer)
    # this platform gives the same bits every time, and for so little work it is as fast as the others
    modeller.addHydrogens(pH=pH, variants=wanted, platform=Platform.getPlatformByName("Reference"))
    return modeller.topology, plain_array(modeller.positions)


def _variant(residue: Any, variant: str | None) -> str | None:
    """The protonation state to ask for: none if hydrogens that are there speak against it, they would be removed."""
    template = standard_residues().get(residue.name)
    if variant is None or template is None:
        return None
    allowed = {h.name for h in template.hydrogens if not h.variants or variant in h.variants}
    present = {a.name for a in residue.atoms() if a.element is not None and a.element.symbol in HYDROGENS}
    return variant if present <= allowed else None


def _spare_closed_rings(topology: Topology, wanted: list[Any], pH: float) -> None:
    """The first N of a ring closed end to end is not an amino end: name its hydrogens one by one."""
    bonded: dict[Any, list[Any]] = {atom: [] for atom in topology.atoms()}
    for bond in topology.bonds():
        bonded[bond[0]].append(bond[1])
        bonded[bond[1]].append(bond[0])
    for chain in topology.chains():
        first = next(chain.residues())
        template = standard_residues().get(first.name)
        nitrogen = next((a for a in first.atoms() if a.name == "N"), None)
        if template is None or nitrogen is None or all(b.residue is first for b in bonded[nitrogen]):
            continue
        chosen: list[tuple[str, str]] = []
        for parent in first.atoms():
            there = [b.name for b in bonded[parent] if b.element is not None and b.element.symbol in HYDROGENS]
            expected = [h.name for h in template.hydrogens if h.parent == parent.name and _usual(h, pH, bonded[parent])]
            new = [name for name in expected if name not in there][: max(0, len(expected) - len(there))]
            chosen += [(name, parent.name) for name in there + new]
        wanted[first.index] = chosen


def _usual(hydrogen: Hydrogen, pH: float, bonded: list[Any]) -> bool:
    """Whether this hydrogen is there at this pH, away from chain ends."""
    if hydrogen.terminal or pH > hydrogen.max_pH:
        return False
    if hydrogen.parent == "SG":
        return len(bonded) < 2
    # Neutral histidine: the hydrogen on NE2.
    return not hydrogen.variants or "HIE" in hydrogen.variants or not any(v.startswith("HI") for v in hydrogen.variants)


# ---------------------------------------------------------------------- after


def _assemble(old: Structure, apart: Topology, new: Topology, positions: np.ndarray, pH: float) -> Structure:
    """Join the pieces of chain again, put existing atoms back to the bit, and judge the bonds once more."""
    new_of = _match(apart, new, old.name)
    xyz = positions.copy()
    xyz[list(new_of.values())] = old.positions[list(new_of)]
    chain_of_residue = old.atoms.residue_chain.tolist()
    groups = [chain_of_residue[next(chain.residues()).index] for chain in new.chains()]
    added = set(range(new.getNumAtoms())) - set(new_of.values())
    bonds = {pair: kind for pair, kind in bonds_of(new).items() if added.intersection(pair)}
    for (i, j), kind in bonds_of(old.topology).items():
        a, b = sorted((new_of[i], new_of[j]))
        bonds[a, b] = kind
    box = old.topology.getPeriodicBoxVectors()
    topology = copy_topology(new, bonds, join_chains=groups)
    topology.setPeriodicBoxVectors(box)
    complete_atoms = atoms_from_topology(topology)
    xyz = place_hydrogens(complete_atoms, xyz, (a for a in added if complete_atoms.element[a] in HYDROGENS))
    settled, bond_notes = settle_bonds(complete_atoms, xyz, bonds)
    topology = copy_topology(topology, settled)
    atoms = atoms_from_topology(topology)
    kept = [n.renumbered(new_of) for n in old.notes if n.kind not in _REJUDGED]
    notes = [n for n in kept if n is not None] + [n for n in bond_notes if n.kind in _REJUDGED]
    notes += _completion_notes(atoms, sorted(added), pH)
    return Structure.from_openmm(topology, None, xyz, name=old.name, notes=tuple(notes))


def _match(old: Topology, new: Topology, name: str) -> dict[int, int]:
    """Map old atoms to new ones: both libraries keep the order of what was there and insert between."""
    new_of: dict[int, int] = {}
    for before, after in zip(old.residues(), new.residues(), strict=True):
        candidates = iter(after.atoms())
        for atom in before.atoms():
            found = next((c for c in candidates if c.name == atom.name), None)
            if found is None:
                raise StructureError(
                    f"{name} cannot be completed: atom {atom.name} of residue {before.name} {before.id} was lost; "
                    "remove the hydrogens of this residue and try again"
                )
            new_of[atom.index] = found.index
    return new_of


def _completion_notes(atoms: Atoms, added: list[int], pH: float) -> list[Note]:
    notes = []
    heavy = [a for a in added if atoms.element[a] not in HYDROGENS]
    if heavy:
        text = f"{counted(len(heavy), 'missing heavy atom')} added: {atoms.labels(heavy)}"
        notes.append(Note("completed", text, tuple(heavy)))
    hydrogens = [a for a in added if atoms.element[a] in HYDROGENS]
    if hydrogens:
        residues = len(set(atoms.residue[hydrogens].tolist()))
        text = f"{counted(len(hydrogens), 'hydrogen')} added to {counted(residues, 'residue')} at pH {pH:g}"
        notes.append(Note("completed", text, tuple(hydrogens)))
    unknown = [
        r
        for r, table in enumerate(atoms.residue_atoms)
        if not getattr(standard_residues().get(str(atoms.residue_name[r])), "hydrogens", ())
        and any(atoms.element[a] == "C" for a in table.values())
        and not any(atoms.element[a] in HYDROGENS for a in table.values())
    ]
    if unknown:
        named = some([atoms.residue_label(r) for r in unknown])
        text = (
            f"no hydrogens were added to {counted(len(unknown), 'residue')} that no table lists hydrogens for: {named}"
        )
        notes.append(Note("not-completed", text, tuple(a for r in unknown for a in atoms.residue_atoms[r].values())))
    return notes
