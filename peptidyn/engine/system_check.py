"""Does a System fit a tree? What torsion dynamics cannot honour is refused by name, with the fix."""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.core.errors import ModelError
from peptidyn.model.tree import TreeModel

_REFUSED = {
    "MonteCarloBarostat": "rigid molecules are not scaled by it: run at constant volume",
    "MonteCarloAnisotropicBarostat": "rigid molecules are not scaled by it: run at constant volume",
    "MonteCarloMembraneBarostat": "rigid molecules are not scaled by it: run at constant volume",
    "MonteCarloFlexibleBarostat": "rigid molecules are not scaled by it: run at constant volume",
    "AndersenThermostat": "it acts on Cartesian velocities: use TorsionLangevinIntegrator or TorsionGHMCIntegrator",
}


def check_system(tree: TreeModel, system: Any, masses: np.ndarray) -> list[str]:
    """Raise ModelError if `system` cannot be driven through `tree`; return notes on what is ignored.

    Parameters
    ----------
    tree : TreeModel
    system : openmm.System
    masses : (n_atoms,)
        Masses the System should have, Da (those of the structure, before any repartitioning).
    """
    from openmm import unit

    if system.getNumParticles() != tree.n_atoms:
        raise ModelError(
            f"the System has {system.getNumParticles()} particles but the tree has {tree.n_atoms} atoms; build the "
            "tree from the structure that the System was made from"
        )
    if system.getNumConstraints():
        i, j, _ = system.getConstraintParameters(0)
        raise ModelError(
            f"the System has {system.getNumConstraints()} constraints (the first between {tree.atoms.label(i)} and "
            f"{tree.atoms.label(j)}); the tree holds bonds and angles itself: create the System with constraints=None "
            "and rigidWater=False"
        )
    for i in range(tree.n_atoms):
        if system.isVirtualSite(i):
            raise ModelError(f"{tree.atoms.label(i)} is a virtual site; use a force field or water model without them")
    found = np.array([system.getParticleMass(i).value_in_unit(unit.dalton) for i in range(tree.n_atoms)])
    if (found <= 0).any():
        raise ModelError(
            f"{tree.atoms.label(int(np.argmin(found)))} has no mass in the System; give every particle a mass, and "
            "freeze parts of a molecule with rigid= instead"
        )
    off = np.abs(found - masses) > 1e-3 * masses
    if off.any():
        worst = int(np.argmax(off))
        raise ModelError(
            f"the mass of {tree.atoms.label(worst)} is {found[worst]:.4f} Da in the System and {masses[worst]:.4f} in "
            "the tree; build the tree with Structure.from_openmm(topology, system, positions)"
        )
    notes = []
    for force in system.getForces():
        kind = type(force).__name__
        if kind in _REFUSED:
            raise ModelError(f"the System holds a {kind}, which torsion dynamics would ignore; {_REFUSED[kind]}")
        if kind == "CMMotionRemover":
            notes.append("the CMMotionRemover of the System has no effect: total momentum is conserved, or thermalised")
    return notes
