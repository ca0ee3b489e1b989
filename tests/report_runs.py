"""Runs for the tests of the report: finished, interrupted, and killed."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np

from peptidyn.cli import main
from peptidyn.core.sealed_files import read_sealed_json
from peptidyn.engine import checkpoints
from peptidyn.engine.torsion_reporter import QUANTITIES
from peptidyn.engine.trajectory_frames import keep_frames
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import resolve_settings

QUICK = ("--solvent", "vacuum", "--platform", "Reference", "--seed", "5", "--equilibrate", "40fs", "--report", "4")


def make_run(structure: Path, folder: Path, *options: str) -> Path:
    """Run 60 steps of a structure, 15 frames."""
    assert main(["run", str(structure), *QUICK, "--steps", "60", "-q", "-o", str(folder), *options]) == 0
    return folder


def make_killed(finished: Path, folder: Path, frames: int) -> Path:
    """Make a folder as a killed run leaves it: rows instead of the npz file, no summary, one frame cut short."""
    shutil.copytree(finished, folder)
    with np.load(folder / "torsions.npz") as file:
        rows = np.concatenate([np.stack([file[n] for n in QUANTITIES], axis=1), file["torsions"]], axis=1)
    for name in ("torsions.npz", "summary.json"):
        (folder / name).unlink()
    keep_frames(folder / "trajectory.dcd", frames)
    (folder / "log.csv").write_text("".join((folder / "log.csv").read_text().splitlines(True)[: frames + 1]))
    (folder / "torsions.npz.rows").write_bytes(rows[:frames].tobytes())
    belong_together(folder)
    with open(folder / "torsions.npz.rows", "ab") as file:
        file.write(b"\0" * 20)
    return folder


def belong_together(folder: Path) -> None:
    """Let checkpoint and summary vouch for the files of a run as they are now."""
    run = RunFolder(folder)
    about, arrays = checkpoints.read(run.checkpoint)
    settings = run.settings
    if (folder / "summary.json").exists():
        run.write_summary({**read_sealed_json(folder / "summary.json"), "settings": asdict(settings)})
    about["extra"].update(run=run._identity(settings), files={**about["extra"]["files"], **run.vouch()})
    checkpoints.write(run.checkpoint, checkpoints.SIMULATION, about, arrays)


def make_interrupted(finished: Path, folder: Path) -> Path:
    """Make a folder as a run leaves it that was stopped by Ctrl-C."""
    shutil.copytree(finished, folder)
    run = RunFolder(folder)
    run.write_summary({**run.summary, "complete": False})
    run.write_settings(resolve_settings({"steps": 100}, folder / "run.toml"))
    return folder
