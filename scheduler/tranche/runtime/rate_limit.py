"""Rate limit per sender."""

from collections import OrderedDict

REMEMBERED = 50_000


class RateLimit:
    """Token bucket per sender. Beyond `REMEMBERED` senders, the least recently active ones are dropped."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Remaining tokens and the time of the last update, by sender."""

    def admits(self, sender: str, now: float) -> bool:
        """Whether the sender may call now; an admitted call takes a token."""
        left, at = self._buckets.get(sender, (float(self._burst), now))
        left = min(float(self._burst), left + max(0.0, now - at) * self._per_second)
        admitted = left >= 1
        self._buckets[sender] = (left - admitted, now)
        self._buckets.move_to_end(sender)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return admitted

    def refund(self, sender: str) -> None:
        """Return the token of an admitted call that does not count."""
        if (known := self._buckets.get(sender)) is not None:
            self._buckets[sender] = (min(float(self._burst), known[0] + 1.0), known[1])
