"""Pods of a job that has trained before, and whose containers do not start now, as while the registry is away."""

from collections.abc import Mapping

import pytest

from support.builders import gang, job, node, planner, worker
from tranche.model import Job, JobProgress
from tranche.planner import JobChanged, JobSubmitted, Planner, PodStartFailed, Tick, WorkerEnded, WorkerStarted
from tranche.state.job import JobState

KEY = "default/a"
HOUR = 3600.0
REASONS: Mapping[str, float] = {"ErrImagePull": 600.0, "CreateContainerConfigError": 60.0, "ContainerCreating": 1800.0}
"""Time in seconds after which a pod fails that does not start, by reason."""


def state_of(p: Planner) -> JobState:
    return p.cluster.jobs[KEY]


def trained(one: Job, gpus: int = 1) -> Planner:
    """Return a planner whose job trained for a minute, and then lost its node for a moment."""
    p = planner("chunk", [node("n1", gpus=gpus), node("n2", gpus=gpus)])
    p.handle(JobSubmitted(one), 0.0)
    for attempt in list(state_of(p).runs):
        p.handle(WorkerStarted(KEY, attempt, 1.0), 1.0)
    for attempt in list(state_of(p).runs):
        p.handle(WorkerEnded(KEY, attempt, "Preempted", 61.0), 61.0)
    return p


def outage(p: Planner, reason: str, seconds: float, now: float = 61.0) -> int:
    """Let no pod start for a time; return the number of attempts."""
    end, opened, failed = now + seconds, dict[int, float](), 0
    while now < end:
        for attempt, run in list(state_of(p).runs.items()):
            since = opened.setdefault(attempt, now)
            if run.closing:
                p.handle(WorkerEnded(KEY, attempt, "Preempted", now), now)
            elif now - since >= REASONS[reason]:
                failed += 1
                p.handle(PodStartFailed(KEY, attempt, reason, "429 Too Many Requests"), now)
        p.handle(Tick(), now)
        now += 10.0
    return failed


@pytest.mark.parametrize("reason", REASONS)
def test_job_that_has_trained_outlives_an_outage(reason: str) -> None:
    p = trained(job("a", seconds=HOUR))
    attempts = outage(p, reason, 24 * HOUR)
    state = state_of(p)
    assert (state.failures, state.failed) == (0, False)
    assert 10 < attempts < 40, "the pauses grow to an hour"
    p.handle(Tick(), now := 26 * HOUR)
    (attempt,) = state.runs
    p.handle(WorkerStarted(KEY, attempt, now), now)
    p.handle(WorkerEnded(KEY, attempt, "Succeeded", now + HOUR), now + HOUR)
    assert state.finished


def test_gang_that_has_trained_outlives_an_outage() -> None:
    p = trained(gang("a", members=4), gpus=2)
    outage(p, "ErrImagePull", 12 * HOUR)
    assert (state_of(p).failures, state_of(p).failed) == (0, False)


def test_pods_of_one_attempt_that_do_not_start_pause_once() -> None:
    p = trained(job("a", chunks=8, seconds=HOUR), gpus=4)
    for attempt in list(state_of(p).runs):
        p.handle(PodStartFailed(KEY, attempt, "ErrImagePull"), 700.0)
    assert state_of(p).held_until == 710.0


def test_job_trained_under_the_last_leader_outlives_an_outage() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("a", seconds=HOUR), progress=JobProgress(attained_gpu_seconds=60.0)), 0.0)
    outage(p, "ErrImagePull", 12 * HOUR)
    assert (state_of(p).failures, state_of(p).failed) == (0, False)


def test_job_that_has_never_started_fails_for_its_image() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("a", seconds=HOUR)), 0.0)
    outage(p, "ErrImagePull", 12 * HOUR)
    assert state_of(p).failed


def test_hold_says_why_and_ends_with_the_next_specification() -> None:
    p = trained(job("a", seconds=HOUR))
    outage(p, "ErrImagePull", 6 * HOUR)
    state = state_of(p)
    assert "ErrImagePull: 429 Too Many Requests" in state.hold_reason
    p.handle(JobChanged(job("a", seconds=HOUR, generation=2, worker=worker(cpu=500))), 7 * HOUR)
    assert any(not run.closing for run in state.runs.values())


@pytest.mark.parametrize(
    ("code", "reason", "text"),
    [
        (137, "OOMKilled", "failed with exit code 137 (OOMKilled)"),
        (137, "Evicted: Pod ephemeral local storage usage exceeds the total limit", "exceeds the total limit)"),
        (None, "exit code 3 of an init container", "failed with exit code 3 of an init container"),
        (1, "", "failed with exit code 1"),
    ],
)
def test_why_quotes_the_kubelet_beside_the_exit_code(code: int | None, reason: str, text: str) -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a", seconds=HOUR)), 0.0)
    p.handle(WorkerStarted(KEY, 1, 1.0), 1.0)
    p.handle(WorkerEnded(KEY, 1, "Failed", 5.0, exit_code=code, reason=reason), 5.0)
    assert state_of(p).hold_reason.endswith(text)
    assert text in p.plan_of(KEY, 5.0).explanation
