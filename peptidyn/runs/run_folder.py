"""`RunFolder`: the folder of a run, written by the run and read for reports and pictures.

=======================  ===================================================================
topology.cif             the atoms that are simulated, as prepared, with all digits
topology.pdb             the same for other programs, as far as the format can hold it
run.toml                 all settings as resolved; given as config, they repeat the run
trajectory.dcd           one frame per report (or trajectory.xtc)
log.csv                  energies and temperature per report
torsions.npz             the same and every soft coordinate (radians)
checkpoint.npz           where to continue
checkpoint-previous.npz  the checkpoint before it, in case of damage
summary.json             sizes, averages, speed, notes
lock                     locked by the process that writes to the folder
=======================  ===================================================================

Replica exchange has exchange.toml in place of run.toml, and the files of `peptidyn.sampling.storage`.

A checkpoint follows every report, and says how many frames the other files hold. A run that is resumed cuts them back
to that number first, so that its files equal those of a run that was never interrupted.
"""

from __future__ import annotations

import json
import os
import tomllib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError, CheckpointError, PeptidynError
from peptidyn.core.sealed_files import (
    Extent,
    check_extent,
    extent_of_bytes,
    read_npz,
    read_sealed_json,
    read_sealed_text,
    write_sealed_json,
    write_sealed_text,
)
from peptidyn.engine.run_files import SUMMARY, TOPOLOGY, RunFiles
from peptidyn.engine.simulation import TorsionSimulation
from peptidyn.engine.torsion_reporter import EXTENT, QUANTITIES, read_torsions, rows_of_table
from peptidyn.io.structure import Structure
from peptidyn.model.build import build_tree
from peptidyn.model.hydrogen_mass import with_hydrogen_mass
from peptidyn.model.tree import TreeModel
from peptidyn.runs.preparation import load_prepared
from peptidyn.runs.settings import ExchangeSettings, ModelSettings, RunSettings, S, resolve_settings

LOG, TORSIONS, ROWS = "log.csv", "torsions.npz", "torsions.npz.rows"

TRAJECTORIES = ("trajectory.dcd", "trajectory.xtc")


