"""What all solvers share: the registry, checked arguments and answers, factors used again, refusals by name."""

from __future__ import annotations

import re
import weakref

import numpy as np
import pytest
from mechanisms import mechanism
from random_bodies import make_bodies, random_bodies, random_pose
from random_trees import beads, random_state, random_tree

from peptidyn.core.errors import ArgumentError, SolverError, UnsupportedError
from peptidyn.io.peptides import build_peptide
from peptidyn.model.beads import bead_chain
from peptidyn.model.build import build_tree
from peptidyn.model.kinematics import FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.solvers import protocol
from peptidyn.solvers.dense import DenseSolver
from peptidyn.solvers.dynamics import bias_forces, inverse_dynamics
from peptidyn.solvers.protocol import (
    Factor,
    FactorPool,
    Solver,
    check_columns,
    get_solver,
    list_solvers,
    raise_singular,
    raise_unfit,
    register_solver,
)

OWN = ["dense", "articulated", "fixman", "fixman-points", "spatial-operator", "udu", "virtual-work"]
CHAIN = bead_chain(6, 0.15, 1.9, [1.0, 12.0, 3.0, 7.0, 1.0, 5.0])


@pytest.fixture
def registry(monkeypatch):
    """A registry of its own: what a test adds is gone afterwards."""
    monkeypatch.setattr(protocol, "_LOADED", {})


class Constant(Solver):
    """Answers what it was given."""

    name = "constant"
    paper = "none"

    def __init__(self, answer=1.0):
        self.answer = answer

    def _factor(self, tree, state):
        answer = self.answer

        class Given(Factor):
            def solve(self, b):
                return np.full_like(b, answer)

            def log_det(self):
                return answer

        return Given()

    def constraint_forces(self, tree, state, velocities, tau):
        return np.zeros((tree.n_links, 6))


# ---------------------------------------------------------------------------- the registry


def test_a_registered_solver_is_found_and_listed_last(registry):
    assert list_solvers() == OWN
    mine = Constant()
    register_solver(mine)
    assert get_solver("constant") is mine and list_solvers() == [*OWN, "constant"]
    with pytest.raises(UnsupportedError, match=r"these have: virtual-work, constant$"):
        get_solver("dense").constraint_forces(CHAIN, CHAIN.reference, np.zeros(9), np.zeros(9))
    for name in ("constant", "udu"):  # loaded or not
        other = Constant()
        other.name = name
        with pytest.raises(ArgumentError, match=f"there is a solver named '{name}' already"):
            register_solver(other)
    assert get_solver("constant") is mine


def test_a_solver_is_made_once_and_with_its_option(registry):
    plain, other = get_solver("spatial-operator"), get_solver("spatial-operator:fd2")
    assert get_solver("spatial-operator") is plain and get_solver("spatial-operator:fd2") is other
    assert (plain.algorithm, other.algorithm) == ("fd4", "fd2") and other.name == "spatial-operator:fd2"
    assert list_solvers() == OWN  # options of a solver are no further solvers
    assert get_solver("dense").name == "dense" and repr(get_solver("udu")) == (
        "<solver udu: S. K. Saha, The UDU^T decomposition of manipulator inertia matrix>"
    )
    for name in ("dense:fast", "constant", "constant:fd1"):
        with pytest.raises(ArgumentError, match=r"takes no option, but 'fast'|unknown solver 'constant"):
            get_solver(name)


# ---------------------------------------------------------------------------- arguments and answers


def test_columns_are_one_row_per_degree_of_freedom():
    assert check_columns("b", [1, 2, 3], 3).dtype == np.float64
    assert check_columns("b", np.ones((3, 0)), 3).shape == (3, 0)
    for shape in ((2,), (4,), (), (2, 3), (3, 1, 1)):
        with pytest.raises(ArgumentError, match=r"b has shape .*, expected \(3,\) or \(3, m\)"):
            check_columns("b", np.ones(shape), 3)
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(ArgumentError, match="b holds values that are not finite"):
            check_columns("b", [[1.0, 2.0], [0.0, bad], [0.0, 0.0]], 3)


@pytest.mark.parametrize("answer", [np.nan, np.inf, -np.inf])
def test_answers_that_are_no_numbers_are_refused(answer):
    solver, state, b = Constant(answer), CHAIN.reference, np.ones(9)
    for call in (
        lambda: solver.solve(CHAIN, state, b),
        lambda: solver.solve(CHAIN, state, np.ones((9, 2))),
        lambda: solver.accelerations(CHAIN, state, b, b),
        lambda: solver.log_det(CHAIN, state),
    ):
        with pytest.raises(SolverError, match="'constant' found no finite answer"):
            call()


