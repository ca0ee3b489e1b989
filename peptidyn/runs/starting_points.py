"""Runs that start where another one is: at the last frame of a run, or at any frame of a trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.engine import checkpoints
from peptidyn.engine.inputs import load_any_structure
from peptidyn.io.completion import complete
from peptidyn.io.notes import Note
from peptidyn.io.structure import Structure
from peptidyn.io.topology import reduced_box
from peptidyn.io.trajectories import TrajectoryFile
from peptidyn.model.hydrogen_mass import with_hydrogen_mass
from peptidyn.model.state import State
from peptidyn.runs.model import make_model
from peptidyn.runs.presets import PRESETS
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import ExchangeSettings, ModelSettings, RunSettings, S, read_toml, resolve_settings


def settings_from_start(kind: S, given: Mapping[str, Any], config: Any) -> S:
    """Return the settings of a run that starts at another run or at a frame of a trajectory, ``given["start"]``.

    From a run come its settings, beside the seed and a time step that it had by default; what is given here wins. The
    reference geometry is relaxed where the new run holds something fixed that moved before, unless `relax` is given.

    Parameters
    ----------
    kind : RunSettings or ExchangeSettings
        With default values.
    given : mapping
    config : path or None
    """
    start = Path(given["start"])
    if not start.exists():
        raise ArgumentError(f"there is no run or trajectory {start} to start from")
    if not start.is_dir():
        settings = resolve_settings(given, config, kind)
        if settings.file is None:
            raise ArgumentError(f"{start} holds positions only; give the structure file whose atoms they are, too")
        kept = settings.soft_words == "all"
    else:
        if given.get("file") is not None:
            raise ArgumentError(f"the atoms are those of the run in {start}; leave the structure file out")
        before = _run_at(start).settings
        settings = resolve_settings(given, config, _base(kind, before))
        kept = _is_as_soft(before, settings)
    told = "relax" in given or (config is not None and "relax" in read_toml(config))
    return settings if told else replace(settings, relax=not kept)


def _run_at(start: Path) -> RunFolder:
    """Return the folder of a single run that has begun; ArgumentError otherwise."""
    run = RunFolder(start)
    if (start / ExchangeSettings.stored_as).exists():
        raise ArgumentError(
            f"{start} holds a replica exchange run; start from the trajectory of one of its replicas, with "
            f"{start / 'topology.cif'} as structure file"
        )
    if not (start / RunSettings.stored_as).exists() or not run.has_begun:
        raise ArgumentError(f"{start} holds no run that has come to its first step; give the folder of one")
    return run


def _base(kind: S, before: RunSettings) -> S:
    """Return the settings of an earlier run as far as they hold for a new one that starts from its atoms."""
    names = [field.name for field in fields(type(kind) if isinstance(kind, RunSettings) else ModelSettings)]
    base = replace(kind, **{name: getattr(before, name) for name in names})
    by_default = replace(before, timestep=None).timestep_ps == before.timestep_ps
    # atoms and box are those of the run: nothing is to be selected or solvated again
    return replace(
        base, seed=None, model=0, select=None, padding=None, start=None, frame=None,
        timestep=None if by_default else before.timestep,
    )  # fmt: skip


def _is_as_soft(before: ModelSettings, now: ModelSettings) -> bool:
    """Whether everything that moved before is soft now as well, as far as presets and equal words tell."""
    if now.soft_words == before.soft_words or now.soft_words.startswith("all"):
        return True
    order = list(PRESETS)
    return now.soft is None and before.soft is None and order.index(now.preset) >= order.index(before.preset)


def starting_structure(settings: ModelSettings) -> Structure:
    """Return the atoms where a run starts, with a note that says so.

    The last frame of a run has all its digits, from the checkpoint; frames of trajectories have those of their format.
    """
    assert settings.start is not None
    start = Path(settings.start)
    if start.is_dir():
        run = _run_at(start)
        structure, path = run.structure, run.trajectory
        if settings.frame is None:
            x, time = _last_positions(run)
            text = f"starting where the run in {start} is, at {time:g} ps"
            return structure.with_positions(x).with_notes(Note("start", text))
        if path is None:
            raise ArgumentError(f"the run in {start} has no trajectory, and so no frame {settings.frame}")
    else:
        assert settings.file is not None
        files = settings.coordinates, settings.parameters, settings.include
        options: dict[str, Any] = {} if settings.brings_parameters else {"model": settings.model}
        structure, path = load_any_structure(settings.file, *files, **options), start
    number = -1 if settings.frame is None else settings.frame
    x, box = TrajectoryFile(structure.atoms, path, None, None, 100, 1).frame(number)
    if box is not None:
        structure.topology.setPeriodicBoxVectors(reduced_box(box))
    structure = structure.with_positions(x)
    if structure.missing:
        structure = complete(structure, pH=settings.pH)
    return structure.with_notes(Note("start", f"starting at frame {number} of {path}"))


def _last_positions(run: RunFolder) -> tuple[np.ndarray, float]:
    """Return where the checkpoint of a run is: positions (n_atoms, 3), nm, and the time, ps."""
    about, arrays = checkpoints.read(run.checkpoint, names=("q", "base_position", "base_rotation", "geometry"))
    # bases are at centres of mass: the tree must have the masses of the run
    tree = with_hydrogen_mass(make_model(run.settings, run.structure).tree, run.settings.hydrogen_mass)
    tree = tree.with_geometry(arrays["geometry"])
    state = State.make(tree, arrays["q"], arrays["base_position"], arrays["base_rotation"])
    return tree.positions(state), float(about["time"])
