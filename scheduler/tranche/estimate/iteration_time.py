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
    """Link parameters to assume where no Site object describes the network."""

    internal: Link = Link(10e9, 0.0)
    """Link between nodes of one site, unless the Site has a link to itself."""
    external: Link = Link(100e6, 0.0)
    """Link between two sites, unless one of them has a link to the other."""


def bits_per_second(prior: NetworkPrior, sites: Mapping[str, Site], here: str, there: str) -> float:
    """Return the bandwidth b between two sites (or inside one), in bit/s."""
    return link_between(prior, sites, here, there).bits_per_second


def transfer_seconds(prior: NetworkPrior, sites: Mapping[str, Site], job: Job, site: str) -> float:
    """Return Δ_js: the time to copy one chunk of the job to a site, in seconds; 0 where the data are."""
    link = upload_link(prior, sites, job, site)
    return 0.0 if link is None else link.transfer_seconds(job.chunk_bytes)


def upload_link(prior: NetworkPrior, sites: Mapping[str, Site], job: Job, site: str) -> Link | None:
    """Return the link that the job's data take to a site; None if no data have to be copied there."""
    here = job.data_site or site
    if here == site or not job.chunk_bytes:
        return None
    if site in job.upload_seconds:
        return Link(inf, job.upload_seconds[site], dedicated=True)
    return link_between(prior, sites, here, site)


def batch_seconds(job: Job, bandwidth: float | None, speed: float = 1.0) -> float:
    """Return 1 / n_js: the time of one mini-batch on one worker, in seconds.

    Args:
        job: Job whose m + G and q are used.
        bandwidth: Bandwidth between worker and parameter server in bit/s; None if nothing is sent (ζ = 1, or no
            server).
        speed: Speed of the node's GPU kind, relative to the kind that m was measured on.
    """
    compute = job.step_seconds / speed
    if not bandwidth or not job.gradient_bits:
        return compute
    return compute + 2 * job.gradient_bits / min(bandwidth, job.bits_per_second)


def link_between(prior: NetworkPrior, sites: Mapping[str, Site], here: str, there: str) -> Link:
    """Return the link from one site to another, or within one; the prior if no Site describes it."""
    for start, end in ((here, there), (there, here)):
        if start in sites and end in sites[start].links:
            return sites[start].links[end]
    return prior.internal if here == there else prior.external
