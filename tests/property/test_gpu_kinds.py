"""Random clusters with several GPU kinds: every job completes, and a job alone no later than without kinds."""

from heapq import heappop, heappush
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.builders import job, node, planner
from tranche.model import Job, Node
from tranche.model.gpu_kind import GpuKinds
from tranche.planner import CloseWindow, JobSubmitted, OpenWindow, Planner, Tick, WorkerEnded, WorkerStarted

LABEL = "nvidia.com/gpu.product"
SPEEDS = {"fast": 1.0, "half": 0.5, "slow": 0.1}
NODES = st.lists(st.tuples(st.sampled_from(sorted(SPEEDS)), st.integers(1, 3)), min_size=2, max_size=5)
POLICIES = st.sampled_from(["chunk", "fifo", "srsf", "las", "first-fit"])
MAX_EVENTS = 3000


def cluster(kinds: list[tuple[str, int]]) -> list[Node]:
    return [node(f"n{i}", gpus=gpus, labels={LABEL: kind}, speed=SPEEDS[kind]) for i, (kind, gpus) in enumerate(kinds)]


def saved(made: Planner, closed: CloseWindow, now: float) -> WorkerEnded:
    """Return the end of a worker that saves what it has trained and stops."""
    state, attempt, progress = made.cluster.jobs[closed.job], closed.window.attempt, {}
    run = state.runs[attempt]
    trained = (now - run.started) / run.batch_seconds if run.started is not None else 0.0
    for chunk in run.window.chunks:
        left = state.remaining_batches(chunk)
        more = min(left, trained)
        trained -= more
        progress[chunk] = state.job.batches_per_chunk_total - left + more
    return WorkerEnded(closed.job, attempt, "Preempted", now, progress)


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
        if isinstance(event, WorkerEnded) and event.attempt not in made.cluster.jobs[event.job].runs:
            continue  # it was stopped earlier
        instructions = list(made.handle(event, now))
        while instructions:
            told, count = instructions.pop(0), count + 1
            if isinstance(told, CloseWindow):
                heappush(events, (now, count, saved(made, told, now)))
            elif isinstance(told, OpenWindow):
                state, attempt = made.cluster.jobs[told.job], told.window.attempt
                instructions += made.handle(WorkerStarted(told.job, attempt, now), now)
                run = state.runs[attempt]
                at = now + state.left_of(run) * run.batch_seconds
                heappush(events, (at, count, WorkerEnded(told.job, attempt, "Succeeded", at)))
        for key, state in made.cluster.jobs.items():
            if state.finished:
                done.setdefault(key, now)
        assert count < MAX_EVENTS
    return done


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(POLICIES, NODES, st.integers(1, 12))
def test_job_alone_completes_no_later_than_on_any_free_gpu(
    policy: str, kinds: list[tuple[str, int]], chunks: int
) -> None:
    one = job("j", chunks=chunks)
    greedy = played(planner(policy, cluster(kinds)), [one])
    weighed = played(planner(policy, cluster(kinds), gpu_kinds=GpuKinds(speeds=SPEEDS)), [one])
    assert weighed["default/j"] <= greedy["default/j"] + 1e-6


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(POLICIES, NODES, st.lists(st.tuples(st.integers(1, 6), st.floats(1, 500)), min_size=1, max_size=8))
def test_every_job_completes_on_gpus_of_several_kinds(
    policy: str, kinds: list[tuple[str, int]], asked: list[tuple[int, float]]
) -> None:
    jobs = [job(f"j{i}", 13.0 * i, chunks=chunks, seconds=seconds) for i, (chunks, seconds) in enumerate(asked)]
    done = played(planner(policy, cluster(kinds), gpu_kinds=GpuKinds(speeds=SPEEDS)), jobs)
    assert done.keys() == {one.key for one in jobs}
