"""Jobs whose pods cannot be admitted or placed: they preempt at most once, and `why` says what is wrong."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.model import Admission, Constraints, Job, JobPlan, Requirement, UnplacedPods
from tranche.model.resource_quota import Quota, QuotaLimit
from tranche.planner import (
    CloseParameterServer,
    CloseWindow,
    Instruction,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    KubeSchedulerChanged,
    NodeChanged,
    OpenWindow,
    Outcome,
    PlaceParameterServer,
    Planner,
    QuotaChanged,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.helper_end import helper_end
from tranche.state.placement_record import FailedPreemptions, PreemptionScope

HOUR = 3600.0
BY_LEVEL = ("dally-like", "no-wait", "consolidate")
MISSING = 'persistentvolumeclaim "nowhere" not found'


class Lab:
    """Cluster of full one-GPU nodes, in which pods of jobs called ``bad`` are never placed.

    Of a job called ``headless``, only the parameter servers and the chief are never placed.
    """

    def __init__(self, nodes: int = 8, policy: str = "chunk", *, free: int = 0, **settings: Any) -> None:
        self.planner = planner(policy, [node(f"n{i:02}") for i in range(nodes + free)], **settings)
        self.waiting: dict[tuple[str, int], str | None] = {}
        self.evictions: Counter[str] = Counter()
        for i in range(nodes):
            honest = job(f"honest{i}", seconds=10 * HOUR, restart_seconds=120.0, restart_declared=True)
            self.submit(honest, 0.0)

    def submit(self, one: Job, now: float) -> None:
        self.play(self.planner.handle(JobSubmitted(one), now), now)

    def play(self, out: list[Instruction], now: float) -> None:
        """Carry out instructions: what closes ends, and what opens starts unless it is a bad job's."""
        todo = list(out)
        while todo:
            match todo.pop(0):
                case CloseWindow(job=key, window=window):
                    self.evictions[window.preempted_by] += 1
                    self.waiting.pop((key, window.attempt), None)
                    todo += self.planner.handle(WorkerEnded(key, window.attempt, "Preempted", now), now)
                case OpenWindow(job=key, window=window) if "bad" in key:
                    self.waiting[key, window.attempt] = window.node
                case OpenWindow(job=key, window=window):
                    todo += self.planner.handle(WorkerBound(key, window.attempt, window.node or ""), now)
                    todo += self.planner.handle(WorkerStarted(key, window.attempt, now), now)
                case PlaceParameterServer(job=key, server=planned):
                    self.waiting[key, planned.attempt] = planned.node
                case CloseParameterServer(job=key, server=planned):
                    self.waiting.pop((key, planned.attempt), None)
                    todo += self.planner.handle(helper_end(key, planned), now)
                case _:
                    pass

    def pass_time(self, begin: float, seconds: float, *, refuse: bool = False) -> None:
        """Let pods of bad jobs find no place after 30 s, or be refused."""
        now = begin
        while now < begin + seconds:
            now += 30.0
            for key, attempt in list(self.waiting):
                if (key, attempt) not in self.waiting:
                    continue
                event = WorkerUnschedulable(key, attempt, MISSING)
                refused = WorkerRejected(key, "Forbidden", "exceeded quota: limits.cpu")
                self.play(self.planner.handle(refused if refuse else event, now), now)
            self.play(self.planner.handle(Tick(), now), now)

    def pass_time_one_at_a_time(self, begin: float, seconds: float) -> None:
        """Let pods of bad jobs train for 60 s, but place one only while none of them runs, as with one claim."""
        now, running = begin, dict[tuple[str, int], float]()
        while now < begin + seconds:
            now += 30.0
            for (key, attempt), since in list(running.items()):
                if now - since >= 60.0:
                    del running[key, attempt]
                    self.play(self.planner.handle(WorkerEnded(key, attempt, "Succeeded", now), now), now)
            for key, attempt in list(self.waiting):
                node = self.waiting.get((key, attempt))
                if (key, attempt) not in self.waiting:
                    continue
                if running:
                    out = self.planner.handle(WorkerUnschedulable(key, attempt, "pod anti-affinity"), now)
                else:
                    running[key, attempt] = now
                    del self.waiting[key, attempt]
                    out = self.planner.handle(WorkerBound(key, attempt, node or ""), now)
                    out += self.planner.handle(WorkerStarted(key, attempt, now), now)
                self.play(out, now)
            self.play(self.planner.handle(Tick(), now), now)

    @property
    def lost_hours(self) -> float:
        """GPU-hours of the honest jobs that have to be trained again."""
        jobs = self.planner.cluster.jobs.values()
        return sum(one.lost_batches * one.job.step_seconds for one in jobs if "honest" in one.job.key) / HOUR

    def preemptions(self) -> int:
        return sum(one.preemptions for key, one in self.planner.cluster.jobs.items() if "honest" in key)


