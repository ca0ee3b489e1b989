"""Damage, drawn at random: of the bytes and lines of structure files, of the files of a run, and of options."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = (
    "nan", "inf", "-inf", "1e999", "-1e300", "1e30", "99999999", "0", "-0.0", "0.0000", "1e-320", "********", "x", "",
    "1.2.3", "1,5", "0x10", "1_0", "\N{ARABIC-INDIC DIGIT FIVE}",
)  # fmt: skip
"""What may stand in place of a number."""

WORDS = (
    "loop_", "data_", "data_X", ";", "'", '"', "#", "_atom_site.id", "_cell.length_a", "save_", "stop_", "global_", "?",
    ".", "ATOM", "HETATM", "TER", "MODEL 2", "ENDMDL", "END", "CRYST1", "CONECT    1    1", "CONECT99999", "\t", "\r",
    "\x0b", "\x85", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\ufeff", "\0",
)  # fmt: skip
"""What may be put between two words."""

CELLS = (
    (0, 0, 0, 90, 90, 90), (1, 1, 1, 90, 90, 90), (np.inf, 30, 30, 90, 90, 90), (np.nan, 30, 30, 90, 90, 90),
    (30, 30, 30, 0, 0, 0), (30, 30, 30, 180, 90, 90), (30, 30, 30, 10, 10, 170), (1e8, 30, 30, 90, 90, 90),
    (-30, 30, 30, 90, 90, 90), (2, 2, 2, 90, 90, 90), (30, 30, 30, 60, 60, 90), (30, 30, 30, 1e-9, 90, 90),
)  # fmt: skip
"""Unit cells: lengths in Angstrom and angles in degrees."""


# ---------------------------------------------------------------------------- structure files


def damage_text(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """Return a structure file with one to three kinds of damage, and their names."""
    names = []
    for _ in range(int(rng.integers(1, 4))):
        kind = _KINDS[int(rng.integers(len(_KINDS)))]
        data = kind(data, rng) if data else data
        names.append(kind.__name__.strip("_"))
    return data, " + ".join(names)


def _flip_bit(data: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(data)))
    return data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]


def _other_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    at, count = int(rng.integers(len(data))), int(rng.integers(1, 9))
    return data[:at] + rng.integers(32, 127, count).astype(np.uint8).tobytes() + data[at + count :]


def _cut_short(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: int(rng.integers(len(data)))]


def _lose_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(data)))
    return data[:at] + data[at + int(rng.integers(1, 200)) :]


def _on_lines(data: bytes, rng: np.random.Generator, how: str) -> bytes:
    lines = data.splitlines(True)
    i, j = (int(k) for k in rng.integers(len(lines), size=2))
    if how == "repeat":
        lines.insert(j, lines[i])
    elif how == "swap":
        lines[i], lines[j] = lines[j], lines[i]
    elif how == "lose":
        del lines[i]
    elif how == "join":
        lines[i] = lines[i].rstrip(b"\r\n")
    return b"".join(lines)


def _repeat_line(data: bytes, rng: np.random.Generator) -> bytes:
    return _on_lines(data, rng, "repeat")


def _swap_lines(data: bytes, rng: np.random.Generator) -> bytes:
    return _on_lines(data, rng, "swap")


def _lose_line(data: bytes, rng: np.random.Generator) -> bytes:
    return _on_lines(data, rng, "lose")


def _join_lines(data: bytes, rng: np.random.Generator) -> bytes:
    return _on_lines(data, rng, "join")


def _other_number(data: bytes, rng: np.random.Generator) -> bytes:
    """Put another number into a column of coordinates of a PDB line, or in place of a word of another line."""
    lines = data.splitlines(True)
    i, text = int(rng.integers(len(lines))), NUMBERS[int(rng.integers(len(NUMBERS)))].encode()
    if lines[i].startswith((b"ATOM  ", b"HETATM")) and len(lines[i]) > 54 and b"." in lines[i][30:38]:
        at = (22, 30, 38, 46, 54)[int(rng.integers(5))]
        width = {22: 4, 54: 6}.get(at, 8)
        lines[i] = lines[i][:at] + text[:width].rjust(width) + lines[i][at + width :]
    else:
        words = lines[i].split(b" ")
        words[int(rng.integers(len(words)))] = text
        lines[i] = b" ".join(words)
    return b"".join(lines)


def _other_word(data: bytes, rng: np.random.Generator) -> bytes:
    words = data.split(b" ")
    words.insert(int(rng.integers(len(words) + 1)), WORDS[int(rng.integers(len(WORDS)))].encode())
    return b" ".join(words)


def _other_line(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.splitlines(True)
    lines.insert(int(rng.integers(len(lines) + 1)), WORDS[int(rng.integers(len(WORDS)))].encode() + b"\n")
    return b"".join(lines)


def _other_cell(data: bytes, rng: np.random.Generator) -> bytes:
    cell = CELLS[int(rng.integers(len(CELLS)))]
    if data.lstrip()[:5].lower() == b"data_":
        names = ("length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma")
        text = "".join(f"_cell.{name} {value:g}\n" for name, value in zip(names, cell, strict=True))
        head, _, rest = data.partition(b"\n")
        return head + b"\n" + text.encode() + rest
    lengths, angles = "".join(f"{x:9.3f}"[:9] for x in cell[:3]), "".join(f"{x:7.2f}"[:7] for x in cell[3:])
    return f"CRYST1{lengths}{angles} P 1           1\n".encode() + data


_KINDS = (
    _flip_bit, _other_bytes, _cut_short, _lose_bytes, _repeat_line, _swap_lines, _lose_line, _join_lines, _other_number,
    _other_number, _other_word, _other_line, _other_cell,
)  # fmt: skip


# ---------------------------------------------------------------------------- files of runs


def damage_file(path: Path, foreign: Path, rng: np.random.Generator) -> str:
    """Damage one file of a run in place; return in which way.

    Parameters
    ----------
    path : Path
    foreign : Path
        The file of that name of another run.
    """
    data = path.read_bytes()
    ways = ["bit", "bit", "bytes", "short", "empty", "junk", "gone", "folder", "longer", "foreign"]
    if path.suffix in (".npz", ".npy"):
        ways += ["array", "array"]
    way = ways[int(rng.integers(len(ways)))]
    if way == "foreign" and not foreign.is_file():
        way = "gone"
    if way in ("gone", "folder"):
        path.unlink()
        if way == "folder":
            path.mkdir()
        return way
    if way == "foreign":
        shutil.copyfile(foreign, path)
        return way
    if way == "array":
        return _damage_array(path, rng)
    at = int(rng.integers(len(data))) if data else 0
    path.write_bytes(
        {
            "bit": lambda: _flip_bit(data, rng) if data else b"x",
            "bytes": lambda: data[:at] + rng.bytes(int(rng.integers(1, 9))) + data[at + 8 :],
            "short": lambda: data[:at],
            "empty": lambda: b"",
            "junk": lambda: rng.bytes(max(1, len(data))),
            "longer": lambda: data + rng.bytes(int(rng.integers(1, 99))),
        }[way]()
    )
    return way


def _damage_array(path: Path, rng: np.random.Generator) -> str:
    """Save an array of an npz or npy file again: of another shape or type, with nan in it, or pickled."""
    way = ("shape", "type", "nan", "object", "value", "less")[int(rng.integers(6))]
    if path.suffix == ".npy":
        np.save(path, _other_array(np.load(path), way, rng), allow_pickle=True)
        return f"array: {way}"
    with np.load(path) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    name = sorted(arrays)[int(rng.integers(len(arrays)))]
    if way == "less":
        del arrays[name]
    else:
        arrays[name] = _other_array(arrays[name], way, rng)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    path.write_bytes(buffer.getvalue())
    return f"array {name}: {way}"


def _other_array(array: np.ndarray, way: str, rng: np.random.Generator) -> np.ndarray:
    if way == "shape":
        return np.concatenate([array.ravel(), array.ravel()[:1]])
    if way == "type":
        return array.astype("U40") if array.dtype.kind in "iufb" else np.zeros(3)
    if way == "object":
        return np.array([{"a": 1}, None], dtype=object)
    if array.dtype.kind != "f" or not array.size:
        return np.zeros(2)
    other = array.copy()
    other.flat[int(rng.integers(array.size))] = np.nan if way == "nan" else 1.2345
    return other


def files_of(folder: Path, without: Sequence[str] = ()) -> list[Path]:
    """Return all files of a run, but pictures, locks and reports, sorted."""
    left_out = (".png", ".html", *without)
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "lock" and not p.name.endswith(left_out))
