"""Spatial vectors, inertias and Cholesky factors of bases, function by function against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from peptidyn.solvers import spatial_algebra as algebra


def skew(l):
    return np.array([[0.0, -l[2], l[1]], [l[2], 0.0, -l[0]], [-l[1], l[0], 0.0]])


def shift(l):
    """phi of (2.16)."""
    phi = np.eye(6)
    phi[:3, 3:] = skew(l)
    return phi


def positive(rng, n=6):
    """A symmetric positive definite matrix."""
    A = rng.normal(size=(n, n + 2))
    return A @ A.T


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def test_matrices_are_filled_and_copied_whole(rng):
    A, out = rng.normal(size=(4, 3)), np.full((4, 3), np.nan)
    algebra.fill_matrix(out, 2.5)
    assert (out == 2.5).all()
    algebra.copy_matrix(A, out)
    assert np.array_equal(out, A)


def test_vectors_are_shifted_and_added(rng):
    """To what is there: forces to the parent by phi, motions from the parent by its transpose."""
    a, b, arm = rng.normal(size=(3, 3))
    f, start = rng.normal(size=(2, 6))
    out = start[:3].copy()
    algebra.add_cross(a, b, -0.7, out)
    assert out == pytest.approx(start[:3] - 0.7 * np.cross(a, b), rel=1e-14)
    out = start.copy()
    algebra.add_shifted_force(arm, f, out)
    assert out == pytest.approx(start + shift(arm) @ f, rel=1e-14)
    out = start.copy()
    algebra.add_shifted_motion(arm, f, out)
    assert out == pytest.approx(start + shift(arm).T @ f, rel=1e-14)


def test_inertias_are_shifted_and_added(rng):
    arm, P, start = rng.normal(size=3), positive(rng), positive(rng)
    out = start.copy()
    algebra.add_shifted_inertia(arm, P, out)
    assert out == pytest.approx(start + shift(arm) @ P @ shift(arm).T, rel=1e-12)
    assert np.array_equal(out, out.T)


def test_the_inertia_of_a_body_about_its_origin(rng):
    """[[I - m c~ c~, m c~], [-m c~, m]], (2.15); times a motion it is momentum."""
    m, c, I, start = 2.5, rng.normal(size=3), positive(rng, 3), positive(rng)
    M = np.block([[I - m * skew(c) @ skew(c), m * skew(c)], [-m * skew(c), m * np.eye(3)]])
    out = start.copy()
    algebra.add_spatial_inertia(m, c, I, out)
    assert out == pytest.approx(start + M, rel=1e-13)
    x, out = rng.normal(size=6), start[0].copy()
    algebra.add_inertia_times(m, c, I, x, out)
    assert out == pytest.approx(start[0] + M @ x, rel=1e-13)


@pytest.mark.parametrize("first", [0, 3, 6], ids=["free", "point", "welded"])
def test_the_factor_of_a_base(first, rng):
    """C C^T = A, from row `first` on, C below the diagonal and the identity before; products and solutions with C."""
    A, C = positive(rng), np.full((6, 6), np.nan)
    algebra.cholesky(A, first, C)
    L = C[first:, first:]
    assert L @ L.T == pytest.approx(A[first:, first:], rel=1e-13)
    assert np.array_equal(np.triu(C, 1), np.zeros((6, 6)))
    assert np.array_equal(C[:first], np.eye(6)[:first]) and not C[first:, :first].any()
    b = rng.normal(size=6 - first)
    for function, wanted in (
        (algebra.multiply_lower, L @ b),
        (algebra.solve_lower, np.linalg.solve(L, b)),
        (algebra.solve_lower_transposed, np.linalg.solve(L.T, b)),
    ):
        x = b.copy()
        function(C, first, x)
        assert x == pytest.approx(wanted, rel=1e-11)


def pivot(A, first=0, scale=(1.0, 1.0)):
    return algebra.smallest_pivot(A, first, np.array(scale), np.full((6, 6), np.nan))


def test_the_smallest_pivot_by_hand():
    """The larger of what is left goes first: of [[1, 2], [2, 5]] that is 5, then 1 - 4/5."""
    A = np.diag([1.0, 5.0, 7.0, 3.0, 6.0, 2.0])
    A[0, 1] = A[1, 0] = 2.0
    assert pivot(A) == pytest.approx(0.2, rel=1e-14)
    assert pivot(A, 3) == pytest.approx(2.0)
    assert pivot(A, 6) == np.inf
    # in units of each kind: rotations by 10, translations by 1000
    assert pivot(A, 0, (10.0, 1000.0)) == pytest.approx(0.002)
    assert pivot(A, 0, (10.0, 1.0)) == pytest.approx(0.02)
    # what couples both kinds is in units of both: 1 - 2^2 / 5 - 0.5^2 / 3 is left of the first
    A[0, 3] = A[3, 0] = 0.5
    assert pivot(A, 0, (10.0, 1.0)) == pytest.approx(0.1 * (1.0 - 4 / 5 - 0.25 / 3), rel=1e-12)


def test_a_matrix_that_is_not_positive_has_no_positive_pivot():
    assert not pivot(np.diag([1.0, 2.0, 3.0, 4.0, 5.0, 0.0])) > 0.0
    assert not pivot(np.diag([1.0, -2.0, 3.0, 4.0, 5.0, 6.0])) > 0.0
    assert pivot(np.eye(6), 0, (0.0, 1.0)) == 0.0 and pivot(np.eye(6), 0, (1.0, 0.0)) == 0.0
    assert pivot(np.eye(6), 3, (0.0, 1.0)) == 1.0  # a point does not turn


def test_a_thin_rod_that_lies_almost_in_a_plane_has_no_inertia_about_itself():
    """I = 1 - u u^T: without the larger pivots first, rounding would pass for inertia."""
    for tilt in ((1e-4, 0.3, 1.0), (1.0, 1e-5, 1e-5), (0.3, 1.0, 1e-6)):
        u = np.array(tilt) / np.linalg.norm(tilt)
        A = np.eye(6)
        A[:3, :3] -= np.outer(u, u)
        assert abs(pivot(A, 0, (2.0, 3.0))) < 1e-15
