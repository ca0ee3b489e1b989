"""Ctrl-C and a polite kill as requests: noted once, obeyed at once the second time, handled as before afterwards."""

from __future__ import annotations

import signal
import threading

import pytest

from peptidyn.runs.signals import StopRequest

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def received():
    """Signals that reach the handlers of the test, which are those from before."""
    found: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: found.append(number)) for number in SIGNALS}
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_the_first_signal_is_noted_and_the_second_interrupts(received, first, second):
    with StopRequest() as stop:
        assert not stop.made
        signal.raise_signal(first)
        assert stop.made
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(second)
    assert received == []


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("error", [None, KeyError])
def test_afterwards_signals_are_handled_as_before(received, number, error):
    try:
        with StopRequest():
            if error is not None:
                raise error
    except KeyError:
        pass
    signal.raise_signal(number)
    assert received == [number]


def test_other_threads_leave_signals_alone(received):
    """Python handles signals in the main thread, and lets no other one change how."""
    made = []

    def work():
        with StopRequest() as stop:
            made.append(stop.made)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert made == [False]
    signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGINT]
