"""Small promises of `TorsionSimulation` and of what it uses: platforms, geometries, dropped terms, who gives forces."""

from __future__ import annotations

from types import SimpleNamespace

import butane
import numpy as np
import openmm
import pytest
from openmm import app, unit
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.engine import force_server
from peptidyn.engine.rigid_terms import drop_rigid_terms, lacks_rigid_terms
from peptidyn.engine.simulation import find_platform
from peptidyn.integrators.mover import MANY_MOLECULES


def simulation_of(tree=None, system=None, platform="Reference", properties=None):
    tree = butane.make_tree() if tree is None else tree
    system = butane.make_system() if system is None else system
    integrator = ptd.TorsionLangevinIntegrator(tree, 300.0, 1.0, 0.002, seed=1)
    return ptd.TorsionSimulation(butane.make_topology(), system, integrator, platform, properties)


# ---------------------------------------------------------------------------- construction


@pytest.mark.parametrize("name", ["Reference", "reference", "REFERENCE", "CPU", "cpu"])
def test_platforms_are_found_in_any_spelling(name):
    found = find_platform(name)
    assert found.getName() == {"reference": "Reference", "cpu": "CPU"}[name.lower()]
    assert simulation_of(platform=name).context.getPlatform().getName() == found.getName()


def test_properties_of_the_platform_are_passed_on():
    context = simulation_of(platform="CPU", properties={"Threads": "1"}).context
    assert context.getPlatform().getPropertyValue(context, "Threads") == "1"


def test_a_structure_is_no_topology():
    structure = ptd.build_peptide("A")
    integrator = ptd.TorsionVerletIntegrator(ptd.build_tree(structure), 0.002)
    system = ptd.make_system(structure.topology, "vacuum")
    with pytest.raises(ArgumentError, match=r"the topology is a Structure, .*structure\.topology"):
        ptd.TorsionSimulation(structure, system, integrator, "Reference")


def test_a_new_simulation_knows_its_context_at_once():
    """OpenMM's own call to draw velocities is replaced, and notes are there, before the first step."""
    system = butane.make_system()
    system.addForce(openmm.CMMotionRemover())
    simulation = simulation_of(system=system)
    assert len(simulation.integrator.notes) == 1 and simulation.minimum is None
    assert simulation.context.setVelocitiesToTemperature == simulation.integrator.set_velocities_to_temperature


# ---------------------------------------------------------------------------- geometries


def test_a_geometry_is_reference_and_configuration_at_rest():
    simulation = simulation_of()
    simulation.set_velocities_to_temperature(300)
    simulation.step(5)
    x = simulation.tree.positions(simulation.tree.reference.replace(torsions=[0.7])) * 1.02 + 0.3
    for given in (x, x * unit.nanometer, 10.0 * x * unit.angstrom):
        simulation.set_velocities_to_temperature(300)
        simulation.use_geometry(given)
        tree = simulation.tree
        assert np.allclose(tree.positions(tree.reference), x, rtol=0, atol=1e-12)
        assert np.allclose(simulation.reference_geometry, x, rtol=0, atol=1e-12)
        found = simulation.context.getState(positions=True, velocities=True)
        assert np.allclose(found.getPositions(asNumpy=True)._value, x, rtol=0, atol=1e-12)
        assert not found.getVelocities(asNumpy=True)._value.any() and simulation.currentStep == 5
        assert tree.reference.torsions == pytest.approx([0.7])
    bad = x.copy()
    bad[2, 1] = np.nan
    with pytest.raises(ModelError, match="coordinates that are not finite numbers"):
        simulation.use_geometry(bad)
    assert np.allclose(simulation.reference_geometry, x, rtol=0, atol=1e-12)


