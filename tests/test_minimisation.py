"""Minimisation in soft coordinates and in Cartesian ones: variables, slopes, where it stops and what it returns."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import openmm
import pytest
from openmm import app
from scipy.spatial.transform import Rotation

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.engine.minimisation import _Chart, _left_jacobians, minimise, minimise_cartesian
from peptidyn.integrators.mover import Mover

BUTANE = (4, 0.15, 1.9, [12.0, 14.0, 14.0, 12.0])


def torsion_of(tree, energy_and_slope):
    """Return forces of an energy that depends on the first soft coordinate alone."""

    def forces(mover):
        energy, slope = energy_and_slope(float(mover.q[0]))
        torque = np.zeros(tree.n_dof)
        torque[tree.coordinate_dof[0]] = -slope
        return energy, torque

    return forces


def wall(q):
    """A pull to 1 rad, and a wall at 1.02 rad on which the first step of L-BFGS ends."""
    r = 1.02 - q
    u = (0.3 / r) ** 6
    return 4.0 * (u * u - u) + 10.0 * (q - 1.0) ** 2, 24.0 * (2.0 * u * u - u) / r - 20.0 * (1.0 - q)


def mixture(base="free"):
    """Return a tree of a point, a bent triatomic molecule, another point and a chain of four atoms with a torsion."""
    topology, system, chain = app.Topology(), openmm.System(), None
    sizes, x = (1, 3, 1, 4), []
    zigzag = np.array([[0.0, 0.0, 0.0], [0.15, 0.0, 0.0], [0.2, 0.14, 0.0], [0.3, 0.15, 0.1]])
    for m, size in enumerate(sizes):
        chain = topology.addChain("ABCD"[m])
        residue = topology.addResidue(f"M{m}", chain)
        atoms = [topology.addAtom(f"C{i}", app.element.carbon, residue) for i in range(size)]
        for a, b in pairwise(atoms):
            topology.addBond(a, b)
        for i in range(size):
            system.addParticle(12.0)
            x.append(zigzag[i] + [0.0, 0.0, 0.5 * m])
    return ptd.build_tree(ptd.Structure.from_openmm(topology, system, np.array(x)), "rotor", base=base)


def springs_to(tree, target):
    def forces(mover):
        x = mover.positions()
        return 5000.0 * ((x - target) ** 2).sum(), mover.project(-10000.0 * (x - target))

    return forces


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5, 8, 12])
def test_what_is_left_is_the_slope_where_the_mover_is(limit):
    """In whichever attempt the iterations end: the first one, and shorter first steps after it."""
    tree = ptd.bead_chain(*BUTANE, torsion=[0.0])
    mover = Mover(tree)
    found = minimise(mover, torsion_of(tree, wall), tolerance=1e-3, max_iterations=limit)
    q = float(found.state.q[0])
    energy, slope = wall(q)
    assert float(mover.q[0]) == q and found.energy == pytest.approx(energy, rel=1e-12)
    assert found.gradient == pytest.approx(abs(slope), rel=1e-9, abs=1e-9)
    assert found.start_energy == wall(0.0)[0] and found.converged == (abs(slope) <= 1e-3)
    assert found.iterations <= limit or limit == 0


@pytest.mark.parametrize("what", ["energy", "slope"])
def test_it_turns_back_from_where_energies_or_slopes_are_no_numbers(what):
    """The first step goes to 1 rad, beyond 0.9, where there is nothing; the minimum is at 0.4."""

    def well(q):
        energy, slope = 10.0 * (q - 0.4) ** 2, 20.0 * (q - 0.4)
        if q > 0.9:
            return (np.nan, slope) if what == "energy" else (-100.0, np.nan)
        return energy, slope

    tree = ptd.bead_chain(*BUTANE, torsion=[0.0])
    found = minimise(Mover(tree), torsion_of(tree, well), tolerance=1e-4)
    assert found.converged and float(found.state.q[0]) == pytest.approx(0.4, abs=1e-5)
    assert found.energy == pytest.approx(0.0, abs=1e-8) and found.start_energy == pytest.approx(1.6)


@pytest.mark.parametrize("values", [(np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan)])
def test_a_start_without_numbers_is_refused(values):
    tree = ptd.bead_chain(*BUTANE)
    with pytest.raises(ModelError, match="atoms coincide"):
        minimise(Mover(tree), torsion_of(tree, lambda q: values))


def test_tolerances_and_limits_that_mean_nothing_are_refused():
    tree = ptd.bead_chain(*BUTANE)
    for tolerance in (0.0, -1.0, np.nan):
        with pytest.raises(ArgumentError, match="tolerance is"):
            minimise(Mover(tree), torsion_of(tree, wall), tolerance=tolerance)
    with pytest.raises(ArgumentError, match="max_iterations is -1"):
        minimise(Mover(tree), torsion_of(tree, wall), max_iterations=-1)


def test_what_cannot_move_is_at_its_minimum():
    tree = ptd.bead_chain(3, 0.15, 1.9, 12.0, base="fixed")
    found = minimise(Mover(tree), lambda mover: (7.0, np.zeros(0)))
    assert tree.n_dof == 0 and (found.energy, found.start_energy, found.gradient) == (7.0, 7.0, 0.0)
    assert found.converged and found.iterations == 0 and np.array_equal(found.state.q, tree.reference.q)


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_points_and_bodies_of_a_mixture_are_moved_by_variables_of_their_own(base):
    """Energies of displaced states agree with slopes in every variable, from a state that was turned before."""
    tree = mixture(base)
    assert tree.n_dof == (3 + 6 + 3 + 7 if base == "free" else 1)
    rng = np.random.default_rng(4)
    n = tree.n_molecules
    turned = tree.reference
    if base == "free":
        turned = tree.reference.replace(
            base_position=tree.reference.base_position + rng.normal(size=(n, 3)),
            base_rotation=Rotation.random(n, rng).as_quat(scalar_first=True),
        )
    mover, chart = Mover(tree, turned), _Chart(turned)
    forces = springs_to(tree, tree.positions(tree.reference) + 0.1 * rng.normal(size=(tree.n_atoms, 3)))
    z = 0.4 * rng.normal(size=tree.n_dof)

    def energy(at):
        mover.set_state(chart.state(at))
        return forces(mover)

    _, torque = energy(z)
    slope = chart.pull_back(z, -torque)
    for k, e in enumerate(np.eye(tree.n_dof)):
        by_difference = (energy(z + 1e-5 * e)[0] - energy(z - 1e-5 * e)[0]) / 2e-5
        assert slope[k] == pytest.approx(by_difference, rel=1e-5, abs=1e-4)
    there = tree.positions(chart.state(np.zeros(tree.n_dof)))
    assert np.allclose(there, tree.positions(turned), rtol=0, atol=1e-13)


def test_a_mixture_finds_a_displaced_copy_of_itself():
    tree, rng = mixture(), np.random.default_rng(5)
    n = tree.n_molecules
    turns = Rotation.from_rotvec(rng.normal(size=(n, 3)) * 0.5)
    goal = tree.reference.replace(
        torsions=tree.reference.torsions + 0.7,
        base_position=tree.reference.base_position + rng.normal(size=(n, 3)),
        base_rotation=(turns * Rotation.from_quat(tree.reference.base_rotation, scalar_first=True)).as_quat(
            scalar_first=True
        ),
    )
    target, mover = tree.positions(goal), Mover(tree)
    found = minimise(mover, springs_to(tree, target), tolerance=1e-4)
    assert found.converged and np.abs(mover.positions() - target).max() < 1e-7


@pytest.mark.parametrize("angle", [0.0, 1e-6, 0.0099, 0.0101, 1.0, 3.0])
def test_the_jacobian_of_a_rotation_vector_is_its_series(angle):
    """J = 1 + [v]/2! + [v]^2/3! + ..., with the matrix [v] of the cross product."""
    v = angle * np.array([0.6, -0.48, 0.64])
    cross = np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])
    expected, term = np.eye(3), np.eye(3)
    for k in range(2, 40):
        term = term @ cross / k
        expected = expected + term
    assert np.allclose(_left_jacobians(v[None])[0], expected, rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------- Cartesian coordinates, and simulations


@pytest.fixture(scope="module")
def alanine():
    structure = ptd.build_peptide("A", phi=-75, psi=60)
    system = ptd.make_system(structure.topology, "vacuum")
    return ptd.Structure.from_openmm(structure.topology, system, structure.positions), system


def simulation_of(alanine):
    structure, system = alanine
    integrator = ptd.TorsionLangevinIntegrator(ptd.build_tree(structure), 300.0, 1.0, 0.002, seed=1)
    return ptd.TorsionSimulation(structure.topology, system, integrator, "Reference")


def root_mean_square_force(context):
    forces = context.getState(forces=True).getForces(asNumpy=True)._value
    return float(np.sqrt((forces**2).sum(axis=1).mean()))


def test_cartesian_minimisation_stops_at_its_tolerance_and_limit(alanine):
    """And returns the energy where it stopped."""

    def minimised(*arguments):
        context = openmm.Context(alanine[1], openmm.VerletIntegrator(0.001), openmm.Platform.getPlatform("Reference"))
        context.setPositions(alanine[0].positions)
        energy = minimise_cartesian(context, *arguments)
        assert energy == pytest.approx(context.getState(energy=True).getPotentialEnergy()._value, abs=1e-9)
        return energy, root_mean_square_force(context)

    rough, fine, short = minimised(200.0), minimised(0.5), minimised(0.5, 3)
    assert 5.0 < rough[1] < 400.0 and fine[1] < 1.0
    assert fine[0] < rough[0] - 0.1 and fine[0] < short[0] - 1.0 and short[1] > 20.0


def test_relaxing_has_the_tolerance_and_the_limit_that_are_given(alanine):
    found = {}
    for name, options in {
        "rough": {"tolerance": 200.0},
        "fine": {"tolerance": 0.5},
        "short": {"max_iterations": 3},
    }.items():
        simulation = simulation_of(alanine)
        energy = simulation.relax_geometry(**options)
        assert energy == pytest.approx(simulation.context.getState(energy=True).getPotentialEnergy()._value, abs=1e-6)
        assert not simulation.context.getState(velocities=True).getVelocities(asNumpy=True)._value.any()
        found[name] = energy, root_mean_square_force(simulation.context)
    assert found["fine"][1] < 1.0 < 5.0 < found["rough"][1] < 400.0
    assert found["short"][0] > found["fine"][0] + 1.0


def test_torsions_are_minimised_to_the_tolerance_and_limit_that_are_given(alanine):
    """By either call; velocities become zero, and whoever watches is told every energy."""
    simulation = simulation_of(alanine)
    simulation.set_velocities_to_temperature(300)
    seen = []
    energy = simulation.minimize_torsions(tolerance=20.0, watch=seen.append)
    rough = simulation.minimum
    assert 1.0 < rough.gradient <= 20.0 and len(seen) == rough.iterations and seen[-1] == pytest.approx(energy)
    assert not simulation.integrator.motion()[1].any()
    simulation.minimize_torsions(tolerance=0.05)
    assert simulation.minimum.gradient <= 0.05 and simulation.minimum.start_energy == pytest.approx(energy, abs=1e-6)
    for limited in (
        lambda simulation: simulation.minimize_torsions(max_iterations=2),
        lambda simulation: simulation.minimizeEnergy(maxIterations=2),
    ):
        simulation = simulation_of(alanine)
        limited(simulation)
        assert simulation.minimum.iterations == 2 and not simulation.minimum.converged
    with pytest.raises(ArgumentError, match="minimize_torsions"):
        simulation.minimizeEnergy(reporter=object())
