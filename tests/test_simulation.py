"""TorsionSimulation on real Contexts: forces by name, minimisation, geometry, reporters, checkpoints."""

from __future__ import annotations

import copy
import csv
import io
import os

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit
from scipy.optimize import OptimizeResult
from scipy.spatial.transform import Rotation

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError, ModelError, OutputError, StepError
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.minimisation import _Chart, _left_jacobians, minimise
from peptidyn.engine.simulation import TorsionSimulation
from peptidyn.engine.system_check import check_system
from peptidyn.engine.systems import make_system
from peptidyn.engine.torsion_reporter import TorsionReporter
from peptidyn.integrators.mover import MANY_MOLECULES, Mover
from peptidyn.model.kinematics import FREE, POINT

SOFT = "phi psi chi methyl"
KINDS = ("nve", "langevin", "ghmc")


def make_integrator(kind, tree, seed=3, timestep=0.004):
    if kind == "nve":
        return ptd.TorsionVerletIntegrator(tree, timestep, seed=seed)
    cls = ptd.TorsionLangevinIntegrator if kind == "langevin" else ptd.TorsionGHMCIntegrator
    return cls(tree, 300.0, 5.0, timestep, seed=seed)


@pytest.fixture(scope="module")
def alanine():
    """Capped alanine: structure and its System in vacuum."""
    structure = ptd.build_peptide("A", phi=-75, psi=60)
    return structure, make_system(structure.topology, "vacuum")


def make_simulation(alanine, kind="langevin", soft=SOFT, **keywords):
    structure, system = alanine
    massive = ptd.Structure.from_openmm(structure.topology, system, structure.positions)  # with the System's masses
    tree = ptd.build_tree(massive, soft=soft)
    return TorsionSimulation(structure.topology, system, make_integrator(kind, tree, **keywords), "Reference")


def positions_of(simulation):
    return np.array(simulation.context.getState(positions=True).getPositions(asNumpy=True)._value)


# ---------------------------------------------------------------------------- forces


def energy_and_forces(system, positions):
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(positions)
    state = context.getState(energy=True, forces=True)
    return state.getPotentialEnergy()._value, np.array(state.getForces(asNumpy=True)._value)


@pytest.mark.parametrize("sequence", ["AA", "GKSDPHC"])
def test_native_obc2_equals_the_custom_force(sequence):
    structure = ptd.build_peptide(sequence)
    custom = app.ForceField("amber14-all.xml", "implicit/obc2.xml").createSystem(structure.topology)
    energy, force = energy_and_forces(make_system(structure.topology, "obc2"), structure.positions)
    expected_energy, expected_force = energy_and_forces(custom, structure.positions)
    vacuum, _ = energy_and_forces(make_system(structure.topology, "vacuum"), structure.positions)
    assert abs(energy - vacuum) > 10.0  # the solvent does something
    assert energy == pytest.approx(expected_energy, rel=1e-5)
    assert np.abs(force - expected_force).max() < 1e-5 * np.abs(expected_force).max()


def test_a_cutoff_holds_for_all_nonbonded_forces(alanine):
    """Of charges and of the implicit solvent alike; water beyond it is that of the implicit solvent alone."""
    system = make_system(alanine[0].topology, "obc2", cutoff=1.3)
    forces = {type(force).__name__: force for force in system.getForces()}
    for name in ("NonbondedForce", "GBSAOBCForce"):
        assert forces[name].getCutoffDistance()._value == 1.3
        assert forces[name].getNonbondedMethod() == forces[name].CutoffNonPeriodic
    assert forces["NonbondedForce"].getReactionFieldDielectric() == 1.0
    assert forces["GBSAOBCForce"].getSolventDielectric() == 78.5 and forces["GBSAOBCForce"].getSoluteDielectric() == 1.0


def test_systems_have_no_constraints(alanine):
    structure, _ = alanine
    for solvent in ("obc2", "gbn2", "vacuum"):
        system = make_system(structure.topology, solvent)
        assert system.getNumConstraints() == 0
        kinds = {type(force).__name__ for force in system.getForces()}
        assert ("GBSAOBCForce" in kinds) == (solvent == "obc2")
        assert ("CustomGBForce" in kinds) == (solvent == "gbn2")