def test_virtual_sites_of_a_geometry_are_placed():
    """Wherever they are in the positions that are given: OpenMM's minimiser leaves them as they were."""
    field = app.ForceField("amber14/tip4pew.xml")
    modeller = app.Modeller(app.Topology(), [])
    modeller.addSolvent(field, model="tip4pew", boxSize=openmm.Vec3(0.6, 0.6, 0.6) * unit.nanometer)
    system = field.createSystem(modeller.topology)
    structure = ptd.Structure.from_openmm(modeller.topology, system, modeller.positions)
    integrator = ptd.TorsionVerletIntegrator(ptd.build_tree(structure), 0.001)
    simulation = ptd.TorsionSimulation(modeller.topology, system, integrator, "Reference")
    sites = simulation.tree.virtual_sites
    x = structure.positions.copy()
    x[sites] += 0.5
    simulation.use_geometry(x)
    found = simulation.tree.positions(simulation.tree.reference)
    assert len(sites) and np.abs(found - structure.positions).max() < 1e-6
    assert np.abs(simulation.reference_geometry - structure.positions).max() < 1e-6


# ---------------------------------------------------------------------------- terms inside rigid units


def system_with_all_terms():
    """Butane with two angles, a periodic torsion, two Ryckaert-Bellemans torsions, and other forces."""
    system = butane.make_system()
    rb = openmm.RBTorsionForce()
    rb.addTorsion(0, 1, 2, 3, 1.0, -2.0, 0.5, 3.0, 0.0, 0.0)
    rb.addTorsion(3, 2, 1, 0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0)
    system.addForce(rb)
    system.getForce(1).setAngleParameters(0, 0, 1, 2, butane.ANGLE + 0.1, 200.0)
    return system


def count(system):
    names = {"HarmonicAngleForce": "Angles", "PeriodicTorsionForce": "Torsions", "RBTorsionForce": "Torsions"}
    return {
        type(force).__name__: getattr(force, f"getNum{names[type(force).__name__]}")()
        for force in system.getForces()
        if type(force).__name__ in names
    }


@pytest.mark.parametrize(
    ("soft", "left", "dropped"), [("rotor", (0, 1, 2), 2), ("none", (0, 0, 0), 5), ("all", (2, 1, 2), 0)]
)
def test_dropped_terms_are_counted_and_their_energy_stays(soft, left, dropped):
    """Two angles are inside rigid units where the torsion turns, everything is where nothing does."""
    system = system_with_all_terms()
    before = openmm.XmlSerializer.serialize(system)
    chain = butane.make_tree()
    x = chain.positions(chain.reference.replace(torsions=[1.1]))
    tree = ptd.build_tree(ptd.Structure.from_openmm(butane.make_topology(), system, x), soft)
    lean, terms = drop_rigid_terms(system, tree)
    assert tuple(count(lean).values()) == left and (terms.dropped, terms.total) == (dropped, 5)
    angles = 0.5 * 200.0 * 0.1**2
    c = np.cos(1.1 - np.pi)
    torsions = butane.torsion_energy(1.1) + 1.0 - 2.0 * c + 0.5 * c**2 + 3.0 * c**3 + 0.5
    expected = {"rotor": angles, "none": angles + torsions, "all": 0.0}[soft]
    assert terms.energy == pytest.approx(expected, abs=1e-6) and f"{dropped} of 5 angle and torsion" in str(terms)
    assert lacks_rigid_terms(lean) and not lacks_rigid_terms(system)
    assert openmm.XmlSerializer.serialize(system) == before
    assert lean.getNumForces() == system.getNumForces() + 1
    kinds = [type(force).__name__ for force in lean.getForces()]
    assert "HarmonicBondForce" in kinds and "CustomBondForce" in kinds
    for number in (3, 5):
        other = openmm.System()
        for _ in range(number):
            other.addParticle(1.0)
        with pytest.raises(ArgumentError, match=f"the System has {number} particles but the tree has 4 atoms"):
            drop_rigid_terms(other, tree)


# ---------------------------------------------------------------------------- the Fixman potential, and force servers


