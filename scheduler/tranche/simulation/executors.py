"""Where the cells of a study run: any `concurrent.futures.Executor`, opened anew when its processes died."""

import copyreg
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def _view(items: dict[Any, Any]) -> "MappingProxyType[Any, Any]":
    return MappingProxyType(items)


copyreg.pickle(MappingProxyType, lambda view: (_view, (dict(view),)))
"""Labels of nodes and links of sites are read-only views, which Python does not send to other processes by itself."""


class Pool(Protocol):
    """Opens executors."""

    @property
    def size(self) -> int:
        """Cells that run at once."""
        ...

    def open(self, size: int) -> Executor:
        """An executor for so many cells at once; whoever opens it shuts it down."""
        ...

    def stop(self) -> None:
        """End what still runs, without waiting for its answers."""
        ...


class InProcess(Executor):
    """Runs each task at once, here: an executor without processes."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the task to its end; Ctrl-C is not the task's, it goes to the caller."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class SerialPool:
    """This process."""

    size = 1

    def open(self, size: int) -> Executor:
        """An executor that needs nothing."""
        return InProcess()

    def stop(self) -> None:
        """Nothing runs beside the caller."""


class ProcessPool:
    """Processes of this machine, started fresh (not forked: a progress bar's thread may be running)."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size or usable_cores()
        self._others: set[BaseProcess] = set()

    def open(self, size: int) -> Executor:
        """A pool of so many processes, at most `size` of ours."""
        self._others = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(min(size, self.size), mp_context=context, initializer=follow_parent)

    def stop(self) -> None:
        """Kill the processes of the pool: what they compute is of no use any more."""
        for child in set(multiprocessing.active_children()) - self._others:
            child.kill()


class LentPool:
    """An executor that someone else made and keeps, such as a Dask cluster's."""

    def __init__(self, executor: Executor, size: int) -> None:
        self.size = size
        self._executor = executor
        self._pending: list[Future[Any]] = []

    def open(self, size: int) -> Executor:
        """The executor behind a wrapper whose shutdown leaves it running."""
        return _Lent(self._executor, self._pending)

    def stop(self) -> None:
        """Cancel what has not begun."""
        for future in self._pending:
            future.cancel()


class _Lent(Executor):
    def __init__(self, executor: Executor, pending: list[Future[Any]]) -> None:
        self._executor = executor
        self._pending = pending

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = self._executor.submit(fn, *args, **kwargs)
        self._pending.append(future)
        return future


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def follow_parent() -> None:
    """In a process of the pool: leave Ctrl-C to the parent, and end when it has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
