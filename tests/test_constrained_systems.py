"""Systems with constraints inside rigid units, and with virtual sites, driven through a tree."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import openmm
import pytest
from openmm import State, app, unit

import peptidyn as ptd
from peptidyn.core.errors import ModelError, UnsupportedError
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.context_vectors import read_forces, read_vectors
from peptidyn.engine.minimisation import _Chart
from peptidyn.io.virtual_sites import copy_particles, place_virtual_sites

DATA = Path(__file__).parent.parent / "data"
FIELD = "amber14-all.xml"


def positions_of(context):
    return np.array(context.getState(positions=True).getPositions(asNumpy=True)._value)


def energy_of(context, positions):
    context.setPositions(positions)
    return context.getState(energy=True).getPotentialEnergy()._value


def relaxed_alanine(constraints):
    """Return a Topology, a System and positions minimised by OpenMM, which satisfy the constraints."""
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = app.ForceField(FIELD).createSystem(structure.topology, constraints=constraints)
    integrator = openmm.VerletIntegrator(0.001)
    integrator.setConstraintTolerance(1e-8)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(structure.positions)
    openmm.LocalEnergyMinimizer.minimize(context)
    context.applyConstraints(1e-8)
    return structure.topology, system, positions_of(context)


def four_site_water(model="tip4pew", rigid=True):
    """Return a Topology, a System and positions of a small cluster."""
    field = app.ForceField(f"amber14/{model}.xml")
    modeller = app.Modeller(app.Topology(), [])
    modeller.addSolvent(field, model="tip4pew", boxSize=openmm.Vec3(0.8, 0.8, 0.8) * unit.nanometer)
    system = field.createSystem(modeller.topology, rigidWater=rigid)
    return modeller.topology, system, np.array(modeller.positions._value)


def check_forces(simulation, seed=1, step=1e-6):
    """Compare generalised forces with central differences of the energy along a random direction of all of them."""
    tree, mover = simulation.tree, simulation.integrator.lend_mover()
    state = mover.state
    _, torque = simulation._energy_and_torque(mover)
    chart, direction = _Chart(state), np.random.default_rng(seed).standard_normal(tree.n_dof)
    ends = [energy_of(simulation.context, tree.positions(chart.state(h * direction))) for h in (step, -step)]
    slope = (ends[0] - ends[1]) / (2.0 * step)
    assert slope == pytest.approx(-torque @ direction, rel=2e-5)


# ---------------------------------------------------------------------------- constraints


@pytest.mark.parametrize("constraints", [app.HBonds, app.AllBonds, app.HAngles])
def test_constraints_inside_rigid_units_are_accepted(constraints):
    topology, system, x = relaxed_alanine(constraints)
    assert system.getNumConstraints()
    structure = ptd.Structure.from_openmm(topology, system, x)
    tree = ptd.build_tree(structure)
    integrator = ptd.TorsionVerletIntegrator(tree, 0.001, seed=1)
    simulation = ptd.TorsionSimulation(topology, system, integrator, "Reference")
    assert not any("constraint" in note for note in integrator.notes)
    check_forces(simulation)
    simulation.use_geometry(x)
    integrator.set_velocities_to_temperature(300)
    before = integrator.total_energy()
    simulation.step(200)
    assert integrator.total_energy() == pytest.approx(before, abs=0.02)
    moved = positions_of(simulation.context)
    for n in range(system.getNumConstraints()):
        i, j, length = system.getConstraintParameters(n)
        assert np.linalg.norm(moved[i] - moved[j]) == pytest.approx(length._value, abs=1e-7)


def test_the_missing_bond_terms_are_constant():
    """With and without constraints, forces along soft coordinates are the same and energies differ by a constant."""
    topology, system, x = relaxed_alanine(app.HBonds)
    free = app.ForceField(FIELD).createSystem(topology, constraints=None)
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x))
    rng, differences = np.random.default_rng(3), []
    simulations = [
        ptd.TorsionSimulation(topology, s, ptd.TorsionVerletIntegrator(tree, 0.001), "Reference")
        for s in (system, free)
    ]
    for _ in range(3):
        state = tree.reference.replace(q=tree.q_reference + rng.normal(0.0, 0.3, tree.n_coordinates))
        found = []
        for simulation in simulations:
            simulation.integrator.set_motion(state, np.zeros(tree.n_dof))
            found.append(simulation._energy_and_torque(simulation.integrator.lend_mover()))
        differences.append(found[0][0] - found[1][0])
        assert np.abs(found[0][1] - found[1][1]).max() < 1e-8
    assert np.ptp(differences) < 1e-9


@pytest.mark.parametrize(
    ("soft", "constraints", "match"),
    [
        ("all", app.HBonds, r"whose distance is soft \(.*bond.*\).*constraints=None"),
        ("phi psi bonds", app.AllBonds, r"whose distance is soft"),
        ("phi psi hydrogens", app.HAngles, r"whose distance is soft"),
    ],
)
def test_constraints_on_soft_coordinates_are_refused_at_once(soft, constraints, match):
    topology, system, x = relaxed_alanine(constraints)
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), soft=soft)
    with pytest.raises(ModelError, match=match):
        ptd.TorsionSimulation(topology, system, ptd.TorsionVerletIntegrator(tree, 0.001), "Reference")


def test_constraints_between_molecules_and_on_cut_bonds_are_refused():
    topology, system, x = four_site_water()
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x))
    system.addConstraint(0, 4, 0.5)
    with pytest.raises(ModelError, match="not in one molecule"):
        ptd.TorsionSimulation(topology, system, ptd.TorsionVerletIntegrator(tree, 0.001), "Reference")
    ring = ptd.build_peptide("P")
    system = app.ForceField(FIELD).createSystem(ring.topology, constraints=None)
    tree = ptd.build_tree(ptd.Structure.from_openmm(ring.topology, system, ring.positions), soft="phi psi rings")
    system.addConstraint(*tree.cut_bonds[0].tolist(), 0.15)
    with pytest.raises(ModelError, match=r"residue PRO .* left out of the tree for the force field to hold"):
        ptd.TorsionSimulation(ring.topology, system, ptd.TorsionVerletIntegrator(tree, 0.001), "Reference")


def test_constraints_that_the_geometry_does_not_meet_are_noted_or_refused():
    topology, system, x = relaxed_alanine(app.HBonds)
    i, j, length = system.getConstraintParameters(0)
    for stretch, refused in ((0.002, False), (0.05, True)):
        moved = x.copy()
        moved[j] += stretch * (x[j] - x[i]) / length._value
        tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, moved))
        integrator = ptd.TorsionVerletIntegrator(tree, 0.001)
        if refused:
            with pytest.raises(ModelError, match="minimise the structure with OpenMM first"):
                ptd.TorsionSimulation(topology, system, integrator, "Reference")
            continue
        simulation = ptd.TorsionSimulation(topology, system, integrator, "Reference")
        assert any("differ from 1 of" in note and "relax_geometry()" in note for note in integrator.notes)
        simulation.relax_geometry()
        assert not any("constraint" in note for note in integrator.notes)
        y = positions_of(simulation.context)
        assert np.linalg.norm(y[i] - y[j]) == pytest.approx(length._value, abs=1e-5)


def test_metric_of_constrained_systems_needs_no_bond_terms():
    topology, system, x = relaxed_alanine(app.HBonds)
    free = app.ForceField(FIELD).createSystem(topology, constraints=None)
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), soft="heavy")
    with_terms, without = (ptd.joint_inertia(tree, s, 0.012) for s in (free, system))
    assert without == pytest.approx(with_terms, rel=1e-6)


def test_exchange_and_torsional_moves_take_constraints_and_cartesian_moves_do_not():
    topology, system, x = relaxed_alanine(app.HBonds)
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x))
    sampler = ptd.GibbsSampler([ptd.TorsionalHMC(0.002, 5)], tree, system, 300, platform="Reference", seed=1)
    sampler.run(2)
    with pytest.raises(ModelError, match="CartesianHMC moves every atom"):
        ptd.GibbsSampler([ptd.CartesianHMC()], tree, system, 300, platform="Reference")


# ---------------------------------------------------------------------------- virtual sites


@pytest.mark.parametrize("sites", [False, True])
def test_a_copy_of_the_particles_has_masses_and_sites_and_nothing_else(sites):
    system = four_site_water()[1] if sites else relaxed_alanine(app.HBonds)[1]
    assert system.getNumForces() and system.getNumConstraints()
    copy = copy_particles(system)
    assert copy.getNumForces() == copy.getNumConstraints() == 0
    particles = range(system.getNumParticles())
    for one in (copy.getParticleMass, copy.isVirtualSite):
        assert [one(i) for i in particles] == [getattr(system, one.__name__)(i) for i in particles]
    assert any(copy.isVirtualSite(i) for i in particles) == sites


def test_vectors_of_a_state_without_quick_access():
    """What the public calls return stands in the array, kind by kind, and forces on sites are zero."""
    _, system, x = four_site_water()
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(x)
    context.setVelocitiesToTemperature(300, 1)
    state = context.getState(positions=True, velocities=True, forces=True)
    calls = {State.Positions: "getPositions", State.Velocities: "getVelocities", State.Forces: "getForces"}
    plain = SimpleNamespace(**{name: getattr(state, name) for name in calls.values()})
    for kind, name in calls.items():
        expected = getattr(state, name)(asNumpy=True)._value
        assert len({float(v) for v in expected.ravel()}) > 10
        for source in (state, plain):
            out = np.full(x.shape, np.nan)
            assert read_vectors(source, kind, out) is out and np.array_equal(out, expected)
    read_forces(plain, out, np.array([3]))
    assert not out[3].any() and np.array_equal(np.delete(out, 3, 0), np.delete(expected, 3, 0))


def test_virtual_sites_are_carried_and_placed():
    topology, system, x = four_site_water()
    off = x.copy()
    off[3::4] += 0.03
    structure = ptd.Structure.from_openmm(topology, system, off)
    assert np.abs(structure.positions - place_virtual_sites(system, x)).max() < 1e-12
    tree = ptd.build_tree(structure)
    n = topology.getNumResidues()
    assert (tree.n_molecules, tree.n_dof) == (n, 6 * n)
    assert tree.virtual_sites.tolist() == list(range(3, 4 * n, 4))
    assert (tree.atom_link[3::4] == tree.atom_link[0::4]).all()
    assert tree.masses.sum() == pytest.approx(n * 18.0154, abs=1e-3 * n)


def test_energy_is_conserved_and_geometry_kept_in_four_site_water():
    """Fluctuations of the total energy are those of the time step: about four times smaller with half of it."""
    topology, system, x = four_site_water()
    spread = []
    for h in (0.001, 0.0005):
        tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x))
        integrator = ptd.TorsionVerletIntegrator(tree, h, seed=1)
        simulation = ptd.TorsionSimulation(topology, system, integrator, "Reference")
        if not spread:
            simulation.minimize_torsions(max_iterations=30)
            start = integrator.motion()[0]
            check_forces(simulation)
        integrator.set_motion(start, np.zeros(tree.n_dof))
        integrator.set_velocities_to_temperature(300)
        energies = [integrator.total_energy()]
        for _ in range(8):
            simulation.step(round(0.004 / h))
            energies.append(integrator.total_energy())
        spread.append(float(np.std(energies)))
    assert spread[1] < 0.35 * spread[0] and spread[1] < 0.001 * BOLTZMANN * 300 * tree.n_dof
    moved, reference = positions_of(simulation.context), tree.positions(tree.reference)
    for a, b in ((0, 1), (0, 2), (1, 2), (0, 3)):
        lengths = [np.linalg.norm(y[a::4] - y[b::4], axis=1) for y in (moved, reference)]
        assert np.abs(lengths[0] - lengths[1]).max() < 1e-12


def test_langevin_ghmc_and_hydrogen_mass_with_virtual_sites():
    topology, system, x = four_site_water("opc")
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x))
    for kind in (ptd.TorsionLangevinIntegrator, ptd.TorsionGHMCIntegrator):
        integrator = kind(tree, 300, 1.0, 0.001, seed=2, hydrogen_mass=2.0)
        simulation = ptd.TorsionSimulation(topology, system, integrator, "CPU")
        simulation.minimize_torsions(max_iterations=30)
        simulation.context.setVelocitiesToTemperature(300, 5)
        simulation.step(5)
        sites = positions_of(simulation.context)[3::4]
        simulation.context.computeVirtualSites()
        assert np.abs(sites - positions_of(simulation.context)[3::4]).max() < 1e-6
        assert (integrator.tree.masses == tree.masses).all()


def test_solvers_agree_on_virtual_sites():
    topology, system, x = four_site_water()
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x))
    expected = ptd.get_solver("dense").log_det(tree, tree.reference)
    for name in ptd.list_solvers():
        if name == "fixman-points":
            with pytest.raises(UnsupportedError, match="divides by the masses"):
                ptd.get_solver(name).log_det(tree, tree.reference)
        else:
            assert ptd.get_solver(name).log_det(tree, tree.reference) == pytest.approx(expected, rel=1e-10)


def test_virtual_sites_need_one_body_and_a_system():
    topology, system, x = four_site_water(rigid=False)
    structure = ptd.Structure.from_openmm(topology, system, x)
    with pytest.raises(ModelError, match="not all in one rigid body"):
        ptd.build_tree(structure, soft="all")
    plain = structure.with_masses(np.where(structure.masses == 0, 1.0, structure.masses))
    with pytest.raises(ModelError, match="virtual sites have none"):
        ptd.build_tree(plain)
    assert list(structure.subset(np.arange(8)).virtual_sites.items()) == [(3, (0, 1, 2)), (7, (4, 5, 6))]
    with pytest.raises(ptd.PeptidynError, match="choose whole molecules"):
        structure.subset([3])
