"""Control plane delays measured in a run; the same values for all jobs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from statistics import fmean, linear_regression
from types import MappingProxyType

from tranche.demo.job_timeline import JobTimeline, WorkerTimeline, all_workers
from tranche.simulation.engine.control_plane_delays import Delays


@dataclass(frozen=True, slots=True)
class Kinds:
    """Starts that are measured separately."""

    gangs: Collection[str] = ()
    """Keys of jobs whose workers start together."""
    clouds: Mapping[str, float] = field(default_factory=dict)
    """Unlimited sites with the minimum node start time in seconds."""


def measure_delays(
    timelines: Mapping[str, JobTimeline],
    save_seconds: float,
    kinds: Kinds = Kinds(),
    training_seconds: Mapping[str, float] = MappingProxyType({}),
) -> Delays:
    """Measure mean delays and their growth with concurrency, by a linear fit of the starts on free slots.

    Args:
        timelines: Timelines of all jobs.
        save_seconds: Checkpoint time of a worker, from its specification.
        kinds: Starts of gangs and at unlimited sites.
        training_seconds: Time that each worker of a job trains, by key, of the jobs for which it is known. From those
            among them that were never stopped follows the time until the end of a pod is reported.
    """
    workers = all_workers(timelines)
    single = all_workers({key: timeline for key, timeline in timelines.items() if key not in kinds.gangs})
    start, concurrent = _line(_starts(single, kinds))
    together = all_workers({key: timeline for key, timeline in timelines.items() if key in kinds.gangs})
    gang = _mean([seconds - start - concurrent * among for among, seconds in _starts(together, kinds)])
    stops = [
        worker.ended - worker.closing - save_seconds - concurrent * worker.concurrent_at_closing
        for worker in workers
        if worker.ended is not None
        and worker.closing is not None
        and _trained_before(worker, worker.closing)
        and worker.outcome == "Preempted"
    ]
    handovers = [gap for worker in workers if worker.handover for gap in _handover(worker, workers)]
    return Delays(
        start_seconds=start,
        notice_seconds=_mean(stops),
        save_seconds=save_seconds,
        release_seconds=_mean(_releases(timelines, training_seconds)),
        handover_seconds=_mean(handovers),
        concurrency_seconds=concurrent,
        gang_seconds=gang,
        node_seconds=_mean(_node_starts(workers, kinds)),
    )


@dataclass(frozen=True, slots=True)
class Turnaround:
    """Idle time of a GPU while a job waited for it."""

    freed: float
    """Time at which the last required GPU became free, in seconds of the planner's clock."""
    opened: float
    """Time at which the window was opened; before `freed` if a worker had to stop first."""
    started: float
    """Time at which the worker started to train."""
    handover: bool

    @property
    def seconds(self) -> float:
        """Total idle time in seconds."""
        return self.started - self.freed

    @property
    def planning_seconds(self) -> float:
        """Time until the window was opened."""
        return max(0.0, self.opened - self.freed)

    @property
    def starting_seconds(self) -> float:
        """Time from the opening (or from `freed`, if later) to training."""
        return self.started - max(self.opened, self.freed)


