"""Times of a run, told before it starts; the stages of large systems; bonds that are left out, in every output."""

from __future__ import annotations

import json

import numpy as np
import openmm
import pytest
from real_structures import DATA

import peptidyn as ptd
from peptidyn.cli import main
from peptidyn.runs import estimates
from peptidyn.runs import model as run_model
from peptidyn.runs.estimates import describe_times, duration, measure_force, measure_motion
from peptidyn.runs.model import find_reference_geometry, make_model
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.settings import RunSettings

pytestmark = pytest.mark.usefixtures("blank_pictures")

ALA1 = str(DATA / "ala1.pdb")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89.0, "89 s"), (91.0, "2 min"), (5399.0, "90 min"), (5401.0, "1.5 hours"), (129599.0, "36.0 hours"),
     (129601.0, "1.5 days"), (864000.0, "10.0 days"), (3.15576e8, "10.0 years")],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_microsecond_says_days(capsys, tmp_path, monkeypatch):
    """The line comes before the first stage; measured times of 1 ms and 0.5 ms are put in."""
    monkeypatch.setattr(estimates, "measure_force", lambda model: 1e-3)
    monkeypatch.setattr(estimates, "measure_motion", lambda model: 5e-4)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("peptidyn.runs.run.find_reference_geometry", stop)
    assert main(["run", ALA1, "--time", "1us", "--solvent", "vacuum", "-o", str(tmp_path / "x")]) == 130
    # 1.25e8 steps of 1.5 ms, 1000 relaxing forces of 1 ms, 200 iterations
    assert (
        "expected on this machine: relaxing up to 1 s, minimising 0 s, equilibrating 0 s, simulating 2.2 days "
        "(1.5 ms per step)"
    ) in capsys.readouterr().out


def test_replicas_share_the_workers(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(estimates, "measure_force", lambda model: 1e-3)
    monkeypatch.setattr(estimates, "measure_motion", lambda model: 1e-3)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("peptidyn.runs.exchange.find_reference_geometry", stop)
    options = ["--replicas", "4", "--iterations", "432000", "--workers", "2", "--solvent", "vacuum", "--no-relax"]
    assert main(["exchange", ALA1, *options, "-o", str(tmp_path / "x")]) == 130
    # 4 replicas, 432,000 stretches of 100 steps of 2 ms, on 2 workers
    assert "expected on this machine: simulating 2.0 days (2 ms per step)" in capsys.readouterr().out


def test_short_runs_measure_nothing(monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(estimates, "measure_force", fail)
    settings = RunSettings(file=ALA1, solvent="vacuum")
    model = make_model(settings, prepare_structure(settings))
    assert describe_times(model, {"simulating": settings.n_steps}) is None


def test_times_of_water_with_a_virtual_site(monkeypatch):
    monkeypatch.setattr(estimates, "WORTH_MEASURING", 0)
    monkeypatch.setattr(estimates, "LONG", 0.0)
    water = RunSettings(file=ALA1, solvent="tip4pew", padding=0.1, cutoff=0.5, seed=1)
    model = make_model(water, prepare_structure(water))
    assert "simulating" in describe_times(model, {"simulating": 10})


def test_times_are_measured_on_the_model():
    """A force of many atoms takes longer than one of few; a motion is timed without them."""
    settings = RunSettings(file=ALA1, solvent="vacuum", platform="Reference")
    model = make_model(settings, prepare_structure(settings))
    assert 0 < measure_force(model) < 1 and 0 < measure_motion(model) < 1


@pytest.mark.parametrize("cutoff", [None, 1.5])
def test_large_systems_are_relaxed_in_two_stages(monkeypatch, cutoff):
    """Most iterations have a cutoff; those with all forces are few, and end where thermal forces are larger anyway."""
    settings = RunSettings(file=str(DATA / "all20.pdb"), solvent="obc2", platform="Reference", cutoff=cutoff)
    model = make_model(settings, prepare_structure(settings))
    monkeypatch.setattr(run_model, "LARGE", 100)
    calls = []

    def minimise(context, tolerance, iterations, watch):
        kinds = {type(f).__name__: f for f in context.getSystem().getForces()}
        forces = kinds["NonbondedForce"]
        reach = forces.getCutoffDistance()._value if forces.getNonbondedMethod() else None
        calls.append(("GBSAOBCForce" in kinds, reach, tolerance, iterations))
        openmm.LocalEnergyMinimizer.minimize(context, tolerance, 5)
        return 0.0

    monkeypatch.setattr(run_model, "minimise_cartesian", minimise)
    said: list[str] = []
    geometry = find_reference_geometry(model, said.append, False)
    assert calls == [(False, 1.0, 50.0, 1000), (True, cutoff, 50.0, 60)]
    assert np.abs(geometry - model.structure.positions).max() > 1e-3 and "near atoms only" in said[0]


@pytest.mark.parametrize("solvent", ["obc2", "gbn2", "vacuum"])
def test_a_cutoff_in_implicit_solvent(solvent):
    """Energy and forces are those of OpenMM's own files with CutoffNonPeriodic."""
    from openmm import app, unit

    structure = ptd.load_structure(DATA / "all20.pdb")
    files = ["amber14-all.xml", *([f"implicit/{solvent}.xml"] if solvent != "vacuum" else [])]
    options = {"nonbondedMethod": app.CutoffNonPeriodic, "nonbondedCutoff": 0.9 * unit.nanometer}
    theirs = app.ForceField(*files).createSystem(structure.topology, **options)
    for force in theirs.getForces():
        if isinstance(force, openmm.NonbondedForce):
            force.setReactionFieldDielectric(1.0)
    results = []
    for system in (theirs, ptd.make_system(structure.topology, solvent, cutoff=0.9)):
        integrator, platform = openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference")
        context = openmm.Context(system, integrator, platform)
        context.setPositions(structure.positions)
        state = context.getState(energy=True, forces=True)
        results.append((state.getPotentialEnergy()._value, state.getForces(asNumpy=True)._value))
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-6)
    assert np.abs(results[1][1] - results[0][1]).max() < 1e-3


def test_a_cutoff_on_the_command_line(capsys, tmp_path):
    options = ["--cutoff", "0.8", "--steps", "2", "--report", "1", "--equilibrate", "0ps", "--no-relax"]
    assert main(["run", ALA1, *options, "-o", str(tmp_path / "x")]) == 0
    summary = json.loads((tmp_path / "x" / "summary.json").read_text())
    assert summary["settings"]["cutoff"] == 0.8 and "cutoff 0.8 nm" in capsys.readouterr().out


def test_bonds_left_out_are_told_everywhere(capsys, tmp_path):
    """The loop between two frozen parts is cut at one bond: run, inspect, summary and report say so."""
    file = tmp_path / "x.pdb"
    ptd.build_peptide("A" * 7).write(file)
    rigid = "resid 1 to 2 or resid 6 to 7"
    folder = tmp_path / "x"
    options = ["--rigid", rigid, "--solvent", "vacuum", "--steps", "4", "--report", "2", "--equilibrate", "0ps"]
    assert main(["run", str(file), *options, "-o", str(folder)]) == 0
    out = capsys.readouterr().out
    sentence = "1 bond that closes a loop is left out of the tree and held by the force field: chain A, residue ALA"
    assert sentence in out
    assert any(sentence in note for note in json.loads((folder / "summary.json").read_text())["notes"])
    assert main(["report", str(folder), "-q"]) == 0
    assert sentence in (folder / "report.html").read_text()
    assert main(["inspect", str(file), "--rigid", rigid]) == 0
    assert "Bonds left out of the tree (they would close loops; the force field holds them)" in capsys.readouterr().out
