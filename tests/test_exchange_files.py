"""The files of replica exchange, written by hand: what is in them, what is read again, and what is cut back."""

from __future__ import annotations

import butane
import mdtraj
import numpy as np
import pytest

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError
from peptidyn.core.sealed_files import NPY_HEADER
from peptidyn.engine import checkpoints
from peptidyn.sampling.replicas import Stretch
from peptidyn.sampling.storage import ENERGY_ROW, ExchangeFolder, append_rows, keep_rows

N = 11
"""Replicas: their folders have two digits."""


def stretch(rng, frames):
    """Return frames of four atoms with one torsion; what is not written is left out."""
    q, x = rng.uniform(-3, 3, (frames, 1)), rng.normal(size=(frames, 4, 3)).astype(np.float32)
    return Stretch({}, q, x, np.zeros(frames), np.zeros(frames), 0.0, 0.0, [])


def energy_rows(rng, frames):
    rows = np.zeros(frames, dtype=ENERGY_ROW)
    rows["iteration"], rows["level"] = rng.integers(0, 99, frames), rng.integers(0, N, frames)
    rows["potential"], rows["fixman"] = rng.normal(size=(2, frames))
    return rows


@pytest.fixture
def folder(tmp_path):
    """A folder that was begun, with the lock of the run."""
    tree, system = butane.make_tree(), butane.make_system()
    structure = ptd.Structure.from_openmm(butane.make_topology(), system, tree.positions(tree.reference))
    with ExchangeFolder(tmp_path / "x", N) as made:
        made.begin(structure, False)
        yield made


def test_a_folder_begins_with_a_table_and_a_place_for_every_replica(folder):
    header = ",".join(f"level_of_replica_{i}" for i in range(N))
    assert (folder.path / "exchanges.csv").read_text() == f"iteration,{header},exchanged\n"
    assert sorted(p.name for p in folder.path.glob("replica-*")) == [f"replica-{i:02d}" for i in range(N)]
    assert folder.replica(10) == folder.path / "replica-10"
    files = ("trajectory.dcd", "torsions.npy", "energies.npy")
    assert set(folder.growing()) == {
        "exchanges.csv", "reduced.npy", *(f"replica-{i:02d}/{name}" for i in range(N) for name in files),
    }  # fmt: skip
    assert folder.kind == checkpoints.EXCHANGE


def test_a_folder_stays_what_it_is(folder, tmp_path):
    assert ExchangeFolder.at(folder, 3) is folder and ExchangeFolder.at(None, 3) is None
    made = ExchangeFolder.at(tmp_path / "y", 3)
    assert made.path == tmp_path / "y" and made.n_replicas == 3


def test_frames_are_appended_in_their_order(folder):
    """Two frames, none, one and three more: what the files hold is all of them, with steps that go on."""
    rng, there = np.random.default_rng(1), 0
    parts = [(stretch(rng, frames), energy_rows(rng, frames)) for frames in (2, 0, 1, 3)]
    for part, rows in parts:
        folder.append(10, part, rows, butane.make_topology(), there)
        there += len(rows)
    place = folder.path / "replica-10"
    assert np.array_equal(np.load(place / "torsions.npy"), np.concatenate([part.q for part, _ in parts]))
    assert np.array_equal(np.load(place / "energies.npy"), np.concatenate([rows for _, rows in parts]))
    frames = mdtraj.load(place / "trajectory.dcd", top=folder.path / "topology.pdb")
    assert np.abs(frames.xyz - np.concatenate([part.positions for part, _ in parts])).max() < 1e-6
    assert not list(folder.replica(9).iterdir())
    head = np.frombuffer((place / "trajectory.dcd").read_bytes()[8:24], "<i4")
    assert head.tolist() == [6, 0, 1, 5]  # frames, the step of the first one, the interval, the last step


def test_nothing_is_written_of_a_stretch_without_frames(folder):
    rng = np.random.default_rng(2)
    folder.append(0, stretch(rng, 0), energy_rows(rng, 0), butane.make_topology(), 0)
    folder.append_reduced(np.empty((0, N, N)), 0)
    assert not list(folder.replica(0).iterdir()) and not (folder.path / "reduced.npy").exists()


def test_the_table_of_exchanges_is_read_as_it_was_written(folder):
    """Levels of replicas, not replicas of levels; lines that no checkpoint vouches for are left out."""
    rng = np.random.default_rng(3)
    levels = np.array([rng.permutation(N) for _ in range(4)])
    for iteration, row in enumerate(levels):
        folder.append_exchange(iteration, row, 7)
    assert (folder.path / "exchanges.csv").read_text().splitlines()[3] == f"2,{','.join(map(str, levels[2]))},7"
    for iterations in (4, 2, 1):
        assert np.array_equal(folder.read_walk(iterations), levels[:iterations])
    assert folder.read_walk(0).shape == (0, N)


