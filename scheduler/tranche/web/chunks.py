"""The place and the time window of each chunk of a job, as the read API tells them."""

import asyncio
from collections.abc import Callable, Generator
from datetime import datetime

import msgspec

from tranche.kube.timestamps import whole_second
from tranche.model import ChunkWindow

Listing = Generator[None, None, tuple[ChunkWindow, ...]]
"""Works the windows out; between two pieces others have their turn."""
ChunkWindows = Callable[[str], Listing | None]
"""By a job's key; None if the planner of this process does not know the job, or does not plan."""
NOT_PLANNING = "this replica does not plan this job: another replica is the leader, or the job was just created"


def no_windows(key: str) -> None:
    """No planner in this process."""


class Chunk(msgspec.Struct, frozen=True, rename="camel"):
    """One chunk, or one member of a gang."""

    chunk: int
    state: str
    """Done, Running, Planned or Waiting."""
    site: str
    node: str
    """Empty: none is known, or it is to be made on an unlimited site."""
    slots: tuple[int, ...]
    """GPUs of the node in the planner's own count; empty under policies that bind no slot."""
    start: datetime | None
    end: datetime | None
    q: float | None
    """Cost at dispatch, in seconds; null under policies that bind no chunk at arrival."""
    planned_start: datetime | None
    """As planned at dispatch; null as before."""
    planned_end: datetime | None


class ChunkPage(msgspec.Struct, frozen=True, rename="camel"):
    """Some chunks of a job, in their order."""

    chunks: list[Chunk]
    total: int
    next: int | None
    """Number of the last chunk, if there are more."""
    note: str = ""
    """Why there are none."""


async def page_of(listing: Listing | None, after: int, limit: int) -> ChunkPage:
    """Work out the windows, with pauses for others, and tell some of them.

    Args:
        listing: Of a job's chunks.
        after: Number of the last chunk of the page before; -1: the first page.
        limit: Chunks on a page.
    """
    windows: tuple[ChunkWindow, ...] = ()
    while listing is not None:
        try:
            next(listing)
        except StopIteration as end:
            windows = end.value
            break
        await asyncio.sleep(0)  # kube-scheduler's calls come between
    some = windows[after + 1 : after + 1 + limit]
    more = after + 1 + limit < len(windows)
    return ChunkPage([told(one) for one in some], len(windows), some[-1].chunk if more else None, _note(windows))


def told(one: ChunkWindow) -> Chunk:
    """A window with its times as moments."""
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
