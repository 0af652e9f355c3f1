"""Moments in sentences about jobs: written in one way, so that who reads them can tell what lasts from what moves."""

import re
from datetime import UTC, datetime

FAR_SECONDS = 1000 * 365 * 86_400.0
"""Beyond this no date is told."""
_FAR = "far in the future"
_UNTIL = re.compile(rf" until (?:{_FAR}|(?:\d{{4,}}-\d\d-\d\d )?\d\d:\d\d:\d\dZ)")


def until(at: float | None, now: float) -> str:
    """Such as " until 14:20:00Z": time of day in UTC, with the date if that is another day; "" without a moment."""
    if at is None:
        return ""
    if at - now > FAR_SECONDS:
        return f" until {_FAR}"
    moment, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    return moment.strftime(" until %H:%M:%SZ" if moment.date() == today.date() else " until %Y-%m-%d %H:%M:%SZ")


def without_moments(sentence: str) -> str:
    """What the sentence says whenever it will be."""
    return _UNTIL.sub("", sentence)
