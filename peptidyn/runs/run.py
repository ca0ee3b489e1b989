"""What `peptidyn run` does: prepare a structure, minimise, equilibrate, simulate, and leave a folder of files.

=================  =========================================================================
topology.pdb       the atoms that are simulated, as prepared
run.toml           all settings as resolved; ``peptidyn run --config run.toml`` repeats the run
trajectory.dcd     one frame per report (or trajectory.xtc)
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
import tempfile
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
from peptidyn.core.errors import ArgumentError, OutputError, StepError
from peptidyn.core.files import write_text
from peptidyn.core.progress import Progress
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine import checkpoints
from peptidyn.engine.minimisation import minimise_cartesian
from peptidyn.engine.rigid_terms import drop_rigid_terms
from peptidyn.engine.simulation import TorsionSimulation, find_platform
from peptidyn.engine.systems import make_system
from peptidyn.engine.torsion_integrators import (
    TorsionGHMCIntegrator,
    TorsionIntegrator,
    TorsionLangevinIntegrator,
    TorsionVerletIntegrator,
)
from peptidyn.engine.torsion_reporter import TorsionReporter
from peptidyn.engine.trajectory_frames import keep_frames
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure
from peptidyn.kernels.motions import kernels_on_disk
from peptidyn.model.build import build_tree
from peptidyn.model.tree import TreeModel
from peptidyn.runs.preparation import find_waters, prepare_structure
from peptidyn.runs.settings import TRAJECTORIES, RunSettings, read_toml, resolve_settings

TOPOLOGY, SETTINGS, LOG = "topology.pdb", "run.toml", "log.csv"
TORSIONS, CHECKPOINT, SUMMARY = "torsions.npz", "checkpoint.npz", "summary.json"
FILES = (
    TOPOLOGY, SETTINGS, *(f"trajectory.{kind}" for kind in TRAJECTORIES), LOG, TORSIONS, f"{TORSIONS}.rows", CHECKPOINT,
    SUMMARY,
)  # fmt: skip
"""Everything a run writes; what --overwrite removes."""

CHANGEABLE = frozenset({"time", "steps", "platform", "threads"})
"""Settings that may change when a run is resumed."""

RELAX_TOLERANCE, RELAX_ITERATIONS = 10.0, 1000
"""Of the Cartesian relaxation: root mean square force (kJ/mol/nm), and iterations at most."""

MINIMISE_TOLERANCE, MINIMISE_ITERATIONS = 10.0, 200
"""Of the torsional minimisation: largest gradient (kJ/mol/rad), and iterations at most."""

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
        go_on = _has_begun(target)
    else:
        settings = resolve_settings(given, config)
        target = Path(folder) if folder is not None else Path(f"{run_name(settings)}-run")
        go_on = False
    if not kernels_on_disk():
        say("compiling the numerical kernels: once, in about half a minute; later runs find them on disk")
    if go_on:
        model = make_model(settings, load_structure(target / TOPOLOGY))
    else:
        # before the folder is made: bad input leaves none behind
        prepared = prepare_structure(settings)
        model = make_model(settings, written_and_read(prepared))
        _make_folder(target, overwrite or resume)
        prepared.write(target / TOPOLOGY)
        write_text(target / SETTINGS, settings.to_toml())
        for note in prepared.notes:
            say(f"note: {note}")
    say(_describe(settings, model.tree))
    if go_on:
        _, arrays = checkpoints.read(target / CHECKPOINT)
        simulation = model.simulation(arrays["geometry"], drop=not settings.keep_rigid_terms)
        extra = simulation.load_checkpoint(target / CHECKPOINT)
        _remove_unfinished(target)
        write_text(target / SETTINGS, settings.to_toml())
        say(f"continuing from step {simulation.currentStep} of {settings.n_steps}")
    else:
        geometry = find_reference_geometry(model, say, progress)
        simulation = model.simulation(geometry, drop=not settings.keep_rigid_terms)
        for text in simulation.integrator.notes:
            say(f"note: {text}")
        extra = {"frames": 0, "seconds": 0.0}
        try:
            _start(simulation, settings, say, progress)
        except StepError:
            simulation.save_checkpoint(target / CHECKPOINT, {**extra, "equilibrating": True})
            raise
        simulation.save_checkpoint(target / CHECKPOINT, extra)
    return _produce(simulation, settings, target, extra, progress)


def _describe(settings: RunSettings, tree: TreeModel) -> str:
    bends = f", {tree.n_bends} bends" if tree.n_bends else ""
    molecules = f" in {tree.n_molecules} molecules" if tree.n_molecules > 1 else ""
    return (
        f"{run_name(settings)}: {tree.n_atoms} atoms{molecules}, {tree.n_torsions} torsions{bends}, {tree.n_dof} "
        f"degrees of freedom; {settings.ensemble}, {1e3 * settings.timestep_ps:g} fs, {settings.temperature:g} K, "
        f"{settings.solvent}, {settings.forcefield}"
    )


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


def _has_begun(folder: Path) -> bool:
    """True if a run can go on from its checkpoint; one that failed while equilibrating starts again."""
    path = folder / CHECKPOINT
    return path.exists() and not checkpoints.read(path)[0]["extra"].get("equilibrating", False)


def _make_folder(folder: Path, replace: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"{folder} is a file; choose another output folder with -o")
    if folder.is_dir() and any(folder.iterdir()):
        if not replace:
            raise ArgumentError(
                f"the folder {folder} is not empty; choose another with -o, continue the run in it with --resume, or "
                "replace it with --overwrite"
            )
        for path in [folder / name for name in (*FILES, "report.html")] + list(folder.glob("*.png")):
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


# ---------------------------------------------------------------------------- model and simulation


@dataclass(frozen=True, eq=False)
class RunModel:
    """What is simulated: a structure, its forces and its tree.

    Attributes
    ----------
    settings : RunSettings
    structure : Structure
    system : openmm.System
        With all bonded terms.
    tree : TreeModel
        With the geometry of `structure`.
    """

    settings: RunSettings
    structure: Structure
    system: Any
    tree: TreeModel

    def simulation(self, geometry: np.ndarray | None = None, *, drop: bool = False) -> TorsionSimulation:
        """Return a simulation, at the reference positions.

        Parameters
        ----------
        geometry : (n_atoms, 3), optional
            Positions (nm) to take as reference geometry, instead of those of the structure.
        drop : bool
            Leave out angle and torsion terms inside rigid units. The reference geometry must then stay as it is.
        """
        tree = self.tree if geometry is None else self.tree.with_geometry(geometry)
        system, terms = drop_rigid_terms(self.system, tree) if drop else (self.system, None)
        platform, properties = find_run_platform(self.settings)
        integrator = make_integrator(self.settings, tree)
        simulation = TorsionSimulation(self.structure.topology, system, integrator, platform, properties)
        if geometry is not None:
            simulation.use_geometry(geometry)  # which checkpoints then hold
        if terms is not None:
            integrator.notes.append(str(terms))
        return simulation


def make_model(settings: RunSettings, structure: Structure) -> RunModel:
    """Return the forces and the tree of a prepared structure."""
    system = make_system(structure.topology, settings.solvent, settings.forcefield, cutoff=settings.cutoff)
    structure = Structure.from_openmm(structure.topology, system, structure.positions, name=structure.name)
    tree = build_tree(structure, soft=settings.soft_words, rigid=list(settings.rigid) or None)
    return RunModel(settings, structure, system, tree)


def make_simulation(settings: RunSettings, structure: Structure) -> TorsionSimulation:
    """Return the simulation of a prepared structure, with all its forces and the geometry it has."""
    return make_model(settings, structure).simulation()


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


def find_run_platform(settings: RunSettings) -> tuple[Any, dict[str, str] | None]:
    """Return the platform and its properties; None for what OpenMM shall choose."""
    if settings.platform is None and settings.threads is None:
        return None, None
    platform = find_platform(settings.platform or "CPU")
    if settings.threads is None:
        return platform, None
    if "Threads" not in platform.getPropertyNames():
        raise ArgumentError(f"the platform {platform.getName()} takes no number of threads; use --platform CPU")
    return platform, {"Threads": str(settings.threads)}


def written_and_read(structure: Structure) -> Structure:
    """Return a structure as a resumed run will read it: the same atoms, bonds and digits in the same order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TOPOLOGY
        structure.write(path)
        return load_structure(path)


