"""What replica exchange asks its parts for, call by call."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from butane_exchange import T, contents, make

import peptidyn as ptd
from peptidyn.core.errors import OutputError
from peptidyn.sampling import exchange
from peptidyn.sampling.mbar import TemperatureMBAR
from peptidyn.sampling.replicas import run_stretch
from peptidyn.sampling.swaps import swap_pairs


def test_the_metric_is_chosen_for_the_highest_temperature(monkeypatch):
    """Rotors turn farthest per step where it is hottest; one metric serves all replicas."""
    asked = []

    def record(tree, system, temperature, x, *rest):
        asked.append((temperature, x))
        return tree.with_joint_inertia(np.full(tree.n_coordinates, 0.5))

    monkeypatch.setattr(exchange, "walker_tree", record)
    x = make().recipe.tree.positions(make().recipe.tree.reference)
    starts = np.array([x, *(x + 0.1 * i for i in range(1, len(T)))])
    asked.clear()
    run = make(moves=[ptd.TorsionalHMC(0.004, 2)], metric="auto", positions=starts)
    ((temperature, first),) = asked
    assert temperature == T[-1] and np.array_equal(first, starts[0])
    assert run.recipe.tree.joint_inertia.tolist() == [0.5] * run.recipe.tree.n_coordinates


def test_every_pair_of_replicas_may_exchange():
    """With equal energies every attempt is accepted, so that the levels show which pair was drawn."""
    rng, start, pairs = np.random.default_rng(1), np.arange(4), set()
    for _ in range(100):  # a pair is missed by 100 draws of six in 1 of 10^7 cases
        swaps = swap_pairs(np.zeros((4, 4)), start, rng, attempts=1)
        pairs.add(tuple(np.flatnonzero(swaps.levels != start).tolist()))
        assert start.tolist() == [0, 1, 2, 3]  # the levels that were given stay
    assert pairs == set(combinations(range(4), 2))


def test_an_exchange_tries_the_third_power_of_pairs():
    swaps = swap_pairs(np.zeros((2, 2)), np.arange(2), np.random.default_rng(2))
    assert swaps.attempted.tolist() == swaps.accepted.tolist() == [8]


def test_an_iteration_that_could_not_be_written_is_made_again_with_the_same_numbers(tmp_path, monkeypatch):
    def full(*arguments):
        raise OutputError("the disk is full")

    runs = [make(tmp_path / name) for name in ("whole", "stopped")]
    runs[1].run(1)
    with monkeypatch.context() as patched:
        patched.setattr(runs[1], "_write", full)
        with pytest.raises(OutputError, match="disk is full"):
            runs[1].run(3)
    for run in runs:
        run.run(3)
        run.close()
    assert np.array_equal(runs[0].walk, runs[1].walk)
    assert contents(tmp_path / "whole") == contents(tmp_path / "stopped")


def test_overlaps_are_those_of_neighbours():
    run = make().run(8)
    energies = [run.at_temperature(k)[0]["potential"] for k in range(3)]
    overlap = TemperatureMBAR(energies, T).overlap
    assert run.summary()["neighbour_overlap"] == pytest.approx([overlap[0, 1], overlap[1, 2]])


def test_a_stretch_ends_with_its_own_energies_and_counts():
    """Five sweeps with a frame after every other one: the end is not the last frame."""
    run = make(moves=[ptd.TorsionalHMC(0.004, 2)])
    checkpoint = run.replicas[0]
    for _ in range(2):
        stretch = run_stretch(run.recipe, checkpoint, 400.0, [0.004], 5, 2)
        checkpoint = stretch.checkpoint
        walker = run.recipe.make_walker(400.0)
        walker.restore(checkpoint)
        assert stretch.final_potential == pytest.approx(walker.energy(), abs=1e-6)
        assert stretch.final_metric == pytest.approx(walker.mover.fixman_energy(), abs=1e-9)
        assert len(stretch.potential) == 2 and abs(stretch.potential[-1] - stretch.final_potential) > 1e-3
        assert stretch.counts[0][0] == 5
