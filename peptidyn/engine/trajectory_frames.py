"""Cutting a trajectory back to its first frames, so that a resumed run can go on behind them."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import IO

from peptidyn.core.errors import TrajectoryError
from peptidyn.core.sealed_files import DCD_HEADER

_XTC_MAGIC, _XTC_LONG_MAGIC = 1995, 2023
"""First number of every XTC frame; the second kind counts its bytes with 64 bits."""

_XTC_PLAIN = 9
"""XTC frames of so few atoms are not compressed."""


def keep_frames(path: str | os.PathLike[str], frames: int) -> None:
    """Cut a DCD or XTC file that OpenMM wrote back to its first `frames` frames; with 0 it is removed."""
    file = Path(path)
    if frames == 0:
        file.unlink(missing_ok=True)
        return
    try:
        with open(file, "r+b") as handle:
            end = (_cut_dcd if file.suffix == ".dcd" else _find_xtc_end)(handle, file, frames)
            handle.truncate(end)
    except OSError as error:
        raise TrajectoryError(f"cannot continue {file}: {error.strerror}") from error


def _too_short(file: Path, frames: int) -> TrajectoryError:
    return TrajectoryError(f"{file} is shorter than the {frames} frames that were written to it")


def _cut_dcd(handle: IO[bytes], file: Path, frames: int) -> int:
    """Write the number of frames into the header; return where the last one ends."""
    header = handle.read(DCD_HEADER)
    if len(header) < DCD_HEADER or header[4:8] != b"CORD":
        raise TrajectoryError(f"{file} is not a DCD file that OpenMM wrote")
    first, interval = struct.unpack_from("<2i", header, 12)
    (boxed,) = struct.unpack_from("<i", header, 48)
    (n_atoms,) = struct.unpack_from("<i", header, 268)
    end = DCD_HEADER + frames * (3 * (8 + 4 * n_atoms) + (56 if boxed else 0))
    if file.stat().st_size < end:
        raise _too_short(file, frames)
    handle.seek(8)
    handle.write(struct.pack("<i", frames))
    handle.seek(20)
    handle.write(struct.pack("<i", first + (frames - 1) * interval))
    return end


def _find_xtc_end(handle: IO[bytes], file: Path, frames: int) -> int:
    """Return where frame number `frames` ends. Frames differ in length, so all before it are walked over."""
    size, end = file.stat().st_size, 0
    for _ in range(frames):
        handle.seek(end)
        head = handle.read(96)
        if len(head) < 56:
            raise _too_short(file, frames)
        magic, n_atoms = struct.unpack_from(">2i", head)
        if magic not in (_XTC_MAGIC, _XTC_LONG_MAGIC):
            raise TrajectoryError(f"{file} is not an XTC file")
        if n_atoms <= _XTC_PLAIN:
            end += 56 + 12 * n_atoms
        elif len(head) < 96:
            raise _too_short(file, frames)
        else:
            # magic, atoms, step, time, box (9), atoms; then precision, smallest (3), largest (3), index, bytes
            long = magic == _XTC_LONG_MAGIC
            (n_bytes,) = struct.unpack_from(">q" if long else ">i", head, 88)
            end += (96 if long else 92) + 4 * ((n_bytes + 3) // 4)
        if end > size:
            raise _too_short(file, frames)
    return end
