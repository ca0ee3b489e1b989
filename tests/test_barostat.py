"""Constant pressure: the volume moves of a MonteCarloBarostat on the molecules of a tree."""

from __future__ import annotations

import json
import math

import mdtraj
import numpy as np
import openmm
import pytest
from correlated_samples import agree, mean_and_error
from openmm import app, unit
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError, ModelError
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.barostat import BAR
from peptidyn.runs.settings import resolve_settings

TEMPERATURE = 300.0
KT = BOLTZMANN * TEMPERATURE


def gas(n=8, side=3.0, charge=0.0, frequency=1, pressure=100.0):
    """Return a Topology, a System and positions of bent triatomic molecules, without interactions if uncharged."""
    topology, system, rng = app.Topology(), openmm.System(), np.random.default_rng(1)
    nonbonded = openmm.NonbondedForce()
    nonbonded.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
    nonbonded.setCutoffDistance(0.9 if charge else 0.1)
    bonds = openmm.HarmonicBondForce()
    chain = topology.addChain("A")
    shape = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [-0.03, 0.09, 0.0]])
    x = []
    for m in range(n):
        residue = topology.addResidue("GAS", chain)
        atoms = [topology.addAtom(name, app.element.carbon, residue) for name in ("C1", "C2", "C3")]
        place = side * (np.array([m % 2, m // 2 % 2, m // 4]) / 2.0 + 0.2) + rng.uniform(-0.1, 0.1, 3)
        for k in range(3):
            system.addParticle(12.0)
            nonbonded.addParticle(charge * (2, -1, -1)[k], 0.3, 0.5 if charge else 0.0)
            x.append(place + shape[k])
        for k in (1, 2):
            topology.addBond(atoms[0], atoms[k])
            bonds.addBond(3 * m, 3 * m + k, float(np.linalg.norm(shape[k])), 1000.0)
            nonbonded.addException(3 * m, 3 * m + k, 0.0, 0.1, 0.0)
        nonbonded.addException(3 * m + 1, 3 * m + 2, 0.0, 0.1, 0.0)
    system.addForce(bonds)
    system.addForce(nonbonded)
    box = side * np.eye(3)
    topology.setPeriodicBoxVectors(box)
    system.setDefaultPeriodicBoxVectors(*box)
    system.addForce(openmm.MonteCarloBarostat(pressure, TEMPERATURE, frequency))
    return topology, system, np.array(x)


def simulate(topology, system, x, kind=ptd.TorsionLangevinIntegrator, h=0.001, seed=1, soft="phi"):
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), soft)
    integrator = kind(tree, TEMPERATURE, 1.0, h, seed=seed)
    simulation = ptd.TorsionSimulation(topology, system, integrator, "Reference")
    simulation.set_velocities_to_temperature(TEMPERATURE)
    return simulation


def box_of(context):
    return np.array(context.getState().getPeriodicBoxVectors(asNumpy=True)._value)


def volume_of(context):
    return context.getState().getPeriodicBoxVolume()._value


class Scripted:
    """Random numbers from a list."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def random(self):
        return self.numbers.pop(0)


@pytest.mark.parametrize("draw", [0.9, 0.2])
def test_one_move_by_hand(draw):
    """The box and the base of every molecule are scaled, and the threshold of acceptance is exp(-w/kT)."""
    simulation = simulate(*gas(charge=1.0, side=2.2))
    integrator, context, mover = simulation.integrator, simulation.context, simulation.integrator.lend_mover()
    barostat = integrator.barostat
    x0, box = mover.positions(), box_of(context)
    energy0 = context.getState(energy=True).getPotentialEnergy()._value
    change = barostat.volume_step * (2 * draw - 1)
    volume = 2.2**3
    scale = ((volume + change) / volume) ** (1 / 3)
    base = mover.state.base_position
    x1 = x0 + np.repeat((scale - 1.0) * base, 3, axis=0)
    other = openmm.Context(simulation.system, openmm.VerletIntegrator(0.001), context.getPlatform())
    other.setPeriodicBoxVectors(*(scale * box))
    other.setPositions(x1)
    energy1 = other.getState(energy=True).getPotentialEnergy()._value
    work = energy1 - energy0 + 100.0 * 0.0602214 * change - 8 * KT * math.log((volume + change) / volume)
    threshold = min(1.0, math.exp(-work / KT))
    assert abs(energy1 - energy0) > 0.05
    for uniform, expected in ((threshold * 0.999, True), (threshold * 1.001, threshold >= 1.0)):
        barostat.rng = Scripted(draw, uniform)
        momentum = mover.momentum.copy()
        assert barostat.move(mover, context, -1) is expected
        assert np.abs(mover.positions() - (x1 if expected else x0)).max() < 1e-12
        assert np.abs(box_of(context) - (scale if expected else 1.0) * box).max() < 1e-12
        assert np.array_equal(mover.momentum, momentum)
        mover.restore((mover.q, base, mover.base_rotation, mover.momentum))
        context.setPeriodicBoxVectors(*box)
    assert (barostat.proposed, barostat.accepted) == (2, 1 + (threshold >= 1.0))


def test_a_flexible_molecule_counts_once():
    """Without interactions w = P dV - N kT ln(1 + dV/V), however many soft bonds and angles a molecule has."""
    simulation = simulate(*gas(pressure=500.0), soft="all")
    integrator = simulation.integrator
    mover, barostat = integrator.lend_mover(), integrator.barostat
    assert integrator.tree.n_molecules == 8 < integrator.tree.n_links
    change = 0.8 * barostat.volume_step
    threshold = math.exp(8 * math.log1p(change / 27.0) - 500.0 * BAR * change / KT)
    assert threshold < 0.95
    saved, box = mover.save(), box_of(simulation.context)
    for uniform, expected in ((threshold * 1.001, False), (threshold * 0.999, True)):
        barostat.rng = Scripted(0.9, uniform)
        assert barostat.move(mover, simulation.context, -1) is expected
        scale = (1.0 + expected * change / 27.0) ** (1 / 3)
        q, position, rotation, momentum = mover.save()
        assert np.array_equal(q, saved[0]) and np.array_equal(rotation, saved[2])
        assert np.array_equal(momentum, saved[3]) and momentum.any()
        assert np.allclose(position, scale * saved[1], rtol=1e-12, atol=0)
        assert np.allclose(box_of(simulation.context), scale * box, rtol=1e-12, atol=0)


def test_the_volume_of_a_box_is_the_product_of_its_sides():
    """The first step is one hundredth of it, in a rectangular box and in a skewed one."""
    topology, system, x = gas(frequency=2)
    for box in (np.diag([3.0, 3.5, 4.0]), np.array([[3.0, 0.0, 0.0], [1.0, 3.5, 0.0], [-1.0, 0.5, 4.0]])):
        topology.setPeriodicBoxVectors(box)
        system.setDefaultPeriodicBoxVectors(*box)
        assert simulate(topology, system, x).integrator.barostat.volume_step == pytest.approx(0.01 * 42.0)


def test_a_volume_below_zero_is_rejected_and_counted():
    simulation = simulate(*gas())
    mover, barostat, box = (
        simulation.integrator.lend_mover(),
        simulation.integrator.barostat,
        box_of(simulation.context),
    )
    barostat.volume_step, barostat.rng, place = 60.0, Scripted(0.2, 0.0), mover.positions()
    assert barostat.move(mover, simulation.context, -1) is False  # 27 - 36 nm^3
    assert (barostat.proposed, barostat.accepted) == (1, 0)
    assert np.array_equal(box_of(simulation.context), box) and np.array_equal(mover.positions(), place)


def test_a_volume_without_a_finite_energy_is_rejected():
    """The field is sqrt(a - x), which is no number as soon as a molecule moves beyond a."""
    topology, system, x = gas(frequency=100)
    field = openmm.CustomExternalForce(f"sqrt({x[:, 0].max() + 1e-4}-x)")
    field.addParticle(int(x[:, 0].argmax()), [])
    system.addForce(field)
    simulation = simulate(topology, system, x)
    mover, barostat, box = (
        simulation.integrator.lend_mover(),
        simulation.integrator.barostat,
        box_of(simulation.context),
    )
    barostat.rng = Scripted(1.0, 0.0)
    assert barostat.move(mover, simulation.context, -1) is False
    assert np.array_equal(box_of(simulation.context), box) and np.allclose(mover.positions(), x, atol=1e-12)


def test_an_error_in_a_move_leaves_box_and_molecules_where_they_were():
    simulation = simulate(*gas(charge=0.1, side=1.81, frequency=100))
    context, mover, barostat = simulation.context, simulation.integrator.lend_mover(), simulation.integrator.barostat
    saved, box = mover.save(), box_of(context)
    barostat.volume_step, barostat.rng = 0.2 * 1.81**3, Scripted(0.0, 0.0)
    with pytest.raises(ModelError, match=r"narrower than twice the cutoff \(1\.81 nm wide\)"):
        barostat.move(mover, context, -1)
    assert np.array_equal(box_of(context), box) and barostat.proposed == 0
    assert all(np.array_equal(a, b) for a, b in zip(mover.save(), saved, strict=True))


def test_the_seed_is_that_of_the_force_or_else_of_the_integrator():
    topology, system, x = gas()

    def draw(of_force, of_integrator):
        system.getForce(2).setRandomNumberSeed(of_force)
        return simulate(topology, system, x, seed=of_integrator).integrator.barostat.rng.random()

    assert draw(7, 1) == draw(7, 2) == np.random.default_rng(7).random()
    assert draw(0, 1) == draw(0, 1) and len({draw(0, 1), draw(0, 2), draw(7, 1), draw(8, 1)}) == 4
    of_steps = np.random.default_rng(np.random.SeedSequence(1)).random()  # the first one that steps draw
    assert of_steps not in (draw(0, 1), draw(7, 1))


def test_a_frequency_of_zero_makes_no_moves():
    simulation = simulate(*gas(frequency=0))
    simulation.step(3)
    assert simulation.integrator.barostat.proposed == 0 and volume_of(simulation.context) == pytest.approx(27.0)


def test_energies_are_those_of_the_integrators_force_groups():
    """Without the group of the charges a move costs P dV - N kT ln(1 + dV/V) alone."""
    topology, system, x = gas(charge=1.0, side=2.2)
    system.getForce(1).setForceGroup(1)
    simulation = simulate(topology, system, x)
    simulation.integrator.setIntegrationForceGroups({0})
    barostat = simulation.integrator.barostat
    change = 0.8 * barostat.volume_step
    threshold = math.exp(8 * math.log1p(change / 2.2**3) - 100.0 * BAR * change / KT)
    for uniform, accepted in ((threshold * 1.001, 0), (threshold * 0.999, 1)):
        barostat.rng = Scripted(0.9, uniform)
        simulation.step(1)
        assert (barostat.accepted, threshold < 0.95) == (accepted, True)


def test_the_step_size_is_adapted_as_in_openmm():
    barostat = simulate(*gas()).integrator.barostat
    first = barostat.volume_step
    assert first == pytest.approx(0.01 * 27.0)
    for _ in range(9):
        barostat._adapt(True, 27.0)
    assert barostat.volume_step == first and barostat.state["recent"] == [9, 9]
    barostat._adapt(True, 27.0)
    assert barostat.volume_step == pytest.approx(1.1 * first) and barostat.state["recent"] == [0, 0]
    for accepted in [False] * 8 + [True] * 2:
        barostat._adapt(accepted, 27.0)
    assert barostat.volume_step == pytest.approx(first)
    for accepted in (6, 4, 7, 3):  # of ten: nothing to change
        for i in range(10):
            barostat._adapt(i < accepted, 27.0)
    assert barostat.volume_step == pytest.approx(first)
    for _ in range(1000):
        barostat._adapt(True, 27.0)
    assert barostat.volume_step == pytest.approx(0.3 * 27.0)


def test_everything_that_a_barostat_knows_is_in_its_state():
    one, other = (simulate(*gas(frequency=5)).integrator.barostat for _ in range(2))
    for n in range(13):
        one._adapt(n < 11, 27.0)
    one.count()
    one.rng.random()
    new = other.state
    assert all(one.state[name] != new[name] for name in new)
    kept = one.state
    other.state = json.loads(json.dumps(kept))
    assert other.state == kept and (other.proposed, other.accepted) == (13, 11)
    one._adapt(True, 27.0)
    assert kept == other.state  # not what is counted later


@pytest.mark.parametrize(
    "kind", [ptd.TorsionLangevinIntegrator, pytest.param(ptd.TorsionGHMCIntegrator, marks=pytest.mark.slow)]
)
def test_ideal_gas(kind):
    """The volume of N molecules has a gamma distribution: <V> = (N + 1) kT/P, var V = (N + 1) (kT/P)^2.

    Both within four standard errors, which takes correlations into account: false alarms in 1 of 8,000 runs.
    """
    n, pressure = 8, 30.0
    simulation = simulate(*gas(n, 3.0, pressure=pressure), kind=kind, h=0.002, seed=5)
    integrator = simulation.integrator
    simulation.step(500)
    integrator.barostat._adapt = lambda accepted, volume: None  # steps that follow the volume are not exact
    volumes = []
    for _ in range(5000):
        integrator.step(1)
        volumes.append(volume_of(simulation.context))
    volumes = np.array(volumes)
    length = KT / (pressure * BAR)
    squares = (volumes - (n + 1) * length) ** 2
    for values, expected, widest in ((volumes, (n + 1) * length, 0.2), (squares, (n + 1) * length**2, 0.8)):
        mean, error = mean_and_error(values)
        assert abs(mean - expected) < 4.0 * error < widest * expected


def test_moves_come_at_their_frequency_and_runs_continue_exactly(tmp_path):
    topology, system, x = gas(charge=0.5, side=2.2, frequency=4)
    simulation = simulate(topology, system, x)
    volumes = []
    for _ in range(8):
        simulation.step(1)
        volumes.append(volume_of(simulation.context))
    assert simulation.integrator.barostat.proposed == 2
    simulation.step(2)
    simulation.save_checkpoint(tmp_path / "here.npz")
    simulation.step(20)
    again = simulate(topology, system, x, seed=9)
    again.load_checkpoint(tmp_path / "here.npz")
    assert again.integrator.barostat.proposed == 2
    again.step(20)
    assert again.integrator.barostat.proposed == 7
    assert np.array_equal(box_of(again.context), box_of(simulation.context))
    for one, other in zip(again.integrator.motion(), simulation.integrator.motion(), strict=True):
        q = (one.q, one.base_position) if hasattr(one, "q") else (one,)
        p = (other.q, other.base_position) if hasattr(other, "q") else (other,)
        for a, b in zip(q, p, strict=True):
            assert np.array_equal(a, b)
    plain = openmm.XmlSerializer.clone(system)
    plain.removeForce(plain.getNumForces() - 1)
    still = simulate(topology, plain, x)
    with pytest.raises(CheckpointError, match=r"here\.npz has a barostat"):
        still.load_checkpoint(tmp_path / "here.npz")
    still.save_checkpoint(tmp_path / "still.npz")
    with pytest.raises(CheckpointError, match=r"still\.npz has no barostat"):
        again.load_checkpoint(tmp_path / "still.npz")


def test_steps_after_a_move_have_the_forces_of_the_new_volume():
    """Steps of one call, which could keep old forces, are those of many calls, each of which reads the Context."""
    topology, system, x = gas(charge=1.0, side=2.2)
    together, apart = (simulate(topology, system, x) for _ in range(2))
    together.step(12)
    for _ in range(12):
        apart.step(1)
    moved = [one.context.getState(velocities=True).getVelocities(asNumpy=True)._value for one in (together, apart)]
    assert together.integrator.barostat.accepted == apart.integrator.barostat.accepted > 2
    np.testing.assert_allclose(*moved, rtol=0, atol=1e-10)


def test_forces_follow_a_box_that_is_changed_from_outside():
    """The barostat of frequency 0 makes no moves; atoms stay where they are and meet other images."""
    topology, system, x = gas(charge=1.0, side=2.2, frequency=0)
    simulation = simulate(topology, system, x)

    def energy():
        state = simulation.context.getState(energy=True)
        return state.getPotentialEnergy()._value + simulation.integrator.fixman_energy()

    before = simulation.integrator.potential_energy()
    assert before == pytest.approx(energy())
    simulation.context.setPeriodicBoxVectors(*(1.9 * np.eye(3)))
    after = energy()
    assert abs(after - before) > 1.0 and simulation.integrator.potential_energy() == pytest.approx(after)


def test_pressure_of_the_context_is_used():
    simulation = simulate(*gas(pressure=30.0))
    simulation.context.setParameter(openmm.MonteCarloBarostat.Pressure(), 1e5)
    simulation.step(200)
    assert volume_of(simulation.context) < 0.5 * 27.0


def test_a_box_that_becomes_too_narrow_is_named():
    simulation = simulate(*gas(charge=0.1, side=1.85, pressure=1e5))
    with pytest.raises(ModelError, match=r"narrower than twice the cutoff .*larger box"):
        simulation.step(300)
    assert box_of(simulation.context)[0, 0] >= 1.8


def test_barostats_that_cannot_be_honoured_are_refused():
    topology, system, x = gas()
    with pytest.raises(ModelError, match="TorsionLangevinIntegrator"):
        tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x))
        ptd.TorsionSimulation(topology, system, ptd.TorsionVerletIntegrator(tree, 0.001), "Reference")
    with pytest.raises(ModelError, match="base='free'"):
        tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), base="fixed")
        integrator = ptd.TorsionLangevinIntegrator(tree, 300, 1, 0.001)
        ptd.TorsionSimulation(topology, system, integrator, "Reference")
    system.getForce(2).setScaleMoleculesAsRigid(False)
    with pytest.raises(ModelError, match="scales single atoms"):
        simulate(topology, system, x)
    system.getForce(2).setScaleMoleculesAsRigid(True)
    system.addForce(openmm.MonteCarloBarostat(100, TEMPERATURE))
    with pytest.raises(ModelError, match="two MonteCarloBarostats"):
        simulate(topology, system, x)
    system.removeForce(3)
    system.addForce(openmm.MonteCarloAnisotropicBarostat([1, 1, 1], 300))
    with pytest.raises(ModelError, match="MonteCarloAnisotropicBarostat"):
        simulate(topology, system, x)


def test_pressure_of_runs_needs_water_and_a_heat_bath():
    assert resolve_settings({"pressure": 1.0, "solvent": "tip3p"}).pressure == 1.0
    with pytest.raises(ArgumentError, match="pressure is -1"):
        resolve_settings({"pressure": -1.0, "solvent": "tip3p"})
    with pytest.raises(ArgumentError, match="explicit water"):
        resolve_settings({"pressure": 1.0})
    with pytest.raises(ArgumentError, match="heat bath"):
        resolve_settings({"pressure": 1.0, "solvent": "tip3p", "ensemble": "nve"})


# ---------------------------------------------------------------------------- water


def water(side=1.9):
    field = app.ForceField("amber14/tip3pfb.xml")
    modeller = app.Modeller(app.Topology(), [])
    modeller.addSolvent(field, model="tip3p", boxSize=openmm.Vec3(side, side, side) * unit.nanometer)
    system = field.createSystem(
        modeller.topology, nonbondedMethod=app.PME, nonbondedCutoff=0.8, ewaldErrorTolerance=2e-3
    )
    system.addForce(openmm.MonteCarloBarostat(1, TEMPERATURE, 10))
    return modeller.topology, system, np.array(modeller.positions._value)


def densities(simulation, steps, every=10):
    """Return densities, g/cm^3, along a run."""
    mass = sum(simulation.system.getParticleMass(i)._value for i in range(simulation.system.getNumParticles()))
    found = []
    for _ in range(steps // every):
        simulation.step(every)
        found.append(1.66053907e-3 * mass / volume_of(simulation.context))
    return np.array(found)


@pytest.mark.slow
def test_density_of_water_is_that_of_openmm():
    """A small TIP3P-FB box, started 4 % too wide: both densities within four standard errors of their difference."""
    found = []
    for torsional in (True, False):
        topology, system, x = water()
        if torsional:
            tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x))
            integrator = ptd.TorsionLangevinIntegrator(tree, TEMPERATURE, 5.0, 0.004, seed=3)
            simulation = ptd.TorsionSimulation(topology, system, integrator, "CPU")
            simulation.relax_geometry(max_iterations=50)
        else:
            integrator = openmm.LangevinMiddleIntegrator(TEMPERATURE, 5.0, 0.002)
            integrator.setRandomNumberSeed(3)
            simulation = app.Simulation(topology, system, integrator, openmm.Platform.getPlatformByName("CPU"))
            simulation.context.setPositions(x)
            simulation.minimizeEnergy(maxIterations=50)
        simulation.context.setVelocitiesToTemperature(TEMPERATURE, 3)
        found.append(densities(simulation, 3000 if torsional else 6000)[100 if torsional else 200 :])
    assert agree(*found)
    for values in found:
        mean, error = mean_and_error(values)
        assert 0.9 < mean < 1.08 and error < 0.03


@pytest.mark.slow
def test_a_peptide_in_water_runs_at_constant_pressure(tmp_path):
    """1,000 steps of capped alanine in TIP3P-FB: volumes change, and neither they nor rigid bonds run away."""
    folder = tmp_path / "x"
    result = ptd.run(
        DATA / "ala1.pdb", solvent="tip3pfb", padding=0.3, cutoff=0.5, pressure=1.0, steps=1000, report="50",
        equilibrate="0ps", seed=1, folder=folder, progress=False, say=lambda _: None,
    )  # fmt: skip
    assert result.summary["complete"] and result.summary["steps"] == 1000
    frames = mdtraj.load(folder / "trajectory.dcd", top=folder / "topology.pdb")
    volume = frames.unitcell_lengths.prod(axis=1)
    assert len(np.unique(volume)) > 10
    density = 1.66053907e-3 * sum(a.element.mass for a in frames.topology.atoms) / volume
    assert 0.7 < density.min() and density.max() < 1.1  # the box was filled loosely, and 4 ps are short
    bonds = [(a.index, b.index) for a, b in frames.topology.bonds]
    lengths = mdtraj.compute_distances(frames, bonds, periodic=False)
    assert np.ptp(lengths, axis=0).max() < 1e-5
