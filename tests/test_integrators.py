"""Drift, steps and their composition without OpenMM: reversible, volume-preserving, second order, exact sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from random_trees import random_state, random_tree, with_random_inertia
from real_structures import DATA, load
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import weighted_histogram
from peptidyn.core.units import BOLTZMANN
from peptidyn.integrators.mover import Mover
from peptidyn.integrators.splitting import parse_splitting
from peptidyn.integrators.stepper import MetropolisStepper, Stepper
from peptidyn.solvers.dense import mass_matrix

KT = 2.5


def torsional_forces(tree, strength=20.0):
    """Return forces of V = k sum cos(q + place), and springs for bonds and angles: coupled through M only."""
    phase = np.arange(tree.n_coordinates)
    spring = np.zeros(tree.n_coordinates)
    spring[tree.stretch_index] = 3e4
    spring[tree.bend_index] = 300.0

    def forces(mover, want_energy):
        torque = np.zeros(tree.n_dof)
        stretched = mover.q - tree.q_reference
        torque[tree.coordinate_dof] = strength * np.sin(mover.q + phase) - spring * stretched
        return strength * float(np.cos(mover.q + phase).sum()) + 0.5 * float(spring @ stretched**2), torque

    return forces


def no_forces(mover, want_energy):
    return 0.0, np.zeros(mover.tree.n_dof)


TREES = {
    "serial": lambda: random_tree("serial", 10, seed=1),
    "branched": lambda: random_tree("branched", 16, seed=2),
    "fixed": lambda: random_tree("branched", 16, seed=2, base="fixed"),
    "forest": lambda: random_tree("forest", 15, seed=3),
    "peptide": lambda: ptd.build_tree(ptd.build_peptide("PW"), "phi psi chi polar"),
    "with-angles": lambda: ptd.build_tree(load(DATA / "ala1.pdb"), "phi psi omega angles"),
    "all": lambda: random_tree("branched", 9, seed=4, soft="all", inertia=True),
    "heavy": lambda: with_random_inertia(ptd.build_tree(load(DATA / "ala1.pdb"), "heavy"), np.random.default_rng(5)),
}


@pytest.fixture(params=TREES, scope="module")
def tree(request):
    return TREES[request.param]()


def warm(tree, seed=0):
    """Return a mover at a random state with thermal momenta."""
    rng = np.random.default_rng(seed)
    mover = Mover(tree, random_state(tree, rng))
    mover.thermalise(0.0, KT, rng)
    return mover


def difference(tree, a, b):
    """Return the local difference of two saved phase-space points: rotation vectors, positions, q, momenta."""
    turns = [
        (Rotation.from_quat(x[[1, 2, 3, 0]]) * Rotation.from_quat(y[[1, 2, 3, 0]]).inv()).as_rotvec()
        for x, y in zip(a[2], b[2], strict=True)
    ]
    return np.concatenate([np.ravel(turns), np.ravel(a[1] - b[1]), a[0] - b[0], a[3] - b[3]])


def test_drift_solves_its_equation(tree):
    """J(q0)^T m (x1 - x0) / h + a (q1 - q0) / h = p0, and the same with J(q1) is p1, from the atoms."""
    mover = warm(tree)
    h = 0.002
    s0, p0 = mover.state, mover.momentum.copy()
    assert mover.drift(h)
    s1 = mover.state
    push = tree.masses[:, None] * (tree.positions(s1) - tree.positions(s0)) / h
    scale = np.abs(p0).max()
    joints = np.zeros(tree.n_dof)
    joints[tree.coordinate_dof] = tree.joint_inertia * (s1.q - s0.q) / h
    assert np.abs(tree.generalized_forces(s0, push) + joints - p0).max() < 1e-8 * scale
    assert np.abs(tree.generalized_forces(s1, push) + joints - mover.momentum).max() < 1e-8 * scale


def test_steps_are_reversible(tree):
    mover = warm(tree)
    stepper = Stepper(mover, torsional_forces(tree), 0.002)
    start = mover.save()
    for _ in range(200):
        assert stepper.step()
    mover.momentum *= -1.0
    for _ in range(200):
        assert stepper.step()
    mover.momentum *= -1.0
    d = difference(tree, mover.save(), start)
    n = len(d) - tree.n_dof
    assert np.abs(d[:n]).max() < 1e-9
    assert np.abs(d[n:]).max() < 1e-7 * np.abs(start[3]).max()


def test_a_step_preserves_phase_space_volume():
    for name in ("fixed", "serial", "with-angles", "all", "heavy"):
        tree = TREES[name]()
        if name != "fixed":
            tree = (
                ptd.bead_chain(6, 0.15, 1.9, [12, 3, 7, 12, 1, 5], torsion=[1.0, 2.0, -1.0])
                if name == "serial"
                else tree
            )
        mover = warm(tree)
        stepper = Stepper(mover, torsional_forces(tree), 0.003)
        start = mover.save()

        def image(offset, mover=mover, stepper=stepper, start=start, tree=tree):
            """Step from the start moved by `offset` in local coordinates."""
            nm, nq = tree.n_molecules, tree.n_coordinates
            free = tree.base == "free"
            turn = offset[:3] if free else np.zeros(3)
            shift = offset[3:6] if free else np.zeros(3)
            rest = offset[6:] if free else offset
            quaternion = (Rotation.from_rotvec(turn) * Rotation.from_quat(start[2][0][[1, 2, 3, 0]])).as_quat()
            assert nm == 1
            mover.restore(
                (start[0] + rest[:nq], start[1] + shift, quaternion[[3, 0, 1, 2]][None], start[3] + rest[nq:])
            )
            stepper.forget()
            assert stepper.step()
            return mover.save()

        size = 2 * tree.n_dof
        reference = image(np.zeros(size))
        jacobian = np.empty((size, size))
        scale = np.ones(size)
        scale[tree.n_dof :] = np.sqrt(KT * np.diag(mass_matrix(tree, mover.state)))
        for k in range(size):
            e = np.zeros(size)
            e[k] = 1e-3 * scale[k]
            ends = [difference(tree, image(s * e), reference) for s in (-2, -1, 1, 2)]
            column = (8 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12 * 1e-3)
            jacobian[:, k] = column if tree.base == "free" else column[6:]
        jacobian /= scale[:, None]
        sign, log_volume = np.linalg.slogdet(jacobian)
        assert sign == 1 and abs(log_volume) < 1e-7, name


def test_second_order(tree):
    """The energy error of a fixed time shrinks with the square of the step."""
    errors = []
    for h in (0.002, 0.001, 0.0005):
        mover = warm(tree)
        stepper = Stepper(mover, torsional_forces(tree), h)
        before = stepper.potential_energy() + mover.kinetic_energy()
        worst = 0.0
        for _ in range(round(0.06 / h)):
            assert stepper.step()
            worst = max(worst, abs(stepper.potential_energy() + mover.kinetic_energy() - before))
        errors.append(worst)
    orders = np.diff(-np.log2(errors))
    assert np.abs(orders - 2.0).max() < 0.15


def test_free_molecules_conserve_momenta(tree):
    """The world takes up the momenta of a molecule whose base is fixed, and of no other."""
    mover = warm(tree)

    def totals():
        v = mover.velocities()
        return np.concatenate([tree.linear_momentum(mover.state, v), tree.angular_momentum(mover.state, v)])

    stepper = Stepper(mover, torsional_forces(tree), 0.002)
    before = totals()
    for _ in range(100):
        assert stepper.step()
    change = np.abs(totals() - before).max() / np.abs(before).max()
    assert change > 1e-3 if tree.base == "fixed" else change < 1e-8


def test_thermal_momenta_have_the_covariance_of_the_mass_matrix(tree):
    """Whitened by the Cholesky factor of M, 4000 draws give unit covariance; 5 standard errors allow 1e-6 a entry."""
    rng = np.random.default_rng(1)
    mover = Mover(tree, random_state(tree, rng))
    L = np.linalg.cholesky(mass_matrix(tree, mover.state))
    draws = np.empty((4000, tree.n_dof))
    for row in draws:
        mover.thermalise(0.0, KT, rng)
        row[:] = mover.momentum
    white = np.linalg.solve(L, draws.T) / math.sqrt(KT)
    covariance = white @ white.T / len(draws)
    assert np.abs(covariance - np.eye(tree.n_dof)).max() < 5.5 * math.sqrt(2 / len(draws))


def test_fixman_terms_are_those_of_the_potential(tree):
    mover = warm(tree)
    potential = ptd.FixmanPotential(tree, 300)
    energy, torque = potential.energy_and_torque(mover.state)
    assert potential.kT * mover.fixman_energy() == pytest.approx(energy, rel=1e-9)
    assert np.abs(potential.kT * mover.fixman_torque() - torque).max() < 1e-9 * np.abs(torque).max(initial=1.0)


def test_a_step_that_is_too_large_changes_nothing():
    tree = TREES["branched"]()
    mover = warm(tree)
    mover.momentum *= 200.0
    stepper = Stepper(mover, torsional_forces(tree), 0.05)
    before = mover.save()
    assert not stepper.step()
    assert (mover.iterations < 0).any()
    assert all(np.array_equal(a, b) for a, b in zip(mover.save(), before, strict=True))


def test_hard_geometry_never_drifts():
    structure = load(DATA / "ala3.pdb")
    tree = ptd.build_tree(structure, "phi psi methyl")
    mover = Mover(tree)
    rng = np.random.default_rng(0)
    stepper = Stepper(mover, torsional_forces(tree), 0.004, "BAOAB", KT, 1.0, rng)
    for _ in range(3000):
        assert stepper.step()
    bonds = structure.atoms.bonds
    lengths = [
        np.linalg.norm(x[bonds[:, 0]] - x[bonds[:, 1]], axis=1) for x in (structure.positions, mover.positions())
    ]
    assert np.abs(lengths[0] - lengths[1]).max() < 1e-12


def test_seeds_make_runs_reproducible():
    tree = TREES["peptide"]()
    ends = []
    for seed in (1, 1, 2):
        mover = Mover(tree)
        stepper = Stepper(mover, torsional_forces(tree), 0.004, "BAOAB", KT, 1.0, np.random.default_rng(seed))
        for _ in range(20):
            stepper.step()
        ends.append(mover.save())
    assert all(np.array_equal(a, b) for a, b in zip(ends[0], ends[1], strict=True))
    assert not np.array_equal(ends[0][0], ends[2][0])


@pytest.mark.parametrize("word", ["BAB", "BAOAB", "ABOBA", "OBABO", "bab"])
def test_splittings_add_up(word):
    totals = {}
    for letter, fraction in parse_splitting(word):
        totals[letter] = totals.get(letter, 0.0) + fraction
    assert all(total == pytest.approx(1.0) for total in totals.values())


@pytest.mark.parametrize(
    ("word", "phrase"),
    [("BAX", "letters"), ("", "letters"), ("BAA", "symmetric"), ("BOAB", "symmetric"), ("OAO", "both")],
)
def test_bad_splittings(word, phrase):
    with pytest.raises(ArgumentError, match=phrase):
        parse_splitting(word)


def test_ghmc_energy_errors_are_rejected():
    """With a step far too large for the forces, most proposals are rejected and momenta flipped."""
    tree = TREES["branched"]()
    mover = warm(tree)
    stepper = MetropolisStepper(mover, torsional_forces(tree, 2000.0), 0.03, KT, 1.0, np.random.default_rng(0))
    for _ in range(50):
        assert stepper.step()
    assert stepper.proposed == 50 and stepper.acceptance < 0.7


# ---------------------------------------------------------------------------- sampling


def marginals(torsions, bins=12):
    """Return densities, errors (autocorrelation counted) and edges of every torsion's histogram."""
    return [weighted_histogram(column, np.ones(len(column)), bins, (-np.pi, np.pi)) for column in torsions.T]


