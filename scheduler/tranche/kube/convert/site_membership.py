"""Assignment of nodes to sites, and condition NodesShared of a Site: whether its nodes belong to another one. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tranche.kube.api.resources import Condition, SiteObject
from tranche.kube.convert.node_condition import LISTED, site_condition

CONDITION_NODES_SHARED = "NodesShared"

DEFAULT_SITE = "cluster"
"""Name of the only site of a cluster without Site objects."""
UNDECLARED_TOLERANCE_SECONDS = 300.0
"""Disconnect tolerance of nodes that no Site selects, in seconds: the default of Kubernetes. After it, their chunks are
planned again."""


def sites_of(labels: Mapping[str, str], sites: Mapping[str, SiteObject]) -> Iterator[str]:
    """Yield the sites whose selector matches the node labels, by name; the node belongs to the first one."""
    for name in sorted(sites):
        if all(labels.get(key) == value for key, value in sites[name].spec.node_selector.items()):
            yield name


def site_of(labels: Mapping[str, str], sites: Mapping[str, SiteObject]) -> str | None:
    """Return the first site, by name, whose selector matches the node labels.

    None if there are sites but none matches.
    """
    if not sites:
        return DEFAULT_SITE
    return next(sites_of(labels, sites), None)


def shared_condition(
    shared: Sequence[tuple[str, str]], known: Iterable[Condition], now: float
) -> Mapping[str, Any] | None:
    """Build the condition; None if no node belongs to another site and none did.

    Args:
        shared: Name and site of each node that the selector matches and that belongs to another site.
        known: Conditions of the Site as read; the transition time is kept while the status does not change.
        now: Seconds since the epoch.
    """
    reason, message = "NoneShared", "all nodes that the selector matches belong to this site"
    if shared:
        listed = ", ".join(f"{node} ({site})" for node, site in shared[:LISTED])
        more = f", and {len(shared) - LISTED} more" if len(shared) > LISTED else ""
        reason = "SelectorsOverlap"
        message = (
            f"the selector also matches nodes of sites whose names come first: {listed}{more}; such a node belongs "
            "only to the first site: change one of the selectors"
        )
    return site_condition(CONDITION_NODES_SHARED, reason, message, known, now, holds=bool(shared))
