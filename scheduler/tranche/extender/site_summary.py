"""Usage summary of the sites."""

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from tranche.extender.view import View
from tranche.kube.convert.site_membership import DEFAULT_SITE
from tranche.runtime.batching import portions


class GpuUse(msgspec.Struct, frozen=True, rename="camel"):
    """Capacity and usage of one GPU resource at a site; numbers of GPUs."""

    resource: str
    gpus: int = 0
    used_gpus: int = 0
    reserved_gpus: int = 0


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
    gpu_resources: list[GpuUse] = []
    """The same by GPU resource."""


async def list_sites(view: View) -> list[SiteSummary]:
    """Summarize the sites, sorted by name; nodes without a site are ignored."""
    sums: dict[str, _Sums] = {}
    async for nodes in portions(view.nodes.items()):
        for name, node in nodes:
            site = view.site_of(name)
            if site is None:
                continue
            use, amounts = view.reservations.node(name), sums.setdefault(site, _Sums())
            amounts.nodes += 1
            amounts.ready += node.ready
            if use.capacity is not None:
                resource = use.capacity.gpu_resource or view.gpu_resources[0]
                amounts.gpus[resource] += use.capacity.gpus
                amounts.used[resource] += use.used.gpus
                amounts.reserved[resource] += sum(claim.requests.gpus for claim in use.claims.values())
    return [_site(view, name, sums.get(name, _Sums())) for name in sorted(view.sites or (DEFAULT_SITE,))]


@dataclass(slots=True)
class _Sums:
    """Sums over the nodes of one site; those of GPUs by resource."""

    nodes: int = 0
    ready: int = 0
    gpus: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    reserved: Counter[str] = field(default_factory=Counter)


def _site(view: View, name: str, sums: _Sums) -> SiteSummary:
    declared = view.sites.get(name)
    return SiteSummary(
        name,
        declared.spec.tier if declared else "Cloud",
        declared is not None and declared.spec.unlimited,
        sums.nodes,
        sums.ready,
        sums.gpus.total(),
        sums.used.total(),
        sums.reserved.total(),
        [
            GpuUse(resource, sums.gpus[resource], sums.used[resource], sums.reserved[resource])
            for resource in view.gpu_resources
        ],
    )
