"""The planner's state as policies read it: jobs with their ledgers, nodes with their slots and queues."""

from bisect import insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tranche.estimate import NetworkPrior, batch_seconds, bits_per_second, transfer_seconds
from tranche.model import AttemptRecord, Job, Node, PlannedServer, PodShape, Resources, Site, Window, WindowState
from tranche.policies.shares import History, Shares

Key = tuple[float, float, str, int]
"""Order of a chunk: the policy's value, then arrival, job key and chunk number; the smaller runs first."""


class Home(NamedTuple):
    """Where a chunk is bound to train."""

    site: str
    node: str | None
    """None on an unlimited site."""
    slots: tuple[int, ...] = ()
    """Ordinals of the node's GPUs, in the planner's own count."""


@dataclass(slots=True, eq=False)
class Entry:
    """An unfinished chunk in the queues of the slots that it is bound to."""

    key: Key
    state: "JobState"
    chunk: int
    home: Home
    ready_at: float
    batch_seconds: float

    def remaining_seconds(self, now: float) -> float:
        """p̂: the rest of the chunk at its home, in seconds."""
        return self.state.remaining_seconds(self.chunk, now, self.batch_seconds)


@dataclass(slots=True, eq=False)
class Run:
    """A window that is open or closing, with what is known of its pod."""

    window: Window
    home: Home
    opened: float
    batch_seconds: float
    handover: bool = False
    """Its slots were still in use by a worker that is to stop when the window opened."""
    started: float | None = None
    """When the worker began to train; None until its pod runs."""

    @property
    def closing(self) -> bool:
        """Whether the pod is to stop."""
        return self.window.state is WindowState.CLOSING


@dataclass(slots=True, eq=False)
class Server:
    """A parameter server that has a place."""

    planned: PlannedServer
    requests: Resources


