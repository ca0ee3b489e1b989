"""Positions to states: superposition with masses, and the misfit of rigid units, against scipy's superposition."""

from __future__ import annotations

import numpy as np
import pytest
from random_trees import beads
from scipy.spatial.transform import Rotation

from peptidyn.core.geometry import matrix_to_quaternion, quaternion_to_matrix, rotate_about
from peptidyn.model import fitting
from peptidyn.model.build import build_tree
from peptidyn.model.fitting import fit_frames
from peptidyn.model.state import State


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


@pytest.mark.parametrize(("n_frames", "n_batches"), [(7, 3), (5, 5), (33, 32), (4, 1)])
def test_every_frame_is_in_one_batch(n_frames, n_batches):
    """As many frames as there are, in pieces as equal as can be, also where the number of pieces does not divide it."""
    rng = np.random.default_rng(5)
    tree = build_tree(beads([-1, 0, 1, 2, -1], rng), soft="rotor")
    frames = tree.positions(tree.reference) + 0.02 * rng.normal(size=(n_frames, 5, 3))
    expected = fit_frames(tree, frames)
    shapes = [expected.q, expected.base_position, expected.base_rotation, expected.misfit, expected.worst_link]
    out = [np.full_like(array, -7) for array in (*shapes, expected.rebuilt_rmsd)]
    divide = getattr(fitting._fit_frames, "py_func", fitting._fit_frames)  # threads take the same pieces
    divide(fitting._fixed_arguments(tree), frames, *out, n_batches)
    for found, array in zip(out, (*shapes, expected.rebuilt_rmsd), strict=True):
        assert np.array_equal(found, array)


def test_many_atoms_are_fitted_by_all_threads(monkeypatch):
    """From so many atoms on that it pays, in 32 pieces, or one for each frame if they are fewer."""
    asked = []
    monkeypatch.setattr(fitting, "WORTH_THREADS", 20)
    monkeypatch.setattr(fitting, "_fit_frames", lambda *arguments: asked.append(arguments[-1]))
    monkeypatch.setattr(fitting, "_fit_range", lambda *arguments: asked.append(arguments[-2:]))
    tree = build_tree(beads([-1, 0, 1, 2, -1], np.random.default_rng(0)), soft="rotor")
    for n in (3, 4, 33):
        fit_frames(tree, np.zeros((n, 5, 3)))
    assert asked == [(0, 3), 4, 32]


def test_molecules_are_superposed_one_by_one():
    """Two chains that were turned and shifted each in its own way, and an ion: bases go along, torsions stay."""
    tree = build_tree(beads([-1, 0, 1, 2, -1, 4, 5, 6, -1], np.random.default_rng(1)), soft="rotor")
    rng = np.random.default_rng(2)
    x, start = tree.positions(tree.reference), tree.reference.base_position.copy()
    turns, shifts = Rotation.random(3, random_state=rng), rng.normal(size=(3, 3))
    pieces = [slice(0, 4), slice(4, 8), slice(8, 9)]
    moved = np.concatenate([turns[m].apply(x[piece]) + shifts[m] for m, piece in enumerate(pieces)])
    fit = tree.fit(moved)
    assert fit.state.q == pytest.approx(tree.q_reference, abs=1e-10) and fit.max_misfit < 1e-12
    assert fit.rebuilt_rmsd < 1e-12 and np.abs(tree.positions(fit.state) - moved).max() < 1e-12
    for m in range(3):
        assert fit.state.base_position[m] == pytest.approx(turns[m].apply(start[m]) + shifts[m], abs=1e-12)
    for m in range(2):  # an ion has no orientation
        w = turns[m].as_quat()[[3, 0, 1, 2]]
        assert abs(fit.state.base_rotation[m] @ w) == pytest.approx(1.0, abs=1e-12)
    # what is done with one does not show in the others
    state = State.make(tree, [0.3, -0.4], fit.state.base_position, fit.state.base_rotation)
    assert tree.fit(tree.positions(state)).state.q == pytest.approx([0.3, -0.4], abs=1e-10)


@pytest.mark.parametrize("deviation", [0.01, 1.0])
def test_units_have_their_own_best_superposition(deviation):
    """Three units of five atoms and more; with deviations of 1 nm nothing is left of where they were."""
    rng = np.random.default_rng(8)
    tree = build_tree(beads([-1, 0, 1, 1, 2, 2, 5, 5, 6], rng), soft="rotor")
    y = tree.positions(tree.reference)
    x = Rotation.random(random_state=rng).apply(y) + deviation * rng.normal(size=y.shape)
    fit = tree.fit(x)
    start, members = tree.unit_members
    assert tree.n_links > 2
    for l in range(tree.n_links):
        unit = members[start[l] : start[l + 1]]
        a, b = y[unit] - y[unit].mean(axis=0), x[unit] - x[unit].mean(axis=0)
        turn, _ = Rotation.align_vectors(b, a)
        assert fit.misfit[l] == pytest.approx(np.linalg.norm(turn.apply(a) - b, axis=1).max(), rel=1e-6)
    assert fit.worst_link == int(fit.misfit.argmax()) and fit.max_misfit == fit.misfit.max()


def test_single_atoms_fit_everywhere():
    tree = build_tree(beads([-1, -1], np.random.default_rng(0)), soft="none")
    fit = tree.fit(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    assert fit.misfit.tolist() == [0.0, 0.0] and fit.max_misfit == fit.rebuilt_rmsd == 0.0 and fit.worst_link == 0
    assert fit.state.base_position.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert len(fit_frames(tree, np.empty((0, 2, 3))).misfit) == 0


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
