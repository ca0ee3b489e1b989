"""Checkpoints: what they refuse, and that a refusal changes nothing."""

from __future__ import annotations

import json

import numpy as np
import openmm
import pytest
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import CheckpointError
from peptidyn.engine import checkpoints


@pytest.fixture(scope="module")
def alanine():
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = ptd.make_system(structure.topology, "vacuum")
    return ptd.Structure.from_openmm(structure.topology, system, structure.positions), system


def simulation_of(alanine, kind=ptd.TorsionLangevinIntegrator, temperature=300.0, friction=5.0, barostat=False, **more):
    structure, system = alanine
    if barostat:
        system = openmm.XmlSerializer.clone(system)
        system.setDefaultPeriodicBoxVectors(*(3.0 * np.eye(3)))
        for force in system.getForces():
            if isinstance(force, openmm.NonbondedForce):
                force.setNonbondedMethod(force.CutoffPeriodic)
        system.addForce(openmm.MonteCarloBarostat(1.0, temperature, 100))
    tree = ptd.build_tree(structure, "phi psi methyl")
    integrator = kind(tree, temperature, friction, 0.002, **{"seed": 1, "fixman": False, **more})
    return ptd.TorsionSimulation(structure.topology, system, integrator, "Reference")


def snapshot(simulation):
    """Return all that a checkpoint may change, as text."""
    state, momentum = simulation.integrator.motion()
    context = simulation.context
    return json.dumps([
        state.q.tolist(), state.base_position.tolist(), state.base_rotation.tolist(), momentum.tolist(),
        np.array(context.getState().getPeriodicBoxVectors(asNumpy=True)._value).tolist(), context.getTime()._value,
        context.getStepCount(), simulation.integrator.rng.bit_generator.state, simulation.integrator.counters,
        simulation.tree.fingerprint, simulation.reference_geometry is None,
    ])  # fmt: skip


@pytest.fixture
def stored(alanine, tmp_path):
    """The description and the arrays of a checkpoint, and a function that writes them with changes."""
    simulation = simulation_of(alanine)
    simulation.step(3)
    simulation.context.setPeriodicBoxVectors(*(3.0 * np.eye(3)))
    simulation.save_checkpoint(tmp_path / "whole.npz")
    about, arrays = checkpoints.read(tmp_path / "whole.npz")

    def write(about_changes=None, **array_changes):
        checkpoints.write(
            tmp_path / "c.npz", "simulation", {**about, **(about_changes or {})}, {**arrays, **array_changes}
        )
        return tmp_path / "c.npz"

    return about, arrays, write


def refused(simulation, path, match):
    before = snapshot(simulation)
    with pytest.raises(CheckpointError, match=match):
        simulation.load_checkpoint(path)
    assert snapshot(simulation) == before


def test_what_is_stored_comes_back(alanine, stored):
    """Except where it was changed, as a check that loading does something."""
    about, arrays, write = stored
    simulation = simulation_of(alanine, seed=2)
    before = snapshot(simulation)
    simulation.load_checkpoint(write({"time": 0.125, "step": 77}))
    state, momentum = simulation.integrator.motion()
    for name in ("q", "base_position", "base_rotation"):
        assert np.array_equal(getattr(state, name), arrays[name])
    assert np.array_equal(momentum, arrays["momentum"]) and momentum.any()
    assert simulation.context.getTime()._value == 0.125 and simulation.currentStep == 77
    assert simulation.context.getState().getPeriodicBoxVolume()._value == pytest.approx(27.0)
    assert simulation.integrator.rng.bit_generator.state == about["rng"]
    assert simulation.reference_geometry is None and snapshot(simulation) != before


@pytest.mark.parametrize("name", ["momentum", "q", "base_position", "base_rotation"])
def test_arrays_of_another_shape_are_refused_and_change_nothing(alanine, stored, name):
    _, arrays, write = stored
    refused(simulation_of(alanine, seed=2), write(**{name: arrays[name][..., :-1]}), "is damaged")


def test_numbers_that_are_not_finite_are_refused(alanine, stored):
    _, arrays, write = stored
    for name in ("momentum", "box"):
        bad = arrays[name].copy()
        bad.flat[0] = np.inf
        refused(simulation_of(alanine), write(**{name: bad}), f"{name} holds numbers that are not finite")


