"""The compiled passes on molecules of a few atoms, against dense algebra and finite differences.

They are small enough to run uncompiled (NUMBA_DISABLE_JIT=1 PEPTIDYN_LANES=plain): faults in them are tried that way.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from random_trees import beads, random_state, with_random_inertia
from scipy.spatial.transform import Rotation
from scripted_random import Script

import peptidyn as ptd
from peptidyn.core.errors import SolverError
from peptidyn.integrators.mover import Mover
from peptidyn.kernels import motions
from peptidyn.kernels.compiling import on_disk
from peptidyn.kernels.motions import DRIFT_ITERATIONS, _mix, _turn_base
from peptidyn.model.build import build_tree
from peptidyn.solvers.dense import mass_matrix
from peptidyn.solvers.dynamics import bias_forces

PARENTS = [-1, 0, 1, 2, 3, 2, -1]
"""A branched molecule of six atoms, and a point."""


def make_tree(soft="all", parents=PARENTS):
    rng = np.random.default_rng(3)
    return with_random_inertia(build_tree(beads(parents, rng), soft=soft), rng)


def at_random(tree, seed=0, kT=1.0):
    rng = np.random.default_rng(seed)
    mover = Mover(tree, random_state(tree, rng))
    mover.thermalise(0.0, kT, rng)
    mover.flush()
    return mover


@pytest.mark.parametrize("soft", ["rotor", "all"])
def test_ln_det_and_solutions_are_those_of_the_dense_matrix(soft):
    tree = make_tree(soft)
    mover = at_random(tree)
    M = mass_matrix(tree, mover.state)
    log_det = np.linalg.slogdet(M)[1]
    assert mover.fixman_energy() == pytest.approx(0.5 * log_det - tree.log_jacobian(mover.q), abs=1e-9)
    assert np.abs(M @ mover.velocities() - mover.momentum).max() < 1e-9 * np.abs(mover.momentum).max()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_masses_of_any_size_have_a_determinant(scale):
    """ln det (s M) = n ln s + ln det M, also where det M itself is no number."""
    tree = make_tree().with_joint_inertia(np.zeros(12))
    one, other = (Mover(t).fixman_energy() for t in (tree, tree.with_masses(scale * tree.masses)))
    assert other - one == pytest.approx(0.5 * tree.n_dof * np.log(scale), rel=1e-12)


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_the_diagonal_of_the_inverse_is_that_of_the_dense_matrix(base):
    """Of two branched molecules and a point, or of one whose first body is held."""
    rng = np.random.default_rng(4)
    parents = PARENTS[:-1] if base == "fixed" else [*PARENTS, -1, 7, 8, 9, 8]
    tree = with_random_inertia(build_tree(beads(parents, rng), soft="all", base=base), rng)
    solver, state = ptd.get_solver("articulated"), random_state(tree, rng)
    wanted = np.diag(np.linalg.inv(mass_matrix(tree, state)))[tree.coordinate_dof]
    for _ in range(2):  # what is left of a factor does not disturb the next
        assert solver.inverse_diagonal(tree, state) == pytest.approx(wanted, rel=1e-9)


def test_noise_has_the_covariance_of_the_mass_matrix():
    """Columns L e_i of the square root, one by one: L L^T = M."""
    tree = make_tree()
    mover = at_random(tree)
    L = np.empty((tree.n_dof, tree.n_dof))
    for i, e in enumerate(np.eye(tree.n_dof)):
        mover.thermalise(0.0, 1.0, Script([e]))
        L[:, i] = mover.momentum
    M = mass_matrix(tree, mover.state)
    assert np.abs(L @ L.T - M).max() < 1e-10 * np.abs(M).max()


def test_molecules_that_cannot_bend_are_left_out_wherever_they_stand():
    """Points and rigid molecules around two chains: ln det of the whole matrix, and its slopes."""
    rng = np.random.default_rng(6)
    tree = build_tree(beads([-1, -1, 1, 2, 3, 4, -1, 6, 7, -1, 9, 10, 11, -1], rng), soft="rotor")
    assert tree.coordinate.tolist() == [-1, -1, 0, 1, -1, -1, 2, -1]
    potential, q, h = ptd.FixmanPotential(tree, 300.0), random_state(tree, rng).q, 1e-5

    def log_det(q):
        return np.linalg.slogdet(mass_matrix(tree, tree.reference.replace(q=q)))[1]

    steps = h * np.eye(len(q))
    slopes = [(log_det(q + step) - log_det(q - step)) / (2 * h) for step in steps]
    assert potential.log_metric(q[None])[0] == pytest.approx(log_det(q), abs=1e-9)
    torque = potential.torque(tree.reference.replace(q=q))[tree.coordinate_dof]
    assert torque == pytest.approx(-0.5 * potential.kT * np.array(slopes), rel=1e-6, abs=1e-7)


def test_the_fixman_torque_is_the_slope_of_the_energy():
    tree = make_tree()
    mover = at_random(tree)
    torque, state, h = mover.fixman_torque(), mover.state, 1e-5
    assert np.array_equal(Mover(tree, state).fixman_torque(), torque)  # asked for before anything else was computed
    for k in range(tree.n_coordinates):
        ends = []
        for sign in (1, -1):
            q = state.q.copy()
            q[k] += sign * h
            mover.set_state(state.replace(q=q))
            ends.append(mover.fixman_energy())
        assert torque[tree.coordinate_dof[k]] == pytest.approx(-(ends[0] - ends[1]) / (2 * h), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("heavy", [slice(None), slice(1), slice(-1, None)], ids=["all", "first", "last"])
@pytest.mark.parametrize("soft", ["rotor", "all"])
def test_a_drift_solves_its_equation_to_the_last_digits(soft, heavy):
    """J0^T m (x1 - x0) / h + a (q1 - q0) / h = p0, and p1 with J1; an error of 1e-5 rad would be 1e-3 of p.

    Joints have inertias, or only the first or the last of them has.
    """
    tree, h = make_tree(soft), 0.002
    inertia = np.zeros(tree.n_coordinates)
    inertia[heavy] = 0.3 if heavy != slice(None) else tree.joint_inertia
    tree = tree.with_joint_inertia(inertia)
    mover = at_random(tree, kT=2.5)
    state, p = mover.state, mover.momentum.copy()
    assert mover.drift(h)
    assert mover.iterations.max() < 15 and mover.fallbacks == 0  # corrections shrink
    end = mover.state
    push = tree.masses[:, None] * (tree.positions(end) - tree.positions(state)) / h
    joints = np.zeros(tree.n_dof)
    joints[tree.coordinate_dof] = tree.joint_inertia * (end.q - state.q) / h
    assert np.abs(end.q - state.q).max() > 1e-3
    assert np.abs(tree.generalized_forces(state, push) + joints - p).max() < 1e-10 * np.abs(p).max()
    assert np.abs(tree.generalized_forces(end, push) + joints - mover.momentum).max() < 1e-10 * np.abs(p).max()


def test_a_base_is_turned_on_top_of_what_it_was_turned_before():
    """Quaternions of scipy: the turn by w comes after the one that is there, and the result has length one."""
    rng = np.random.default_rng(5)
    for w in (rng.normal(size=3), 1e-9 * rng.normal(size=3)):
        rotation = rng.normal(size=4)
        before = Rotation.from_quat(rotation, scalar_first=True)
        assert _turn_base(*w, rotation) == pytest.approx(np.linalg.norm(w), rel=1e-14)
        assert np.linalg.norm(rotation) == pytest.approx(1.0, abs=1e-14)
        after = Rotation.from_rotvec(w) * before
        assert np.abs(Rotation.from_quat(rotation, scalar_first=True).as_matrix() - after.as_matrix()).max() < 1e-14


BEADS = ptd.bead_chain(5, 0.15, 1.9, [12.0, 3.0, 7.0, 1.0, 5.0], torsion=[1.0, 2.0])
HELD = ptd.bead_chain(5, 0.15, 1.9, [12.0, 3.0, 7.0, 1.0, 5.0], torsion=[1.0, 2.0], base="fixed")


def residuals(tree, before, p, mover, h):
    """Return what is left of both equations of a drift, relative to the momenta."""
    after = mover.state
    push = tree.masses[:, None] * (tree.positions(after) - tree.positions(before)) / h
    joints = np.zeros(tree.n_dof)
    joints[tree.coordinate_dof] = tree.joint_inertia * (after.q - before.q) / h
    begin, end = (tree.generalized_forces(state, push) + joints for state in (before, after))
    return np.abs(begin - p).max() / np.abs(p).max(), np.abs(end - mover.momentum).max() / np.abs(p).max()


@pytest.mark.parametrize(
    ("tree", "seeds"),
    [
        (BEADS, (2, 23, 34, 45)),
        (BEADS.with_joint_inertia([0.05, 0.1]), (15, 21, 27)),
        (HELD, (20, 31, 33, 35)),
        (make_tree("all", [-1, 0, 1, 2, 3]), (23, 26, 28, 29)),
        (build_tree(beads([-1, -1, 1, 2, 3, 4], np.random.default_rng(3)), soft="rotor"), (6, 59)),
    ],
    ids=["free", "joint inertias", "held", "all soft, with inertias", "behind a point"],
)
def test_drifts_that_need_anderson_solve_the_same_equation(tree, seeds):
    """Momenta of 25 times thermal size."""
    h, needed = 0.004, 0
    for seed in seeds:
        mover = at_random(tree, seed, 25.0**2 * 2.5)
        before, p = mover.state, mover.momentum.copy()
        if not mover.drift(h) or mover.iterations.max() <= DRIFT_ITERATIONS:
            continue
        needed += 1
        assert DRIFT_ITERATIONS + 5 < mover.iterations.max() < DRIFT_ITERATIONS + 70 and mover.fallbacks == 1
        assert max(residuals(tree, before, p, mover, h)) < 1e-9
        exact = Mover(tree, before, p)  # asked for more digits than there are, it ends where rounding begins
        assert exact.drift(h, 1e-300) and np.abs(exact.q - mover.q).max() < 1e-9
        assert 0 < exact.iterations.max() - mover.iterations.max() < 20
        if needed == 2:
            break
    assert needed == 2


def test_a_drift_without_a_solution_leaves_everything_as_it_was():
    mover = at_random(BEADS, 3, 25.0**2 * 2.5)
    before, p = mover.state, mover.momentum.copy()
    assert not mover.drift(0.004) and mover.iterations[0] == -1 and mover.fallbacks == 0
    after = mover.state
    for name in ("q", "base_position", "base_rotation"):
        assert np.array_equal(getattr(after, name), getattr(before, name))
    assert np.array_equal(mover.momentum, p)


def test_drifts_that_converge_slowly_do_so_to_the_last_digits():
    """Corrections that shrink by less than a third at a time are no rounding errors before they are as small."""
    slow, h = 0, 0.004
    for seed in range(40):
        mover = at_random(HELD, seed, 14.0**2 * 2.5)
        before, p = mover.state, mover.momentum.copy()
        if mover.drift(h) and 25 < mover.iterations[0] <= DRIFT_ITERATIONS:
            slow += 1
            assert mover.fallbacks == 0 and max(residuals(HELD, before, p, mover, h)) < 1e-9
            if slow == 2:
                break
    assert slow == 2


@pytest.mark.parametrize("soft", ["rotor", "all"])
def test_a_drift_ends_where_rounding_begins(soft):
    """Asked for more digits than there are, it is done as soon as corrections shrink no more."""
    tree, h = make_tree(soft), 0.002
    mover = at_random(tree, kT=2.5)
    before, p = mover.state, mover.momentum.copy()
    assert mover.drift(h, 0.0) and mover.fallbacks == 0
    assert 3 < mover.iterations[0] < 20 and mover.iterations[1] <= 3  # a point needs one
    assert max(residuals(tree, before, p, mover, h)) < 1e-12


def test_less_than_all_digits_take_fewer_iterations():
    counts, ends = [], []
    for tolerance in (1e-4, 1e-8, 1e-13):
        mover = at_random(make_tree(), kT=2.5)
        assert mover.drift(0.002, tolerance)
        counts.append(int(mover.iterations[0]))
        ends.append(mover.q.copy())
    assert counts[0] < counts[1] < counts[2]
    assert 1e-13 < np.abs(ends[0] - ends[2]).max() < 1e-4 and np.abs(ends[1] - ends[2]).max() < 1e-8


def test_rigid_bodies_and_points_drift_by_themselves():
    """Nothing to solve but the turn of a body; a point goes straight on."""
    tree = build_tree(beads([-1, 0, 1, -1, -1, 4, 5, 4], np.random.default_rng(4)), soft="none")
    assert tree.n_coordinates == 0 and tree.n_molecules == 3
    mover = at_random(tree, kT=2.5 * 10.0**2)
    before, p, h = mover.state, mover.momentum.copy(), 0.004
    assert mover.drift(h)
    assert max(residuals(tree, before, p, mover, h)) < 1e-12
    assert min(mover.iterations[[0, 2]]) > 2
    point = tree.molecule_dof[1] + np.arange(3)
    assert mover.base_position[1] == pytest.approx(before.base_position[1] + h * p[point] / tree.masses[3], rel=1e-12)
    assert np.array_equal(mover.base_rotation[1], before.base_rotation[1])
    assert np.array_equal(mover.momentum[point], p[point]) or mover.momentum[point] == pytest.approx(p[point], rel=1e-9)


def test_what_was_asked_before_does_not_change_a_drift():
    """To the last bit: wrenches and twists that other moves leave behind are nothing to it."""
    mover, other = at_random(make_tree(), kT=2.5), at_random(make_tree(), kT=2.5)
    other.atom_velocities()
    other.fixman_torque()
    other.project(np.random.default_rng(1).normal(size=(other.tree.n_atoms, 3)))
    assert np.array_equal(mover.velocities(), other.velocities())
    fresh = Mover(mover.tree, mover.state, mover.momentum)
    for one in (mover, other, fresh):
        assert one.drift(0.002)
        assert np.array_equal(one.q, mover.q) and np.array_equal(one.momentum, mover.momentum)
        assert np.array_equal(one.iterations, mover.iterations)
        assert np.array_equal(one.velocities(), mover.velocities())


@pytest.mark.parametrize("used", [1, 2, 5])
def test_the_mixture_of_anderson_is_the_nearest_one(used):
    """Least squares by numpy; a row of zeros counts nothing."""
    rng = np.random.default_rng(used)
    df, f, mix = rng.normal(size=(5, 9)), rng.normal(size=9), np.full(5, np.nan)
    _mix(df, f, used, mix)
    assert mix[:used] == pytest.approx(np.linalg.lstsq(df[:used].T, f)[0], rel=1e-8)
    df[used - 1] = 0.0
    _mix(df, f, used, mix)
    rest = np.linalg.lstsq(df[: used - 1].T, f)[0]
    assert mix[:used] == pytest.approx([*rest, 0.0], rel=1e-8, abs=1e-12)


def test_angles_do_not_pass_180_degrees():
    """Three beads with a free angle that opens: the drift that would carry it beyond fails, and says which it was."""
    chain = build_tree(beads([-1, 0, 1], np.random.default_rng(1)), soft="all").with_joint_inertia([1e3, 1e3, 1e3])
    bend = int(chain.bend_index[0])
    q = chain.q_reference.copy()
    q[bend] = np.pi - 0.05
    mover = Mover(chain, chain.reference.replace(q=q))
    mover.momentum[chain.coordinate_dof[bend]] = 1e3 * 0.1 / 0.01
    mover.momentum = mover.momentum
    assert not mover.drift(0.01) and mover.out_of_range == bend
    mover.momentum[chain.coordinate_dof[bend]] *= 0.4
    assert mover.drift(0.01)


def test_singular_matrices_are_noticed():
    """A torsion beyond a straight angle turns nothing; a rod has no inertia about its axis."""
    tree = build_tree(beads([-1, 0, 1, 2], np.random.default_rng(2)), soft="rotor bends")
    q = tree.q_reference.copy()
    q[tree.bend_index[-1]] = np.pi
    straight = tree.reference.replace(q=q)
    mover = Mover(tree, straight)
    with pytest.raises(SolverError, match="singular"):
        mover.velocities()
    mover.set_state(tree.reference)
    assert not mover.velocities().any()  # a matrix that is not singular counts for itself
    with pytest.raises(SolverError, match="singular"):
        ptd.get_solver("articulated").log_det(tree, straight)
    for seed in range(8):  # what is left of a sum that should be zero is positive here and negative there
        chain = build_tree(beads([-1, 0, 1, 2], np.random.default_rng(seed)), soft="rotor bends")
        q = chain.q_reference.copy()
        q[chain.bend_index[-1]] = np.pi
        with pytest.raises(SolverError, match="singular"):
            Mover(chain, chain.reference.replace(q=q)).velocities()
    for parents in ([-1, 0], [-1, 0, -1, 2, 3], [-1, 0, 1, -1, 3]):  # alone, and before and after another molecule
        rod = build_tree(beads(parents, np.random.default_rng(2)), soft="rotor")
        with pytest.raises(SolverError, match="singular"):
            Mover(rod).velocities()


@pytest.mark.parametrize("parents", [PARENTS, [-1, 0, 1, 2, -1, 4, 5, 6, 5, -1, 9, 10]], ids=["and a point", "three"])
def test_molecules_do_not_feel_each_other(parents):
    """M^-1 b of whole systems is that of dense algebra, for one column and for many; so are accelerations."""
    tree = make_tree("all", parents)
    rng = np.random.default_rng(2)
    state, solver = random_state(tree, rng), ptd.get_solver("articulated")
    M, b = mass_matrix(tree, state), rng.normal(size=(tree.n_dof, 3))
    wanted = np.linalg.solve(M, b)
    scale = np.abs(wanted).max()
    assert np.abs(solver.solve(tree, state, b) - wanted).max() < 1e-9 * scale
    for k in range(3):  # nothing is left of the one before
        assert np.abs(solver.solve(tree, state, b[:, k]) - wanted[:, k]).max() < 1e-9 * scale
    assert solver.log_det(tree, state) == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-9)
    v, tau = rng.normal(size=(2, tree.n_dof))
    wanted = np.linalg.solve(M, tau - bias_forces(tree, state, v))
    assert np.abs(solver.accelerations(tree, state, v, tau) - wanted).max() < 1e-8 * np.abs(wanted).max()


def test_the_fixman_torque_of_one_torsion():
    """The least there is: ln det M of four beads in closed form, 35 + 4 c - 16 c^2 + c^4 with c = -cos q, twice."""
    chain = ptd.bead_chain(4, 1.0, np.pi / 2, 1.0)
    for q in (0.4, 1.3, -2.0):
        mover = Mover(chain, chain.reference.replace(torsions=[q]))
        c, slope = -np.cos(q), np.sin(q)
        wanted = -0.5 * (4 - 32 * c + 4 * c**3) * slope / (35 + 4 * c - 16 * c**2 + c**4)
        assert mover.fixman_torque() == pytest.approx([0.0] * 6 + [wanted], abs=1e-10)
        assert mover.fixman_energy() == pytest.approx(0.5 * np.log(2 * (35 + 4 * c - 16 * c**2 + c**4)), rel=1e-11)


def test_whether_kernels_were_compiled_before_is_seen_in_the_cache(tmp_path, monkeypatch):
    """Of the same module, name, kind of lanes and state of the sources; others do not count."""
    kernel = SimpleNamespace(
        __module__="peptidyn.kernels.motions", py_func=SimpleNamespace(__qualname__="run_range_vector_0123"),
        _cache=SimpleNamespace(cache_path=str(tmp_path)),
    )  # fmt: skip
    for other in ("motions.run_range_plain_0123", "motions.run_range_vector_9999", "states.run_range_vector_0123"):
        (tmp_path / f"{other}-541.py311.nbi").touch()
    (tmp_path / "motions.run_range_vector_0123-541.py311.1.nbc").touch()
    assert not on_disk(kernel)
    (tmp_path / "motions.run_range_vector_0123-541.py311.nbi").touch()
    assert on_disk(kernel)
    asked = []
    monkeypatch.setattr(motions, "on_disk", lambda kernel: asked.append(kernel) or len(asked) > 1)
    assert [motions.kernels_on_disk(), motions.kernels_on_disk()] == [False, True]
    assert asked == [motions.run_range] * 2
