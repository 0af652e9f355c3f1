"""Placement of parameter servers and chiefs on nodes (JSAC'22, Alg. 5: keep, else choose, else wait).

Those of a gang are placed together with its members: `tranche.planner.scheduling.gang_placement`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf

from tranche.model import PlannedServer, PodShape, Resources
from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import start_servers
from tranche.policies import Policy
from tranche.state.cluster import ClusterState
from tranche.state.helper import MissingHelper, Server
from tranche.state.job import JobState
from tranche.state.node import NodeState


def server_sites(cluster: ClusterState, state: JobState, policy: Policy, shape: PodShape) -> list[str | None]:
    """Return the sites for the job's parameter servers of that shape, best site first; None stands for any site.

    The site is the cloud if all of the job trains there (ζ = 1). Else the published rule says "server s" [P], which we
    read as [I] the site of the job's data if it has capacity, else the site of most of its bound chunks. Ours [I]
    takes all sites, by the narrowest path to one where the job's workers are or may soon be: this minimizes the slowest
    worker's 2q/b (one facility over few sites).
    """
    together = next(iter(state.cloud.values()), None)
    clouds = [name for name in cluster.clouds if cluster.creates_nodes_for(shape, name)]
    if together in clouds and not state.entries and state.is_bound_for(together):
        return [together]
    if policy.traits.optimizes_server_site:
        wanted = {run.home.site for run in state.runs.values()}.union(state.copies)
        wanted |= {state.job.data_site} if state.job.data_site else set()
        sites = {*cluster.eligible(shape).by_site, *clouds}
        wanted &= sites
        narrowest: dict[str | None, float] = {
            site: min((cluster.exchange_bits_per_second(state, other, site) for other in wanted), default=inf)
            for site in sites
        }
        return sorted(narrowest, key=lambda site: (-narrowest[site], site != state.job.data_site, site or ""))
    bound = (entry.home.site for entry in state.entries.values())
    homes = Counter(site for site in bound if site in clouds or not cluster.is_unlimited(site))
    if state.colocated and homes:
        return [homes.most_common(1)[0][0]]
    own = state.job.data_site
    most = min(homes, key=lambda site: (-homes[site], site)) if homes else None
    if own and any(node.node.site == own for node in cluster.nodes.values()):
        return list(dict.fromkeys((own, most)))
    if not homes and not cluster.eligible(shape):
        return [*clouds] or [most]
    return [most]


def _without_refusing_clouds(state: JobState, sites: list[str | None], now: float) -> list[str | None]:
    """Return the sites without unlimited ones where pods of the job find no place; all if there are no others."""
    refusals = state.placement.refusals
    if not refusals:
        return sites
    refusing = {site for site in state.placement.refusing_sites(now) if not refusals[site].node}
    return [site for site in sites if site not in refusing] or sites


def room_for_servers(cluster: ClusterState, state: JobState, policy: Policy, now: float) -> bool:
    """Return whether all missing parameter servers and the chief of the job would fit now."""
    rooms: dict[str, Resources] = {}
    for one in state.missing_servers:
        request = one.shape.requests
        for site in _without_refusing_clouds(state, server_sites(cluster, state, policy, one.shape), now):
            if site is not None and cluster.is_unlimited(site):
                break
            hosts = cluster.eligible(one.shape).at(site or "")
            nodes = (node for node in hosts if not state.excludes(node.node.name, now))
            open_rooms = ((n.node.name, rooms.get(n.node.name) or n.capacity - n.reserved) for n in nodes)
            host, room = next(((name, room) for name, room in open_rooms if request.fits(room)), ("", None))
            if room is not None:
                rooms[host] = room - request
                break
        else:
            return False
    return True


def place_servers(
    context: PlannerContext,
    state: JobState,
    leaves_room: Callable[[], bool] | None = None,
    beside_worker: Callable[[], Sequence[NodeState]] = tuple,
    worker_starts: Callable[[], bool] | None = None,
) -> bool:
    """Start the missing parameter servers of the job, before its first window opens; False if they do not fit yet.

    Servers that take the only room of a worker would keep it permanently, since idle servers do not move.

    Args:
        context: Context of the planner.
        state: State of the job.
        leaves_room: Returns whether a worker fits beside the servers that are placed; None: it needs no room.
        beside_worker: Returns other nodes for the servers if none fits; none if there are no such nodes.
        worker_starts: Returns whether a worker starts now with the servers at their places; None: it does.
    """
    if state.has_closing_servers:
        return False
    if len(state.servers) >= state.job.helper_count:
        return True
    if context.cluster.quotas.shortage(state.job, 0, state.missing_shapes) is not None:
        return False
    placed = _place_all(context, state)
    if placed is not None and leaves_room is not None and not leaves_room():
        _withdraw(context, state, placed)
        nodes = beside_worker()
        missing = state.missing_servers if nodes else []
        pairs = zip(missing, nodes, strict=True)
        placed = [_reserve(context, state, one, node.node.site, node.node.name) for one, node in pairs] or None
    state.unhosted = placed is None
    if placed is None:
        context.work.unhosted.add(state.job.key)
        return False
    context.work.unhosted.discard(state.job.key)
    if worker_starts is not None and not worker_starts():
        _withdraw(context, state, placed)
        return False
    start_servers(context, state, placed)
    return True


def _withdraw(context: PlannerContext, state: JobState, placed: Sequence[Server]) -> None:
    """Remove the reservations of the last parameter servers, which are not started; the next pods get their numbers."""
    for server in placed:
        context.cluster.remove_server(state, server)
    state.attempts -= len(placed)


def _place_all(context: PlannerContext, state: JobState) -> list[Server] | None:
    """Reserve capacity for all missing parameter servers; None, without any reservation, if not all of them fit."""
    placed: list[Server] = []
    missing = state.missing_servers
    sites = server_sites(context.cluster, state, context.policy, missing[0].shape) if missing else []
    sites = _without_refusing_clouds(state, sites, context.now)
    for one in missing:
        found = _place(context, state, sites, one)
        if found is None:
            _withdraw(context, state, placed)
            return None
        placed.append(_reserve(context, state, one, *found))
    return placed


def _reserve(context: PlannerContext, state: JobState, one: MissingHelper, site: str, node: str | None) -> Server:
    """Reserve capacity for a parameter server at its place."""
    state.attempts += 1
    server = Server(PlannedServer(one.number, state.attempts, site, node), one.shape.requests, context.now)
    context.cluster.add_server(state, server)
    return server


def _place(
    context: PlannerContext, state: JobState, sites: list[str | None], one: MissingHelper
) -> tuple[str, str | None] | None:
    """Choose site and node of one parameter server; None if it does not fit."""
    cluster, now = context.cluster, context.now
    for site in sites:
        if site is not None and cluster.is_unlimited(site):
            return site, None
        nodes = (node for node in cluster.eligible(one.shape).at(site or "") if not state.excludes(node.node.name, now))
        feasible = [node for node in nodes if node.has_room(one.shape.requests)]
        if feasible:
            node = context.policy.choose_server_node(cluster, state, one.number, feasible, context.settings.seed)
            return node.node.site, node.node.name
    return None
