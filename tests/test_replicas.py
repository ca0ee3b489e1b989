"""Stretches of replicas on any worker: where they begin, what they return, how they are tuned, and walkers lent."""

from __future__ import annotations

import butane
import numpy as np
import openmm
import pytest
from butane_exchange import make
from real_structures import DATA

import peptidyn as ptd
from peptidyn.sampling import replicas
from peptidyn.sampling.replicas import KEPT, Recipe, run_stretch, start_checkpoint, tune_stretch


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """Walkers that wait: none at first."""
    found: dict = {}
    monkeypatch.setattr(replicas, "_idle", found)
    return found


def recipe_of(*moves, **options):
    tree, system = butane.make_tree(), openmm.XmlSerializer.serialize(butane.make_system())
    return Recipe(tree, system, moves, platform="Reference", **options)


def bent(tree):
    """Return positions with other bonds and angles than those of the tree."""
    return tree.positions(tree.reference) + 0.003 * np.random.default_rng(1).normal(size=(4, 3))


class Turn(ptd.TorsionMove):
    """Turn the torsion by 0.1, with ten force calls, and count the first, the third ... of these as accepted."""

    def _propose(self, walker):
        seen.append((self, self.step, walker.temperature, walker.rng.random()))
        walker.force_calls += 10
        q = walker.mover.q.copy()
        q[0] += 0.1
        walker.mover.set_state(walker.mover.state.replace(q=q))
        walker.changed()
        return self.proposed % 2 == 0


seen: list = []


@pytest.fixture(autouse=True)
def _nothing_seen():
    seen.clear()


# ---------------------------------------------------------------------------- where a replica begins


def test_a_replica_begins_at_its_positions_without_momenta():
    """Its bonds and angles are those of the positions, its random numbers those of its seed."""
    tree = butane.make_tree().with_joint_inertia([0.25])
    recipe, x = Recipe(tree, "", ()), bent(tree)
    before = x.copy()
    one, same, other = (start_checkpoint(recipe, x, seed) for seed in map(np.random.SeedSequence, (3, 3, 4)))
    assert one["joint_inertia"].tolist() == [0.25] and one["momentum"].tolist() == [0.0] * 7
    assert not one["momenta_valid"] and np.array_equal(one["geometry"], x)
    state = tree.with_geometry(x).reference
    for name in ("q", "base_position", "base_rotation"):
        assert np.array_equal(one[name], getattr(state, name))
    assert one["rng"] == same["rng"] != other["rng"]
    assert one["rng"] == np.random.default_rng(np.random.SeedSequence(3)).bit_generator.state
    one["geometry"] += 1.0
    one["joint_inertia"] += 1.0
    assert np.array_equal(x, before) and tree.joint_inertia.tolist() == [0.25]
    children = np.random.SeedSequence(3).spawn(2)
    states = [start_checkpoint(recipe, x, child)["rng"] for child in children]
    assert states[0] != states[1] != one["rng"] != states[0]


def test_a_walker_has_all_parts_of_its_recipe():
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = ptd.make_system(structure.topology, "vacuum")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    text = openmm.XmlSerializer.serialize(system)
    recipe = Recipe(ptd.build_tree(structure), text, (), 3.0, "CPU", {"Threads": "2"})
    walker = recipe.make_walker(350.0)
    assert walker.temperature == pytest.approx(350.0) and walker.masses.min() == pytest.approx(3.0)
    platform = walker.context.getPlatform()
    assert platform.getName() == "CPU" and platform.getPropertyValue(walker.context, "Threads") == "2"
    plain = Recipe(recipe.tree, text, (), None, "Reference").make_walker(300.0)
    assert plain.masses.min() < 1.1 and plain.context.getPlatform().getName() == "Reference"


# ---------------------------------------------------------------------------- one stretch


