"""Hydrogen mass repartitioning: hydrogens heavier, and the atoms they are bonded to lighter by as much."""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.residues import is_hydrogen, is_water
from peptidyn.core.units import plain
from peptidyn.model.tree import TreeModel


def with_hydrogen_mass(tree: TreeModel, hydrogen_mass: Any) -> TreeModel:
    """Return the tree with every hydrogen at `hydrogen_mass` (float or Quantity, Da); the tree itself for None."""
    return tree if hydrogen_mass is None else tree.with_masses(repartition_hydrogen_mass(tree, hydrogen_mass))


def repartition_hydrogen_mass(tree: TreeModel, hydrogen_mass: Any) -> np.ndarray:
    """Return atom masses (n_atoms,), Da, with every hydrogen at `hydrogen_mass`, taken from the atom it is bonded to.

    Waters keep their masses, as in OpenMM.
    """
    target = float(plain(hydrogen_mass))
    masses = tree.masses.copy()
    hydrogen = is_hydrogen(tree.atoms)
    for i in np.flatnonzero(hydrogen & ~is_water(tree.atoms)[tree.atoms.residue]).tolist():
        bonded = tree.atoms.neighbours[i]
        if len(bonded) != 1 or hydrogen[bonded[0]]:
            continue
        heavy = bonded[0]
        change = target - masses[i]
        masses[i] += change
        masses[heavy] -= change
    bad = np.flatnonzero((masses <= 0) & (tree.masses > 0))
    if bad.size:
        raise ArgumentError(
            f"hydrogen_mass is {target:g} Da, which leaves {tree.atoms.label(int(bad[0]))} without mass; give less"
        )
    return masses
