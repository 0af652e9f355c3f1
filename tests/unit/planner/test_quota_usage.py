"""ResourceQuotas in planning: no plan exceeds a quota, and other jobs do not wait for it."""

from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.model import PodShape, Preemption, Quota, QuotaLimit, Resources
from tranche.planner import (
    CloseWindow,
    Event,
    Instruction,
    JobChanged,
    JobSubmitted,
    OpenWindow,
    PlaceParameterServer,
    Planner,
    PodOverdue,
    QuotaChanged,
    QuotaRemoved,
    WorkerEnded,
    WorkerStarted,
)

HOUR = 3600.0
POLICIES = ("chunk", "chunk-faithful", "srsf", "fifo", "drf")


def gpus(hard: int, foreign: int = 0, **changes: Any) -> QuotaChanged:
    limit = QuotaLimit("requests.nvidia.com/gpu", "gpus", hard, foreign)
    return QuotaChanged(Quota("team-a", "gpus", (limit,), **changes))


def opened(out: list[Instruction]) -> list[str]:
    return [i.job.partition("/")[2] for i in of_type(OpenWindow, out)]


def submit(p: Planner, name: str, at: float = 0.0, namespace: str = "team-a", **changes: Any) -> list[Instruction]:
    return p.handle(JobSubmitted(job(name, at, key=f"{namespace}/{name}", **changes)), at)


def explanation(p: Planner, name: str, now: float = 0.0) -> str:
    return p.plan_of(f"team-a/{name}", now).explanation


@pytest.mark.parametrize("policy", POLICIES)
def test_job_over_quota_waits_and_other_namespaces_do_not(policy: str) -> None:
    p = planner(policy, [node("n1", gpus=8)])
    p.handle(gpus(2), 0.0)
    assert opened(submit(p, "first", chunks=4, seconds=10)) == ["first", "first"]
    assert opened(submit(p, "second", 1.0, seconds=50)) == []
    assert explanation(p, "second", 1.0) == (
        "waits for the quota team-a/gpus: 2 of 2 nvidia.com/gpu in use, and 1 needed"
    )
    assert opened(submit(p, "other", 2.0, "team-b", seconds=1000)) == ["other"]
    assert opened(p.handle(WorkerEnded("team-a/first", 1, "Succeeded", 10.0), 10.0)) == ["first"]


@pytest.mark.parametrize("policy", POLICIES)
def test_raised_or_removed_quota_starts_waiting_chunks(policy: str) -> None:
    p = planner(policy, [node("n1", gpus=8)])
    p.handle(gpus(0), 0.0)
    assert opened(submit(p, "one", chunks=3)) == []
    assert opened(p.handle(gpus(1), 1.0)) == ["one"]
    assert opened(p.handle(QuotaRemoved("team-a", "gpus"), 2.0)) == ["one", "one"]


@pytest.mark.parametrize("policy", POLICIES)
def test_quota_below_its_use_stops_no_worker_and_starts_none(policy: str) -> None:
    p = planner(policy, [node("n1", gpus=8)])
    p.handle(gpus(3), 0.0)
    assert len(opened(submit(p, "one", chunks=5))) == 3
    assert of_type(CloseWindow, p.handle(gpus(1), 1.0)) == []
    for attempt, at in ((1, 100.0), (2, 101.0)):
        assert opened(p.handle(WorkerEnded("team-a/one", attempt, "Succeeded", at), at)) == []
    assert opened(p.handle(WorkerEnded("team-a/one", 3, "Succeeded", 102.0), 102.0)) == ["one"]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_others_use_of_a_quota_is_not_there_for_us(policy: str) -> None:
    p = planner(policy, [node("n1", gpus=8)])
    p.handle(gpus(4, foreign=3), 0.0)
    assert opened(submit(p, "one", chunks=3)) == ["one"]
    assert opened(p.handle(gpus(4, foreign=2), 1.0)) == ["one"]


def test_one_namespace_holds_its_quota_at_all_sites_together() -> None:
    p = planner("chunk", [node("n1", "edge-a"), node("n2", "edge-b")])
    p.handle(gpus(1), 0.0)
    assert opened(submit(p, "here", data_site="edge-a", chunk_bytes=1e9)) == ["here"]
    assert opened(submit(p, "there", data_site="edge-b", chunk_bytes=1e9, seconds=200)) == []
    assert opened(p.handle(WorkerEnded("team-a/here", 1, "Succeeded", 100.0), 100.0)) == ["there"]


