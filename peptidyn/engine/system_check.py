"""Does a System fit a tree? What torsion dynamics cannot honour is refused by name, with the fix."""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.engine.barostat import check_barostat
from peptidyn.io.virtual_sites import place_virtual_sites, virtual_sites
from peptidyn.model.rigid_units import same_unit
from peptidyn.model.tree import Coordinate, TreeModel

KEPT, BROKEN = 5e-4, 0.02
"""How far (nm) the distance of two atoms in the reference geometry may be from that of their constraint: beyond the
first there is a note, beyond the second the System is refused. Coordinates in PDB files are rounded to 1e-4 nm."""

SITE_TOLERANCE = 1e-4
"""How far (nm) a virtual site of the reference geometry may be from where OpenMM places it."""

_REFUSED = {
    "MonteCarloBarostat": "use TorsionLangevinIntegrator or TorsionGHMCIntegrator, or leave it out",
    "MonteCarloAnisotropicBarostat": "use MonteCarloBarostat, or run at constant volume",
    "MonteCarloMembraneBarostat": "use MonteCarloBarostat, or run at constant volume",
    "MonteCarloFlexibleBarostat": "use MonteCarloBarostat, or run at constant volume",
    "AndersenThermostat": "it acts on Cartesian velocities: use TorsionLangevinIntegrator or TorsionGHMCIntegrator",
}


def check_tree(tree: Any) -> None:
    """Raise ArgumentError if an integrator is given something else than a tree."""
    if not isinstance(tree, TreeModel):
        raise ArgumentError(
            f"the integrator was given a {type(tree).__name__}, expected a TreeModel: make one with "
            "build_tree(structure)"
        )


def check_system(tree: TreeModel, system: Any, masses: np.ndarray, *, barostat: bool = False) -> list[str]:
    """Raise ModelError if `system` cannot be driven through `tree`; return notes on what is ignored.

    Parameters
    ----------
    tree : TreeModel
    system : openmm.System
    masses : (n_atoms,)
        Masses the System should have, Da (those of the structure, before any repartitioning).
    barostat : bool
        Whether a MonteCarloBarostat is honoured.
    """
    from openmm import unit

    if system.getNumParticles() != tree.n_atoms:
        raise ModelError(
            f"the System has {system.getNumParticles()} particles but the tree has {tree.n_atoms} atoms; build the "
            "tree from the structure that the System was made from"
        )
    sites = virtual_sites(system)
    found = np.array([system.getParticleMass(i).value_in_unit(unit.dalton) for i in range(tree.n_atoms)])
    massless = np.flatnonzero(found <= 0)
    for i in massless.tolist():
        if i not in sites:
            raise ModelError(
                f"{tree.atoms.label(i)} has no mass in the System; give every particle a mass, and freeze parts of a "
                "molecule with rigid= instead"
            )
    off = np.abs(found - masses) > 1e-3 * np.maximum(masses, 1e-3)
    if off.any():
        worst = int(np.argmax(off))
        raise ModelError(
            f"the mass of {tree.atoms.label(worst)} is {found[worst]:.4f} Da in the System and {masses[worst]:.4f} in "
            "the tree; build the tree with Structure.from_openmm(topology, system, positions)"
        )
    _check_sites(tree, system, sites)
    notes = check_constraints(tree, system)
    for force in system.getForces():
        kind = type(force).__name__
        if kind == "MonteCarloBarostat" and barostat:
            check_barostat(force, tree)
        elif kind in _REFUSED:
            raise ModelError(f"the System holds a {kind}, which torsion dynamics would ignore; {_REFUSED[kind]}")
        if kind == "CMMotionRemover":
            notes.append("the CMMotionRemover of the System has no effect: total momentum is conserved, or thermalised")
    return notes


def _check_sites(tree: TreeModel, system: Any, sites: dict[int, tuple[int, ...]]) -> None:
    """Raise ModelError unless every virtual site is carried by the body of the atoms that place it, in its place."""
    inside = same_unit(tree)
    for site, parents in sites.items():
        if not inside((site, *parents)):
            raise ModelError(
                f"{tree.atoms.label(site)} is a virtual site and does not move with {tree.atoms.labels(parents)}, "
                "which place it; build the tree from Structure.from_openmm(topology, system, positions)"
            )
    if not sites:
        return
    x = tree.positions(tree.reference)
    shift = np.linalg.norm(place_virtual_sites(system, x) - x, axis=1)
    if shift.max() > SITE_TOLERANCE:
        raise ModelError(
            f"the virtual site {tree.atoms.label(int(shift.argmax()))} is {shift.max():.1e} nm from where the System "
            "places it; build the tree from Structure.from_openmm(topology, system, positions)"
        )


def check_constraints(tree: TreeModel, system: Any) -> list[str]:
    """Raise ModelError unless every constraint is between two atoms of one rigid unit; note distances that differ."""
    count = system.getNumConstraints()
    if not count:
        return []
    pairs, wanted = np.empty((count, 2), dtype=np.int64), np.empty(count)
    for n in range(count):
        i, j, length = system.getConstraintParameters(n)
        pairs[n], wanted[n] = (i, j), length._value
    link, inside = tree.atom_link[pairs], same_unit(tree)
    for i, j in pairs[link[:, 0] != link[:, 1]].tolist():
        if not inside((i, j)):
            raise ModelError(_soft_constraint(tree, i, j))
    x = tree.positions(tree.reference)
    distance = np.linalg.norm(x[pairs[:, 0]] - x[pairs[:, 1]], axis=1)
    off = np.abs(distance - wanted)
    worst = int(off.argmax())
    i, j = pairs[worst].tolist()
    what = (
        f"{tree.atoms.label(i)} and {tree.atoms.label(j)} are {distance[worst]:.4f} nm apart in the reference geometry "
        f"and the System constrains them to {wanted[worst]:.4f}"
    )
    if off[worst] > BROKEN:
        raise ModelError(f"{what}; minimise the structure with OpenMM first, and build the tree from the outcome")
    if off[worst] > KEPT:
        number = int((off > KEPT).sum())
        return [
            f"the tree keeps the distances of the reference geometry, which differ from {number} of {count} "
            f"constraints of the System: {what}; relax_geometry() takes the distances of the System"
        ]
    return []


def _soft_constraint(tree: TreeModel, i: int, j: int) -> str:
    """Return why the constraint between atoms i and j cannot be honoured."""
    atoms = tree.atoms
    what = f"the System has a constraint between {atoms.label(i)} and {atoms.label(j)}"
    if tree.molecule[tree.atom_link[i]] != tree.molecule[tree.atom_link[j]]:
        return f"{what}, which are not in one molecule of the tree; freeze them into one body with rigid="
    if [min(i, j), max(i, j)] in tree.cut_bonds.tolist():
        return f"{what}, a bond left out of the tree for the force field to hold; create it with constraints=None"
    between = "; ".join(str(c) for c in _between(tree, i, j))
    return (
        f"{what}, whose distance is soft ({between}), and in place of the constraint no energy would hold it; make "
        "these coordinates hard, or create the System with constraints=None and rigidWater=False"
    )


def _between(tree: TreeModel, i: int, j: int) -> list[Coordinate]:
    """Return the soft coordinates between the bodies of two atoms of one molecule."""
    active, between = {int(tree.atom_link[i]), int(tree.atom_link[j])}, []
    while len(active) > 1:
        last = max(active)  # parents have smaller numbers, so the largest is below all others
        active.discard(last)
        between.append(tree.coordinates[int(tree.coordinate[last])])
        active.add(int(tree.parent[last]))
    return between
