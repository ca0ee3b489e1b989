"""Dynamics from constraint forces: the forces themselves, split links, joints of several coordinates, weak bodies."""

from __future__ import annotations

import extended_precision
import numpy as np
import pytest
from mechanisms import mechanism, random_inertia, random_mechanism, random_pose
from random_trees import beads, random_state, random_tree, star_parents, with_random_inertia
from real_structures import VILLIN_IN_WATER, load

from peptidyn.core.errors import SolverError, UnsupportedError
from peptidyn.model.build import build_tree
from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC, REVOLUTE, link_twists
from peptidyn.solvers.dense import mass_matrix
from peptidyn.solvers.dynamics import inverse_dynamics
from peptidyn.solvers.protocol import get_solver
from peptidyn.solvers.split_links import FLOATING, GROUND, split_links

VIRTUAL_WORK = get_solver("virtual-work")
BENDS = "phi psi chi omega methyl angles"


def error(found, expected) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def check(tree, state, rng, tolerance=1e-9):
    """Compare solve, log_det and accelerations with the definition of M, and with inverse dynamics."""
    M = mass_matrix(tree, state)
    x = rng.normal(size=(tree.n_dof, 2))
    assert error(VIRTUAL_WORK.solve(tree, state, M @ x), x) < tolerance
    assert VIRTUAL_WORK.log_det(tree, state) == pytest.approx(np.linalg.slogdet(M)[1], abs=tolerance * tree.n_dof)
    v, a = rng.normal(size=(2, tree.n_dof))
    tau = inverse_dynamics(tree, state, v, a)
    assert error(VIRTUAL_WORK.accelerations(tree, state, v, tau), a) < 10 * tolerance


# ---------------------------------------------------------------------------- the forces against Newton and Euler


def moved(tree, state, v, time):
    """Return the state after a short time at velocity v, to first order in it and symmetric in its sign."""
    roots = np.flatnonzero(tree.parent < 0)
    position, rotation = state.base_position.copy(), state.base_rotation.copy()
    for m, root in enumerate(roots):
        if tree.joint[root] != FREE:
            continue
        k = tree.dof[root]
        position[m] += time * v[k + 3 : k + 6]
        half = 0.5 * time * v[k : k + 3]
        w, r = rotation[m, 0], rotation[m, 1:]
        rotation[m] = np.concatenate([[w - half @ r], r + w * half + np.cross(half, r)])
        rotation[m] /= np.linalg.norm(rotation[m])
    return state.replace(q=state.q + time * v[tree.coordinate_dof], base_position=position, base_rotation=rotation)


def body_motion(tree, state, v):
    """Return the angular velocity and the velocity of the centre of mass of every link."""
    links = tree.links(state)
    w, u = np.empty((2, tree.n_links, 3))
    link_twists(tree.parent, tree.joint, tree.dof, links.axis, links.p, v, w, u)
    return w, u + np.cross(w, links.com - links.p)


