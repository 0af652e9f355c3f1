"""How often one sender may call."""

from collections import OrderedDict

REMEMBERED = 50_000


class RateLimit:
    """A token bucket a sender; senders that have not called for the longest time are forgotten first."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What is left, and when that was."""

    def admits(self, sender: str, now: float) -> bool:
        """Whether the sender may call now; if so, the call is counted."""
        left, at = self._buckets.get(sender, (float(self._burst), now))
        left = min(float(self._burst), left + max(0.0, now - at) * self._per_second)
        admitted = left >= 1
        self._buckets[sender] = (left - admitted, now)
        self._buckets.move_to_end(sender)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return admitted
