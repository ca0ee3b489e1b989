"""Tables on disk: CSV files that appear only when they are complete."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from typing import Any

from peptidyn.core.files import replacing


def write_csv(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a table with a header line; numbers keep all their digits."""
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
