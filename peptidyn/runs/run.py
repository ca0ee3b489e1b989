"""`run`: prepare a structure, minimise, equilibrate, simulate, and leave a folder of files (see `RunFolder`)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openmm
from openmm import app

from peptidyn._version import __version__
from peptidyn.core.errors import ArgumentError, StepError
from peptidyn.core.one_core import OneCore
from peptidyn.core.progress import Progress
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.simulation import TorsionSimulation
from peptidyn.engine.torsion_integrators import TorsionGHMCIntegrator
from peptidyn.engine.torsion_reporter import TorsionReporter, read_torsions
from peptidyn.engine.trajectory_frames import keep_frames
from peptidyn.io.notes import counted
from peptidyn.kernels.motions import kernels_on_disk
from peptidyn.model.tree import TreeModel
from peptidyn.runs.estimates import describe_times
from peptidyn.runs.model import (
    LARGE,
    RunModel,
    find_reference_geometry,
    find_run_platform,
    make_model,
    needs_one_core,
)
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.run_folder import LOG, TORSIONS, RunFolder
from peptidyn.runs.settings import RunSettings, S, resolve_settings
from peptidyn.runs.signals import StopRequest
from peptidyn.runs.starting_points import settings_from_start
from peptidyn.sampling.moves import BACKBONE, PivotMove

MINIMISE_TOLERANCE, MINIMISE_ITERATIONS = 10.0, 200
"""Of the torsional minimisation: largest gradient (kJ/mol/rad), and iterations at most."""

LARGE_ITERATIONS = 50
"""The same in large systems, which the relaxation before has left near a minimum."""

REDRAW = 50
"""Steps between fresh momenta during equilibration, which thermalise every ensemble alike."""

PAUSE = 50
"""Steps after which an interrupt is looked for at the latest."""

PIVOT_STEPS = 20
"""Time steps between pivot moves, in which bonds and angles follow."""

PIVOT_NOTE = "pivot moves change conformations between time steps: times and rates are not physical"

Say = Callable[[str], None]
"""Receives one line of text per stage."""


@dataclass(frozen=True)
class RunResult:
    """Where a run, or replica exchange, ended.

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
    file: str | os.PathLike[str] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    say: Say = print,
    **settings: Any,
) -> RunResult:
    """Run a simulation, or continue one.

    Parameters
    ----------
    file : str or path, optional
        Structure to simulate; without it capped decaalanine is built.
    config : str or path, optional
        TOML file with settings; those given here win over it.
    folder : str or path, optional
        Where to write; named after the structure if not given.
    resume : bool
        Continue the run in `folder` from its last checkpoint, with its own settings; those given may make it longer.
    overwrite : bool
        Replace an earlier run in `folder`.
    progress : bool
        Show how far the run is.
    say : callable
        Receives one line of text per stage.
    **settings
        By the names of `peptidyn.runs.settings.RunSettings`: ``time="10ns", preset="angles", temperature=310``.

    Returns
    -------
    RunResult
    """
    chosen, place, go_on = find_place(RunSettings(), file, config, folder, resume, overwrite, settings)
    if not kernels_on_disk():
        say("compiling the numerical kernels: once, in about half a minute; later runs find them on disk")
    with place:
        if resume:
            place.lock()
        if not go_on:
            chosen, simulation, extra = _begin(chosen, place, overwrite or resume, say, progress)
        else:
            simulation, extra = _continue(chosen, place, say)
        return _produce(simulation, chosen, place, extra, progress)


