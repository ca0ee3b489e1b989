"""The torsion integrators inside stock OpenMM, with real force fields on the Reference platform."""

from __future__ import annotations

import copy
import io
import pickle

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit
from real_structures import DATA, load

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError, StepError
from peptidyn.core.units import BOLTZMANN
from peptidyn.model.hydrogen_mass import repartition_hydrogen_mass

REFERENCE = openmm.Platform.getPlatformByName("Reference")


def vacuum(structure, **options):
    return app.ForceField("amber14-all.xml").createSystem(structure.topology, constraints=None, **options)


def simulate(structure, integrator, system=None):
    simulation = app.Simulation(structure.topology, system or vacuum(structure), integrator, REFERENCE)
    simulation.context.setPositions(structure.positions)
    return simulation


def test_stock_simulation_with_stock_reporters(tmp_path):
    structure = load(DATA / "ala3.pdb")
    tree = ptd.build_tree(structure, "phi psi methyl")
    integrator = ptd.TorsionLangevinIntegrator(
        tree, 300 * unit.kelvin, 5 / unit.picosecond, 4 * unit.femtoseconds, fixman=True, seed=7
    )
    simulation = simulate(structure, integrator)
    log = io.StringIO()
    simulation.reporters.append(
        app.StateDataReporter(log, 20, step=True, time=True, temperature=True, kineticEnergy=True)
    )
    simulation.reporters.append(app.DCDReporter(str(tmp_path / "t.dcd"), 20))
    simulation.step(600)
    assert simulation.currentStep == 600
    assert simulation.context.getTime()._value == pytest.approx(2.4)
    table = np.genfromtxt(io.StringIO(log.getvalue()), delimiter=",", names=True)
    kinetic, temperature = table["Kinetic_Energy_kJmole"], table["Temperature_K"]
    # the reported temperature is that of the reported kinetic energy over torsions and base
    assert temperature == pytest.approx(2 * kinetic / (tree.n_dof * BOLTZMANN), rel=2e-3)
    assert 200 < temperature[5:].mean() < 400  # 15 dof, 25 frames: five standard errors
    trajectory = mdtraj.load(str(tmp_path / "t.dcd"), top=structure.to_mdtraj().topology)
    assert trajectory.n_frames == 30
    weights = ptd.fixman_weights(tree, trajectory, 300)
    assert weights.misfit.max() < 1e-5  # every frame is rigid to the precision of the file


def test_seeds_and_settings():
    structure = load(DATA / "ala1.pdb")
    tree = ptd.build_tree(structure)
    ends = []
    for seed in (1, 1, 2):
        integrator = ptd.TorsionLangevinIntegrator(tree, 300, 1.0, 0.004, seed=seed)
        simulation = simulate(structure, integrator)
        simulation.step(10)
        ends.append(simulation.context.getState(positions=True).getPositions(asNumpy=True)._value)
    assert np.array_equal(ends[0], ends[1]) and not np.array_equal(ends[0], ends[2])
    integrator.setTemperature(350 * unit.kelvin)
    integrator.setFriction(2.0)
    assert integrator.getTemperature() == 350 * unit.kelvin and integrator.getFriction() == 2.0 / unit.picosecond
    simulation.step(5)


def test_ghmc_accepts_small_steps_and_reports():
    structure = load(DATA / "ala1.pdb")
    integrator = ptd.TorsionGHMCIntegrator(ptd.build_tree(structure), 300, 1.0, 0.008, seed=3)
    simulation = simulate(structure, integrator)
    simulation.step(100)
    assert integrator.acceptance > 0.9
    assert simulation.currentStep == 100


def test_a_rejected_proposal_leaves_the_forces_of_its_start():
    structure = load(DATA / "ala1.pdb")
    integrator = ptd.TorsionGHMCIntegrator(ptd.build_tree(structure), 300, 1.0, 0.1, seed=3)
    simulation = simulate(structure, integrator)
    simulation.step(1)
    stepper = integrator._stepper
    for _ in range(40):
        before = integrator.counters["accepted"]
        simulation.step(1)
        if integrator.counters["accepted"] == before:
            break
    assert integrator.acceptance < 1.0
    kept = stepper._evaluate().copy()
    stepper.forget()
    fresh = stepper._evaluate()
    integrator.mover.flush()
    assert np.abs(fresh - kept).max() < 1e-9 * np.abs(kept).max()


