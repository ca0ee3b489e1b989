"""The stages of a run one by one: where it writes, what it refuses, how it steps and stops, and what it sums up."""

from __future__ import annotations

import signal
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import openmm
import pytest
from quick_systems import systems_made_once
from real_structures import DATA

import peptidyn as ptd
from peptidyn import __version__
from peptidyn.core.errors import ArgumentError, StepError
from peptidyn.runs import run as module
from peptidyn.runs.model import LARGE
from peptidyn.runs.run import (
    PIVOT_NOTE,
    _advance,
    _begin,
    _describe,
    _equilibrate,
    _minimisation_iterations,
    _notes,
    _pivots,
    _produce,
    _start,
    _summarise,
    _tell_times,
    check_goal,
    find_place,
    pivot_move,
)
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import ExchangeSettings, RunSettings

ALA1 = str(DATA / "ala1.pdb")


def nothing(text):
    """Say nothing."""


@pytest.fixture(scope="module", autouse=True)
def _systems_are_made_once():
    with systems_made_once():
        yield


@pytest.fixture(scope="module")
def tree():
    return ptd.build_tree(ptd.load_structure(ALA1))


# ---------------------------------------------------------------------------- folders and settings


def place_of(kind=None, file=None, config=None, folder=None, resume=False, overwrite=False, **given):
    return find_place(kind or RunSettings(), file, config, folder, resume, overwrite, given)


def test_a_new_run_has_a_folder_of_its_name_and_what_is_given(tmp_path):
    """None stands for what is not given; a file of its own wins over one among the settings."""
    chosen, place, go_on = place_of(file=DATA / "ala1.pdb", temperature=310.0, friction=None, steps=None)
    assert str(place.path) == "ala1-run" and not go_on
    assert (chosen.file, chosen.temperature, chosen.friction, chosen.time) == (ALA1, 310.0, 1.0, "100ps")
    chosen, place, _ = place_of(ExchangeSettings(), file="a/b.pdb", replicas=3)
    assert str(place.path) == "b-exchange" and chosen.replicas == 3
    assert place_of(folder=tmp_path)[1].path == tmp_path and str(place_of()[1].path) == "ala10-run"
    config = tmp_path / "x.toml"
    config.write_text('temperature = 320\nfriction = 2.0\nfile = "x.pdb"\n')
    chosen, place, _ = place_of(config=config, friction=3.0)
    assert (chosen.temperature, chosen.friction, chosen.file, str(place.path)) == (320.0, 3.0, "x.pdb", "x-run")
    assert place_of(file="y.pdb", config=config)[0].file == "y.pdb"
    with pytest.raises(ArgumentError, match="no run or trajectory"):
        place_of(start=tmp_path / "none")
    chosen, place, _ = place_of(start=config, file="y.pdb", temperature=305.0)
    assert (chosen.start, chosen.temperature, str(place.path)) == (str(config), 305.0, "y-run")


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"resume": True}, "needs folder="),
        ({"resume": True, "folder": "x", "config": "y.toml"}, "needs folder=, .* takes its settings from there"),
        ({"resume": True, "overwrite": True, "folder": "x"}, "give one of them"),
        ({"resume": True, "folder": "nowhere"}, "holds no run to resume"),
    ],
)
def test_what_cannot_be_resumed(options, phrase):
    with pytest.raises(ArgumentError, match=phrase):
        place_of(**options)


def test_a_run_goes_on_from_its_checkpoint_or_begins_again(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_settings(RunSettings(steps=10, temperature=310.0, seed=3))
    chosen, place, go_on = place_of(folder=tmp_path, resume=True, steps=20)
    assert (chosen.steps, chosen.temperature, chosen.seed) == (20, 310.0, 3) and not go_on
    assert place.path == tmp_path


@pytest.mark.parametrize("asked", [5, 6, 7])
def test_goals(asked):
    if asked >= 6:
        check_goal(6, asked, 10, "steps")
    else:
        with pytest.raises(ArgumentError, match=r"has made 6 steps and is beyond the 5 .* recorded length of 10 steps"):
            check_goal(6, asked, 10, "steps")


# ---------------------------------------------------------------------------- how a run begins


QUICK = {"file": ALA1, "solvent": "vacuum", "platform": "Reference", "seed": 1, "relax": False, "equilibrate": "0ps"}


@pytest.mark.parametrize(
    ("error", "replace", "left"),
    [(ValueError, False, False), (ValueError, True, True), (StepError, False, True), (StepError, True, True)],
)
def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path, monkeypatch, error, replace, left):
    """One that replaces another, or whose steps failed, stays: it can be resumed, or seen."""

    def fail(*_):
        raise error

    monkeypatch.setattr(module, "_start", fail)
    folder = RunFolder(tmp_path / "x")
    with folder, pytest.raises(error):
        _begin(RunSettings(**QUICK, steps=1), folder, replace, nothing, False)
    assert (tmp_path / "x" / "run.toml").exists() == (tmp_path / "x").exists() == left