@dataclass(slots=True, eq=False)
class JobState:
    """One job: its specification, its ledger, its chunks' homes and its windows."""

    job: Job
    done: set[int] = field(default_factory=set)
    partial: dict[int, float] = field(default_factory=dict)
    """Batches applied of chunks that are begun and not done."""
    entries: dict[int, Entry] = field(default_factory=dict)
    """Unfinished chunks that a binding policy has dispatched."""
    data_sites: dict[int, str] = field(default_factory=dict)
    """Where each chunk's data were placed; a restarted planner keeps them there."""
    runs: dict[int, Run] = field(default_factory=dict)
    """By attempt."""
    chunk_runs: dict[int, Run] = field(default_factory=dict)
    """The window that each chunk is in."""
    servers: list[Server] = field(default_factory=list)
    colocated: bool = False
    """ζ = 1: all workers and the parameter servers are together in the cloud."""
    attempts: int = 0
    attained_seconds: float = 0.0
    preemptions: int = 0
    failures: int = 0
    lost_batches: float = 0.0
    records: list[AttemptRecord] = field(default_factory=list)
    held_until: float = 0.0
    hold_reason: str = ""
    unplannable: tuple[str, str] | None = None
    """CamelCase reason and a sentence, if the job cannot be planned."""
    avoided: dict[str, float] = field(default_factory=dict)
    """Nodes that refused a pod of this job, until when."""
    first_started: float | None = None
    """When a worker of the job first trained."""
    idle_since: float = 0.0
    """When the job's last window ended; its submission before."""
    level: int = 0
    """Priority queue of a queue policy with several, and since when."""
    level_since: float = 0.0
    forgiven: float = 0.0
    """GPU-seconds attained at the last promotion."""
    nominal_batch_seconds: float = 0.0
    """Time of a mini-batch where nothing is known of the node."""
    arrival: tuple[float, int, str] = (0.0, 0, "")
    """Order of submission."""
    hosts: tuple[int, list["NodeState"]] = field(default_factory=lambda: (-1, []))
    """See `ClusterState.hosts`."""
    _left: float | None = None

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

    @property
    def finished(self) -> bool:
        """Whether every chunk is done."""
        return len(self.done) == self.job.chunks

    @property
    def failed(self) -> bool:
        """Whether more pods failed than the user allows."""
        return self.failures > self.job.backoff_limit

    @property
    def active(self) -> bool:
        """Whether the job may have windows at all."""
        return not (self.finished or self.failed or self.job.suspended or self.unplannable)

    @property
    def job_gpus(self) -> int:
        """GPUs of all these workers together."""
        return self.job.width * max(1, self.job.gpus)

    def ledger_changed(self) -> None:
        """Forget what was derived from `done` and `partial`."""
        self._left = None

    def worker_seconds(self, now: float) -> float:
        """The time that one worker would need for all that is left, less what running ones have probably done."""
        if self._left is None:
            done = sum(self.partial.values())
            self._left = self.job.batches_per_chunk_total * (self.job.chunks - len(self.done)) - done
        left = self._left * self.nominal_batch_seconds
        for run in self.runs.values():
            if run.started is not None and now > run.started:
                rest = sum(self.remaining_batches(c) for c in run.window.chunks)
                left -= min((now - run.started) / run.batch_seconds, rest) * self.nominal_batch_seconds
        return left

    def training_rate(self, now: float) -> float:
        """By how much `worker_seconds` falls per second, with the windows that train now."""
        rate = 0.0
        for run in self.runs.values():
            if run.started is not None and run.started <= now:
                rate += self.nominal_batch_seconds / run.batch_seconds
        return rate

    def attained_gpu_seconds(self, now: float) -> float:
        """GPU time that workers of the job have trained, running ones included."""
        attained = self.attained_seconds
        for run in self.runs.values():
            if run.started is not None and now > run.started:
                attained += (now - run.started) * max(1, self.job.gpus)
        return attained

    def reaches(self, gpu_seconds: float, now: float) -> float | None:
        """When the attained service will be so much if the windows that train now go on; None if none does."""
        training = sum(run.started is not None for run in self.runs.values()) * max(1, self.job.gpus)
        return now + max(0.0, gpu_seconds - self.attained_gpu_seconds(now)) / training if training else None

    def density(self, seconds_per_batch: float) -> float:
        """γ = (1/D) / (g·E·B/n) of a chunk at such a speed, times the job's weight (JSAC'22, section IV)."""
        work = self.job.batches_per_chunk_total * seconds_per_batch * max(1, self.job.gpus)
        return self.job.weight / (self.job.chunks * work)

    def remaining_batches(self, chunk: int) -> float:
        """Mini-batches of the chunk that the ledger has not counted."""
        return 0.0 if chunk in self.done else self.job.batches_per_chunk_total - self.partial.get(chunk, 0.0)

    def remaining_seconds(self, chunk: int, now: float, seconds_per_batch: float) -> float:
        """The rest of the chunk in seconds, less what its running worker has probably done since it started."""
        run = self.chunk_runs.get(chunk)
        if run is None or run.started is None:
            return self.remaining_batches(chunk) * seconds_per_batch
        trained = now - run.started
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
class NodeState:
    """One node: its slots with their queues, its windows, and what they reserve."""

    node: Node
    capacity: Resources = Resources()
    """What is there for us, in use or not."""
    queues: list[list[Entry]] = field(default_factory=list)
    """By slot, in order of the keys."""
    runs: dict[tuple[str, int], tuple[JobState, Run]] = field(default_factory=dict)
    """Windows by (job, attempt)."""
    leaving: dict[tuple[str, int], Run] = field(default_factory=dict)
    """Those of them that are closing."""
    reserved: Resources = Resources()
    """Requests of open windows and of parameter servers."""

    @property
    def slots(self) -> int:
        """GPUs that are not taken by foreign pods."""
        return max(0, self.node.allocatable.gpus - self.node.foreign.gpus)

    def __post_init__(self) -> None:
        self.set_node(self.node)

    def set_node(self, node: Node) -> None:
        """The node changed."""
        self.node = node
        self.capacity = node.allocatable - node.foreign

    def has_room(self, request: Resources) -> bool:
        """Whether the request fits beside what is reserved."""
        whole, used = self.capacity, self.reserved
        return (
            request.gpus + used.gpus <= whole.gpus
            and request.cpu + used.cpu <= whole.cpu
            and request.memory + used.memory <= whole.memory
            and request.pods + used.pods <= whole.pods
        )

    def objection(self, shape: PodShape) -> str | None:
        """Why the node could not take such a pod even if it ran nothing of ours, or None."""
        if not self.node.ready:
            return "not ready"
        if self.node.unschedulable:
            return "cordoned"
        reason = shape.constraints.objection(self.node.name, self.node.labels, self.node.taints)
        if reason is None and not shape.requests.fits(self.capacity):
            return "too small"
        return reason

    def entries(self) -> list[Entry]:
        """All chunks bound to this node, each once, in their order."""
        seen = {id(entry): entry for queue in self.queues for entry in queue}
        return sorted(seen.values(), key=lambda entry: entry.key)


