"""The Fixman potential: exact results, gradients, forests."""

from __future__ import annotations

import pickle
from typing import ClassVar

import butane
import numpy as np
import pytest
from named_molecules import molecule
from openmm import unit
from random_trees import beads, random_state, random_tree
from real_structures import DATA, VILLIN_IN_WATER, all_paths, load
from scipy.integrate import quad

import peptidyn as ptd
from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError, SolverError
from peptidyn.core.units import BOLTZMANN

BENDS = "phi psi chi omega methyl angles"
ROUTES = [name for name in ptd.list_solvers() if name != "dense"]


def half_log_det(tree, q, route="articulated"):
    """Return ln sqrt(det M) at soft coordinates q by one of the solvers."""
    return 0.5 * ptd.get_solver(route).log_det(tree, tree.reference.replace(q=np.atleast_1d(q)))


# ---------------------------------------------------------------------------- exact results


def trimer(mass=1.0):
    """Three equal beads with rigid bonds and a free angle."""

    class Trimer:
        atoms = Atoms(
            name=np.array(["N", "CA", "C"]), element=np.array(["", "", ""]), residue=np.zeros(3, dtype=np.int64),
            residue_name=np.array(["TRI"]), residue_id=np.array(["1"]), residue_chain=np.zeros(1, dtype=np.int64),
            chain_id=np.array(["A"]), bonds=np.array([[0, 1], [1, 2]]), bond_order=np.ones(2),
        )  # fmt: skip
        positions = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        masses = np.full(3, mass)
        virtual_sites: ClassVar[dict] = {}

    return ptd.build_tree(Trimer(), soft="N-CA-C")


# a body of three beads that opens in the middle has two masses per body: no inertia for the Fixman route to invert
@pytest.mark.parametrize("route", ["dense", "articulated", "spatial-operator", "udu"])
def test_trimer(route):
    tree = trimer()
    angles = np.linspace(0.2, 2.9, 12)
    log_det = np.array([2 * half_log_det(tree, t, route) for t in angles])
    expected = np.log(np.sin(angles) ** 2 * (4 - np.cos(angles) ** 2))
    assert np.ptp(log_det - expected) < 1e-12
    density = lambda t: np.sin(t) * np.sqrt(4 - np.cos(t) ** 2)  # noqa: E731
    mean = quad(lambda t: np.cos(t) ** 2 * density(t), 0, np.pi)[0] / quad(density, 0, np.pi)[0]
    assert mean == pytest.approx(0.321021, abs=5e-7)


def test_trimer_potential_leaves_the_natural_measure():
    """exp(-U_F/kT) sqrt(det M) must be sin t: the Jacobian of the angle."""
    tree = trimer()
    potential = ptd.FixmanPotential(tree, 300)
    angles = np.linspace(0.3, 2.8, 9)
    energy = potential.energies(angles[:, None]) / potential.kT
    rigid = np.array([half_log_det(tree, t) for t in angles])
    assert np.ptp(rigid - energy - np.log(np.sin(angles))) < 1e-12


@pytest.mark.parametrize("route", ptd.list_solvers())
def test_four_beads(route):
    tree = ptd.bead_chain(4, 1.0, np.pi / 2, 1.0)
    a = np.linspace(-3.1, 3.1, 15)
    c = np.cos(a)
    log_det = np.array([2 * half_log_det(tree, np.pi - x, route) for x in a])
    assert np.ptp(log_det - np.log(35 + 4 * c - 16 * c**2 + c**4)) < 1e-12


def test_four_beads_maximum_range_and_moments():
    tree = ptd.bead_chain(4, 1.0, np.pi / 2, 1.0)
    potential = ptd.FixmanPotential(tree, 300)
    a = np.linspace(-np.pi, np.pi, 36001)
    energy = potential.energies((np.pi - a)[:, None]) / potential.kT
    assert np.rad2deg(abs(a[energy.argmax()])) == pytest.approx(82.805, abs=6e-3)
    assert np.ptp(energy) == pytest.approx(0.39494, abs=5e-6)
    weight = np.exp(energy[:-1])  # without U_F: sqrt(det M)
    assert (weight * np.cos(a[:-1])).sum() / weight.sum() == pytest.approx(0.040038, abs=5e-7)
    assert (weight * np.cos(2 * a[:-1])).sum() / weight.sum() == pytest.approx(-0.070415, abs=5e-7)


