"""Uploads in virtual time that share the uplinks of their sites with workers and with each other.

The uploads of all policies are here: copies that the planner instructs, uploads that a binding or pooled policy begins
when a job arrives, and data that a worker fetches after its start. Uploads of one pair of sites go one after the other,
unless their link is dedicated; a dedicated link is not shared. [I] The time of an upload alone, latency included, is
stretched as a whole. Uploads of complete chunks are not begun, and those of complete jobs end.
"""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tranche.estimate import Ends, upload_link
from tranche.planner import ChunkStaged, StageData
from tranche.simulation.engine.link_traffic import LinkTraffic, Sender
from tranche.simulation.engine.true_transfers import LinkFactor, TrueUploads
from tranche.state.cluster import ClusterState

Due = tuple[float, ChunkStaged]
"""Time of an event for the planner, and the event."""


@dataclass(slots=True, eq=False)
class Upload:
    """Upload of one chunk, linear in time between two changes of contention."""

    report: ChunkStaged
    bits_per_second: float
    left: float
    """Time that the rest takes alone, in seconds, at time `since`."""
    began: float = 0.0
    since: float = 0.0
    slowdown: float = 1.0
    scheduled: float = 0.0
    """Time of the event that ends it, or that schedules a later one, in seconds."""

    @property
    def ends(self) -> float:
        """Time at which it is complete if contention does not change, in seconds."""
        return self.since + self.left * self.slowdown


@dataclass(slots=True)
class SharedUploads:
    """Uploads that contend for uplinks; dedicated ones do not."""

    factor: LinkFactor
    traffic: LinkTraffic
    _dedicated: TrueUploads = field(init=False)
    _queues: dict[Ends, deque[Upload]] = field(default_factory=dict)
    """Uploads of each pair of sites in order; the first one is under way."""
    _shared: set[tuple[str, int, str]] = field(default_factory=set)
    """Job, chunk and site of all uploads that were in these queues."""

    def __post_init__(self) -> None:
        self._dedicated = TrueUploads(self.factor)

    def send(self, cluster: ClusterState, instruction: StageData, now: float) -> tuple[list[Due], dict[Sender, float]]:
        """Send data; returns events, and what contention adds from now on as `LinkTraffic.begin` returns it."""
        job = cluster.jobs[instruction.job].job
        ends = (job.data_site or instruction.site, instruction.site)
        link = upload_link(cluster.network, cluster.sites, job, instruction.site)
        if link is None or link.dedicated:
            return list(self._dedicated.send(cluster, instruction, now)), {}
        seconds = link.transfer_seconds(job.chunk_bytes) * self.factor(*ends)
        queue = self._queues.setdefault(ends, deque())
        idle = not queue
        for chunk in instruction.chunks:
            report = ChunkStaged(instruction.job, chunk, instruction.site, seconds)
            self._shared.add((report.job, report.chunk, report.site))
            queue.append(Upload(report, link.bits_per_second, seconds))
        return self._start(cluster, ends, now) if idle else ([], {})

    def drop(
        self, cluster: ClusterState, job: str, now: float, chunks: Collection[int] = (), site: str = ""
    ) -> tuple[list[Due], dict[Sender, float]]:
        """Stop uploads of a job, of all its chunks or of some to one site; returns the same as `send`."""
        due: list[Due] = []
        changes: dict[Sender, float] = {}
        for ends, queue in self._queues.items():
            first = queue[0] if queue else None
            remaining = [
                upload
                for upload in queue
                if upload.report.job != job or (site and not _concerns(upload.report, chunks, site))
            ]
            if first is None or len(remaining) == len(queue):
                continue
            queue.clear()
            queue.extend(remaining)
            if not queue or queue[0] is not first:
                changes |= self.traffic.end(ends)
                changes.pop(ends, None)  # this change was for the upload that is dropped
                started, further = self._start(cluster, ends, now)
                due, changes = due + started, changes | further
        return due, changes

    def slow_down(self, ends: Ends, extra: float, now: float) -> Iterator[Due]:
        """Stretch an upload from now on by the part that contention adds; yields the event of its end if it moves."""
        upload = self._queues[ends][0]
        upload.left = max(0.0, upload.left - (now - upload.since) / upload.slowdown)
        upload.since, upload.slowdown = now, 1 + extra
        if upload.ends < upload.scheduled:
            yield self._scheduled(upload)

    def arrive(
        self, cluster: ClusterState, event: ChunkStaged, now: float
    ) -> tuple[ChunkStaged | None, list[Due], dict[Sender, float]]:
        """Return the report of an upload that ends now, and as `send` what follows; no report if it ends later."""
        if (event.job, event.chunk, event.site) not in self._shared:
            return event, [], {}
        ends = next((ends for ends, queue in self._queues.items() if queue and queue[0].report is event), None)
        if ends is None:  # it is complete, since contention has moved its end forward
            return None, [], {}
        upload = self._queues[ends][0]
        if now < upload.ends:  # contention has changed its end since
            return None, [self._scheduled(upload)] if now >= upload.scheduled else [], {}
        self._queues[ends].popleft()
        changes = self.traffic.end(ends)
        due, further = self._start(cluster, ends, now)
        return event._replace(seconds=now - upload.began), due, changes | further

    def _start(self, cluster: ClusterState, ends: Ends, now: float) -> tuple[list[Due], dict[Sender, float]]:
        """Start the next upload of a pair of sites, if there is one; what no worker needs any more is not sent."""
        queue = self._queues[ends]
        while queue and _is_needless(cluster, queue[0].report):
            queue.popleft()
        if not queue:
            return [], {}
        upload = queue[0]
        upload.began = upload.since = now
        hosts = [nodes[0].node for site in ends if (nodes := cluster.free.nodes_at(site))]
        changes = self.traffic.begin_upload(ends, hosts, upload.bits_per_second)
        upload.slowdown = 1 + changes.pop(ends, 0.0)
        return [self._scheduled(upload)], changes

    def _scheduled(self, upload: Upload) -> Due:
        upload.scheduled = upload.ends
        return upload.ends, upload.report


def _is_needless(cluster: ClusterState, upload: ChunkStaged) -> bool:
    """Return whether the chunk is complete, or its job is gone."""
    state = cluster.jobs.get(upload.job)
    return state is None or state.finished or upload.chunk in state.done


def _concerns(upload: ChunkStaged, chunks: Collection[int], site: str) -> bool:
    return upload.site == site and upload.chunk in chunks
