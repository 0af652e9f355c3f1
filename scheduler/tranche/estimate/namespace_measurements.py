"""Measurements by namespace, and the rule by which they count for namespaces that have none of their own.

A tenant could measure anything, so one namespace does not decide for others.
"""

from collections.abc import Collection, Mapping
from typing import TypeVar

Measured = TypeVar("Measured")

MAX_NAMESPACES = 1000
"""Number of namespaces whose measurements are kept: those that measured most recently."""


def deciding(measured: Mapping[str, float], present: Collection[str]) -> list[float]:
    """Return the measurements that decide for all namespaces; none while too few namespaces have measured.

    If jobs of several namespaces are present, two namespaces must have measured. Namespaces whose jobs are gone count
    only while those with jobs are too few, since their measurements may be years old.

    Args:
        measured: Measurement of each namespace.
        present: Namespaces with jobs.
    """
    for among in (present, {*present, *measured}):
        values = [measured[namespace] for namespace in among if namespace in measured]
        if len(values) >= max(1, min(2, len(among))):
            return values
    return []


def keep(measured: dict[str, Measured], namespace: str, value: Measured) -> None:
    """Enter the newest measurement, in place; of too many namespaces, the one of the oldest entry is forgotten."""
    measured.pop(namespace, None)
    measured[namespace] = value
    if len(measured) > MAX_NAMESPACES:
        del measured[next(iter(measured))]
