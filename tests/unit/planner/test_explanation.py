"""The sentence for each constraint, and that it names the right one."""

from typing import Any

import pytest

from support.builders import job, node, planner, worker
from tranche.model import Job, Link, Node, PodShape, Preemption, Resources, Site, Taint
from tranche.planner import JobSubmitted, Planner, WaitReasonKind, WorkerRejected, WorkerStarted, wait_reason_of

BUSY = job("busy", seconds=100.0)


def sentence(p: Planner, name: str, now: float) -> str:
    p.forecast(now)
    return p.plan_of(f"default/{name}", now).explanation


def limit(p: Planner, name: str, now: float) -> WaitReasonKind:
    state = p.cluster.jobs[f"default/{name}"]
    return wait_reason_of(p.cluster, p.policy, state, p.estimates.get(state.job.key), now).kind


def submitted(nodes: list[Node], *jobs: Job, sites: list[Site] | None = None) -> Planner:
    """All jobs come one after the other, and their workers start at once."""
    p = planner("chunk", nodes, sites)
    for one in jobs:
        p.handle(JobSubmitted(one), 0.0)
        for run in list(p.cluster.jobs[one.key].runs.values()):
            p.handle(WorkerStarted(one.key, run.window.attempt, 0.0), 0.0)
    return p


def test_a_job_with_more_work_waits_behind_the_one_with_less() -> None:
    p = submitted([node("n1")], BUSY, job("later", seconds=200.0))
    assert sentence(p, "later", 10.0) == (
        "waits for 1 GPU at edge-a until 00:01:40Z, behind default/busy, which has less work left"
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"preemption": Preemption.NEVER}, "which may not be stopped (preemption.policy Never)"),
        ({"restart_seconds": 500.0}, "which is not worth stopping"),
    ],
)
def test_explanation_says_why_larger_job_is_not_preempted(changes: dict[str, Any], why: str) -> None:
    p = submitted([node("n1")], job("busy", seconds=100.0, **changes), job("small", seconds=40.0))
    assert sentence(p, "small", 1.0) == f"waits for 1 GPU at edge-a until 00:01:40Z, behind default/busy, {why}"


def test_a_gang_waits_for_the_gpus_of_all_its_members() -> None:
    p = submitted([node("n1"), node("n2")], BUSY, job("gang", chunks=2, seconds=200.0, is_gang=True))
    assert sentence(p, "gang", 1.0).startswith("waits for 2 GPUs at edge-a until 00:01:40Z, behind default/busy")


def test_what_is_short_is_named_and_what_is_not_short_is_not() -> None:
    greedy = job("greedy", seconds=100.0, worker=worker(cpu=40_000))
    p = submitted([node("n1", gpus=2)], greedy, job("later", seconds=200.0, worker=worker(cpu=30_000)))
    assert sentence(p, "later", 1.0).startswith("waits for 30 CPU at edge-a until 00:01:40Z, behind default/greedy")
    p = submitted([node("n1", gpus=1)], greedy, job("later", seconds=200.0, worker=worker(cpu=30_000)))
    assert sentence(p, "later", 1.0).startswith("waits for 1 GPU and 30 CPU at edge-a")


def test_data_on_the_way_bind_where_the_job_will_start_first() -> None:
    sites = [Site("edge-a", links={"edge-b": Link(8e6)}), Site("edge-b")]
    moved = job("moved", seconds=100.0, data_site="edge-a", chunk_bytes=50e6)
    hindered = node("n1", "edge-a", unschedulable=True)
    p = submitted([hindered, node("n2", "edge-b")], moved, sites=sites)
    assert sentence(p, "moved", 1.0) == "its data are on the way to edge-b until 00:00:50Z"
    assert limit(p, "moved", 1.0) is WaitReasonKind.DATA


def test_data_on_the_way_do_not_bind_if_room_comes_later() -> None:
    sites = [Site("edge-a", links={"edge-b": Link(8e6)}), Site("edge-b")]
    moved = job("moved", seconds=300.0, data_site="edge-a", chunk_bytes=50e6)
    p = submitted([node("n1", "edge-a", unschedulable=True), node("n2", "edge-b")], BUSY, moved, sites=sites)
    assert sentence(p, "moved", 1.0).startswith("waits for 1 GPU at edge-b until 00:01:40Z, behind default/busy")


def test_a_hold_binds_unless_something_else_lasts_longer() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("refused")), 0.0)
    p.handle(WorkerRejected("default/refused", "Quota", "too much"), 1.0)
    assert sentence(p, "refused", 2.0).startswith("held until 00:00:31Z: the API server refused its pods (Quota)")
    p.handle(JobSubmitted(job("other", seconds=90.0)), 3.0)
    assert sentence(p, "refused", 4.0).startswith("waits for 1 GPU at edge-a until 00:01:34Z, behind default/other")


def test_a_parameter_server_that_fits_nowhere_is_named() -> None:
    huge = PodShape(Resources(1_000_000, 2**30, 0, 1))
    p = submitted([node("n1")], job("a", servers=1, server=huge))
    assert sentence(p, "a", 1.0) == "no node at any site can ever hold its parameter server"


def test_explanation_names_job_that_blocks_parameter_server() -> None:
    server = PodShape(Resources(60_000, 2**30, 0, 1))
    greedy = job("greedy", seconds=100.0, worker=worker(cpu=40_000))
    p = submitted([node("n1", gpus=2)], greedy, job("a", seconds=200.0, servers=1, server=server))
    assert sentence(p, "a", 1.0) == (
        "waits for room for its parameter server at edge-a until 00:01:40Z, behind default/greedy"
    )


def test_explanation_says_workers_do_not_fit_beside_own_server() -> None:
    server = PodShape(Resources(60_000, 2**30, 0, 1))
    p = submitted([node("n1")], job("a", servers=1, server=server, worker=worker(cpu=40_000)))
    assert sentence(p, "a", 1.0) == "its workers do not fit beside its parameter servers"


@pytest.mark.parametrize(
    ("nodes", "changes", "text"),
    [
        ([], {}, "waits for 1 GPU: the cluster has no nodes"),
        ([node("n1", unschedulable=True)], {}, "no node takes a worker: 1 of 1 nodes cordoned"),
        ([node("n1", taints=(Taint("a"),))], {}, "no node takes a worker: 1 of 1 nodes taint a=:NoSchedule is not"),
        ([node("n1")], {"worker": worker(gpus=2)}, "no node can hold a worker (2 GPUs, 1 CPU, 1 GiB): the largest has"),
        ([node("n1")], {"chunks": 2, "is_gang": True}, "needs 2 workers of 1 GPU at once, more than the cluster can"),
        ([node("n1")], {"suspended": True}, "suspended by spec.suspend; 0 of 1 chunks done"),
    ],
)
def test_what_waiting_does_not_change_is_said_at_once(nodes: list[Node], changes: dict[str, Any], text: str) -> None:
    assert sentence(submitted(nodes, job("a", **changes)), "a", 1.0).startswith(text)


def test_a_running_job_with_its_most_workers_says_so() -> None:
    p = submitted([node("n1", gpus=2)], job("a", chunks=3, max_workers=1))
    assert sentence(p, "a", 1.0) == "1 worker (1 at edge-a), all that maxReplicas allows; 0 of 3 chunks done"
