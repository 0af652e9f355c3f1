"""Sites at which chunks wait and train under the production policy, and the moments at which it copies their data."""

from dataclasses import replace
from typing import Any

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.model import Job, Link, Node, Preemption, Quota, QuotaLimit, Resources, Site, Taint
from tranche.planner import (
    ChunkStaged,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    OpenWindow,
    Planner,
    QuotaChanged,
    StagingEnded,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.job_queue import JobQueue
from tranche.planner.scheduling.data_replication import PREVIEW_SECONDS, PREVIEWED_CHUNKS
from tranche.state.job import JobState

DELTA = 50.0
"""Seconds that a chunk takes between the two sites."""
CHUNK_BYTES = DELTA * 1e9 / 8
SITES = [Site("here", links={"there": Link(1e9)}), Site("there", links={"here": Link(1e9)})]


def cluster(*nodes: Node, sites: list[Site] | None = None, policy: str = "chunk", **settings: Any) -> Planner:
    return planner(policy, list(nodes), sites or SITES, **settings)


def waiting(p: Planner) -> list[JobState]:
    assert p.queue is not None
    return p.queue.waiting()


def submit(p: Planner, name: str, at: float = 0.0, **changes: Any) -> Job:
    one = job(name, at, **{"data_site": "here", "chunk_bytes": CHUNK_BYTES, **changes})
    for opened in of_type(OpenWindow, p.handle(JobSubmitted(one), at)):
        p.handle(WorkerStarted(opened.job, opened.window.attempt, at), at)
    return one


def opened(p: Planner, at: float) -> list[tuple[str, str]]:
    return [(i.job.removeprefix("default/"), i.window.site) for i in of_type(OpenWindow, p.handle(Tick(), at))]


def copies(p: Planner, name: str) -> dict[str, set[int]]:
    """Chunks with a copy at a site, complete or coming."""
    return {site: set(chunks) for site, chunks in p.cluster.jobs[f"default/{name}"].copies.items()}


def test_chunks_train_at_their_data_site_while_slots_are_free() -> None:
    p = cluster(node("a", "here", 4), node("b", "there", 4))
    submit(p, "j", chunks=4)
    assert [w.site for w in p.plan_of("default/j", 0.0).windows] == ["here"] * 4


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
@pytest.mark.parametrize("change", ["new", "ready", "free"])
def test_data_of_waiting_job_go_to_a_site_that_gets_room(policy: str, change: str) -> None:
    there = node("b", "there", 1)
    all_of_it = there.allocatable
    before = {"new": [], "ready": [replace(there, ready=False)], "free": [replace(there, foreign=all_of_it)]}[change]
    p = cluster(*before, policy=policy)
    submit(p, "j", seconds=1000.0)
    assert not copies(p, "j")
    p.handle(NodeChanged(there), 10.0)
    assert copies(p, "j") == {"there": {0}}
    assert opened(p, 10.0 + DELTA) == [("j", "there")]


@pytest.mark.parametrize("there", [{"unschedulable": True}, {"ready": False}, {"taints": (Taint("team", "b"),)}])
@pytest.mark.parametrize("used", ["idle", "held by a job behind"])
def test_nodes_that_take_no_worker_keep_no_chunk_from_idle_ones(used: str, there: dict[str, Any]) -> None:
    """The data are at two sites where the job finds no room, and a third one has an idle GPU."""
    names = ("near", "far")
    sites = [Site("here", links={"near": Link(2e9), "far": Link(1e9)}), *map(Site, names)]
    p = cluster(node("a", "here"), node("b", "near"), node("c", "here"), sites=sites, policy="chunk:copies=1")
    for name in ("x", "y"):
        submit(p, name, seconds=1e6, data_site=None, priority=-8, preemption=Preemption.NEVER)
    submit(p, "z", seconds=1e6, data_site=None, priority=-10)
    if used == "idle":
        p.handle(WorkerEnded("default/z", 1, "Succeeded", 1.0), 1.0)
    p.handle(NodeChanged(node("c", "here", **there)), 2.0)
    submit(p, "j", 3.0, seconds=1000.0)
    assert copies(p, "j") == {"near": {0}}
    p.handle(NodeChanged(node("d", "far")), 10.0)
    p.handle(Tick(), 10.0 + PREVIEW_SECONDS)
    assert copies(p, "j") == {"near": {0}, "far": {0}}


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
def test_change_of_a_node_ranks_no_job_again(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of jobs, each pod of another program that starts or ends would take a tenth of a second."""
    p = cluster(node("a", "here", 8), policy=policy)
    for number in range(12):
        submit(p, f"j{number}", seconds=1000.0)
    ranked: list[str] = []
    original = JobQueue._refresh

    def refresh(queue: JobQueue, state: JobState, now: float) -> None:
        ranked.append(state.job.key)
        original(queue, state, now)

    monkeypatch.setattr(JobQueue, "_refresh", refresh)
    p.handle(NodeChanged(replace(node("a", "here", 8), foreign=Resources(cpu=10, pods=1))), 10.0)
    p.handle(NodeChanged(replace(node("a", "here", 8), ready=False)), 20.0)
    assert ranked == []


@pytest.mark.parametrize(("dedicated", "sent"), [(False, ({1, 3}, {0, 2})), (True, ({0, 1, 2, 3}, {0, 1, 2, 3}))])
def test_arriving_job_copies_data_ahead_to_the_nearest_sites(dedicated: bool, sent: tuple[set[int], ...]) -> None:
    """Each chunk goes to one of these sites if uploads queue on their link, else to all."""
    names = ("a", "b", "c")
    links = {name: Link(1e9 / n, dedicated=dedicated) for n, name in enumerate(names, 1)}
    sites = [Site("here", links=links), *map(Site, names)]
    p = cluster(node("n", "here", 1), *(node(name, name, 1) for name in names), policy="chunk:copies=2", sites=sites)
    submit(p, "j", chunks=4, seconds=1.0)
    assert copies(p, "j") == dict(zip("ab", sent, strict=True))


@pytest.mark.parametrize(("contention", "site"), [(1, "b"), (0, "a")])
def test_data_go_to_the_site_whose_uplink_is_free(contention: int, site: str) -> None:
    links = {"a": Link(1.1e9), "b": Link(1e9)}
    sites = [Site("first", links=links), Site("second", links=links), Site("a"), Site("b")]
    nodes, policy = [node("n1", "a", 1), node("n2", "b", 1)], f"chunk:contention={contention}"
    p = cluster(*nodes, policy=policy, sites=sites, shared_uplinks=True, uploads_reported=True)
    submit(p, "early", data_site="first")
    submit(p, "late", 1.0, data_site="second")
    assert copies(p, "early") == {"a": {0}}
    assert copies(p, "late") == {site: {0}}


def test_a_chunk_does_not_start_before_its_copy_is_complete() -> None:
    p = cluster(node("a", "here", 1), node("b", "there", 1))
    submit(p, "j", chunks=4, seconds=100.0)
    assert [w.site for w in p.plan_of("default/j", 0.0).windows] == ["here"]
    assert opened(p, DELTA - 1) == []
    assert opened(p, DELTA) == [("j", "there")]


def test_job_whose_data_are_elsewhere_is_explained() -> None:
    p = cluster(node("b", "there", 1))
    submit(p, "j")
    assert p.plan_of("default/j", 0.0).explanation == "its data are on the way to there until 00:00:50Z"
    assert opened(p, DELTA) == [("j", "there")]


def test_a_chunk_that_was_copied_may_still_train_at_home() -> None:
    p = cluster(node("a", "here", 1), node("b", "there", 1))
    near = submit(p, "near", seconds=60.0)
    submit(p, "far", seconds=70.0, data_site="there")
    submit(p, "late", 1.0, seconds=500.0)
    assert copies(p, "late") == {"there": {0}}
    p.handle(WorkerEnded(near.key, 1, "Succeeded", 60.0), 60.0)
    assert [w.site for w in p.plan_of("default/late", 60.0).windows] == ["here"]


def test_without_copies_ahead_chunk_is_copied_if_it_ends_sooner() -> None:
    p = cluster(node("a", "here", 1), node("b", "there", 1), policy="chunk:copies=0")
    submit(p, "near", seconds=1000.0)
    far = submit(p, "far", seconds=100.0, data_site="there")
    submit(p, "late", 31.0, seconds=5000.0)
    assert copies(p, "late") == {"there": {0}}  # seventy seconds of work are left there, and a thousand here
    p.handle(WorkerEnded(far.key, 1, "Succeeded", 100.0), 100.0)
    assert [w.site for w in p.plan_of("default/late", 100.0).windows] == ["there"]


@pytest.mark.parametrize(
    "obstacle",
    [
        {"key": "poor/stuck"},
        {"worker": worker(gpus=8)},
        {"servers": 1, "server": worker(gpus=0, cpu=10**9)},
        {"staged": True, "data_site": "nowhere", "backoff_limit": 0},
    ],
    ids=["full quota", "no such node", "no room for its server", "data cannot be copied"],
)
def test_jobs_that_cannot_start_keep_no_data_from_others(obstacle: dict[str, Any]) -> None:
    p = cluster(node("a", "here", 1), node("b", "there", 1), policy="chunk:copies=0")
    p.handle(QuotaChanged(Quota("poor", "none", (QuotaLimit("requests.nvidia.com/gpu", "gpus", 0, 0),))), 0.0)
    submit(p, "near", seconds=1e6, preemption=Preemption.AT_CHUNK_END)
    submit(p, "stuck", chunks=PREVIEWED_CHUNKS, seconds=1.0, **obstacle)
    for staging in list(p.cluster.jobs[obstacle.get("key", "default/stuck")].stagings.values()):
        p.handle(StagingEnded("default/stuck", staging.attempt, "Failed", 1.0), 1.0)
    submit(p, "late", 2.0, seconds=5000.0)
    opened(p, 2.0 + PREVIEW_SECONDS)
    assert copies(p, "late") == {"there": {0}}
    assert opened(p, 2.0 + PREVIEW_SECONDS + DELTA) == [("late", "there")]


def test_without_copies_ahead_short_wait_starts_no_copy() -> None:
    slow = [Site("here", links={"there": Link(1e8)}), Site("there", links={"here": Link(1e8)})]  # ten times DELTA
    p = cluster(node("a", "here", 1), node("b", "there", 1), policy="chunk:copies=0", sites=slow)
    submit(p, "near", seconds=200.0)
    submit(p, "late", 31.0, seconds=5000.0)
    assert copies(p, "late") == {}


def test_a_restarted_planner_knows_which_copies_are_complete() -> None:
    p = cluster(node("a", "here", 1), node("b", "there", 1))
    one = submit(p, "j", chunks=2, seconds=100.0)
    assert p.plan_of(one.key, DELTA - 1).homes == {}
    opened(p, DELTA)
    assert p.plan_of(one.key, DELTA).homes == {"there": "1"}  # the one that does not train at home already
    opened(p, 2 * DELTA)
    plan = p.plan_of(one.key, 2 * DELTA)
    assert plan.homes == {"there": "0-1"}
    again = cluster(node("a", "here", 1), node("b", "there", 1))
    again.restore([JobSubmitted(one, plan, p.progress_of(one.key))], 2 * DELTA)
    assert copies(again, "j") == {"there": {0, 1}}
    assert [w.site for w in again.plan_of(one.key, 2 * DELTA).windows] == ["here", "there"]


def test_waiting_job_gains_rank_and_keeps_its_age_after_restore() -> None:
    p = cluster(node("a", "here", 1))
    large = submit(p, "large", seconds=100.0, weight=1000.0)  # keeps the slot
    old = submit(p, "old", 1.0, seconds=10.0)
    submit(p, "young", 20.0, seconds=9.0)
    assert [s.job.key for s in waiting(p)] == ["default/young", "default/old"]
    submit(p, "fresh", 200.0, seconds=9.0)
    assert [s.job.key for s in waiting(p)] == ["default/young", "default/old", "default/fresh"]
    again = cluster(node("a", "here", 1))
    ends = [JobSubmitted(one, p.plan_of(one.key, 200.0), p.progress_of(one.key)) for one in (large, old)]
    again.restore(ends, 200.0)
    for key in (large.key, old.key):
        assert again.cluster.jobs[key].waited_seconds(300.0) == p.cluster.jobs[key].waited_seconds(300.0)


def test_less_work_left_preempts_only_if_gain_exceeds_loss() -> None:
    p = cluster(node("a", "here", 1))
    submit(p, "large", chunks=10, seconds=100.0)
    submit(p, "small", 50.0, seconds=40.0)
    assert [w.state.value for w in p.plan_of("default/large", 50.0).windows] == ["Closing"]
    p = cluster(node("a", "here", 1))
    submit(p, "nearly-done", chunks=2, seconds=100.0)
    submit(p, "smaller", 99.0, seconds=98.0)  # one second is left of the chunk, and 101 of the job
    assert [w.state.value for w in p.plan_of("default/nearly-done", 99.0).windows] == ["Open"]


def test_chunks_of_site_without_nodes_train_at_their_copies() -> None:
    p = cluster(node("a", "here", 1), node("b", "there", 1))
    submit(p, "j", chunks=2, seconds=100.0)
    p.handle(NodeRemoved("a"), 1.0)
    assert opened(p, DELTA) == [("j", "there")]


def test_cloud_with_capacity_on_demand_takes_chunks_at_once() -> None:
    sites = [Site("here", links={"cloud": Link(1e9, dedicated=True)}), Site("cloud", unlimited=True)]
    p = cluster(node("a", "here", 1), sites=sites)
    submit(p, "j", chunks=6, seconds=100.0)
    assert opened(p, DELTA) == [("j", "cloud")] * 5


def test_reported_copies_count_on_report_and_correct_later_ones() -> None:
    p = cluster(node("a", "here", 1), node("b", "there", 1), uploads_reported=True)
    one = submit(p, "j", chunks=2, seconds=1000.0)
    assert opened(p, 10 * DELTA) == []
    p.handle(ChunkStaged(one.key, 0, "there", 3 * DELTA), 10 * DELTA + 1)
    instructions = p.handle(ChunkStaged(one.key, 1, "there", 3 * DELTA), 10 * DELTA + 2)
    assert [i.window.site for i in of_type(OpenWindow, instructions)] == ["there"]
    assert p.cluster.transfer_seconds(p.cluster.jobs[one.key], "there") == pytest.approx(3 * DELTA)


def test_chunks_that_share_a_link_come_one_after_the_other() -> None:
    p = cluster(node("b", "there", 3))
    submit(p, "j", chunks=3, seconds=1000.0)
    assert [len(opened(p, n * DELTA)) for n in (1, 2, 3)] == [1, 1, 1]