def test_a_run_begins_with_its_settings_and_structure_and_says_what_it_will_do(tmp_path, monkeypatch):
    said: list[str] = []
    geometry = ptd.load_structure(ALA1).positions + 1e-3
    monkeypatch.setattr(module, "find_reference_geometry", lambda *_: geometry)
    monkeypatch.setattr(module, "_start", lambda simulation, settings, folder, *_: {"simulation": simulation})
    for keep in (False, True):
        with RunFolder(tmp_path / str(keep)) as folder:
            given = RunSettings(**QUICK, steps=1, pivots=5, keep_rigid_terms=keep)
            settings, simulation, extra = _begin(given, folder, False, said.append, False)
            assert settings.timestep == 8.0 and extra == {"simulation": simulation}
            assert folder.read_settings(RunSettings()) == settings
            # the structure as it was before it was relaxed, the simulation as it is now
            assert np.abs(folder.read_structure().positions - ptd.load_structure(ALA1).positions).max() < 1e-12
            assert np.abs(simulation.tree.positions(simulation.tree.reference) - geometry).max() < 1e-9
        assert any("rigid units" in line for line in said) != keep
        assert f"note: {PIVOT_NOTE}" in said and any(line.startswith("ala1: 22 atoms, ") for line in said)
        said.clear()


@pytest.mark.parametrize(
    "given", [{"pivots": 5, "soft": "chi"}, {"platform": "none"}, {"timestep": 500.0, "preset": "flexible"}]
)
def test_bad_input_is_refused_before_a_folder_is_made(tmp_path, monkeypatch, given):
    """Otherwise a run that was to be replaced would be gone."""
    made = []
    monkeypatch.setattr(RunFolder, "make", lambda *_: made.append(1))
    with pytest.raises((ArgumentError, StepError)), RunFolder(tmp_path / "x") as folder:
        _begin(RunSettings(**{**QUICK, **given}, steps=1), folder, True, nothing, False)
    assert not made and not (tmp_path / "x").exists()


class Saved:
    """A folder that notes the checkpoints that are written."""

    def __init__(self):
        self.checkpoints = []

    def save_checkpoint(self, simulation, extra):
        self.checkpoints.append((simulation.currentStep, dict(extra)))


@pytest.mark.parametrize("error", [None, StepError])
def test_the_first_checkpoint_says_whether_equilibration_failed(monkeypatch, error):
    def equilibrate(*_):
        if error is not None:
            raise error("too large")

    monkeypatch.setattr(module, "_equilibrate", equilibrate)
    folder, simulation = Saved(), SimpleNamespace(currentStep=0)
    none = {"frames": 0, "seconds": 0.0}
    if error is None:
        assert _start(simulation, RunSettings(), folder, nothing, False) == none
        assert folder.checkpoints == [(0, none)]
    else:
        with pytest.raises(StepError):
            _start(simulation, RunSettings(), folder, nothing, False)
        assert folder.checkpoints == [(0, {**none, "equilibrating": True})]


# ---------------------------------------------------------------------------- equilibration and times


class Recorder:
    """A simulation that notes what it is asked for, with a clock of steps."""

    def __init__(self, step=0, n_atoms=22):
        self.calls, self.currentStep, self.reporters = [], step, []
        self.tree = SimpleNamespace(n_atoms=n_atoms)
        self.integrator = SimpleNamespace(counters={"fallbacks": 1})
        self.context = SimpleNamespace(setTime=lambda _: None, setStepCount=lambda _: None)
        self.at: dict = {}

    def minimize_torsions(self, tolerance, iterations, watch):
        self.calls.append(("minimise", tolerance, iterations))
        watch(-1.0)
        watch(-2.0)
        return -2.0

    def set_velocities_to_temperature(self, temperature):
        self.calls.append("draw")

    def apply(self, move):
        self.calls.append(f"pivots at {self.currentStep}")
        move.proposed, move.accepted = move.proposed + 4, move.accepted + 1

    def step(self, count):
        self.calls.append(count)
        self.currentStep += count
        self.at.get(self.currentStep, nothing)(self.currentStep)