def find_reference_geometry(model: RunModel, say: Callable[[str], None], progress: bool) -> np.ndarray:
    """Return the positions (n_atoms, 3), nm, whose bonds and angles are kept: relaxed in Cartesian coordinates.

    Waters are held at the geometry of their model.
    """
    settings = model.settings
    start = model.tree.positions(model.tree.reference)
    if not settings.relax:
        say("note: the reference geometry was not relaxed, and populations depend on it")
        return start
    system = model.system
    if find_waters(model.structure).any():
        topology = model.structure.topology
        system = make_system(topology, settings.solvent, settings.forcefield, cutoff=settings.cutoff, rigid_water=True)
    integrator = openmm.VerletIntegrator(0.001)
    integrator.setConstraintTolerance(1e-8)
    platform, properties = find_run_platform(settings)
    context = openmm.Context(*(part for part in (system, integrator, platform, properties) if part is not None))
    context.setPositions(start)
    with Progress(RELAX_ITERATIONS, "relaxing", "iterations at most", progress) as bar:
        energy = minimise_cartesian(
            context, RELAX_TOLERANCE, RELAX_ITERATIONS, lambda energy: bar.advance(1, f"{energy:.0f} kJ/mol")
        )
        say(f"relaxed bonds, angles and torsions: {energy:.1f} kJ/mol after {bar.done:.0f} iterations")
    return context.getState(positions=True).getPositions(asNumpy=True)._value


def _start(simulation: TorsionSimulation, settings: RunSettings, say: Callable[[str], None], progress: bool) -> None:
    """Minimise and equilibrate; then time and steps count from zero."""
    with Progress(MINIMISE_ITERATIONS, "minimising", "iterations at most", progress) as bar:
        energy = simulation.minimize_torsions(
            MINIMISE_TOLERANCE, MINIMISE_ITERATIONS, lambda energy: bar.advance(1, f"{energy:.0f} kJ/mol")
        )
        say(f"minimised in torsions: {energy:.1f} kJ/mol after {bar.done:.0f} iterations")
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
    keep_frames(folder / f"trajectory.{settings.trajectory}", frames)
    torsions = TorsionReporter(folder / TORSIONS, interval, append=True, keep=frames)
    log = TorsionReporter(folder / LOG, interval, coordinates=False, append=True, keep=frames)
    write_frames = {"dcd": app.DCDReporter, "xtc": app.XTCReporter}[settings.trajectory]
    trajectory = write_frames(str(folder / f"trajectory.{settings.trajectory}"), interval, append=frames > 0)
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
