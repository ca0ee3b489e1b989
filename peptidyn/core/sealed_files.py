"""Files that show whether they are as they were written: text, JSON and npz with a checksum, and files that grow.

The checksum is a CRC-32. Damage to one bit, or to any 32 neighbouring ones, never escapes it, other damage once in four
billion times. It does not protect from somebody who changes data and checksum together.

=============  ================================================================================================
text           the last line is a comment with the checksum of the lines above
JSON           the key ``checksum`` holds that of the others
npz            the array ``checksum`` holds that of the others: names, types, shapes and values
growing files  `Extent`: how many bytes there were and their checksum, kept elsewhere, e.g. in a checkpoint
=============  ================================================================================================

Everything here raises CheckpointError with the name of the file, and says what is wrong with it.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from peptidyn.core.errors import CheckpointError
from peptidyn.core.files import replacing, write_text

CHECKSUM = "checksum"

_COMMENT = "# checksum of the lines above, by which damage is noticed: "

_BLOCK = 1 << 20
"""Bytes of a growing file that are read at a time."""

DCD_HEADER, _DCD_COUNTS = 276, ((8, 12), (20, 24))
"""Bytes before the first frame in the DCD files that OpenMM writes, and those of them that change with every frame."""

NPY_HEADER = 256
"""Bytes of the header of an npy file that grows: more than numpy needs, so that the number of rows fits in later."""


# ---------------------------------------------------------------------------- text and JSON


def write_sealed_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text of a format with ``#`` comments, and its checksum; whole or not at all."""
    text = text if text.endswith("\n") else f"{text}\n"
    write_text(path, f"{text}{_COMMENT}{_hexadecimal(zlib.crc32(text.encode('utf-8')))}\n")


def read_sealed_text(path: str | os.PathLike[str]) -> str:
    """Return what `write_sealed_text` wrote, without the checksum."""
    whole = _read_bytes(path).replace(b"\r\n", b"\n")  # as text files are on some systems
    body, mark, stored = whole.rpartition(_COMMENT.encode())
    if not mark:
        raise CheckpointError(f"{path} is damaged or was not written by a run: the line with its checksum is missing")
    if stored.removesuffix(b"\n") != _hexadecimal(zlib.crc32(body)).encode():
        raise CheckpointError(f"{path} was changed after the run wrote it: its checksum does not fit")
    return body.decode("utf-8")


def write_sealed_json(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write a table of what JSON holds, and its checksum; whole or not at all."""
    text = json.dumps({**values, CHECKSUM: _json_checksum(values)}, indent=1)
    write_text(path, f"{text}\n")


def read_sealed_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what `write_sealed_json` wrote."""
    data = _read_bytes(path)
    try:
        values = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # which JSONDecodeError and UnicodeDecodeError are
        raise CheckpointError(f"{path} is damaged: it holds no JSON") from error
    stored = values.pop(CHECKSUM, None) if isinstance(values, dict) else None
    if stored is None:
        raise CheckpointError(f"{path} is damaged or was not written by a run: its checksum is missing")
    if stored != _json_checksum(values):
        raise CheckpointError(f"{path} was changed after the run wrote it: its checksum does not fit")
    return values


def _json_checksum(values: Mapping[str, Any]) -> str:
    # numbers are compared as they are read again: keys become text, tuples lists
    return _hexadecimal(zlib.crc32(json.dumps(json.loads(json.dumps(values))).encode("utf-8")))


def _hexadecimal(checksum: int) -> str:
    return f"{checksum:08x}"


def _read_bytes(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error


# ---------------------------------------------------------------------------- npz


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays and their checksum to an npz file that appears only when it is complete and on disk."""
    sealed = {**arrays, CHECKSUM: np.array(_array_checksum(arrays))}
    with replacing(path, durable=True) as temporary, open(temporary, "wb") as file:
        np.savez(file, **sealed)  # type: ignore[arg-type]


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file that `write_npz` wrote. Nothing in the file is run, and none of it is unpickled.

    Not more memory is taken than twice the size of the file, whatever it says of its contents.
    """
    data = _read_bytes(path)
    try:
        arrays = _unpack(data)
    except Exception as error:  # on damaged bytes the readers of zip and npy files raise errors of a dozen kinds
        raise CheckpointError(f"{path} is damaged, or is no npz file of peptidyn") from error
    stored = arrays.pop(CHECKSUM, None)
    if stored is None:
        raise CheckpointError(f"{path} is damaged or was not written by this version: its checksum is missing")
    if str(stored) != _array_checksum(arrays):
        raise CheckpointError(f"{path} was changed after it was written: its checksum does not fit")
    return arrays


def _unpack(data: bytes) -> dict[str, np.ndarray]:
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > len(data):
            raise ValueError("the file says that it holds more than it can")
        for member in members:
            content = archive.read(member)  # compares the checksum of the member
            arrays[member.filename.removesuffix(".npy")] = _unpack_array(content)
    return arrays


def _unpack_array(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise ValueError("pickled objects")
    if not dtype.itemsize or 0 in shape:
        return np.empty(shape, dtype)
    flat = np.frombuffer(content, dtype, offset=stream.tell())
    return flat.reshape(shape[::-1]).T.copy() if fortran else flat.reshape(shape).copy()


def _array_checksum(arrays: Mapping[str, np.ndarray]) -> str:
    total = 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        total = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).tobytes(), total)
    return _hexadecimal(total)


# ---------------------------------------------------------------------------- files that grow


class Extent(NamedTuple):
    """The part of a growing file that somebody vouches for.

    Attributes
    ----------
    size : int
        Bytes from the beginning.
    checksum : int
        Of these bytes; numbers of frames in headers are left out, because they change.
    """

    size: int
    checksum: int


def measure_extent(path: str | os.PathLike[str], before: Extent | None = None) -> Extent:
    """Return the extent of a whole file; only what was added since `before` is read."""
    with open(path, "rb") as file:
        size, checksum = before if before is not None else _start(file, Path(path).suffix)
        file.seek(size)
        while block := file.read(_BLOCK):
            size, checksum = size + len(block), zlib.crc32(block, checksum)
    return Extent(size, checksum)


def extent_of_bytes(data: bytes) -> Extent:
    """Return the extent of a file without a header that holds these bytes."""
    return Extent(len(data), zlib.crc32(data))


def check_extent(path: str | os.PathLike[str], extent: Extent) -> None:
    """Raise CheckpointError unless the beginning of a file is as it was measured; it may have grown since."""
    try:
        with open(path, "rb") as file:
            size, checksum = _start(file, Path(path).suffix)
            file.seek(size)
            while size < extent.size and (block := file.read(min(_BLOCK, extent.size - size))):
                size, checksum = size + len(block), zlib.crc32(block, checksum)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    if size < extent.size:
        raise CheckpointError(f"{path} is cut short: it has {size} of the {extent.size} bytes that were written to it")
    if (size, checksum) != extent:
        raise CheckpointError(f"{path} was changed after the run wrote it: its checksum does not fit")


def _start(file: IO[bytes], suffix: str) -> tuple[int, int]:
    """Return the length of the header and the checksum of what does not change in it."""
    if suffix == ".dcd":
        head = bytearray(file.read(DCD_HEADER))
        for begin, end in _DCD_COUNTS:
            head[begin:end] = bytes(len(head[begin:end]))
        return len(head), zlib.crc32(bytes(head))
    if suffix == ".npy":
        head = bytearray(file.read(NPY_HEADER))
        return len(head), zlib.crc32(re.sub(rb"'shape': \(\d+", b"'shape': (", bytes(head)).rstrip())
    return 0, 0
