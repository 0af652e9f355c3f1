"""Times in explanations of jobs, in one format, so that a reader can remove them to compare the rest of a sentence."""

import re
from datetime import UTC, datetime

FAR_SECONDS = 1000 * 365 * 86_400.0
"""Largest distance of a time that is shown."""
_FAR = "far in the future"
_UNTIL = re.compile(rf" until (?:{_FAR}|(?:\d{{4,}}-\d\d-\d\d )?\d\d:\d\d:\d\dZ)")


def until(at: float | None, now: float) -> str:
    """Return such as " until 14:20:00Z": time of day in UTC, with the date if it is another day; "" for None."""
    if at is None:
        return ""
    if at - now > FAR_SECONDS:
        return f" until {_FAR}"
    moment, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    return moment.strftime(" until %H:%M:%SZ" if moment.date() == today.date() else " until %Y-%m-%d %H:%M:%SZ")


def without_moments(sentence: str) -> str:
    """Return the sentence without its times."""
    return _UNTIL.sub("", sentence)
