"""`Study`: the same calculation over a grid of settings, with a table that grows row by row and can be resumed."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.progress import Progress
from peptidyn.core.tables import write_csv

Value = str | int | float | bool


class Study:
    """A grid of settings, a function, and a CSV file with one row per setting.

    Every row is on disk as soon as it is known. A study that is started again with the same file computes only what is
    missing, also when values were added to the grid.

    Parameters
    ----------
    file : str or path
        CSV file; made when the first row is known, read if it exists.
    **grid : sequence of str, int, float or bool
        Values of every setting; all combinations are computed, the last setting changing fastest.

    Attributes
    ----------
    rows : list of dict
        Settings and results together, in the order of the grid.

    Examples
    --------
    >>> study = Study("squares.csv", x=[1, 2, 3])
    >>> study.run(lambda x: {"square": x * x}).column("square")
    array([1, 4, 9])
    """

    def __init__(self, file: str | os.PathLike[str], **grid: Sequence[Value]):
        self.file = Path(file)
        if not grid or not all(len(values) for values in grid.values()):
            raise ArgumentError("a study needs at least one setting, and a value for each: Study(file, n=[4, 8])")
        self.grid = {name: list(values) for name, values in grid.items()}
        self._known: dict[tuple[str, ...], dict[str, Value]] = {}
        self._read()

    @property
    def settings(self) -> Iterator[dict[str, Value]]:
        """All combinations of the grid."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    @property
    def rows(self) -> list[dict[str, Value]]:
        """Rows of the grid that are known, in its order; older rows of the file that are not in the grid are not."""
        found = ((setting, self._known.get(self._key(setting))) for setting in self.settings)
        return [{**setting, **results} for setting, results in found if results is not None]

    def run(self, function: Callable[..., Mapping[str, Value]], *, progress: bool = False) -> Study:
        """Call ``function(**setting)`` for every setting without a row, and store the numbers it returns by name."""
        missing = [setting for setting in self.settings if self._key(setting) not in self._known]
        with Progress(len(missing), self.file.stem, "settings", progress) as bar:
            for setting in missing:
                results = {name: _plain(value) for name, value in function(**setting).items()}
                columns = next(iter(self._known.values()), results)
                if set(results) != set(columns) or set(results) & set(self.grid):
                    raise ArgumentError(
                        f"the function returned {', '.join(results)} and the rows of {self.file} hold "
                        f"{', '.join(columns)}; give the study another file"
                    )
                self._known[self._key(setting)] = {name: results[name] for name in columns}
                self._write()
                bar.advance(1, ", ".join(f"{k}={v}" for k, v in setting.items()))
        return self

    def column(self, name: str, **where: Value) -> np.ndarray:
        """Return one column as an array, of the rows whose settings are as given: ``column("rg", fixman=True)``."""
        unknown = [key for key in where if key not in self.grid]
        if unknown:
            raise ArgumentError(f"{unknown[0]} is not a setting of this study; it has {', '.join(self.grid)}")
        rows = [row for row in self.rows if all(row[key] == value for key, value in where.items())]
        if rows and name not in rows[0]:
            raise ArgumentError(f"there is no column {name!r}; there are {', '.join(rows[0])}")
        return np.array([row[name] for row in rows])

    # ------------------------------------------------------------------ the file

    def _key(self, setting: Mapping[str, Value]) -> tuple[str, ...]:
        return tuple(str(setting[name]) for name in self.grid)

    def _read(self) -> None:
        if not self.file.exists():
            return
        with open(self.file, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        names = list(self.grid)
        if not rows or rows[0][: len(names)] != names:
            raise ArgumentError(
                f"{self.file} is a table of {', '.join(rows[0]) if rows else 'nothing'}, and this study begins with "
                f"{', '.join(names)}; give the study another file"
            )
        for row in rows[1:]:
            results = zip(rows[0][len(names) :], map(_number, row[len(names) :]), strict=True)
            self._known[tuple(row[: len(names)])] = dict(results)

    def _write(self) -> None:
        columns = [*self.grid, *next(iter(self._known.values()))]
        write_csv(self.file, columns, ([*key, *results.values()] for key, results in self._known.items()))


def _plain(value: Any) -> Value:
    """Return a NumPy scalar as a Python one."""
    return value.item() if isinstance(value, np.generic) else value


def _number(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"True": True, "False": False}.get(text, text)
