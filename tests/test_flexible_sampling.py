"""Distributions with everything soft and chosen kinetic metrics: exact chains, mutants to be caught, molecules."""

from __future__ import annotations

import math
from functools import cache

import butane
import numpy as np
import openmm
import pytest
from correlated_samples import EDGES, check_ratio, histogram_p_value, histograms_agree, mean_and_error
from random_trees import Beads, beads, serial_parents
from real_structures import DATA
from scipy import stats

import peptidyn as ptd
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.integrators.mover import Mover
from peptidyn.integrators.stepper import MetropolisStepper, Stepper

KT = 2.5
WIDTHS = {"stretch": 0.02, "bend": 0.3}
"""Standard deviations of springs (nm, rad): wide enough that r^2 and sin(angle) show."""

RATE = 1e-5
"""False-alarm rate of a run: of all its histograms together."""


class SpringChain:
    """Five beads, everything soft, with springs for bonds and angles: all coordinates are independent.

    The distribution is r^2 exp(-k (r - r0)^2 / 2 kT) for bonds, sin t exp(-k (t - t0)^2 / 2 kT) for angles, and flat
    for torsions, whatever the masses and joint inertias are.
    """

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        chain = beads(serial_parents(5), rng)
        self.physical = ptd.build_tree(Beads(chain.atoms, chain.positions, rng.uniform(5.0, 20.0, 5)), soft="all")
        inertia = rng.uniform(0.05, 1.0, self.physical.n_coordinates)
        inertia[self.physical.stretch_index] *= 60.0
        self.tree = self.physical.with_joint_inertia(inertia)
        self.spring = np.zeros(self.tree.n_coordinates)
        self.spring[self.tree.stretch_index] = KT / WIDTHS["stretch"] ** 2
        self.spring[self.tree.bend_index] = KT / WIDTHS["bend"] ** 2
        self.mutant = ptd.FixmanPotential(self.physical, 300)
        self.mutant.kT = KT

    def forces(self, kind):
        """Return the forces of springs and U_F; `kind` tells what is left out."""
        tree, places = self.tree, self.tree.coordinate_dof
        weight = {"stretch": 2.0 * (kind == "r^2"), "bend": 1.0 * (kind == "sin")}

        def forces(mover, want_energy):
            q = mover.q
            away = q - tree.q_reference
            energy = 0.5 * float(self.spring @ away**2)
            torque = np.zeros(tree.n_dof)
            torque[places] = -self.spring * away
            if kind == "inertia":  # U_F of the physical mass matrix, but motion with that of the joint inertias
                own, push = self.mutant.energy_and_torque(mover.state)
                return energy + own, torque + push
            if kind != "U_F":
                energy += KT * mover.fixman_energy()
                torque += KT * mover.fixman_torque()
            r, t = q[tree.stretch_index], q[tree.bend_index]
            energy += KT * float(weight["stretch"] * np.log(r).sum() + weight["bend"] * np.log(np.sin(t)).sum())
            torque[places[tree.stretch_index]] -= KT * weight["stretch"] / r
            torque[places[tree.bend_index]] -= KT * weight["bend"] / np.tan(t)
            return energy, torque

        return forces

    def ranks(self, samples):
        """Return samples (n, n_coordinates) as values of their exact cumulative distributions: uniform in [0, 1)."""
        ranks = np.empty_like(samples)
        for i, c in enumerate(self.tree.coordinates):
            if c.motion == "torsion":
                ranks[:, i] = samples[:, i] / (2 * np.pi) % 1.0
                continue
            centre, width = self.tree.q_reference[i], WIDTHS[c.motion]
            top = np.pi if c.motion == "bend" else centre + 9 * width
            x = np.linspace(max(0.0, centre - 9 * width), min(top, centre + 9 * width), 20001)
            density = (x**2 if c.motion == "stretch" else np.sin(x)) * np.exp(-0.5 * ((x - centre) / width) ** 2)
            total = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
            ranks[:, i] = np.interp(samples[:, i], x, total / total[-1])
        return ranks


def uniform_p_value(ranks, bins=10):
    """Return the p-value of chi squared over equally probable bins, thinned to independent samples."""
    parts = [ranks, *(f(2 * np.pi * k * ranks) for k in (1, 2) for f in (np.cos, np.sin))]
    thin = math.ceil(max(map(statistical_inefficiency, parts)))
    return float(stats.chisquare(np.histogram(ranks[::thin], bins, (0.0, 1.0))[0]).pvalue)


