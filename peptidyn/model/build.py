"""`build_tree`: from a structure and the list of soft coordinates to a frozen `TreeModel`.

The rigid bodies are what remains connected when the joints are taken out of the bond graph. Bonds that close loops,
disulfides first, are cut before (`peptidyn.model.rings`); a rigid selection is joined by extra edges. A bond can be a
joint only if it is a bridge of that graph, so rings and rigid selections become rigid by one and the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.model import chemistry
from peptidyn.model.graph import components
from peptidyn.model.joints import find_joints
from peptidyn.model.layout import lay_out
from peptidyn.model.reference_geometry import reference_geometry
from peptidyn.model.rings import find_cuts
from peptidyn.model.soft import BY_ATOM, DEFAULT_SOFT, SoftRequest
from peptidyn.model.tree import TreeModel

COINCIDING = 1e-3
"""Bonded atoms nearer than this (nm) define no direction."""

Selection = str | Sequence[int] | np.ndarray


def build_tree(
    structure: Any,
    soft: str | Iterable[str] = DEFAULT_SOFT,
    base: str = "free",
    rigid: Selection | Sequence[Selection] | None = None,
    root: int | None = None,
) -> TreeModel:
    """Build the tree model of a structure.

    Parameters
    ----------
    structure : Structure
        Atoms, positions (nm) and masses (Da). Its positions become the reference geometry.
    soft : str or iterable of str
        What may move: ``phi psi chi`` (default), ``omega``, ``methyl``, ``angles``, ``heavy``, ``rings``, ``all``, ...;
        see `peptidyn.model.soft`. Everything else is hard. Parts separated by semicolons may be confined to a
        selection: ``"phi psi chi; all in residue 10 to 14"``.
    base : {"free", "fixed"}
        Whether molecules float (6 base degrees of freedom; 3 for a single atom) or their root bodies are welded.
    rigid : MDTraj selection, atom indices, or a sequence of them, optional
        Each selection is frozen into one body, with the short pieces that lie between its atoms. A loop of more than
        eight bonds between two parts of a selection stays soft: one of its bonds is cut, and the force field holds it.
    root : int, optional
        An atom whose body becomes the root of its molecule. By default the body of a molecule's first atom.

    Returns
    -------
    TreeModel
    """
    atoms: Atoms = structure.atoms
    x = np.ascontiguousarray(structure.positions, dtype=np.float64)
    masses = np.array(structure.masses, dtype=np.float64)
    if base not in ("free", "fixed"):
        raise ArgumentError(f"base is {base!r}, expected 'free' or 'fixed'")
    if root is not None and not 0 <= root < atoms.n_atoms:
        raise ArgumentError(f"root is {root}, expected an atom index between 0 and {atoms.n_atoms - 1}")
    request = SoftRequest(structure, soft)
    check_masses(atoms, masses)
    check_distances(atoms, x)
    chemistry.check_backbone(atoms)

    glue = _rigid_edges(structure, rigid)
    cuts = find_cuts(atoms, x, request, glue)
    open_atoms = atoms.without_bonds(cuts.bonds)
    kept = open_atoms.bonds
    molecule = components(atoms.n_atoms, np.concatenate([kept, glue]))
    roots = _root_atoms(open_atoms, molecule, root, inner=bool(request.kinds & BY_ATOM))
    joints, hard_bonds = find_joints(atoms, x, request, glue, cuts, roots)
    is_joint = np.array([(j, k) in joints for j, k in kept.tolist()], dtype=bool)
    hard_edges = np.concatenate([kept[~is_joint], glue])
    body = components(atoms.n_atoms, hard_edges)
    layout = lay_out(atoms, body, molecule, joints, roots, base)
    geometry: dict[str, Any] = reference_geometry(layout, x, masses)
    return TreeModel(
        **layout.__dict__, **geometry, masses=masses, hard_bonds=tuple(hard_bonds), cut_bonds=atoms.bonds[cuts.bonds]
    )


def check_masses(atoms: Atoms, masses: np.ndarray) -> None:
    """Raise ModelError, naming atoms, unless every mass is a positive number."""
    if masses.shape != (atoms.n_atoms,):
        raise ArgumentError(f"masses have shape {masses.shape}, expected ({atoms.n_atoms},)")
    bad = np.flatnonzero(~(np.isfinite(masses) & (masses > 0)))
    if bad.size:
        raise ModelError(
            f"the mass of {atoms.label(int(bad[0]))} is {masses[bad[0]]:g} Da ({bad.size} such atoms); every atom "
            "needs a positive mass: remove virtual sites and frozen particles"
        )


def check_distances(atoms: Atoms, x: np.ndarray) -> None:
    """Raise ModelError, naming both, if two bonded atoms coincide."""
    length = np.linalg.norm(x[atoms.bonds[:, 0]] - x[atoms.bonds[:, 1]], axis=1)
    bad = np.flatnonzero(~(length > COINCIDING))
    if bad.size:
        i, j = atoms.bonds[bad[0]].tolist()
        raise ModelError(
            f"{atoms.label(i)} and {atoms.label(j)} are bonded and {length[bad[0]]:.1e} nm apart: their coordinates "
            "coincide; repair the structure"
        )


def _root_atoms(atoms: Atoms, molecule: np.ndarray, root: int | None, inner: bool) -> np.ndarray:
    """Return an atom of the root body of every molecule: its first one, or `root`.

    With `inner`, an atom at the end of its molecule gives way to the one it hangs on, as angles are measured there.
    """
    roots = np.unique(molecule, return_index=True)[1]
    if root is not None:
        roots[molecule[root]] = root
    if inner:
        for m, atom in enumerate(roots.tolist()):
            beside = atoms.neighbours[atom]
            if len(beside) == 1 and len(atoms.neighbours[beside[0]]) > 1:
                roots[m] = beside[0]
    return roots


def _rigid_edges(structure: Any, rigid: Any) -> np.ndarray:
    """Return edges (n, 2) that tie the atoms of every rigid selection together."""
    if rigid is None:
        return np.empty((0, 2), dtype=np.int64)
    one = isinstance(rigid, str) or all(isinstance(entry, int | np.integer) for entry in rigid)
    edges = []
    for selection in [rigid] if one else rigid:
        if isinstance(selection, str):
            chosen = structure.select(selection)
        else:
            chosen = np.unique(np.asarray(selection, dtype=np.int64))
            if not len(chosen) or chosen[0] < 0 or chosen[-1] >= structure.atoms.n_atoms:
                raise ArgumentError(
                    f"rigid= holds atom indices outside 0 to {structure.atoms.n_atoms - 1}, or none at all"
                )
        edges.append(np.stack([np.full(len(chosen) - 1, chosen[0]), chosen[1:]], axis=1))
    return np.concatenate(edges).astype(np.int64).reshape(-1, 2)
