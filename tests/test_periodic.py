"""Molecules in periodic boxes: an order that reaches every atom over bonds, and atoms put beside their neighbours."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from peptidyn.core.periodic import make_whole, spanning_order

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
