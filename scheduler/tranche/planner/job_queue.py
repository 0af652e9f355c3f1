"""Queue of a queue policy: waiting jobs in order of rank, running jobs, and jobs and sites to reconsider.

Waiting jobs are kept in one heap per demand class (same pod shape, number of members, quotas): if the head of a class
does not fit, no other job of the class does. So a scheduling cycle considers the heads of a few classes instead of all
jobs, and costs O(classes · log jobs). This relies on two facts: the rank of a waiting job is constant between the times
that `QueuePolicy.next_rank_change` and `rank_epoch` announce, and free capacity only shrinks while a cycle goes down
the ranks.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from tranche.model import Job, PodShape
from tranche.planner.running_jobs import RunningJobsBySite
from tranche.policies import Policy, QueuePolicy, TieredRank
from tranche.state.cluster import ClusterState
from tranche.state.job import Arrival, JobState
from tranche.state.placement_record import PreemptionScope


class QueueEntry(NamedTuple):
    """A job that waits at a site; void unless it is the last entry made for that job and site.

    Of two entries, the smaller comes first.
    """

    rank: TieredRank
    arrival: Arrival
    number: int
    """Number that no other entry has, so that comparisons end here."""
    state: JobState
    site: str


class Candidate(NamedTuple):
    """The head of a demand class with its rank at the time of the cycle."""

    rank: TieredRank
    arrival: Arrival
    number: int
    """Number of the class, different for each class of a heap."""
    demand_class: "DemandClass"
    state: JobState
    """The head."""

    @property
    def position(self) -> tuple[TieredRank, Arrival]:
        """Position of the head among the waiting jobs; the smaller comes first."""
        return self.rank, self.arrival


Demand = tuple[PodShape, int, tuple[PodShape | int | str | None, ...], tuple[str, str], PreemptionScope]
"""Shape of a worker, number of workers that must start together (1 for chunked jobs), shapes and number of the pods
that start with them and the topology level that they require, the group of a grouped policy with the quotas that cover
the workers, and what the jobs may preempt."""


RERANK_SECONDS = 30.0
"""Interval for re-ranking partially running jobs at sites without events, because their rank improves while they train.

