"""`exchange` call by call: what replicas are made of, where they run, how they are tuned, stopped and summed up."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
from quick_systems import systems_made_once
from real_structures import DATA

import peptidyn as ptd
from peptidyn import __version__
from peptidyn.runs import exchange as module
from peptidyn.runs.exchange import _advance, _describe, _find_backend, _NewFolder, _replicas, _summarise, _times, _tune
from peptidyn.runs.model import make_model
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import ExchangeSettings

COMMON = {"file": str(DATA / "ala1.pdb"), "solvent": "vacuum", "platform": "Reference", "seed": 5, "relax": False}


@pytest.fixture(scope="module", autouse=True)
def _systems_are_made_once():
    with systems_made_once():
        yield


def model_of(**given):
    settings = ExchangeSettings(**{**COMMON, **given})
    return make_model(settings, ptd.load_structure(DATA / "ala1.pdb"))


@pytest.fixture
def asked(monkeypatch):
    """What `ReplicaExchange` was made with."""
    found: dict = {}

    def record(tree, system, temperatures, **options):
        found.update(options, tree=tree, system=system, temperatures=temperatures)

    monkeypatch.setattr(module, "ReplicaExchange", record)
    return found


def replicas(asked, backend="serial", positions=None, **given):
    model = model_of(**given)
    _replicas(model.settings, model, positions, backend=backend, workers=2, folder="x")
    return model


@pytest.mark.parametrize(
    ("ensemble", "interval", "steps", "sweeps"),
    [("ghmc", 100, 10, 10), ("ghmc", 7, 7, 1), ("ghmc", 26, 10, 3), ("ghmc", 24, 10, 2), ("langevin", 100, 50, 2),
     ("langevin", 30, 30, 1), ("langevin", 130, 50, 3), ("langevin", 120, 50, 2)],
)  # fmt: skip
def test_a_stretch_is_made_of_trajectories(asked, ensemble, interval, steps, sweeps):
    """Of 10 time steps with a Metropolis test, which rejects long ones, and of 50 without; or shorter."""
    replicas(asked, ensemble=ensemble, interval=interval, friction=3.0, timestep=2.5)
    (move,) = asked["moves"]
    assert type(move) is (ptd.TorsionalLangevin if ensemble == "langevin" else ptd.TorsionalHMC)
    assert (move.step, move.steps, move.friction) == (pytest.approx(0.0025), steps, 3.0) and asked["sweeps"] == sweeps


def test_moves_take_turns(asked):
    """Twelve pivot moves in three sweeps; at least one in every sweep."""
    for pivots, tries in ((12, 4), (1, 1)):
        replicas(asked, interval=30, exact=True, pivots=pivots)
        hmc, cartesian, pivot = asked["moves"]
        assert [type(move) for move in asked["moves"]] == [ptd.TorsionalHMC, ptd.CartesianHMC, ptd.PivotMove]
        assert (cartesian.step, cartesian.steps, pivot.tries, hmc.steps) == (0.001, 10, tries, 10)


def test_replicas_are_of_the_model(asked):
    x = np.ones((22, 3))
    model = replicas(asked, positions=x, replicas=3, tmin=300.0, tmax=432.0, hydrogen_mass=2.0, preset="heavy")
    assert asked["tree"] is model.tree and asked["system"] is model.system and asked["positions"] is x
    assert asked["topology"] is model.structure.topology and asked["temperatures"] == pytest.approx([300, 360, 432])
    same = {"hydrogen_mass": 2.0, "metric": "auto", "seed": 5, "backend": "serial", "workers": 2, "folder": "x"}
    assert {name: asked[name] for name in same} == same and asked["moves"][0].step == pytest.approx(0.024)
    replicas(asked, seed=None, metric="physical", preset="heavy")
    assert asked["seed"] == 0 and asked["metric"] == "physical" and asked["positions"] is None


@pytest.mark.parametrize(
    ("given", "backend", "platform", "threads"),
    [
        ({"platform": "Reference"}, "processes", "Reference", None),
        ({"platform": "CPU"}, "processes", "CPU", "1"),
        ({"platform": "CPU"}, "threads", "CPU", "1"),
        ({"platform": "CPU", "threads": 3}, "processes", "CPU", "3"),
        ({"platform": "CPU", "threads": 3}, "serial", "CPU", "3"),
        ({"platform": None, "threads": 3}, "serial", "CPU", "3"),
        ({"platform": "CPU"}, "serial", "CPU", None),
    ],
)
def test_replicas_share_the_cores(asked, monkeypatch, given, backend, platform, threads):
    """Several replicas at a time have a thread each, and a single one as many as OpenMM takes."""
    monkeypatch.setattr("peptidyn.runs.model.FEW_ATOMS", 10)
    replicas(asked, backend, **given)
    assert asked["platform"] == platform and asked["properties"] == (None if threads is None else {"Threads": threads})


def test_a_platform_that_openmm_chooses(asked, monkeypatch):
    for name in ("peptidyn.runs.model.platform_name", "peptidyn.runs.exchange.platform_name"):
        monkeypatch.setattr(name, lambda settings: "CUDA")
    replicas(asked, "processes", platform=None)
    assert asked["platform"] is None and asked["properties"] is None


@pytest.mark.parametrize(
    ("platform", "workers", "backend", "found"),
    [
        ("CPU", None, "auto", {"backend": "processes", "workers": 4}),
        ("Reference", None, "auto", {"backend": "processes", "workers": 4}),
        ("CUDA", None, "auto", {"backend": "serial", "workers": 1}),
        ("CUDA", 3, "auto", {"backend": "processes", "workers": 3}),
        ("CPU", 9, "auto", {"backend": "processes", "workers": 9}),
        ("CPU", 1, "auto", {"backend": "serial", "workers": 1}),
        ("CPU", None, "serial", {"backend": "serial", "workers": None}),
        ("CPU", 5, "threads", {"backend": "threads", "workers": 5}),
    ],
)
def test_where_replicas_run(monkeypatch, platform, workers, backend, found):
    """On one process per core, but not more than there are replicas; where a GPU computes, in this one."""
    for cores, replicas in ((4, 6), (6, 4)):
        monkeypatch.setattr(module, "count_cores", lambda cores=cores: cores)
        assert _find_backend(ExchangeSettings(platform=platform, replicas=replicas), backend, workers) == found


# ---------------------------------------------------------------------------- before, during and after


@pytest.mark.parametrize(("workers", "steps"), [(None, 720), (1, 720), (4, 180), (7, 102)])
def test_times_of_replicas_that_share_workers(monkeypatch, workers, steps):
    """Four replicas, 9 iterations, 15 time steps and 5 pivot moves in each."""
    asked = []
    monkeypatch.setattr(module, "describe_times", lambda *given: asked.append(given))
    settings = ExchangeSettings(replicas=4, iterations=9, interval=15, pivots=5)
    assert _times(settings, "model", workers) == [] and asked == [("model", {"simulating": steps})]
    monkeypatch.setattr(module, "describe_times", lambda *given: "a day")
    assert _times(settings, "model", workers) == ["a day"]


@pytest.mark.parametrize(
    ("given", "tuned", "sweeps"),
    [({}, False, [40]), ({"warm_up": 7}, False, [7]), ({"warm_up": 0}, False, []), ({}, True, []),
     ({"ensemble": "langevin"}, False, [])],
)  # fmt: skip
def test_steps_are_tuned_once(given, tuned, sweeps):
    """Those of Metropolised dynamics; the steps of the first move are told."""
    made: list[int] = []
    said: list[str] = []
    steps = np.array([[0.01, 0.001], [0.02, 0.001]])
    _tune(SimpleNamespace(tuned=tuned, warm_up=made.append, steps=steps), ExchangeSettings(**given), said.append)
    assert made == sweeps
    told = ["tuning time steps ...", "torsional time steps from the lowest temperature to the highest: 10.0, 20.0 fs"]
    assert said == (told if sweeps else [])


@pytest.mark.parametrize("one_core", [True, False])
def test_replicas_stop_when_they_are_asked_to(monkeypatch, one_core):
    """By Ctrl-C, which is met after an iteration; the core that is used is looked at as often."""
    found = []

    class Core:
        def __init__(self, wanted):
            found.append(wanted)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return

        def look(self):
            found.append("look")

    def run(iterations, *, progress, stop):
        found.extend([iterations, progress, stop()])
        signal.raise_signal(signal.SIGINT)
        found.append(stop())

    monkeypatch.setattr(module, "OneCore", Core)
    _advance(SimpleNamespace(run=run), 12, one_core, False)
    assert found == [one_core, "look", 12, False, False, "look", True]


@pytest.mark.parametrize(("done", "complete"), [(4, False), (5, True), (6, True)])
def test_a_summary_of_replicas(monkeypatch, done, complete):
    monkeypatch.setattr(module, "describe_cuts", lambda *_: ["a cut"])
    monkeypatch.setattr(module, "slow_torsions", lambda tree: [f"slow in {tree}"])
    model = model_of(iterations=5, preset="heavy")
    replicas = SimpleNamespace(
        iterations=done, summary=lambda: {"iterations": done}, recipe=SimpleNamespace(tree="the tree of the replicas")
    )
    found = _summarise(replicas, model.settings, model)
    wanted = {
        "peptidyn": __version__, "platform": "Reference", "iterations": done, "settings": asdict(model.settings),
        "coordinates": {name: len(places) for name, places in model.tree.groups.items()}, "metric": "auto",
        "distribution": model.settings.distribution, "notes": ["a cut", "slow in the tree of the replicas"],
        "complete": complete,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted


def test_what_replicas_say_of_themselves():
    model = model_of(replicas=4, tmin=290.5, tmax=400.0, timestep=2.5)
    assert _describe(model.settings, model) == (
        "ala1: 22 atoms, 2 torsions; 4 replicas from 290.5 to 400 K, ghmc, 2.5 fs, physical metric, vacuum, amber14\n"
        f"distribution: {model.settings.distribution}"
    )


def test_a_new_folder_has_the_settings_and_the_structure_that_was_prepared(tmp_path):
    """Not the relaxed one: bonds are judged by it when the run is resumed."""
    prepared = ptd.load_structure(DATA / "ala1.pdb")
    settings = ExchangeSettings(**COMMON, replicas=3)
    place = RunFolder(tmp_path)
    files = _NewFolder(place, settings, prepared)
    assert files.n_replicas == 3 and files.path == tmp_path
    files.write_structure(prepared.with_positions(prepared.positions + 1.0))
    assert place.read_settings(ExchangeSettings()) == settings
    assert np.abs(place.read_structure().positions - prepared.positions).max() < 1e-12


@pytest.mark.parametrize(
    ("backend", "platform", "one"), [("serial", "CPU", True), ("threads", "CPU", False), ("serial", "Reference", False)]
)
@pytest.mark.parametrize("complete", [True, False])
def test_a_run_from_its_beginning_to_its_end(tmp_path, monkeypatch, backend, platform, one, complete):
    seen: dict = {}

    @contextmanager
    def made(settings, model, positions, **where):
        seen.update(settings=settings, positions=positions, where=where)
        yield SimpleNamespace(recipe=SimpleNamespace(tree=model.tree), iterations=0)

    monkeypatch.setattr(module, "_replicas", made)
    monkeypatch.setattr(module, "_tune", lambda *_: None)
    monkeypatch.setattr(module, "_advance", lambda replicas, *asked: seen.update(asked=asked))
    monkeypatch.setattr(module, "_summarise", lambda *_: {"complete": complete})
    monkeypatch.setattr(module, "slow_torsions", lambda tree: ["a slow torsion"])
    monkeypatch.setattr(module, "find_reference_geometry", lambda model, *_: np.full((22, 3), 7.0))
    said: list[str] = []
    result = ptd.exchange(
        folder=tmp_path, backend=backend, workers=2, say=said.append, progress=False, overwrite=True, iterations=6,
        **{**COMMON, "platform": platform},
    )  # fmt: skip
    assert result.folder == tmp_path and result.summary == {"complete": complete} and result.interrupted != complete
    assert RunFolder(tmp_path).summary == {"complete": complete}
    assert seen["asked"] == (6, one, False) and (seen["positions"] == 7.0).all()
    where = seen["where"]
    assert type(where.pop("folder")) is _NewFolder
    assert where == {"resume": False, "overwrite": True, "backend": backend, "workers": 2}
    assert "note: a slow torsion" in said and seen["settings"].timestep == 8.0
    assert any(line.startswith("ala1: 22 atoms, 2 torsions; 8 replicas") for line in said)
