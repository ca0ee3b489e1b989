"""Runs that start from another run or a frame of a trajectory: positions, settings, what is relaxed and refused."""

from __future__ import annotations

import json
import shutil

import mdtraj
import numpy as np
import pytest
from real_structures import DATA

import peptidyn as ptd
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, TrajectoryError
from peptidyn.core.units import plain_array
from peptidyn.runs.model import find_reference_geometry, make_model
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.run import find_place
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import ExchangeSettings, RunSettings, read_toml

pytestmark = pytest.mark.usefixtures("blank_pictures")

ALA1 = DATA / "ala1.pdb"
QUIET = {"progress": False, "say": lambda _: None}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "first"
    options = {"steps": 20, "report": "5", "equilibrate": "0ps", "friction": 3.0, "seed": 4, "solvent": "vacuum"}
    ptd.run(ALA1, folder=folder, **options, **QUIET)
    return folder


def chosen(start, **given):
    return find_place(RunSettings(), given.pop("file", None), None, "x", False, False, {"start": start, **given})[0]


def distances(x):
    return np.linalg.norm(x[:, None] - x[None], axis=2)


def test_the_last_frame_has_all_digits(first):
    structure = prepare_structure(chosen(first, temperature=350.0))
    frame = mdtraj.load(first / "trajectory.dcd", top=first / "topology.pdb").xyz[-1]
    assert 0 < np.abs(structure.positions - frame).max() < 1e-7  # the trajectory is in single precision
    run = RunFolder(first)
    bonds = structure.atoms.bonds
    reference = run.tree.positions(run.tree.reference)
    lengths = [np.linalg.norm(x[bonds[:, 0]] - x[bonds[:, 1]], axis=1) for x in (structure.positions, reference)]
    assert np.abs(lengths[0] - lengths[1]).max() < 1e-12  # rigid to the last digit
    (note,) = structure.notes_of("start")
    assert f"starting where the run in {first} is, at 0.16 ps" in note.text


def test_the_last_frame_has_the_masses_of_the_run(tmp_path):
    """Bases are at centres of mass: with other masses of hydrogens the molecule would be elsewhere."""
    options = {"steps": 5, "report": "5", "equilibrate": "0ps", "solvent": "vacuum", "hydrogen_mass": 4.0, "seed": 4}
    ptd.run(ALA1, folder=tmp_path / "x", relax=False, **options, **QUIET)
    frame = mdtraj.load(tmp_path / "x" / "trajectory.dcd", top=tmp_path / "x" / "topology.pdb").xyz[-1]
    assert np.abs(prepare_structure(chosen(tmp_path / "x")).positions - frame).max() < 1e-6


def test_settings_come_from_the_run_and_what_is_given_wins(first):
    same = chosen(first)
    assert (same.steps, same.friction, same.solvent, same.file) == (20, 3.0, "vacuum", str(ALA1))
    assert same.seed != 4 and not same.relax and same.timestep_ps == 0.008
    other = chosen(first, preset="flexible", temperature=400.0, time="1ps", forcefield="amber99sbildn")
    assert (other.preset, other.temperature, other.time, other.steps) == ("flexible", 400.0, "1ps", None)
    assert other.timestep_ps == RunSettings(preset="flexible", temperature=400.0).timestep_ps  # not that of the run
    assert not other.relax  # everything that moved is soft
    exchanged = find_place(ExchangeSettings(), None, None, "x", False, False, {"start": str(first), "replicas": 3})[0]
    assert exchanged.replicas == 3 and exchanged.solvent == "vacuum" and exchanged.friction == 3.0


