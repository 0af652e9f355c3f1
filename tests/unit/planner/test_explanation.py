"""The sentence for each constraint, and that it names the right one."""

from typing import Any

import pytest

from support.builders import job, node, planner, worker
from support.policy_groups import BY_RANK
from tranche.model import (
    Constraints,
    Job,
    Link,
    Node,
    PodShape,
    Preemption,
    Quota,
    QuotaLimit,
    Requirement,
    Resources,
    Site,
    Taint,
)
from tranche.planner import (
    JobChanged,
    JobSubmitted,
    Planner,
    QuotaChanged,
    WaitReasonKind,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    wait_reason_of,
)
from tranche.policies import POLICIES

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
    assert sentence(p, "gang", 1.0) == (
        "waits for 2 GPUs at once (1 is free) until 00:01:40Z, behind default/busy, which has less work left"
    )


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
    huge = PodShape(Resources(1_000_000, 2**30, 0, 1), Constraints((("role", "ps"),)))
    p = submitted([node("n1")], job("a", servers=1, server=huge))
    needs = "which needs 1000 CPU and 1 GiB of memory on a node with role=ps"
    assert sentence(p, "a", 1.0) == f"no node at any site can ever hold its parameter server, {needs}"


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


def test_nodes_that_no_site_selects_are_not_denied() -> None:
    """With Site objects, a node that matches none is not planned with, as after a misspelt selector."""
    p = planner("chunk", [], [Site("edge-d")])
    p.handle(JobSubmitted(job("a")), 0.0)
    assert sentence(p, "a", 1.0) == "waits for 1 GPU: no Site selects a node"


@pytest.mark.parametrize(
    ("nodes", "changes", "text"),
    [
        ([], {}, "waits for 1 GPU: the cluster has no nodes"),
        ([node("n1", unschedulable=True)], {}, "no node takes a worker: 1 of 1 nodes are cordoned"),
        (
            [node("n1", taints=(Taint("a"),))],
            {},
            "no node takes a worker: 1 of 1 nodes have the taint a=:NoSchedule, ",
        ),
        ([node("n1")], {"worker": worker(gpus=2)}, "no node has 2 GPUs for a worker (the largest has 1 GPU)"),
        (
            [Node("n1", "edge-a", Resources(8_000, 32 * 2**30, 1, 110)), Node("n2", "edge-a", Resources(1, 1, 1, 1))],
            {"worker": PodShape(Resources(9_000, 900 * 2**30, 1, 1))},
            "no node has 9 CPU for a worker (the largest has 8 CPU) and 900 GiB of memory for a worker (the",
        ),
        (
            [Node("n1", "edge-a", Resources(1_000, 2**40, 1, 110))],
            {"worker": PodShape(Resources(1_000, 9 * 2**40, 1, 1))},
            "no node has 9 TiB of memory for a worker (the largest has 1 TiB of memory)",
        ),
        (
            [Node("n1", "edge-a", Resources(1_000, 2**40, 4, 110)), node("n2")],
            {"worker": worker(gpus=4, cpu=2_000)},
            "no node has 4 GPUs, 2 CPU and 1 GiB of memory for a worker together",
        ),
        ([node("n1")], {"chunks": 2, "is_gang": True}, "needs 2 workers of 1 GPU at once, more than the cluster can"),
        ([node("n1")], {"suspended": True}, "suspended by spec.suspend; 0 of 1 chunks done"),
    ],
)
def test_what_waiting_does_not_change_is_said_at_once(nodes: list[Node], changes: dict[str, Any], text: str) -> None:
    assert sentence(submitted(nodes, job("a", **changes)), "a", 1.0).startswith(text)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({"seconds": 900.0, "priority": -8}, {}, "which has the higher priority class tranche-high"),
        ({"seconds": 900.0, "weight": 100.0}, {}, "which has more weight (100)"),
        ({"seconds": 100.0, "weight": 100.0}, {"seconds": 200.0}, "which has less work left"),
        ({"seconds": 100.0}, {"seconds": 100.0}, "which came earlier"),
    ],
    ids=["tier", "weight", "work", "arrival"],
)
def test_explanation_names_what_puts_the_other_job_first(
    first: dict[str, Any], second: dict[str, Any], why: str
) -> None:
    p = submitted([node("n1")], job("first", **first), job("second", 0.0, **{"seconds": 200.0, **second}))
    assert sentence(p, "second", 0.0).endswith(f"behind default/first, {why}")


