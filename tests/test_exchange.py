"""Replica exchange: files, resuming, where replicas run, and what happens when something breaks."""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import butane
import mdtraj
import numpy as np
import openmm
import pytest
from real_structures import DATA

import peptidyn as ptd
from peptidyn.analysis.exchange_plots import overlap_matrix, plot_exchange
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, OutputError
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.checkpoints import CheckpointError
from peptidyn.sampling import storage
from peptidyn.sampling.backends import BackendError, ProcessBackend, connect, make_backend
from peptidyn.sampling.exchange import count_round_trips
from peptidyn.sampling.gibbs import SamplingError

T = ptd.geometric_temperatures(300, 700, 3)


def make(folder=None, backend="serial", system=None, **options):
    options = {"moves": [ptd.TorsionMove(turn=60), ptd.CartesianHMC(0.006, 4)], "sweeps": 2, "seed": 7, **options}
    return ptd.ReplicaExchange(
        butane.make_tree(), system or butane.make_system(), T, platform="Reference", folder=folder,
        topology=butane.make_topology(), backend=backend, **options,
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    """All data of a run; DCD without its header, which holds the date."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".npy", ".csv", ".dcd"):
            data = path.read_bytes()
            found[str(path.relative_to(folder))] = data[276:] if path.suffix == ".dcd" else data
    return found


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
        "import sys; from pathlib import Path; import test_exchange\n"
        "with test_exchange.make(Path(sys.argv[1])) as exchange: exchange.run(100_000)"
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


def test_threads_and_memory_give_what_serial_files_give(tmp_path):
    with make(tmp_path / "serial") as one, make(tmp_path / "threads", "threads", workers=2) as two, make() as memory:
        for exchange in (one, two, memory):
            exchange.warm_up(5)
            exchange.run(4)
        assert contents(tmp_path / "serial") == contents(tmp_path / "threads")
        for r in range(3):
            for a, b in zip(one.frames_of(r), memory.frames_of(r), strict=True):
                assert np.array_equal(a, b)


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


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB; needs root."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_really_fills_up(small_disk):
    with make(small_disk / "run", sweeps=40, every=1) as exchange:
        with pytest.raises(OutputError, match="No space left on device"):
            exchange.run(1000)
        done = exchange.iterations
        assert 0 < done < 1000
    with make(small_disk / "run", sweeps=40, every=1, resume=True) as again:
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


def test_u_f_drops_out_of_the_exchange_criterion():
    """u_i(x) = V/kT_i + U_F,i/kT_i, and the second term is the same number at every temperature."""
    tree = ptd.build_tree(ptd.load_structure(DATA / "ala3.pdb"), "phi psi angles")
    state = tree.reference
    values = [ptd.FixmanPotential(tree, t).energy(state) / (BOLTZMANN * t) for t in (280.0, 500.0)]
    assert values[0] == pytest.approx(values[1], rel=1e-14) and values[0] != 0


def test_momenta_are_scaled_with_the_temperature():
    with make(moves=[ptd.TorsionalHMC(0.01, 2, friction=0.01)], sweeps=1) as exchange:
        kinetic = []
        for i in range(1, 41):
            exchange.run(i)
            for replica, level in zip(exchange.replicas, exchange.levels, strict=True):
                tree = butane.make_tree().with_geometry(replica["geometry"])
                state = ptd.State.make(tree, replica["q"], replica["base_position"], replica["base_rotation"])
                v = ptd.get_solver("articulated").solve(tree, state, replica["momentum"])
                kinetic.append(0.5 * replica["momentum"] @ v / (BOLTZMANN * T[level]))
        assert exchange.accepted.sum() > 5
    # 7 degrees of freedom, 3.5 kT; momenta hardly change, so the error is that of a few independent draws
    assert 2.0 < np.mean(kinetic) < 5.5


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


def test_overlap_of_equal_and_of_distant_temperatures():
    rng = np.random.default_rng(0)
    kT = BOLTZMANN * np.array([300.0, 310.0, 3000.0])
    energies = [rng.gamma(50, t, 2000) for t in kT]  # 100 harmonic coordinates
    overlap = overlap_matrix(energies, kT / BOLTZMANN)
    assert np.allclose(overlap.sum(axis=1), 1, atol=1e-6)
    assert 0.4 < overlap[0, 1] < 0.5 and overlap[0, 2] < 1e-6


def test_command_line_runs_draws_and_resumes(tmp_path, capsys):
    folder = tmp_path / "out"
    common = ["--platform", "Reference", "-o", str(folder), "-q"]
    begin = ["exchange", str(DATA / "ala1.pdb"), "--replicas", "3", "--tmin", "300", "--tmax", "420"]
    length = ["--iterations", "3", "--interval", "20", "--warm-up", "4", "--seed", "5", "--solvent", "vacuum"]
    assert main([*begin, *length, *common]) == 0
    pictures = {p.name for p in folder.glob("*.png")}
    assert pictures == {"temperatures.png", "acceptance.png", "overlap.png", "energies.png"}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["complete"] and summary["iterations"] == 3 and len(summary["exchange_acceptance"]) == 2
    assert main(["exchange", "--resume", "--iterations", "5", *common]) == 0
    assert json.loads((folder / "summary.json").read_text())["iterations"] == 5
    assert len(np.load(folder / "replica-02/energies.npy")) == 5
    assert len(plot_exchange(folder)) == 4
    assert main(["exchange", "--resume", "--tmax", "500", *common]) == 2
    assert "tmax was 420.0 when the run" in capsys.readouterr().err
    assert main([*begin, *length, *common]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["exchange", "--workers", "2", "--scheduler", "tcp://x:1"]) == 2
