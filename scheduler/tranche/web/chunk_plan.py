"""Node and time window of each chunk of a job, for the read API."""

import asyncio
from collections.abc import Callable, Generator
from datetime import datetime

import msgspec

from tranche.kube.api.timestamp import whole_second
from tranche.model import ChunkWindow

Listing = Generator[None, None, tuple[ChunkWindow, ...]]
"""Generator that computes the windows in steps, between which the event loop can run other tasks."""
ChunkWindows = Callable[[str], Listing | None]
"""Function from a job key to its listing; None if this process does not plan the job."""
NOT_PLANNING = "this replica does not plan this job: another replica is the leader, or the job was just created"


def no_windows(key: str) -> None:
    """Return None, in a process without a planner."""


class Chunk(msgspec.Struct, frozen=True, rename="camel"):
    """Plan of one chunk or gang member."""

    chunk: int
    state: str
    """Done, Running, Planned or Waiting."""
    site: str
    node: str
    """Node; empty if unknown, or if an unlimited site first creates it."""
    slots: tuple[int, ...]
    """GPU indexes of the node in the planner; empty under policies that do not bind slots."""
    start: datetime | None
    end: datetime | None
    q: float | None
    """Cost at dispatch in seconds; null under policies that do not bind chunks at arrival."""
    planned_start: datetime | None
    """Start as planned at dispatch; null under the same policies."""
    planned_end: datetime | None


class ChunkPage(msgspec.Struct, frozen=True, rename="camel"):
    """Page of chunks in order."""

    chunks: list[Chunk]
    total: int
    next: int | None
    """Number of the last chunk on the page; null on the last page."""
    note: str = ""
    """Reason if there are no chunks."""


async def page_of(listing: Listing | None, after: int, limit: int) -> ChunkPage:
    """Compute the windows, yielding to the event loop, and return one page.

    Args:
        listing: Listing of a job's chunks.
        after: Number of the last chunk of the previous page; -1 for the first page.
        limit: Chunks per page.
    """
    windows: tuple[ChunkWindow, ...] = ()
    while listing is not None:
        try:
            next(listing)
        except StopIteration as end:
            windows = end.value
            break
        await asyncio.sleep(0)  # let requests of kube-scheduler run in between
    some = windows[after + 1 : after + 1 + limit]
    more = after + 1 + limit < len(windows)
    return ChunkPage([told(one) for one in some], len(windows), some[-1].chunk if more else None, _note(windows))


def told(one: ChunkWindow) -> Chunk:
    """Convert a planner window to its API form."""
    return Chunk(
        one.chunk,
        str(one.state),
        one.site,
        one.node or "",
        one.slots,
        whole_second(one.start),
        whole_second(one.end),
        one.cost,
        whole_second(one.planned_start),
        whole_second(one.planned_end),
    )


def _note(windows: tuple[ChunkWindow, ...]) -> str:
    return "" if windows else NOT_PLANNING
