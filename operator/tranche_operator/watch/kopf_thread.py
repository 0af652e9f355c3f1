"""Kopf in a thread of its own, with callbacks in the operator's event loop."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, cast

import kopf
from kopf._cogs.structs.references import Insights

from tranche_operator.watch.kopf_handlers import make_registry, make_settings

STOP_SECONDS = 1.2
"""Time that Kopf has to stop. Its daemon thread ends with the process in any case."""
_IDENTITY = "tranche-operator"
CALLS_AT_ONCE = 64
"""Number of calls after which the event loop runs other callbacks."""


class KopfThread:
    """Kopf's watch of the TrainingJobs."""

    def __init__(
        self,
        kubeconfig: str | None,
        on_job: Callable[[str, Mapping[str, Any], bool, bool], None],
        on_listing: Callable[[], None],
    ) -> None:
        """Store the arguments; nothing runs before `serve`.

        Args:
            kubeconfig: As for `Credentials.load`.
            on_job: Called in the event loop of `serve`, with the arguments of `make_registry`.
            on_listing: Called in that loop when a watch restarts with a list.
        """
        self._kubeconfig = kubeconfig
        self._on_job = on_job
        self._on_listing = on_listing

    async def serve(self) -> None:
        """Watch until cancelled.

        Raises:
            Exception: the error that stopped Kopf, for example that the CRD was deleted.
        """
        home = asyncio.get_running_loop()
        thread = _LoopThread(lambda stop: self._watch(home, stop))
        try:
            await asyncio.wait([thread.ended])
            raise thread.ended.result() or RuntimeError("Kopf stopped without an error")
        finally:
            thread.stop()
            await asyncio.wait([thread.ended], timeout=STOP_SECONDS)

    async def _watch(self, home: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        """Run Kopf in its thread."""
        calls = CallQueue(home)
        registry = make_registry(
            self._kubeconfig,
            on_job=lambda *change: calls.put(self._on_job, *change),
            on_listing=lambda: calls.put(self._on_listing),
        )
        before, insights = asyncio.all_tasks(), Insights()
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=make_settings(),
            insights=insights,
            clusterwide=True,
            standalone=True,
            # Only peers use it, of which there are none. By default Kopf looks up the user of the process, and fails in
            # a container, where /etc/passwd has no such user.
            identity=cast(Any, _IDENTITY),
            stop_flag=stop,
        )
        tasks = [*tasks, asyncio.create_task(_fail_without_jobs(insights))]
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # Kopf's own stop may wait forever for a watch that requests credentials, which nothing provides any more.
        stopping = asyncio.create_task(kopf.run_tasks(tasks, ignored=before))
        await asyncio.wait([stopping], timeout=STOP_SECONDS / 2)
        for task in ended:
            task.result()


async def _fail_without_jobs(insights: Insights) -> None:
    """Run forever if Kopf watches the TrainingJobs.

    Without access to definitions, Kopf looks for the resource once, at its start. It may ask another API server than
    the one that served the TrainingJobs a moment ago, and would then watch nothing, with one warning.

    Raises:
        RuntimeError: Kopf has not found them.
    """
    await insights.ready_resources.wait()
    if not insights.watched_resources:
        raise RuntimeError("the API server does not list TrainingJobs among its resources")
    await asyncio.Event().wait()


class CallQueue:
    """Calls of one thread into the event loop of another, in order. A burst of calls wakes the loop once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Store the loop."""
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def put(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function soon; no-op if the loop is closed. Only one thread may put calls."""
        self._waiting.append(partial(function, *arguments))
        if len(self._waiting) == 1:  # else `_run` is scheduled already, or finds this call
            _call(self._loop, self._run)

    def _run(self) -> None:
        try:
            for _ in range(min(len(self._waiting), CALLS_AT_ONCE)):
                self._waiting.popleft()()
        finally:
            if self._waiting:
                self._loop.call_soon(self._run)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Call a function in another thread's event loop, unless that loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


def _abandon(loop: asyncio.AbstractEventLoop) -> None:
    """Close an event loop. Tasks that do not end soon after their cancellation are dropped without a log line."""
    loop.set_exception_handler(lambda _loop, _context: None)
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=STOP_SECONDS / 4))
    loop.close()


class _LoopThread:
    """A thread with its own event loop that runs one coroutine function."""

    def __init__(self, main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        """Start the thread; ``main`` gets the event that requests it to stop."""
        self._main = main
        self._home = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._inside: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self.ended: asyncio.Future[BaseException | None] = self._home.create_future()
        """Future that is done when the thread has ended; its result is the error that ended it, or None."""
        threading.Thread(target=self._run, name="kopf", daemon=True).start()

    def stop(self) -> None:
        """Request the thread to stop; no-op if it has ended."""
        self._stopping.set()
        if self._inside is not None:
            loop, stop = self._inside
            _call(loop, stop.set)

    def _run(self) -> None:
        error: BaseException | None = None
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._enter())
        except BaseException as caught:
            error = caught
        finally:
            _abandon(loop)
        _call(self._home, self._finish, error)

    async def _enter(self) -> None:
        stop = asyncio.Event()
        self._inside = asyncio.get_running_loop(), stop
        if not self._stopping.is_set():
            await self._main(stop)

    def _finish(self, error: BaseException | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
