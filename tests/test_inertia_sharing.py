"""Inertias that bodies lend each other through their joints, with numbers worked out by hand.

Between two bodies that turn about e against each other, k (1 - e e^T) may go from one to the other.
"""

from __future__ import annotations

import numpy as np
import pytest

from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC, REVOLUTE
from peptidyn.solvers.inertia_sharing import SINGULAR, WEAK, invert_inertia, share_inertias

X, Y, Z = np.eye(3)
BALL = (4.0, 4.0, 4.0)
ROD = (0.0, 0.3, 0.3)
"""Along x."""


def share(inertias, joints, base=FREE):
    """Return the inertias of bodies in a row after sharing; body i hangs on i - 1 by the axes `joints[i - 1]`.

    Each axis is (kind, direction); where a joint has several, the links between them have no mass.
    """
    kinds, axes, link, top = [base], [np.zeros(3)], [0], [0]
    for joint in joints:
        top.append(len(kinds))
        for kind, axis in joint:
            kinds.append(kind)
            axes.append(np.array(axis, dtype=float))
        link.append(len(kinds) - 1)
    inertia = np.array([np.diag(i) if np.ndim(i) == 1 else i for i in inertias], dtype=float)
    parent, joint = np.arange(-1, len(kinds) - 1), np.array(kinds)
    for array in (parent, joint):
        array.setflags(write=False)  # as those of a tree, which it is compiled for
    share_inertias(np.array(link), np.array(top), np.arange(-1, len(link) - 1), parent, joint, np.array(axes), inertia)
    return inertia


def about(*axes):
    return [(REVOLUTE, axis) for axis in axes]


def diagonals(inertia):
    assert np.abs(inertia - np.einsum("bij,ij->bij", inertia, np.eye(3))).max() < 1e-12
    return np.einsum("bii->bi", inertia)


def test_inverse_and_determinant():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 5))
    I, out = A @ A.T, np.full((3, 3), np.nan)
    assert invert_inertia(I, out) == pytest.approx(np.linalg.det(I), rel=1e-12)
    assert out == pytest.approx(np.linalg.inv(I), rel=1e-11)
    assert np.array_equal(out, out.T)


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_singular(turned):
    """Least moments of a 1e-13 part of the sum are none, of a 1e-11 part are some; rods and points have none."""
    assert 1e-13 < SINGULAR < 1e-11
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0] if turned else np.eye(3)
    out = np.empty((3, 3))
    for least, singular in ((0.0, True), (1e-13, True), (1e-11, False)):
        for place in range(3):
            moments = np.roll([2 * least, 1.0, 1.0], place)
            det = invert_inertia(Q @ np.diag(moments) @ Q.T, out)
            assert det == 0.0 if singular else det == pytest.approx(2 * least, rel=1e-3)
    assert invert_inertia(np.zeros((3, 3)), out) == 0.0
    assert invert_inertia(-np.eye(3), out) == 0.0
    assert invert_inertia(np.diag([1.0, -1.0, 1.0]), out) == 0.0 == invert_inertia(np.diag([1.0, 1.0, -1.0]), out)


def test_a_rod_borrows_as_much_as_it_has():
    """Its moments sum up to 0.6. The ball could spare 1 / (1/4 + 1/4) = 2 across z, and gives at most half of it."""
    for weak in (0, 1):
        bodies = [BALL, BALL]
        bodies[weak] = ROD
        found = diagonals(share(bodies, [about(Z)]))
        assert found[weak] == pytest.approx([0.6, 0.9, 0.3])
        assert found[1 - weak] == pytest.approx([3.4, 3.4, 4.0])
        bodies[weak] = (0.0, 3.0, 3.0)
        found = diagonals(share(bodies, [about(Z)]))
        assert found[weak] == pytest.approx([1.0, 4.0, 3.0])
        assert found[1 - weak] == pytest.approx([3.0, 3.0, 4.0])


def test_a_lender_keeps_half_whatever_its_shape():
    """k (1 - e e^T) with k = 1 / (2 tr((1 - e e^T) I^-1)), for an inertia and an axis that are not along x, y, z."""
    rng = np.random.default_rng(2)
    A, e = rng.normal(size=(3, 6)), rng.normal(size=3)
    I, e = A @ A.T, e / np.linalg.norm(e)
    P = np.eye(3) - np.outer(e, e)
    k = 0.5 / np.trace(P @ np.linalg.inv(I))
    found = share([I, (0.0, 40.0, 40.0)], [about(e)])
    assert found[0] == pytest.approx(I - k * P, rel=1e-12)
    assert found[1] == pytest.approx(np.diag([0.0, 40.0, 40.0]) + k * P, rel=1e-12)
    assert np.linalg.eigvalsh(found[0])[0] > 0.0


def test_a_point_borrows_half():
    """It has nothing itself; about the axis it stays without, so that it is still weak."""
    assert diagonals(share([BALL, (0.0, 0.0, 0.0)], [about(Z)])) == pytest.approx(np.array([[3, 3, 4], [1, 1, 0.0]]))


