"""When data that are sent between sites arrive: uploads share links, and measured ones correct what links promise."""

from dataclasses import dataclass, field
from math import exp, log

from tranche.model import Link

LEARNING_RATE = 0.3
"""Weight of the newest measurement."""
LARGEST_CORRECTION = log(1000.0)
"""Of a link's promise, in either direction: a clock that jumped must not stop a link for ever."""

Ends = tuple[str, str]
"""From one site to another."""


@dataclass(slots=True)
class Uploads:
    """What is under way on every link, and how long uploads really take there."""

    busy: dict[Ends, float] = field(default_factory=dict)
    """Until when a link has uploads to do that were begun before."""
    corrections: dict[Ends, float] = field(default_factory=dict)
    """Logarithm of real over promised time."""

    def seconds(self, ends: Ends, link: Link, size_bytes: float) -> float:
        """Δ of one upload alone, in seconds."""
        return link.transfer_seconds(size_bytes) * exp(self.corrections.get(ends, 0.0))

    def ready(self, ends: Ends, link: Link, size_bytes: float, now: float) -> float:
        """When an upload that begins now would be complete: behind those before it, unless the link is dedicated."""
        start = now if link.dedicated else max(now, self.busy.get(ends, now))
        return start + self.seconds(ends, link, size_bytes)

    def preview(self, ends: Ends, link: Link, size_bytes: float, now: float, count: int) -> list[float]:
        """Completion times of `count` uploads of that size if they began now.

        One after the other at full bandwidth: the average upload is complete sooner than if all shared it evenly.
        """
        first = self.ready(ends, link, size_bytes, now)
        if link.dedicated or not count:
            return [first] * count
        more = self.seconds(ends, link, size_bytes) - link.latency_seconds
        return [first + i * more for i in range(count)]

    def begin(self, ends: Ends, link: Link, size_bytes: float, now: float, count: int = 1) -> list[float]:
        """Begin `count` uploads of that size; returns when each will be complete."""
        ready = self.preview(ends, link, size_bytes, now, count)
        if count and not link.dedicated:
            self.busy[ends] = ready[-1] - link.latency_seconds
        return ready

    def measured(self, ends: Ends, link: Link, size_bytes: float, seconds: float) -> None:
        """An upload took so many seconds once it had begun."""
        promised = link.transfer_seconds(size_bytes)
        if promised > 0 and seconds > 0:
            known = self.corrections.get(ends)
            seen = max(-LARGEST_CORRECTION, min(LARGEST_CORRECTION, log(seconds / promised)))
            self.corrections[ends] = seen if known is None else known + LEARNING_RATE * (seen - known)
