"""Exchanges as statements: which permutations of temperatures appear how often, and what is booked where."""

from __future__ import annotations

import inspect
from dataclasses import replace
from itertools import permutations

import butane
import numpy as np
import pytest
from butane_exchange import make
from scipy.stats import chi2

import peptidyn as ptd
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.exchange import count_round_trips
from peptidyn.sampling.tuning import StepTuner
from peptidyn.sampling.walker import Walker

T = np.array([300.0, 330.0, 400.0])


class Recorded:
    """A backend that runs stretches once, and then gives replica r the energy, U_F / kT and counts written for it.

    It keeps the arguments of every stretch that was asked for, by name.
    """

    def __init__(self, potential, metric=(0.0, 0.0, 0.0)):
        self.potential, self.metric = potential, metric
        self.asked: list[list[dict]] = []
        self.first = None

    def run(self, function, tasks, recipe):
        self.asked.append([inspect.signature(function).bind(recipe, *task).arguments for task in tasks])
        if self.first is None:
            self.first = [function(recipe, *task) for task in tasks]
        return [
            replace(
                stretch, potential=np.full(len(stretch.potential), V), metric=np.full(len(stretch.metric), U),
                final_potential=V, final_metric=U, counts=[(100 + r, 10 + r, 1000 + r)] * len(stretch.counts),
                checkpoint={**task[0], "momentum": 1.0 + np.arange(7.0) * (r + 1)},
            )
            for r, (stretch, task, V, U) in enumerate(zip(self.first, tasks, self.potential, self.metric, strict=True))
        ]  # fmt: skip

    def close(self):
        pass


def exchange_with(potential, metric=(0.0, 0.0, 0.0), **options):
    backend = Recorded(potential, metric)
    return make(backend=backend, temperatures=T, **options), backend


def test_temperatures_are_permuted_with_their_exact_probabilities():
    """Replicas whose energies stay as they are: P(permutation) ~ exp(-sum of V_r / kT_level(r)), U_F drops out.

    This holds for every valid choice of pairs. Chi squared with the samples that the autocorrelation leaves; 5 degrees
    of freedom, false-alarm rate 1e-5.
    """
    V, n = np.array([6.0, 18.0, 12.0]), 800
    exchange, _ = exchange_with(V, (3.0, -2.0, 0.5))
    walk = exchange.run(n).walk
    every = list(permutations(range(3)))
    weight = np.array([np.exp(-(V / (BOLTZMANN * T[list(levels)])).sum()) for levels in every])
    expected = weight / weight.sum()
    place = np.array([every.index(tuple(levels)) for levels in walk.tolist()])
    g = max(statistical_inefficiency((place == k).astype(float)) for k in range(6))
    found = np.bincount(place, minlength=6) / n
    score = n / g * ((found - expected) ** 2 / expected).sum()
    assert n / g > 300
    assert score < chi2.isf(1e-5, 5)
    # the wrong sign, U_F at one temperature and no U_F at all would be seen
    flat = n / g * ((found - 1 / 6) ** 2 * 6).sum()
    assert flat > 3 * chi2.isf(1e-5, 5)


def test_every_pair_of_neighbours_is_tried_and_booked():
    exchange, _ = exchange_with((10.0, 10.0, 10.0))
    exchange.run(8)
    assert (exchange.attempted > 0).all()
    assert np.array_equal(exchange.attempted, exchange.accepted)  # equal energies
    assert np.array_equal(exchange.acceptance, [1.0, 1.0])
    assert len({tuple(levels) for levels in exchange.walk.tolist()}) > 2


def test_swaps_are_booked_on_their_own_pair():
    """300 and 330 K exchange freely; nobody leaves 400 K, whose replica has a much higher energy."""
    exchange, _ = exchange_with((10.0, 10.0, 900.0))
    exchange.run(8)
    assert exchange.accepted[0] == exchange.attempted[0] > 0
    assert exchange.accepted[1] == 0 < exchange.attempted[1]
    assert (exchange.walk[:, 2] == 2).all()


