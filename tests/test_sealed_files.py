"""Checksums of text, JSON, npz and growing files: every flipped bit is seen, and what is whole is read as it was."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib

import numpy as np
import pytest

from peptidyn.core.errors import CheckpointError
from peptidyn.core.sealed_files import (
    Extent,
    check_extent,
    extent_of_bytes,
    measure_extent,
    read_npz,
    read_sealed_json,
    read_sealed_text,
    write_npz,
    write_sealed_json,
    write_sealed_text,
)

TEXT = 'file = "näme.pdb"\nseed = 5\n'
VALUES = {
    "steps": 10,
    "mean": -67.80000000000001,
    "none": None,
    "notes": ["a", "ß"],
    "by_level": {1: (2.5, float("inf"))},
}
ARRAYS = {
    "q": np.linspace(0.0, 1.0, 7).reshape(7, 1), "about": np.array('{"step": 3}'), "none": np.empty((0, 3)),
    "valid": np.array([True, False]), "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}  # fmt: skip


def flipped(data: bytes):
    """All copies of some bytes with one bit flipped."""
    for at in range(len(data)):
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def test_text_with_any_bit_flipped_is_refused(tmp_path):
    file = tmp_path / "run.toml"
    write_sealed_text(file, TEXT)
    assert read_sealed_text(file) == TEXT
    whole = file.read_bytes()
    for damaged in flipped(whole):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"run\.toml"):
            read_sealed_text(file)
    file.write_bytes(whole.replace(b"\n", b"\r\n"))  # as some programs write lines
    assert read_sealed_text(file) == TEXT


def test_json_with_other_content_is_refused(tmp_path):
    file = tmp_path / "summary.json"
    write_sealed_json(file, VALUES)
    stored = {**VALUES, "by_level": {"1": [2.5, float("inf")]}}
    assert read_sealed_json(file) == stored
    for damaged in flipped(file.read_bytes()):
        file.write_bytes(damaged)
        try:
            found = read_sealed_json(file)
        except CheckpointError as error:
            assert "summary.json" in str(error)
        else:
            assert found == stored  # a bit of the white space
    for text in ("", "[]", "{}", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"):
        file.write_text(text)
        with pytest.raises(CheckpointError, match=r"summary\.json"):
            read_sealed_json(file)


def test_npz_with_any_bit_flipped_is_refused_or_the_same(tmp_path):
    file = tmp_path / "c.npz"
    write_npz(file, ARRAYS)
    whole = file.read_bytes()

    def assert_same(found):
        assert sorted(found) == sorted(ARRAYS)
        for name, array in ARRAYS.items():
            assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name

    assert_same(read_npz(file))
    refused = 0
    for damaged in list(flipped(whole))[::7]:
        file.write_bytes(damaged)
        try:
            found = read_npz(file)
        except CheckpointError as error:
            assert "c.npz" in str(error)
            refused += 1
        else:
            assert_same(found)  # dates and other words of the zip format that nobody reads
    assert refused > 0.3 * len(whole) * 8 / 7


def saved(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_npz_of_others_and_of_objects_are_refused(tmp_path):
    file = tmp_path / "c.npz"
    write_npz(file, ARRAYS)
    with np.load(file) as stored:
        checksum = stored["checksum"]
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("q.npy", bytes(10_000_000))
    for data, phrase in (
        (saved(**ARRAYS), "its checksum is missing"),
        (saved(**{**ARRAYS, "q": ARRAYS["q"] + 1e-16}, checksum=checksum), "its checksum does not fit"),
        (saved(**{**ARRAYS, "q": ARRAYS["q"].astype(np.float32)}, checksum=checksum), "its checksum does not fit"),
        (saved(**{**ARRAYS, "q": ARRAYS["q"].ravel()}, checksum=checksum), "its checksum does not fit"),
        (saved(**{**ARRAYS, "q": np.array([{}], dtype=object)}, checksum=checksum), "is damaged"),
        (bomb.getvalue(), "is damaged"),
        (b"", "is damaged"),
    ):
        file.write_bytes(data)
        with pytest.raises(CheckpointError, match=phrase):
            read_npz(file)


@pytest.mark.parametrize("name", ["log.csv", "t.dcd", "e.npy"])
def test_what_was_measured_may_grow_but_not_change(tmp_path, name):
    rng = np.random.default_rng(1)
    head = {"t.dcd": 276, "e.npy": 256, "log.csv": 0}[name]
    body = [rng.bytes(n) for n in (40, 17, 2_000_000)]
    file = tmp_path / name
    file.write_bytes(bytes(head) + body[0])
    first = measure_extent(file)
    with open(file, "ab") as out:
        out.write(body[1] + body[2])
    second = measure_extent(file, first)
    assert second == measure_extent(file) and second.size == head + sum(map(len, body))
    for extent in (first, second):
        check_extent(file, extent)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    check_extent(file, first)
    with pytest.raises(CheckpointError, match="is cut short"):
        check_extent(file, second)
    file.write_bytes(whole[: head + 60] + b"?" + whole[head + 61 :])  # behind what was measured first
    check_extent(file, first)
    with pytest.raises(CheckpointError, match="was changed"):
        check_extent(file, second)
    file.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        check_extent(file, first)


def test_counts_in_headers_may_change(tmp_path):
    rows, file = np.arange(12.0).reshape(4, 3), tmp_path / "e.npy"
    from peptidyn.sampling.storage import append_rows

    append_rows(file, rows[:2], 0)
    extent = measure_extent(file)
    append_rows(file, rows[2:], 2)
    check_extent(file, extent)
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"<f8", b">f8"))
    with pytest.raises(CheckpointError, match="was changed"):
        check_extent(file, extent)


# ---------------------------------------------------------------------------- what is written


@pytest.mark.parametrize("text", ["a\nb\n", "a\nb", ""])
def test_the_last_line_of_a_text_is_its_checksum(tmp_path, text):
    """Eight hexadecimal digits, of all lines above; a line that is not ended is ended."""
    file = tmp_path / "a.toml"
    write_sealed_text(file, text)
    ended = text if text.endswith("\n") else f"{text}\n"
    *lines, last = file.read_text().splitlines(keepends=True)
    assert "".join(lines) == ended == read_sealed_text(file)
    assert last == f"# checksum of the lines above, by which damage is noticed: {zlib.crc32(ended.encode()):08x}\n"


def test_a_text_with_another_checksum_or_none(tmp_path):
    file = tmp_path / "a.toml"
    write_sealed_text(file, "seed = 5\n")
    whole = file.read_text()
    for changed, phrase in (
        (whole.replace("seed = 5", "seed = 6"), "was changed after the run wrote it"),
        (f"{whole}seed = 6\n", "was changed after the run wrote it"),
        ("seed = 5\n", "the line with its checksum is missing"),
        ("", "the line with its checksum is missing"),
    ):
        file.write_text(changed)
        with pytest.raises(CheckpointError, match=phrase):
            read_sealed_text(file)
    file.unlink()
    for read in (read_sealed_text, read_sealed_json, read_npz):
        with pytest.raises(CheckpointError, match=r"a\.toml is missing"):
            read(file)
        with pytest.raises(CheckpointError, match=r"cannot read .*: Is a directory"):
            read(tmp_path)


def test_the_checksum_of_json_is_one_of_its_keys(tmp_path):
    file = tmp_path / "a.json"
    write_sealed_json(file, {"b": 1, "a": [1.5]})
    stored = json.loads(file.read_text())
    assert stored.pop("checksum") == f"{zlib.crc32(json.dumps({'b': 1, 'a': [1.5]}).encode()):08x}"
    assert list(stored.items()) == [("b", 1), ("a", [1.5])]
    file.write_text(file.read_text().replace("1.5", "1.25"))
    with pytest.raises(CheckpointError, match="was changed after the run wrote it"):
        read_sealed_json(file)


def test_arrays_that_have_changed_places(tmp_path):
    """Names belong to what the checksum is of; the order in the file does not."""
    file = tmp_path / "c.npz"
    arrays = {"q": np.arange(3.0), "p": np.arange(3.0, 6.0)}
    write_npz(file, arrays)
    with np.load(file) as stored:
        checksum = stored["checksum"]
    file.write_bytes(saved(checksum=checksum, p=arrays["p"], q=arrays["q"]))
    assert {name: array.tolist() for name, array in read_npz(file).items()} == {"q": [0, 1, 2], "p": [3, 4, 5]}
    file.write_bytes(saved(q=arrays["p"], p=arrays["q"], checksum=checksum))
    with pytest.raises(CheckpointError, match="its checksum does not fit"):
        read_npz(file)
    file.write_bytes(saved(**arrays, more=np.zeros(0), checksum=checksum))
    with pytest.raises(CheckpointError, match="its checksum does not fit"):
        read_npz(file)


def test_arrays_that_are_read_can_be_changed(tmp_path):
    file = tmp_path / "c.npz"
    write_npz(file, ARRAYS)
    for array in read_npz(file).values():
        assert array.flags.writeable


def test_checkpoints_are_on_the_disk_before_they_replace_the_last(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    write_npz(tmp_path / "c.npz", ARRAYS)
    assert synced == [(tmp_path / "c.npz").stat().st_size]


# ---------------------------------------------------------------------------- growing files


def test_an_extent_is_a_size_and_a_checksum(tmp_path):
    file = tmp_path / "log.csv"
    file.write_bytes(b"one\ntwo\n")
    assert measure_extent(file) == extent_of_bytes(b"one\ntwo\n") == Extent(8, zlib.crc32(b"one\ntwo\n"))
    assert extent_of_bytes(b"") == Extent(0, 0)


def test_only_what_was_added_is_read(tmp_path):
    """What somebody vouches for is not read again: a change there is still noticed later."""
    file = tmp_path / "log.csv"
    file.write_bytes(b"one\n")
    first = measure_extent(file)
    file.write_bytes(b"0ne\ntwo\n")
    assert measure_extent(file, first) == Extent(8, zlib.crc32(b"one\ntwo\n"))
    with pytest.raises(CheckpointError, match="was changed"):
        check_extent(file, measure_extent(file, first))


def test_headers_of_trajectories_may_change_in_their_counts_only(tmp_path):
    """The number of frames at the bytes 8 to 11, that of steps at 20 to 23."""
    head = np.random.default_rng(0).bytes(276)
    file = tmp_path / "t.dcd"
    file.write_bytes(head + b"frames")
    extent = measure_extent(file)
    assert extent.size == 282
    for at in range(276):
        file.write_bytes(head[:at] + bytes([head[at] ^ 1]) + head[at + 1 :] + b"frames and more")
        if 8 <= at < 12 or 20 <= at < 24:
            check_extent(file, extent)
        else:
            with pytest.raises(CheckpointError, match="was changed"):
                check_extent(file, extent)


def test_headers_of_arrays_may_change_in_their_rows_only(tmp_path):
    def header(shape, order="False"):
        text = f"{{'descr': '<f8', 'fortran_order': {order}, 'shape': {shape}, }}"
        return f"{text:<255}\n".encode()

    file = tmp_path / "e.npy"
    file.write_bytes(header("(9, 3)") + b"rows")
    extent = measure_extent(file)
    for shape in ("(9, 3)", "(10, 3)", "(1234567, 3)"):
        file.write_bytes(header(shape) + b"rows and more")
        check_extent(file, extent)
    for changed in (header("(9, 4)"), header("(9, 3)", "True"), header("(9,)")):
        file.write_bytes(changed + b"rows")
        with pytest.raises(CheckpointError, match="was changed"):
            check_extent(file, extent)


@pytest.mark.parametrize("name", ["log.csv", "t.dcd", "e.npy"])
@pytest.mark.parametrize("size", [0, 10, 299])
def test_files_that_are_cut_short(tmp_path, name, size):
    file = tmp_path / name
    file.write_bytes(bytes(300))
    extent = measure_extent(file)
    assert extent.size == 300
    file.write_bytes(bytes(size))
    with pytest.raises(CheckpointError, match=f"{name} is cut short: it has {size} of the 300 bytes"):
        check_extent(file, extent)
    file.unlink()
    file.mkdir()
    with pytest.raises(CheckpointError, match="cannot read"):
        check_extent(file, extent)