def check_balance(tree, state, rng):
    """Every body moves by Newton's and Euler's laws under the wrenches of its joints; constraints do no work."""
    v, tau = rng.normal(size=(2, tree.n_dof))
    a = get_solver("dense").accelerations(tree, state, v, tau)
    wrench = VIRTUAL_WORK.constraint_forces(tree, state, v, tau)
    assert wrench.shape == (tree.n_links, 6)
    links = tree.links(state)
    roots = tree.parent < 0
    assert not wrench[roots].any()
    slides = tree.joint == PRISMATIC
    along = np.where(slides[:, None], wrench[:, 3:], wrench[:, :3])
    assert np.abs(np.sum(along * links.axis, axis=1)).max() < 1e-10 * np.abs(wrench).max()

    # accelerations of the bodies by central differences along the motion; the second derivative enters by a
    step = 1e-5
    after = body_motion(tree, moved(tree, state, v + 0.5 * step * a, step), v + step * a)
    before = body_motion(tree, moved(tree, state, v - 0.5 * step * a, -step), v - step * a)
    dw, dc = ((x - y) / (2 * step) for x, y in zip(after, before, strict=True))
    w, _ = body_motion(tree, state, v)
    needed_force = links.mass[:, None] * dc
    needed_torque = np.einsum("lij,lj->li", links.inertia, dw)
    needed_torque += np.cross(w, np.einsum("lij,lj->li", links.inertia, w))

    force, torque = np.zeros((2, tree.n_links, 3))
    for l in range(tree.n_links):
        on_link = wrench[l].copy()
        k = tree.dof[l]
        if tree.joint[l] == FREE:
            on_link = tau[k : k + 6].copy()
        elif tree.joint[l] == POINT:
            on_link[3:] = tau[k : k + 3]
        elif not roots[l]:
            own = tau[k] - tree.joint_inertia[tree.coordinate[l]] * a[k]
            on_link[3 * slides[l] : 3 * slides[l] + 3] += own * links.axis[l]
        force[l] += on_link[3:]
        torque[l] += on_link[:3] + np.cross(links.p[l] - links.com[l], on_link[3:])
        up = tree.parent[l]
        if up >= 0:
            force[up] -= on_link[3:]
            torque[up] -= on_link[:3] + np.cross(links.p[l] - links.com[up], on_link[3:])
    held = tree.joint == FIXED
    scale = np.abs(wrench).max() + np.abs(tau).max()
    assert np.abs(force - needed_force)[~held].max() < 1e-7 * scale
    assert np.abs(torque - needed_torque)[~held].max() < 1e-7 * scale


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize("inertia", [False, True])
@pytest.mark.parametrize(("kind", "n"), [("serial", 12), ("branched", 40), ("star", 30), ("forest", 40)])
def test_forces_balance_on_random_trees(kind, n, inertia, base):
    rng = np.random.default_rng(1)
    tree = random_tree(kind, n, seed=2, base=base, inertia=inertia)
    check_balance(tree, random_state(tree, rng), rng)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("root", [FREE, FIXED])
def test_forces_balance_on_mechanisms(root, share):
    """Joints of several coordinates, of which none, some or all have inertia, of any size."""
    rng = np.random.default_rng(3)
    for seed in range(6):
        tree = random_mechanism(4 + 2 * seed, seed=seed, root=root, massless=0.5)
        chosen = rng.random(tree.n_coordinates) < share
        tree = tree.with_joint_inertia(chosen * 10.0 ** rng.uniform(-3, 3, tree.n_coordinates))
        state = random_pose(tree, rng)
        check_balance(tree, state, rng)
        check(tree, state, rng)


@pytest.mark.parametrize("inertia", [False, True])
def test_forces_balance_on_a_peptide_with_opened_angles(inertia):
    structure = load(VILLIN_IN_WATER).subset("resid 0 to 5")
    rng = np.random.default_rng(4)
    tree = build_tree(structure, BENDS)
    tree = with_random_inertia(tree, rng) if inertia else tree
    assert (tree.link_mass == 0).any()
    check_balance(tree, random_state(tree, rng), rng)


def test_a_joint_inertia_resists_its_own_coordinate():
    """A body with moment 0.9 about its pivot, and 0.3 of the joint itself: tau = 1.2 q''; the pivot feels the body."""
    zeros = np.zeros((2, 3))
    tree = mechanism(
        [-1, 0], [FIXED, REVOLUTE], [(0, 0, 0), (0, 0, 1)], zeros, [1.0, 2.0], [(0, 0, 0), (0.5, 0, 0)],
        [np.eye(3), np.diag([0.2, 0.3, 0.4])],
    ).with_joint_inertia([0.3])  # fmt: skip
    assert VIRTUAL_WORK.accelerations(tree, tree.reference, [3.0], [2.4]) == pytest.approx([2.0], rel=1e-14)
    assert VIRTUAL_WORK.log_det(tree, tree.reference) == pytest.approx(np.log(1.2), rel=1e-13)
    wrench = VIRTUAL_WORK.constraint_forces(tree, tree.reference, [3.0], [2.4])
    assert np.abs(wrench[1] - [0, 0, 0, -2.0 * 0.5 * 9.0, 2.0 * 0.5 * 2.0, 0]).max() < 1e-13


