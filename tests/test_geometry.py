"""Rigid superposition against singular values, for bodies of all shapes and starts; angles between points."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from peptidyn.core import geometry, points
from peptidyn.core.geometry import best_rotation, improve_rotation


def kabsch(covariance):
    """Return the optimal rotation and the value of tr(R covariance), by singular values."""
    u, sizes, vt = np.linalg.svd(covariance)
    sign = np.sign(np.linalg.det(u) * np.linalg.det(vt))
    return vt.T @ np.diag([1.0, 1.0, sign]) @ u.T, sizes[0] + sizes[1] + sign * sizes[2]


def bodies(kind, n, rng):
    for _ in range(n):
        a = 0.1 * rng.normal(size=(5, 3)) * {"general": (1, 1, 1), "planar": (1, 1, 0), "linear": (1, 0, 0)}[kind]
        b = Rotation.random(random_state=rng).apply(a) + 10.0 ** rng.integers(-9, -1) * rng.normal(size=a.shape)
        yield (a - a.mean(axis=0)).T @ (b - b.mean(axis=0))


@pytest.mark.parametrize("kind", ["general", "planar", "linear"])
def test_best_rotation_reaches_the_sum_of_singular_values(kind):
    for covariance in bodies(kind, 200, np.random.default_rng(0)):
        found = np.empty((3, 3))
        best_rotation(covariance, found)
        assert np.abs(found @ found.T - np.eye(3)).max() < 1e-13
        assert np.linalg.det(found) > 0
        assert np.trace(found @ covariance) == pytest.approx(kabsch(covariance)[1], rel=1e-13)


def test_mirror_images_get_a_proper_rotation():
    covariance = np.diag([3.0, 2.0, -1.0])
    found = np.empty((3, 3))
    best_rotation(covariance, found)
    assert np.allclose(found, np.eye(3), atol=1e-14)


@pytest.mark.parametrize("kind", ["general", "planar"])
def test_newton_finds_the_same_rotation_or_says_no(kind):
    rng = np.random.default_rng(1)
    for covariance in bodies(kind, 200, rng):
        best, value = kabsch(covariance)
        near = Rotation.from_rotvec(0.05 * rng.normal(size=3)).as_matrix() @ best
        assert improve_rotation(covariance, near)
        assert np.trace(near @ covariance) == pytest.approx(value, rel=1e-13)
        assert np.abs(near @ near.T - np.eye(3)).max() < 1e-13
        far = Rotation.random(random_state=rng).as_matrix()
        if improve_rotation(covariance, far):
            assert np.trace(far @ covariance) == pytest.approx(value, rel=1e-13)


def test_newton_does_not_answer_where_the_rotation_is_not_unique():
    for covariance in (np.diag([1.0, 0.0, 0.0]), np.zeros((3, 3))):
        assert not improve_rotation(covariance, np.eye(3))


def test_plain_and_compiled_angles_are_one():
    p = np.random.default_rng(3).normal(size=(4, 3, 50))
    for plain, compiled, n in ((points.dihedral, geometry.dihedral, 4), (points.bond_angle, geometry.bond_angle, 3)):
        many = plain(*p[:n])
        one_by_one = [plain(*(x[:, k] for x in p[:n])) for k in range(50)]
        jitted = [compiled(*(np.ascontiguousarray(x[:, k]) for x in p[:n])) for k in range(50)]
        assert np.abs(many - one_by_one).max() < 1e-15
        assert np.abs(many - jitted).max() < 1e-14


def test_placing_a_point_gives_its_angles_and_turning_adds_to_the_dihedral():
    a, b, c, axis = np.random.default_rng(4).normal(size=(4, 3))
    d = points.place(a, b, c, 0.3, 1.9, -2.5)
    assert np.linalg.norm(d - c) == pytest.approx(0.3, abs=1e-15)
    assert points.bond_angle(b, c, d) == pytest.approx(1.9, abs=1e-14)
    assert points.dihedral(a, b, c, d) == pytest.approx(-2.5, abs=1e-14)
    turned = c + points.rotated(d - c, points.unit(c - b), 0.4)
    assert points.dihedral(a, b, c, turned) == pytest.approx(-2.1, abs=1e-14)
    both = points.rotated(np.stack([a, b]), points.unit(axis), 0.7)
    assert np.abs(both[1] - points.rotated(b, points.unit(axis), 0.7)).max() < 1e-15
