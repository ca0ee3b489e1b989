"""Angle and torsion terms inside rigid units: constant in torsion dynamics, so a System can do without them.

An angle, torsion or other term whose atoms all belong to one rigid unit (the atoms on the axis of a joint belong to the
units on both sides) has the same energy in every configuration of a tree and does no work along any allowed motion.
Bonds are constant too, but stay: OpenMM tells by them which atoms form a molecule.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import openmm

from peptidyn.core.errors import ArgumentError
from peptidyn.model.rigid_units import same_unit
from peptidyn.model.tree import TreeModel

CONSTANT = "energy of the angles and torsions inside rigid units"
"""Name of the force that stands for the terms that were dropped."""


_KINDS = {
    openmm.HarmonicAngleForce: ("Angle", 3),
    openmm.PeriodicTorsionForce: ("Torsion", 4),
    openmm.RBTorsionForce: ("Torsion", 4),
}
"""The forces whose terms are dropped: what they call a term, and how many atoms it begins with. Custom forces stay as
they are: what they compute is theirs to say."""


@dataclass(frozen=True)
class DroppedTerms:
    """What `drop_rigid_terms` left out.

    Attributes
    ----------
    dropped, total : int
        Angles and torsions left out, and all there were.
    energy : float
        Their constant energy, kJ/mol, which the System still reports.
    """

    dropped: int
    total: int
    energy: float

    def __str__(self) -> str:
        return (
            f"{self.dropped} of {self.total} angle and torsion terms lie inside rigid units and are left out of the "
            f"forces; their constant energy, {self.energy:.1f} kJ/mol, is still reported"
        )


def drop_rigid_terms(system: Any, tree: TreeModel) -> tuple[Any, DroppedTerms]:
    """Return a copy of `system` without the angles and torsions inside rigid units of `tree`, and what was left out.

    Harmonic angles, periodic and Ryckaert-Bellemans torsions are dropped; bonds, nonbonded interactions and custom
    forces stay. One force with the constant energy of the dropped terms, at the reference geometry of
    the tree, is added, so that energies are those of the whole force field. The copy fits this tree and this
    geometry only, and can no longer be minimised in Cartesian coordinates.

    Parameters
    ----------
    system : openmm.System
    tree : TreeModel

    Returns
    -------
    system : openmm.System
    terms : DroppedTerms
    """
    if lacks_rigid_terms(system):
        raise ArgumentError("the terms inside rigid units were dropped from this System already")
    if system.getNumParticles() != tree.n_atoms:
        raise ArgumentError(
            f"the System has {system.getNumParticles()} particles but the tree has {tree.n_atoms} atoms"
        )
    inside = same_unit(tree)
    lean, constant = copy.deepcopy(system), openmm.System()
    for _ in range(tree.n_atoms):
        constant.addParticle(1.0)
    places = [i for i, force in enumerate(system.getForces()) if type(force) in _KINDS]
    dropped = total = 0
    for place in places:
        force = system.getForce(place)
        kept, rigid = _split(force, inside)
        dropped += _count(rigid)
        total += _count(force)
        constant.addForce(rigid)
        lean.addForce(kept)
    for place in reversed(places):
        lean.removeForce(place)
    energy = _energy(constant, tree.positions(tree.reference))
    lean.addForce(_constant_force(energy))
    return lean, DroppedTerms(dropped, total, energy)


def lacks_rigid_terms(system: Any) -> bool:
    """True if `drop_rigid_terms` made this System."""
    return any(force.getName() == CONSTANT for force in system.getForces())


def _split(force: Any, inside: Callable[[Iterable[int]], bool]) -> tuple[Any, Any]:
    """Return two forces like `force`: one with the terms that vary, one with those inside a rigid unit."""
    term, n_atoms = _KINDS[type(force)]
    parts = (type(force)(), type(force)())
    for part in parts:
        part.setName(force.getName())
        part.setForceGroup(force.getForceGroup())
        part.setUsesPeriodicBoundaryConditions(force.usesPeriodicBoundaryConditions())
    for i in range(_count(force)):
        values = getattr(force, f"get{term}Parameters")(i)
        part = parts[1] if inside(values[:n_atoms]) else parts[0]
        getattr(part, f"add{term}")(*values)
    return parts


def _count(force: Any) -> int:
    return getattr(force, f"getNum{_KINDS[type(force)][0]}s")()


def _energy(system: Any, positions: np.ndarray) -> float:
    """Return the energy of a System at positions (n_atoms, 3), nm, in double precision; kJ/mol."""
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(positions)
    return context.getState(energy=True).getPotentialEnergy()._value


def _constant_force(energy: float) -> Any:
    force = openmm.CustomExternalForce("rigid_unit_energy")
    force.setName(CONSTANT)
    force.addPerParticleParameter("rigid_unit_energy")
    force.addParticle(0, [energy])
    return force
