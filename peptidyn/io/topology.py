"""OpenMM topologies: read into plain tables, and copied with other bonds, names or fewer atoms."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import SelectionError, StructureError

if TYPE_CHECKING:
    import mdtraj
    from openmm.app import Topology

Bonds = dict[tuple[int, int], tuple[Any, int | None]]
"""Atom pairs (smaller index first) with OpenMM's bond type and order, either of which may be None."""


def atoms_from_topology(topology: Topology) -> Atoms:
    """Copy an OpenMM Topology into an `Atoms` table."""
    chains, residues, atoms = list(topology.chains()), list(topology.residues()), list(topology.atoms())
    if any(atom.index != place for place, atom in enumerate(atoms)):
        raise StructureError("the Topology lists its atoms out of order; rebuild it chain by chain")
    number = {part: place for parts in (chains, residues) for place, part in enumerate(parts)}
    bonds = bonds_of(topology)
    pairs = sorted(bonds)
    return Atoms(
        name=np.array([a.name for a in atoms], dtype=str),
        element=np.array(["" if a.element is None else a.element.symbol for a in atoms], dtype=str),
        residue=np.array([number[a.residue] for a in atoms], dtype=np.int64),
        residue_name=np.array([r.name for r in residues], dtype=str),
        residue_id=np.array([f"{r.id}{r.insertionCode}".strip() for r in residues], dtype=str),
        residue_chain=np.array([number[r.chain] for r in residues], dtype=np.int64),
        chain_id=np.array([str(c.id) for c in chains], dtype=str),
        bonds=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        bond_order=np.array([_order(*bonds[p]) for p in pairs], dtype=np.float64),
    )


def bonds_of(topology: Topology) -> Bonds:
    """Return the bonds of a topology, each pair once; of repeats the one with the higher order stays."""
    bonds: Bonds = {}
    for bond in topology.bonds():
        i, j = sorted((bond[0].index, bond[1].index))
        if i == j:
            continue  # a CONECT record that repeats its own atom says nothing
        if (i, j) not in bonds or _order(bond.type, bond.order) > _order(*bonds[i, j]):
            bonds[i, j] = (bond.type, bond.order)
    return bonds


def _order(kind: Any, order: int | None) -> float:
    if kind is not None and str(kind) == "Aromatic":
        return 1.5
    if order is not None:
        return float(order)
    return {"Single": 1.0, "Double": 2.0, "Triple": 3.0}.get(str(kind), 0.0)


def copy_topology(
    topology: Topology,
    bonds: Mapping[tuple[int, int], tuple[Any, int | None]],
    *,
    keep: Iterable[int] | None = None,
    chain_ids: Sequence[str] | None = None,
    residue_ids: Sequence[tuple[str, str]] | None = None,
    residue_names: Mapping[int, str] | None = None,
    atom_kinds: Mapping[int, tuple[str, Any]] | None = None,
    break_before: Collection[int] = (),
    join_chains: Sequence[int] | None = None,
    extra_atoms: Mapping[int, Sequence[tuple[str, Any]]] | None = None,
) -> Topology:
    """Copy a topology, with other bonds and whatever else is given: OpenMM's cannot lose bonds.

    Parameters
    ----------
    topology : openmm.app.Topology
    bonds : mapping of atom pairs, by the indices of `topology`
        The only bonds of the copy; those to atoms not kept are left out.
    keep : atom indices
        All atoms if None. Residues and chains left without atoms vanish.
    chain_ids, residue_ids : one per chain; one (id, insertion code) per residue
        Names to use instead of the topology's.
    residue_names, atom_kinds : residue index -> name; atom index -> (name, openmm Element)
    break_before, join_chains : residue indices; one number per chain
        Where a new chain of the same name starts; neighbouring chains with the same number become one.
    extra_atoms : residue index -> [(name, openmm Element)]
        Atoms to add at the end of residues, without bonds.
    """
    kept = set(range(topology.getNumAtoms()) if keep is None else keep)
    copy = type(topology)()
    copy.setPeriodicBoxVectors(topology.getPeriodicBoxVectors())
    made: dict[int, Any] = {}
    new_chain, last_group = None, None
    for chain in topology.chains():
        group = chain.index if join_chains is None else join_chains[chain.index]
        new_chain = new_chain if group == last_group else None
        last_group = group
        for residue in chain.residues():
            atoms = [a for a in residue.atoms() if a.index in kept]
            new_chain = None if residue.index in break_before else new_chain
            if not atoms:
                continue
            if new_chain is None:
                new_chain = copy.addChain(chain.id if chain_ids is None else chain_ids[chain.index])
            number = (residue.id, residue.insertionCode) if residue_ids is None else residue_ids[residue.index]
            name = (residue_names or {}).get(residue.index, residue.name)
            new_residue = copy.addResidue(name, new_chain, *number)
            for atom in atoms:
                kind = (atom_kinds or {}).get(atom.index, (atom.name, atom.element))
                # Formal charges are younger than the oldest OpenMM supported here.
                charge = {"formalCharge": atom.formalCharge} if hasattr(atom, "formalCharge") else {}
                made[atom.index] = copy.addAtom(*kind, new_residue, atom.id, **charge)
            for kind in (extra_atoms or {}).get(residue.index, ()):
                copy.addAtom(*kind, new_residue)
    for i, j in sorted(bonds):
        if i in made and j in made:
            copy.addBond(made[i], made[j], *bonds[i, j])
    return copy