@pytest.mark.parametrize(("sweeps", "every", "kept"), [(5, 2, [2, 4]), (4, 1, [1, 2, 3, 4]), (3, 4, []), (4, 4, [4])])
def test_frames_of_a_stretch(sweeps, every, kept):
    """After every few sweeps of two moves, each of which turns the torsion by 0.1; the end is after the last sweep."""
    recipe = recipe_of(Turn(turn=60), Turn(turn=30))
    x = bent(recipe.tree)
    start = start_checkpoint(recipe, x, np.random.SeedSequence(1))
    stretch = run_stretch(recipe, start, 420.0, [0.5, 0.25], sweeps, every)
    assert stretch.q.shape == (len(kept), 1) and stretch.positions.shape == (len(kept), 4, 3)
    assert stretch.positions.dtype == np.float32 and stretch.potential.shape == stretch.metric.shape == (len(kept),)
    turned = start["q"][0] + 0.2 * np.array([*kept, sweeps])
    assert stretch.q[:, 0] == pytest.approx((turned[:-1] + np.pi) % (2 * np.pi) - np.pi, abs=1e-12)
    tree, context = recipe.tree.with_geometry(x), openmm.Context(butane.make_system(), openmm.VerletIntegrator(0.001))
    ends = zip([*stretch.potential, stretch.final_potential], [*stretch.metric, stretch.final_metric], strict=True)
    for i, (q, (potential, metric)) in enumerate(zip(turned, ends, strict=True)):
        state = tree.reference.replace(q=np.array([q]))
        positions = tree.positions(state)
        if i < len(kept):
            assert np.abs(stretch.positions[i] - positions).max() < 1e-6
        context.setPositions(positions)
        assert potential == pytest.approx(context.getState(energy=True).getPotentialEnergy()._value, rel=1e-4)
        # U_F / kT, whatever the temperature
        assert metric == pytest.approx(0.5 * np.linalg.slogdet(ptd.mass_matrix(tree, state))[1], rel=1e-9)
    assert stretch.checkpoint["q"][0] == pytest.approx(turned[-1], abs=1e-12)
    assert np.array_equal(stretch.checkpoint["geometry"], x)
    half = (sweeps + 1) // 2
    assert stretch.counts == [(sweeps, half, 10 * sweeps)] * 2


def test_a_stretch_has_its_temperature_its_steps_and_its_random_numbers():
    recipe = recipe_of(Turn(turn=60), Turn(turn=30))
    start = start_checkpoint(recipe, bent(recipe.tree), np.random.SeedSequence(5))
    rng = np.random.default_rng(np.random.SeedSequence(5))
    for temperature, steps in ((420.0, [0.5, 0.25]), (310.0, [0.1, 0.2])):
        seen.clear()
        stretch = run_stretch(recipe, start, temperature, steps, 2, 1)
        assert [step for _, step, _, _ in seen] == steps * 2
        assert [T for _, _, T, _ in seen] == pytest.approx([temperature] * 4)
        assert [number for *_, number in seen] == rng.random(4).tolist()
        assert stretch.checkpoint["rng"] == rng.bit_generator.state
        start = stretch.checkpoint
    assert [move.step for move in recipe.moves] == pytest.approx(np.deg2rad([60.0, 30.0]))  # which others have, too
    assert [move.proposed for move in recipe.moves] == [0, 0]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        run_stretch(recipe, start, 300.0, [0.1], 1, 1)


def test_a_stretch_in_two_parts_is_the_whole_one():
    """Momenta that are kept in part between trajectories go on, at the temperature of the checkpoint."""
    recipe = recipe_of(ptd.TorsionalHMC(0.004, 2, friction=1.0))
    start = start_checkpoint(recipe, bent(recipe.tree), np.random.SeedSequence(6))
    whole = run_stretch(recipe, start, 400.0, [0.004], 4, 1)
    first = run_stretch(recipe, start, 400.0, [0.004], 2, 1)
    assert first.checkpoint["momenta_valid"] and first.checkpoint["momentum"].any()
    second = run_stretch(recipe, first.checkpoint, 400.0, [0.004], 2, 1)
    assert np.array_equal(np.concatenate([first.q, second.q]), whole.q)
    for name in ("q", "momentum", "base_position"):
        assert np.array_equal(second.checkpoint[name], whole.checkpoint[name])


# ---------------------------------------------------------------------------- tuning


def test_tuning_records_every_move_with_a_metropolis_test():
    """From its own step, for its own target, up to its largest; the step of another move stays."""
    recipe = recipe_of(Turn(turn=60, target=0.3), ptd.TorsionalLangevin(0.002, 1), Turn(turn=30, target=0.6))
    start = start_checkpoint(recipe, bent(recipe.tree), np.random.SeedSequence(7))
    checkpoint, (one, none, two) = tune_stretch(recipe, start, 420.0, [0.5, 0.002, 0.25], 3)
    assert none is None and (one.target, two.target) == (0.3, 0.6)
    assert one.largest == two.largest == pytest.approx(np.pi)
    assert one.steps[0] == pytest.approx(0.5) and two.steps[0] == pytest.approx(0.25)
    assert one.outcomes == two.outcomes == [True, False, True]
    assert [T for _, _, T, _ in seen] == pytest.approx([420.0] * 6)
    assert [step for _, step, _, _ in seen[::2]] == pytest.approx(one.steps)
    rng = np.random.default_rng(np.random.SeedSequence(7))
    assert checkpoint["rng"] != rng.bit_generator.state and checkpoint["q"][0] != start["q"][0]


