"""What the control plane of this run took its time for: a few figures, the same for all jobs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from statistics import fmean, linear_regression

from tranche.demo.job_timeline import Course, Stay, stays_of
from tranche.simulation.engine.control_plane_delays import Delays


@dataclass(frozen=True, slots=True)
class Kinds:
    """Starts that are measured apart from the others."""

    gangs: Collection[str] = ()
    """Keys of jobs whose workers start together."""
    clouds: Mapping[str, float] = field(default_factory=dict)
    """Unlimited sites, and the seconds that a node takes there at least."""


def measure_delays(courses: Mapping[str, Course], save_seconds: float, kinds: Kinds = Kinds()) -> Delays:
    """Mean delays of a run, and how they grow with the crowd: by a straight line through the starts on free slots.

    Args:
        courses: Of all jobs.
        save_seconds: What a worker takes for its checkpoint, by its specification.
        kinds: Starts of gangs, and those at unlimited sites.
    """
    stays = stays_of(courses)
    single = stays_of({key: course for key, course in courses.items() if key not in kinds.gangs})
    start, crowd = _line(_starts(single, kinds))
    together = stays_of({key: course for key, course in courses.items() if key in kinds.gangs})
    gang = _mean([seconds - start - crowd * among for among, seconds in _starts(together, kinds)])
    stops = [
        s.ended - s.closing - save_seconds - crowd * s.closing_crowd
        for s in stays
        if s.ended is not None and s.closing is not None and _trained_before(s, s.closing) and s.outcome == "Preempted"
    ]
    handovers = [gap for stay in stays if stay.handover for gap in _handover(stay, stays)]
    return Delays(start, _mean(stops), save_seconds, _mean(handovers), crowd, gang, _mean(_node_starts(stays, kinds)))


@dataclass(frozen=True, slots=True)
class Turnaround:
    """How long a GPU that somebody waited for was idle."""

    freed: float
    """When the last of all GPUs that the start needed became free, by the planner's clock in seconds."""
    opened: float
    """When the plan gave it to the one who waited; before `freed` if a worker had to leave first."""
    started: float
    """When that one trained."""
    handover: bool

    @property
    def seconds(self) -> float:
        """In all."""
        return self.started - self.freed

    @property
    def planning_seconds(self) -> float:
        """Until the plan said who is next."""
        return max(0.0, self.opened - self.freed)

    @property
    def starting_seconds(self) -> float:
        """From then, or from when it was free if that was later, to training."""
        return self.started - max(self.opened, self.freed)


def turnarounds(courses: Mapping[str, Course], gpus: Mapping[str, int]) -> list[Turnaround]:
    """One for each worker of one GPU that started and had not found enough of them free when its job was submitted.

    A worker takes the GPU of its node that is free the longest, so that what counts is since when there was room for
    it; workers of a job whose windows opened together wait for the last of them. An end that was told after the start
    of the next one on its GPU counts as if it had come just before.

    Args:
        courses: Of all jobs.
        gpus: Of each node; workers elsewhere, at unlimited sites, wait for nobody.
    """
    stays = [(key, stay) for key, course in courses.items() for stay in course.stays.values()]
    trained = [(stay.started, key, stay) for key, stay in stays if stay.started is not None]
    trained = [one for one in trained if one[2].node in gpus]
    ended = [(stay.ended, stay.node) for _, _, stay in trained if stay.ended is not None]
    free = {node: [0.0] * count for node, count in gpus.items()}
    late = dict.fromkeys(gpus, 0)
    ends = iter(sorted(ended))
    end = next(ends, None)
    taken: list[tuple[str, float, float, Stay]] = []
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


def start_errors(courses: Mapping[str, Course], delays: Delays, kinds: Kinds = Kinds()) -> list[float]:
    """How much longer each start on free slots took than the delays say, in seconds; negative where less."""
    errors = []
    for key, course in courses.items():
        usual = delays.start_seconds + (delays.gang_seconds if key in kinds.gangs else 0.0)
        points = _starts(list(course.stays.values()), kinds)
        errors += [seconds - usual - delays.crowd_seconds * crowd for crowd, seconds in points]
    return errors


def _starts(stays: Sequence[Stay], kinds: Kinds) -> list[tuple[float, float]]:
    """(crowd, seconds) of each start on free slots of a node that was there."""
    return [
        (float(s.crowd), s.started - s.opened)
        for s in stays
        if s.started is not None and not s.handover and s.node not in kinds.clouds
    ]


def _node_starts(stays: Sequence[Stay], kinds: Kinds) -> list[float]:
    """Seconds of each start that waited for a node: no other takes as long as a node does."""
    times = [(s.started - s.opened, kinds.clouds[s.node]) for s in stays if s.started and s.node in kinds.clouds]
    return [seconds for seconds, node in times if seconds >= node]


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Value at 0 and slope of the line of least squares; level where it would fall or begin below 0."""
    if len({x for x, _ in points}) > 1:
        slope, start = linear_regression(*zip(*points, strict=True))
        if slope > 0.0 and start >= 0.0:
            return start, slope
    return _mean([y for _, y in points]), 0.0


def report_seconds(courses: Mapping[str, Course], completed: Mapping[str, float]) -> float:
    """Mean time from the end of a job's last worker to its completion time, both on one machine's clock."""
    return _mean([at - courses[key].ended for key, at in completed.items() if key in courses])


def _trained_before(stay: Stay, at: float) -> bool:
    return stay.started is not None and stay.started < at


def _handover(stay: Stay, stays: Sequence[Stay]) -> list[float]:
    """From the last end of a stopped worker on the node, before the start, to the start."""
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
