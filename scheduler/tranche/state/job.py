"""State of a job: its ledger, its queued chunks, its windows and the copies of its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import fsum, inf
from typing import Any, NamedTuple

from tranche.estimate import DECLARED_SIGMA, Restarts
from tranche.model import (
    AttemptRecord,
    Checkpoint,
    Job,
    PodPlaces,
    PodShape,
    PreemptedJob,
    Preemption,
    SlotPlan,
    Timings,
)
from tranche.state.helper import MissingHelper, Server, helpers_of
from tranche.state.node_health import PodResult
from tranche.state.phases import JobPhase, WindowPhase
from tranche.state.placement_record import PlacementRecord
from tranche.state.site_usage import JobUse
from tranche.state.staging import ARRIVED, Staging
from tranche.state.window import SlotBinding, TrackedWindow

MOMENT_SECONDS = 1e-5
"""Least delay of a timer: negligible, but more than the resolution of a clock of seconds since 1970 (2.4e-7)."""
DENSITY_DIGITS = 12
"""Significant digits of a density: equal ones tie, though batches × seconds per batch round differently."""


class QueueKey(NamedTuple):
    """Order of a chunk in a queue; the smaller key runs first."""

    value: float
    """The policy's value."""
    arrival: float
    """Submission of the job, in seconds."""
    job: str
    chunk: int

    def of_chunk(self, chunk: int) -> QueueKey:
        """Return the key of another chunk of the job."""
        return QueueKey(self.value, self.arrival, self.job, chunk)


class Arrival(NamedTuple):
    """Order of submission: jobs compare by time, then by number, then by key."""

    submitted: float
    """Time of submission, in seconds."""
    number: int
    """`Job.order`."""
    key: str
    """Key of the job."""


class TrainingPace(NamedTuple):
    """Training progress of a job's windows as a linear function of time, while these do not change."""

    at: float
    done: float
    """Worker-seconds trained at that time, beyond the ledger."""
    rate: float
    """Increase of `done` per second."""
    until: float
    """End of validity: when a window's chunks are expected to be done, or another window begins."""


@dataclass(slots=True, eq=False)
class QueuedChunk:
    """An unfinished chunk in the queues of the slots that it is bound to."""

    key: QueueKey
    state: JobState
    chunk: int
    home: SlotBinding
    ready_at: float
    """t0: when its data are there, in seconds on the planner's clock."""
    batch_seconds: float
    """Expected time of a mini-batch in its slots, in seconds."""
    cost: float | None = None
    """Q at dispatch, in seconds; None if no dispatch rule chose the slots, as after a restart of the planner."""
    planned_start: float | None = None
    """t* at dispatch: when its slots are first free for it, in seconds on the planner's clock; else None."""
    planned_end: float | None = None
    """Planned completion at dispatch; later arrivals may shift or split the window."""

    def is_ready(self, now: float) -> bool:
        """Return whether the chunk's data are there; an upload that is reported ends with its report."""
        return self.ready_at <= now and (self.home.site, self.chunk) not in self.state.coming

    def remaining_seconds(self, now: float) -> float:
        """Return p̂: the remaining training time of the chunk in its slots, in seconds."""
        return self.state.remaining_seconds(self.chunk, now, self.batch_seconds)


