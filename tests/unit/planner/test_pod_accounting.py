"""Room on nodes as the pods really have it: pods that do not stop, and pods that admission has enlarged."""

from dataclasses import replace

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.model import Constraints, Node, PodShape, Quota, QuotaLimit, Resources
from tranche.planner import (
    CloseWindow,
    EvictionRefused,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeRemoved,
    OpenWindow,
    Planner,
    PodAdmitted,
    PodOverdue,
    QuotaChanged,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
    WorkerUnschedulable,
)

STUCK, ADMITTED = "default/stuck", Resources(4000, 2**30, 1, 1)


def run(p: Planner, key: str, now: float) -> None:
    """Bind and start the pods of all windows of a job."""
    for attempt, one in list(p.cluster.jobs[key].runs.items()):
        assert one.window.node is not None
        p.handle(WorkerBound(key, attempt, one.window.node), now)
        p.handle(WorkerStarted(key, attempt, now), now)


def suspended(p: Planner, key: str = STUCK) -> JobChanged:
    return JobChanged(replace(p.cluster.jobs[key].job, generation=2, suspended=True))


def with_stuck_pod(gpus: int = 1) -> Planner:
    """A planner with one node, on which the pod of a suspended job has not stopped."""
    p = planner("chunk", [node("n1", gpus=gpus)])
    p.handle(JobSubmitted(job("stuck", seconds=3600.0)), 0.0)
    run(p, STUCK, 1.0)
    p.handle(suspended(p), 2.0)
    return p


class TestOverdueWindows:
    def test_room_of_a_stopping_pod_is_free_at_first(self) -> None:
        p = with_stuck_pod()
        assert of_type(OpenWindow, p.handle(JobSubmitted(job("next")), 3.0))

    def test_no_window_opens_where_a_pod_does_not_stop(self) -> None:
        p = with_stuck_pod()
        p.handle(PodOverdue(STUCK, 1), 45.0)
        assert p.cluster.nodes["n1"].free_gpus == 0
        assert not of_type(OpenWindow, p.handle(JobSubmitted(job("next")), 46.0))
        assert not of_type(OpenWindow, p.handle(Tick(), 5000.0))

    def test_window_that_waits_for_the_room_is_closed(self) -> None:
        p = with_stuck_pod()
        p.handle(JobSubmitted(job("next")), 3.0)
        closed = of_type(CloseWindow, p.handle(PodOverdue(STUCK, 1), 45.0))
        assert [one.job for one in closed] == ["default/next"]
        assert not p.cluster.jobs["default/next"].excluded_nodes

    def test_room_is_free_when_the_pod_has_stopped(self) -> None:
        p = with_stuck_pod()
        p.handle(PodOverdue(STUCK, 1), 45.0)
        p.handle(JobSubmitted(job("next")), 46.0)
        assert of_type(OpenWindow, p.handle(WorkerEnded(STUCK, 1, "Preempted", 90.0), 90.0))

    def test_every_gpu_is_used_once_with_one_stuck_pod(self) -> None:
        """32 windows were sent to the GPU of the stuck pod in 20 minutes."""
        p = planner("chunk", [node("n1"), node("n2")])
        p.handle(JobSubmitted(job("stuck", seconds=3600.0)), 0.0)
        run(p, STUCK, 1.0)
        where = p.cluster.jobs[STUCK].runs[1].window.node
        p.handle(suspended(p), 2.0)
        p.handle(PodOverdue(STUCK, 1), 42.0)
        for number in range(5):
            p.handle(JobSubmitted(job(f"j{number}", seconds=600.0)), 50.0)
        nodes = [one.window.node for state in p.cluster.jobs.values() for one in state.runs.values() if not one.closing]
        assert nodes == [{"n1": "n2", "n2": "n1"}[where or ""]]

    def test_window_that_reopens_reserves_its_room_once(self) -> None:
        p = planner("chunk", [node("n1")])
        p.handle(JobSubmitted(job("long", seconds=3600.0)), 0.0)
        run(p, "default/long", 1.0)
        p.handle(JobSubmitted(job("short", seconds=10.0)), 2.0)
        assert p.cluster.jobs["default/long"].runs[1].closing
        p.handle(PodOverdue("default/long", 1), 45.0)
        p.handle(EvictionRefused("default/long", (1,), "two budgets"), 46.0)
        assert not p.cluster.jobs["default/long"].runs[1].overdue
        assert p.cluster.nodes["n1"].reserved.gpus == 1

    def test_forecast_does_not_count_on_the_room(self) -> None:
        p = with_stuck_pod()
        p.handle(PodOverdue(STUCK, 1), 45.0)
        p.handle(JobSubmitted(job("next")), 46.0)
        assert p.forecast(47.0)["default/next"].start == pytest.approx(47.0 + 3600.0)

    def test_open_window_of_a_stuck_pod_closes_and_keeps_its_room(self) -> None:
        p = planner("chunk", [node("n1")])
        p.handle(JobSubmitted(job("a")), 0.0)
        run(p, "default/a", 1.0)
        closed = of_type(CloseWindow, p.handle(PodOverdue("default/a", 1), 2.0))
        assert [(one.job, one.window.why) for one in closed] == [("default/a", "its pod was deleted and does not stop")]
        assert p.cluster.nodes["n1"].reserved.gpus == 1
        assert not of_type(OpenWindow, p.handle(JobSubmitted(job("short", seconds=10.0)), 3.0))

    def test_stuck_member_closes_its_gang_and_frees_the_others(self) -> None:
        p = planner("chunk", [node("n1"), node("n2")])
        p.handle(JobSubmitted(gang("a", 2)), 0.0)
        run(p, "default/a", 1.0)
        p.handle(PodOverdue("default/a", 1), 2.0)
        assert [one.closing for one in p.cluster.jobs["default/a"].runs.values()] == [True, True]
        assert sum(one.reserved.gpus for one in p.cluster.nodes.values()) == 1

    def test_event_about_a_job_that_is_gone_has_no_effect(self) -> None:
        p = planner("chunk", [node("n1")])
        p.handle(PodOverdue("default/gone", 1), 1.0)
        assert p.cluster.nodes["n1"].reserved.gpus == 0

    def test_slots_of_a_binding_policy_stay_taken(self) -> None:
        p = planner("chunk-faithful", [node("n1", gpus=2)])
        p.handle(JobSubmitted(job("stuck", seconds=3600.0)), 0.0)
        run(p, STUCK, 1.0)
        p.handle(suspended(p), 2.0)
        p.handle(PodOverdue(STUCK, 1), 45.0)
        p.handle(JobSubmitted(job("next", chunks=2)), 46.0)
        assert len(p.cluster.jobs["default/next"].runs) == 1


