"""Progress of long work: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO


class Progress:
    """Shows how far work has come, how fast it goes and how long it will take.

    On a terminal one line is redrawn; elsewhere a line is printed every `interval` seconds, so that log files stay
    readable. Nothing is printed for work that is done within the first interval, unless on a terminal.

    Parameters
    ----------
    total : float or None
        Amount of work; None when it is not known.
    label : str
        What is being done.
    unit : str
        What the amount counts.
    enabled : bool
    stream : text file, default standard error
    interval : float
        Seconds between lines.
    """

    def __init__(
        self,
        total: float | None,
        label: str,
        unit: str = "frames",
        enabled: bool = True,
        stream: TextIO | None = None,
        interval: float = 10.0,
    ):
        self.total = total
        self.label = label
        self.unit = unit
        self.enabled = enabled
        self.stream = sys.stderr if stream is None else stream
        self.on_terminal = self.stream.isatty()
        self.interval = 0.2 if self.on_terminal else interval
        self.done = 0.0
        self._start = time.monotonic()
        self._shown = self._start
        self._drawn = False

    def advance(self, amount: float, note: str = "") -> None:
        """Count `amount` more work done; `note` is shown behind it."""
        self.done += amount
        now = time.monotonic()
        if self.enabled and now - self._shown >= self.interval:
            self._shown = now
            self._show(note)

    def _show(self, note: str) -> None:
        spent = max(time.monotonic() - self._start, 1e-9)
        rate = self.done / spent
        text = f"{self.done:,.0f} {self.unit}"
        if self.total:
            part = min(self.done / self.total, 1.0)
            left = (self.total - self.done) / rate if rate > 0 else float("inf")
            text = f"{100 * part:3.0f}%  {self.done:,.0f}/{self.total:,.0f} {self.unit}, {format_time(left)} left"
            if self.on_terminal:
                filled = int(24 * part)
                text = f"[{'#' * filled}{'.' * (24 - filled)}] {text}"
        line = f"{self.label}: {text}{', ' + note if note else ''}"
        if self.on_terminal:
            self.stream.write(f"\r\033[K{line}")
            self._drawn = True
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            self.stream.write("\r\033[K")
            self.stream.flush()


def format_time(seconds: float) -> str:
    """Return e.g. ``1:02:03``, ``4:05`` or ``7 s``."""
    if seconds == float("inf"):
        return "?"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