def test_forces_refuse_what_they_do_not_know(alanine):
    structure, _ = alanine
    with pytest.raises(ArgumentError, match=r"obc2, gbn2, vacuum"):
        make_system(structure.topology, "water")
    with pytest.raises(ArgumentError, match=r"did you mean amber1[49]"):
        make_system(structure.topology, forcefield="amber15")
    with pytest.raises(ArgumentError, match=r"exclude each other"):
        make_system(structure.topology, "obc2", periodic=True)
    bare = structure.subset("not element H")
    with pytest.raises(ModelError, match=r"cannot describe this structure"):
        make_system(bare.topology)


# ---------------------------------------------------------------------------- construction


def test_foreign_integrators_and_platforms_are_refused(alanine):
    structure, system = alanine
    with pytest.raises(ArgumentError, match="VerletIntegrator"):
        TorsionSimulation(structure.topology, system, openmm.VerletIntegrator(0.001))
    tree = ptd.build_tree(structure)
    with pytest.raises(ArgumentError, match=r"no platform 'Abacus' here; available are .*Reference"):
        TorsionSimulation(structure.topology, system, make_integrator("nve", tree), "Abacus")


def test_masses_of_the_system_are_those_of_the_tree(alanine):
    structure, plain = alanine
    for factor, fits in ((1.0005, True), (1.01, False)):
        system = openmm.XmlSerializer.clone(plain)
        system.setParticleMass(4, factor * system.getParticleMass(4))
        if fits:
            check_system(ptd.build_tree(structure), system, structure.masses)
        else:
            with pytest.raises(ModelError, match=r"the mass of .* Da in the System"):
                check_system(ptd.build_tree(structure), system, structure.masses)


def test_starts_at_the_reference(alanine):
    simulation = make_simulation(alanine)
    assert np.abs(positions_of(simulation) - alanine[0].positions).max() < 1e-12


# ---------------------------------------------------------------------------- minimisation


def test_rotation_vectors_turn_as_their_jacobian_says():
    vector, rate, h = np.array([0.7, -1.1, 0.4]), np.array([0.3, 0.5, -0.2]), 1e-6
    change = Rotation.from_rotvec(vector + h * rate) * Rotation.from_rotvec(vector - h * rate).inv()
    assert np.allclose(change.as_rotvec() / (2 * h), _left_jacobians(vector[None])[0] @ rate, atol=1e-8)
    small, large = _left_jacobians(np.outer([0.0099, 0.0101], vector / np.linalg.norm(vector)))
    assert np.allclose(small, large, atol=2e-4)


def test_gradient_of_the_minimiser(alanine):
    """Over every variable, base rotation and translation included, in a field that pins the molecule."""
    structure, _ = alanine
    tree = ptd.build_tree(structure, soft="phi psi angles")
    target = structure.positions[:, ::-1] + 0.1

    def spring(mover):
        x = mover.positions()
        return 50.0 * ((x - target) ** 2).sum(), mover.project(-100.0 * (x - target))

    mover, chart = Mover(tree), _Chart(tree.reference)
    rng = np.random.default_rng(1)
    z, direction = 0.3 * rng.standard_normal(tree.n_dof), rng.standard_normal(tree.n_dof)

    def energy(t):
        mover.set_state(chart.state(z + t * direction))
        return spring(mover)

    _, torque = energy(0.0)
    slope = chart.pull_back(z, -torque) @ direction
    assert slope == pytest.approx((energy(1e-5)[0] - energy(-1e-5)[0]) / 2e-5, rel=1e-6)


def test_minimise_finds_a_displaced_copy(alanine):
    structure, _ = alanine
    tree = ptd.build_tree(structure, soft="phi psi")
    goal = tree.reference.replace(
        torsions=tree.reference.torsions + np.array([0.8, -0.6]),
        base_position=tree.reference.base_position + 0.3,
        base_rotation=Rotation.from_rotvec([0.5, -0.9, 0.2]).as_quat()[[3, 0, 1, 2]][None],
    )
    target = tree.positions(goal)

    def spring(mover):
        x = mover.positions()
        return 5000.0 * ((x - target) ** 2).sum(), mover.project(-10000.0 * (x - target))

    mover = Mover(tree)
    minimum = minimise(mover, spring, tolerance=1e-4)
    assert minimum.converged and minimum.energy < 1e-10 < minimum.start_energy
    assert np.abs(mover.positions() - target).max() < 1e-7


