"""What replica exchange makes of its arguments, what it refuses, and what a run keeps of them."""

from __future__ import annotations

import csv
from dataclasses import replace

import butane
import numpy as np
import pytest
from butane_exchange import make
from openmm import unit

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError, SamplingError
from peptidyn.engine.kinetic_metric import LANGEVIN_STEPS
from peptidyn.sampling.exchange import _topology_hash
from peptidyn.sampling.walker import walker_tree

TWO = [300.0, 400.0]


def turning(folder=None, temperatures=TWO, **options):
    """Replicas of which the torsion turns, one sweep between exchanges."""
    return make(folder, temperatures=temperatures, **{"moves": [ptd.TorsionMove(turn=60)], "sweeps": 1, **options})


class Ends:
    """A backend whose stretches end with the energies (kJ/mol) that are given."""

    def __init__(self, *potential):
        self.potential = potential

    def run(self, function, tasks, recipe):
        return [
            replace(function(recipe, *task), final_potential=V, final_metric=0.0)
            for task, V in zip(tasks, self.potential, strict=True)
        ]

    def close(self):
        pass


# ---------------------------------------------------------------------------- defaults and settings


def test_moves_and_frames_that_are_not_given():
    made = ptd.ReplicaExchange(butane.make_tree(), butane.make_system(), TWO, platform="Reference")
    (move,) = made.recipe.moves
    assert move.settings == ptd.TorsionalHMC(0.004, 10, friction=1.0).settings and move.friction == 1.0
    assert (made.sweeps, made.every) == (10, 10) and made.steps.tolist() == [[0.004], [0.004]]
    assert made.recipe.hydrogen_mass is None and made.recipe.properties == {} and not made.tuned


def test_what_is_given_reaches_the_walkers():
    made = ptd.ReplicaExchange(
        butane.make_tree(), butane.make_system(), [300.0 * unit.kelvin, 400.0], hydrogen_mass=3.0 * unit.dalton,
        platform="CPU", properties={"Threads": "1"}, sweeps=5, every=2,
    )  # fmt: skip
    recipe = made.recipe
    assert (recipe.hydrogen_mass, recipe.platform, recipe.properties) == (3.0, "CPU", {"Threads": "1"})
    assert (made.sweeps, made.every) == (5, 2) and made.temperatures.tolist() == TWO


def test_workers_are_as_many_as_asked_for():
    for kind in ("threads", "processes"):
        with turning(backend=kind, workers=3) as made:
            assert getattr(made.backend, "workers", None) == 3 or made.backend._pool._max_workers == 3


@pytest.mark.parametrize(
    "options",
    [{"temperatures": [300.0]}, {"temperatures": [300.0, 300.0]}, {"temperatures": [400.0, 300.0]}, {"sweeps": 0},
     {"sweeps": 2, "every": 3}, {"sweeps": 2, "every": 0}, {"positions": np.zeros((3, 4, 3))},
     {"positions": np.zeros((3, 3))}],
)  # fmt: skip
def test_arguments_that_make_no_run(options):
    with pytest.raises(ArgumentError):
        turning(**options)


def test_two_temperatures_are_a_ladder():
    assert ptd.geometric_temperatures(300, 400, 2) == pytest.approx([300.0, 400.0])
    for ends in ((300, 400, 1), (300, 300, 3)):
        with pytest.raises(ArgumentError, match="make no ladder"):
            ptd.geometric_temperatures(*ends)


@pytest.mark.parametrize("langevin", [False, True])
def test_the_metric_is_that_of_the_longest_step_with_the_masses_of_the_run(langevin):
    """Everything soft, hydrogens of 3 Da: the joint inertias are those of a walker at the highest temperature."""
    structure = ptd.build_peptide("G")
    system = ptd.make_system(structure.topology, "vacuum")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    tree = ptd.build_tree(structure, "all")
    kind = ptd.TorsionalLangevin if langevin else ptd.TorsionalHMC
    made = ptd.ReplicaExchange(
        tree, system, [300.0, 600.0], moves=[kind(0.004, 2), kind(0.008, 2)], metric="auto", hydrogen_mass=3.0,
        platform="Reference",
    )  # fmt: skip
    periods = LANGEVIN_STEPS if langevin else None
    wanted = walker_tree(tree, system, 600.0, None, 3.0, "auto", 0.008, periods).joint_inertia
    assert made.recipe.tree.joint_inertia == pytest.approx(wanted) and np.count_nonzero(wanted) > 5


