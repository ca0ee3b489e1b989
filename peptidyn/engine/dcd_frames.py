"""Cutting a DCD trajectory back to its first frames, so that a resumed run can go on behind them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from peptidyn.errors import TrajectoryError

_HEADER = 276
"""Bytes before the first frame in the DCD files that OpenMM writes."""


def keep_dcd_frames(path: str | os.PathLike[str], frames: int) -> None:
    """Cut a DCD file that OpenMM wrote back to its first `frames` frames; with 0 it is removed."""
    file = Path(path)
    if frames == 0:
        file.unlink(missing_ok=True)
        return
    try:
        size = file.stat().st_size
        with open(file, "r+b") as handle:
            header = handle.read(_HEADER)
            if len(header) < _HEADER or header[4:8] != b"CORD":
                raise TrajectoryError(f"{file} is not a DCD file that OpenMM wrote")
            first, interval = struct.unpack_from("<2i", header, 12)
            (boxed,) = struct.unpack_from("<i", header, 48)
            (n_atoms,) = struct.unpack_from("<i", header, 268)
            end = _HEADER + frames * (3 * (8 + 4 * n_atoms) + (56 if boxed else 0))
            if size < end:
                raise TrajectoryError(f"{file} is shorter than the {frames} frames that were written to it")
            handle.seek(8)
            handle.write(struct.pack("<i", frames))
            handle.seek(20)
            handle.write(struct.pack("<i", first + (frames - 1) * interval))
            handle.truncate(end)
    except OSError as error:
        raise TrajectoryError(f"cannot go on with {file}: {error.strerror}") from error
