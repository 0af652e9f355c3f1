"""Use of each site in a run, as the planner has counted it (`tranche.state.site_accounting`)."""

from collections.abc import Iterable
from math import fsum

from tranche.model import Tier
from tranche.simulation.engine.result import JobUse, SiteUse
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.site_usage import SiteUsage, is_cloud


def job_use(cluster: ClusterState, state: JobState, *, by_site: bool = False) -> JobUse:
    """Return a job's use so far; each site's part only on request, because logs have 100,000 jobs."""
    used = state.use.sites
    return JobUse(
        cloud_gpu_seconds=fsum(
            [usage.gpu_seconds for site, usage in used.items() if is_cloud(cluster.sites.get(site))]
        ),
        copied_bytes=fsum([usage.copied_bytes for usage in used.values()]),
        in_vain_bytes=fsum([usage.in_vain_bytes for usage in used.values()]),
        sites=tuple(_use(site, _tier(cluster, site), used[site], cluster) for site in sorted(used)) if by_site else (),
        on_demand_gpu_seconds=fsum(
            [usage.trained_gpu_seconds for site, usage in used.items() if cluster.is_unlimited(site)]
        ),
    )


def capacity_gpus(cluster: ClusterState) -> int:
    """Return the GPUs of all nodes; nodes of unlimited sites, which are created on demand, are no capacity."""
    return sum(
        node.node.allocatable.gpus for node in cluster.nodes.values() if not cluster.is_unlimited(node.node.site)
    )


def add_uses(uses: Iterable[SiteUse]) -> tuple[SiteUse, ...]:
    """Return the sums for each site, by name; a site whose tier changed counts under each of its tiers."""
    groups: dict[tuple[str, str], list[SiteUse]] = {}
    for use in uses:
        groups.setdefault((use.site, use.tier), []).append(use)
    return tuple(
        SiteUse(
            site,
            tier,
            any(use.unlimited for use in group),
            fsum(use.gpu_seconds for use in group),
            fsum(use.trained_gpu_seconds for use in group),
            sum(use.chunks for use in group),
            fsum(use.copied_bytes for use in group),
            fsum(use.in_vain_bytes for use in group),
        )
        for (site, tier), group in sorted(groups.items())
    )


def site_uses(cluster: ClusterState) -> tuple[SiteUse, ...]:
    """Return the use of all jobs so far, by site: all sites that are declared, have nodes or were used."""
    tiers = {name: site.tier for name, site in cluster.sites.items()}
    for node in cluster.nodes.values():
        tiers.setdefault(node.node.site, Tier.EDGE)
    places = sorted({*tiers.items(), *cluster.site_uses})
    return tuple(_use(site, tier, cluster.site_uses.get((site, tier), SiteUsage()), cluster) for site, tier in places)


def _tier(cluster: ClusterState, site: str) -> Tier:
    declared = cluster.sites.get(site)
    return declared.tier if declared is not None else Tier.EDGE


def _use(site: str, tier: Tier, used: SiteUsage, cluster: ClusterState) -> SiteUse:
    declared = cluster.sites.get(site)
    return SiteUse(
        site,
        tier.value,
        declared is not None and declared.unlimited,
        used.gpu_seconds,
        used.trained_gpu_seconds,
        used.chunks,
        used.copied_bytes,
        used.in_vain_bytes,
    )
