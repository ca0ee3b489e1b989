"""What is set on an integrator is what it does: temperature, friction, step, force groups, parameters, masses."""

from __future__ import annotations

import math
from dataclasses import replace

import butane
import numpy as np
import openmm
import pytest
from openmm import app
from real_structures import DATA, load
from scripted_random import Script

import peptidyn as ptd
from peptidyn.core.errors import ModelError
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.torsion_integrator import TOO_HOT
from peptidyn.integrators.mover import Mover
from peptidyn.model.hydrogen_mass import repartition_hydrogen_mass
from peptidyn.solvers.dense import mass_matrix

T, FRICTION, STEP = 350.0, 20.0, 0.01
ALL, TORSION = -1, 1 << 2
"""Force groups of butane: all, and its torsion alone."""


def system_with_a_field():
    """Butane in a field along x, whose strength is a parameter of the Context; zero at first."""
    system = butane.make_system()
    field = openmm.CustomExternalForce("strength*x")
    field.addGlobalParameter("strength", 0.0)
    field.addParticle(3)
    system.addForce(field)
    return system


def simulate(kind, temperature=T, friction=FRICTION, step=STEP, groups=ALL, strength=0.0, **options):
    tree = butane.make_tree()
    if kind == "nve":
        integrator = ptd.TorsionVerletIntegrator(tree, step, seed=5, temperature=temperature, **options)
    else:
        cls = ptd.TorsionLangevinIntegrator if kind == "langevin" else ptd.TorsionGHMCIntegrator
        integrator = cls(tree, temperature, friction, step, seed=5, **options)
    integrator.setIntegrationForceGroups(groups)
    simulation = app.Simulation(
        butane.make_topology(), system_with_a_field(), integrator, openmm.Platform.getPlatformByName("Reference")
    )
    simulation.context.setPositions(tree.positions(tree.reference.replace(torsions=[1.3])))
    simulation.context.setParameter("strength", strength)
    integrator.set_velocities_to_temperature(T)
    return simulation


def continued(kind, before, **settings):
    """Return a new simulation with other settings where `before` is, with the random numbers that it would draw."""
    after = simulate(kind, **settings)
    after.integrator.set_motion(*before.integrator.motion())
    after.integrator.rng.bit_generator.state = before.integrator.rng.bit_generator.state
    return after


def path(simulation):
    """Return the coordinates and momenta along the next steps, made one by one and several at a time."""
    rows = []
    for steps in (1, 1, 4, 3):
        simulation.step(steps)
        rows.append(np.concatenate([part.ravel() for part in simulation.integrator.mover.save()]))
    return np.array(rows)


CHANGES = {
    "temperature": (lambda s: s.integrator.setTemperature(900.0), {"temperature": 900.0}),
    "friction": (lambda s: s.integrator.setFriction(300.0), {"friction": 300.0}),
    "step": (lambda s: s.integrator.setStepSize(0.004), {"step": 0.004}),
    "groups": (lambda s: s.integrator.setIntegrationForceGroups(TORSION), {"groups": TORSION}),
    "parameter": (lambda s: s.context.setParameter("strength", 50.0), {"strength": 50.0}),
}


