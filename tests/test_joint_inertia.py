"""Joint inertias: M + diag(a) in every place that knows the mass matrix, and the kinetic metric of integrators."""

from __future__ import annotations

import butane
import extended_precision
import numpy as np
import openmm
import pytest
import wilson
from pinocchio_oracle import PinocchioTree
from random_trees import random_state, random_tree, with_random_inertia
from real_structures import DATA, load

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError
from peptidyn.core.units import BOLTZMANN
from peptidyn.integrators.mover import Mover
from peptidyn.solvers.dynamics import bias_forces, inverse_dynamics, kinetic_energy

KINDS = [
    (kind, soft, base)
    for kind in ("serial", "branched", "star", "forest")
    for soft in ("rotor", "all")
    for base in ("free", "fixed")
]


@pytest.fixture(params=KINDS, ids="-".join, scope="module")
def moved(request):
    """A tree with prismatic, bend and phase joints and random inertias, in a random state."""
    kind, soft, base = request.param
    tree = random_tree(kind, 18 if soft == "rotor" else 9, seed=7, base=base, soft=soft, inertia=True)
    return tree, random_state(tree, np.random.default_rng(1))


def physical(tree):
    return tree.with_joint_inertia(np.zeros(tree.n_coordinates))


def diagonal(tree):
    """Return diag(a) over all degrees of freedom."""
    a = np.zeros(tree.n_dof)
    a[tree.coordinate_dof] = tree.joint_inertia
    return np.diag(a)


# ---------------------------------------------------------------------------- ln det M and its gradient


def dense_log_det(tree, state):
    """Return ln det(M + diag a) by Cholesky's method in extended precision."""
    M = extended_precision.mass_matrix(tree, state) + diagonal(tree).astype(extended_precision.Long)
    return extended_precision.solve(M, np.zeros((tree.n_dof, 1)))[1]


def test_log_det_is_that_of_the_dense_matrix(moved):
    tree, state = moved
    wanted = dense_log_det(tree, state)
    for name in ("articulated", "dense"):
        assert abs(ptd.get_solver(name).log_det(tree, state) - wanted) < 1e-10 * max(1.0, abs(wanted)), name
    without = ptd.get_solver("articulated").log_det(physical(tree), state)
    assert abs(without - wanted) > 0.1  # what is tested is not nothing
    metric = ptd.FixmanPotential(tree, 300).log_metric(state.q[None])[0]
    assert abs(metric - (wanted - 2 * tree.log_jacobian(state.q))) < 1e-10 * max(1.0, abs(wanted))


@pytest.mark.skipif(not extended_precision.AVAILABLE, reason="float64 is the longest number here")
def test_gradient_is_that_of_the_dense_matrix(moved):
    """Sixth-order differences of ln(det M / J^2) in extended precision, to 1e-10, at coordinates of every kind."""
    tree, state = moved
    torque = ptd.FixmanPotential(tree, 1.0 / BOLTZMANN).torque(state)[tree.coordinate_dof]
    rng = np.random.default_rng(2)
    chosen = {int(rng.choice(index)) for index in (tree.torsion_index, tree.bend_index) if len(index)}
    chosen |= {int(rng.choice(index)) for index in (tree.phase_index, tree.stretch_index) if len(index)}
    for i in sorted(chosen):
        step = np.zeros(tree.n_coordinates)
        step[i] = 2e-3 * (state.q[i] if tree.coordinates[i].motion == "stretch" else 1.0)
        values = []
        for k in (-3, -2, -1, 1, 2, 3):
            other = state.replace(q=state.q + k * step)
            values.append(dense_log_det(tree, other) - 2 * tree.log_jacobian(other.q))
        a, b, c, d, e, f = values
        wanted = -0.5 * (f - a - 9 * (e - b) + 45 * (d - c)) / (60 * step[i])
        assert abs(torque[i] - wanted) < 2e-10 * max(1.0, np.abs(torque).max()), tree.coordinates[i]


