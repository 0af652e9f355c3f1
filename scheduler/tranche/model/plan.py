"""Plan of the planner for one job and its training progress: the values of status.plan and status.progress."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

from tranche.model.attempt_record import AttemptRecord, PreemptedJob


class WindowState(StrEnum):
    """Desired state of a window's pod: running or stopped."""

    OPEN = "Open"
    CLOSING = "Closing"
    """The pod is to be stopped; the window stays in the plan until the pod's end has been counted in the ledger."""


@dataclass(frozen=True, slots=True)
class Window:
    """One worker pod on one slot with an ordered list of chunks."""

    index: int
    """Worker index within the job, 0 … max_workers − 1."""
    attempt: int
    """Fencing token, increasing over the whole job; part of the pod name ``<job>-worker-<index>-<attempt>``."""
    site: str
    node: str | None
    """Name of the node; None on an unlimited site, where the node does not exist yet."""
    chunks: tuple[int, ...]
    fallbacks: tuple[str, ...] = ()
    start: float = 0.0
    end: float = 0.0
    """Expected end, in seconds of the planner's clock."""
    state: WindowState = WindowState.OPEN
    generation: int = 0
    """Generation of the specification that the pod was created from; 0: unknown."""
    renewed: int = 0
    """Fencing token of these chunks, drawn from the attempts, if the pod has trained other chunks before; else 0."""
    preempted_by: str = ""
    """Job for which a closing window makes way, ``namespace/name``; empty if it closes for another reason."""
    why: str = ""
    """Why a closing window closes, as in `AttemptRecord`; empty if it is open."""

    @property
    def fence(self) -> int:
        """Fencing token of the window's chunks: messages with a smaller token are rejected."""
        return self.renewed or self.attempt


@dataclass(frozen=True, slots=True)
class PlannedServer:
    """One parameter server pod, ``<job>-ps-<index>-<attempt>``, or the chief of a gang, ``<job>-chief-0-<attempt>``."""

    index: int
    attempt: int
    site: str
    node: str | None
    fallbacks: tuple[str, ...] = ()
    state: WindowState = WindowState.OPEN
    is_chief: bool = False
    preempted_by: str = ""
    """As of a `Window`."""
    why: str = ""
    """As of a `Window`."""


@dataclass(frozen=True, slots=True)
class PlannedStaging:
    """Copy of chunks' data to a site by the pod ``<job>-staging-<site>-<attempt>``."""

    site: str
    attempt: int = 0
    """Attempt number of the pod; 0: there is no pod now."""
    chunks: tuple[int, ...] = ()
    """Chunks that the pod copies, in this order."""
    wanted: tuple[int, ...] = ()
    """Chunks for the next pod."""
    failures: int = 0
    """Number of pods that failed since the last success."""
    given_up: bool = False
    """Whether too many pods failed, so that nothing is copied there for now."""
    why: str = ""
    """Why the last pod that did not succeed ended."""


PodOutcome = Literal["Succeeded", "Preempted", "Failed", "Lost", "Refused"]
"""How a pod has ended: `Failed` by its own container; `Refused` by the kubelet, before any container had started."""


@dataclass(frozen=True, slots=True)
class UnplacedPods:
    """Pods of a job that found no place, were rejected or did not start, since one was placed or started."""

    failures: int
    nodes: tuple[str, ...] = ()
    """Nodes on which they found no place."""
    message: str = ""
    """Last message of kube-scheduler or the API server."""
    failed_at: float = 0.0
    """Time of the last failure, in seconds of the planner's clock."""
    paused_until: float = 0.0
    """Time before which the job preempts no other; 0 if it may."""
    held_until: float = 0.0
    """Time before which nothing of the job starts; 0 if it is not held."""
    failed_preemptions: int = 0
    """Number of times that the job stopped others and its pods were not placed, since it succeeded."""
    unstarted: bool = False
    """Whether one of these pods had a place and ended before it started."""
    sites: tuple[str, ...] = ()
    """Unlimited sites where pods of the job found no place lately, and none since."""


PodCounts = tuple[tuple[str, int], ...]
"""Number of pods by node, nodes without any left out."""


class PodPlaces(NamedTuple):
    """Number of workers and of parameter servers of a job, by node."""

    workers: PodCounts = ()
    servers: PodCounts = ()


class SlotCells(NamedTuple):
    """Pods of one job in one slot of a slot table, by node."""

    slot: int
    workers: PodCounts
    servers: PodCounts

    @property
    def places(self) -> PodPlaces:
        """The pods without the slot."""
        return PodPlaces(self.workers, self.servers)


MAX_CELLS_BYTES = 64 * 1024
"""Maximum size of the JSON of a job's cells in its status; a job whose cells have more is not admitted."""
MAX_CELL_SLOTS = 10_000
"""Maximum number of slots in which a job has cells."""


class CellRun(NamedTuple):
    """Slots in a row in which a job has the same cells."""

    first: int
    last: int
    places: PodPlaces

    @property
    def max_bytes(self) -> int:
        """Upper bound of its JSON in status.plan."""
        return 80 + sum(len(name) + 28 for name, _ in (*self.places.workers, *self.places.servers))


def cell_runs(cells: Iterable[SlotCells]) -> list[CellRun]:
    """Return the cells with one entry for successive slots that have equal ones."""
    runs: list[CellRun] = []
    for slot_cells in cells:
        if runs and runs[-1].last == slot_cells.slot - 1 and runs[-1].places == slot_cells.places:
            runs[-1] = runs[-1]._replace(last=slot_cells.slot)
        else:
            runs.append(CellRun(slot_cells.slot, slot_cells.slot, slot_cells.places))
    return runs


