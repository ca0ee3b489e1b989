"""Ctrl-C while numba compiles: it waits for the compiler's next pass, and nothing half made is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from numba.extending import overload

import peptidyn
from peptidyn.core.jit import njit

SEEN = []
"""What the compiler met, in order."""


def make_function():
    """Return a function of x, x + 3, in whose compilation Ctrl-C arrives in the middle of a pass."""

    def constant():
        raise AssertionError("replaced where it is compiled")

    @overload(constant)
    def _constant():
        SEEN.append("before")
        if SEEN == ["before"]:
            signal.raise_signal(signal.SIGINT)
            SEEN.append("after")
        return lambda: 3.0

    @njit
    def function(x):
        return x + constant()

    return function


@pytest.fixture
def handled():
    """What a handler of Ctrl-C was called with; the handler before is there again afterwards."""
    SEEN.clear()
    numbers = []
    before = signal.signal(signal.SIGINT, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_a_pass(handled):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    function = make_function()
    with pytest.raises(KeyboardInterrupt):
        function(1.0)
    assert SEEN == ["before", "after"]  # the pass went on
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert function(1.0) == 4.0  # compiled as if nothing had been


def test_a_handler_that_does_not_raise_is_called_once(handled):
    handler = signal.getsignal(signal.SIGINT)
    assert make_function()(1.0) == 4.0
    assert handled == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is handler
    signal.raise_signal(signal.SIGINT)  # no longer held back
    assert len(handled) == 2


def test_both_signals_wait_and_keep_their_order(handled):
    """SIGINT, sent inside, and SIGTERM; each handler is called once, with its number and a frame."""
    met = []
    before = signal.signal(signal.SIGTERM, lambda *given: met.append(given))
    try:
        signal.signal(signal.SIGINT, lambda *given: (met.append(given), signal.raise_signal(signal.SIGTERM)))
        assert make_function()(1.0) == 4.0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [number for number, _ in met] == [signal.SIGINT, signal.SIGTERM]
    assert all(hasattr(frame, "f_code") for _, frame in met)


def test_a_request_to_end_waits_for_the_end_of_a_pass(monkeypatch):
    """SIGTERM, by which queues end their jobs, in the middle of a pass."""
    SEEN.clear()
    numbers = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: numbers.append((number, list(SEEN))))
    monkeypatch.setattr(signal, "SIGINT", signal.SIGTERM)  # what `make_function` sends
    try:
        assert make_function()(1.0) == 4.0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert numbers == [(signal.SIGTERM, ["before", "after"])]


def test_signals_that_python_does_not_handle_are_left_alone(handled):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert make_function()(1.0) == 4.0
    assert SEEN[:2] == ["before", "after"] and signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_compile_without_touching_handlers(handled):
    handler, found = signal.getsignal(signal.SIGINT), []
    SEEN.append("no signal")
    thread = threading.Thread(target=lambda: found.append(make_function()(1.0)))
    thread.start()
    thread.join()
    assert found == [4.0] and signal.getsignal(signal.SIGINT) is handler


def test_all_functions_are_compiled_by_it():
    """A module that takes njit from numba itself would be interrupted in the middle, if it is the only one loaded."""
    package = Path(peptidyn.__file__).parent
    found = [
        p.name
        for p in package.rglob("*.py")
        if re.search(r"from numba import .*njit|numba\.njit", p.read_text("utf-8"))
    ]
    assert found == ["jit.py"]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C cannot be sent to one process")
@pytest.mark.parametrize("seconds", [0.1, 1.0, 2.5, 4.0, 7.0])
def test_ctrl_c_in_a_first_run_is_one_sentence(tmp_path, seconds):
    """Kernels are compiled for the first time, which takes half a minute: status 130 and no traceback.

    Libraries that are imported may lose an interrupt. Nobody presses Ctrl-C only once then.
    """
    command = [sys.executable, "-m", "peptidyn", "run", "--time", "100ns", "--solvent", "vacuum", "-o", "out", "-q"]
    compiled = tmp_path / "compiled"
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, "NUMBA_CACHE_DIR": str(compiled)}
    ) as run:  # fmt: skip
        while not any(compiled.rglob("*.nbi")):
            time.sleep(0.05)
            assert run.poll() is None
        time.sleep(seconds)
        for _ in range(10):
            run.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                said = run.communicate(timeout=20)[1]
                break
        assert run.returncode == 130 and len(said.strip().splitlines()) == 1 and "interrupted" in said