def test_metric_of_flexible_structures(structure_file):
    """ln(det M / J^2) = ln det(m + B^T a B) with Wilson's B: values and gradients to 1e-10, at any size."""
    rng = np.random.default_rng(3)
    tree = with_random_inertia(ptd.build_tree(load(structure_file), soft="all"), rng)
    state = random_state(tree, rng)
    x = tree.positions(state)
    wanted = wilson.log_metric(tree, x)
    potential = ptd.FixmanPotential(tree, 1.0 / BOLTZMANN)
    energy, torque = potential.energy_and_torque(state)
    assert abs(2 * energy - wanted) < 1e-10 * abs(wanted)
    log_det = ptd.get_solver("articulated").log_det(tree, state)
    assert abs(log_det - 2 * tree.log_jacobian(state.q) - wanted) < 1e-10 * abs(wanted)
    for _ in range(3):
        v = np.zeros(tree.n_dof)
        v[tree.coordinate_dof] = rng.normal(size=tree.n_coordinates) * (rng.random(tree.n_coordinates) < 0.3)
        derivative = wilson.log_metric_derivative(tree, x, tree.velocities(state, v))
        assert abs(-2 * torque @ v - derivative) < 1e-10 * np.linalg.norm(2 * torque) * max(1.0, np.abs(v).max())


def test_without_inertia_the_flexible_metric_is_constant():
    """det M / J^2 is the product of m^3: with everything soft and a = 0, U_F does nothing."""
    tree = ptd.build_tree(load(DATA / "all20.pdb"), soft="all")
    rng = np.random.default_rng(4)
    wanted = 3 * np.log(tree.masses).sum()
    q = np.stack([random_state(tree, rng).q for _ in range(3)])
    potential = ptd.FixmanPotential(tree, 300)
    assert np.abs(potential.log_metric(q) / wanted - 1).max() < 1e-12
    assert np.abs(potential.energies_and_torques(q)[1]).max() < 1e-6
    inertia = tree.with_joint_inertia(np.where(tree.measure == 0, 0.05, 0.5))
    assert np.ptp(ptd.FixmanPotential(inertia, 300).log_metric(q)) > 1.0


# ---------------------------------------------------------------------------- solvers and dynamics


def test_mass_matrix_shows_the_inertias(moved):
    tree, state = moved
    M, bare = ptd.mass_matrix(tree, state), ptd.mass_matrix(physical(tree), state)
    assert np.abs(M - bare - diagonal(tree)).max() < 1e-12 * np.abs(M).max()


def test_kinetic_energy_momenta_and_forces_have_the_inertias(moved):
    tree, state = moved
    rng = np.random.default_rng(6)
    v, acceleration = rng.normal(size=(2, tree.n_dof))
    M = ptd.mass_matrix(tree, state)
    assert kinetic_energy(tree, state, v) == pytest.approx(0.5 * v @ M @ v, rel=1e-12)
    assert np.allclose(tree.momenta(state, v), M @ v, rtol=1e-10, atol=1e-10 * np.abs(M @ v).max())
    wanted = M @ acceleration + bias_forces(tree, state, v)
    found = inverse_dynamics(tree, state, v, acceleration)
    assert np.abs(found - wanted).max() < 1e-10 * np.abs(wanted).max()
    forward = ptd.get_solver("articulated").accelerations(tree, state, v, found)
    assert np.abs(forward - acceleration).max() < 1e-8 * np.abs(acceleration).max()
    # a constant inertia adds no velocity-dependent force
    assert np.allclose(bias_forces(tree, state, v), bias_forces(physical(tree), state, v), rtol=1e-14)
    mover = Mover(tree, state, M @ v)
    assert mover.kinetic_energy() == pytest.approx(0.5 * v @ M @ v, rel=1e-9)
    assert np.abs(mover.velocities() - v).max() < 1e-8 * np.abs(v).max()


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_joint_inertia_is_the_armature_of_robotics(base):
    """Pinocchio calls it armature: the same matrix, and the same forward dynamics."""
    tree = random_tree("branched", 9, seed=8, base=base, soft="all", inertia=True)
    rng = np.random.default_rng(7)
    state = random_state(tree, rng)
    theirs = PinocchioTree(tree, state)
    armature = theirs.to_theirs @ np.diag(diagonal(tree))
    theirs.model.armature[:] = armature
    theirs.data = theirs.model.createData()
    M = theirs.mass_matrix()
    ours = ptd.mass_matrix(tree, state)
    assert np.abs(M - ours).max() < 1e-10 * np.abs(ours).max()
    v, tau = rng.normal(size=(2, tree.n_dof))
    solver = ptd.get_solver("articulated")
    found, wanted = solver.accelerations(tree, state, v, tau), theirs.accelerations(v, tau)
    assert np.abs(found - wanted).max() < 1e-8 * np.abs(wanted).max()


