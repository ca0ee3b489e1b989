"""Runs of small molecules keep to one core, leave it when others use it, and give all cores back."""

from __future__ import annotations

import os
import sys
import threading

import pytest

import peptidyn.core.one_core as module
from peptidyn.core.one_core import FEW_ATOMS, LOOK, OneCore
from peptidyn.runs.model import find_run_platform, needs_one_core
from peptidyn.runs.settings import RunSettings

several_cores = pytest.mark.skipif(
    not sys.platform.startswith("linux") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores, and Linux"
)


def cores_of_threads() -> set[frozenset[int]]:
    """Where the threads of this process may run, each set of cores once."""
    return {frozenset(os.sched_getaffinity(int(name))) for name in os.listdir("/proc/self/task")}


@pytest.fixture
def clock(monkeypatch):
    """Wall and CPU seconds that the test sets; no thread of the test runner counts."""

    class Clock:
        wall = cpu = 0.0
        perf_counter = staticmethod(lambda: Clock.wall)
        process_time = staticmethod(lambda: Clock.cpu)

    monkeypatch.setattr(module, "time", Clock)
    monkeypatch.setattr(module.threading, "enumerate", lambda: [threading.main_thread()])
    monkeypatch.setattr(module.threading, "current_thread", threading.main_thread)
    return Clock


@several_cores
def test_all_threads_are_kept_on_one_core_and_then_freed(clock):
    everywhere = frozenset(os.sched_getaffinity(0))
    done = threading.Event()
    helper = threading.Thread(target=done.wait, daemon=True)
    helper.start()
    with pytest.raises(KeyError), OneCore() as core:
        (kept,) = cores_of_threads()  # the thread beside, too
        assert len(kept) == 1 and kept < everywhere and core.active
        raise KeyError
    assert cores_of_threads() == {everywhere}
    done.set()


@several_cores
def test_a_core_that_others_use_is_left(clock):
    everywhere = frozenset(os.sched_getaffinity(0))
    with OneCore() as core:
        (kept,) = cores_of_threads()
        clock.wall, clock.cpu = 0.9 * LOOK, 0.0  # too soon to judge
        core.look()
        assert cores_of_threads() == {kept}
        clock.wall, clock.cpu = 10.0, 7.6  # the core was there for more than three quarters of the time
        core.look()
        assert cores_of_threads() == {kept}
        clock.wall = 100.0  # nothing to do
        core.skip()
        clock.wall, clock.cpu = 110.0, 7.6 + 7.6
        core.look()
        assert cores_of_threads() == {kept}
        clock.wall, clock.cpu = 120.0, 7.6 + 7.6 + 7.4  # less
        core.look()
        assert cores_of_threads() == {everywhere}
        clock.wall = 120.0 + LOOK  # it has run elsewhere for a while, and stays there
        core.look()
        (kept,) = cores_of_threads()
        assert len(kept) == 1
    assert cores_of_threads() == {everywhere}


@several_cores
def test_nothing_happens_beside_other_work_or_if_not_wanted(clock, monkeypatch):
    before = cores_of_threads()
    with OneCore(False) as core:
        core.look()
        assert not core.active and cores_of_threads() == before
    beside = threading.Thread(target=print)
    monkeypatch.setattr(module.threading, "enumerate", lambda: [threading.main_thread(), beside])
    with OneCore() as core:
        assert not core.active and cores_of_threads() == before
    with OneCore(others_wait=True) as core:
        assert core.active and {len(cores) for cores in cores_of_threads()} == {1}
    assert cores_of_threads() == before


@several_cores
def test_time_before_the_context_does_not_count(clock):
    clock.wall, clock.cpu = 1000.0, 1.0
    with OneCore() as core:
        (kept,) = cores_of_threads()
        clock.wall += 0.9 * LOOK
        core.look()
        assert cores_of_threads() == {kept} and len(kept) == 1
        for part in (0.05, 0.2):  # short looks add up to one that is judged
            clock.wall += part * LOOK
            core.look()
        assert len(*cores_of_threads()) > 1


@several_cores
def test_the_core_is_the_one_that_the_process_ran_on_last(clock, monkeypatch, tmp_path):
    """The 39th word of the status, where the second is the name of the program, which may hold anything."""
    everywhere = frozenset(os.sched_getaffinity(0))
    status = tmp_path / "stat"
    monkeypatch.setattr(module, "_STATUS", status)
    for core in sorted(everywhere):
        words = [str(100 + k) for k in range(50)]
        words[36] = str(core)  # words[0] is the third
        status.write_text(f"77 (a (name) 1) 2) {' '.join(words)}\n")
        with OneCore():
            assert cores_of_threads() == {frozenset([core])}
    words[36] = "99999"  # a core where this process may not run
    status.write_text(f"77 (a (name) 1) 2) {' '.join(words)}\n")
    with OneCore():
        assert cores_of_threads() == {everywhere}


@several_cores
def test_threads_that_have_ended_are_passed_over(clock, monkeypatch, tmp_path):
    for number in (2**22 + 1, os.getpid()):
        (tmp_path / str(number)).touch()
    everywhere = set(os.sched_getaffinity(0))
    monkeypatch.setattr(module, "_THREADS", tmp_path)
    with OneCore():
        assert len(os.sched_getaffinity(os.getpid())) == 1
    assert os.sched_getaffinity(os.getpid()) == everywhere


@several_cores
def test_which_threads_allow_a_choice(monkeypatch):
    """Other threads of Python that may want to run forbid it: not daemons, nor those that wait; nor a thread itself."""
    main = threading.main_thread()
    daemon, beside = threading.Thread(target=print, daemon=True), threading.Thread(target=print)
    for threads, alone in (([main], True), ([main, daemon], True), ([main, daemon, beside], False)):
        monkeypatch.setattr(module.threading, "enumerate", lambda threads=threads: threads)
        assert module.can_choose_cores() == alone and module.can_choose_cores(others_wait=True)
    monkeypatch.setattr(module.threading, "enumerate", lambda: [main])
    monkeypatch.setattr(module.threading, "current_thread", lambda: beside)
    assert not module.can_choose_cores() and not module.can_choose_cores(others_wait=True)


@several_cores
def test_where_only_one_core_is_allowed_there_is_no_choice(clock):
    everywhere = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(everywhere)})
        assert not OneCore().active
    finally:
        os.sched_setaffinity(0, everywhere)
    assert OneCore().active


@pytest.mark.parametrize(
    ("settings", "n_atoms", "one"),
    [
        ({"platform": "CPU"}, FEW_ATOMS, True),
        ({"platform": "CPU"}, FEW_ATOMS + 1, False),
        ({"platform": "CPU", "threads": 1}, 10, True),
        ({"platform": "CPU", "threads": 2}, 10, False),
        ({"platform": "Reference"}, 10, False),
    ],
)
def test_which_runs_keep_to_one_core(settings, n_atoms, one):
    chosen = RunSettings(**settings)
    assert needs_one_core(chosen, n_atoms) is one
    platform, properties = find_run_platform(chosen, n_atoms)
    assert platform.getName() == settings["platform"]
    threads = 1 if one else settings.get("threads")
    assert properties == (None if threads is None else {"Threads": str(threads)})