def test_reduced_energies_grow_by_frames(folder):
    rows = np.random.default_rng(4).normal(size=(5, N, N))
    folder.append_reduced(rows[:2], 0)
    folder.append_reduced(np.asfortranarray(rows[2:]), 2)  # whatever the order in memory
    assert np.array_equal(np.load(folder.path / "reduced.npy"), rows)
    folder.append_reduced(rows[:0], 5)
    folder.append_reduced(rows[:1], 0)  # a file that holds nothing begins anew
    assert np.array_equal(np.load(folder.path / "reduced.npy"), rows[:1])


def test_u_kn_has_the_names_of_pymbar(folder):
    u, n, t = np.arange(6.0).reshape(2, 3), np.array([1, 2]), np.array([300.0, 400.0])
    folder.write_u_kn(u, n, t)
    with np.load(folder.path / "u_kn.npz") as file:
        assert {name: file[name].tolist() for name in ("u_kn", "N_k", "temperatures")} == {
            "u_kn": u.tolist(), "N_k": [1, 2], "temperatures": [300.0, 400.0],
        }  # fmt: skip


def write_frames(folder, frames, iterations):
    rng = np.random.default_rng(5)
    for i in range(N):
        for there in range(frames):
            folder.append(i, stretch(rng, 1), energy_rows(rng, 1), butane.make_topology(), there)
    folder.append_reduced(rng.normal(size=(frames, N, N)), 0)
    for iteration in range(iterations):
        folder.append_exchange(iteration, rng.permutation(N), 2)


@pytest.mark.parametrize("frames", [0, 2])
def test_every_file_is_cut_back(folder, frames):
    """To two iterations; without frames there are no files of them."""
    write_frames(folder, 4, 5)
    whole = {path: np.load(path) for path in folder.path.rglob("*.npy")}
    table = (folder.path / "exchanges.csv").read_text().splitlines(True)
    folder.cut_back(2, frames)
    assert (folder.path / "exchanges.csv").read_text() == "".join(table[:3])
    assert len(whole) == 2 * N + 1
    for path, rows in whole.items():
        assert path.exists() == (frames > 0)
        if frames:
            assert np.array_equal(np.load(path), rows[:frames])
            assert path.stat().st_size == NPY_HEADER + rows[:frames].nbytes
    for i in range(N):
        trajectory = folder.replica(i) / "trajectory.dcd"
        assert trajectory.exists() == (frames > 0)
        if frames:
            with mdtraj.open(str(trajectory)) as file:
                assert len(file.read()[0]) == frames


@pytest.mark.parametrize("there", [2, 3])
def test_a_table_with_fewer_lines_than_iterations_is_refused(folder, there):
    write_frames(folder, 1, there)
    if there == 3:
        folder.cut_back(3, 1)
        assert len(folder.read_walk(3)) == 3
        return
    with pytest.raises(CheckpointError, match=r"exchanges\.csv holds fewer than the 3 iterations"):
        folder.cut_back(3, 1)


