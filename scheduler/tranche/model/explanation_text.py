"""Times and free GPUs in explanations of jobs, in one format, so that a program can remove them to compare the rest."""

import re
from datetime import UTC, datetime

FAR_SECONDS = 1000 * 365 * 86_400.0
"""Largest distance of a time that is shown."""
ASSUMED_DURATION = "is assumed: set spec.estimatedDuration"
"""End of the note about a job whose duration is unknown."""
_FAR = "far in the future"
_TIMES = re.compile(rf"(?: until|, expected) (?:{_FAR}|(?:at )?(?:\d{{4,}}-\d\d-\d\d )?\d\d:\d\d:\d\dZ)")
_NOTHING_DONE = re.compile(r"; 0 of \d+ (?:chunks|members) done[^;]*")
_FREE = re.compile(r" \(\d+ (?:is|are) free\)")


def until(at: float | None, now: float) -> str:
    """Return such as " until 14:20:00Z": time of day in UTC, with the date if it is another day; "" for None."""
    return "" if at is None else f" until {_time(at, now) or _FAR}"


def since(at: float, now: float) -> str:
    """Return such as " since 14:20:00Z"."""
    return f" since {_time(at, now)}"


def expected(at: float | None, now: float) -> str:
    """Return such as ", expected at 14:20:00Z"; "" for None."""
    if at is None:
        return ""
    time = _time(at, now)
    return f", expected at {time}" if time else f", expected {_FAR}"


def _time(at: float, now: float) -> str:
    """Return a time as text; "" if it is too far to be shown."""
    if at - now > FAR_SECONDS:
        return ""
    moment, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    return moment.strftime("%H:%M:%SZ" if moment.date() == today.date() else "%Y-%m-%d %H:%M:%SZ")


def free_gpus(count: int) -> str:
    """Return such as " (12 are free)"."""
    return f" ({count} {'is' if count == 1 else 'are'} free)"


def without_moments(sentence: str) -> str:
    """Return the sentence without its times and numbers of free GPUs."""
    return _FREE.sub("", _TIMES.sub("", sentence))


def as_what_if(sentence: str, workers: int) -> str:
    """Return the explanation of a job that is not submitted in the conditional, without its share of trained chunks.

    Args:
        sentence: Explanation that the job would have right after its submission.
        workers: Workers that would start at once.
    """
    if workers:
        return f"would start at once: {_NOTHING_DONE.sub('', sentence, count=1)}"
    return re.sub("^waits ", "would wait ", sentence)