@pytest.mark.parametrize("name", OWN)
def test_a_vector_and_a_matrix_of_one_column_keep_their_shapes(name):
    solver, state, b = get_solver(name), CHAIN.reference, np.arange(9.0)
    one, column, many = (solver.solve(CHAIN, state, x) for x in (b, b[:, None], np.stack([b, -b, 2 * b], axis=1)))
    assert one.shape == (9,) and column.shape == (9, 1) and many.shape == (9, 3)
    for found in (column[:, 0], many[:, 0], -many[:, 1], 0.5 * many[:, 2]):
        assert found == pytest.approx(one, rel=1e-10)
    assert np.array_equal(b, np.arange(9.0))


@pytest.mark.parametrize("name", OWN)
def test_every_call_looks_whether_the_state_is_of_its_tree(name):
    """Also `factor`, and quantities that few have."""
    solver, other, b = get_solver(name), bead_chain(7, 0.15, 1.9, 1.0).reference, np.zeros(9)
    calls = [solver.factor, solver.log_det]
    for method, arguments in (("constraint_forces", 2), ("link_accelerations", 2), ("square_root", 1)):
        if method in vars(type(solver)):
            calls.append(lambda tree, state, m=method, n=arguments: getattr(solver, m)(tree, state, *[b] * n))
    for call in calls:
        with pytest.raises(ArgumentError, match="another tree"):
            call(CHAIN, other)


@pytest.mark.parametrize("name", ["fixman", "fixman-points"])
def test_joint_inertias_are_refused_by_every_call(name):
    tree = CHAIN.with_joint_inertia([0.0, 0.1, 0.0])
    solver, b = get_solver(name), np.zeros(9)
    for call in (
        lambda: solver.solve(tree, tree.reference, b),
        lambda: solver.factor(tree, tree.reference),
        lambda: solver.log_det(tree, tree.reference),
        lambda: solver.accelerations(tree, tree.reference, b, b),
    ):
        with pytest.raises(UnsupportedError, match=f"'{name}' has no joint inertias.*; these have: dense, articulated"):
            call()


# ---------------------------------------------------------------------------- factors


class _Made:
    """Stands for a factor."""


class _Tree:
    """Stands for a tree."""


def test_a_pool_gives_what_it_was_given_last_and_makes_what_is_missing():
    pool, tree, other = FactorPool(lambda tree: _Made()), _Tree(), _Tree()
    a, b = pool.take(tree), pool.take(tree)
    assert a is not b
    pool.give(tree, a)
    pool.give(tree, b)
    assert pool.take(other) not in (a, b)
    assert pool.take(tree) is b and pool.take(tree) is a
    assert pool.take(tree) not in (a, b)


def test_a_pool_drops_the_factors_of_a_tree_that_is_gone():
    pool, tree = FactorPool(lambda tree: _Made()), _Tree()
    factor = pool.take(tree)
    kept = weakref.ref(factor)
    pool.give(tree, factor)
    del factor
    assert kept() is not None
    del tree
    assert kept() is None and not pool._free


@pytest.mark.parametrize("name", [name for name in OWN if name != "dense"])
def test_calls_use_the_factor_of_the_call_before(name):
    """As many as were ever needed at the same time; one that failed is dropped."""
    solver, tree = type(get_solver(name))(), random_tree("serial", 6, seed=1)
    state, b = random_state(tree, np.random.default_rng(1)), np.ones(tree.n_dof)
    solver.log_det(tree, state)
    first = solver.pool.take(tree)
    solver.pool.give(tree, first)
    solver.solve(tree, state, np.ones((tree.n_dof, 2)))
    solver.solve(tree, state, b)
    solver.accelerations(tree, state, b, b)
    assert solver.pool.take(tree) is first
    assert solver.factor(tree, state) is not solver.factor(tree, state)


def test_forward_dynamics_takes_away_the_bias_forces():
    """A solver that has only a factor; M a = tau - c."""
    tree = random_bodies([FREE], 6, seed=3)
    rng = np.random.default_rng(3)
    state = random_pose(tree, rng)
    v, tau = rng.normal(size=(2, tree.n_dof))
    a = DenseSolver().accelerations(tree, state, v, tau)
    assert bias_forces(tree, state, v).any()
    assert inverse_dynamics(tree, state, v, a) == pytest.approx(tau, abs=1e-9)


# ---------------------------------------------------------------------------- bodies are named


def bodies(masses, joint=REVOLUTE, root=FREE):
    """A row of bodies, some of them without mass."""
    n = len(masses)
    axes = np.eye(3)[np.arange(n) % 3] * (np.arange(n) > 0)[:, None]
    return make_bodies(
        np.arange(n) - 1, [root] + [joint] * (n - 1), axes,
        np.zeros((n, 3)), masses, np.zeros((n, 3)), [(m > 0) * np.eye(3) for m in masses],
    )  # fmt: skip