# ---------------------------------------------------------------------------- integrators


@pytest.fixture(scope="module")
def alanine():
    """Capped alanine with everything soft: topology, System in vacuum, tree."""
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = ptd.make_system(structure.topology, "vacuum")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    return structure.topology, system, ptd.build_tree(structure, soft="all")


def simulate(alanine, seed=1, timestep=0.008, metric="auto", integrator_class=None):
    topology, system, tree = alanine
    integrator_class = integrator_class or ptd.TorsionLangevinIntegrator
    integrator = integrator_class(tree, 300, 2.0, timestep, seed=seed, metric=metric)
    simulation = ptd.TorsionSimulation(topology, system, integrator, "Reference")
    simulation.context.setPositions(tree.positions(tree.reference))
    return simulation


def test_auto_is_what_joint_inertia_returns(alanine):
    _, system, tree = alanine
    simulations = [simulate(alanine), simulate(alanine, integrator_class=ptd.TorsionGHMCIntegrator)]
    simulations.append(simulate(alanine, timestep=0.0005, metric="physical"))
    for simulation in simulations:
        simulation.integrator.motion()
    langevin, ghmc, bare = (simulation.integrator for simulation in simulations)
    assert np.array_equal(langevin.tree.joint_inertia, ptd.joint_inertia(tree, system, 0.008))
    slower = ptd.joint_inertia(tree, system, 0.008, steps_per_period=ghmc.steps_per_period)
    assert np.array_equal(ghmc.tree.joint_inertia, slower) and slower.sum() > 1.5 * langevin.tree.joint_inertia.sum()
    assert not bare.tree.joint_inertia.any()
    given = np.linspace(0.1, 1.0, tree.n_coordinates)
    assert np.array_equal(simulate(alanine, metric=given).integrator.tree.joint_inertia, given)


def test_auto_is_chosen_for_the_temperature_of_the_heat_bath():
    """Butane at a temperature where its torsion would turn 0.4 rad per step, and gets three times its inertia."""
    tree, timestep = butane.make_tree(), 0.02
    own = 1.0 / np.linalg.inv(ptd.mass_matrix(tree, tree.reference))[tree.coordinate_dof[0], tree.coordinate_dof[0]]
    hot = (0.4 / timestep) ** 2 * own / BOLTZMANN
    for temperature, inertia in ((hot, 3.0 * own), (0.2 * hot, 0.0)):
        integrator = ptd.TorsionLangevinIntegrator(tree, temperature, 1.0, timestep, metric="auto")
        context = openmm.Context(butane.make_system(), integrator, openmm.Platform.getPlatformByName("Reference"))
        integrator.bind(context)
        assert integrator.tree.joint_inertia == pytest.approx([inertia], rel=1e-6)


def test_inertias_grow_with_the_square_of_the_step(alanine):
    """Stiff coordinates get k / w^2; backbone torsions, slow by their masses, get none."""
    _, system, tree = alanine
    small, large = ptd.joint_inertia(tree, system, 0.008), ptd.joint_inertia(tree, system, 0.016)
    assert (small >= 0).all() and np.isfinite(large).all()
    stiff = tree.stretch_index
    assert np.allclose(large[stiff], 4 * small[stiff]) and (small[stiff] > 1.0).all()
    phi_psi = [i for i in tree.torsion_index if tree.coordinates[i].kind in ("phi", "psi")]
    assert not large[phi_psi].any()


