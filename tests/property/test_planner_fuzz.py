"""Random events in random order: the planner's invariants hold after each, and no job is lost.

`make fuzz` plays more of them.
"""

from dataclasses import replace
from typing import Any
from unittest import TestCase

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.builders import job, node, of_type, planner, worker
from support.structural_objects import FUZZ
from support.take_over import taken_over
from tranche.model import (
    ChunkGrant,
    ChunkRequest,
    ChunkState,
    Job,
    Node,
    PlannedServer,
    Preemption,
    Quota,
    QuotaLimit,
    Report,
    Resources,
    Site,
    Tier,
    WindowState,
)
from tranche.planner import (
    ChunksRequested,
    CloseWindow,
    EvictionRefused,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    KubeSchedulerChanged,
    NodeChanged,
    NodeRemoved,
    Planner,
    PodOverdue,
    PodStartFailed,
    ProgressReported,
    QuotaChanged,
    QuotaRemoved,
    SiteChanged,
    SiteRemoved,
    StagingEnded,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.forecast.chunk_windows import chunk_windows
from tranche.planner.handlers.chunk_request import chunk_grant
from tranche.planner.helper_end import expected_chief_end, helper_end
from tranche.planner.invariants import check
from tranche.state.job import JobState

GPUS = st.integers(1, 4)
MAX_JOBS = 12
"""At a time: more make runs slow, and nothing is different among them."""
BEGIN = 1e6
"""Time at which each machine begins, in seconds: a status has no times at the epoch."""
FORECAST_STEPS = 4
"""Steps between forecasts, which would take three quarters of the time if there were one after each step."""


class PlannerMachine(RuleBasedStateMachine):
    """Everything that can happen to a planner, with its windows answered late, early, or by failures."""

    policy = "chunk-faithful"
    cloud = False
    """An unlimited site may come and go."""

    @initialize(gpus=st.lists(GPUS, min_size=1, max_size=3))
    def build(self, gpus: list[int]) -> None:
        self.now = BEGIN
        self.nodes: dict[str, Node] = {f"n{i}": node(f"n{i}", f"edge-{i % 2}", count) for i, count in enumerate(gpus)}
        self.planner: Planner = planner(self.policy, list(self.nodes.values()), server_idle_seconds=100.0)
        self.jobs: dict[str, Job] = {}
        self.submitted = 0
        self.steps = 0

    @precondition(lambda self: len(self.jobs) < MAX_JOBS)
    @rule(
        chunks=st.integers(1, 5),
        gpus=st.integers(1, 3),
        seconds=st.floats(1, 1000),
        limit=st.integers(1, 5),
        servers=st.integers(0, 1),
        chief=st.sampled_from([None, 0, 1]),
        preemption=st.sampled_from(Preemption),
        gang=st.booleans(),
        elsewhere=st.booleans(),
        staged=st.booleans(),
        priority=st.sampled_from([-10, -9, -8]),
        durable=st.sampled_from([None, True, False]),
    )
    def submit(
        self,
        chunks: int,
        gpus: int,
        seconds: float,
        limit: int,
        servers: int,
        chief: int | None,
        preemption: Preemption,
        gang: bool,
        elsewhere: bool,
        staged: bool,
        priority: int,
        durable: bool | None,
    ) -> None:
        is_gang = gang and self.planner.policy.traits.supports_gangs
        one = job(
            f"j{self.submitted}",
            self.now,
            chunks=chunks,
            seconds=seconds,
            worker=worker(gpus),
            max_workers=chunks if is_gang else min(limit, chunks),
            is_gang=is_gang,
            owner=f"team-{chunks % 2}",
            data_site=f"edge-{gpus % 2}" if elsewhere else None,
            chunk_bytes=1e9 if elsewhere else 0.0,  # 80 s between two sites
            staged=staged
            and elsewhere
            and not is_gang
            and self.planner.queue is not None
            and self.planner.queue.policy.traits.needs_local_data,
            servers=servers,
            server=worker(0) if servers else None,
            chief=worker(chief) if is_gang and chief is not None else None,
            preemption=preemption,
            priority=priority,
            durable=durable,
        )
        self.submitted += 1
        self.jobs[one.key] = one
        self.planner.handle(JobSubmitted(one), self.now)

    @rule(seconds=st.floats(0, 500))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.planner.handle(Tick(), self.now)

    def _pick(self, data: st.DataObject) -> tuple[str, int] | None:
        windows = [(key, attempt) for key, s in self.planner.cluster.jobs.items() for attempt in s.runs]
        return data.draw(st.sampled_from(windows)) if windows else None

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        if picked := self._pick(data):
            self.planner.handle(WorkerStarted(*picked, self.now), self.now)

    @rule(
        data=st.data(),
        outcome=st.sampled_from(["Succeeded", "Preempted", "Failed", "Lost", "Refused"]),
        part=st.floats(0, 1),
    )
    def end(self, data: st.DataObject, outcome: str, part: float) -> None:
        if picked := self._pick(data):
            key, attempt = picked
            run = self.planner.cluster.jobs[key].runs[attempt]
            progress = dict.fromkeys(run.window.chunks, 100 * part) if outcome != "Succeeded" else None
            self.planner.handle(WorkerEnded(key, attempt, outcome, self.now, progress), self.now)  # type: ignore[arg-type]

    @rule(data=st.data(), chunks=st.sets(st.integers(0, 5)), part=st.floats(0, 1.5), saved=st.floats(-0.5, 1))
    def report(self, data: st.DataObject, chunks: set[int], part: float, saved: float) -> None:
        if self.jobs:
            key = data.draw(st.sampled_from(sorted(self.jobs)))
            state = self.planner.cluster.jobs[key]
            attempt = data.draw(st.integers(0, state.attempts))
            applied, durable = (dict.fromkeys(chunks, 100 * share) for share in (part, part * saved))
            self.planner.handle(ProgressReported(Report(key, attempt, applied, durable), self.now), self.now)

    @rule(data=st.data(), part=st.sampled_from([0.5, 1.0, 1.0, 1.5]), late=st.integers(0, 1))
    def ask_for_chunks(self, data: st.DataObject, part: float, late: int) -> None:
        if picked := self._pick(data):
            key, attempt = picked
            state = self.planner.cluster.jobs[key]
            window = state.runs[attempt].window
            request = ChunkRequest(key, attempt, window.fence - late, dict.fromkeys(window.chunks, 100 * part))
            first, again = (self._answer(request, state) for _ in range(2))
            assert first == again
            new = window.chunks != state.runs[attempt].window.chunks
            assert not new or (state.done.issuperset(window.chunks) and not state.done.intersection(first.chunks))

    def _answer(self, request: ChunkRequest, state: JobState) -> ChunkGrant:
        self.planner.handle(ChunksRequested(request, self.now), self.now)
        given = chunk_grant(state, request.attempt, request.fence, request.durable)
        assert given is not None
        return given

    @rule(data=st.data(), outcome=st.sampled_from(["Succeeded", "Succeeded", "Preempted", "Failed", "Lost"]))
    def end_staging(self, data: st.DataObject, outcome: str) -> None:
        if staging := self._stagings():
            self.planner.handle(StagingEnded(*data.draw(st.sampled_from(staging)), outcome, 60.0), self.now)  # type: ignore[arg-type]

    def _stagings(self) -> list[tuple[str, int]]:
        jobs = self.planner.cluster.jobs
        return [(key, one.attempt) for key, state in jobs.items() for one in state.stagings.values() if one.attempt]

    @rule(
        data=st.data(),
        ending=st.sampled_from(
            [("Lost", None), ("Preempted", 143), ("Preempted", 137), ("Failed", 1), ("Succeeded", 0)]
        ),
    )
    def end_a_server(self, data: st.DataObject, ending: tuple[Any, int | None]) -> None:
        found = [(key, s.planned) for key, state in self.planner.cluster.jobs.items() for s in state.servers]
        if found:
            key, planned = data.draw(st.sampled_from(found))
            self.planner.handle(helper_end(key, planned, *ending), self.now)

    @rule(data=st.data())
    def bind_a_server(self, data: st.DataObject) -> None:
        jobs = self.planner.cluster.jobs
        if found := [(key, one.planned) for key in sorted(jobs) for one in jobs[key].servers if not one.placed]:
            key, planned = data.draw(st.sampled_from(found))
            self.planner.handle(WorkerBound(key, planned.attempt, planned.node or "elsewhere"), self.now)

    @rule(data=st.data())
    def start_a_server(self, data: st.DataObject) -> None:
        jobs = self.planner.cluster.jobs
        if found := [(key, one.planned) for key in sorted(jobs) for one in jobs[key].servers if not one.started]:
            key, planned = data.draw(st.sampled_from(found))
            self.planner.handle(WorkerStarted(key, planned.attempt, self.now), self.now)

    @rule(data=st.data())
    def keep_a_server(self, data: st.DataObject) -> None:
        if stopping := self._stopping():
            key, planned = data.draw(st.sampled_from(stopping))
            self.planner.handle(EvictionRefused(key, (planned.attempt,), "budget"), self.now)

    @rule(data=st.data(), all_of_them=st.booleans())
    def refuse_eviction(self, data: st.DataObject, all_of_them: bool) -> None:
        if picked := self._pick(data):
            key, attempt = picked
            attempts = tuple(self.planner.cluster.jobs[key].runs) if all_of_them else (attempt,)
            self.planner.handle(EvictionRefused(key, attempts, "budget"), self.now)

    @rule(data=st.data())
    def land_elsewhere(self, data: st.DataObject) -> None:
        picked = self._pick(data)
        if picked and self.planner.cluster.nodes:
            where = data.draw(st.sampled_from(sorted(self.planner.cluster.nodes)))
            self.planner.handle(WorkerBound(*picked, where), self.now)

    @rule(data=st.data())
    def find_no_place(self, data: st.DataObject) -> None:
        if picked := self._pick(data):
            self.planner.handle(WorkerUnschedulable(*picked, "no disk"), self.now)

    @rule(data=st.data())
    def find_no_place_for_a_server(self, data: st.DataObject) -> None:
        jobs = self.planner.cluster.jobs
        found = [(key, one.planned.attempt) for key, state in jobs.items() for one in state.servers]
        if found:
            self.planner.handle(WorkerUnschedulable(*data.draw(st.sampled_from(found)), "no disk"), self.now)

    @rule(data=st.data(), of_server=st.booleans())
    def do_not_start(self, data: st.DataObject, of_server: bool) -> None:
        jobs = self.planner.cluster.jobs
        servers = [(key, one.planned.attempt) for key, state in jobs.items() for one in state.servers]
        picked = data.draw(st.sampled_from(servers)) if of_server and servers else self._pick(data)
        if picked:
            event = PodStartFailed(*picked, "ErrImagePull", "no such image", "ImagePull")
            self.planner.handle(event, self.now)

    @rule(data=st.data())
    def do_not_stop(self, data: st.DataObject) -> None:
        if picked := self._pick(data):
            self.planner.handle(PodOverdue(*picked), self.now)

    @rule(responds=st.booleans())
    def stop_kube_scheduler(self, responds: bool) -> None:
        self.planner.handle(KubeSchedulerChanged(responds), self.now)

    @rule(
        data=st.data(),
        foreign=st.integers(0, 4),
        gpus=st.sampled_from([None, None, 0, 1]),
        moves=st.booleans(),
        cordoned=st.booleans(),
        ready=st.booleans(),
    )
    def change_node(
        self, data: st.DataObject, foreign: int, gpus: int | None, moves: bool, cordoned: bool, ready: bool
    ) -> None:
        known = self.nodes[data.draw(st.sampled_from(sorted(self.nodes)))]
        changed = replace(known, foreign=Resources(gpus=foreign), unschedulable=cordoned, ready=ready)
        if gpus is not None:
            changed = replace(changed, allocatable=replace(known.allocatable, gpus=gpus))
        self.planner.handle(NodeChanged(replace(changed, site="edge-1") if moves else changed), self.now)

    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        self.planner.handle(NodeRemoved(data.draw(st.sampled_from(sorted(self.nodes)))), self.now)

    @precondition(lambda self: self.cloud)
    @rule(unlimited=st.sampled_from([True, True, False]), seconds=st.sampled_from([0.0, 100.0]))
    def change_cloud(self, unlimited: bool, seconds: float) -> None:
        site = Site("cloud", Tier.CLOUD, unlimited=unlimited, start_seconds=seconds)
        self.planner.handle(SiteChanged(site), self.now)

    @precondition(lambda self: self.cloud)
    @rule()
    def remove_cloud(self) -> None:
        self.planner.handle(SiteRemoved("cloud"), self.now)

    @precondition(lambda self: self.cloud)
    @rule(data=st.data(), name=st.sampled_from(["c1", "c2"]))
    def bind_to_a_new_node_of_the_cloud(self, data: st.DataObject, name: str) -> None:
        if picked := self._pick(data):
            self.planner.handle(NodeChanged(node(name, "cloud", 4)), self.now)
            self.planner.handle(WorkerBound(*picked, name), self.now)

    @rule(
        data=st.data(),
        suspended=st.booleans(),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        pace=st.sampled_from([0.3, 1.0, 1.0, 2.0]),
    )
    def change_job(self, data: st.DataObject, suspended: bool, weight: float, pace: float) -> None:
        if self.jobs:
            old = self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]
            new = self.jobs[old.key] = replace(
                old,
                suspended=suspended,
                weight=weight,
                step_seconds=old.step_seconds * pace,
                generation=old.generation + 1,
            )
            self.planner.handle(JobChanged(new), self.now)

    @rule(data=st.data(), cpu=st.sampled_from([1000, 1100, 2000]))
    def admit_with_other_requests(self, data: st.DataObject, cpu: int) -> None:
        """As when a LimitRange or a webhook changes the pods, which a dry run shows."""
        if self.jobs:
            old = self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]
            shape = replace(old.worker, requests=replace(old.worker.requests, cpu=cpu))
            template = old.template_requests or old.worker.requests
            new = self.jobs[old.key] = replace(old, worker=shape, template_requests=template)
            self.planner.handle(JobChanged(new), self.now)

    @rule(data=st.data(), roles=st.sets(st.sampled_from(["worker", "ps", "chief", "staging"])))
    def revise_templates(self, data: st.DataObject, roles: set[str]) -> None:
        if self.jobs:
            old = self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]
            new = self.jobs[old.key] = replace(old, generation=old.generation + 1)
            servers = [one.planned.attempt for one in self.planner.cluster.jobs[old.key].servers]
            unstarted = data.draw(st.sets(st.sampled_from(servers))) if servers else set()
            self.planner.handle(JobChanged(new, frozenset(roles), frozenset(unstarted)), self.now)

    @rule(data=st.data())
    def create_again_under_the_same_name(self, data: st.DataObject) -> None:
        if self.jobs:
            old = self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]
            new = self.jobs[old.key] = replace(old, uid=f"{old.uid}-again", submitted=self.now)
            self.planner.handle_all([JobRemoved(old.key), JobSubmitted(new)], self.now)

    @rule(data=st.data(), permanent=st.booleans())
    def reject(self, data: st.DataObject, permanent: bool) -> None:
        if self.jobs:
            key = data.draw(st.sampled_from(sorted(self.jobs)))
            self.planner.handle(WorkerRejected(key, "QuotaExceeded", "quota", permanent), self.now)

    @rule(
        gpus=st.integers(0, 4),
        pods=st.integers(0, 4),
        foreign=st.integers(0, 2),
        tiers=st.sampled_from([None, frozenset({-9})]),
        name=st.sampled_from(["small", "large"]),
    )
    def set_quota(self, gpus: int, pods: int, foreign: int, tiers: frozenset[int] | None, name: str) -> None:
        limits = (QuotaLimit("requests.nvidia.com/gpu", "gpus", gpus, foreign), QuotaLimit("pods", "pods", pods))
        self.planner.handle(QuotaChanged(Quota("default", name, limits, tiers)), self.now)

    @rule(name=st.sampled_from(["small", "large"]))
    def remove_quota(self, name: str) -> None:
        self.planner.handle(QuotaRemoved("default", name), self.now)

    @rule(data=st.data())
    def remove_job(self, data: st.DataObject) -> None:
        if self.jobs:
            key = data.draw(st.sampled_from(sorted(self.jobs)))
            del self.jobs[key]
            self.planner.handle(JobRemoved(key), self.now)

    @rule()
    def take_over(self) -> None:
        """The next planner goes on with the written plans: no pod is stopped, and no work is lost.

        A job whose pause or excluded node is forgotten (`support.state_origins`) may stop others sooner.
        """
        self.planner.handle(Tick(), self.now)
        before = self.planner
        jobs = before.cluster.jobs
        refused = {key: state.unplannable for key, state in jobs.items() if state.unplannable is not None}
        events = [WorkerRejected(key, *why, True) for key, why in refused.items()]
        self.planner, instructions = taken_over(before, self.now, events=events)
        waits = any(state.held_until > self.now or state.excluded_nodes for state in jobs.values())
        assert waits or of_type(CloseWindow, instructions) == []
        for key, old in jobs.items():
            new = self.planner.cluster.jobs[key]
            assert self.pods(new).items() >= self.pods(old).items()
            assert (new.done, new.failures, new.preemptions) == (old.done, old.failures, old.preemptions)
            assert new.partial == pytest.approx(old.partial, abs=1e-6)
            assert not old.active or self.copies(new) == self.copies(old)

    def pods(self, state: JobState) -> dict[tuple[str, int], object]:
        """Return the pods in the plan of a job, with their places and chunks."""
        workers = [run.window for run in state.runs.values()]
        copying = [one for one in state.stagings.values() if one.attempt]
        return {
            **{("worker", one.attempt): (one.index, one.site, one.node, one.chunks) for one in workers},
            **{("helper", one.planned.attempt): (one.planned.site, one.planned.node) for one in state.servers},
            **{("staging", one.attempt): (one.site, sorted({*one.chunks} - state.done)) for one in copying},
        }

    def copies(self, state: JobState) -> set[tuple[int, str]]:
        """Return the unfinished chunks whose data are at other sites, with these sites."""
        return set(state.homes(self.now))

    @invariant()
    def every_state_can_be_written_down_and_explained(self) -> None:
        if hasattr(self, "planner"):
            check(self.planner.cluster)
            self.steps += 1
            if self.steps % FORECAST_STEPS == 0:
                self.planner.forecast(self.now)
            for key in self.jobs:
                assert self.planner.plan_of(key, self.now).explanation
                self.check_windows(key)

    def check_windows(self, key: str) -> None:
        """Each chunk has one row; what has a time has a place, and is not over before it begins."""
        state, rows = self.planner.cluster.jobs[key], chunk_windows(self.planner, key, self.now)
        assert [row.chunk for row in rows] == list(range(state.job.chunks))
        for row in rows:
            assert (row.state is ChunkState.DONE) == (row.chunk in state.done)
            assert row.start is None or row.site
            assert row.start is None or row.end is None or row.start <= row.end

    def teardown(self) -> None:
        """Heal everything; then every job must run to its end."""
        if not hasattr(self, "planner"):
            return
        self.remove_quota("small")
        self.remove_quota("large")
        self.planner.handle(KubeSchedulerChanged(True), self.now)
        for healthy in self.nodes.values():
            self.planner.handle(NodeChanged(healthy), self.now)
        for key, one in self.jobs.items():
            healed = replace(one, suspended=False, generation=one.generation + 1, backoff_limit=10**6)
            self.planner.handle(JobChanged(healed), self.now)
            self.jobs[key] = healed
        for _ in range(3000):
            self._end_helpers()
            windows = [(s, run) for s in self.planner.cluster.jobs.values() for run in s.runs.values()]
            if not windows:
                wakeup = self.planner.next_wakeup()
                self.now = max(self.now, wakeup or 0.0)
                self.planner.handle(Tick(), self.now)
                if wakeup is None and not any(s.runs for s in self.planner.cluster.jobs.values()):
                    break
                continue
            for state, run in windows:
                outcome = "Preempted" if run.window.state is WindowState.CLOSING else "Succeeded"
                self.planner.handle(WorkerEnded(state.job.key, run.window.attempt, outcome, self.now), self.now)  # type: ignore[arg-type]
        self._assert_finished()

    def _end_helpers(self) -> None:
        for key, server in self._stopping():
            self.planner.handle(helper_end(key, server, "Preempted", 143), self.now)
        for key, state in self.planner.cluster.jobs.items():
            if (end := expected_chief_end(key, state)) is not None:
                self.planner.handle(end, self.now)
        for key, attempt in self._stagings():
            self.planner.handle(StagingEnded(key, attempt, "Succeeded", 60.0), self.now)

    def _stopping(self) -> list[tuple[str, PlannedServer]]:
        jobs = self.planner.cluster.jobs
        return [(key, one.planned) for key, state in jobs.items() for one in state.servers if one.closing]

    def _could_run(self, one: Job) -> bool:
        """Whether the healthy nodes hold all that starts together, tried with the chief on each of them."""
        gpus = [n.allocatable.gpus for n in self.nodes.values()]
        chief = one.chief.requests.gpus if one.chief is not None else 0
        left = [[count - chief * (at == host) for at, count in enumerate(gpus)] for host in range(len(gpus))]
        return any(min(rest) >= 0 and sum(n // one.gpus for n in rest) >= one.min_available for rest in left)

    def _assert_finished(self) -> None:
        for key, one in self.jobs.items():
            if self._could_run(one) or (self.planner.cluster.clouds and not self.planner.context.binding):
                state = self.planner.cluster.jobs[key]
                assert state.finished, f"{key} is lost: {self.planner.plan_of(key, self.now).explanation}"


def _case(name: str, examples: int, *, cloud: bool = False) -> type[TestCase]:
    machine: Any = type(f"{name}Machine", (PlannerMachine,), {"policy": name, "cloud": cloud})
    case: Any = machine.TestCase
    case.settings = settings(max_examples=examples // 2 * FUZZ, stateful_step_count=40)
    return case  # type: ignore[no-any-return]


TestChunk = _case("chunk", 50)
TestChunkInCloud = pytest.mark.slow(_case("chunk", 30, cloud=True))
TestFaithfulInCloud = _case("chunk-faithful", 40, cloud=True)
TestLeastLoadedInCloud = _case("least-loaded", 40, cloud=True)
TestFifoInCloud = _case("fifo", 60, cloud=True)
TestSrsfInCloud = pytest.mark.slow(_case("srsf", 40, cloud=True))
TestDormInCloud = pytest.mark.slow(_case("dorm", 15, cloud=True))
TestChunkFair = pytest.mark.slow(_case("chunk:fair=1:halflife=500", 40))
TestFaithful = _case("chunk-faithful", 80)
TestLeastLoadedByWork = _case("least-loaded:order=srsf", 40)
TestFifo = _case("fifo", 60)
TestFifoOfFewWorkers = _case("fifo:workers=3", 60)
TestFifoSkip = _case("fifo-skip", 60)
TestFirstFit = _case("first-fit", 60)
TestSjf = _case("sjf", 60)
TestSrtf = _case("srtf", 60)
TestSrsf = _case("srsf", 60)
TestLas = _case("las:first=100", 60)
TestTiresias = _case("tiresias:limits=50/300:promote=2", 60)
TestGittins = _case("gittins", 60)
TestDrf = _case("drf", 60)
TestDrfOfJobs = _case("drf:users=jobs", 60)
TestLeastLoaded = _case("least-loaded", 60)
TestLwf = _case("lwf", 60)
TestLwfInCloud = pytest.mark.slow(_case("lwf:kappa=2", 40, cloud=True))
TestRoundRobin = _case("round-robin", 60)
TestRandom = _case("random", 60)
TestThemis = pytest.mark.slow(_case("themis:lease=60", 40))
TestOptimus = _case("optimus:contention=0.1", 50)
TestDorm = _case("dorm", 50)
TestRrh = pytest.mark.slow(_case("rrh", 50))
