"""What the planner decided for one job, and what was trained of it: the values of status.plan and status.progress."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class WindowState(StrEnum):
    """Whether the pod of a window should run or stop."""

    OPEN = "Open"
    CLOSING = "Closing"
    """To be stopped; the window stays in the plan until the pod's end has been counted in the ledger."""


@dataclass(frozen=True, slots=True)
class Window:
    """One worker pod on one slot with an ordered list of chunks."""

    index: int
    """Worker index within the job, 0 … max_workers − 1."""
    attempt: int
    """Fencing token, rising over the whole job; pod name ``<job>-worker-<index>-<attempt>``."""
    site: str
    node: str | None
    """None on an unlimited site: the node does not exist yet."""
    chunks: tuple[int, ...]
    fallbacks: tuple[str, ...] = ()
    start: float = 0.0
    end: float = 0.0
    """Expected end, seconds of the planner's clock."""
    state: WindowState = WindowState.OPEN
    generation: int = 0
    """Of the specification that its pod was made from; 0: not known."""
    renewed: int = 0
    """Fencing token of these chunks if the pod has trained others before, drawn from the attempts; else 0."""
    preempted_by: str = ""
    """Job for which a closing window makes way, ``namespace/name``; empty if it closes for another reason."""

    @property
    def fence(self) -> int:
        """Fencing token of its chunks: whoever comes with a smaller one has no part in them any more."""
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


@dataclass(frozen=True, slots=True)
class PlannedStaging:
    """Data of chunks on their way to a site, by the pod ``<job>-staging-<site>-<attempt>``."""

    site: str
    attempt: int = 0
    """0: there is no pod now."""
    chunks: tuple[int, ...] = ()
    """That the pod brings, in this order."""
    wanted: tuple[int, ...] = ()
    """For the next pod."""
    failures: int = 0
    """Pods that failed since one succeeded."""
    given_up: bool = False
    """Too many did; nothing more is brought there."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """How one pod of the job ended."""

    index: int
    attempt: int
    node: str
    reason: str
    """Succeeded, Preempted, Failed or Lost."""
    exit_code: int | None = None
    is_chief: bool = False
    """The pod was the gang's chief; else it was a worker."""
    preempted_by: str = ""
    """Job that preempted it, ``namespace/name``, or a foreign pod, ``pod/namespace/name``; empty if neither did."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Everything that status.plan says, except the writer's term and revision."""

    generation: int
    explanation: str
    attempts: int = 0
    """Attempt numbers given out so far."""
    estimated_start: float | None = None
    estimated_completion: float | None = None
    homes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Chunks whose data the dispatch rule placed at a site, by site, as `format_chunks` writes them."""
    windows: tuple[Window, ...] = ()
    servers: tuple[PlannedServer, ...] = ()
    staging: tuple[PlannedStaging, ...] = ()
    waits_for: str = ""
    """Kind of what the job waits for, a `planner.Limit`; empty if it does not wait."""
    unplannable: str = ""
    """CamelCase reason why the job cannot be planned at all (condition Planned=False), empty if it can."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a job's parameter servers have saved, by their own word: what is left if they are lost."""

    attempt: int
    """Of the parameter server that said so."""
    batches: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """By chunk; of chunks that are not named, nothing."""


@dataclass(frozen=True, slots=True)
class SiteProgress:
    """What a job has used at one site."""

    site: str
    gpu_seconds: float = 0.0
    """GPU time that its workers held, from the openings of their windows to the ends of their pods."""
    trained_gpu_seconds: float = 0.0
    """Of these, in which they trained."""
    chunks: int = 0
    """Chunks that were completed there."""
    copied_bytes: float = 0.0
    """Of uploads to the site that were begun."""
    in_vain_bytes: float = 0.0
    """Of these, what no chunk trained from."""
    unused: frozenset[int] = frozenset()
    """Chunks of which a copy was begun, and from which no worker has trained yet."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The ledger: what has been trained, durably, and what it took."""

    done: frozenset[int] = frozenset()
    partial: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Durable batches of chunks that are begun and not done."""
    attained_gpu_seconds: float = 0.0
    """GPU-seconds that workers of the job have run."""
    busy_seconds: float = 0.0
    """Time with a window open, before the present ones: the rest since submission was waiting, by which jobs age."""
    preemptions: int = 0
    failures: int = 0
    lost_batches: float = 0.0
    records: tuple[AttemptRecord, ...] = ()
    """The last few ended attempts, oldest first."""
    learnt: float = 1.0
    """Measured over predicted seconds of a mini-batch."""
    busy_since: float | None = None
    """Since when a window has been open, or the job suspended; None if it waits."""
    start_seconds: float | None = None
    """From the opening of a window of the job to its first mini-batch, as measured; None if nothing was."""
    save_seconds: float | None = None
    """From being told to stop to the end of a worker of the job, as measured; None if nothing was."""
    restart_seconds: float = 0.0
    """What stopping one of its workers and starting it again is reckoned to cost."""
    checkpoint: Checkpoint | None = None
    """Of jobs whose parameter servers report."""
    sites: tuple[SiteProgress, ...] = ()
    """By site."""
