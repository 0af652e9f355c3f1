"""Jobs as the planner knows them: ledgers, windows, bound chunks, copies of data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tranche.estimate import Restarts
from tranche.model import AttemptRecord, Checkpoint, Job, Preemption, Resources, Timings
from tranche.policies.phases import JobPhase
from tranche.policies.runs import Home, Key, Pace, Run
from tranche.policies.servers import Missing, Server, helpers_of
from tranche.policies.site_uses import JobUse
from tranche.policies.stagings import Staging

MOMENT_SECONDS = 1e-5
"""Shorter than anything that matters, longer than the steps of a clock that counts seconds since 1970 (2.4e-7)."""
ARRIVED = -inf
"""Since when a copy of data has been there that has come: for good, also if the clock is set back."""


@dataclass(slots=True, eq=False)
class JobState:
    """One job: its specification, its ledger, its chunks' homes and its windows."""

    job: Job
    done: set[int] = field(default_factory=set)
    partial: dict[int, float] = field(default_factory=dict)
    """Durable batches of chunks that are begun and not done."""
    applied: dict[int, float] = field(default_factory=dict)
    """Batches of chunks as last reported, where these are more than durable: for estimates only."""
    checkpoint: Checkpoint | None = None
    """What the parameter servers have said is durable; None if they report nothing."""
    reported: tuple[float, Timings] | None = None
    """When the job last reported, and how fast it was."""
    entries: dict[int, Entry] = field(default_factory=dict)
    """Unfinished chunks that a binding policy has dispatched."""
    data_sites: dict[int, str] = field(default_factory=dict)
    """Where each chunk's data were placed; a restarted planner keeps them there."""
    copies: dict[str, dict[int, float]] = field(default_factory=dict)
    """By site beside the data's own: chunks with a copy of their data there, and when it is complete; infinite until
    it is reported, if uploads are reported."""
    coming: dict[tuple[str, int], float] = field(default_factory=dict)
    """When a report is expected, by site and chunk."""
    cloud: dict[int, str] = field(default_factory=dict)
    """Unlimited sites of the waiting chunks that are to train there (`tranche.planner.cloud_burst`)."""
    returned: int = 0
    """How often chunks of a window have come back to wait."""
    reviewed: int = -1
    """`returned` at the last comparison with unlimited sites; -1: there was none since the job or the sites changed."""
    uploaded_at: float | None = None
    """When the data of a pooled job are at all sites; None unless the policy has `QueuePolicy.uploads_ahead`."""
    burst_sites: set[str] = field(default_factory=set)
    """Unlimited sites to which data of the job were copied; only chunks of `cloud` start there."""
    stagings: dict[str, Staging] = field(default_factory=dict)
    """Copies that pods of the job bring, by site."""
    runs: dict[int, Run] = field(default_factory=dict)
    """By attempt."""
    chunk_runs: dict[int, Run] = field(default_factory=dict)
    """The window that each chunk is in."""
    servers: list[Server] = field(default_factory=list)
    """Parameter servers and chief that have a place."""
    unhosted: bool = False
    """There was no place for its parameter servers when one was last looked for."""
    colocated: bool = False
    """ζ = 1: all workers and the parameter servers are together in the cloud."""
    attempts: int = 0
    attained_seconds: float = 0.0
    use: JobUse = field(default_factory=JobUse)
    """What it has used at each site."""
    preemptions: int = 0
    failures: int = 0
    lost_batches: float = 0.0
    records: list[AttemptRecord] = field(default_factory=list)
    held_until: float = 0.0
    hold_reason: str = ""
    spared: bool = False
    """An eviction of its pods was refused, so it is not to make way for now (`ClusterState.spared`)."""
    unplannable: tuple[str, str] | None = None
    """CamelCase reason and a sentence, if the job cannot be planned."""
    avoided: dict[str, float] = field(default_factory=dict)
    """Nodes that refused a pod of this job, until when."""
    refused: dict[str, int] = field(default_factory=dict)
    """How often each has, since a pod of the job last started there."""
    first_started: float | None = None
    """When a worker of the job first trained."""
    idle_since: float = 0.0
    """When the job's last window ended; its submission before."""
    busy_seconds: float = 0.0
    """Time with a window open, before `busy_since`; time spent suspended counts too."""
    busy_since: float | None = None
    """Since when a window has been open."""
    level: int = 0
    """Priority queue of a queue policy with several, and since when."""
    level_since: float = 0.0
    forgiven: float = 0.0
    """GPU-seconds attained at the last promotion."""
    granted: int | None = None
    """Workers on nodes that it may have under a policy that distributes them; None: as many as it asks for."""
    place: int = 0
    """Its order in that distribution."""
    nominal_batch_seconds: float = 0.0
    """Time of a mini-batch where nothing is known of the node."""
    assumed: bool = False
    """Nothing is known of the job's size but its attained service: what was told is an assumption."""
    restarts: Restarts = field(default_factory=Restarts)
    """What stopping and starting its workers was seen to cost."""
    arrival: tuple[float, int, str] = (0.0, 0, "")
    """Order of submission."""
    hosts: tuple[int, Any] = (-1, None)
    """The answer of `ClusterState.hosts` and the epoch that it holds for; an epoch of -1 makes it void."""
    _left: float | None = None
    _pace: Pace | None = None
    _first_end: float | None = None
    _window_ends: tuple[float, float] | None = None
    _by_site: dict[str, list[int]] | None = None
    _by_site_until: float = 0.0
    """When another copy is complete."""

    def __post_init__(self) -> None:
        self.arrival = (self.job.submitted, self.job.order, self.job.key)

    @property
    def waiting(self) -> list[int]:
        """Unfinished chunks in no window, in their order."""
        return [c for c in range(self.job.chunks) if c not in self.done and c not in self.chunk_runs]

    @property
    def unassigned(self) -> int:
        """How many chunks wait: unfinished, and in no window."""
        return self.job.chunks - len(self.done) - len(self.chunk_runs)

    def waiting_by_site(self, now: float) -> dict[str, list[int]]:
        """Waiting chunks by site where their data are, those that could wait at few sites first; "" means anywhere."""
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
                    here = bound.pop(site, []) if site in self.burst_sites else waiting
                    by_site[site] = [chunk for chunk in here if copies.get(chunk, inf) <= now]
                    until = min([until, *(at for at in copies.values() if at > now)])
            sites = Counter(chunk for here in by_site.values() for chunk in here)
            by_site[self.job.data_site or ""] = waiting
            by_site.update(bound)  # where nothing has to be brought
            self._by_site = {s: sorted(here, key=sites.__getitem__) for s, here in by_site.items() if here}
            self._by_site_until = until
        return self._by_site

    def waiting_at(self, site: str, now: float) -> list[int]:
        """Those of one site, in a list of its own."""
        return list(self.waiting_by_site(now).get(site, ()))

    def clouds(self, now: float) -> list[str]:
        """Unlimited sites where chunks that are to train there can start now."""
        by_site = self.waiting_by_site(now) if self.cloud else {}
        return [site for site in sorted(set(self.cloud.values())) if site in by_site]

    def is_bound_for(self, site: str) -> bool:
        """Whether all unfinished chunks train, or are to train, at this unlimited site (ζ = 1)."""
        waiting = self.unassigned
        if not (waiting or self.runs) or any(run.home.site != site for run in self.runs.values()):
            return False
        return waiting == len(self.cloud) and all(bound == site for bound in self.cloud.values())

    def can_start_at(self, site: str, now: float) -> bool:
        """Whether a chunk that waits for a node may start at the site, as far as uploads of a pooled job matter."""
        if self.uploaded_at is None or site == self.job.data_site:
            return True
        copies = self.copies.get(site)
        if copies is None or now >= self.uploaded_at:
            return copies is not None
        return any(at <= now and c not in self.done and c not in self.chunk_runs for c, at in copies.items())

    def is_at(self, chunk: int, site: str, now: float) -> bool:
        """Whether this chunk may start at the site, as far as uploads of a pooled job matter."""
        if self.uploaded_at is None or site == self.job.data_site:
            return True
        return self.copies.get(site, {}).get(chunk, inf) <= now

    @property
    def waiting_for_nodes(self) -> int:
        """How many chunks wait and are not to train at an unlimited site."""
        return self.unassigned - len(self.cloud)

    @property
    def wanted_on_nodes(self) -> int:
        """How many of these may start: of a job with a limit of workers, no more than it has left on nodes.

        A job that was granted no worker may have one of those that no other job can use.
        """
        waiting = self.waiting_for_nodes
        if self.granted is None or self.job.rigid:
            return waiting
        used = sum(run.home.node is not None for run in self.runs.values())
        return min(waiting, max(0, max(1, self.granted) - used))

    def homes(self, now: float) -> Iterator[tuple[int, str]]:
        """Unfinished chunks with a site to which the data were placed, once for each such site."""
        for chunk, site in self.data_sites.items():
            if chunk not in self.done:
                yield chunk, site
        for site, copies in self.copies.items():
            for chunk, at in copies.items():
                if at <= now and chunk not in self.done:
                    yield chunk, site

    def copy(self, chunk: int, site: str, until: float, *, reported: bool = False) -> None:
        """The chunk's data are at the site from then on, or from when that is reported."""
        self.copies.setdefault(site, {})[chunk] = inf if reported else until
        if reported:
            self.coming[site, chunk] = until
        self._by_site = None

    @property
    def leaving(self) -> bool:
        """Whether parameter servers are to stop and have not ended yet: nothing of the job starts before."""
        return any(server.closing for server in self.servers)

    @property
    def chief(self) -> Server | None:
        """The chief, if it has a place."""
        return next((server for server in self.servers if server.planned.is_chief), None)

    @property
    def missing_servers(self) -> list[Missing]:
        """Parameter servers and chief that have no place yet."""
        have = {(server.planned.index, server.planned.is_chief) for server in self.servers}
        return [one for one in helpers_of(self.job) if (one.number, one.is_chief) not in have]

    @property
    def joining(self) -> list[Missing]:
        """Those of them that have to start together with the workers: those of a gang."""
        return self.missing_servers if self.job.rigid else []

    @property
    def missing_requests(self) -> list[Resources]:
        """What those without a place ask for."""
        return [one.shape.requests for one in self.missing_servers]

    @property
    def speakers(self) -> list[Server]:
        """Whose reports are about the whole job: the chief, else parameter server 0."""
        chief = self.job.chief is not None
        return [one for one in self.servers if one.planned.is_chief == chief and one.planned.index == 0]

    @property
    def finished(self) -> bool:
        """Whether every chunk is done, and the chief of a gang as well: it is in its place until its end is counted."""
        return len(self.done) == self.job.chunks and (self.job.chief is None or self.chief is None)

    @property
    def failed(self) -> bool:
        """Whether more pods failed than the user allows."""
        return self.failures > self.job.backoff_limit

    @property
    def active(self) -> bool:
        """Whether the job may have windows at all."""
        return not (self.finished or self.failed or self.job.suspended or self.unplannable)

    def phase(self, now: float) -> JobPhase:
        """What the job does now, or what keeps it from doing anything; what lasts longest comes first."""
        open_window = any(not run.closing for run in self.runs.values())
        chief = self.chief
        phases = (
            (self.finished, JobPhase.FINISHED),
            (self.failed, JobPhase.FAILED),
            (self.unplannable is not None, JobPhase.UNPLANNABLE),
            (self.job.suspended, JobPhase.SUSPENDED),
            (open_window or (chief is not None and not chief.closing), JobPhase.RUNNING),
            (bool(self.runs) or self.leaving, JobPhase.STOPPING),
            (self.held_until > now, JobPhase.HELD),
        )
        return next((phase for holds, phase in phases if holds), JobPhase.WAITING)

    @property
    def restart_seconds(self) -> float:
        """What it costs to stop one of its workers and start it again: as the user says, else as was measured."""
        return self.job.restart_seconds if self.job.restart_told else self.restarts.seconds

    def avoids(self, node: str | None, now: float) -> bool:
        """Whether no pod of the job is to be sent to that node now."""
        return bool(self.avoided) and self.avoided.get(node or "", 0.0) > now

    @property
    def job_gpus(self) -> int:
        """GPUs of all these workers together."""
        return self.job.width * max(1, self.job.gpus)

    @property
    def stoppable(self) -> bool:
        """Whether its workers may be stopped for another job, as far as that is up to the job."""
        return self.job.preemption is Preemption.IMMEDIATE and not self.spared

    @property
    def ideal_seconds(self) -> float:
        """Its JCT if all its workers trained at once from the start."""
        job = self.job
        return -(-job.chunks // job.width) * job.batches_per_chunk_total * self.nominal_batch_seconds

    def ledger_changed(self, chunks: Iterable[int] | None = None) -> None:
        """Forget what was derived from `done` and `partial`, of some chunks or all; chunks done were in a window."""
        self._left = None
        self._pace = self._first_end = self._window_ends = None
        for run in self.runs.values() if chunks is None else map(self.chunk_runs.get, chunks):
            if run is not None:
                run.left = None

    def windows_changed(self) -> None:
        """Forget what was derived from the windows."""
        self._by_site = None
        self._pace = self._first_end = self._window_ends = None

    def enter(self, run: Run) -> None:
        """A window opens: its chunks wait no more."""
        self.runs[run.window.attempt] = run
        self._pace = self._first_end = self._window_ends = None
        for chunk in run.window.chunks:
            self.chunk_runs[chunk] = run
            self.cloud.pop(chunk, None)
        for site, here in list((self._by_site or {}).items()):
            for chunk in run.window.chunks:
                if chunk in here:
                    here.remove(chunk)
            if not here and self._by_site is not None:
                del self._by_site[site]

    def leave(self, run: Run) -> None:
        """A window is over; chunks of it that are not done wait again."""
        self.runs.pop(run.window.attempt, None)
        self._pace = self._first_end = self._window_ends = None
        for chunk in run.window.chunks:
            self.chunk_runs.pop(chunk, None)
        if not self.done.issuperset(run.window.chunks):
            self.returned += 1
            self._by_site = None

    def worker_seconds(self, now: float) -> float:
        """The time that one worker would need for all that is left, less what running ones have probably done."""
        if self._left is None:
            done = sum(self.partial.values())
            if self.applied:
                done = sum(self.known_batches(chunk) for chunk in {*self.partial, *self.applied})
            self._left = self.job.batches_per_chunk_total * (self.job.chunks - len(self.done)) - done
        left = self._left * self.nominal_batch_seconds
        if not self.runs:
            return left
        pace = self._pace
        if pace is None or not pace.at <= now <= pace.until:
            pace = self._pace = self._paced(now)
        return left - pace.done - pace.rate * (now - pace.at)

    def _paced(self, now: float) -> Pace:
        done, rate, until = 0.0, 0.0, inf
        for run in self.runs.values():
            if run.since is None:
                continue
            rest = self.left_of(run)
            end = run.since + rest * run.batch_seconds
            if now < run.since:
                until = min(until, run.since)
            elif now >= end:
                done += rest * self.nominal_batch_seconds
            else:
                done += (now - run.since) / run.batch_seconds * self.nominal_batch_seconds
                rate += self.nominal_batch_seconds / run.batch_seconds
                until = min(until, end)
        return Pace(now, done, rate, until)

    @property
    def first_end(self) -> float:
        """When the first of the windows that train should end by prediction, in seconds; infinite if none trains."""
        if self._first_end is None:
            ends = [
                run.since + self.left_of(run) * run.batch_seconds for run in self.runs.values() if run.since is not None
            ]
            self._first_end = min(ends, default=inf)
        return self._first_end

    @property
    def window_ends(self) -> tuple[float, float]:
        """When the first and the last of the windows should end, in seconds, whether they train or not."""
        if self._window_ends is None:
            ends = [run.window.end for run in self.runs.values()]
            self._window_ends = (min(ends, default=inf), max(ends, default=-inf))
        return self._window_ends

    def training_rate(self, now: float) -> float:
        """By how much `worker_seconds` falls per second, with the windows that train now."""
        rate = 0.0
        for run in self.runs.values():
            if run.started is not None and run.started <= now:
                rate += self.nominal_batch_seconds / run.batch_seconds
        return rate

    def waited_seconds(self, now: float) -> float:
        """How long the job has waited without a window, in all."""
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
        """GPU time that workers of the job have trained, running ones included."""
        attained = self.attained_seconds
        for run in self.runs.values():
            if run.started is not None and now > run.started:
                attained += (now - run.started) * max(1, self.job.gpus)
        return attained

    @property
    def training_workers(self) -> int:
        """Windows that train."""
        return sum(run.started is not None for run in self.runs.values())

    def reaches(self, gpu_seconds: float, now: float) -> float | None:
        """When the attained service will be so much if the windows that train now go on; None if none does.

        A moment from now at the earliest: a time that rounds to now would be waited for for ever.
        """
        training = self.training_workers * max(1, self.job.gpus)
        if not training:
            return None
        return now + max(MOMENT_SECONDS, (gpu_seconds - self.attained_gpu_seconds(now)) / training)

    def density(self, seconds_per_batch: float) -> float:
        """γ = (w/D) / (g·p) of a chunk that takes p seconds at such a speed (JSAC'22 with w = g = 1)."""
        work = self.job.batches_per_chunk_total * seconds_per_batch * max(1, self.job.gpus)
        return self.job.weight / (self.job.chunks * work)

    def remaining_batches(self, chunk: int) -> float:
        """Mini-batches of the chunk that nobody has told of."""
        return 0.0 if chunk in self.done else self.job.batches_per_chunk_total - self.known_batches(chunk)

    def known_batches(self, chunk: int) -> float:
        """Those of an unfinished chunk that are durable or, if that is more, reported."""
        durable = self.partial.get(chunk, 0.0)
        return max(durable, self.applied.get(chunk, 0.0)) if self.applied else durable

    def left_of(self, run: Run) -> float:
        """Those of the chunks of a window."""
        if run.left is None:
            run.left = self.batches_left(run.window.chunks)
        return run.left

    def batches_left(self, chunks: Iterable[int]) -> float:
        """Those of several chunks."""
        return sum([self.remaining_batches(chunk) for chunk in chunks])

    def remaining_seconds(self, chunk: int, now: float, seconds_per_batch: float) -> float:
        """The rest of the chunk in seconds, less what its worker has probably done since its start or last report."""
        run = self.chunk_runs.get(chunk)
        if run is None or run.since is None:
            return self.remaining_batches(chunk) * seconds_per_batch
        trained = now - run.since
        for earlier in run.window.chunks:
            rest = self.remaining_batches(earlier) * run.batch_seconds
            if earlier == chunk:
                return max(0.0, rest - max(0.0, trained))
            trained -= rest
        return 0.0

    def free_index(self) -> int | None:
        """The lowest worker index without a window, None if the job has its most workers."""
        used = {run.window.index for run in self.runs.values()}
        return next((i for i in range(self.job.max_workers) if i not in used), None)


@dataclass(slots=True, eq=False)
class Entry:
    """An unfinished chunk in the queues of the slots that it is bound to."""

    key: Key
    state: JobState
    chunk: int
    home: Home
    ready_at: float
    """t0: when its data are there, in seconds on the planner's clock."""
    batch_seconds: float
    cost: float | None = None
    """Q at dispatch, in seconds; None if no dispatch rule chose the home, as after a restart of the planner."""
    planned_start: float | None = None
    """t* at dispatch: when its slots are first free for it, in seconds on the planner's clock; else None."""
    planned_end: float | None = None
    """When it was to be done, as planned at dispatch; later arrivals may shift or split the window."""

    def remaining_seconds(self, now: float) -> float:
        """p̂: the rest of the chunk at its home, in seconds."""
        return self.state.remaining_seconds(self.chunk, now, self.batch_seconds)
