"""What a run used at each site, as the planner has counted it (`tranche.planner.site_uses`)."""

from math import fsum

from tranche.model import Tier
from tranche.simulation.engine.result import JobUse, SiteUse
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState
from tranche.state.site_usage import SiteUsage, is_cloud


def job_use(cluster: ClusterState, state: JobState) -> JobUse:
    """What one job has used so far."""
    used = state.use.sites
    return JobUse(
        cloud_gpu_seconds=fsum(one.gpu_seconds for site, one in used.items() if is_cloud(cluster.sites.get(site))),
        copied_bytes=fsum(one.copied_bytes for one in used.values()),
        in_vain_bytes=fsum(one.in_vain_bytes for one in used.values()),
    )


def site_uses(cluster: ClusterState) -> tuple[SiteUse, ...]:
    """What all jobs have used so far, by site: of all sites that are declared, have nodes or were used."""
    tiers = {name: site.tier for name, site in cluster.sites.items()}
    for node in cluster.nodes.values():
        tiers.setdefault(node.node.site, Tier.EDGE)
    places = sorted({*tiers.items(), *cluster.site_uses})
    return tuple(_site_use(cluster, site, tier) for site, tier in places)


def _site_use(cluster: ClusterState, site: str, tier: Tier) -> SiteUse:
    used, known = cluster.site_uses.get((site, tier), SiteUsage()), cluster.sites.get(site)
    return SiteUse(
        site,
        tier.value,
        known is not None and known.unlimited,
        used.gpu_seconds,
        used.trained_gpu_seconds,
        used.chunks,
        used.copied_bytes,
        used.in_vain_bytes,
    )
