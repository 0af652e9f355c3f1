"""Place and time of one chunk's training: as planned, and as executed.

Source: JSAC'22, whose algorithm outputs the "location and execution time window" of each chunk upon each job arrival
[P]; the states and the forecast under late binding are ours [I].
"""

from dataclasses import dataclass
from enum import StrEnum


class ChunkState(StrEnum):
    """Progress of a chunk."""

    DONE = "Done"
    RUNNING = "Running"
    """A worker trains the chunks of its window."""
    PLANNED = "Planned"
    """The chunk has a place and a time, or its worker's pod is about to start."""
    WAITING = "Waiting"
    """The chunk has no time yet: the job cannot run now, or the forecast does not reach that far."""


@dataclass(frozen=True, slots=True)
class ExecutedWindow:
    """Period in which a worker trained a chunk, without the start of its pod."""

    site: str
    node: str | None
    """Name of the node; None on an unlimited site."""
    slots: tuple[int, ...]
    """Ordinals of the node's GPUs; empty under policies that bind no slot."""
    start: float
    end: float
    outcome: str
    """Succeeded if the chunk was completed; otherwise how its worker ended: Preempted, Failed or Lost."""


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """Workers of one job that the forecast starts later on one node; times in seconds of the planner's clock."""

    job: str
    """Key of the job."""
    site: str
    node: str
    """Name of the node; "" if no node is known."""
    workers: int
    """Number of workers: members of a gang on this node, else 1."""
    chunks: str
    """Chunks that they train, such as ``3-5``; members for a gang."""
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class ChunkWindow:
    """Place and time window of one chunk, or of one member of a gang; times in seconds of the planner's clock.

    A window that denser chunks split is represented as one, from its next start to its end.
    """

    chunk: int
    state: ChunkState
    site: str = ""
    """Name of the site; empty if it is not known yet, or no longer."""
    node: str | None = None
    """Name of the node; None on an unlimited site, and where no node is known."""
    slots: tuple[int, ...] = ()
    """Ordinals of the node's GPUs; empty under policies that bind no slot."""
    start: float | None = None
    """Time when the window opened or will open by the present plan."""
    end: float | None = None
    """Time when the chunk will be completed by the present plan."""
    cost: float | None = None
    """Cost at dispatch, in seconds: Q of equation (5) of JSAC'22 under `chunk-faithful`; under other policies that bind
    early, its part for the chunk itself (data, wait and work); None under policies that do not, and after a restart."""
    planned_start: float | None = None
    """Planned start t* of Alg. 4, as computed at dispatch."""
    planned_end: float | None = None
    """Planned completion, as computed at dispatch."""
    on_demand: bool = False
    """Whether the site is unlimited: its autoscaler creates the node, whose name is not planned."""
    executed: tuple[ExecutedWindow, ...] = ()
    """Executed windows in order of time; only for simulated runs."""