@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful", *BY_LEVEL])
def test_a_job_that_is_never_placed_evicts_once_an_hour(policy: str) -> None:
    lab = Lab(policy=policy)
    lab.submit(job("bad", 300.0, seconds=60.0), 300.0)
    lab.pass_time(300.0, HOUR)
    assert lab.preemptions() <= 1
    assert lab.lost_hours <= 0.1


def test_a_refused_job_evicts_once_an_hour() -> None:
    lab = Lab()
    lab.submit(job("bad", 300.0, seconds=60.0), 300.0)
    lab.pass_time(300.0, HOUR, refuse=True)
    assert lab.preemptions() <= 1
    assert lab.lost_hours <= 0.1


def test_a_gang_that_is_never_placed_evicts_once_an_hour() -> None:
    lab = Lab()
    lab.submit(gang("bad", 300.0, members=4, seconds=60.0), 300.0)
    lab.pass_time(300.0, HOUR)
    assert lab.preemptions() <= 4


HELPERS = [
    (job("headless", 300.0, seconds=60.0, servers=1, server=worker(gpus=0)), 1),
    (job("headless", 300.0, chunks=8, seconds=60.0, servers=1, server=worker(gpus=0)), 8),
    (gang("headless", 300.0, members=4, seconds=60.0, servers=1, server=worker(gpus=0)), 4),
    (gang("headless", 300.0, members=4, seconds=60.0, chief=worker(gpus=0)), 4),
]


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize(("one", "most"), HELPERS, ids=["chunk", "chunks", "gang", "chief"])
def test_job_whose_server_is_never_placed_evicts_once_an_hour(one: Job, most: int, free: int) -> None:
    lab = Lab(free=free)
    lab.submit(one, 300.0)
    lab.pass_time(300.0, HOUR)
    assert lab.preemptions() <= most


def test_pause_doubles_for_a_job_whose_server_is_never_placed() -> None:
    lab = Lab()
    lab.submit(HELPERS[1][0], 300.0)
    lab.pass_time(300.0, 8 * HOUR)
    assert lab.preemptions() <= 8 + 3, "after the first failure one window at a time"


def test_placed_server_permits_the_next_preemption() -> None:
    lab = Lab(requires_admission=True)
    lab.submit(replace(HELPERS[1][0], admission=Admission.UNPROVEN), 300.0)
    assert lab.preemptions() == 1
    ((key, attempt),) = lab.waiting
    lab.play(lab.planner.handle(WorkerBound(key, attempt, "n00"), 301.0), 301.0)
    assert lab.preemptions() == 8


class Refused(Lab):
    """Cluster in which pods of the job ``bad`` are bound, and end before a container starts."""

    def __init__(self, how: Outcome, **settings: Any) -> None:
        super().__init__(**settings)
        self.how = how

    def pass_time(self, begin: float, seconds: float, *, refuse: bool = False) -> None:
        now = begin
        while now < begin + seconds:
            now += 10.0
            for (key, attempt), name in list(self.waiting.items()):
                if (key, attempt) in self.waiting:
                    self.play(self.planner.handle(WorkerBound(key, attempt, name or ""), now), now)
            for key, attempt in list(self.waiting):
                if self.waiting.pop((key, attempt), None):
                    end = WorkerEnded(key, attempt, self.how, now + 1.0, reason="TopologyAffinityError")
                    self.play(self.planner.handle(end, now + 1.0), now + 1.0)
            self.play(self.planner.handle(Tick(), now + 1.0), now + 1.0)


WITHOUT_START = [(job("bad", 300.0, seconds=60.0), 1), (job("bad", 300.0, chunks=9, seconds=60.0), 8)]
WITHOUT_START += [(gang("bad", 300.0, members=4, seconds=60.0), 4)]


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize(("one", "most"), WITHOUT_START, ids=["chunk", "chunks", "gang"])
def test_job_that_all_kubelets_refuse_evicts_once_an_hour(one: Job, most: int, free: int) -> None:
    lab = Refused("Refused", free=free)
    lab.submit(one, 300.0)
    lab.pass_time(300.0, HOUR)
    assert lab.preemptions() <= most


