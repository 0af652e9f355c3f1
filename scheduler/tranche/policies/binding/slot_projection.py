"""Projection of slot queues: when each bound chunk trains if no other job arrives.

At each moment a slot runs the first chunk of its queue, in the policy's order, whose data have arrived; a chunk that is
ready later and ranks earlier preempts. A worker of several GPUs needs all of its slots at once. Restart costs, worker
limits and CPU do not count, as in the model of JSAC'22 (see `tranche.policies.binding.chunk_faithful`).
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tranche.state.job import QueuedChunk
from tranche.state.node import NodeState


class Interval(NamedTuple):
    """A half-open interval [start, end), in seconds on the planner's clock."""

    start: float
    end: float


@dataclass(slots=True, eq=False)
class Projected:
    """A chunk in the projection."""

    entry: QueuedChunk
    rest: float
    """Remaining seconds of training at the end of the projection."""
    windows: list[Interval] = field(default_factory=list)
    """Intervals in which it trains."""

    def run(self, start: float, end: float) -> bool:
        """Train from `start` to `end` at most, and return whether the chunk is done."""
        done = start + self.rest <= end
        end = start + self.rest if done else end
        self.rest = 0.0 if done else self.rest - (end - start)
        if self.windows and self.windows[-1].end == start:
            self.windows[-1] = Interval(self.windows[-1].start, end)
        elif end > start:
            self.windows.append(Interval(start, end))
        return done


def project(entries: Sequence[QueuedChunk], now: float, until: float = inf) -> list[Projected]:
    """Project the training of chunks that share slots.

    Args:
        entries: Chunks of one slot, or of one node, in the order of their keys.
        now: Clock, in seconds.
        until: End of the projection, in seconds; it also ends when all chunks are done.

    Returns:
        One projected chunk for each entry, in the same order.
    """
    projected = [Projected(entry, entry.remaining_seconds(now)) for entry in entries]
    if until <= now:
        return projected
    ready = [index for index, entry in enumerate(entries) if entry.ready_at <= now]
    coming: list[int] = []
    if len(ready) < len(entries):
        coming = [index for index, entry in enumerate(entries) if entry.ready_at > now]
        coming.sort(key=lambda index: -entries[index].ready_at)
    width = len({slot for entry in entries for slot in entry.home.slots}) if len(entries) > 1 else 1
    while now < until and (ready or coming):
        running = ready[:1] if width == 1 else _running(entries, ready, width)
        end = min([until, *(now + projected[index].rest for index in running)])
        if coming:
            end = min(end, entries[coming[-1]].ready_at)
        for index in running:
            if projected[index].run(now, end):
                ready.remove(index)
        while coming and entries[coming[-1]].ready_at <= end:
            insort(ready, coming.pop())
        now = end
    return projected


def _running(entries: Sequence[QueuedChunk], ready: Sequence[int], width: int) -> list[int]:
    """Return the ready chunks that run: in their order, those that find all of their slots free."""
    running: list[int] = []
    taken_slots: set[int] = set()
    for index in ready:
        slots = entries[index].home.slots
        if taken_slots.isdisjoint(slots):
            running.append(index)
            taken_slots.update(slots)
            if len(taken_slots) == width:
                break
    return running


def project_node(node: NodeState, now: float, until: float = inf) -> list[Projected]:
    """Project the queues of a node; each chunk is in the result once."""
    if _is_wide(node):
        return project(node.entries(), now, until)
    return [projected for queue in node.queues if queue for projected in project(queue, now, until)]


def planned_window(node: NodeState | None, entry: QueuedChunk, now: float) -> Interval:
    """Return the time of training of a bound chunk, preemption by denser chunks in transit included (t* of Alg. 4).

    Args:
        node: Node to which it is bound; None at an unlimited site, where it does not wait for other chunks.
        entry: The chunk, which is in the queues of its slots.
        now: Clock, in seconds.
    """
    if node is None:
        start = max(now, entry.ready_at)
        return Interval(start, start + entry.remaining_seconds(now))
    queue = node.entries() if _is_wide(node) else node.queues[entry.home.slots[0]]
    windows = project(queue[: queue.index(entry) + 1], now)[-1].windows
    if not windows:
        return Interval(max(now, entry.ready_at), max(now, entry.ready_at))
    return Interval(windows[0].start, windows[-1].end)


def _is_wide(node: NodeState) -> bool:
    """Return whether a chunk holds several slots, so that these have to be projected together."""
    return any(len(entry.home.slots) > 1 for queue in node.queues for entry in queue)
