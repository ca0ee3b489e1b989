"""Progress of long work: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from typing import TextIO

KNOWN = "{percentage:3.0f}%  {n:,.0f}/{total:,.0f} {unit}, {remaining} left{postfix}"
UNKNOWN = "{n:,.0f} {unit}{postfix}"
"""How progress reads where the amount of work is known, and where it is not; fields of tqdm."""


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
        Seconds between lines; a terminal is drawn every 0.2 s, or more often.
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
        self.total, self.label, self.unit, self.enabled = total, label, unit, enabled
        self.stream = sys.stderr if stream is None else stream
        self.on_terminal = self.stream.isatty()
        self.interval = min(0.2, interval) if self.on_terminal else interval
        self.done = 0.0
        self._start = self._shown = time.monotonic()
        self._text = UNKNOWN if total is None else KNOWN
        self._bar = None
        if enabled and self.on_terminal:
            from tqdm import tqdm

            class Bar(tqdm):
                monitor_interval = 0  # no thread of its own: every advance may draw

            shape = self._text if total is None else f"[{{bar:24}}] {self._text}"
            self._bar = Bar(
                total=total, desc=label, unit=unit, file=self.stream, leave=False, mininterval=self.interval,
                miniters=0, smoothing=0.0, delay=1e-9, dynamic_ncols=True, ascii=".#", bar_format="{desc}: " + shape,
            )  # fmt: skip

    def advance(self, amount: float, note: str = "") -> None:
        """Count `amount` more work done; `note` is shown behind it."""
        self.done += amount
        # tqdm forgets a total that is exceeded
        done = self.done if self.total is None else min(self.done, self.total)
        now = time.monotonic()
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._bar.n)
        elif self.enabled and now - self._shown >= self.interval:
            from tqdm import tqdm

            self._shown = now
            line = tqdm.format_meter(
                done, self.total, now - self._start, prefix=self.label, unit=self.unit, postfix=note,
                bar_format="{desc}: " + self._text,
            )  # fmt: skip
            print(line, file=self.stream, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()