def test_a_minimiser_is_given_the_slopes_of_its_energies_and_says_whether_it_converged(alanine, monkeypatch):
    """Far from the start, where rates of the base are not those of its rotation vector; then after one iteration."""
    structure, _ = alanine
    tree = ptd.build_tree(structure, soft="phi psi")
    target = structure.positions[:, ::-1] + 0.1

    def spring(mover):
        x = mover.positions()
        return 50.0 * ((x - target) ** 2).sum(), mover.project(-100.0 * (x - target))

    rng = np.random.default_rng(2)
    z, direction = 0.5 * rng.standard_normal(tree.n_dof), rng.standard_normal(tree.n_dof)
    slopes = []

    def record(evaluate, start, **options):
        ends = [evaluate(z + t * direction)[0] for t in (1e-5, -1e-5)]
        slopes.extend([evaluate(z)[1] @ direction, (ends[0] - ends[1]) / 2e-5])
        return OptimizeResult(x=start, fun=0.0, jac=np.zeros(len(start)), nit=0)

    with monkeypatch.context() as patched:
        patched.setattr("scipy.optimize.minimize", record)
        minimise(Mover(tree), spring)
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-6)
    left = minimise(Mover(tree), spring, tolerance=1e-6, max_iterations=1).gradient
    for part, converged in ((0.5, False), (1.01, True)):
        minimum = minimise(Mover(tree), spring, tolerance=part * left, max_iterations=1)
        assert minimum.gradient == left and minimum.converged is converged


def test_minimize_torsions(alanine):
    simulation = make_simulation(alanine)
    start = simulation.context.getState(energy=True).getPotentialEnergy()._value
    energy = simulation.minimize_torsions(tolerance=0.01)
    assert energy < start - 1.0 and simulation.minimum.converged
    assert simulation.context.getState(energy=True).getPotentialEnergy()._value == pytest.approx(energy, abs=1e-6)
    # a minimum: the projected force is small, and every small turn costs energy
    tree, context = simulation.tree, simulation.context
    state, momentum = simulation.integrator.motion()
    assert not momentum.any()
    for index in range(tree.n_coordinates):
        for turn in (-0.02, 0.02):
            q = state.q.copy()
            q[index] += turn
            context.setPositions(tree.positions(state.replace(q=q)))
            assert context.getState(energy=True).getPotentialEnergy()._value > energy
    # hard coordinates are those of the reference
    assert tree.fit(tree.positions(state)).max_misfit < 1e-12


def test_a_first_step_into_a_clash_is_tried_again_shorter():
    """A torsion q, pulled to 1 rad, meets a wall there, on which the first step of L-BFGS ends.

    E = 4 ((s/r)^12 - (s/r)^6) + 10 (q - 1)^2 with r = 1.02 - q and s = 0.3: at q = 1 it is 5 10^14 kJ/mol.
    """
    tree = ptd.bead_chain(4, 0.15, 1.9, [12.0, 14.0, 14.0, 12.0], torsion=[0.0])

    def forces(mover):
        q = float(mover.q[0])
        r = 1.02 - q
        u = (0.3 / r) ** 6
        torque = np.zeros(tree.n_dof)
        torque[tree.coordinate_dof[0]] = 20.0 * (1.0 - q) - 24.0 * (2.0 * u * u - u) / r
        return 4.0 * (u * u - u) + 10.0 * (q - 1.0) ** 2, torque

    seen = []
    found = minimise(Mover(tree), forces, tolerance=1e-3, watch=seen.append)
    assert found.converged and found.gradient < 1e-3 and found.iterations == len(seen) > 0
    assert 0.65 < float(found.state.q[0]) < 0.71 and found.energy == seen[-1] < 0.5
    few = minimise(Mover(tree), forces, tolerance=1e-3, max_iterations=4)
    assert few.iterations == 4 and not few.converged


def test_stock_minimize_call_minimises_torsions(alanine):
    simulation = make_simulation(alanine)
    simulation.minimizeEnergy()
    assert simulation.minimum.converged
    with pytest.raises(ArgumentError, match="minimize_torsions"):
        simulation.minimizeEnergy(tolerance=1.0)


def test_relaxing_goes_on_while_it_is_watched_and_stops_when_told(alanine):
    simulation = make_simulation(alanine, "ghmc")
    energies = []
    energy = simulation.relax_geometry(tolerance=0.1, watch=energies.append)
    assert len(energies) > 20
    assert energy == pytest.approx(energies[-1], abs=0.01)

    def interrupt(energy):
        energies.append(energy)
        raise KeyboardInterrupt

    simulation, energies = make_simulation(alanine, "ghmc"), []
    with pytest.raises(KeyboardInterrupt):
        simulation.relax_geometry(watch=interrupt)
    assert len(energies) == 1


