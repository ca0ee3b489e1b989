"""The Fixman potential as an OpenMM force."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
from openmm import unit
from random_trees import random_state
from real_structures import DATA, load

import peptidyn as ptd
from peptidyn.core.errors import ModelError

BENDS = "phi psi chi omega methyl angles"


def context_with(tree, force, positions):
    system = openmm.System()
    for mass in tree.masses:
        system.addParticle(float(mass))
    system.addForce(force)
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(positions)
    return system, context


@pytest.mark.parametrize("soft", ["phi psi chi", BENDS], ids=["torsions", "with-angles"])
def test_force_in_a_context(soft):
    tree = ptd.build_tree(load(DATA / "all20.pdb"), soft)
    state = random_state(tree, np.random.default_rng(0))
    x = tree.positions(state)
    _, context = context_with(tree, ptd.FixmanForce(tree, 300 * unit.kelvin), x)
    found = context.getState(energy=True, forces=True)
    potential = ptd.FixmanPotential(tree, 300)
    assert found.getPotentialEnergy()._value == pytest.approx(potential.energy(state), rel=1e-9)
    F = found.getForces(asNumpy=True)._value
    torque = potential.torque(state)
    assert np.abs(tree.generalized_forces(state, F) - torque).max() < 1e-8 * np.abs(torque).max()
    # no net force, no net torque; and the work along torsions is the change of the energy
    assert np.abs(F.sum(axis=0)).max() < 1e-8 * np.abs(F).max()
    assert np.abs(np.cross(x, F).sum(axis=0)).max() < 1e-8 * np.abs(F).max()
    h = 1e-4
    for k in range(0, tree.n_coordinates, 7):
        e = np.eye(tree.n_coordinates)[k]
        ends = []
        for s in (1, -1):
            context.setPositions(tree.positions(state.replace(q=state.q + s * h * e)))
            ends.append(context.getState(energy=True).getPotentialEnergy()._value)
        work = tree.generalized_forces(state, F)[tree.coordinate_dof[k]]
        assert -(ends[0] - ends[1]) / (2 * h) == pytest.approx(work, abs=1e-5 * np.abs(torque).max())


def test_force_survives_serialisation():
    tree = ptd.build_tree(load(DATA / "ala3.pdb"))
    system, context = context_with(tree, ptd.FixmanForce(tree, 300), tree.positions(tree.reference))
    copy = openmm.XmlSerializer.deserialize(openmm.XmlSerializer.serialize(system))
    other = openmm.Context(copy, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    other.setPositions(tree.positions(tree.reference))
    energies = [c.getState(energy=True).getPotentialEnergy()._value for c in (context, other)]
    assert energies[0] == energies[1]


def test_force_refuses_positions_without_the_constraints():
    tree = ptd.build_tree(load(DATA / "ala3.pdb"))
    x = tree.positions(tree.reference)
    x[tree.atoms.residue_atoms[2]["O"]] += 0.05
    _, context = context_with(tree, ptd.FixmanForce(tree, 300), x)
    with pytest.raises(Exception, match="peptide plane ALA 3 - ALA 4"):
        context.getState(energy=True)
    from peptidyn.engine.fixman_force import FixmanComputation

    with pytest.raises(ModelError, match="peptide plane"):
        FixmanComputation(tree, 300).energy_and_forces(x)