def test_a_turning_arm_pulls_at_its_pivot():
    """A body on a frictionless pivot at rate 3: the pivot supplies m r omega^2 towards itself and no torque."""
    zeros = np.zeros((2, 3))
    inertia = np.diag([0.2, 0.3, 0.4])
    tree = mechanism(
        [-1, 0], [FIXED, REVOLUTE], [(0, 0, 0), (0, 0, 1)], zeros, [1.0, 2.0], [(0, 0, 0), (0.5, 0, 0)],
        [np.eye(3), inertia],
    )  # fmt: skip
    wrench = VIRTUAL_WORK.constraint_forces(tree, tree.reference, [3.0], [0.0])
    assert np.abs(wrench[1] - [0, 0, 0, -2.0 * 0.5 * 9.0, 0, 0]).max() < 1e-14
    assert VIRTUAL_WORK.accelerations(tree, tree.reference, [3.0], [0.9]) == pytest.approx([1.0], rel=1e-14)


# ---------------------------------------------------------------------------- the system of equations of the paper


def test_forces_solve_the_whole_system_of_a_chain():
    """Phi N = alpha, (21) and (33), assembled densely with the corrected t and a, gives the same constraint forces."""
    tree = random_mechanism(6, seed=5, slides=0.0, massless=0.0)
    tree = mechanism(
        np.arange(6) - 1, tree.joint, tree.axis, tree.origin, tree.link_mass, tree.link_com, tree.link_inertia
    )
    rng = np.random.default_rng(6)
    state = random_pose(tree, rng)
    tau = rng.normal(size=tree.n_dof)
    links = tree.links(state)
    n = tree.n_links

    def jacobian(point, body):
        result = np.eye(6)
        result[3:, :3] = -np.cross(np.eye(3), point - links.com[body])
        return result

    A = np.zeros((6 * n, 6 * n))
    gamma, gamma_joint = np.zeros((5 * (n - 1), 6 * n)), np.zeros((n - 1, 6 * n))
    K = []
    for k in range(n):
        A[6 * k : 6 * k + 3, 6 * k : 6 * k + 3] = links.inertia[k]
        A[6 * k + 3 : 6 * k + 6, 6 * k + 3 : 6 * k + 6] = links.mass[k] * np.eye(3)
        if k:
            along = np.concatenate([links.axis[k], np.zeros(3)])
            K.append(np.linalg.svd(along[None])[2][1:])
            for body, sign in ((k, 1), (k - 1, -1)):
                H = sign * jacobian(links.p[k], body)
                gamma[5 * k - 5 : 5 * k, 6 * body : 6 * body + 6] = K[-1] @ H
                gamma_joint[k - 1, 6 * body : 6 * body + 6] = along @ H
    T = gamma_joint.T @ tau[6:]
    T[:6] += jacobian(links.p[0], 0).T @ tau[:6]
    Phi = gamma @ np.linalg.solve(A, gamma.T)
    N = np.linalg.solve(Phi, -gamma @ np.linalg.solve(A, T))
    expected = np.array([K[k].T @ N[5 * k : 5 * k + 5] for k in range(n - 1)])
    found = VIRTUAL_WORK.constraint_forces(tree, state, np.zeros(tree.n_dof), tau)
    assert error(found[1:], expected) < 1e-12
    # Fixman's theorem with this Phi
    log_det = np.linalg.slogdet(A)[1] + np.linalg.slogdet(Phi)[1]
    assert VIRTUAL_WORK.log_det(tree, state) == pytest.approx(log_det, rel=1e-13)


# ---------------------------------------------------------------------------- split links


