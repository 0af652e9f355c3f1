"""The one queue of a queue policy: who waits in which order, who runs, and who must be looked at again.

Waiting jobs are kept in one heap per class of demand (same pod shape, same number of members): when the first of a
class does not fit, nobody behind it in that class does. So a decision looks at the heads of a few classes, not at all
jobs, and costs O(classes · log jobs). This rests on two facts: the rank of a waiting job is constant between the
moments that `QueuePolicy.next_change` and `revision` announce, and room only shrinks while a decision goes down the
ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from tranche.model import Job, PodShape, Preemption
from tranche.planner.rankings import RunningJobs
from tranche.policies import ClusterState, JobState, Policy, QueuePolicy, Rank

Arrival = tuple[float, int, str]
Waiting = tuple[Rank, Arrival, int, JobState]
"""Rank, order of submission, a number of its own, and the job; void unless it is the job's last entry."""
Candidate = tuple[Rank, Arrival, int, "DemandClass"]
"""The first of a class with today's rank, and a number of the class."""


def preemptible(state: JobState, policy: Policy) -> bool:
    """Whether a running worker of the job may be stopped for another job."""
    return policy.preemptive and state.job.preemption is Preemption.IMMEDIATE


@dataclass(slots=True, eq=False)
class DemandClass:
    """Waiting jobs that need the same room."""

    shape: PodShape
    members: int
    """Workers that must start together; 1 for chunked jobs."""
    group: str
    """See `QueuePolicy.group`."""
    heap: list[Waiting] = field(default_factory=list)


