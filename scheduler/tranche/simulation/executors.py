"""Executors for the cells of a study: any `concurrent.futures.Executor`, reopened when its processes died."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Pool(Protocol):
    """Factory of executors."""

    @property
    def size(self) -> int:
        """Number of cells that run at once."""
        ...

    def open(self, size: int) -> Executor:
        """Open an executor for `size` cells at once; the caller shuts it down."""
        ...

    def stop(self) -> None:
        """Stop running cells, without waiting for their answers."""
        ...


class InProcess(Executor):
    """Executor without processes, which runs each task in `submit`."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the task to its end; an interrupt (Ctrl-C) is raised to the caller, not stored as the task's error."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class SerialPool:
    """Pool that runs cells in this process."""

    size = 1

    def open(self, size: int) -> Executor:
        """Return an executor without resources."""
        return InProcess()

    def stop(self) -> None:
        """Do nothing: no cell runs beside the caller."""


class ProcessPool:
    """Pool of processes on this machine, started fresh (not forked: a progress bar's thread may be running)."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size or usable_cores()
        self._others: set[BaseProcess] = set()

    def open(self, size: int) -> Executor:
        """Open an executor with at most `size` of this pool's processes."""
        self._others = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(min(size, self.size), mp_context=context, initializer=follow_parent)

    def stop(self) -> None:
        """Kill the processes of the pool, whose results are no longer needed."""
        for child in set(multiprocessing.active_children()) - self._others:
            child.kill()


class ExternalPool:
    """Pool for an executor that the caller created and keeps, such as a Dask cluster's."""

    def __init__(self, executor: Executor, size: int) -> None:
        self.size = size
        self._executor = executor
        self._pending: list[Future[Any]] = []

    def open(self, size: int) -> Executor:
        """Return the executor in a wrapper whose shutdown leaves it running."""
        return _KeptExecutor(self._executor, self._pending)

    def stop(self) -> None:
        """Cancel tasks that have not started."""
        for future in self._pending:
            future.cancel()


class _KeptExecutor(Executor):
    def __init__(self, executor: Executor, pending: list[Future[Any]]) -> None:
        self._executor = executor
        self._pending = pending

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = self._executor.submit(fn, *args, **kwargs)
        self._pending.append(future)
        return future


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def follow_parent() -> None:
    """In a process of the pool, ignore Ctrl-C, which the parent handles, and exit when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
