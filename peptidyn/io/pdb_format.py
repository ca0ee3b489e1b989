"""PDB files: the lines of one model and one conformer, handed to OpenMM's reader."""

from __future__ import annotations

import io
import re
import warnings
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field

from openmm.app import PDBFile, Topology

from peptidyn.core.errors import StructureError
from peptidyn.core.residues import standard_name
from peptidyn.core.units import plain_array
from peptidyn.io.altlocs import Site, choose_locations, site_name
from peptidyn.io.notes import Note, counted, some
from peptidyn.io.raw import RawStructure, altloc_note, is_cell, models_note, number_or, one_line

_END_OF_COORDINATES = 54

_COORDINATES = re.compile(r"( *-?\d+\.\d+ *){3}")
"""Three numbers with decimals, in the columns where atoms have them."""

_WITH_NUMBERS = ("ANISOU", "REMARK", *(f"{name}{row}" for name in ("SCALE", "ORIGX", "MTRIX") for row in (1, 2, 3)))
"""Records that may hold such numbers and are no atoms."""


@dataclass
class _Lines:
    """The lines of one model, sorted by what they are."""

    atoms: list[str] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)
    """Atoms (by number in `atoms`) after which the chain ends."""
    cell: list[str] = field(default_factory=list)
    connections: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Lines that are no record of the format and hold coordinates where atoms have them."""


def read_pdb(text: str, model: int, name: str) -> RawStructure:
    """Read one model of a PDB file.

    Parameters
    ----------
    text : str
        The whole file.
    model : int
        Counted from 0.
    name : str
        The file, for messages.
    """
    lines, n_models = _sort_lines(text, model, name)
    notes = models_note(n_models, model, name) + _unknown_note(lines.unknown)
    residues = _number_residues(lines)
    kept, choices = choose_locations(_sites(lines.atoms, residues))
    kept, repeats = _without_repeats(kept, lines.atoms, residues)
    notes += altloc_note(choices) + repeats
    sizes = Counter(residues[i] for i in kept)
    atoms = [_standard_line(lines.atoms[i], sizes[residues[i]]) for i in kept]
    ends = {bisect_right(kept, end) - 1 for end in lines.ends}
    notes += _guessed_elements_note(atoms)
    pdb = _openmm_reader(atoms, ends, lines, name)
    _check_not_scattered(pdb.topology, name)
    if pdb.topology.getNumAtoms() != len(atoms):
        raise _repeated_atoms_error([lines.atoms[i] for i in kept], [residues[i] for i in kept], name)
    first_atoms = (next(residue.atoms()).index for residue in pdb.topology.residues())
    file_names = [_residue_name(lines.atoms[kept[i]]) for i in first_atoms]
    positions = plain_array(pdb.getPositions(asNumpy=True))
    return RawStructure(pdb.topology, positions, file_names, notes)


def _sort_lines(text: str, model: int, name: str) -> tuple[_Lines, int]:
    """Return the lines of one model, and how many models there are."""
    lines = _Lines()
    n_models, between = 0, True
    for number, line in enumerate(text.splitlines(), start=1):
        record = line[:6].rstrip()
        if record in ("ATOM", "HETATM"):
            # Some programs separate models by END alone.
            if between:
                n_models, between = n_models + 1, False
            if n_models == model + 1:
                _check_coordinates(line, number, name)
                lines.atoms.append(line)
        elif record in ("MODEL", "ENDMDL", "END"):
            between = True
        elif record == "TER" or line.split()[:1] == ["TER"]:
            if n_models == model + 1 and not between:
                lines.ends.add(len(lines.atoms) - 1)
        elif record == "CRYST1":
            lines.cell = _cell_lines(line, number, name)
        elif record == "CONECT":
            lines.connections.append(line)
        elif record not in _WITH_NUMBERS and _COORDINATES.fullmatch(line[30:54]):
            lines.unknown.append(line)
    return lines, n_models


def _unknown_note(lines: list[str]) -> list[Note]:
    """Say that lines were left out that are perhaps atoms, whose first word is damaged."""
    if not lines:
        return []
    shown = some([repr(line[:27].rstrip()) for line in lines])
    return [Note("skipped", f"{counted(len(lines), 'line')} with coordinates left out that are no atoms: {shown}")]


def _check_coordinates(line: str, number: int, name: str) -> None:
    if len(line.rstrip()) < _END_OF_COORDINATES:
        raise StructureError(f"{name}, line {number}: the line ends before its coordinates do; is the file cut short?")
    try:
        for start in (30, 38, 46):
            float(line[start : start + 8])
    except ValueError as error:
        raise StructureError(
            f"{name}, line {number}: the coordinates {line[30:54].strip()!r} of atom {line[12:16].strip()} in residue "
            f"{line[17:27].strip()} are not three numbers"
        ) from error


def _cell_lines(line: str, number: int, name: str) -> list[str]:
    columns = ((6, 15), (15, 24), (24, 33), (33, 40), (40, 47), (47, 54))
    try:
        values = [float(line[start:end]) for start, end in columns]
    except ValueError as error:
        raise StructureError(f"{name}, line {number}: the unit cell cannot be read from {line.rstrip()!r}") from error
    return [line] if is_cell(values, f"{name}, line {number}: ") else []


def _residue_name(line: str) -> str:
    return line[17:21].strip()


def _number_residues(lines: _Lines) -> list[int]:
    """Number the residues; different names at one site are one residue if alternate locations tell them apart."""
    numbers: list[int] = []
    first_at: dict[tuple[int, str], int] = {}
    last: tuple[str, str] | None = None
    chain = 0
    for index, line in enumerate(lines.atoms):
        if index - 1 in lines.ends:
            chain, last = chain + 1, None
        site, name = line[21:27], _residue_name(line)
        if line[16] != " ":
            # Some programs list the second conformer after the rest of the chain.
            number = first_at.setdefault((chain, site), index)
        elif last == (site, name):
            number = numbers[-1]
        else:
            number = index
            first_at[chain, site] = index
        numbers.append(number)
        last = (site, name)
    return numbers


def _sites(atoms: list[str], residues: list[int]) -> list[Site]:
    return [
        Site(
            residue=residue,
            label=_label(line),
            residue_name=_residue_name(line),
            name=site_name(line[12:16].strip(), line[76:78]),
            altloc=line[16].strip(),
            occupancy=number_or(line[54:60], 1.0),  # as OpenMM's reader takes it
        )
        for line, residue in zip(atoms, residues, strict=True)
    ]


def _without_repeats(kept: list[int], atoms: list[str], residues: list[int]) -> tuple[list[int], list[Note]]:
    """Leave out lines that say again what an earlier one of their residue says: the same atom at the same place."""
    first: dict[tuple[int, str, str], int] = {}
    again: list[str] = []
    for i in kept:
        line = atoms[i]
        if first.setdefault((residues[i], line[12:16], line[30:54]), i) != i:
            again.append(f"{_label(line, _residue_name(line))}, atom {line[12:16].strip()}")
    if not again:
        return kept, []
    text = f"{counted(len(again), 'line')} left out that repeat an atom at the same place: {some(again)}"
    return list(first.values()), [Note("skipped", text)]


def _label(line: str, residue_name: str = "") -> str:
    chain = line[21].strip()
    residue = " ".join(filter(None, ["residue", residue_name, line[22:27].strip()]))
    return f"chain {chain}, {residue}" if chain else residue


def _standard_line(line: str, residue_size: int) -> str:
    """Return the line without its alternate location, with a residue name that OpenMM knows."""
    name = _residue_name(line)
    new = standard_name(name, residue_size)
    residue_field = line[17:21] if new == name else f"{new:>3} "
    line = f"{line[:16]} {residue_field}{line[21:]}"
    # Without an element column OpenMM reads sodium in the name NA, which many rings of ligands give a nitrogen;
    # the column where a name starts tells them apart.
    if not line[76:78].strip() and line[12:15] == " NA" and residue_size > 1:
        line = f"{line[:76]:<76} N"
    return line


def _guessed_elements_note(atoms: list[str]) -> list[Note]:
    without = sum(1 for line in atoms if not line[76:78].strip())
    if not without:
        return []
    text = f"{counted(without, 'atom')} without an element in the file: it was taken from the name"
    return [Note("guessed-elements", text)]


def _openmm_reader(atoms: list[str], ends: set[int], lines: _Lines, name: str) -> PDBFile:
    text = [*lines.cell]
    for index, line in enumerate(atoms):
        text.append(line)
        if index in ends:
            text.append("TER")
    text += lines.connections
    try:
        with warnings.catch_warnings():
            # OpenMM warns of repeated atoms and residue numbers; the former is an error here, the latter harmless.
            warnings.simplefilter("ignore")
            return PDBFile(io.StringIO("\n".join(text) + "\nEND\n"))
    except (ValueError, IndexError, AssertionError) as error:
        raise StructureError(f"{name} is not a PDB file that can be read: {one_line(error)}") from error


def _check_not_scattered(topology: Topology, name: str) -> None:
    """A residue whose atoms are listed in two places would become two residues."""
    for chain in topology.chains():
        found: dict[tuple[str, str, str], set[str]] = {}
        for residue in chain.residues():
            names = {atom.name for atom in residue.atoms()}
            before = found.setdefault((residue.name, residue.id, residue.insertionCode), set())
            # Numbers may start anew, as in large water boxes: then the names come again.
            if before and before.isdisjoint(names):
                where = f"chain {chain.id}, " if chain.id.strip() else ""
                label = f"{where}residue {residue.name} {residue.id}{residue.insertionCode}".strip()
                raise StructureError(f"{name} lists the atoms of {label} in two places; sort the file by residues")
            before |= names


def _repeated_atoms_error(atoms: list[str], residues: list[int], name: str) -> StructureError:
    count = Counter((residue, line[12:16].strip()) for line, residue in zip(atoms, residues, strict=True))
    for line, residue in zip(atoms, residues, strict=True):
        if count[residue, line[12:16].strip()] > 1:
            return StructureError(
                f"{name} lists atom {line[12:16].strip()} of {_label(line, _residue_name(line))} more than once; "
                "give the residues different numbers or the atoms different names"
            )
    return StructureError(f"{name} lists some atoms more than once; give their residues different numbers")
