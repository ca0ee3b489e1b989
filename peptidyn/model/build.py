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
from peptidyn.model.layout import Layout, lay_out
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
    _check_structure(structure)
    sites: dict[int, tuple[int, ...]] = structure.virtual_sites
    atoms, carried = _carry_sites(structure.atoms, sites)
    x = np.ascontiguousarray(structure.positions, dtype=np.float64)
    masses = np.array(structure.masses, dtype=np.float64)
    if base not in ("free", "fixed"):
        raise ArgumentError(f"base is {base!r}, expected 'free' or 'fixed'")
    if root is not None and not 0 <= root < atoms.n_atoms:
        raise ArgumentError(f"root is {root}, expected an atom index between 0 and {atoms.n_atoms - 1}")
    request = SoftRequest(structure, soft)
    check_masses(atoms, masses, list(sites))
    check_distances(atoms, x)
    chemistry.check_backbone(atoms)

    glue = _rigid_edges(structure, rigid)
    cuts = find_cuts(atoms, x, request, glue)
    open_atoms = atoms.without_bonds(cuts.bonds)
    kept = open_atoms.bonds
    molecule = components(atoms.n_atoms, np.concatenate([kept, glue, carried]))
    roots = _root_atoms(open_atoms, molecule, root, masses > 0, inner=bool(request.kinds & BY_ATOM))
    joints, hard_bonds = find_joints(atoms, x, request, glue, cuts, roots)
    is_joint = np.array([(j, k) in joints for j, k in kept.tolist()], dtype=bool)
    hard_edges = np.concatenate([kept[~is_joint], glue, carried])
    body = components(atoms.n_atoms, hard_edges)
    layout = lay_out(atoms, body, molecule, joints, roots, base)
    _check_sites(layout, sites)
    geometry: dict[str, Any] = reference_geometry(layout, x, masses)
    return TreeModel(
        **layout.__dict__, **geometry, masses=masses, hard_bonds=tuple(hard_bonds), cut_bonds=atoms.bonds[cuts.bonds]
    )


def _check_structure(structure: Any) -> None:
    """Raise ArgumentError, naming what to call, for anything else than a structure."""
    if not isinstance(getattr(structure, "atoms", None), Atoms):
        raise ArgumentError(
            f"build_tree was given a {type(structure).__name__}, expected a Structure: make one with "
            "load_structure(file), Structure.from_openmm(topology, system, positions) or Structure.from_mdtraj(frames)"
        )


def check_masses(atoms: Atoms, masses: np.ndarray, sites: Sequence[int] | np.ndarray = ()) -> None:
    """Raise ModelError, naming atoms, unless every mass is a positive number, and that of virtual `sites` zero."""
    if masses.shape != (atoms.n_atoms,):
        raise ArgumentError(f"masses have shape {masses.shape}, expected ({atoms.n_atoms},)")
    site = np.isin(np.arange(atoms.n_atoms), sites)
    bad = np.flatnonzero(np.where(site, masses != 0, ~(np.isfinite(masses) & (masses > 0))))
    if bad.size:
        expected = "virtual sites have none" if site[bad[0]] else "every atom needs a positive one"
        raise ModelError(
            f"the mass of {atoms.label(int(bad[0]))} is {masses[bad[0]]:g} Da ({bad.size} such atoms), but {expected}; "
            "make structures with virtual sites by Structure.from_openmm(topology, system, positions), and freeze "
            "atoms by rigid= instead of by their masses"
        )


def _carry_sites(atoms: Atoms, sites: dict[int, tuple[int, ...]]) -> tuple[Atoms, np.ndarray]:
    """Return the atoms without bonds to virtual sites, and edges (n, 2) from every site to the atom that carries it."""
    carried = np.array([(site, parents[0]) for site, parents in sites.items()], dtype=np.int64).reshape(-1, 2)
    first, second = atoms.bonds.T
    bonded = np.isin(first, carried[:, 0]) | np.isin(second, carried[:, 0])
    return atoms.without_bonds(bonded) if bonded.any() else atoms, carried


def _check_sites(layout: Layout, sites: dict[int, tuple[int, ...]]) -> None:
    """Raise ModelError, naming it, if atoms that place a virtual site are not in the body that carries it."""
    members = set(zip(layout.share_link.tolist(), layout.share_atom.tolist(), strict=True)) if sites else set()
    for site, parents in sites.items():
        link = int(layout.atom_link[site])
        for parent in parents:
            if (link, parent) not in members:
                raise ModelError(
                    f"{layout.atoms.label(site)} is a virtual site that {layout.atoms.labels(parents)} place, which "
                    "are not all in one rigid body; make the coordinates between them hard (soft=, rigid=)"
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


def _root_atoms(
    atoms: Atoms, molecule: np.ndarray, root: int | None, massive: np.ndarray, inner: bool
) -> np.ndarray:  # fmt: skip
    """Return an atom of the root body of every molecule: its first one that is `massive` (n_atoms,), or `root`.

    With `inner`, an atom at the end of its molecule gives way to the one it hangs on, as angles are measured there.
    """
    candidates = np.flatnonzero(massive)
    roots = candidates[np.unique(molecule[candidates], return_index=True)[1]]
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
