"""Nodes that have refused a job's pods, and victims who could not be stopped: tried again when something changes."""

from dataclasses import replace

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import Preemption, Resources
from tranche.planner import (
    CloseWindow,
    EvictionRefused,
    Instruction,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    Tick,
    WorkerEnded,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.state.job import JobState

POLICIES = ["chunk", "chunk-faithful", "srsf", "fifo"]
KEY = "default/picky"
GUEST = Resources(cpu=100, pods=1)


def refused(policy: str = "chunk", at: float = 0.0, **changes: object) -> Planner:
    """A planner with a job that fits one node, which has a guest, and has just refused its pod."""
    p = planner(policy, [node("n1", gpus=2, foreign=GUEST), node("n2", gpus=0)])
    p.handle(JobSubmitted(job("picky", **changes)), at)  # type: ignore[arg-type]
    refuse(p, at)
    return p


def refuse(p: Planner, at: float) -> None:
    (attempt,) = state_of(p).runs
    p.handle(WorkerUnschedulable(KEY, attempt, "no free ports"), at)
    p.handle(WorkerEnded(KEY, attempt, "Lost", at), at)
    assert not state_of(p).runs


def state_of(p: Planner) -> JobState:
    return p.cluster.jobs[KEY]


def opened(out: list[Instruction]) -> list[str]:
    return [one.job for one in of_type(OpenWindow, out)]


def guest_goes(p: Planner, at: float) -> list[str]:
    return opened(p.handle(NodeChanged(node("n1", gpus=2)), at))


@pytest.mark.parametrize("policy", POLICIES)
def test_job_retries_only_node_after_foreign_pod_left(policy: str) -> None:
    p = refused(policy)
    assert not opened(p.handle(Tick(), 100.0))
    assert guest_goes(p, 100.0) == [KEY]


@pytest.mark.parametrize("policy", POLICIES)
def test_job_retries_node_after_growing_pauses(policy: str) -> None:
    p = refused(policy)
    now = 0.0
    for pause in (10.0, 20.0, 40.0):
        assert not guest_goes(p, now + 1.0)
        assert not opened(p.handle(Tick(), now + pause - 0.1))
        assert p.next_wakeup() == now + pause
        assert opened(p.handle(Tick(), now + pause)) == [KEY]
        now += 200.0
        p.handle(NodeChanged(node("n1", gpus=2, foreign=GUEST)), now)
        refuse(p, now)
    assert not opened(p.handle(Tick(), now + 299.0))
    assert opened(p.handle(Tick(), now + 300.0)) == [KEY], "nothing has changed: the usual time"


def test_worker_start_on_node_resets_refusal_pause() -> None:
    p = refused()
    guest_goes(p, 50.0)
    p.handle(WorkerStarted(KEY, 2, 51.0), 51.0)
    p.handle(WorkerEnded(KEY, 2, "Preempted", 60.0), 60.0)
    p.handle(NodeChanged(node("n1", gpus=2, foreign=GUEST)), 60.0)
    refuse(p, 100.0)
    guest_goes(p, 101.0)
    assert opened(p.handle(Tick(), 110.0)) == [KEY]


@pytest.mark.parametrize("policy", POLICIES)
def test_end_of_another_jobs_pod_allows_retry_but_own_does_not(policy: str) -> None:
    p = planner(policy, [node("n1", gpus=2)])
    other = job("other", seconds=50.0)
    p.handle(JobSubmitted(other), 0.0)
    p.handle(JobSubmitted(job("picky", 1.0)), 1.0)
    refuse(p, 2.0)
    assert not opened(p.handle(Tick(), 60.0))
    assert opened(p.handle(WorkerEnded(other.key, 1, "Succeeded", 60.0), 60.0)) == [KEY]


@pytest.mark.parametrize("foreign", [Resources(cpu=200, pods=2), GUEST])
def test_a_node_that_becomes_fuller_is_not_tried(foreign: Resources) -> None:
    p = refused()
    assert not opened(p.handle(NodeChanged(node("n1", gpus=2, foreign=foreign)), 100.0))


def test_a_node_whose_labels_change_is_tried() -> None:
    p = refused()
    assert opened(p.handle(NodeChanged(node("n1", gpus=2, foreign=GUEST, labels={"disk": "ssd"})), 100.0)) == [KEY]


@pytest.mark.parametrize("members", [2, 8])
def test_gang_with_several_unschedulable_pods_pauses_once(members: int) -> None:
    p = planner("chunk", [node(f"n{i}") for i in range(members)], node_exclusion_seconds=0.0)
    p.handle(JobSubmitted(job("picky", chunks=members, is_gang=True)), 0.0)
    for number, attempt in enumerate(list(state_of(p).runs)):
        p.handle(WorkerUnschedulable(KEY, attempt, "no free ports"), 30.0 + number)
    for attempt in list(state_of(p).runs):
        p.handle(WorkerEnded(KEY, attempt, "Lost", 39.0), 39.0)
    assert not opened(p.handle(Tick(), 39.9))
    assert len(opened(p.handle(Tick(), 40.0))) == members


def rivals(**changes: object) -> Planner:
    """Return a planner with one GPU, which a long job has. A short job has failed to preempt it."""
    p = planner("chunk", [node("n1", labels={"gpu": "yes"})], eviction_hold_seconds=20.0)
    p.handle(JobSubmitted(job("long", seconds=1e5, **changes)), 0.0)  # type: ignore[arg-type]
    p.handle(WorkerStarted("default/long", 1, 0.0), 0.0)
    p.handle(JobSubmitted(job("short", 1.0, seconds=1.0)), 1.0)
    return p


def test_victim_kept_by_budget_is_closed_after_hold() -> None:
    p = rivals()
    p.handle(EvictionRefused("default/long", (1,), "budget"), 2.0)
    p.handle(WorkerEnded("default/short", 1, "Lost", 3.0), 3.0)
    p.handle(Tick(), 21.0)  # sites are ranked again here, and then not for 30 s
    assert [one.job for one in of_type(CloseWindow, p.handle(Tick(), 22.0))] == ["default/long"]


@pytest.mark.parametrize("changes", [{"preemption": Preemption.NEVER}, {"weight": 1e6}, {"priority": 5}])
def test_job_made_preemptible_by_spec_change_is_preempted(changes: dict[str, object]) -> None:
    p = rivals(**changes)
    assert not p.cluster.jobs["default/short"].runs
    p.handle(Tick(), 31.0)
    plain = replace(job("long", seconds=1e5), generation=2)
    out = p.handle(JobChanged(plain), 32.0)
    assert [one.job for one in of_type(CloseWindow, out)] == ["default/long"]
