"""`StopRequest`: Ctrl-C as a request that is met between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class StopRequest:
    """Turns Ctrl-C (and a polite kill) into a request that is met between two steps; a second one interrupts."""

    def __init__(self) -> None:
        self.made = False
        self._before: dict[int, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.made:
            raise KeyboardInterrupt
        self.made = True

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python handles signals nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
