"""Decisions of the planner, event by event."""

from dataclasses import replace

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.model import Constraints, Preemption, Resources, Site, Taint, Tier, WindowState
from tranche.planner import (
    CloseWindow,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    OpenWindow,
    ParameterServerEnded,
    PlaceParameterServer,
    PublishPlan,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)


def test_arriving_job_gets_window_and_published_plan_with_cause() -> None:
    p = planner("chunk-faithful", [node("n1")])
    event = JobSubmitted(job("a"))
    (opened, published) = p.handle(event, 5.0)
    assert isinstance(opened, OpenWindow)
    assert isinstance(published, PublishPlan)
    assert opened.cause is event
    assert (opened.window.node, opened.window.index, opened.window.attempt) == ("n1", 0, 1)
    assert opened.window.end == 105.0


def test_job_with_less_work_preempts_and_victim_resumes() -> None:
    p = planner("chunk-faithful", [node("n1")])
    (large,) = of_type(OpenWindow, p.handle(JobSubmitted(job("large", seconds=1000)), 0.0))
    p.handle(WorkerStarted("default/large", 1, 0.0), 0.0)
    out = p.handle(JobSubmitted(job("small", 100.0, seconds=10)), 100.0)
    (closed,) = of_type(CloseWindow, out)
    (small,) = of_type(OpenWindow, out)
    assert closed.window.attempt == large.window.attempt
    assert closed.window.state is WindowState.CLOSING
    assert small.window.node == "n1"
    p.handle(WorkerEnded("default/large", 1, "Preempted", 100.0, {0: 10.0}, 143), 100.0)
    assert p.progress_of("default/large").partial == {0: 10.0}
    p.handle(WorkerStarted("default/small", 1, 100.0), 100.0)
    out = p.handle(WorkerEnded("default/small", 1, "Succeeded", 110.0), 110.0)
    (resumed,) = of_type(OpenWindow, out)
    assert resumed.job == "default/large"
    assert resumed.window.attempt == 2
    assert resumed.window.end == 110.0 + 900.0


def test_preempted_chunk_without_progress_starts_over() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("large", seconds=1000)), 0.0)
    p.handle(WorkerStarted("default/large", 1, 0.0), 0.0)
    p.handle(JobSubmitted(job("small", 100.0, seconds=10)), 100.0)
    p.handle(WorkerEnded("default/large", 1, "Preempted", 100.0, None, 137), 100.0)
    progress = p.progress_of("default/large")
    assert progress.partial == {}
    assert progress.lost_batches == 10.0
    assert progress.preemptions == 1


def test_non_preemptible_job_runs_its_chunk_to_the_end() -> None:
    for policy in (Preemption.NEVER, Preemption.AT_CHUNK_END):
        p = planner("chunk-faithful", [node("n1")])
        p.handle(JobSubmitted(job("large", seconds=1000, preemption=policy)), 0.0)
        out = p.handle(JobSubmitted(job("small", 1.0, seconds=10)), 1.0)
        assert of_type(CloseWindow, out) == []
        assert of_type(OpenWindow, out) == []
        out = p.handle(WorkerEnded("default/large", 1, "Succeeded", 1000.0), 1000.0)
        assert [o.job for o in of_type(OpenWindow, out)] == ["default/small"]


def test_fifo_blocks_behind_the_head_of_the_queue() -> None:
    p = planner("fifo", [node("n1", gpus=2)])
    p.handle(JobSubmitted(job("first")), 0.0)
    assert of_type(OpenWindow, p.handle(JobSubmitted(job("wide", 1.0, worker=worker(gpus=2))), 1.0)) == []
    assert of_type(OpenWindow, p.handle(JobSubmitted(job("narrow", 2.0)), 2.0)) == []
    assert p.plan_of("default/narrow", 2.0).explanation.startswith("waits for 1 GPU")
    out = p.handle(WorkerEnded("default/first", 1, "Succeeded", 100.0), 100.0)
    assert [o.job for o in of_type(OpenWindow, out)] == ["default/wide"]


