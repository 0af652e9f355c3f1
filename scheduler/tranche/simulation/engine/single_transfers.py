"""Every mini-batch of gangs in virtual time: computation, then one transfer that starts when a start rule allows it.

In place of the expected contention of `LinkTraffic`: a gang that crosses uplinks computes, waits until its all-reduce
may start, and sends. Transfers that share an uplink divide it as `tranche.estimate.link_contention` says, and the ready
ones are offered to the rule in the order of the least remaining service (GPUs times seconds of computation), then of
the job's key. A gang that is alone on all of its uplinks has no event until it is done or another one comes: its
mini-batches take the time without contention.
Source of the rules: `tranche.estimate.transfer_start`. In a cluster no component can delay a transfer.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf

from tranche.estimate.link_contention import LinkLoads, SharedLinks
from tranche.estimate.transfer_start import StartRule
from tranche.model import Node
from tranche.simulation.engine.link_traffic import LinkTraffic, Uplink

SAME = 1e-9
"""Relative difference below which numbers of mini-batches count as equal."""


@dataclass(slots=True, eq=False)
class GangBatches:
    """Mini-batches of one gang."""

    job: str
    path: tuple[Uplink, ...]
    compute: float
    """Computation of a mini-batch, in seconds."""
    send: float
    """Transfer of a mini-batch alone, in seconds."""
    bits: float
    """Size of this transfer on the slowest link."""
    gpus: int
    planned: float
    """Mini-batches left when the gang began; the first one may be a part."""
    left: float
    """Mini-batches left when the present one began."""
    part: float
    """Part of the present mini-batch that was left when it began, 0 … 1."""
    began: float
    """When the present mini-batch began, in seconds; if it is alone on its links, the first since then."""
    due: float = inf
    """When computation ends, or all mini-batches if it is alone; infinite while it waits or sends."""
    alone: bool = False
    """Whether no other gang is on its uplinks, so that its mini-batches have no events."""

    @property
    def batch(self) -> float:
        """Time of a mini-batch without contention, in seconds."""
        return self.compute + self.send

    @property
    def service(self) -> tuple[float, str]:
        """Remaining service, and the job's key."""
        return self.gpus * self.compute * self.left, self.job

    def begin_next(self, began: float) -> None:
        """Begin the next mini-batch."""
        self.left -= self.part
        self.part, self.began = 1.0, began