def test_bodies_that_are_not_weak_keep_what_they_have():
    """Least moments of 5e-4 and 5e-5 of the sum."""
    assert WEAK == 1e-4
    for least, borrows in ((1e-3, False), (1e-4, True)):
        found = diagonals(share([BALL, (least, 1.0, 1.0)], [about(Z)]))
        assert (found[0] != BALL).any() == borrows == (found[1] != (least, 1.0, 1.0)).any()
        assert found.sum(axis=0) == pytest.approx(np.add(BALL, (least, 1.0, 1.0)))


def test_children_are_asked_before_parents():
    """A rod between two balls borrows from the one behind it alone."""
    found = diagonals(share([BALL, ROD, BALL], [about(Z), about(Y)]))
    assert found == pytest.approx(np.array([BALL, [0.6, 0.3, 0.9], [3.4, 4.0, 3.4]]))


def test_a_child_whose_loan_is_no_help_is_followed_by_the_parent():
    """The rod lies along the axis of the joint behind it, and borrows across it in vain; then from the ball before."""
    found = diagonals(share([BALL, ROD, BALL], [about(Z), about(X)]))
    # 0.6 across x from the child; the sum is 1.8 then, and the parent gives 1 across z
    assert found == pytest.approx(np.array([[3.0, 3.0, 4.0], [1.0, 1.9, 0.9], [4.0, 3.4, 3.4]]))


def test_loans_are_passed_on():
    """Ball, rod, rod: the first rod borrows 0.6 across z, and the second borrows from it across z."""
    found = diagonals(share([BALL, ROD, ROD], [about(Z), about(Z)]))
    k = 0.5 / (1 / 0.6 + 1 / 0.9)
    assert found[0] == pytest.approx([3.4, 3.4, 4.0])
    assert found[1] == pytest.approx([0.6 - k, 0.9 - k, 0.3])
    assert found[2] == pytest.approx([k, 0.3 + k, 0.3])
    # and from the tip towards the root
    found = diagonals(share([ROD, ROD, BALL], [about(Z), about(Z)]))
    assert found[::-1] == pytest.approx(np.array([[3.4, 3.4, 4.0], [0.6 - k, 0.9 - k, 0.3], [k, 0.3 + k, 0.3]]))


def test_weak_bodies_lend_nothing():
    thin = (1e-4, 1.0, 1.0)  # weak, but not without inertia
    for bodies in ([ROD, ROD], [ROD, thin], [thin, ROD], [thin, thin]):
        assert diagonals(share(bodies, [about(Z)])) == pytest.approx(np.array(bodies), rel=1e-14)


@pytest.mark.parametrize("base", [FIXED, POINT])
def test_what_cannot_turn_gives_what_is_needed(base):
    """A body on it is given its own sum of moments, 0.6, across the axis; what the base itself has is no matter."""
    for own in (BALL, (0.0, 0.0, 0.0)):
        found = diagonals(share([own, ROD, BALL], [about(Z), about(X)], base))
        # 0.6 across x from the ball behind, in vain; then 1.8 across z
        assert found == pytest.approx(np.array([own, [1.8, 2.7, 0.9], [4.0, 3.4, 3.4]]))
        assert diagonals(share([own, BALL], [about(Z)], base)) == pytest.approx(np.array([own, BALL]))


def test_only_directions_across_all_axes_of_a_joint_are_shared():
    """Two axes, also where they are not perpendicular, leave one direction; three leave none; a slide none less."""
    across = [[4.0, 4.0, 3.4], [0.0, 0.3, 0.9]]
    for axes in (about(X, Y), about(Y, X), about(X, (0.6, 0.8, 0.0)), about(X, Y, (0.6, 0.8, 0.0))):
        assert diagonals(share([BALL, ROD], [axes])) == pytest.approx(np.array(across), abs=1e-14)
    assert diagonals(share([BALL, ROD], [about(X, Y, Z)])) == pytest.approx(np.array([BALL, ROD]), abs=1e-14)
    # 0.6 in all directions: of 1 / (3/4) = 4/3 at most half can be spared
    assert diagonals(share([BALL, ROD], [[(PRISMATIC, X)]])) == pytest.approx(np.array([[3.4] * 3, [0.6, 0.9, 0.9]]))
    mixed = [(PRISMATIC, X), (REVOLUTE, Z), (PRISMATIC, Y)]
    assert diagonals(share([BALL, ROD], [mixed])) == pytest.approx(np.array([[3.4, 3.4, 4.0], [0.6, 0.9, 0.3]]))
    tilted = about(X, np.array([1.0, 1e-3, 0.0]) / np.hypot(1.0, 1e-3))
    assert diagonals(share([BALL, ROD], [tilted])) == pytest.approx(np.array(across), abs=1e-9)
