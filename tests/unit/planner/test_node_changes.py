"""Nodes that change while workers run on them: fewer GPUs, removed and registered again, another site, a taint."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.model import Resources, Site, Taint, Tier
from tranche.model.gpu_kind import GpuKinds
from tranche.planner import (
    CloseWindow,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    OpenWindow,
    Planner,
    SiteChanged,
    SiteRemoved,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.state.node import FreeNodes, NodeState

POLICIES = ["chunk", "srsf", "chunk-faithful"]
KEY = "default/a"
SECONDS = 1000.0


def run(p: Planner, instructions: Iterable[Any], at: float) -> list[int]:
    """Bind and start the workers that open, and return their attempts."""
    opened = of_type(OpenWindow, list(instructions))
    for one in opened:
        p.handle(WorkerBound(one.job, one.window.attempt, one.window.node or ""), at)
        p.handle(WorkerStarted(one.job, one.window.attempt, at), at)
    return [one.window.attempt for one in opened]


def opened(p: Planner, event: Any, at: float) -> int:
    return len(of_type(OpenWindow, p.handle(event, at)))


@pytest.mark.parametrize("policy", POLICIES)
def test_nodes_without_jobs_build_no_index(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that takes over adds its nodes first: an index for each would take 10 s with 5,000 nodes."""
    read: list[int] = []

    def build(nodes: Iterable[NodeState]) -> FreeNodes:
        index = FreeNodes(found := list(nodes))
        read.append(len(found))
        return index

    monkeypatch.setattr("tranche.state.cluster.FreeNodes", build)
    p = planner(policy, [node(f"n{number}") for number in range(10)], gpu_kinds=GpuKinds(), validate=False)
    assert sum(read) == 0
    p.handle(JobSubmitted(job("a")), 0.0)
    assert sum(read) <= 10


@pytest.mark.parametrize("policy", POLICIES)
def test_node_that_loses_a_gpu_keeps_its_workers(policy: str) -> None:
    p = planner(policy, [node("n", gpus=8)])
    attempts = run(p, p.handle(JobSubmitted(job("a", chunks=12, seconds=SECONDS)), 0.0), 0.0)
    assert of_type(CloseWindow, p.handle(NodeChanged(node("n", gpus=7)), 10.0)) == []
    assert opened(p, WorkerEnded(KEY, attempts[0], "Succeeded", SECONDS), SECONDS) == 0, (
        "the room of a GPU that is gone"
    )
    assert opened(p, WorkerEnded(KEY, attempts[1], "Succeeded", SECONDS + 1), SECONDS + 1) == 1
    assert opened(p, NodeChanged(node("n", gpus=8)), SECONDS + 2) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_overused_cpu_keeps_only_workers_away_that_request_it(policy: str) -> None:
    p = planner(policy, [replace(node("n", gpus=2), foreign=Resources(cpu=100_000, pods=1))])
    assert opened(p, JobSubmitted(job("a")), 0.0) == 0
    assert opened(p, JobSubmitted(job("b", 1.0, worker=worker(cpu=0))), 1.0) == 1


def test_overused_cpu_closes_only_windows_that_request_it() -> None:
    p = planner("chunk", [node("n", gpus=2)])
    assert opened(p, JobSubmitted(job("a")), 0.0) == 1
    assert opened(p, JobSubmitted(job("b", 1.0, worker=worker(cpu=0))), 1.0) == 1
    changed = replace(node("n", gpus=2), foreign=Resources(cpu=100_000, pods=1))
    assert [one.job for one in of_type(CloseWindow, p.handle(NodeChanged(changed), 2.0))] == [KEY]