@dataclass(slots=True, eq=False)
class JobState:
    """A job: its specification, its ledger, the slots of its chunks, and its windows."""

    job: Job
    done: set[int] = field(default_factory=set)
    """Completed chunks."""
    partial: dict[int, float] = field(default_factory=dict)
    """Durable batches of chunks that are begun and not done."""
    applied: dict[int, float] = field(default_factory=dict)
    """Batches of chunks as last reported, where these exceed the durable ones: for estimates only."""
    checkpoint: Checkpoint | None = None
    """Last checkpoint that the parameter servers have reported; None if they report nothing."""
    reported: tuple[float, Timings] | None = None
    """Time of the job's last report, and the speed in it."""
    entries: dict[int, QueuedChunk] = field(default_factory=dict)
    """Unfinished chunks that a binding policy has dispatched."""
    data_sites: dict[int, str] = field(default_factory=dict)
    """Site at which each chunk's data were placed; a restarted planner keeps them there."""
    copies: dict[str, dict[int, float]] = field(default_factory=dict)
    """Chunks with a copy of their data, and when it is complete, by site other than the data's own; infinite until it
    is reported, if uploads are reported."""
    coming: dict[tuple[str, int], float] = field(default_factory=dict)
    """Expected times of these reports, by site and chunk."""
    cloud: dict[int, str] = field(default_factory=dict)
    """Waiting chunks that will train at an unlimited site, with the site (`tranche.planner.scheduling.cloud_burst`)."""
    returned: int = 0
    """Number of windows whose chunks have returned to wait."""
    reviewed: int = -1
    """`returned` at the last comparison with unlimited sites; -1: none since the job or the sites changed."""
    uploaded_at: float | None = None
    """When the data of a pooled job are at all sites; None unless `QueuePolicy.uploads_on_arrival`."""
    burst_sites: set[str] = field(default_factory=set)
    """Unlimited sites to which data of the job were copied; only chunks of `cloud` start there."""
    stagings: dict[str, Staging] = field(default_factory=dict)
    """Staging by pods of the job, by site."""
    runs: dict[int, TrackedWindow] = field(default_factory=dict)
    """Open and closing windows by attempt."""
    chunk_runs: dict[int, TrackedWindow] = field(default_factory=dict)
    """Open or closing window of each chunk."""
    servers: list[Server] = field(default_factory=list)
    """Parameter servers and chief that have been placed."""
    unhosted: bool = False
    """Whether the last search for a place for its parameter servers found none."""
    colocated: bool = False
    """ζ = 1: all workers and the parameter servers are together in the cloud."""
    attempts: int = 0
    """Number of pods so far; each gets the next number."""
    counted_gpu_seconds: float = 0.0
    """GPU-seconds that workers of ended windows have trained; `attained_gpu_seconds` adds those of open windows."""
    use: JobUse = field(default_factory=JobUse)
    """Usage at each site."""
    preemptions: int = 0
    """Number of workers that were stopped for another job."""
    failures: int = 0
    """Number of failed pods that count against the back-off limit."""
    end_reason: str = ""
    """Why the operator has ended the job without success, as a sentence; empty if it has not."""
    uncounted_failures: int = 0
    """Number of failed pods that do not count because their nodes, or the end of a server, explain it; 0 after a change
    of leader."""
    gang_failure: PodResult | None = None
    """Failure of the member that stopped the gang last."""
    disconnected_at: float = -inf
    """Last time at which a worker of a chunked job with servers failed, or a server ended: others lose connections."""
    worker_failures: list[PodResult] = field(default_factory=list)
    """Last failures of workers of such a job that count, and that the end of a server may still explain."""
    lost_batches: float = 0.0
    """Mini-batches that were trained and then lost."""
    records: list[AttemptRecord] = field(default_factory=list)
    """Last ended workers and chiefs, the oldest first."""
    history: tuple[str | AttemptRecord, ...] = ()
    """Last ended pods of all roles, the oldest first; packed as text once they have been written."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """Number of all ended pods by outcome, as `outcome_class` names them; replaced and not changed."""
    victims: tuple[PreemptedJob, ...] = ()
    """Last jobs that were preempted for this one, the oldest first."""
    preempted_workers: int = 0
    """Number of workers of other jobs that were stopped for this one."""
    held_until: float = 0.0
    """Time before which nothing of the job starts, in seconds on the planner's clock."""
    hold_reason: str = ""
    awaits_faster: bool = False
    """Whether it leaves free GPUs to others, because its waiting chunks complete sooner on faster ones."""
    eviction_blocked: bool = False
    """Whether it is not preempted for now, because an eviction of its pods was rejected (see `ClusterState`)."""
    unplannable: tuple[str, str] | None = None
    """CamelCase reason and a sentence, if the job cannot be planned."""
    excluded_nodes: dict[str, float] = field(default_factory=dict)
    """Nodes that rejected a pod of this job, with the time until which they are excluded."""
    node_rejections: dict[str, int] = field(default_factory=dict)
    """Number of rejections by each node since a pod of the job last started there."""
    refusals: int = 0
    """Number of pods of the job that a kubelet refused in a row, since one of its pods last started."""
    disruptions: int = 0
    """Number of times in a row that a pod was deleted, evicted or lost soon after it was planned."""
    disrupted_at: float = -inf
    """Last of these times; pods that were planned before have the same cause."""
    placement: PlacementRecord = field(default_factory=PlacementRecord)
    node_failures: dict[str, int] = field(default_factory=dict)
    """Number of pods of the job that failed on each node since one of its pods trained there."""
    first_started: float | None = None
    """When a worker of the job first trained, in seconds on the planner's clock."""
    idle_since: float = 0.0
    """When the job's last window ended, or its submission before that."""
    busy_seconds: float = 0.0
    """Seconds with a window open before `busy_since`; time spent suspended counts too."""
    busy_since: float | None = None
    """Time since which a window has been open; None if none is."""
    level: int = 0
    """Number of its priority queue under a policy with several (`QueuePolicy.level`)."""
    level_since: float = 0.0
    """Time of the last change of `level`."""
    rank_epoch: int = 0
    """`QueuePolicy.rank_epoch` when the job was last ranked: all waiting and running jobs have the same."""
    gpu_seconds_at_promotion: float = 0.0
    """GPU-seconds attained at the last promotion."""
    granted: int | None = None
    """Maximum number of workers on nodes under a policy that allocates workers; None: the number that it asks for."""
    place: float = 0.0
    """Place in the order of that allocation; unchanged as long as the order of the other jobs around it is."""
    preferred: PodPlaces | None = None
    """Nodes on which its pods start as long as they have room, under a policy with a slot table."""
    topology_level: int | None = None
    """Topology level of a gang's windows: the narrowest one that their nodes share; None without windows."""
    slot_plan: SlotPlan | None = None
    """Last offer of a policy with a slot table, and the cells reserved for the job; None: there was no offer."""
    nominal_batch_seconds: float = 0.0
    """Expected time of a mini-batch on an unknown node, in seconds."""
    assumed: bool = False
    """Whether only the attained service says anything about the job's size, because its speed is an assumption."""
    size_sigma: float = DECLARED_SIGMA
    """Standard deviation of the logarithm of actual over expected size."""
    restarts: Restarts = field(default_factory=Restarts)
    """Measured cost of stopping and starting its workers."""
    arrival: Arrival = field(init=False)
    """Order of submission."""
    hosts: tuple[int, Any] = (-1, None)
    """Epoch and result of the last call of `ClusterState.hosts`; the result is not valid for another epoch."""
    _left: float | None = None
    _pace: TrainingPace | None = None
    _first_end: float | None = None
    _window_ends: tuple[float, float] | None = None
    _by_site: dict[str, list[int]] | None = None
    _by_site_until: float = 0.0
    """Time at which another copy is complete, so that `_by_site` changes."""

    def __post_init__(self) -> None:
        self.arrival = Arrival(self.job.submitted, self.job.order, self.job.key)

    def server_of(self, attempt: int) -> Server | None:
        """Return the parameter server or chief with this number of an attempt; None if there is none."""
        return next((server for server in self.servers if server.planned.attempt == attempt), None)

    @property
    def awaits_place(self) -> bool:
        """Whether pods of the job wait until kube-scheduler places them, or to start if earlier ones did not start."""
        if self.placement.unstarted:
            runs = (run.started is not None for run in self.runs.values() if not run.closing)
            return not (all(runs) and all(server.started for server in self.servers))
        pending = any(run.phase is WindowPhase.PENDING for run in self.runs.values())
        return pending or not all(server.placed for server in self.servers)

    @property
    def waiting(self) -> list[int]:
        """Unfinished chunks in no window, in ascending order."""
        return [c for c in range(self.job.chunks) if c not in self.done and c not in self.chunk_runs]

    @property
    def unassigned(self) -> int:
        """Number of waiting chunks: unfinished and in no window."""
        return self.job.chunks - len(self.done) - len(self.chunk_runs)

    @property
    def moves_data(self) -> bool:
        """Whether the job's data have to be copied to the sites where its chunks train."""
        return self.job.data_site is not None and self.job.chunk_bytes > 0 and not self.job.is_gang

    def waiting_by_site(self, now: float) -> dict[str, list[int]]:
        """Return waiting chunks by site that has their data, those at the fewest sites first; "" means any site."""
        if self._by_site is None or self._by_site_until <= now:
            waiting, by_site, until = self.waiting, {}, inf
            if self.cloud:
                bound = {site: [c for c in waiting if self.cloud.get(c) == site] for site in self.cloud.values()}
                waiting = [chunk for chunk in waiting if chunk not in self.cloud]
            else:
                bound = {}
            for site, copies in self.copies.items():
                copies.update({chunk: ARRIVED for chunk, at in copies.items() if at <= now})
                if site != self.job.data_site:
                    chunks = bound.pop(site, []) if site in self.burst_sites else waiting
                    by_site[site] = [chunk for chunk in chunks if copies.get(chunk, inf) <= now]
                    until = min([until, *(at for at in copies.values() if at > now)])
            sites = Counter(chunk for chunks in by_site.values() for chunk in chunks)
            by_site[self.job.data_site or ""] = waiting
            by_site.update(bound)  # where nothing has to be brought
            self._by_site = {s: sorted(chunks, key=sites.__getitem__) for s, chunks in by_site.items() if chunks}
            self._by_site_until = until
        return self._by_site

    def waiting_at(self, site: str, now: float) -> list[int]:
        """Return the waiting chunks of one site, in a new list."""
        return list(self.waiting_by_site(now).get(site, ()))

    def clouds(self, now: float) -> list[str]:
        """Return the unlimited sites at which chunks bound for them can start now."""
        if not self.cloud:
            return []
        by_site = self.waiting_by_site(now)
        return [site for site in sorted(set(self.cloud.values())) if site in by_site]

    def is_bound_for(self, site: str) -> bool:
        """Return whether all unfinished chunks train, or will train, at this unlimited site (ζ = 1)."""
        waiting = self.unassigned
        if not (waiting or self.runs) or any(run.home.site != site for run in self.runs.values()):
            return False
        return waiting == len(self.cloud) and all(bound == site for bound in self.cloud.values())

    def can_start_at(self, site: str, now: float) -> bool:
        """Return whether the uploads of a pooled job allow some chunk that waits for a node to start at the site."""
        if self.uploaded_at is None or site == self.job.data_site:
            return True
        copies = self.copies.get(site)
        if copies is None or now >= self.uploaded_at:
            return copies is not None
        return any(at <= now and c not in self.done and c not in self.chunk_runs for c, at in copies.items())

    def is_at(self, chunk: int, site: str, now: float) -> bool:
        """Return whether the uploads of a pooled job allow this chunk to start at the site."""
        if self.uploaded_at is None or site == self.job.data_site:
            return True
        return self.copies.get(site, {}).get(chunk, inf) <= now

    @property
    def waiting_for_nodes(self) -> int:
        """Number of waiting chunks that are not bound for an unlimited site."""
        return self.job.chunks - len(self.done) - len(self.chunk_runs) - len(self.cloud)

    @property
    def wanted_on_nodes(self) -> int:
        """Number of these chunks that may start: with `granted`, at most the workers left of the grant.

        A job that was granted no worker may have one that no other job can use.
        """
        waiting = self.waiting_for_nodes
        if self.granted is None or self.job.is_gang:
            return waiting
        used = sum(run.home.node is not None for run in self.runs.values())
        return min(waiting, max(0, max(1, self.granted) - used))

    def homes(self, now: float) -> Iterator[tuple[int, str]]:
        """Yield unfinished chunks with a site at which their data were placed, once for each such site."""
        for chunk, site in self.data_sites.items():
            if chunk not in self.done:
                yield chunk, site
        for site, copies in self.copies.items():
            for chunk, at in copies.items():
                if at <= now and chunk not in self.done and self.data_sites.get(chunk) != site:
                    yield chunk, site

    def copy(self, chunk: int, site: str, until: float, *, reported: bool = False) -> None:
        """Record a copy of the chunk's data, complete at `until` or, if `reported`, when a report says so."""
        self.copies.setdefault(site, {})[chunk] = inf if reported else until
        if reported:
            self.coming[site, chunk] = until
        self._by_site = None

    @property
    def has_closing_servers(self) -> bool:
        """Whether parameter servers are closing; no pod of the job starts before they have ended."""
        return bool(self.servers) and any(server.closing for server in self.servers)

    @property
    def chief(self) -> Server | None:
        """The chief, if it has been placed."""
        return next((server for server in self.servers if server.planned.is_chief), None)

    @property
    def missing_servers(self) -> list[MissingHelper]:
        """Parameter servers and chief that have no place yet."""
        placed = {(server.planned.index, server.planned.is_chief) for server in self.servers}
        return [helper for helper in helpers_of(self.job) if (helper.number, helper.is_chief) not in placed]

    @property
    def joining(self) -> list[MissingHelper]:
        """Those of them that have to start together with the workers: those of a gang."""
        return self.missing_servers if self.job.is_gang else []

    @property
    def missing_shapes(self) -> list[PodShape]:
        """Requirements of the chief and the parameter servers that have no place."""
        return [helper.shape for helper in self.missing_servers]

    @property
    def reporters(self) -> list[Server]:
        """Servers whose reports are about the whole job: the chief, else parameter server 0."""
        chief = self.job.chief is not None
        return [server for server in self.servers if server.planned.is_chief == chief and server.planned.index == 0]

    @property
    def finished(self) -> bool:
        """Whether every chunk is done, and the chief of a gang, which keeps its place until its end is counted."""
        return len(self.done) == self.job.chunks and (self.job.chief is None or self.chief is None)

    @property
    def has_trained(self) -> bool:
        """Whether a worker of the job has ever trained, also under an earlier leader."""
        return self.first_started is not None or self.counted_gpu_seconds > 0

    @property
    def failed(self) -> bool:
        """Whether more pods have failed than the back-off limit allows, or the operator has ended the job."""
        return self.failures > self.job.backoff_limit or bool(self.end_reason)

    @property
    def halted(self) -> bool:
        """Whether the job has failed, is suspended or cannot be planned, so that nothing of it may start."""
        job = self.job
        return self.failed or job.suspended or self.unplannable is not None

    @property
    def active(self) -> bool:
        """Whether the job may have windows."""
        return not (self.halted or self.finished)

    def phase(self, now: float) -> JobPhase:
        """Return the phase of the job. If several apply, the one that lasts longest is returned."""
        open_window = any(not run.closing for run in self.runs.values())
        chief = self.chief
        phases = (
            (self.finished, JobPhase.FINISHED),
            (self.failed, JobPhase.FAILED),
            (self.unplannable is not None, JobPhase.UNPLANNABLE),
            (self.job.suspended, JobPhase.SUSPENDED),
            (open_window or (chief is not None and not chief.closing), JobPhase.RUNNING),
            (bool(self.runs) or self.has_closing_servers, JobPhase.STOPPING),
            (self.held_until > now, JobPhase.HELD),
        )
        return next((phase for holds, phase in phases if holds), JobPhase.WAITING)

    @property
    def restart_seconds(self) -> float:
        """Seconds lost by stopping a worker and starting it again, as declared, else as measured."""
        job = self.job
        return job.restart_seconds if job.restart_declared else min(self.restarts.seconds, job.restart_limit_seconds)

    def excludes(self, node: str | None, now: float) -> bool:
        """Return whether no pod of the job may be placed on that node now."""
        return bool(self.excluded_nodes) and self.excluded_nodes.get(node or "", 0.0) > now

    @property
    def job_gpus(self) -> int:
        """Number of GPUs of all workers that train at the same time, at least one for each."""
        return self.job.width * max(1, self.job.gpus)

    @property
    def stoppable(self) -> bool:
        """Whether the job allows its workers to be stopped for another job, and no rejected eviction forbids it."""
        return self.job.preemption is Preemption.IMMEDIATE and not self.eviction_blocked

    @property
    def ideal_seconds(self) -> float:
        """JCT in seconds if all its workers trained at once from the start."""
        job = self.job
        return -(-job.chunks // job.width) * job.batches_per_chunk_total * self.nominal_batch_seconds

    def ledger_changed(self, chunks: Iterable[int] | None = None) -> None:
        """Discard what was derived from `done` and `partial`, of some chunks (each in a window) or of all."""
        self._left = None
        self._pace = self._first_end = self._window_ends = None
        for run in self.runs.values() if chunks is None else map(self.chunk_runs.get, chunks):
            if run is not None:
                run.left = None

    def windows_changed(self) -> None:
        """Discard what was derived from the windows."""
        self._by_site = None
        self._pace = self._first_end = self._window_ends = None

    def enter(self, run: TrackedWindow) -> None:
        """Add a window that opens; its chunks no longer wait."""
        self.runs[run.window.attempt] = run
        self._pace = self._first_end = self._window_ends = None
        for chunk in run.window.chunks:
            self.chunk_runs[chunk] = run
            self.cloud.pop(chunk, None)
        run.resumed = self.durable_batches(run)
        for site, waiting in list((self._by_site or {}).items()):
            for chunk in run.window.chunks:
                if chunk in waiting:
                    waiting.remove(chunk)
            if not waiting and self._by_site is not None:
                del self._by_site[site]

    def leave(self, run: TrackedWindow) -> None:
        """Remove a window that is over; those of its chunks that are not done wait again."""
        self.runs.pop(run.window.attempt, None)
        if not self.runs:
            self.topology_level = None
        self._pace = self._first_end = self._window_ends = None
        for chunk in run.window.chunks:
            self.chunk_runs.pop(chunk, None)
        if not self.done.issuperset(run.window.chunks):
            self.returned += 1
            self._by_site = None

    def worker_seconds(self, now: float) -> float:
        """Return the seconds that one worker would need for the rest, less the estimated progress of running ones."""
        if self._left is None:
            done = sum(self.partial.values())
            if self.applied:
                done = sum(self.known_batches(chunk) for chunk in {*self.partial, *self.applied})
            self._left = self.job.batches_per_chunk_total * (self.job.chunks - len(self.done)) - done
        seconds_left = self._left * self.nominal_batch_seconds
        if not self.runs:
            return seconds_left
        pace = self._pace
        if pace is None or not pace.at <= now <= pace.until:
            pace = self._pace = self._paced(now)
        return seconds_left - pace.done - pace.rate * (now - pace.at)

    def _paced(self, now: float) -> TrainingPace:
        done, rate, until = 0.0, 0.0, inf
        for run in self.runs.values():
            if run.since is None:
                continue
            batches_left = self.left_of(run)
            end = run.since + batches_left * run.batch_seconds
            if now < run.since:
                until = min(until, run.since)
            elif now >= end:
                done += batches_left * self.nominal_batch_seconds
            else:
                done += (now - run.since) / run.batch_seconds * self.nominal_batch_seconds
                rate += self.nominal_batch_seconds / run.batch_seconds
                until = min(until, end)
        return TrainingPace(now, done, rate, until)

    @property
    def first_end(self) -> float:
        """Time from which a prediction of a training window is overrun, in seconds; infinite if none trains.

        It is the predicted end of the window that ends first; infinitely long ago if a measured one is slow.
        """
        if self._first_end is None:
            slow = any(run.slowdown > 1 for run in self.runs.values())
            ends = [
                run.since + self.left_of(run) * run.batch_seconds for run in self.runs.values() if run.since is not None
            ]
            self._first_end = -inf if slow else min(ends, default=inf)
        return self._first_end

    @property
    def window_ends(self) -> tuple[float, float]:
        """Planned ends of the first and the last window to end, in seconds, whether they train or not."""
        if self._window_ends is None:
            ends = [run.window.end for run in self.runs.values()]
            self._window_ends = (min(ends, default=inf), max(ends, default=-inf))
        return self._window_ends

    def training_rate(self, now: float) -> float:
        """Return the decrease of `worker_seconds` per second with the windows that train now."""
        rate = 0.0
        for run in self.runs.values():
            if run.started is not None and run.started <= now:
                rate += self.nominal_batch_seconds / run.batch_seconds
        return rate

    def waited_seconds(self, now: float) -> float:
        """Return the seconds that the job has waited without a window."""
        busy = self.busy_seconds + (now - self.busy_since if self.busy_since is not None else 0.0)
        return max(0.0, now - self.job.submitted - busy)

    def count_busy(self, now: float) -> None:
        """Add the time since the job got a window, now that its last one has ended or its suspension is over."""
        if self.busy_since is not None:
            self.busy_seconds += max(0.0, now - self.busy_since)
            self.busy_since = None

    def settle_busy(self, now: float) -> None:
        """Settle `busy_since` of a restored job: without windows it waits, unless it is suspended."""
        if not self.runs and not self.job.suspended:
            self.count_busy(now)
        elif not self.runs and self.busy_since is None:
            self.busy_since = now

    def attained_gpu_seconds(self, now: float) -> float:
        """Return the GPU-seconds that workers of the job have trained, running ones included."""
        attained = self.counted_gpu_seconds
        for run in self.runs.values():
            if run.started is not None and now > run.started:
                attained += (now - run.started) * max(1, self.job.gpus)
        return attained

    @property
    def training_workers(self) -> int:
        """Number of windows that train."""
        return sum(run.started is not None for run in self.runs.values())

    def reaches(self, gpu_seconds: float, now: float) -> float | None:
        """Return when the attained service reaches this amount if the windows that train now go on; None if none does.

        The result is at least `MOMENT_SECONDS` from now: a timer at a time that rounds to now would be set again
        and again.
        """
        training = self.training_workers * max(1, self.job.gpus)
        if not training:
            return None
        return now + max(MOMENT_SECONDS, (gpu_seconds - self.attained_gpu_seconds(now)) / training)

    def density(self, seconds_per_batch: float) -> float:
        """Return γ = (w/D) / (g·p) of a chunk that takes p seconds at this speed (JSAC'22 with w = g = 1).

        It is rounded, so that chunks of equal length are equally dense, whatever their numbers of mini-batches.
        """
        work = self.job.batches_per_chunk_total * seconds_per_batch * max(1, self.job.gpus)
        return float(f"{self.job.weight / (self.job.chunks * work):.{DENSITY_DIGITS}g}")

    def remaining_batches(self, chunk: int) -> float:
        """Return the number of mini-batches of the chunk that are not known to be trained."""
        return 0.0 if chunk in self.done else self.job.batches_per_chunk_total - self.known_batches(chunk)

    def known_batches(self, chunk: int) -> float:
        """Return the mini-batches of an unfinished chunk that are durable or, if that is more, reported."""
        durable = self.partial.get(chunk, 0.0)
        return max(durable, self.applied.get(chunk, 0.0)) if self.applied else durable

    def durable_batches(self, run: TrackedWindow) -> float:
        """Return the durable mini-batches of the chunks of an open window, of which none is done."""
        return fsum(self.partial.get(chunk, 0.0) for chunk in run.window.chunks)

    def left_of(self, run: TrackedWindow) -> float:
        """Return the remaining mini-batches of the chunks of a window."""
        if run.left is None:
            run.left = self.batches_left(run.window.chunks)
        return run.left

    def batches_left(self, chunks: Iterable[int]) -> float:
        """Return the remaining mini-batches of several chunks."""
        return sum([self.remaining_batches(chunk) for chunk in chunks])

    def remaining_seconds(self, chunk: int, now: float, seconds_per_batch: float) -> float:
        """Return the remaining seconds of the chunk, less the progress estimated since its start or last report."""
        run = self.chunk_runs.get(chunk)
        if run is None or run.since is None:
            return self.remaining_batches(chunk) * seconds_per_batch
        trained = now - run.since
        for earlier in run.window.chunks:
            seconds_left = self.remaining_batches(earlier) * run.batch_seconds
            if earlier == chunk:
                return max(0.0, seconds_left - max(0.0, trained))
            trained -= seconds_left
        return 0.0

    def free_index(self) -> int | None:
        """Return the lowest worker index without a window; None if the job has its most workers."""
        if not self.runs and self.job.max_workers > 0:
            return 0
        used = {run.window.index for run in self.runs.values()}
        return next((index for index in range(self.job.max_workers) if index not in used), None)