def test_pause_doubles_for_a_job_that_all_kubelets_refuse() -> None:
    lab = Refused("Refused")
    lab.submit(WITHOUT_START[1][0], 300.0)
    lab.pass_time(300.0, 8 * HOUR)
    assert lab.preemptions() <= 8 + 3


@pytest.mark.parametrize("how", ["Lost", "Preempted"])
@pytest.mark.parametrize(("one", "most"), WITHOUT_START, ids=["chunk", "chunks", "gang"])
def test_job_whose_pods_are_deleted_evicts_a_few_times(how: Outcome, one: Job, most: int) -> None:
    """One disruption, as by a drain, says nothing; pods that are planned at its time may end with it."""
    lab = Refused(how, free=1)
    lab.submit(one, 300.0)
    lab.pass_time(300.0, HOUR)
    assert lab.preemptions() <= 3 * most


def test_the_pause_of_preemption_doubles() -> None:
    lab = Lab()
    lab.submit(job("bad", 300.0, seconds=60.0), 300.0)
    lab.pass_time(300.0, 24 * HOUR)
    assert lab.preemptions() <= 5


@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful"])
def test_wide_jobs_with_unplanned_constraints_try_one_window(policy: str) -> None:
    lab = Lab(policy=policy, requires_admission=True)
    lab.submit(job("bad", 300.0, chunks=40, seconds=60.0, admission=Admission.UNPROVEN), 300.0)
    assert lab.preemptions() == 1
    lab.pass_time(300.0, HOUR)
    assert lab.preemptions() == 1


@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful"])
def test_wide_jobs_try_one_window_of_a_large_node(policy: str) -> None:
    p = planner(policy, [node(f"n{i}", gpus=8) for i in range(2)], requires_admission=True)
    for i in range(16):
        key = f"default/honest{i}"
        (opened,) = of_type(OpenWindow, p.handle(JobSubmitted(job(f"honest{i}", seconds=10 * HOUR)), 0.0))
        p.handle(WorkerBound(key, opened.window.attempt, opened.window.node or ""), 0.0)
        p.handle(WorkerStarted(key, opened.window.attempt, 0.0), 0.0)
    bad = job("bad", 300.0, chunks=16, seconds=60.0, admission=Admission.UNPROVEN)
    assert len(of_type(CloseWindow, p.handle(JobSubmitted(bad), 300.0))) == 1


@pytest.mark.parametrize(("admission", "most"), [(Admission.UNPROVEN, 2), (Admission.PASSED, 8)])
def test_a_placed_pod_permits_the_next_window(admission: Admission, most: int) -> None:
    lab = Lab(requires_admission=True)
    lab.submit(job("bad", 300.0, chunks=8, seconds=60.0, admission=Admission.UNPROVEN), 300.0)
    lab.play(
        lab.planner.handle(JobChanged(job("bad", 300.0, chunks=8, seconds=60.0, admission=admission)), 300.5), 300.5
    )
    ((key, attempt), where) = next(iter(lab.waiting.items()))
    lab.play(lab.planner.handle(WorkerBound(key, attempt, where or ""), 301.0), 301.0)
    assert lab.preemptions() == most


@pytest.mark.parametrize("nodes", [8, 40])
@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful"])
def test_job_with_one_place_for_its_pods_evicts_a_few_times(policy: str, nodes: int) -> None:
    """Each placement in its own place says nothing about a second one."""
    lab = Lab(nodes, policy, requires_admission=True)
    lab.submit(job("bad", 300.0, chunks=60, seconds=60.0, admission=Admission.UNPROVEN), 300.0)
    lab.pass_time_one_at_a_time(300.0, HOUR)
    assert lab.preemptions() <= 2
    chunks = len(lab.planner.cluster.jobs["default/bad"].done)
    assert chunks >= 30 or policy == "chunk-faithful", "it goes on in its own place, unless its chunks are bound"


