"""Gangs that find no place, are refused, end, and lose nodes, in random order: the books are right after each event.

With pauses of every length, whole or with parameter servers and a chief, and beside chunked jobs: what a pause, a
refusal and an end count, they count once. `make fuzz` plays more of them.
"""

from dataclasses import replace
from typing import Any
from unittest import TestCase

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.builders import job, node, planner, worker
from support.structural_objects import FUZZ
from tranche.model import Job, Node, Resources
from tranche.planner import (
    Event,
    EvictionRefused,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    Planner,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.helper_end import helper_end
from tranche.planner.invariants import check

MAX_JOBS = 5
ENDINGS = [("Succeeded", 0), ("Preempted", 143), ("Failed", 1), ("Lost", None)]


class GangMachine(RuleBasedStateMachine):
    """A few nodes, gangs that request most of them, and any sequence of states of their pods."""

    policy = "chunk"

    @initialize(
        nodes=st.integers(2, 4),
        backoff=st.sampled_from([0.0, 5.0, 60.0]),
        avoid=st.sampled_from([0.0, 30.0, 300.0]),
    )
    def build(self, nodes: int, backoff: float, avoid: float) -> None:
        self.now = 0.0
        self.backoff = backoff
        self.nodes: dict[str, Node] = {f"n{i}": node(f"n{i}", f"edge-{i % 2}", 1 + i % 2) for i in range(nodes)}
        self.planner: Planner = planner(
            self.policy, list(self.nodes.values()), failure_backoff_seconds=backoff, node_exclusion_seconds=avoid
        )
        self.jobs: dict[str, Job] = {}

    def tell(self, *events: Event) -> None:
        self.planner.handle_all(events, self.now)

    @precondition(lambda self: len(self.jobs) < MAX_JOBS)
    @rule(
        members=st.integers(1, 4),
        is_gang=st.sampled_from([True, True, True, False]),
        servers=st.integers(0, 2),
        chief=st.sampled_from([None, None, 0, 1]),
        seconds=st.sampled_from([10.0, 100.0, 1e4]),
    )
    def submit(self, members: int, is_gang: bool, servers: int, chief: int | None, seconds: float) -> None:
        one = job(
            f"j{len(self.jobs)}",
            self.now,
            chunks=members,
            is_gang=is_gang,
            seconds=seconds,
            servers=servers,
            server=worker(0) if servers else None,
            chief=worker(chief) if is_gang and chief is not None else None,
        )
        self.jobs[one.key] = one
        self.tell(JobSubmitted(one))

    @rule(seconds=st.sampled_from([0.0, 1.0, 10.0, 61.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.tell(Tick())

    def windows(self) -> list[tuple[str, int]]:
        return [(key, attempt) for key, state in self.planner.cluster.jobs.items() for attempt in state.runs]

    def helpers(self) -> list[tuple[str, Any]]:
        jobs = self.planner.cluster.jobs
        return [(key, server.planned) for key, state in jobs.items() for server in state.servers]

    @precondition(lambda self: self.windows() or self.helpers())
    @rule(data=st.data(), several=st.booleans(), together=st.booleans())
    def find_no_place(self, data: st.DataObject, several: bool, together: bool) -> None:
        """Report one pod or all pods of a job as unschedulable, in one or several calls, closing pods included."""
        pods = self.windows() + [(key, planned.attempt) for key, planned in self.helpers()]
        key, attempt = data.draw(st.sampled_from(sorted(pods)))
        chosen = [pod for pod in sorted(pods) if pod[0] == key] if several else [(key, attempt)]
        state = self.planner.cluster.jobs[key]
        before, counted = state.placement.failures, bool(self._waits(key, chosen))
        events = [WorkerUnschedulable(name, one, "no disk") for name, one in chosen]
        for batch in [events] if together else [[event] for event in events]:
            self.tell(*batch)
        after = state.placement.failures
        assert after <= before + 1, "the same refusal has been counted more than once"
        assert counted or after == before, "pods that are to stop have been counted"
        if after > before and (state.job.min_available > 1 or (state.job.is_gang and state.job.helper_count)):
            pause = self.planner.settings.backoff_seconds(self.backoff, before)
            assert not pause or state.held_until == self.now + pause

    def _waits(self, key: str, pods: list[tuple[str, int]]) -> list[int]:
        """Attempts among them that are not to stop."""
        state = self.planner.cluster.jobs[key]
        open_ones = {attempt for attempt, run in state.runs.items() if not run.closing}
        open_ones |= {server.planned.attempt for server in state.servers if not server.closing}
        return [attempt for _, attempt in pods if attempt in open_ones]

    @precondition(lambda self: self.windows())
    @rule(data=st.data(), all_of_it=st.booleans())
    def start(self, data: st.DataObject, all_of_it: bool) -> None:
        key, attempt = data.draw(st.sampled_from(sorted(self.windows())))
        attempts = sorted(self.planner.cluster.jobs[key].runs) if all_of_it else [attempt]
        self.tell(*(WorkerStarted(key, one, self.now) for one in attempts))

    @precondition(lambda self: self.windows())
    @rule(data=st.data())
    def land_elsewhere(self, data: st.DataObject) -> None:
        where = data.draw(st.sampled_from(sorted(self.nodes)))
        self.tell(WorkerBound(*data.draw(st.sampled_from(sorted(self.windows()))), where))

    @precondition(lambda self: self.windows())
    @rule(data=st.data(), ending=st.sampled_from(ENDINGS), all_of_it=st.booleans(), twice=st.booleans())
    def end(self, data: st.DataObject, ending: tuple[Any, int | None], all_of_it: bool, twice: bool) -> None:
        key, attempt = data.draw(st.sampled_from(sorted(self.windows())))
        attempts = sorted(self.planner.cluster.jobs[key].runs) if all_of_it else [attempt]
        state = self.planner.cluster.jobs[key]
        failures = state.failures
        events = [WorkerEnded(key, one, ending[0], self.now, None, ending[1]) for one in attempts]
        self.tell(*events, *(events if twice else ()))
        assert state.failures <= failures + len(attempts)

    @precondition(lambda self: self.helpers())
    @rule(data=st.data(), ending=st.sampled_from(ENDINGS), twice=st.booleans())
    def end_a_helper(self, data: st.DataObject, ending: tuple[Any, int | None], twice: bool) -> None:
        key, planned = data.draw(st.sampled_from(self.helpers()))
        event = helper_end(key, planned, *ending)
        self.tell(event, *([event] if twice else ()))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), permanent=st.booleans())
    def reject(self, data: st.DataObject, permanent: bool) -> None:
        self.tell(WorkerRejected(data.draw(st.sampled_from(sorted(self.jobs))), "QuotaExceeded", "quota", permanent))

    @precondition(lambda self: self.windows())
    @rule(data=st.data())
    def refuse_eviction(self, data: st.DataObject) -> None:
        key, _ = data.draw(st.sampled_from(sorted(self.windows())))
        state = self.planner.cluster.jobs[key]
        attempts = (*state.runs, *(server.planned.attempt for server in state.servers))
        self.tell(EvictionRefused(key, attempts, "budget"))

    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        self.tell(NodeRemoved(data.draw(st.sampled_from(sorted(self.nodes)))))

    @rule(data=st.data(), foreign=st.integers(0, 2))
    def change_node(self, data: st.DataObject, foreign: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        taken = Resources(gpus=foreign, pods=foreign)
        site, gpus = self.nodes[name].site, self.nodes[name].allocatable.gpus
        self.tell(NodeChanged(node(name, site, gpus, foreign=taken)))

    @invariant()
    def the_books_are_right(self) -> None:
        if not hasattr(self, "planner"):
            return
        check(self.planner.cluster)
        for key, state in self.planner.cluster.jobs.items():
            assert self.planner.plan_of(key, self.now).explanation
            assert state.held_until <= self.now + self.planner.settings.longest_backoff_seconds

    def teardown(self) -> None:
        """Check that nothing is reserved after all pods have gone."""
        if not hasattr(self, "planner"):
            return
        for one in self.nodes.values():
            self.tell(NodeChanged(one))
        for key in self.jobs:
            stopped = replace(self.planner.cluster.jobs[key].job, suspended=True)
            self.tell(JobChanged(stopped))
        for _ in range(3):
            for key, attempt in self.windows():
                self.tell(WorkerEnded(key, attempt, "Lost", self.now))
            for key, planned in self.helpers():
                self.tell(helper_end(key, planned, "Preempted", 143))
        for name, known in self.planner.cluster.nodes.items():
            assert known.reserved == Resources(), name
            assert not known.runs, name
            assert not known.closing_runs, name


def _case(name: str, examples: int) -> type[TestCase]:
    machine: Any = type(f"{name}GangMachine", (GangMachine,), {"policy": name})
    case: Any = machine.TestCase
    case.settings = settings(max_examples=examples * FUZZ, stateful_step_count=40)
    return case  # type: ignore[no-any-return]


TestChunk = _case("chunk", 80)
TestFifo = _case("fifo", 80)
TestSrsf = _case("srsf", 80)
TestGittins = _case("gittins", 40)
TestLwf = _case("lwf", 60)
