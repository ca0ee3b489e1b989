"""The files in the folder of a run: what is cleared and what stays, who may write, what a checkpoint vouches for."""

from __future__ import annotations

import os

import filelock
import numpy as np
import openmm
import pytest

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError, OutputError
from peptidyn.core.sealed_files import Extent, measure_extent, write_sealed_text
from peptidyn.engine import checkpoints, run_files
from peptidyn.engine.run_files import RunFiles

OF_RUNS = (
    "topology.cif", "topology.pdb", "run.toml", "trajectory.dcd", "trajectory.xtc", "log.csv", "torsions.npz",
    "torsions.npz.rows", "checkpoint.npz", "checkpoint-previous.npz", "summary.json", "report.html", "energies.png",
    "ramachandran.png", "exchange.toml", "exchanges.csv", "reduced.npy", "u_kn.npz", "replica-00/trajectory.dcd",
    "replica-00/torsions.npy", "replica-11/energies.npy", ".summary.json.ab12", ".checkpoint.npz.tmp",
)  # fmt: skip
"""What runs, replica exchange and reports write, and what a killed run was writing."""

OF_OTHERS = (
    "notes.txt",
    "mine.npz",
    "my-run.toml",
    "log.csv.bak",
    "replica-00/notes.txt",
    "results/log.csv",
    ".hidden",
)


class Growing(RunFiles):
    """A folder with two growing files."""

    def growing(self):
        return ("log.csv", "torsions.npz.rows")


def fill(folder, names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}\n")


def names_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"lock"}


# ---------------------------------------------------------------------------- beginning and ending


@pytest.mark.parametrize("name", [name for name in OF_RUNS if not name.startswith("replica")])
def test_everything_that_a_run_writes_is_removed_when_it_is_replaced(tmp_path, name):
    """One by one: nothing of an earlier run is taken for a part of the new one."""
    fill(tmp_path, [name, "notes.txt"])
    with RunFiles(tmp_path) as files:
        files.make(overwrite=True)
        assert names_in(tmp_path) == {"notes.txt"}


def test_all_of_a_run_is_removed_and_what_others_put_there_stays(tmp_path):
    fill(tmp_path, OF_RUNS + OF_OTHERS)
    with RunFiles(tmp_path) as files:
        files.make(overwrite=True)
        assert names_in(tmp_path) == set(OF_OTHERS)
        for name in OF_OTHERS:
            assert (tmp_path / name).read_text() == f"text of {name}\n"


def test_only_unfinished_files_are_removed_when_a_run_goes_on(tmp_path):
    fill(tmp_path, OF_RUNS + OF_OTHERS)
    RunFiles(tmp_path).remove_unfinished()
    assert names_in(tmp_path) == {name for name in OF_RUNS if not name.startswith(".")} | set(OF_OTHERS)


def test_a_folder_that_is_not_empty_is_refused_unless_told(tmp_path):
    fill(tmp_path, ["notes.txt"])
    with pytest.raises(ArgumentError, match="is not empty"):
        RunFiles(tmp_path).make(overwrite=False)
    assert not (tmp_path / "lock").exists()
    (tmp_path / "notes.txt").unlink()
    (tmp_path / "lock").touch()  # what an earlier run left
    with RunFiles(tmp_path) as files:
        files.make(overwrite=False)
    with pytest.raises(ArgumentError, match=r"is a file; choose another folder="):
        fill(tmp_path, ["file"])
        RunFiles(tmp_path / "file").make(overwrite=True)
    with pytest.raises(OutputError, match="cannot make the folder"):
        RunFiles(tmp_path / "file" / "below").make(overwrite=True)


def test_files_that_appear_before_the_lock_are_noticed(tmp_path, monkeypatch):
    """Another run was faster, and has ended already."""
    files, lock = RunFiles(tmp_path / "x"), RunFiles.lock

    def slow(self):
        fill(tmp_path / "x", ["run.toml"])
        lock(self)

    monkeypatch.setattr(RunFiles, "lock", slow)
    with files, pytest.raises(ArgumentError, match="is not empty"):
        files.make(overwrite=False)
    assert names_in(tmp_path / "x") == {"run.toml"}


def test_one_at_a_time_may_write(tmp_path):
    one, other = RunFiles(tmp_path), RunFiles(tmp_path)
    one.make(overwrite=False)
    one.lock()  # again, which changes nothing
    for refused in (other.lock, lambda: other.make(overwrite=True)):
        with pytest.raises(OutputError, match=r"writes to .*; wait until it ends"):
            refused()
    one.release()
    one.release()
    with other:
        other.lock()
        with pytest.raises(OutputError, match="writes to"):
            one.lock()
    one.lock()
    one.release()