@pytest.mark.parametrize("admission", [Admission.UNCHECKED, Admission.REFUSED])
@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful", *BY_LEVEL])
def test_nothing_is_evicted_before_admission(policy: str, admission: Admission) -> None:
    lab = Lab(policy=policy, requires_admission=True)
    lab.submit(job("bad", 300.0, seconds=60.0, admission=admission), 300.0)
    lab.pass_time(300.0, HOUR)
    assert lab.preemptions() == 0


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful", *BY_LEVEL])
def test_a_job_preempts_as_soon_as_it_is_admitted(policy: str) -> None:
    lab = Lab(policy=policy, requires_admission=True)
    unchecked = job("better", 300.0, seconds=60.0, admission=Admission.UNCHECKED)
    lab.submit(unchecked, 300.0)
    assert lab.preemptions() == 0
    lab.play(lab.planner.handle(JobChanged(job("better", 300.0, seconds=60.0)), 300.1), 300.1)
    assert lab.preemptions() == 1


@pytest.mark.parametrize("policy", ["chunk", *BY_LEVEL])
def test_an_unadmitted_job_does_not_hide_others_of_its_class(policy: str) -> None:
    lab = Lab(policy=policy, requires_admission=True)
    lab.submit(job("bad", 300.0, seconds=30.0, admission=Admission.REFUSED), 300.0)
    lab.submit(job("better", 301.0, seconds=60.0), 301.0)
    assert lab.preemptions() == 1


def test_an_unadmitted_job_takes_free_capacity() -> None:
    p = planner("chunk", [node("n1")], requires_admission=True)
    out = p.handle(JobSubmitted(job("a", admission=Admission.REFUSED, refusal="no")), 0.0)
    assert len(of_type(OpenWindow, out)) == 1


def test_why_quotes_the_refusal() -> None:
    lab = Lab(requires_admission=True)
    refused = job("bad", 300.0, seconds=30.0, admission=Admission.REFUSED, refusal="denied by policy p")
    lab.submit(refused, 300.0)
    lab.planner.forecast(300.0)
    assert "denied by policy p" in lab.planner.plan_of("default/bad", 300.0).explanation


def test_why_quotes_kube_scheduler() -> None:
    lab = Lab()
    lab.submit(job("bad", 300.0, seconds=60.0), 300.0)
    lab.pass_time(300.0, 120.0)
    lab.planner.forecast(420.0)
    assert MISSING in lab.planner.plan_of("default/bad", 420.0).explanation


def test_why_quotes_the_last_verdict_while_the_next_pod_waits() -> None:
    p = planner("chunk", [node("n0"), node("n1")])
    p.handle(JobSubmitted(job("bad")), 0.0)
    assert MISSING not in p.plan_of("default/bad", 0.0).explanation
    p.handle(WorkerUnschedulable("default/bad", 1, MISSING), 630.0)
    p.handle(WorkerEnded("default/bad", 1, "Lost", 630.0), 630.0)
    assert p.cluster.jobs["default/bad"].runs
    assert f"last failure: worker 0 found no place: {MISSING}" in p.plan_of("default/bad", 631.0).explanation


def test_several_nodes_in_a_row_hold_the_job() -> None:
    p = planner("chunk", [node(f"n{i}") for i in range(8)], nodes_before_hold=3)
    p.handle(JobSubmitted(job("bad", seconds=60.0)), 0.0)
    now, tried = 0.0, []
    for _ in range(40):
        now += 30.0
        state = p.cluster.jobs["default/bad"]
        for attempt, run in list(state.runs.items()):
            tried.append((now, run.window.node))
            p.handle(WorkerUnschedulable("default/bad", attempt, MISSING), now)
            p.handle(WorkerEnded("default/bad", attempt, "Lost", now + 1.0), now + 1.0)
        p.handle(Tick(), now + 1.0)
    assert len(tried) == 3
    assert p.cluster.jobs["default/bad"].held_until > HOUR
    assert "3 nodes in a row" in p.plan_of("default/bad", now).explanation