class RunFolder(RunFiles):
    """The folder of a run or of replica exchange.

    What was written is read when it is first asked for.

    Parameters
    ----------
    path : str or path
    """

    _written: ModelSettings | None = None

    # ------------------------------------------------------------------ settings and the way a run ended

    def write_settings(self, settings: ModelSettings) -> None:
        """Write all settings as resolved."""
        write_sealed_text(self.path / settings.stored_as, settings.to_toml())
        self._written = settings

    def read_settings(self, kind: S) -> S:
        """Return the settings of the run, which are of the type of `kind`."""
        file = self.path / kind.stored_as
        if not file.exists():
            raise ArgumentError(f"{self.path} holds no run to resume: there is no {file.name} in it")
        try:
            return resolve_settings(tomllib.loads(read_sealed_text(file)), base=kind)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; put the file back as it was (settings are changed by giving them when the run is resumed), "
                "or start a new run"
            ) from error

    def settings_to_resume(self, kind: S, given: Mapping[str, Any]) -> S:
        """Return the settings of the run with those that are `given`; only its length, platform and threads may change.

        Parameters
        ----------
        kind : RunSettings or ExchangeSettings
            With default values.
        given : mapping
        """
        stored = self.read_settings(kind)
        settings = resolve_settings(given, base=stored)
        before, after = asdict(stored), asdict(settings)
        for name, value in after.items():
            if value != before[name] and name not in kind.changeable:
                raise ArgumentError(
                    f"{name} was {before[name]} when the run in {self.path} began and is {value} now; a resumed run "
                    "may change its length, platform and threads only"
                )
        return settings

    @property
    def has_begun(self) -> bool:
        """Whether a run can go on from its checkpoint; one that failed while equilibrating starts again."""
        self.check_not_lost()
        if not self.checkpoint.exists():
            return False
        about, _ = self.read_checkpoint()
        return not about.get("extra", {}).get("equilibrating", False)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write how the run ended."""
        write_sealed_json(self.path / SUMMARY, summary)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What summary.json holds; empty if the run was killed before it wrote one, or is going on."""
        file = self.path / SUMMARY
        if not file.exists() or self._torsion_rows.exists():
            return {}
        try:
            summary = read_sealed_json(file)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; it holds nothing that other files do not: remove it, and continue the run to write it again"
            ) from error
        self._check_summary(summary)
        return summary

    def _check_summary(self, summary: dict[str, Any]) -> None:
        """Raise CheckpointError if a summary belongs to a run with other settings than those in the folder."""
        for kind in (RunSettings(), ExchangeSettings()):
            if not (self.path / kind.stored_as).exists():
                continue
            own = json.loads(json.dumps(asdict(self.read_settings(kind))))
            theirs = {**own, **summary.get("settings", {})}
            if any(theirs[name] != value for name, value in own.items() if name not in kind.changeable):
                raise CheckpointError(
                    f"{self.path / SUMMARY} belongs to another run than {kind.stored_as} beside it; put the files of "
                    "one run together, or remove it, and continue the run to write it again"
                )

    @property
    def ending(self) -> str:
        """``finished``; ``interrupted``, with all files closed; ``killed``, or still running."""
        return "killed" if not self.summary else "finished" if self.summary["complete"] else "interrupted"

    # ------------------------------------------------------------------ checkpoints

    def growing(self) -> Iterable[str]:
        """Return the names of the files that grow while the run goes on."""
        return (*TRAJECTORIES, LOG, ROWS)

    def save_checkpoint(self, simulation: TorsionSimulation, extra: dict[str, Any]) -> None:
        """Write a checkpoint that vouches for the files as they are now, and keep the one before it.

        Parameters
        ----------
        simulation : TorsionSimulation
        extra : dict
            Anything that JSON holds, returned when the checkpoint is loaded.
        """
        extents = self.vouch()
        self.keep_previous()
        simulation.save_checkpoint(self.checkpoint, {**extra, "files": extents, **self._marks})
        self._extents = extents

    @cached_property
    def _marks(self) -> dict[str, str]:
        """What checkpoints hold, so that files of other runs are told apart."""
        assert self._written is not None  # settings are written before checkpoints
        return {"run": self._identity(self._written), "inputs": _checksum_of_inputs(self._written)}

    def _identity(self, settings: ModelSettings) -> str:
        """Return what tells runs apart: atoms, and settings beside those that may change when one is resumed."""
        default = type(settings)()
        own = {name: value for name, value in asdict(settings).items() if value != getattr(default, name)}
        fixed = sorted((name, value) for name, value in own.items() if name not in settings.changeable)
        return f"{zlib.crc32((repr(fixed) + read_sealed_text(self.path / TOPOLOGY)).encode()):08x}"

    def check_identity(self, settings: ModelSettings) -> None:
        """Raise CheckpointError if the checkpoint belongs to a run of other atoms or with other settings."""
        about, _ = self.read_checkpoint()
        if about.get("extra", {}).get("run") != self._identity(settings):
            raise CheckpointError(
                f"{self.checkpoint} belongs to another run than {settings.stored_as} and {TOPOLOGY} beside it; put the "
                "files of one run together"
            )

    def check_inputs(self, settings: ModelSettings) -> None:
        """Raise CheckpointError if files with parameters, which a resumed run reads again, are not as they were."""
        about, _ = self.read_checkpoint()
        if about.get("extra", {}).get("inputs") != _checksum_of_inputs(settings):
            raise CheckpointError(
                f"a file with the parameters of the run in {self.path} was changed after it began "
                f"({', '.join(_inputs(settings))}); put it back, or start a new run"
            )

    def _check_extent(self, name: str, extent: Extent) -> None:
        if name == ROWS and not self._torsion_rows.exists():  # the run has ended, and rows became a table
            file = self.path / TORSIONS
            table = read_npz(file)
            if EXTENT in table and tuple(table[EXTENT].tolist()) == extent:
                return
            rows = rows_of_table(file, table, self.tree)  # which may hold more than the checkpoint vouches for
            if extent_of_bytes(rows.tobytes()[: extent.size]) != extent:
                raise CheckpointError(f"{file} was changed after the run wrote it: it holds other frames")
            return
        check_extent(self.path / name, extent)

    # ------------------------------------------------------------------ a single run

    @cached_property
    def settings(self) -> RunSettings:
        """As resolved when the run began."""
        return self.read_settings(RunSettings())

    @cached_property
    def structure(self) -> Structure:
        """The atoms that were simulated, as prepared."""
        if not self.settings.brings_parameters:
            return self.read_structure()
        return self.with_box(load_prepared(self.settings).structure)

    @cached_property
    def tree(self) -> TreeModel:
        """With the reference geometry, the masses and the joint inertias that the run used."""
        tree = build_tree(self.structure, soft=self.settings.soft_words, rigid=list(self.settings.rigid) or None)
        tree = with_hydrogen_mass(tree, self.settings.hydrogen_mass)
        _, arrays = self.read_checkpoint(("geometry", "joint_inertia"))
        try:
            return tree.with_geometry(arrays["geometry"]).with_joint_inertia(arrays["joint_inertia"])
        except PeptidynError as error:
            raise CheckpointError(f"{self.checkpoint} does not fit {self.path / TOPOLOGY}: {error}") from error

    def read_geometry(self) -> np.ndarray:
        """Return the positions (n_atoms, 3), nm, that the run took as its reference geometry, to the last bit."""
        return self.read_checkpoint(("geometry",))[1]["geometry"]

    @property
    def _torsion_rows(self) -> Path:
        """What energies and coordinates are appended to while the run goes on."""
        return self.path / ROWS

    @property
    def has_frames(self) -> bool:
        """Whether energies and coordinates were reported."""
        return self._torsion_rows.exists() or (self.path / TORSIONS).exists()

    @cached_property
    def table(self) -> dict[str, np.ndarray]:
        """Energies and coordinates of the frames that the checkpoint vouches for.

        See `peptidyn.engine.torsion_reporter.read_torsions`.
        """
        if not self.has_frames:
            raise ArgumentError(f"{self.path} holds no {TORSIONS}: no frame was reported")
        about, _ = self.read_checkpoint()
        self.check_extents(about, [ROWS])
        table = read_torsions(self.path / TORSIONS, self.tree if self._torsion_rows.exists() else None)
        frames = about["extra"]["frames"]
        if len(table["step"]) == frames:
            return table
        per_frame = {*QUANTITIES, *self.tree.groups}
        return {name: array[:frames] if name in per_frame else array for name, array in table.items()}

    @property
    def n_frames(self) -> int:
        """Number of reported frames."""
        return len(self.table["step"])

    @property
    def trajectory(self) -> Path | None:
        """The file with atom positions, if there is one."""
        file = self.path / f"trajectory.{self.settings.trajectory}"
        return file if file.exists() and file.stat().st_size else None

    @cached_property
    def q(self) -> np.ndarray:
        """Soft coordinates (n_frames, n_coordinates), rad and nm, in the order of ``tree.coordinates``."""
        q = np.empty((self.n_frames, self.tree.n_coordinates))
        for name, places in self.tree.groups.items():
            q[:, places] = self.table[name]
        return q


