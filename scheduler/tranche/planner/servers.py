"""Parameter servers: which node hosts them (JSAC'22, Alg. 5: keep, else choose among the feasible, else wait)."""

from collections import Counter

from tranche.model import PlannedServer
from tranche.policies import ClusterState, JobState, NodeState, Policy, Server


def server_site(cluster: ClusterState, state: JobState) -> str | None:
    """The job's site: the cloud if ζ = 1, else where its data are, else where most of its chunks have their home."""
    homes = Counter(entry.home.site for entry in state.entries.values())
    if state.colocated and homes:
        return homes.most_common(1)[0][0]
    wanted = state.job.data_site
    if wanted and any(node.node.site == wanted for node in cluster.nodes.values()):
        return wanted
    return min(homes, key=lambda site: (-homes[site], site)) if homes else None


def feasible_hosts(cluster: ClusterState, state: JobState, site: str | None) -> list[NodeState]:
    """Nodes of the site (of all sites if None) with room for one parameter server of the job, by name."""
    shape = state.job.server
    assert shape is not None
    return [
        node
        for node in cluster.eligible(shape)
        if (site is None or node.node.site == site) and shape.requests.fits(node.capacity - node.reserved)
    ]


def room_for_servers(cluster: ClusterState, state: JobState) -> bool:
    """Whether all parameter servers that the job lacks would find a host now."""
    missing = state.job.servers - len(state.servers)
    shape = state.job.server
    for node in feasible_hosts(cluster, state, server_site(cluster, state)) if shape else ():
        room = node.capacity - node.reserved
        while missing and shape and shape.requests.fits(room):
            room, missing = room - shape.requests, missing - 1
    return missing <= 0


def place_servers(cluster: ClusterState, state: JobState, policy: Policy, seed: int) -> list[Server] | None:
    """Places for the parameter servers that the job lacks; None if there is no room for all of them yet."""
    placed: list[Server] = []
    shape = state.job.server
    if shape is None:
        return placed
    have = {server.planned.index for server in state.servers}
    site = server_site(cluster, state)
    unlimited = site is not None and site in cluster.sites and cluster.sites[site].unlimited
    for index in range(state.job.servers):
        if index in have:
            continue
        if unlimited and site is not None:
            host: str | None = None
            where = site
        else:
            feasible = feasible_hosts(cluster, state, site)
            if not feasible:
                release_servers(cluster, placed)
                return None
            node = policy.server_host(cluster, state, index, feasible, seed)
            host, where = node.node.name, node.node.site
            node.reserved = node.reserved + shape.requests
        state.attempts += 1
        placed.append(Server(PlannedServer(index, state.attempts, where, host), shape.requests))
    return placed


def release_servers(cluster: ClusterState, servers: list[Server]) -> None:
    """Give back what the parameter servers reserve."""
    for server in servers:
        node = cluster.nodes.get(server.planned.node or "")
        if node is not None:
            node.reserved = node.reserved - server.requests