@pytest.mark.parametrize("sites", [1, 4])
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful", "lwf"])
def test_job_whose_volume_is_in_one_zone_finds_its_site(policy: str, members: int, sites: int) -> None:
    """kube-scheduler alone knows that the volume is in the last zone; the others have free nodes, and rank before."""
    if policy == "chunk-faithful" and members > 1:
        pytest.skip("it plans no gangs")
    free = [node(f"n{site}-{i}", f"zone-{site}") for site in range(sites) for i in range(6 * members)]
    p = planner(policy, [*free, *(node(f"right-{i}", "zone-9") for i in range(members))])
    one = gang("a", members=members) if members > 1 else job("a")
    p.handle(JobSubmitted(one), 0.0)
    runs, tried, now = p.cluster.jobs["default/a"].runs, list[str](), 0.0
    while (here := {run.window.site for run in runs.values()}) != {"zone-9"}:
        tried += here
        now += 30.0
        assert now < 600.0
        for attempt in list(runs):
            event = WorkerUnschedulable("default/a", attempt, "1 node(s) had volume node affinity conflict")
            p.handle(event, now)
        for attempt in [attempt for attempt, run in runs.items() if run.closing]:
            p.handle(WorkerEnded("default/a", attempt, "Preempted", now), now)
        p.handle(Tick(), now)
    assert sorted(tried) == [f"zone-{number}" for number in range(sites)], "each once"


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful"])
@pytest.mark.parametrize(("chunks", "sites"), [(1, 8), (10, 1), (10, 8)])
def test_many_windows_or_sites_do_not_hide_the_zone_of_a_volume(policy: str, chunks: int, sites: int) -> None:
    """After attempts at five sites the job is held for an hour, and then tries the others."""
    free = [node(f"n{site}-{i}", f"zone-{site}") for site in range(sites) for i in range(2 * chunks)]
    p = planner(policy, [*free, *(node(f"right-{i}", "zone-9") for i in range(chunks))])
    p.handle(JobSubmitted(job("a", chunks=chunks)), 0.0)
    runs, now = p.cluster.jobs["default/a"].runs, 0.0
    while {run.window.site for run in runs.values()} != {"zone-9"}:
        now += 30.0
        assert now < (600.0 if sites == 1 else 2 * HOUR)
        for attempt in list(runs):
            p.handle(WorkerUnschedulable("default/a", attempt, "1 node(s) had volume node affinity conflict"), now)
        for attempt in [attempt for attempt, run in runs.items() if run.closing]:
            p.handle(WorkerEnded("default/a", attempt, "Preempted", now), now)
        p.handle(Tick(), now)


def _zonal_windows(p: Planner, now: float, windows: int, *, ends: bool = True) -> tuple[int, float]:
    """Play windows of job a, whose pods find a place in zone-9 only; return how many found none, and the time."""
    runs, wrong, placed = p.cluster.jobs["default/a"].runs, 0, 0
    while placed < windows:
        now += 30.0
        for attempt, run in list(runs.items()):
            if run.window.site != "zone-9":
                wrong += 1
                p.handle(WorkerUnschedulable("default/a", attempt, "1 node(s) had volume node affinity conflict"), now)
                p.handle(WorkerEnded("default/a", attempt, "Preempted", now), now)
                continue
            placed += 1
            p.handle(WorkerBound("default/a", attempt, run.window.node or ""), now)
            p.handle(WorkerStarted("default/a", attempt, now), now)
            if ends:
                p.handle(WorkerEnded("default/a", attempt, "Succeeded", now), now)
        p.handle(Tick(), now)
    return wrong, now


def _zonal_planner(policy: str) -> Planner:
    free = [node(f"n{site}-{i}", f"zone-{site}") for site in range(4) for i in range(6)]
    return planner(policy, [*free, *(node(f"right-{i}", "zone-9") for i in range(2))])


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
def test_later_windows_start_in_the_zone_of_the_volume(policy: str) -> None:
    p = _zonal_planner(policy)
    p.handle(JobSubmitted(job("a", chunks=20, max_workers=1)), 0.0)
    assert _zonal_windows(p, 0.0, windows=20)[0] == 4, "one at each other site"


def test_zone_of_a_volume_is_known_after_a_takeover() -> None:
    p = _zonal_planner("chunk")
    one = job("a", chunks=20, max_workers=1)
    p.handle(JobSubmitted(one), 0.0)
    _, now = _zonal_windows(p, 0.0, windows=3)
    following = _zonal_planner("chunk")
    following.restore([JobSubmitted(one, p.plan_of("default/a", now), p.progress_of("default/a"))], now)
    assert _zonal_windows(following, now, windows=5)[0] == 0