def test_explanation_names_the_longer_wait() -> None:
    p = submitted([node("n1")], BUSY, job("old", seconds=210.0), job("new", 3000.0, seconds=200.0))
    assert (
        p.policy.precedence_reason(p.cluster.jobs["default/old"], p.cluster.jobs["default/new"], p.cluster, 3000.0)
        == "which has waited longer for its size"
    )


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_ignored_claims_are_told(name: str) -> None:
    claims = job("a", weight=100.0, priority=-8)
    p = planner(name, [node("n1")])
    p.handle(JobSubmitted(claims), 0.0)
    ignored = p.plan_of("default/a", 0.0).ignored_claims
    assert ("spec.weight 100" in ignored) is not p.policy.uses_weights
    assert ("spec.priorityClassName tranche-high" in ignored) is not p.policy.uses_tiers
    p.handle(JobSubmitted(job("b")), 0.0)
    assert not p.plan_of("default/b", 0.0).ignored_claims


@pytest.mark.parametrize("name", [*BY_RANK, "least-loaded:order=arrival", "random:order=density"])
def test_greater_weight_comes_first_or_is_reported_ignored(name: str) -> None:
    p = planner(name, [node("n1")])
    p.handle(JobSubmitted(job("running", seconds=10.0, preemption=Preemption.NEVER)), 0.0)
    p.handle(JobSubmitted(job("light", 1.0, seconds=50.0)), 1.0)
    p.handle(JobSubmitted(job("heavy", 2.0, seconds=50.0, weight=100.0)), 2.0)
    ignored = p.plan_of("default/heavy", 2.0).ignored_claims
    p.handle(WorkerEnded("default/running", 1, "Succeeded", 10.0), 10.0)
    assert bool(p.cluster.jobs["default/heavy"].runs) is p.policy.uses_weights
    assert (ignored == "") is p.policy.uses_weights


@pytest.mark.parametrize("name", ["chunk", "chunk-faithful"])
def test_explanation_names_weight_of_the_other_job(name: str) -> None:
    p = planner(name, [node("n1")])
    p.handle(JobSubmitted(job("heavy", seconds=100.0, weight=3.0)), 0.0)
    p.handle(JobSubmitted(job("light", seconds=90.0)), 0.0)
    assert sentence(p, "light", 0.0).endswith("behind default/heavy, which has more weight (3)")


@pytest.mark.parametrize("name", ["chunk", "chunk-faithful", "fifo"])
def test_explanation_names_room_and_quota_if_both_are_short(name: str) -> None:
    """Without the quota the job starts no earlier, so the job that has the GPU is the reason."""
    p = planner(name, [node("n1")])
    p.handle(QuotaChanged(Quota("default", "gpus", (QuotaLimit("requests.nvidia.com/gpu", "gpus", 1),))), 0.0)
    p.handle(JobSubmitted(BUSY), 0.0)
    p.handle(JobSubmitted(job("later", 1.0, seconds=200.0)), 1.0)
    text = sentence(p, "later", 1.0)
    assert "behind default/busy, wh" in text
    assert text.endswith("; also waits for the quota default/gpus: 1 of 1 nvidia.com/gpu in use, and 1 needed")


