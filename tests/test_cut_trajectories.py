"""Cutting DCD and XTC files back to their first frames, byte by byte."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from openmm import app

from peptidyn.core.errors import TrajectoryError
from peptidyn.engine.trajectory_frames import keep_frames


def plain_frame(n_atoms):
    """An XTC frame of up to nine atoms: magic, atoms, step, time, box (9), atoms, positions."""
    return struct.pack(">3if9fi", 1995, n_atoms, 7, 0.5, *[1.0] * 9, n_atoms) + bytes(12 * n_atoms)


def packed_frame(n_atoms, n_bytes, magic=1995):
    """A compressed one: then precision, smallest (3), largest (3), index, and the bytes, filled up to four."""
    head = struct.pack(">3if9fi", magic, n_atoms, 7, 0.5, *[1.0] * 9, n_atoms) + struct.pack(">f7i", 1000.0, *range(7))
    count = struct.pack(">q" if magic == 2023 else ">i", n_bytes)
    return head + count + b"\xff" * (n_bytes + -n_bytes % 4)


FRAMES = {
    "one atom": [plain_frame(1)] * 3,
    "nine atoms": [plain_frame(9)] * 3,
    "ten atoms": [packed_frame(10, n) for n in (40, 41, 42, 43)],
    "many atoms": [packed_frame(500, n) for n in (2100, 2203, 2001)],
    "long counts": [packed_frame(500, n, 2023) for n in (2100, 2203, 2001)],
}


@pytest.mark.parametrize("name", FRAMES)
def test_xtc_frames_are_as_long_as_they_say(tmp_path, name):
    frames, path = FRAMES[name], tmp_path / "x.xtc"
    for kept in range(1, len(frames) + 1):
        path.write_bytes(b"".join(frames))
        keep_frames(path, kept)
        assert path.read_bytes() == b"".join(frames[:kept])
    with pytest.raises(TrajectoryError, match=f"x.xtc is shorter than the {len(frames) + 1} frames"):
        keep_frames(path, len(frames) + 1)
    whole = path.read_bytes()
    for lost in (1, 5, len(frames[-1]) - 70, len(frames[-1]) - 30, len(frames[-1])):
        path.write_bytes(whole[:-lost] if lost > 0 else whole)
        if lost > 0:
            with pytest.raises(TrajectoryError, match=f"is shorter than the {len(frames)} frames"):
                keep_frames(path, len(frames))
            assert path.read_bytes() == whole[:-lost]
    assert len(whole) == sum(map(len, frames))


def test_what_is_no_xtc_file_is_named(tmp_path):
    path = tmp_path / "x.xtc"
    path.write_bytes(plain_frame(3) + struct.pack(">i", 1996) + plain_frame(3)[4:])
    with pytest.raises(TrajectoryError, match=r"x\.xtc is not an XTC file"):
        keep_frames(path, 2)
    keep_frames(path, 1)
    assert path.read_bytes() == plain_frame(3)
    with pytest.raises(TrajectoryError, match=r"cannot continue .*none\.xtc: No such file"):
        keep_frames(tmp_path / "none.xtc", 1)
    keep_frames(tmp_path / "none.xtc", 0)
    keep_frames(path, 0)
    assert not path.exists()


def dcd(path, n_atoms, frames, box, first=20, interval=5):
    topology = app.Topology()
    residue = topology.addResidue("X", topology.addChain())
    for i in range(n_atoms):
        topology.addAtom(f"A{i}", None, residue)
    topology.setPeriodicBoxVectors(box)
    x = np.random.default_rng(3).random((frames, n_atoms, 3))
    with open(path, "wb") as stream:
        file = app.DCDFile(stream, topology, 0.002, first, interval)
        for frame in range(frames):
            file.writeModel(x[frame], periodicBoxVectors=box)
    return path.read_bytes()


@pytest.mark.parametrize("n_atoms", [1, 7])
@pytest.mark.parametrize("box", [None, 2.0 * np.eye(3)], ids=["no box", "box"])
def test_dcd_frames_are_counted_with_their_box(tmp_path, n_atoms, box):
    """Three records of coordinates with two marks of four bytes each, and one of six doubles for the box."""
    path, frame = tmp_path / "x.dcd", 3 * (8 + 4 * n_atoms) + (0 if box is None else 8 + 6 * 8)
    whole = dcd(path, n_atoms, 4, box)
    assert len(whole) == 276 + 4 * frame
    for kept in (4, 3, 1):
        keep_frames(path, kept)
        cut = path.read_bytes()
        assert len(cut) == 276 + kept * frame and cut[276:] == whole[276 : len(cut)]
        assert struct.unpack_from("<4i", cut, 8) == (kept, 20, 5, 20 + 5 * (kept - 1))
        assert cut[24:276] == whole[24:276] and cut[:8] == whole[:8]
    with pytest.raises(TrajectoryError, match=r"x\.dcd is shorter than the 2 frames"):
        keep_frames(path, 2)
    path.write_bytes(cut[:-1])
    with pytest.raises(TrajectoryError, match="shorter than the 1 frames"):
        keep_frames(path, 1)
    for damaged in (whole[:275], whole[:4] + b"VELD" + whole[8:]):
        path.write_bytes(damaged)
        with pytest.raises(TrajectoryError, match="is not a DCD file that OpenMM wrote"):
            keep_frames(path, 1)
        assert path.read_bytes() == damaged
