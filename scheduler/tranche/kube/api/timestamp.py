"""Timestamps of Kubernetes objects: RFC 3339 in UTC."""

from datetime import UTC, datetime

LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
"""Latest time that RFC 3339 can express, in seconds since the epoch; estimates beyond it are cut to it."""


def rfc3339(at: datetime | float, *, microseconds: bool = False) -> str:
    """Format a time, such as ``2026-11-22T14:20:00Z``.

    Args:
        at: An aware datetime, or seconds since the epoch.
        microseconds: With six digits after the second, as MicroTime has; otherwise the fraction is cut off.
    """
    known = at if isinstance(at, datetime) else datetime.fromtimestamp(min(at, LATEST), UTC)
    precision = "microseconds" if microseconds else "seconds"
    return known.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def whole_second(at: float | None) -> datetime | None:
    """Convert seconds since the epoch to UTC without the fraction; None if there is no time (None or 0)."""
    return datetime.fromtimestamp(min(at, LATEST), UTC).replace(microsecond=0) if at else None
