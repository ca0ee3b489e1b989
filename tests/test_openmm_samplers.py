"""OpenMM's own samplers, unmodified, over a torsion integrator, against exact distributions.

Butane with rigid bonds and angles has one torsion, whose distribution is a quadrature. p-values are those of thinned
samples, a few of which stay correlated; with the limit of 1e-4 a false alarm is expected in some 1,000 seeds.
"""

from __future__ import annotations

import random

import butane
import numpy as np
import openmm
import pytest
from correlated_samples import EDGES, mean_and_error
from openmm import app, unit
from pymbar import MBAR
from scipy import stats

import peptidyn as ptd
from peptidyn.core.units import BOLTZMANN

TREE = butane.make_tree()
GRID = np.linspace(-np.pi, np.pi, 2001)[:-1]
ENERGY = butane.torsion_energy(GRID) + butane.ends_energy(
    butane.BOND, butane.BOND, butane.BOND, butane.ANGLE, butane.ANGLE, GRID
)
"""V over the torsion at rigid bonds and angles."""


@pytest.fixture(autouse=True)
def seeded():
    """OpenMM's samplers draw from Python's own generator."""
    state = random.getstate()
    random.seed(4)
    yield
    random.setstate(state)


def make_simulation(system: openmm.System, integrator: openmm.Integrator) -> app.Simulation:
    simulation = app.Simulation(
        butane.make_topology(), system, integrator, openmm.Platform.getPlatformByName("Reference")
    )
    simulation.context.setPositions(TREE.positions(TREE.reference))
    return simulation


def ghmc(T: float, seed: int) -> ptd.TorsionGHMCIntegrator:
    return ptd.TorsionGHMCIntegrator(TREE, T, 5.0, 0.02, seed=seed)


def torsion(state: openmm.State) -> float:
    return float(TREE.state(np.array(state.getPositions(asNumpy=True)._value)).torsions[0])


def free_energy(energy: np.ndarray, T: float) -> float:
    """Return -ln of the configuration integral of an energy over GRID."""
    return float(-np.log(np.exp(-energy / (BOLTZMANN * T)).mean()))


def p_value(series: np.ndarray, energy: np.ndarray, T: float, thin: int) -> float:
    """p-value of the histogram of every `thin`-th torsion; bins that expect less than 5 are left out."""
    p = np.exp(-energy / (BOLTZMANN * T))
    expected = np.histogram(GRID, EDGES, weights=p)[0] / p.sum()
    found = np.histogram(np.asarray(series)[::thin], EDGES)[0]
    keep = expected * found.sum() >= 5
    found, expected = found[keep], expected[keep]
    return float(stats.chisquare(found, expected / expected.sum() * found.sum()).pvalue)


def check_visits(state: np.ndarray, count: int) -> None:
    """All states are visited alike, within 4 standard errors each."""
    for k in range(count):
        mean, error = mean_and_error((state == k).astype(np.float64))
        assert abs(mean - 1 / count) < 4 * error and error < 0.1, (k, mean, error)


@pytest.mark.slow
def test_replica_exchange_sampler(tmp_path):
    temperatures = (300.0, 420.0, 600.0)
    simulation = make_simulation(butane.make_system(), ghmc(300, 1))
    sampler = app.ReplicaExchangeSampler([{"temperature": T * unit.kelvin} for T in temperatures], simulation, 10)
    seen: list[list[float]] = [[], [], []]
    walk = []

    def note(sampler):
        walk.append(list(sampler.replicaStateIndex))
        for replica, level in enumerate(sampler.replicaStateIndex):
            seen[level].append(torsion(sampler.replicaConformation[replica]))

    sampler.reporters.append(note)
    sampler.reporters.append(app.ReplicaExchangeReporter(str(tmp_path), 50, sampler))
    sampler.simulate(350)
    for T, series in zip(temperatures, seen, strict=True):
        assert p_value(np.array(series), ENERGY, T, thin=4) > 1e-4
    assert all(len(set(column)) == 3 for column in zip(*walk, strict=True)), "replicas do not travel"
    assert simulation.integrator.acceptance > 0.9


