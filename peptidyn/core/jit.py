"""numba's `njit` and `prange`, with a compiler that Ctrl-C does not break.

numba and LLVM do not expect an exception in the middle of their work. It is lost in a callback, leaves a function half
made, so that its next call fails, or crashes the process. Signals that Python handles are therefore held back while the
main thread compiles a function or loads it from the cache. They are met when the next pass of the compiler begins, or
when it is done: after a few seconds at most.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit, prange
from numba.core.event import Listener, register

__all__ = ["njit", "prange"]

LOCK, PASS = "numba:compiler_lock", "numba:run_pass"
"""Events of numba: the compiler is at work (they nest); one of its passes is."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _HeldSignals(Listener):
    """Puts itself in place of the handlers of signals while the main thread compiles, and calls them later."""

    def __init__(self) -> None:
        self._depth = 0
        self._before: dict[int, Any] = {}
        self._held: list[Callable[[], Any]] = []

    def on_start(self, event: Any) -> None:
        if threading.current_thread() is not threading.main_thread():  # Python handles signals nowhere else
            return
        if event.kind == PASS:
            self._meet()
            return
        if self._depth == 0:
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, partial(self._hold, handler))
        self._depth += 1

    def on_end(self, event: Any) -> None:
        if threading.current_thread() is not threading.main_thread() or event.kind == PASS:
            return
        self._depth -= 1
        if self._depth == 0:
            while self._before:
                signal.signal(*self._before.popitem())
            self._meet()

    def _hold(self, handler: Callable[..., Any], number: int, frame: Any) -> None:
        self._held.append(partial(handler, number, frame))

    def _meet(self) -> None:
        """Do what the signals that were held back ask for, which may be to raise KeyboardInterrupt."""
        held, self._held = self._held, []
        for handle in held:
            handle()


_HELD = _HeldSignals()
register(LOCK, _HELD)
register(PASS, _HELD)
