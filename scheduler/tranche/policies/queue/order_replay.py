"""Replay of completed jobs in a model of the queue: the average JCT that each order would have given them.

Source: ours [I]. The model is one pool of GPUs. A job holds all its GPUs or none. When a job arrives or ends, or a rank
changes, waiting jobs start in order of rank if they fit, and a preemptive order stops workers of jobs that rank behind,
the last first. As in the planner, the work left of a job that runs is its expected size less the time that it has
trained, and a stopped job has the same share left of its expected size as of its true one.

There is a heap of waiting jobs for each number of GPUs, so a decision costs O(log jobs) for each of these numbers, and
O(running jobs) if it preempts.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from types import MappingProxyType

from tranche.policies.base import PooledPolicy
from tranche.policies.queue.fifo_skip import FifoSkip
from tranche.policies.queue.las import Las
from tranche.policies.queue.sjf import Sjf
from tranche.policies.queue.srsf import Srsf
from tranche.policies.queue.srtf import Srtf
from tranche.state.job import MOMENT_SECONDS
from tranche.state.remaining_work import TIE_DIGITS
from tranche.state.tenant_usage import CompletedJob

LAS = Las()
ORDERS: Mapping[str, PooledPolicy] = MappingProxyType(
    {policy.name: policy for policy in (FifoSkip(), LAS, Sjf(), Srsf(), Srtf())}
)
"""Policies with an order that can be replayed; their traits differ in preemption alone."""
RANKS: Mapping[str, Callable[[int, float, float], float]] = MappingProxyType(
    {
        "fifo-skip": lambda gpus, trained, left: 0.0,
        "las": lambda gpus, trained, left: float(LAS.level_at(gpus * trained)),
        "sjf": lambda gpus, trained, left: left,
        "srsf": lambda gpus, trained, left: gpus * left,
        "srtf": lambda gpus, trained, left: left,
    }
)
"""Rank by GPUs, seconds trained, and expected seconds left."""
Place = tuple[float, int]
"""Rank, and number in order of submission."""


def average_jct_seconds(completed: Iterable[CompletedJob], gpus: int, order: str) -> float:
    """Return the average JCT of the jobs on a pool of GPUs under one of the orders; 0 if none of them fits."""
    jobs = sorted((job for job in completed if job.gpus <= gpus and job.gpu_seconds > 0), key=lambda job: job.submitted)
    return OrderReplay(jobs, gpus, order).run() / len(jobs) if jobs else 0.0


@dataclass(slots=True, eq=False)
class OrderReplay:
    """Jobs on a pool of GPUs."""

    jobs: Sequence[CompletedJob]
    """By submission; each fits."""
    free: int
    """Free GPUs."""
    order: str
    now: float = 0.0
    _trained: list[float] = field(init=False)
    """Seconds that each job had trained when it last stopped."""
    _left: list[float] = field(init=False)
    """Expected seconds left then."""
    _since: list[float] = field(init=False)
    """Time from which each job trains."""
    _starts: list[int] = field(init=False)
    _running: set[int] = field(default_factory=set)
    _waiting: dict[int, list[Place]] = field(default_factory=dict)
    """Heaps of waiting jobs by number of GPUs."""
    _events: list[tuple[float, bool, int, int]] = field(default_factory=list)
    """Time, whether the job ends then (else its level changes), job, and its number of starts."""

    def __post_init__(self) -> None:
        count = len(self.jobs)
        self._trained, self._since, self._starts = [0.0] * count, [0.0] * count, [0] * count
        self._left = [round(job.nominal_gpu_seconds / job.gpus, TIE_DIGITS) for job in self.jobs]

    def run(self) -> float:
        """Return the sum of all JCTs, in seconds."""
        total, arrived = 0.0, 0
        while arrived < len(self.jobs) or self._events:
            arrival = self.jobs[arrived].submitted if arrived < len(self.jobs) else inf
            self.now = min(arrival, self._events[0][0] if self._events else inf)
            changed: set[int] = set()
            while self._events and self._events[0][0] <= self.now:
                _, ends, number, starts = heappop(self._events)
                if self._starts[number] == starts:
                    changed.update(self._waiting)
                    if ends:
                        self._release(number)
                        total += self.now - self.jobs[number].submitted
                    else:
                        self._await_level(number)
            while arrived < len(self.jobs) and self.jobs[arrived].submitted <= self.now:
                self._wait(arrived)
                changed.add(self.jobs[arrived].gpus)
                arrived += 1
            self._serve(changed)
        return total

    def _serve(self, changed: Iterable[int]) -> None:
        """Start waiting jobs of these numbers of GPUs in order of rank, and others if a preemption leaves room."""
        heads = [(self._waiting[gpus][0], gpus) for gpus in changed if self._waiting.get(gpus)]
        heapify(heads)
        ranked: list[Place] | None = None
        while heads:
            place, gpus = heappop(heads)
            if self.free < gpus:
                if not (self._running and ORDERS[self.order].traits.preemptive):
                    continue
                if ranked is None:
                    ranked = sorted((self._rank(number), number) for number in self._running)
                stopped = self._preempt(place, gpus, ranked)
                if not stopped:
                    continue
                heads = [
                    (heap[0], size)
                    for size, heap in self._waiting.items()
                    if heap and size != gpus and (heap[0] > place or heap[0][1] in stopped)
                ]
                heapify(heads)
            heap = self._waiting[gpus]
            if heap[0] == place:
                heappop(heap)
            else:  # a job that was stopped for it is the head now
                heap.remove(place)
                heapify(heap)
            self._start(place[1])
            if ranked is not None:
                insort(ranked, place)
            if heap:
                heappush(heads, (heap[0], gpus))

    def _preempt(self, place: Place, gpus: int, ranked: list[Place]) -> set[int]:
        """Stop the last running jobs that rank behind the place, if they make room for a job of `gpus` GPUs.

        A stopped job may rank before that place: what it has trained counts by its share of the true size then.

        Returns:
            The stopped jobs.
        """
        room, stopped = self.free, 0
        for behind in reversed(ranked):
            if room >= gpus or behind <= place:
                break
            room += self.jobs[behind[1]].gpus
            stopped += 1
        if room < gpus:
            return set()
        last = {number for _, number in ranked[len(ranked) - stopped :]}
        for number in sorted(last):
            self._stop(number)
        del ranked[len(ranked) - stopped :]
        return last

    def _rank(self, number: int) -> float:
        """Return the present rank of a job."""
        trained = max(0.0, self.now - self._since[number]) if number in self._running else 0.0
        seconds_left = max(0.0, self._left[number] - trained)
        return RANKS[self.order](self.jobs[number].gpus, self._trained[number] + trained, seconds_left)

    def _wait(self, number: int) -> None:
        heappush(self._waiting.setdefault(self.jobs[number].gpus, []), (self._rank(number), number))

    def _start(self, number: int) -> None:
        job = self.jobs[number]
        self.free -= job.gpus
        self._running.add(number)
        self._starts[number] += 1
        self._since[number] = self.now + job.restart_seconds
        end = self._since[number] + job.gpu_seconds / job.gpus - self._trained[number]
        heappush(self._events, (end, True, number, self._starts[number]))
        self._await_level(number)

    def _await_level(self, number: int) -> None:
        """Note when a running job gets a worse rank, if the order is by attained service."""
        if self.order != LAS.name:
            return
        job = self.jobs[number]
        trained = self._trained[number] + max(0.0, self.now - self._since[number])
        limit = LAS.first * LAS.factor ** LAS.level_at(trained * job.gpus)
        if limit < job.gpu_seconds:
            at = self._since[number] + limit / job.gpus - self._trained[number]
            heappush(self._events, (max(at, self.now + MOMENT_SECONDS), False, number, self._starts[number]))

    def _stop(self, number: int) -> None:
        """Stop a running job; it waits again."""
        job = self.jobs[number]
        self._trained[number] += max(0.0, self.now - self._since[number])
        expected = job.nominal_gpu_seconds / job.gpus
        trained_share = self._trained[number] * (job.nominal_gpu_seconds / job.gpu_seconds)
        self._left[number] = round(expected - trained_share, TIE_DIGITS)
        self._release(number)
        self._wait(number)

    def _release(self, number: int) -> None:
        """Free the GPUs of a running job."""
        self.free += self.jobs[number].gpus
        self._running.remove(number)
        self._starts[number] += 1