def are_storable(cells: Sequence[SlotCells]) -> bool:
    """Return whether a job's status has room for the cells."""
    return len(cells) <= MAX_CELL_SLOTS and sum(run.max_bytes for run in cell_runs(cells)) <= MAX_CELLS_BYTES


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Last offer of a policy with a slot table to a job, with the reserved cells if the job was admitted."""

    payoff: float
    """Utility less price; -inf if no completion was found."""
    offered_slot: int
    """First slot of the offer."""
    returned: int = 0
    """Number of times that jobs had given back their cells before the offer; when it has risen, a new one is due."""
    cells: tuple[SlotCells, ...] = ()
    """Cells in order of slots; none if the job was not admitted."""
    is_too_large: bool = False
    """Whether the job was not admitted because the record of its cells would be too large for its status."""

    @property
    def last_slot(self) -> int:
        """Slot in which the job is to complete; -1 without cells."""
        return self.cells[-1].slot if self.cells else -1


@dataclass(frozen=True, slots=True)
class WorkerGrant:
    """Result of the last worker distribution for one job, under a policy that distributes workers."""

    policy: str
    """Name of the policy."""
    workers: int
    """Maximum number of workers on nodes that the job may have."""
    place: float
    """Place in the order of the distribution: smaller numbers are served first."""
    preferred: PodPlaces | None = None
    """Nodes on which its pods start as long as they have room; None under policies without a slot table."""
    slot_seconds: float = 0.0
    """Length of a slot: slot n begins n times this length after 1970-01-01T00:00:00Z; 0 without a slot table."""
    slot_plan: SlotPlan | None = None
    """None if the job has had no offer."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval that contains a time in the future with a probability of 80 %, in seconds of the planner's clock."""

    earliest: float
    latest: float

    def verdict(self, at: float) -> Literal["inside", "early", "late"]:
        """Return whether a time lies in the interval, before or after it, but for rounding to a second."""
        if at < self.earliest - 1.0:
            return "early"
        return "late" if at > self.latest + 1.0 else "inside"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Content of status.plan, except the writer's term and revision."""

    generation: int
    explanation: str
    attempts: int = 0
    """Number of attempts assigned so far."""
    estimated_start: float | None = None
    estimated_completion: float | None = None
    start_interval: Interval | None = None
    completion_interval: Interval | None = None
    homes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Chunks whose data the dispatch rule placed at a site, by site, as `format_chunks` writes them."""
    windows: tuple[Window, ...] = ()
    servers: tuple[PlannedServer, ...] = ()
    staging: tuple[PlannedStaging, ...] = ()
    unplaced: UnplacedPods | None = None
    """None if no pod has failed to be placed since one was."""
    grant: WorkerGrant | None = None
    """None unless the policy distributes workers, and has done so since the job arrived."""
    waits_behind: str = ""
    """Key of the job that the explanation names as the one before it; empty if it names none."""
    ignored_claims: str = ""
    """Why the job's weight or priority class has no effect (condition PriorityIgnored); empty if they have one."""
    waits_for: str = ""
    """Kind of capacity or condition that the job waits for, a `planner.Limit`; empty if it does not wait."""
    unplannable: str = ""
    """CamelCase reason why the job cannot be planned at all (condition Planned=False); empty if it can."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Progress that a job's parameter servers report as saved, which remains if they are lost."""

    attempt: int
    """Attempt of the parameter server that sent the report."""
    batches: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Saved mini-batches by chunk; 0 for chunks that are missing."""


@dataclass(frozen=True, slots=True)
class SiteProgress:
    """Resources that a job has used at one site."""

    site: str
    gpu_seconds: float = 0.0
    """GPU time that the job's workers held, from the openings of their windows to the ends of their pods."""
    trained_gpu_seconds: float = 0.0
    """Part of `gpu_seconds` in which the workers trained."""
    chunks: int = 0
    """Number of chunks that were completed there."""
    copied_bytes: float = 0.0
    """Bytes of uploads to the site that were started."""
    in_vain_bytes: float = 0.0
    """Part of `copied_bytes` that no chunk trained from."""
    unused: frozenset[int] = frozenset()
    """Chunks whose copy was started, and which no worker has trained from yet."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Ledger of a job: durable training progress, and the resources that it took."""

    done: frozenset[int] = frozenset()
    partial: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Durable batches of chunks that are started and not done."""
    attained_gpu_seconds: float = 0.0
    """GPU-seconds that workers of the job have run."""
    busy_seconds: float = 0.0
    """Time with a window open, before the present ones; the rest since submission is waiting, by which jobs age."""
    preemptions: int = 0
    failures: int = 0
    lost_batches: float = 0.0
    records: tuple[AttemptRecord, ...] = ()
    """The last few ended workers and chiefs, oldest first."""
    history: tuple[str, ...] = ()
    """The last ended pods of all roles, oldest first, as `pack` writes them."""
    ended: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Number of all ended pods, by `outcome_class`."""
    victims: tuple[PreemptedJob, ...] = ()
    """The last jobs that were preempted for this one, oldest first."""
    preempted_workers: int = 0
    """Number of workers of other jobs that were stopped for this one."""
    learnt: float = 1.0
    """Measured over predicted seconds of a mini-batch."""
    busy_since: float | None = None
    """Time since which a window has been open, or the job suspended; None if the job waits."""
    start_seconds: float | None = None
    """Measured time from the opening of a window of the job to its first mini-batch; None without a measurement."""
    save_seconds: float | None = None
    """Measured time from the signal to stop to the end of a worker of the job; None without a measurement."""
    restart_seconds: float = 0.0
    """Estimated cost of stopping one of the job's workers and starting it again."""
    checkpoint: Checkpoint | None = None
    """Last saved state, for jobs whose parameter servers report."""
    sites: tuple[SiteProgress, ...] = ()
    """Use of each site."""