def test_refused_pods_are_known_after_a_takeover() -> None:
    """A pod that has a place proves nothing about the next one, because the earlier ones had places too."""
    lab = Refused("Refused")
    one = job("bad", 300.0, seconds=60.0)
    lab.submit(one, 300.0)
    lab.pass_time(300.0, 60.0)
    plan, progress = lab.planner.plan_of("default/bad", 361.0), lab.planner.progress_of("default/bad")
    following = planner("chunk", [node("n00")])
    following.restore([JobSubmitted(one, plan, progress)], 361.0)
    following.handle(Tick(), 400.0)
    for attempt, run in following.cluster.jobs["default/bad"].runs.items():
        following.handle(WorkerBound("default/bad", attempt, run.window.node or ""), 400.0)
        assert following.cluster.jobs["default/bad"].placement.failures
        following.handle(WorkerStarted("default/bad", attempt, 401.0), 401.0)
        assert not following.cluster.jobs["default/bad"].placement.failures
        return
    pytest.fail("no window has opened")


@pytest.mark.parametrize("ahead", [-HOUR, 0.0, HOUR])
def test_hold_is_not_longer_under_a_leader_whose_clock_is_behind(ahead: float) -> None:
    """Five nodes in a row hold the job for an hour, by the clock of the first leader, which may be wrong."""
    p = planner("chunk", [node(f"n{i}", f"s{i}") for i in range(6)])
    one, now = job("a"), HOUR + ahead
    p.handle(JobSubmitted(one), now)
    while p.cluster.jobs["default/a"].held_until <= now + 600.0:
        now += 30.0
        for attempt in list(p.cluster.jobs["default/a"].runs):
            p.handle(WorkerUnschedulable("default/a", attempt, MISSING), now)
            p.handle(WorkerEnded("default/a", attempt, "Lost", now), now)
        p.handle(Tick(), now)
        assert now < HOUR + ahead + 1800.0
    following = planner("chunk", [node(f"n{i}", f"s{i}") for i in range(6)])
    begin = now - ahead
    following.restore([JobSubmitted(one, p.plan_of("default/a", now), p.progress_of("default/a"))], begin)
    state = following.cluster.jobs["default/a"]
    assert state.held_until <= begin + HOUR
    assert (
        state.placement.paused_until - begin
        <= p.cluster.jobs["default/a"].placement.paused_until - state.placement.failed_at
    )


def test_no_worker_stops_in_a_zone_that_the_volume_is_not_in() -> None:
    """The cluster fills up after the first windows; the job ranks first, and its zone has one node."""
    p = planner("chunk", [node("n0", "zone-0"), node("n1", "zone-1"), node("right", "zone-9")])
    p.handle(JobSubmitted(job("a", chunks=20, seconds=60.0, max_workers=1)), 0.0)
    _, now = _zonal_windows(p, 0.0, windows=2)
    _, now = _zonal_windows(p, now, windows=1, ends=False)
    for i in range(2):
        key = f"default/honest{i}"
        p.handle(
            JobSubmitted(job(f"honest{i}", now, seconds=10 * HOUR, restart_seconds=1.0, restart_declared=True)), now
        )
        for attempt in list(p.cluster.jobs[key].runs):
            p.handle(WorkerBound(key, attempt, p.cluster.jobs[key].runs[attempt].window.node or ""), now)
            p.handle(WorkerStarted(key, attempt, now), now)
    wider = p.handle(JobChanged(job("a", chunks=20, seconds=60.0, max_workers=2, generation=1)), now + 30.0)
    later = [p.handle(Tick(), now + 60.0 + 60.0 * minute) for minute in range(50)]
    assert not of_type(CloseWindow, [*wider, *(one for out in later for one in out)])


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
def test_job_that_a_site_refuses_hides_no_others_after_takeover(policy: str) -> None:
    p = planner(policy, [node("n0", "other"), node("n1", "refusing")])
    changes: dict[str, Any] = {"restart_seconds": 1.0, "restart_declared": True}
    there = Constraints(affinity=((Requirement("metadata.name", "In", ("n1",), True),),))
    long = job("long", seconds=1000 * HOUR, worker=worker(constraints=there), **changes)
    refused = JobPlan(1, "", unplaced=UnplacedPods(0, ("n1",)))
    p.restore([JobSubmitted(long), JobSubmitted(job("first", chunks=4, seconds=2 * HOUR, **changes), refused)], 0.0)
    assert [run.window.node for run in p.cluster.jobs["default/first"].runs.values()] == ["n0"]
    p.handle(WorkerStarted("default/long", 1, 1.0), 1.0)
    out = p.handle(JobSubmitted(job("second", 60.0, seconds=9 * HOUR, **changes)), 60.0)
    assert [one.window.preempted_by for one in of_type(CloseWindow, out)] == ["default/second"]


