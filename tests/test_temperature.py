"""Kinetic and configurational temperature of thermostatted torsion dynamics with a real force field."""

from __future__ import annotations

import numpy as np
import pytest
from real_structures import DATA, load

import peptidyn as ptd
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.systems import make_system

TEMPERATURE = 300.0
SAMPLES, EVERY = 40_000, 5


def ratio(numerator, denominator):
    """Return mean(numerator) / mean(denominator) and its standard error, autocorrelation counted."""
    value = numerator.mean() / denominator.mean()
    influence = (numerator - value * denominator) / denominator.mean()
    return value, influence.std() * np.sqrt(statistical_inefficiency(influence) / len(influence))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TorsionLangevinIntegrator", "TorsionGHMCIntegrator"])
def test_temperatures(kind):
    """Both within 2 % of 300 K, which is at least three standard errors: false-alarm rate 2.7e-3 per check.

    Configurational: sum <sin(q - c) dV/dq> / sum <cos(q - c)> = kT for any fixed c: with U_F the distribution of q is
    exp(-V/kT).
    """
    helix = load(DATA / "ala10-helix.pdb")
    system = make_system(helix.topology, "vacuum")
    structure = ptd.Structure.from_openmm(helix.topology, system, helix.positions)
    integrator = getattr(ptd, kind)(ptd.build_tree(structure, "phi psi"), TEMPERATURE, 20.0, 0.008, seed=4)
    simulation = ptd.TorsionSimulation(helix.topology, system, integrator, "CPU", {"Threads": "1"})
    simulation.relax_geometry(max_iterations=500)
    simulation.minimize_torsions(max_iterations=200)
    tree, center = simulation.tree, integrator.motion()[0].q
    simulation.set_velocities_to_temperature(TEMPERATURE)
    simulation.step(1000)
    kinetic, work, weight = np.empty((3, SAMPLES))
    for i in range(SAMPLES):
        simulation.step(EVERY)
        state, _ = integrator.motion()
        force = simulation.context.getState(forces=True).getForces(asNumpy=True)._value
        slope = -tree.generalized_forces(state, force)[tree.coordinate_dof]
        kinetic[i] = integrator.kinetic_energy()
        work[i] = np.sin(state.q - center) @ slope
        weight[i] = np.cos(state.q - center).sum()
    checks = {
        "kinetic": ratio(2 * kinetic / tree.n_dof, np.full(SAMPLES, BOLTZMANN)),
        "configurational": ratio(work / BOLTZMANN, weight),
    }
    for name, (value, error) in checks.items():
        assert error < 0.02 * TEMPERATURE / 3, (name, value, error)
        assert value == pytest.approx(TEMPERATURE, rel=0.02), (name, value, error)
