"""Names of files that compiled readers can open."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def plain_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """Give a name of a file that has ASCII letters only: MDTraj's compiled readers (DCD, XTC, TRR) take no other.

    A name that has others is replaced by that of a link in a temporary folder, or of a copy where links cannot be made.
    """
    if str(path).isascii():
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="peptidyn-") as folder:
        link = Path(folder) / f"file{Path(path).suffix}"
        try:
            link.symlink_to(Path(path).resolve())
        except OSError:
            shutil.copyfile(path, link)
        yield str(link)
