"""Formats of numbers for readers."""

from collections.abc import Sequence
from math import isfinite

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0

TICKS_SECONDS: tuple[tuple[float, str], ...] = (
    (0.01, "10 ms"),
    (0.1, "0.1 s"),
    (1.0, "1 s"),
    (10.0, "10 s"),
    (_MINUTE, "1 min"),
    (10 * _MINUTE, "10 min"),
    (_HOUR, "1 h"),
    (6 * _HOUR, "6 h"),
    (_DAY, "1 d"),
    (7 * _DAY, "1 week"),
    (30 * _DAY, "30 d"),
    (365 * _DAY, "1 year"),
)
"""Round durations for a logarithmic axis."""


def format_duration(seconds: float) -> str:
    """Format a duration with a suitable unit.

    >>> format_duration(90.0), format_duration(5.25), format_duration(266400.0)
    ('1.5 min', '5.25 s', '3.08 d')
    """
    if not isfinite(seconds):
        return "–"
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if abs(seconds) >= size:
            return f"{significant(seconds / size)} {unit}"
    return f"{significant(seconds)} s"


def gpu_time_unit(gpu_seconds: Sequence[float]) -> tuple[float, str]:
    """Return length in GPU-seconds and name of the unit for a table: hours if the smallest time above 0 has one.

    >>> gpu_time_unit([5400.0, 0.0]), gpu_time_unit([5400.0, 215.0])
    ((3600.0, 'GPU h'), (1.0, 'GPU s'))
    """
    smallest = min((value for value in gpu_seconds if value > 0), default=0.0)
    return (_HOUR, "GPU h") if smallest >= _HOUR else (1.0, "GPU s")


def bytes_unit(amounts: Sequence[float]) -> tuple[float, str]:
    """Return bytes and name of the largest decimal unit in which the smallest amount above 0 is at least 1.

    >>> bytes_unit([4.5e12, 33554432.0])
    (1000000.0, 'MB')
    """
    smallest = min((value for value in amounts if value > 0), default=0.0)
    for size, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if smallest >= size:
            return size, unit
    return 1.0, "B"


def significant(value: float) -> str:
    """Format three significant digits, without an exponent and without dropping whole digits."""
    if not isfinite(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 or value == 0 else "<0.001"


def column_unit(seconds: Sequence[float]) -> tuple[float, str]:
    """Return length in seconds and symbol of the largest unit in which the smallest time above 0 is at least 1.

    >>> column_unit([266400.0, 7300.0, 0.0])
    (3600.0, 'h')
    """
    smallest = min((value for value in seconds if value > 0), default=0.0)
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if smallest >= size:
            return size, unit
    return 1.0, "s"


def time_unit(span_seconds: float) -> tuple[float, str]:
    """Return length in seconds and name of the unit for an axis of that span."""
    for size, unit in ((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes")):
        if span_seconds >= 3 * size:
            return size, unit
    return 1.0, "seconds"
