"""Control plane delays measured in a run; the same values for all jobs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from statistics import fmean, linear_regression
from types import MappingProxyType

from tranche.demo.job_timeline import JobTimeline, WorkerTimeline, stays_of
from tranche.simulation.engine.control_plane_delays import Delays


@dataclass(frozen=True, slots=True)
class Kinds:
    """Starts that are measured separately."""

    gangs: Collection[str] = ()
    """Keys of jobs whose workers start together."""
    clouds: Mapping[str, float] = field(default_factory=dict)
    """Unlimited sites with the minimum node start time in seconds."""


def measure_delays(
    courses: Mapping[str, JobTimeline],
    save_seconds: float,
    kinds: Kinds = Kinds(),
    training_seconds: Mapping[str, float] = MappingProxyType({}),
) -> Delays:
    """Measure mean delays and their growth with concurrency, by a linear fit of the starts on free slots.

    Args:
        courses: Timelines of all jobs.
        save_seconds: Checkpoint time of a worker, from its specification.
        kinds: Starts of gangs and at unlimited sites.
        training_seconds: Time that each worker of a job trains, by key, of the jobs for which it is known. From those
            among them that were never stopped follows the time until the end of a pod is reported.
    """
    stays = stays_of(courses)
    single = stays_of({key: course for key, course in courses.items() if key not in kinds.gangs})
    start, concurrent = _line(_starts(single, kinds))
    together = stays_of({key: course for key, course in courses.items() if key in kinds.gangs})
    gang = _mean([seconds - start - concurrent * among for among, seconds in _starts(together, kinds)])
    stops = [
        s.ended - s.closing - save_seconds - concurrent * s.concurrent_at_closing
        for s in stays
        if s.ended is not None and s.closing is not None and _trained_before(s, s.closing) and s.outcome == "Preempted"
    ]
    handovers = [gap for stay in stays if stay.handover for gap in _handover(stay, stays)]
    return Delays(
        start_seconds=start,
        notice_seconds=_mean(stops),
        save_seconds=save_seconds,
        release_seconds=_mean(_releases(courses, training_seconds)),
        handover_seconds=_mean(handovers),
        concurrency_seconds=concurrent,
        gang_seconds=gang,
        node_seconds=_mean(_node_starts(stays, kinds)),
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


def turnarounds(courses: Mapping[str, JobTimeline], gpus: Mapping[str, int]) -> list[Turnaround]:
    """Return the idle times before workers (of one GPU each) that did not find enough free GPUs at submission.

    A worker takes the GPU of its node that has been free for the longest time. Workers of a job whose windows opened at
    the same time wait for the last of their GPUs. An end that is reported after the next start on the same GPU counts
    as if it had been reported just before.

    Args:
        courses: Timelines of all jobs.
        gpus: Number of GPUs of each node; workers on other nodes (unlimited sites) are ignored.
    """
    stays = [(key, stay) for key, course in courses.items() for stay in course.stays.values()]
    trained = [(stay.started, key, stay) for key, stay in stays if stay.started is not None]
    trained = [one for one in trained if one[2].node in gpus]
    ended = [(stay.ended, stay.node) for _, _, stay in trained if stay.ended is not None]
    free = {node: [0.0] * count for node, count in gpus.items()}
    late = dict.fromkeys(gpus, 0)
    ends = iter(sorted(ended))
    end = next(ends, None)
    taken: list[tuple[str, float, float, WorkerTimeline]] = []
    for started, key, stay in sorted(trained, key=lambda one: one[:2]):
        while end is not None and end[0] <= started:
            if late[end[1]]:
                late[end[1]] -= 1
            else:
                heappush(free[end[1]], end[0])
            end = next(ends, None)
        late[stay.node] += not free[stay.node]
        taken.append((key, stay.opened, heappop(free[stay.node]) if free[stay.node] else started, stay))
    found = []
    for (key, opened), group in groupby(sorted(taken, key=lambda one: one[:2]), key=lambda one: one[:2]):
        together = list(group)
        freed = max(since for _, _, since, _ in together)
        if freed > courses[key].submitted:
            found += [Turnaround(freed, opened, s.started, s.handover) for *_, s in together if s.started is not None]
    return found


def start_errors(courses: Mapping[str, JobTimeline], delays: Delays, kinds: Kinds = Kinds()) -> list[float]:
    """Return the difference of each start on free slots from the measured delays, in seconds."""
    errors = []
    for key, course in courses.items():
        usual = delays.start_seconds + (delays.gang_seconds if key in kinds.gangs else 0.0)
        points = _starts(list(course.stays.values()), kinds)
        errors += [seconds - usual - delays.concurrency_seconds * concurrent for concurrent, seconds in points]
    return errors


def _starts(stays: Sequence[WorkerTimeline], kinds: Kinds) -> list[tuple[float, float]]:
    """(concurrency, seconds) of each start on free slots of an existing node."""
    return [
        (float(s.concurrent), s.started - s.opened)
        for s in stays
        if s.started is not None and not s.handover and s.node not in kinds.clouds
    ]


def _node_starts(stays: Sequence[WorkerTimeline], kinds: Kinds) -> list[float]:
    """Seconds of each start that waited for a node, recognized by its duration."""
    times = [(s.started - s.opened, kinds.clouds[s.node]) for s in stays if s.started and s.node in kinds.clouds]
    return [seconds for seconds, node in times if seconds >= node]


def _releases(courses: Mapping[str, JobTimeline], training_seconds: Mapping[str, float]) -> list[float]:
    """Seconds from the end of the training of each worker to the end of its pod, of jobs without a stop."""
    return [
        s.ended - s.started - seconds
        for key, seconds in training_seconds.items()
        if key in courses and all(s.outcome == "Succeeded" for s in courses[key].stays.values())
        for s in courses[key].stays.values()
        if s.ended is not None and s.started is not None
    ]


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope of a least-squares line; constant if either would be negative."""
    if len({x for x, _ in points}) > 1:
        slope, start = linear_regression(*zip(*points, strict=True))
        if slope > 0.0 and start >= 0.0:
            return start, slope
    return _mean([y for _, y in points]), 0.0


def report_seconds(courses: Mapping[str, JobTimeline], completed: Mapping[str, float]) -> float:
    """Return the mean time from the end of a job's last worker to its completion time, on the same clock."""
    return _mean([at - courses[key].ended for key, at in completed.items() if key in courses])


def _trained_before(stay: WorkerTimeline, at: float) -> bool:
    return stay.started is not None and stay.started < at


def _handover(stay: WorkerTimeline, stays: Sequence[WorkerTimeline]) -> list[float]:
    """Time from the last end of a stopped worker on the node to the start."""
    if stay.started is None:
        return []
    ends = [
        other.ended
        for other in stays
        if other.node == stay.node and other.closing is not None and other.ended is not None
    ]
    before = [end for end in ends if stay.opened <= end <= stay.started]
    return [stay.started - max(before)] if before else []


def _mean(values: Sequence[float]) -> float:
    return max(0.0, fmean(values)) if values else 0.0