# ---------------------------------------------------------------------------- where replicas start


def starts(*torsions):
    tree = butane.make_tree()
    return np.array([tree.positions(tree.reference.replace(torsions=[f])) for f in torsions])


def test_replicas_start_where_they_are_told(tmp_path):
    own = turning(tmp_path, positions=starts(1.0, 2.0))
    for replica, f in zip(own.replicas, (1.0, 2.0), strict=True):
        assert replica["q"] == pytest.approx([f])
    alike = turning(positions=starts(2.5)[0])
    assert [replica["q"][0] for replica in alike.replicas] == pytest.approx([2.5, 2.5])
    plain = turning()
    assert [replica["q"][0] for replica in plain.replicas] == pytest.approx([butane.make_tree().q_reference[0]] * 2)
    own.close()
    first = ptd.load_structure(tmp_path / "topology.cif").positions  # the files begin with the first replica
    assert np.linalg.norm(first[3] - first[0]) == pytest.approx(np.linalg.norm(np.diff(starts(1.0)[0][[0, 3]], axis=0)))
    states = [str(replica["rng"]) for replica in own.replicas]
    assert len(set(states)) == 2 and str(own._rng.bit_generator.state) not in states


def test_every_start_must_have_an_energy():
    x = starts(1.0, 1.0, 2.0)
    x[2, 3] = x[2, 0]
    with pytest.raises(SamplingError, match="energy of replica 2 is"):
        turning(temperatures=[300.0, 400.0, 500.0], positions=x)


# ---------------------------------------------------------------------------- running


def test_attempts_of_all_iterations_add_up():
    """Two replicas try eight times per iteration; equal energies are always exchanged, and in the end nothing is."""
    made = turning(backend=Ends(5.0, 5.0)).run(3)
    assert made.attempted.tolist() == made.accepted.tolist() == [24] and made.acceptance.tolist() == [1.0]
    assert made.walk.tolist() == [[0, 1]] * 3


def test_frames_between_exchanges():
    """Five sweeps with a frame after the second and the fourth."""
    made = turning(sweeps=5, every=2).run(3)
    rows, q = made.frames_of(0)
    assert made.frames == len(rows) == len(q) == 6 and rows["iteration"].tolist() == [0, 0, 1, 1, 2, 2]
    u, counts = made.u_kn()
    assert u.shape == (2, 12) and counts.tolist() == [6, 6] and made.summary()["frames_per_replica"] == 6
    assert made.summary()["iterations"] == 3
    assert (made.move_counts[:, 0, 0] == 15).all() and made.summary()["force_calls"] > 30


def test_a_run_that_has_not_begun_has_no_frames():
    made = turning()
    rows, q = made.frames_of(1)
    assert rows.shape == (0,) and q.shape == (0, 1) and made.u_kn()[0].shape == (2, 0) and made.walk.shape == (0, 2)
    assert "neighbour_overlap" not in made.summary() and np.isnan(made.acceptance).all()
    assert "neighbour_overlap" not in made.run(1).summary()  # one frame has no overlap
    found = made.run(2).summary()
    assert len(found["neighbour_overlap"]) == 1
    assert len(found["mean_potential_kJ_per_mol"]) == len(found["mean_potential_error_kJ_per_mol"]) == 2


@pytest.mark.parametrize("level", [-1, 2])
def test_temperatures_that_are_not_there(level):
    with pytest.raises(ArgumentError, match="expected 0 to 1"):
        turning().run(1).at_temperature(level)