def test_relaxed_geometry_becomes_the_reference(alanine):
    simulation = make_simulation(alanine, "ghmc")
    simulation.step(3)
    before = simulation.integrator.counters
    old = simulation.tree
    rigid = simulation.minimize_torsions()
    relaxed = simulation.relax_geometry(tolerance=0.1)
    assert relaxed < rigid - 5.0  # bonds and angles had something to give
    assert simulation.tree.fingerprint != old.fingerprint
    assert np.abs(positions_of(simulation) - simulation.reference_geometry).max() < 1e-12
    assert old.fit(simulation.reference_geometry).max_misfit > 1e-4
    simulation.set_velocities_to_temperature(300)
    simulation.step(20)
    assert simulation.tree.fit(positions_of(simulation)).max_misfit < 1e-9
    assert simulation.integrator.counters["proposed"] == before["proposed"] + 20


# ---------------------------------------------------------------------------- the Context from outside


def test_velocities_have_the_temperature(alanine):
    simulation = make_simulation(alanine)
    n = simulation.tree.n_dof
    found = []
    for draw in ("ours", "openmm"):
        for seed in range(300):
            if draw == "ours":
                simulation.set_velocities_to_temperature(300 * unit.kelvin)
            else:  # Cartesian velocities, projected on the soft motions, have the same distribution
                simulation.context.setVelocitiesToTemperature(300, seed + 1)
            found.append(simulation.integrator.computeSystemTemperature()._value)
        mean, error = np.mean(found), 300 * np.sqrt(2 / n / len(found))
        assert abs(mean - 300) < 4 * error  # 6e-5 false alarms
        found.clear()


def test_positions_moved_from_outside_are_read_again(alanine):
    simulation = make_simulation(alanine, "nve")
    simulation.step(2)
    tree = simulation.tree
    elsewhere = tree.reference.replace(torsions=tree.reference.torsions + 0.4)
    simulation.context.setPositions(tree.positions(elsewhere))
    state, _ = simulation.integrator.motion()
    assert np.abs(np.exp(1j * state.q) - np.exp(1j * elsewhere.q)).max() < 1e-12


def test_deformed_positions_are_refused_by_name(alanine):
    simulation = make_simulation(alanine, "nve")
    x = positions_of(simulation)
    x[alanine[0].select("name CB")[0]] += 0.02
    simulation.context.setPositions(x)
    with pytest.raises(ModelError, match=r"do not fit the rigid .*ALA"):
        simulation.step(1)


@pytest.mark.parametrize("good_steps", [0, 3])
def test_forces_that_are_no_numbers(alanine, good_steps):
    """The error says so, and the simulation is where it was before the step."""
    structure, system = alanine
    system = copy.deepcopy(system)
    field = openmm.CustomExternalForce("log(a)*x")
    field.addGlobalParameter("a", 1.0)
    field.addParticle(0)
    system.addForce(field)
    simulation = make_simulation((structure, system))
    simulation.step(5)
    positions = positions_of(simulation)
    simulation.context.setParameter("a", -1.0)
    with pytest.raises(StepError, match=r"step 5 .* not finite"):
        simulation.step(10)
    assert simulation.currentStep == 5 and np.array_equal(positions_of(simulation), positions)
    simulation.context.setParameter("a", 1.0)
    simulation.step(good_steps)
    assert np.isfinite(positions_of(simulation)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, openmm.OpenMMException])
def test_an_interrupted_step_is_undone(alanine, kind, error):
    """Whatever is raised in the middle of a step, the Context is left after the one before, and counts that one."""
    whole, cut = make_simulation(alanine, kind), make_simulation(alanine, kind)
    for simulation in (whole, cut):
        simulation.set_velocities_to_temperature(300)
        simulation.step(2)
    whole.step(3)
    cut.integrator._server = None  # forces are asked for from Python, where errors come from
    stepper = cut.integrator._stepper
    evaluate, left = stepper.forces, [4]

    def interrupted(mover, want_energy):
        left[0] -= 1
        outcome = evaluate(mover, want_energy)
        if not left[0]:
            raise error("in the middle of the fourth step")
        return outcome

    stepper.forces = interrupted
    with pytest.raises(error, match="fourth step"):
        cut.step(10)
    stepper.forces = evaluate
    assert cut.currentStep == 5 and cut.context.getTime()._value == pytest.approx(0.02)
    assert np.array_equal(positions_of(cut), positions_of(whole))
    for simulation in (whole, cut):
        simulation.step(5)
    # random numbers and counts went back too: the motion goes on as if nothing had happened
    for a, b in zip(whole.integrator.mover.save(), cut.integrator.mover.save(), strict=True):
        assert np.array_equal(a, b)
    assert whole.integrator.counters == cut.integrator.counters


