"""Statuses that only report wait while pods start."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

from support.operator_objects import NOW, observed, pod, training_job
from support.virtual_time_loop import JumpingLoop, run
from tranche.runtime.report_pace import DOUBLING_SECONDS, PATIENCE_SECONDS
from tranche_operator.execute.executor import ActionExecutor
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.queue.status_queue import GAP_SECONDS, StatusQueue
from tranche_operator.reconcile.actions import WriteStatus
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings

SETTLE = 0.5


class Scene:
    """A queue with the times at which jobs are reconciled again."""

    def __init__(self, loop: JumpingLoop) -> None:
        self.busy = False
        self.again: list[tuple[str, float]] = []
        self.queue = StatusQueue(
            lambda key: self.again.append((key, loop.time())), SETTLE, loop.time, lambda: self.busy
        )

    def times(self, key: str) -> list[float]:
        return [at for job, at in self.again if job == key]


def play(steps: Callable[[Scene], Awaitable[None]]) -> None:
    async def main(loop: JumpingLoop) -> None:
        scene = Scene(loop)
        serving = asyncio.ensure_future(scene.queue.serve())
        await steps(scene)
        serving.cancel()
        await asyncio.wait([serving])

    run(main)


def test_a_status_is_due_once_it_has_lasted() -> None:
    async def steps(scene: Scene) -> None:
        assert scene.queue.postpone("lab/a", passing=True)
        await asyncio.sleep(0.3)
        assert scene.queue.postpone("lab/a", passing=True)
        await asyncio.sleep(5.0)
        assert scene.times("lab/a") == [SETTLE]
        assert not scene.queue.postpone("lab/a", passing=True)
        scene.queue.forget("lab/a")
        assert scene.queue.postpone("lab/a", passing=True)

    play(steps)


def test_a_forgotten_status_is_not_due() -> None:
    async def steps(scene: Scene) -> None:
        scene.queue.postpone("lab/a", passing=True)
        scene.queue.postpone("lab/b", passing=True)
        scene.queue.forget("lab/a")
        await asyncio.sleep(5.0)
        assert [key for key, _ in scene.again] == ["lab/b"]

    play(steps)


def test_phase_running_does_not_wait_after_a_pause() -> None:
    async def steps(scene: Scene) -> None:
        scene.busy = True
        assert scene.queue.postpone("lab/a", passing=True)
        assert not scene.queue.postpone("lab/a", passing=False)
        assert scene.queue.postpone("lab/b", passing=False)
        scene.queue.forget("lab/a")
        await asyncio.sleep(GAP_SECONDS + 5.0)
        assert scene.times("lab/b")
        scene.queue.forget("lab/b")
        assert not scene.queue.postpone("lab/c", passing=False)

    play(steps)


def test_few_statuses_are_due_while_pods_start() -> None:
    async def steps(scene: Scene) -> None:
        scene.busy = True
        for number in range(400):
            scene.queue.postpone(f"lab/{number}", passing=True)
        await asyncio.sleep(10.0)
        times = [at for _, at in scene.again]
        assert 10 <= len(times) <= 10.0 / GAP_SECONDS
        assert all(later - earlier >= GAP_SECONDS for earlier, later in pairwise(times))
        assert [key for key, _ in scene.again] == [f"lab/{number}" for number in range(len(times))]
        scene.busy = False
        await asyncio.sleep(10.0)
        assert len(scene.again) == 400

    play(steps)


def test_late_statuses_are_due_ever_faster_while_pods_start() -> None:
    async def steps(scene: Scene) -> None:
        scene.busy = True
        for number in range(1000):
            scene.queue.postpone(f"lab/{number}", passing=True)
        await asyncio.sleep(PATIENCE_SECONDS)
        assert len(scene.again) <= PATIENCE_SECONDS / GAP_SECONDS
        before, counts = len(scene.again), []
        for _ in range(4):
            await asyncio.sleep(DOUBLING_SECONDS)
            counts.append(len(scene.again) - before)
            before = len(scene.again)
        assert all(1.5 * earlier <= later <= 3 * earlier for earlier, later in pairwise(counts))
        await asyncio.sleep(2 * DOUBLING_SECONDS)
        assert len(scene.again) == 1000

    play(steps)


def test_a_status_that_waited_keeps_the_times_of_the_pods() -> None:
    """The start of a job that ended meanwhile must not be its end."""
    written: list[dict[str, Any]] = []

    class Endpoint:
        async def apply(self, path: str, document: dict[str, Any], manager: str) -> dict[str, Any]:
            written.append(document["status"])
            return {"metadata": {"resourceVersion": "2"}}

    class Events:
        async def emit(self, *event: object) -> None:
            del event

    cache, postponed = ReconcilerCache(), [True, True, False]
    clock = [NOW]
    executor = ActionExecutor(
        Endpoint(),  # type: ignore[arg-type]
        cache,
        Events(),
        Settings(),
        lambda: clock[-1],
        postpone_status=lambda key, passing: postponed.pop(0),
    )
    job = training_job(chunks=None, workers=1)
    over = training_job(chunks=None, workers=1, status={"progress": {"done": "0"}})
    for seen, after in ((observed(job, pod(0, 1)), 0.0), (observed(job, pod(0, 1)), 5.0), (observed(over), 9.0)):
        now = NOW + timedelta(seconds=after)
        times = cache.times.get(seen.key)
        seen = replace(seen, times=times) if times else seen
        writes = [one for one in reconcile(seen, Settings(), now) if isinstance(one, WriteStatus)]
        asyncio.run(executor.execute(seen, list(writes)))
    assert [status["phase"] for status in written] == ["Succeeded"]
    assert written[0]["startTime"] == "2026-11-21T12:00:00.123456Z"
    assert written[0]["completionTime"] == "2026-11-21T12:00:09.123456Z"
    assert not cache.times
