"""mmCIF files: the rows of one model and one conformer, handed to OpenMM's reader under the author's names."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from Bio.PDB.MMCIF2Dict import MMCIF2Dict
from openmm.app import PDBxFile

from peptidyn.core.errors import StructureError
from peptidyn.core.residues import standard_name
from peptidyn.core.units import plain_array
from peptidyn.io.altlocs import Site, choose_locations, site_name
from peptidyn.io.raw import CELL, RawStructure, altloc_note, is_cell, models_note, number_or, one_line
from peptidyn.io.writers import mmcif_tables

_COVALENT = ("covale", "disulf", "modres")


@dataclass(frozen=True)
class _Row:
    """One row of atom_site, by the author's names where there are any."""

    name: str
    label_name: str
    element: str
    altloc: str
    residue_name: str
    chain: str
    label_chain: str
    number: str
    label_number: str
    code: str
    xyz: tuple[str, str, str]
    occupancy: float
    model: str


def read_mmcif(text: str, model: int, name: str) -> RawStructure:
    """Read one model of an mmCIF file.

    Parameters
    ----------
    text : str
        The whole file.
    model : int
        Counted from 0, whatever numbers the models have.
    name : str
        The file, for messages.
    """
    table = _parse(text, name)
    rows = list(_rows(table, name))
    numbers = list(dict.fromkeys(row.model for row in rows))
    notes = models_note(len(numbers), model, name)
    rows = [row for row in rows if row.model == numbers[model]]
    residues = _number_residues(rows)
    kept, choices = choose_locations(
        [
            Site(residue, _label(row), row.residue_name, site_name(row.name, row.element), row.altloc, row.occupancy)
            for row, residue in zip(rows, residues, strict=True)
        ]
    )
    notes += altloc_note(choices)
    rows = [rows[i] for i in kept]
    residues = [residues[i] for i in kept]
    chains = _number_chains(rows)
    pdbx = _openmm_reader(table, rows, residues, chains, name)
    firsts = [next(residue.atoms()).index for residue in pdbx.topology.residues()]
    return RawStructure(
        topology=pdbx.topology,
        positions=plain_array(pdbx.getPositions(asNumpy=True)),
        file_names=[rows[i].residue_name for i in firsts],
        notes=notes,
        links=_links(table, rows, name),
        chain_ids=[rows[next(chain.atoms()).index].chain for chain in pdbx.topology.chains()],
        residue_ids=[(rows[i].number, rows[i].code) for i in firsts],
    )


def _parse(text: str, name: str) -> dict[str, list[str]]:
    try:
        table = MMCIF2Dict(io.StringIO(text))
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:  # of damaged tables
        said = (str(error).splitlines() or [""])[0]
        raise StructureError(f"{name} is not a complete mmCIF file ({said}); is it cut short?") from error
    stray = [key for key in table if not key.startswith(("_", "data_"))]
    if stray:
        raise StructureError(f"{name} cannot be read: {stray[0]!r} stands outside of all tables; is a line misplaced?")
    lengths: dict[str, set[int]] = defaultdict(set)
    for key, values in table.items():
        if "." in key:
            lengths[key.split(".")[0]].add(len(values))
    ragged = [category for category, found in lengths.items() if len(found) > 1]
    if ragged or _stops_among_atoms(text):
        where = ragged[0] if ragged else "_atom_site"
        raise StructureError(f"{name} is not a complete mmCIF file (the table {where} breaks off); is it cut short?")
    if not table.get("_atom_site.Cartn_x"):
        raise StructureError(f"{name} holds no atoms: it has no table _atom_site with Cartesian coordinates")
    return table


def _stops_among_atoms(text: str) -> bool:
    """Whether a file whose tables all end in a line ``#`` stops within its atoms, between two rows."""
    lines = text.rstrip().rsplit("\n", 1)
    archive_style = "_audit_conform.dict_name" in text and "\n#" in text
    return archive_style and lines[-1].startswith(("ATOM ", "HETATM "))


def _given(value: str) -> bool:
    return value not in (".", "?", "")


def _rows(table: dict[str, list[str]], name: str) -> Iterator[_Row]:
    n = len(table["_atom_site.Cartn_x"])

    def column(*names: str) -> list[str]:
        """The first of these columns that is there; values not given are taken from the next."""
        found = [table[f"_atom_site.{c}"] for c in names if f"_atom_site.{c}" in table]
        if not found:
            return [""] * n
        return [next((v for v in values if _given(v)), "") for values in zip(*found, strict=True)]

    needed = {"Cartn_y": ("Cartn_y",), "Cartn_z": ("Cartn_z",), "label_atom_id": ("label_atom_id", "auth_atom_id")}
    for what, names in needed.items():
        if not any(f"_atom_site.{c}" in table for c in names):
            raise StructureError(f"{name} cannot be read: its table _atom_site has no column {what}")
    columns = zip(
        column("auth_atom_id", "label_atom_id"),
        column("label_atom_id", "auth_atom_id"),
        column("type_symbol"),
        column("label_alt_id"),
        column("auth_comp_id", "label_comp_id"),
        # A chain without an author's name is nameless, as a blank in a PDB file.
        column("auth_asym_id") if "_atom_site.auth_asym_id" in table else column("label_asym_id"),
        column("label_asym_id"),
        column("auth_seq_id", "label_seq_id"),
        column("label_seq_id"),
        column("pdbx_PDB_ins_code"),
        zip(*(table[f"_atom_site.Cartn_{axis}"] for axis in "xyz"), strict=True),
        (number_or(value, 1.0) for value in column("occupancy")),
        column("pdbx_PDB_model_num"),
        strict=True,
    )
    for row in (_Row(*values) for values in columns):
        try:
            for value in row.xyz:
                float(value)
        except ValueError as error:
            raise StructureError(
                f"{name}: the coordinates {' '.join(row.xyz)!r} of {_label(row)}, atom {row.name} are not three numbers"
            ) from error
        yield row