def test_fifo_starts_and_restarts_gang_only_as_a_whole() -> None:
    p = planner("fifo", [node("n1", gpus=2), node("n2", gpus=2)])
    gang = job("gang", is_gang=True, chunks=4, batches_per_chunk=1, step_seconds=50.0)
    p.handle(JobSubmitted(job("single")), 0.0)
    assert of_type(OpenWindow, p.handle(JobSubmitted(gang), 1.0)) == []
    out = p.handle(WorkerEnded("default/single", 1, "Succeeded", 10.0), 10.0)
    assert len(of_type(OpenWindow, out)) == 4
    p.handle(WorkerEnded("default/gang", 1, "Succeeded", 20.0), 20.0)
    out = p.handle(WorkerEnded("default/gang", 2, "Failed", 21.0, None, 1), 21.0)
    assert len(of_type(CloseWindow, out)) == 2
    for attempt in (3, 4):
        p.handle(WorkerEnded("default/gang", attempt, "Preempted", 22.0, None, 143), 22.0)
    assert p.progress_of("default/gang").done == frozenset()
    out = p.handle(Tick(), 31.0)
    assert len(of_type(OpenWindow, out)) == 4


def test_oversized_gang_is_explained_and_blocks_no_other_job() -> None:
    p = planner("srsf", [node("n1", gpus=4), node("n2", gpus=2)])
    p.handle(JobSubmitted(job("wide", is_gang=True, chunks=4, worker=worker(2), max_workers=4)), 0.0)
    p.handle(JobSubmitted(job("narrow", is_gang=True, chunks=3, worker=worker(2), max_workers=3)), 1.0)
    assert (
        p.plan_of("default/wide", 1.0).explanation
        == "needs 4 workers of 2 GPUs at once, more than the cluster can hold (6 GPUs in all)"
    )
    assert len(p.plan_of("default/narrow", 1.0).windows) == 3


@pytest.mark.parametrize(
    ("zones", "hosts"),
    [("aab", "the 2 of 3 nodes that take its workers"), ("abb", "the only node of 3 that takes its workers")],
)
def test_gang_too_large_for_its_nodes_names_only_these(zones: str, hosts: str) -> None:
    nodes = [node(f"n{i}", gpus=4, labels={"zone": zone}) for i, zone in enumerate(zones)]
    p = planner("srsf", [*nodes, node("cpu", gpus=0)])
    chosen = worker(constraints=Constraints(selector=(("zone", "a"),)))
    p.handle(JobSubmitted(job("wide", is_gang=True, chunks=10, worker=chosen)), 0.0)
    assert (
        p.plan_of("default/wide", 0.0).explanation
        == f"needs 10 workers of 1 GPU at once, more than {hosts} can hold ({4 * zones.count('a')} GPUs in all)"
    )


def test_a_policy_without_gangs_says_what_to_do_instead() -> None:
    p = planner("chunk-faithful", [node("n1", gpus=4)])
    p.handle(JobSubmitted(job("gang", is_gang=True, chunks=4)), 0.0)
    plan = p.plan_of("default/gang", 0.0)
    assert plan.unplannable == "GangNotPlanned"
    assert "fifo" in plan.explanation


def test_no_more_workers_than_the_user_allows_run_at_once() -> None:
    p = planner("chunk-faithful", [node("n1", gpus=4)])
    out = p.handle(JobSubmitted(job("a", chunks=4, max_workers=2)), 0.0)
    assert [o.window.index for o in of_type(OpenWindow, out)] == [0, 1]
    out = p.handle(WorkerEnded("default/a", 1, "Succeeded", 100.0), 100.0)
    assert [o.window.index for o in of_type(OpenWindow, out)] == [0]


def test_a_job_at_its_worker_limit_leaves_its_slots_to_others() -> None:
    p = planner("chunk-faithful", [node("n1", gpus=2)])
    p.handle(JobSubmitted(job("limited", chunks=2, max_workers=1, seconds=50)), 0.0)
    out = p.handle(JobSubmitted(job("other", 1.0, chunks=2, seconds=500)), 1.0)
    assert [o.job for o in of_type(OpenWindow, out)] == ["default/other"]


