"""Barriers of a parameter server: k of n workers, with bounded staleness; the time is an argument.

Sources: rounds that close after k of n workers are textbook (backup workers; TS-FL, arXiv 2301.10977 [P, abstract],
drops the slowest). Bounded staleness is SSP (Ho et al., NIPS 2013 [R]). Here, the push of a worker that comes after the
end of its round is not dropped: it counts in the round in which it arrives [I].
"""

from dataclasses import dataclass, field
from math import inf

PATIENCE_SECONDS = 60.0
"""Time without contact after which a worker is left out, so that a lost one delays the others only once."""


@dataclass(slots=True)
class Members:
    """Workers that take part now: those in contact within the patience."""

    patience_seconds: float = PATIENCE_SECONDS
    counts: dict[int, int] = field(default_factory=dict)
    """Batches, or missed rounds, by worker."""
    contacts: dict[int, float] = field(default_factory=dict)
    """Time of the last contact by worker."""

    def contact(self, worker: int, now: float, count: int) -> None:
        """Record contact; a worker that is new, or was left out, starts with the given count."""
        self.contacts[worker] = now
        self.counts.setdefault(worker, count)

    def leave(self, worker: int) -> None:
        """Remove a worker that has no more to do."""
        self.contacts.pop(worker, None)
        self.counts.pop(worker, None)

    def expire(self, now: float) -> None:
        """Remove the workers without contact."""
        for worker in [member for member, last in self.contacts.items() if now - last > self.patience_seconds]:
            self.leave(worker)


class Barrier:
    """Rounds of pushes: a round may close when k of the n workers have pushed and none of the others is too late.

    With a staleness of s, a worker may miss s rounds in a row; the next one waits for it. So s = 0 is BSP, and an
    infinite s is the plain k-of-n barrier.
    """

    def __init__(self, enough: int, staleness: float = inf, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Create a barrier.

        Args:
            enough: Number k of pushes that close a round; if fewer workers take part, all of them.
            staleness: Rounds s that a worker may miss in a row.
            patience_seconds: Time without contact after which a worker does not take part any more.
        """
        self.round = 0
        self._enough, self._staleness = enough, staleness
        self._members = Members(patience_seconds)
        self._pushed: set[int] = set()

    def contact(self, worker: int, now: float) -> None:
        """Record that a worker takes part."""
        self._members.contact(worker, now, 0)

    def push(self, worker: int, now: float) -> None:
        """Record that a worker has pushed for the present round."""
        self.contact(worker, now)
        self._pushed.add(worker)

    def leave(self, worker: int) -> None:
        """Remove a worker that has no more batches."""
        self._members.leave(worker)

    def may_close(self, now: float) -> bool:
        """Return whether the present round can close."""
        self._members.expire(now)
        if not self._pushed:
            return False
        missing = [missed for worker, missed in self._members.counts.items() if worker not in self._pushed]
        enough = len(self._pushed) >= min(self._enough, len(self._members.counts))
        return enough and all(missed < self._staleness for missed in missing)

    def close(self) -> None:
        """Begin the next round."""
        counts = self._members.counts
        counts.update({worker: 0 if worker in self._pushed else missed + 1 for worker, missed in counts.items()})
        self._pushed.clear()
        self.round += 1


class StalenessBound:
    """Bound of asynchronous workers, SSP(s): none starts a batch that is more than s ahead of the slowest worker."""

    def __init__(self, staleness: float, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Create a bound of `staleness` batches; a worker counts until the patience is over."""
        self._staleness = staleness
        self._members = Members(patience_seconds)

    def contact(self, worker: int, now: float) -> None:
        """Record that a worker takes part; a new one starts beside the slowest."""
        self._members.expire(now)
        self._members.contact(worker, now, min(self._members.counts.values(), default=0))

    def trained(self, worker: int, now: float, batches: int = 1) -> None:
        """Record that a worker's batches are in the model."""
        self.contact(worker, now)
        self._members.counts[worker] += batches

    def leave(self, worker: int) -> None:
        """Remove a worker that has no more batches."""
        self._members.leave(worker)

    def may_start(self, worker: int, now: float) -> bool:
        """Return whether a worker may start its next batch."""
        self.contact(worker, now)
        counts = self._members.counts
        return counts[worker] - min(counts.values()) <= self._staleness
