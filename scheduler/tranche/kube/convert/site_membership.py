"""Assignment of nodes to sites."""

from collections.abc import Mapping

from tranche.kube.api.resources import SiteObject

DEFAULT_SITE = "cluster"
"""Name of the only site of a cluster without Site objects."""
UNDECLARED_TOLERANCE_SECONDS = 300.0
"""Disconnect tolerance of nodes that no Site selects, in seconds: the default of Kubernetes. After it, their chunks are
planned again."""


def site_of(labels: Mapping[str, str], sites: Mapping[str, SiteObject]) -> str | None:
    """Return the first site, by name, whose selector matches the node labels.

    None if there are sites but none matches.
    """
    if not sites:
        return DEFAULT_SITE
    for name in sorted(sites):
        if all(labels.get(key) == value for key, value in sites[name].spec.node_selector.items()):
            return name
    return None
