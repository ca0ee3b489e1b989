"""`exchange`: prepare a structure, tune steps, run replica exchange, and leave a folder of files (see `RunFolder`)."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import openmm

from peptidyn._version import __version__
from peptidyn.core.one_core import OneCore
from peptidyn.engine.kinetic_metric import slow_torsions
from peptidyn.io.structure import Structure
from peptidyn.model.rings import describe_cuts
from peptidyn.runs.estimates import describe_times
from peptidyn.runs.model import (
    RunModel,
    find_reference_geometry,
    find_run_platform,
    make_model,
    needs_one_core,
    platform_name,
)
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.run import RunResult, Say, check_goal, find_place, pivot_move
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import ExchangeSettings
from peptidyn.runs.signals import StopRequest
from peptidyn.sampling.backends import count_cores
from peptidyn.sampling.exchange import ReplicaExchange, geometric_temperatures
from peptidyn.sampling.moves import CartesianHMC, Move, TorsionalHMC, TorsionalLangevin
from peptidyn.sampling.storage import ExchangeFolder

TRAJECTORY_STEPS = {"ghmc": 10, "langevin": 50}
"""Time steps of one trajectory, at most; without a Metropolis test it may be longer."""

ON_CORES = ("CPU", "Reference")
"""Platforms on which replicas run side by side as quickly as there are cores."""


def exchange(
    file: str | os.PathLike[str] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    backend: Any = "serial",
    workers: int | None = None,
    progress: bool = True,
    say: Say = print,
    **settings: Any,
) -> RunResult:
    """Run replica exchange of a structure, or continue a run.

    Parameters
    ----------
    file, config, folder, resume, overwrite, progress, say
        As for `peptidyn.run`.
    backend, workers
        As for `ReplicaExchange`; ``"auto"``: on one process per core, or in this one if a GPU computes. A script with
        processes keeps its work under ``if __name__ == "__main__":``.
    **settings
        By the names of `peptidyn.runs.settings.ExchangeSettings`: ``replicas=8, tmin=280, tmax=500``.

    Returns
    -------
    RunResult
    """
    chosen, place, go_on = find_place(ExchangeSettings(), file, config, folder, resume, overwrite, settings)
    if go_on:
        model, prepared, positions = make_model(chosen, place.read_structure()), None, None
    else:
        model, prepared, positions = _prepare(chosen, _find_backend(chosen, backend, workers)["workers"], say, progress)
    assert isinstance(model.settings, ExchangeSettings)
    chosen = model.settings
    cuts = describe_cuts(model.tree.atoms, model.tree.cut_bonds)
    say("\n".join([_describe(chosen, model), *(f"note: {text}" for text in cuts)]))
    files = ExchangeFolder(place.path, chosen.replicas) if prepared is None else _NewFolder(place, chosen, prepared)
    where = {"folder": files, "resume": go_on, "overwrite": overwrite or resume}
    where |= _find_backend(chosen, backend, workers)
    with _replicas(chosen, model, positions, **where) as replicas:
        if go_on:
            recorded = place.read_settings(ExchangeSettings())
            check_goal(replicas.iterations, chosen.iterations, recorded.iterations, "iterations")
            place.write_settings(chosen)
            say(f"continuing from iteration {replicas.iterations} of {chosen.iterations}")
        for text in slow_torsions(replicas.recipe.tree):
            say(f"note: {text}")
        _tune(replicas, chosen, say)
        one_core = where["backend"] == "serial" and needs_one_core(chosen, model.tree.n_atoms)
        _advance(replicas, chosen.iterations, one_core, progress)
        summary = _summarise(replicas, chosen, model)
        place.write_summary(summary)
        return RunResult(place.path, summary, not summary["complete"])


def _prepare(
    settings: ExchangeSettings, workers: int | None, say: Say, progress: bool
) -> tuple[RunModel, Structure, np.ndarray]:
    """Return what replicas are of, as prepared before it was relaxed, and the positions they start from."""
    prepared = prepare_structure(settings)
    model = make_model(settings, prepared)
    assert isinstance(model.settings, ExchangeSettings)
    for note in (*prepared.notes, *model.notes, *_times(model.settings, model, workers)):
        say(f"note: {note}")
    return model, prepared, find_reference_geometry(model, say, progress)


class _NewFolder(ExchangeFolder):
    """A folder that gets its settings before anything else, so that a run that is killed can always be resumed.

    The structure in it is as it was before it was relaxed, which its bonds were judged by.
    """

    def __init__(self, place: RunFolder, settings: ExchangeSettings, prepared: Structure):
        super().__init__(place.path, settings.replicas)
        self._place, self._settings, self._prepared = place, settings, prepared

    def write_structure(self, structure: Structure) -> None:
        self._place.write_settings(self._settings)
        super().write_structure(self._prepared)


def _tune(replicas: ReplicaExchange, settings: ExchangeSettings, say: Say) -> None:
    """Find the time steps of Metropolised moves, once per run."""
    if settings.warm_up and settings.ensemble == "ghmc" and not replicas.tuned:
        say("tuning time steps ...")
        replicas.warm_up(settings.warm_up)
        steps = ", ".join(f"{1000 * h:.1f}" for h in replicas.steps[:, 0])
        say(f"torsional time steps from the lowest temperature to the highest: {steps} fs")


def _advance(replicas: ReplicaExchange, iterations: int, one_core: bool, progress: bool) -> None:
    """Run to the end, or until interrupted."""
    with StopRequest() as stop, OneCore(one_core) as core:

        def interrupted() -> bool:
            core.look()
            return stop.made

        replicas.run(iterations, progress=progress, stop=interrupted)


def _times(settings: ExchangeSettings, model: RunModel, workers: int | None) -> list[str]:
    """Return a line that says how long a long run will take: its replicas share the workers."""
    steps = settings.replicas * settings.iterations * (settings.interval + settings.pivots) // (workers or 1)
    times = describe_times(model, {"simulating": steps})
    return [] if times is None else [times]


def _summarise(replicas: ReplicaExchange, settings: ExchangeSettings, model: RunModel) -> dict[str, Any]:
    """Return what summary.json holds."""
    return {
        "peptidyn": __version__,
        "openmm": openmm.__version__,
        "platform": platform_name(settings),
        **replicas.summary(),
        "settings": asdict(settings),
        "coordinates": {name: len(places) for name, places in model.tree.groups.items()},
        "metric": settings.metric_word,
        "distribution": settings.distribution,
        "notes": describe_cuts(model.tree.atoms, model.tree.cut_bonds) + slow_torsions(replicas.recipe.tree),
        "complete": replicas.iterations >= settings.iterations,
    }


def _describe(settings: ExchangeSettings, model: RunModel) -> str:
    tree = model.tree
    return (
        f"{settings.name}: {tree.n_atoms} atoms, {tree.describe_coordinates()}; {settings.replicas} replicas from "
        f"{settings.tmin:g} to {settings.tmax:g} K, {settings.ensemble}, {1e3 * settings.timestep_ps:g} fs, "
        f"{settings.metric_word} metric, {settings.forces}\ndistribution: {settings.distribution}"
    )


def _find_backend(settings: ExchangeSettings, backend: Any, workers: int | None) -> dict[str, Any]:
    """Return on what replicas run: for "auto", one process per core, or this process alone where a GPU computes."""
    if backend == "auto":
        if workers is None:
            workers = min(count_cores(), settings.replicas) if platform_name(settings) in ON_CORES else 1
        backend = "processes" if workers > 1 else "serial"
    return {"backend": backend, "workers": workers}


def _replicas(
    settings: ExchangeSettings, model: RunModel, positions: np.ndarray | None, **where: Any
) -> ReplicaExchange:
    """Return the replicas: torsional HMC with momenta kept in part, or Langevin dynamics.

    For exact sampling Cartesian HMC takes turns with torsional HMC; pivot moves follow. `where` says on what they run
    and where they write, as for `ReplicaExchange`.
    """
    kind = TorsionalLangevin if settings.ensemble == "langevin" else TorsionalHMC
    steps = min(settings.interval, TRAJECTORY_STEPS[settings.ensemble])
    moves: list[Move] = [kind(settings.timestep_ps, steps, friction=settings.friction)]
    if settings.threads is None and where["backend"] != "serial" and platform_name(settings) == "CPU":
        settings = replace(settings, threads=1)  # replicas share the cores already
    platform, properties = find_run_platform(settings, model.tree.n_atoms)
    sweeps = max(1, round(settings.interval / steps))
    if settings.exact:
        moves.append(CartesianHMC(0.001, steps))
    if settings.pivots:
        moves.append(pivot_move(model.tree, settings.pivots / sweeps))
    return ReplicaExchange(
        model.tree,
        model.system,
        geometric_temperatures(settings.tmin, settings.tmax, settings.replicas),
        moves=moves,
        sweeps=sweeps,
        positions=positions,
        hydrogen_mass=settings.hydrogen_mass,
        metric=settings.metric_word,
        platform=None if platform is None else platform.getName(),
        properties=properties,
        seed=settings.seed or 0,
        topology=model.structure.topology,
        **where,
    )
