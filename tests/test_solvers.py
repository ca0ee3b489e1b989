"""All solvers x trees x {solve, log_det, accelerations}, driven by the registry, against dense and Pinocchio."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest
from pinocchio_oracle import PinocchioTree
from random_trees import beads, random_state, random_tree, with_random_inertia
from real_structures import DATA, VILLIN_IN_WATER, all_paths, load

from peptidyn.core.errors import ArgumentError, SolverError, UnsupportedError
from peptidyn.io.peptides import build_peptide
from peptidyn.model.beads import bead_chain
from peptidyn.model.build import build_tree
from peptidyn.model.kinematics import POINT
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.dense import DenseSolver, mass_matrix
from peptidyn.solvers.dynamics import bias_forces, inverse_dynamics
from peptidyn.solvers.protocol import Factor, get_solver, list_solvers

FAST = [name for name in list_solvers() if name != "dense"]
EVERY = [*list_solvers(), *(f"spatial-operator:fd{k}" for k in (1, 2, 3, 4))]
BENDS = "phi psi chi omega methyl angles"


def tolerance(tree) -> float:
    """Allowed relative error of solve and accelerations: 1e-12 per degree of freedom, 1e-11 at least, 1e-9 at most.

    The condition of M grows with the chain, to 8e8 for DHFR with all angles opened.
    """
    return min(1e-9, max(1e-11, 1e-12 * tree.n_dof))


def scaled_error(M, found, expected) -> float:
    """Return the largest error of a generalised velocity in units of its own inertial scale.

    Angular and linear components differ by orders of magnitude; sqrt(M_ii) brings them to one scale.
    """
    weight = np.sqrt(np.diag(M))[:, None]
    found, expected = found.reshape(len(M), -1), expected.reshape(len(M), -1)
    return float(np.abs(weight * (found - expected)).max() / np.abs(weight * expected).max())


@dataclass(frozen=True, eq=False)
class Case:
    """A tree in a random state with the answers of the definition of M."""

    tree: TreeModel
    state: State
    M: np.ndarray
    b: np.ndarray
    v: np.ndarray
    tau: np.ndarray
    a: np.ndarray
    solution: np.ndarray
    log_det: float
    acceleration: np.ndarray
    needed: np.ndarray  # generalised forces for the acceleration a


def make_case(tree: TreeModel, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    state = random_state(tree, rng)
    M = mass_matrix(tree, state)
    b = rng.normal(size=(tree.n_dof, 3))
    v, tau, a = rng.normal(size=(3, tree.n_dof))
    factor = get_solver("dense").factor(tree, state)
    answers = factor.solve(np.column_stack([b, tau - bias_forces(tree, state, v)]))
    return Case(
        tree, state, M, b, v, tau, a, answers[:, :3], factor.log_det(), answers[:, 3],
        inverse_dynamics(tree, state, v, a),
    )  # fmt: skip


def check_solver(solver, case: Case):
    """Compare solve (one and many right-hand sides), log_det and accelerations with the definition of M."""
    tree, state, M, allowed = case.tree, case.state, case.M, tolerance(case.tree)
    found = solver.solve(tree, state, case.b)
    assert found.shape == case.b.shape
    assert scaled_error(M, found, case.solution) < allowed
    single = solver.solve(tree, state, case.b[:, 0])
    assert single.shape == (tree.n_dof,)
    assert scaled_error(M, single, case.solution[:, 0]) < allowed
    assert solver.log_det(tree, state) == pytest.approx(case.log_det, abs=1e-11 * max(10, tree.n_dof))
    found = solver.accelerations(tree, state, case.v, case.tau)
    assert scaled_error(M, found, case.acceleration) < allowed
    # what inverse dynamics needs, forward dynamics gives back; M^-1 magnifies the rounding of the forces in between
    back = solver.accelerations(tree, state, case.v, case.needed)
    assert scaled_error(M, back, case.a) < 100 * allowed


def check_refusal(solver, case: Case, match: str):
    """Every public call must refuse the tree, with one sentence that names the solvers that take it."""
    tree, state = case.tree, case.state
    for call in (
        lambda: solver.solve(tree, state, case.b),
        lambda: solver.log_det(tree, state),
        lambda: solver.accelerations(tree, state, case.v, case.tau),
        lambda: solver.factor(tree, state),
    ):
        with pytest.raises(UnsupportedError, match=match):
            call()


def check_solver_or_refusal(solver, case: Case, points: bool):
    """Compare with the definition of M; a solver that says it cannot must refuse the tree, and name those that can.

    `points`: whether some bodies are points or lines, so that their inertia cannot be inverted.
    """
    if case.tree.joint_inertia.any() and not solver.takes_joint_inertia:
        check_refusal(
            solver, case, "no joint inertias.*; these have: dense, articulated, spatial-operator, udu, virtual"
        )
    elif solver.inverts_bodies and points:
        check_refusal(
            solver, case, r"no answer at the .*\(chain A\).*; these have: dense, articulated, spatial-oper.*udu$"
        )
    else:
        check_solver(solver, case)


@cache
def random_case(kind: str, n: int, base: str, seed: int, soft: str = "rotor", inertia: bool = False) -> Case:
    return make_case(random_tree(kind, n, seed=seed, base=base, soft=soft, inertia=inertia), seed)


@lru_cache(maxsize=2)
def real_case(path: Path, soft: str) -> Case:
    structure = load(path)
    tree = build_tree(structure, soft)
    if tree.n_dof > 2000:  # dense would need hours: the protein alone, and the whole system in test_solvated_system
        tree = build_tree(structure.subset("protein"), soft)
    return make_case(tree)


SIZES = [
    ("serial", 4), ("serial", 40), ("serial", 303), ("branched", 20), ("branched", 300), ("star", 30), ("star", 120),
    ("forest", 30), ("forest", 200),
]  # fmt: skip


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize(("kind", "n"), SIZES)
@pytest.mark.parametrize("name", FAST)
def test_random_trees(name, kind, n, base):
    for seed in range(1 if n > 100 else 3):
        check_solver(get_solver(name), random_case(kind, n, base, seed))


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize(
    ("kind", "n"), [("serial", 40), ("branched", 20), ("branched", 100), ("star", 30), ("forest", 60)]
)
@pytest.mark.parametrize(
    ("soft", "inertia"), [("rotor", True), ("heavy", False), ("heavy", True), ("all", False), ("all", True)]
)
@pytest.mark.parametrize("name", EVERY)
def test_every_coordinate_soft_and_joint_inertia(name, soft, inertia, kind, n, base):
    check_solver_or_refusal(get_solver(name), random_case(kind, n, base, 1, soft, inertia), points=soft != "rotor")


@cache
def peptide_case(soft: str, inertia: bool) -> Case:
    tree = build_tree(load(DATA / "ala10-helix.pdb"), soft)
    return make_case(with_random_inertia(tree, np.random.default_rng(4)) if inertia else tree)


@pytest.mark.parametrize("inertia", [False, True])
@pytest.mark.parametrize("soft", [BENDS, "heavy", "all"])
@pytest.mark.parametrize("name", EVERY)
def test_every_coordinate_of_a_peptide(name, soft, inertia):
    check_solver_or_refusal(get_solver(name), peptide_case(soft, inertia), points=soft == "all")


# the solver varies fastest, so that each structure's dense answers are computed once
@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("soft", ["phi psi chi", BENDS], ids=["torsions", "with-angles"])
@pytest.mark.parametrize("path", all_paths(), ids=lambda p: p.name)
def test_real_structures(path, soft, name):
    check_solver(get_solver(name), real_case(path, soft))


@pytest.mark.parametrize("name", list_solvers())
def test_no_degrees_of_freedom(name):
    tree = build_tree(beads([-1, 0, 1, -1], np.random.default_rng(0)), soft="none", base="fixed")
    assert tree.n_dof == 0
    solver = get_solver(name)
    assert solver.log_det(tree, tree.reference) == 0.0
    assert solver.solve(tree, tree.reference, np.zeros(0)).shape == (0,)
    assert solver.accelerations(tree, tree.reference, np.zeros(0), np.zeros(0)).shape == (0,)


@cache
def solvated_case() -> tuple[TreeModel, State, np.ndarray, np.ndarray]:
    tree = build_tree(load(VILLIN_IN_WATER))
    rng = np.random.default_rng(0)
    state = random_state(tree, rng)
    x = rng.normal(size=tree.n_dof)
    return tree, state, x, tree.momenta(state, x)


@pytest.mark.parametrize("name", FAST)
def test_solvated_system(name):
    """Protein, waters and ions together: M is block diagonal over molecules, and so are the answers."""
    tree, state, x, momenta = solvated_case()
    found = get_solver(name).solve(tree, state, momenta)
    points = tree.joint[tree.parent < 0] == POINT
    assert points.any()
    assert np.abs(found - x).max() < 1e-9


@cache
def pinocchio_case(kind: str, n: int, base: str = "free", soft: str = "rotor", inertia: bool = False) -> Case:
    """A tree with Pinocchio's answers; of a peptide with all residues for the kind "all20"."""
    if kind == "all20":
        tree = build_tree(load(DATA / "all20.pdb"), soft, base)
    else:
        tree = random_tree(kind, n, seed=5, base=base, soft=soft, inertia=inertia)
    rng = np.random.default_rng(6)
    state = random_state(tree, rng)
    oracle = PinocchioTree(tree, state)
    M = oracle.mass_matrix()
    assert np.abs(M - mass_matrix(tree, state)).max() < 1e-9 * np.abs(M).max()
    b, v, tau, a = rng.normal(size=(4, tree.n_dof))
    log_det = float(np.linalg.slogdet(M)[1])
    forward = oracle.accelerations(v, tau)
    return Case(tree, state, M, b, v, tau, a, oracle.solve(b), log_det, forward, inverse_dynamics(tree, state, v, a))