def test_worker_of_several_gpus_takes_slots_on_one_node() -> None:
    p = planner("chunk-faithful", [node("n1", gpus=2), node("n2", gpus=8)])
    out = p.handle(JobSubmitted(job("wide", worker=worker(gpus=8))), 0.0)
    assert [o.window.node for o in of_type(OpenWindow, out)] == ["n2"]
    out = p.handle(JobSubmitted(job("narrow", 1.0, chunks=2, seconds=400)), 1.0)
    assert [o.window.node for o in of_type(OpenWindow, out)] == ["n1", "n1"]


def test_cpu_is_respected_where_gpus_are_free() -> None:
    small = node("n1", gpus=4)
    p = planner("chunk-faithful", [replace(small, allocatable=replace(small.allocatable, cpu=2000))])
    out = p.handle(JobSubmitted(job("a", chunks=4, worker=worker(cpu=1000))), 0.0)
    assert len(of_type(OpenWindow, out)) == 2


def test_foreign_pods_take_slots_away_and_give_them_back() -> None:
    full = node("n1", gpus=2, foreign=Resources(gpus=2))
    p = planner("chunk-faithful", [full])
    assert of_type(OpenWindow, p.handle(JobSubmitted(job("a")), 0.0)) == []
    assert "largest has 0 GPUs" in p.plan_of("default/a", 0.0).explanation
    out = p.handle(NodeChanged(replace(full, foreign=Resources())), 10.0)
    assert len(of_type(OpenWindow, out)) == 1


def test_taints_selectors_and_cordons_keep_pods_away() -> None:
    nodes = [
        node("tainted", taints=(Taint("dedicated", "x"),)),
        node("cordoned", unschedulable=True),
        node("silent", ready=False),
        node("right", labels={"gpu": "v100"}),
        node("wrong"),
    ]
    p = planner("chunk-faithful", nodes)
    shape = worker(constraints=Constraints(selector=(("gpu", "v100"),)))
    out = p.handle(JobSubmitted(job("a", chunks=3, worker=shape)), 0.0)
    assert [o.window.node for o in of_type(OpenWindow, out)] == ["right"]


def test_chunks_of_a_lost_node_train_elsewhere() -> None:
    p = planner("chunk-faithful", [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("a", chunks=2)), 0.0)
    p.handle(NodeRemoved("n1"), 10.0)
    out = p.handle(WorkerEnded("default/a", 1, "Preempted", 11.0), 11.0)
    assert out == [PublishPlan("default/a", WorkerEnded("default/a", 1, "Preempted", 11.0))]
    out = p.handle(WorkerEnded("default/a", 2, "Succeeded", 100.0), 100.0)
    assert [(o.window.node, o.window.chunks) for o in of_type(OpenWindow, out)] == [("n2", (0,))]


def test_a_cordoned_node_keeps_what_runs_and_gets_nothing_new() -> None:
    one = node("n1")
    p = planner("chunk-faithful", [one, node("n2")])
    for opened in of_type(OpenWindow, p.handle(JobSubmitted(job("a", chunks=4)), 0.0)):
        p.handle(WorkerBound("default/a", opened.window.attempt, opened.window.node or ""), 0.5)
    out = p.handle(NodeChanged(replace(one, unschedulable=True)), 1.0)
    assert of_type(CloseWindow, out) == []
    assert of_type(OpenWindow, p.handle(WorkerEnded("default/a", 1, "Succeeded", 100.0), 100.0)) == []
    assert len(of_type(OpenWindow, p.handle(WorkerEnded("default/a", 2, "Succeeded", 100.0), 100.0))) == 1


