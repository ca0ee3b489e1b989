"""Replica exchange: files, resuming, where replicas run, and what happens when something breaks."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import butane
import mdtraj
import numpy as np
import openmm
import pytest
from butane_exchange import T, contents, make
from real_structures import DATA

import peptidyn as ptd
from peptidyn.analysis.exchange_plots import plot_exchange
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, BackendError, CheckpointError, OutputError, SamplingError
from peptidyn.core.units import BOLTZMANN
from peptidyn.runs.exchange import _find_backend
from peptidyn.runs.settings import ExchangeSettings
from peptidyn.sampling import storage
from peptidyn.sampling.backends import ProcessBackend, connect, make_backend
from peptidyn.sampling.exchange import count_round_trips
from peptidyn.sampling.swaps import swap_pairs

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_files_can_be_read_while_the_run_goes_on(tmp_path):
    seen = []

    def look():
        done = exchange.iterations
        if done:
            for r in range(3):
                place = tmp_path / f"run/replica-{r:02d}"
                energies, q = np.load(place / "energies.npy"), np.load(place / "torsions.npy")
                with mdtraj.open(str(place / "trajectory.dcd")) as file:
                    x = file.read()[0]
                assert len(energies) == len(q) == len(x) == 2 * done
                assert energies["iteration"].tolist() == np.repeat(np.arange(done), 2).tolist()
                assert np.allclose(energies["temperature"], T[energies["level"]])
            seen.append(done)
        return False

    with make(tmp_path / "run", every=1) as exchange:
        exchange.warm_up(5)
        exchange.run(4, stop=look)
        assert seen == [1, 2, 3]
        energies, q = exchange.at_temperature(1)
        assert len(energies) == len(q) == 8 and set(energies["level"].tolist()) == {1}
        assert np.abs(q).max() <= np.pi
    trajectory = mdtraj.load(str(tmp_path / "run/replica-00/trajectory.dcd"), top=str(tmp_path / "run/topology.pdb"))
    measured = mdtraj.compute_dihedrals(trajectory, [[0, 1, 2, 3]], periodic=False)[:, 0]
    stored = np.load(tmp_path / "run/replica-00/torsions.npy")[:, 0]
    assert np.abs(np.angle(np.exp(1j * (measured - stored)))).max() < 1e-4
    with open(tmp_path / "run/exchanges.csv") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 5 and rows[0][0] == "iteration" and [r[0] for r in rows[1:]] == ["0", "1", "2", "3"]


def test_stored_energies_belong_to_the_frames(tmp_path):
    with make(tmp_path) as exchange:
        exchange.run(3)
        rows, _ = exchange.frames_of(1)
    context = openmm.Context(butane.make_system(), openmm.VerletIntegrator(0.001))
    trajectory = mdtraj.load(str(tmp_path / "replica-01/trajectory.dcd"), top=str(tmp_path / "topology.pdb"))
    for x, energy in zip(trajectory.xyz.astype(float), rows["potential"], strict=True):
        context.setPositions(x)
        assert context.getState(energy=True).getPotentialEnergy()._value == pytest.approx(energy, abs=0.05)


def test_resuming_equals_never_having_stopped(tmp_path):
    with make(tmp_path / "whole") as exchange:
        exchange.warm_up(5)
        exchange.run(6)
        counts = exchange.attempted.tolist(), exchange.accepted.tolist(), exchange.walk.tolist()
    with make(tmp_path / "parts") as exchange:
        exchange.warm_up(5)
        exchange.run(3)
    # what a kill -9 may leave: frames that no checkpoint vouches for
    extra = np.load(tmp_path / "parts/replica-00/torsions.npy")
    storage.append_rows(tmp_path / "parts/replica-00/torsions.npy", extra[:2], len(extra))
    with open(tmp_path / "parts/replica-02/energies.npy", "ab") as file:
        file.write(b"half a row")
    with open(tmp_path / "parts/exchanges.csv", "a") as file:
        file.write("3,0,1")
    with make(tmp_path / "parts", resume=True) as exchange:
        assert exchange.iterations == 3 and exchange.tuned
        exchange.run(6)
        assert counts == (exchange.attempted.tolist(), exchange.accepted.tolist(), exchange.walk.tolist())
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


@pytest.mark.slow
def test_a_driver_that_is_killed_with_9_is_resumed(tmp_path):
    """Killed at any moment, perhaps in the middle of a write; the resumed files equal those of a whole run."""
    script = (
        "import sys; from pathlib import Path; import butane_exchange\n"
        "with butane_exchange.make(Path(sys.argv[1])) as exchange: exchange.run(100_000)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    folder = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", script, str(folder)], env={**os.environ, "PYTHONPATH": path})
    try:
        deadline = time.monotonic() + 120
        table = folder / "exchanges.csv"
        while not (table.exists() and table.read_text().count("\n") > 20):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    with make(folder, resume=True) as exchange:
        done = exchange.iterations
        assert done >= 19
        exchange.run(done + 3)
    with make(tmp_path / "whole") as exchange:
        exchange.run(done + 3)
    assert contents(folder) == contents(tmp_path / "whole")


def test_resuming_with_other_arguments_is_refused(tmp_path):
    with make(tmp_path) as exchange:
        exchange.run(1)
    with pytest.raises(CheckpointError, match="another seed"):
        make(tmp_path, resume=True, seed=8)
    with pytest.raises(CheckpointError, match="another moves"):
        make(tmp_path, resume=True, moves=[ptd.TorsionMove()])
    with pytest.raises(CheckpointError, match="no run to resume"):
        make(tmp_path / "nothing", resume=True)
    with pytest.raises(ArgumentError, match="not empty"):
        make(tmp_path)
    (tmp_path / "checkpoint.npz").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="damaged"):
        make(tmp_path, resume=True)


def test_a_metric_is_frozen_for_the_run_and_another_one_is_refused(tmp_path):
    """A resumed run takes its joint inertias from the checkpoint: they are those of the geometry it began with."""
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = ptd.make_system(structure.topology, "vacuum")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    start = structure.positions + 0.002 * np.random.default_rng(1).standard_normal(structure.positions.shape)

    def begin(folder, **options):
        options = {"metric": "auto", "soft": "all", "positions": start, **options}
        tree = ptd.build_tree(structure, soft=options.pop("soft"))
        moves = [ptd.TorsionalHMC(0.008, 3, friction=1.0), ptd.CartesianHMC(0.001, 3)]
        return ptd.ReplicaExchange(
            tree, system, [300.0, 400.0], moves=moves, sweeps=2, seed=3, platform="Reference", folder=folder,
            topology=structure.topology, **options,
        )  # fmt: skip

    with begin(tmp_path / "whole") as exchange:
        inertia = exchange.recipe.tree.joint_inertia
        exchange.run(4)
    assert np.count_nonzero(inertia) > 40
    with begin(tmp_path / "parts") as exchange:
        exchange.run(2)
    with begin(tmp_path / "parts", resume=True, positions=None) as exchange:
        assert np.array_equal(exchange.recipe.tree.joint_inertia, inertia)
        exchange.run(4)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    for metric in ("physical", None, 2.0 * inertia):
        with pytest.raises(CheckpointError, match="made with another metric"):
            begin(tmp_path / "parts", resume=True, metric=metric)
    with pytest.raises(CheckpointError, match="made with another tree"):
        begin(tmp_path / "parts", resume=True, soft="phi psi")
    with begin(tmp_path / "physical", metric="physical") as exchange:
        exchange.run(1)
    with pytest.raises(CheckpointError, match="made with another metric"):
        begin(tmp_path / "physical", resume=True)


def test_threads_and_memory_give_what_serial_files_give(tmp_path):
    with make(tmp_path / "serial") as one, make(tmp_path / "threads", "threads", workers=2) as two, make() as memory:
        for exchange in (one, two, memory):
            exchange.warm_up(5)
            exchange.run(4)
        assert contents(tmp_path / "serial") == contents(tmp_path / "threads")
        for r in range(3):
            for a, b in zip(one.frames_of(r), memory.frames_of(r), strict=True):
                assert np.array_equal(a, b)


@pytest.mark.slow
def test_processes_and_dask_give_what_serial_gives(tmp_path):
    distributed = pytest.importorskip("distributed")
    moves = {"moves": [ptd.TorsionalHMC(0.01, 3, friction=1.0), ptd.CartesianHMC(0.006, 4)]}

    def go(name, backend, **options):
        with make(tmp_path / name, backend, **moves, **options) as exchange:
            exchange.warm_up(4)
            exchange.run(3)
        return contents(tmp_path / name)

    serial = go("serial", "serial")
    assert go("processes", "processes", workers=2) == serial
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        assert go("dask", client) == serial


def _die_once(shared, folder, number):
    """Kill the own process, the first time that task 1 runs."""
    mark = Path(folder) / "died"
    if number == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    return number * shared


def _die(shared, number):
    os.kill(os.getpid(), 9)


@pytest.mark.slow
def test_tasks_of_a_killed_process_run_again(tmp_path):
    backend = ProcessBackend(2)
    try:
        assert backend.run(_die_once, [(str(tmp_path), i) for i in range(4)], 10) == [0, 10, 20, 30]
        assert (tmp_path / "died").exists()
    finally:
        backend.close()


@pytest.mark.slow
def test_a_task_that_always_kills_its_process_is_given_up():
    backend = ProcessBackend(1)
    with pytest.raises(BackendError, match="fewer workers"):
        backend.run(_die, [(0,)])
    backend.close()


def test_full_disk_is_one_sentence_and_the_run_goes_on_later(tmp_path, monkeypatch):
    with make(tmp_path / "whole") as exchange:
        exchange.run(4)
    write = storage.append_rows
    with make(tmp_path / "full") as exchange:
        exchange.run(2)

        def full(path, rows, there):
            if path.parent.name == "replica-01":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(path, rows, there)

        monkeypatch.setattr(storage, "append_rows", full)
        with pytest.raises(OutputError, match=r"No space left on device; the run can be resumed"):
            exchange.run(4)
        monkeypatch.setattr(storage, "append_rows", write)
        assert exchange.iterations == 2
        exchange.run(3)  # the same object may try again ...
    with make(tmp_path / "full", resume=True) as exchange:
        exchange.run(4)  # ... or another one
    assert contents(tmp_path / "full") == contents(tmp_path / "whole")


def test_a_disk_that_really_fills_up(tmp_path, file_size_limit):
    """A limit on the size of files stands in for the disk: a write beyond it stops half-way, as on a full disk."""
    with make(tmp_path, sweeps=40, every=1) as exchange:
        exchange.run(2)
        with file_size_limit(20_000), pytest.raises(OutputError, match="File too large; the run can be resumed"):
            exchange.run(1000)
        done = exchange.iterations
        assert 2 < done < 1000
    with make(tmp_path, sweeps=40, every=1, resume=True) as again:
        assert again.iterations == done  # the checkpoint is whole, and the files have what it says
        assert all(len(again.frames_of(r)[0]) == 40 * done for r in range(3))


def test_unreachable_scheduler_is_one_sentence(capsys):
    pytest.importorskip("distributed")
    with pytest.raises(BackendError, match=r"no dask scheduler answers at tcp://127\.0\.0\.1:9 within 1 s"):
        connect("tcp://127.0.0.1:9", timeout=1)
    assert main(["exchange", str(DATA / "ala1.pdb"), "--scheduler", "nonsense://x"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


class _Explodes(ptd.TorsionMove):
    """A move that fails at the highest temperature, from the third sweep on."""

    def _propose(self, walker):
        if walker.temperature > 650 and walker.rng.random() < 0.2:
            raise openmm.OpenMMException("Particle coordinate is NaN")
        return super()._propose(walker)


def test_a_replica_that_blows_up_leaves_the_others_safe(tmp_path):
    with make(tmp_path, moves=[_Explodes()]) as exchange:
        with pytest.raises(
            SamplingError, match=r"at 700.0 K failed in iteration \d+: Particle coordinate is NaN"
        ) as info:
            exchange.run(200)
        done = exchange.iterations
        assert f"kept as they were after iteration {done}" in str(info.value) and done > 0
    with make(tmp_path, moves=[_Explodes()], resume=True) as again:
        assert again.iterations == done
        for r in range(3):
            rows, q = again.frames_of(r)
            assert len(rows) == len(q) == done and np.isfinite(rows["potential"]).all()


def test_a_start_without_finite_energy_writes_nothing(tmp_path):
    x = butane.make_tree().positions(butane.make_tree().reference)
    x[3] = x[0]
    with pytest.raises(SamplingError, match="minimise"):
        make(tmp_path / "new", positions=x)
    assert not (tmp_path / "new").exists()


class Scripted:
    """A backend whose stretches end with given energies (kJ/mol), U_F / kT and momenta."""

    def __init__(self, potential, metric=(0.0, 0.0, 0.0)):
        self.potential, self.metric = potential, metric

    def run(self, function, tasks, recipe):
        return [
            replace(
                function(recipe, *task), final_potential=V, final_metric=U,
                checkpoint={**task[0], "momentum": np.arange(1.0, 8.0)},
            )
            for task, V, U in zip(tasks, self.potential, self.metric, strict=True)
        ]  # fmt: skip

    def close(self):
        pass


def test_exchanges_see_the_reduced_energies_at_the_end_of_the_stretches(monkeypatch):
    """u = V / kT + U_F / kT: 10 kJ/mol are 4.00908 kT at 300 K and 3.00681 kT at 400 K."""
    seen = []

    def look(u, levels, rng):
        seen.append(u)
        return swap_pairs(u, levels, rng)

    monkeypatch.setattr("peptidyn.sampling.exchange.swap_pairs", look)
    with make(backend=Scripted((10.0, 16.0, 0.0), (0.5, 0.0, -1.0)), temperatures=[300.0, 400.0, 500.0]) as exchange:
        exchange.run(1)
    assert seen[0][0, :2] == pytest.approx([4.50908, 3.50681], abs=1e-5)
    assert seen[0][1] == pytest.approx(16.0 / (BOLTZMANN * np.array([300.0, 400.0, 500.0])))
    assert seen[0][2] == pytest.approx([-1.0, -1.0, -1.0])


def test_momenta_are_scaled_with_the_temperature():
    """By sqrt(T_new / T_old), so that p^T M^-1 p / kT stays: sqrt(500 / 300) = 1.29099, sqrt(300 / 500) = 0.77460.

    Energies are so far apart that the lowest goes to the lowest temperature with certainty, and stays there.
    """
    with make(backend=Scripted((4000.0, 2000.0, 0.0)), temperatures=[300.0, 400.0, 500.0]) as exchange:
        exchange.run(1)
        assert exchange.levels.tolist() == [2, 1, 0] and exchange.walk.tolist() == [[0, 1, 2]]
        for replica, scale in zip(exchange.replicas, (1.2909944487358056, 1.0, 0.7745966692414834), strict=True):
            assert replica["momentum"] == pytest.approx(scale * np.arange(1.0, 8.0), rel=1e-15)
    with make(backend=Scripted((0.0, 2000.0, 4000.0)), temperatures=[300.0, 400.0, 500.0]) as exchange:
        exchange.run(1)
        assert exchange.levels.tolist() == [0, 1, 2] and not exchange.accepted.any() and exchange.attempted.all()
        assert all(np.array_equal(replica["momentum"], np.arange(1.0, 8.0)) for replica in exchange.replicas)


def test_reduced_energies_are_what_pymbar_takes(tmp_path):
    """u_kn in files and in memory, from the energies of the frames; MBAR finds free energies that fit mean energies."""
    from pymbar import MBAR

    def go(folder=None):
        with make(folder, every=1) as exchange:
            exchange.run(150)
            return exchange.u_kn(), [exchange.at_temperature(level)[0] for level in range(3)]

    (u_kn, N_k), frames = go(tmp_path)
    assert u_kn.shape == (3, 900) and N_k.tolist() == [300, 300, 300]
    for k in range(3):
        for level, rows in enumerate(frames):
            fixman = rows["fixman"] / (BOLTZMANN * T[level])
            expected = rows["potential"] / (BOLTZMANN * T[k]) + fixman
            assert u_kn[k, 300 * level : 300 * (level + 1)] == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(go()[0][0], u_kn)
    with np.load(tmp_path / "u_kn.npz") as file:
        assert np.array_equal(file["u_kn"], u_kn) and np.array_equal(file["N_k"], N_k)
        assert file["temperatures"].tolist() == T.tolist()
    grown = np.load(tmp_path / "reduced.npy")
    assert grown.shape == (300, 3, 3) and np.array_equal(grown.transpose(2, 1, 0).reshape(3, -1), u_kn)
    free = [MBAR(u, N_k).f_k for u in (u_kn, grown.transpose(1, 2, 0))]
    assert np.allclose(*free, atol=1e-8)
    # d(f) / d(beta) = <V>: the mean of two temperatures, by the trapezoidal rule
    beta, mean = 1 / (BOLTZMANN * T), np.array([rows["potential"].mean() for rows in frames])
    slope = np.diff(free[0]) / np.diff(beta)
    assert slope == pytest.approx(0.5 * (mean[1:] + mean[:-1]), rel=0.1)
    with make(tmp_path, every=1, resume=True) as again:
        assert again.u_kn()[0].shape == (3, 900)


def test_stored_u_f_is_that_of_the_frame_at_its_temperature():
    """U_F = (kT/2) ln(det M / J^2), here of rigid frames, whose only soft coordinate is stored."""
    with make(moves=[ptd.TorsionMove()]) as exchange:
        exchange.run(6)
        frames = [exchange.at_temperature(level) for level in range(3)]
    tree = butane.make_tree()
    half_log_det = [
        np.array([0.5 * np.linalg.slogdet(ptd.mass_matrix(tree, tree.reference.replace(q=x)))[1] for x in q])
        for _, q in frames
    ]
    assert np.ptp(np.concatenate(half_log_det)) > 0.01
    for level, (rows, _) in enumerate(frames):
        assert rows["fixman"] / (BOLTZMANN * T[level]) == pytest.approx(half_log_det[level], rel=1e-12)


def test_round_trips_are_counted():
    walk = np.array([[0, 1, 2, 1, 0, 1, 2, 2, 0], [2, 0, 1, 0, 2, 0, 0, 1, 2], [1, 1, 1, 1, 1, 1, 1, 1, 1]]).T
    assert count_round_trips(walk, 3).tolist() == [2, 1, 0]
    assert count_round_trips(np.empty((0, 2), dtype=int), 2).tolist() == [0, 0]


def test_temperatures():
    assert np.allclose(ptd.geometric_temperatures(300, 600, 3), [300, 300 * 2**0.5, 600])
    with pytest.raises(ArgumentError, match="no ladder"):
        ptd.geometric_temperatures(300, 200, 3)
    with pytest.raises(ArgumentError, match="each higher"):
        ptd.ReplicaExchange(butane.make_tree(), butane.make_system(), [300, 300])
    with pytest.raises(ArgumentError, match="expected serial"):
        make_backend("cloud")


def test_command_line_runs_draws_and_resumes(tmp_path, capsys):
    folder = tmp_path / "out"
    common = ["--platform", "Reference", "-o", str(folder), "-q", "--workers", "1"]
    begin = ["exchange", str(DATA / "ala1.pdb"), "--replicas", "3", "--tmin", "300", "--tmax", "420"]
    length = ["--iterations", "3", "--interval", "20", "--warm-up", "4", "--seed", "5", "--solvent", "vacuum"]
    assert main([*begin, *length, *common]) == 0
    pictures = {p.name for p in folder.glob("*.png")}
    assert pictures == {"temperatures.png", "acceptance.png", "overlap.png", "energies.png"}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["complete"] and summary["iterations"] == 3 and len(summary["exchange_acceptance"]) == 2
    assert len(summary["neighbour_overlap"]) == 2 and len(summary["mean_potential_kJ_per_mol"]) == 3
    assert main(["exchange", "--resume", "--iterations", "5", *common]) == 0
    assert json.loads((folder / "summary.json").read_text())["iterations"] == 5
    assert len(np.load(folder / "replica-02/energies.npy")) == 5
    assert len(plot_exchange(folder)) == 4
    assert main(["exchange", "--resume", "--tmax", "500", *common]) == 2
    assert "tmax was 420.0 when the run" in capsys.readouterr().err
    assert main([*begin, *length, *common]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["exchange", "--workers", "2", "--scheduler", "tcp://x:1"]) == 2
    capsys.readouterr()
    heavy = [
        *begin,
        *length,
        "--preset",
        "heavy",
        "--ensemble",
        "langevin",
        "--platform",
        "Reference",
        "-o",
        str(tmp_path / "heavy"),
    ]
    assert main(heavy) == 0
    out = capsys.readouterr().out
    assert "langevin, 16 fs, auto metric" in out and "distribution: bond lengths and hydrogens fixed" in out
    assert "time-step error of Langevin dynamics" in out and "phases" in out
    summary = json.loads((tmp_path / "heavy" / "summary.json").read_text())
    assert summary["metric"] == "auto" and summary["coordinates"]["stretches"] == 0 < summary["coordinates"]["bends"]
    assert summary["settings"]["ensemble"] == "langevin" and summary["moves"][0]["move"] == "TorsionalLangevin"
    assert summary["steps"][0] == [0.016] and summary["steps"][2][0] == pytest.approx(0.016 * (300 / 420) ** 0.5)


def test_a_run_that_was_killed_before_its_first_checkpoint_can_be_resumed(tmp_path, capsys, monkeypatch):
    """Settings and structure are written before all else; whatever a kill leaves behind, it goes on from them."""
    options = ["--platform", "Reference", "-q", "--workers", "1", "--solvent", "vacuum", "--warm-up", "0"]
    length = ["--seed", "5", "--replicas", "2", "--iterations", "2", "--interval", "5"]
    begin = ["exchange", str(DATA / "ala1.pdb"), *length, *options]
    usual, seen = storage.ExchangeFolder.save, []

    def save(self, *arguments):
        if not seen:
            shutil.copytree(self.path, tmp_path / "killed")
        seen.append((self.path / "topology.cif").read_bytes())
        usual(self, *arguments)

    monkeypatch.setattr(storage.ExchangeFolder, "save", save)
    assert main([*begin, "-o", str(tmp_path / "whole")]) == 0
    assert len(set(seen)) == 1
    assert {"exchange.toml", "topology.cif", "exchanges.csv"} <= {p.name for p in (tmp_path / "killed").iterdir()}
    assert main(["exchange", "--resume", "-o", str(tmp_path / "killed"), "-q", "--workers", "1"]) == 0
    for name in ("replica-00/energies.npy", "replica-01/torsions.npy", "exchanges.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_where_replicas_run_by_default(monkeypatch):
    """One process per core where cores compute, and this one where a GPU does; a number that was asked for stays."""
    monkeypatch.setattr("peptidyn.runs.exchange.count_cores", lambda: 5)

    def found(workers=None, backend="auto", **settings):
        return _find_backend(ExchangeSettings(**settings), backend, workers)

    assert found(platform="CPU") == {"backend": "processes", "workers": 5}
    assert found(platform="Reference", replicas=3) == {"backend": "processes", "workers": 3}
    assert found(platform="CUDA") == {"backend": "serial", "workers": 1}
    assert found(2, platform="CUDA") == {"backend": "processes", "workers": 2}
    assert found(1, platform="CPU")["backend"] == "serial"
    assert found(4, "threads") == {"backend": "threads", "workers": 4}
    assert found(threads=1) == {"backend": "processes", "workers": 5}


def test_pivot_moves_in_a_stretch(tmp_path, capsys):
    """12 in stretches of 20 steps: six after each of two trajectories; refused where none could be accepted."""
    common = ["--replicas", "2", "--iterations", "2", "--interval", "20", "--warm-up", "0", "--seed", "5", "-q"]
    begin = ["exchange", str(DATA / "ala1.pdb"), *common, "--platform", "Reference", "--workers", "1", "--pivots", "12"]
    folder = tmp_path / "pivots"
    assert main([*begin, "--preset", "flexible", "-o", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert [move["move"] for move in summary["moves"]] == ["TorsionalHMC", "PivotMove"]
    assert summary["moves"][1]["tries"] == 6 and summary["settings"]["pivots"] == 12
    counts = np.array(storage.ExchangeFolder(folder, 2).read_checkpoint()[0]["move_counts"])
    assert counts[:, 1, [0, 2]].tolist() == [[24, 24]] * 2  # proposals and energy calls
    for options, message in (
        (["--solvent", "tip3p"], "pivot moves turn the chain through the waters of tip3p"),
        (["--soft", "chi"], "pivot moves turn phi and psi, and the tree has no such soft torsions"),
        (["--pivots", "-1"], "pivots is -1"),
    ):
        assert main([*begin, *options, "-o", str(tmp_path / "refused")]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "refused").exists()


def test_langevin_is_not_exact():
    with pytest.raises(ArgumentError, match="needs Metropolised moves"):
        ExchangeSettings(ensemble="langevin", exact=True)
    with pytest.raises(ArgumentError, match="expected one of ghmc, langevin"):
        ExchangeSettings(ensemble="nve")
