"""Benchmarks: what they compute from times, what they cover, what they write. Times themselves are never judged."""

from __future__ import annotations

import gc
import json
import math
import sys

import numpy as np
import pytest

from peptidyn.analysis import benchmark_dynamics, benchmark_kernels, benchmark_solvers, benchmarks
from peptidyn.analysis.benchmark_fixman import format_fixman, measure_fixman, write_trajectory
from peptidyn.analysis.benchmark_solvers import CHOLESKY, DENSE, format_solvers, given_mass_matrix, measure_solvers
from peptidyn.analysis.benchmarks import Timing, check_sizes, growth_exponent, interleave, polyalanine
from peptidyn.analysis.forward_dynamics import ForwardDynamics
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, MissingDependencyError
from peptidyn.metric.fixman_weights import fixman_weights
from peptidyn.solvers import protocol
from peptidyn.solvers.articulated import ArticulatedSolver
from peptidyn.solvers.dense import mass_matrix
from peptidyn.solvers.protocol import get_solver, list_solvers
from peptidyn.solvers.spatial_dynamics import ALGORITHMS


@pytest.fixture(autouse=True)
def _one_call_per_turn(monkeypatch):
    monkeypatch.setattr(benchmarks, "BURST", 0.0)


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


def _synthetic(seconds):
    """A stand-in for `interleave` whose times follow from (quantity, method, torsions)."""

    def measured(tasks, rounds, progress=None):
        return {key: Timing(seconds(*key), 2.0 * seconds(*key), 3.0 * seconds(*key), rounds) for key in tasks}

    return measured


def test_report_from_known_times(monkeypatch):
    monkeypatch.setattr(
        benchmark_solvers,
        "interleave",
        _synthetic(lambda _, name, n: 1e-9 * n**3 if name in (DENSE, CHOLESKY) else 5e-5 + 3e-7 * n),
    )
    report = measure_solvers([10, 30, 100], rounds=1, dense_limit=30)
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
    text = format_solvers(report)
    line = next(line for line in text.splitlines() if line.startswith("udu")).split()
    assert line[1:6] == ["0.053", "0.059", "0.080", "50.6", "0.300"]
    line = next(line for line in text.splitlines() if line.startswith("dense")).split()
    assert line[1:4] == ["0.001", "0.027", "-"]
    assert "wall / CPU, largest over all rows: 2.00" in text


# ---------------------------------------------------------------------------- clocks


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
    monkeypatch.setattr(benchmarks, "BUDGET", 1e-12)
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
    assert benchmarks.load() is None
    lines = benchmarks.format_machine({"machine": benchmarks.machine(), "load": [None, None]})
    assert any("not known" in line for line in lines)


# ---------------------------------------------------------------------------- molecules and peers


def test_sizes():
    assert check_sizes([100, 9, 10, 30]) == [10, 30, 100]
    with pytest.raises(ArgumentError, match="no sizes"):
        check_sizes([])
    with pytest.raises(ArgumentError, match="a size is -3"):
        check_sizes([10, -3])


def test_polyalanine():
    tree, state = polyalanine(12)
    assert tree.n_torsions == 12 and tree.n_dof == 18
    assert 0.01 < np.abs(state.torsions - tree.reference.torsions).max() < 1.0
    assert np.array_equal(polyalanine(12)[1].q, state.q)


def test_mass_matrix_from_momenta():
    tree, state = polyalanine(12)
    M = mass_matrix(tree, state)
    assert np.abs(given_mass_matrix(tree, state) - M).max() < 1e-12 * np.abs(M).max()


def test_forward_dynamics_in_one_call():
    tree, state = polyalanine(12)
    rng = np.random.default_rng(1)
    q = state.q + 0.1 * rng.standard_normal((3, 12))
    v, tau = rng.standard_normal((2, 3, tree.n_dof))
    dynamics = ForwardDynamics(tree, state)
    many = dynamics.many(q, v, tau)
    for s, answer in enumerate(many):
        expected = get_solver("dense").accelerations(tree, state.replace(q=q[s]), v[s], tau[s])
        assert np.linalg.norm(answer - expected) < 1e-9 * np.linalg.norm(expected)
        assert np.linalg.norm(dynamics.one(q[s], v[s], tau[s]) - answer) < 1e-12 * np.linalg.norm(expected)