def joints_per_part(parts) -> np.ndarray:
    return (parts.down >= 0).sum(axis=1) + (parts.up != FLOATING)


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_links_are_split_until_none_has_more_than_three_joints(base):
    tree = random_tree("star", 60, seed=1, base=base)
    assert np.bincount(tree.parent[1:]).max() == 6
    parts = split_links(tree)
    assert joints_per_part(parts).max() <= 3
    assert np.array_equal(parts.up < np.arange(len(parts.up)), np.ones(len(parts.up), dtype=bool))
    bodies = np.flatnonzero((tree.link_mass > 0) & (tree.joint != FIXED))
    shares = np.bincount(parts.link, weights=parts.share, minlength=tree.n_links)
    assert shares[bodies] == pytest.approx(1.0, rel=1e-15)
    assert len(parts.link) < 2 * tree.n_links
    assert np.bincount(parts.link[parts.soft > 0]).max() == 1
    if base == "fixed":
        assert np.count_nonzero(parts.up == GROUND) == 6
    else:
        assert len(parts.link) == tree.n_links + 4
        assert np.count_nonzero(parts.soft == 0) == 1 + 4


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_two_hundred_joints_on_one_body(base):
    rng = np.random.default_rng(2)
    tree = build_tree(beads(star_parents(200, 3), rng), soft="rotor", base=base)
    assert np.bincount(tree.parent[1:]).max() == 200
    state = random_state(tree, rng)
    check(tree, state, rng)
    other = get_solver("udu")
    assert VIRTUAL_WORK.log_det(tree, state) == pytest.approx(other.log_det(tree, state), rel=1e-12)


def test_inner_bodies_are_split_too():
    """Each of three bodies in line carries five arms."""
    rng = np.random.default_rng(5)
    parent, joint = [-1], [FREE]
    spine = 0
    for _ in range(3):
        parent += [spine] * 6
        joint += [REVOLUTE] * 6
        spine = len(parent) - 1
    n = len(parent)
    tree = mechanism(
        parent, joint, rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), rng.uniform(1, 9, n), rng.normal(size=(n, 3)),
        [random_inertia(rng) for _ in range(n)],
    )  # fmt: skip
    assert joints_per_part(split_links(tree)).max() == 3
    check(tree, random_pose(tree, rng), rng, 1e-11)
    check_balance(tree, random_pose(tree, rng), rng)


# ---------------------------------------------------------------------------- joints of several coordinates


@pytest.mark.parametrize("root", [FREE, FIXED])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_joints_of_up_to_six_coordinates(k, root):
    """Three bodies with k coordinates at each joint, turning and sliding; with six there is no constraint left."""
    rng = np.random.default_rng(10 + k)
    n = 1 + 2 * k
    kinds = [REVOLUTE, PRISMATIC, REVOLUTE, PRISMATIC, REVOLUTE, PRISMATIC][:k]
    heavy = np.arange(n) % k == 0
    tree = mechanism(
        np.arange(n) - 1, [root] + 2 * kinds, rng.normal(size=(n, 3)), 0.3 * rng.normal(size=(n, 3)),
        np.where(heavy, rng.uniform(1, 5, n), 0.0), np.where(heavy[:, None], rng.normal(size=(n, 3)), 0.0),
        [random_inertia(rng) * h for h in heavy],
    )  # fmt: skip
    assert tree.n_bodies == 3
    state = random_pose(tree, rng)
    check(tree, state, rng, 1e-10)
    check_balance(tree, state, rng)
    assert split_links(tree).soft.max() == k