def check_with_pinocchio(name: str, case: Case) -> None:
    solver, tree, state = get_solver(name), case.tree, case.state
    assert scaled_error(case.M, solver.solve(tree, state, case.b), case.solution) < 1e-9
    assert scaled_error(case.M, solver.accelerations(tree, state, case.v, case.tau), case.acceleration) < 1e-9


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize(("kind", "n"), [("serial", 103), ("branched", 150), ("star", 60), ("forest", 90)])
@pytest.mark.parametrize("name", list_solvers())
def test_pinocchio(name, kind, n, base):
    check_with_pinocchio(name, pinocchio_case(kind, n, base))


INERTIAL = [name for name in EVERY if get_solver(name).takes_joint_inertia]


@pytest.mark.parametrize(
    ("name", "soft"),
    [(name, soft) for name in INERTIAL for soft in ("rotor", "all") if soft == "rotor" or name != "virtual-work"],
)
def test_pinocchio_with_joint_inertia(name, soft):
    check_with_pinocchio(name, pinocchio_case("branched", 60, soft=soft, inertia=True))


@pytest.mark.parametrize("name", list_solvers())
def test_pinocchio_on_a_peptide_with_bends(name):
    check_with_pinocchio(name, pinocchio_case("all20", 0, soft=BENDS))