def turnarounds(timelines: Mapping[str, JobTimeline], gpus: Mapping[str, int]) -> list[Turnaround]:
    """Return the idle times before workers (of one GPU each) that did not find enough free GPUs at submission.

    A worker takes the GPU of its node that has been free for the longest time. Workers of a job whose windows opened at
    the same time wait for the last of their GPUs. An end that is reported after the next start on the same GPU counts
    as if it had been reported just before.

    Args:
        timelines: Timelines of all jobs.
        gpus: Number of GPUs of each node; workers on other nodes (unlimited sites) are ignored.
    """
    workers = [(key, worker) for key, timeline in timelines.items() for worker in timeline.workers.values()]
    trained = [(worker.started, key, worker) for key, worker in workers if worker.started is not None]
    trained = [entry for entry in trained if entry[2].node in gpus]
    ended = [(worker.ended, worker.node) for _, _, worker in trained if worker.ended is not None]
    free = {node: [0.0] * count for node, count in gpus.items()}
    late = dict.fromkeys(gpus, 0)
    ends = iter(sorted(ended))
    end = next(ends, None)
    taken: list[tuple[str, float, float, WorkerTimeline]] = []
    for started, key, worker in sorted(trained, key=lambda entry: entry[:2]):
        while end is not None and end[0] <= started:
            if late[end[1]]:
                late[end[1]] -= 1
            else:
                heappush(free[end[1]], end[0])
            end = next(ends, None)
        late[worker.node] += not free[worker.node]
        taken.append((key, worker.opened, heappop(free[worker.node]) if free[worker.node] else started, worker))
    results = []
    for (key, opened), group in groupby(sorted(taken, key=lambda entry: entry[:2]), key=lambda entry: entry[:2]):
        together = list(group)
        freed = max(since for _, _, since, _ in together)
        if freed > timelines[key].submitted:
            results += [
                Turnaround(freed, opened, worker.started, worker.handover)
                for *_, worker in together
                if worker.started is not None
            ]
    return results


def start_errors(timelines: Mapping[str, JobTimeline], delays: Delays, kinds: Kinds = Kinds()) -> list[float]:
    """Return the difference of each start on free slots from the measured delays, in seconds."""
    errors = []
    for key, timeline in timelines.items():
        usual = delays.start_seconds + (delays.gang_seconds if key in kinds.gangs else 0.0)
        points = _starts(list(timeline.workers.values()), kinds)
        errors += [seconds - usual - delays.concurrency_seconds * concurrent for concurrent, seconds in points]
    return errors


def _starts(workers: Sequence[WorkerTimeline], kinds: Kinds) -> list[tuple[float, float]]:
    """Return the concurrency and the seconds of each start on free slots of an existing node."""
    return [
        (float(worker.concurrent), worker.started - worker.opened)
        for worker in workers
        if worker.started is not None and not worker.handover and worker.node not in kinds.clouds
    ]


def _node_starts(workers: Sequence[WorkerTimeline], kinds: Kinds) -> list[float]:
    """Return the seconds of each start that waited for a node, recognized by its duration."""
    times = [
        (worker.started - worker.opened, kinds.clouds[worker.node])
        for worker in workers
        if worker.started and worker.node in kinds.clouds
    ]
    return [seconds for seconds, node in times if seconds >= node]


def _releases(timelines: Mapping[str, JobTimeline], training_seconds: Mapping[str, float]) -> list[float]:
    """Return the seconds from the end of each worker's training to the end of its pod, of jobs without a stop."""
    return [
        worker.ended - worker.started - seconds
        for key, seconds in training_seconds.items()
        if key in timelines and all(worker.outcome == "Succeeded" for worker in timelines[key].workers.values())
        for worker in timelines[key].workers.values()
        if worker.ended is not None and worker.started is not None
    ]


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return intercept and slope of a least-squares line; the mean and 0 if either would be negative."""
    if len({x for x, _ in points}) > 1:
        slope, start = linear_regression(*zip(*points, strict=True))
        if slope > 0.0 and start >= 0.0:
            return start, slope
    return _mean([y for _, y in points]), 0.0


def report_seconds(timelines: Mapping[str, JobTimeline], completed: Mapping[str, float]) -> float:
    """Return the mean time from the end of a job's last worker to its completion time, on the same clock."""
    return _mean([at - timelines[key].ended for key, at in completed.items() if key in timelines])


def _trained_before(worker: WorkerTimeline, at: float) -> bool:
    return worker.started is not None and worker.started < at


def _handover(worker: WorkerTimeline, workers: Sequence[WorkerTimeline]) -> list[float]:
    """Return the seconds from the last end of a stopped worker on the node to the start; empty if there was none."""
    if worker.started is None:
        return []
    ends = [
        other.ended
        for other in workers
        if other.node == worker.node and other.closing is not None and other.ended is not None
    ]
    before = [end for end in ends if worker.opened <= end <= worker.started]
    return [worker.started - max(before)] if before else []


def _mean(values: Sequence[float]) -> float:
    return max(0.0, fmean(values)) if values else 0.0