def worst_p_value(ranks):
    """Return the smallest p-value of all coordinates, times their number (Bonferroni)."""
    return ranks.shape[1] * min(map(uniform_p_value, ranks.T))


def run_chain(chain, left_out, method, count):
    rng = np.random.default_rng(21)
    mover = Mover(chain.tree)
    mover.thermalise(0.0, KT, rng)
    forces = chain.forces(left_out)
    if method == "ghmc":
        stepper = MetropolisStepper(mover, forces, 0.04, KT, math.inf, rng, steps=5, check_reverse=False)
        every = 1
    else:
        stepper = Stepper(mover, forces, 0.02, "BAOAB", KT, 4.0, rng)
        every = 10
    samples = np.empty((count, chain.tree.n_coordinates))
    for row in samples:
        for _ in range(every):
            assert stepper.step()
        row[:] = mover.q
    if method == "ghmc":
        assert stepper.acceptance > 0.5
    return samples


@pytest.fixture(scope="module")
def chain():
    return SpringChain()


@pytest.mark.parametrize("method", ["ghmc", pytest.param("langevin", marks=pytest.mark.slow)])
def test_a_chain_with_random_inertias_has_its_exact_distribution(chain, method):
    """Flat in torsions, sin(angle) and r^2 with the springs; false-alarm rate 1e-5 per run."""
    assert worst_p_value(chain.ranks(run_chain(chain, "nothing", method, 5000))) > RATE


@pytest.mark.slow
@pytest.mark.parametrize("left_out", ["inertia", "r^2", "sin", "U_F"])
def test_what_is_left_out_of_the_metric_is_caught(chain, left_out):
    """U_F without joint inertias, without a part of the Jacobian, or none: the same score as above gives the alarm."""
    assert worst_p_value(chain.ranks(run_chain(chain, left_out, "ghmc", 5000))) < RATE


@pytest.mark.slow
def test_ten_times_the_inertia_changes_nothing():
    """As in the test with random inertias, of another size."""
    other = SpringChain()
    other.tree = other.tree.with_joint_inertia(10 * other.tree.joint_inertia)
    assert worst_p_value(other.ranks(run_chain(other, "nothing", "ghmc", 8000))) > RATE


def test_torsions_with_inertias_and_without_fixman_potential():
    """Six beads, 110 degrees, 14 Da, 0.154 nm, a = (.5, .02, .2): <cos 2 q> of sqrt(det M), by quadrature.

    It is what dynamics without U_F samples; that of the dense matrix on a coarser grid is the same.
    """
    tree = ptd.bead_chain(6, 0.154, np.deg2rad(110), 14.0).with_joint_inertia([0.5, 0.02, 0.2])

    def average(points, log_det):
        grid = (np.arange(points) + 0.5) / points * 2 * np.pi
        q = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
        weight = np.exp(0.5 * log_det(q))
        return weight @ np.cos(2 * q) / weight.sum()

    def dense(q):
        matrices = [ptd.mass_matrix(tree, tree.reference.replace(q=row)) for row in q]
        return np.linalg.slogdet(np.array(matrices))[1]

    found = average(24, ptd.FixmanPotential(tree, 300).log_metric)
    assert np.abs(found - [-0.04558, -0.04503, -0.05378]).max() < 1e-5
    assert np.abs(found - average(8, dense)).max() < 2e-4


# ---------------------------------------------------------------------------- flexible butane, against exact draws


def flexible_butane():
    system = butane.make_system()
    x = butane.make_tree().positions(butane.make_tree().reference)
    structure = ptd.Structure.from_openmm(butane.make_topology(), system, x)
    return ptd.build_tree(structure, soft="all"), system


def langevin_samples(tree, system, T, timestep, count, every, seed, metric="auto", fixman=True):
    """Return potential energies (count,) and soft coordinates (count, n_coordinates) of Langevin dynamics."""
    integrator = ptd.TorsionLangevinIntegrator(tree, T, 2.0, timestep, seed=seed, metric=metric, fixman=fixman)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(tree.positions(tree.reference))
    integrator.set_velocities_to_temperature(T)
    integrator.step(1000)
    energy, q = np.empty(count), np.empty((count, tree.n_coordinates))
    for i in range(count):
        integrator.step(every)
        energy[i] = context.getState(energy=True).getPotentialEnergy()._value
        q[i] = integrator.mover.q
    return energy, q


