"""Which settings a run takes over from the run that it starts from, when geometries are relaxed, and what is read."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import mdtraj
import numpy as np
import pytest
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import plain_array
from peptidyn.runs import starting_points as module
from peptidyn.runs.settings import ExchangeSettings, ModelSettings, RunSettings
from peptidyn.runs.starting_points import _base, _is_as_soft, _run_at, settings_from_start, starting_structure

ALA1 = str(DATA / "ala1.pdb")

BEFORE = {
    "file": "x.pdb", "model": 2, "start": "w", "frame": 3, "select": "protein", "pH": 5.0, "timestep": 3.0,
    "friction": 2.0, "preset": "heavy", "metric": "physical", "rigid": ("resid 1",), "hydrogen_mass": 2.0,
    "solvent": "tip3p", "forcefield": "amber19", "padding": 0.8, "ions": 0.1, "cutoff": 0.9, "platform": "CPU",
    "threads": 2, "seed": 7, "relax": False,
}  # fmt: skip

OF_RUNS = {
    "temperature": 310.0,
    "pressure": 2.0,
    "ensemble": "ghmc",
    "report": "3ps",
    "equilibrate": "1ps",
    "steps": 50,
}

FORGOTTEN = {"seed": None, "model": 0, "select": None, "padding": None, "start": None, "frame": None}
"""Of the run before: the box and the atoms are there already, and its random numbers are used up."""


def test_a_run_takes_over_what_another_one_had():
    found = _base(RunSettings(), RunSettings(**BEFORE, **OF_RUNS))
    wanted = {**BEFORE, **OF_RUNS, **FORGOTTEN}
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_replicas_take_over_what_runs_have_in_common():
    kind = ExchangeSettings(replicas=5, tmin=290.0, iterations=9, warm_up=3)
    found = _base(kind, RunSettings(**BEFORE, **OF_RUNS))
    for field in fields(ExchangeSettings):
        shared = field.name in {f.name for f in fields(ModelSettings)}
        wanted = (
            FORGOTTEN.get(field.name, BEFORE.get(field.name, field.default)) if shared else getattr(kind, field.name)
        )
        assert getattr(found, field.name) == wanted, field.name


@pytest.mark.parametrize(
    ("given", "timestep"),
    [({"timestep": 8.0}, None), ({"timestep": 16.0, "preset": "heavy"}, None), ({"timestep": 7.9}, 7.9),
     ({"timestep": 16.0}, 16.0), ({"timestep": 24.0, "preset": "angles", "ensemble": "ghmc"}, None), ({}, None)],
)  # fmt: skip
def test_steps_that_were_the_default_are_found_again(given, timestep):
    """For the settings of the new run; others stay."""
    assert _base(RunSettings(), RunSettings(**given)).timestep == timestep


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        ({}, {}, True),
        ({}, {"preset": "angles"}, True),
        ({"preset": "heavy"}, {"preset": "heavy"}, True),
        ({"preset": "heavy"}, {"preset": "angles"}, False),
        ({"preset": "flexible"}, {"preset": "torsions"}, False),
        ({"preset": "torsions"}, {"preset": "flexible"}, True),
        ({"soft": "phi psi"}, {"soft": "phi psi"}, True),
        ({"soft": "phi psi"}, {"soft": "phi"}, False),
        ({"soft": "phi psi"}, {"preset": "heavy"}, False),
        ({"soft": "phi psi"}, {"preset": "flexible"}, True),
        ({"preset": "torsions"}, {"soft": "phi psi omega"}, False),
        ({"preset": "torsions"}, {"soft": "phi psi chi"}, True),
        ({"soft": "bonds"}, {"soft": "all"}, True),
        ({"soft": "heavy"}, {"preset": "flexible", "solvent": "tip3p"}, True),
    ],
)
def test_geometries_are_kept_where_all_that_moved_is_soft(before, now, kept):
    assert _is_as_soft(RunSettings(**before), RunSettings(**now)) == kept


@pytest.fixture
def before(tmp_path, monkeypatch):
    """A folder of a run, whose settings a test gives."""
    run = SimpleNamespace(settings=RunSettings(file="x.pdb", preset="angles", friction=2.0, seed=7, steps=50))
    monkeypatch.setattr(module, "_run_at", lambda start: run)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "text", "relax"),
    [
        ({}, None, False), ({"preset": "torsions"}, None, True), ({"preset": "torsions", "relax": False}, None, False),
        ({"relax": True}, None, True), ({}, "friction = 3.0", False), ({}, 'preset = "torsions"', True),
        ({}, 'preset = "torsions"\nrelax = false', False), ({}, "relax = true", True),
        ({"relax": False}, 'relax = true\npreset = "torsions"', False),
    ],
)  # fmt: skip
def test_what_a_run_from_a_run_relaxes(before, given, text, relax):
    """What is fixed now and moved before, unless that is given, by the call or by the file."""
    config = None
    if text is not None:
        config = before / "x.toml"
        config.write_text(text)
    found = settings_from_start(RunSettings(), {"start": str(before), **given}, config)
    assert found.relax == relax and found.steps == 50 and found.seed not in (7, None)
    assert found.friction == (3.0 if text == "friction = 3.0" else 2.0) and found.start == str(before)
    assert found.preset == ("torsions" if "torsions" in f"{given}{text}" else "angles")


@pytest.mark.parametrize(
    ("given", "text", "relax"),
    [
        ({}, None, True), ({"preset": "flexible"}, None, False), ({"soft": "all"}, None, False),
        ({"preset": "heavy"}, None, True), ({}, 'preset = "flexible"', False), ({}, "relax = false", False),
        ({"preset": "flexible", "relax": True}, None, True), ({"preset": "flexible"}, "relax = true", True),
    ],
)  # fmt: skip
def test_what_a_run_from_a_trajectory_relaxes(tmp_path, given, text, relax):
    """All but fully flexible molecules; its settings are not those of another run."""
    (tmp_path / "x.dcd").write_bytes(b"")
    config = None
    if text is not None:
        config = tmp_path / "x.toml"
        config.write_text(text)
    asked = {"start": str(tmp_path / "x.dcd"), "file": "y.pdb", **given}
    found = settings_from_start(RunSettings(), asked, config)
    assert found.relax == relax and found.friction == 1.0 and found.file == "y.pdb"


def test_starts_that_are_refused(tmp_path):
    for given, phrase in (
        ({"start": str(tmp_path / "none")}, "there is no run or trajectory"),
        ({"start": str(tmp_path), "file": "x.pdb"}, "leave the structure file out"),
        ({"start": str(tmp_path)}, "holds no run that has come to its first step"),
    ):
        with pytest.raises(ArgumentError, match=phrase):
            settings_from_start(RunSettings(), given, None)
    (tmp_path / "run.toml").write_text("")
    with pytest.raises(ArgumentError, match="holds no run that has come to its first step"):
        _run_at(tmp_path)
    (tmp_path / "x.dcd").write_bytes(b"")
    with pytest.raises(ArgumentError, match="holds positions only; give the structure file"):
        settings_from_start(RunSettings(), {"start": str(tmp_path / "x.dcd")}, None)


# ---------------------------------------------------------------------------- structures


@pytest.fixture
def trajectory(tmp_path):
    """Three frames of ala1, 1 nm apart, in a tilted box that grows."""
    structure = ptd.load_structure(ALA1)
    frames = structure.to_mdtraj()
    x = [structure.positions + k for k in range(3)]
    made = mdtraj.Trajectory(x, frames.topology, None, [[3.0 + k] * 3 for k in range(3)], [[90.0, 90.0, 50.0]] * 3)
    made.save_dcd(str(tmp_path / "x.dcd"))
    made.unitcell_lengths = made.unitcell_angles = None
    made.save_dcd(str(tmp_path / "dry.dcd"))
    return tmp_path / "x.dcd"


@pytest.mark.parametrize(("frame", "number"), [(None, 2), (0, 0), (1, 1), (-3, 0)])
def test_a_frame_has_its_positions_and_its_box(trajectory, frame, number):
    structure = starting_structure(RunSettings(file=ALA1, start=str(trajectory), frame=frame))
    assert np.abs(structure.positions - ptd.load_structure(ALA1).positions - number).max() < 1e-5
    (note,) = structure.notes_of("start")
    assert note.text == f"starting at frame {-1 if frame is None else frame} of {trajectory}"
    box = plain_array(structure.topology.getPeriodicBoxVectors())
    assert np.linalg.det(box) == pytest.approx((3.0 + number) ** 3 * np.sin(np.deg2rad(50.0)), rel=1e-5)
    # as OpenMM wants it: the first along x, the second in the plane of x and y, no tilt beyond half a side
    assert box[0, 1:].tolist() == [0.0, 0.0] and box[1, 2] == 0.0
    assert abs(box[1, 0]) <= 0.5 * box[0, 0] and abs(box[2, 0]) <= 0.5 * box[0, 0] and abs(box[2, 1]) <= 0.5 * box[1, 1]
    dry = starting_structure(RunSettings(file=ALA1, start=str(trajectory.with_name("dry.dcd")), frame=frame))
    assert dry.topology.getPeriodicBoxVectors() is None and np.array_equal(dry.positions, structure.positions)


def test_files_are_read_with_their_settings(trajectory, monkeypatch):
    """The model of a structure file; the other files of one with parameters, which has no models."""
    asked = []

    def load(*arguments, **options):
        asked.append((arguments, options))
        return ptd.load_structure(ALA1)

    monkeypatch.setattr(module, "load_any_structure", load)
    more = {"coordinates": "y.rst7", "parameters": ("a.par",), "include": "b", "solvent": "vacuum"}
    for given in ({"file": "x.pdb", "model": 3}, {"file": "x.prmtop", **more}):
        starting_structure(RunSettings(start=str(trajectory), **given))
    assert asked == [(("x.pdb", None, (), None), {"model": 3}), (("x.prmtop", "y.rst7", ("a.par",), "b"), {})]


def test_atoms_that_a_trajectory_lacks_are_added(tmp_path, monkeypatch):
    """At the pH of the settings, behind the frame; where nothing lacks nothing is asked."""
    asked = []

    def complete(structure, *, pH):
        asked.append((structure.positions, pH))
        return structure

    monkeypatch.setattr(module, "complete", complete)
    whole = ptd.load_structure(ALA1)
    bare = whole.subset("not element H")
    bare.write(tmp_path / "bare.pdb")
    for name, structure in (("bare", bare), ("whole", whole)):
        frames = structure.to_mdtraj()
        frames.xyz = frames.xyz + 2.0
        frames.save_dcd(str(tmp_path / f"{name}.dcd"))
    starting_structure(RunSettings(file=str(tmp_path / "bare.pdb"), start=str(tmp_path / "bare.dcd"), pH=4.5))
    ((x, pH),) = asked
    assert pH == 4.5 and np.abs(x - bare.positions - 2.0).max() < 1e-3
    starting_structure(RunSettings(file=ALA1, start=str(tmp_path / "whole.dcd"), pH=4.5))
    assert len(asked) == 1


def test_a_run_without_a_trajectory_has_its_last_frame_only(tmp_path, monkeypatch):
    structure = ptd.load_structure(ALA1)
    run = SimpleNamespace(structure=structure, trajectory=None)
    monkeypatch.setattr(module, "_run_at", lambda start: run)
    monkeypatch.setattr(module, "_last_positions", lambda run: (run.structure.positions + 1.0, 2.5))
    found = starting_structure(RunSettings(start=str(tmp_path)))
    assert np.array_equal(found.positions, structure.positions + 1.0)
    assert [note.text for note in found.notes_of("start")] == [f"starting where the run in {tmp_path} is, at 2.5 ps"]
    for frame in (0, -1):
        with pytest.raises(ArgumentError, match=f"has no trajectory, and so no frame {frame}"):
            starting_structure(RunSettings(start=str(tmp_path), frame=frame))