@pytest.mark.parametrize("name", ["temperature", "friction", "fixman", "timestep"])
def test_every_setting_must_be_the_same(alanine, stored, name):
    """Also one that only the checkpoint or only the integrator has."""
    about, _, write = stored
    simulation = simulation_of(alanine)
    settings = about["settings"]
    assert settings["friction"] == 5.0 and settings["temperature"] == 300.0 and settings["kT"] == 0.0
    other = {"temperature": 310.0, "friction": 4.0, "fixman": True, "timestep": 0.001}[name]
    refused(simulation, write({"settings": {**settings, name: other}}), f"{name} = {other} and this integrator has")
    lacking = {key: value for key, value in settings.items() if key != name}
    refused(simulation, write({"settings": lacking}), f"{name} = None and this integrator has {settings[name]}")
    refused(simulation, write({"settings": {**settings, "colour": 3}}), "colour = 3 and this integrator has None")


def test_settings_that_are_asked_for_reach_the_checkpoint(alanine, stored):
    _, _, write = stored
    refused(simulation_of(alanine, temperature=310.0), write(), "temperature = 300.0 and this integrator has 310.0")
    refused(simulation_of(alanine, friction=1.0), write(), "friction = 5.0 and this integrator has 1.0")
    refused(simulation_of(alanine, fixman=True), write(), "fixman = False and this integrator has True")


def test_a_barostat_on_one_side_only_is_refused(alanine, stored, tmp_path):
    _, _, write = stored
    with_one = simulation_of(alanine, barostat=True)
    refused(with_one, write(), "c.npz has no barostat")
    with_one.save_checkpoint(tmp_path / "p.npz")
    refused(simulation_of(alanine), tmp_path / "p.npz", "p.npz has a barostat")


def test_joint_inertias_are_taken_by_an_automatic_metric_alone(alanine, stored):
    """An integrator with a metric of its own keeps it, and refuses the checkpoint of another one."""
    about, _, write = stored
    simulation = simulation_of(alanine)
    inertia = np.linspace(0.1, 0.2, simulation.tree.n_coordinates)
    path = write({"fingerprint": simulation.tree.with_joint_inertia(inertia).fingerprint}, joint_inertia=inertia)
    refused(simulation, path, "another model")
    auto = simulation_of(alanine, metric="auto")
    auto.load_checkpoint(path)
    assert np.array_equal(auto.tree.joint_inertia, inertia)
    refused(auto, write({"fingerprint": about["fingerprint"][::-1]}), "another model")


def test_the_relaxed_geometry_comes_with_a_checkpoint(alanine, tmp_path):
    first = simulation_of(alanine)
    assert first.reference_geometry is None
    first.use_geometry(alanine[0].positions * 1.01)
    first.step(2)
    first.save_checkpoint(tmp_path / "c.npz", {"note": [1, "two"]})
    second = simulation_of(alanine, seed=4)
    assert second.load_checkpoint(tmp_path / "c.npz") == {"note": [1, "two"]}
    assert np.array_equal(second.reference_geometry, alanine[0].positions * 1.01)
    assert second.tree.fingerprint == first.tree.fingerprint and snapshot(second) == snapshot(first)


def test_files_of_other_kinds_and_versions_are_named(alanine, stored, tmp_path, monkeypatch):
    about, arrays, write = stored
    own = {name: value for name, value in about.items() if name not in ("format", "kind")}
    checkpoints.write(tmp_path / "exchange.npz", checkpoints.EXCHANGE, own, arrays)
    with pytest.raises(CheckpointError, match="a checkpoint of a replica exchange, expected one of a simulation"):
        checkpoints.read(tmp_path / "exchange.npz")
    found, _ = checkpoints.read(tmp_path / "exchange.npz", checkpoints.EXCHANGE, ("q",))
    assert found["kind"] == "replica exchange"
    here = checkpoints.FORMAT
    for version in (here - 1, here + 1):
        monkeypatch.setattr(checkpoints, "FORMAT", version)
        path = write({"format": version})
        monkeypatch.setattr(checkpoints, "FORMAT", here)
        with pytest.raises(CheckpointError, match=f"has format {version} and this version of peptidyn reads {here}"):
            checkpoints.read(path)
    with pytest.raises(CheckpointError, match="no checkpoint of this version"):
        checkpoints.read(write(), names=("q", "colour"))
    with pytest.raises(CheckpointError, match=r"there is no checkpoint .*, and so no run to resume"):
        checkpoints.read(tmp_path / "absent.npz")
