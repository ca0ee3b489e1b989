"""One core for work on a small molecule: its thread and the thread in which OpenMM computes forces take turns.

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
"""Seconds of work after which it is judged whether others use the core, too."""

SHARED = 0.75
"""Part of the time that the work must have had the core; if it had less, it goes to another one."""

_STATUS = Path("/proc/self/stat")
_THREADS = Path("/proc/self/task")
_LAST_CORE = 36
"""Place of the core that a process ran on last, among the words after its name."""


def can_choose_cores(others_wait: bool = False) -> bool:
    """Whether threads can be put on cores: on Linux, and if no other thread of Python may want to run beside."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    alone = threading.current_thread() is threading.main_thread() and (others_wait or not others)
    return hasattr(os, "sched_setaffinity") and _STATUS.exists() and alone


class OneCore:
    """Keep all threads of this process on one core, as a context; where that cannot be done, nothing happens.

    Call `look` now and then: if others use the same core, the run moves to another one, which the operating system
    chooses. In the end threads may run everywhere again.

    Parameters
    ----------
    wanted : bool
        False for a context that does nothing.
    others_wait : bool
        Other threads of this process wait until the context ends, such as those of a pool without work.
    """

    def __init__(self, wanted: bool = True, others_wait: bool = False):
        self.active = wanted and can_choose_cores(others_wait) and len(os.sched_getaffinity(0)) > 1
        self.allowed: set[int] = os.sched_getaffinity(0) if self.active else set()
        self._kept = False
        self._worked = (0.0, 0.0)  # seconds since the last judgement: wall and CPU
        self._last = (0.0, 0.0)

    def __enter__(self) -> OneCore:
        if self.active:
            self._keep()
            self.skip()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.active:
            self._put(self.allowed)

    def skip(self) -> None:
        """Do not count the time since the last look: there was no work."""
        self._last = time.perf_counter(), time.process_time()

    def look(self) -> None:
        """Move to another core if others used this one while there was work."""
        if not self.active:
            return
        wall, cpu = (a + now - then for a, now, then in zip(
            self._worked, (time.perf_counter(), time.process_time()), self._last, strict=True
        ))  # fmt: skip
        self.skip()
        self._worked = wall, cpu
        if wall < LOOK:
            return
        self._worked = 0.0, 0.0
        if not self._kept:
            self._keep()  # where the operating system has put the work meanwhile
        elif cpu < SHARED * wall:
            self._put(self.allowed)
            self._kept = False

    def _keep(self) -> None:
        core = int(_STATUS.read_text().rpartition(")")[2].split()[_LAST_CORE])
        self._put({core} & self.allowed or self.allowed)
        self._kept = True

    @staticmethod
    def _put(cores: set[int]) -> None:
        for thread in _THREADS.iterdir():
            try:
                os.sched_setaffinity(int(thread.name), cores)
            except ProcessLookupError:  # it has ended meanwhile
                pass