def test_explanation_names_strict_head_that_waits_for_data() -> None:
    """The head of a strict queue keeps a free GPU from the jobs behind it until its data are there."""
    sites = [Site("edge-a", links={"edge-b": Link(8e6)}), Site("edge-b")]
    p = planner("fifo", [node("n1", "edge-a"), node("n2", "edge-b", gpus=2)], sites)
    p.handle(JobSubmitted(job("busy", seconds=1000.0, data_site="edge-a", chunk_bytes=50e6)), 0.0)
    p.handle(WorkerStarted("default/busy", 1, 0.0), 0.0)
    p.handle(JobSubmitted(job("head", data_site="edge-a", chunk_bytes=50e6)), 0.0)
    p.handle(JobSubmitted(job("later", 1.0)), 1.0)
    text = sentence(p, "later", 1.0)
    assert text.startswith("waits for 1 GPU at edge-b until 00:01:40Z, behind default/head, which came earlier"), text


def test_explanation_names_every_limit_that_is_short() -> None:
    p = planner("fifo", [node("n1", gpus=4)])
    limits = (QuotaLimit("requests.nvidia.com/gpu", "gpus", 1), QuotaLimit("pods", "pods", 1))
    p.handle(QuotaChanged(Quota("default", "q", limits)), 0.0)
    p.handle(JobSubmitted(BUSY), 0.0)
    p.handle(JobSubmitted(job("later", 1.0)), 1.0)
    assert sentence(p, "later", 1.0) == (
        "waits for the quota default/q: 1 of 1 nvidia.com/gpu in use, and 1 needed; "
        "waits for the quota default/q: 1 of 1 pods in use, and 1 needed"
    )


def test_quota_that_is_too_small_precedes_a_hold() -> None:
    p = planner("chunk", [node("n1", gpus=4)])
    p.handle(JobSubmitted(job("gang", chunks=2, is_gang=True, suspended=True)), 0.0)
    p.handle(JobChanged(job("gang", chunks=2, is_gang=True, generation=2)), 1.0)
    p.handle(QuotaChanged(Quota("default", "q", (QuotaLimit("pods", "pods", 1),))), 1.0)
    p.handle(WorkerRejected("default/gang", "Forbidden", "exceeded quota"), 2.0)
    assert sentence(p, "gang", 3.0).startswith("needs 2 pods at once, more than the quota default/q allows: 1")


def test_job_that_may_not_be_stopped_is_named_before_restraint() -> None:
    p = submitted([node("n1")], job("busy", preemption=Preemption.NEVER), job("small", seconds=1.0))
    p.handle(WorkerRejected("default/small", "Forbidden", "no"), 1.0)
    assert sentence(p, "small", 2.0).endswith("behind default/busy, which may not be stopped (preemption.policy Never)")


def test_bound_job_waits_behind_job_that_has_its_cpu() -> None:
    """The slots of both jobs differ, and the forecast still knows that the CPU of the node is short."""
    p = planner("chunk-faithful", [node("n1", gpus=2)])
    p.handle(JobSubmitted(job("greedy", seconds=100.0, worker=worker(cpu=40_000))), 0.0)
    p.handle(WorkerStarted("default/greedy", 1, 0.0), 0.0)
    p.handle(JobSubmitted(job("later", seconds=200.0, worker=worker(cpu=30_000))), 0.0)
    assert sentence(p, "later", 1.0) == (
        "waits for 30 CPU at edge-a until 00:01:40Z, behind default/greedy, whose chunks are denser"
    )


@pytest.mark.parametrize("name", sorted(name for name in POLICIES if POLICIES[name].uses_tiers))
def test_a_higher_class_comes_first_where_tiers_are_used(name: str) -> None:
    p = planner(name, [node("n1")])
    p.handle(JobSubmitted(job("running", seconds=10.0)), 0.0)
    p.handle(JobSubmitted(job("small", 1.0, seconds=1.0)), 1.0)
    p.handle(JobSubmitted(job("vip", 2.0, seconds=900.0, priority=-8)), 2.0)
    for _ in range(3):
        for key in ("default/running", "default/small"):
            for run in list(p.cluster.jobs[key].runs.values()):
                p.handle(WorkerEnded(key, run.window.attempt, "Preempted" if run.closing else "Succeeded", 5.0), 5.0)
        if p.cluster.jobs["default/vip"].runs:
            break
    assert p.cluster.jobs["default/vip"].runs
    assert "default/small" not in {key for key, state in p.cluster.jobs.items() if state.finished}


