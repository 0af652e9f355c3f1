"""Queue policies on a pool of GPUs against naive simulators that go through all jobs at every event."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tranche.simulation.cluster_spec import pool
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation.job_log import TraceRow
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.workload.from_log import gang_jobs

MAX_GPUS = 6


@dataclass
class NaiveJob:
    """Submission, GPUs and rest; whole numbers."""

    submitted: int
    gpus: int
    rest: int
    running: bool = False


def rest(one: NaiveJob) -> int:
    return one.rest


def service(one: NaiveJob) -> int:
    return one.rest * one.gpus


def arrival(one: NaiveJob) -> int:
    return one.submitted


KEYS: dict[str, Callable[[NaiveJob], int]] = {"srsf": service, "srtf": rest, "sjf": rest}


def naive_completions(jobs: list[NaiveJob], gpus: int, policy: str) -> list[int]:
    """Return the completion of each job: at every event all jobs are sorted, and the pool is filled from the front."""
    key = KEYS.get(policy, arrival)
    ends = [-1] * len(jobs)
    now = min(one.submitted for one in jobs)
    while -1 in ends:
        present = [i for i, one in enumerate(jobs) if one.submitted <= now and ends[i] < 0]
        if policy in ("srsf", "srtf"):
            for i in present:
                jobs[i].running = False
        free = gpus - sum(jobs[i].gpus for i in present if jobs[i].running)
        waiting = [i for i in present if not jobs[i].running]
        for i in sorted(waiting, key=lambda i: (key(jobs[i]), jobs[i].submitted, i)):
            if jobs[i].gpus <= free:
                jobs[i].running = True
                free -= jobs[i].gpus
            elif policy == "fifo":
                break
        steps = [jobs[i].rest for i in present if jobs[i].running]
        steps += [one.submitted - now for one in jobs if one.submitted > now]
        step = min(steps)
        now += step
        for i in present:
            if jobs[i].running:
                jobs[i].rest -= step
                if not jobs[i].rest:
                    jobs[i].running, ends[i] = False, now
    return ends


def simulated(jobs: list[NaiveJob], gpus: int, policy: str) -> SimulationResult:
    cluster = pool(gpus)
    rows = [TraceRow(str(i), float(one.submitted), one.gpus, float(one.rest)) for i, one in enumerate(jobs)]
    return run(Scenario(tuple(gang_jobs(rows, cluster.nodes)), cluster.nodes, cluster.sites, policy, record=True))


def most_in_use(result: SimulationResult) -> int:
    """GPUs held at once; what ends at an instant makes room for what begins at it."""
    changes = [(one.ended, -one.gpus) for one in result.occupations]
    changes += [(one.opened, one.gpus) for one in result.occupations]
    most = held = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    assert not held
    return most


JOB = st.tuples(st.integers(0, 12), st.integers(1, MAX_GPUS), st.integers(1, 8))
"""Few values, so that many jobs tie in submission, rest and service."""


@given(
    given_jobs=st.lists(JOB, min_size=1, max_size=14),
    gpus=st.integers(1, MAX_GPUS),
    policy=st.sampled_from(["srsf", "srtf", "sjf", "fifo", "fifo-skip"]),
)
@example([(0, 4, 3), (0, 3, 4), (0, 1, 12), (3, 2, 6), (3, 6, 2)], 6, "srsf")
@settings(max_examples=400)
def test_every_job_completes_when_the_naive_simulator_says(
    given_jobs: list[tuple[int, int, int]], gpus: int, policy: str
) -> None:
    ordered = sorted(given_jobs, key=lambda one: one[0])
    jobs = [NaiveJob(submitted, min(wide, gpus), rest) for submitted, wide, rest in ordered]
    result = simulated(jobs, gpus, policy)
    completed = {int(one.key.removeprefix("default/")): one.completed for one in result.jobs}
    assert len(result.jobs) == len(completed) == len(jobs)
    assert not result.unfinished
    assert most_in_use(result) <= gpus
    assert all(0 <= sample.busy_gpus <= gpus for sample in result.samples)
    assert [completed[i] for i in range(len(jobs))] == naive_completions(jobs, gpus, policy)


LIMITS = (12, 24)
"""Limits of queues in GPU-seconds; each number of GPUs in `EVEN` reaches them at a whole second."""
EVEN = (1, 2, 3, 4, 6)


@dataclass(eq=False)
class ListedJob:
    """Job in the queues of the naive simulator; whole numbers."""

    number: int
    gpus: int
    rest: int
    entered: int
    """When it came to the end of its list."""
    run: int = 0
    queue: int = 0
    running: bool = False


def listed_completions(rows: list[tuple[int, int, int]], gpus: int) -> list[int]:
    """Return completions under the lists of Tiresias's simulator: in each second GPUs are given from the front on.

    A job that falls is appended to the next list; after each event the jobs that wait go to the ends of their lists.
    [I] Jobs of one list that start, or stop, at the same time are in order of submission.
    """
    lists: list[list[ListedJob]] = [[] for _ in range(len(LIMITS) + 1)]
    ends, now = [-1] * len(rows), -1
    while -1 in ends:
        now += 1
        for one in (one for each in lists for one in each if one.running):
            one.rest, one.run = one.rest - 1, one.run + 1
        for one in sorted((one for each in lists for one in each if one.running), key=lambda one: one.number):
            if not one.rest:
                ends[one.number] = now
                lists[one.queue].remove(one)
            elif one.queue < len(LIMITS) and one.run * one.gpus >= LIMITS[one.queue]:
                lists[one.queue].remove(one)
                one.queue, one.entered = one.queue + 1, now
                lists[one.queue].append(one)
        lists[0] += [ListedJob(i, wide, rest, now) for i, (at, wide, rest) in enumerate(rows) if at == now]
        lists = given_out(lists, gpus, now)
    return ends


def given_out(lists: list[list[ListedJob]], gpus: int, now: int) -> list[list[ListedJob]]:
    """Start and stop jobs from the front of the lists on, and return the lists in their new order."""
    ordered = []
    for each in lists:
        kept: list[ListedJob] = []
        started: list[ListedJob] = []
        stopped: list[ListedJob] = []
        waiting: list[ListedJob] = []
        for one in each:
            ran, one.running = one.running, one.gpus <= gpus
            gpus -= one.gpus if one.running else 0
            if one.running:
                (kept if ran and one.entered < now else started).append(one)
            else:
                (stopped if ran and one.entered < now else waiting).append(one)
        for group in (started, stopped):
            group.sort(key=lambda one: one.number)
        ordered.append([*kept, *started, *stopped, *waiting])
    return ordered


@given(
    given_jobs=st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(EVEN), st.integers(1, 30)), min_size=1, max_size=10
    )
)
@settings(max_examples=200)
def test_tiresias_follows_the_lists_of_its_simulator(given_jobs: list[tuple[int, int, int]]) -> None:
    rows = sorted(given_jobs, key=lambda one: one[0])
    jobs = [NaiveJob(*row) for row in rows]
    result = simulated(jobs, MAX_GPUS, "tiresias:order=simulator:limits=" + "/".join(map(str, LIMITS)))
    completed = {int(one.key.removeprefix("default/")): one.completed for one in result.jobs}
    found = [completed[i] for i in range(len(rows))]
    assert found == [pytest.approx(end, abs=1e-3) for end in listed_completions(rows, MAX_GPUS)]