def test_dependent_coordinates_are_refused():
    zeros = np.zeros((3, 3))
    inertia = [np.eye(3), 0 * np.eye(3), np.eye(3)]
    for axes in ([(0, 0, 0), (0, 0, 1), (0, 0, 1)], [(0, 0, 0), (1, 2, 3), (-2, -4, -6)]):
        tree = mechanism([-1, 0, 1], [FREE, REVOLUTE, REVOLUTE], axes, zeros, [1.0, 0.0, 1.0], zeros, inertia)
        with pytest.raises(SolverError, match="singular"):
            VIRTUAL_WORK.solve(tree, tree.reference, np.ones(8))
    rng = np.random.default_rng(0)
    seven = mechanism(
        np.arange(8) - 1, [FREE] + [REVOLUTE] * 7, rng.normal(size=(8, 3)), rng.normal(size=(8, 3)),
        [1.0] + [0.0] * 6 + [1.0], np.zeros((8, 3)), [np.eye(3)] + [0 * np.eye(3)] * 6 + [np.eye(3)],
    )  # fmt: skip
    with pytest.raises(SolverError, match="singular"):
        VIRTUAL_WORK.log_det(seven, seven.reference)


# ---------------------------------------------------------------------------- weak bodies


def rod(tilt):
    """Return the inertia of a rod of unit length along `tilt`, 1 Da at each end."""
    u = np.array(tilt) / np.linalg.norm(tilt)
    return 0.5 * (np.eye(3) - np.outer(u, u))


@pytest.mark.parametrize("root", [FREE, FIXED])
def test_a_rod_inside_a_chain_borrows_inertia(root):
    """M is regular, for the rod cannot turn about itself alone; forces and velocity terms stay those of the rod."""
    rng = np.random.default_rng(7)
    for kinds in ([root, REVOLUTE, REVOLUTE, REVOLUTE], [root, REVOLUTE, PRISMATIC, REVOLUTE]):
        for weak in (1, 2):
            inertia = [random_inertia(rng) for _ in range(4)]
            inertia[weak] = rod(rng.normal(size=3))
            tree = mechanism(
                np.arange(4) - 1, kinds, rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.uniform(1, 5, 4),
                rng.normal(size=(4, 3)), inertia,
            )  # fmt: skip
            state = random_pose(tree, rng)
            check(tree, state, rng, 1e-11)
            check_balance(tree, state, rng)


def test_a_rod_at_a_joint_of_two_axes_borrows_inertia():
    rng = np.random.default_rng(8)
    for _ in range(4):
        tree = mechanism(
            [-1, 0, 1, 2, 3, 4], [FREE, REVOLUTE, REVOLUTE, REVOLUTE, REVOLUTE, REVOLUTE], rng.normal(size=(6, 3)),
            0.4 * rng.normal(size=(6, 3)), [2.0, 0.0, 3.0, 0.0, 1.0, 4.0], 0.5 * rng.normal(size=(6, 3)),
            [np.eye(3), 0 * np.eye(3), rod(rng.normal(size=3)), 0 * np.eye(3), np.eye(3), random_inertia(rng)],
        )  # fmt: skip
        com = tree.link_com.copy()
        com[tree.link_mass == 0] = 0.0
        tree = mechanism(tree.parent, tree.joint, tree.axis, tree.origin, tree.link_mass, com, tree.link_inertia)
        state = random_pose(tree, rng)
        check(tree, state, rng, 1e-11)
        check_balance(tree, state, rng)


@pytest.mark.parametrize("tilt", [(0, 0, 1), (1e-4, 0, 1), (1, 2, 3), (1, 1e-5, 0), (0.3, 1, 1e-6)])
def test_a_rod_that_turns_about_itself_is_refused(tilt):
    zero = np.zeros((1, 3))
    free = mechanism([-1], [FREE], zero, zero, [2.0], zero, [rod(tilt)])
    with pytest.raises(SolverError, match="singular at the body"):
        VIRTUAL_WORK.factor(free, random_pose(free, np.random.default_rng(1)))
    zeros = np.zeros((2, 3))
    for root in (FREE, FIXED):
        tree = mechanism([-1, 0], [root, REVOLUTE], [(0, 0, 0), tilt], zeros, [1.0, 2.0], zeros, [np.eye(3), rod(tilt)])
        with pytest.raises(SolverError, match="singular at the body"):
            VIRTUAL_WORK.log_det(tree, random_pose(tree, np.random.default_rng(2)))


