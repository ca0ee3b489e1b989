"""Folders of runs that are damaged, or in use by another process: one sentence, and nothing changes unseen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from butane_exchange import contents, make
from real_structures import DATA, OPENMM_DATA

import fuzz
import peptidyn as ptd
from peptidyn.cli import main
from peptidyn.core.errors import CheckpointError, OutputError
from peptidyn.engine.checkpoints import read
from peptidyn.runs.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("blank_pictures")

QUICK = ("--solvent", "vacuum", "--platform", "Reference", "--seed", "5", "--equilibrate", "0ps", "--report", "5", "-q")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of 20 steps, and the same one of 40."""
    folder = tmp_path_factory.mktemp("damaged")
    for steps in (20, 40):
        assert main(["run", str(DATA / "ala1.pdb"), *QUICK, "--steps", str(steps), "-o", str(folder / f"{steps}")]) == 0
    return folder


def continued(folder: Path) -> None:
    assert main(["run", "--resume", "--steps", "40", "-q", "-o", str(folder)]) == 0


def test_a_damaged_checkpoint_names_the_previous_one_which_continues_exactly(finished, tmp_path, capsys):
    folder = tmp_path / "x"
    shutil.copytree(finished / "20", folder)
    checkpoint = folder / "checkpoint.npz"
    data = bytearray(checkpoint.read_bytes())
    data[data.index(b"momentum.npy") + 150] ^= 4  # one bit of a number
    checkpoint.write_bytes(bytes(data))
    for command in (["run", "--resume", "-o"], ["report"]):
        assert main([*command, str(folder)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "checkpoint.npz is damaged" in error
        assert "copy checkpoint-previous.npz to checkpoint.npz to continue from step 20" in error
    shutil.copy(folder / "checkpoint-previous.npz", checkpoint)
    continued(folder)
    assert fuzz.run_contents(folder) == fuzz.run_contents(finished / "40")


def test_a_lost_checkpoint_does_not_start_the_run_again(finished, tmp_path, capsys):
    folder = tmp_path / "x"
    shutil.copytree(finished / "20", folder)
    for name in ("checkpoint.npz", "checkpoint-previous.npz"):
        (folder / name).unlink()
    before = fuzz.run_contents(folder)
    assert main(["run", "--resume", "-o", str(folder)]) == 2
    assert "checkpoint.npz is missing" in capsys.readouterr().err
    assert fuzz.run_contents(folder) == before


def test_files_of_two_runs_are_told_apart(finished, tmp_path, capsys):
    other = tmp_path / "other"
    assert main(["run", str(DATA / "ala1.pdb"), *QUICK, "-T", "310", "--steps", "20", "-o", str(other)]) == 0
    for name in ("run.toml", "checkpoint.npz", "log.csv", "torsions.npz", "trajectory.dcd"):
        folder = tmp_path / name
        shutil.copytree(finished / "20", folder)
        shutil.copy(other / name, folder / name)
        assert main(["run", "--resume", "--steps", "40", "-q", "-o", str(folder)]) == 2, name
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and (name in error or "checkpoint.npz" in error), error
    folder = tmp_path / "summary.json"
    shutil.copytree(finished / "20", folder)
    assert RunFolder(folder).summary["settings"]["temperature"] == 300.0
    shutil.copy(other / "summary.json", folder / "summary.json")
    with pytest.raises(CheckpointError, match=r"summary.json belongs to another run than run.toml"):
        _ = RunFolder(folder).summary


def test_a_force_field_that_was_changed_is_noticed(tmp_path, capsys):
    field, folder = tmp_path / "field.xml", tmp_path / "x"
    shutil.copy(OPENMM_DATA / "amber14" / "protein.ff14SB.xml", field)
    options = [*QUICK, "--no-relax", "--forcefield", str(field), "--steps", "5"]
    assert main(["run", str(DATA / "ala1.pdb"), *options, "-o", str(folder)]) == 0
    assert main(["run", "--resume", "--steps", "6", "-q", "-o", str(folder)]) == 0
    field.write_text(field.read_text().replace('epsilon="0.', 'epsilon="1.', 1))
    assert main(["run", "--resume", "--steps", "10", "-q", "-o", str(folder)]) == 2
    error = capsys.readouterr().err
    assert "field.xml" in error and "was changed after it began" in error and error.count("\n") == 1


def test_the_folder_of_a_running_run_is_refused(finished, tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(finished / "20", folder)
    script = (
        "import sys; from peptidyn.engine.run_files import RunFiles\n"
        "files = RunFiles(sys.argv[1]); files.lock(); print('locked', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(folder)]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"locked\n"
        before = fuzz.run_contents(folder)
        for arguments in ({"resume": True, "steps": 40}, {"file": DATA / "ala1.pdb", "overwrite": True}):
            with pytest.raises(OutputError, match=r"another process.* writes to"):
                ptd.run(folder=folder, progress=False, say=lambda text: None, **arguments)
        assert fuzz.run_contents(folder) == before
    finally:
        process.kill()  # which leaves no lock behind
        process.communicate()
    continued(folder)
    assert fuzz.run_contents(folder) == fuzz.run_contents(finished / "40")


def test_replica_exchange_checks_its_files_and_continues_from_the_previous_checkpoint(tmp_path):
    with make(tmp_path / "whole") as exchange:
        exchange.run(4)
    folder = tmp_path / "parts"
    with make(folder) as exchange:
        exchange.run(3)
        with pytest.raises(OutputError, match="writes to"):
            make(folder, resume=True)
    energies = folder / "replica-01/energies.npy"
    whole = energies.read_bytes()
    energies.write_bytes(whole[:-9] + b"?" + whole[-8:])  # in the last frame
    with pytest.raises(CheckpointError, match=r"energies\.npy was changed.* to continue from iteration 2"):
        make(folder, resume=True)
    shutil.copy(folder / "checkpoint-previous.npz", folder / "checkpoint.npz")
    with make(folder, resume=True) as exchange:
        exchange.run(4)
    assert contents(folder) == contents(tmp_path / "whole")


def test_checkpoints_cost_the_same_however_long_the_run_is(tmp_path, monkeypatch):
    """Only what is new in the growing files is read for a checkpoint."""
    from peptidyn.engine import run_files

    befores = []
    measure = run_files.measure_extent

    def watched(path, before=None):
        befores.append(0 if before is None else Path(path).stat().st_size - before.size)
        return measure(path, before)

    monkeypatch.setattr(run_files, "measure_extent", watched)
    with make(tmp_path / "x") as exchange:
        exchange.run(6)
    per_iteration = np.array(befores[1:]).reshape(6, 11)[1:]  # the first has new files
    assert (per_iteration > 0).all() and np.ptp(per_iteration[:, 1:], axis=0).max() == 0


def test_numbers_that_are_not_finite_are_no_checkpoint(finished, tmp_path):
    from peptidyn.engine import checkpoints

    about, arrays = read(finished / "20/checkpoint.npz")
    arrays["momentum"] = np.full_like(arrays["momentum"], np.nan)
    checkpoints.write(tmp_path / "c.npz", checkpoints.SIMULATION, about, arrays)
    with pytest.raises(CheckpointError, match="momentum holds numbers that are not finite"):
        read(tmp_path / "c.npz")
    with pytest.raises(CheckpointError, match="is a checkpoint of a simulation, expected one of a replica exchange"):
        read(finished / "20/checkpoint.npz", checkpoints.EXCHANGE)


def test_a_folder_that_is_begun_and_fails_is_removed(tmp_path):
    folder = RunFolder(tmp_path / "a" / "b")
    folder.make(False)
    assert (tmp_path / "a/b/lock").exists()
    folder.discard()
    assert not (tmp_path / "a").exists()