def test_the_fixman_force_has_its_name_and_its_temperature():
    tree = ptd.bead_chain(6, 0.15, 1.9, [12.0, 14.0, 1.0, 16.0, 14.0, 1.0], torsion=[1.0, 2.0, -1.0])
    state = tree.reference.replace(torsions=[0.3, -2.0, 1.4])
    found = []
    for T in (300.0, 450.0):
        force, system = ptd.FixmanForce(tree, T), openmm.System()
        for mass in tree.masses:
            system.addParticle(float(mass))
        system.addForce(force)
        assert system.getForce(0).getName() == "FixmanForce"
        context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatform("Reference"))
        context.setPositions(tree.positions(state))
        energy = context.getState(energy=True).getPotentialEnergy()._value
        assert energy == pytest.approx(ptd.FixmanPotential(tree, T).energy(state), rel=1e-9)
        found.append((energy, np.array(context.getState(forces=True).getForces(asNumpy=True)._value)))
    assert found[1][0] == pytest.approx(1.5 * found[0][0]) and np.allclose(found[1][1], 1.5 * found[0][1])
    assert np.abs(found[0][1]).max() > 1e-3


def context_on(platform, *forces):
    """What a Context tells of itself; platforms with a GPU are not everywhere."""
    system = SimpleNamespace(getForces=lambda: list(forces))
    return SimpleNamespace(getPlatform=lambda: SimpleNamespace(getName=lambda: platform), getSystem=lambda: system)


def test_forces_are_served_on_processors_and_of_openmm_alone(monkeypatch):
    plain, other = openmm.HarmonicBondForce(), openmm.CustomCVForce("0")
    monkeypatch.setattr(force_server, "KIND", "vector")
    monkeypatch.setattr(force_server, "_library", lambda: object())
    for platform, served in (("Reference", True), ("CPU", True), ("CUDA", False), ("OpenCL", False), ("HIP", False)):
        assert force_server.can_serve(context_on(platform, plain)) is served
    assert not force_server.can_serve(context_on("CPU", plain, other))
    assert not force_server.can_serve(context_on("CPU", other, plain))
    monkeypatch.setattr(force_server, "_library", lambda: None)
    assert not force_server.can_serve(context_on("CPU", plain))
    monkeypatch.setattr(force_server, "_library", lambda: object())
    monkeypatch.setattr(force_server, "KIND", "scalar")
    assert not force_server.can_serve(context_on("CPU", plain))


def test_few_molecules_without_virtual_sites_are_served(monkeypatch):
    monkeypatch.setattr(force_server, "can_serve", lambda context: context == "good")
    monkeypatch.setattr(force_server, "ForceServer", lambda context: f"server of {context}")
    few = SimpleNamespace(n_molecules=MANY_MOLECULES - 1, virtual_sites=[])
    assert force_server.serve(few, "good") == "server of good" and force_server.serve(few, "other") is None
    assert force_server.serve(SimpleNamespace(n_molecules=MANY_MOLECULES, virtual_sites=[]), "good") is None
    assert force_server.serve(SimpleNamespace(n_molecules=1, virtual_sites=[3]), "good") is None


def test_groups_are_asked_for_by_their_bits():
    context = simulation_of().context
    server = force_server.ForceServer(context)
    assert server.calls[-1] == -1 and server.calls[-2] == openmm.State.Forces
    server.set_groups(6)
    assert server.calls[-1] == 6 and (server.calls[:7] != 0).all()


def test_a_run_at_constant_pressure_asks_for_forces_from_python():
    """Between its steps the volume may change."""
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = app.ForceField("amber14-all.xml").createSystem(structure.topology, constraints=None)
    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            force.setNonbondedMethod(force.CutoffPeriodic)
    system.setDefaultPeriodicBoxVectors(*(4.0 * np.eye(3)))
    tree = ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, structure.positions))
    for barostat in (False, True):
        if barostat:
            system.addForce(openmm.MonteCarloBarostat(1.0, 300.0, 7))
        integrator = ptd.TorsionLangevinIntegrator(tree, 300.0, 1.0, 0.001, seed=1)
        simulation = ptd.TorsionSimulation(structure.topology, system, integrator, "Reference")
        assert integrator._server is None or not barostat
        simulation.step(30)
    assert integrator.barostat.proposed == 4