def find_place(
    kind: S,
    file: str | os.PathLike[str] | None,
    config: str | os.PathLike[str] | None,
    folder: str | os.PathLike[str] | None,
    resume: bool,
    overwrite: bool,
    given: dict[str, Any],
) -> tuple[S, RunFolder, bool]:
    """Return the settings and the folder of a run, and whether it goes on from a checkpoint.

    `kind` holds the defaults of the settings; the others are as for `run`.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if file is not None:
        given["file"] = os.fspath(file)
    if "start" in given:
        given["start"] = os.fspath(given["start"])
    if not resume:
        new = settings_from_start(kind, given, config) if "start" in given else None
        chosen = new or resolve_settings(given, config, kind)
        name = f"{chosen.name}-{Path(chosen.stored_as).stem}"
        return chosen, RunFolder(name if folder is None else folder), False
    if overwrite:
        raise ArgumentError("resume=True continues a run and overwrite=True replaces it; give one of them")
    if folder is None or config is not None:
        raise ArgumentError("resume=True needs folder=, the folder of the run, and takes its settings from there")
    place = RunFolder(folder)
    return place.settings_to_resume(kind, given), place, place.has_begun


def check_goal(done: int, asked: int, recorded: int, what: str) -> None:
    """Refuse to resume a run that is beyond the length that is asked for now; the recorded one stays."""
    if done > asked:
        raise ArgumentError(
            f"the run has made {done} {what} and is beyond the {asked} that are asked for now; its recorded length of "
            f"{recorded} {what} stays: give a longer one, or none"
        )


def _begin(
    settings: RunSettings, folder: RunFolder, replace: bool, say: Say, progress: bool
) -> tuple[RunSettings, TorsionSimulation, dict[str, Any]]:
    """Return a simulation that was prepared, minimised and equilibrated, and how much it has reported: nothing.

    The settings, which come first, have a time step.
    """
    # before the folder is made: bad input leaves none behind
    find_run_platform(settings, 0)
    prepared = prepare_structure(settings)
    model = make_model(settings, prepared)
    assert isinstance(model.settings, RunSettings)
    settings = model.settings
    model.check_step()
    _pivots(settings, model.tree, {})
    folder.make(replace)
    try:
        folder.write_settings(settings)  # first, so that a run that is killed from here on can be resumed
        folder.write_structure(prepared)
        for note in (*prepared.notes, *model.notes):
            say(f"note: {note}")
        say(_describe(settings, model.tree))
        _tell_times(model, settings, say)
        geometry = find_reference_geometry(model, say, progress)
        simulation = model.simulation(geometry, drop=not settings.keep_rigid_terms)
        for text in _notes(simulation, settings):
            say(f"note: {text}")
        return settings, simulation, _start(simulation, settings, folder, say, progress)
    except StepError:
        raise
    except Exception:
        if not replace:
            folder.discard()
        raise


def _continue(settings: RunSettings, folder: RunFolder, say: Say) -> tuple[TorsionSimulation, dict[str, Any]]:
    """Return the simulation as its last checkpoint left it, and how much it has reported."""
    folder.check_files()
    folder.check_identity(settings)
    folder.check_inputs(settings)
    model = make_model(settings, folder.structure)
    say(_describe(settings, model.tree))
    simulation = model.simulation(folder.read_geometry(), drop=not settings.keep_rigid_terms)
    extra = simulation.load_checkpoint(folder.checkpoint)
    check_goal(simulation.currentStep, settings.n_steps, folder.read_settings(RunSettings()).n_steps, "steps")
    folder.remove_unfinished()
    folder.write_settings(settings)
    say(f"continuing from step {simulation.currentStep} of {settings.n_steps}")
    return simulation, extra


def pivot_move(tree: TreeModel, tries: float) -> PivotMove:
    """Return pivot moves in a row, about `tries` of them; ArgumentError if the tree has no phi and psi to turn."""
    if not set(BACKBONE) <= {c.kind for c in tree.torsions}:
        raise ArgumentError("pivot moves turn phi and psi, and the tree has no such soft torsions; leave pivots out")
    move = PivotMove(tries=max(1, round(tries)))
    if not len(move.places(tree)):
        raise ArgumentError(
            "pivot moves turn phi and psi outside of rings and loops, and there are none; leave pivots out"
        )
    return move


def _pivots(settings: RunSettings, tree: TreeModel, extra: dict[str, Any]) -> PivotMove | None:
    """Return the pivot moves after every `PIVOT_STEPS` time steps, which go on counting, or None."""
    if not settings.pivots:
        return None
    move = pivot_move(tree, settings.pivots * PIVOT_STEPS / 100)
    move.proposed, move.accepted = extra.get("pivots", (0, 0))
    return move


def _notes(simulation: TorsionSimulation, settings: RunSettings) -> list[str]:
    return [*simulation.integrator.notes, *([PIVOT_NOTE] if settings.pivots else [])]


def _describe(settings: RunSettings, tree: TreeModel) -> str:
    molecules = f" in {tree.n_molecules} molecules" if tree.n_molecules > 1 else ""
    pressure = "" if settings.pressure is None else f"{settings.pressure:g} bar, "
    pivots = f"{counted(settings.pivots, 'pivot move')} per 100 steps, " if settings.pivots else ""
    return (
        f"{settings.name}: {tree.n_atoms} atoms{molecules}, {tree.describe_coordinates()}, {tree.n_dof} "
        f"degrees of freedom; {settings.ensemble}, {1e3 * settings.timestep_ps:g} fs, {settings.metric_word} metric, "
        f"{settings.temperature:g} K, {pressure}{pivots}{settings.forces}\ndistribution: {settings.distribution}"
    )


def _start(
    simulation: TorsionSimulation, settings: RunSettings, folder: RunFolder, say: Say, progress: bool
) -> dict[str, Any]:
    """Minimise, equilibrate and write the first checkpoint; return how much was reported: nothing."""
    extra: dict[str, Any] = {"frames": 0, "seconds": 0.0}
    try:
        _equilibrate(simulation, settings, say, progress)
    except StepError:
        folder.save_checkpoint(simulation, {**extra, "equilibrating": True})
        raise
    folder.save_checkpoint(simulation, extra)
    return extra


def _equilibrate(simulation: TorsionSimulation, settings: RunSettings, say: Say, progress: bool) -> None:
    """Minimise and equilibrate; then time and steps count from zero."""
    iterations = _minimisation_iterations(settings, simulation.tree)
    if iterations:
        with Progress(iterations, "minimising", "iterations at most", progress) as bar:
            energy = simulation.minimize_torsions(
                MINIMISE_TOLERANCE, iterations, lambda energy: bar.advance(1, f"{energy:.0f} kJ/mol")
            )
            say(f"minimised in torsions: {energy:.1f} kJ/mol after {counted(round(bar.done), 'iteration')}")
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


def _tell_times(model: RunModel, settings: RunSettings, say: Say) -> None:
    """Say how long the stages of a long run will take."""
    iterations = _minimisation_iterations(settings, model.tree)
    simulating = settings.n_steps * (100 + settings.pivots) // 100
    stages = {"minimising": iterations, "equilibrating": settings.equilibration_steps, "simulating": simulating}
    if (times := describe_times(model, stages)) is not None:
        say(times)


def _minimisation_iterations(settings: RunSettings, tree: TreeModel) -> int:
    """Return how many iterations the torsional minimisation has at most; a frame to start from stays as it is."""
    if settings.start is not None and not settings.relax:
        return 0
    return LARGE_ITERATIONS if tree.n_atoms >= LARGE else MINIMISE_ITERATIONS


def _produce(
    simulation: TorsionSimulation, settings: RunSettings, folder: RunFolder, extra: dict[str, Any], progress: bool
) -> RunResult:
    """Run to the end, or until interrupted; close all files."""
    frames, interval = int(extra["frames"]), settings.report_steps
    file = folder.path / f"trajectory.{settings.trajectory}"
    keep_frames(file, frames)
    torsions = TorsionReporter(folder.path / TORSIONS, interval, append=True, keep=frames)
    log = TorsionReporter(folder.path / LOG, interval, coordinates=False, append=True, keep=frames)
    write_frames = {"dcd": app.DCDReporter, "xtc": app.XTCReporter}[settings.trajectory]
    trajectory = write_frames(str(file), interval, append=frames > 0)
    simulation.reporters += [trajectory, log, torsions]
    try:
        with folder.writing():
            for reporter in (torsions, log):
                reporter.open(simulation)
            extra = _advance(simulation, settings, folder, extra, progress)
    except StepError as error:
        if simulation.currentStep < interval:
            raise
        text = f"{error}; the run can go on from its last frame, in a new folder: start={str(folder.path)!r}"
        raise StepError(f"{text} with a smaller timestep=") from None
    finally:
        simulation.reporters.clear()
        for reporter in (torsions, log):
            reporter.close()
    summary = _summarise(simulation, settings, folder, extra)
    folder.write_summary(summary)
    return RunResult(folder.path, summary, not summary["complete"])


def _advance(
    simulation: TorsionSimulation, settings: RunSettings, folder: RunFolder, extra: dict[str, Any], progress: bool
) -> dict[str, Any]:
    """Step to the end, or until interrupted, with a checkpoint after every report; return what the last one holds."""
    frames, total, interval = int(extra["frames"]), settings.n_steps, settings.report_steps
    step_ps = settings.timestep_ps
    first, begin, before = simulation.currentStep, time.perf_counter(), float(extra["seconds"])
    bar = Progress(step_ps * max(0, total - first), settings.name, "ps", progress)
    pivots = _pivots(settings, simulation.tree, extra)

    def reported() -> dict[str, Any]:
        counts = {} if pivots is None else {"pivots": [pivots.proposed, pivots.accepted]}
        return {"frames": frames, "seconds": before + time.perf_counter() - begin, **counts}

    with StopRequest() as stop, bar, OneCore(needs_one_core(settings, simulation.tree.n_atoms)) as core:
        while simulation.currentStep < total and not stop.made:
            core.look()
            step = simulation.currentStep
            count = min(PAUSE, total - step, interval - step % interval)
            if pivots is not None:
                if step % PIVOT_STEPS == 0:  # first thing after a frame or a checkpoint, so that these hold the same
                    simulation.apply(pivots)
                count = min(count, PIVOT_STEPS - step % PIVOT_STEPS)
            simulation.step(count)
            step += count
            if step % interval == 0:
                frames += 1
                extra = reported()
                folder.save_checkpoint(simulation, extra)
            spent = time.perf_counter() - begin
            bar.advance(step_ps * count, f"{86.4 * step_ps * (step - first) / spent:.3g} ns/day")
        if simulation.currentStep > first:
            extra = reported()
            folder.save_checkpoint(simulation, extra)
    return extra


def _summarise(
    simulation: TorsionSimulation, settings: RunSettings, folder: RunFolder, extra: dict[str, Any]
) -> dict[str, Any]:
    tree, frames, seconds = simulation.tree, extra["frames"], extra["seconds"]
    summary: dict[str, Any] = {
        "peptidyn": __version__,
        "openmm": openmm.__version__,
        "complete": simulation.currentStep >= settings.n_steps,
        "steps": simulation.currentStep,
        "time_ps": round(simulation.context.getTime()._value, 9),
        "frames": frames,
        "ns_per_day": 86.4 * settings.timestep_ps * simulation.currentStep / seconds if seconds else None,
        "platform": simulation.context.getPlatform().getName(),
        "atoms": tree.n_atoms,
        "torsions": tree.n_torsions,
        "bends": tree.n_bends,
        "coordinates": {name: len(places) for name, places in tree.groups.items()},
        "degrees_of_freedom": tree.n_dof,
        "fixman": settings.uses_fixman,
        "metric": settings.metric_word,
        "distribution": settings.distribution,
        "settings": asdict(settings),
        "notes": _notes(simulation, settings),
    }
    summary["drift_fallbacks"] = simulation.integrator.drift_fallbacks
    if isinstance(simulation.integrator, TorsionGHMCIntegrator):
        summary["acceptance"] = simulation.integrator.acceptance
    if (barostat := simulation.integrator.barostat) is not None:
        summary["volume_moves"] = {"proposed": barostat.proposed, "accepted": barostat.accepted}
    if settings.pivots:
        proposed, accepted = extra.get("pivots", (0, 0))
        summary["pivot_moves"] = {"proposed": proposed, "accepted": accepted}
    if frames:
        table = read_torsions(folder.path / TORSIONS, tree)
        summary["potential_kJ_per_mol"] = float(table["potential"].mean())
        summary["temperature_K"] = float(table["temperature"].mean())
        if settings.ensemble == "nve" and frames > 2:
            slope = 1e3 * float(np.polyfit(table["time"], table["total"], 1)[0])
            summary["drift_kJ_per_mol_per_ns"] = slope
            summary["drift_kT_per_dof_per_ns"] = slope / (BOLTZMANN * settings.temperature * tree.n_dof)
    return summary
