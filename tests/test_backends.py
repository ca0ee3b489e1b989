"""Where work runs: results in order, errors as values, what is sent to workers, and workers that are lost."""

from __future__ import annotations

import operator
import os
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from peptidyn.core.errors import ArgumentError, BackendError
from peptidyn.sampling import backends
from peptidyn.sampling.backends import (
    MOST_WORKERS,
    DaskBackend,
    ProcessBackend,
    SerialBackend,
    ThreadBackend,
    _gather,
    count_cores,
    make_backend,
    start_tasks,
)


class Own:
    """A backend of the user's, with the methods that one needs."""

    def run(self, function, tasks, shared=None):
        self.asked = function, tasks, shared
        return ["answer"]

    def close(self):
        return


def divide(shared, number):
    return shared / number


def die_once(shared, folder, number):
    """End the own process, the first time that the second task runs."""
    mark = Path(folder) / "died"
    if number == 2 and not mark.exists():
        mark.touch()
        os._exit(9)
    return shared * number


@pytest.fixture
def pools(monkeypatch):
    """Pools that work in this process; what they were made with is noted."""
    made = []

    class Pool:
        def __init__(self, workers, mp_context, initializer, initargs):
            self.workers, self.method, self.open = workers, mp_context.get_start_method(), True
            initializer(*initargs)
            made.append(self)

        def submit(self, function, *arguments):
            assert self.open
            future = Future()
            future.set_result(function(*arguments))
            return future

        def shutdown(self, cancel_futures=False):
            self.open = False

    monkeypatch.setattr(backends, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(backends, "_received", None)
    return made


# ---------------------------------------------------------------------------- which backend


@pytest.mark.parametrize("workers", [0, -1, MOST_WORKERS + 1])
def test_numbers_of_workers_that_are_refused(workers):
    with pytest.raises(ArgumentError, match=f"workers is {workers}, expected 1 to 4096"):
        make_backend("threads", workers)


def test_backends_by_name(monkeypatch):
    """With the workers that were asked for, or one per core that this process may use."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert count_cores() == 3
    assert type(make_backend()) is type(make_backend("serial", 4)) is type(make_backend(None)) is SerialBackend
    for workers, number in ((None, 3), (1, 1), (2, 2), (MOST_WORKERS, MOST_WORKERS)):
        processes, threads = make_backend("processes", workers), make_backend("threads", workers)
        assert type(processes) is ProcessBackend and processes.workers == number
        assert type(threads) is ThreadBackend and threads._pool._max_workers == number
        threads.close()
    monkeypatch.delattr(os, "sched_getaffinity")
    assert count_cores() == 8
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert count_cores() == 1


def test_backends_of_the_user():
    own = Own()
    assert make_backend(own, 2) is own
    for wrong in ("cloud", 3, object()):
        with pytest.raises(ArgumentError, match=r"expected serial, threads, processes or a dask\.distributed Client"):
            make_backend(wrong)


def test_a_backend_that_can_only_run_begins_when_results_are_asked_for():
    own = Own()
    wait = start_tasks(own, divide, [(1,)], 6.0)
    assert not hasattr(own, "asked")
    assert wait() == ["answer"] and own.asked == (divide, [(1,)], 6.0)
    assert start_tasks(SerialBackend(), divide, [(1,)], 6.0)() == [6.0]


# ---------------------------------------------------------------------------- results


@pytest.mark.parametrize("name", ["serial", "threads", "processes"])
def test_results_come_in_order_and_errors_are_values(pools, name):
    engine = make_backend(name, 2)
    one, none, three = engine.run(divide, [(2.0,), (0.0,), (4.0,)], 12.0)
    assert (one, three) == (6.0, 3.0) and isinstance(none, ZeroDivisionError)
    assert engine.run(divide, [], 12.0) == []
    assert engine.run(divide, [(2.0,)], 5.0) == [2.5]  # with what this run shares
    engine.close()


def test_threads_work_side_by_side_and_end():
    """Two tasks that wait for each other."""
    engine, barrier = make_backend("threads", 2), threading.Barrier(2, timeout=20)
    assert sorted(engine.run(lambda shared, _: shared.wait(), [(0,), (1,)], barrier)) == [0, 1]
    engine.close()
    with pytest.raises(RuntimeError):
        engine.start(divide, [(1.0,)], 1.0)


def test_processes_get_what_is_shared_once_per_run(pools):
    """The same object goes to the workers that have it; another one, even if equal, to new ones."""
    engine, first, second = ProcessBackend(3), [1.0], [1.0, 2.0]
    for shared, number in ((first, 1), (first, 1), (second, 2), (second, 2), (first, 3)):
        assert engine.run(operator.concat, [([0.0],), ([9.0],)], shared) == [[*shared, 0.0], [*shared, 9.0]]
        assert len(pools) == number
    assert [(pool.workers, pool.method) for pool in pools] == [(3, "spawn")] * 3
    assert [pool.open for pool in pools] == [False, False, True]
    engine.close()
    assert not pools[-1].open
    assert engine.run(operator.concat, [([0.0],)], first) == [[1.0, 0.0]] and len(pools) == 4
    engine.close()
    engine.close()


def test_a_task_of_a_process_that_dies_runs_again(tmp_path):
    engine = ProcessBackend(1)
    try:
        assert engine.run(die_once, [(str(tmp_path), number) for number in (1, 2, 3)], 10) == [10, 20, 30]
        assert (tmp_path / "died").exists()
    finally:
        engine.close()


# ---------------------------------------------------------------------------- lost workers


class Task:
    """The future of a task; None as its value means that its worker was lost."""

    def __init__(self, value):
        self.value = value

    def result(self):
        if self.value is None:
            raise ConnectionError
        return self.value


@pytest.mark.parametrize("losses", [1, 3, 4])
def test_a_task_may_lose_its_worker_three_times(losses):
    """Workers are renewed before what was lost is submitted again."""
    events = []

    def submit(places):
        events.append(places)
        return {1: Task("late" if events.count([1]) == losses else None)}

    def go():
        first = {0: Task("first"), 1: Task(None)}
        return _gather(2, first, submit, lambda: events.append("renewed"), (ConnectionError,), "more memory")

    if losses < 4:
        assert go() == ["first", "late"] and events == ["renewed", [1]] * losses
    else:
        with pytest.raises(BackendError, match="1 tasks lost their worker 4 times; more memory"):
            go()


def test_other_errors_of_a_future_are_not_losses():
    class Broken(Task):
        def result(self):
            raise KeyError

    with pytest.raises(KeyError):
        _gather(1, {0: Broken(None)}, None, None, (ConnectionError,), "hint")


# ---------------------------------------------------------------------------- dask


class Client:
    """A scheduler in this process: futures are results, and `lost` counts the tasks that lose their worker."""

    lost = 0

    def __init__(self):
        self.sent = []

    def scheduler_info(self):
        return {}

    def submit(self, function, *arguments, pure):
        assert pure is False  # a task is run again although it was run before
        if function is not backends._attempt:
            self.sent.append(function(*arguments))
            return Task(self.sent[-1])
        name, shared, task = arguments
        if self.lost:
            self.lost -= 1
            return Lost()
        return Task(function(name, shared.value, task))


class Lost:
    def result(self):
        from distributed import KilledWorker

        raise KilledWorker("task", None, 3)


def test_a_dask_client_has_what_is_shared_once_per_run():
    pytest.importorskip("distributed")
    client = Client()
    engine = make_backend(client, 2)
    assert type(engine) is DaskBackend
    first, second = [1.0], [2.0]
    for shared, number in ((first, 1), (first, 1), (second, 2), (second, 2)):
        assert engine.run(operator.concat, [([0.0],), ([9.0],)], shared) == [[*shared, 0.0], [*shared, 9.0]]
        assert len(client.sent) == number
    assert isinstance(engine.run(divide, [(0.0,)], 1.0)[0], ZeroDivisionError)


def test_what_is_shared_is_sent_again_when_a_dask_worker_is_lost():
    pytest.importorskip("distributed")
    client = Client()
    client.lost = 1
    engine = make_backend(client)
    assert engine.run(divide, [(1.0,), (2.0,)], 6.0) == [6.0, 3.0] and client.sent == [6.0, 6.0]
    client.lost = 100
    with pytest.raises(BackendError, match=r"2 tasks lost their worker 4 times; .* see the workers' logs"):
        engine.run(divide, [(1.0,), (2.0,)], 6.0)


def test_a_dask_scheduler_that_is_gone_is_one_sentence():
    pytest.importorskip("distributed")

    class Gone(Client):
        class scheduler:
            addr = "tcp://node1:8786"

        def submit(self, *arguments, pure):
            raise OSError("no route to host")

    with pytest.raises(
        BackendError, match=r"scheduler at tcp://node1:8786 is gone \(no route to host\); start it again"
    ):
        make_backend(Gone()).start(divide, [(1.0,)], 1.0)


@pytest.mark.parametrize("timeout", [None, 3.5])
def test_a_scheduler_is_given_its_time_to_answer(monkeypatch, timeout):
    distributed = pytest.importorskip("distributed")
    asked = []
    monkeypatch.setattr(distributed, "Client", lambda *address, **options: asked.append((*address, options)))
    backends.connect("tcp://node1:8786", *([] if timeout is None else [timeout]))
    assert asked == [("tcp://node1:8786", {"timeout": timeout or 10.0, "set_as_default": False})]
