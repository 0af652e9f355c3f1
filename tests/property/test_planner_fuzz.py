"""Random events in random order: the planner's invariants hold after each, and no job is lost."""

from dataclasses import replace
from typing import Any
from unittest import TestCase

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builders import job, node, planner, worker
from tranche.model import Job, Node, Preemption, Quota, QuotaLimit, Resources, WindowState
from tranche.planner import (
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    Planner,
    QuotaChanged,
    QuotaRemoved,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.invariants import check

GPUS = st.integers(1, 4)


class PlannerMachine(RuleBasedStateMachine):
    """Everything that can happen to a planner, with its windows answered late, early, or by failures."""

    policy = "chunk-faithful"

    @initialize(gpus=st.lists(GPUS, min_size=1, max_size=3))
    def build(self, gpus: list[int]) -> None:
        self.now = 0.0
        self.nodes: dict[str, Node] = {f"n{i}": node(f"n{i}", f"edge-{i % 2}", count) for i, count in enumerate(gpus)}
        self.planner: Planner = planner(self.policy, list(self.nodes.values()))
        self.jobs: dict[str, Job] = {}
        self.submitted = 0

    @rule(
        chunks=st.integers(1, 5),
        gpus=st.integers(1, 3),
        seconds=st.floats(1, 1000),
        limit=st.integers(1, 5),
        servers=st.integers(0, 1),
        preemption=st.sampled_from(Preemption),
        gang=st.booleans(),
        elsewhere=st.booleans(),
        priority=st.sampled_from([-10, -9, -8]),
    )
    def submit(
        self,
        chunks: int,
        gpus: int,
        seconds: float,
        limit: int,
        servers: int,
        preemption: Preemption,
        gang: bool,
        elsewhere: bool,
        priority: int,
    ) -> None:
        rigid = gang and self.planner.policy.plans_gangs
        one = job(
            f"j{self.submitted}",
            self.now,
            chunks=chunks,
            seconds=seconds,
            worker=worker(gpus),
            max_workers=chunks if rigid else min(limit, chunks),
            min_workers=chunks if rigid else 1,
            rigid=rigid,
            owner=f"team-{chunks % 2}",
            data_site=f"edge-{gpus % 2}" if elsewhere else None,
            chunk_bytes=1e9 if elsewhere else 0.0,  # 80 s between two sites
            servers=servers,
            server=worker(0) if servers else None,
            preemption=preemption,
            priority=priority,
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

    @rule(data=st.data(), outcome=st.sampled_from(["Succeeded", "Preempted", "Failed", "Lost"]), part=st.floats(0, 1))
    def end(self, data: st.DataObject, outcome: str, part: float) -> None:
        if picked := self._pick(data):
            key, attempt = picked
            run = self.planner.cluster.jobs[key].runs[attempt]
            progress = dict.fromkeys(run.window.chunks, 100 * part) if outcome != "Succeeded" else None
            self.planner.handle(WorkerEnded(key, attempt, outcome, self.now, progress), self.now)  # type: ignore[arg-type]

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

    @rule(data=st.data(), foreign=st.integers(0, 4), cordoned=st.booleans(), ready=st.booleans())
    def change_node(self, data: st.DataObject, foreign: int, cordoned: bool, ready: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        changed = replace(self.nodes[name], foreign=Resources(gpus=foreign), unschedulable=cordoned, ready=ready)
        self.planner.handle(NodeChanged(changed), self.now)

    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        self.planner.handle(NodeRemoved(data.draw(st.sampled_from(sorted(self.nodes)))), self.now)

    @rule(data=st.data(), suspended=st.booleans(), weight=st.sampled_from([0.5, 1.0, 3.0]))
    def change_job(self, data: st.DataObject, suspended: bool, weight: float) -> None:
        if self.jobs:
            old = self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]
            new = self.jobs[old.key] = replace(old, suspended=suspended, weight=weight, generation=old.generation + 1)
            self.planner.handle(JobChanged(new), self.now)

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

    @invariant()
    def every_state_can_be_written_down_and_explained(self) -> None:
        if hasattr(self, "planner"):
            check(self.planner.cluster)
            self.planner.forecast(self.now)
            for key in self.jobs:
                assert self.planner.plan_of(key, self.now).explanation

    def teardown(self) -> None:
        """Heal everything; then every job must run to its end."""
        if not hasattr(self, "planner"):
            return
        self.remove_quota("small")
        self.remove_quota("large")
        for healthy in self.nodes.values():
            self.planner.handle(NodeChanged(healthy), self.now)
        for key, one in self.jobs.items():
            healed = replace(one, suspended=False, generation=one.generation + 1, backoff_limit=10**6)
            self.planner.handle(JobChanged(healed), self.now)
            self.jobs[key] = healed
        for _ in range(3000):
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
        for key, one in self.jobs.items():
            places = sum(n.allocatable.gpus // one.gpus for n in self.nodes.values())
            if places >= (one.chunks if one.rigid else 1):
                state = self.planner.cluster.jobs[key]
                assert state.finished, f"{key} is lost: {self.planner.plan_of(key, self.now).explanation}"


def _case(name: str, examples: int) -> type[TestCase]:
    machine: Any = type(f"{name}Machine", (PlannerMachine,), {"policy": name})
    case: Any = machine.TestCase
    case.settings = settings(max_examples=examples, stateful_step_count=40, deadline=None, derandomize=True)
    return case  # type: ignore[no-any-return]


TestChunk = _case("chunk", 150)
TestChunkFair = _case("chunk:fair=1:halflife=500", 100)
TestFaithful = _case("chunk-faithful", 300)
TestFifo = _case("fifo", 150)
TestFifoSkip = _case("fifo-skip", 60)
TestFirstFit = _case("first-fit", 60)
TestSjf = _case("sjf", 60)
TestSrtf = _case("srtf", 150)
TestSrsf = _case("srsf", 150)
TestLas = _case("las:first=100", 100)
TestTiresias = _case("tiresias:limits=50/300:promote=2", 150)
TestGittins = _case("gittins", 60)
TestDrf = _case("drf", 100)
TestLeastLoaded = _case("least-loaded", 60)
TestRoundRobin = _case("round-robin", 60)
TestRandom = _case("random", 60)