def test_a_file_system_without_locks_is_said_once(tmp_path, monkeypatch):
    class Lockless:
        def __init__(self, *arguments, **options):
            pass

        def acquire(self, timeout):
            raise NotImplementedError

        def release(self):
            pass

    monkeypatch.setattr(run_files, "FileLock", Lockless)
    with RunFiles(tmp_path) as files, pytest.warns(UserWarning, match="has no locks"):
        files.lock()
    monkeypatch.setattr(Lockless, "acquire", lambda self, timeout: (_ for _ in ()).throw(OSError(13, "Denied")))
    with pytest.raises(OutputError, match=r"cannot write to .*: Denied"):
        RunFiles(tmp_path).lock()


def test_a_run_that_failed_before_it_began_leaves_what_was_there(tmp_path):
    """Folders that were made for it go, unless others have put something there."""
    made = RunFiles(tmp_path / "a" / "b")
    made.make(overwrite=False)
    fill(tmp_path / "a" / "b", ["run.toml", "topology.cif"])
    fill(tmp_path / "a", ["notes.txt"])
    made.discard()
    assert names_in(tmp_path) == {"a/notes.txt"} and not (tmp_path / "a" / "b").exists()
    there = RunFiles(tmp_path / "a")
    there.make(overwrite=True)
    fill(tmp_path / "a", ["run.toml"])
    there.discard()
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"notes.txt", "lock"}
    with RunFiles(tmp_path / "a") as again:
        again.lock()


def test_errors_of_the_system_while_writing_are_one_sentence(tmp_path):
    files = RunFiles(tmp_path)
    with (
        pytest.raises(OutputError, match=r"No space left; the run can be resumed from its last checkpoint"),
        files.writing(),
    ):
        raise OSError(28, "No space left")
    own = OutputError("said already")
    with pytest.raises(OutputError) as caught, files.writing():
        raise own
    assert caught.value is own


# ---------------------------------------------------------------------------- checkpoints, and what they vouch for


def write_checkpoint(files, step, **extra):
    about = {"step": step, "extra": {"files": files.vouch(), **extra}}
    checkpoints.write(files.checkpoint, checkpoints.SIMULATION, about, {"box": np.eye(3)})


@pytest.fixture
def run(tmp_path):
    """A folder with a topology, growing files, and two checkpoints: at 10 steps, and at 20."""
    files = Growing(tmp_path)
    write_sealed_text(tmp_path / "topology.cif", "data_x")
    fill(tmp_path, ["log.csv", "torsions.npz.rows"])
    write_checkpoint(files, 10)
    files.keep_previous()
    with open(tmp_path / "log.csv", "a") as log:
        log.write("more\n")
    write_checkpoint(files, 20)
    return files


def test_extents_are_those_of_the_growing_files_that_exist(run):
    assert run.vouch() == {name: measure_extent(run.path / name) for name in ("log.csv", "torsions.npz.rows")}
    (run.path / "torsions.npz.rows").unlink()
    assert list(run.vouch()) == ["log.csv"]


def test_checked_files_are_measured_on_from_the_checkpoint(run, monkeypatch):
    asked = {}
    expected = run.vouch()
    monkeypatch.setattr(run_files, "measure_extent", lambda path, before: asked.update({path.name: before}))
    run.vouch()
    assert set(asked.values()) == {None}
    run.check_files()
    run.vouch()
    assert asked == expected


@pytest.mark.parametrize("name", ["log.csv", "torsions.npz.rows", "topology.cif"])
def test_files_that_were_changed_are_named_with_what_can_be_done(run, name):
    run.check_files()
    path = run.path / name
    path.write_text(path.read_text() + ("grown" if name != "topology.cif" else ""))
    run.check_files()
    path.write_text("Text" + path.read_text()[4:])
    with pytest.raises(CheckpointError, match=rf"{name} was changed .*; put a copy of the file there"):
        run.check_files()


def test_what_the_previous_checkpoint_vouches_for_can_be_continued(run):
    """The line of the log that was written after it is lost."""
    log = run.path / "log.csv"
    log.write_text(log.read_text().replace("more", "lost"))
    with pytest.raises(
        CheckpointError, match=r"copy checkpoint-previous.npz to checkpoint.npz to continue from step 10"
    ):
        run.check_files()
    run.checkpoint.write_bytes(b"nonsense")
    for ask in (run.check_files, run.read_checkpoint):
        with pytest.raises(CheckpointError, match=r"checkpoint.npz is damaged.*continue from step 10, which is whole"):
            ask()
    write_sealed_text(run.path / "topology.cif", "data_y")
    (run.path / "topology.cif").write_text("data_z")
    with pytest.raises(CheckpointError, match="put a copy of the file there"):
        run.read_checkpoint()