def _inputs(settings: ModelSettings) -> list[str]:
    """Return the files with parameters outside of the folder: those of a prmtop, psf or top file, and force fields."""
    own = [settings.file or "", *settings.parameters] if settings.brings_parameters else []
    return own + [name for name in map(str.strip, settings.forcefield.split(",")) if os.path.isfile(name)]


def _checksum_of_inputs(settings: ModelSettings) -> str:
    total = 0
    for file in _inputs(settings):
        try:
            total = zlib.crc32(Path(file).read_bytes(), total)
        except OSError as error:
            raise CheckpointError(
                f"cannot read {file}, which the run has its parameters from: {error.strerror}"
            ) from error
    return f"{total:08x}"


def read_run(folder: str | os.PathLike[str]) -> RunFolder:
    """Return the folder of a single run for a report; ArgumentError if it holds none, or fewer than two frames."""
    run = RunFolder(folder)
    if not run.path.is_dir():
        raise ArgumentError(f"there is no folder {run.path}; give the folder of a run")
    if (run.path / ExchangeSettings.stored_as).exists():
        raise ArgumentError(f"{run.path} holds a replica exchange run and not a single run; read it with ExchangeRun")
    for name in (RunSettings.stored_as, TOPOLOGY):
        if not (run.path / name).exists():
            raise ArgumentError(f"{run.path} holds no run: there is no {name} in it")
    run.check_not_lost()
    if not run.has_frames:
        raise ArgumentError(f"the run in {run.path} has reported no frame yet; continue it first")
    run.check_files()
    run.check_identity(run.settings)
    if run.n_frames < 2:
        raise ArgumentError(
            f"the run in {run.path} has reported {run.n_frames} frames, too few for a report; continue it, or report "
            "more often"
        )
    return run
