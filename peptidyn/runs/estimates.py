"""How long the stages of a run will take on this machine: measured and told before a long run starts."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import openmm

from peptidyn.engine.simulation import TorsionSimulation
from peptidyn.io.virtual_sites import copy_particles
from peptidyn.runs.model import RunModel, find_run_platform, make_integrator, relaxation_iterations
from peptidyn.runs.settings import RunSettings

WORTH_MEASURING = 1e7
"""Atoms times force evaluations of a run whose times are measured first; smaller ones end within a minute or so."""

LONG = 60.0
"""Seconds of a run whose times are told."""


def describe_times(model: RunModel, stages: dict[str, int]) -> str | None:
    """Return how long each stage of a run will take, as one line; None for a short run.

    Parameters
    ----------
    model : RunModel
    stages : dict
        What each stage is called, and how many time steps it makes. Those before, which relax the geometry, are known.
    """
    relaxing = relaxation_iterations(model) if model.settings.relax else 0
    if model.tree.n_atoms * (relaxing + sum(stages.values())) < WORTH_MEASURING:
        return None
    force = measure_force(model)
    step = force + measure_motion(model)
    seconds = {"relaxing": relaxing * force, **{name: steps * step for name, steps in stages.items()}}
    if sum(seconds.values()) < LONG:
        return None
    told = [f"{name} {'up to ' if name == 'relaxing' else ''}{duration(s)}" for name, s in seconds.items() if s]
    each = f"{step:.3g} s" if step >= 1 else f"{1e3 * step:.3g} ms"
    return f"expected on this machine: {', '.join(told)} ({each} per step)"


def duration(seconds: float) -> str:
    """Return a time in the unit that people would use: ``40 s``, ``12 min``, ``5.1 hours``, ``3.5 days``."""
    for unit, length, most in (
        ("s", 1.0, 90.0),
        ("min", 60.0, 90.0),
        ("hours", 3600.0, 36.0),
        ("days", 86400.0, 730.0),
    ):
        if seconds < most * length:
            return f"{seconds / length:.{0 if unit in ('s', 'min') else 1}f} {unit}"
    return f"{seconds / 31557600.0:.1f} years"


def measure_force(model: RunModel) -> float:
    """Return the time of one evaluation of all forces, s."""
    platform, properties = find_run_platform(model.settings, model.tree.n_atoms)
    parts = (model.system, openmm.VerletIntegrator(0.001), platform, properties)
    context = openmm.Context(*(part for part in parts if part is not None))
    context.setPositions(model.structure.positions)

    def evaluate() -> None:
        context.setPositions(context.getState(positions=True).getPositions(asNumpy=True))
        context.getState(forces=True)

    return _time(evaluate)


def measure_motion(model: RunModel) -> float:
    """Return the time of one time step without its forces, s."""
    settings = model.settings
    if not isinstance(settings, RunSettings):
        settings = RunSettings(soft=settings.soft_words, timestep=settings.timestep)
    settings = replace(settings, metric="physical", timestep=1.0, steps=1, time=None, seed=0)
    platform, properties = find_run_platform(settings, model.tree.n_atoms)
    integrator: Any = make_integrator(settings, model.tree)
    free = copy_particles(model.system)
    simulation = TorsionSimulation(model.structure.topology, free, integrator, platform, properties)
    simulation.set_velocities_to_temperature(settings.temperature)
    return _time(lambda: simulation.step(1))


def _time(work: Any, least: float = 0.2, most: int = 20) -> float:
    """Return the seconds of one call, from as many as fit into `least` seconds, after one that does not count."""
    work()
    begin, count = time.perf_counter(), 0
    while count < most and time.perf_counter() - begin < least:
        work()
        count += 1
    return (time.perf_counter() - begin) / count