class JobQueue:
    """Waiting and running jobs of a queue policy."""

    def __init__(self, policy: QueuePolicy, cluster: ClusterState) -> None:
        self.policy = policy
        self.cluster = cluster
        self.running = RunningJobs()
        self.stale: dict[str, None] = {}
        """Jobs whose rank or demand may have changed since the last decision, in order."""
        self.all_fresh = False
        """Room has grown or ranks have changed: every class may have someone who can start now."""
        self._classes: dict[tuple[PodShape, int, str], DemandClass] = {}
        self._fresh: dict[int, DemandClass] = {}
        self._entries: dict[str, Waiting] = {}
        """The valid entry of each waiting job."""
        self._homes: dict[str, tuple[Job, DemandClass]] = {}
        self._partial: dict[str, JobState] = {}
        """Waiting jobs of which some workers train already, so that their ranks fall."""
        self._count = 0
        self._revision = 0

    def waiting(self) -> list[JobState]:
        """All who wait, in order."""
        entries = [e for one in self._classes.values() for e in one.heap if self._valid(e)]
        if self.policy.grouped:  # within a class by arrival; across classes by today's ranks
            entries = [(self.policy.rank(e[3], self.cluster, 0.0), *e[1:]) for e in entries]
        return [entry[3] for entry in sorted(entries, key=lambda e: e[:3])]

    def refresh(self, now: float) -> Iterator[tuple[str, float]]:
        """Enter all stale jobs anew; gives those whose rank will change by itself, with the time."""
        revision = self.policy.revision(self.cluster)
        if revision != self._revision:
            self._revision, self.all_fresh = revision, True
            waiting = () if self.policy.grouped else self._entries
            self.stale.update(dict.fromkeys([*waiting, *self.running.keys()]))
        stale, self.stale = self.stale, {}
        for key in stale:
            state = self.cluster.jobs.get(key)
            if state is None:
                self._forget(key)
                continue
            self._refresh(state, now)
            change = self.policy.next_change(state, self.cluster, now) if state.active else None
            if change is not None:
                yield key, change

    def candidates(self, now: float) -> list[Candidate]:
        """A heap of the first of each class that may have someone who can start now."""
        for state in list(self._partial.values()):
            self._enter(state, self.policy.rank(state, self.cluster, now))
        chosen = self._classes.values() if self.all_fresh or self.policy.strict else self._fresh.values()
        heap = []
        for number, one in enumerate(list(chosen)):
            entry = self.candidate(one, number, now)
            if entry is not None:
                heap.append(entry)
        heapify(heap)
        self._fresh, self.all_fresh = {}, False
        return heap

    def others(self, blocked: DemandClass | None, rank: Rank, state: JobState, now: float) -> list[Candidate]:
        """Candidates after a preemption for a job: all classes whose first ranks behind it, for what was left over."""
        self.all_fresh = True
        after = (rank, state.arrival)
        return [one for one in self.candidates(now) if one[3] is not blocked and one[:2] > after]

    def settle(self) -> None:
        """The decision is over: what it freed and started itself needs no further look."""
        self.all_fresh = False

    def candidate(self, one: DemandClass, number: int, now: float) -> Candidate | None:
        """The first of a class with today's rank, None if nobody waits there."""
        state = self.head(one)
        if state is None:
            return None
        rank = self.policy.rank(state, self.cluster, now) if self.policy.grouped else one.heap[0][0]
        return (rank, state.arrival, number, one)

    def head(self, one: DemandClass) -> JobState | None:
        """Who is first in a class."""
        while one.heap and not self._valid(one.heap[0]):
            heappop(one.heap)
        return one.heap[0][3] if one.heap else None

    def drop(self, state: JobState) -> None:
        """The job waits no more."""
        self._entries.pop(state.job.key, None)
        self._partial.pop(state.job.key, None)

    def note_running(self, state: JobState, now: float) -> None:
        """Count the job's open windows among what may be preempted."""
        windows = sum(not run.closing for run in state.runs.values())
        if windows and preemptible(state, self.policy):
            rank = self.policy.rank(state, self.cluster, now)
            self.running.put(state, rank, self.policy.slope(state, now), windows * state.job.gpus, now)
        else:
            self.running.remove(state.job.key)

    def _valid(self, entry: Waiting) -> bool:
        return self._entries.get(entry[1][2]) is entry

    def _forget(self, key: str) -> None:
        self.running.remove(key)
        for known in (self._entries, self._homes, self._partial):
            known.pop(key, None)

    def _refresh(self, state: JobState, now: float) -> None:
        policy = self.policy
        if policy.promotes(state, now):
            state.forgiven = state.attained_gpu_seconds(now)
        level = policy.level(state, self.cluster, now)
        if level != state.level:
            state.level, state.level_since = level, now
            self.all_fresh = True  # a running job that fell may have to make way
        if policy.preemptive:
            self.note_running(state, now)
        if wants_windows(state, now):
            self._enter(state, policy.rank(state, self.cluster, now))
            if state.runs and policy.slope(state, now):
                self._partial[state.job.key] = state
        else:
            self.drop(state)

    def _enter(self, state: JobState, rank: Rank) -> None:
        job = state.job
        one = self._class_of(state)
        entry = self._entries.get(job.key)
        order = (0.0, 0.0) if self.policy.grouped else rank
        if entry is None or entry[0] != order or entry[3] is not state:
            self._count += 1
            entry = self._entries[job.key] = (order, state.arrival, self._count, state)
            heappush(one.heap, entry)
        if self.head(one) is state:
            self._fresh[id(one)] = one

    def _class_of(self, state: JobState) -> DemandClass:
        job = state.job
        group = self.policy.group(state) if self.policy.grouped else ""
        known = self._homes.get(job.key)
        if known is not None and known[0] is job and known[1].group == group:
            return known[1]
        members = job.chunks if job.rigid else 1
        place = (job.worker, members, group)
        one = self._classes.get(place)
        if one is None:
            one = self._classes[place] = DemandClass(job.worker, members, group)
        if known is not None and known[1] is not one:
            self._entries.pop(job.key, None)
        self._homes[job.key] = (job, one)
        return one


def wants_windows(state: JobState, now: float) -> bool:
    """Whether the job could use another worker now."""
    if not state.active or state.held_until > now or (state.job.rigid and state.runs):
        return False
    return len(state.runs) < state.job.max_workers and state.unassigned > 0