def test_running_windows_survive_a_device_plugin_restart() -> None:
    p = planner("chunk", [node("n1", gpus=2), node("n2", gpus=2)])
    opened = {
        one.window.attempt: one.window.node
        for one in of_type(OpenWindow, p.handle(JobSubmitted(job("j", chunks=4)), 0.0))
    }
    running = {attempt for attempt, name in opened.items() if name == "n1"}
    assert len(running) == 2
    for attempt in running:
        p.handle(WorkerBound("default/j", attempt, "n1"), 1.0)
        p.handle(WorkerStarted("default/j", attempt, 1.0), 1.0)
    assert not of_type(CloseWindow, p.handle(NodeChanged(node("n1", gpus=0)), 5.0))
    closed = of_type(CloseWindow, p.handle(NodeChanged(node("n2", gpus=0)), 6.0))
    assert {one.window.attempt for one in closed} == opened.keys() - running, "their pods are not bound"
    assert not of_type(OpenWindow, p.handle(NodeChanged(node("n1", gpus=2)), 9.0)), "its windows still train there"
    for one in closed:
        p.handle(WorkerEnded("default/j", one.window.attempt, "Preempted", 10.0), 10.0)
    assert len(of_type(OpenWindow, p.handle(NodeChanged(node("n2", gpus=2)), 11.0))) == 2
    assert running < p.cluster.jobs["default/j"].runs.keys()


def test_a_window_opens_only_when_its_data_have_come() -> None:
    p = planner("chunk-faithful", [node("n1", "edge-b")])
    arriving = job("a", data_site="edge-a", chunk_bytes=100e6 / 8 * 30)
    assert of_type(OpenWindow, p.handle(JobSubmitted(arriving), 0.0)) == []
    assert "on the way to edge-b" in p.plan_of("default/a", 0.0).explanation
    assert p.next_wakeup() == 30.0
    assert len(of_type(OpenWindow, p.handle(Tick(), 30.0))) == 1


def test_servers_open_with_first_window_and_are_replaced_if_lost() -> None:
    p = planner("chunk-faithful", [node("n1"), node("n2")])
    server = worker(gpus=0, cpu=500)
    out = p.handle(JobSubmitted(job("a", chunks=4, server=server, servers=1)), 0.0)
    (placed,) = of_type(PlaceParameterServer, out)
    assert out.index(placed) < out.index(of_type(OpenWindow, out)[0])
    out = p.handle(WorkerEnded("default/a", 2, "Succeeded", 100.0), 100.0)
    assert of_type(PlaceParameterServer, out) == []
    (again,) = of_type(
        PlaceParameterServer, p.handle(ParameterServerEnded("default/a", 0, placed.server.attempt), 101.0)
    )
    assert again.server.attempt > placed.server.attempt


def test_a_job_waits_for_room_for_its_parameter_server() -> None:
    tight = node("n1")
    p = planner("chunk-faithful", [replace(tight, allocatable=replace(tight.allocatable, cpu=2000))])
    out = p.handle(JobSubmitted(job("a", server=worker(gpus=0, cpu=1500), servers=2)), 0.0)
    assert of_type(OpenWindow, out) == []
    assert "room for its parameter server" in p.plan_of("default/a", 0.0).explanation


def test_unlimited_cloud_takes_all_chunks_when_edges_are_busy() -> None:
    sites = [Site("edge-a"), Site("cloud", Tier.CLOUD, unlimited=True)]
    p = planner("chunk-faithful", [node("n1")], sites)
    p.handle(JobSubmitted(job("first", seconds=1000)), 0.0)
    out = of_type(OpenWindow, p.handle(JobSubmitted(job("second", 1.0, chunks=5, seconds=1000)), 1.0))
    assert len(out) == 5
    assert {o.window.site for o in out} <= {"cloud", "edge-a"}
    assert all(o.window.node is None for o in out if o.window.site == "cloud")


def test_suspending_stops_the_workers_and_resuming_goes_on() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a", chunks=2)), 0.0)
    p.handle(WorkerEnded("default/a", 1, "Succeeded", 100.0), 100.0)
    out = p.handle(JobChanged(job("a", chunks=2, suspended=True, generation=2)), 110.0)
    assert len(of_type(CloseWindow, out)) == 1
    stopping = "suspended by spec.suspend, 1 worker is stopping; 1 of 2 chunks done, 50 % trained"
    assert p.plan_of("default/a", 110.0).explanation == stopping
    p.handle(WorkerEnded("default/a", 2, "Preempted", 111.0, {1: 10.0}), 111.0)
    assert p.plan_of("default/a", 111.0).explanation == "suspended by spec.suspend; 1 of 2 chunks done, 55 % trained"
    out = p.handle(JobChanged(job("a", chunks=2, generation=3)), 120.0)
    (resumed,) = of_type(OpenWindow, out)
    assert resumed.window.chunks == (1,)
    assert p.plan_of("default/a", 120.0).generation == 3


