"""Files that appear only when they are complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peptidyn.core.errors import OutputError


@contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path` to write to; rename it to `path` when the block ends without an error.

    Readers never see half a file, and an earlier file stays as it is until the new one is whole. A full disk, a missing
    folder or a lack of permission raises OutputError with one sentence; nothing is left behind.

    Parameters
    ----------
    path : path
    durable : bool
        Wait until the bytes are on the disk before renaming, so that the file also survives a crash of the machine.
    """
    target = Path(path)
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=target.suffix)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        # mkstemp makes private files; a new file has the permissions that the user's mask allows
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        if durable:
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text to a file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