@pytest.mark.parametrize(
    ("time", "calls"), [("0ps", []), ("100fs", [50]), ("102fs", [50, "draw", 1]), ("200fs", [50, "draw", 50])]
)
def test_equilibration_draws_fresh_momenta_every_50_steps(time, calls):
    said: list[str] = []
    simulation = Recorder()
    _equilibrate(simulation, RunSettings(timestep=2.0, equilibrate=time), said.append, False)
    assert simulation.calls == [("minimise", 10.0, 200), "draw", *calls]
    assert said[0] == "minimised in torsions: -2.0 kJ/mol after 2 iterations"
    assert said[1] == f"equilibrated for {0.002 * sum(c for c in calls if c != 'draw'):g} ps"
    simulation.calls.clear()
    _equilibrate(simulation, RunSettings(timestep=2.0, equilibrate=time, start="x", relax=False), nothing, False)
    assert simulation.calls == ["draw", *calls]


@pytest.mark.parametrize(
    ("given", "atoms", "iterations"),
    [({}, LARGE - 1, 200), ({}, LARGE, 50), ({"relax": False}, 10, 200), ({"start": "x"}, 10, 200),
     ({"start": "x"}, LARGE, 50), ({"start": "x", "relax": False}, 10, 0)],
)  # fmt: skip
def test_iterations_of_the_minimisation(given, atoms, iterations):
    assert _minimisation_iterations(RunSettings(**given), SimpleNamespace(n_atoms=atoms)) == iterations


def test_times_are_told_of_all_stages(monkeypatch):
    """Every 100 steps with 50 pivot moves take as long as 150."""
    asked = []
    monkeypatch.setattr(module, "describe_times", lambda model, stages: asked.append(stages))
    said: list[str] = []
    model = SimpleNamespace(tree=SimpleNamespace(n_atoms=10))
    for pivots in (0, 50):
        _tell_times(model, RunSettings(steps=1000, timestep=2.0, pivots=pivots), said.append)
    assert asked == [{"minimising": 200, "equilibrating": 1000, "simulating": n} for n in (1000, 1500)] and said == []
    monkeypatch.setattr(module, "describe_times", lambda model, stages: "long")
    _tell_times(model, RunSettings(), said.append)
    assert said == ["long"]


def test_what_a_run_says_of_itself():
    def described(molecules=1, **given):
        tree = SimpleNamespace(n_atoms=22, n_molecules=molecules, n_dof=8, describe_coordinates=lambda: "2 torsions")
        return _describe(RunSettings(**{"file": "a/x.pdb", "timestep": 2.5, **given}), tree)

    assert described() == (
        "x: 22 atoms, 2 torsions, 8 degrees of freedom; langevin, 2.5 fs, physical metric, 300 K, obc2, amber14\n"
        f"distribution: {RunSettings().distribution}"
    )
    assert "22 atoms in 2 molecules, 2 torsions" in described(2)
    assert "310 K, 50 bar, tip3p" in described(pressure=50.0, solvent="tip3p", temperature=310.0)
    assert "300 K, 1 pivot move per 100 steps, obc2" in described(pivots=1)
    assert "300 K, 20 pivot moves per 100 steps, obc2" in described(pivots=20)
    assert "ghmc, 2.5 fs, auto metric" in described(preset="heavy", ensemble="ghmc")


# ---------------------------------------------------------------------------- pivot moves


@pytest.mark.parametrize(("tries", "made"), [(0.2, 1), (1.4, 1), (1.6, 2), (30.0, 30)])
def test_pivot_moves_in_a_row(tree, tries, made):
    assert pivot_move(tree, tries).tries == made


def test_pivot_moves_need_a_backbone_that_can_turn():
    for soft in ("phi", "psi", "chi"):
        with pytest.raises(ArgumentError, match="the tree has no such soft torsions"):
            pivot_move(ptd.build_tree(ptd.load_structure(ALA1), soft=soft), 1)
    peptide = ptd.build_peptide("A" * 7)
    loop = ptd.build_tree(peptide, rigid=["resid 0 to 2 or resid 6 to 8"])
    assert {"phi", "psi"} <= {c.kind for c in loop.torsions} and len(loop.cut_bonds)
    with pytest.raises(ArgumentError, match="outside of rings and loops, and there are none"):
        pivot_move(loop, 1)


