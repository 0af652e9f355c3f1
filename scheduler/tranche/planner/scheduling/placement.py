"""Free capacity on nodes: nodes that could take workers of a job now."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

from tranche.model import Resources
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.window import SlotBinding

BEST_FIT: "Order" = attrgetter("free_gpus")
BY_PACE: "Order" = attrgetter("pace", "free_gpus")
"""Time of a mini-batch on a node, then the number of its free GPUs."""
Order = Callable[[NodeState], Any]
"""Sort key of nodes."""


def count_fitting(request: Resources, rooms: Iterable[Resources], wanted: int) -> int:
    """Return how many of `wanted` equal requests fit into the free resources in `rooms`."""
    found = 0
    for room in rooms:
        left = room
        while found < wanted and request.fits(left):
            left, found = left - request, found + 1
        if found == wanted:
            break
    return found


def free_hosts(cluster: ClusterState, state: JobState, site: str, now: float) -> list[NodeState]:
    """Return nodes with free GPUs that could take a worker of the job, at one site ("": any site), by name.

    Nodes that are excluded for the job now, and sites with none of its data, are left out. So are sites where its last
    pods found no place, if other ones have room.
    """
    nodes = cluster.free.of(cluster.hosts(state), site)
    if state.excluded_nodes:
        nodes = [node for node in nodes if not state.excludes(node.node.name, now)]
    if state.uploaded_at is not None:
        ready = {there: state.can_start_at(there, now) for there in {node.node.site for node in nodes}}
        nodes = [node for node in nodes if ready[node.node.site]]
    record = state.placement
    return (
        without_refusing_sites(cluster, state, nodes, now) if (record.nodes or record.refusals) and not site else nodes
    )


def without_refusing_sites(
    cluster: ClusterState, state: JobState, nodes: Sequence[NodeState], now: float
) -> list[NodeState]:
    """Return the nodes at sites where all recent pods of the job found a place; all nodes if these lack room.

    kube-scheduler knows constraints that hold for a whole site, such as the zone of a volume.
    """
    tried = {cluster.nodes[name].node.site for name in state.placement.nodes if name in cluster.nodes}
    tried |= state.placement.refusing_sites(now)
    others = [node for node in nodes if node.node.site not in tried]
    members = state.job.min_available
    rooms = (node.capacity - node.reserved for node in others)
    return others if count_fitting(state.job.worker.requests, rooms, members) == members else list(nodes)


def free_nodes(
    nodes: Sequence[NodeState], state: JobState, wanted: int, *, first_fit: bool, order: Order = BEST_FIT
) -> list[NodeState]:
    """Return nodes with free capacity for up to `wanted` workers of the job, one entry per worker.

    Args:
        nodes: Nodes to choose from, by name.
        state: State of the job, which has the shape of a worker.
        wanted: Number of workers.
        first_fit: Choose nodes by name instead of best fit.
        order: Sort key of nodes otherwise: the best fit, or `BY_PACE` for the least predicted time of a mini-batch.
    """
    request = state.job.worker.requests
    if state.preferred is not None:
        return _preferred_nodes(nodes, state, wanted)
    if wanted == 1 and not first_fit:
        best = min(nodes, key=order, default=None)
        if best is not None and not best.has_room(request):
            best = min((node for node in nodes if node.has_room(request)), key=order, default=None)
        return [] if best is None else [best]
    found: list[NodeState] = []
    for node in nodes if first_fit else sorted(nodes, key=order):
        room = node.capacity - node.reserved
        while len(found) < wanted and request.fits(room):
            found.append(node)
            room = room - request
        if len(found) == wanted:
            break
    return found


def _preferred_nodes(nodes: Sequence[NodeState], state: JobState, wanted: int) -> list[NodeState]:
    """Return nodes with free capacity as `free_nodes`: those that the policy prefers, then by best fit."""
    assert state.preferred is not None
    request, cells = state.job.worker.requests, Counter(dict(state.preferred.workers))
    cells.subtract(run.home.node or "" for run in state.runs.values() if not run.closing)
    rooms = {node.node.name: node.capacity - node.reserved for node in nodes}
    found: list[NodeState] = []
    for is_preferred in (True, False):
        for node in sorted(nodes, key=BEST_FIT):
            name = node.node.name
            most = min(wanted - len(found), cells[name]) if is_preferred else wanted - len(found)
            fit = count_fitting(request, [rooms[name]], max(0, most))
            for _ in range(fit):
                rooms[name] = rooms[name] - request
            found += [node] * fit
    return found


def fallbacks(cluster: ClusterState, state: JobState, home: SlotBinding, count: int, now: float) -> tuple[str, ...]:
    """Return up to `count` other nodes of the site with enough unreserved capacity, fewest free GPUs first."""
    if not home.node or not count:
        return ()
    request, own = state.job.worker.requests, home.node
    nodes = sorted(free_hosts(cluster, state, home.site, now), key=BEST_FIT)  # stable: ties stay in order of name
    if state.job.is_gang and state.job.required_level:
        level, node = cluster.widest_level(state), cluster.nodes[own].node
        group = cluster.places.domain(node)[level:]
        nodes = [other for other in nodes if cluster.places.domain(other.node)[level:] == group]
    return tuple(islice((node.node.name for node in nodes if node.node.name != own and node.has_room(request)), count))