def test_all_of_a_gang_fit_into_the_quota_or_none_starts() -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    p.handle(gpus(5), 0.0)
    assert opened(submit(p, "filler", chunks=2, seconds=10)) == ["filler"] * 2
    assert opened(submit(p, "gang", chunks=4, is_gang=True, seconds=100)) == []
    assert explanation(p, "gang") == "waits for the quota team-a/gpus: 2 of 5 nvidia.com/gpu in use, and 4 needed"
    p.handle(WorkerEnded("team-a/filler", 1, "Succeeded", 10.0), 10.0)
    assert len(p.cluster.jobs["team-a/gang"].runs) == 4


def test_gang_larger_than_quota_is_explained() -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    p.handle(gpus(3), 0.0)
    submit(p, "gang", chunks=4, is_gang=True)
    assert explanation(p, "gang") == "needs 4 nvidia.com/gpu at once, more than the quota team-a/gpus allows: 3"


def test_every_quota_of_the_namespace_counts() -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    p.handle(gpus(3), 0.0)
    memory = QuotaLimit("requests.memory", "memory", 2 * 2**30)
    p.handle(QuotaChanged(Quota("team-a", "memory", (memory,))), 0.0)
    assert opened(submit(p, "one", chunks=5)) == ["one", "one"]
    submit(p, "two")
    assert explanation(p, "two") == "waits for the quota team-a/memory: 2 GiB of 2 GiB memory in use, and 1 GiB needed"


def test_parameter_servers_count_before_the_first_worker_starts() -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    p.handle(QuotaChanged(Quota("team-a", "pods", (QuotaLimit("pods", "pods", 3),))), 0.0)
    out = submit(p, "one", chunks=4, servers=1, server=worker(0))
    assert len(of_type(PlaceParameterServer, out)) == 1
    assert opened(out) == ["one", "one"]
    assert submit(p, "two", servers=3, server=worker(0), seconds=9)[:-1] == []
    assert explanation(p, "two") == "needs 4 pods at once, more than the quota team-a/pods allows: 3"


def test_quota_of_a_priority_class_limits_only_that_class() -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    p.handle(gpus(1, priorities=frozenset({-9})), 0.0)
    assert opened(submit(p, "normal", chunks=2)) == ["normal"]
    assert opened(submit(p, "low", chunks=2, priority=-10)) == ["low", "low"]


def test_shorter_job_gets_quota_after_victims_pod_has_ended() -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    p.handle(gpus(1), 0.0)
    submit(p, "long", seconds=1000)
    p.handle(WorkerStarted("team-a/long", 1, 0.0), 0.0)
    out = submit(p, "short", 10.0, seconds=10)
    assert [i.job for i in of_type(CloseWindow, out)] == ["team-a/long"]
    assert opened(out) == []  # the API server still counts the pod that stops
    assert opened(submit(p, "later", 11.0, seconds=20)) == []
    assert of_type(CloseWindow, p.handle(gpus(1), 12.0)) == []
    assert opened(p.handle(WorkerEnded("team-a/long", 1, "Preempted", 15.0, {0: 1}), 15.0)) == ["short"]


@pytest.mark.parametrize("overdue", [5.0, 50.0])
def test_job_awaits_no_quota_of_a_pod_that_does_not_stop(overdue: float) -> None:
    """Its pod is overdue before the shorter job arrives, or afterwards."""
    p = planner("chunk", [node(f"n{number}") for number in range(3)])
    p.handle(gpus(2), 0.0)
    for name in ("hangs", "long"):
        submit(p, name, seconds=1000 * HOUR, restart_seconds=1.0, restart_declared=True)
        p.handle(WorkerStarted(f"team-a/{name}", 1, 0.0), 0.0)
    hangs = replace(p.cluster.jobs["team-a/hangs"].job, suspended=True, generation=2)
    events: list[tuple[float, Event]] = [(1.0, JobChanged(hangs)), (overdue, PodOverdue("team-a/hangs", 1))]
    events.append((10.0, JobSubmitted(job("short", 10.0, seconds=10.0, key="team-a/short"))))
    out = [one for at, event in sorted(events, key=itemgetter(0)) for one in p.handle(event, at)]
    assert [one.job for one in of_type(CloseWindow, out)] == ["team-a/hangs", "team-a/long"]
    assert opened(p.handle(WorkerEnded("team-a/long", 1, "Preempted", 60.0), 60.0)) == ["short"]


def test_quota_preempts_no_job_of_another_namespace() -> None:
    p = planner("chunk", [node("n1", gpus=2)])
    p.handle(gpus(1), 0.0)
    submit(p, "own", seconds=1000, preemption=Preemption.NEVER)
    submit(p, "other", 0.0, "team-b", seconds=1000)
    assert of_type(CloseWindow, submit(p, "short", 10.0, seconds=10)) == []


