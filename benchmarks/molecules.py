"""Molecules that several benchmarks share, in peptidyn and in OpenMM."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm
from openmm import app, unit

import peptidyn as ptd
from peptidyn.engine.systems import load_force_field

POLYALANINE = "capped polyalanine, soft phi and psi, free base"


def polyalanine(n_torsions: int, seed: int = 1) -> tuple[ptd.TreeModel, ptd.State]:
    """Return a capped polyalanine with soft phi and psi and free base, and a state near the alpha helix.

    A residue has two torsions, so `n_torsions` is even.
    """
    tree = ptd.build_tree(ptd.build_peptide("A" * (n_torsions // 2)), soft="phi psi")
    return tree, off_reference(tree, seed)


def off_reference(tree: ptd.TreeModel, seed: int = 1) -> ptd.State:
    """Return a state off the reference by 0.1 rad, normally distributed, so that no symmetry helps a solver."""
    noise = 0.1 * np.random.default_rng(seed).standard_normal(tree.n_torsions)
    return tree.reference.replace(torsions=tree.reference.torsions + noise)


def context(
    system: Any, integrator: Any = None, platform: str = "Reference", properties: dict[str, str] | None = None
) -> Any:
    """Return a Context; without an integrator for energies, forces and minimisation only."""
    integrator = integrator or openmm.VerletIntegrator(0.001)
    return openmm.Context(system, integrator, openmm.Platform.getPlatformByName(platform), properties or {})


def positions_of(place: Any) -> np.ndarray:
    """Return the positions (n_atoms, 3) of a Context, nm."""
    return np.array(place.getState(positions=True).getPositions(asNumpy=True)._value)


def relax(place: Any, positions: np.ndarray) -> np.ndarray:
    """Return positions (n_atoms, 3), nm, minimised in Cartesian coordinates in a Context."""
    place.setPositions(positions)
    openmm.LocalEnergyMinimizer.minimize(place, 1.0)
    return positions_of(place)


def constrained_system(topology: Any, system: Any, hydrogen_mass: float) -> Any:
    """Return a System for OpenMM's own integrators with the forces of `system`, which is amber14 in OBC2.

    Bonds of hydrogens are constrained, and hydrogens have `hydrogen_mass` (Da), which is how OpenMM recommends to run.
    """
    made = load_force_field("vacuum", "amber14").createSystem(
        topology, nonbondedMethod=app.NoCutoff, constraints=app.HBonds, removeCMMotion=False,
        hydrogenMass=hydrogen_mass * unit.dalton,
    )  # fmt: skip
    for force in system.getForces():
        if isinstance(force, openmm.GBSAOBCForce):
            made.addForce(openmm.XmlSerializer.clone(force))
    for force in made.getForces():
        if isinstance(force, openmm.NonbondedForce):
            force.setReactionFieldDielectric(1.0)  # as with any implicit solvent
    return made