def test_hydrogen_mass_repartitioning():
    structure = load(DATA / "ala1.pdb")
    tree = ptd.build_tree(structure, "phi psi methyl")
    masses = repartition_hydrogen_mass(tree, 3 * unit.dalton)
    assert masses.sum() == pytest.approx(tree.masses.sum())
    assert masses[structure.atoms.element == "H"] == pytest.approx(3.0)
    integrator = ptd.TorsionLangevinIntegrator(tree, 300, 1.0, 0.004, hydrogen_mass=3.0, seed=1)
    simulation = simulate(structure, integrator)
    simulation.step(20)
    with pytest.raises(ArgumentError, match="without mass"):
        repartition_hydrogen_mass(tree, 8.0)


def test_moved_context_is_read_again_or_refused():
    structure = load(DATA / "ala3.pdb")
    tree = ptd.build_tree(structure)
    integrator = ptd.TorsionVerletIntegrator(tree, 0.002)
    simulation = simulate(structure, integrator)
    simulation.step(5)
    other = tree.reference.replace(torsions=tree.reference.torsions + 0.3)
    simulation.context.setPositions(tree.positions(other))
    simulation.context.setVelocities(np.zeros((tree.n_atoms, 3)))
    simulation.step(1)
    assert np.abs(integrator.mover.q - other.q).max() < 0.05
    broken = tree.positions(other)
    broken[structure.atoms.residue_atoms[2]["O"]] += 0.05
    simulation.context.setPositions(broken)
    with pytest.raises(ModelError, match="peptide plane ALA 3 - ALA 4"):
        simulation.step(1)


def test_explicit_water_with_pme():
    peptide = load(DATA / "ala1.pdb")
    field = app.ForceField("amber14-all.xml", "amber14/tip3p.xml")
    modeller = app.Modeller(peptide.topology, peptide.positions * unit.nanometer)
    modeller.addSolvent(field, boxSize=openmm.Vec3(1.9, 1.9, 1.9) * unit.nanometer)
    system = field.createSystem(
        modeller.topology, nonbondedMethod=app.PME, nonbondedCutoff=0.8, constraints=None, rigidWater=False
    )
    structure = ptd.Structure.from_openmm(modeller.topology, system, modeller.positions)
    tree = ptd.build_tree(structure)
    waters = tree.n_molecules - 1
    assert waters > 100 and tree.n_dof == 6 * tree.n_molecules + tree.n_torsions
    integrator = ptd.TorsionLangevinIntegrator(tree, 300, 5.0, 0.001, seed=2)
    simulation = app.Simulation(modeller.topology, system, integrator)
    simulation.context.setPositions(structure.positions)
    simulation.step(20)
    x = simulation.context.getState(positions=True).getPositions(asNumpy=True)._value
    assert np.isfinite(x).all()
    assert tree.fit(x).max_misfit < 1e-5
    assert integrator.computeSystemTemperature()._value > 0


# ---------------------------------------------------------------------------- refusals


def refusal(change, match):
    structure = load(DATA / "ala1.pdb")
    system = vacuum(structure)
    change(system)
    integrator = ptd.TorsionVerletIntegrator(ptd.build_tree(structure), 0.002)
    with pytest.raises(ModelError, match=match):
        simulate(structure, integrator, system)
    kept = openmm.Context(system, integrator, REFERENCE)  # says nothing to its integrator: the first step refuses it
    kept.setPositions(structure.positions)
    with pytest.raises(ModelError, match=match):
        integrator.step(1)


def test_systems_that_do_not_fit_are_refused():
    refusal(lambda s: s.addConstraint(0, 12, 0.7), "constraints=None and rigidWater=False")
    refusal(lambda s: s.addForce(openmm.AndersenThermostat(300, 1)), "AndersenThermostat")
    refusal(lambda s: s.setParticleMass(3, 0.0), "has no mass")
    refusal(lambda s: s.setParticleMass(3, 5.0), "mass of .* is 5.0000 Da in the System")

    def virtual(system):
        system.setParticleMass(0, 0.0)
        system.setVirtualSite(0, openmm.TwoParticleAverageSite(1, 2, 0.5, 0.5))

    refusal(virtual, "mass of .* is 0.0000 Da in the System")


