"""Node and time window of each chunk of a job, for the read API."""

from collections.abc import Awaitable, Callable
from datetime import datetime

import msgspec

from tranche.kube.api.timestamp import whole_second
from tranche.model import ChunkWindow

ChunkWindows = Callable[[str], Awaitable[tuple[ChunkWindow, ...] | None]]
"""Function from a job key to its chunk windows; None if no planner has them."""
NOT_PLANNING = "no planner has this job: no replica is the leader now, or the job was just created"
ENDED = "the job has ended"


async def no_windows(key: str) -> None:
    """Return None, without a planner."""


class Chunk(msgspec.Struct, frozen=True, rename="camel"):
    """Plan of one chunk or gang member."""

    chunk: int
    state: str
    """Done, Running, Planned or Waiting."""
    site: str
    node: str
    """Node; empty if unknown, or if the site creates it on demand."""
    slots: tuple[int, ...]
    """GPU indexes of the node in the planner; empty under policies that do not bind slots."""
    start: datetime | None
    end: datetime | None
    q: float | None
    """Cost at dispatch in seconds; null under policies that do not bind chunks at arrival."""
    planned_start: datetime | None
    """Start as planned at dispatch; null under the same policies."""
    planned_end: datetime | None
    on_demand: bool = False
    """Whether the site is unlimited, so that it creates nodes on demand, whose names are not planned."""


class ChunkPage(msgspec.Struct, frozen=True, rename="camel"):
    """Page of chunks in order."""

    chunks: list[Chunk]
    total: int
    next: int | None
    """Number of the last chunk on the page; null on the last page."""
    note: str = ""
    """Reason if there are no chunks."""


def page_of(windows: tuple[ChunkWindow, ...] | None, after: int, limit: int, *, ended: bool) -> ChunkPage:
    """Return one page of chunk windows.

    Args:
        windows: Chunk windows of a job; None if unknown.
        after: Number of the last chunk of the previous page; -1 for the first page.
        limit: Chunks per page.
        ended: Whether the job has ended, so that no planner has it.
    """
    windows = windows or ()
    note = "" if windows else ENDED if ended else NOT_PLANNING
    shown = windows[after + 1 : after + 1 + limit]
    has_more = after + 1 + limit < len(windows)
    return ChunkPage([to_chunk(window) for window in shown], len(windows), shown[-1].chunk if has_more else None, note)


def to_chunk(window: ChunkWindow) -> Chunk:
    """Convert a planner window to its API form."""
    return Chunk(
        window.chunk,
        str(window.state),
        window.site,
        window.node or "",
        window.slots,
        whole_second(window.start),
        whole_second(window.end),
        window.cost,
        whole_second(window.planned_start),
        whole_second(window.planned_end),
        window.on_demand,
    )