def test_tuning_ends_with_the_warm_up(monkeypatch):
    """What a move did then is not counted, and its step stays in the stretches that follow, even if it failed."""
    recipe = recipe_of(Turn(turn=60))
    start = start_checkpoint(recipe, bent(recipe.tree), np.random.SeedSequence(8))
    _, (tuner,) = tune_stretch(recipe, start, 420.0, [0.5], 3)
    seen.clear()
    stretch = run_stretch(recipe, start, 420.0, [0.5], 4, 1)
    assert [step for _, step, _, _ in seen] == [0.5] * 4 and len(tuner.steps) == 3
    assert stretch.counts == [(4, 2, 40)] and seen[0][0].tuner is None
    move = seen[0][0]
    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(Turn, "_propose", fail)
        tune_stretch(recipe, start, 420.0, [0.5], 3)
    assert move.tuner is None


# ---------------------------------------------------------------------------- walkers that are lent


def fail(*_):
    raise RuntimeError


def test_a_walker_is_lent_again_and_moves_are_its_own(idle):
    recipe = recipe_of(Turn(turn=60))
    with replicas._borrowed(recipe) as (one, moves), replicas._borrowed(recipe) as (two, others):
        assert one is not two and moves[0] is not others[0]
        assert recipe.moves[0] not in (moves[0], others[0])
        assert idle[recipe.key] == []
    assert {id(walker) for walker, _ in idle[recipe.key]} == {id(one), id(two)}
    with replicas._borrowed(recipe) as (again, _):
        assert again in (one, two) and len(idle[recipe.key]) == 1


def test_a_walker_that_failed_is_not_lent_again(idle):
    recipe = recipe_of(Turn(turn=60))
    with pytest.raises(RuntimeError), replicas._borrowed(recipe):
        fail()
    assert idle[recipe.key] == []


def test_walkers_of_the_recipes_that_were_used_last_are_kept(idle):
    recipes = [recipe_of(Turn(turn=60), hydrogen_mass=mass) for mass in (None, 2.0, 2.5, 3.0, 3.5, 4.0)]
    for recipe in [*recipes[:KEPT], recipes[0], recipes[4], recipes[5]]:
        with replicas._borrowed(recipe):
            pass
    assert KEPT == 4 and list(idle) == [recipes[i].key for i in (3, 0, 4, 5)]


@pytest.mark.parametrize(
    ("worker", "platform", "threads", "kept"),
    [(True, "CPU", "1", True), (False, "CPU", "1", False), (True, "Reference", "1", False), (True, "CPU", "2", False),
     (True, "CPU", None, False)],
)  # fmt: skip
def test_only_workers_with_one_thread_keep_to_one_core(monkeypatch, worker, platform, threads, kept):
    """From the first stretch on; looked at after every stretch, and idle times do not count."""
    asked = []

    class Core:
        def __init__(self, wanted):
            asked.append(wanted)

        def __enter__(self):
            asked.append("enter")
            return self

        def skip(self):
            asked.append("skip")

        def look(self):
            asked.append("look")

    monkeypatch.setattr(replicas, "_core", None)
    monkeypatch.setattr(replicas, "OneCore", Core)
    monkeypatch.setattr(replicas.multiprocessing, "parent_process", lambda: object() if worker else None)
    properties = {} if threads is None else {"Threads": threads}
    recipe = Recipe(butane.make_tree(), "", (), None, platform, properties)
    for _ in range(2):
        with replicas._on_one_core(recipe):
            asked.append("work")
    assert asked == [kept, "enter", *["skip", "work", "look"] * 2]


def test_stretches_of_replicas_differ_in_what_they_are_given_alone():
    """Threads or processes may take them in any order: each is a function of its arguments."""
    run = make(moves=[ptd.TorsionMove(turn=60)])
    tasks = [(run.recipe, run.replicas[r], T, [0.5 + r], 3, 1) for r, T in ((0, 300.0), (1, 500.0))]
    there = [run_stretch(*task) for task in tasks]
    back = [run_stretch(*task) for task in tasks[::-1]][::-1]
    for one, other in zip(there, back, strict=True):
        assert np.array_equal(one.q, other.q) and np.array_equal(one.potential, other.potential)
    assert not np.array_equal(there[0].q, there[1].q)
