"""Long looks in portions: between two of them the event loop serves others."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")
PORTION = 500
"""Nodes, jobs or samples: about a millisecond of work."""


async def portions(items: Iterable[T], size: int = PORTION) -> AsyncIterator[list[T]]:
    """All items as they are now, so many at a time; whatever they come from may change meanwhile."""
    whole = list(items)
    for start in range(0, len(whole), size):
        if start:
            await asyncio.sleep(0)
        yield whole[start : start + size]
