"""Random clusters with several GPU kinds: every job completes, and a job alone no later than without kinds."""

from heapq import heappop, heappush
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.builders import job, node, of_type, planner
from tranche.model import Job, Node
from tranche.model.gpu_kind import GpuKinds
from tranche.planner import JobSubmitted, OpenWindow, Planner, Tick, WorkerEnded, WorkerStarted

LABEL = "nvidia.com/gpu.product"
SPEEDS = {"fast": 1.0, "half": 0.5, "slow": 0.1}
NODES = st.lists(st.tuples(st.sampled_from(sorted(SPEEDS)), st.integers(1, 3)), min_size=2, max_size=5)
POLICIES = st.sampled_from(["chunk", "fifo", "srsf", "las", "first-fit"])
MOST_EVENTS = 3000


def cluster(kinds: list[tuple[str, int]]) -> list[Node]:
    return [node(f"n{i}", gpus=gpus, labels={LABEL: kind}, speed=SPEEDS[kind]) for i, (kind, gpus) in enumerate(kinds)]


def played(made: Planner, jobs: list[Job]) -> dict[str, float]:
    """Run the jobs, each window as long as expected, and return when each job completed."""
    events: list[tuple[float, int, Any]] = []
    event: Any
    count, done = 0, dict[str, float]()
    for one in jobs:
        count += 1
        heappush(events, (one.submitted, count, JobSubmitted(one)))
    while events or any(not state.finished for state in made.cluster.jobs.values()):
        wake = made.next_wakeup()
        if wake is not None and (not events or wake < events[0][0]):
            now, event = wake, Tick()
        else:
            assert events, "jobs wait, and nothing will happen"
            now, _, event = heappop(events)
        if isinstance(event, WorkerEnded):
            run = made.cluster.jobs[event.job].runs.get(event.attempt)
            event = event._replace(outcome="Preempted" if run is not None and run.closing else "Succeeded", at=now)
            if run is not None and run.closing:
                event = event._replace(progress={})
        opened = of_type(OpenWindow, made.handle(event, now))
        while opened:
            window = opened.pop(0)
            state, attempt = made.cluster.jobs[window.job], window.window.attempt
            opened += of_type(OpenWindow, made.handle(WorkerStarted(window.job, attempt, now), now))
            run, count = state.runs[attempt], count + 1
            at = now + state.left_of(run) * run.batch_seconds
            heappush(events, (at, count, WorkerEnded(window.job, attempt, "Succeeded", at)))
        for key, state in made.cluster.jobs.items():
            if state.finished:
                done.setdefault(key, now)
        assert count < MOST_EVENTS
    return done


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(POLICIES, NODES, st.integers(1, 12))
def test_job_alone_completes_no_later_than_on_any_free_gpu(
    policy: str, kinds: list[tuple[str, int]], chunks: int
) -> None:
    one = job("j", chunks=chunks)
    greedy = played(planner(policy, cluster(kinds)), [one])
    weighed = played(planner(policy, cluster(kinds), gpu_kinds=GpuKinds(speeds=SPEEDS)), [one])
    assert weighed["default/j"] <= greedy["default/j"] + 1e-6


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(POLICIES, NODES, st.lists(st.tuples(st.integers(1, 6), st.floats(1, 500)), min_size=1, max_size=8))
def test_every_job_completes_on_gpus_of_several_kinds(
    policy: str, kinds: list[tuple[str, int]], asked: list[tuple[int, float]]
) -> None:
    jobs = [job(f"j{i}", 13.0 * i, chunks=chunks, seconds=seconds) for i, (chunks, seconds) in enumerate(asked)]
    done = played(planner(policy, cluster(kinds), gpu_kinds=GpuKinds(speeds=SPEEDS)), jobs)
    assert done.keys() == {one.key for one in jobs}