def test_failing_job_backs_off_and_fails_at_its_limit() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a", backoff_limit=1)), 0.0)
    out = p.handle(WorkerEnded("default/a", 1, "Failed", 1.0, None, 1), 1.0)
    assert of_type(OpenWindow, out) == []
    assert "exit code 1" in p.plan_of("default/a", 1.0).explanation
    assert len(of_type(OpenWindow, p.handle(Tick(), 11.0))) == 1
    p.handle(WorkerEnded("default/a", 2, "Failed", 12.0, None, 1), 12.0)
    assert p.plan_of("default/a", 12.0).explanation.startswith("failed: 2 pods failed")
    assert of_type(OpenWindow, p.handle(JobSubmitted(job("b", 13.0)), 13.0))[0].job == "default/b"


def test_rejected_job_frees_its_slot_and_is_retried() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("greedy", seconds=10)), 0.0)
    p.handle(JobSubmitted(job("other", 1.0, seconds=500)), 1.0)
    out = p.handle(WorkerRejected("default/greedy", "QuotaExceeded", "exceeded quota: gpus"), 2.0)
    assert [o.job for o in of_type(CloseWindow, out)] == ["default/greedy"]
    assert [o.job for o in of_type(OpenWindow, out)] == ["default/other"]
    assert "exceeded quota: gpus" in p.plan_of("default/greedy", 2.0).explanation
    p.handle(WorkerEnded("default/greedy", 1, "Lost", 3.0), 3.0)
    assert not of_type(OpenWindow, p.handle(Tick(), 32.0))  # it preempts no other job
    out = p.handle(WorkerEnded("default/other", 1, "Succeeded", 40.0), 40.0)
    assert [o.job for o in of_type(OpenWindow, out)] == ["default/greedy"]
    assert p.progress_of("default/greedy").preemptions == 0


def test_a_pod_that_finds_no_place_is_planned_on_another_node() -> None:
    p = planner("chunk-faithful", [node("n1"), node("n2")])
    (opened,) = of_type(OpenWindow, p.handle(JobSubmitted(job("a")), 0.0))
    assert opened.window.fallbacks == ("n2",)
    p.handle(WorkerUnschedulable("default/a", 1, "no disk"), 30.0)
    out = p.handle(WorkerEnded("default/a", 1, "Lost", 31.0), 31.0)
    assert [o.window.node for o in of_type(OpenWindow, out)] == ["n2"]


def test_a_pod_bound_to_its_fallback_moves_its_reservation() -> None:
    p = planner("chunk-faithful", [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("a")), 0.0)
    p.handle(WorkerBound("default/a", 1, "n2"), 1.0)
    assert p.plan_of("default/a", 1.0).windows[0].node == "n2"
    out = p.handle(JobSubmitted(job("b", 2.0, seconds=500)), 2.0)
    assert [o.window.node for o in of_type(OpenWindow, out)] == ["n1"]


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
def test_window_leaves_a_node_that_a_fallback_has_filled(policy: str) -> None:
    p = planner(policy, [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("a")), 0.0)
    (opened,) = of_type(OpenWindow, p.handle(JobSubmitted(job("b")), 1.0))
    assert (opened.window.node, opened.window.fallbacks) == ("n2", ())
    (closed,) = of_type(CloseWindow, p.handle(WorkerBound("default/a", 1, "n2"), 2.0))
    assert (closed.job, p.cluster.jobs["default/b"].held_until) == ("default/b", 0.0)
    out = p.handle(WorkerEnded("default/b", 1, "Lost", 3.0), 3.0)
    assert [o.window.node for o in of_type(OpenWindow, out)] == ["n1"]