def test_pinocchio_gives_the_same_accelerations():
    from peptidyn.analysis.benchmark_peers import format_peers, measure_peers

    report = measure_peers([10, 30], rounds=1)
    assert [row["n"] for row in report["rows"][:2]] == [10, 30]
    assert 10 < report["rows"][2]["n"] <= 30
    assert all(row["difference"]["Pinocchio"] < 1e-9 for row in report["rows"])
    assert all(row["difference"].get("MuJoCo", 0.0) < 1e-8 for row in report["rows"])
    row = report["rows"][0]
    best = min(row["cpu"]["pinocchio.aba WORLD"], row["cpu"]["pinocchio.aba LOCAL"])
    assert row["kernels_ratio"] == pytest.approx(row["cpu"]["peptidyn kernels"] / best)
    assert "pinocchio.aba LOCAL" in format_peers(report)


# ---------------------------------------------------------------------------- coverage of the reports


def test_every_solver_is_in_the_table(monkeypatch):
    class Newcomer(ArticulatedSolver):
        name = "newcomer"

    monkeypatch.setitem(protocol._LOADED, "newcomer", Newcomer())
    report = measure_solvers([4, 20], rounds=1, dense_limit=4)
    assert set(report["solve"]) == {*list_solvers(), CHOLESKY}
    assert "newcomer" in report["solve"]
    assert {f"spatial-operator:{name}" for name in ALGORITHMS} < set(report["forward_dynamics"])
    assert {"articulated", "fixman", "fixman-points", "udu", "virtual-work"} < set(report["forward_dynamics"])
    for row in (*report["solve"].values(), *report["forward_dynamics"].values()):
        assert len(row["n"]) == len(row["cpu"]) == len(row["wall"]) == len(row["first_call"])
        assert all(math.isfinite(t) and t > 0 for t in row["wall"])
    assert max(report["log_det_spread"]) < 1e-9
    text = format_solvers(report)
    for name in (*list_solvers(), CHOLESKY, "spatial-operator:fd3"):
        assert any(line.startswith(f"{name} ") for line in text.splitlines()), name
    for phrase in ("growth", "load", "numba", "python", "cores"):
        assert phrase in text


def test_fixman_report():
    report = measure_fixman([20], rounds=1, frames=210)
    (part,) = report["potential"]
    assert part["log_det_difference"] < 1e-9
    assert part["ratios"]["value + gradient / value"] == pytest.approx(
        part["batch"]["value + gradient"] / part["batch"]["value"]
    )
    assert part["ratios"]["value / forward dynamics"] == pytest.approx(
        part["batch"]["value"] / part["batch"]["forward dynamics"]
    )
    trajectory = report["trajectory"]
    assert trajectory["frames"] == [21, 210] and trajectory["residues"] == 20
    # index, time, ln det, energy and misfit, and 40 torsions: results alone grow with the number of frames
    assert trajectory["result_bytes"] == [8 * 45 * 21, 8 * 45 * 210]
    assert all(peak > result for peak, result in zip(
        trajectory["traced_peak_bytes"], trajectory["result_bytes"], strict=True
    ))  # fmt: skip
    text = format_fixman(report)
    for phrase in ("value + gradient", "goal <= 2.2", "frames/s", "load"):
        assert phrase in text


def test_trajectory_frames_are_rigid(tmp_path):
    tree, state = polyalanine(8)
    write_trajectory(tree, state, 7, tmp_path / "x.xtc")
    weights = fixman_weights(tree, tmp_path / "x.xtc", 300.0)
    assert len(weights) == 7 and not weights.deformed.any()
    assert weights.time.tolist() == list(range(7))


# ---------------------------------------------------------------------------- command line