def test_links_the_method_cannot_take_are_named():
    zeros, one, none = np.zeros((3, 3)), np.eye(3), np.zeros((3, 3))
    axes = np.eye(3)
    tip = mechanism([-1, 0, 1], [FREE, REVOLUTE, REVOLUTE], axes, zeros, [1.0, 1.0, 0.0], zeros, [one, one, none])
    with pytest.raises(SolverError, match="singular"):
        VIRTUAL_WORK.solve(tip, tip.reference, np.ones(8))
    with pytest.raises(UnsupportedError, match="link 2 has no mass and carries 0 joints; these have: dense, articul"):
        VIRTUAL_WORK.solve(tip.with_joint_inertia([0.0, 1.0]), tip.reference, np.ones(8))
    fork = mechanism([-1, 0, 0], [FREE, REVOLUTE, REVOLUTE], axes, zeros, [0.0, 1.0, 1.0], zeros, [none, one, one])
    with pytest.raises(UnsupportedError, match="link 0 has no mass and carries 2 joints; these have: dense, articul"):
        VIRTUAL_WORK.solve(fork, fork.reference, np.ones(8))
    inner = mechanism(
        [-1, 0, 1, 1], [FREE, REVOLUTE, REVOLUTE, REVOLUTE], np.eye(4)[:, 1:], np.zeros((4, 3)), [1.0, 0.0, 1.0, 1.0],
        np.zeros((4, 3)), [one, none, one, one],
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="link 1 has no mass and carries 2 joints"):
        VIRTUAL_WORK.solve(inner, inner.reference, np.ones(9))
    point = mechanism([-1, 0, 0], [POINT, REVOLUTE, REVOLUTE], axes, zeros, [1.0, 1.0, 1.0], zeros, [none, one, one])
    with pytest.raises(UnsupportedError, match=r"link 0 is a point.*these have: dense, articulated"):
        VIRTUAL_WORK.solve(point, point.reference, np.ones(5))


# ---------------------------------------------------------------------------- accuracy and shapes


@pytest.mark.skipif(not extended_precision.AVAILABLE, reason="longdouble is float64 here")
@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize(("kind", "n"), [("serial", 203), ("branched", 300), ("star", 120)])
def test_long_chains_against_extended_precision(kind, n, base):
    tree = random_tree(kind, n, seed=0, base=base)
    rng = np.random.default_rng(0)
    state = random_state(tree, rng)
    b = rng.normal(size=(tree.n_dof, 2))
    expected, log_det = extended_precision.solve(extended_precision.mass_matrix(tree, state), b)
    assert error(VIRTUAL_WORK.solve(tree, state, b), expected) < 1e-10
    assert VIRTUAL_WORK.log_det(tree, state) == pytest.approx(log_det, rel=1e-12)


def test_many_right_hand_sides_are_solved_one_by_one():
    tree = random_tree("forest", 60, seed=7)
    rng = np.random.default_rng(8)
    factor = VIRTUAL_WORK.factor(tree, random_state(tree, rng))
    b = rng.normal(size=(tree.n_dof, 5))
    together = factor.solve(b)
    for c in range(5):
        assert np.array_equal(factor.solve(b[:, c : c + 1].copy())[:, 0], together[:, c])
    assert factor.solve(np.empty((tree.n_dof, 0))).shape == (tree.n_dof, 0)


def test_nothing_to_solve():
    tree = build_tree(beads([-1, 0, 1], np.random.default_rng(0)), soft="rotor", base="fixed")
    assert tree.n_dof == 0
    assert VIRTUAL_WORK.log_det(tree, tree.reference) == 0.0
    assert VIRTUAL_WORK.solve(tree, tree.reference, np.empty(0)).shape == (0,)
    assert not VIRTUAL_WORK.constraint_forces(tree, tree.reference, np.empty(0), np.empty(0)).any()
