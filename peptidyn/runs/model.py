"""What is simulated: a prepared structure with its forces and its tree, and the reference geometry it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import openmm

from peptidyn.core.errors import ArgumentError
from peptidyn.core.one_core import FEW_ATOMS
from peptidyn.core.progress import Progress
from peptidyn.engine.kinetic_metric import LANGEVIN_STEPS, joint_inertia, metropolis_steps, slow_torsions
from peptidyn.engine.minimisation import minimise_cartesian
from peptidyn.engine.rigid_terms import drop_rigid_terms
from peptidyn.engine.simulation import TorsionSimulation, find_platform
from peptidyn.engine.systems import IMPLICIT, make_system
from peptidyn.engine.torsion_integrator import TorsionIntegrator
from peptidyn.engine.torsion_integrators import (
    TorsionGHMCIntegrator,
    TorsionLangevinIntegrator,
    TorsionVerletIntegrator,
)
from peptidyn.io.notes import counted
from peptidyn.io.structure import Structure
from peptidyn.model.build import build_tree
from peptidyn.model.hydrogen_mass import with_hydrogen_mass
from peptidyn.model.rings import describe_cuts, long_loops
from peptidyn.model.tree import TreeModel
from peptidyn.runs.preparation import find_waters, load_prepared
from peptidyn.runs.settings import ModelSettings, RunSettings

RELAX_TOLERANCE, RELAX_ITERATIONS = 10.0, 1000
"""Of the Cartesian relaxation: root mean square force (kJ/mol/nm), and iterations at most."""

LARGE = 3000
"""Atoms from which on a relaxation in implicit solvent, or without cutoff, has two stages: each force takes long."""

LARGE_TOLERANCE, LARGE_ITERATIONS = 50.0, 60
"""Of both stages, and of the second one: thermal motion at 300 K makes forces of 1000 kJ/mol/nm."""

STAGE_CUTOFF = 1.0
"""nm; of the first stage, which is without solvent and moves out of strained bonds, angles and contacts."""


@dataclass(frozen=True, eq=False)
class RunModel:
    """What is simulated: a structure, its forces and its tree.

    Attributes
    ----------
    settings : RunSettings
        With a time step.
    structure : Structure
    system : openmm.System
        With all bonded terms.
    tree : TreeModel
        With the geometry of `structure`.
    notes : list of str
        What a user should know about the settings that were filled in.
    """

    settings: ModelSettings
    structure: Structure
    system: Any
    tree: TreeModel
    notes: list[str]

    def check_step(self) -> None:
        """Refuse a time step for which no joint inertias can be found, if the settings ask for them."""
        settings = self.settings
        assert isinstance(settings, RunSettings)
        if settings.metric_word == "auto":
            integrator = make_integrator(settings, self.tree)
            joint_inertia(
                integrator.tree, self.system, settings.timestep_ps, steps_per_period=integrator.steps_per_period,
                temperature=settings.temperature,
            )  # fmt: skip

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
        platform, properties = find_run_platform(self.settings, self.tree.n_atoms)
        assert isinstance(self.settings, RunSettings)  # replica exchange moves its replicas by itself
        integrator = make_integrator(self.settings, tree)
        with openmm_errors():
            simulation = TorsionSimulation(self.structure.topology, system, integrator, platform, properties)
        if geometry is not None:
            simulation.use_geometry(geometry)  # which checkpoints then hold
        integrator.notes += describe_cuts(tree.atoms, tree.cut_bonds)
        if terms is not None and terms.dropped:
            integrator.notes.append(str(terms))
        return simulation


def make_model(settings: ModelSettings, structure: Structure) -> RunModel:
    """Return the forces and the tree of a prepared structure, and the time step for them if none was given."""
    if settings.brings_parameters:
        loaded = load_prepared(settings)
        system = loaded.system
        if settings.start is None:
            structure = loaded.structure
        else:
            structure = Structure.from_openmm(structure.topology, system, structure.positions, name=structure.name)
            box = structure.topology.getPeriodicBoxVectors()
            if box is not None:
                system.setDefaultPeriodicBoxVectors(*box)  # that of the frame, not that of the file
    else:
        system = make_system(structure.topology, settings.solvent, settings.forcefield, cutoff=settings.cutoff)
        structure = Structure.from_openmm(structure.topology, system, structure.positions, name=structure.name)
    if isinstance(settings, RunSettings) and settings.pressure is not None:
        system.addForce(openmm.MonteCarloBarostat(settings.pressure, settings.temperature))
    tree = build_tree(structure, soft=settings.soft_words, rigid=list(settings.rigid) or None)
    if settings.timestep is not None:
        return RunModel(settings, structure, system, tree, [])
    usual = 1e3 * settings.timestep_ps
    step = usual / _parts_of_step(settings, tree, system)
    note = (
        f"the time step is {step:g} fs, because at {usual:g} fs joint inertias would all but stop torsions in loops "
        "that stiff bonds close"
    )
    return RunModel(replace(settings, timestep=step), structure, system, tree, [note] if step < usual else [])


def _parts_of_step(settings: ModelSettings, tree: TreeModel, system: Any) -> int:
    """Return by what the default time step is divided, 1, 2 or 4, so that torsions in long loops move."""
    if settings.metric_word != "auto" or not long_loops(tree.atoms, tree.cut_bonds):
        return 1
    tree = with_hydrogen_mass(tree, settings.hydrogen_mass)
    period = metropolis_steps(tree) if settings.dynamics == "ghmc" else LANGEVIN_STEPS
    for parts in (1, 2):
        step = settings.timestep_ps / parts
        inertia = joint_inertia(tree, system, step, steps_per_period=period, temperature=settings.hottest)
        if not slow_torsions(tree.with_joint_inertia(inertia)):
            return parts
    return 4


def make_integrator(settings: RunSettings, tree: TreeModel) -> TorsionIntegrator:
    """Return the integrator that the settings ask for."""
    timestep = settings.timestep_ps
    common: dict[str, Any] = {
        "fixman": settings.uses_fixman,
        "seed": settings.seed,
        "hydrogen_mass": settings.hydrogen_mass,
        "metric": settings.metric_word,
    }
    if settings.ensemble == "nve":
        return TorsionVerletIntegrator(tree, timestep, temperature=settings.temperature, **common)
    kind = TorsionLangevinIntegrator if settings.ensemble == "langevin" else TorsionGHMCIntegrator
    return kind(tree, settings.temperature, settings.friction, timestep, **common)


@contextmanager
def openmm_errors() -> Iterator[None]:
    """Turn what OpenMM raises when it makes a Context (no such device, a cutoff too long) into an ArgumentError."""
    try:
        yield
    except openmm.OpenMMException as error:
        raise ArgumentError(f"OpenMM cannot simulate this: {error}") from error


def platform_name(settings: ModelSettings) -> str:
    """Return the platform of the settings, or the one that OpenMM takes by itself: the fastest."""
    if settings.platform is not None or settings.threads is not None:
        return settings.platform or "CPU"
    found = [openmm.Platform.getPlatform(i) for i in range(openmm.Platform.getNumPlatforms())]
    return max(found, key=lambda platform: platform.getSpeed()).getName()


def needs_one_core(settings: ModelSettings, n_atoms: int) -> bool:
    """Whether forces of so many atoms are computed fastest on one core; see `OneCore`."""
    return settings.threads in (None, 1) and n_atoms <= FEW_ATOMS and platform_name(settings) == "CPU"


def find_run_platform(settings: ModelSettings, n_atoms: int) -> tuple[Any, dict[str, str] | None]:
    """Return the platform for a number of atoms, and its properties; None for what OpenMM shall choose."""
    threads = 1 if needs_one_core(settings, n_atoms) else settings.threads
    if settings.platform is None and threads is None:
        return None, None
    platform = find_platform(settings.platform or "CPU")
    if threads is None:
        return platform, None
    if "Threads" not in platform.getPropertyNames():
        raise ArgumentError(f"the platform {platform.getName()} takes no number of threads; use platform='CPU'")
    return platform, {"Threads": str(threads)}


def find_reference_geometry(model: RunModel, say: Callable[[str], None], progress: bool) -> np.ndarray:
    """Return the positions (n_atoms, 3), nm, whose bonds and angles are kept: relaxed in Cartesian coordinates.

    Waters are held at the geometry of their model.
    """
    settings = model.settings
    start = model.tree.positions(model.tree.reference)
    if not settings.relax:
        if settings.start is None:
            say("note: the reference geometry was not relaxed, and populations depend on it")
        return start
    system = model.system
    if find_waters(model.structure).any() and not settings.brings_parameters:
        topology = model.structure.topology
        system = make_system(topology, settings.solvent, settings.forcefield, cutoff=settings.cutoff, rigid_water=True)
    tolerance = RELAX_TOLERANCE
    if _has_stages(model):
        tolerance, near = LARGE_TOLERANCE, _near_forces(model)
        start = _relax(settings, near, start, tolerance, RELAX_ITERATIONS, say, progress, "forces of near atoms only: ")
    return _relax(settings, system, start, tolerance, relaxation_iterations(model), say, progress)


def _has_stages(model: RunModel) -> bool:
    settings = model.settings
    if model.structure.n_atoms < LARGE or settings.in_water:
        return False
    return settings.cutoff is None or settings.solvent in IMPLICIT


def _near_forces(model: RunModel) -> Any:
    """Return the System of the first stage: without solvent, and with a short cutoff."""
    settings = model.settings
    if settings.brings_parameters:
        return load_prepared(replace(settings, solvent="vacuum", cutoff=STAGE_CUTOFF)).system
    return make_system(model.structure.topology, "vacuum", settings.forcefield, cutoff=STAGE_CUTOFF)


def relaxation_iterations(model: RunModel) -> int:
    """Return how often a relaxation evaluates all forces at most, about."""
    return LARGE_ITERATIONS if _has_stages(model) else RELAX_ITERATIONS


def _relax(
    settings: ModelSettings, system: Any, start: np.ndarray, tolerance: float, iterations: int,
    say: Callable[[str], None], progress: bool, what: str = "",
) -> np.ndarray:  # fmt: skip
    """Return positions (n_atoms, 3), nm, minimised in Cartesian coordinates from `start`."""
    integrator = openmm.VerletIntegrator(0.001)
    integrator.setConstraintTolerance(1e-8)
    platform, properties = find_run_platform(settings, len(start))
    with openmm_errors():
        context = openmm.Context(*(part for part in (system, integrator, platform, properties) if part is not None))
    context.setPositions(start)
    with Progress(iterations, "relaxing", "iterations at most", progress) as bar:
        energy = minimise_cartesian(
            context, tolerance, iterations, lambda energy: bar.advance(1, f"{energy:.0f} kJ/mol")
        )
        after = counted(round(bar.done), "iteration")
        say(f"relaxed bonds, angles and torsions: {what}{energy:.1f} kJ/mol after {after}")
    return context.getState(positions=True).getPositions(asNumpy=True)._value