def reduced_box(vectors: Any) -> Any:
    """Return box vectors (3, 3), the first along x and the second in xy, in the reduced form that OpenMM asks for.

    nm. MDTraj's single precision leaves hexagonal cells a rounding error outside it. None for a box without volume.
    """
    from openmm import Vec3, unit

    a, b, c = np.array(vectors, dtype=np.float64)
    if min(a[0], b[1], c[2]) <= 0:
        return None
    just_inside = 1.0 - 1e-6  # half a box is not to become minus half a box by rounding
    c = c - b * np.round(just_inside * c[1] / b[1])
    c = c - a * np.round(just_inside * c[0] / a[0])
    b = b - a * np.round(just_inside * b[0] / a[0])
    b[0], c[0] = np.clip([b[0], c[0]], -0.5 * a[0], 0.5 * a[0])
    c[1] = np.clip(c[1], -0.5 * b[1], 0.5 * b[1])
    return [Vec3(*(float(x) for x in v)) for v in (a, b, c)] * unit.nanometer


def select_atoms(topology: mdtraj.Topology, selection: str, name: str) -> np.ndarray:
    """Return the atoms (n,) that an MDTraj selection matches; SelectionError, naming the system, if there are none."""
    try:
        source = topology.select_expression(selection)
        chosen = topology.select(selection)
    except Exception as error:  # MDTraj raises many kinds, ParseException among them
        raise _unreadable(selection) from error
    _check_values(ast.parse(source, mode="eval"), selection)
    if len(chosen) == 0:
        raise SelectionError(
            f"the selection {selection!r} matches no atom of {name}; check chain, residue and atom names"
        )
    return np.asarray(chosen, dtype=np.int64)


_NUMBERS = frozenset({"index", "resSeq", "n_bonds", "mass"})
"""Attributes of MDTraj's atoms, residues and chains that are numbers."""

_RESERVED = frozenset("to resid residue resSeq resname name index chainid element type mass protein water".split())
"""Words of the selection language that name no atom, residue or element."""


def _unreadable(selection: str, reason: str = "") -> SelectionError:
    return SelectionError(
        f"cannot read the selection {selection!r}{reason}; use the MDTraj selection language, e.g. "
        "'resid 2 to 9 and backbone'"
    )


def _check_values(source: ast.AST, selection: str) -> None:
    """Refuse what MDTraj takes by accident: it reads "resid 3 to" as the residues 3 and "to"."""
    for node in ast.walk(source):
        alone = [*getattr(node, "ifs", ()), *getattr(node, "values", ()), getattr(node, "operand", None)]
        if any(isinstance(one, ast.Attribute) and not one.attr.startswith("is_") for one in alone):
            raise _unreadable(selection, ": a keyword lacks its value")
        if not isinstance(node, ast.Compare):
            continue
        parts = [node.left, *node.comparators]
        fields = [part.attr for part in parts if isinstance(part, ast.Attribute)]
        values = [one.value for part in parts for one in ast.walk(part) if isinstance(one, ast.Constant)]
        several = any(isinstance(part, ast.List) for part in parts)
        for field, value in product(fields, values):
            number = isinstance(value, int | float)
            if field in _NUMBERS and not number:
                raise _unreadable(selection, f": {value!r} is not a number")
            if field not in _NUMBERS and value is not None and (number or (several and value in _RESERVED)):
                raise _unreadable(selection, f": {str(value)!r} is not a name, and 'and' or 'or' may be missing")


def masses_from_elements(atoms: Atoms, sites: Collection[int] = ()) -> np.ndarray:
    """Return the mass of every atom (Da) from its element; that of virtual `sites` is zero."""
    from openmm import unit
    from openmm.app import Element

    unknown = np.setdiff1d(np.flatnonzero(atoms.element == ""), np.fromiter(sites, np.int64))
    if unknown.size:
        raise StructureError(
            f"the element of {atoms.labels(unknown)} is unknown, so its mass is too; "
            "fill in the element column, remove extra particles, or give a System with Structure.from_openmm"
        )
    symbols = set(atoms.element.tolist()) - {""}
    table = {"": 0.0, **{s: Element.getBySymbol(s).mass.value_in_unit(unit.dalton) for s in symbols}}
    return np.array([table[s] for s in atoms.element.tolist()], dtype=np.float64)