def test_victim_does_not_take_quota_that_is_freed_for_preemptor() -> None:
    """The preemptor needs more quota than one pod frees; a victim that took it again would be preempted without end."""
    p = planner("chunk", [node("n1", gpus=8)])
    p.handle(gpus(2), 0.0)
    assert opened(submit(p, "low", chunks=4, seconds=1000, priority=-10)) == ["low", "low"]
    assert len(of_type(CloseWindow, submit(p, "wide", 1.0, worker=worker(2)))) == 2
    assert opened(p.handle(WorkerEnded("team-a/low", 1, "Preempted", 2.0), 2.0)) == []
    assert opened(p.handle(WorkerEnded("team-a/low", 2, "Preempted", 3.0), 3.0)) == ["wide"]


def test_job_with_freed_quota_preempts_job_that_took_its_room() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(gpus(1), 0.0)
    submit(p, "victim", seconds=1000, priority=-9)
    submit(p, "other", 0.0, "team-b", seconds=1000, priority=-10)
    assert opened(submit(p, "mine", 1.0, priority=-8)) == ["other"]
    out = p.handle(WorkerEnded("team-a/victim", 1, "Preempted", 2.0), 2.0)
    assert [closed.window.preempted_by for closed in of_type(CloseWindow, out)] == ["team-a/mine"]


def test_job_without_room_for_its_server_preempts_for_no_quota() -> None:
    p = planner("chunk", [node("n1", gpus=2)])
    p.handle(gpus(1), 0.0)
    submit(p, "victim", seconds=1000, priority=-10)
    server = PodShape(Resources(64_000, 2**30, 0, 1))
    assert of_type(CloseWindow, submit(p, "mine", 1.0, servers=1, server=server)) == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("terminating", [True, False])
def test_scope_of_deadlines_counts_the_pods_that_it_selects(policy: str, terminating: bool) -> None:
    p = planner(policy, [node("n1", gpus=8)])
    p.handle(gpus(1, terminating=terminating), 0.0)
    with_deadline, without = replace(worker(), has_deadline=True), worker()
    covered, other = (with_deadline, without) if terminating else (without, with_deadline)
    assert opened(submit(p, "covered", chunks=2, worker=covered)) == ["covered"]
    assert opened(submit(p, "other", chunks=2, worker=other)) == ["other", "other"]
    p.handle(WorkerEnded("team-a/other", 2, "Succeeded", 1.0), 1.0)
    assert opened(p.handle(WorkerEnded("team-a/covered", 1, "Succeeded", 1.0), 1.0)) == ["covered"]


@pytest.mark.parametrize("best_effort", [True, False])
def test_overhead_of_a_pod_changes_no_scope_of_quotas(best_effort: bool) -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    p.handle(QuotaChanged(Quota("team-a", "q", (QuotaLimit("pods", "pods", 1),), best_effort=best_effort)), 0.0)
    sandboxed = PodShape(Resources(250, 2**27, 1, 1), overhead=Resources(250, 2**27))
    covered, other = (sandboxed, worker()) if best_effort else (worker(), sandboxed)
    assert opened(submit(p, "covered", chunks=2, worker=covered)) == ["covered"]
    assert opened(submit(p, "other", chunks=2, worker=other)) == ["other", "other"]


def test_helper_without_deadline_counts_against_its_own_quota() -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    pods = QuotaLimit("pods", "pods", 1)
    p.handle(QuotaChanged(Quota("team-a", "short", (pods,), terminating=True)), 0.0)
    p.handle(QuotaChanged(Quota("team-a", "long", (pods,), terminating=False)), 0.0)
    server, short = PodShape(Resources(1000, 2**30, 0, 1)), replace(worker(), has_deadline=True)
    assert opened(submit(p, "first", servers=1, server=server, worker=short)) == ["first"]
    assert opened(submit(p, "without", 1.0)) == []
    p.handle(WorkerEnded("team-a/first", 1, "Preempted", 2.0, {}), 2.0)
    assert opened(submit(p, "second", 3.0, worker=short)) == []


def test_quota_use_is_correct_after_pods_of_a_job_change_size() -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    p.handle(gpus(2), 0.0)
    submit(p, "one")
    wider = job("one", key="team-a/one", worker=worker(2), generation=2)
    p.handle(JobChanged(wider), 1.0)
    assert opened(p.handle(WorkerEnded("team-a/one", 1, "Preempted", 2.0, {}), 2.0)) == ["one"]
    p.handle(WorkerEnded("team-a/one", 2, "Succeeded", 3.0), 3.0)
    assert p.cluster.quotas.holders() == set()