@pytest.mark.parametrize("name", list_solvers())
def test_root_choice_does_not_change_log_det(name):
    structure = load(DATA / "all20.pdb")
    values = []
    for root in (0, structure.n_atoms // 2, structure.n_atoms - 1):
        tree = build_tree(structure, BENDS, root=root)
        values.append(get_solver(name).log_det(tree, tree.reference))
    assert np.ptp(values) < 1e-10


@pytest.mark.parametrize("name", list_solvers())
def test_mass_sharing_does_not_change_log_det(name):
    from dataclasses import replace

    from peptidyn.model.build import reference_geometry

    tree = build_tree(load(DATA / "ala10-helix.pdb"), "phi psi chi methyl")
    rng = np.random.default_rng(3)
    # any other division of the shared masses between the units that hold them
    weight = tree.share_weight * rng.uniform(0.5, 1.5, len(tree.share_weight))
    weight /= np.bincount(tree.share_atom, weights=weight)[tree.share_atom]
    other = replace(tree, share_weight=weight)
    other = replace(other, **reference_geometry(other, tree.positions(tree.reference), tree.masses))
    assert not np.allclose(other.link_mass, tree.link_mass)
    solver = get_solver(name)
    assert abs(solver.log_det(tree, tree.reference) - solver.log_det(other, other.reference)) < 1e-10


@pytest.mark.parametrize("name", list_solvers())
def test_same_bits_twice_and_inputs_unchanged(name):
    tree = build_tree(build_peptide("AWPK"), BENDS)
    rng = np.random.default_rng(0)
    state = random_state(tree, rng)
    b, v = rng.normal(size=(2, tree.n_dof))
    kept = b.copy(), v.copy(), state.q.copy()
    solver = get_solver(name)
    assert np.array_equal(solver.solve(tree, state, b), solver.solve(tree, state, b))
    assert solver.log_det(tree, state) == solver.log_det(tree, state)
    assert np.array_equal(solver.accelerations(tree, state, v, b), solver.accelerations(tree, state, v, b))
    assert np.array_equal(b, kept[0]) and np.array_equal(v, kept[1]) and np.array_equal(state.q, kept[2])


@pytest.mark.parametrize("name", list_solvers())
def test_a_kept_factor_does_not_change_with_later_calls(name):
    tree = build_tree(build_peptide("AWPK"), BENDS)
    rng = np.random.default_rng(0)
    state, other = random_state(tree, rng), random_state(tree, rng)
    b = rng.normal(size=(tree.n_dof, 2))
    solver = get_solver(name)
    factor = solver.factor(tree, state)
    before = factor.solve(b), factor.log_det()
    solver.solve(tree, other, b)
    solver.accelerations(tree, other, b[:, 0], b[:, 1])
    solver.factor(tree, other)
    assert np.array_equal(factor.solve(b), before[0])
    assert factor.log_det() == before[1]


@pytest.mark.parametrize("name", list_solvers())
def test_calls_on_several_threads_do_not_meet(name):
    tree = build_tree(build_peptide("AWPK"), BENDS)
    rng = np.random.default_rng(0)
    states = [random_state(tree, rng) for _ in range(8)]
    b, v = rng.normal(size=(2, tree.n_dof))
    solver = get_solver(name)

    def answers(state):
        return solver.solve(tree, state, b), solver.log_det(tree, state), solver.accelerations(tree, state, v, b)

    alone = [answers(state) for state in states]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(answers, states * 10))
    for place, found in enumerate(together):
        assert all(np.array_equal(x, y) for x, y in zip(found, alone[place % len(states)], strict=True))


