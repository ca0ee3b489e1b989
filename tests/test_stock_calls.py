"""Calls of stock OpenMM scripts: they work, or one sentence names the call to use."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
from openmm import app, unit
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import ModelError
from peptidyn.core.units import BOLTZMANN

STRUCTURE = ptd.load_structure(DATA / "ala1.pdb")
TREE = ptd.build_tree(STRUCTURE)
REFERENCE = openmm.Platform.getPlatformByName("Reference")


def make_system() -> openmm.System:
    return ptd.make_system(STRUCTURE.topology, solvent="vacuum")


def stock(integrator: openmm.Integrator) -> app.Simulation:
    simulation = app.Simulation(STRUCTURE.topology, make_system(), integrator, REFERENCE)
    simulation.context.setPositions(STRUCTURE.positions)
    return simulation


def torsional(integrator: openmm.Integrator) -> ptd.TorsionSimulation:
    return ptd.TorsionSimulation(STRUCTURE.topology, make_system(), integrator, "Reference")


def verlet(**options) -> ptd.TorsionVerletIntegrator:
    return ptd.TorsionVerletIntegrator(TREE, 0.002, **options)


def positions(simulation: app.Simulation) -> np.ndarray:
    return np.array(simulation.context.getState(positions=True).getPositions(asNumpy=True)._value)


def test_minimize_energy():
    """Of a stock Simulation it deforms rigid units, and the next step says so; of a TorsionSimulation it works."""
    simulation = stock(verlet())
    simulation.minimizeEnergy()
    with pytest.raises(ModelError, match=r"TorsionSimulation.minimizeEnergy\(\).*use_geometry"):
        simulation.step(1)
    simulation = torsional(verlet())
    before = simulation.integrator.potential_energy()
    simulation.minimizeEnergy()
    assert simulation.integrator.potential_energy() < before - 1.0
    simulation.step(5)


def test_a_stock_simulation_refuses_its_system_at_once():
    """Before a Context is made and before anything is minimised; a file name in place of a System is read first."""
    unfit = make_system()
    unfit.addForce(openmm.AndersenThermostat(300, 1.0))
    flexible = ptd.build_tree(STRUCTURE, soft="all")
    constrained = app.ForceField("amber14-all.xml").createSystem(STRUCTURE.topology, constraints=app.HBonds)
    for tree, system, match in ((TREE, unfit, "AndersenThermostat"), (flexible, constrained, "whose distance is soft")):
        integrator = ptd.TorsionVerletIntegrator(tree, 0.001)
        with pytest.raises(ModelError, match=match):
            app.Simulation(STRUCTURE.topology, system, integrator, REFERENCE)
        assert integrator.thisown  # no Context has taken it


def test_a_stock_simulation_reads_and_checks_the_system_of_a_file(tmp_path):
    unfit = make_system()
    unfit.addForce(openmm.AndersenThermostat(300, 1.0))
    (tmp_path / "system.xml").write_text(openmm.XmlSerializer.serialize(unfit))
    with pytest.raises(ModelError, match="AndersenThermostat"):
        app.Simulation(STRUCTURE.topology, str(tmp_path / "system.xml"), verlet(), REFERENCE)


def test_the_class_of_an_integrator_is_its_class():
    integrator = verlet()
    assert integrator.__class__ is type(integrator) is ptd.TorsionVerletIntegrator
    assert isinstance(integrator, openmm.CustomIntegrator) and not isinstance(integrator, str)


@pytest.mark.parametrize("make", [stock, torsional])
def test_set_velocities_to_temperature(make):
    """The kinetic energy of many draws is that of all degrees of freedom: within 4 standard errors."""
    simulation = make(verlet(seed=1))
    n, draws = TREE.n_dof, 400
    kinetic = []
    for seed in range(draws):
        simulation.context.setVelocitiesToTemperature(300 * unit.kelvin, seed + 1)
        kinetic.append(simulation.integrator.kinetic_energy())
    expected = 0.5 * n * BOLTZMANN * 300
    assert abs(np.mean(kinetic) - expected) < 4 * expected * np.sqrt(2 / n / draws)
    simulation.context.setVelocitiesToTemperature(300, 7)
    once = simulation.integrator.kinetic_energy()
    simulation.context.setVelocitiesToTemperature(300, 7)
    assert simulation.integrator.kinetic_energy() == once


def test_set_velocities_to_temperature_with_joint_inertias():
    """OpenMM's draw knows nothing of them: it is replaced once the Context is known, and refused before."""

    def langevin() -> ptd.TorsionLangevinIntegrator:
        tree = ptd.build_tree(STRUCTURE, soft="all")
        return ptd.TorsionLangevinIntegrator(tree, 300, 1.0, 0.016, seed=1, metric="auto")

    simulation = torsional(langevin())
    simulation.context.setVelocitiesToTemperature(300)
    T = simulation.integrator.computeSystemTemperature()._value
    n = simulation.tree.n_dof
    assert abs(T - 300) < 5 * 300 * np.sqrt(2 / n)
    simulation = stock(langevin())
    simulation.context.setVelocitiesToTemperature(300)
    with pytest.raises(ModelError, match=r"integrator\.set_velocities_to_temperature"):
        simulation.step(1)
    simulation.context.setVelocities(np.zeros((STRUCTURE.n_atoms, 3)))
    simulation.step(2)
    simulation.context.setVelocitiesToTemperature(300)
    assert abs(simulation.integrator.computeSystemTemperature()._value - 300) < 5 * 300 * np.sqrt(2 / n)


def test_save_and_load_state_after_relaxing(tmp_path):
    """In the simulation that was relaxed it works; in another one the geometry must be taken over first."""
    file = str(tmp_path / "state.xml")
    simulation = torsional(verlet(seed=3))
    simulation.relax_geometry(max_iterations=20)
    simulation.set_velocities_to_temperature(300)
    simulation.saveState(file)
    simulation.step(5)
    first = positions(simulation)
    simulation.loadState(file)
    simulation.step(5)
    assert np.abs(positions(simulation) - first).max() < 1e-9
    other = torsional(verlet(seed=3))
    other.loadState(file)
    with pytest.raises(ModelError, match="use_geometry"):
        other.step(1)
    state = simulation.context.getState(positions=True)
    other.use_geometry(state.getPositions(asNumpy=True))
    other.loadState(file)
    other.step(5)
    assert np.abs(positions(other) - first).max() < 1e-6


def test_reinitialize_keeps_the_motion():
    plain, again = (torsional(verlet(seed=4)) for _ in range(2))
    for simulation in (plain, again):
        simulation.set_velocities_to_temperature(300)
        simulation.step(3)
    again.context.reinitialize(preserveState=True)
    for simulation in (plain, again):
        simulation.step(3)
    assert np.abs(positions(plain) - positions(again)).max() < 1e-9
    assert again.currentStep == 6 and again.context.getTime()._value == pytest.approx(0.012)


def test_set_step_size():
    """Half the step, twice as often: the same motion to the order of the method, and the clock follows."""
    ends = []
    for h, steps in ((0.002, 10), (0.001, 20)):
        simulation = torsional(verlet(seed=5))
        simulation.set_velocities_to_temperature(300)
        simulation.integrator.setStepSize(h * unit.picoseconds)
        simulation.step(steps)
        ends.append(positions(simulation))
        assert simulation.context.getTime()._value == pytest.approx(0.02)
    assert 1e-9 < np.abs(ends[0] - ends[1]).max() < 1e-3