@pytest.mark.parametrize("kind", ["nve", "langevin", "ghmc"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_setting_is_as_if_it_had_always_been(kind, name):
    """The next steps are those of a new integrator with that setting, and not those without the change."""
    if kind == "nve" and name in ("temperature", "friction"):
        pytest.skip("constant energy has neither")
    change, settings = CHANGES[name]
    changed, unchanged = simulate(kind), simulate(kind)
    for simulation in (changed, unchanged):
        simulation.step(3)
    expected = continued(kind, changed, **settings)
    change(changed)
    found = path(changed)
    assert np.abs(found - path(expected)).max() < 1e-12
    assert np.abs(found - path(unchanged)).max() > 1e-6


def test_new_momenta_are_for_the_time_step_that_is_set():
    """Those of Langevin steps depend on it, and no step was made with it yet."""
    found = []
    for before, after in ((STEP, 0.004), (0.004, 0.004), (STEP, STEP)):
        simulation = simulate("langevin", step=before)
        simulation.integrator.setStepSize(after)
        simulation.integrator.set_motion(simulation.integrator.motion()[0])
        found.append(simulation.integrator.motion()[1])
    assert np.array_equal(found[0], found[1]) and np.abs(found[0] - found[2]).max() > 1e-6


@pytest.mark.parametrize("change", ["masses", "coordinates"])
def test_another_tree_has_the_masses_and_coordinates_of_before(change):
    integrator = simulate("langevin").integrator
    tree = integrator.tree
    other = tree.with_masses(2.0 * tree.masses) if change == "masses" else replace(tree, coordinates=())
    with pytest.raises(ModelError, match="other soft coordinates or masses"):
        integrator.set_tree(other)
    assert integrator.tree is tree


def torque_by_differences(energy, mover, h=1e-5):
    """Return -dE/dq of the torsion."""
    values = []
    for sign in (1, -1):
        values.append(energy(mover.state.replace(q=mover.q + sign * h)))
    return -(values[0] - values[1]) / (2 * h)


@pytest.mark.parametrize("fixman", [True, False])
@pytest.mark.parametrize("groups", [ALL, TORSION])
def test_energies_and_forces_are_those_of_the_groups_and_of_u_f(groups, fixman):
    """V(f) of butane by hand, and U_F = (kT/2) ln det M from the dense matrix."""
    simulation = simulate("langevin", groups=groups, fixman=fixman)
    integrator = simulation.integrator
    tree, kT = integrator.tree, BOLTZMANN * T

    def u_f(state):
        return 0.5 * kT * np.linalg.slogdet(mass_matrix(tree, state))[1] if fixman else 0.0

    def energy(state):
        f = float(state.q[0])
        ends = butane.ends_energy(*[butane.BOND] * 3, *[butane.ANGLE] * 2, f) if groups == ALL else 0.0
        return butane.torsion_energy(f) + ends + u_f(state)

    state, p = integrator.motion()
    assert integrator.potential_energy() == pytest.approx(energy(state), abs=1e-9)
    assert integrator.fixman_energy() == pytest.approx(u_f(state), abs=1e-9)
    kinetic = 0.5 * p @ np.linalg.solve(mass_matrix(tree, state), p)
    assert integrator.total_energy() == pytest.approx(energy(state) + kinetic, abs=1e-9)
    assert integrator.kinetic_energy() == pytest.approx(kinetic, rel=1e-10)
    torque = integrator._stepper._evaluate()
    integrator.mover.flush()
    assert torque[tree.coordinate_dof[0]] == pytest.approx(torque_by_differences(energy, integrator.mover), rel=1e-6)


@pytest.mark.parametrize(("kind", "word"), [("nve", "BAB"), ("langevin", "BAOAB")])
def test_the_order_of_moves(kind, word):
    """One step of the integrator, letter by letter; the forces come from the integrator and are tested above."""
    simulation = simulate(kind)
    integrator = simulation.integrator
    state, momentum = integrator.motion()
    hand, kT = Mover(integrator.tree, state, momentum), BOLTZMANN * T
    normals = np.random.default_rng(0).standard_normal((1, hand.tree.n_dof))
    other = simulate(kind)

    def forces():
        other.integrator.set_motion(hand.state, hand.momentum)
        torque = other.integrator._stepper._evaluate()
        other.integrator.mover.flush()
        return torque

    for letter in word:
        h = STEP / word.count(letter)
        if letter == "A":
            assert hand.drift(h, integrator._stepper.tolerance)
        elif letter == "B":
            hand.momentum = hand.momentum + h * forces()
        else:
            hand.thermalise(math.exp(-FRICTION * h), kT, Script(normals))
    if kind == "langevin":
        integrator._stepper.rng = Script(normals)
    simulation.step(1)
    for a, b in zip(integrator.mover.save(), hand.save(), strict=True):
        assert np.abs(a - b).max() < 1e-8


def test_ghmc_steps_are_checked_to_lead_back_unless_told_otherwise():
    counts = {}
    for check in (True, False):
        simulation = simulate("ghmc", check_reverse=check)
        mover, drifts = simulation.integrator.mover, []
        drift = mover.drift
        mover.drift = lambda *a, drift=drift, drifts=drifts: drifts.append(a) or drift(*a)
        simulation.step(4)
        counts[check] = len(drifts)
    assert counts == {True: 8, False: 4}


def test_drawn_velocities_have_the_temperature_that_was_asked_for():
    """Momenta are new ones: p M^-1 p = kT z.z with the next numbers z of the generator."""
    simulation = simulate("langevin")
    integrator = simulation.integrator
    simulation.step(2)
    copy = np.random.default_rng()
    copy.bit_generator.state = integrator.rng.bit_generator.state
    z = copy.standard_normal(integrator.tree.n_dof)
    integrator.set_velocities_to_temperature(700.0)
    assert integrator.kinetic_energy() == pytest.approx(0.5 * BOLTZMANN * 700.0 * z @ z, rel=1e-9)
    degrees = integrator.tree.n_dof  # torsion and base
    assert degrees == 7
    assert integrator.computeSystemTemperature()._value == pytest.approx(700.0 * z @ z / degrees, rel=1e-9)
    # the Context has the velocities of the atoms
    v = simulation.context.getState(velocities=True).getVelocities(asNumpy=True)._value
    assert 0.5 * (integrator.tree.masses[:, None] * v**2).sum() == pytest.approx(integrator.kinetic_energy(), rel=1e-9)


def test_positions_and_velocities_from_outside_count_at_once():
    """A step from there is that of a simulation that was always there."""
    moved = simulate("langevin")
    moved.step(3)
    there = simulate("langevin")
    state = moved.integrator.tree.reference.replace(torsions=[-0.9])
    x = moved.integrator.tree.positions(state)
    v = moved.context.getState(velocities=True).getVelocities(asNumpy=True)
    for simulation in (moved, there):
        simulation.context.setPositions(x)
        simulation.context.setVelocities(2.0 * v)
    there.integrator.rng.bit_generator.state = moved.integrator.rng.bit_generator.state
    assert np.abs(path(moved) - path(there)).max() < 1e-10
    p = moved.integrator.motion()[1]
    moved.context.setVelocities(np.zeros((4, 3)))
    assert np.abs(p).max() > 0.1 and not moved.integrator.motion()[1].any()


def test_velocities_from_outside_become_momenta_of_the_metric():
    """p = M v with joint inertias in M: v of the soft coordinates is what it was."""
    simulation = simulate("langevin", metric=[0.8])
    integrator = simulation.integrator
    state, p = integrator.motion()
    v = np.linalg.solve(mass_matrix(integrator.tree, state), p)
    simulation.context.setVelocities(3.0 * simulation.context.getState(velocities=True).getVelocities(asNumpy=True))
    assert np.abs(integrator.motion()[1] - 3.0 * mass_matrix(integrator.tree, state) @ v).max() < 1e-9


def test_water_keeps_its_masses():
    topology = app.Topology()
    residue = topology.addResidue("HOH", topology.addChain())
    oxygen, *hydrogens = [
        topology.addAtom(name, app.Element.getBySymbol(name[0]), residue) for name in ("O", "H1", "H2")
    ]
    system = openmm.System()
    for mass in (15.999, 1.008, 1.008):
        system.addParticle(mass)
    for hydrogen in hydrogens:
        topology.addBond(oxygen, hydrogen)
    water = ptd.Structure.from_openmm(topology, system, [[0, 0, 0], [0.096, 0, 0], [-0.024, 0.093, 0]])
    assert repartition_hydrogen_mass(ptd.build_tree(water), 3.0).tolist() == [15.999, 1.008, 1.008]


def test_hydrogens_take_no_mass_from_each_other():
    topology = app.Topology()
    residue = topology.addResidue("H2", topology.addChain())
    topology.addBond(*[topology.addAtom(name, app.element.hydrogen, residue) for name in ("H1", "H2")])
    system = openmm.System()
    for _ in range(2):
        system.addParticle(1.008)
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, [[0, 0, 0], [0.074, 0, 0]]))
    assert repartition_hydrogen_mass(tree, 1.5).tolist() == [1.008, 1.008]