def test_a_run_from_a_run_goes_on_where_that_is(capsys, tmp_path, first):
    """Nothing is relaxed or minimised: with the smallest step the first frame is the last one of before."""
    folder = tmp_path / "second"
    arguments = ["--from", str(first), "-T", "350", "--timestep", "0.001", "--steps", "1", "--report", "1"]
    assert main(["run", *arguments, "-o", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "starting where the run" in out and "350 K" in out and "relaxed" not in out and "minimised" not in out
    start, frame = (
        mdtraj.load(f / "trajectory.dcd", top=first / "topology.pdb").xyz[k].astype(float)
        for f, k in ((first, -1), (folder, 0))
    )
    assert np.abs(start - frame).max() < 1e-4
    settings = read_toml(folder / "run.toml")
    assert settings["start"] == str(first) and settings["temperature"] == 350.0 and settings["relax"] is False
    # the settings repeat the run, and it is resumed without the other folder
    assert main(["run", "--config", str(folder / "run.toml"), "-q", "-o", str(tmp_path / "again")]) == 0
    # the header holds the time of day
    frames = [(f / "trajectory.dcd").read_bytes()[276:] for f in (folder, tmp_path / "again")]
    assert frames[0] == frames[1]
    assert main(["run", "--resume", "--steps", "2", "-q", "-o", str(folder)]) == 0
    assert json.loads((folder / "summary.json").read_text())["steps"] == 2


def test_what_is_held_now_and_moved_before_is_relaxed(tmp_path):
    """Angles of a frame of flexible dynamics are no reference geometry."""
    folder = tmp_path / "flexible"
    ptd.run(ALA1, folder=folder, preset="flexible", steps=5, report="5", equilibrate="0ps", solvent="vacuum", **QUIET)
    settings = chosen(folder, preset="torsions")
    assert (
        settings.relax
        and chosen(folder).relax is False
        and chosen(folder, preset="torsions", relax=False).relax is False
    )
    prepared = prepare_structure(settings)
    said: list[str] = []
    geometry = find_reference_geometry(make_model(settings, prepared), said.append, False)
    assert "relaxed bonds" in said[0] and np.abs(distances(geometry) - distances(prepared.positions)).max() > 1e-3


def test_any_frame_of_a_run_or_a_trajectory(tmp_path, first):
    frames = mdtraj.load(first / "trajectory.dcd", top=first / "topology.pdb")
    frames.save_xtc(tmp_path / "x.xtc")
    for number in (0, 2, -1):
        own = prepare_structure(chosen(first, frame=number))
        assert np.abs(own.positions - frames.xyz[number]).max() < 1e-6
        settings = chosen(tmp_path / "x.xtc", file=ALA1, frame=number, solvent="vacuum")
        assert settings.relax and settings.friction == 1.0
        assert np.abs(prepare_structure(settings).positions - frames.xyz[number]).max() < 6e-4
    last = prepare_structure(chosen(tmp_path / "x.xtc", file=ALA1))
    assert np.abs(last.positions - frames.xyz[-1]).max() < 6e-4
    for start, file in ((first, None), (tmp_path / "x.xtc", ALA1)):
        for number in (4, -5):
            with pytest.raises(TrajectoryError, match=f"has no frame {number}: it holds 4 frames"):
                prepare_structure(chosen(start, file=file, frame=number))


@pytest.mark.slow
def test_a_box_of_water_goes_on_in_its_box(tmp_path):
    folder = tmp_path / "wet"
    options = {"solvent": "tip3p", "padding": 0.4, "cutoff": 0.8, "relax": False}
    ptd.run(ALA1, folder=folder, steps=1, report="1", equilibrate="0ps", **options, **QUIET)
    before = RunFolder(folder).structure
    again = prepare_structure(chosen(folder, temperature=310.0))
    assert again.n_atoms == before.n_atoms
    boxes = [plain_array(s.topology.getPeriodicBoxVectors()) for s in (again, before)]
    assert np.array_equal(*boxes)
    dry = prepare_structure(chosen(folder, solvent="obc2"))
    assert dry.n_atoms == 22


def test_refusals(tmp_path, first):
    with pytest.raises(ArgumentError, match="there is no run or trajectory"):
        chosen(tmp_path / "nothing")
    with pytest.raises(ArgumentError, match="leave the structure file out"):
        chosen(first, file=ALA1)
    with pytest.raises(ArgumentError, match="give the structure file whose atoms they are"):
        chosen(first / "trajectory.dcd")
    with pytest.raises(ArgumentError, match="holds no run that has come to its first step"):
        chosen(tmp_path)
    with pytest.raises(ArgumentError, match="a frame belongs to a run or a trajectory"):
        RunSettings(frame=3)
    (tmp_path / "exchange.toml").write_text("")
    with pytest.raises(ArgumentError, match="holds a replica exchange run; start from the trajectory of one"):
        chosen(tmp_path)


# ---------------------------------------------------------------------------- goals of resumed runs


def test_a_goal_already_passed_is_refused_and_the_recorded_one_stays(capsys, tmp_path, first):
    folder = tmp_path / "x"
    shutil.copytree(first, folder)
    files = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert main(["run", "--resume", "--steps", "10", "-o", str(folder)]) == 2
    err = capsys.readouterr().err
    assert "has made 20 steps and is beyond the 10 that are asked for now; its recorded length of 20 steps stays" in err
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == files
    assert main(["run", "--resume", "--steps", "20", "-q", "-o", str(folder)]) == 0  # there is nothing to do


def test_iterations_already_made_are_refused(capsys, tmp_path):
    folder = tmp_path / "x"
    options = {
        "replicas": 2,
        "tmin": 280,
        "tmax": 320,
        "warm_up": 0,
        "interval": 10,
        "solvent": "vacuum",
        "relax": False,
    }
    ptd.exchange(ALA1, folder=folder, iterations=3, backend="serial", **options, **QUIET)
    before = (folder / "exchange.toml").read_bytes()
    assert main(["exchange", "--resume", "--workers", "1", "--iterations", "2", "-q", "-o", str(folder)]) == 2
    assert "has made 3 iterations and is beyond the 2" in capsys.readouterr().err
    assert (folder / "exchange.toml").read_bytes() == before
