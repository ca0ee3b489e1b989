"""`peptidyn run` as a user meets it: files, settings, refusals, interrupts, and exact continuation."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import mdtraj
import numpy as np
import pytest
from openmm import Vec3, app
from real_structures import DATA, OPENMM_DATA

from peptidyn.analysis.run_plots import phi_psi_pairs, plot_run
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, TrajectoryError
from peptidyn.engine.checkpoints import read, write
from peptidyn.engine.simulation import TorsionSimulation
from peptidyn.engine.trajectory_frames import keep_frames
from peptidyn.io.readers import load_structure
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.run import _equilibrate
from peptidyn.runs.settings import RunSettings, parse_time, resolve_settings

pytestmark = pytest.mark.usefixtures("blank_pictures")

ALA1, ALA3 = DATA / "ala1.pdb", DATA / "ala3.pdb"
QUICK = ("--solvent", "vacuum", "--platform", "Reference", "--seed", "5", "--equilibrate", "40fs", "--report", "5")


def run(capsys, *arguments):
    """Return exit status, standard output and standard error of ``peptidyn run``."""
    status = main(["run", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def frames_of(folder):
    """The frames of trajectory.dcd as they are on disk, without the header, which holds a date."""
    return (folder / "trajectory.dcd").read_bytes()[276:]


def assert_same_run(one, other):
    assert frames_of(one) == frames_of(other)
    assert (one / "log.csv").read_text() == (other / "log.csv").read_text()
    with np.load(one / "torsions.npz") as a, np.load(other / "torsions.npz") as b:
        assert a.files == b.files
        for name in a.files:
            assert np.array_equal(a[name], b[name], equal_nan=a[name].dtype.kind == "f"), name
    for name in ("q", "momentum", "base_position", "base_rotation"):
        assert np.array_equal(read(one / "checkpoint.npz")[1][name], read(other / "checkpoint.npz")[1][name])
    headers = [(folder / "trajectory.dcd").read_bytes()[:100] for folder in (one, other)]
    assert headers[0] == headers[1]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A run of 60 steps that nothing interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert main(["run", str(ALA1), *QUICK, "--steps", "60", "-q", "-o", str(folder)]) == 0
    return folder


# ---------------------------------------------------------------------------- what a run leaves


def test_files_of_a_run(whole_run):
    found = {path.name for path in whole_run.iterdir()}
    assert found == {
        "topology.cif", "topology.pdb", "run.toml", "trajectory.dcd", "log.csv", "torsions.npz", "checkpoint.npz",
        "checkpoint-previous.npz", "summary.json", "energy.png", "drift.png", "ramachandran.png", "lock",
    }  # fmt: skip
    summary = json.loads((whole_run / "summary.json").read_text())
    assert summary["complete"] and summary["steps"] == 60 and summary["frames"] == 12
    assert summary["time_ps"] == 0.48 and summary["platform"] == "Reference" and summary["fixman"]
    assert summary["settings"]["seed"] == 5 and summary["ns_per_day"] > 0 and summary["drift_fallbacks"] == 0
    trajectory = mdtraj.load(whole_run / "trajectory.dcd", top=whole_run / "topology.pdb")
    assert trajectory.n_frames == 12
    assert len((whole_run / "log.csv").read_text().splitlines()) == 13
    with np.load(whole_run / "torsions.npz") as table:
        assert table["step"].tolist() == list(range(5, 61, 5))
        (phi, psi), *_ = phi_psi_pairs({name: table[name] for name in table.files})
        for column, measured in ((phi, mdtraj.compute_phi(trajectory)[1]), (psi, mdtraj.compute_psi(trajectory)[1])):
            difference = table["torsions"][:, column] - measured[:, 0]
            assert np.abs(np.angle(np.exp(1j * difference))).max() < 1e-3  # DCD is single precision
        assert table["potential"].mean() == pytest.approx(summary["potential_kJ_per_mol"])
    # bonds are those of the relaxed reference in every frame
    bonds = np.array([[b[0].index, b[1].index] for b in trajectory.topology.bonds])
    assert np.ptp(mdtraj.compute_distances(trajectory, bonds), axis=0).max() < 1e-5


def test_the_resolved_settings_repeat_the_run(capsys, tmp_path, whole_run):
    status, out, err = run(capsys, "--config", whole_run / "run.toml", "-o", tmp_path / "again")
    assert status == 0 and err == "" and "distribution: the rigid model's" in out
    assert "relaxed bonds, angles and torsions" in out and "done: 0.48 ps, 12 frames" in out
    assert_same_run(tmp_path / "again", whole_run)


def test_other_seeds_give_other_runs(capsys, tmp_path, whole_run):
    assert run(capsys, "--config", whole_run / "run.toml", "--seed", "6", "-o", tmp_path / "x")[0] == 0
    assert frames_of(tmp_path / "x") != frames_of(whole_run)


def test_default_structure_and_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = run(capsys, "--steps", "2", "--equilibrate", "0ps", "--report", "1", "--no-relax")
    assert status == 0 and "ala10: 112 atoms" in out and "was not relaxed" in out
    settings = (tmp_path / "ala10-run" / "run.toml").read_text()
    assert "relax = false" in settings and "seed = " in settings


@pytest.mark.parametrize("ensemble", ["nve", "ghmc"])
def test_other_ensembles(capsys, tmp_path, ensemble):
    options = ("--ensemble", ensemble, "--steps", "20", "--preset", "angles", "-o", tmp_path / "x")
    status, out, _ = run(capsys, ALA1, *QUICK, *options)
    summary = json.loads((tmp_path / "x" / "summary.json").read_text())
    assert status == 0 and "3 bends" in out
    assert ("acceptance" in summary) == (ensemble == "ghmc")
    assert ("drift_kJ_per_mol_per_ns" in summary) == (ensemble == "nve")
    assert summary["fixman"] == (ensemble == "ghmc")
    with np.load(tmp_path / "x" / "torsions.npz") as table:
        slope = 1e3 * np.polyfit(table["time"], table["total"], 1)[0]  # ps to ns
    assert summary.get("drift_kJ_per_mol_per_ns", slope) == pytest.approx(slope, rel=1e-6)
    per_dof = slope / (0.00831446262 * 300.0 * summary["degrees_of_freedom"])
    assert summary.get("drift_kT_per_dof_per_ns", per_dof) == pytest.approx(per_dof, rel=1e-6)


def test_a_run_without_frames_says_why(capsys, tmp_path):
    for steps, none in (("3", True), ("10", False)):
        status, out, _ = run(capsys, ALA1, *QUICK, "--report", "5", "--steps", steps, "-o", tmp_path / steps)
        assert status == 0 and ("no frame was written" in out and "see --report" in out) is none


def test_without_matplotlib(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, out, _ = run(capsys, ALA1, *QUICK, "--steps", "10", "-o", tmp_path / "x")
    assert status == 0 and "no pictures were drawn" in out and 'pip install "peptidyn[plots]"' in out
    assert not list((tmp_path / "x").glob("*.png"))


def test_pictures_need_a_run(tmp_path):
    with pytest.raises(ArgumentError, match=r"no torsions\.npz"):
        plot_run(tmp_path)


# ---------------------------------------------------------------------------- pivot moves


def test_pivot_moves_of_a_run(capsys, tmp_path, monkeypatch):
    """50 per 100 steps: ten after every 20 steps; a run that is made longer equals a long one, counts included."""
    at: list[int] = []
    apply = TorsionSimulation.apply
    monkeypatch.setattr(TorsionSimulation, "apply", lambda s, move: (at.append(s.currentStep), apply(s, move))[1])
    options = (ALA1, *QUICK, "--preset", "flexible", "--pivots", "50", "--report", "15", "--seed", "3")
    status, out, _ = run(capsys, *options, "--steps", "90", "-o", tmp_path / "long")
    assert status == 0 and at == [0, 20, 40, 60, 80]
    assert "50 pivot moves per 100 steps" in out and "times and rates are not physical" in out
    summary = json.loads((tmp_path / "long" / "summary.json").read_text())
    assert summary["pivot_moves"]["proposed"] == 50 > summary["pivot_moves"]["accepted"] > 0
    assert any("pivot moves change conformations" in note for note in summary["notes"])
    at.clear()
    for steps, more in (("40", options), ("70", ("--resume",)), ("90", ("--resume",))):
        assert run(capsys, *more, "--steps", steps, "-o", tmp_path / "pieces")[0] == 0
    assert at == [0, 20, 40, 60, 80]
    assert_same_run(tmp_path / "pieces", tmp_path / "long")
    pieces = json.loads((tmp_path / "pieces" / "summary.json").read_text())
    assert pieces["pivot_moves"] == summary["pivot_moves"]


def test_pivot_moves_are_refused_where_they_cannot_be_made(capsys, tmp_path):
    for arguments, phrase in (
        (("--pivots", "-1"), "pivots is -1"),
        (("--pivots", "9", "--ensemble", "nve"), "need a heat bath"),
        (("--pivots", "9", "--no-fixman"), "the Fixman potential"),
        (("--pivots", "9", "--solvent", "tip3p"), "through the waters of tip3p"),
        (("--pivots", "9", "--soft", "chi"), "no such soft torsions"),
    ):
        status, _, err = run(capsys, ALA1, *arguments, "-o", tmp_path / "x")
        assert status == 2 and phrase in err and err.count("\n") == 1 and not (tmp_path / "x").exists()


# ---------------------------------------------------------------------------- preparation


def test_missing_hydrogens_are_added(tmp_path):
    structure = load_structure(DATA / "ala3.pdb")
    structure.subset("not element H").write(tmp_path / "bare.pdb")
    prepared = prepare_structure(RunSettings(file=str(tmp_path / "bare.pdb")))
    assert prepared.n_atoms == structure.n_atoms and not prepared.missing_hydrogens


@pytest.mark.slow
def test_implicit_solvent_leaves_waters_out():
    with pytest.raises(ArgumentError, match="water only"):
        prepare_structure(RunSettings(file=str(OPENMM_DATA / "tip3p.pdb")))
    shared = load_structure(OPENMM_DATA / "test.pdb")
    waters = int(np.isin(shared.atoms.residue_name, ["HOH"]).sum())
    prepared = prepare_structure(RunSettings(file=str(OPENMM_DATA / "test.pdb")))
    assert waters > 0 and prepared.n_residues == shared.n_residues - waters
    assert any(f"{waters} waters left out" in note.text for note in prepared.notes_of("water"))
    vacuum = prepare_structure(RunSettings(file=str(OPENMM_DATA / "tip3p.pdb"), solvent="vacuum"))
    assert vacuum.n_residues > 1


def test_bad_input_leaves_no_folder(capsys, tmp_path):
    for arguments, phrase in (
        (("missing.pdb",), "missing.pdb"),
        ((ALA1, "--select", "resname XYZ"), "matches no atom"),
        ((ALA1, "--solvent", "honey"), "obc2, gbn2, vacuum"),
        ((ALA1, "--time", "5"), "with its unit"),
        ((ALA1, "--time", "0ps"), "less than half a step of 8 fs"),
        ((ALA1, "--steps", "5", "--time", "5ps"), "give one of them"),
        ((ALA1, "--ensemble", "npt"), "langevin, nve, ghmc"),
        ((ALA1, "--temperature", "-3"), "positive"),
        ((ALA1, "--metric", "fast"), "physical, auto"),
        ((ALA1, "--preset", "flexible", "--timestep", "200"), "a time step of 200 fs is too large"),
    ):
        status, _, err = run(capsys, *arguments, "-o", tmp_path / "x")
        assert status == 2 and phrase in err and err.count("\n") == 1
        assert not (tmp_path / "x").exists()


# ---------------------------------------------------------------------------- settings


def test_times():
    assert parse_time("time", "1.5ns") == 1500.0
    assert parse_time("time", " 250 fs ") == 0.25
    assert parse_time("time", "2us") == 2e6 and parse_time("time", "3ps") == 3.0
    assert RunSettings(time="1ns", timestep=4.0).n_steps == 250_000
    assert RunSettings(report="100").report_steps == 100
    assert RunSettings(report="0.8ps").report_steps == 100


def test_settings_from_file_and_command_line(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(
        'steps = 50\ntemperature = 310\nsoft = "phi psi"\nrigid = ["resid 1 to 3"]\nhydrogen-mass = 3.0\n'
    )
    settings = resolve_settings({"time": "2ps", "preset": "angles"}, config)
    assert settings.temperature == 310.0 and settings.hydrogen_mass == 3.0 and settings.rigid == ("resid 1 to 3",)
    # 16 fs at 300 K, less by the square root at 310 K; the command line's time replaces the file's steps
    assert settings.timestep_ps == pytest.approx(0.0157) and settings.steps is None and settings.n_steps == 127
    assert settings.soft_words == "phi psi chi omega angles"
    assert settings.seed is not None
    config.write_text(settings.to_toml())
    assert resolve_settings({}, config) == settings
    soft = resolve_settings({"soft": "phi"}, config)
    config.write_text(soft.to_toml())
    assert resolve_settings({}, config) == soft


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("temprature = 300", "did you mean temperature"),
        ('temperature = "hot"', "expected a number"),
        ("steps = 1.5", "expected a whole number"),
        ("relax = 1", "expected true or false"),
        ('rigid = "all"', "expected a list of texts"),
        ("steps = 0", "expected 1 or more"),
        ("steps 5", "not a TOML file"),
        ('steps = 5\ntime = "1ps"', "both time and steps"),
    ],
)
def test_bad_settings_are_refused(tmp_path, text, phrase):
    (tmp_path / "run.toml").write_text(text + "\n")
    with pytest.raises(ArgumentError, match=phrase):
        resolve_settings({}, tmp_path / "run.toml")


# ---------------------------------------------------------------------------- earlier runs


def test_an_earlier_run_is_kept_unless_told(capsys, tmp_path, whole_run):
    folder = tmp_path / "x"
    shutil.copytree(whole_run, folder)
    (folder / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    status, _, err = run(capsys, ALA1, *QUICK, "--steps", "10", "-o", folder)
    assert status == 2 and "--resume" in err and "--overwrite" in err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert run(capsys, ALA1, *QUICK, "--steps", "10", "-o", folder, "--overwrite")[0] == 0
    assert json.loads((folder / "summary.json").read_text())["steps"] == 10
    assert (folder / "notes.txt").read_text() == "mine"


def test_resume_refusals(capsys, tmp_path, whole_run):
    folder = tmp_path / "x"
    shutil.copytree(whole_run, folder)
    for arguments, phrase in (
        (("--resume",), "needs -o, the folder of the run"),
        (("--resume", "-o", tmp_path / "nowhere"), "no run to resume"),
        (("--resume", "--overwrite", "-o", folder), "give one of them"),
        (("--resume", "--timestep", "4", "-o", folder), "timestep was 8.0"),
    ):
        status, _, err = run(capsys, *arguments)
        assert status == 2 and phrase in err
    assert_same_run(folder, whole_run)


def test_resuming_a_complete_run_changes_nothing(capsys, tmp_path, whole_run):
    shutil.copytree(whole_run, tmp_path / "x")
    assert run(capsys, "--resume", "-o", tmp_path / "x")[0] == 0
    assert_same_run(tmp_path / "x", whole_run)


@pytest.mark.parametrize("ensemble", ["langevin", "ghmc"])
def test_a_lengthened_run_equals_a_long_one(capsys, tmp_path, ensemble):
    options = (ALA1, *QUICK, "--ensemble", ensemble, "--no-relax")
    for name, steps in (("long", 30), ("short", 13)):  # 13: between two reports
        assert run(capsys, *options, "--steps", steps, "-o", tmp_path / name)[0] == 0
    status, out, _ = run(capsys, "--resume", "--steps", "30", "-o", tmp_path / "short")
    assert status == 0 and "continuing from step 13 of 30" in out
    assert_same_run(tmp_path / "short", tmp_path / "long")


# ---------------------------------------------------------------------------- interrupts and crashes


def test_frames_beyond_the_checkpoint_are_dropped(capsys, tmp_path, whole_run):
    """A crash between a report and its checkpoint: the other files are ahead."""
    folder = tmp_path / "x"
    assert run(capsys, "--config", whole_run / "run.toml", "--steps", "20", "-o", folder)[0] == 0
    early = (folder / "checkpoint.npz").read_bytes()
    assert run(capsys, "--resume", "--steps", "40", "-o", folder)[0] == 0
    (folder / "checkpoint.npz").write_bytes(early)
    with open(folder / "log.csv", "a") as log:
        log.write("45,0.36")  # a line that was being written
    assert run(capsys, "--resume", "--steps", "60", "-o", folder)[0] == 0
    assert_same_run(folder, whole_run)


def test_ctrl_c_stops_between_steps(capsys, tmp_path, monkeypatch, whole_run):
    folder, step = tmp_path / "x", TorsionSimulation.step
    before = signal.getsignal(signal.SIGINT)  # a background job of a shell ignores it

    def interrupted_step(self, steps):
        if self.reporters and self.currentStep == 25:
            signal.raise_signal(signal.SIGINT)
        step(self, steps)

    monkeypatch.setattr(TorsionSimulation, "step", interrupted_step)
    status, _, err = run(capsys, "--config", whole_run / "run.toml", "-o", folder)
    assert status == 130 and "continue with --resume" in err
    summary = json.loads((folder / "summary.json").read_text())
    assert not summary["complete"] and summary["steps"] == 30
    assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.undo()
    assert run(capsys, "--resume", "-o", folder)[0] == 0
    assert_same_run(folder, whole_run)


def test_kill_in_the_middle_and_resume(capsys, tmp_path):
    """SIGKILL leaves no time to tidy up; the resumed run equals the uninterrupted one frame for frame."""
    options = [str(ALA1), *QUICK, "--no-relax", "-q"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "peptidyn", "run", *options, "--steps", "100000", "-o", str(killed)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 120
        trajectory = killed / "trajectory.dcd"
        while not (trajectory.exists() and trajectory.stat().st_size > 6000):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    reached = read(killed / "checkpoint.npz")[0]["step"]
    assert 0 < reached < 100_000
    steps = str(reached + 50)
    assert run(capsys, "--resume", "--steps", steps, "-o", killed)[0] == 0
    assert run(capsys, *options, "--steps", steps, "-o", whole)[0] == 0
    assert_same_run(killed, whole)
    assert not list(killed.glob(".*")) and not (killed / "torsions.npz.rows").exists()


def test_a_run_killed_while_preparing_starts_again(capsys, tmp_path, whole_run):
    folder = tmp_path / "x"
    folder.mkdir()
    for name in ("run.toml", "topology.cif"):
        shutil.copy(whole_run / name, folder)
    assert run(capsys, "--resume", "-o", folder)[0] == 0
    assert_same_run(folder, whole_run)


def test_a_step_too_large_leaves_the_checkpoint(capsys, tmp_path):
    folder = tmp_path / "x"
    options = ("--soft", "phi psi methyl", "--timestep", "150", "--steps", "500", "--report", "1", "-o", folder)
    status, _, err = run(capsys, ALA1, *QUICK[:6], "--equilibrate", "0ps", *options)
    assert status == 2 and "could not be made" in err and "try" in err and err.count("\n") == 1
    about, _ = read(folder / "checkpoint.npz")
    trajectory = folder / "trajectory.dcd"
    frames = mdtraj.load(trajectory, top=folder / "topology.pdb").n_frames if about["extra"]["frames"] else 0
    assert about["step"] == about["extra"]["frames"] == frames < 500
    assert (f"from its last frame, in a new folder: --from {folder}" in err) == (frames > 0)


def test_a_run_that_failed_late_goes_on_with_a_smaller_step(capsys, tmp_path):
    """Resuming it would fail again, with the same random numbers; a new run starts where it was."""
    hot = ("--preset", "flexible", "-T", "700", "--timestep", "24", "--report", "20")
    failed = tmp_path / "failed"
    status, _, err = run(capsys, ALA3, *QUICK[:6], *hot, "--equilibrate", "0ps", "--steps", "20000", "-o", failed)
    assert status == 2 and f"--from {failed} with a smaller --timestep\n" in err
    status, out, _ = run(capsys, "--from", failed, "--timestep", "4", "--steps", "20", "-o", tmp_path / "new")
    assert status == 0 and "langevin, 4 fs" in out


def test_a_failed_equilibration_leaves_a_checkpoint_and_starts_again(capsys, tmp_path):
    folder = tmp_path / "x"
    options = ("--soft", "phi psi methyl", "--timestep", "150", "--steps", "500", "-T", "600", "-o", folder)
    status, _, err = run(capsys, ALA1, *QUICK[:6], "--equilibrate", "75ps", *options)
    assert status == 2 and "could not be made" in err
    about, arrays = read(folder / "checkpoint.npz")
    assert about["extra"]["equilibrating"] and np.isfinite(arrays["q"]).all()
    status, out, err = run(capsys, "--resume", "-o", folder)
    assert status == 2 and "could not be made" in err and "continuing" not in out


# ---------------------------------------------------------------------------- trajectory files


def test_a_lengthened_xtc_equals_a_long_one(capsys, tmp_path):
    options = (ALA1, *QUICK, "--no-relax", "--trajectory", "xtc")
    for name, steps in (("long", 30), ("short", 13)):
        assert run(capsys, *options, "--steps", steps, "-o", tmp_path / name)[0] == 0
    long, short = (tmp_path / name / "trajectory.xtc" for name in ("long", "short"))
    with open(short, "ab") as file:
        file.write(long.read_bytes()[:70])  # a frame that was being written
    assert run(capsys, "--resume", "--steps", "30", "-o", tmp_path / "short")[0] == 0
    assert short.read_bytes() == long.read_bytes()
    assert not (tmp_path / "long" / "trajectory.dcd").exists()
    assert mdtraj.load(long, top=tmp_path / "long" / "topology.pdb").n_frames == 6
    with pytest.raises(TrajectoryError, match="shorter than the 7 frames"):
        keep_frames(long, 7)
    long.write_bytes(b"x" * 400)
    with pytest.raises(TrajectoryError, match="not an XTC file"):
        keep_frames(long, 1)


def test_terms_inside_rigid_units_can_stay(capsys, tmp_path):
    """The same motion and the same energies, to rounding, with and without them."""
    options = (ALA1, *QUICK, "--no-relax", "--steps", "20")
    assert run(capsys, *options, "-o", tmp_path / "lean")[0] == 0
    assert run(capsys, *options, "--keep-rigid-terms", "-o", tmp_path / "full")[0] == 0
    with np.load(tmp_path / "lean" / "torsions.npz") as lean, np.load(tmp_path / "full" / "torsions.npz") as full:
        for name in ("torsions", "potential", "total"):
            assert np.allclose(lean[name], full[name], atol=1e-6), name
    notes = [json.loads((tmp_path / name / "summary.json").read_text())["notes"] for name in ("lean", "full")]
    assert "left out of the forces" in notes[0][0] and notes[1] == []


def test_dcd_cutting(tmp_path, whole_run):
    path = tmp_path / "t.dcd"
    shutil.copy(whole_run / "trajectory.dcd", path)
    keep_frames(path, 7)
    top = whole_run / "topology.pdb"
    kept, whole = mdtraj.load(path, top=top), mdtraj.load(whole_run / "trajectory.dcd", top=top)
    assert kept.n_frames == 7 and np.array_equal(kept.xyz, whole.xyz[:7])
    with pytest.raises(TrajectoryError, match="shorter than the 8 frames"):
        keep_frames(path, 8)
    keep_frames(path, 0)
    assert not path.exists()
    path.write_bytes(b"x" * 400)
    with pytest.raises(TrajectoryError, match="not a DCD file"):
        keep_frames(path, 1)
    with pytest.raises(TrajectoryError, match="No such file"):
        keep_frames(tmp_path / "none.dcd", 1)


def written(path, frames, box):
    """Return a file as OpenMM writes it: four atoms, the first frame at step 20, one every 5 steps."""
    topology = app.Topology()
    residue = topology.addResidue("X", topology.addChain())
    for name in "ABCD":
        topology.addAtom(name, None, residue)
    topology.setPeriodicBoxVectors(box)
    x = np.random.default_rng(3).random((5, 4, 3))
    if path.suffix == ".dcd":
        with open(path, "wb") as stream:
            file = app.DCDFile(stream, topology, 0.002, 20, 5)
            for frame in range(frames):
                file.writeModel(x[frame], periodicBoxVectors=box)
    else:
        file = app.XTCFile(str(path), topology, 0.002, 20, 5)
        for frame in range(frames):
            file.writeModel(x[frame], periodicBoxVectors=box)
        del file
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["dcd", "xtc"])
@pytest.mark.parametrize("box", [None, [Vec3(3, 0, 0), Vec3(0, 3, 0), Vec3(0, 0, 3)]], ids=["no box", "box"])
def test_a_file_that_was_cut_is_that_of_fewer_frames(tmp_path, kind, box):
    """Counts and last step in the header, boxes, and the few atoms that XTC does not compress."""
    two, five = (written(tmp_path / f"{frames}.{kind}", frames, box) for frames in (2, 5))
    keep_frames(tmp_path / f"5.{kind}", 2)
    cut = (tmp_path / f"5.{kind}").read_bytes()
    assert len(five) > len(two) == len(cut)
    if kind == "xtc":
        assert cut == two
    else:  # between them is the time of day
        assert cut[:92] == two[:92] and cut[268:] == two[268:]


# ---------------------------------------------------------------------------- stages and parts of runs


class Recorder:
    """A simulation that notes what it is asked for."""

    def __init__(self):
        self.calls = []
        self.integrator = SimpleNamespace(counters={"fallbacks": 3, "proposed": 9})
        self.context = SimpleNamespace(
            setTime=lambda time: self.calls.append(("time", time)),
            setStepCount=lambda count: self.calls.append(("count", count)),
        )
        self.tree = SimpleNamespace(n_atoms=10)

    def minimize_torsions(self, tolerance, iterations, watch):
        self.calls.append(("minimise", tolerance, iterations))
        return 0.0

    def set_velocities_to_temperature(self, temperature):
        self.calls.append(("velocities", temperature))

    def step(self, count):
        self.calls.append(("step", count))


def test_equilibration_draws_momenta_at_the_temperature_and_leaves_all_counts_at_zero():
    simulation = Recorder()
    settings = RunSettings(temperature=350.0, timestep=2.0, equilibrate="240fs")
    _equilibrate(simulation, settings, lambda _: None, False)
    draw = ("velocities", 350.0)
    assert simulation.calls == [
        ("minimise", 10.0, 200), draw, ("step", 50), draw, ("step", 50), draw, ("step", 20),
        ("time", 0.0), ("count", 0),
    ]  # fmt: skip
    assert simulation.integrator.counters == {"fallbacks": 0, "proposed": 0}


def test_seconds_and_moves_of_all_parts_are_counted(tmp_path, whole_run):
    """What a checkpoint holds is added to, also when the run goes on."""
    folder = tmp_path / "x"
    shutil.copytree(whole_run, folder)
    about, arrays = read(folder / "checkpoint.npz")
    about["extra"]["seconds"] = 1000.0
    write(folder / "checkpoint.npz", "simulation", about, arrays)
    assert main(["run", "--resume", "--steps", "65", "-q", "-o", str(folder)]) == 0
    extra = read(folder / "checkpoint.npz")[0]["extra"]
    assert 1000.0 < extra["seconds"] < 1100.0 and extra["frames"] == 13
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["ns_per_day"] == pytest.approx(86.4 * 0.008 * 65 / extra["seconds"], rel=1e-6)


# ---------------------------------------------------------------------------- everything soft


def test_a_flexible_run_resumes_exactly_and_says_what_it_samples(capsys, tmp_path):
    """The joint inertias are measured once, at the relaxed geometry, and come back with the checkpoint."""
    flexible = (ALA1, *QUICK, "--preset", "flexible")
    status, out, _ = run(capsys, *flexible, "--steps", "30", "-o", tmp_path / "whole")
    assert status == 0 and "66 degrees of freedom; langevin, 16 fs, auto metric" in out
    assert "distribution: the force field's own: nothing is fixed" in out and "rates and velocities are not" in out
    assert "rigid units" not in out  # nothing is rigid, so no term was left out
    assert run(capsys, *flexible, "--steps", "15", "-o", tmp_path / "parts")[0] == 0
    assert run(capsys, "--resume", "--steps", "30", "-o", tmp_path / "parts")[0] == 0
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    inertia = read(tmp_path / "whole" / "checkpoint.npz")[1]["joint_inertia"]
    assert np.array_equal(read(tmp_path / "parts" / "checkpoint.npz")[1]["joint_inertia"], inertia) and inertia.any()
    summary = json.loads((tmp_path / "parts" / "summary.json").read_text())
    assert summary["metric"] == "auto" and summary["distribution"] == "the force field's own: nothing is fixed"
    assert summary["degrees_of_freedom"] == 66 == 6 + sum(summary["coordinates"].values())
    status, _, err = run(capsys, "--resume", "--metric", "physical", "-o", tmp_path / "parts")
    assert status == 2 and "metric was None" in err