@pytest.mark.parametrize("dtype", ["f8", "f4", ENERGY_ROW], ids=["double", "single", "row"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_rows_of_any_kind_grow_and_are_cut(tmp_path, dtype, shape):
    file, rng = tmp_path / "x.npy", np.random.default_rng(6)
    rows = np.zeros((7, *shape), dtype=dtype)
    rows["potential" if rows.dtype.names else ...] = rng.normal(size=rows.shape)
    for begin, end in ((0, 3), (3, 4), (4, 7)):
        append_rows(file, rows[begin:end], begin)
        assert np.array_equal(np.load(file), rows[:end])
    keep_rows(file, 7)
    assert np.array_equal(np.load(file), rows)
    keep_rows(file, 5)
    assert np.array_equal(np.load(file), rows[:5]) and file.stat().st_size == NPY_HEADER + rows[:5].nbytes
    append_rows(file, rows[5:], 5)
    assert np.array_equal(np.load(file), rows)
    keep_rows(file, 0)
    assert not file.exists()
    keep_rows(file, 0)


def test_files_with_fewer_rows_than_were_written_are_refused(tmp_path):
    """Rows that the header does not count, rows that are not there, and files that are none."""
    file, rows = tmp_path / "x.npy", np.arange(12.0).reshape(6, 2)
    append_rows(file, rows, 0)
    whole = file.read_bytes()
    with pytest.raises(CheckpointError, match="holds 6 frames, fewer than the 7"):
        keep_rows(file, 7)
    assert file.read_bytes() == whole
    append_rows(tmp_path / "few.npy", rows[:2], 0)
    (tmp_path / "few.npy").write_bytes((tmp_path / "few.npy").read_bytes() + rows[2:].tobytes())
    with pytest.raises(CheckpointError, match="holds 2 frames, fewer than the 3"):
        keep_rows(tmp_path / "few.npy", 3)
    for damaged in (whole[:-1], b"", b"x" * 400):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"x\.npy"):
            keep_rows(file, 6)
    with pytest.raises(CheckpointError, match="missing or damaged"):
        keep_rows(tmp_path / "none.npy", 1)


def test_a_header_that_does_not_fit_is_refused(tmp_path):
    """245 bytes fit into the 256 of the header, whose first ten and last one are taken."""
    about = {"descr": [("", "<f8")], "fortran_order": False, "shape": (2,)}
    name = "x" * (245 - len(repr(about)))
    rows = np.zeros(2, dtype=[(name, "<f8")])
    append_rows(tmp_path / "x.npy", rows, 0)
    assert np.load(tmp_path / "x.npy").dtype == rows.dtype
    with pytest.raises(ArgumentError, match="has 246 bytes and only 245 fit"):
        append_rows(tmp_path / "y.npy", np.zeros(2, dtype=[(name + "x", "<f8")]), 0)


def replica(i, rng):
    return {
        "joint_inertia": rng.random(1), "geometry": rng.random((4, 3)), "q": rng.random(1),
        "base_position": rng.random((1, 3)), "base_rotation": rng.random((1, 4)), "momentum": rng.random(7),
        "momenta_valid": i % 3 == 0, "rng": np.random.default_rng(i).bit_generator.state,
    }  # fmt: skip


def test_a_checkpoint_is_read_as_it_was_saved(folder):
    """Each replica with its own arrays and random numbers, the box, and the checkpoint before it."""
    rng = np.random.default_rng(7)
    saved = [replica(i, rng) for i in range(N)]
    box = np.diag([3.0, 4.0, 5.0])
    folder.save({"iterations": 1, "frames": 0}, saved[::-1], 2.0 * box)
    folder.append_exchange(0, np.arange(N), 0)
    folder.save({"iterations": 2, "frames": 0}, saved, box)
    about, found = folder.load()
    assert about["iterations"] == 2 and "rng" not in about and len(found) == N
    for one, other in zip(saved, found, strict=True):
        assert one.keys() == other.keys() and one["rng"] == other["rng"]
        assert all(np.array_equal(one[name], other[name]) for name in one if name != "rng")
    assert np.array_equal(folder.read_checkpoint(("box",))[1]["box"], box)
    folder.checkpoint.unlink()
    folder.previous.rename(folder.checkpoint)
    about, found = folder.load()
    assert about["iterations"] == 1 and np.array_equal(found[0]["q"], saved[-1]["q"])


def test_a_checkpoint_vouches_for_all_files(folder):
    """Bytes that were changed behind it are found in each of them; bytes that were added are not looked at."""
    rng = np.random.default_rng(8)
    write_frames(folder, 1, 1)
    folder.save({"iterations": 1, "frames": 1}, [replica(i, rng) for i in range(N)], np.eye(3))
    again = ExchangeFolder(folder.path, N)
    names = list(again.growing())
    assert len(names) == 3 * N + 2
    for name in names:
        data = (folder.path / name).read_bytes()
        (folder.path / name).write_bytes(data + b"more")
        again.check_files()
        (folder.path / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(CheckpointError, match=name.split("/")[-1]):
            again.check_files()
        (folder.path / name).write_bytes(data)


def test_bytes_that_change_between_two_checkpoints_are_found(folder):
    """A checkpoint reads what is new since the one before it, and vouches for the rest as it was."""
    rng = np.random.default_rng(9)
    write_frames(folder, 1, 1)
    folder.save({"iterations": 1, "frames": 1}, [replica(i, rng) for i in range(N)], np.eye(3))
    file = folder.path / "reduced.npy"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    folder.append_exchange(1, np.arange(N), 0)
    folder.save({"iterations": 2, "frames": 1}, [replica(i, rng) for i in range(N)], np.eye(3))
    with pytest.raises(CheckpointError, match=r"reduced\.npy"):
        ExchangeFolder(folder.path, N).check_files()
