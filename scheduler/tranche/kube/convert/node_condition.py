"""Condition NodesExcluded of a Site: which of its nodes take no pods because pods had problems there. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tranche.kube.api.condition import find_condition
from tranche.kube.api.resources import Condition
from tranche.kube.api.timestamp import rfc3339

CONDITION_NODES_EXCLUDED = "NodesExcluded"
LISTED = 20
"""Largest number of nodes that the message names."""


class ExcludedNode(NamedTuple):
    """A node that takes no pods for a time."""

    name: str
    until: float
    """When a pod is tried there again, in seconds since the epoch."""
    reason: str


def excluded_condition(
    nodes: Sequence[ExcludedNode], known: Iterable[Condition], now: float
) -> Mapping[str, Any] | None:
    """Build the condition from the excluded nodes of a site; None if none is excluded and none was.

    Args:
        nodes: The excluded nodes of the site.
        known: Conditions of the Site as read; the transition time is kept while the status does not change.
        now: Seconds since the epoch.
    """
    reason = "PodsHaveTrouble" if nodes else "NoneExcluded"
    return site_condition(CONDITION_NODES_EXCLUDED, reason, _message(nodes), known, now, holds=bool(nodes))


def site_condition(
    kind: str, reason: str, message: str, known: Iterable[Condition], now: float, *, holds: bool
) -> Mapping[str, Any] | None:
    """Build a condition of a Site; None if it does not hold and is not among the known ones.

    The transition time is that of the known one while the status does not change.
    """
    before, status = find_condition(known, kind), "True" if holds else "False"
    if before is None and not holds:
        return None
    since = before.last_transition_time.timestamp() if before is not None and before.status == status else now
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(since),
    }


def _message(nodes: Sequence[ExcludedNode]) -> str:
    if not nodes:
        return "no node is excluded"
    listed = [f"{one.name} until {rfc3339(one.until)}: {one.reason}" for one in nodes[:LISTED]]
    more = f"; and {len(nodes) - LISTED} more" if len(nodes) > LISTED else ""
    return "; ".join(listed) + more