def test_window_with_a_fallback_stays_on_a_filled_node() -> None:
    p = planner("chunk", [node("n1"), node("n2"), node("n3")])
    p.handle(JobSubmitted(job("a")), 0.0)
    (opened,) = of_type(OpenWindow, p.handle(JobSubmitted(job("b")), 1.0))
    assert (opened.window.node, opened.window.fallbacks) == ("n2", ("n3",))
    assert not of_type(CloseWindow, p.handle(WorkerBound("default/a", 1, "n2"), 2.0))


def test_an_attempt_that_was_counted_is_never_counted_again() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a", chunks=2)), 0.0)
    end = WorkerEnded("default/a", 1, "Succeeded", 100.0)
    p.handle(end, 100.0)
    before = p.progress_of("default/a")
    assert p.handle(end, 101.0) == []
    assert p.progress_of("default/a") == before


def test_a_removed_job_frees_its_slots() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a", seconds=10)), 0.0)
    p.handle(JobSubmitted(job("b", 1.0)), 1.0)
    out = p.handle(JobRemoved("default/a"), 2.0)
    assert [o.job for o in of_type(OpenWindow, out)] == ["default/b"]


@pytest.mark.parametrize("is_gang", [True, False])
@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful"])
def test_job_without_gpus_is_unplannable_and_others_are_planned(policy: str, is_gang: bool) -> None:
    p = planner(policy, [node("n1")])
    for sized in (True, False):
        p.handle(JobSubmitted(job(f"a-{sized}", worker=worker(gpus=0), is_gang=is_gang, size_declared=sized)), 0.0)
        assert p.plan_of(f"default/a-{sized}", 0.0).unplannable == "NoGpuRequested"
    assert of_type(OpenWindow, p.handle(JobSubmitted(job("b")), 1.0))


def test_a_restarted_planner_keeps_windows_ledger_and_attempts() -> None:
    nodes = [node("n1", gpus=2), node("n2", "edge-b")]
    first = planner("chunk-faithful", nodes)
    jobs = [job("a", chunks=5), job("b", 1.0, chunks=3, seconds=40, server=worker(gpus=0), servers=1)]
    for one in jobs:
        first.handle(JobSubmitted(one), one.submitted)
    first.handle(WorkerStarted("default/b", 2, 2.0), 2.0)
    first.handle(WorkerEnded("default/b", 2, "Succeeded", 42.0), 42.0)
    second = planner("chunk-faithful", nodes)
    out = second.restore(
        [JobSubmitted(one, first.plan_of(one.key, 43.0), first.progress_of(one.key)) for one in jobs], 43.0
    )
    assert of_type(CloseWindow, out) == []
    assert of_type(PlaceParameterServer, out) == []
    for one in jobs:
        assert second.progress_of(one.key) == first.progress_of(one.key)
        old, new = first.plan_of(one.key, 43.0), second.plan_of(one.key, 43.0)
        assert new.windows == old.windows
        assert new.attempts == old.attempts
        assert new.servers == old.servers


def test_namesake_of_a_removed_job_runs_in_the_same_decision() -> None:
    p = planner("tiresias", [node("n1")])
    p.handle(JobSubmitted(job("a")), 0.0)
    p.handle(WorkerEnded("default/a", 1, "Succeeded", 1.0), 1.0)
    p.handle_all([JobRemoved("default/a"), JobSubmitted(replace(job("a", 1.0), uid="another"))], 1.0)
    assert p.cluster.jobs["default/a"].runs


@pytest.mark.parametrize("policy", ["chunk", "srsf", "las", "oasis"])
def test_namesake_of_a_running_job_gets_its_gpu(policy: str) -> None:
    p = planner(policy, [node("n1", gpus=1)])
    p.handle(JobSubmitted(job("a", chunks=2)), 0.0)
    p.handle(WorkerStarted("default/a", 1, 0.0), 0.0)
    out = p.handle_all([JobRemoved("default/a"), JobSubmitted(replace(job("a", 1.0), uid="another"))], 1.0)
    (opened,) = of_type(OpenWindow, out)
    assert list(p.cluster.jobs["default/a"].runs) == [opened.window.attempt]
