"""Bonds of a System: for topologies that have none, or lack those of some molecules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.residues import is_hydrogen
from peptidyn.io.bonding import longest_bonds
from peptidyn.io.topology import Bonds


def bonds_of_system(system: Any, atoms: Atoms, positions: np.ndarray) -> Bonds:
    """Return the bonds that the bond terms and constraints of an openmm.System show.

    Pairs that are too far apart for a bond (restraints, Urey-Bradley terms, constrained angles) are left out, and so
    are constraints between hydrogens.

    Parameters
    ----------
    system : openmm.System
    atoms : Atoms
    positions : (n_atoms, 3), nm
        Tell the length of bonds whose force has no length as a parameter.
    """
    found = list(_terms(system, atoms, positions))
    pairs = np.array([sorted(pair) for *pair, _ in found], dtype=np.int64).reshape(-1, 2)
    length = np.array([length for *_, length in found])
    near = length <= longest_bonds(atoms, pairs)
    return {(int(i), int(j)): (None, None) for i, j in np.unique(pairs[near], axis=0)}


def _terms(system: Any, atoms: Atoms, positions: np.ndarray) -> Iterator[tuple[int, int, float]]:
    """Yield pairs of atoms and their distance at rest, nm."""
    import openmm

    for force in system.getForces():
        if not isinstance(force, openmm.HarmonicBondForce | openmm.CustomBondForce):
            continue
        harmonic = isinstance(force, openmm.HarmonicBondForce)
        for n in range(force.getNumBonds()):
            i, j, rest, *_ = force.getBondParameters(n)
            yield i, j, rest._value if harmonic else float(np.linalg.norm(positions[i] - positions[j]))
    hydrogen = is_hydrogen(atoms)
    for n in range(system.getNumConstraints()):
        i, j, length = system.getConstraintParameters(n)
        if not (hydrogen[i] and hydrogen[j]):
            yield i, j, length._value
