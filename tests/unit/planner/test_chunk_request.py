"""Workers that ask for their next chunks; each chunk is 100 mini-batches of 1 s on one node of one GPU."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.model import (
    Checkpoint,
    ChunkGrant,
    ChunkRequest,
    Preemption,
    Quota,
    QuotaLimit,
    Report,
    Resources,
    Window,
    WindowState,
)
from tranche.planner import (
    ChunksRequested,
    CloseWindow,
    ExtendWindow,
    Instruction,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    ParameterServerEnded,
    Planner,
    ProgressReported,
    QuotaChanged,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
    node_exclusion,
)
from tranche.planner.handlers.chunk_request import chunk_grant
from tranche.state.job import JobState

KEY = "default/cats"
POLICIES = ["chunk", "srsf", "fifo-skip", "chunk-faithful"]
WHOLE = {0: 100.0}


def running(policy: str = "chunk", chunks: int = 3, **changes: Any) -> Planner:
    """A planner with a job of one worker, attempt 1, that trains chunk 0 since 0 s."""
    p = planner(policy, [node("n1")])
    p.handle(JobSubmitted(job("cats", chunks=chunks, **{"max_workers": 1, **changes})), 0.0)
    (attempt,) = state_of(p).runs
    p.handle(WorkerBound(KEY, attempt, "n1"), 0.0)
    p.handle(WorkerStarted(KEY, attempt, 0.0), 0.0)
    return p


def state_of(p: Planner) -> JobState:
    return p.cluster.jobs[KEY]


def window(p: Planner) -> Window:
    (run,) = state_of(p).runs.values()
    return run.window


def ledger(p: Planner) -> tuple[set[int], dict[int, float]]:
    return set(p.progress_of(KEY).done), dict(p.progress_of(KEY).partial)


def ask(
    p: Planner, durable: dict[int, float], at: float = 100.0, fence: int | None = None
) -> tuple[ChunkGrant, list[Instruction]]:
    attempt = window(p).attempt
    request = ChunkRequest(KEY, attempt, fence or window(p).fence, durable)
    instructions = p.handle(ChunksRequested(request, at), at)
    given = chunk_grant(state_of(p), attempt, request.fence, durable)
    assert given is not None
    return given, instructions


@pytest.mark.parametrize("policy", POLICIES)
def test_a_worker_gets_its_next_chunk_and_its_pod_goes_on(policy: str) -> None:
    p = running(policy)
    before = window(p)
    given, instructions = ask(p, WHOLE)
    after = window(p)
    assert given == ChunkGrant((1,), after.fence)
    assert (after.index, after.attempt, after.node) == (before.index, before.attempt, before.node)
    assert after.fence > before.fence
    assert p.progress_of(KEY).done == {0}
    assert of_type(ExtendWindow, instructions)[0].window == after
    assert not of_type(OpenWindow, instructions) + of_type(CloseWindow, instructions)


@pytest.mark.parametrize("policy", POLICIES)
def test_asked_twice_it_says_the_same_and_changes_nothing(policy: str) -> None:
    p = running(policy)
    fence = window(p).fence
    first, _ = ask(p, WHOLE, fence=fence)
    counted, planned = p.progress_of(KEY), window(p)
    again, _ = ask(p, WHOLE, 101.0, fence=fence)
    assert again == first
    assert (p.progress_of(KEY), window(p)) == (counted, planned)


def test_repeated_request_after_exit_answer_gets_exit_again() -> None:
    p = running("fifo")
    p.handle(JobSubmitted(job("dogs", -1.0)), 50.0)
    assert ask(p, WHOLE)[0] == ChunkGrant()
    p.handle(NodeChanged(node("n2")), 101.0)  # dogs go there
    assert p.cluster.jobs["default/dogs"].runs
    assert ask(p, WHOLE, 102.0)[0] == ChunkGrant()


def test_renewal_charges_no_restart_and_counts_each_chunk_once() -> None:
    p = running(chunks=2, restart_seconds=20.0, preemption=Preemption.AT_CHUNK_END)
    ask(p, WHOLE)
    assert (window(p).start, window(p).end) == (100.0, 200.0)
    p.handle(WorkerEnded(KEY, window(p).attempt, "Succeeded", 200.0, {1: 100}), 200.0)
    state = state_of(p)
    assert state.finished
    assert state.counted_gpu_seconds == 200.0
    assert [record.attempt for record in state.records] == [1]


def test_estimate_of_renewing_job_has_no_more_restarts() -> None:
    p = running(chunks=4, restart_seconds=20.0, preemption=Preemption.AT_CHUNK_END)
    assert p.forecast(0.0)[KEY].completion == pytest.approx(400.0 + 3 * 20.0)
    ask(p, WHOLE)
    assert p.forecast(100.0)[KEY].completion == pytest.approx(400.0)


def test_it_resumes_where_the_ledger_says() -> None:
    p = running()
    state_of(p).partial[1] = 20.0
    state_of(p).ledger_changed()
    given, _ = ask(p, WHOLE)
    assert (given.chunks, given.resume) == ((1,), {1: 20.0})
    assert window(p).end == 100.0 + 80.0


def test_a_pod_that_dies_in_its_second_chunk_loses_that_one_only() -> None:
    p = running()
    ask(p, WHOLE)
    p.handle(WorkerEnded(KEY, window(p).attempt, "Failed", 150.0, None, 1), 150.0)
    assert ledger(p) == ({0}, {})
    assert p.progress_of(KEY).lost_batches == pytest.approx(50.0)


@pytest.mark.parametrize("takes_over", [False, True])
def test_failed_pod_has_lasted_since_before_its_renewals(takes_over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[dict[str, Any]] = []
    monkeypatch.setattr(node_exclusion, "note_problem", lambda *_, **noted: problems.append(noted))
    p = running()
    ask(p, WHOLE)
    if takes_over:
        before, p = p, planner("chunk", [node("n1")])
        known = JobSubmitted(state_of(before).job, before.plan_of(KEY, 100.0), before.progress_of(KEY))
        p.restore([known], 110.0)
        p.handle(WorkerStarted(KEY, window(p).attempt, 0.0), 110.0)
    p.handle(WorkerEnded(KEY, window(p).attempt, "Failed", 150.0, None, 1), 150.0)
    assert problems == [{"counted": True, "lasted": 150.0}]


def test_what_it_has_saved_of_its_second_chunk_counts() -> None:
    p = running()
    ask(p, WHOLE)
    p.handle(WorkerEnded(KEY, window(p).attempt, "Preempted", 150.0, {1: 40.0}, 143), 150.0)
    assert ledger(p) == ({0}, {1: 40.0})


def test_silent_end_after_renewal_counts_no_renewed_chunk() -> None:
    p = running()
    ask(p, WHOLE)
    p.handle(WorkerEnded(KEY, window(p).attempt, "Succeeded", 101.0), 101.0)
    assert p.progress_of(KEY).done == {0}


def test_progress_of_refused_renewal_counts_for_any_pod_end() -> None:
    p = running("srsf", preemption=Preemption.AT_CHUNK_END)
    ask(p, WHOLE)
    other()(p)
    assert ask(p, {1: 100.0}, 200.0)[0] == ChunkGrant()
    p.handle(WorkerEnded(KEY, window(p).attempt, "Lost", 201.0), 201.0)
    assert ledger(p) == ({0, 1}, {})


def test_report_from_before_renewal_keeps_progress_of_new_chunk() -> None:
    p = running()
    state_of(p).partial[1] = 20.0
    state_of(p).ledger_changed()
    ask(p, WHOLE)
    p.handle(ProgressReported(Report(KEY, window(p).attempt, WHOLE, WHOLE), 101.0), 101.0)
    assert p.progress_of(KEY).partial == {1: 20.0}


def test_early_renewal_request_returns_the_current_chunk() -> None:
    p = running()
    before = window(p)
    assert ask(p, {0: 60.0})[0] == ChunkGrant((0,), before.fence)
    assert window(p) == before
    assert ledger(p) == (set(), {})


@pytest.mark.parametrize("policy", POLICIES)
def test_after_the_last_chunk_it_is_to_exit(policy: str) -> None:
    p = running(policy, chunks=1)
    assert ask(p, WHOLE)[0] == ChunkGrant()


def other(name: str = "dogs", **changes: Any) -> Callable[[Planner], object]:
    """Another job is submitted."""
    return lambda p: p.handle(JobSubmitted(job(name, 50.0, **{"seconds": 10.0, **changes})), 50.0)


def changed(**changes: Any) -> Callable[[Planner], object]:
    return lambda p: p.handle(JobChanged(replace(state_of(p).job, generation=2, **changes)), 50.0)


EXITS: dict[str, Callable[[Planner], object]] = {
    "a job that ranks before it waits": other(preemption=Preemption.NEVER),
    "a gang that ranks before it would fit": other(chunks=1, is_gang=True),
    "its node is cordoned": lambda p: p.handle(NodeChanged(replace(node("n1"), unschedulable=True)), 50.0),
    "its specification is another one": changed(weight=2.0),
    "its node has more than there is room for": lambda p: p.handle(
        NodeChanged(replace(node("n1"), foreign=Resources(gpus=1))), 50.0
    ),
    "its namespace has more than its quota": lambda p: p.handle(
        QuotaChanged(Quota("default", "small", (QuotaLimit("requests.nvidia.com/gpu", "gpus", 0),))), 50.0
    ),
}


@pytest.mark.parametrize("why", EXITS)
def test_it_is_to_exit_if(why: str) -> None:
    p = running("srsf", preemption=Preemption.AT_CHUNK_END)
    EXITS[why](p)
    assert window(p).state is WindowState.OPEN
    assert ask(p, WHOLE)[0] == ChunkGrant(), why
    assert ledger(p) == (set(), WHOLE), "done with the end of its pod"


STAYS: dict[str, Callable[[Planner], object]] = {
    "the job that waits ranks behind it": other(chunks=3, seconds=500.0),
    "the job that waits does not fit there": other(worker=worker(2)),
    "the gang that waits does not fit": other(chunks=2, max_workers=2, is_gang=True),
}


@pytest.mark.parametrize("why", STAYS)
def test_it_goes_on_if(why: str) -> None:
    p = running("srsf", preemption=Preemption.AT_CHUNK_END)
    STAYS[why](p)
    assert ask(p, WHOLE)[0].chunks == (1,), why


def test_at_chunk_end_the_slot_goes_to_who_ranks_before() -> None:
    p = running("srsf", preemption=Preemption.AT_CHUNK_END)
    other()(p)
    attempt = window(p).attempt
    assert ask(p, WHOLE)[0] == ChunkGrant()
    instructions = p.handle(WorkerEnded(KEY, attempt, "Succeeded", 101.0, WHOLE), 101.0)
    assert [opened.job for opened in of_type(OpenWindow, instructions)] == ["default/dogs"]


def test_higher_ranked_job_waiting_for_quota_gets_the_slot() -> None:
    p = running("srsf", preemption=Preemption.AT_CHUNK_END)
    p.handle(NodeChanged(node("n2", gpus=2)), 1.0)
    p.handle(QuotaChanged(Quota("default", "small", (QuotaLimit("pods", "pods", 1),))), 1.0)
    other(worker=worker(2))(p)  # which does not fit on n1
    assert not p.cluster.jobs["default/dogs"].runs
    assert ask(p, WHOLE)[0] == ChunkGrant()


def test_higher_ranked_gang_gets_slot_if_the_rest_of_it_fits() -> None:
    p = running("srsf", preemption=Preemption.AT_CHUNK_END)
    other(chunks=2, max_workers=2, is_gang=True)(p)
    p.handle(NodeChanged(node("n2")), 60.0)
    assert not p.cluster.jobs["default/dogs"].runs
    assert ask(p, WHOLE)[0] == ChunkGrant()


def test_late_request_does_not_complete_a_reopened_chunk() -> None:
    p = running(chunks=2, server=worker(0), servers=1)
    first = window(p).fence
    ask(p, WHOLE)
    server = state_of(p).servers[0].planned
    state_of(p).checkpoint = Checkpoint(server.attempt)
    p.handle(ParameterServerEnded(KEY, 0, server.attempt), 150.0)
    given, _ = ask(p, {1: 100.0}, 200.0)
    assert given.chunks == (0,)
    assert ask(p, WHOLE, 201.0, fence=first)[0] == given
    assert ledger(p)[0] == {1}


def test_a_chunk_whose_data_are_elsewhere_is_not_given() -> None:
    changes: dict[str, Any] = {"data_site": "edge-1", "chunk_bytes": 1e12, "max_workers": 1}
    p = planner("chunk", [node("n1", "edge-0")], None)
    p.handle(JobSubmitted(job("cats", chunks=2, **changes)), 0.0)
    state = state_of(p)
    state.copy(0, "edge-0", 0.0)
    p.context.touch(state)
    p.handle(NodeChanged(node("n1", "edge-0")), 1.0)
    assert window(p).chunks == (0,)
    assert ask(p, WHOLE, 2.0)[0] == ChunkGrant()


def test_request_of_ended_attempt_gets_no_answer_and_no_effect() -> None:
    p = running()
    attempt = window(p).attempt
    p.handle(WorkerEnded(KEY, attempt, "Lost", 50.0), 50.0)
    counted = p.progress_of(KEY)
    p.handle(ChunksRequested(ChunkRequest(KEY, attempt, attempt, WHOLE), 60.0), 60.0)
    assert chunk_grant(state_of(p), attempt, attempt, WHOLE) is None
    assert p.progress_of(KEY) == counted


@pytest.mark.parametrize(("reported", "saved"), [({0: 100.0}, 70.0), ({1: 60.0}, 60.0), ({1: 0.0}, 0.0)])
def test_report_before_a_repeated_request_keeps_saved_progress(reported: dict[int, float], saved: float) -> None:
    p = running()
    state_of(p).partial[1] = 70.0
    state_of(p).ledger_changed()
    fence = window(p).fence
    ask(p, WHOLE)
    after = planner("chunk", [node("n1")])
    after.restore([JobSubmitted(state_of(p).job, p.plan_of(KEY, 100.0), p.progress_of(KEY))], 110.0)
    attempt = window(after).attempt
    after.handle(WorkerStarted(KEY, attempt, 0.0), 110.0)
    after.handle(ProgressReported(Report(KEY, attempt, reported, reported), 111.0), 111.0)
    assert ask(after, WHOLE, 112.0, fence=fence)[0].resume == ({1: saved} if saved else {})


def test_restored_planner_repeats_answer_and_counts_from_renewal() -> None:
    p = running()
    fence = window(p).fence
    given, _ = ask(p, WHOLE)
    after = planner("chunk", [node("n1")])
    after.restore([JobSubmitted(state_of(p).job, p.plan_of(KEY, 100.0), p.progress_of(KEY))], 110.0)
    after.handle(WorkerStarted(KEY, window(after).attempt, 0.0), 110.0)
    assert ask(after, WHOLE, 111.0, fence=fence)[0] == given
    after.handle(WorkerEnded(KEY, window(after).attempt, "Succeeded", 200.0, {1: 100.0}), 200.0)
    assert after.progress_of(KEY).done == {0, 1}
    assert after.progress_of(KEY).attained_gpu_seconds == 200.0
