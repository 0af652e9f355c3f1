"""Where and when one chunk trains: as planned, and as it was executed.

Source: JSAC'22, whose algorithm outputs the "location and execution time window" of each chunk upon each job arrival
[P]; the states and the forecast under late binding are ours [I].
"""

from dataclasses import dataclass
from enum import StrEnum


class ChunkState(StrEnum):
    """How far a chunk is."""

    DONE = "Done"
    RUNNING = "Running"
    """A worker trains its window's chunks."""
    PLANNED = "Planned"
    """It has a place and a time, or its worker's pod is about to start."""
    WAITING = "Waiting"
    """It has no time yet: the job cannot run now, or the forecast does not reach that far."""


@dataclass(frozen=True, slots=True)
class ExecutedWindow:
    """One stretch of time in which a worker trained a chunk, without the start of its pod."""

    site: str
    node: str | None
    """None on an unlimited site."""
    slots: tuple[int, ...]
    """Ordinals of the node's GPUs; empty under policies that bind no slot."""
    start: float
    end: float
    outcome: str
    """Succeeded: the chunk was done; else how its worker ended: Preempted, Failed or Lost."""


@dataclass(frozen=True, slots=True)
class ChunkWindow:
    """The place and the time window of one chunk, or of one member of a gang; times in seconds of the planner's clock.

    A window that denser chunks split is told as one, from its next start to its end.
    """

    chunk: int
    state: ChunkState
    site: str = ""
    """Empty: not known (yet, or any more)."""
    node: str | None = None
    """None on an unlimited site, and where no node is known."""
    slots: tuple[int, ...] = ()
    """Ordinals of the node's GPUs; empty under policies that bind no slot."""
    start: float | None = None
    """When its window opened or will open by the present plan."""
    end: float | None = None
    """When the chunk will be done by the present plan."""
    cost: float | None = None
    """At dispatch, in seconds: Q of equation (5) of JSAC'22 under `chunk-faithful`; under other policies that bind its
    part for the chunk itself (data, wait and work); None under policies that do not, and after a restart."""
    planned_start: float | None = None
    """t* of Alg. 4: when it was planned to start, as seen at dispatch."""
    planned_end: float | None = None
    """When it was planned to be done, as seen at dispatch."""
    executed: tuple[ExecutedWindow, ...] = ()
    """In order of time; of simulated runs only."""