def test_unknown_data_site_and_duration_are_told() -> None:
    p = submitted([node("n1")], job("a", data_site="edge-z", size_declared=False))
    text = sentence(p, "a", 1.0)
    assert text.startswith(
        "no node takes a worker: 1 of 1 nodes are not at edge-z, where its data stay without spec.data.chunkSize; "
    )
    assert p.plan_of("default/a", 1.0).unplannable == "Unschedulable"
    assert "; spec.data.site edge-z is not the name of a Site" in text
    assert "; its duration is unknown, and 1 h is assumed: set spec.estimatedDuration" in text


@pytest.mark.parametrize(("nodes", "reason"), [([node("n1")], ""), ([node("n1", gpus=0)], "Unschedulable"), ([], "")])
def test_job_that_no_node_can_hold_is_unplannable(nodes: list[Node], reason: str) -> None:
    p = submitted(nodes, BUSY, job("later", seconds=200.0))
    sentence(p, "later", 1.0)
    assert p.plan_of("default/later", 1.0).unplannable == reason


def test_a_running_job_with_its_most_workers_says_so() -> None:
    p = submitted([node("n1", gpus=2)], job("a", chunks=3, max_workers=1))
    assert (
        sentence(p, "a", 1.0)
        == "1 worker (1 at edge-a), all that maxReplicas allows; 0 of 3 chunks done, about 0.3 % trained"
    )


def test_overrun_of_the_expected_time_is_told() -> None:
    p = submitted([node("n1")], BUSY)
    note = "; it has overrun its expected training time, and its planned completion is a guess"
    assert note not in sentence(p, "busy", 100.0)
    assert sentence(p, "busy", 110.0) == f"1 worker (1 at edge-a); 0 of 1 chunks done, about 100 % trained{note}"


def test_workers_that_wait_too_long_for_nodes_are_told() -> None:
    cloud = Site("cloud", unlimited=True, start_seconds=60.0)
    p = submitted([node("n1", gpus=0)], sites=[Site("edge-a"), cloud])
    p.handle(JobSubmitted(job("large", chunks=2, worker=worker(8))), 5.0)
    assert sentence(p, "large", 120.0) == "2 workers (2 at cloud); 0 of 2 chunks done, 0 % trained"
    assert sentence(p, "large", 126.0) == (
        "2 workers (2 at cloud); 0 of 2 chunks done, 0 % trained; "
        "2 workers have waited for a node of cloud since 00:00:05Z, longer than its nodeStartup 60 s; "
        "a worker needs 8 GPUs, 1 CPU and 1 GiB of memory"
    )
    for run in list(p.cluster.jobs["default/large"].runs.values()):
        p.handle(WorkerBound("default/large", run.window.attempt, "c2"), 127.0)
    assert "nodeStartup" not in sentence(p, "large", 300.0)


@pytest.mark.parametrize(
    ("constraints", "wanted"),
    [
        (Constraints(), ""),
        (Constraints((("gpu", "a100"), ("disk", "ssd"))), " on a node with gpu=a100, disk=ssd"),
        (
            Constraints((("gpu", "a100"),), ((Requirement("zone", "Exists"),),)),
            " on a node with gpu=a100 and that matches the required node affinity",
        ),
    ],
)
def test_worker_that_waits_for_a_node_names_its_labels(constraints: Constraints, wanted: str) -> None:
    p = submitted([node("n1", gpus=0)], sites=[Site("edge-a"), Site("cloud", unlimited=True)])
    p.handle(JobSubmitted(job("typo", worker=worker(constraints=constraints))), 0.0)
    assert sentence(p, "typo", 40.0).endswith(f"; a worker needs 1 GPU, 1 CPU and 1 GiB of memory{wanted}")