def test_links_without_mass_are_named_after_the_body_behind_them():
    tree = bodies([1.0, 0.0, 0.0, 2.0, 0.0])
    for link, named in ((0, 0), (1, 3), (2, 3), (3, 3), (4, 4)):
        with pytest.raises(SolverError, match=f"singular at the body of link {named}: its masses lie on one line"):
            raise_singular(tree, link)
    tree = build_tree(build_peptide("AW"), "phi psi N-CA-C")
    hollow = int(np.flatnonzero(tree.link_mass == 0)[0])
    with pytest.raises(SolverError, match=re.escape(f"singular at the {tree.unit(hollow + 1).name}: its")):
        raise_singular(tree, hollow)


def test_a_body_that_one_method_cannot_take_is_singular_or_unsupported():
    """Where M itself is singular no other method is named."""
    tree = bodies([1.0, 2.0])
    with pytest.raises(UnsupportedError) as refused:
        raise_unfit("fixman", tree, tree.reference, 1, "it is odd")
    assert str(refused.value) == (
        "the solver 'fixman' has no answer at the body of link 1: it is odd; these have: dense, articulated, "
        "spatial-operator, udu"
    )
    with pytest.raises(UnsupportedError, match="bodies with inertia about every axis"):
        raise_unfit("fixman", tree, tree.reference, 1)
    tip = bodies([1.0, 0.0])
    with pytest.raises(SolverError, match="singular at the body of link 1"):
        raise_unfit("fixman", tip, tip.reference, 0, "it is odd")


@pytest.mark.parametrize("name", ["fixman", "virtual-work"])
def test_what_has_no_mass_is_named_by_methods_that_set_bodies_free(name):
    """Two arms on a link without mass; M is regular if the arms turn about different axes far from each other."""
    arms = make_bodies(
        [-1, 0, 1, 1], [FREE, PRISMATIC, REVOLUTE, REVOLUTE], [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]],
        np.zeros((4, 3)), [1.0, 0.0, 1.0, 1.0], [[0, 0, 0], [0, 0, 0], [0.5, 0, 0], [0.0, 0.5, 0]],
        [np.eye(3), np.zeros((3, 3)), np.eye(3), np.eye(3)],
    )  # fmt: skip
    assert np.isfinite(get_solver("udu").log_det(arms, arms.reference))
    with pytest.raises(UnsupportedError, match="link 1 has no mass and carries 2 joints; these have: dense, articul"):
        get_solver(name).log_det(arms, arms.reference)


@pytest.mark.parametrize("name", OWN)
def test_a_singular_body_of_a_second_molecule_is_noticed(name):
    """And of the first one of three: nothing depends on where a rod stands."""
    for parents in ([-1, 0, 1, 2, -1, 4], [-1, 0, -1, 2, 3, -1]):
        tree = build_tree(beads(parents, np.random.default_rng(2)), soft="rotor")
        b = np.ones(tree.n_dof)
        for call in (
            lambda tree=tree, b=b: get_solver(name).solve(tree, tree.reference, b),
            lambda tree=tree, b=b: get_solver(name).solve(tree, tree.reference, b[:, None]),
            lambda tree=tree, b=b: get_solver(name).accelerations(tree, tree.reference, 0 * b, b),
            lambda tree=tree: get_solver(name).log_det(tree, tree.reference),
        ):
            with pytest.raises(SolverError, match="singular"):
                call()


def test_a_singular_state_among_many_is_noticed():
    """A rod alone, which is link 0; and a torsion that turns nothing in the last of six states."""
    solver = get_solver("articulated")
    rod = build_tree(beads([-1, 0], np.random.default_rng(2)), soft="rotor")
    with pytest.raises(SolverError, match="singular at the"):
        solver.accelerations_of_states(rod, np.zeros((3, 0)), np.zeros((3, 6)), np.zeros((3, 6)))
    chain = build_tree(beads([-1, 0, 1, 2], np.random.default_rng(2)), soft="rotor bends")
    q, zeros = np.tile(chain.q_reference, (6, 1)), np.zeros((6, chain.n_dof))
    assert not solver.accelerations_of_states(chain, q, zeros, zeros).any()
    q[5, chain.bend_index[-1]] = np.pi
    with pytest.raises(SolverError, match="singular at the"):
        solver.accelerations_of_states(chain, q, zeros, zeros)


def test_points_without_a_rotation_are_bodies_like_others():
    """A point in every method: M = m 1."""
    tree = make_bodies([-1], [POINT], np.zeros((1, 3)), np.zeros((1, 3)), [4.0], np.zeros((1, 3)), np.zeros((1, 3, 3)))
    for name in OWN:
        if name != "fixman-points":
            assert get_solver(name).solve(tree, tree.reference, [1.0, 2.0, 4.0]) == pytest.approx([0.25, 0.5, 1.0])
            assert get_solver(name).log_det(tree, tree.reference) == pytest.approx(3 * np.log(4.0))