def test_zone_that_refuses_is_tried_again_after_an_hour() -> None:
    """The reason may be another one that has passed."""
    p = _zonal_planner("srsf")
    p.handle(JobSubmitted(job("a", chunks=400, max_workers=1)), 0.0)
    wrong, now = _zonal_windows(p, 0.0, windows=100)
    assert wrong == 4
    assert now < HOUR
    assert _zonal_windows(p, now, windows=100)[0] == 4, "once more at each"


def _failed_once() -> Planner:
    lab = Lab()
    lab.submit(job("bad", 300.0, seconds=60.0), 300.0)
    lab.pass_time(300.0, 60.0)
    assert _scope(lab.planner) is PreemptionScope.NONE
    return lab.planner


def _scope(p: Planner) -> PreemptionScope:
    return p.cluster.preemption_scope(p.cluster.jobs["default/bad"])


def test_a_new_node_lets_the_job_try_again() -> None:
    p = _failed_once()
    p.handle(NodeChanged(node("new", gpus=0)), 400.0)
    assert _scope(p) is PreemptionScope.NONE
    p.handle(Tick(), 640.0)  # node_exclusion_seconds after the failure
    assert p.cluster.jobs["default/bad"].placement.paused_until == 0


def test_a_node_that_comes_and_goes_changes_nothing() -> None:
    p = _failed_once()
    for ready in (False, True):
        p.handle(NodeChanged(node("n00", ready=ready)), 400.0)
    p.handle(Tick(), 1000.0)
    assert _scope(p) is PreemptionScope.NONE


def test_a_new_specification_shortens_the_pause() -> None:
    p = _failed_once()
    p.handle(JobChanged(job("bad", 300.0, seconds=60.0, generation=2, weight=2.0)), 400.0)
    assert p.cluster.jobs["default/bad"].placement.failures == 0
    assert _scope(p) is PreemptionScope.NONE
    assert len(of_type(CloseWindow, p.handle(Tick(), 640.0))) == 1, "node_exclusion_seconds after the failure"


@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful"])
def test_edits_do_not_evict_without_end(policy: str) -> None:
    """At 0, 5, 15 and 35 minutes after the first failure, and later at longer intervals."""
    lab = Lab(policy=policy)
    lab.submit(job("bad", 300.0, seconds=60.0), 300.0)
    for minute in range(60):
        now = 300.0 + 60.0 * minute
        lab.pass_time(now, 60.0)
        edited = job("bad", 300.0, seconds=60.0, generation=minute + 2, weight=1.0 + minute % 2)
        lab.play(lab.planner.handle(JobChanged(edited), now + 60.0), now + 60.0)
    assert lab.preemptions() <= 4


@pytest.mark.parametrize("period", [60, 10])
@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful", *BY_LEVEL])
def test_recreated_jobs_of_a_namespace_evict_a_few_times_an_hour(policy: str, period: int) -> None:
    """With the longer period each pod finds no place before its job is deleted, and with the shorter one none does."""
    lab = Lab(policy=policy)
    now = 300.0
    while now < 300.0 + HOUR:
        lab.submit(job("bad", now, seconds=60.0, key="lab/bad"), now)
        if period >= 30:
            lab.pass_time(now, period)
        now += period
        lab.waiting.clear()
        lab.play(lab.planner.handle(JobRemoved("lab/bad"), now), now)
    assert lab.preemptions() <= 5
    lab.submit(job("better", now, seconds=60.0), now)
    assert lab.preemptions() <= 6, "jobs of other namespaces may preempt"
    lab.submit(job("bad", now, seconds=60.0, key="lab/bad"), now)
    lab.planner.forecast(now)
    text = lab.planner.plan_of("lab/bad", now).explanation
    assert "that were then not placed" in text or policy in BY_LEVEL, "there it ranks behind the better one"
    lab.pass_time(now, 2 * HOUR)
    assert "lab" not in lab.planner.cluster.failed_preemptions.restrained


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("arrival", [400.0, 5 * HOUR])
@pytest.mark.parametrize("policy", ["chunk", "srsf", "srtf", "selector", "chunk-faithful", "least-loaded"])
def test_restraint_of_a_namespace_ends_for_later_jobs(policy: str, arrival: float, others: bool) -> None:
    """With `others`, a job that the restraint has met remains; otherwise all of them are deleted before it ends."""
    lab = Lab(1, policy=policy)
    for number in range(5):
        now = 60.0 + 60.0 * number
        lab.submit(job(f"bad{number}", now, seconds=60.0, key=f"lab/bad{number}"), now)
        if number == 4 and others:
            lab.submit(job("bad", now, seconds=2000 * HOUR, key="lab/bad"), now)
        lab.play(lab.planner.handle(JobRemoved(f"lab/bad{number}"), now + 10.0), now + 10.0)
    until = 70.0 + HOUR
    assert lab.planner.cluster.failed_preemptions.restrained == {"lab": until}
    if arrival < until:
        lab.submit(job("good", arrival, seconds=60.0, key="lab/good"), arrival)
        assert not lab.planner.cluster.jobs["lab/good"].runs
    lab.play(lab.planner.handle(Tick(), until), until)
    if arrival > until:
        lab.submit(job("good", arrival, seconds=60.0, key="lab/good"), arrival)
    assert lab.planner.cluster.jobs["lab/good"].runs


