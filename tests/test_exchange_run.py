"""`ExchangeRun` of a run whose files are written by hand: frames and energies are at the places that are asked for."""

from __future__ import annotations

import butane
import mdtraj
import numpy as np
import pytest

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError
from peptidyn.core.sealed_files import write_sealed_json, write_sealed_text
from peptidyn.runs import exchange_run
from peptidyn.runs.exchange_run import ExchangeRun, _joined, _runs
from peptidyn.runs.settings import ExchangeSettings
from peptidyn.sampling.replicas import Stretch
from peptidyn.sampling.storage import ENERGY_ROW, ExchangeFolder

T = [300.0, 360.0, 432.0]

WALK = np.array([[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 1, 2], [0, 2, 1]])
"""Level of three replicas during five iterations."""

EVERY = 2
"""Frames of a replica per iteration."""

BOXES = [np.array([[3.0, 0, 0], [0.3, 4.0, 0], [0.6, -0.4, 5.0]]), None]


def position(replica, frame):
    """Positions (4, 3), nm, that tell where they are from."""
    return np.arange(12.0).reshape(4, 3) + 100.0 * replica + frame


def write(path, box=None, frames=10, walk=WALK):
    """Write a run of three replicas, as replica exchange does."""
    tree, system, topology = butane.make_tree(), butane.make_system(), butane.make_topology()
    topology.setPeriodicBoxVectors(box)
    files = ExchangeFolder(path, 3)
    with files:
        files.begin(ptd.Structure.from_openmm(topology, system, tree.positions(tree.reference)), False)
        for r in range(3):
            rows = np.zeros(frames, dtype=ENERGY_ROW)
            rows["iteration"] = np.repeat(np.arange(len(WALK)), EVERY)[:frames]
            rows["level"] = walk[rows["iteration"], r]
            rows["temperature"] = np.array(T)[rows["level"]]
            rows["potential"] = 100.0 * r + np.arange(frames)
            x = np.array([position(r, k) for k in range(frames)], dtype=np.float32).reshape(frames, 4, 3)
            files.append(r, Stretch({}, np.zeros((frames, 1)), x, None, None, 0, 0, []), rows, topology, 0)
        for iteration, row in enumerate(walk):
            files.append_exchange(iteration, row, 2)
        replica = {
            "joint_inertia": np.zeros(1), "geometry": np.zeros((4, 3)), "q": np.zeros(1), "momentum": np.zeros(7),
            "base_position": np.zeros((1, 3)), "base_rotation": np.zeros((1, 4)), "momenta_valid": False, "rng": {},
        }  # fmt: skip
        about = {
            "iterations": len(WALK), "frames": frames, "attempted": [10, 0], "accepted": [5, 0],
            "move_counts": [[[10, 9, 100], [20, 5, 21]]] * 2 + [[[0, 0, 0], [4, 1, 5]]],
            "identity": {"temperatures": T, "moves": [{"move": "A"}, {"move": "B"}]},
        }  # fmt: skip
        files.save(about, [replica] * 3, np.eye(3) if box is None else box)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("exchange") / "x")


@pytest.fixture
def run(folder):
    return ExchangeRun(folder)


# ---------------------------------------------------------------------------- the run


def test_what_a_checkpoint_says(run):
    assert run.temperatures.tolist() == T and run.n_replicas == 3 and run.n_frames == 10
    assert [move["move"] for move in run.moves] == ["A", "B"]
    assert run.acceptance == pytest.approx([0.5, np.nan], nan_ok=True)
    rates = [[0.9, 0.25]] * 2 + [[np.nan, 0.25]]
    assert run.move_acceptance == pytest.approx(np.array(rates), nan_ok=True)
    assert run.force_calls == 2 * (100 + 21) + 5
    assert np.array_equal(run.walk, WALK) and run.structure.n_atoms == 4
    assert run.rows.shape == (3, 10) and run.rows["potential"][2, 3] == 203.0
    assert run.settings is None and run.summary == {} and run.ending == "finished"


def test_round_trips(run):
    """The first replica went 0 1 2 0, the others did not come back to where they began."""
    assert run.round_trips.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("temperature", "level"),
    [(None, 0), (300.0, 0), (299.51, 0), (300.49, 0), (360.3, 1), (431.6, 2), (432.49, 2)],
)
def test_temperatures_of_the_ladder(run, temperature, level):
    assert run.level(temperature) == level