def expected_marginals(tree, bins=12, points=48):
    """Return bin averages of sqrt(det M), by quadrature over all three torsions."""
    grid = (np.arange(points) + 0.5) / points * 2 * np.pi - np.pi
    q = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
    weight = np.exp(0.5 * ptd.FixmanPotential(tree, 300).log_metric(q)).reshape(points, points, points)
    weight /= weight.sum()
    columns = [weight.sum(axis=tuple({0, 1, 2} - {k})).reshape(bins, -1).sum(axis=1) for k in range(3)]
    return [column * bins / (2 * np.pi) for column in columns]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["langevin", "ghmc"])
@pytest.mark.parametrize("fixman", [True, False])
def test_force_free_chain(method, fixman):
    """Six beads: flat with U_F, sqrt(det M) without. False-alarm rate 1e-4 per run, with 30 % on the error bars."""
    tree = ptd.bead_chain(6, 0.15, np.deg2rad(110), 12.0, torsion=1.2)
    kT = BOLTZMANN * 300

    def forces(mover, want_energy):
        if not fixman:
            return 0.0, np.zeros(tree.n_dof)
        return kT * mover.fixman_energy(), kT * mover.fixman_torque()

    rng = np.random.default_rng(11)
    mover = Mover(tree)
    mover.thermalise(0.0, kT, rng)
    if method == "langevin":
        stepper = Stepper(mover, forces, 0.015, "BAOAB", kT, 2.0, rng)
    else:
        stepper = MetropolisStepper(mover, forces, 0.015, kT, 2.0, rng, check_reverse=False)
    samples = np.empty((30000, 3))
    kinetic = 0.0
    for row in samples:
        for _ in range(8):
            assert stepper.step()
        row[:] = np.angle(np.exp(1j * mover.q))
        kinetic += mover.kinetic_energy()
    assert 2 * kinetic / len(samples) / tree.n_dof == pytest.approx(kT, rel=0.02)  # equipartition over n + 6
    flat = [np.full(12, 1 / (2 * np.pi))] * 3
    biased = expected_marginals(tree)
    right, wrong = (flat, biased) if fixman else (biased, flat)
    found = marginals(samples)

    def score(wanted):
        pairs = zip(found, wanted, strict=True)
        return 11 / 12 * sum((((density - expected) / error) ** 2).sum() for (density, error, _), expected in pairs)

    assert score(right) / 1.3 < chi2.isf(1e-4, 33)
    assert score(wrong) > chi2.isf(1e-4, 33)