def test_overused_node_takes_nothing_from_the_total_of_others() -> None:
    p = planner("drf", [node("n", gpus=4), replace(node("broken", gpus=0), foreign=Resources(gpus=4, pods=4))])
    p.handle(JobSubmitted(job("a", chunks=2)), 0.0)
    assert p.cluster.total_gpus == 4
    assert p.cluster.dominant_share("default") == 0.5


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize("policy", ["chunk", "dorm", "optimus", "rrh", "oasis", "pd-ors-like"])
def test_device_plugin_restart_stops_no_worker(policy: str, gpus: int) -> None:
    p = planner(policy, [node("n1", gpus=2), node("n2", gpus=2)])
    for key in ("a", "b"):
        p.handle(JobSubmitted(job(key, chunks=2, seconds=SECONDS)), 0.0)
    for key, state in p.cluster.jobs.items():
        for attempt, window in list(state.runs.items()):
            p.handle(WorkerBound(key, attempt, window.home.node or ""), 1.0)
            p.handle(WorkerStarted(key, attempt, 1.0), 1.0)
    assert [len(state.runs) for state in p.cluster.jobs.values()] == [2, 2]
    for at, offered in ((10.0, gpus), (20.0, 2)):
        assert of_type(CloseWindow, p.handle(NodeChanged(node("n1", gpus=offered)), at)) == []
        assert of_type(CloseWindow, p.handle(Tick(), at + 5.0)) == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "changes",
    [
        (NodeChanged(node("n", gpus=0)), NodeChanged(node("n", gpus=2))),
        (NodeChanged(node("n", gpus=1)), NodeChanged(node("n", gpus=2))),
        (NodeRemoved("n"), NodeChanged(node("n", gpus=2))),
    ],
    ids=["restart", "one GPU", "registered again"],
)
def test_worker_is_preempted_after_its_node_has_returned(policy: str, changes: tuple[Any, Any]) -> None:
    p = planner(policy, [node("n", gpus=2)])
    run(p, p.handle(JobSubmitted(job("a", chunks=2, seconds=100 * SECONDS)), 0.0), 0.0)
    for at, change in enumerate(changes, 10):
        assert of_type(CloseWindow, p.handle(change, at)) == []
    closed = of_type(CloseWindow, p.handle(JobSubmitted(job("b", 20.0, seconds=10.0)), 20.0))
    assert [one.job for one in closed] == [KEY]


@pytest.mark.parametrize("policy", ["chunk", "dorm", "optimus", "rrh", "oasis", "pd-ors-like"])
def test_gpus_with_another_resource_stop_no_worker(policy: str) -> None:
    """As when the GPUs of a node are divided into MIG profiles, which its device plugin offers under another name."""
    p = planner(policy, [node("n1", gpus=2), node("n2", gpus=2)])
    for key in ("a", "b"):
        run(p, p.handle(JobSubmitted(job(key, chunks=2, seconds=SECONDS)), 0.0), 0.0)
    plain = node("n1", gpus=7)
    divided = replace(plain, allocatable=replace(plain.allocatable, gpu_resource="nvidia.com/mig-1g.10gb"))
    for at, changed in ((10.0, divided), (20.0, node("n1", gpus=2))):
        assert of_type(CloseWindow, p.handle(NodeChanged(changed), at)) == []
        assert of_type(CloseWindow, p.handle(Tick(), at + 5.0)) == []


def test_gang_that_lost_a_gpu_waits_until_the_node_has_it_again() -> None:
    p = planner("chunk", [node("n", gpus=8)])
    attempts = run(p, p.handle(JobSubmitted(gang("a", members=8, seconds=SECONDS)), 0.0), 0.0)
    assert of_type(CloseWindow, p.handle(NodeChanged(node("n", gpus=7)), 10.0)) == []
    p.handle(WorkerEnded(KEY, attempts[0], "Failed", 100.0), 100.0)
    for attempt in attempts[1:]:
        p.handle(WorkerEnded(KEY, attempt, "Preempted", 101.0), 101.0)
    assert p.plan_of(KEY, 200.0).explanation.startswith("needs 8 workers of 1 GPU at once")
    p.handle(Tick(), 300.0)
    assert opened(p, NodeChanged(node("n", gpus=8)), 301.0) == 8