@pytest.mark.parametrize("temperature", [299.4, 300.6, 330.0, 359.4, 432.6, 1e6])
def test_temperatures_that_nobody_was_at(run, temperature):
    with pytest.raises(ArgumentError, match=r"has 300\.0, 360\.0, 432\.0 K"):
        run.level(temperature)


def wanted_places(level):
    return [
        (r, EVERY * i + k)
        for i in range(len(WALK))
        for r in range(3)
        for k in range(EVERY)
        if WALK[i, r] == level
    ]  # fmt: skip


@pytest.mark.parametrize("level", [0, 1, 2])
def test_places_of_a_temperature_come_in_the_order_of_iterations(run, level):
    places = run.places(level)
    assert [tuple(place) for place in places.tolist()] == wanted_places(level)
    assert run.energies(level)["potential"].tolist() == [100.0 * r + k for r, k in wanted_places(level)]


# ---------------------------------------------------------------------------- frames


@pytest.mark.parametrize(
    "places",
    [[(0, 0)], [(2, 9), (0, 3), (1, 3), (0, 4), (0, 5), (0, 2), (2, 0)], [(1, 4), (1, 4), (1, 5)], [(2, 7), (2, 5)]],
)
@pytest.mark.parametrize("atoms", [None, [1, 3]])
def test_frames_come_in_the_order_that_is_asked_for(run, monkeypatch, places, atoms):
    """All at once, however few a trajectory that is written has in memory."""
    monkeypatch.setattr(exchange_run, "CHUNK", 2)
    found = run.frames(np.array(places), None if atoms is None else np.array(atoms))
    chosen = [0, 1, 2, 3] if atoms is None else atoms
    assert found.xyz == pytest.approx(np.array([position(r, k)[chosen] for r, k in places]), rel=1e-6)
    assert [atom.name for atom in found.topology.atoms] == [f"C{i + 1}" for i in chosen]


def test_no_frames(run):
    assert run.frames(np.empty((0, 2), dtype=int)).xyz.shape == (0, 4, 3)


@pytest.mark.parametrize(
    ("frames", "runs"),
    [([], []), ([5], [(0, 1)]), ([5, 6, 7], [(0, 3)]), ([5, 7, 8, 3], [(0, 1), (1, 3), (3, 4)]),
     ([2, 2], [(0, 1), (1, 2)]), ([4, 3], [(0, 1), (1, 2)])],
)  # fmt: skip
def test_consecutive_frames_are_read_at_once(frames, runs):
    assert list(_runs(np.array(frames, dtype=int))) == runs


def test_frames_without_a_box_or_with_an_empty_one_have_none():
    x, lengths, angles = np.ones((4, 3)), np.array([30.0, 40.0, 50.0]), np.array([80.0, 85.0, 90.0])
    for frames in ([(x, None, None)], [(x, lengths, angles), (x, 0.0 * lengths, angles)]):
        xyz, *box = _joined(frames)
        assert box == [None, None] and np.array_equal(xyz, np.full((len(frames), 4, 3), 0.1))
    xyz, found, turned = _joined([(x, lengths, angles), (2 * x, 2 * lengths, angles)])
    assert found.tolist() == [[3.0, 4.0, 5.0], [6.0, 8.0, 10.0]] and turned.tolist() == [angles.tolist()] * 2
    assert xyz[1].tolist() == [[0.2] * 3] * 4


