"""Iteration in batches that yields to the event loop in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")
PORTION = 500
"""Default batch size (nodes, jobs or samples): about a millisecond of work."""


async def portions(items: Iterable[T], size: int = PORTION) -> AsyncIterator[list[T]]:
    """Yield a snapshot of all items in batches of `size`; the source may change meanwhile."""
    whole = list(items)
    for start in range(0, len(whole), size):
        if start:
            await asyncio.sleep(0)
        yield whole[start : start + size]
