"""Runs pytest again and again without importing the same libraries each time: every run is a fork of this process.

Requests are lines of JSON on standard input: the arguments of pytest, additions to the environment, the seconds that
the run may take, and the file for its output. The answer is a line with the exit status of pytest, or -1 if the time
was over or the memory went beyond `MEMORY`. Nothing of the project itself is imported here, so that every run finds it
as it is then. Needs fork, which Windows has not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

MEMORY = 4e9
"""Bytes that one run may take: a fault may make lists that never end."""

LIBRARIES = ("hypothesis", "mdtraj", "numba", "openmm.app", "pytest", "scipy.optimize", "scipy.spatial", "scipy.stats")


def serve() -> None:
    """Answer requests until standard input ends."""
    for name in LIBRARIES:
        import_module(name)
    for line in sys.stdin:
        print(run(**json.loads(line)), flush=True)


def run(arguments: list[str], environment: dict[str, str], seconds: float, output: str) -> int:
    """Return the exit status of one run of pytest."""
    child = os.fork()
    if child == 0:
        _become_pytest(arguments, environment, output)
    end = time.monotonic() + seconds
    while time.monotonic() < end and _memory_of(child) < MEMORY:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def _memory_of(process: int) -> float:
    """Return the bytes of memory that a process has now; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0.0


def _become_pytest(arguments: list[str], environment: dict[str, str], output: str) -> Any:
    os.setpgid(0, 0)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.environ.update(environment)
    from numba.core import config

    config.reload_config()
    import pytest

    status = 3  # what pytest calls an internal error
    try:
        status = int(pytest.main(arguments))
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
