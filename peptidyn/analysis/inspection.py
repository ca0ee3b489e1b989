"""What `peptidyn inspect` says about a structure and its tree: as a plain dictionary, and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

import numpy as np

from peptidyn.core.residues import is_amino_acid, is_water
from peptidyn.io.structure import Structure
from peptidyn.model.backbone import BackboneTable
from peptidyn.model.kinematics import FIXED, FREE, POINT
from peptidyn.model.soft import BENDS, CHIS
from peptidyn.model.tree import TreeModel

_TORSIONS = ("phi", "psi", "carboxyl", "omega", *CHIS, "rotor", "amide", "methyl", "polar")
_UNITS = (
    "peptide plane",
    "peptide planes",
    "alpha carbon",
    "side chain",
    "terminus",
    "cap",
    "molecule",
    "water",
    "ion",
)
_ROOTS = {FREE: "free", POINT: "single atoms", FIXED: "with a fixed base"}


def inspect_tree(structure: Structure, tree: TreeModel, frames: tuple[BackboneTable, ...] = ()) -> dict[str, Any]:
    """Return everything worth knowing about a structure and its tree, ready for JSON.

    Angles are in degrees, lengths in nm, masses in Da.
    """
    atoms = structure.atoms
    units = tree.units
    return {
        "name": structure.name,
        "atoms": structure.n_atoms,
        "mass": round(float(structure.masses.sum()), 4),
        "chains": [_chain(structure, chain) for chain in range(atoms.n_chains)],
        "molecules": _counted((_ROOTS[kind] for kind in tree.joint[tree.parent < 0].tolist()), tuple(_ROOTS.values())),
        "bodies": tree.n_bodies,
        "units": _counted((unit.kind for unit in units), _UNITS),
        **{
            name: _counted((tree.coordinates[i].kind for i in places), (*_TORSIONS, *BENDS))
            for name, places in tree.groups.items()
        },
        "degrees_of_freedom": {
            "total": tree.n_dof,
            "base": tree.n_dof - tree.n_coordinates,
            **{name: len(places) for name, places in tree.groups.items()},
        },
        "rigid": [
            {"kind": kind, "why": why, "count": count}
            for (kind, why), count in sorted(Counter((b.kind, b.why) for b in tree.hard_bonds).items())
        ],
        "cut_bonds": [[atoms.label(i), atoms.label(j)] for i, j in tree.cut_bonds.tolist()],
        "notes": [{"kind": note.kind, "text": note.text} for note in structure.notes],
        "soft_coordinates": [
            {
                "kind": c.kind,
                "motion": c.motion,
                "chain": c.chain,
                "residue": f"{c.residue_name} {c.residue_id}",
                "atoms": [str(atoms.name[a]) for a in c.atoms],
                "indices": list(c.atoms),
                **({"nm": round(value, 6)} if c.motion == "stretch" else {"degrees": round(np.rad2deg(value), 6)}),
            }
            for c, value in zip(tree.coordinates, tree.q_reference.tolist(), strict=True)
        ],
        "rigid_units": [
            {
                "name": unit.name,
                "kind": unit.kind,
                "atoms": unit.atoms.tolist(),
                "shared": unit.shared.tolist(),
                "mass": round(unit.mass, 6),
            }
            for unit in units
            if unit.kind not in ("water", "ion")
        ],
        "frames": [table.to_dict() for table in frames],
    }


def _counted(kinds: Iterable[str], order: Sequence[str]) -> dict[str, int]:
    """Count kinds; known ones come in the given order, others after them."""
    counts = Counter(kinds)
    return {kind: counts[kind] for kind in [*order, *sorted(set(counts) - set(order))] if counts[kind]}


def _chain(structure: Structure, chain: int) -> dict[str, Any]:
    atoms = structure.atoms
    residues = np.flatnonzero(atoms.residue_chain == chain)
    names = atoms.residue_name[residues].tolist()
    water = is_water(atoms)
    kinds = Counter(
        "amino acid" if is_amino_acid(atoms, r) else "water" if water[r] else "other residue" for r in residues.tolist()
    )
    ids = atoms.residue_id[residues].tolist()
    span = f"{names[0]} {ids[0]} - {names[-1]} {ids[-1]}" if names else ""
    return {"id": str(atoms.chain_id[chain]).strip(), "residues": len(names), "kinds": dict(kinds), "span": span}


def format_inspection(report: dict[str, Any]) -> str:
    """Return the report as text for people."""
    dof = report["degrees_of_freedom"]
    lines = [f"{report['name']}: {report['atoms']} atoms, {report['mass']:.2f} Da"]
    lines += ["", "Chains"]
    for chain in report["chains"]:
        kinds = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in chain["kinds"].items())
        lines.append(f"  {chain['id'] or '(blank)':8s} {kinds:32s} {chain['span']}")
    lines += ["", "Tree"]
    molecules = ", ".join(f"{count} {name}" for name, count in report["molecules"].items())
    lines.append(f"  molecules           {molecules}")
    lines.append(f"  rigid bodies        {report['bodies']:<6d} {_counts(report['units'])}")
    lines.append(f"  soft torsions       {dof['torsions']:<6d} {_counts(report['torsions'])}")
    for name, words in (("phases", "soft phases"), ("bends", "soft bond angles"), ("stretches", "soft bond lengths")):
        if dof[name]:
            lines.append(f"  {words:19s} {dof[name]:<6d} {_counts(report[name])}")
    lines.append(f"  degrees of freedom  {dof['total']:<6d} {dof['base']} base + {dof['total'] - dof['base']} soft")
    if report["rigid"]:
        lines += ["", "Made rigid (besides bond lengths, bond angles and rings that are not soft)"]
        for entry in report["rigid"]:
            lines.append(f"  {entry['count']:6d} {entry['kind']:9s} {entry['why']}")
    if report["cut_bonds"]:
        lines += ["", "Bonds left out of the tree (they would close loops; the force field holds them)"]
        lines += [f"  {first}  --  {second}" for first, second in report["cut_bonds"]]
    if report["notes"]:
        lines += ["", "Notes"]
        lines += [fill(note["text"], 110, initial_indent="  - ", subsequent_indent="    ") for note in report["notes"]]
    return "\n".join(lines)


def _counts(table: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in table.items())
