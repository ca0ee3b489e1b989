"""Positions to states: superposition with masses, and the misfit of rigid units, against scipy's superposition."""

from __future__ import annotations

import numpy as np
import pytest
from random_trees import beads
from scipy.spatial.transform import Rotation

from peptidyn.core.geometry import matrix_to_quaternion, quaternion_to_matrix, rotate_about
from peptidyn.model.build import build_tree
from peptidyn.model.fitting import fit_frames


def deformed_body(seed):
    """Return a rigid molecule of five atoms of very different masses, and positions that no longer fit it."""
    rng = np.random.default_rng(seed)
    atoms = beads([-1, 0, 1, 2, 1], rng)
    tree = build_tree(type(atoms)(atoms.atoms, atoms.positions, np.array([1.0, 50.0, 2.0, 30.0, 1.0])), soft="none")
    turn = Rotation.random(random_state=rng)
    return tree, turn.apply(atoms.positions) + rng.normal(size=3) + 0.03 * rng.normal(size=(5, 3))


@pytest.mark.parametrize("seed", range(4))
def test_molecules_are_superposed_with_their_masses(seed):
    tree, x = deformed_body(seed)
    y, m = tree.positions(tree.reference), tree.masses
    centres = [m @ z / m.sum() for z in (y, x)]
    turn, _ = Rotation.align_vectors(x - centres[1], y - centres[0], weights=m)
    expected = turn.apply(y - centres[0]) + centres[1]
    fit = tree.fit(x)
    assert np.abs(tree.positions(fit.state) - expected).max() < 1e-9
    assert fit.rebuilt_rmsd == pytest.approx(np.sqrt(((expected - x) ** 2).sum(axis=1).mean()), rel=1e-9)
    # without masses the atoms would lie elsewhere
    plain, _ = Rotation.align_vectors(x - x.mean(axis=0), y - y.mean(axis=0))
    assert np.abs(plain.apply(y - y.mean(axis=0)) + x.mean(axis=0) - expected).max() > 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_the_misfit_is_the_largest_deviation_of_an_atom(seed):
    tree, x = deformed_body(seed)
    y = tree.positions(tree.reference)
    turn, _ = Rotation.align_vectors(x - x.mean(axis=0), y - y.mean(axis=0))
    left = np.linalg.norm(turn.apply(y - y.mean(axis=0)) + x.mean(axis=0) - x, axis=1)
    assert tree.fit(x).max_misfit == pytest.approx(left.max(), rel=1e-7)


def test_two_and_three_atoms_can_be_deformed():
    """What is larger by a fifth than it should be deviates by a fifth of the distances from its centre."""
    for parents in ([-1, 0], [-1, 0, 1]):
        tree = build_tree(beads(parents, np.random.default_rng(0)), soft="none")
        x = tree.positions(tree.reference)
        radius = np.linalg.norm(x - x.mean(axis=0), axis=1).max()
        assert tree.fit(1.2 * x).max_misfit == pytest.approx(0.2 * radius, rel=1e-6)


@pytest.mark.parametrize(("parents", "soft"), [([-1, 0, 1, 2, 1], "none"), ([-1, 0, 1, 2, 3, 4, -1], "rotor")])
def test_many_frames_are_fitted_as_one_by_one(parents, soft):
    """A rigid body, and a chain beside an ion, each deformed in four ways; the worst unit differs."""
    rng = np.random.default_rng(7)
    tree = build_tree(beads(parents, rng), soft=soft)
    frames = tree.positions(tree.reference) + 0.02 * rng.normal(size=(4, tree.n_atoms, 3))
    fits = fit_frames(tree, frames)
    for f, x in enumerate(frames):
        one = tree.fit(x)
        assert fits.q[f] == pytest.approx(one.state.q, abs=1e-12)
        assert fits.base_position[f] == pytest.approx(one.state.base_position, abs=1e-12)
        assert fits.base_rotation[f] == pytest.approx(one.state.base_rotation, abs=1e-12)
        assert fits.misfit[f] == one.max_misfit == one.misfit.max() and fits.worst_link[f] == one.worst_link
        assert one.misfit[one.worst_link] == one.max_misfit and fits.rebuilt_rmsd[f] == one.rebuilt_rmsd


@pytest.mark.parametrize("seed", range(10))
def test_rotations_are_those_of_scipy(seed):
    """Quaternions (w, x, y, z), there and back, and turns about an axis from the right."""
    rng = np.random.default_rng(seed)
    turn, axis, angle = Rotation.random(random_state=rng), rng.normal(size=3), rng.uniform(-3, 3)
    if seed >= 4:  # about half a turn, where the largest component is x, y or z: some less, some more
        turn = Rotation.from_rotvec((np.pi - 0.4 if seed < 7 else np.pi + 0.4) * np.roll([0.8, 0.48, -0.36], seed))
    axis /= np.linalg.norm(axis)
    R, q, out = turn.as_matrix(), np.empty(4), np.empty((3, 3))
    matrix_to_quaternion(R, q)
    expected = turn.as_quat()[[3, 0, 1, 2]]
    assert np.abs(q - expected * np.sign(expected[0])).max() < 1e-12
    quaternion_to_matrix(q, out)
    assert np.abs(out - R).max() < 1e-12
    rotate_about(R, axis, angle, out)
    assert np.abs(out - R @ Rotation.from_rotvec(angle * axis).as_matrix()).max() < 1e-12
