"""Which site a node belongs to."""

from collections.abc import Mapping

from tranche.kube.api.resources import SiteObject

DEFAULT_SITE = "cluster"
"""The one site of a cluster without Site objects."""
UNDECLARED_TOLERANCE_SECONDS = 300.0
"""How long a node that no Site selects may be silent before others train what it ran: Kubernetes' own default."""


def site_of(labels: Mapping[str, str], sites: Mapping[str, SiteObject]) -> str | None:
    """The first site, by name, whose selector matches a node's labels; None if there are sites and none does."""
    if not sites:
        return DEFAULT_SITE
    for name in sorted(sites):
        if all(labels.get(key) == value for key, value in sites[name].spec.node_selector.items()):
            return name
    return None
