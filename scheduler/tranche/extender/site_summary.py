"""Usage summary of the sites."""

import msgspec

from tranche.extender.view import View
from tranche.kube.convert.site_membership import DEFAULT_SITE
from tranche.runtime.batching import portions


class SiteSummary(msgspec.Struct, frozen=True, rename="camel"):
    """Capacity and usage of one site; numbers of nodes and GPUs."""

    name: str
    tier: str
    unlimited: bool
    nodes: int
    ready_nodes: int
    gpus: int
    used_gpus: int
    reserved_gpus: int


async def list_sites(view: View) -> list[SiteSummary]:
    """Summarize the sites, sorted by name; nodes without a site are ignored."""
    sums: dict[str, list[int]] = {}
    async for nodes in portions(view.nodes.items()):
        for name, node in nodes:
            site = view.site_of(name)
            if site is None:
                continue
            use, amounts = view.reservations.node(name), sums.setdefault(site, [0] * 5)
            amounts[0] += 1
            amounts[1] += node.ready
            amounts[2] += use.capacity.gpus if use.capacity is not None else 0
            amounts[3] += use.used.gpus
            if use.claims:
                amounts[4] += sum(claim.requests.gpus for claim in use.claims.values())
    return [_site(view, name, *sums.get(name, [0] * 5)) for name in sorted(view.sites or (DEFAULT_SITE,))]


def _site(view: View, name: str, nodes: int, ready: int, gpus: int, used: int, reserved: int) -> SiteSummary:
    declared = view.sites.get(name)
    tier = declared.spec.tier if declared else "Cloud"
    unlimited = declared is not None and declared.spec.unlimited
    return SiteSummary(name, tier, unlimited, nodes, ready, gpus, used, reserved)