def test_everything_of_an_iteration_belongs_to_the_temperature_before_the_swap():
    """Frames, U_F at their temperature, counts of moves, the walk; momenta and stretches follow after it."""
    V, U = (16.0, 10.0, 13.0), (3.0, -2.0, 0.5)
    exchange, backend = exchange_with(V, U)
    exchange.steps[:] = exchange.steps[0] * np.array([[1.0], [0.5], [0.25]])
    steps = exchange.steps.copy()
    counts = np.zeros_like(exchange.move_counts)
    levels, momenta = [exchange.levels.copy()], []
    n = 6
    for i in range(n):
        exchange.run(i + 1)
        before, after = levels[-1], exchange.levels.copy()
        levels.append(after)
        momenta.append([replica["momentum"] for replica in exchange.replicas])
        for r in range(3):
            counts[before[r]] += (100 + r, 10 + r, 1000 + r)
            scale = np.sqrt(T[after[r]] / T[before[r]])
            assert momenta[-1][r] == pytest.approx(scale * (1.0 + np.arange(7.0) * (r + 1)), rel=1e-14)
            asked = backend.asked[i][r]
            assert asked["temperature"] == T[before[r]] and np.array_equal(asked["steps"], steps[before[r]])
    assert any((a != b).any() for a, b in zip(levels[1:], levels[:-1], strict=True))
    assert any((a != np.arange(3)).any() for a in levels)
    assert np.array_equal(exchange.walk, levels[:-1])
    assert np.array_equal(exchange.move_counts, counts)
    for r in range(3):
        rows, _ = exchange.frames_of(r)
        there = np.array(levels[:-1])[:, r]
        assert rows["level"].tolist() == there.tolist() and rows["iteration"].tolist() == list(range(n))
        assert rows["temperature"] == pytest.approx(T[there]) and (rows["potential"] == V[r]).all()
        assert rows["fixman"] == pytest.approx(BOLTZMANN * T[there] * U[r], rel=1e-12)
    u, N = exchange.u_kn()
    for level in range(3):
        rows, _ = exchange.at_temperature(level)
        assert rows["iteration"].tolist() == list(range(n)) and (rows["level"] == level).all()
        holder = [int(np.flatnonzero(before == level)[0]) for before in levels[:-1]]
        expected = np.array(V)[holder] / (BOLTZMANN * T[:, None]) + np.array(U)[holder]
        assert N[level] == n and u[:, level * n : (level + 1) * n] == pytest.approx(expected, rel=1e-12)


def test_momenta_keep_their_kinetic_energy_in_units_of_kt():
    """p M^-1 p / kT before and after, with the mass matrix of the replica."""
    moves = [ptd.TorsionalHMC(0.01, 2, friction=1.0)]
    with make(temperatures=T, moves=moves) as exchange:
        exchange.run(1)
        while True:
            before, saved = exchange.levels.copy(), [dict(replica) for replica in exchange.replicas]
            exchange.replicas = [{**s, "momenta_valid": True} for s in saved]
            exchange.run(exchange.iterations + 1)
            changed = np.flatnonzero(exchange.levels != before)
            if changed.size:
                break
        r = int(changed[0])
        rows = exchange.replicas[r]
        walker = exchange.recipe.make_walker(T[exchange.levels[r]])
        walker.restore(rows)
        after = walker.mover.kinetic_energy() / (BOLTZMANN * T[exchange.levels[r]])
        walker.mover.momentum = rows["momentum"] * np.sqrt(T[before[r]] / T[exchange.levels[r]])
        assert after == pytest.approx(walker.mover.kinetic_energy() / (BOLTZMANN * T[before[r]]), rel=1e-10)


def test_a_stretch_runs_at_its_temperature_with_its_steps(monkeypatch):
    seen = []

    class Watched(ptd.TorsionMove):
        def _propose(self, walker: Walker) -> bool:
            seen.append((walker.temperature, self.step))
            return super()._propose(walker)

    with make(temperatures=T, moves=[Watched(turn=30)], sweeps=1) as exchange:
        exchange.steps[:] = [[0.1], [0.2], [0.3]]
        exchange.run(1)
    assert np.array(seen) == pytest.approx(np.array([(300.0, 0.1), (330.0, 0.2), (400.0, 0.3)]), rel=1e-12)


