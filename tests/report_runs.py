"""Runs for the tests of the report: finished, interrupted, and killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from peptidyn.cli import main
from peptidyn.engine.torsion_reporter import QUANTITIES
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
    (folder / "torsions.npz.rows").write_bytes(rows[:frames].tobytes() + b"\0" * 20)
    for name in ("torsions.npz", "summary.json"):
        (folder / name).unlink()
    return folder


def make_interrupted(finished: Path, folder: Path) -> Path:
    """Make a folder as a run leaves it that was stopped by Ctrl-C."""
    shutil.copytree(finished, folder)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "complete": False}))
    settings = resolve_settings({"steps": 100}, folder / "run.toml")
    (folder / "run.toml").write_text(settings.to_toml())
    return folder