@pytest.mark.parametrize("suffix", ["dcd", "xtc"])
@pytest.mark.parametrize("box", BOXES, ids=["box", "no box"])
@pytest.mark.parametrize("chunk", [3, 500])
def test_a_trajectory_of_one_temperature(tmp_path, monkeypatch, suffix, box, chunk):
    """Whatever fits into memory: all frames in order, with their box, and in XTC with their iterations."""
    monkeypatch.setattr(exchange_run, "CHUNK", chunk)
    run = ExchangeRun(write(tmp_path / "x", box))
    target = tmp_path / f"a.{suffix}"
    target.write_text("what was there before")
    assert run.write_trajectory(target, 360.2) == 10
    found = mdtraj.load(target, top=tmp_path / "x" / "topology.pdb")
    places = wanted_places(1)
    assert found.n_frames == len(places) == 10
    assert np.abs(found.xyz - np.array([position(r, k) for r, k in places])).max() < 1e-3
    if box is None:
        assert found.unitcell_lengths is None
    else:
        assert found.unitcell_vectors == pytest.approx(np.tile(box, (10, 1, 1)), abs=1e-4)
    if suffix == "xtc":
        assert found.time.tolist() == [k // EVERY for _, k in places]
    assert run.write_trajectory(target) == 10


def test_trajectories_that_are_refused(run, tmp_path):
    with pytest.raises(ArgumentError, match=r"a\.pdb: its name must end in \.dcd or \.xtc"):
        run.write_trajectory(tmp_path / "a.pdb")
    with pytest.raises(ArgumentError, match="temperature=330"):
        run.write_trajectory(tmp_path / "a.dcd", 330.0)
    assert not list(tmp_path.iterdir())
    low = ExchangeRun(write(tmp_path / "x", walk=np.minimum(WALK, 1)))
    with pytest.raises(ArgumentError, match=r"no replica has been at 432\.0 K yet"):
        low.write_trajectory(tmp_path / "a.dcd", 432.0)
    assert not (tmp_path / "a.dcd").exists()
    assert low.write_trajectory(tmp_path / "a.dcd", 360.0) == 20


# ---------------------------------------------------------------------------- how a run ended


@pytest.mark.parametrize(
    ("iterations", "summary", "ending"),
    [(5, True, "finished"), (4, True, "finished"), (6, True, "unfinished"), (5, False, "unfinished")],
)
def test_a_run_with_settings_is_finished_when_all_iterations_and_its_summary_are_there(
    tmp_path, iterations, summary, ending
):
    path = write(tmp_path / "x")
    settings = ExchangeSettings(iterations=iterations, seed=1)
    write_sealed_text(path / "exchange.toml", settings.to_toml())
    if summary:
        write_sealed_json(path / "summary.json", {"complete": True, "settings": {"seed": 1}})
    run = ExchangeRun(path)
    assert run.settings == settings and run.ending == ending
    assert bool(run.summary) == summary


def test_settings_that_are_lost(tmp_path):
    """The summary of `exchange` has settings; that of a run of the library has none."""
    path = write(tmp_path / "x")
    write_sealed_json(path / "summary.json", {"complete": True})
    assert ExchangeRun(path).settings is None
    write_sealed_json(path / "summary.json", {"complete": True, "settings": {}})
    with pytest.raises(CheckpointError, match=r"has lost exchange\.toml"):
        _ = ExchangeRun(path).settings


# ---------------------------------------------------------------------------- folders that are refused


@pytest.mark.parametrize("name", ["exchanges.csv", "topology.cif"])
def test_folders_without_a_run(tmp_path, name):
    path = write(tmp_path / "x")
    (path / name).unlink()
    with pytest.raises(ArgumentError, match=rf"holds no replica exchange run: there is no {name} in it"):
        ExchangeRun(path)


def test_a_run_without_frames(tmp_path):
    with pytest.raises(ArgumentError, match="has written no frame yet"):
        ExchangeRun(write(tmp_path / "x", frames=0))


def test_files_that_were_changed_or_lost(tmp_path):
    path = write(tmp_path / "x")
    file = path / "replica-02" / "energies.npy"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"energies\.npy"):
        ExchangeRun(path)
    file.write_bytes(data)
    ExchangeRun(path)
    (path / "checkpoint.npz").unlink()
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz is missing"):
        ExchangeRun(path)


def test_frames_and_iterations_behind_the_checkpoint_are_not_read(tmp_path):
    path = write(tmp_path / "x")
    files = ExchangeFolder(path, 3)
    files.append_exchange(5, np.array([2, 1, 0]), 2)
    row = np.zeros(1, dtype=ENERGY_ROW)
    for r in range(3):
        stretch = Stretch({}, np.zeros((1, 1)), np.ones((1, 4, 3), dtype=np.float32), None, None, 0, 0, [])
        files.append(r, stretch, row, butane.make_topology(), 10)
    run = ExchangeRun(path)
    assert len(run.walk) == 5 and run.rows.shape == (3, 10) and len(run.places(0)) == len(wanted_places(0))