def sixteen(name: str) -> Node:
    return Node(name, "edge-a", Resources(16_000, 64 << 30, 8, 110))


class TestEnlargedPods:
    def test_no_pod_is_created_that_cannot_fit(self) -> None:
        """Template 1 CPU, admitted 4: 88 pods were created and thrown away in an hour."""
        p = planner("chunk", [sixteen("n1"), sixteen("n2")])
        p.handle(JobSubmitted(job("a", chunks=16, seconds=7200.0)), 0.0)
        state = p.cluster.jobs["default/a"]
        for attempt in list(state.runs):
            p.handle(PodAdmitted("default/a", attempt, ADMITTED), 1.0)
        for attempt in [attempt for attempt, one in state.runs.items() if one.closing]:
            p.handle(WorkerEnded("default/a", attempt, "Lost", 2.0), 2.0)
        run(p, "default/a", 3.0)
        attempts = state.attempts
        for now in range(30, 3600, 30):
            p.handle(Tick(), float(now))
        assert sum(one.started is not None for one in state.runs.values()) == 8
        assert state.attempts == attempts
        assert p.cluster.nodes["n1"].reserved.cpu == 16_000

    def test_foreign_jobs_get_only_the_rest(self) -> None:
        p = planner("chunk", [sixteen("n1")])
        p.handle(JobSubmitted(job("a", seconds=7200.0)), 0.0)
        p.handle(PodAdmitted("default/a", 1, Resources(10_000, 2**30, 1, 1)), 1.0)
        run(p, "default/a", 1.0)
        p.handle(JobSubmitted(job("b", worker=worker(cpu=7000), seconds=7200.0)), 2.0)
        assert not p.cluster.jobs["default/b"].runs

    def test_all_of_it_is_released_at_the_end(self) -> None:
        p = planner("chunk", [sixteen("n1")])
        p.handle(JobSubmitted(job("a", seconds=7200.0)), 0.0)
        p.handle(PodAdmitted("default/a", 1, ADMITTED), 1.0)
        p.handle(JobRemoved("default/a"), 2.0)
        assert p.cluster.nodes["n1"].reserved == Resources()

    def test_running_pods_are_not_outdated_by_a_dry_run(self) -> None:
        p = planner("chunk", [sixteen("n1")])
        p.handle(JobSubmitted(job("a", seconds=7200.0)), 0.0)
        run(p, "default/a", 1.0)
        declared = p.cluster.jobs["default/a"].job
        larger = replace(declared, worker=PodShape(ADMITTED), template_requests=declared.worker.requests)
        assert not of_type(CloseWindow, p.handle(JobChanged(larger), 2.0))
        assert p.cluster.jobs["default/a"].job.worker.requests == ADMITTED

    def test_changed_template_makes_running_pods_outdated(self) -> None:
        p = planner("chunk", [sixteen("n1")])
        p.handle(JobSubmitted(job("a", seconds=7200.0)), 0.0)
        p.handle(PodAdmitted("default/a", 1, ADMITTED), 1.0)
        run(p, "default/a", 1.0)
        edited = replace(job("a", seconds=7200.0), worker=worker(cpu=2000), generation=2)
        assert of_type(CloseWindow, p.handle(JobChanged(edited), 2.0))

    def test_another_edit_keeps_what_is_known_of_the_pods(self) -> None:
        p = planner("chunk", [sixteen("n1")])
        p.handle(JobSubmitted(job("a", seconds=7200.0)), 0.0)
        p.handle(PodAdmitted("default/a", 1, ADMITTED), 1.0)
        run(p, "default/a", 1.0)
        assert not of_type(
            CloseWindow, p.handle(JobChanged(replace(job("a", seconds=7200.0), weight=2.0, generation=2)), 2.0)
        )
        assert p.cluster.jobs["default/a"].job.worker.requests.cpu == 4000

    def test_victims_free_what_their_pods_really_have(self) -> None:
        p = planner("chunk", [sixteen("n1")])
        p.handle(JobSubmitted(job("long", chunks=4, seconds=7200.0)), 0.0)
        for attempt in list(p.cluster.jobs["default/long"].runs):
            p.handle(PodAdmitted("default/long", attempt, ADMITTED), 1.0)
        run(p, "default/long", 1.0)
        p.handle(JobSubmitted(job("short", worker=worker(cpu=4000), seconds=10.0)), 2.0)
        assert sum(one.closing for one in p.cluster.jobs["default/long"].runs.values()) == 1

    def test_quota_counts_what_admission_added(self) -> None:
        p = planner("chunk", [sixteen("n1")])
        p.handle(QuotaChanged(Quota("default", "q", (QuotaLimit("requests.cpu", "cpu", 6000),))), 0.0)
        p.handle(JobSubmitted(job("a", seconds=7200.0)), 0.0)
        p.handle(PodAdmitted("default/a", 1, ADMITTED), 1.0)
        p.handle(JobSubmitted(job("b", worker=worker(cpu=3000), seconds=7200.0)), 2.0)
        assert not p.cluster.jobs["default/b"].runs

    def test_parameter_servers_are_enlarged_too(self) -> None:
        p = planner("chunk", [sixteen("n1")])
        server = PodShape(Resources(1000, 2**30, 0, 1))
        p.handle(JobSubmitted(job("a", server=server, servers=1, seconds=7200.0)), 0.0)
        state = p.cluster.jobs["default/a"]
        attempt = state.servers[0].planned.attempt
        p.handle(PodAdmitted("default/a", attempt, Resources(3000, 2**30, 0, 1)), 1.0)
        assert p.cluster.nodes["n1"].reserved.cpu == 4000

    def test_gang_that_does_not_fit_as_admitted_does_not_start(self) -> None:
        p = planner("chunk", [sixteen("n1")])
        p.handle(JobSubmitted(gang("g", members=8)), 0.0)
        state = p.cluster.jobs["default/g"]
        for attempt in list(state.runs):
            p.handle(PodAdmitted("default/g", attempt, ADMITTED), 1.0)
        assert all(one.closing for one in state.runs.values())
        for attempt in list(state.runs):
            p.handle(WorkerEnded("default/g", attempt, "Lost", 2.0), 2.0)
        p.handle(Tick(), 4000.0)
        assert not state.runs