def test_four_beads_with_a_welded_base_are_flat():
    tree = ptd.bead_chain(4, 1.0, np.pi / 2, 1.0, base="fixed")
    q = np.linspace(-3, 3, 13)[:, None]
    assert np.ptp(ptd.FixmanPotential(tree, 300).energies(q)) < 1e-12


@pytest.mark.parametrize("kind", ["serial", "branched", "star", "forest"])
@pytest.mark.parametrize("base", ["free", "fixed"])
def test_det_by_all_routes(kind, base):
    tree = random_tree(kind, 40, seed=1, base=base)
    state = random_state(tree, np.random.default_rng(2))
    values = [ptd.get_solver(route).log_det(tree, state) for route in ptd.list_solvers()]
    potential = ptd.FixmanPotential(tree, 250)
    assert np.ptp(values) < 1e-9
    assert potential.energy(state) == pytest.approx(0.5 * BOLTZMANN * 250 * values[0], abs=1e-9)


def test_root_invariance():
    structure = load(DATA / "all20.pdb")
    change = {}
    values = []
    rng = np.random.default_rng(5)
    for root in (0, 100, structure.n_atoms - 1):
        tree = ptd.build_tree(structure, BENDS, root=root)
        q = tree.q_reference.copy()
        for place, c in enumerate(tree.coordinates):
            q[place] += change.setdefault(frozenset(c.atoms), rng.uniform(-0.3, 0.3))
        values.append(ptd.FixmanPotential(tree, 300).log_metric(q[None])[0])
    assert np.ptp(values) < 1e-10


# ---------------------------------------------------------------------------- gradient


@pytest.mark.parametrize("soft", ["phi psi chi", BENDS], ids=["torsions", "with-angles"])
@pytest.mark.parametrize("path", all_paths(), ids=lambda p: p.name)
def test_torque_against_central_differences(path, soft):
    tree = ptd.build_tree(load(path), soft)
    potential = ptd.FixmanPotential(tree, 300)
    rng = np.random.default_rng(0)
    state = random_state(tree, rng)
    torque = potential.torque(state)
    base = np.setdiff1d(np.arange(tree.n_dof), tree.coordinate_dof)
    assert np.abs(torque[base]).sum() == 0.0
    chosen = rng.choice(tree.n_coordinates, min(tree.n_coordinates, 25), replace=False)
    h = 2e-3
    steps = np.array([-3, -2, -1, 1, 2, 3])
    q = np.repeat(state.q[None], 6 * len(chosen), axis=0)
    q[np.arange(len(q)), np.repeat(chosen, 6)] += np.tile(steps * h, len(chosen))
    energy = potential.energies(q).reshape(-1, 6)
    numeric = -energy @ np.array([-1, 9, -45, 45, -9, 1]) / (60 * h)
    found = torque[tree.coordinate_dof[chosen]]
    assert np.abs(numeric - found).max() < 1e-7 * np.abs(torque).max()


@pytest.mark.parametrize("kind", ["serial", "branched", "star", "forest"])
@pytest.mark.parametrize("base", ["free", "fixed"])
def test_torque_on_random_trees(kind, base):
    tree = random_tree(kind, 30, seed=3, base=base)
    potential = ptd.FixmanPotential(tree, 300)
    state = random_state(tree, np.random.default_rng(4))
    _, torques = potential.energies_and_torques(state.q[None])
    h = 1e-3
    for k in range(tree.n_coordinates):
        e = np.eye(tree.n_coordinates)[k]
        u = potential.energies(np.stack([state.q + s * h * e for s in (-2, -1, 1, 2)]))
        numeric = -(8 * (u[2] - u[1]) - (u[3] - u[0])) / (12 * h)
        assert numeric == pytest.approx(torques[0, k], abs=1e-7 * np.abs(torques).max())


def test_torque_of_bond_lengths():
    """U_F is constant where everything is soft: what the metric gives, r^2 takes away."""
    tree = ptd.build_tree(load(DATA / "ala1.pdb"), "all")
    potential = ptd.FixmanPotential(tree, 300)
    _, torques = potential.energies_and_torques(tree.q_reference[None])
    h = 1e-4
    assert tree.n_stretches == tree.n_atoms - 1
    for k in tree.stretch_index:
        e = h * np.eye(tree.n_coordinates)[k]
        u = potential.energies(np.stack([tree.q_reference + s * e for s in (-2, -1, 1, 2)]))
        assert -(8 * (u[2] - u[1]) - (u[3] - u[0])) / (12 * h) == pytest.approx(torques[0, k], abs=1e-5)