@pytest.mark.parametrize("name", list_solvers())
def test_no_solver_keeps_a_tree_alive(name):
    tree = build_tree(build_peptide("AA"))
    solver = get_solver(name)
    solver.solve(tree, tree.reference, np.ones(tree.n_dof))
    solver.log_det(tree, tree.reference)
    gone = weakref.ref(tree)
    del tree
    gc.collect()
    assert gone() is None


def test_a_factor_belongs_to_one_call_until_it_has_answered():
    """And goes when its tree does: the next tree may come to lie in the same place."""
    tree = build_tree(build_peptide("AA"))
    solver = type(get_solver("udu"))()
    take, place = solver.pool.take, id(tree)
    first, second = solver._ask(tree, tree.reference, lambda factor, tree=tree: (factor, take(tree)))
    assert first is not second
    assert take(tree) is first and take(tree) not in (first, second)
    assert place in solver.pool._free
    del tree
    gc.collect()
    assert place not in solver.pool._free


def test_log_det_at_three_thousand_torsions():
    tree = bead_chain(3003, 0.15, np.deg2rad(110), 12.0, torsion=np.deg2rad(65))
    rng = np.random.default_rng(0)
    state = tree.reference.replace(torsions=rng.uniform(-np.pi, np.pi, tree.n_torsions))
    values = np.array([get_solver(name).log_det(tree, state) for name in FAST])
    assert np.ptp(values) < 1e-9 * np.abs(values).max(), dict(zip(FAST, values, strict=True))


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", list_solvers())
def test_wrong_arguments_are_named(name):
    tree = bead_chain(6, 0.15, 1.9, 1.0)
    solver, state = get_solver(name), tree.reference
    with pytest.raises(ArgumentError, match=r"b has shape \(4,\), expected \(9,\)"):
        solver.solve(tree, state, np.zeros(4))
    with pytest.raises(ArgumentError, match="b holds values that are not finite"):
        solver.solve(tree, state, np.full(9, np.nan))
    with pytest.raises(ArgumentError, match="tau has shape"):
        solver.accelerations(tree, state, np.zeros(9), np.zeros(3))
    with pytest.raises(ArgumentError, match="velocities holds values"):
        solver.accelerations(tree, state, np.full(9, np.inf), np.zeros(9))


