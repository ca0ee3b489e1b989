"""Angles and torsions inside rigid units can be left out: energies and torques stay as they were."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
from random_trees import random_state
from real_structures import DATA, load

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.engine.rigid_terms import drop_rigid_terms
from peptidyn.engine.systems import make_system

MODELS = {
    "torsions": ("phi psi chi methyl polar", "amber14", lambda: ptd.build_peptide("APWK")),
    "angles": ("phi psi chi omega angles", "amber14", lambda: ptd.build_peptide("GPY")),
    "backbone": ("phi psi", "amber99sbildn", lambda: load(DATA / "ala10-helix.pdb")),
    "charmm": ("phi psi chi", "charmm36", lambda: ptd.build_peptide("AFPK", caps=False)),
}


def evaluate(system, x):
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(x)
    state = context.getState(energy=True, forces=True)
    return state.getPotentialEnergy()._value, state.getForces(asNumpy=True)._value


def count_terms(system):
    kinds = {
        "HarmonicAngleForce": "getNumAngles",
        "PeriodicTorsionForce": "getNumTorsions",
    }
    return {
        type(f).__name__: getattr(f, kinds[type(f).__name__])() for f in system.getForces() if type(f).__name__ in kinds
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "charmm" else name for name in MODELS]
)
def test_energies_and_torques_stay(name):
    soft, forcefield, make = MODELS[name]
    structure = make()
    system = make_system(structure.topology, "vacuum", forcefield)
    tree = ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, structure.positions), soft)
    lean, terms = drop_rigid_terms(system, tree)
    assert 0.2 < terms.dropped / terms.total < 1
    before, after = count_terms(system), count_terms(lean)
    assert sum(before.values()) - sum(after.values()) == terms.dropped and sum(before.values()) == terms.total
    assert after["HarmonicAngleForce"] < 0.5 * before["HarmonicAngleForce"]
    rng = np.random.default_rng(3)
    for _ in range(5):
        state = random_state(tree, rng)
        x = tree.positions(state)
        (full, force), (short, lean_force) = evaluate(system, x), evaluate(lean, x)
        assert short == pytest.approx(full, rel=1e-9)
        torque = tree.generalized_forces(state, force)
        difference = np.abs(tree.generalized_forces(state, lean_force) - torque).max()
        assert difference < 1e-8 * np.abs(torque).max()


def test_what_varies_stays():
    """Soft torsions and soft angles keep their terms."""
    structure = load(DATA / "ala1.pdb")
    system = make_system(structure.topology, "vacuum")
    rigid, bent = (
        drop_rigid_terms(system, ptd.build_tree(structure, soft))[0] for soft in ("phi psi", "phi psi angles")
    )
    assert count_terms(rigid)["HarmonicAngleForce"] == 0
    assert count_terms(bent)["HarmonicAngleForce"] > 0
    assert 0 < count_terms(rigid)["PeriodicTorsionForce"] < count_terms(bent)["PeriodicTorsionForce"]


def test_forces_keep_their_names_groups_and_boxes():
    structure = load(DATA / "ala1.pdb")
    system = make_system(structure.topology, "vacuum")
    for group, force in enumerate(system.getForces(), start=3):
        force.setForceGroup(group)
        force.setName(f"force {group}")
        if hasattr(force, "setUsesPeriodicBoundaryConditions"):
            force.setUsesPeriodicBoundaryConditions(group % 2 == 0)

    def described(one):
        return {(force.getName(), force.getForceGroup(), force.usesPeriodicBoundaryConditions()) for force in one}

    lean, _ = drop_rigid_terms(system, ptd.build_tree(structure))
    kept = [force for force in lean.getForces() if "force" in force.getName() and force.getName()[6:].isdigit()]
    assert described(kept) == described(system.getForces()) and len(kept) == system.getNumForces() > 3


def test_such_a_system_is_neither_relaxed_nor_cut_again():
    structure = load(DATA / "ala1.pdb")
    system = make_system(structure.topology, "vacuum")
    tree = ptd.build_tree(structure)
    lean, _ = drop_rigid_terms(system, tree)
    with pytest.raises(ArgumentError, match="already"):
        drop_rigid_terms(lean, tree)
    with pytest.raises(ArgumentError, match="particles"):
        drop_rigid_terms(make_system(load(DATA / "ala3.pdb").topology, "vacuum"), tree)
    simulation = ptd.TorsionSimulation(structure.topology, lean, ptd.TorsionVerletIntegrator(tree, 0.002), "Reference")
    with pytest.raises(ModelError, match="relax with the whole System first"):
        simulation.relax_geometry()