def test_the_description_and_arrays_of_the_checkpoint_are_read(run):
    about, arrays = run.read_checkpoint(("box",))
    assert about["step"] == 20 and list(arrays) == ["box"] and np.array_equal(arrays["box"], np.eye(3))
    run.check_extents(about)
    (run.path / "torsions.npz.rows").unlink()
    extents = run.check_extents(about, ["log.csv", "absent.csv"])  # of the files that are asked for alone
    assert set(extents) == {"log.csv", "torsions.npz.rows"} and isinstance(extents["log.csv"], Extent)
    with pytest.raises(CheckpointError, match=r"torsions\.npz\.rows is missing"):
        run.check_extents(about)
    assert set(run.check_extents({"files": {}})) == set()  # as replica exchange has them
    with pytest.raises(CheckpointError, match="was not written by a run in this folder"):
        run.check_extents({"step": 3, "extra": {}})


def test_iterations_are_named_for_replica_exchange(tmp_path):
    files = RunFiles(tmp_path)
    fill(tmp_path, ["exchanges.csv"])
    write_sealed_text(tmp_path / "topology.cif", "data_x")
    checkpoints.write(files.checkpoint, checkpoints.EXCHANGE, {"iterations": 7, "files": {}}, {})
    files.keep_previous()
    files.checkpoint.unlink()
    with pytest.raises(CheckpointError, match="to continue from iteration 7"):
        files.check_not_lost()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("exchange.toml", "replica exchange"), ("exchanges.csv", "replica exchange"), ("run.toml", "simulation")],
)
def test_the_kind_of_a_run_is_seen_from_its_files(tmp_path, name, kind):
    fill(tmp_path, [name])
    assert RunFiles(tmp_path).kind == kind


@pytest.mark.parametrize(
    "name",
    ["log.csv", "trajectory.dcd", "trajectory.xtc", "torsions.npz", "torsions.npz.rows", "replica-03/energies.npy",
     "checkpoint-previous.npz"],
)  # fmt: skip
def test_frames_without_their_checkpoint_are_not_written_over(tmp_path, name):
    fill(tmp_path, ["topology.cif", "run.toml"])
    files = RunFiles(tmp_path)
    files.check_not_lost()  # killed while it was prepared
    fill(tmp_path, [name])
    with pytest.raises(CheckpointError, match=r"checkpoint.npz is missing; put a copy"):
        files.check_not_lost()
    fill(tmp_path, ["checkpoint.npz"])
    files.check_not_lost()


@pytest.mark.parametrize("links", [True, False])
def test_the_checkpoint_before_is_kept_with_or_without_links(run, links, monkeypatch):
    def no_links(source, target):
        raise OSError(95, "not supported")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    last = run.checkpoint.read_bytes()
    assert run.previous.read_bytes() != last
    (run.path / ".checkpoint-previous.npz.new").write_text("of a killed run")
    run.keep_previous()
    assert run.previous.read_bytes() == last == run.checkpoint.read_bytes()
    assert not (run.path / ".checkpoint-previous.npz.new").exists()
    run.checkpoint.unlink()
    run.keep_previous()  # nothing to keep: the one before stays
    assert run.previous.read_bytes() == last


# ---------------------------------------------------------------------------- the atoms


def test_atoms_and_virtual_sites_are_read_again_in_the_box_of_the_checkpoint(tmp_path):
    from openmm import app, unit

    modeller = app.Modeller(app.Topology(), [])
    field = app.ForceField("amber14/tip4pew.xml")
    modeller.addSolvent(field, model="tip4pew", boxSize=openmm.Vec3(0.7, 0.7, 0.7) * unit.nanometer)
    system = field.createSystem(modeller.topology)
    structure = ptd.Structure.from_openmm(modeller.topology, system, modeller.positions)
    files = RunFiles(tmp_path)
    files.write_structure(structure)
    assert (tmp_path / "topology.pdb").exists()
    read = files.read_structure()
    assert read.n_atoms == structure.n_atoms and read.n_atoms % 4 == 0
    assert np.allclose(read.positions, structure.positions, rtol=0, atol=1e-13)

    def sides(one):
        return [v[i]._value for i, v in enumerate(one.topology.getPeriodicBoxVectors())]

    assert sides(read) == pytest.approx([0.7] * 3)
    checkpoints.write(files.checkpoint, checkpoints.SIMULATION, {}, {"box": 0.8 * np.eye(3)})
    assert sides(files.read_structure()) == [0.8] * 3
    (tmp_path / "topology.cif").write_text((tmp_path / "topology.cif").read_text().replace("HOH", "WAT", 1))
    with pytest.raises(CheckpointError, match="its checksum does not fit"):
        files.read_structure()


def test_a_structure_without_a_box_gets_none_from_a_checkpoint(tmp_path):
    files = RunFiles(tmp_path)
    files.write_structure(ptd.build_peptide("A"))
    checkpoints.write(files.checkpoint, checkpoints.SIMULATION, {}, {"box": 0.8 * np.eye(3)})
    assert files.read_structure().topology.getPeriodicBoxVectors() is None


def test_the_lock_is_one_of_filelock(tmp_path):
    """Whoever uses filelock on the same file keeps runs away."""
    with filelock.FileLock(tmp_path / "lock"), pytest.raises(OutputError, match="writes to"):
        RunFiles(tmp_path).lock()
