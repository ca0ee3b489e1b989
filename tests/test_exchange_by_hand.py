"""What replica exchange asks its parts for, call by call."""

from __future__ import annotations

import numpy as np
from butane_exchange import T, make

import peptidyn as ptd
from peptidyn.sampling import exchange


def test_the_metric_is_chosen_for_the_highest_temperature(monkeypatch):
    """Rotors turn farthest per step where it is hottest; one metric serves all replicas."""
    asked = []

    def record(tree, system, temperature, *rest):
        asked.append(temperature)
        return tree.with_joint_inertia(np.full(tree.n_coordinates, 0.5))

    monkeypatch.setattr(exchange, "walker_tree", record)
    run = make(moves=[ptd.TorsionalHMC(0.004, 2)], metric="auto")
    assert asked == [T[-1]] and run.recipe.tree.joint_inertia.tolist() == [0.5] * run.recipe.tree.n_coordinates