def _label(row: _Row) -> str:
    return f"{f'chain {row.chain}, ' if row.chain else ''}residue {row.number}{row.code}"


def _number_residues(rows: list[_Row]) -> list[int]:
    """Number the residues; different names at one site are one residue if alternate locations tell them apart."""
    numbers: list[int] = []
    last = None
    seen: set[str] = set()
    for index, row in enumerate(rows):
        site = (row.chain, row.label_chain, row.number, row.label_number, row.code)
        same = last is not None and site == last[0] and (row.residue_name == last[1] or row.altloc != "")
        # Waters may all be without a number: an atom name that comes again starts another.
        if same and not row.number and row.name in seen and not row.altloc:
            same = False
        if not same:
            seen = set()
        seen.add(row.name)
        numbers.append(numbers[-1] if same else index)
        last = (site, row.residue_name)
    return numbers


def _number_chains(rows: list[_Row]) -> list[int]:
    """Number the chains as a PDB file of the entry would end them: each polymer, then all that is not a polymer."""
    numbers: list[int] = []
    last = None
    for index, row in enumerate(rows):
        key = (row.chain, row.label_chain if row.label_number else None)
        numbers.append(numbers[-1] if key == last else index)
        last = key
    return numbers


def _openmm_reader(
    table: dict[str, list[str]], rows: list[_Row], residues: list[int], chains: list[int], name: str
) -> PDBxFile:
    """Hand the chosen rows to OpenMM, residues and chains numbered so that it cannot take one for another."""
    n, size = len(rows), Counter(residues)
    columns = {
        "group_PDB": ["ATOM"] * n,
        "id": [str(i + 1) for i in range(n)],
        "type_symbol": [row.element or "?" for row in rows],
        "label_atom_id": [row.name for row in rows],
        "label_alt_id": ["."] * n,
        "label_comp_id": [standard_name(row.residue_name, size[r]) for row, r in zip(rows, residues, strict=True)],
        "label_asym_id": [f"c{chain}" for chain in chains],
        "label_seq_id": [str(residue) for residue in residues],
        "auth_seq_id": [str(residue) for residue in residues],
        **{f"Cartn_{axis}": [row.xyz[k] for row in rows] for k, axis in enumerate("xyz")},
    }
    clean: dict[str, str | list[str]] = {"data_": "structure"}
    clean.update({f"_atom_site.{key}": values for key, values in columns.items()})
    clean.update(_cell(table, name))
    clean.update({key: values for key, values in table.items() if key.startswith("_chem_comp_bond.") and values})
    try:
        return PDBxFile(io.StringIO(mmcif_tables(clean)))
    except (ValueError, IndexError, KeyError) as error:
        raise StructureError(f"{name} is not an mmCIF file that can be read: {one_line(error)}") from error


def _cell(table: dict[str, list[str]], name: str) -> dict[str, list[str]]:
    cell = {f"_cell.{key}": table.get(f"_cell.{key}", [""])[:1] for key in CELL}
    values = [number_or(value[0], 0.0) for value in cell.values()]
    return cell if is_cell(values, f"{name}: ") else {}


def _links(table: dict[str, list[str]], rows: list[_Row], name: str) -> list[tuple[int, int]]:
    """The covalent connections that the file lists, within one asymmetric unit."""
    kinds = table.get("_struct_conn.conn_type_id", [])
    by_author: dict[tuple[str, ...], int] = {}
    by_label: dict[tuple[str, ...], int] = {}
    for index, row in enumerate(rows):
        by_author.setdefault((row.chain, row.number, row.code, row.label_name), index)
        if row.label_number:
            by_label.setdefault((row.label_chain, row.label_number, row.label_name), index)

    def value(key: str, at: int) -> str:
        values = table.get(f"_struct_conn.{key}")
        return values[at] if values is not None and _given(values[at]) else ""

    def partner(end: int, at: int) -> int | None:
        atom = value(f"ptnr{end}_label_atom_id", at)
        label = (value(f"ptnr{end}_label_asym_id", at), value(f"ptnr{end}_label_seq_id", at), atom)
        code = value(f"pdbx_ptnr{end}_PDB_ins_code", at)
        author = (value(f"ptnr{end}_auth_asym_id", at), value(f"ptnr{end}_auth_seq_id", at), code, atom)
        return by_label.get(label, by_author.get(author))

    links = []
    for at, kind in enumerate(kinds):
        symmetry = value("ptnr1_symmetry", at), value("ptnr2_symmetry", at)
        if kind.lower().startswith(_COVALENT) and symmetry[0] == symmetry[1]:
            first, second = partner(1, at), partner(2, at)
            if first is not None and second is not None and first != second:
                links.append((min(first, second), max(first, second)))
    return links
