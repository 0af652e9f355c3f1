"""Requests for chunks between workers, planner and written plans; the store of jobs is filled by hand."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import msgspec
import pytest

from support.live_controller import condition_alone, noted, reported, resource, taken_over, written
from tranche.kube.api.job_decoder import decode_new_job
from tranche.live import chunk_requests
from tranche.live.controller import Controller
from tranche.live.informers import Informers
from tranche.model import ChunkGrant, ChunkRequest
from tranche.planner import Event, Instruction

KEY = "default/cats"
WORKERS = 1600


async def one_worker() -> Controller:
    """A job of two chunks of 10 mini-batches, of which one worker, attempt 1, trains the first."""
    made = resource("cats", data={"chunks": 2, "batchesPerChunk": 10})
    workers = made.spec.workers.model_copy(update={"max_replicas": 1})
    spec = made.spec.model_copy(update={"workers": workers})
    return await taken_over(made.model_copy(update={"spec": spec}), policy="chunk")


def request(fence: int = 1, attempt: int = 1) -> ChunkRequest:
    return ChunkRequest(KEY, attempt, fence, {0: 10.0})


def write(controller: Controller) -> None:
    """The plan reaches the API server, and the watch brings it back."""
    old = controller.watches.jobs.store[KEY]
    status = old.status.model_copy(update={"plan": type(old.status).model_validate(written(controller, "cats")).plan})
    reported(controller, "jobs", KEY, old.model_copy(update={"status": status}))


async def begin(controller: Controller, request: ChunkRequest) -> "asyncio.Task[ChunkGrant | None]":
    task = asyncio.create_task(controller.chunk_requests.ask(request))
    await asyncio.sleep(0)
    return task


async def settled(task: "asyncio.Task[ChunkGrant | None]") -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


def test_chunk_request_is_answered_after_the_plan_is_written() -> None:
    async def scenario() -> None:
        controller = await one_worker()
        write(controller)
        task = await begin(controller, request())
        assert controller._wake.is_set(), "the planner is woken at once"
        controller.step()
        assert controller.planner.cluster.jobs[KEY].runs[1].window.chunks == (1,)
        assert not await settled(task)
        write(controller)
        assert await settled(task)
        assert task.result() == ChunkGrant((1,), 2)
        again = await begin(controller, request())
        controller.step()
        assert await settled(again), "what is written needs no more waiting"
        assert again.result() == task.result()

    asyncio.run(scenario())


def test_job_change_before_planner_step_does_not_answer_request() -> None:
    async def scenario() -> None:
        controller = await one_worker()
        task = await begin(controller, request())
        controller.chunk_requests.settle(KEY)
        assert not await settled(task)
        task.cancel()

    asyncio.run(scenario())


def test_exit_answer_does_not_wait_for_a_written_plan() -> None:
    async def scenario() -> None:
        controller = await one_worker()
        state = controller.planner.cluster.jobs[KEY]
        state.done.add(1)
        state.windows_changed()
        task = await begin(controller, request())
        controller.step()
        assert await settled(task)
        assert task.result() == ChunkGrant()

    asyncio.run(scenario())


def test_chunk_request_of_unplanned_attempt_is_answered_as_over() -> None:
    async def scenario() -> None:
        controller = await one_worker()
        assert await controller.chunk_requests.ask(request(attempt=7)) is None
        task = await begin(controller, request())
        reported(controller, "jobs", KEY, None)
        assert await settled(task)
        assert task.result() is None

    asyncio.run(scenario())


def test_request_of_a_deleted_job_gets_no_chunk_of_namesake() -> None:
    """The chunk that the worker of the deleted job has trained does not count for the new one."""

    async def scenario() -> None:
        controller = await one_worker()
        old = controller.watches.jobs.store[KEY]
        asked = replace(request(), job_uid="cats")
        task = await begin(controller, asked)
        metadata = old.metadata.model_copy(update={"uid": "another"})
        noted(controller, "jobs", KEY, None)
        reported(controller, "jobs", KEY, old.model_copy(update={"metadata": metadata}))
        assert await settled(task)
        assert task.result() is None
        state = controller.planner.cluster.jobs[KEY]
        assert (state.done, state.runs[1].window.chunks) == (set(), (0,))
        with pytest.raises(TimeoutError):  # the watches of the report API lag behind
            await controller.chunk_requests.ask(asked)

    asyncio.run(scenario())


def test_workers_of_a_job_that_cannot_be_read_are_not_stopped() -> None:
    """Such as after a rollback to a release that does not know a value in its specification."""

    async def scenario() -> None:
        made = resource("cats", duration="a while")
        controller = await taken_over(made, policy="chunk")
        assert KEY not in controller.planner.cluster.jobs
        with pytest.raises(TimeoutError):
            await controller.chunk_requests.ask(request())
        ended = made.model_copy(update={"status": made.status.model_copy(update={"phase": "Failed"})})
        controller.watches.jobs.store[KEY] = ended
        assert await controller.chunk_requests.ask(request()) is None

    asyncio.run(scenario())


def test_workers_of_a_job_that_no_watch_shows_are_not_stopped() -> None:
    """Such as that of a new leader whose watch is behind; the earlier one has planned the job."""

    async def scenario() -> None:
        controller = await taken_over(policy="chunk")
        with pytest.raises(TimeoutError):
            await controller.chunk_requests.ask(request())

    asyncio.run(scenario())


def test_workers_of_a_job_with_an_unknown_value_are_not_stopped() -> None:
    """The planner of an earlier release may lead while the report API of the next one knows the value."""

    async def scenario() -> None:
        made = resource("cats").model_dump(mode="json", by_alias=True)
        made["spec"]["preemption"]["policy"] = "AtNight"
        found = Informers(None).jobs._decode(msgspec.json.encode(made))  # type: ignore[arg-type]
        controller = await taken_over(found, policy="chunk")
        assert KEY not in controller.planner.cluster.jobs
        with pytest.raises(TimeoutError):
            await controller.chunk_requests.ask(request())
        (condition,) = condition_alone(controller, "cats")["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "InvalidSpec")
        assert "spec.preemption.policy" in condition["message"]
        assert controller.metrics.registry.get_sample_value("tranche_errors_total", {"kind": "object"}) == 1

    asyncio.run(scenario())


def test_job_with_unknown_value_in_status_waits_until_readable() -> None:
    """A newer release has written its status. The plan and its workers are taken over once the value is gone."""

    async def scenario() -> None:
        window = {"index": 0, "attempt": 1, "site": "default", "node": "n1", "chunks": [0], "state": "Open"}
        plan = {"term": 1, "revision": 4, "observedGeneration": 1, "attempts": 1, "workers": [window]}
        made = resource("cats", plan=plan)
        newer = made.model_dump(mode="json", by_alias=True)
        newer["status"]["phase"] = "Paused"
        found = decode_new_job(msgspec.json.encode(newer))
        controller = await taken_over(found, resource("dogs"), policy="chunk")
        assert list(controller.planner.cluster.jobs) == ["default/dogs"]
        with pytest.raises(TimeoutError):
            await controller.chunk_requests.ask(request())
        (condition,) = condition_alone(controller, "cats")["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "InvalidSpec")
        assert "status.phase" in condition["message"]
        reported(controller, "jobs", KEY, made)
        assert list(controller.planner.cluster.jobs[KEY].runs)[:1] == [1]
        assert written(controller, "cats")["conditions"][0]["reason"] == "Planned"

    asyncio.run(scenario())


def test_a_plan_that_is_not_written_in_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_requests, "ANSWER_SECONDS", 0.01)

    async def scenario() -> None:
        controller = await one_worker()
        task = await begin(controller, request())
        controller.step()
        with pytest.raises(TimeoutError):
            await task
        assert controller.chunk_requests._waiting == {}

    asyncio.run(scenario())


@pytest.mark.parametrize("at_once", [1, 2])
def test_chunk_requests_are_decided_in_batches(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_requests, "AT_ONCE", at_once)

    async def scenario() -> None:
        controller = await taken_over(resource("cats", data={"chunks": 2, "batchesPerChunk": 10}))
        decisions: list[int] = []
        decide = controller.planner.handle_all

        def counted(events: Iterable[Event], now: float) -> list[Instruction]:
            given = list(events)
            decisions.append(len(given))
            return decide(given, now)

        monkeypatch.setattr(controller.planner, "handle_all", counted)
        states = controller.planner.cluster.jobs
        attempts = [(key, attempt) for key, state in states.items() for attempt in state.runs]
        waiting = [await begin(controller, ChunkRequest(key, attempt, attempt, {})) for key, attempt in attempts]
        assert len(attempts) == 2
        for left in range(2 - at_once, -1, -at_once):
            controller._wake.clear()
            controller.step()
            assert controller._wake.is_set() == bool(left), "the next turn comes at once"
        assert decisions == [at_once] * (2 // at_once)
        for task in waiting:
            task.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("others", [0, 200])
def test_1600_chunk_requests_leave_turns_for_the_lease(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of a wide job ask in the same second, also while other jobs wait for their GPUs."""

    async def scenario() -> None:
        wide = resource("wide", data={"chunks": 2000, "batchesPerChunk": 10})
        spec = wide.spec.model_copy(update={"workers": wide.spec.workers.model_copy(update={"max_replicas": WORKERS})})
        jobs = wide.model_copy(update={"spec": spec}), *(resource(f"other-{n}", "10000h") for n in range(others))
        controller = await taken_over(*jobs, policy="chunk", nodes=WORKERS // 8, gpus=8, validate=False)
        runs = controller.planner.cluster.jobs[wide.key].runs
        assert len(runs) == WORKERS
        decided = [0]
        decide = controller.planner.handle_all

        def counted(events: Iterable[Event], now: float) -> list[Instruction]:
            given = list(events)
            decided.append(decided[-1] + len(given))
            return decide(given, now)

        monkeypatch.setattr(controller.planner, "handle_all", counted)
        requests = [
            ChunkRequest(wide.key, one, one, dict.fromkeys(run.window.chunks, 10.0)) for one, run in runs.items()
        ]
        tasks = [asyncio.create_task(controller.chunk_requests.ask(one)) for one in requests]
        tasks.append(asyncio.create_task(controller._plan()))
        largest, before = 0, 0
        while decided[-1] < WORKERS and not tasks[-1].done():
            await asyncio.sleep(0)  # a turn of the renewal
            largest, before = max(largest, decided[-1] - before), decided[-1]
        assert len([run for run in runs.values() if run.window.renewed]) == 400
        assert largest <= 50, "of 1,600 in one turn"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(scenario())


def test_repeated_request_replaces_the_earlier_one() -> None:
    async def scenario() -> None:
        controller = await one_worker()
        first = await begin(controller, request())
        second = await begin(controller, request())
        with pytest.raises(TimeoutError):
            await first
        assert len(controller.chunk_requests.drain()) == 1
        second.cancel()

    asyncio.run(scenario())