def test_a_bond_gets_the_inertia_of_its_spring():
    """One spring, one mass: a = k (8 h / 2 pi)^2 for every bond of butane, which couples to nothing."""
    system = butane.make_system()
    for index in (3, 2, 1):
        system.removeForce(index)
    x = butane.make_tree().positions(butane.make_tree().reference)
    tree = ptd.build_tree(ptd.Structure.from_openmm(butane.make_topology(), system, x), soft="bonds")
    inertia = ptd.joint_inertia(tree, system, 0.01)
    assert np.allclose(inertia, butane.K_BOND * (8 * 0.01 / (2 * np.pi)) ** 2, rtol=1e-5)


def test_velocities_from_outside_become_momenta_of_the_metric(alanine):
    """context.setVelocities(J q') gives p = (M + diag a) q', and the same velocities come back."""
    simulation = simulate(alanine)
    integrator = simulation.integrator
    state, _ = integrator.motion()
    tree = integrator.tree
    rates = np.random.default_rng(8).normal(scale=0.1, size=tree.n_dof)
    v = tree.velocities(state, rates)
    simulation.context.setVelocities(v)
    _, momenta = integrator.motion()
    wanted = ptd.mass_matrix(tree, state) @ rates
    assert np.abs(momenta - wanted).max() < 1e-8 * np.abs(wanted).max()
    assert integrator.kinetic_energy() == pytest.approx(0.5 * rates @ wanted, rel=1e-8)
    assert integrator.computeSystemTemperature()._value == pytest.approx(
        rates @ wanted / (tree.n_dof * BOLTZMANN), rel=1e-8
    )
    integrator.set_motion(state, momenta)
    back = simulation.context.getState(velocities=True).getVelocities(asNumpy=True)._value
    assert np.abs(back - v).max() < 1e-7 * np.abs(v).max()


def test_drawn_momenta_have_the_temperature(alanine):
    """Mean of p M^-1 p / n_dof over 400 draws of 66 momenta: 5 standard errors are 5 sqrt(2 / 26400) = 4.4 %."""
    simulation = simulate(alanine)
    integrator, found = simulation.integrator, []
    for _ in range(400):
        integrator.set_velocities_to_temperature(300)
        found.append(integrator.computeSystemTemperature()._value)
    assert np.mean(found) == pytest.approx(300, rel=0.044)


def test_a_step_beyond_the_metric_is_refused(alanine):
    simulation = simulate(alanine, timestep=0.008)
    simulation.step(2)
    simulation.integrator.setStepSize(0.004)
    simulation.step(2)
    simulation.integrator.setStepSize(0.012)
    with pytest.raises(ArgumentError, match=r"chosen for steps of 8 fs .* steps of 12 fs"):
        simulation.step(1)


def test_a_step_that_no_inertia_allows_is_refused_with_the_coordinate(alanine):
    """No bonded term holds the torsion of a chain of beads: what limits the step is named."""
    system = openmm.System()
    for _ in range(4):
        system.addParticle(14.0)
    tree = butane.make_tree()
    with pytest.raises(ArgumentError, match="too large") as error:
        ptd.joint_inertia(tree, system, 0.3)
    assert str(tree.torsions[0]) in str(error.value)


def test_checkpoints_keep_the_metric(alanine, tmp_path):
    """A run with metric="auto" continues bit for bit, with the inertias it began with."""
    path = tmp_path / "x.chk"
    first = simulate(alanine)
    first.integrator.set_velocities_to_temperature(300)
    first.step(5)
    first.save_checkpoint(path)
    inertia = first.integrator.tree.joint_inertia
    first.step(10)
    second = simulate(alanine, seed=99)
    second.load_checkpoint(path)
    assert np.array_equal(second.integrator.tree.joint_inertia, inertia)
    second.step(10)
    for a, b in zip(first.integrator.motion(), second.integrator.motion(), strict=True):
        assert np.array_equal(getattr(a, "q", a), getattr(b, "q", b))
    for metric in ("physical", 2 * inertia):
        with pytest.raises(CheckpointError, match="joint inertias"):
            simulate(alanine, metric=metric).load_checkpoint(path)