@dataclass(slots=True, eq=False)
class ClusterState:
    """Everything that a policy may look at."""

    sites: dict[str, Site] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    jobs: dict[str, JobState] = field(default_factory=dict)
    network: NetworkPrior = NetworkPrior()
    seed: int = 0
    """Of random choices."""
    shares: Shares = field(default_factory=Shares)
    history: History = field(default_factory=History)
    dispatched: int = 0
    """Chunks that were bound so far."""
    epoch: int = 0
    """Rises whenever a node or site changes."""
    _measured: int = -1
    """The epoch that `shares.capacity` is of."""
    _eligible: dict[PodShape, list[NodeState]] = field(default_factory=dict)

    def nodes_changed(self) -> None:
        """Forget what was derived from the nodes."""
        self._eligible.clear()
        self.epoch += 1

    def dominant_share(self, tenant: str) -> float:
        """The tenant's largest share of what all nodes have, 0 … 1."""
        if self._measured != self.epoch:
            self._measured = self.epoch
            self.shares.capacity = sum((node.capacity for node in self.nodes.values()), start=Resources())
        return self.shares.dominant(tenant)

    def hosts(self, state: JobState) -> list[NodeState]:
        """`eligible` for the job's workers, remembered by the job until a node changes."""
        if state.hosts[0] != self.epoch:
            state.hosts = (self.epoch, self.eligible(state.job.worker))
        return state.hosts[1]

    def eligible(self, shape: PodShape) -> list[NodeState]:
        """Nodes that could take such a pod if they ran nothing of ours, by name."""
        if shape not in self._eligible:
            self._eligible[shape] = [n for _, n in sorted(self.nodes.items()) if n.objection(shape) is None]
        return self._eligible[shape]

    def unlimited_sites(self) -> Iterator[Site]:
        """Sites where capacity is made on demand, by name."""
        return (site for _, site in sorted(self.sites.items()) if site.unlimited)

    def batch_seconds(
        self, state: JobState, site: str, colocated: bool | None = None, node: str | None = None
    ) -> float:
        """1 / n_js of a worker at the site (on the node, if one is given), in seconds.

        Before the parameter server has a place it is assumed beside the data, or beside the worker.
        """
        host = self.nodes.get(node) if node is not None else None
        speed = host.node.speed if host is not None else 1.0
        if state.job.servers == 0 or (state.colocated if colocated is None else colocated):
            return batch_seconds(state.job, None, speed)
        there = state.servers[0].planned.site if state.servers else state.job.data_site or site
        return batch_seconds(state.job, bits_per_second(self.network, self.sites, site, there), speed)

    def nominal_batch_seconds(self, state: JobState) -> float:
        """1 / n_j where the job's data and parameter servers are, or inside any site if they may be anywhere."""
        return self.batch_seconds(state, state.job.data_site or "")

    def transfer_seconds(self, state: JobState, site: str) -> float:
        """Δ_js in seconds."""
        return transfer_seconds(self.network, self.sites, state.job, site)

    def bind(self, entry: Entry) -> None:
        """Put a chunk into the queues of its home's slots."""
        entry.state.entries[entry.chunk] = entry
        if entry.home.node is not None:
            node = self.nodes[entry.home.node]
            for slot in entry.home.slots:
                insort(node.queues[slot], entry, key=lambda e: e.key)

    def unbind(self, entries: Iterable[Entry]) -> None:
        """Take chunks out of their queues: done, moved, or removed."""
        for entry in entries:
            entry.state.entries.pop(entry.chunk, None)
            node = self.nodes.get(entry.home.node or "")
            for slot in entry.home.slots if node else ():
                assert node is not None
                if slot < len(node.queues) and entry in node.queues[slot]:
                    node.queues[slot].remove(entry)


def allowed(node: NodeState, state: JobState, sites: Collection[str] | None, now: float) -> bool:
    """Whether a dispatch rule may bind chunks of the job to the (eligible) node."""
    return (
        (sites is None or node.node.site in sites)
        and state.avoided.get(node.node.name, 0.0) <= now
        and 0 < state.job.gpus <= len(node.queues)
    )