def test_replicas_begin_with_momenta_that_are_to_be_drawn():
    with make(temperatures=T) as exchange:
        assert not any(replica["momenta_valid"] for replica in exchange.replicas)


def test_frames_of_a_stretch_have_their_own_energies():
    with make(temperatures=T, moves=[ptd.TorsionMove(turn=90)], sweeps=12, every=1) as exchange:
        exchange.run(1)
        rows, q = exchange.frames_of(2)
    expected = [
        butane.torsion_energy(f) + butane.ends_energy(*[butane.BOND] * 3, *[butane.ANGLE] * 2, f) for f in q[:, 0]
    ]
    assert np.ptp(expected) > 0.1 and rows["potential"] == pytest.approx(np.array(expected), abs=1e-8)


def test_temperatures_have_a_constant_ratio():
    T = ptd.geometric_temperatures(280.0, 500.0, 6)
    assert T[1:] / T[:-1] == pytest.approx(np.full(5, (500 / 280) ** 0.2), rel=1e-13)
    assert T[0] == 280.0 and T[-1] == pytest.approx(500.0)


def test_a_round_trip_goes_up_and_comes_down():
    walks = {0: [0, 1, 2, 1], 1: [0, 2, 0], 2: [0, 2, 0, 2, 1, 0, 2]}
    assert [count_round_trips(np.array(walk)[:, None], 3)[0] for walk in walks.values()] == list(walks)
    assert count_round_trips(np.array([2, 0, 2, 1])[:, None], 3)[0] == 0


def test_a_warm_up_gives_every_temperature_the_steps_found_there():
    """Moves with a record get its step, those without keep theirs; replicas go on from where they were left."""
    exchange, _ = exchange_with((0.0, 0.0, 0.0))
    steps, asked = exchange.steps.copy(), []

    class Tuned(Recorded):
        def run(self, function, tasks, recipe):
            for task in tasks:
                asked.append({**inspect.signature(function).bind(recipe, *task).arguments, "steps": task[2].copy()})
            return [
                ({**task[0], "momentum": np.full(7, float(r))}, [None, StepTuner(0.001 * (r + 1), 0.5)])
                for r, task in enumerate(tasks)
            ]

    exchange.backend = Tuned((0.0, 0.0, 0.0))
    records = exchange.warm_up(7)
    assert [task["temperature"] for task in asked] == T.tolist() and {task["sweeps"] for task in asked} == {7}
    assert all(np.array_equal(task["steps"], row) for task, row in zip(asked, steps, strict=True))
    assert np.array_equal(exchange.steps[:, 0], steps[:, 0])
    assert exchange.steps[:, 1] == pytest.approx([0.001, 0.002, 0.003])
    assert [replica["momentum"][0] for replica in exchange.replicas] == [0.0, 1.0, 2.0]
    assert exchange.tuned and [row[0] for row in records] == [None] * 3


def test_the_summary_by_hand():
    exchange, _ = exchange_with((10.0, 10.0, 900.0))
    none = exchange.summary()
    assert none["exchange_acceptance"] == [None, None] and none["move_acceptance"] == [[None, None]] * 3
    assert none["force_calls"] == none["iterations"] == none["frames_per_replica"] == 0
    exchange.run(4)
    found = exchange.summary()
    assert (found["iterations"], found["frames_per_replica"]) == (4, 4 * exchange.sweeps // exchange.every)
    assert found["exchange_acceptance"] == [1.0, 0.0] and found["temperatures_K"] == T.tolist()
    assert found["move_acceptance"][2] == pytest.approx([12 / 102] * 2)  # its replica never leaves 400 K
    assert found["force_calls"] == 4 * 2 * (1000 + 1001 + 1002)
    assert np.array_equal(exchange.move_counts[2], np.full((2, 3), 4) * (102, 12, 1002))


def test_walks_that_begin_or_stay_in_the_middle():
    """The way down before the first start does not count, and turning back half way is no trip."""
    walks = {0: [1, 1, 1], 1: [1, 2, 1, 0, 1, 2, 2, 1, 0], 2: [2, 0, 1, 0, 2, 0, 0, 2, 0, 2]}
    for trips, walk in walks.items():
        assert count_round_trips(np.array(walk)[:, None], 3).tolist() == [trips]