def test_replica_exchange_sampler_with_new_velocities():
    """Velocities that OpenMM draws atom by atom are projected to the tree: momenta of the right temperature."""
    simulation = make_simulation(butane.make_system(), ghmc(300, 1))
    states = [{"temperature": T * unit.kelvin} for T in (300.0, 320.0)]
    sampler = app.ReplicaExchangeSampler(states, simulation, 5, reinitializeVelocities=True)
    sampler.simulate(20)
    assert sampler.currentIteration == 20 and simulation.integrator.acceptance > 0.9


@pytest.mark.slow
def test_simulated_tempering_and_expanded_ensemble():
    """With the exact free energies as weights, all temperatures are visited alike and sampled right."""
    temperatures = [300.0, 400.0, 550.0]
    weights = [free_energy(ENERGY, T) for T in temperatures]
    simulation = make_simulation(butane.make_system(), ghmc(300, 2))
    tempering = app.SimulatedTempering(
        simulation,
        [T * unit.kelvin for T in temperatures],
        tempChangeInterval=10,
        weights=weights,
        reportInterval=10**6,
    )
    level, angle = [], []
    for _ in range(700):
        here = tempering.currentTemperature
        tempering.step(10)
        level.append(here)
        angle.append(torsion(simulation.context.getState(positions=True)))
    check_visits(np.array(level), 3)
    for k, T in enumerate(temperatures):
        assert p_value(np.array(angle)[np.array(level) == k], ENERGY, T, thin=4) > 1e-4


def test_expanded_ensemble_over_a_parameter():
    """States that differ in the strength of a restraint, a parameter of the Context."""
    strengths, T = (0.0, 4.0, 8.0), 300.0
    system = butane.make_system()
    system.addForce(restraint("k*(1-cos(theta-theta0))", {"k": 0.0, "theta0": 1.0}))
    simulation = make_simulation(system, ghmc(T, 3))
    biased = [ENERGY + k * (1 - np.cos(GRID - 1.0)) for k in strengths]
    sampler = app.ExpandedEnsembleSampler(
        [{"k": k} for k in strengths], simulation, 10, weights=[free_energy(e, T) for e in biased], reportInterval=10**6
    )
    level, angle = [], []
    for _ in range(600):
        here = sampler.currentStateIndex
        sampler.step(10)
        level.append(here)
        angle.append(torsion(simulation.context.getState(positions=True)))
    check_visits(np.array(level), 3)
    assert p_value(np.array(angle)[np.array(level) == 2], biased[2], T, thin=4) > 1e-4


def restraint(energy: str, parameters: dict[str, float]) -> openmm.CustomTorsionForce:
    force = openmm.CustomTorsionForce(energy)
    for name, value in parameters.items():
        force.addGlobalParameter(name, value)
    force.addTorsion(0, 1, 2, 3, [])
    return force


@pytest.mark.slow
def test_metadynamics():
    """Well-tempered metadynamics fills in the free energy of the torsion: wells and barriers within 0.5 kT.

    Five seeds were off by 0.25 to 0.33 kT at most.
    """
    T, kT = 300.0, BOLTZMANN * 300.0
    system = butane.make_system()
    variable = app.BiasVariable(restraint("theta", {}), -np.pi, np.pi, 0.25, periodic=True, gridWidth=60)
    meta = app.Metadynamics(system, [variable], T * unit.kelvin, 6.0, 0.5 * unit.kilojoules_per_mole, 20)
    integrator = ptd.TorsionLangevinIntegrator(TREE, T, 5.0, 0.02, seed=5)
    simulation = make_simulation(system, integrator)
    meta.step(simulation, 64_000)
    found = np.array(meta.getFreeEnergy().value_in_unit(unit.kilojoules_per_mole))
    grid = np.linspace(-np.pi, np.pi, 60)
    exact = np.interp(grid, GRID, ENERGY, period=2 * np.pi)
    weight = np.exp(-exact / kT)
    difference = found - exact
    difference -= (weight @ difference) / weight.sum()
    low = exact - exact.min() < 3.5 * kT
    assert np.abs(difference[low]).max() < 0.5 * kT