class TestForgottenExclusions:
    def excluded(self) -> Planner:
        p = planner("chunk", [node("n1"), node("n2")])
        p.handle(JobSubmitted(job("a", seconds=600.0)), 0.0)
        p.handle(WorkerUnschedulable("default/a", 1, "Insufficient memory"), 40.0)
        assert p.context.jobs_excluded_by_node
        return p

    def test_entries_of_a_removed_job_are_dropped(self) -> None:
        p = self.excluded()
        p.handle(JobRemoved("default/a"), 50.0)
        assert p.context.jobs_excluded_by_node == {}

    def test_entries_of_a_removed_node_are_dropped(self) -> None:
        p = self.excluded()
        (name,) = p.context.jobs_excluded_by_node
        p.handle(NodeRemoved(name), 50.0)
        assert p.context.jobs_excluded_by_node == {}


def test_later_admission_moves_the_next_pod_to_a_node_that_fits() -> None:
    p = planner("chunk", [*(node(f"n{i}") for i in range(8)), node("o0", labels={"pool": "gold"})])
    (first,) = of_type(OpenWindow, p.handle(JobSubmitted(job("a")), 0.0))
    assert first.window.node == "n0"
    shape = worker(constraints=Constraints(selector=(("pool", "gold"),)))
    p.handle(JobChanged(replace(job("a"), worker=shape)), 1.0)
    p.handle(WorkerUnschedulable("default/a", 1, "didn't match the selector"), 31.0)
    opened = of_type(OpenWindow, p.handle(WorkerEnded("default/a", 1, "Lost", 32.0), 32.0))
    assert [one.window.node for one in opened] == ["o0"]
