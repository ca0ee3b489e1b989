"""Structures written to PDB and mmCIF files, whole or not at all."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peptidyn.core.errors import StructureError
from peptidyn.core.files import write_text
from peptidyn.core.units import ANGSTROM
from peptidyn.io.composition import standard_residues
from peptidyn.io.raw import CELL, MMCIF, PDB

if TYPE_CHECKING:
    from peptidyn.io.structure import Structure


def write_structure(structure: Structure, path: str | os.PathLike[str]) -> None:
    """Write a structure to a ``.pdb`` or ``.cif`` file.

    PDB has 1e-4 nm for coordinates and one letter for a chain (OpenMM replaces longer names by letters); mmCIF keeps
    names and coordinates in full. The file appears at once when complete; an existing one is replaced.
    """
    path = Path(path)
    makers = dict.fromkeys(PDB, _pdb_text) | dict.fromkeys(MMCIF, mmcif_text)
    maker = makers.get(path.suffix.lower())
    if maker is None:
        raise StructureError(f"cannot write {path.name}: the name must end in one of {', '.join(makers)}")
    write_text(path, maker(structure))


def _pdb_text(structure: Structure) -> str:
    from openmm import unit
    from openmm.app import PDBFile

    atoms = structure.atoms
    long_names = sorted({n for n in atoms.residue_name.tolist() if len(n) > 3})
    long_names += sorted({n for n in atoms.name.tolist() if len(n) > 4})
    if long_names:
        raise StructureError(
            f"the names {', '.join(long_names[:5])} are too long for the PDB format; write a .cif file instead"
        )
    stream = io.StringIO()
    try:
        PDBFile.writeFile(structure.topology, structure.positions * unit.nanometer, stream, keepIds=True)
    except ValueError as error:
        raise StructureError(
            f"{structure.name} does not fit into the PDB format ({error}); write a .cif file instead"
        ) from error
    # OpenMM begins with a remark that holds today's date; the same structure shall give the same file on any day.
    lines = stream.getvalue().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("REMARK   1 CREATED WITH OPENMM"))


def mmcif_text(structure: Structure) -> str:
    """Return a structure as the text of an mmCIF file, names and coordinates in full."""
    table: dict[str, str | list[str]] = {"data_": "".join(structure.name.split()) or "structure"}
    table.update(_cell(structure))
    table.update(_atom_sites(structure))
    table.update(_connections(structure))
    return mmcif_tables(table)


def mmcif_tables(values: dict[str, str | list[str]]) -> str:
    """Return columns by name, such as ``_cell.length_a``, as the text of an mmCIF file."""
    from Bio.PDB.mmcifio import MMCIFIO

    writer, stream = MMCIFIO(), io.StringIO()
    writer.set_dict(values)
    writer.save(stream)
    return stream.getvalue()


def _cell(structure: Structure) -> dict[str, str | list[str]]:
    vectors = structure.topology.getPeriodicBoxVectors()
    if vectors is None:
        return {}
    from openmm.app.internal.unitcell import computeLengthsAndAngles

    found = np.array(computeLengthsAndAngles(vectors))
    values = [*(found[:3] / ANGSTROM), *np.rad2deg(found[3:])]
    return {f"_cell.{name}": [f"{value:.9f}"] for name, value in zip(CELL, values, strict=True)}


def _labels(structure: Structure) -> tuple[list[str], list[str]]:
    """A name of its own for every chain, and a number within its chain for every residue."""
    atoms = structure.atoms
    chains: list[str] = []
    for index, name in enumerate(n.strip() for n in atoms.chain_id.tolist()):
        unused = name and name not in chains and name not in atoms.chain_id.tolist()[:index]
        chains.append(name if unused else f"x{index + 1}")
    first = np.searchsorted(atoms.residue_chain, atoms.residue_chain)  # of the chain of every residue
    return chains, (np.arange(atoms.n_residues) - first + 1).astype(str).tolist()


def _atom_sites(structure: Structure) -> dict[str, str | list[str]]:
    atoms = structure.atoms
    label_chain, label_number = _labels(structure)
    residues = list(structure.topology.residues())
    residue = atoms.residue.tolist()
    chain = [int(atoms.residue_chain[r]) for r in residue]
    names = atoms.name.tolist()
    residue_names = [str(atoms.residue_name[r]) for r in residue]
    standard = {name for name, t in standard_residues().items() if t.is_amino_acid or t.is_nucleotide}
    columns = {
        "group_PDB": ["ATOM" if name in standard else "HETATM" for name in residue_names],
        "id": [str(i + 1) for i in range(atoms.n_atoms)],
        "type_symbol": [e or "?" for e in atoms.element.tolist()],
        "label_atom_id": names,
        "label_alt_id": ["."] * atoms.n_atoms,
        "label_comp_id": residue_names,
        "label_asym_id": [label_chain[c] for c in chain],
        "label_entity_id": ["?"] * atoms.n_atoms,
        "label_seq_id": [label_number[r] for r in residue],
        "pdbx_PDB_ins_code": [residues[r].insertionCode.strip() or "?" for r in residue],
        **{
            f"Cartn_{letter}": [f"{value:.12f}" for value in (column / ANGSTROM).tolist()]
            for letter, column in zip("xyz", structure.positions.T, strict=True)
        },
        "occupancy": ["1.00"] * atoms.n_atoms,
        "B_iso_or_equiv": ["0.00"] * atoms.n_atoms,
        "auth_seq_id": [str(residues[r].id).strip() or "." for r in residue],
        "auth_comp_id": residue_names,
        "auth_asym_id": [str(atoms.chain_id[c]).strip() or "." for c in chain],
        "auth_atom_id": names,
        "pdbx_PDB_model_num": ["1"] * atoms.n_atoms,
    }
    return {f"_atom_site.{name}": values for name, values in columns.items()}


def _connections(structure: Structure) -> dict[str, str | list[str]]:
    """The bonds that a reader cannot take from the residue templates."""
    atoms = structure.atoms
    label_chain, label_number = _labels(structure)
    templates = standard_residues()
    rows: dict[str, list[str]] = {}
    count = 0
    for i, j in atoms.bonds.tolist():
        r, s = int(atoms.residue[i]), int(atoms.residue[j])
        known = str(atoms.residue_name[r]) in templates and str(atoms.residue_name[s]) in templates
        peptide = (str(atoms.name[i]), str(atoms.name[j])) == ("C", "N") and s == r + 1
        phosphate = (str(atoms.name[i]), str(atoms.name[j])) == ("O3'", "P") and s == r + 1
        if known and (r == s or peptide or phosphate):
            continue
        count += 1
        sulfurs = atoms.element[i] == atoms.element[j] == "S"
        row = {"id": f"bond{count}", "conn_type_id": "disulf" if sulfurs and r != s else "covale"}
        for end, (atom, residue) in enumerate(((i, r), (j, s)), start=1):
            row[f"ptnr{end}_label_asym_id"] = label_chain[int(atoms.residue_chain[residue])]
            row[f"ptnr{end}_label_comp_id"] = str(atoms.residue_name[residue])
            row[f"ptnr{end}_label_seq_id"] = label_number[residue]
            row[f"ptnr{end}_label_atom_id"] = str(atoms.name[atom])
        for name, value in row.items():
            rows.setdefault(f"_struct_conn.{name}", []).append(value)
    return dict(rows)