def test_what_hydrogens_get_their_neighbours_lose():
    structure = load(DATA / "ala1.pdb")
    tree = ptd.build_tree(structure)
    masses = repartition_hydrogen_mass(tree, 3.0)
    for i, bonded in enumerate(tree.atoms.neighbours):
        hydrogens = [a for a in bonded if tree.atoms.element[a] == "H"]
        expected = (
            3.0 if tree.atoms.element[i] == "H" else tree.masses[i] - sum(3.0 - tree.masses[a] for a in hydrogens)
        )
        assert masses[i] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("part", "refused"), [(0.9, False), (1.1, True)])
def test_velocities_of_more_than_five_times_the_temperature_are_refused_with_joint_inertias(part, refused):
    """Two simulations: the velocities of one are put into the other, which has not moved yet."""
    first, second = (simulate("langevin", metric=[0.5]) for _ in range(2))
    state = first.context.getState(velocities=True)
    temperature = 2 * first.integrator.kinetic_energy() / (first.integrator.tree.n_dof * BOLTZMANN)
    factor = math.sqrt(part * TOO_HOT * T / temperature)
    second.integrator._known = None  # as if nothing had been read yet
    second.context.setVelocities(factor * state.getVelocities(asNumpy=True)._value)
    if not refused:
        second.step(1)
        return
    with pytest.raises(ModelError, match=f"temperature of {part * TOO_HOT * T:.0f} K"):
        second.step(1)