def test_pivot_moves_go_on_counting(tree):
    """20 per 100 steps are four after every 20 of them."""
    assert _pivots(RunSettings(), tree, {}) is None
    move = _pivots(RunSettings(pivots=20), tree, {})
    assert (move.tries, move.proposed, move.accepted) == (4, 0, 0)
    move = _pivots(RunSettings(pivots=20), tree, {"pivots": [30, 7]})
    assert (move.proposed, move.accepted) == (30, 7)
    integrator = SimpleNamespace(integrator=SimpleNamespace(notes=["a"]))
    assert _notes(integrator, RunSettings(pivots=1)) == ["a", PIVOT_NOTE]
    assert _notes(integrator, RunSettings()) == ["a"]


# ---------------------------------------------------------------------------- steps


def advanced(simulation, extra=None, **given):
    folder = Saved()
    settings = RunSettings(**{"timestep": 2.0, "platform": "Reference", **given})
    last = _advance(simulation, settings, folder, extra or {"frames": 0, "seconds": 0.0}, False)
    return last, [(step, extra["frames"]) for step, extra in folder.checkpoints]


@pytest.mark.parametrize(
    ("first", "total", "interval", "steps", "checkpoints"),
    [
        (0, 120, 120, [50, 50, 20], [(120, 1), (120, 1)]),
        (0, 30, 12, [12, 12, 6], [(12, 1), (24, 2), (30, 2)]),
        (18, 30, 12, [6, 6], [(24, 8), (30, 8)]),
        (24, 30, 12, [6], [(30, 7)]),
        (30, 30, 12, [], []),
        (0, 130, 60, [50, 10, 50, 10, 10], [(60, 1), (120, 2), (130, 2)]),
    ],
)
def test_steps_end_at_every_report_with_a_checkpoint(first, total, interval, steps, checkpoints):
    """At most 50 at once; a run that goes on has made 7 frames, or none."""
    frames = 7 if first else 0
    simulation = Recorder(first)
    last, found = advanced(simulation, {"frames": frames, "seconds": 5.0}, steps=total, report=str(interval))
    assert simulation.calls == steps and found == checkpoints
    assert last["frames"] == (checkpoints[-1][1] if checkpoints else frames) and "pivots" not in last
    assert 5.0 <= last["seconds"] < 15.0 and (last["seconds"] > 5.0) == bool(steps)


def test_pivot_moves_come_first_after_every_20_steps(tree):
    simulation = Recorder()
    simulation.tree = tree
    last, found = advanced(simulation, steps=50, report="30", pivots=20)
    assert simulation.calls == ["pivots at 0", 20, "pivots at 20", 10, 10, "pivots at 40", 10]
    assert found == [(30, 1), (50, 1)] and last["pivots"] == [12, 3]
    again = Recorder(50)
    again.tree = tree
    last, _ = advanced(again, last, steps=70, report="30", pivots=20)
    assert again.calls == [10, "pivots at 60", 10] and last["pivots"] == [16, 4]


def test_an_interrupt_ends_a_run_between_two_steps():
    """With a checkpoint, from where it can be resumed."""
    simulation = Recorder()
    simulation.at[130] = lambda _: signal.raise_signal(signal.SIGINT)
    last, found = advanced(simulation, steps=1000, report="80")
    assert simulation.calls == [50, 30, 50] and found == [(80, 1), (130, 1)] and last["frames"] == 1


@pytest.mark.parametrize(
    ("atoms", "platform", "kept"), [(22, "CPU", True), (22, "Reference", False), (999, "CPU", False)]
)
def test_small_runs_keep_to_one_core(monkeypatch, atoms, platform, kept):
    asked = []

    class Core:
        def __init__(self, wanted):
            asked.append(wanted)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return

        def look(self):
            asked.append("look")

    monkeypatch.setattr(module, "OneCore", Core)
    advanced(Recorder(n_atoms=atoms), steps=120, report="120", platform=platform)
    assert asked == [kept, "look", "look", "look"]


@pytest.mark.parametrize(("reached", "report", "start"), [(9, 10, False), (10, 10, True), (35, 10, True)])
def test_a_step_that_fails_says_where_to_go_on_from(tmp_path, monkeypatch, reached, report, start):
    """From the last frame, if there is one."""

    def fail(*_):
        raise StepError("the step at 1 ps could not be made")

    class Reporter:
        def __init__(self, *_, **options):
            self.options = options

        def open(self, simulation):
            return

        def close(self):
            closed.append(self)

    closed: list = []
    monkeypatch.setattr(module, "_advance", fail)
    monkeypatch.setattr(module, "TorsionReporter", Reporter)
    simulation = Recorder(reached)
    with pytest.raises(StepError, match="could not be made") as info:
        _produce(simulation, RunSettings(report=str(report)), RunFolder(tmp_path), {"frames": 0, "seconds": 0.0}, False)
    text = f"the run can go on from its last frame, in a new folder: start='{tmp_path}' with a smaller timestep="
    assert (text in str(info.value)) == start and len(closed) == 2 and not simulation.reporters