def test_other_systems_and_missing_contexts():
    small, large = load(DATA / "ala1.pdb"), load(DATA / "ala3.pdb")
    integrator = ptd.TorsionVerletIntegrator(ptd.build_tree(small), 0.002)
    with pytest.raises(ModelError, match="not bound to a Context"):
        integrator.step(1)
    with pytest.raises(ModelError, match=r"42 particles but the tree has 22 atoms"):
        simulate(large, integrator)


def test_barostat_is_refused():
    structure = load(DATA / "ala1.pdb")
    topology = structure.topology
    topology = app.Modeller(topology, structure.positions * unit.nanometer).topology
    topology.setUnitCellDimensions(openmm.Vec3(3, 3, 3))
    system = app.ForceField("amber14-all.xml").createSystem(
        topology, nonbondedMethod=app.CutoffPeriodic, constraints=None
    )
    system.addForce(openmm.MonteCarloBarostat(1, 300))  # constant energy has no heat bath
    integrator = ptd.TorsionVerletIntegrator(ptd.build_tree(structure), 0.002)
    with pytest.raises(ModelError, match="TorsionLangevinIntegrator"):
        simulate(structure, integrator, system)


def test_copies_have_the_settings_and_the_random_numbers():
    """A copy, shallow, deep or pickled, is bound to no Context and goes on as its original does."""
    structure = ptd.build_peptide("A")
    system, tree = vacuum(structure), ptd.build_tree(structure)
    original = ptd.TorsionGHMCIntegrator(tree, 310, 2.0, 0.004, seed=3, hydrogen_mass=3, metric="auto")
    first = simulate(structure, original, system)
    original.setStepSize(0.003)
    original.setIntegrationForceGroups(1)
    first.step(3)
    copies = [copy.copy(original), copy.deepcopy(original), pickle.loads(pickle.dumps(original))]
    momenta = original.motion()[1]
    x = first.context.getState(positions=True).getPositions(asNumpy=True)
    original.set_motion(original.tree.state(x), momenta)  # both go on from what single precision left of it
    first.step(3)
    for one in copies:
        assert type(one) is ptd.TorsionGHMCIntegrator and one.settings == original.settings and one.metric == "auto"
        assert one.getIntegrationForceGroups() == 1 and one.tree.fingerprint == original.tree.fingerprint
        with pytest.raises(ModelError, match="not bound to a Context"):
            one.step(1)
        second = simulate(structure, one, system)
        one.set_motion(one.tree.state(x), momenta)
        second.step(3)
        ends = [s.context.getState(positions=True).getPositions(asNumpy=True)._value for s in (first, second)]
        assert np.array_equal(*ends)


def test_copies_lead_back_only_if_their_original_does():
    tree = ptd.bead_chain(4, 0.15, 1.9, 12.0, torsion=1.0)
    for check in (True, False):
        integrator = ptd.TorsionGHMCIntegrator(tree, 300, 1.0, 0.004, check_reverse=check)
        assert copy.copy(integrator)._stepper.check_reverse is check


def test_copies_at_constant_energy_keep_the_temperature_of_u_f():
    structure = ptd.build_peptide("A")
    system, tree = vacuum(structure), ptd.build_tree(structure)
    integrator = ptd.TorsionVerletIntegrator(tree, 0.001, fixman=True, temperature=400)
    energies = []
    for one in (integrator, copy.deepcopy(integrator)):
        simulation = simulate(structure, one, system)
        energies.append(one.fixman_energy())
        del simulation
    assert energies[0] == energies[1] == pytest.approx(ptd.FixmanPotential(tree, 400).energy(tree.reference), abs=1e-3)


@pytest.mark.parametrize("platform", ["Reference", "CPU"])
def test_an_integrator_without_its_class_does_not_stand_still(platform):
    """OpenMM's XML loses the subclass; what is left fails at its first step and says what to do instead."""
    structure = ptd.build_peptide("A")
    integrator = ptd.TorsionVerletIntegrator(ptd.build_tree(structure), 0.004)
    bare = openmm.XmlSerializer.deserialize(openmm.XmlSerializer.serialize(integrator))
    context = openmm.Context(vacuum(structure), bare, openmm.Platform.getPlatformByName(platform))
    context.setPositions(structure.positions)
    context.getState(energy=True)
    with pytest.raises(openmm.OpenMMException, match="load_checkpoint"):
        bare.step(1)
    assert context.getStepCount() == 0