def umbrella(simulation: app.Simulation, centres: np.ndarray, frames: int, steps: int, column: int = 0) -> np.ndarray:
    """Return the torsion that is restrained, (n_windows, frames), from one Context whose restraint moves."""
    found = np.empty((len(centres), frames))
    for window, centre in enumerate(centres.tolist()):
        simulation.context.setParameter("theta0", centre)
        if len(centres) > 1:  # every window starts at its centre, on the right side of all walls
            state, _ = simulation.integrator.motion()
            torsions = state.torsions.copy()
            torsions[column] = centre
            simulation.context.setPositions(simulation.integrator.tree.positions(state.replace(torsions=torsions)))
        simulation.step(20 * steps)
        for frame in range(frames):
            simulation.step(steps)
            found[window, frame] = simulation.integrator.motion()[0].torsions[column]
    return np.angle(np.exp(1j * found))  # the motion counts full turns


def profile(angle: np.ndarray, centres: np.ndarray, k: float, T: float, edges: np.ndarray) -> np.ndarray:
    """Return the potential of mean force of the bins in kT, by MBAR over all windows, at least 0."""
    x, kT = angle.ravel(), BOLTZMANN * T
    reduced = k * (1 - np.cos(x[None] - np.append(centres, 0.0)[:, None])) / kT
    reduced[-1] = 0.0  # the unbiased state, without samples of its own
    counts = np.append(np.full(len(centres), angle.shape[1]), 0)
    weights = MBAR(reduced, counts).weights()[:, -1]
    p = np.histogram(x, edges, weights=weights)[0]
    with np.errstate(divide="ignore"):  # bins that no frame reached
        return -np.log(p) + np.log(p.max())


@pytest.mark.slow
def test_umbrella_sampling_with_mbar():
    """PMF of the torsion of butane, wells and barriers, within 0.3 kT of the exact one."""
    T, k, edges = 300.0, 8.0, EDGES
    system = butane.make_system()
    system.addForce(restraint("kr*(1-cos(theta-theta0))", {"kr": k, "theta0": 0.0}))
    simulation = make_simulation(system, ghmc(T, 6))
    centres = np.deg2rad([-120, -75, 75, 120, 180])
    angle = umbrella(simulation, centres, 1200, 8)
    pmf = profile(angle, centres, k, T, edges)
    p = np.histogram(GRID, edges, weights=np.exp(-ENERGY / (BOLTZMANN * T)))[0]
    exact = -np.log(p) + np.log(p.max())
    low = exact < 3.5
    assert np.abs((pmf - exact)[low] - (pmf - exact)[low].mean()).max() < 0.3


@pytest.mark.slow
def test_umbrella_sampling_of_phi():
    """PMF of phi of capped alanine below 0, by umbrella sampling and by direct sampling at 450 K: within 0.3 kT."""
    T, k, edges = 450.0, 60.0, np.deg2rad(np.arange(-165, -56, 12.0))
    structure = ptd.build_peptide("A", phi=-90, psi=60)
    tree = ptd.build_tree(structure)
    phi = next(i for i, t in enumerate(tree.torsions) if t.kind == "phi")
    profiles = []
    for strength in (k, 0.0):
        system = ptd.make_system(structure.topology, solvent="vacuum")
        force = openmm.CustomTorsionForce("kr*(1-cos(theta-theta0))")
        force.addGlobalParameter("kr", strength)
        force.addGlobalParameter("theta0", 0.0)
        force.addTorsion(*tree.torsions[phi].atoms, [])
        system.addForce(force)
        integrator = ptd.TorsionLangevinIntegrator(tree, T, 2.0, 0.01, seed=2)
        simulation = ptd.TorsionSimulation(structure.topology, system, integrator, "Reference")
        simulation.minimize_torsions(max_iterations=20)
        centres = np.deg2rad(np.arange(-170, -39, 13.0)) if strength else np.zeros(1)
        angle = umbrella(simulation, centres, 400 if strength else 6000, 10, phi)
        if strength:
            profiles.append(profile(angle, centres, k, T, edges))
        else:
            p = np.histogram(angle, edges)[0]
            assert p.min() > 30
            profiles.append(-np.log(p) + np.log(p.max()))
    difference = profiles[0] - profiles[1]
    assert np.abs(difference - difference.mean()).max() < 0.3