@pytest.mark.parametrize(
    ("soft", "bends", "stretches"), [("bends; bonds in index 0 to 2", 2, 2), ("bends", 2, 0), ("bonds", 0, 3)]
)
def test_angles_and_bonds_have_a_measure(soft, bends, stretches):
    """U_F is kT/2 ln(det M) with the dense matrix, less kT ln(r^2) of every soft bond and kT ln sin of every angle."""
    chain = butane.make_tree()
    structure = ptd.Structure.from_openmm(
        butane.make_topology(), butane.make_system(), chain.positions(chain.reference)
    )
    tree = ptd.build_tree(structure, soft)
    assert (len(tree.bend_index), len(tree.stretch_index)) == (bends, stretches)
    potential, dense = ptd.FixmanPotential(tree, 300.0), ptd.get_solver("dense")
    rng = np.random.default_rng(1)
    q = tree.q_reference + rng.uniform(-0.05, 0.05, (3, tree.n_coordinates))
    log_det = np.array([dense.log_det(tree, tree.reference.replace(q=one)) for one in q])
    log_j = np.log(np.sin(q[:, tree.bend_index])).sum(axis=1) + np.log(q[:, tree.stretch_index] ** 2).sum(axis=1)
    assert potential.energies(q) == pytest.approx(potential.kT * (0.5 * log_det - log_j), rel=1e-9)
    assert potential.energies(q[:1]) == pytest.approx(potential.energies(q)[:1], rel=1e-12)


def test_batches_agree_with_single_states():
    tree = ptd.build_tree(load(DATA / "all20.pdb"), BENDS)
    potential = ptd.FixmanPotential(tree, 310 * unit.kelvin)
    rng = np.random.default_rng(0)
    states = [random_state(tree, rng) for _ in range(7)]
    energies, torques = potential.energies_and_torques(np.stack([s.q for s in states]))
    for state, energy, torque in zip(states, energies, torques, strict=True):
        one, vector = potential.energy_and_torque(state)
        assert one == pytest.approx(energy, rel=1e-12)
        assert np.abs(vector[tree.coordinate_dof] - torque).max() < 1e-10 * np.abs(torque).max()
    assert np.array_equal(potential.energies(np.stack([s.q for s in states])), energies)


def test_waters_and_ions_add_a_constant():
    structure = load(VILLIN_IN_WATER)
    whole, protein = ptd.build_tree(structure), ptd.build_tree(structure.subset("protein"))
    a, b = ptd.FixmanPotential(whole, 300), ptd.FixmanPotential(protein, 300)
    rng = np.random.default_rng(1)
    q = whole.q_reference + rng.uniform(-1, 1, (5, whole.n_coordinates))
    difference = a.log_metric(q) - b.log_metric(q)
    assert np.ptp(difference) < 1e-8 * abs(difference[0])
    assert ptd.get_solver("articulated").log_det(whole, whole.reference) == pytest.approx(
        a.log_metric(whole.reference.q[None])[0], rel=1e-10
    )


def test_conformations_of_ala10():
    tree = ptd.build_tree(load(DATA / "ala10-helix.pdb"))
    potential = ptd.FixmanPotential(tree, 300)

    def energy(phi, psi):
        q = tree.q_reference.copy()
        for place, c in enumerate(tree.coordinates):
            q[place] = np.deg2rad({"phi": phi, "psi": psi}[c.kind])
        return potential.energies(q[None])[0] / potential.kT

    helix = energy(-57, -47)
    assert energy(-78, 149) - helix == pytest.approx(1.2, abs=0.1)
    assert energy(-139, 135) - helix == pytest.approx(-0.7, abs=0.1)


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("temperature", [0, -5, np.nan, np.inf])
def test_temperature_must_be_positive(temperature):
    tree = ptd.build_tree(load(DATA / "ala1.pdb"))
    with pytest.raises(ArgumentError, match="temperature"):
        ptd.FixmanPotential(tree, temperature)


