"""Deferred clean-up: release and delete finished pods with a delay, so that this does not compete with pod creation.

When a gang ends, another one takes its place at once, and releasing and deleting the old pods costs the API server as
much as creating the new ones.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial

from tranche.kube.client.client import ApiError
from tranche_operator.queue.quiet_time import wait_until_idle
from tranche_operator.queue.work_queue import LONGEST_RETRY_AFTER_SECONDS
from tranche_operator.reconcile.actions import Action, DeletePod, ReleasePod
from tranche_operator.reconcile.observed import Observed

logger = logging.getLogger(__name__)

BACKLOG = 50
"""Number of waiting actions for each additional parallel execution."""
HANGING_SECONDS = 1.0
"""Time after which actions of other namespaces no longer wait for an action, such as one whose webhook does not answer.
"""
RETRY_SECONDS = 1.0
"""Delay of the reconcile after an action has failed, unless the API server asks for a longer one."""
REMEMBERED_SECONDS = 10.0
"""Time during which an executed action is not repeated; a request for it comes from an older observation of the pod."""


def split_deferrable(observed: Observed, actions: Iterable[Action]) -> tuple[list[Action], list[Action]]:
    """Split actions into those to execute now and those to defer: releases and deletions of finished pods.

    The pods of a deleted job are cleaned up at once, because a new job may have its name.
    """
    over = {pod.name for pod in observed.pods if pod.over and not _is_going(observed)}
    now: list[Action] = []
    later: list[Action] = []
    for action in actions:
        has_time = isinstance(action, ReleasePod | DeletePod) and action.name in over
        (later if has_time else now).append(action)
    return now, later


def _is_going(observed: Observed) -> bool:
    return observed.job is None or observed.job.metadata.deletion_timestamp is not None


def _namespace(key: str) -> str:
    return key.partition("/")[0]


class DeferredActionQueue:
    """A queue of single actions without duplicates."""

    def __init__(
        self,
        apply: Callable[[Observed, list[Action]], Awaitable[float | None]],
        again: Callable[[str, float], None],
        delay: float,
        clock: Callable[[], float],
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """Store the arguments; nothing runs before `serve`.

        Args:
            apply: Executes actions of a job.
            again: Called with the key of a job that must be reconciled again, because an action failed, and the delay.
            delay: Seconds between `put` and the execution.
            clock: Monotonic clock of the event loop, in seconds.
            busy: Returns whether a reconcile is running.
        """
        self._apply = apply
        self._again = again
        self._delay = delay
        self._clock = clock
        self._busy = busy
        self._waiting: dict[tuple[str, Action], tuple[float, Observed]] = {}
        self._done: dict[tuple[str, Action], float] = {}
        """Recently started actions with the time until which they are remembered, in that order."""
        self._paused: dict[str, float] = {}
        """End of the delay that the API server has requested, by key of the job."""
        self._hanging: Counter[str] = Counter()
        """Number of actions in work for longer than `HANGING_SECONDS`, by namespace."""
        self._changed = asyncio.Event()

    def put(self, observed: Observed, actions: Sequence[Action]) -> None:
        """Enqueue actions; those that already wait keep their place, and recently executed ones are ignored.

        During a delay that the API server has requested, they are dropped, and the job is reconciled again after it.
        """
        now = self._clock()
        if actions and (pause := self._paused.get(observed.key, now) - now) > 0.0:
            self._again(observed.key, pause)
            return
        while self._done and next(iter(self._done.values())) <= now:
            self._done.pop(next(iter(self._done)))
        due = now + self._delay
        for action in actions:
            if (observed.key, action) not in self._done:
                self._waiting.setdefault((observed.key, action), (due, observed))
                self._changed.set()

    async def serve(self) -> None:
        """Execute actions until cancelled, the longest waiting first, but none of a namespace whose last ones hang."""
        async with asyncio.TaskGroup() as group:
            while True:
                while (entry := next(self._eligible(), None)) is None:
                    self._changed.clear()
                    await self._changed.wait()
                due, _ = self._waiting[entry]
                await asyncio.sleep(max(0.0, due - self._clock()))
                await wait_until_idle(self._busy, self._clock, due)
                tasks = {group.create_task(self._do(*one)): _namespace(one[0].key) for one in self._take()}
                _, hanging = await asyncio.wait(tasks, timeout=HANGING_SECONDS)
                for task in hanging:
                    self._hanging[tasks[task]] += 1
                    task.add_done_callback(partial(self._resume, tasks[task]))

    def _resume(self, namespace: str, _: asyncio.Task[None]) -> None:
        self._hanging[namespace] -= 1
        if not self._hanging[namespace]:
            del self._hanging[namespace]
            self._changed.set()

    def _eligible(self) -> Iterator[tuple[str, Action]]:
        return (entry for entry in self._waiting if _namespace(entry[0]) not in self._hanging)

    def _take(self) -> list[tuple[Observed, Action]]:
        eligible = list(self._eligible())
        chosen = eligible[: 1 + len(eligible) // BACKLOG]
        self._done.update(dict.fromkeys(chosen, self._clock() + REMEMBERED_SECONDS))
        return [(self._waiting.pop(entry)[1], entry[1]) for entry in chosen]

    async def _do(self, observed: Observed, action: Action) -> None:
        key, pause = observed.key, RETRY_SECONDS
        if self._paused.get(key, float("-inf")) > self._clock():
            self._done.pop((key, action), None)
            return
        try:
            delay_seconds = await self._apply(observed, [action])
            if delay_seconds is None:
                return
        except ApiError as error:
            logger.warning("%s: a deferred action failed, reconciling the job again: %s", key, error)
            if error.retry_after:
                now = self._clock()
                pause = max(pause, min(error.retry_after, LONGEST_RETRY_AFTER_SECONDS))
                self._paused = {job: end for job, end in self._paused.items() if end > now} | {key: now + pause}
        self._done.pop((key, action), None)
        self._again(key, pause)