def hmc_samples(tree, system, T, timestep, steps, count, seed):
    """Return the same for hybrid Monte Carlo with the joint inertias of `tree`."""
    sampler = ptd.GibbsSampler([ptd.TorsionalHMC(timestep, steps)], tree, system, T, platform="Reference", seed=seed)
    for _ in range(100):
        sampler.sweep()
    samples = sampler.run(count)
    assert sampler.moves[0].acceptance > 0.4
    return samples.energy, samples.q


def draws_agree(series, draws, weight, rate=1e-5, bins=12):
    """Whether a correlated series has the distribution of weighted independent draws, in equally probable bins."""
    order = np.argsort(draws)
    total = np.cumsum(weight[order])
    edges = np.interp(np.linspace(0, total[-1], bins + 1)[1:-1], total, draws[order])
    thin = math.ceil(statistical_inefficiency(series))
    found = np.bincount(np.searchsorted(edges, series[::thin]), minlength=bins)
    return stats.chisquare(found).pvalue > rate


@pytest.mark.slow
@pytest.mark.parametrize("method", ["langevin", "hmc", "hmc-10"])
def test_flexible_butane_has_its_exact_distribution(method):
    """300 K: torsion, bond lengths and angles bin by bin, and mean energies.

    False-alarm rates: 1e-5 per histogram (six), 6e-5 for the mean energy (4 standard errors).
    """
    T = 300.0
    tree, system = flexible_butane()
    exact = butane.exact(T, EDGES, 2_000_000)
    if method == "langevin":
        energy, q = langevin_samples(tree, system, T, 0.016, 12000, 10, seed=5)
    else:
        inertia = ptd.joint_inertia(tree, system, 0.016, steps_per_period=12.0)
        tree = tree.with_joint_inertia(inertia * (10 if method == "hmc-10" else 1))
        energy, q = hmc_samples(tree, system, T, 0.016, 25 if method == "hmc-10" else 12, 12000, seed=5)
    assert histogram_p_value(np.angle(np.exp(1j * q[:, tree.torsion_index[0]])), exact["torsion"]) > 1e-5
    bonds = {(0, 1): 0, (1, 2): 1, (2, 3): 2}
    for i in tree.stretch_index:
        bond = bonds[tuple(sorted(tree.coordinates[i].atoms))]
        assert draws_agree(q[:, i], exact["r"][bond], exact["weight"]), tree.coordinates[i]
    for i in tree.bend_index:
        angle = tree.coordinates[i].atoms[1] - 1
        assert draws_agree(q[:, i], exact["t"][angle], exact["weight"]), tree.coordinates[i]
    mean, error = mean_and_error(energy)
    assert abs(mean - exact["total"]) < 4 * error


# ---------------------------------------------------------------------------- capped alanine, against Cartesian runs


@cache
def relaxed_alanine():
    """Return (tree, System) of capped alanine in vacuum with everything soft, about its relaxed geometry."""
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = ptd.make_system(structure.topology, "vacuum")
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(structure.positions)
    openmm.LocalEnergyMinimizer.minimize(context)
    relaxed = context.getState(positions=True).getPositions(asNumpy=True)._value
    return ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, relaxed), soft="all"), system


@cache
def cartesian_samples(T):
    """Return energies and soft coordinates of 600 ps of OpenMM's Langevin dynamics at 0.5 fs."""
    tree, system = relaxed_alanine()
    integrator = openmm.LangevinMiddleIntegrator(T, 2.0, 0.0005)
    integrator.setRandomNumberSeed(4)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(tree.positions(tree.reference))
    integrator.step(4000)
    count, every = 8000, 150
    energy, q = np.empty(count), np.empty((count, tree.n_coordinates))
    for i in range(count):
        integrator.step(every)
        state = context.getState(positions=True, energy=True)
        energy[i] = state.getPotentialEnergy()._value
        q[i] = tree.state(state.getPositions(asNumpy=True)._value).q
    return energy, q


