"""What the folder of a run remembers: settings, identity, files that a checkpoint vouches for, how the run ended."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from quick_systems import systems_made_once
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError, OutputError
from peptidyn.core.sealed_files import write_sealed_json
from peptidyn.engine import checkpoints
from peptidyn.runs import run as run_module
from peptidyn.runs.run_folder import RunFolder, _checksum_of_inputs, _inputs, read_run
from peptidyn.runs.settings import ExchangeSettings, RunSettings

QUICK = {
    "solvent": "vacuum", "platform": "Reference", "equilibrate": "0ps", "report": "5", "seed": 5, "relax": False,
    "progress": False, "say": lambda _: None,
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of three frames with soft angles, heavy hydrogens and two rigid residues."""
    folder = tmp_path_factory.mktemp("run") / "x"
    with systems_made_once():
        ptd.run(
            DATA / "ala3.pdb", steps=15, folder=folder, preset="angles", hydrogen_mass=3.0, timestep=2.0,
            rigid=["resid 1 to 2"], **QUICK,
        )  # fmt: skip
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "x")
    return tmp_path / "x"


class Simulation:
    """Writes checkpoints that hold a step and what the run adds."""

    def __init__(self, step):
        self.step = step

    def save_checkpoint(self, path, extra):
        checkpoints.write(path, checkpoints.SIMULATION, {"step": self.step, "extra": extra}, {})


@pytest.fixture
def folder(tmp_path):
    """A folder with settings and atoms, and no checkpoint yet."""
    made = RunFolder(tmp_path / "y")
    made.make(False)
    made.write_settings(RunSettings(file="x.pdb", seed=1, steps=10))
    made.write_structure(ptd.load_structure(DATA / "ala1.pdb"))
    yield made
    made.release()


def changed(path):
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


# ---------------------------------------------------------------------------- checkpoints

GROWING = ("trajectory.dcd", "trajectory.xtc", "log.csv", "torsions.npz.rows")


def test_a_checkpoint_vouches_for_all_files_that_grow(folder):
    assert set(folder.growing()) == set(GROWING)
    for name in GROWING:
        (folder.path / name).write_bytes(b"some frames " * 50)
    folder.save_checkpoint(Simulation(3), {"frames": 1})
    again = RunFolder(folder.path)
    for name in GROWING:
        data = (folder.path / name).read_bytes()
        (folder.path / name).write_bytes(data + b"more")
        again.check_files()
        (folder.path / name).write_bytes(data[:-9] + b"S" + data[-8:])
        with pytest.raises(CheckpointError, match=name):
            again.check_files()
        (folder.path / name).write_bytes(data)
    assert folder.read_checkpoint()[0]["extra"]["frames"] == 1


def test_the_checkpoint_before_the_last_one_is_kept(folder):
    for step in (3, 4, 5):
        folder.save_checkpoint(Simulation(step), {})
        assert folder.read_checkpoint()[0]["step"] == step
        assert folder.previous.exists() == (step > 3)
    assert checkpoints.read(folder.previous, checkpoints.SIMULATION, ())[0]["step"] == 4


def test_bytes_that_change_between_two_checkpoints_are_found(folder):
    (folder.path / "log.csv").write_text("first\n")
    folder.save_checkpoint(Simulation(3), {})
    (folder.path / "log.csv").write_text("fIrst\nsecond\n")
    folder.save_checkpoint(Simulation(4), {})
    with pytest.raises(CheckpointError, match=r"log\.csv"):
        RunFolder(folder.path).check_files()


def test_a_run_goes_on_from_a_checkpoint_of_its_own_beginning(folder):
    """One that failed while equilibrating begins again; one whose checkpoint is lost does not."""
    assert not folder.has_begun
    folder.save_checkpoint(Simulation(0), {"equilibrating": True})
    assert not folder.has_begun
    folder.save_checkpoint(Simulation(0), {"frames": 0})
    assert folder.has_begun
    folder.checkpoint.unlink()
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz is missing"):
        _ = folder.has_begun


@pytest.mark.parametrize(
    ("given", "same"),
    [({}, True), ({"steps": 99}, True), ({"steps": None, "time": "3ps"}, True), ({"platform": "CPU"}, True),
     ({"threads": 3}, True), ({"seed": 2}, False), ({"temperature": 310.0}, False), ({"file": "y.pdb"}, False),
     ({"relax": False}, False), ({"rigid": ("all",)}, False)],
)  # fmt: skip
def test_runs_are_told_apart_by_settings(folder, given, same):
    """Beside those that may change when a run goes on."""
    folder.save_checkpoint(Simulation(0), {})
    settings = RunSettings(**{"file": "x.pdb", "seed": 1, "steps": 10, **given})
    if same:
        folder.check_identity(settings)
    else:
        with pytest.raises(CheckpointError, match=r"belongs to another run than run\.toml and topology\.cif"):
            folder.check_identity(settings)


