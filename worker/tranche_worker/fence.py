"""Which attempts a parameter server still listens to.

A worker on a node that went silent may wake up long after another one has taken over its chunks. Both are named by
their attempt, which rises over the whole job; the older one is refused, and exits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Fence:
    """The highest attempt that has been heard of, by slot and by chunk; part of every checkpoint."""

    slots: dict[int, int] = field(default_factory=dict)
    chunks: dict[int, int] = field(default_factory=dict)

    def admits(self, slot: int, chunks: Iterable[int], attempt: int) -> bool:
        """Whether this attempt may fetch and push; if so, older ones may not any more.

        Args:
            slot: Index of the worker.
            chunks: Those that it is about to train.
            attempt: Of its pod.
        """
        mine = tuple(chunks)
        if attempt < self.slots.get(slot, 0) or any(attempt < self.chunks.get(chunk, 0) for chunk in mine):
            return False
        self.slots[slot] = attempt
        self.chunks.update(dict.fromkeys(mine, attempt))
        return True

    def dump(self) -> dict[str, dict[str, int]]:
        """As JSON."""
        return {
            "slots": {str(slot): attempt for slot, attempt in self.slots.items()},
            "chunks": {str(chunk): attempt for chunk, attempt in self.chunks.items()},
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Mapping[str, int]]) -> "Fence":
        """From what `dump` gave."""
        slots, chunks = dumped.get("slots", {}), dumped.get("chunks", {})
        return cls({int(s): a for s, a in slots.items()}, {int(c): a for c, a in chunks.items()})