def test_steps_before_positions_say_what_is_missing():
    structure = ptd.build_peptide("A")
    integrator = ptd.TorsionVerletIntegrator(ptd.build_tree(structure), 0.004)
    simulation = app.Simulation(structure.topology, vacuum(structure), integrator)
    with pytest.raises(ModelError, match=r"no positions yet.*setPositions"):
        simulation.step(1)


def test_a_step_that_is_too_large_names_the_torsion():
    structure = load(DATA / "ala3.pdb")
    tree = ptd.build_tree(structure, "phi psi methyl")
    integrator = ptd.TorsionVerletIntegrator(tree, 0.5)
    simulation = simulate(structure, integrator)
    integrator.set_velocities_to_temperature(3000)
    with pytest.raises(StepError, match=r"step \d+ at .* ps could not be made; the step is too large: \w+ of chain A"):
        simulation.step(50)
    x = simulation.context.getState(positions=True).getPositions(asNumpy=True)._value
    assert np.isfinite(x).all()


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [((-1, 1, 0.002), "temperature"), ((300, -1, 0.002), "friction"), ((300, 1, 0), "time step")],
)
def test_bad_settings(phrase, arguments):
    with pytest.raises(ArgumentError, match=phrase):
        ptd.TorsionLangevinIntegrator(ptd.build_tree(load(DATA / "ala1.pdb")), *arguments)


# ---------------------------------------------------------------------------- long runs


def relaxed_ala10(soft):
    """Return topology, native OBC2 system, tree of the relaxed helix and an equilibrated state of the context."""
    from peptidyn.engine.systems import make_system

    helix = load(DATA / "ala10-helix.pdb")
    system = make_system(helix.topology, solvent="obc2")
    platform = openmm.Platform.getPlatformByName("CPU")
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform, {"Threads": "1"})
    context.setPositions(helix.positions)
    openmm.LocalEnergyMinimizer.minimize(context, 1.0)
    x = context.getState(positions=True).getPositions(asNumpy=True)._value
    structure = ptd.Structure.from_openmm(helix.topology, system, x)
    tree = ptd.build_tree(structure, soft)
    warm = ptd.TorsionLangevinIntegrator(tree, 300, 2.0, 0.002, seed=1)
    simulation = cpu_simulation(structure, system, warm)
    simulation.context.setPositions(x)
    warm.set_velocities_to_temperature(300)
    simulation.step(3000)
    return structure, system, tree, simulation.context.getState(positions=True, velocities=True)


def cpu_simulation(structure, system, integrator):
    platform = openmm.Platform.getPlatformByName("CPU")
    return app.Simulation(structure.topology, system, integrator, platform, {"Threads": "1"})


@pytest.mark.slow
@pytest.mark.parametrize(("soft", "timestep", "limit"), [("phi psi methyl", 0.004, 2.0), ("phi psi", 0.010, 3.0)])
def test_energy_does_not_drift(soft, timestep, limit):
    """200 ps at constant energy in native OBC2: drift below the limit in kJ/mol/ns."""
    structure, system, tree, start = relaxed_ala10(soft)
    integrator = ptd.TorsionVerletIntegrator(tree, timestep)
    simulation = cpu_simulation(structure, system, integrator)
    simulation.context.setState(start)
    energies = []
    for _ in range(round(200 / timestep) // 100):
        simulation.step(100)
        energies.append(integrator.total_energy())
    time = 0.1 * timestep * np.arange(len(energies))
    assert abs(np.polyfit(time, energies, 1)[0]) < limit


@pytest.mark.slow
@pytest.mark.parametrize(("soft", "timestep", "least"), [("phi psi methyl", 0.008, 0.97), ("phi psi", 0.010, 0.99)])
def test_ghmc_acceptance(soft, timestep, least):
    structure, system, tree, start = relaxed_ala10(soft)
    integrator = ptd.TorsionGHMCIntegrator(tree, 300, 1.0, timestep, seed=2)
    simulation = cpu_simulation(structure, system, integrator)
    simulation.context.setState(start)
    simulation.step(4000)
    assert integrator.acceptance >= least