def test_runs_are_told_apart_by_atoms(folder):
    folder.save_checkpoint(Simulation(0), {})
    structure = ptd.load_structure(DATA / "ala1.pdb")
    folder.write_structure(structure.with_positions(structure.positions + 1e-9))
    with pytest.raises(CheckpointError, match="belongs to another run"):
        folder.check_identity(folder.settings)


# ---------------------------------------------------------------------------- files with parameters


def test_files_outside_of_the_folder(tmp_path, monkeypatch):
    """Force fields that are files there, whatever the blanks between them, and those of a prmtop, psf or top file."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.xml", "b.xml", "x.prmtop", "x.par", "x.pdb"):
        (tmp_path / name).write_text(f"as it was: {name}")
    fields = RunSettings(file="x.pdb", forcefield="amber14, a.xml ,b.xml,c.xml")
    files = RunSettings(file="x.prmtop", parameters=("x.par",), solvent="vacuum")
    assert _inputs(RunSettings(file="x.pdb")) == [] and _inputs(fields) == ["a.xml", "b.xml"]
    assert _inputs(files) == ["x.prmtop", "x.par"]
    assert _checksum_of_inputs(RunSettings(file="x.pdb")) == "00000000"
    for settings in (fields, files):
        before = _checksum_of_inputs(settings)
        for name in _inputs(settings):
            text = (tmp_path / name).read_text()
            (tmp_path / name).write_text(text.upper())
            assert _checksum_of_inputs(settings) != before
            (tmp_path / name).write_text(text)
        assert _checksum_of_inputs(settings) == before
    (tmp_path / "x.par").unlink()
    with pytest.raises(
        CheckpointError, match=r"cannot read x\.par, which the run has its parameters from: No such file"
    ):
        _checksum_of_inputs(files)


def test_a_file_with_parameters_that_was_changed(tmp_path):
    (tmp_path / "a.xml").write_text("as it was")
    settings = RunSettings(seed=1, steps=1, forcefield=str(tmp_path / "a.xml"))
    made = RunFolder(tmp_path)
    made.write_settings(settings)
    made.write_structure(ptd.load_structure(DATA / "ala1.pdb"))
    made.save_checkpoint(Simulation(0), {})
    made.check_inputs(settings)
    (tmp_path / "a.xml").write_text("changed")
    with pytest.raises(CheckpointError, match=r"was changed after it began \(.*a\.xml\); put it back"):
        made.check_inputs(settings)


# ---------------------------------------------------------------------------- settings and summaries


def test_settings_are_kept_by_kind(tmp_path):
    made = RunFolder(tmp_path)
    for settings in (RunSettings(seed=1, steps=3), ExchangeSettings(seed=2, iterations=3)):
        made.write_settings(settings)
    assert RunFolder(tmp_path).settings == RunSettings(seed=1, steps=3)
    assert made.read_settings(ExchangeSettings()) == ExchangeSettings(seed=2, iterations=3)
    more = made.settings_to_resume(ExchangeSettings(), {"iterations": 9, "threads": 2, "platform": "CPU"})
    assert (more.iterations, more.threads, more.platform, more.seed) == (9, 2, "CPU", 2)
    for name, value in {"replicas": 4, "tmax": 510.0, "seed": 3, "interval": 7, "warm_up": 0, "exact": True}.items():
        with pytest.raises(ArgumentError, match=rf"{name} was .* and is {value} now"):
            made.settings_to_resume(ExchangeSettings(), {name: value})
    assert made.settings_to_resume(ExchangeSettings(), {"tmax": 500.0}) == ExchangeSettings(seed=2, iterations=3)
    (tmp_path / "run.toml").write_text((tmp_path / "run.toml").read_text() + "friction = 2.0\n")
    with pytest.raises(CheckpointError, match=r"put the file back as it was"):
        RunFolder(tmp_path).read_settings(RunSettings())


@pytest.mark.parametrize(("summary", "ending"), [(None, "killed"), (True, "finished"), (False, "interrupted")])
def test_how_a_run_ended(folder, summary, ending):
    """Rows that were not made a table yet say that it goes on, or was killed, whatever an earlier summary says."""
    if summary is not None:
        folder.write_summary({"complete": summary, "settings": {"seed": 1}})
    assert folder.ending == ending and bool(folder.summary) == (summary is not None)
    (folder.path / "torsions.npz.rows").write_bytes(b"")
    assert RunFolder(folder.path).ending == "killed" and RunFolder(folder.path).summary == {}


@pytest.mark.parametrize("kind", [RunSettings, ExchangeSettings])
@pytest.mark.parametrize(("own", "fits"), [("length", True), ("seed", False), ("friction", False)])
def test_a_summary_of_another_run_is_told(tmp_path, kind, own, fits):
    """Its settings are those of the folder, beside those that may change."""
    made, length = RunFolder(tmp_path), "steps" if kind is RunSettings else "iterations"
    made.write_settings(kind(seed=1, **{length: 5}))
    theirs = {"seed": 1, length: 5, "friction": 1.0, "rigid": []}
    theirs[length if own == "length" else own] = 9
    write_sealed_json(tmp_path / "summary.json", {"complete": True, "settings": theirs})
    if fits:
        assert RunFolder(tmp_path).summary["settings"] == theirs
    else:
        with pytest.raises(CheckpointError, match=rf"belongs to another run than {kind.stored_as} beside it"):
            _ = RunFolder(tmp_path).summary


# ---------------------------------------------------------------------------- frames


def test_the_tree_is_that_of_the_run(finished):
    """Soft coordinates, what is rigid, masses, the geometry, and joint inertias."""
    tree = RunFolder(finished).tree
    with np.load(finished / "checkpoint.npz") as file:
        geometry, inertia = file["geometry"], file["joint_inertia"]
    wanted = ptd.build_tree(
        ptd.load_structure(finished / "topology.cif"), soft="phi psi chi omega angles", rigid=["resid 1 to 2"]
    )
    assert [str(c) for c in tree.coordinates] == [str(c) for c in wanted.coordinates] and tree.n_bends
    assert tree.masses.min() == pytest.approx(3.0) and tree.masses.sum() == pytest.approx(wanted.masses.sum())
    assert np.abs(tree.positions(tree.reference) - geometry).max() < 1e-9
    assert np.array_equal(tree.joint_inertia, inertia)


def test_coordinates_are_in_the_order_of_the_tree(finished):
    run = RunFolder(finished)
    assert run.n_frames == 3 and run.q.shape == (3, run.tree.n_coordinates)
    assert np.array_equal(run.q[:, run.tree.torsion_index], run.table["torsions"])
    assert np.array_equal(run.q[:, run.tree.bend_index], run.table["bends"])
    last = checkpoints.read(finished / "checkpoint.npz", checkpoints.SIMULATION, ("q",))[1]["q"]
    assert np.angle(np.exp(1j * (run.q[-1] - last))) == pytest.approx(0.0, abs=1e-12)
    assert run.trajectory == finished / "trajectory.dcd" and run.has_frames
    header, *rows = (finished / "log.csv").read_text().splitlines()
    assert len(rows) == 3 and header.split(",")[0].strip('#"') == "step" and "phi" not in header


def test_a_checkpoint_of_other_atoms_is_told(copied):
    about, arrays = checkpoints.read(copied / "checkpoint.npz", checkpoints.SIMULATION)
    for name in ("geometry", "joint_inertia"):
        checkpoints.write(copied / "checkpoint.npz", checkpoints.SIMULATION, about, {**arrays, name: arrays[name][:-1]})
        with pytest.raises(CheckpointError, match=r"checkpoint\.npz does not fit .*topology\.cif"):
            _ = RunFolder(copied).tree


def test_a_folder_without_frames(copied, folder):
    assert not folder.has_frames and folder.trajectory is None
    with pytest.raises(ArgumentError, match=r"holds no torsions\.npz: no frame was reported"):
        _ = folder.table
    (folder.path / "trajectory.dcd").write_bytes(b"")
    assert folder.trajectory is None
    (folder.path / "trajectory.dcd").write_bytes(b"x")
    assert folder.trajectory == folder.path / "trajectory.dcd"
    folder.write_settings(RunSettings(seed=1, steps=1, trajectory="xtc"))
    (folder.path / "trajectory.xtc").write_bytes(b"x")
    assert RunFolder(folder.path).trajectory == folder.path / "trajectory.xtc"
    (folder.path / "torsions.npz.rows").write_bytes(b"")
    assert folder.has_frames


def test_a_table_that_was_changed_is_told(copied):
    """Also where it holds more frames than the checkpoint vouches for."""
    about, arrays = checkpoints.read(copied / "checkpoint.npz", checkpoints.SIMULATION)
    with np.load(copied / "torsions.npz") as file:
        table = dict(file)
    table["potential"][0] += 1.0
    del table[next(name for name in table if "extent" in name)]
    np.savez(copied / "torsions.npz", **table)
    with pytest.raises(CheckpointError, match=r"torsions\.npz"):
        _ = RunFolder(copied).table
    assert about["extra"]["frames"] == 3 and len(arrays)


# ---------------------------------------------------------------------------- going on


def test_a_run_goes_on_behind_its_frames(copied, finished):
    """With the terms that it left out; what a killed run was writing is removed, and the new length is kept."""
    (copied / ".log.csv.abc").write_text("half of a file")
    said: list[str] = []
    with systems_made_once():
        result = ptd.run(folder=copied, resume=True, steps=20, say=said.append, progress=False)
    assert "continuing from step 15 of 20" in said and result.summary["steps"] == 20 and not result.interrupted
    assert any("left out of the forces" in note for note in result.summary["notes"])
    assert not list(copied.glob(".*")) and RunFolder(copied).settings.steps == 20
    run, before = RunFolder(copied), RunFolder(finished)
    assert run.table["step"].tolist() == [5, 10, 15, 20] and run.summary["steps"] == 20
    assert np.array_equal(run.q[:3], before.q) and np.array_equal(run.tree.joint_inertia, before.tree.joint_inertia)
    assert np.array_equal(run.read_geometry(), before.read_geometry())


@pytest.mark.parametrize("name", ["check_files", "check_identity", "check_inputs"])
def test_a_folder_is_checked_before_a_run_goes_on(copied, monkeypatch, name):
    def refuse(*_):
        raise CheckpointError(name)

    monkeypatch.setattr(RunFolder, name, refuse)
    before = (copied / "run.toml").read_bytes()
    with pytest.raises(CheckpointError, match=name):
        ptd.run(folder=copied, resume=True, steps=20, say=lambda _: None, progress=False)
    assert (copied / "run.toml").read_bytes() == before


def test_a_folder_is_locked_while_a_run_goes_on(copied, monkeypatch):
    def look(*_):
        with pytest.raises(OutputError, match="another process"):
            RunFolder(copied).lock()
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "_continue", look)
    with pytest.raises(KeyboardInterrupt):
        ptd.run(folder=copied, resume=True, steps=20, say=lambda _: None, progress=False)
    with RunFolder(copied) as folder:
        folder.lock()


# ---------------------------------------------------------------------------- reports


def test_a_run_that_can_be_reported(finished):
    run = read_run(finished)
    assert run.n_frames == 3 and run.settings.preset == "angles"


@pytest.mark.parametrize(
    ("damage", "error", "phrase"),
    [
        (lambda x: shutil.rmtree(x), ArgumentError, "there is no folder"),
        (lambda x: (x / "exchange.toml").write_text(""), ArgumentError, "holds a replica exchange run"),
        (lambda x: (x / "run.toml").unlink(), ArgumentError, r"holds no run: there is no run\.toml"),
        (lambda x: (x / "topology.cif").unlink(), ArgumentError, r"holds no run: there is no topology\.cif"),
        (lambda x: (x / "checkpoint.npz").unlink(), CheckpointError, r"checkpoint\.npz is missing"),
        (lambda x: (x / "torsions.npz").unlink(), ArgumentError, "has reported no frame yet"),
        (lambda x: changed(x / "log.csv"), CheckpointError, r"log\.csv"),
        (lambda x: changed(x / "topology.cif"), CheckpointError, r"topology\.cif"),
        (lambda x: RunFolder(x).write_settings(RunSettings(seed=6, steps=15)), CheckpointError, "another run"),
    ],
)
def test_runs_that_cannot_be_reported(copied, damage, error, phrase):
    damage(copied)
    with pytest.raises(error, match=phrase):
        read_run(copied)


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_a_report_needs_two_frames(finished, monkeypatch, frames):
    monkeypatch.setattr(RunFolder, "n_frames", frames)
    if frames == 2:
        assert read_run(finished).n_frames == 2
    else:
        with pytest.raises(ArgumentError, match=f"has reported {frames} frames, too few for a report"):
            read_run(finished)