@pytest.mark.parametrize("energy", [np.inf, -np.inf, np.nan])
def test_an_energy_that_is_no_number_names_the_temperature(energy):
    """The replica has gone from the lowest temperature to the highest before it fails."""
    made = turning(backend=Ends(9000.0, 0.0)).run(1)
    assert made.levels.tolist() == [1, 0]
    made.backend.potential = (energy, 0.0)
    with pytest.raises(
        SamplingError, match=r"replica 0 at 400\.0 K failed in iteration 2: its energy is .* after iteration 1$"
    ):
        made.run(2)
    assert made.iterations == 1 and made.levels.tolist() == [1, 0]


def test_the_table_of_exchanges_counts_who_moved(tmp_path):
    """The first and the last of three change places, then nobody does."""
    with turning(tmp_path, temperatures=[300.0, 400.0, 500.0], backend=Ends(9000.0, 4000.0, 0.0)) as made:
        made.run(1)
        made.run(2)
    with open(tmp_path / "exchanges.csv") as file:
        assert list(csv.reader(file))[1:] == [["0", "0", "1", "2", "2"], ["1", "2", "1", "0", "0"]]


def test_steps_are_tuned_before_the_first_iteration_only():
    made = turning().run(1)
    with pytest.raises(ArgumentError, match="before the first iteration"):
        made.warm_up(2)


# ---------------------------------------------------------------------------- going on


def test_a_warm_up_is_not_repeated_after_resuming(tmp_path):
    with turning(tmp_path) as made:
        made.warm_up(20)
        steps, places = made.steps.copy(), [replica["q"].copy() for replica in made.replicas]
    assert (steps != np.deg2rad(60)).all()
    with turning(tmp_path, resume=True) as again:
        assert again.tuned and np.array_equal(again.steps, steps)
        assert all(np.array_equal(a["q"], q) for a, q in zip(again.replicas, places, strict=True))


@pytest.mark.parametrize(
    ("name", "options"),
    [("sweeps", {"sweeps": 3, "every": 1}), ("every", {"every": 2}), ("hydrogen_mass", {"hydrogen_mass": 3.0}),
     ("temperatures", {"temperatures": [300.0, 401.0]}), ("metric", {"metric": [0.5]}),
     ("moves", {"moves": [ptd.TorsionMove(turn=61)]})],
)  # fmt: skip
def test_a_resumed_run_has_the_same_arguments(tmp_path, name, options):
    with turning(tmp_path, sweeps=2, every=1) as made:
        made.run(1)
    with pytest.raises(CheckpointError, match=f"made with another {name}"):
        turning(tmp_path, resume=True, **{"sweeps": 2, "every": 1, **options})


def test_an_earlier_run_is_replaced_only_if_asked_for(tmp_path):
    with turning(tmp_path) as made:
        made.run(3)
    with pytest.raises(ArgumentError, match="not empty"):
        turning(tmp_path)
    with turning(tmp_path, overwrite=True) as made:
        made.run(1)
        assert len(made.frames_of(0)[0]) == 1 and made.iterations == 1
    with pytest.raises(ArgumentError, match="files need topology="):
        ptd.ReplicaExchange(butane.make_tree(), butane.make_system(), TWO, platform="Reference", folder=tmp_path / "x")
    with pytest.raises(ArgumentError, match="resume needs the folder"):
        turning(resume=True)


def test_trees_are_told_apart_by_more_than_their_geometry():
    """Masses, joints and what is soft; but not bond lengths, which checkpoints hold."""
    chain = ptd.bead_chain(5, 0.15, 1.9, 12.0)
    structure = ptd.build_peptide("AA")
    others = [
        ptd.bead_chain(5, 0.15, 1.9, 13.0), ptd.bead_chain(6, 0.15, 1.9, 12.0), ptd.build_tree(structure, "phi"),
        ptd.build_tree(structure, "psi"), ptd.build_tree(structure, "phi", base="fixed"),
        ptd.build_tree(structure, "phi", root=20),
    ]  # fmt: skip
    assert len({_topology_hash(tree) for tree in (chain, *others)}) == 1 + len(others)
    assert _topology_hash(ptd.bead_chain(5, 0.16, 1.8, 12.0)) == _topology_hash(chain)