@pytest.mark.slow
def test_explicit_water_with_pme(alanine, tmp_path):
    """Waters are rigid bodies, the ion is a point; a checkpoint continues in the same box."""
    structure, _ = alanine
    field = app.ForceField("amber14-all.xml", "amber14/tip3p.xml")
    modeller = app.Modeller(structure.topology, structure.positions * unit.nanometer)
    modeller.addSolvent(field, boxSize=openmm.Vec3(1.7, 1.7, 1.7) * unit.nanometer, ionicStrength=0.5 * unit.molar)
    files = ("amber14-all.xml", "amber14/tip3p.xml")
    system = make_system(modeller.topology, "vacuum", files, periodic=True, cutoff=0.8)
    wet = ptd.Structure.from_openmm(modeller.topology, system, modeller.positions)
    tree = ptd.build_tree(wet)
    assert np.isin([FREE, POINT], tree.joint[tree.parent < 0]).all() and tree.n_molecules >= MANY_MOLECULES

    def simulate():
        integrator = ptd.TorsionLangevinIntegrator(tree, 300.0, 5.0, 0.002, seed=1)
        return TorsionSimulation(wet.topology, system, integrator, "CPU")

    simulation = simulate()
    assert simulation.system.usesPeriodicBoundaryConditions()
    start = simulation.context.getState(energy=True).getPotentialEnergy()._value
    assert simulation.minimize_torsions(max_iterations=20) < start - 1000.0
    simulation.set_velocities_to_temperature(300)
    simulation.step(10)
    simulation.save_checkpoint(tmp_path / "c.npz")
    assert tree.fit(positions_of(simulation)).max_misfit < 1e-5  # the CPU platform has single precision
    other = simulate()
    other.load_checkpoint(tmp_path / "c.npz")
    assert np.array_equal(positions_of(other), positions_of(simulation))
    other.step(5)
    assert other.currentStep == 15


# ---------------------------------------------------------------------------- reporters


def test_stock_reporters(alanine, tmp_path):
    simulation = make_simulation(alanine)
    log = io.StringIO()
    simulation.reporters += [
        app.StateDataReporter(log, 5, step=True, time=True, temperature=True, kineticEnergy=True),
        app.DCDReporter(str(tmp_path / "x.dcd"), 5),
        app.XTCReporter(str(tmp_path / "x.xtc"), 5),
        app.PDBReporter(str(tmp_path / "x.pdb"), 10),
        mdtraj.reporters.HDF5Reporter(str(tmp_path / "x.h5"), 5),
    ]
    simulation.step(20)
    rows = list(csv.DictReader(io.StringIO(log.getvalue().lstrip("#"))))
    assert [int(row["Step"]) for row in rows] == [5, 10, 15, 20]
    last = rows[-1]
    kinetic = float(last["Kinetic Energy (kJ/mole)"])
    n = simulation.tree.n_dof
    assert float(last["Temperature (K)"]) == pytest.approx(2 * kinetic / (n * BOLTZMANN), rel=1e-9)
    simulation.reporters.clear()
    for name in ("x.dcd", "x.xtc"):
        trajectory = mdtraj.load(tmp_path / name, top=mdtraj.Topology.from_openmm(alanine[0].topology))
        assert trajectory.n_frames == 4
        assert np.abs(trajectory.xyz[-1] - positions_of(simulation)).max() < 2e-3


