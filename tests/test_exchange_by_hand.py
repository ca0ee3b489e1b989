"""What replica exchange asks its parts for, call by call."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import openmm
import pytest
from butane_exchange import T, contents, make
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import BackendError, OutputError
from peptidyn.runs import exchange as exchange_runs
from peptidyn.runs.model import make_model
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.settings import ExchangeSettings
from peptidyn.sampling import exchange
from peptidyn.sampling.backends import _gather
from peptidyn.sampling.mbar import TemperatureMBAR
from peptidyn.sampling.replicas import run_stretch
from peptidyn.sampling.storage import ExchangeFolder
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
    for counts in ("levels", "steps", "attempted", "accepted", "move_counts"):
        assert np.array_equal(getattr(runs[0], counts), getattr(runs[1], counts)), counts
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


def test_walkers_are_lent_to_runs_of_the_same_parts_only():
    """What one run leaves behind would otherwise move the replicas of the next: other forces or masses."""
    recipe = make(moves=[ptd.TorsionMove(turn=60)]).recipe
    system = openmm.XmlSerializer.deserialize(recipe.system)
    system.removeForce(0)
    others = [
        replace(recipe, tree=recipe.tree.with_joint_inertia(np.ones(1))),
        replace(recipe, system=openmm.XmlSerializer.serialize(system)),
        replace(recipe, moves=(ptd.TorsionMove(turn=60, tries=2),)),
        replace(recipe, hydrogen_mass=3.0),
        replace(recipe, platform="CPU"),
        replace(recipe, properties={"Threads": "1"}),
    ]
    assert len({recipe.key, *(other.key for other in others)}) == 1 + len(others)
    assert replace(recipe).key == recipe.key


def test_a_warm_up_tunes_for_the_target_of_its_own_run():
    """Not for that of an earlier run in this process, which was the same but for its target."""
    for target in (0.4, 0.9):
        run = make(moves=[ptd.TorsionMove(turn=60, target=target)])
        assert [tuner.target for level in run.warm_up(1) for tuner in level] == [target] * len(T)


def test_replicas_have_what_the_settings_say(monkeypatch):
    """Stretches of 20 steps are two sweeps of trajectories with 10; pivot moves are shared among the sweeps."""
    asked = {}

    def record(tree, system, temperatures, **options):
        asked.update(options, temperatures=temperatures)

    monkeypatch.setattr(exchange_runs, "ReplicaExchange", record)
    settings = ExchangeSettings(
        file=str(DATA / "ala1.pdb"), solvent="vacuum", replicas=3, tmin=300.0, tmax=432.0, interval=20, friction=7.0,
        timestep=3.0, hydrogen_mass=3.0, metric="auto", pivots=6, exact=True, seed=9, platform="Reference",
    )  # fmt: skip
    model = make_model(settings, prepare_structure(settings))
    exchange_runs._replicas(settings, model, None, backend="serial")
    assert asked["temperatures"] == pytest.approx([300.0, 360.0, 432.0])
    given = {"sweeps": 2, "hydrogen_mass": 3.0, "metric": "auto", "seed": 9, "platform": "Reference"}
    assert {name: asked[name] for name in given} == given
    hmc, cartesian, pivot = asked["moves"]
    assert (hmc.step, hmc.steps, hmc.friction) == (pytest.approx(0.003), 10, 7.0)
    assert (cartesian.step, cartesian.steps) == (0.001, 10) and pivot.tries == 3


def test_replicas_come_back_from_a_checkpoint_in_their_order(tmp_path):
    run = make(tmp_path)
    run.run(1)
    run.close()
    _, replicas = ExchangeFolder(tmp_path, 3).load()
    stored = np.load(tmp_path / "checkpoint.npz")
    for i, replica in enumerate(replicas):
        for name in ("q", "base_position", "momentum"):
            assert np.array_equal(replica[name], stored[name][i])
    assert len({str(replica["rng"]) for replica in replicas}) == 3


def test_results_of_lost_tasks_are_put_in_their_places():
    """The second and the fourth of four tasks lose their worker; one of them once more."""
    submitted = []

    class Task:
        def __init__(self, value):
            self.value = value

        def result(self):
            if self.value is None:
                raise ConnectionError
            return self.value

    def submit(places):
        submitted.append(list(places))
        answers = {1: 11, 3: None} if len(submitted) == 1 else {3: 13}
        return {i: Task(answers[i]) for i in places}

    first = {i: Task(value) for i, value in enumerate((10, None, 12, None))}
    assert _gather(4, first, submit, lambda: None, (ConnectionError,), "hint") == [10, 11, 12, 13]
    assert submitted == [[1, 3], [3]]
    with pytest.raises(BackendError, match="1 tasks lost their worker 4 times"):
        _gather(1, {0: Task(None)}, lambda places: {0: Task(None)}, lambda: None, (ConnectionError,), "hint")


def test_files_that_are_cut_back_are_those_of_a_shorter_run(tmp_path):
    """Every file, the reduced energies too, so that a resumed run goes on behind what its checkpoint vouches for."""
    for name, iterations in (("short", 1), ("long", 3)):
        with make(tmp_path / name) as run:
            run.run(iterations)
    short, long = contents(tmp_path / "short"), contents(tmp_path / "long")
    assert "reduced.npy" in short and all(len(long[name]) > len(data) for name, data in short.items())
    ExchangeFolder(tmp_path / "long", len(T)).cut_back(1, 1)
    assert contents(tmp_path / "long") == short
