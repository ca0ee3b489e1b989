"""What settings become: forces, trees and steps, integrators, platforms, and how the reference geometry is relaxed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import openmm
import pytest
from quick_systems import systems_made_once
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.core.one_core import FEW_ATOMS
from peptidyn.engine.kinetic_metric import LANGEVIN_STEPS, metropolis_steps
from peptidyn.runs import model as module
from peptidyn.runs.model import (
    LARGE,
    RunModel,
    find_reference_geometry,
    find_run_platform,
    make_integrator,
    make_model,
    needs_one_core,
    openmm_errors,
    platform_name,
    relaxation_iterations,
)
from peptidyn.runs.settings import ExchangeSettings, RunSettings

COMMON = {"file": str(DATA / "ala1.pdb"), "solvent": "vacuum", "platform": "Reference", "seed": 1}


@cache
def structure():
    return ptd.load_structure(DATA / "ala1.pdb")


@pytest.fixture(scope="module", autouse=True)
def _systems_are_made_once():
    with systems_made_once():
        yield


def model_of(kind=RunSettings, **settings):
    return make_model(kind(**{**COMMON, **settings}), structure())


def energy(system, x):
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(x)
    return context.getState(energy=True).getPotentialEnergy()._value


def nothing(text):
    """Say nothing."""


# ---------------------------------------------------------------------------- forces, trees and steps


@pytest.fixture
def systems(monkeypatch):
    """Which Systems were asked for, all of which are the same one."""
    asked, made = [], module.make_system(structure().topology, "vacuum", "amber14", cutoff=None)

    def make(topology, *arguments, **options):
        assert topology.getNumAtoms() == structure().n_atoms
        asked.append((arguments, options))
        return openmm.XmlSerializer.clone(made)

    monkeypatch.setattr(module, "make_system", make)
    return asked


@pytest.mark.parametrize(("solvent", "field", "cutoff"), [("vacuum", "amber14", None), ("gbn2", "amber19", 0.6)])
def test_forces_are_those_that_are_asked_for(systems, solvent, field, cutoff):
    model = model_of(solvent=solvent, forcefield=field, cutoff=cutoff)
    assert systems == [((solvent, field), {"cutoff": cutoff})]
    assert model.notes == [] and np.array_equal(model.structure.positions, structure().positions)
    assert model.structure.name == structure().name and model.tree.n_atoms == model.system.getNumParticles()


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ({}, {"phi", "psi"}),
        ({"preset": "angles"}, {"phi", "psi", "omega"}),
        ({"soft": "psi methyl"}, {"psi", "methyl"}),
    ],
)
def test_trees_have_what_is_soft(given, kinds):
    tree = model_of(**given).tree
    assert {c.kind for c in tree.torsions} == kinds and (tree.n_bends > 0) == ("preset" in given)
    assert np.abs(tree.positions(tree.reference) - structure().positions).max() < 1e-10


@pytest.mark.parametrize("kind", [RunSettings, ExchangeSettings])
def test_a_step_that_is_given_stays_and_a_default_one_is_filled_in(kind):
    assert model_of(kind, timestep=3.5).settings.timestep == 3.5
    usual = model_of(kind, preset="heavy")
    assert usual.settings == replace(kind(**COMMON, preset="heavy"), timestep=16.0 if kind is RunSettings else 24.0)


@pytest.mark.parametrize(
    ("kind", "parts"), [(RunSettings, 1), (RunSettings, 2), (RunSettings, 4), (ExchangeSettings, 2)]
)
def test_default_steps_are_divided_until_torsions_in_long_loops_move(monkeypatch, kind, parts):
    """Joint inertias are those of the step, the ensemble and the masses; physical dynamics has none to look at."""
    asked = []

    def inertia(tree, system, step, *, steps_per_period, temperature):
        asked.append((round(1e3 * step, 6), steps_per_period, temperature, round(tree.masses.min(), 6)))
        return np.full(tree.n_coordinates, float(len(asked)))

    monkeypatch.setattr(module, "joint_inertia", inertia)
    monkeypatch.setattr(module, "long_loops", lambda *tree: True)
    # the first inertias stop a torsion, and so do the second ones where the step is divided by four
    stopped = {1: 0.0, 2: 1.0, 4: 2.0}[parts]
    monkeypatch.setattr(module, "slow_torsions", lambda tree: ["slow"] * int(0 < tree.joint_inertia.max() <= stopped))
    model = model_of(kind, preset="heavy", hydrogen_mass=3.0)
    whole = 16.0 if kind is RunSettings else 24.0
    period = LANGEVIN_STEPS if kind is RunSettings else metropolis_steps(model.tree)
    assert asked == [(whole / k, period, 300.0, 3.0) for k in (1, 2)[: min(parts, 2)]]
    assert model.settings.timestep == whole / parts
    text = f"the time step is {whole / parts:g} fs, because at {whole:g} fs joint inertias would all but stop torsions"
    assert [note.startswith(text) for note in model.notes] == [True] * (parts > 1)
    asked.clear()
    assert model_of(kind, preset="heavy", metric="physical").settings.timestep == 1.0 and asked == []
    assert model_of(kind, preset="heavy", timestep=20.0).settings.timestep == 20.0 and asked == []
    monkeypatch.setattr(module, "long_loops", lambda *tree: False)
    assert model_of(kind, preset="heavy").settings.timestep == whole and asked == []


@pytest.mark.parametrize("ensemble", ["langevin", "ghmc"])
def test_steps_are_checked_as_they_will_be_made(monkeypatch, ensemble):
    """With the masses, the temperature and the steps per period of the integrator; only with joint inertias."""
    asked = []
    monkeypatch.setattr(module, "joint_inertia", lambda *arguments, **options: asked.append((arguments, options)))
    model = model_of(preset="heavy", ensemble=ensemble, temperature=410.0, timestep=7.0, hydrogen_mass=3.0)
    model.check_step()
    (((tree, system, step), options),) = asked
    period = LANGEVIN_STEPS if ensemble == "langevin" else metropolis_steps(model.tree)
    assert step == pytest.approx(0.007) and options == {"steps_per_period": period, "temperature": 410.0}
    assert tree.masses.min() == pytest.approx(3.0) and system is model.system
    model_of(preset="heavy", metric="physical").check_step()
    model_of(preset="torsions").check_step()
    assert len(asked) == 1
    model_of(preset="torsions", metric="auto").check_step()
    assert len(asked) == 2


# ---------------------------------------------------------------------------- integrators and simulations


@pytest.mark.parametrize(
    ("ensemble", "kind"),
    [("langevin", ptd.TorsionLangevinIntegrator), ("ghmc", ptd.TorsionGHMCIntegrator),
     ("nve", ptd.TorsionVerletIntegrator)],
)  # fmt: skip
@pytest.mark.parametrize("fixman", [None, True, False])
def test_integrators_of_the_ensembles(ensemble, kind, fixman):
    tree = ptd.build_tree(structure())
    settings = RunSettings(ensemble=ensemble, fixman=fixman, temperature=350.0, metric="physical", timestep=2.0)
    integrator = make_integrator(settings, tree)
    assert type(integrator) is kind and integrator.fixman == (ensemble != "nve" if fixman is None else fixman)
    assert integrator.getStepSize()._value == pytest.approx(0.002)
    if ensemble != "nve":
        assert integrator.settings["temperature"] == 350.0


@pytest.mark.parametrize("metric", ["physical", "auto"])
def test_simulations_have_the_metric_of_the_settings(metric):
    simulation = model_of(preset="flexible", metric=metric, timestep=8.0).simulation()
    assert simulation.tree.joint_inertia.any() == (metric == "auto")


@pytest.mark.parametrize("drop", [True, False])
def test_simulations_begin_at_the_geometry_they_are_given(drop):
    """It is their reference; terms inside of rigid units are left out on request, which a note says."""
    model = model_of()
    x = structure().positions + 0.002 * np.random.default_rng(1).normal(size=structure().positions.shape)
    simulation = model.simulation(x, drop=drop)
    assert np.abs(simulation.tree.positions(simulation.tree.reference) - x).max() < 1e-9
    assert simulation.context.getPlatform().getName() == "Reference"
    now = simulation.context.getState(positions=True, energy=True)
    assert np.abs(now.getPositions(asNumpy=True)._value - x).max() < 1e-6
    assert now.getPotentialEnergy()._value == pytest.approx(energy(model.system, x), abs=1e-3)
    (torsions,) = (f for f in simulation.system.getForces() if isinstance(f, openmm.PeriodicTorsionForce))
    (all_torsions,) = (f for f in model.system.getForces() if isinstance(f, openmm.PeriodicTorsionForce))
    assert (torsions.getNumTorsions() < all_torsions.getNumTorsions()) == drop
    assert [("left out of the forces" in note) for note in simulation.integrator.notes] == [True] * drop
    here = model.simulation()
    assert np.abs(here.tree.positions(here.tree.reference) - structure().positions).max() < 1e-9


def test_the_geometry_that_was_given_is_the_one_of_checkpoints(tmp_path):
    """To the last bit."""
    x = structure().positions + 1e-3 * np.random.default_rng(2).normal(size=structure().positions.shape)
    model_of().simulation(x).save_checkpoint(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as file:
        assert np.array_equal(file["geometry"], x)


def test_what_openmm_cannot_simulate_is_one_sentence():
    with pytest.raises(ArgumentError, match="OpenMM cannot simulate this: no such device"), openmm_errors():
        raise openmm.OpenMMException("no such device")
    with pytest.raises(KeyError), openmm_errors():
        raise KeyError


# ---------------------------------------------------------------------------- platforms


def test_platforms_by_name_and_by_threads(monkeypatch):
    """Threads are those of the CPU platform, also where another one is faster."""
    assert platform_name(RunSettings(platform="Reference")) == "Reference"
    assert platform_name(RunSettings(platform="CUDA", threads=2)) == "CUDA"
    found = [openmm.Platform.getPlatform(i) for i in range(openmm.Platform.getNumPlatforms())]
    speeds = {platform.getName(): platform.getSpeed() for platform in found}
    assert speeds[platform_name(RunSettings())] == max(speeds.values()) > min(speeds.values())
    there = [("Reference", 1.0), ("CUDA", 100.0), ("CPU", 10.0)]
    made = [SimpleNamespace(getName=lambda n=n: n, getSpeed=lambda v=v: v) for n, v in there]
    monkeypatch.setattr(openmm.Platform, "getNumPlatforms", lambda: len(made))
    monkeypatch.setattr(openmm.Platform, "getPlatform", lambda i: made[i])
    assert platform_name(RunSettings()) == "CUDA" and platform_name(RunSettings(threads=2)) == "CPU"


@pytest.mark.parametrize(
    ("given", "atoms", "one"),
    [
        ({"platform": "CPU"}, FEW_ATOMS, True),
        ({"platform": "CPU"}, FEW_ATOMS + 1, False),
        ({"platform": "CPU", "threads": 1}, 10, True),
        ({"threads": 1}, 10, True),
        ({"platform": "CPU", "threads": 2}, 10, False),
        ({"platform": "Reference"}, 10, False),
        ({"platform": "CUDA"}, 10, False),
    ],
)
def test_small_systems_are_computed_on_one_core(given, atoms, one):
    assert needs_one_core(RunSettings(**given), atoms) == one


@pytest.mark.parametrize(
    ("given", "atoms", "found"),
    [
        ({"platform": "CPU"}, 10, ("CPU", {"Threads": "1"})),
        ({"platform": "cpu"}, 10_000, ("CPU", None)),
        ({"platform": "CPU", "threads": 3}, 10, ("CPU", {"Threads": "3"})),
        ({"threads": 3}, 10_000, ("CPU", {"Threads": "3"})),
        ({"threads": 1}, 10_000, ("CPU", {"Threads": "1"})),
        ({"platform": "Reference"}, 10, ("Reference", None)),
    ],
)
def test_platforms_and_their_threads(given, atoms, found):
    platform, properties = find_run_platform(RunSettings(**given), atoms)
    assert (platform.getName(), properties) == found


def test_platforms_that_openmm_chooses(monkeypatch):
    monkeypatch.setattr(module, "platform_name", lambda settings: "CUDA")
    assert find_run_platform(RunSettings(), 10) == (None, None)
    with pytest.raises(ArgumentError, match="Reference takes no number of threads; use platform='CPU'"):
        find_run_platform(RunSettings(platform="Reference", threads=2), 10)


# ---------------------------------------------------------------------------- the reference geometry


def test_a_geometry_that_stays(monkeypatch):
    """A note says what depends on it; a run that goes on from another has none."""
    monkeypatch.setattr(module, "_relax", None)
    said: list[str] = []
    x = find_reference_geometry(model_of(relax=False), said.append, False)
    assert np.abs(x - structure().positions).max() < 1e-10
    assert said == ["note: the reference geometry was not relaxed, and populations depend on it"]
    find_reference_geometry(model_of(relax=False, start="x"), said.append, False)
    assert len(said) == 1


def test_a_geometry_is_relaxed_where_it_is(monkeypatch):
    """On the platform of the settings, with close constraints, to the tolerance; what was found is returned."""
    asked = []

    def minimise(context, tolerance, iterations, watch):
        x = context.getState(positions=True).getPositions(asNumpy=True)._value
        name = context.getPlatform().getName()
        asked.append((x, name, context.getIntegrator().getConstraintTolerance(), tolerance, iterations))
        context.setPositions(x + 1.0)
        for _ in range(3):
            watch(-2.0)
        return -2.5

    monkeypatch.setattr(module, "minimise_cartesian", minimise)
    said: list[str] = []
    found = find_reference_geometry(model_of(), said.append, False)
    ((x, *rest),) = asked
    assert np.abs(x - structure().positions).max() < 1e-6 and rest == ["Reference", 1e-8, 10.0, 1000]
    assert np.abs(found - structure().positions - 1.0).max() < 1e-6
    assert said == ["relaxed bonds, angles and torsions: -2.5 kJ/mol after 3 iterations"]
    find_reference_geometry(model_of(platform="CPU", threads=2), said.append, False)
    assert asked[1][1] == "CPU"


def test_a_relaxed_geometry_has_small_forces():
    model = model_of()
    x = find_reference_geometry(model, nothing, False)
    context = openmm.Context(
        model.system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference")
    )
    norms = []
    for positions in (structure().positions, x):
        context.setPositions(positions)
        forces = context.getState(forces=True).getForces(asNumpy=True)._value
        norms.append(np.sqrt((forces**2).mean()))
    assert norms[1] < 10.0 < 100.0 < norms[0]


def settings_of(**given):
    return RunSettings(**{"solvent": "obc2", "platform": "Reference", **given})


@pytest.mark.parametrize(
    ("atoms", "given", "stages"),
    [
        (LARGE, {}, True),
        (LARGE - 1, {}, False),
        (LARGE, {"cutoff": 1.0}, True),
        (LARGE, {"solvent": "vacuum"}, True),
        (LARGE, {"solvent": "vacuum", "cutoff": 1.0}, False),
        (LARGE, {"solvent": "tip3p"}, False),
        (LARGE, {"solvent": "explicit", "file": "x.prmtop"}, False),
    ],
)
def test_large_systems_without_a_cutoff_or_in_implicit_solvent_have_two_stages(atoms, given, stages):
    """The second one has 60 iterations at most, and a single one 1000."""
    model = SimpleNamespace(structure=SimpleNamespace(n_atoms=atoms), settings=settings_of(**given))
    assert relaxation_iterations(model) == (60 if stages else 1000)


@pytest.fixture
def stages(monkeypatch):
    """Relaxations, each of which moves all atoms by 1 nm, with their settings, System and the rest."""
    asked = []

    def relax(settings, system, start, tolerance, iterations, say, progress, what=""):
        asked.append(SimpleNamespace(system=system, start=start, tolerance=tolerance, iterations=iterations, what=what))
        return start + 1.0

    monkeypatch.setattr(module, "_relax", relax)
    return asked


def test_both_stages_of_a_large_system(monkeypatch, stages, systems):
    """The first is in vacuum, with the same force field and a cutoff; the second begins where it ended."""
    monkeypatch.setattr(module, "LARGE", 10)
    model = model_of(solvent="obc2", forcefield="amber19")
    x = find_reference_geometry(model, nothing, False)
    first, second = stages
    assert np.abs(x - structure().positions - 2.0).max() < 1e-9
    assert np.abs(second.start - first.start - 1.0).max() < 1e-12
    assert systems == [(("obc2", "amber19"), {"cutoff": None}), (("vacuum", "amber19"), {"cutoff": 1.0})]
    assert second.system is model.system is not first.system and second.what == "" and "near atoms" in first.what
    assert (first.tolerance, first.iterations, second.tolerance, second.iterations) == (50.0, 1000, 50.0, 60)


def test_the_first_stage_of_a_file_with_parameters_has_these(monkeypatch, stages):
    """Without solvent and with a cutoff of 1 nm; all other settings stay."""
    monkeypatch.setattr(module, "LARGE", 10)
    asked = []

    def load(settings):
        asked.append(settings)
        return SimpleNamespace(system="near")

    monkeypatch.setattr(module, "load_prepared", load)
    settings = RunSettings(file="x.prmtop", coordinates="y.rst7", solvent="gbn2", cutoff=2.0)
    made = model_of()
    find_reference_geometry(RunModel(settings, made.structure, made.system, made.tree, []), nothing, False)
    assert asked == [replace(settings, solvent="vacuum", cutoff=1.0)]
    assert [stage.system for stage in stages] == ["near", made.system]


def test_waters_relax_as_rigid_ones_unless_the_file_brings_its_parameters(monkeypatch, stages):
    asked = []
    monkeypatch.setattr(module, "find_waters", lambda structure: np.array([False, True]))
    monkeypatch.setattr(module, "make_system", lambda *arguments, **options: asked.append((arguments[1:], options)))
    tree = ptd.build_tree(structure())
    for settings, rigid in (
        (RunSettings(solvent="tip3p", forcefield="amber19", cutoff=0.7), True),
        (RunSettings(file="x.prmtop", solvent="explicit", cutoff=0.7), False),
    ):
        stages.clear()
        find_reference_geometry(RunModel(settings, structure(), "flexible", tree, []), nothing, False)
        assert [stage.system for stage in stages] == [None if rigid else "flexible"]
    assert asked == [(("tip3p", "amber19"), {"cutoff": 0.7, "rigid_water": True})]
    monkeypatch.setattr(module, "find_waters", lambda structure: np.array([False]))
    stages.clear()
    find_reference_geometry(RunModel(settings_of(), structure(), "flexible", tree, []), nothing, False)
    assert stages[0].system == "flexible" and len(asked) == 1
