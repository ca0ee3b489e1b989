"""One core for a run of a small molecule: its thread and the thread in which OpenMM computes forces take turns.

OpenMM's CPU platform computes in threads of its own, also if there is only one. If that thread lies on another core
than the one that waits for it, each must be woken at every force, which takes longer than the forces of a small
molecule. On one core they follow each other at once.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType

FEW_ATOMS = 250
"""Molecules up to this size are faster on one core than on two; measured with `benchmarks/one_core.py`."""

LOOK = 2.0
"""Seconds between looks at whether the core is shared with others."""

SHARED = 0.75
"""Part of the time that the run must have had the core; if it had less, it looks for another one."""

_STATUS = Path("/proc/self/stat")
_THREADS = Path("/proc/self/task")
_LAST_CORE = 36
"""Place of the core that a process ran on last, among the words after its name."""


def can_choose_cores() -> bool:
    """Whether threads can be put on cores: on Linux, and if no other thread of Python may want to run beside."""
    others = [t for t in threading.enumerate() if t is not threading.current_thread() and not t.daemon]
    return hasattr(os, "sched_setaffinity") and _STATUS.exists() and not others


class OneCore:
    """Keep all threads of this process on one core, as a context; where that cannot be done, nothing happens.

    Call `look` now and then: if others use the same core, the run moves to another one, which the operating system
    chooses. In the end threads may run everywhere again.

    Parameters
    ----------
    wanted : bool
        False for a context that does nothing.
    """

    def __init__(self, wanted: bool = True):
        self.active = wanted and can_choose_cores() and len(os.sched_getaffinity(0)) > 1
        self.allowed: set[int] = os.sched_getaffinity(0) if self.active else set()
        self._kept = False
        self._since = (0.0, 0.0)

    def __enter__(self) -> OneCore:
        if self.active:
            self._keep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.active:
            self._put(self.allowed)

    def look(self) -> None:
        """Move to another core if this one was busy with others since the last look."""
        if not self.active or (wall := time.perf_counter() - self._since[0]) < LOOK:
            return
        if not self._kept:
            self._keep()  # where the operating system has put the run meanwhile
        elif time.process_time() - self._since[1] < SHARED * wall:
            self._put(self.allowed)
            self._kept = False
        self._since = time.perf_counter(), time.process_time()

    def _keep(self) -> None:
        self._put({int(_STATUS.read_text().rpartition(")")[2].split()[_LAST_CORE])} & self.allowed or self.allowed)
        self._kept = True
        self._since = time.perf_counter(), time.process_time()

    @staticmethod
    def _put(cores: set[int]) -> None:
        for thread in _THREADS.iterdir():
            try:
                os.sched_setaffinity(int(thread.name), cores)
            except ProcessLookupError:  # it has ended meanwhile
                pass