@pytest.mark.parametrize("bead", ["last", "middle"])
@pytest.mark.parametrize("name", list_solvers())
def test_a_straight_angle_is_noticed_every_time(name, bead):
    """Its torsion turns nothing, or just what the next one turns, but for rounding errors."""
    rng = np.random.default_rng(3)
    for n, far in ((n, far) for n in range(5, 11) for far in (0.0, 5.0)):
        chain = bead_chain(n, 0.15, 1.9, rng.uniform(1, 16, n), torsion=rng.uniform(-3, 3, n - 3))
        x = chain.positions(chain.reference) + far
        k = n - 1 if bead == "last" else n // 2
        x[k:] += 2 * x[k - 1] - x[k - 2] - x[k]
        straight = chain.with_geometry(x)
        with pytest.raises(SolverError, match="singular"):
            get_solver(name).solve(straight, straight.reference, np.ones(straight.n_dof))


@pytest.mark.parametrize("name", list_solvers())
def test_the_state_of_another_tree_is_refused(name):
    tree, other = bead_chain(6, 0.15, 1.9, 1.0), bead_chain(7, 0.15, 1.9, 1.0)
    solver, b = get_solver(name), np.ones(tree.n_dof)
    with pytest.raises(ArgumentError, match="another tree"):
        solver.solve(tree, other.reference, b)
    with pytest.raises(ArgumentError, match="another tree"):
        solver.log_det(tree, other.reference)
    with pytest.raises(ArgumentError, match="another tree"):
        solver.accelerations(tree, other.reference, b, b)


@pytest.mark.parametrize("name", list_solvers())
def test_a_collinear_molecule_is_refused(name):
    pair = build_tree(beads([-1, 0], np.random.default_rng(0)), soft="rotor")
    with pytest.raises(SolverError, match="singular"):
        get_solver(name).solve(pair, pair.reference, np.ones(6))
    with pytest.raises(SolverError, match="singular"):
        get_solver(name).log_det(pair, pair.reference)


@pytest.mark.parametrize("name", FAST)
def test_the_singular_body_is_named(name):
    pair = build_tree(beads([-1, 0], np.random.default_rng(0)), soft="rotor")
    with pytest.raises(SolverError, match="MOL 1"):
        get_solver(name).log_det(pair, pair.reference)


def test_unknown_solver_lists_the_known():
    with pytest.raises(ArgumentError, match=r"unknown solver 'abc'; the solvers are: dense, articulated, fixman"):
        get_solver("abc")


def test_options_of_a_solver_follow_its_name():
    assert get_solver("spatial-operator:fd2").name == "spatial-operator:fd2"
    with pytest.raises(ArgumentError, match="fd9"):
        get_solver("spatial-operator:fd9")
    with pytest.raises(ArgumentError, match="takes no option"):
        get_solver("udu:fast")


def test_missing_quantities_name_the_solvers_that_have_them():
    tree = bead_chain(6, 0.15, 1.9, 1.0)
    with pytest.raises(UnsupportedError, match="virtual-work"):
        get_solver("udu").constraint_forces(tree, tree.reference, np.zeros(9), np.zeros(9))
    with pytest.raises(UnsupportedError, match="spatial-operator"):
        get_solver("fixman").square_root(tree, tree.reference, np.zeros(9))


# ---------------------------------------------------------------------------- broken on purpose


class _BrokenFactor(Factor):
    def __init__(self, M):
        self.M = M

    def solve(self, b):
        return np.linalg.solve(self.M, b)

    def log_det(self):
        return float(np.linalg.slogdet(self.M)[1])


