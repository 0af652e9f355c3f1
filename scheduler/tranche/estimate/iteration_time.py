"""Iteration and transfer times from specification and links.

Source: Preemptive Scheduling for Distributed Machine Learning Jobs in Edge-Cloud Networks, N. Wang, R. Zhou, L. Jiao,
R. Zhang, B. Li, Z. Li, IEEE JSAC 40(8):2411-2425, 2022, doi 10.1109/JSAC.2022.3180772, eq. (1):
``n_js = 1 / (m_j + G_j + 2 q_j / b_j)``, and ``1 / (m_j + G_j)`` if ζ_j = 1.
Worked numbers: docs/explanation/algorithms.md, "Time of a chunk".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from tranche.model import Job, Link, Site


@dataclass(frozen=True, slots=True)
class NetworkPrior:
    """What is assumed of a network that no Site object describes."""

    internal: Link = Link(10e9, 0.0)
    """Between nodes of one site, unless the Site has a link to itself."""
    external: Link = Link(100e6, 0.0)
    """Between two sites, unless one of them has a link to the other."""


def bits_per_second(prior: NetworkPrior, sites: Mapping[str, Site], here: str, there: str) -> float:
    """Bandwidth b between two sites (or inside one), in bit/s."""
    return link_between(prior, sites, here, there).bits_per_second


def transfer_seconds(prior: NetworkPrior, sites: Mapping[str, Site], job: Job, site: str) -> float:
    """Δ_js: time to bring one chunk of the job to a site, in seconds; 0 where the data are."""
    link = upload_link(prior, sites, job, site)
    return 0.0 if link is None else link.transfer_seconds(job.chunk_bytes)


def upload_link(prior: NetworkPrior, sites: Mapping[str, Site], job: Job, site: str) -> Link | None:
    """The path that the job's data take to a site; None if nothing has to be brought there."""
    here = job.data_site or site
    if here == site or not job.chunk_bytes:
        return None
    if site in job.upload_seconds:
        return Link(inf, job.upload_seconds[site], dedicated=True)
    return link_between(prior, sites, here, site)


def batch_seconds(job: Job, bandwidth: float | None, speed: float = 1.0) -> float:
    """1 / n_js: time of one mini-batch on one worker, in seconds.

    Args:
        job: Gives m + G and q.
        bandwidth: Of the path between worker and parameter server in bit/s; None if nothing is sent (ζ = 1, or no
            server).
        speed: Of the node's GPU kind, relative to the one that m was measured on.
    """
    compute = job.step_seconds / speed
    if not bandwidth or not job.gradient_bits:
        return compute
    return compute + 2 * job.gradient_bits / min(bandwidth, job.bits_per_second)


def link_between(prior: NetworkPrior, sites: Mapping[str, Site], here: str, there: str) -> Link:
    """The link from one site to another, or within one; what is assumed if no Site describes it."""
    for start, end in ((here, there), (there, here)):
        if start in sites and end in sites[start].links:
            return sites[start].links[end]
    return prior.internal if here == there else prior.external
