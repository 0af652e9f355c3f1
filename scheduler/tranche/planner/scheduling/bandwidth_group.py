"""Bandwidth-first grouping: the members of a gang start inside the best-connected sites that have room for all.

Source: after the abstract of FusionLLM (arXiv 2410.12707): nodes are grouped by bandwidth first, so that no slow link
cuts the communication graph of a job; the greedy rule is ours [I]. From each site, a group takes the site whose
slowest link to the group is the fastest, until all members fit. The group with the fastest slowest link wins; of equal
ones, that of fewer sites, of less spare room, and then the first by name.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tranche.estimate import bits_per_second
from tranche.planner.scheduling.placement import count_fitting
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState


class _Group(NamedTuple):
    """Sites with room for a gang; the smallest one is the best."""

    slowness: float
    """Seconds per bit of the slowest link between two members, or inside a site."""
    size: int
    spare: int
    sites: tuple[str, ...]


def best_connected(cluster: ClusterState, state: JobState, nodes: Sequence[NodeState]) -> list[NodeState]:
    """Return those of the nodes that are in the best-connected group with room for the gang; all if no group has it.

    Args:
        cluster: State of the cluster, with the links between sites.
        state: State of the gang.
        nodes: Nodes with free GPUs that it may use.
    """
    wanted = state.job.min_available
    room: Counter[str] = Counter()
    for node in nodes:
        room[node.node.site] += count_fitting(state.job.worker.requests, (node.capacity - node.reserved,), wanted)
    groups = [_grow(cluster, first, room, wanted) for first in sorted(room) if room[first]]
    best = min((group for group in groups if group is not None), default=None)
    return [node for node in nodes if best is None or node.node.site in best.sites]


def _grow(cluster: ClusterState, first: str, room: Mapping[str, int], wanted: int) -> _Group | None:
    """Return the group that begins with this site; None if all sites together have no room for the gang."""

    def slowness(here: str, there: str) -> float:
        return 1.0 / bits_per_second(cluster.network, cluster.sites, here, there)

    sites, slowest, left = [first], slowness(first, first), wanted - room[first]
    while left > 0:
        others = [
            (max(slowness(site, site), *(slowness(site, member) for member in sites)), -room[site], site)
            for site in sorted(room)
            if room[site] and site not in sites
        ]
        if not others:
            return None
        worst, negative_room, site = min(others)
        sites.append(site)
        slowest, left = max(slowest, worst), left + negative_room
    return _Group(slowest, len(sites), -left, tuple(sorted(sites)))
