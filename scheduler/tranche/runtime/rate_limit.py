"""Rate limit per sender."""

from collections import OrderedDict

MAX_SENDERS = 50_000
"""Maximum number of senders whose tokens are kept."""


class RateLimit:
    """Token bucket per sender. Beyond `MAX_SENDERS` senders, the least recently active ones are dropped."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Remaining tokens and the time of the last update, by sender."""

    def admits(self, sender: str, now: float) -> bool:
        """Return whether the sender may call now; an admitted call takes a token."""
        tokens, at = self._buckets.get(sender, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + max(0.0, now - at) * self._per_second)
        admitted = tokens >= 1
        self._buckets[sender] = (tokens - admitted, now)
        self._buckets.move_to_end(sender)
        if len(self._buckets) > MAX_SENDERS:
            self._buckets.popitem(last=False)
        return admitted

    def refund(self, sender: str) -> None:
        """Return the token of an admitted call that does not count."""
        if (bucket := self._buckets.get(sender)) is not None:
            self._buckets[sender] = (min(float(self._burst), bucket[0] + 1.0), bucket[1])