class ForgetsSiblings(DenseSolver):
    """Treats branches of one body as if they did not feel each other: the mass matrix lacks their base coupling."""

    name = "forgets-siblings"

    def _factor(self, tree, state):
        M = mass_matrix(tree, state)
        M[:3, 3:6] = M[3:6, :3] = 0.0
        return _BrokenFactor(M)


class ForgetsVelocities(DenseSolver):
    """Forward dynamics without centrifugal and Coriolis terms."""

    name = "forgets-velocities"

    def _accelerations(self, tree, state, v, tau):
        return self._factor(tree, state).solve(tau[:, None])[:, 0]


class WeldsTheBase(DenseSolver):
    """ln det M over the soft coordinates alone, as if the base could not move."""

    name = "welds-the-base"

    def _factor(self, tree, state):
        M = mass_matrix(tree, state)
        factor = _BrokenFactor(M)
        soft = np.ix_(tree.coordinate_dof, tree.coordinate_dof)
        factor.log_det = lambda: float(np.linalg.slogdet(M[soft])[1])
        return factor


class ForgetsJointInertia(DenseSolver):
    """Says that it takes joint inertias and leaves them out."""

    name = "forgets-joint-inertia"

    def _factor(self, tree, state):
        return super()._factor(tree.with_joint_inertia(np.zeros(tree.n_coordinates)), state)


@pytest.mark.parametrize("broken", [ForgetsSiblings, ForgetsVelocities, WeldsTheBase, ForgetsJointInertia])
def test_broken_solvers_are_caught(broken):
    case = make_case(random_tree("branched", 20, seed=0, inertia=True))
    check_solver(get_solver("udu"), case)
    with pytest.raises(AssertionError):
        check_solver(broken(), case)


# ---------------------------------------------------------------------------- many states at once


@pytest.mark.parametrize("name", ["forest", "branched", "fixed", "all20", "with-angles"])
def test_many_states_agree_with_single_ones(name):
    """Four states side by side, and a rest that fills the lanes only in part, against another solver."""
    tree = {
        "forest": lambda: random_tree("forest", 30, seed=1),
        "branched": lambda: random_tree("branched", 60, seed=2),
        "fixed": lambda: random_tree("branched", 20, seed=3, base="fixed"),
        "all20": lambda: build_tree(load(DATA / "all20.pdb"), "phi psi chi"),
        "with-angles": lambda: build_tree(load(DATA / "ala3.pdb"), BENDS),
    }[name]()
    rng = np.random.default_rng(0)
    states = [random_state(tree, rng) for _ in range(7)]
    v, tau = rng.normal(size=(2, 7, tree.n_dof))
    solver = get_solver("articulated")
    q, rotation = np.stack([s.q for s in states]), np.stack([s.base_rotation for s in states])
    found = solver.accelerations_of_states(tree, q, v, tau, rotation)
    for k, state in enumerate(states):
        expected = get_solver("udu").accelerations(tree, state, v[k], tau[k])
        assert scaled_error(mass_matrix(tree, state), found[k], expected) < 1e-9


def test_many_states_are_checked():
    tree = random_tree("branched", 20, seed=3)
    solver = get_solver("articulated")
    q, v = np.zeros((3, tree.n_coordinates)), np.zeros((3, tree.n_dof))
    with pytest.raises(ArgumentError, match=r"q has shape"):
        solver.accelerations_of_states(tree, q[0], v, v)
    with pytest.raises(ArgumentError, match=r"tau has shape \(2, "):
        solver.accelerations_of_states(tree, q, v, v[:2])
    with pytest.raises(ArgumentError, match="velocities holds values that are not finite"):
        solver.accelerations_of_states(tree, q, v + np.nan, v)


def test_sines_of_any_angle():
    """To one unit in the last place of 1, over many turns and beyond the range of the fast path."""
    from peptidyn.kernels.passes import sines

    for size in (1e-8, 1.0, 100.0, 9e4, 1e7):
        x = np.random.default_rng(0).uniform(-size, size, 1001)
        s, c = np.empty((2, 1001))
        sines(x, s, c)
        assert max(np.abs(s - np.sin(x)).max(), np.abs(c - np.cos(x)).max()) < 2.3e-16