@dataclass(slots=True, eq=False)
class SingleTransfers:
    """All gangs that send over uplinks, mini-batch by mini-batch."""

    traffic: LinkTraffic
    """Topology levels and capacities; its loads are not used."""
    rule: StartRule
    links: SharedLinks[Uplink, str] = field(init=False)
    """Transfers under way, by job, in bits."""
    now: float = 0.0
    _gangs: dict[str, GangBatches] = field(default_factory=dict)
    _crossing: dict[Uplink, dict[str, None]] = field(default_factory=dict)
    """Gangs on each uplink."""
    _ready: dict[str, None] = field(default_factory=dict)
    """Gangs whose transfer waits for the rule."""
    _heap: list[tuple[float, int, GangBatches]] = field(default_factory=list)
    """Ends of computation and of gangs that are alone; an entry counts if its time is `due` of the gang."""
    _order: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        bits_per_second = self.traffic.network.bits_per_second
        self.links = SharedLinks(LinkLoads(lambda uplink: 1 / bits_per_second[uplink[0] + 1]))

    def __contains__(self, job: object) -> bool:
        return job in self._gangs

    def __bool__(self) -> bool:
        return bool(self._gangs)

    def begin(
        self, job: str, nodes: Iterable[Node], gpus: int, send: float, batch_seconds: float, left: float, now: float
    ) -> bool:
        """Let a gang train and send; returns whether it does, which it does not without uplinks or gradients.

        Args:
            job: Key of the job.
            nodes: Nodes of its members.
            gpus: GPUs of all members.
            send: Transfer of a mini-batch without contention, in seconds.
            batch_seconds: Time of a mini-batch without contention, in seconds.
            left: Mini-batches left.
            now: Time, in seconds.
        """
        uplinks, level = self.traffic.uplinks(nodes)
        if not uplinks or not send or left <= 0:
            return False
        capacities = self.traffic.network.bits_per_second[: level + 1]
        slowest = min(capacities)
        # a link of its own limits the gang if its slowest link is none of the uplinks
        path = (*uplinks, (capacities.index(slowest) - 1, (job,)))
        send = min(send, batch_seconds)
        if abs(left - round(left)) < SAME * left:  # else a rest of rounding would be a transfer that waits
            left = float(round(left))
        part = left % 1 or 1.0
        gang = GangBatches(job, path, batch_seconds - send, send, send * slowest, gpus, left, left, part, now)
        self._gangs[job] = gang
        neighbors = {name for uplink in path for name in self._crossing.get(uplink, ())}
        for uplink in path:
            self._crossing.setdefault(uplink, {})[job] = None
        for name in sorted(neighbors):
            self._join(self._gangs[name], now)
        self._compute(gang, now)
        return True

    def end(self, job: str, now: float) -> float:
        """Let a gang leave; returns the mini-batches that it has trained, the present one in part."""
        gang = self._gangs.pop(job)
        self._join(gang, now)
        for uplink in gang.path:
            del self._crossing[uplink][job]
            if not self._crossing[uplink]:
                del self._crossing[uplink]
        self._ready.pop(job, None)
        trained = gang.planned - gang.left
        if gang.left > 0:
            seconds = gang.compute * gang.part - (max(0.0, gang.due - now) if gang.due < inf else 0.0)
            if job in self.links.transfers:
                seconds += gang.send * (gang.part - self.links.end(job, now) / gang.bits)
            trained += seconds / gang.batch
        gang.due = inf
        self._start_ready(now)
        return trained

    def advance(self, until: float) -> tuple[float, list[str]]:
        """Train until the first gangs are done, at most until that time.

        Returns:
            Time at which they are done, and their jobs; no jobs if none is done until then.
        """
        done_jobs: list[str] = []
        while True:
            while self._heap and self._heap[0][0] != self._heap[0][2].due:
                heappop(self._heap)
            computed = self._heap[0][0] if self._heap else inf
            sent, sender = self.links.next_end()
            first = min(computed, sent)
            if first > until or first == inf or (done_jobs and first > self.now):
                return self.now, done_jobs
            self.now = max(self.now, first)
            if computed <= sent:
                gang = heappop(self._heap)[2]
                gang.due = inf
                if not gang.alone:
                    self._ready[gang.job] = None
                    self._start_ready(self.now)
                    continue
                gang.left, gang.alone = 0.0, False
            else:
                assert sender is not None
                gang = self._gangs[sender]
                self.links.end(sender, self.now)
                gang.begin_next(self.now)
                if gang.left > 0:
                    self._compute(gang, self.now)
                self._start_ready(self.now)
            if not gang.left:
                done_jobs.append(gang.job)

    def _compute(self, gang: GangBatches, now: float) -> None:
        """Let a gang begin a mini-batch, or all that are left if no other gang is on its uplinks."""
        gang.alone = all(len(self._crossing[uplink]) == 1 for uplink in gang.path)
        seconds = gang.left * gang.batch if gang.alone else gang.compute * gang.part
        self._is_due(gang, now + seconds)

    def _is_due(self, gang: GangBatches, at: float) -> None:
        gang.due = at
        heappush(self._heap, (at, next(self._order), gang))

    def _join(self, gang: GangBatches, now: float) -> None:
        """Give a gang that was alone the events of its present mini-batch."""
        if not gang.alone:
            return
        gang.alone, gang.due = False, inf
        later = max(0, ceil(gang.left - (now - gang.began) / gang.batch) - 1)
        if gang.left - gang.part > later:  # the first one is done, and further ones may be
            gang.begin_next(gang.began + gang.part * gang.batch)
            whole_batches = gang.left - 1 - later
            gang.began += whole_batches * gang.batch
            gang.left -= whole_batches
        offset = min(max(0.0, now - gang.began), gang.part * gang.batch)
        compute = gang.part * gang.compute
        if offset < compute:
            self._is_due(gang, gang.began + compute)
        else:
            unsent = 1 - (offset - compute) / (gang.part * gang.send)
            self.links.start(gang.job, gang.part * gang.bits * unsent, gang.path, now)

    def _start_ready(self, now: float) -> None:
        """Offer the ready transfers to the rule, that of the least remaining service first."""
        for gang in sorted((self._gangs[job] for job in self._ready), key=lambda transfer: transfer.service):
            bits = gang.part * gang.bits
            beside = [transfer.left_at(now) for transfer in self.links.on(gang.path)]
            if self.rule(bits, beside, self.links.most(gang.path)):
                del self._ready[gang.job]
                self.links.start(gang.job, bits, gang.path, now)
