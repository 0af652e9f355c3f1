"""What the sites have, use and hold for plans."""

import msgspec

from tranche.extender.views import View
from tranche.kube.memberships import DEFAULT_SITE
from tranche.model import Resources


class SiteSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One site."""

    name: str
    tier: str
    unlimited: bool
    nodes: int
    ready_nodes: int
    gpus: int
    used_gpus: int
    reserved_gpus: int


def list_sites(view: View) -> list[SiteSummary]:
    """Sites by name, with what their nodes have, use and hold for plans; nodes without a site are left out."""
    nodes: dict[str, list[str]] = {name: [] for name in view.sites or (DEFAULT_SITE,)}
    for name in view.nodes:
        site = view.site_of(name)
        if site is not None:
            nodes[site].append(name)
    return [_site(view, site, names) for site, names in sorted(nodes.items())]


def _site(view: View, name: str, nodes: list[str]) -> SiteSummary:
    declared = view.sites.get(name)
    uses = [view.reservations.node(node) for node in nodes]
    return SiteSummary(
        name=name,
        tier=declared.spec.tier if declared else "Cloud",
        unlimited=declared is not None and declared.spec.unlimited,
        nodes=len(nodes),
        ready_nodes=sum(view.nodes[node].ready for node in nodes),
        gpus=sum((use.capacity or Resources()).gpus for use in uses),
        used_gpus=sum(use.used.gpus for use in uses),
        reserved_gpus=sum(claim.requests.gpus for use in uses for claim in use.claims.values()),
    )