def run(capsys, *arguments):
    status = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_files(capsys, tmp_path):
    command = ("bench", "solvers", "--sizes", "4,10", "--repeats", "1", "-q", "-o", tmp_path / "out")
    status, out, err = run(capsys, *command)
    assert status == 0 and err == ""
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["solvers.json", "solvers.png"]
    report = json.loads((tmp_path / "out" / "solvers.json").read_text())
    assert out == format_solvers(report) + "\n"
    assert (tmp_path / "out" / "solvers.png").read_bytes().startswith(b"\x89PNG")
    status, out, err = run(capsys, *command)
    assert status == 2 and out == "" and "--overwrite" in err
    assert run(capsys, *command, "--overwrite")[0] == 0


def test_json_and_no_files(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = run(capsys, "bench", "peers", "--sizes", "10", "--repeats", "1", "--json", "-q")
    assert status == 0 and json.loads(out)["rows"][0]["n"] == 10
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["solvers", "--sizes", "10,x"], "--sizes is '10,x'"),
        (["solvers", "--sizes", "0"], "a size is 0"),
        (["solvers", "--repeats", "0"], "repeats is 0"),
        (["solvers", "--frames", "100"], "no trajectory"),
        (["solvers", "-o", "missing/folder"], "does not exist"),
        (["solvers", "-o", "file"], "is a file"),
        (["fixman", "--frames", "3"], "frames is 3"),
        (["peers", "--sizes", "3000"], "32 n^3"),
        (["dynamics", "--sizes", "30"], "sizes are for the others"),
    ],
)
def test_errors(capsys, tmp_path, monkeypatch, arguments, phrase):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    status, out, err = run(capsys, "bench", *arguments)
    assert status == 2 and out == ""
    assert err.startswith("peptidyn: ") and err.count("\n") == 1
    assert phrase in err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("module", "arguments", "phrase"),
    [
        ("matplotlib.figure", ["solvers", "-o", "out"], "matplotlib"),
    ],
)
def test_missing_packages(capsys, tmp_path, monkeypatch, module, arguments, phrase):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    status, out, err = run(capsys, "bench", *arguments)
    assert status == 2 and out == "" and phrase in err
    assert list(tmp_path.iterdir()) == []


def test_a_peer_that_is_not_installed_is_left_out(capsys, monkeypatch):
    from peptidyn.analysis.benchmark_peers import measure_peers

    monkeypatch.setitem(sys.modules, "mujoco", None)
    status, out, _ = run(capsys, "bench", "peers", "--sizes", "10", "--repeats", "1", "-q")
    assert status == 0 and "MuJoCo left out" in out and "pip install mujoco" in out
    monkeypatch.setitem(sys.modules, "pinocchio", None)
    with pytest.raises(MissingDependencyError, match="pip install pin"):
        measure_peers([10], rounds=1)


def test_dynamics_report(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark_dynamics, "TRIAL_STEPS", (0.008,))
    monkeypatch.setattr(benchmark_dynamics, "PROPOSALS", 20)
    monkeypatch.setattr(benchmark_dynamics, "SHARE_RESIDUES", 3)
    report = benchmark_dynamics.measure_dynamics(rounds=1)
    seconds = report["share"]["seconds"]
    assert report["share"]["share"] == pytest.approx(1 - seconds["force call"]["wall"] / seconds["step"]["wall"])
    for part in report["speed"]:
        assert part["ratio"] == pytest.approx(
            0.5 * part["seconds"]["torsions"]["wall"] / part["seconds"]["LangevinMiddle"]["wall"]
        )
    text = benchmark_dynamics.format_dynamics(report)
    for phrase in ("goal <= 0.15", "goal <= 0.6", "LangevinMiddle", "load"):
        assert phrase in text
    benchmark_dynamics.plot_dynamics(report, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_kernels_report(tmp_path):
    report = benchmark_kernels.measure_kernels([8, 16], rounds=1)
    seconds = report["seconds"]
    assert report["step_ratio"][1] == pytest.approx(
        seconds[benchmark_kernels.STEP][1] / seconds[benchmark_kernels.DYNAMICS][1]
    )
    assert all(t > 0 for row in seconds.values() for t in row)
    text = benchmark_kernels.format_kernels(report)
    for name in (*seconds, "16 / 8", "goal <= 15", "load"):
        assert name in text
    benchmark_kernels.plot_kernels(report, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert "growth" not in benchmark_kernels.format_kernels(benchmark_kernels.measure_kernels([8], rounds=1))
