"""Molecules in periodic boxes: an order that reaches every atom over bonds, and atoms put beside their neighbours."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from peptidyn.core.periodic import join_pieces, make_whole, spanning_order

# a ring of four with a tail, a pair, and two atoms alone
BONDS = np.array([[0, 3], [0, 7], [3, 5], [5, 7], [5, 8], [1, 6]])
N_ATOMS, N_MOLECULES = 9, 4


def test_every_atom_is_reached_once_over_a_bond():
    order, source = spanning_order(SimpleNamespace(n_atoms=N_ATOMS, bonds=BONDS))
    assert len(order) == len(set(order.tolist())) == N_ATOMS - N_MOLECULES
    bonded = {frozenset(pair) for pair in BONDS.tolist()}
    reached = set(range(N_ATOMS)) - set(order.tolist())
    assert reached == {0, 1, 2, 4}
    for atom, before in zip(order.tolist(), source.tolist(), strict=True):
        assert frozenset((atom, before)) in bonded
        assert before in reached
        reached.add(atom)


def test_without_bonds_nothing_moves():
    order, source = spanning_order(SimpleNamespace(n_atoms=3, bonds=np.zeros((0, 2), dtype=np.int64)))
    assert len(order) == len(source) == 0
    x = np.random.default_rng(0).normal(size=(1, 3, 3))
    before = x.copy()
    box = 2.0 * np.eye(3)[None]
    make_whole(x, box, np.linalg.inv(box), order, source)
    assert np.array_equal(x, before)


def test_wrapped_atoms_come_back_in_a_skewed_box():
    rng = np.random.default_rng(1)
    whole = 0.1 * rng.normal(size=(5, N_ATOMS, 3))
    box = np.broadcast_to([[2.0, 0.0, 0.0], [0.3, 2.1, 0.0], [0.2, -0.4, 1.9]], (5, 3, 3)).copy()
    wrapped = whole + rng.integers(-3, 4, size=whole.shape) @ box
    order, source = spanning_order(SimpleNamespace(n_atoms=N_ATOMS, bonds=BONDS))
    make_whole(wrapped, box, np.linalg.inv(box), order, source)
    for i, j in BONDS.tolist():
        assert np.abs((wrapped[:, i] - wrapped[:, j]) - (whole[:, i] - whole[:, j])).max() < 1e-12


SKEWED = np.array([[2.0, 0.0, 0.0], [0.3, 2.1, 0.0], [0.2, -0.4, 1.9]])


def test_frames_are_shifted_by_rows_of_their_own_box():
    """The second atom is 1 a, -2 b and 3 c away from where it belongs; boxes of three frames have other sizes."""
    boxes = np.array([SKEWED, 1.5 * SKEWED, 0.7 * SKEWED])
    x = np.zeros((3, 2, 3))
    x[:, 1] = [0.1, 0.05, -0.02]
    whole = x.copy()
    for f, (a, b, c) in enumerate(boxes):
        x[f, 1] += a - 2 * b + 3 * c
    make_whole(x, boxes, np.linalg.inv(boxes), np.array([1]), np.array([0]))
    assert np.abs(x - whole).max() < 1e-12


@pytest.mark.parametrize("turn", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 2, 0), (0, -1, 1), (2, -1, -1)])
@pytest.mark.parametrize("flipped", [False, True])
def test_pieces_come_back_from_any_image(turn, flipped):
    """A chain of seven in pieces of four, two and one, each a step further; bonds are listed either way round."""
    x = np.array([[0.1 * k, 0.02 * k**2, 0.05 * (k % 2)] for k in range(7)])
    bonds = np.array([[k, k + 1] for k in range(6)])
    limit = np.full(6, 0.4)
    split = x.copy()
    split[4:] += np.array(turn) @ SKEWED
    split[6:] += np.array(turn) @ SKEWED
    joined = join_pieces(split, SKEWED, bonds[:, ::-1] if flipped else bonds, limit)
    assert np.abs(joined - x).max() < 1e-12
    assert join_pieces(x, SKEWED, bonds, limit) is x
    order = np.array([6, 0, 5, 1, 4, 2, 3])  # the same atoms in another order
    place = np.argsort(order)
    joined = join_pieces(split[order], SKEWED, place[bonds], limit)
    assert np.abs(joined - x[order]).max() < 1e-12


def test_the_largest_piece_of_each_molecule_stays():
    """Atoms 0-1 | 2-3-4 and 5-6-7 | 8: the pieces 0-1 and 8 move."""
    x = np.array([[0.1 * k, 0.0, 0.0] for k in range(5)] + [[0.1 * k, 1.0, 0.0] for k in range(4)])
    bonds = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [5, 6], [6, 7], [7, 8]])
    split = x.copy()
    split[[0, 1, 8]] += SKEWED[1]
    assert np.abs(join_pieces(split, SKEWED, bonds, np.full(7, 0.15)) - x).max() < 1e-12


@pytest.mark.parametrize("limits", [(0.1, 0.1), (0.2, 0.1), (0.1, 0.2), (0.2, 0.2), (1.9, 0.1), (1.9, 0.2), (0.2, 1.9)])
def test_every_bond_has_its_own_limit(limits):
    """Two pairs, 1.85 nm apart and 0.15 nm by images, come together if that is within the limit and 1.85 is not."""
    x = np.array([[0.0, 0.0, 0.0], [1.85, 0.0, 0.0], [1.0, 0.05, 0.0], [1.0, 1.9, 0.0]])
    expected = x.copy()
    expected[1, 0] -= 2.0 * (limits[0] == 0.2)
    expected[3, 1] -= 2.0 * (limits[1] == 0.2)
    joined = join_pieces(x, 2.0 * np.eye(3), np.array([[0, 1], [2, 3]]), np.array(limits))
    assert joined == pytest.approx(expected, abs=1e-12)
