"""Where work runs: in this process, on threads, on processes, or on a dask cluster.

A task is a pure function of what it is given. A task whose worker is lost is run again with the same arguments, and
gives the same answer; nothing else lives on workers but caches.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Any

from peptidyn.core.errors import ArgumentError, BackendError, MissingDependencyError

BACKENDS = ("serial", "threads", "processes")

MOST_WORKERS = 4096
"""Threads or processes on one machine."""

LOST_AGAIN = 3
"""How often a task may lose its worker before the run gives up: perhaps it is the task that kills them."""

CONNECT_SECONDS = 10.0
"""How long to wait for an answer of a scheduler."""


Function = Callable[..., Any]
Tasks = Sequence[tuple[Any, ...]]
"""Arguments of a function, for every time that it is called."""

Wait = Callable[[], list[Any]]
"""Waits for the results of all tasks."""


class Backend(ABC):
    """Runs functions on many arguments. A backend of the user's needs `run` and `close`."""

    def run(self, function: Function, tasks: Tasks, shared: Any = None) -> list[Any]:
        """Return ``[function(shared, *task) for task in tasks]``, with the exception in place of a result that failed.

        `shared` is sent to every worker once.
        """
        return self.start(function, tasks, shared)()

    @abstractmethod
    def start(self, function: Function, tasks: Tasks, shared: Any = None) -> Wait:
        """Begin what `run` does, as far as other threads or processes can, and return what waits for the results."""

    def close(self) -> None:
        """End workers that were started here."""
        return


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_backend(backend: Any = "serial", workers: int | None = None) -> Backend:
    """Return a backend.

    Parameters
    ----------
    backend : {"serial", "threads", "processes"}, dask.distributed.Client, or Backend
    workers : int, optional
        Threads or processes; as many as cores if not given.
    """
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise ArgumentError(f"workers is {workers}, expected 1 to {MOST_WORKERS}")
    count = workers or count_cores()
    if backend is None or backend == "serial":
        return SerialBackend()
    if backend == "threads":
        return ThreadBackend(count)
    if backend == "processes":
        return ProcessBackend(count)
    if hasattr(backend, "scheduler_info") and hasattr(backend, "submit"):
        return DaskBackend(backend)
    if hasattr(backend, "run") and hasattr(backend, "close"):
        return backend
    raise ArgumentError(f"the backend is {backend!r}, expected {', '.join(BACKENDS)} or a dask.distributed Client")


def start_tasks(backend: Any, function: Function, tasks: Tasks, shared: Any) -> Wait:
    """Return ``backend.start(...)``; a backend of the user's that has `run` alone begins when results are asked for."""
    if hasattr(backend, "start"):
        return backend.start(function, tasks, shared)
    return lambda: backend.run(function, tasks, shared)