It applies only to policies with a queue for each site. At sites with events, they are ranked again at each event."""


def preemptible(state: JobState, policy: Policy) -> bool:
    """Return whether a running worker of the job may be stopped for another job."""
    return policy.traits.preemptive and state.stoppable


@dataclass(slots=True, eq=False)
class DemandClass:
    """Waiting jobs with the same demand."""

    demand: Demand
    site: str = ""
    """Site that has data of their chunks; "" under policies that do not consider the site."""
    number: int = 0
    """Position among the classes: by site, then by time of creation."""
    heap: list[QueueEntry] = field(default_factory=list)
    cleanup_length: int = 64
    """Length of the heap at which void entries are removed from it."""
    last_tried: JobState | None = None
    """Head of the class when the class last tried to preempt."""
    training: dict[str, JobState] = field(default_factory=dict)
    """Jobs of the class with workers that train already, so that their rank values decrease."""
    removed: bool = False
    """Whether the queue has removed it, because it was empty."""
    scope: PreemptionScope = field(init=False)
    """For how many windows at a time one of these jobs may preempt others."""
    gpu_resource: str = field(init=False)
    """Resource of the GPUs that these jobs request, as in `Resources.gpu_resource`."""
    slots: int = field(init=False)
    """Number of GPUs that must be free at the same time before one of these jobs can start."""

    def __post_init__(self) -> None:
        shape, members, _, _, self.scope = self.demand
        self.gpu_resource, self.slots = shape.requests.gpu_resource, shape.requests.gpus * members


class JobQueue:
    """Waiting and running jobs of a queue policy."""

    def __init__(self, policy: QueuePolicy, cluster: ClusterState) -> None:
        self.policy = policy
        self.cluster = cluster
        self.running = RunningJobsBySite()
        self.stale: dict[str, None] = {}
        """Keys of jobs whose rank or demand may have changed since the last cycle, in order."""
        self.places_changed = False
        """Whether nodes or sites have changed since the last cycle, so that data may have to be copied to others."""
        self.freed_sites: set[str] = set()
        """Sites where capacity was freed ("": anywhere, or ranks have changed), so that waiting jobs may fit there."""
        self._classes: dict[str, dict[Demand, DemandClass]] = {}
        """Demand classes by site of the data, then by demand; empty classes are removed."""
        self._changed_classes: dict[int, DemandClass] = {}
        """Classes whose head has changed since the last cycle, by identity."""
        self._entries: dict[tuple[str, str], QueueEntry] = {}
        """Valid entry of each waiting job at each site with its data, by job and site."""
        self._class_of_entry: dict[tuple[str, str], tuple[Job, DemandClass]] = {}
        """Last specification and class of each job at each site, by job and site."""
        self._sites_with_class: dict[str, set[str]] = {}
        """Sites that `_class_of_entry` has for each job."""
        self._sites: dict[str, tuple[str, ...]] = {}
        """Sites at which each job has entries."""
        self.engaged: dict[str, JobState] = {}
        """Jobs that could use windows or have some, by key."""
        self._entry_count = 0
        self._class_count = 0
        self._revision = 0
        self.preempting_classes: set[int] | None = None
        """Identities of the classes whose head may preempt again; None: all classes. See `may_preempt`."""
        self._sites_preempting_again: set[str] = set()
        """Sites passed to `invalidate_preemption` since the last cycle."""
        self._ranked = -inf
        """Time at which all decreasing ranks were last computed."""
        self._costs = (0.0, 0.0)
        """Mean time of starting and of saving a worker at that time, in seconds."""

    def waiting(self) -> list[JobState]:
        """Return all waiting jobs in order of rank."""
        entries = list(self._entries.values())
        if self.policy.traits.ranks_by_group:  # within a class by tier and arrival; across classes by today's ranks
            entries = [e._replace(rank=self.policy.tiered_rank(e.state, self.cluster, 0.0)) for e in entries]
        return list(dict.fromkeys(entry.state for entry in sorted(entries)))

    def in_order(self) -> Iterator[tuple[TieredRank, JobState]]:
        """Yield the waiting jobs with their ranks in order of rank, each job once; computed lazily."""
        heap = [(one.heap[0], 0, one.heap) for one in self._all_classes() if one.heap]
        heapify(heap)
        seen: set[str] = set()
        while heap:
            entry, place, entries = heappop(heap)
            if entry.arrival.key not in seen and self._valid(entry):
                seen.add(entry.arrival.key)
                yield entry.rank, entry.state
            for child in range(2 * place + 1, min(2 * place + 3, len(entries))):
                heappush(heap, (entries[child], child, entries))

    def refresh(self, now: float) -> Iterator[tuple[str, float | None]]:
        """Rank all stale jobs again; yields each with the next time at which its rank changes by itself, or None."""
        revision = self.policy.rank_epoch(self.cluster)
        if revision != self._revision:
            self._revision = revision
            self.invalidate_preemption(("",))
            waiting = () if self.policy.traits.ranks_by_group else self._sites
            self.stale.update(dict.fromkeys([*waiting, *self.running.keys()]))
        if self.policy.traits.ranks_each_decision:
            self.stale.update(dict.fromkeys(self._sites))
        stale, self.stale = self.stale, {}
        for key in stale:
            state = self.cluster.jobs[key]
            self._refresh(state, now)
            yield key, self.policy.next_rank_change(state, self.cluster, now) if state.active else None

    def forget(self, key: str) -> None:
        """Remove a job that does not exist any more."""
        self.stale.pop(key, None)
        self.engaged.pop(key, None)
        self.running.remove(key)
        for site in self._sites.pop(key, ()):
            self._remove_entry(key, site)
        for site in self._sites_with_class.pop(key, ()):
            del self._class_of_entry[key, site]

    def resume(self, other: "JobQueue", now: float) -> Iterator[None]:
        """Take over the state of another planner's queue, including which jobs have failed to preempt.

        The other queue is read in this call; the work is done while the returned iterator is consumed.
        """
        self._classes = {site: {} for site in other._classes}
        self.stale = dict.fromkeys(self.cluster.jobs)
        tried = {
            (one.site, one.demand): one.last_tried.job.key for one in other._all_classes() if one.last_tried is not None
        }
        stale = {key: None for key in other.stale if key in self.cluster.jobs}
        return self._resume(tried, stale, other._ranked, now)

    def _resume(
        self,
        tried: Mapping[tuple[str, Demand], str],
        stale: dict[str, None],
        ranked: float,
        now: float,
    ) -> Iterator[None]:
        for _ in self.refresh(now):
            yield
        self.candidates(now)
        for one in self._all_classes():
            one.last_tried = self.cluster.jobs.get(tried.get((one.site, one.demand), ""))
        self.stale = stale
        self._ranked = ranked

    def candidates(self, now: float) -> list[Candidate]:
        """Return a heap of the heads of the classes that may have a job that can start now."""
        everywhere = (
            self._ranked == now or not self.policy.traits.needs_local_data or now >= self._ranked + RERANK_SECONDS
        )
        if everywhere:
            self._ranked = now
            self._check_restart_costs()
            for one in self._all_classes():
                if one.training:
                    self._rerank_running(one, now)
            self.preempting_classes = None
        else:
            fallen = (
                {id(one) for one in self._all_classes() if one.site in self._sites_preempting_again or not one.site}
                if self._sites_preempting_again
                else ()
            )
            several = {id(one) for one in self._classes_with_freed_capacity() if one.slots > 1}
            self.preempting_classes = {*self._changed_classes, *fallen, *several}
        self._sites_preempting_again.clear()
        if not (self.freed_sites or self._changed_classes or self.policy.traits.head_of_line_blocking):
            return []
        if "" in self.freed_sites or self.policy.traits.head_of_line_blocking:
            chosen = self._all_classes()
        else:
            for one in self._classes_at_freed_sites():
                self._changed_classes[id(one)] = one
            chosen = list(self._changed_classes.values())
        if not everywhere:
            for one in chosen:
                self._rerank_running(one, now)
        heap = []
        for number, one in enumerate(chosen):
            entry = self.candidate(one, number, now)
            if entry is not None:
                heap.append(entry)
            elif not one.removed:
                one.removed = True
                del self._classes[one.site][one.demand]
        heapify(heap)
        self._changed_classes = {}
        self.freed_sites.clear()
        return heap

    def candidates_after_preemption(
        self, left: list[Candidate], blocked: DemandClass | None, rank: TieredRank, state: JobState, now: float
    ) -> list[Candidate]:
        """Return the candidates after a preemption: the remaining ones, and classes that may use the freed capacity.

        Args:
            left: Candidates that the cycle has not served yet.
            blocked: Class that cannot place any more jobs in this cycle; None if there is none.
            rank: Rank of the job that preempted; candidates that rank ahead of it were served already. Those of them
                that may not preempt themselves are served again. At other sites, it is a candidate itself, or jobs
                behind it there would not be.
            state: That job.
            now: Clock, in seconds.
        """
        before = self.preempting_classes
        self._changed_classes.update((id(one.demand_class), one.demand_class) for one in left)
        after = (rank, state.arrival)
        found = [one._replace(number=one.demand_class.number) for one in self.candidates(now)]
        heap = [
            one
            for one in found
            if one.demand_class is not blocked
            and (one.position >= after or one.demand_class.scope is PreemptionScope.NONE)
        ]
        heapify(heap)
        self.preempting_classes = before
        return heap

    def invalidate_preemption(self, sites: Collection[str]) -> None:
        """Let waiting jobs try to preempt again at these sites ("": anywhere).

        Call it when jobs that run there rank further behind than before, when stopping them costs less, or when their
        remaining time is longer than expected.
        """
        if "" in sites or not self.policy.traits.needs_local_data:
            self.freed_sites.add("")
            self._ranked = -inf
        else:
            self.freed_sites.update(sites)
            self._sites_preempting_again.update(sites)

    def _all_classes(self) -> list[DemandClass]:
        return [one for there in self._classes.values() for one in there.values()]

    def _rerank_running(self, one: DemandClass, now: float) -> None:
        for state in list(one.training.values()):
            self._enter(state, self.policy.tiered_rank(state, self.cluster, now), one.site)

    def _check_restart_costs(self) -> None:
        """Let all jobs try to preempt again if the mean restart cost has fallen: preemption may be worthwhile now."""
        known, before = self.cluster.restarts, self._costs
        self._costs = (known.start_seconds or 0.0, known.save_seconds or 0.0)
        if self._costs[0] < before[0] or self._costs[1] < before[1]:
            self.freed_sites.add("")

    def may_preempt(self, one: DemandClass, state: JobState) -> bool:
        """Return whether the head of a class could preempt another job now.

        A head that has already failed to preempt and has not changed since would fail again, because every job started
        later ranks ahead of it. `invalidate_preemption` reports that preemption may have become worthwhile. Freed
        capacity matters only for a head that needs several slots, which may now lack fewer; a head that needs one slot
        takes the free one.
        """
        if one.scope is PreemptionScope.NONE or self.cluster.scheduler_silent:
            return False
        if not self.policy.traits.preemptive:
            return False
        return self.preempting_classes is None or id(one) in self.preempting_classes or one.last_tried is not state

    def _classes_with_freed_capacity(self) -> Iterable[DemandClass]:
        """Return the classes for which capacity was freed."""
        return self._all_classes() if "" in self.freed_sites else self._classes_at_freed_sites()

    def _classes_at_freed_sites(self) -> Iterator[DemandClass]:
        for site in sorted({*self.freed_sites, ""}) if self.freed_sites else ():
            yield from self._classes.get(site, {}).values()

    def heads_before(self, rank: tuple[TieredRank, Arrival], now: float) -> Iterator[tuple[str, JobState]]:
        """Yield the heads of the classes that rank ahead of the given rank, each with the site at which it waits."""
        for one in self._all_classes():
            first = self.candidate(one, one.number, now)
            if first is not None and first.position < rank:
                yield one.site, first.state

    def other_waits(self, state: JobState) -> bool:
        """Return whether a job other than this one is the head of a class."""
        return any(self.head(one) not in (None, state) for one in self._all_classes())

    def settle(self) -> None:
        """End a cycle: capacity that the cycle itself freed needs no further consideration."""
        self.freed_sites.clear()

    def candidate(self, one: DemandClass, number: int, now: float) -> Candidate | None:
        """Return the head of a class with its current rank; None if the class is empty."""
        state = self.head(one)
        if state is None:
            return None
        rank = (
            self.policy.tiered_rank(state, self.cluster, now) if self.policy.traits.ranks_by_group else one.heap[0].rank
        )
        return Candidate(rank, state.arrival, number, one, state)

    def current(self, known: Candidate, now: float) -> Candidate | None:
        """Return the candidate of the same class, which may have another head or rank by now; None if it has none."""
        heap = known.demand_class.heap
        if heap and not self.policy.traits.ranks_by_group:
            entry = heap[0]
            if entry.state is known.state and entry.rank == known.rank and self._valid(entry):
                return known
        return self.candidate(known.demand_class, known.number, now)

    def head(self, one: DemandClass) -> JobState | None:
        """Return the job that ranks first in a class; None if the class is empty."""
        heap = one.heap
        while heap:
            first = heap[0]
            if self._valid(first):
                return first.state
            heappop(heap)
        return None

    def sites_of(self, state: JobState) -> tuple[str, ...]:
        """Return the sites at which the job waits."""
        return self._sites.get(state.job.key, ())

    def drop(self, state: JobState, site: str | None = None) -> None:
        """Remove the job from the waiting jobs of one site, or of all sites."""
        key = state.job.key
        sites = self._sites.get(key, ())
        for one in sites if site is None else (site,):
            self._remove_entry(key, one)
        rest = () if site is None else tuple(one for one in sites if one != site)
        if rest:
            self._sites[key] = rest
        else:
            self._sites.pop(key, None)

    def _remove_entry(self, key: str, site: str) -> None:
        self._entries.pop((key, site), None)
        home = self._class_of_entry.get((key, site))
        if home is not None:
            home[1].training.pop(key, None)

    def note_running(self, state: JobState, now: float) -> None:
        """Update the job among the running jobs that may be preempted, by its open windows."""
        if not state.runs:
            self.running.remove(state.job.key)
            return
        held: dict[str, int] = {}
        for run in state.runs.values():
            if not run.closing and not self.cluster.is_unlimited(run.home.site):
                held[run.home.site] = held.get(run.home.site, 0) + state.job.gpus
        if held and preemptible(state, self.policy):
            rank = self.policy.tiered_rank(state, self.cluster, now)
            self.running.put(state, rank, self.policy.rank_decrease_per_second(state, now), held, now)
        else:
            self.running.remove(state.job.key)

    def _valid(self, entry: QueueEntry) -> bool:
        return self._entries.get((entry.arrival.key, entry.site)) is entry

    def _refresh(self, state: JobState, now: float) -> None:
        policy = self.policy
        state.rank_epoch = self._revision
        if policy.should_promote(state, now):
            state.gpu_seconds_at_promotion = state.attained_gpu_seconds(now)
        level = policy.level(state, self.cluster, now)
        if level != state.level:
            state.level, state.level_since = level, now
            self.invalidate_preemption({run.home.site for run in state.runs.values()})
        if policy.traits.preemptive:
            self.note_running(state, now)
        if not policy.traits.allocates_workers:
            state.granted = policy.worker_limit(state, self.cluster)
        sites: tuple[str, ...] = ()
        wants = can_use_window(state, now)
        if wants or state.runs:
            self.engaged[state.job.key] = state
        else:
            self.engaged.pop(state.job.key, None)
        if wants:
            sites = start_sites(state, now, sited=policy.traits.needs_local_data)
        for site in self._sites.get(state.job.key, ()):
            if site not in sites:
                self.drop(state, site)
        if sites:
            rank = policy.tiered_rank(state, self.cluster, now)
            self._sites[state.job.key] = sites
            training = bool(state.runs) and policy.rank_decrease_per_second(state, now) != 0
            for site in sites:
                self._enter(state, rank, site)
                if training:
                    self._class_of(state, site).training[state.job.key] = state

    def _enter(self, state: JobState, rank: TieredRank, site: str) -> None:
        job = state.job
        one = self._class_of(state, site)
        entry = self._entries.get((job.key, site))
        order = (rank[0], 0.0, 0.0) if self.policy.traits.ranks_by_group else rank
        if entry is None or entry.rank != order or entry.state is not state:
            self._entry_count += 1
            entry = self._entries[job.key, site] = QueueEntry(order, state.arrival, self._entry_count, state, site)
            heappush(one.heap, entry)
            if len(one.heap) > one.cleanup_length:
                one.heap = [entry for entry in one.heap if self._valid(entry)]
                heapify(one.heap)
                one.cleanup_length = 64 + 2 * len(one.heap)
        if self.head(one) is state:
            self._changed_classes[id(one)] = one

    def _class_of(self, state: JobState, site: str) -> DemandClass:
        job = state.job
        group = (
            self.policy.rank_group(state) if self.policy.traits.ranks_by_group else "",
            self.cluster.quotas.covering(job),
        )
        scope = self.cluster.preemption_scope(state)
        known = self._class_of_entry.get((job.key, site))
        same = known is not None and known[0] is job and known[1].demand[3:] == (group, scope)
        if known is not None and same and not known[1].removed:
            return known[1]
        members = job.min_available
        joining = (job.chief, job.server, job.servers, job.required_level) if job.is_gang else ()
        demand = (job.worker, members, joining, group, scope)
        one = self._classes.setdefault(site, {}).get(demand)
        if one is None:
            self._class_count += 1
            number = (list(self._classes).index(site) << 32) + self._class_count
            one = self._classes[site][demand] = DemandClass(demand, site, number)
        if known is not None and known[1] is not one:
            self._remove_entry(job.key, site)
        self._class_of_entry[job.key, site] = (job, one)
        self._sites_with_class.setdefault(job.key, set()).add(site)
        return one


def start_sites(state: JobState, now: float, *, sited: bool) -> tuple[str, ...]:
    """Return sites where chunks of the job wait, unlimited ones last; "" stands for all nodes unless `sited`."""
    if sited and not state.job.is_gang:
        clouds = state.clouds(now)
        return (*(site for site in state.waiting_by_site(now) if site not in clouds), *clouds)
    return (*(("",) if state.wanted_on_nodes > 0 else ()), *state.clouds(now))


def can_use_window_at(state: JobState, site: str, now: float) -> bool:
    """Return whether the job could use another worker at the site now."""
    if not can_use_window(state, now):
        return False
    return site in state.waiting_by_site(now) if site else state.wanted_on_nodes > 0


def can_use_window(state: JobState, now: float) -> bool:
    """Return whether the job could use another worker now.

    A job with waiting chunks is not finished, so that it is active unless it is halted.
    """
    job = state.job
    if len(state.runs) >= (1 if job.is_gang else job.max_workers) or state.held_until > now:
        return False
    return state.unassigned > 0 and not (state.halted or (state.servers and state.has_closing_servers))