def test_suspending_before_the_verdict_evicts_a_few_times() -> None:
    lab = Lab()
    lab.submit(job("bad", 300.0, seconds=60.0), 300.0)
    for turn in range(40):
        now = 310.0 + 20.0 * turn
        for generation, suspended in ((2 * turn + 2, True), (2 * turn + 3, False)):
            one = job("bad", 300.0, seconds=60.0, generation=generation, suspended=suspended)
            lab.play(lab.planner.handle(JobChanged(one), now), now)
            now += 10.0
    assert lab.preemptions() <= 3


def test_raised_quota_lets_an_unproven_job_try_one_window() -> None:
    """A full quota ends the dry run before it shows the pod."""
    lab = Lab(requires_admission=True)

    def quota(gpus: int) -> QuotaChanged:
        return QuotaChanged(Quota("lab", "q", (QuotaLimit("requests.nvidia.com/gpu", "gpus", gpus),)))

    lab.play(lab.planner.handle(quota(0), 10.0), 10.0)
    lab.submit(job("bad", 300.0, chunks=8, seconds=60.0, admission=Admission.UNPROVEN, key="lab/bad"), 300.0)
    lab.play(lab.planner.handle(quota(8), 310.0), 310.0)
    assert lab.preemptions() == 1


def test_the_record_survives_a_change_of_the_leader() -> None:
    p = _failed_once()
    plan: JobPlan = p.plan_of("default/bad", 400.0)
    successor = planner("chunk", [node("n00")])
    successor.handle(JobSubmitted(job("honest", seconds=10 * HOUR)), 0.0)
    successor.restore([JobSubmitted(job("bad", 300.0, seconds=60.0), plan)], 400.0)
    assert _scope(successor) is PreemptionScope.NONE
    assert successor.cluster.jobs["default/bad"].placement.message == f"worker 0 found no place: {MISSING}"


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful", *BY_LEVEL])
def test_nothing_is_evicted_while_kube_scheduler_is_silent(policy: str) -> None:
    lab = Lab(policy=policy)
    lab.play(lab.planner.handle(KubeSchedulerChanged(responds=False), 300.0), 300.0)
    lab.submit(job("better", 301.0, seconds=60.0), 301.0)
    lab.play(lab.planner.handle(Tick(), 400.0), 400.0)
    assert lab.preemptions() == 0
    lab.play(lab.planner.handle(KubeSchedulerChanged(responds=True), 401.0), 401.0)
    assert lab.preemptions() == 1


def test_why_says_that_kube_scheduler_is_silent() -> None:
    lab = Lab()
    lab.planner.handle(KubeSchedulerChanged(responds=False), 300.0)
    lab.submit(job("better", 301.0, seconds=60.0), 301.0)
    lab.planner.forecast(301.0)
    assert "kube-scheduler" in lab.planner.plan_of("default/better", 301.0).explanation


def test_pods_of_one_attempt_count_once() -> None:
    p = planner("chunk", [node(f"n{i}") for i in range(4)])
    p.handle(JobSubmitted(job("bad", chunks=4)), 0.0)
    for attempt in list(p.cluster.jobs["default/bad"].runs):
        p.handle(WorkerUnschedulable("default/bad", attempt, MISSING), 30.0)
    assert p.cluster.jobs["default/bad"].placement.failures == 1


def test_namespaces_are_forgotten_an_hour_after_a_failure() -> None:
    known = FailedPreemptions()
    for number in range(100):
        known.note(f"branch-{number}", 600.0 * number, most=5)
    assert list(known.times) == [f"branch-{number}" for number in range(94, 100)]
