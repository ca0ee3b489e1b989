"""What a run left in its folder, read for a report: also when it was interrupted, or killed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.engine.torsion_integrators import repartition_hydrogen_mass
from peptidyn.engine.torsion_reporter import read_torsions
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure
from peptidyn.model.build import build_tree
from peptidyn.model.tree import TreeModel
from peptidyn.runs.settings import RunSettings, read_toml, resolve_settings


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Attributes
    ----------
    path : Path
    settings : RunSettings
        As resolved when the run began.
    summary : dict
        summary.json; empty if the run was killed before it wrote one.
    ending : {"finished", "interrupted", "killed"}
        Interrupted runs closed their files; killed ones did not, or are still running.
    structure : Structure
        The atoms that were simulated, as prepared.
    tree : TreeModel
        With the reference geometry that the run used.
    table : dict
        Energies and coordinates per frame; see `peptidyn.engine.torsion_reporter.read_torsions`.
    """

    path: Path
    settings: RunSettings
    summary: dict[str, Any]
    ending: str
    structure: Structure
    tree: TreeModel
    table: dict[str, np.ndarray]

    @property
    def n_frames(self) -> int:
        """Number of reported frames."""
        return len(self.table["step"])

    @property
    def trajectory(self) -> Path | None:
        """The file with atom positions, if there is one."""
        found = sorted(path for path in self.path.glob("trajectory.*") if path.stat().st_size)
        return found[0] if found else None

    @cached_property
    def q(self) -> np.ndarray:
        """Soft coordinates (n_frames, n_coordinates), rad, in the order of ``tree.coordinates``."""
        q = np.empty((self.n_frames, self.tree.n_coordinates))
        q[:, self.tree.torsion_index] = self.table["torsions"]
        q[:, self.tree.bend_index] = self.table["bends"]
        return q


def read_run(folder: str | os.PathLike[str]) -> RunFolder:
    """Read the folder that `peptidyn run` wrote; ArgumentError if it holds no run, or no frame of one."""
    path = Path(folder)
    if not path.is_dir():
        raise ArgumentError(f"there is no folder {path}; give the folder that `peptidyn run` wrote")
    if (path / "exchange.toml").exists():
        raise ArgumentError(
            f"{path} holds a replica exchange run; reports are made of single runs, and `peptidyn exchange` has drawn "
            "its pictures in the folder"
        )
    for name in ("run.toml", "topology.pdb"):
        if not (path / name).exists():
            raise ArgumentError(f"{path} holds no run: there is no {name} in it")
    settings = resolve_settings(read_toml(path / "run.toml"))
    structure = load_structure(path / "topology.pdb")
    tree = _tree(path, settings, structure)
    rows = (path / "torsions.npz.rows").exists()
    if not rows and not (path / "torsions.npz").exists():
        raise ArgumentError(f"the run in {path} has reported no frame yet; continue it with peptidyn run --resume")
    table = read_torsions(path / "torsions.npz", tree)
    if len(table["step"]) < 2:
        raise ArgumentError(
            f"the run in {path} has reported {len(table['step'])} frames, too few for a report; continue it with "
            "peptidyn run --resume, or report more often with --report"
        )
    summary = {}
    if not rows and (path / "summary.json").exists():
        summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    ending = "killed" if not summary else "finished" if summary["complete"] else "interrupted"
    return RunFolder(path, settings, summary, ending, structure, tree, table)


def _tree(path: Path, settings: RunSettings, structure: Structure) -> TreeModel:
    tree = build_tree(structure, soft=settings.soft_words, rigid=list(settings.rigid) or None)
    if (path / "checkpoint.npz").exists():
        with np.load(path / "checkpoint.npz", allow_pickle=False) as file:
            if "geometry" in file.files and file["geometry"].size:
                tree = tree.with_geometry(file["geometry"])
    if settings.hydrogen_mass is None:
        return tree
    return tree.with_masses(repartition_hydrogen_mass(tree, settings.hydrogen_mass))
