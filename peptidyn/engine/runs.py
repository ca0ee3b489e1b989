"""What `peptidyn run` does: prepare a structure, minimise, equilibrate, simulate, and leave a folder of files.

=================  =========================================================================
topology.pdb       the atoms that are simulated, as prepared
run.toml           all settings as resolved; ``peptidyn run --config run.toml`` repeats the run
trajectory.dcd     one frame per report
log.csv            energies and temperature per report
torsions.npz       the same and every soft coordinate (radians)
checkpoint.npz     where to continue
summary.json       sizes, averages, speed, notes
=================  =========================================================================

A checkpoint follows every report, and says how many frames the other files hold. A run that is resumed cuts them back
to that number first, so that its files equal those of a run that was never interrupted.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import openmm
from openmm import app

from peptidyn._version import __version__
from peptidyn.engine.dcd_frames import keep_dcd_frames
from peptidyn.engine.forces import make_system
from peptidyn.engine.run_settings import RunSettings, read_toml, resolve_settings
from peptidyn.engine.simulation import TorsionSimulation, find_platform
from peptidyn.engine.torsion_integrators import (
    TorsionGHMCIntegrator,
    TorsionIntegrator,
    TorsionLangevinIntegrator,
    TorsionVerletIntegrator,
)
from peptidyn.engine.torsion_reporter import TorsionReporter
from peptidyn.errors import ArgumentError, OutputError
from peptidyn.files import write_text
from peptidyn.io.notes import Note, counted
from peptidyn.io.peptides import build_peptide
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure
from peptidyn.model.build import build_tree
from peptidyn.model.residues import WATERS
from peptidyn.model.tree import TreeModel
from peptidyn.progress import Progress
from peptidyn.units import BOLTZMANN

TOPOLOGY, SETTINGS, TRAJECTORY, LOG = "topology.pdb", "run.toml", "trajectory.dcd", "log.csv"
TORSIONS, CHECKPOINT, SUMMARY = "torsions.npz", "checkpoint.npz", "summary.json"
FILES = (TOPOLOGY, SETTINGS, TRAJECTORY, LOG, TORSIONS, f"{TORSIONS}.rows", CHECKPOINT, SUMMARY)
"""Everything a run writes; what --overwrite removes."""

CHANGEABLE = frozenset({"time", "steps", "platform", "threads"})
"""Settings that may change when a run is resumed."""

RELAX_ITERATIONS = 1000
MINIMISE_ITERATIONS = 500
REDRAW = 50
"""Steps between fresh momenta during equilibration, which thermalise every ensemble alike."""

PAUSE = 50
"""Steps after which an interrupt is looked for at the latest."""


@dataclass(frozen=True)
class RunResult:
    """Where a run ended.

    Attributes
    ----------
    folder : Path
    summary : dict
        As in summary.json.
    interrupted : bool
        Whether it stopped before its end; it can be resumed.
    """

    folder: Path
    summary: dict[str, Any]
    interrupted: bool


def run(
    given: Mapping[str, Any],
    *,
    config: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    say: Callable[[str], None] = print,
) -> RunResult:
    """Run a simulation, or continue one.

    Parameters
    ----------
    given : mapping
        Settings by the names of `RunSettings`.
    config : str or path, optional
        TOML file with settings; `given` wins over it.
    folder : str or path, optional
        Where to write; named after the structure if not given.
    resume : bool
        Continue the run in `folder` from its last checkpoint, with its own settings; `given` may make it longer.
    overwrite : bool
        Replace an earlier run in `folder`.
    progress : bool
    say : callable
        Receives one line of text per stage.

    Returns
    -------
    RunResult
    """
    if resume:
        if overwrite:
            raise ArgumentError("--resume continues a run and --overwrite replaces it; give one of them")
        settings, target = _settings_to_resume(given, config, folder)
        go_on = (target / CHECKPOINT).exists()
    else:
        settings = resolve_settings(given, config)
        target = Path(folder) if folder is not None else Path(f"{run_name(settings)}-run")
        go_on = False
    if not go_on:
        structure = prepare_structure(settings)  # before anything is written: bad input leaves no folder behind
        _make_folder(target, overwrite or resume)
        structure.write(target / TOPOLOGY)
        for note in structure.notes:
            say(f"note: {note}")
    # read back, so that a resumed run has the same atoms, bonds and forces in the same order
    simulation = make_simulation(settings, load_structure(target / TOPOLOGY))
    tree = simulation.tree
    say(
        f"{run_name(settings)}: {tree.n_atoms} atoms, {tree.n_torsions} torsions, {tree.n_bends} bends, {tree.n_dof} "
        f"degrees of freedom; {settings.ensemble}, {settings.solvent}, {settings.forcefield}, "
        f"{simulation.context.getPlatform().getName()}"
    )
    if go_on:
        extra = simulation.load_checkpoint(target / CHECKPOINT)
        _remove_unfinished(target)
        write_text(target / SETTINGS, settings.to_toml())
        say(f"continuing from step {simulation.currentStep} of {settings.n_steps}")
    else:
        write_text(target / SETTINGS, settings.to_toml())
        _start(simulation, settings, say, progress)
        extra = {"frames": 0, "seconds": 0.0}
        simulation.save_checkpoint(target / CHECKPOINT, extra)
    return _produce(simulation, settings, target, extra, progress)


# ---------------------------------------------------------------------------- settings and folder


def _settings_to_resume(
    given: Mapping[str, Any], config: str | os.PathLike[str] | None, folder: str | os.PathLike[str] | None
) -> tuple[RunSettings, Path]:
    if folder is None or config is not None:
        raise ArgumentError("--resume needs -o with the folder of the run, and takes its settings from there")
    target = Path(folder)
    if not (target / SETTINGS).exists():
        raise ArgumentError(f"{target} holds no run to resume: there is no {SETTINGS} in it")
    stored = resolve_settings(read_toml(target / SETTINGS))
    settings = resolve_settings(given, base=stored)
    before, after = asdict(stored), asdict(settings)
    changed = [name for name in after if after[name] != before[name] and name not in CHANGEABLE]
    if changed:
        name = changed[0]
        raise ArgumentError(
            f"{name} was {before[name]} when the run in {target} began and is {after[name]} now; a resumed run may "
            "change its length, platform and threads only"
        )
    return settings, target


def _make_folder(folder: Path, replace: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"{folder} is a file; choose another output folder with -o")
    if folder.is_dir() and any(folder.iterdir()):
        if not replace:
            raise ArgumentError(
                f"the folder {folder} is not empty; choose another with -o, continue the run in it with --resume, or "
                "replace it with --overwrite"
            )
        for path in [folder / name for name in FILES] + list(folder.glob("*.png")):
            path.unlink(missing_ok=True)
        _remove_unfinished(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"cannot make the folder {folder}: {error.strerror}") from error


def _remove_unfinished(folder: Path) -> None:
    """Remove files that a killed run was writing; they never got their names."""
    for name in FILES:
        for path in folder.glob(f".{name}.*"):
            path.unlink(missing_ok=True)


def run_name(settings: RunSettings) -> str:
    if settings.file is None:
        return "ala10"
    name = Path(settings.file).name.removesuffix(".gz")
    return Path(name).stem


# ---------------------------------------------------------------------------- preparation


def prepare_structure(settings: RunSettings) -> Structure:
    """Return the structure to simulate: read or built, completed, without waters where the solvent is implicit."""
    if settings.file is None:
        return build_peptide("A" * 10)
    structure = load_structure(settings.file)
    if structure.missing:
        structure = load_structure(settings.file, add_hydrogens=True, pH=settings.pH)
    if settings.select is not None:
        structure = structure.subset(settings.select)
    if settings.solvent != "vacuum":
        names = structure.atoms.residue_name[structure.atoms.residue]
        solute = ~np.isin(names, sorted(WATERS))
        if not solute.any():
            raise ArgumentError(f"{settings.file} holds water only; implicit solvent leaves nothing to simulate")
        if not solute.all():
            waters = len(np.unique(structure.atoms.residue[~solute]))
            note = Note("water", f"{counted(waters, 'water')} left out: the solvent {settings.solvent} is implicit")
            structure = structure.subset(solute).with_notes(note)
    return structure


def make_simulation(settings: RunSettings, structure: Structure) -> TorsionSimulation:
    """Return the simulation of a prepared structure."""
    system = make_system(structure.topology, settings.solvent, settings.forcefield)
    structure = Structure.from_openmm(structure.topology, system, structure.positions, name=structure.name)
    tree = build_tree(structure, soft=settings.soft_words, rigid=list(settings.rigid) or None)
    platform, properties = _platform(settings)
    integrator = make_integrator(settings, tree)
    return TorsionSimulation(structure.topology, system, integrator, platform, properties)


def make_integrator(settings: RunSettings, tree: TreeModel) -> TorsionIntegrator:
    """Return the integrator that the settings ask for."""
    timestep = settings.timestep_ps
    common: dict[str, Any] = {
        "fixman": settings.uses_fixman,
        "seed": settings.seed,
        "hydrogen_mass": settings.hydrogen_mass,
    }
    if settings.ensemble == "nve":
        return TorsionVerletIntegrator(tree, timestep, temperature=settings.temperature, **common)
    kind = TorsionLangevinIntegrator if settings.ensemble == "langevin" else TorsionGHMCIntegrator
    return kind(tree, settings.temperature, settings.friction, timestep, **common)


def _platform(settings: RunSettings) -> tuple[Any, dict[str, str] | None]:
    if settings.platform is None and settings.threads is None:
        return None, None
    platform = find_platform(settings.platform or "CPU")
    if settings.threads is None:
        return platform, None
    if "Threads" not in platform.getPropertyNames():
        raise ArgumentError(f"the platform {platform.getName()} takes no number of threads; use --platform CPU")
    return platform, {"Threads": str(settings.threads)}


def _start(simulation: TorsionSimulation, settings: RunSettings, say: Callable[[str], None], progress: bool) -> None:
    """Relax, minimise and equilibrate; then time and steps count from zero."""
    if settings.relax:
        say("relaxing bonds, angles and torsions ...")
        say(f"relaxed the geometry: {simulation.relax_geometry(max_iterations=RELAX_ITERATIONS):.1f} kJ/mol")
    else:
        # recorded in checkpoints, to the last digit
        simulation.use_geometry(simulation.tree.positions(simulation.tree.reference))
        say("note: the reference geometry was not relaxed, and populations depend on it")
    say(f"minimised in torsions: {simulation.minimize_torsions(max_iterations=MINIMISE_ITERATIONS):.1f} kJ/mol")
    simulation.set_velocities_to_temperature(settings.temperature)
    left, step_ps = settings.equilibration_steps, settings.timestep_ps
    with Progress(step_ps * left, "equilibrating", "ps", progress) as bar:
        while left > 0:
            count = min(left, REDRAW)
            simulation.step(count)
            bar.advance(step_ps * count)
            left -= count
            if left:
                simulation.set_velocities_to_temperature(settings.temperature)
    say(f"equilibrated for {step_ps * settings.equilibration_steps:g} ps")
    simulation.integrator.counters = dict.fromkeys(simulation.integrator.counters, 0)
    simulation.context.setTime(0.0)
    simulation.context.setStepCount(0)


# ---------------------------------------------------------------------------- production


class StopRequest:
    """Turns Ctrl-C (and a polite kill) into a request that is met between two steps; a second one interrupts."""

    def __init__(self) -> None:
        self.made = False
        self._before: dict[int, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.made:
            raise KeyboardInterrupt
        self.made = True

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python handles signals nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _produce(
    simulation: TorsionSimulation, settings: RunSettings, folder: Path, extra: dict[str, Any], progress: bool
) -> RunResult:
    """Run to the end, or until interrupted; close all files."""
    frames, total, interval = int(extra["frames"]), settings.n_steps, settings.report_steps
    keep_dcd_frames(folder / TRAJECTORY, frames)
    torsions = TorsionReporter(folder / TORSIONS, interval, append=True, keep=frames)
    log = TorsionReporter(folder / LOG, interval, coordinates=False, append=True, keep=frames)
    trajectory = app.DCDReporter(str(folder / TRAJECTORY), interval, append=frames > 0)
    simulation.reporters += [trajectory, log, torsions]
    step_ps = settings.timestep_ps
    begin_step, begin = simulation.currentStep, time.perf_counter()
    before = float(extra["seconds"])
    try:
        for reporter in (torsions, log):
            reporter.open(simulation)
        left = step_ps * max(0, total - begin_step)
        with StopRequest() as stop, Progress(left, run_name(settings), "ps", progress) as bar:
            while simulation.currentStep < total and not stop.made:
                step = simulation.currentStep
                count = min(PAUSE, total - step, interval - step % interval)
                simulation.step(count)
                step += count
                spent = time.perf_counter() - begin
                if step % interval == 0:
                    frames += 1
                    extra = {"frames": frames, "seconds": before + spent}
                    simulation.save_checkpoint(folder / CHECKPOINT, extra)
                bar.advance(step_ps * count, f"{86.4 * step_ps * (step - begin_step) / spent:.3g} ns/day")
            if simulation.currentStep > begin_step:
                extra = {"frames": frames, "seconds": before + time.perf_counter() - begin}
                simulation.save_checkpoint(folder / CHECKPOINT, extra)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"cannot write to {folder}: {error.strerror or error}; the run can be resumed from its last checkpoint"
        ) from error
    finally:
        simulation.reporters.clear()
        for reporter in (torsions, log):
            reporter.close()
    interrupted = simulation.currentStep < total
    speed = 86.4 * step_ps * simulation.currentStep / extra["seconds"] if extra["seconds"] else None
    summary = _summarise(simulation, settings, folder, frames, speed, not interrupted)
    write_text(folder / SUMMARY, json.dumps(summary, indent=1) + "\n")
    return RunResult(folder, summary, interrupted)


def _summarise(
    simulation: TorsionSimulation, settings: RunSettings, folder: Path, frames: int, speed: float | None, complete: bool
) -> dict[str, Any]:
    tree = simulation.tree
    summary: dict[str, Any] = {
        "peptidyn": __version__,
        "openmm": openmm.__version__,
        "complete": complete,
        "steps": simulation.currentStep,
        "time_ps": round(simulation.context.getTime()._value, 9),
        "frames": frames,
        "ns_per_day": speed,
        "platform": simulation.context.getPlatform().getName(),
        "atoms": tree.n_atoms,
        "torsions": tree.n_torsions,
        "bends": tree.n_bends,
        "degrees_of_freedom": tree.n_dof,
        "fixman": settings.uses_fixman,
        "settings": asdict(settings),
        "notes": list(simulation.integrator.notes),
    }
    if isinstance(simulation.integrator, TorsionGHMCIntegrator):
        summary["acceptance"] = simulation.integrator.acceptance
    if frames:
        with np.load(folder / TORSIONS, allow_pickle=False) as table:
            summary["potential_kJ_per_mol"] = float(table["potential"].mean())
            summary["temperature_K"] = float(table["temperature"].mean())
            if settings.ensemble == "nve" and frames > 2:
                slope = 1e3 * float(np.polyfit(table["time"], table["total"], 1)[0])
                summary["drift_kJ_per_mol_per_ns"] = slope
                summary["drift_kT_per_dof_per_ns"] = slope / (BOLTZMANN * settings.temperature * tree.n_dof)
    return summary