def left_well(tree, energy, q):
    """Return the samples outside the well at phi = 70 degrees, which is entered once in 600 ps even at 600 K."""
    (phi,) = (i for i in tree.torsion_index if tree.coordinates[i].kind == "phi")
    keep = np.abs(np.angle(np.exp(1j * (q[:, phi] - np.deg2rad(70))))) > np.deg2rad(80)
    assert keep.mean() > 0.5
    return energy[keep], q[keep]


def of_methyl(tree, coordinate):
    """True for coordinates of methyl hydrogens.

    A methyl group turns ten times in 600 ps at 300 K, and its hydrogens differ by where they are.
    """
    elements = tree.atoms.element
    return any(
        elements[a] == "H" and sum(elements[b] == "H" for b in tree.atoms.neighbours[tree.atoms.neighbours[a][0]]) == 3
        for a in coordinate.atoms
    )


def check_against_cartesian(T, energy, q, bias=0.0):
    """Compare phi, psi, all bonds, angles and phases bin by bin, and the mean energy, in the left wells of phi.

    False-alarm rate 1e-5 per torsion, and 1e-4 for the others together; the mean energy may differ by 4 standard errors
    and by `bias` (kJ/mol), the error of the time step. At 300 K methyl hydrogens are left out.
    """
    tree, _ = relaxed_alanine()
    wanted_energy, wanted = left_well(tree, *cartesian_samples(T))
    energy, q = left_well(tree, energy, q)
    (m1, e1), (m2, e2) = mean_and_error(energy), mean_and_error(wanted_energy)
    assert abs(m1 - m2) < 4 * math.hypot(e1, e2) + bias
    for i in tree.torsion_index:
        if tree.coordinates[i].kind in ("phi", "psi"):
            ours, theirs = (np.angle(np.exp(1j * x[:, i])) for x in (q, wanted))
            assert histograms_agree(ours, theirs), tree.coordinates[i]
    others = [
        i for i, c in enumerate(tree.coordinates) if c.motion != "torsion" and not (T < 400 and of_methyl(tree, c))
    ]
    for i in others:
        ours, theirs = q[:, i], wanted[:, i]
        if tree.coordinates[i].motion == "phase":
            ours, theirs = (np.angle(np.exp(1j * (x - tree.q_reference[i]))) for x in (ours, theirs))
        edges = np.concatenate([[-np.inf], np.quantile(theirs, np.linspace(0, 1, 9)[1:-1]), [np.inf]])
        assert histograms_agree(ours, theirs, 1e-4 / len(others), edges), tree.coordinates[i]


@pytest.mark.slow
@pytest.mark.parametrize(("T", "timestep", "bias"), [(600.0, 0.012, 1.0), (300.0, 0.016, 1.0), (300.0, 0.024, 1.5)])
def test_langevin_of_flexible_alanine_equals_cartesian_dynamics(T, timestep, bias):
    tree, system = relaxed_alanine()
    energy, q = langevin_samples(tree, system, T, timestep, 8000, 12, seed=6)
    check_against_cartesian(T, energy, q, bias)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "steps"), [(1, 12), (10, 36)])
def test_hmc_of_flexible_alanine_equals_cartesian_dynamics(factor, steps):
    """Also with ten times the joint inertia: the distribution does not depend on it."""
    tree, system = relaxed_alanine()
    inertia = ptd.joint_inertia(tree, system, 0.012, steps_per_period=12.0, temperature=600.0)
    tree = tree.with_joint_inertia(factor * inertia)
    check_against_cartesian(600.0, *hmc_samples(tree, system, 600.0, 0.012, steps, 5000, seed=7))


@pytest.mark.slow
def test_energies_of_two_temperatures_have_the_ratio_of_boltzmann():
    """ln(P_hot / P_cold) is linear in V with the slope 1/kT_cold - 1/kT_hot, within 4 standard errors."""
    tree, system = relaxed_alanine()
    inertia = ptd.joint_inertia(tree, system, 0.012, steps_per_period=12.0, temperature=600.0)
    tree = tree.with_joint_inertia(inertia)
    cold, hot = (
        left_well(tree, *hmc_samples(tree, system, T, 0.012, 12, 4000, seed=8))[0] for T in (500.0, 600.0)
    )  # fmt: skip
    check_ratio(cold, hot, 500.0, 600.0)
