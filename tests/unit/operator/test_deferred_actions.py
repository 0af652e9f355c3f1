"""Deferred actions run later, and once."""

import asyncio
from dataclasses import replace

import pytest

from support.operator_objects import observed, pod, training_job
from support.virtual_time_loop import JumpingLoop, run
from tranche.kube.client.client import ApiError
from tranche_operator.queue.deferred_actions import (
    HANGING_SECONDS,
    RETRY_SECONDS,
    DeferredActionQueue,
    split_deferrable,
)
from tranche_operator.reconcile.actions import Action, DeletePod, EvictPod, ReleasePod
from tranche_operator.reconcile.observed import Observed

OVER, RUNS = pod(0, 1, phase="Succeeded"), pod(1, 2)
RELEASE = ReleasePod(OVER.name, OVER.uid, OVER.finalizers)


def test_ended_pods_of_existing_job_are_deferred_and_others_not() -> None:
    actions: list[Action] = [EvictPod(RUNS.name, RUNS.uid, 1, "w"), DeletePod(RUNS.name, RUNS.uid, 1)]
    idle: list[Action] = [RELEASE, DeletePod(OVER.name, OVER.uid, 1)]
    assert split_deferrable(observed(training_job(), OVER, RUNS), [*actions, *idle]) == (actions, idle)
    assert split_deferrable(observed(None, OVER, RUNS), [*actions, *idle]) == ([*actions, *idle], [])
    assert split_deferrable(observed(training_job(deleting=True), OVER), idle) == (idle, [])


def test_deferred_actions_run_once_in_order_and_failure_requeues() -> None:
    done: list[tuple[float, str]] = []
    again: list[tuple[str, float]] = []

    async def main(loop: JumpingLoop) -> None:
        async def apply(seen: Observed, actions: list[Action]) -> float | None:
            (action,) = actions
            assert isinstance(action, ReleasePod)
            done.append((loop.time(), action.name))
            await asyncio.sleep(0.1)
            if action.name == "b":
                raise ApiError(500, "InternalError", "no")
            return 0.5 if action.name == "c" else None

        deferred = DeferredActionQueue(apply, lambda *one: again.append(one), 1.0, loop.time)
        serving = asyncio.ensure_future(deferred.serve())
        for name in ("a", "b", "a", "c"):
            deferred.put(observed(training_job()), [ReleasePod(name, "u", ())])
            await asyncio.sleep(0.01)
        await asyncio.sleep(5.0)
        assert [name for _, name in done] == ["a", "b", "c"]
        assert [round(at, 2) for at, _ in done] == [1.0, 1.1, 1.2]
        assert again == 2 * [("lab/cats", RETRY_SECONDS)], "one failed, one found another object than it was meant for"
        deferred.put(observed(training_job()), [RELEASE])
        await asyncio.sleep(1.05)
        deferred.put(observed(training_job()), [RELEASE])
        await asyncio.sleep(2.0)
        deferred.put(observed(training_job()), [RELEASE])
        await asyncio.sleep(2.0)
        assert [name for _, name in done[3:]] == [OVER.name], "who asks while it is done, or after, has seen what was"
        deferred.put(observed(training_job()), [ReleasePod("b", "u", ())])
        await asyncio.sleep(2.0)
        assert [name for _, name in done[4:]] == ["b"], "what failed is not done"
        await asyncio.sleep(10.0)
        deferred.put(observed(training_job()), [ReleasePod("d", "u", ()), RELEASE])
        await asyncio.sleep(2.0)
        assert [name for _, name in done[5:]] == ["d", OVER.name], "it is asked for still: it does not stand"
        serving.cancel()
        await asyncio.wait([serving])

    run(main)


