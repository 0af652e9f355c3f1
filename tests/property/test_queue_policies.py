"""Queue policies on a pool of GPUs against a naive simulator that sorts everybody at every event."""

from collections.abc import Callable
from dataclasses import dataclass

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