def connect(address: str, timeout: float = CONNECT_SECONDS) -> Any:
    """Return a dask.distributed Client of a scheduler, e.g. ``tcp://node1:8786``; BackendError if none answers."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingDependencyError.of("a scheduler needs dask.distributed", "distributed") from error
    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise BackendError(
            f"no dask scheduler answers at {address} within {timeout:g} s; start one with `dask scheduler`, and "
            "workers with `dask worker ADDRESS`"
        ) from error


class SerialBackend(Backend):
    """One task after the other, here."""

    def start(self, function: Function, tasks: Tasks, shared: Any = None) -> Wait:
        return lambda: [_attempt(function, shared, task) for task in tasks]


class ThreadBackend(Backend):
    """Threads of this process: good where most time is spent inside OpenMM."""

    def __init__(self, workers: int):
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="peptidyn")

    def start(self, function: Function, tasks: Tasks, shared: Any = None) -> Wait:
        futures = [self._pool.submit(_attempt, function, shared, task) for task in tasks]
        return lambda: [future.result() for future in futures]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class ProcessBackend(Backend):
    """Processes on this machine. A process that dies is replaced, and its tasks run again.

    Processes are started afresh (not forked), because OpenMM and numba hold threads; a script that uses them keeps its
    work under ``if __name__ == "__main__":``.
    """

    def __init__(self, workers: int):
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._shared: Any = None

    def _start(self, shared: Any) -> ProcessPoolExecutor:
        if self._pool is None or shared is not self._shared:
            self.close()
            self._pool = ProcessPoolExecutor(
                self.workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_receive,
                initargs=(pickle.dumps(shared),),
            )
            self._shared = shared
        return self._pool

    def start(self, function: Function, tasks: Tasks, shared: Any = None) -> Wait:
        def submit(places: list[int]) -> dict[int, Future[Any]]:
            futures: dict[int, Future[Any]] = {}
            with suppress(BrokenProcessPool):  # tasks without a future are lost, too
                pool = self._start(shared)
                for i in places:
                    futures[i] = pool.submit(_with_received, function, tasks[i])
            return futures

        hint = "perhaps memory ran out: try fewer workers"
        begun = submit(list(range(len(tasks))))
        return lambda: _gather(len(tasks), begun, submit, self.close, (BrokenProcessPool, KeyError), hint)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


class DaskBackend(Backend):
    """The workers of a dask.distributed Client, which stays open: it is the user's.

    The scheduler runs the tasks of a lost worker again on another one. `shared` is a task too, so that it can be made
    again when the worker that held it is gone.
    """

    def __init__(self, client: Any):
        self.client = client
        self._shared: Any = None
        self._future: Any = None

    def start(self, function: Function, tasks: Tasks, shared: Any = None) -> Wait:
        from distributed import KilledWorker

        def submit(places: list[int]) -> dict[int, Any]:
            if self._future is None or shared is not self._shared:
                self._future = self.client.submit(pickle.loads, pickle.dumps(shared), pure=False)
                self._shared = shared
            return {i: self.client.submit(_attempt, function, self._future, tasks[i], pure=False) for i in places}

        hint = "perhaps memory ran out: see the workers' logs"
        with self._scheduler():
            begun = submit(list(range(len(tasks))))

        def wait() -> list[Any]:
            with self._scheduler():
                return _gather(len(tasks), begun, submit, self.close, (KilledWorker,), hint)

        return wait

    @contextmanager
    def _scheduler(self) -> Iterator[None]:
        """Say in one sentence that the scheduler is gone."""
        from distributed.client import FuturesCancelledError

        try:
            yield
        except (OSError, FuturesCancelledError, TimeoutError) as error:
            raise BackendError(
                f"the dask scheduler at {self.client.scheduler.addr} is gone ({error}); start it again and resume"
            ) from error

    def close(self) -> None:
        self._future = None


def _gather(
    count: int,
    futures: Mapping[int, Any],
    submit: Callable[[list[int]], Mapping[int, Any]],
    renew: Callable[[], None],
    losses: tuple[type[Exception], ...],
    hint: str,
) -> list[Any]:
    """Return the results of `count` tasks; those that lose their worker are submitted again to renewed ones.

    `futures` are those of the first submission.
    """
    results: list[Any] = [None] * count
    left = list(range(count))
    for _ in range(1 + LOST_AGAIN):
        lost = []
        for i in left:
            try:
                results[i] = futures[i].result()
            except losses:
                lost.append(i)
        if not lost:
            return results
        left = lost
        renew()
        futures = submit(left)
    raise BackendError(f"{len(left)} tasks lost their worker {1 + LOST_AGAIN} times; {hint}")


def _attempt(function: Function, shared: Any, task: tuple[Any, ...]) -> Any:
    """Return the result, or the error as a value: one that fails must not stop the others."""
    try:
        return function(shared, *task)
    except Exception as error:
        return error


_received: Any = None


def _receive(data: bytes) -> None:
    global _received
    _received = pickle.loads(data)


def _with_received(function: Function, task: tuple[Any, ...]) -> Any:
    return _attempt(function, _received, task)
