"""Parameter servers: which node hosts them (JSAC'22, Alg. 5: keep, else choose among the feasible, else wait)."""

from collections import Counter
from math import inf

from tranche.model import PlannedServer
from tranche.policies import ClusterState, JobState, NodeState, Policy, Server


def missing_servers(state: JobState) -> int:
    """Parameter servers of the job that have no place yet."""
    return max(0, state.job.servers - len(state.servers))


def server_sites(cluster: ClusterState, state: JobState, policy: Policy) -> list[str | None]:
    """Where the job's parameter servers may be, the best site first; None stands for any site.

    The published rule knows one: the cloud if ζ = 1, else where the job's data are, else where most of its chunks have
    their home. Ours [I] takes all, by the narrowest path to a site where the job's workers are or may soon be: this
    minimises the slowest worker's 2q/b (one facility over few sites).
    """
    if policy.central_servers:
        wanted = {run.home.site for run in state.runs.values()}.union(state.copies)
        wanted |= {state.job.data_site} if state.job.data_site else set()
        shape = state.job.server
        sites = set(cluster.eligible(shape).by_site) if shape is not None else set()
        sites.update(site.name for site in cluster.unlimited_sites())
        wanted &= sites
        narrowest: dict[str | None, float] = {
            site: min((cluster.exchange_bits_per_second(state, other, site) for other in wanted), default=inf)
            for site in sites
        }
        return sorted(narrowest, key=lambda site: (-narrowest[site], site != state.job.data_site, site or ""))
    homes = Counter(entry.home.site for entry in state.entries.values())
    if state.colocated and homes:
        return [homes.most_common(1)[0][0]]
    own = state.job.data_site
    if own and any(node.node.site == own for node in cluster.nodes.values()):
        return [own]
    return [min(homes, key=lambda site: (-homes[site], site)) if homes else None]


def feasible_hosts(cluster: ClusterState, state: JobState, site: str | None) -> list[NodeState]:
    """Nodes of the site (of all sites if None) with room for one parameter server of the job, by name."""
    shape = state.job.server
    assert shape is not None
    return [node for node in cluster.eligible(shape).at(site or "") if node.has_room(shape.requests)]


def room_for_servers(cluster: ClusterState, state: JobState, policy: Policy) -> bool:
    """Whether all parameter servers that the job lacks would find a host now."""
    missing = state.job.servers - len(state.servers)
    shape = state.job.server
    for site in server_sites(cluster, state, policy) if shape and missing > 0 else ():
        if site in cluster.sites and cluster.sites[site].unlimited:
            return True
        for node in feasible_hosts(cluster, state, site):
            room = node.capacity - node.reserved
            while missing and shape and shape.requests.fits(room):
                room, missing = room - shape.requests, missing - 1
        if missing <= 0:
            break
    return missing <= 0


def place_servers(cluster: ClusterState, state: JobState, policy: Policy, seed: int) -> list[Server] | None:
    """Places for the parameter servers that the job lacks; None if there is no room for all of them yet."""
    placed: list[Server] = []
    shape = state.job.server
    if shape is None:
        return placed
    have = {server.planned.index for server in state.servers}
    missing = [index for index in range(state.job.servers) if index not in have]
    sites = server_sites(cluster, state, policy) if missing else []
    for index in missing:
        found = _place(cluster, state, policy, sites, index, seed)
        if found is None:
            release_servers(cluster, placed)
            return None
        state.attempts += 1
        placed.append(Server(PlannedServer(index, state.attempts, *found), shape.requests))
    return placed


def _place(
    cluster: ClusterState, state: JobState, policy: Policy, sites: list[str | None], index: int, seed: int
) -> tuple[str, str | None] | None:
    """Site and node of one parameter server, with its room reserved; None if there is none."""
    shape = state.job.server
    for site in sites if shape else ():
        if site is not None and site in cluster.sites and cluster.sites[site].unlimited:
            return site, None
        feasible = feasible_hosts(cluster, state, site)
        if feasible and shape:
            node = policy.server_host(cluster, state, index, feasible, seed)
            node.reserved = node.reserved + shape.requests
            return node.node.site, node.node.name
    return None


def release_servers(cluster: ClusterState, servers: list[Server]) -> None:
    """Give back what the parameter servers reserve."""
    for server in servers:
        node = cluster.nodes.get(server.planned.node or "")
        if node is not None:
            node.reserved = node.reserved - server.requests
