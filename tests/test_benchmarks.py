"""Benchmarks: what they compute from times, what they cover, what they write. Times themselves are never judged."""

from __future__ import annotations

import gc
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import backbone_barrier
import cold_start
import drift_tolerance
import dynamics
import endurance
import exchange_speed
import fixman
import fuzz
import harness
import kernels
import kinetic_metric
import memory
import mutants
import one_core
import peers
import pressure
import run_all
import sampling_efficiency
import solvers
import step_cost
import time_steps
from engines import ForwardDynamics
from harness import Timing, growth_exponent, interleave
from molecules import constrained_system, context, polyalanine
from peptidyn.cli import main
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.systems import make_system
from peptidyn.io.peptides import build_peptide
from peptidyn.metric.fixman_weights import fixman_weights
from peptidyn.model.kinematics import BEND, STRETCH
from peptidyn.solvers import protocol
from peptidyn.solvers.articulated import ArticulatedSolver
from peptidyn.solvers.dense import mass_matrix
from peptidyn.solvers.protocol import get_solver, list_solvers
from peptidyn.solvers.spatial_dynamics import ALGORITHMS
from solvers import CHOLESKY, DENSE

SCRIPTS = (
    backbone_barrier, cold_start, drift_tolerance, dynamics, endurance, exchange_speed, fixman, fuzz, kernels,
    kinetic_metric, memory, mutants, one_core, peers, pressure, sampling_efficiency, solvers, step_cost, time_steps,
)  # fmt: skip
BENCHMARKS = Path(harness.__file__).parent
ROOT = BENCHMARKS.parent


@pytest.fixture(autouse=True)
def _one_call_per_turn(monkeypatch):
    monkeypatch.setattr(harness, "BURST", 0.0)


# ---------------------------------------------------------------------------- exponents


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5, 3.0])
def test_exponent_of_a_power(power):
    n = np.array([300, 700, 1000, 3000])
    assert growth_exponent(n.tolist(), (4e-6 * n**power).tolist()) == pytest.approx(power, abs=1e-12)


def test_exponent_counts_the_last_decade_only():
    assert growth_exponent([3, 30, 299, 300, 3000], [9.0, 5.0, 77.0, 1.0, 100.0]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("sizes", "seconds"), [([], []), ([100], [1.0]), ([10, 1000], [1.0, 2.0]), ([100, 300], [0.0, 1.0])]
)
def test_no_exponent(sizes, seconds):
    assert growth_exponent(sizes, seconds) is None


def test_report_from_known_times(monkeypatch):
    def measured(tasks, rounds):
        """Times that follow from (quantity, method, torsions)."""
        seconds = {
            (what, name, n): 1e-9 * n**3 if name in (DENSE, CHOLESKY) else 5e-5 + 3e-7 * n for what, name, n in tasks
        }
        return {key: Timing(t, 2.0 * t, 3.0 * t, rounds) for key, t in seconds.items()}

    monkeypatch.setattr(harness, "interleave", measured)
    monkeypatch.setattr(solvers, "DENSE_LIMIT", 30)
    report = {"sizes": [10, 30, 100], "repeats": 1, **solvers.measure([10, 30, 100], repeats=1)}
    udu, dense = report["solve"]["udu"], report["solve"]["dense"]
    assert udu["n"] == [10, 30, 100] and dense["n"] == [10, 30]
    assert udu["cpu"] == pytest.approx([5.3e-5, 5.9e-5, 8e-5])
    assert udu["wall"] == pytest.approx([1.06e-4, 1.18e-4, 1.6e-4])
    assert udu["fixed"] == pytest.approx(5.06e-5)
    assert udu["per_torsion"] == pytest.approx(3e-7)
    # 5e-5 + 3e-7 n is far from a power; without the time of two torsions it is proportional to n - 2
    assert udu["exponent"] < 0.3
    assert udu["exponent_beyond_fixed"] == pytest.approx(growth_exponent([10, 30, 100], [8.0, 28.0, 98.0]))
    assert dense["exponent"] == pytest.approx(3.0)
    assert udu["dense_ratio"] == pytest.approx(1e-9 * 30**3 / 5.9e-5)
    assert udu["cholesky_ratio"] == pytest.approx(1e-9 * 100**3 / 8e-5)
    text = solvers.tables(report)
    assert row_of(text, "udu")[1:6] == ["0.053", "0.059", "0.080", "50.6", "0.300"]
    assert row_of(text, "dense")[1:4] == ["0.001", "0.027", "-"]
    assert "wall / CPU, largest over all rows: 2.00" in text


