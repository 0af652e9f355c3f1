"""Merging of events of one job with equal type and reason. Pure.

Pods that start for one decision, or within `SPACING_SECONDS`, are one event, which counts them by site.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tranche.kube.api import names
from tranche.model.place_counts import places_text
from tranche_operator.reconcile.actions import EmitEvent

SPACING_SECONDS = 20.0
"""Least time between two events of one job with equal type and reason. Events in between are merged into the next."""
AT_ONCE = frozenset({"Completed", "Failed"})
"""Reasons of events that are written without this delay. They occur once."""
OPENED = {
    names.ROLE_WORKER: "WindowOpened",
    names.ROLE_SERVER: "ParameterServerOpened",
    names.ROLE_CHIEF: "ChiefOpened",
    names.ROLE_STAGING: "StagingOpened",
}
"""Reasons of events about created pods, by role."""
_NOUNS = {
    "WindowOpened": "worker",
    "ParameterServerOpened": "parameter server",
    "ChiefOpened": "chief",
    "StagingOpened": "staging pod",
}
_MAX_MESSAGES = 4
"""Number of different messages in a merged one."""


def merged(events: Iterable[EmitEvent]) -> list[EmitEvent]:
    """Merge events of equal type and reason."""
    groups: dict[tuple[str, str], list[EmitEvent]] = {}
    for event in events:
        groups.setdefault((event.type, event.reason), []).append(event)
    return [merge(group) for group in groups.values()]


def merge(events: Sequence[EmitEvent]) -> EmitEvent:
    """Merge events that have equal type and reason; those about created pods are counted by site."""
    first = events[0]
    if len(events) == 1:
        return first
    if all(event.starts for event in events):
        counts = Counter[str]()
        for event in events:
            counts.update(dict(event.starts))
        return replace(first, message=_started(first.reason, counts), starts=tuple(counts.items()))
    parts = tuple(dict.fromkeys(part for event in events for part in event.parts or (event.message,)))
    return replace(first, message=_joined(parts), parts=parts)


def _started(reason: str, counts: Counter[str]) -> str:
    return f"{counts.total()} {_NOUNS[reason]}s start: {places_text(counts)}"


def _joined(messages: Sequence[str]) -> str:
    shown = "; ".join(message.removesuffix(".") for message in messages[:_MAX_MESSAGES])
    more = len(messages) - _MAX_MESSAGES
    return f"{shown}; and {more} more" if more > 0 else f"{shown}{'.' if messages[-1].endswith('.') else ''}"