def test_retry_after_delays_all_actions_of_the_job() -> None:
    async def main(loop: JumpingLoop) -> None:
        tried: list[tuple[str, float]] = []
        again: list[tuple[str, float]] = []

        async def apply(seen: Observed, actions: list[Action]) -> float | None:
            tried.append((seen.key, round(loop.time())))
            if seen.key == "lab/cats" and loop.time() < 30.0:
                raise ApiError(429, "TooManyRequests", "slow down", retry_after=30.0)
            return None

        deferred = DeferredActionQueue(apply, lambda *one: again.append(one), 1.0, loop.time)
        serving = asyncio.ensure_future(deferred.serve())
        releases = [ReleasePod(str(number), "u", ()) for number in range(10)]
        cats, dogs = observed(training_job()), replace(observed(training_job()), key="lab/dogs")
        deferred.put(cats, releases)
        deferred.put(dogs, releases[:1])
        await asyncio.sleep(11.0)
        deferred.put(cats, releases)  # because of an event
        await asyncio.sleep(5.0)
        assert tried == [("lab/cats", 1), ("lab/dogs", 1)]
        assert again == [("lab/cats", 30.0), ("lab/cats", pytest.approx(20.0))]
        await asyncio.sleep(20.0)
        deferred.put(cats, releases)
        await asyncio.sleep(5.0)
        assert len(tried) == 12
        serving.cancel()
        await asyncio.wait([serving])

    run(main)


def test_deferred_actions_wait_for_urgent_work_up_to_a_limit() -> None:
    async def main(loop: JumpingLoop) -> None:
        at: list[float] = []

        async def apply(seen: Observed, actions: list[Action]) -> float | None:
            at.append(round(loop.time(), 2))
            return None

        deferred = DeferredActionQueue(
            apply, lambda key, delay: None, 1.0, loop.time, lambda: 1.5 < loop.time() < 2.25 or loop.time() > 4.0
        )
        serving = asyncio.ensure_future(deferred.serve())
        for name, pause in (("a", 1.0), ("b", 3.0), ("c", 10.0)):
            deferred.put(observed(training_job()), [ReleasePod(name, "u", ())])
            await asyncio.sleep(pause)
        assert at == [1.0, 2.3, 10.1], "at once, when there is time, and at last"
        serving.cancel()
        await asyncio.wait([serving])

    run(main)


def test_hanging_namespace_delays_no_other_release() -> None:
    async def main(loop: JumpingLoop) -> None:
        done: dict[str, float] = {}
        in_work: dict[str, int] = {"slow": 0, "lab": 0}
        most = 0

        async def apply(seen: Observed, actions: list[Action]) -> float | None:
            nonlocal most
            namespace = seen.key.partition("/")[0]
            in_work[namespace] += 1
            most = max(most, in_work["slow"])
            await asyncio.sleep(10.0 if namespace == "slow" else 0.1)
            in_work[namespace] -= 1
            done[seen.key] = loop.time()
            return None

        deferred = DeferredActionQueue(apply, lambda key, delay: None, 1.0, loop.time)
        serving = asyncio.ensure_future(deferred.serve())
        seen = observed(training_job())
        for number in range(49):
            deferred.put(replace(seen, key="slow/cats"), [ReleasePod(str(number), "u", ())])
        for name in ("cats", "dogs"):
            deferred.put(replace(seen, key=f"lab/{name}"), [RELEASE])
        await asyncio.sleep(1.0 + HANGING_SECONDS + 0.3)
        assert done.keys() == {"lab/cats", "lab/dogs"}
        await asyncio.sleep(500.0)
        assert done["slow/cats"] == pytest.approx(1.0 + 48 * 10.0, abs=11.0), "and it is served to the end"
        assert most == 2, "51 actions wait at first"
        serving.cancel()
        await asyncio.wait([serving])

    run(main)


def test_much_of_it_is_done_side_by_side() -> None:
    async def main(loop: JumpingLoop) -> None:
        at: list[float] = []

        async def apply(seen: Observed, actions: list[Action]) -> float | None:
            await asyncio.sleep(0.1)
            at.append(loop.time())
            return None

        deferred = DeferredActionQueue(apply, lambda key, delay: None, 1.0, loop.time)
        serving = asyncio.ensure_future(deferred.serve())
        deferred.put(observed(training_job()), [ReleasePod(str(number), "u", ()) for number in range(1000)])
        await asyncio.sleep(60.0)
        assert len(at) == 1000
        assert max(at) < 20.0
        serving.cancel()
        await asyncio.wait([serving])

    run(main)