# ---------------------------------------------------------------------------- summaries


class GHMC:
    """An integrator with proposals."""

    drift_fallbacks, acceptance, barostat, notes = 4, 0.75, None, ["a note"]


def summarised(monkeypatch, tree, frames, integrator=None, extra=None, **given):
    """Return the summary of a run at step 30 of 2 fs, half a second of computing, and its settings."""
    rows = np.arange(frames) + 1.0
    table = {"potential": 10.0 * rows, "total": 3.0 * rows, "temperature": 290.0 + rows, "time": 0.5 * rows}
    monkeypatch.setattr(module, "read_torsions", lambda path, tree: table)
    monkeypatch.setattr(module, "TorsionGHMCIntegrator", GHMC)
    usual = SimpleNamespace(drift_fallbacks=4, barostat=None, notes=["a note"])
    context = SimpleNamespace(
        getTime=lambda: SimpleNamespace(_value=0.0600000000001),
        getPlatform=lambda: SimpleNamespace(getName=lambda: "Reference"),
    )
    simulation = SimpleNamespace(tree=tree, currentStep=30, integrator=integrator or usual, context=context)
    settings = RunSettings(**{"steps": 30, "timestep": 2.0, **given})
    extra = {"frames": frames, "seconds": 0.5, **(extra or {})}
    return _summarise(simulation, settings, RunFolder("x"), extra), settings


def test_a_summary(monkeypatch):
    tree = ptd.build_tree(ptd.load_structure(ALA1), soft="phi psi angles")
    found, settings = summarised(monkeypatch, tree, 4, preset="angles")
    assert found == {
        "peptidyn": __version__, "openmm": openmm.__version__, "complete": True, "steps": 30, "time_ps": 0.06,
        "frames": 4, "ns_per_day": pytest.approx(86.4 * 0.002 * 30 / 0.5), "platform": "Reference", "atoms": 22,
        "torsions": 2, "bends": 3, "coordinates": {"torsions": 2, "phases": 0, "bends": 3, "stretches": 0},
        "degrees_of_freedom": 11, "fixman": True, "metric": "auto", "distribution": settings.distribution,
        "settings": asdict(settings), "notes": ["a note"], "drift_fallbacks": 4, "potential_kJ_per_mol": 25.0,
        "temperature_K": 292.5,
    }  # fmt: skip


def test_what_else_a_summary_holds(monkeypatch, tree):
    def more(*arguments, **given):
        found, _ = summarised(monkeypatch, tree, *arguments, **given)
        return {name: found[name] for name in found if name not in usual}

    usual, _ = summarised(monkeypatch, tree, 1)
    assert more(0) == {} and "temperature_K" not in summarised(monkeypatch, tree, 0)[0]
    assert more(3, GHMC()) == {"acceptance": 0.75}
    box = SimpleNamespace(drift_fallbacks=0, notes=[], barostat=SimpleNamespace(proposed=9, accepted=2))
    assert more(3, box) == {"volume_moves": {"proposed": 9, "accepted": 2}}
    assert more(3, pivots=5) == {"pivot_moves": {"proposed": 0, "accepted": 0}}
    assert more(3, extra={"pivots": [8, 3]}, pivots=5) == {"pivot_moves": {"proposed": 8, "accepted": 3}}
    # 3 kJ/mol in 0.5 ps are 6000 in a nanosecond, shared by all degrees of freedom
    drift = {"drift_kJ_per_mol_per_ns": 6000.0, "drift_kT_per_dof_per_ns": 6000.0 / (0.00831446262 * 350.0 * 8)}
    assert tree.n_dof == 8 and more(3, ensemble="nve", temperature=350.0) == pytest.approx(drift)
    assert more(2, ensemble="nve") == {}


@pytest.mark.parametrize(("steps", "complete"), [(29, True), (30, True), (31, False)])
def test_a_run_is_complete_when_all_steps_are_made(monkeypatch, tree, steps, complete):
    found, _ = summarised(monkeypatch, tree, 1, steps=steps)
    assert found["complete"] == complete and found["ns_per_day"] == pytest.approx(86.4 * 0.002 * 30 / 0.5)
    assert summarised(monkeypatch, tree, 1, extra={"seconds": 0.0})[0]["ns_per_day"] is None
    assert summarised(monkeypatch, tree, 1, pivots=1)[0]["notes"] == ["a note", PIVOT_NOTE]
