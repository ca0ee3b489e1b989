"""Presets: what is soft in them, their time steps and metrics, and dynamics with the joint inertias they bring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import openmm
import pytest
from real_structures import DATA

import peptidyn as ptd
from peptidyn.cli import make_parser
from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.kinetic_metric import LANGEVIN_STEPS
from peptidyn.io.readers import load_structure
from peptidyn.runs import model as run_model
from peptidyn.runs.model import find_reference_geometry, find_run_platform, make_integrator, make_model
from peptidyn.runs.preparation import add_water, prepare_structure
from peptidyn.runs.presets import PRESETS
from peptidyn.runs.settings import ExchangeSettings, RunSettings, resolve_settings


def fs(settings):
    return round(1e3 * settings.timestep_ps, 9)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("ensemble", ["langevin", "ghmc", "nve"])
def test_steps_and_metrics_of_presets(preset, ensemble):
    settings = resolve_settings({"preset": preset, "ensemble": ensemble})
    row = PRESETS[preset]
    physical = ensemble == "nve" or preset == "torsions"
    assert settings.metric_word == ("physical" if physical else "auto")
    assert fs(settings) == (row.physical if physical else getattr(row, ensemble))
    assert settings.timestep is None  # make_model fills it in
    assert settings.soft_words == row.soft and row.distribution in settings.distribution
    assert ("at constant energy" in settings.distribution) == (ensemble == "nve")


def test_the_metric_can_be_chosen():
    physical = resolve_settings({"preset": "flexible", "metric": "physical"})
    assert physical.metric_word == "physical" and fs(physical) == PRESETS["flexible"].physical
    constant = resolve_settings({"preset": "flexible", "metric": "auto", "ensemble": "nve"})
    assert constant.metric_word == "auto" and fs(constant) == PRESETS["flexible"].ghmc
    assert "bias of the kinetic metric" in constant.distribution
    assert fs(resolve_settings({"preset": "flexible", "timestep": 10.0})) == 10.0
    hot = resolve_settings({"preset": "flexible", "temperature": 1200.0})
    assert fs(hot) == 8.0  # half of 16: atoms are twice as fast
    assert RunSettings(soft="phi", preset="flexible").metric_word == "physical"  # words win over the preset
    with pytest.raises(ArgumentError, match="metric is 'fast', expected one of physical, auto"):
        RunSettings(metric="fast")


@pytest.mark.parametrize(
    ("soft", "step"),
    [
        ("phi psi methyl", 8.0),
        ("phi psi omega", 8.0),
        ("phi psi polar", 4.0),
        ("phi psi angles", 4.0),
        ("heavy", 1.0),
        ("phi psi bonds", 0.5),
        ("phi psi chi; all in resid 2", 0.5),
    ],
)
def test_words_have_physical_dynamics_and_the_step_of_the_nearest_preset(soft, step):
    settings = resolve_settings({"soft": soft})
    assert settings.metric_word == "physical" and fs(settings) == step
    assert soft in settings.distribution and "reference geometry" in settings.distribution
    assert fs(resolve_settings({"soft": soft, "metric": "auto"})) >= 8.0


def test_waters_stay_rigid_and_limit_the_step():
    for preset in PRESETS:
        settings = resolve_settings({"preset": preset, "solvent": "tip3p"})
        assert fs(settings) <= 4.0 and settings.soft_words.endswith("not water") == (preset in ("heavy", "flexible"))
    settings = RunSettings(preset="flexible", solvent="tip3p", padding=0.3, cutoff=0.5)
    assert "waters are rigid" in settings.distribution
    structure = ptd.build_peptide("A")
    model = make_model(settings, add_water(structure, settings))
    waters = model.tree.n_molecules - 1
    assert waters > 20
    assert model.tree.n_coordinates == 3 * structure.n_atoms - 6
    assert model.tree.n_dof == 3 * structure.n_atoms + 6 * waters
    assert model.settings.timestep == fs(settings) and not model.notes
    model.check_step()
    with pytest.raises(ArgumentError, match="water turns as a whole"):
        make_model(replace(settings, timestep=24.0), model.structure).check_step()


def test_exchange_takes_the_steps_of_metropolised_dynamics():
    settings = resolve_settings({"preset": "heavy"}, base=ExchangeSettings())
    assert fs(settings) == PRESETS["heavy"].ghmc and settings.metric_word == "auto"
    assert PRESETS["heavy"].distribution == settings.distribution
    exact = resolve_settings({"preset": "heavy", "exact": True}, base=ExchangeSettings())
    assert exact.distribution == PRESETS["flexible"].distribution


@pytest.mark.parametrize("command", ["run", "exchange"])
def test_help_names_presets_and_what_they_sample(command):
    (action,) = [a for a in make_parser()._actions if isinstance(getattr(a, "choices", None), dict)]
    text = action.choices[command].format_help()
    for name, preset in PRESETS.items():
        assert f"  {name}" in text and preset.distribution in text
    assert "rates are not physical" in text and "--metric" in text


# ---------------------------------------------------------------------------- what the settings become


@pytest.mark.parametrize("ensemble", ["langevin", "ghmc", "nve"])
def test_integrators_have_what_the_settings_say(ensemble):
    tree = ptd.build_tree(ptd.build_peptide("A"))
    given = {"temperature": 350.0, "friction": 7.0, "timestep": 3.0, "hydrogen_mass": 3.0, "fixman": True, "seed": 4}
    one, same, other = (
        make_integrator(RunSettings(ensemble=ensemble, **{**given, "seed": seed}), tree) for seed in (4, 4, 5)
    )
    found = one.settings
    assert found["timestep"] == pytest.approx(0.003) and found["kT"] == pytest.approx(BOLTZMANN * 350.0)
    assert ensemble == "nve" or (found["temperature"], found["friction"]) == (350.0, 7.0)
    assert one.tree.masses.min() == pytest.approx(3.0)
    draws = [integrator.rng.random() for integrator in (one, same, other)]
    assert draws[0] == draws[1] != draws[2]


def test_forces_and_trees_have_what_the_settings_say():
    """The cutoff, the pressure and temperature of the barostat, and what is frozen."""
    settings = RunSettings(
        file=str(DATA / "ala3.pdb"), solvent="tip3p", padding=0.1, cutoff=0.6, pressure=20.0, temperature=350.0,
        rigid=("resid 1 to 2",), seed=1,
    )  # fmt: skip
    model = make_model(settings, prepare_structure(settings))
    (nonbonded,) = (f for f in model.system.getForces() if isinstance(f, openmm.NonbondedForce))
    assert nonbonded.getCutoffDistance()._value == 0.6 and nonbonded.getNonbondedMethod() == nonbonded.PME
    (barostat,) = (f for f in model.system.getForces() if isinstance(f, openmm.MonteCarloBarostat))
    assert barostat.getDefaultPressure()._value == 20.0 and barostat.getDefaultTemperature()._value == 350.0
    assert {c.residue for c in model.tree.coordinates} == {3}
    # waters relax as rigid bodies: the System that is minimised has their constraints
    relaxed = []

    def record(settings, system, start, *rest):
        relaxed.append(system)
        return start

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_model, "_relax", record)
        find_reference_geometry(model, lambda _: None, False)
    waters = model.structure.n_residues - 5
    assert model.system.getNumConstraints() == 0 and relaxed[0].getNumConstraints() == 3 * waters > 0


def test_platforms_have_the_threads_that_are_asked_for():
    platform, properties = find_run_platform(RunSettings(threads=2), 10_000)
    assert platform.getName() == "CPU" and properties == {"Threads": "2"}
    platform, properties = find_run_platform(RunSettings(platform="Reference"), 10_000)
    assert platform.getName() == "Reference" and properties is None


def test_the_default_step_is_divided_until_loops_move_at_the_temperature_of_the_run(monkeypatch):
    """Torsions in long loops are slow at the whole step, and move at half of it."""
    asked = []

    def record(tree, system, step, *, steps_per_period, temperature):
        asked.append((step, steps_per_period, temperature))
        return np.zeros(tree.n_coordinates)

    monkeypatch.setattr(run_model, "joint_inertia", record)
    monkeypatch.setattr(run_model, "long_loops", lambda *tree: True)
    monkeypatch.setattr(run_model, "slow_torsions", lambda tree: len(asked) == 1)
    settings, tree = RunSettings(preset="angles", temperature=1200.0), ptd.bead_chain(6, 0.15, 1.9, 12.0)
    assert run_model._parts_of_step(settings, tree, None) == 2
    whole, half = asked
    assert whole == (pytest.approx(0.008), LANGEVIN_STEPS, 1200.0)  # atoms are twice as fast as at 300 K
    assert half == (pytest.approx(0.004), LANGEVIN_STEPS, 1200.0)


# ---------------------------------------------------------------------------- dynamics with joint inertias


def flexible_alanine(timestep_of_metric: float):
    structure = load_structure(DATA / "ala3.pdb")
    system = ptd.make_system(structure.topology, "obc2")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    tree = ptd.build_tree(structure, soft="all")
    return structure, system, tree, ptd.joint_inertia(tree, system, timestep_of_metric)


def test_kinetic_temperature_with_joint_inertias():
    """Inertias of 24 fs at a step of 6 fs: the kinetic bias (h w)^2 / 4 of BAOAB is below 1%.

    Over 126 degrees of freedom one reading scatters by 38 K. 100 readings at 20/ps, every 0.06 ps, are independent
    to a factor of two: 16 K are three standard errors. The tolerance of 25 K would not pass counting torsions and
    bases only (21), or a kinetic energy of the atoms alone.
    """
    structure, system, tree, inertia = flexible_alanine(0.024)
    assert tree.n_dof == 3 * structure.n_atoms == 126
    integrator = ptd.TorsionLangevinIntegrator(tree, 300.0, 20.0, 0.006, seed=3, metric=inertia)
    simulation = ptd.TorsionSimulation(structure.topology, system, integrator, "CPU", {"Threads": "1"})
    simulation.minimize_torsions(10.0, 100)
    simulation.set_velocities_to_temperature(300.0)
    simulation.step(200)
    readings = []
    for _ in range(100):
        simulation.step(10)
        readings.append(integrator.computeSystemTemperature()._value)
    assert abs(np.mean(readings) - 300.0) < 25.0
    assert np.std(readings) == pytest.approx(300.0 * np.sqrt(2 / 126), rel=0.35)


def test_the_energy_that_dynamics_with_joint_inertias_conserves():
    """Kinetic energy of atoms and inertias, V and U_F; without one of them the sum would wander by tens of kJ/mol."""
    structure, system, tree, inertia = flexible_alanine(0.024)
    integrator = ptd.TorsionVerletIntegrator(tree, 0.004, seed=3, metric=inertia, fixman=True)
    simulation = ptd.TorsionSimulation(structure.topology, system, integrator, "Reference")
    simulation.minimize_torsions(10.0, 100)
    simulation.set_velocities_to_temperature(300.0)
    simulation.step(50)
    parts = []
    for _ in range(30):
        simulation.step(5)
        parts.append((integrator.total_energy(), integrator.kinetic_energy(), integrator.fixman_energy()))
    total, kinetic, fixman = np.array(parts).T
    assert np.ptp(total) < 2.0
    assert np.ptp(kinetic) > 10.0 and np.ptp(fixman) > 0.1


def test_rotors_of_hydrogens_are_slowed_for_contacts():
    """Their bonded terms ask for less; phi and psi turn masses enough and get nothing."""
    _, _, tree, inertia = flexible_alanine(0.024)
    by_kind = {kind: inertia[[c.kind == kind for c in tree.coordinates]] for kind in ("methyl", "phi", "psi")}
    assert by_kind["methyl"] == pytest.approx(500.0 * (8 * 0.024 / (2 * np.pi)) ** 2)
    assert not by_kind["phi"].any() and not by_kind["psi"].any()