@pytest.mark.parametrize("policy", POLICIES)
def test_node_that_registers_again_holds_what_still_runs_there(policy: str) -> None:
    p = planner(policy, [node("n", gpus=2)])
    first, second = run(p, p.handle(JobSubmitted(job("a", chunks=2, seconds=SECONDS)), 0.0), 0.0)
    p.handle(NodeRemoved("n"), 10.0)
    p.handle(NodeChanged(node("n", gpus=2)), 12.0)
    assert opened(p, JobSubmitted(job("b", 13.0, seconds=2 * SECONDS)), 13.0) == 0
    assert p.cluster.jobs[KEY].runs.keys() == {first, second}
    assert opened(p, WorkerEnded(KEY, first, "Succeeded", SECONDS), SECONDS) == 1


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful"])
def test_worker_holds_its_gpu_when_its_site_is_unlimited_no_more(policy: str, deleted: bool) -> None:
    p = planner(policy, [], [Site("c", Tier.CLOUD, unlimited=True)])
    (attempt,) = of_type(OpenWindow, p.handle(JobSubmitted(job("a", seconds=SECONDS)), 0.0))
    p.handle(WorkerBound(KEY, attempt.window.attempt, "n"), 1.0)
    p.handle(WorkerStarted(KEY, attempt.window.attempt, 2.0), 2.0)
    if deleted:  # and created again
        p.handle(SiteRemoved("c"), 9.0)
    p.handle(SiteChanged(Site("c", Tier.CLOUD)), 10.0)
    p.handle(NodeChanged(node("n", gpus=2, site="c")), 10.0)
    assert opened(p, JobSubmitted(job("b", 11.0, chunks=2, seconds=2 * SECONDS)), 11.0) == 1
    assert opened(p, WorkerEnded(KEY, attempt.window.attempt, "Succeeded", SECONDS), SECONDS) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_node_under_a_new_name_takes_over_its_chunks(policy: str) -> None:
    p = planner(policy, [node("old")])
    (attempt,) = run(p, p.handle(JobSubmitted(job("a", seconds=SECONDS)), 0.0), 0.0)
    p.handle(NodeRemoved("old"), 10.0)
    p.handle(NodeChanged(node("new")), 11.0)
    (again,) = of_type(OpenWindow, p.handle(WorkerEnded(KEY, attempt, "Lost", 50.0), 50.0))
    assert (again.window.node, p.cluster.jobs[KEY].failures) == ("new", 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_workers_run_on_when_their_node_changes_its_site(policy: str) -> None:
    p = planner(policy, [node("n", gpus=2)], [Site("edge-a"), Site("edge-b")])
    first, second = run(p, p.handle(JobSubmitted(job("a", chunks=3, seconds=SECONDS)), 0.0), 0.0)
    assert of_type(CloseWindow, p.handle(NodeChanged(replace(node("n", gpus=2), site="edge-b")), 10.0)) == []
    (third,) = of_type(OpenWindow, p.handle(WorkerEnded(KEY, first, "Succeeded", SECONDS), SECONDS))
    assert (third.window.site, second in p.cluster.jobs[KEY].runs) == ("edge-b", True)


@pytest.mark.parametrize("change", [{"taints": (Taint("maintenance", "", "NoExecute"),)}, {"unschedulable": True}])
@pytest.mark.parametrize("policy", POLICIES)
def test_workers_of_a_tainted_or_drained_node_go_elsewhere(policy: str, change: dict[str, Any]) -> None:
    """Kubernetes deletes the pods on a node with a new taint, and an administrator those on a drained one."""
    p = planner(policy, [node("n"), node("other", gpus=2)])
    run(p, p.handle(JobSubmitted(job("a", chunks=4, seconds=SECONDS)), 0.0), 0.0)
    assert of_type(CloseWindow, p.handle(NodeChanged(node("n", **change)), 10.0)) == []
    (left,) = (attempt for attempt, r in p.cluster.jobs[KEY].runs.items() if r.window.node == "n")
    assert opened(p, WorkerEnded(KEY, left, "Preempted", 40.0), 40.0) == 0
    first = next(iter(p.cluster.jobs[KEY].runs))
    (again,) = of_type(OpenWindow, p.handle(WorkerEnded(KEY, first, "Succeeded", SECONDS), SECONDS))
    assert (again.window.node, p.cluster.jobs[KEY].failures) == ("other", 0)
    back = [*p.handle(NodeChanged(node("n")), SECONDS + 1), *p.handle(JobSubmitted(job("b", SECONDS + 2)), SECONDS + 2)]
    assert {one.window.node for one in of_type(OpenWindow, back)} == {"n"}


@pytest.mark.parametrize("policy", ["chunk", "srsf", "lwf"])
@pytest.mark.parametrize("started", [0, 1, 2])
def test_gang_that_is_drained_while_it_starts_begins_elsewhere(policy: str, started: int) -> None:
    p = planner(policy, [node("n", gpus=2)])
    begun = of_type(OpenWindow, p.handle(JobSubmitted(gang("a", members=2, seconds=SECONDS)), 0.0))
    attempts = [one.window.attempt for one in begun]
    p.handle(WorkerBound(KEY, attempts[0], "n"), 1.0)
    for attempt in attempts[:started]:
        p.handle(WorkerBound(KEY, attempt, "n"), 1.0)
        p.handle(WorkerStarted(KEY, attempt, 1.0), 1.0)
    p.handle(NodeChanged(node("n", gpus=2, unschedulable=True)), 2.0)
    p.handle(NodeChanged(node("other", gpus=2)), 3.0)
    found = [i for a in attempts for i in p.handle(WorkerEnded(KEY, a, "Preempted", 4.0), 4.0)]
    again = of_type(OpenWindow, [*found, *p.handle(Tick(), 30.0)])
    assert [one.window.node for one in again] == ["other", "other"]
    assert (p.cluster.jobs[KEY].failures, p.cluster.jobs[KEY].failed) == (0, False)


def unusable(how: str, name: str) -> NodeChanged | NodeRemoved:
    """Return the event of a node that takes no pods any more."""
    same = node(name)
    changes = {
        "cordoned": replace(same, unschedulable=True),
        "tainted": replace(same, taints=(Taint("repair", "", "NoExecute"),)),
        "not ready": replace(same, ready=False),
        "without GPUs": node(name, gpus=0),
    }
    return NodeRemoved(name) if how == "removed" else NodeChanged(changes[how])


HOW = ["removed", "cordoned", "tainted", "not ready", "without GPUs"]


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("policy", [*POLICIES, "lwf"])
def test_pod_without_node_leaves_a_node_that_takes_it_no_more(policy: str, how: str, members: int) -> None:
    """Such as an empty node that an autoscaler removes when a window opens there. Nothing is held against the job."""
    if policy == "chunk-faithful" and members > 1:
        pytest.skip("it plans no gangs")
    p = planner(policy, [node(f"n{i}", f"s{i}") for i in range(members + 1)])
    one = gang("a", members=members) if members > 1 else job("a")
    first = of_type(OpenWindow, p.handle(JobSubmitted(one), 0.0))
    where = first[0].window.node or ""
    out = [*p.handle(unusable(how, where), 1.0)]
    assert {i.window.attempt for i in of_type(CloseWindow, out)} == {i.window.attempt for i in first}
    for one_window in first:
        out += p.handle(WorkerEnded(KEY, one_window.window.attempt, "Lost", 2.0), 2.0)
    again = of_type(OpenWindow, out)
    assert len(again) == members
    assert where not in {i.window.node for i in again}
    state = p.cluster.jobs[KEY]
    assert (state.placement.failures, state.placement.paused, state.held_until) == (0, False, 0.0)


@pytest.mark.parametrize("how", HOW[:-1])
def test_pod_without_node_stays_if_a_fallback_takes_it(how: str) -> None:
    p = planner("chunk", [node("n0"), node("n1")])
    (first,) = of_type(OpenWindow, p.handle(JobSubmitted(job("a")), 0.0))
    assert first.window.fallbacks == ("n1",)
    assert of_type(CloseWindow, p.handle(unusable(how, "n0"), 1.0)) == []
    p.handle(WorkerUnschedulable(KEY, first.window.attempt, "Insufficient nvidia.com/gpu"), 31.0)
    assert (p.cluster.jobs[KEY].placement.failures, p.cluster.jobs[KEY].placement.paused) == (0, False)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("policy", [*POLICIES, "lwf"])
def test_bound_pod_stays_on_a_node_that_takes_no_more(policy: str, how: str) -> None:
    p = planner(policy, [node("n0"), node("n1", "other")])
    (attempt,) = run(p, p.handle(JobSubmitted(job("a")), 0.0), 0.0)
    where = p.cluster.jobs[KEY].runs[attempt].window.node or ""
    assert of_type(CloseWindow, p.handle(unusable(how, where), 1.0)) == []


CLOUD = Site("cloud", tier=Tier.CLOUD, unlimited=True)


@pytest.mark.parametrize("event", [SiteRemoved("cloud"), SiteChanged(Site("cloud"))], ids=["removed", "limited"])
def test_windows_leave_a_site_that_creates_no_nodes_any_more(event: SiteRemoved | SiteChanged) -> None:
    """The operator creates no pods for them, so that no timeout ends the wait."""
    p = planner("chunk", [node("n1")], sites=[Site("edge-a"), CLOUD])
    opening = of_type(OpenWindow, p.handle(JobSubmitted(job("a", chunks=3)), 0.0))
    there = {i.window.attempt for i in opening if i.window.site == "cloud"}
    assert len(there) == 2
    runs = min(there)
    p.handle(WorkerBound(KEY, runs, "cloud-1"), 1.0)
    assert {i.window.attempt for i in of_type(CloseWindow, p.handle(event, 2.0))} == there - {runs}


def test_windows_leave_a_site_that_was_deleted_before_takeover() -> None:
    p = planner("chunk", [node("n1")], sites=[Site("edge-a"), CLOUD])
    one = job("a", chunks=3)
    p.handle(JobSubmitted(one), 0.0)
    following = planner("chunk", [node("n1")], sites=[Site("edge-a")])
    following.restore([JobSubmitted(one, p.plan_of(KEY, 1.0), p.progress_of(KEY))], 1.0)
    assert [str(window.state) for window in following.plan_of(KEY, 1.0).windows] == ["Open", "Closing", "Closing"]