def row_of(text, name):
    """Return the cells of the first row that begins with `name`."""
    rows = ([part.strip() for part in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|")
    return next(row for row in rows if row[0] == name)


# ---------------------------------------------------------------------------- harness


def test_rounds_are_interleaved():
    calls = []
    tasks = {name: lambda name=name: calls.append(name) for name in "abc"}
    timings = interleave(tasks, 4)
    assert "".join(calls) == "abc" * 4
    assert {t.calls for t in timings.values()} == {4}


def test_minimum_and_median():
    readings = iter([0.0, 5.0, 10.0, 13.0, 20.0, 21.0])
    timing = interleave({"task": lambda: None}, 3, cpu_clock=lambda: next(readings))["task"]
    assert timing.cpu == 1.0
    assert 0.0 <= timing.wall <= timing.median


def test_slow_tasks_leave_the_rounds(monkeypatch):
    monkeypatch.setattr(harness, "BUDGET", 1e-12)
    calls = []
    interleave({"slow": lambda: calls.append(1)}, 5)
    assert len(calls) == 1


def test_garbage_collection_comes_back():
    def fail():
        assert not gc.isenabled()
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interleave({"task": fail}, 1)
    assert gc.isenabled()


def test_load_may_be_unknown(monkeypatch):
    monkeypatch.delattr("os.getloadavg")
    assert harness.load() is None
    assert "load: not known" in harness.describe_machine({"machine": harness.machine(), "load": [None, None]})


def test_table():
    assert harness.table(["n", "time, µs"], [["a long name", harness.cell(1234.56)], ["b", harness.cell(None)]]) == (
        "| n           | time, µs |\n"
        "| ----------- | -------: |\n"
        "| a long name |  1,234.6 |\n"
        "| b           |        - |"
    )  # fmt: skip
    assert harness.cell(2.5e-6, 2, 1e6) == "2.50"


def test_sizes_of_the_command_line():
    assert harness.sizes("100,9,10,30") == [10, 30, 100]


# ---------------------------------------------------------------------------- molecules and engines


def test_polyalanine():
    tree, state = polyalanine(12)
    assert tree.n_torsions == 12 and tree.n_dof == 18
    assert 0.01 < np.abs(state.torsions - tree.reference.torsions).max() < 1.0
    assert np.array_equal(polyalanine(12)[1].q, state.q)


def test_openmm_alone_has_the_same_forces():
    """All of them but bonds of hydrogens, which are constrained."""
    structure = build_peptide("AA")
    free = make_system(structure.topology, "obc2")
    held = constrained_system(structure.topology, free, 1.5)
    hydrogen = structure.masses < 1.1
    assert held.getNumConstraints() == hydrogen.sum()
    before, after = ([s.getParticleMass(i)._value for i in range(s.getNumParticles())] for s in (free, held))
    assert np.allclose(np.array(after)[hydrogen], 1.5) and sum(after) == pytest.approx(sum(before))
    for system in (free, held):
        for force in system.getForces():
            force.setForceGroup(1 if force.getName() == "HarmonicBondForce" else 0)
    forces = []
    for system in (free, held):
        place = context(system)
        place.setPositions(structure.positions)
        forces.append(place.getState(forces=True, groups={0}).getForces(asNumpy=True)._value)
    assert np.abs(forces[0] - forces[1]).max() < 1e-6 * np.abs(forces[0]).max()


def test_mass_matrix_from_momenta():
    tree, state = polyalanine(12)
    M = mass_matrix(tree, state)
    assert np.abs(solvers.given_mass_matrix(tree, state) - M).max() < 1e-12 * np.abs(M).max()


def test_forward_dynamics_in_one_call():
    tree, state = polyalanine(12)
    rng = np.random.default_rng(1)
    q = state.q + 0.1 * rng.standard_normal((3, 12))
    v, tau = rng.standard_normal((2, 3, tree.n_dof))
    forward = ForwardDynamics(tree, state)
    many = forward.many(q, v, tau)
    for s, answer in enumerate(many):
        expected = get_solver("dense").accelerations(tree, state.replace(q=q[s]), v[s], tau[s])
        assert np.linalg.norm(answer - expected) < 1e-9 * np.linalg.norm(expected)
        assert np.linalg.norm(forward.one(q[s], v[s], tau[s]) - answer) < 1e-12 * np.linalg.norm(expected)


def test_other_engines_give_the_same_accelerations():
    report = peers.measure([10, 30], repeats=1)
    assert report["missing"] == []
    assert [row["n"] for row in report["rows"][:2]] == [10, 30]
    assert 10 < report["rows"][2]["n"] <= 30
    for row in report["rows"]:
        assert row["difference"]["Pinocchio"] < 1e-9 and row["difference"]["MuJoCo"] < 1e-8
    cpu, ratios = report["rows"][0]["cpu"], report["rows"][0]["ratios"]
    best = min(cpu["pinocchio.aba WORLD"], cpu["pinocchio.aba LOCAL"])
    assert ratios["kernels / faster pinocchio.aba"] == pytest.approx(cpu["peptidyn kernels"] / best)
    assert ratios["kernels / mj_forward"] == pytest.approx(cpu["peptidyn kernels"] / cpu["mujoco.mj_forward"])


def test_an_engine_that_is_not_installed_is_left_out(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    assert peers.main(["--sizes", "10", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    assert "MuJoCo left out" in out and "pip install mujoco" in out
    assert row_of(out, "kernels / mj_forward")[1:3] == ["-", "-"]
    monkeypatch.setitem(sys.modules, "pinocchio", None)
    assert peers.main(["--sizes", "10", "--repeats", "1"]) == 2
    assert "pip install pin mujoco" in capsys.readouterr().err


# ---------------------------------------------------------------------------- coverage of the reports


def test_every_solver_is_in_the_table(monkeypatch):
    class Newcomer(ArticulatedSolver):
        name = "newcomer"

    monkeypatch.setitem(protocol._LOADED, "newcomer", Newcomer())
    monkeypatch.setattr(solvers, "DENSE_LIMIT", 4)
    report = {"sizes": [4, 20], "repeats": 1, **solvers.measure([4, 20], repeats=1)}
    assert set(report["solve"]) == {*list_solvers(), CHOLESKY}
    assert "newcomer" in report["solve"]
    assert {f"spatial-operator:{name}" for name in ALGORITHMS} < set(report["forward_dynamics"])
    assert {"articulated", "fixman", "fixman-points", "udu", "virtual-work"} < set(report["forward_dynamics"])
    for row in (*report["solve"].values(), *report["forward_dynamics"].values()):
        assert len(row["n"]) == len(row["cpu"]) == len(row["wall"]) == len(row["first_call"])
        assert all(math.isfinite(t) and t > 0 for t in row["wall"])
    assert max(report["log_det_spread"]) < 1e-9
    text = solvers.tables(report)
    for name in (*list_solvers(), CHOLESKY, "spatial-operator:fd3"):
        assert row_of(text, name)


def test_fixman_report():
    report = {"repeats": 1, **fixman.measure([20], repeats=1, frames=210)}
    (part,) = report["potential"]
    batch, single, ratios = part["batch"], part["single"], part["ratios"]
    assert part["log_det_difference"] < 1e-9
    assert ratios["value + gradient / value"] == pytest.approx(batch["value + gradient"] / batch["value"])
    assert ratios["value / forward dynamics"] == pytest.approx(batch["value"] / batch["forward dynamics"])
    assert ratios["NumPy, M given / value"] == pytest.approx(single[fixman.SLOGDET] / single["value"])
    trajectory = report["trajectory"]
    assert trajectory["frames"] == [21, 210] and trajectory["residues"] == 20
    # index, time, ln det, energy and misfit, and 40 torsions: results alone grow with the number of frames
    assert list(trajectory["result_bytes"]) == [8 * 45 * 21, 8 * 45 * 210]
    assert all(np.greater(trajectory["traced_peak_bytes"], trajectory["result_bytes"]))
    text = fixman.tables(report)
    for phrase in ("value + gradient", "at most 2.2", "frames/s"):
        assert phrase in text


def test_trajectory_frames_are_rigid(tmp_path):
    tree, state = polyalanine(8)
    fixman.write_trajectory(tree, state, 7, tmp_path / "x.xtc")
    weights = fixman_weights(tree, tmp_path / "x.xtc", 300.0)
    assert len(weights) == 7 and not weights.deformed.any()
    assert weights.time.tolist() == list(range(7))


def test_kernels_report():
    report = {"sizes": [8, 16], "repeats": 1, **kernels.measure([8, 16], repeats=1)}
    seconds = report["seconds"]
    assert report["step_ratio"][1] == pytest.approx(seconds[kernels.STEP][1] / seconds[kernels.DYNAMICS][1])
    # a step less its force call is a difference of two times: on a busy machine it may come out below zero
    assert all(t > 0 for name, row in seconds.items() if name != kernels.STEP for t in row)
    text = kernels.tables(report)
    assert f"at most {12 ** math.log10(2):.3g}" in text
    assert all(len(row_of(text, name)) == 5 for name in seconds)
    assert row_of(kernels.tables({"sizes": [8], "repeats": 1, **kernels.measure([8], repeats=1)}), "ln det M")[2] == "-"


# ---------------------------------------------------------------------------- scripts


def run_script(script, arguments, suffixes, capsys, folder):
    """Run a script as from the command line; return its report from the file."""
    assert script.main([*arguments.split(), "-o", str(folder)]) == 0
    name = script.__name__
    files = {path.suffix[1:]: path for path in folder.iterdir() if path.is_file()}
    assert sorted(files) == suffixes.split()
    assert {path.stem for path in files.values()} == {name}
    report = json.loads(files["json"].read_text())
    assert report["benchmark"] == name and "numba" in report["machine"] and len(report["load"]) == 2
    text = capsys.readouterr().out
    assert files["md"].read_text() == text
    # what is written holds all that is said
    assert text == f"{script.tables(report)}\n\n{harness.describe_machine(report)}\n"
    if "png" in files:
        assert files["png"].read_bytes().startswith(b"\x89PNG") and files["png"].stat().st_size > 10_000
    return report


@pytest.mark.parametrize(
    ("script", "arguments", "suffixes"),
    [
        pytest.param(solvers, "--sizes 4,10 --repeats 1", "json md png", id="solvers"),
        pytest.param(fixman, "--sizes 10 --frames 20 --repeats 1", "json md", id="fixman"),
        pytest.param(kernels, "--sizes 8 --repeats 1", "json md png", id="kernels"),
        pytest.param(peers, "--sizes 10 --repeats 1", "json md png", id="peers"),
        pytest.param(memory, "--boxes 2.6", "json md", id="memory", marks=pytest.mark.slow),
        pytest.param(pressure, "--sides 2 --time 0.5", "json md", id="pressure", marks=pytest.mark.slow),
        pytest.param(backbone_barrier, "--step 120", "json md", id="backbone_barrier"),
        pytest.param(one_core, "--sizes 1 --repeats 1", "json md", id="one_core"),
        pytest.param(drift_tolerance, "--steps 60 --trajectories 2", "json md", id="drift_tolerance"),
        pytest.param(endurance, "--steps 2000", "json md", id="endurance"),
        pytest.param(
            time_steps, "data/ala1.pdb --steps 4 --time 0.2ps --proposals 2 --threads 1", "json md", id="time_steps"
        ),
    ],
)
def test_script(script, arguments, suffixes, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    run_script(script, arguments, suffixes, capsys, tmp_path / "new" / "out")


@pytest.mark.slow
def test_dynamics(capsys, tmp_path, monkeypatch):
    for name, value in {"TRIAL_STEPS": (0.008,), "PROPOSALS": 20, "SHARE_RESIDUES": 3, "SPEED_RESIDUES": 2}.items():
        monkeypatch.setattr(dynamics, name, value)
    report = run_script(dynamics, "--repeats 1", "json md png", capsys, tmp_path)
    seconds = report["share"]["seconds"]
    assert report["share"]["share"] == pytest.approx(1 - seconds["force call"] / seconds["step"])
    for part in report["speed"]:
        # twice the step of LangevinMiddle
        assert part["ratio"]["torsions"] == pytest.approx(
            0.5 * part["seconds"]["torsions"] / part["seconds"]["LangevinMiddle"]
        )


def test_sampling_efficiency(capsys, tmp_path, monkeypatch):
    chosen = {name: sampling_efficiency.METHODS[name] for name in (sampling_efficiency.REFERENCE, "torsions, HMC")}
    monkeypatch.setattr(sampling_efficiency, "METHODS", chosen)
    monkeypatch.setattr(sampling_efficiency, "find_steps", lambda *_: [0.01])  # tested in test_sampling_efficiency.py
    monkeypatch.setitem(sampling_efficiency.SIZES, "quick", (0.25, 0.001))
    report = run_script(sampling_efficiency, "--molecule alanine --quick", "json md png", capsys, tmp_path)
    (molecule,) = report["molecules"].values()
    assert molecule["chains"] == 2 and set(molecule["methods"]) == set(chosen)
    assert len(list((tmp_path / "chains").iterdir())) == 4


def test_kinetic_metric(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(kinetic_metric, "WARM_UP", 0.08)
    options = "--physical 1 --steps 16 --periods 12 --langevin 16 --proposals 5 --frames 20 --preset flexible"
    report = run_script(
        kinetic_metric, f"{ROOT / 'data' / 'ala1.pdb'} {options}", "json md png", capsys, tmp_path
    )  # fmt: skip
    assert [row["period"] for row in report["acceptance"]] == [None, 12.0]
    reference, flexible = report["averages"]["rows"]
    assert reference["V"][1] == reference["bond mean"][0] == 0.0 and reference["bond width"][0] == pytest.approx(1.0)
    assert set(flexible["temperature"]) == {"all", "torsions", "phases", "angles", "bonds"}


@pytest.mark.slow
def test_configurational_temperature():
    """Coordinates drawn from the exact distribution of one stiff bond length and angle give the temperature back."""
    structure = build_peptide("A")
    system = make_system(structure.topology, "vacuum")
    molecule = kinetic_metric.Molecule(structure.topology, system, structure.positions)
    tree, rng, kT = molecule.trees["flexible"], np.random.default_rng(1), 2.494
    frames = kinetic_metric.Frames(molecule, tree)
    k = np.where(tree.measure == STRETCH, 2e4, 60.0)  # soft enough for the Jacobians to matter
    centre = tree.q_reference + 0.05 * rng.standard_normal(tree.n_coordinates) * (tree.measure != STRETCH)
    q = centre + rng.standard_normal((60_000, tree.n_coordinates)) * np.sqrt(kT / k)
    weight = np.where(tree.measure == STRETCH, q**2, np.where(tree.measure == BEND, np.maximum(np.sin(q), 0.0), 1.0))
    for i in range(tree.n_coordinates):  # the density of each coordinate is J exp(-V/kT), by resampling
        q[:, i] = rng.choice(q[:, i], len(q), p=weight[:, i] / weight[:, i].sum())
    frames.q, frames.torque = list(q), list(-k * (q - centre))
    for name, (value, error) in frames.temperatures().items():
        assert error < 4.0, name
        assert abs(value - kT / BOLTZMANN) < 5 * error, name


def test_step_cost(capsys, tmp_path, monkeypatch):
    for name, value in {"MOLECULES": {"capped alanine": 1}, "THREADS": (1,), "RESIDUES": (1, 2)}.items():
        monkeypatch.setattr(step_cost, name, value)
    monkeypatch.delenv("PEPTIDYN_STRUCTURES", raising=False)
    kept = step_cost.motions.run_range, step_cost.cycles.run_cycles
    report = run_script(step_cost, "--repeats 1", "json md", capsys, tmp_path)
    assert (step_cost.motions.run_range, step_cost.cycles.run_cycles) == kept
    one = report["molecules"]["capped alanine"]
    assert one["coordinates"] == 60 and one["drift_per_coordinate"] > 0 and one["python"] > 0
    growth = report["growth"]
    assert growth["coordinates"] == {"Ala1": 60, "Ala2": 90}
    assert growth["exponent"] == pytest.approx(
        math.log(growth["seconds"]["Ala2"] / growth["seconds"]["Ala1"]) / math.log(1.5)
    )


def test_exchange_speed(capsys, monkeypatch):
    """With one model and threads in place of processes; one process can be busy all the time, and use one core."""
    model = "torsions, GHMC 8 fs"
    monkeypatch.setattr(exchange_speed, "MODELS", {model: exchange_speed.MODELS[model]})
    monkeypatch.setattr(exchange_speed, "REPLICAS", 2)
    backend = exchange_speed.make_backend
    monkeypatch.setattr(exchange_speed, "make_backend", lambda kind, workers: backend("threads", workers))
    found = exchange_speed.measure(workers=2, repeats=1, iterations=1)
    for wall, cores, busy in found["models"][model].values():
        assert wall > 0 and cores > 0 and 0 < busy <= 1
    monkeypatch.setattr(exchange_speed, "measure", lambda **options: found)
    assert exchange_speed.main(["--repeats", "1"]) == 0
    out = capsys.readouterr().out
    assert "2 processes" in out and "relative" in out and "1.00" in out


def test_cold_start_report(monkeypatch):
    """Processes are not started here: the first imports, the second compiles, the quickest of the others counts."""
    wall = iter([0.01, 30.0, 3.0, 2.0, 2.5])

    def child(code, cache):
        what = "import peptidyn" if code is cold_start._IMPORT else "start, to here"
        return {what: [t := next(wall), 0.5 * t]}

    monkeypatch.setattr(cold_start, "child", child)
    report = cold_start.measure(repeats=3)
    assert report["starts"] == [2.0, 2.5, 3.0]
    text = cold_start.tables(report)
    assert row_of(text, "start, to here")[1:] == ["30.00", "15.00", "2.00", "1.00"]
    assert "median of 3 starts with a filled cache: 2.50 s" in text


@pytest.mark.slow
def test_a_long_flexible_run_keeps_its_temperature_and_its_memory():
    """10^5 steps; the tolerance is six times the error that the blocks of such a run show."""
    report = endurance.measure(steps=100_000)
    assert report["stopped"] is None and report["steps_made"] == 100_000
    assert report["temperature"][0] == pytest.approx(300.0, rel=0.06)
    first, last = report["memory_MB"][0], report["memory_MB"][-1]
    assert last is None or last - first < 5.0


@pytest.mark.slow
def test_cold_start_runs():
    """The code of the child processes, with the compiled code that is there."""
    import numba

    compiled = numba.config.CACHE_DIR
    times = cold_start.child(cold_start._IMPORT, compiled) | cold_start.child(cold_start._FIRST_CALLS, compiled)
    assert {"import peptidyn", "start, to here", *(f"solver {name}" for name in list_solvers())} <= set(times)
    assert all(len(pair) == 2 and pair[0] >= 0 for pair in times.values())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_script_says_its_question_and_its_command(script):
    assert "?" in script.__doc__.split("\n\n")[0]
    assert f"python benchmarks/{script.__name__}.py" in script.__doc__


def test_every_script_is_tested_and_run():
    helpers = {
        "harness", "molecules", "engines", "pytest_server", "run_all", "sampling_report", "damage", "made_faults",
        "line_tests",
    }  # fmt: skip
    names = {script.__name__ for script in SCRIPTS}
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == names | helpers
    assert {*run_all.ROUNDS, *run_all.OTHERS, *run_all.LONG} == names


def test_run_all(capfd, tmp_path, monkeypatch):
    for kind, names in {"ROUNDS": ("kernels", "peers"), "OTHERS": ()}.items():
        monkeypatch.setattr(run_all, kind, names)
    fake = tmp_path / "scripts"
    fake.mkdir()
    for name, status in (("kernels", 0), ("peers", 2)):
        (fake / f"{name}.py").write_text(f"import sys; print({name!r}, *sys.argv[1:]); sys.exit({status})")
    monkeypatch.setattr(run_all, "HERE", fake)
    assert run_all.main(["there", "--repeats", "3"]) == 1
    out, err = capfd.readouterr()
    assert "kernels -o there --repeats 3\n" in out and "peers -o there --repeats 3\n" in out
    assert "failed: peers\n" in err


@pytest.mark.parametrize(
    ("script", "arguments", "phrase"),
    [
        (solvers, ["--sizes", "10,x"], "--sizes"),
        (solvers, ["--sizes", "0"], "0 is less than 1"),
        (solvers, ["--repeats", "0"], "0 is less than 1"),
        (solvers, ["-o", "file"], "File exists"),
        (fixman, ["--frames", "3"], "3 is less than 10"),
        (peers, ["--sizes", "3000"], "32 n^3"),
        (time_steps, ["missing.pdb"], "missing.pdb"),
        (sampling_efficiency, ["--chains", "3"], "even"),
        (sampling_efficiency, ["--method", "nothing"], "expected a part of"),
        (kinetic_metric, ["--preset", "nothing"], "expected a part of"),
        (kinetic_metric, ["--frames", "3"], "at least 20"),
    ],
)
def test_errors(capsys, tmp_path, monkeypatch, script, arguments, phrase):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    try:
        status = script.main(arguments)
    except SystemExit as stop:  # argparse
        status = stop.code
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and phrase in err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_missing_matplotlib_is_found_first(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert kernels.main(["--sizes", "8", "--repeats", "1", "-o", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "matplotlib" in err and list(tmp_path.iterdir()) == []


def test_bench_is_no_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", "solvers"])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert "invalid choice: 'bench'" in err and "inspect" in err
