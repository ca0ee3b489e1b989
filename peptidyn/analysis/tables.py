"""Tables on disk: CSV files that appear only when they are complete."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from peptidyn.errors import ArgumentError


def write_csv(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table with a header line; numbers keep all their digits."""
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with os.fdopen(handle, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)
        os.chmod(name, 0o644)
        os.replace(name, target)
    except OSError as error:
        os.unlink(name)
        raise ArgumentError(f"cannot write {target}: {error.strerror}") from error
    except BaseException:
        os.unlink(name)
        raise