@pytest.mark.parametrize("kind", KINDS)
def test_torsion_reporter(alanine, tmp_path, kind):
    simulation = make_simulation(alanine, kind, soft="phi psi methyl angles")
    reporters = [TorsionReporter(tmp_path / name, 4) for name in ("t.npz", "t.csv")]
    simulation.reporters += reporters
    simulation.set_velocities_to_temperature(300)
    simulation.step(12)
    for reporter in reporters:
        reporter.close()
    integrator, tree = simulation.integrator, simulation.tree
    with np.load(tmp_path / "t.npz", allow_pickle=False) as table:
        assert table["step"].tolist() == [4, 8, 12]
        assert np.allclose(table["time"], [0.016, 0.032, 0.048], atol=1e-12)
        state = integrator.motion()[0]
        wrapped = np.angle(np.exp(1j * state.torsions))
        assert np.allclose(table["torsions"][-1], wrapped, atol=1e-12)
        assert np.allclose(table["bends"][-1], state.bends, atol=1e-12)
        assert table["torsion_kind"].tolist() == [c.kind for c in tree.torsions]
        assert table["total"][-1] == pytest.approx(integrator.total_energy(), abs=1e-9)
        assert np.allclose(table["potential"] + table["kinetic"] + table["fixman"], table["total"], atol=1e-9)
        openmm_energy = simulation.context.getState(energy=True).getPotentialEnergy()._value
        assert table["potential"][-1] == pytest.approx(openmm_energy, abs=1e-9)
        assert (table["fixman"] == 0).all() == (kind == "nve")
        assert np.isnan(table["acceptance"]).all() == (kind != "ghmc")
        assert (table["iterations"] > 0).all()
        torsions = table["torsions"].copy()
    with open(tmp_path / "t.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 4 and rows[0][0] == "step" and rows[0][9].startswith(tree.coordinates[0].kind)
    values = np.array(rows[1:], dtype=float)[:, 9:][:, tree.torsion_index]
    assert np.allclose(values, np.rad2deg(torsions), atol=1e-6)
    assert not (tmp_path / "t.npz.rows").exists()


def test_torsion_reporter_goes_on(alanine, tmp_path):
    simulation = make_simulation(alanine)
    for append in (False, True):
        for name in ("t.npz", "t.csv"):
            simulation.reporters.append(TorsionReporter(tmp_path / name, 2, append=append))
        simulation.step(4)
        for reporter in simulation.reporters:
            reporter.close()
        simulation.reporters.clear()
    with np.load(tmp_path / "t.npz") as table:
        assert table["step"].tolist() == [2, 4, 6, 8]
        assert table["torsions"].shape == (4, simulation.tree.n_torsions)
    assert [line.split(",")[0] for line in (tmp_path / "t.csv").read_text().splitlines()] == ["step", *"2468"]


def test_bond_lengths_are_in_nm_in_every_file_and_kept_rows_are_counted(alanine, tmp_path):
    """Angles become degrees in CSV and lengths do not; a reporter that keeps one of two frames goes on behind it."""
    simulation = make_simulation(alanine, soft="phi psi bonds", timestep=0.0005)
    for keep in (None, 1):
        for name in ("t.npz", "t.csv"):
            simulation.reporters.append(TorsionReporter(tmp_path / name, 2, append=keep is not None, keep=keep))
        simulation.step(4)
        for reporter in simulation.reporters:
            reporter.close()
        simulation.reporters.clear()
    with np.load(tmp_path / "t.npz") as table:
        assert table["step"].tolist() == [2, 6, 8]
        lengths, angles = table["stretches"], table["torsions"]
    with open(tmp_path / "t.csv", newline="") as file:
        rows = np.array(list(csv.reader(file))[1:], dtype=float)
    assert rows[:, 0].tolist() == [2, 6, 8]
    tree = simulation.tree
    assert np.abs(rows[:, 9:][:, tree.groups["stretches"]] - lengths).max() < 1e-6 and 0.09 < lengths.min() < 0.16
    assert np.abs(rows[:, 9:][:, tree.groups["torsions"]] - np.rad2deg(angles)).max() < 1e-6


def test_torsion_reporter_refusals(tmp_path):
    with pytest.raises(ArgumentError, match=r"\.csv or \.npz"):
        TorsionReporter(tmp_path / "t.txt", 5)
    with pytest.raises(ArgumentError, match="interval is 0"):
        TorsionReporter(tmp_path / "t.csv", 0)


# ---------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_run_continues_bit_for_bit(alanine, tmp_path, kind):
    first = make_simulation(alanine, kind)
    first.relax_geometry(max_iterations=20)
    first.set_velocities_to_temperature(300)
    first.step(20)
    first.save_checkpoint(tmp_path / "c.npz", {"frames": 5})
    first.step(20)

    second = make_simulation(alanine, kind, seed=99)
    assert second.load_checkpoint(tmp_path / "c.npz") == {"frames": 5}
    assert second.currentStep == 20
    second.step(7)  # other pauses than the first run: they must not matter
    second.step(13)
    for a, b in zip(first.integrator.mover.save(), second.integrator.mover.save(), strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(positions_of(first), positions_of(second))
    assert first.integrator.counters == second.integrator.counters
    assert second.currentStep == 40 and second.context.getTime()._value == pytest.approx(0.16, abs=1e-12)
    # the same without loading differs: the test can fail
    third = make_simulation(alanine, kind, seed=99)
    third.step(40)
    assert not np.array_equal(positions_of(first), positions_of(third))


def test_a_checkpoint_of_a_loaded_checkpoint_has_its_geometry_box_time_and_metric(alanine, tmp_path):
    """A run may be resumed more than once; each time all that the first checkpoint held comes with it."""
    structure, plain = alanine
    system = openmm.XmlSerializer.clone(plain)

    def make(side):
        massive = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
        tree = ptd.build_tree(massive, soft="phi psi polar")
        integrator = ptd.TorsionLangevinIntegrator(tree, 300.0, 5.0, 0.004, seed=1, metric="auto")
        simulation = TorsionSimulation(structure.topology, system, integrator, "Reference")
        simulation.context.setPeriodicBoxVectors(*(side * np.eye(3)))
        return simulation

    first = make(4.0)
    first.relax_geometry(max_iterations=20)
    first.step(3)
    own = first.tree.with_joint_inertia(first.tree.joint_inertia + 0.125)  # another temperature or step was asked for
    state, momentum = first.integrator.motion()
    first.integrator.set_tree(own)
    first.integrator.set_motion(state, momentum)
    first.save_checkpoint(tmp_path / "0.npz")
    for number in (1, 2):
        again = make(5.0)
        again.load_checkpoint(tmp_path / f"{number - 1}.npz")
        again.save_checkpoint(tmp_path / f"{number}.npz")
        assert np.array_equal(again.reference_geometry, first.reference_geometry)
        assert np.array_equal(again.tree.joint_inertia, own.joint_inertia)
        assert again.context.getState().getPeriodicBoxVolume()._value == pytest.approx(64.0)
        assert again.context.getTime()._value == pytest.approx(0.012) and again.currentStep == 3
    assert (tmp_path / "2.npz").stat().st_size == (tmp_path / "0.npz").stat().st_size


def test_a_state_file_says_where_a_simulation_starts(alanine, tmp_path):
    structure, system = alanine
    before = make_simulation(alanine)
    before.step(5)
    before.saveState(str(tmp_path / "state.xml"))
    massive = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    integrator = make_integrator("langevin", ptd.build_tree(massive, soft=SOFT))
    file = str(tmp_path / "state.xml")
    after = TorsionSimulation(structure.topology, system, integrator, "Reference", state=file)
    assert np.abs(positions_of(after) - positions_of(before)).max() < 1e-9
    assert np.abs(positions_of(after) - positions_of(make_simulation(alanine))).max() > 1e-4


def test_checkpoints_hold_no_pickle_and_refuse_others(alanine, tmp_path):
    path = tmp_path / "c.npz"
    simulation = make_simulation(alanine)
    simulation.step(1)
    simulation.save_checkpoint(path)
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)
    with pytest.raises(CheckpointError, match="another model"):
        make_simulation(alanine, soft="phi psi").load_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"kind = TorsionLangevinIntegrator"):
        make_simulation(alanine, "ghmc").load_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"timestep = 0\.004 and this integrator has 0\.002"):
        make_simulation(alanine, timestep=0.002).load_checkpoint(path)


def test_damaged_checkpoints_are_refused(alanine, tmp_path):
    simulation = make_simulation(alanine)
    path = tmp_path / "c.npz"
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        simulation.load_checkpoint(path)
    simulation.save_checkpoint(path)
    whole = path.read_bytes()
    for damaged in (b"", b"nonsense", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged"):
            simulation.load_checkpoint(path)


def test_a_failed_write_leaves_the_earlier_checkpoint(alanine, tmp_path, monkeypatch):
    simulation = make_simulation(alanine)
    path = tmp_path / "c.npz"
    simulation.save_checkpoint(path)
    whole = path.read_bytes()
    simulation.step(1)

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OutputError, match="No space"):
        simulation.save_checkpoint(path)
    assert path.read_bytes() == whole and list(tmp_path.iterdir()) == [path]
