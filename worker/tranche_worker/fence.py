"""Fencing of attempts at a parameter server.

A worker on an unreachable node may return long after another worker has taken over its chunks. Attempt numbers increase
over the whole job, so the server can reject the older worker, which then exits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Fence:
    """Highest known attempt by worker index and by chunk; part of every checkpoint."""

    slots: dict[int, int] = field(default_factory=dict)
    chunks: dict[int, int] = field(default_factory=dict)

    def admits(self, slot: int, chunks: Iterable[int], attempt: int) -> bool:
        """Return whether an attempt may fetch and push; if it may, older attempts are rejected from now on.

        Args:
            slot: Index of the worker.
            chunks: Chunks that it trains.
            attempt: Fencing token of the chunks.
        """
        mine = tuple(chunks)
        if attempt < self.slots.get(slot, 0) or any(attempt < self.chunks.get(chunk, 0) for chunk in mine):
            return False
        self.slots[slot] = attempt
        self.chunks.update(dict.fromkeys(mine, attempt))
        return True

    def dump(self) -> dict[str, dict[str, int]]:
        """Return the state as JSON values."""
        return {
            "slots": {str(slot): attempt for slot, attempt in self.slots.items()},
            "chunks": {str(chunk): attempt for chunk, attempt in self.chunks.items()},
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Mapping[str, int]]) -> "Fence":
        """Create a fence from the result of `dump`."""
        slots, chunks = dumped.get("slots", {}), dumped.get("chunks", {})
        return cls({int(s): a for s, a in slots.items()}, {int(c): a for c, a in chunks.items()})
