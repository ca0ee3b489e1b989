"""Checksums of text, JSON, npz and growing files: every flipped bit is seen, and what is whole is read as it was."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from peptidyn.core.errors import CheckpointError
from peptidyn.core.sealed_files import (
    check_extent,
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