@pytest.mark.parametrize("name", [name for name in OWN if name != "dense"])
def test_a_hydroxyl_that_turns_nothing_is_named(name):
    """Its hydrogen lies on the axis; all other bodies of the peptide are as they should be."""
    structure = build_peptide("ASA")
    tree = build_tree(structure, "phi psi chi polar")
    atoms = structure.atoms
    carbon, oxygen, hydrogen = (int(np.flatnonzero(atoms.name == each)[0]) for each in ("CB", "OG", "HG"))
    carbon = next(int(i + j - oxygen) for i, j in atoms.bonds if oxygen in (i, j) and hydrogen not in (i, j))
    x = structure.positions.copy()
    x[hydrogen] = x[oxygen] + 0.7 * (x[oxygen] - x[carbon])
    straight = tree.with_geometry(x)
    link = int(tree.atom_link[hydrogen])
    assert np.isfinite(get_solver(name).log_det(tree, tree.reference))
    with pytest.raises(SolverError, match=re.escape(f"singular at the {tree.unit(link).name}: its masses")):
        get_solver(name).log_det(straight, straight.reference)


def test_methods_that_set_bodies_free_name_the_link_of_a_body():
    """Behind links without mass links and bodies have different numbers. The rod, link 4, turns about itself."""
    rod = np.diag([0.3, 0.3, 0.0])
    tree = make_bodies(
        [-1, 0, 1, 2, 3], [FREE, REVOLUTE, REVOLUTE, REVOLUTE, REVOLUTE],
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]], [[0, 0, 0]] * 3 + [[0, 0, 1]] * 2,
        [1.0, 0.0, 1.0, 0.0, 1.0], np.zeros((5, 3)), [np.eye(3), 0 * np.eye(3), np.eye(3), 0 * np.eye(3), rod],
    )  # fmt: skip
    for name in ("udu", "fixman", "virtual-work"):
        with pytest.raises(SolverError, match="singular at the body of link 4"):
            get_solver(name).log_det(tree, tree.reference)
    # half a nm from the axis it has inertia there, but none of its own, nor can it borrow any: M is regular
    aside = make_bodies(
        [-1, 0, 1], [FREE, REVOLUTE, REVOLUTE], [[0, 0, 0], [1, 0, 0], [0, 0, 1]], np.zeros((3, 3)), [1.0, 0.0, 1.0],
        [[0, 0, 0], [0, 0, 0], [0, 0.5, 0]], [np.eye(3), 0 * np.eye(3), rod],
    )  # fmt: skip
    assert np.isfinite(get_solver("udu").log_det(aside, aside.reference))
    for name in ("fixman", "virtual-work"):
        with pytest.raises(UnsupportedError, match=f"'{name}' has no answer at the body of link 2: it needs bodies"):
            get_solver(name).log_det(aside, aside.reference)
    heavier = tree.with_joint_inertia([0.1] * 4)  # which is no inertia of the body
    with pytest.raises(UnsupportedError, match="'virtual-work' has no answer at the body of link 4: it needs bodies"):
        get_solver("virtual-work").log_det(heavier, heavier.reference)
    assert np.isfinite(get_solver("udu").log_det(heavier, heavier.reference))


@pytest.mark.parametrize("name", ["fixman", "virtual-work"])
def test_a_base_without_mass_is_refused(name):
    """Two arms on it have all the inertia that M needs, but the base itself cannot be set free."""
    tree = make_bodies(
        [-1, 0, 0], [FREE, REVOLUTE, REVOLUTE], [[0, 0, 0], [1, 0, 0], [0, 1, 0]], np.zeros((3, 3)), [0.0, 1.0, 1.0],
        [[0, 0, 0], [0.3, 0.5, 0], [0, 0.4, 0.6]], [np.zeros((3, 3)), np.eye(3), np.eye(3)],
    )  # fmt: skip
    assert np.isfinite(get_solver("udu").log_det(tree, tree.reference))
    with pytest.raises(UnsupportedError, match=f"the solver '{name}' has no answer at the body of link"):
        get_solver(name).log_det(tree, tree.reference)


@pytest.mark.parametrize("name", ["fixman", "virtual-work"])
def test_seven_motions_of_one_joint_are_too_many(name):
    """Of which no body has more than six."""
    rng = np.random.default_rng(0)
    tree = mechanism(
        np.arange(8) - 1, [FREE] + [REVOLUTE] * 7, rng.normal(size=(8, 3)), rng.normal(size=(8, 3)),
        [1.0] + [0.0] * 6 + [1.0], np.zeros((8, 3)), [np.eye(3)] + [np.zeros((3, 3))] * 6 + [np.eye(3)],
    )  # fmt: skip
    with pytest.raises(SolverError, match="singular"):
        get_solver(name).log_det(tree, tree.reference)