def test_shapes_are_checked():
    potential = ptd.FixmanPotential(ptd.build_tree(load(DATA / "ala3.pdb")), 300)
    with pytest.raises(ArgumentError, match=r"q has shape \(6,\), expected \(n_states, 6\)"):
        potential.energies(np.zeros(6))
    with pytest.raises(ArgumentError, match="not finite"):
        potential.energies(np.full((1, 6), np.nan))


def test_a_straight_angle_is_refused():
    tree = trimer()
    with pytest.raises(SolverError):
        ptd.FixmanPotential(tree, 300).energies([[np.pi]])


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
@pytest.mark.parametrize(
    ("motion", "value", "phrase"),
    [
        ("bend", 5e-8, "is 0 or 180 degrees"),
        ("bend", np.pi - 5e-8, "is 0 or 180 degrees"),
        ("stretch", 0.0, "has no positive length"),
        ("stretch", -0.15, "has no positive length"),
    ],
)
def test_a_coordinate_that_has_no_metric_is_named(motion, value, phrase, several):
    """The second angle or bond of a chain, in the last of a few states; joint inertias keep the mass matrix regular."""
    tree = ptd.build_tree(beads([-1, 0, 1, 2, 3], np.random.default_rng(0)), "all")
    tree = tree.with_joint_inertia(np.full(tree.n_coordinates, 0.1))
    place = int({"bend": tree.bend_index, "stretch": tree.stretch_index}[motion][1])
    q = np.tile(tree.q_reference, (3, 1))
    q[2, place] = value
    potential = ptd.FixmanPotential(tree, 300)
    with pytest.raises(SolverError) as error:
        potential.log_metric(q if several else q[2:])
    assert str(error.value) == f"{tree.coordinates[place]} {phrase}, where the metric is singular"
    assert np.isfinite(potential.log_metric(q[:2])).all()
    for bad in (np.nan, np.inf):
        q[2, place] = bad
        with pytest.raises(ArgumentError, match="not finite"):
            potential.energies(q)


def test_a_potential_comes_back_from_another_process():
    tree = ptd.bead_chain(5, 0.15, 1.9, [12.0, 3.0, 7.0, 5.0, 9.0], torsion=[1.0, 2.0])
    potential = ptd.FixmanPotential(tree, 350.0)
    again = pickle.loads(pickle.dumps(potential))
    assert again.temperature == 350.0 and again.kT == potential.kT == pytest.approx(0.00831446 * 350.0, rel=1e-5)
    assert again.energy(again.tree.reference) == potential.energy(tree.reference)


def test_molecules_that_are_all_rigid_have_a_constant_potential():
    """Two rows of three and an ion: ln det M from the dense matrix, for any number of states; no torque."""
    tree = ptd.build_tree(beads([-1, 0, 1, -1, 3, 4, -1], np.random.default_rng(0)), "none")
    potential = ptd.FixmanPotential(tree, 300)
    log_det = np.linalg.slogdet(ptd.mass_matrix(tree, tree.reference))[1]
    for n in (1, 3):
        assert potential.log_metric(np.empty((n, 0))) == pytest.approx([log_det] * n, rel=1e-12)
        energies, torques = potential.energies_and_torques(np.empty((n, 0)))
        assert energies == pytest.approx([0.5 * potential.kT * log_det] * n) and torques.shape == (n, 0)
    energy, torque = potential.energy_and_torque(tree.reference)
    assert energy == pytest.approx(0.5 * potential.kT * log_det) and torque.tolist() == [0.0] * 15


def test_a_singular_molecule_is_named_among_others():
    """Behind a rigid molecule and ions, a chain whose last angle is straight."""
    ions = 9
    names = " ".join(f"C{i}" for i in range(3 + ions + 4))
    parents = [-1, 0, 1, *[-1] * ions, -1, *range(3 + ions, 6 + ions)]
    structure = molecule(parents, names, [0] * 3 + [1] * ions + [2] * 4, ["ONE", "TWO", "XYZ"])
    tree = ptd.build_tree(structure, "rotor bends bonds")
    q = np.tile(tree.q_reference, (2, 1))
    q[1, tree.bend_index[-1]] = np.pi
    for states in (q, q[1:]):
        with pytest.raises(SolverError, match=r"XYZ 3") as error:
            ptd.FixmanPotential(tree, 300).log_metric(states)
        assert "singular" in str(error.value)
