"""Placement of gangs with parameter servers or a chief: all pods are placed, or none."""

from collections.abc import Sequence

from tranche.model import PlannedServer
from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import start_servers
from tranche.planner.scheduling.level_placement import LevelRooms
from tranche.planner.scheduling.placement import free_nodes
from tranche.planner.scheduling.placement_trial import PlacementTrial
from tranche.state.cluster import ClusterState
from tranche.state.helper import MissingHelper, Server
from tranche.state.job import JobState
from tranche.state.node import NodeState


def find_places(
    cluster: ClusterState, state: JobState, nodes: Sequence[NodeState], now: float, *, first_fit: bool, by_level: bool
) -> tuple[list[NodeState], list[NodeState]] | None:
    """Return nodes with free capacity for all members and for the pods that start with them; None if one does not fit.

    Args:
        cluster: State of the cluster.
        state: State of the gang.
        nodes: Nodes that members may use, by name.
        now: Clock, in seconds.
        first_fit: Choose nodes for members by name instead of best fit.
        by_level: Choose nodes for members within the narrowest topology level that has room for them.
    """
    if by_level:
        rooms = LevelRooms(cluster, state, nodes)
        fit = rooms.fit()
        chosen = [] if fit is None else rooms.nodes(fit)
    else:
        chosen = free_nodes(nodes, state, state.job.min_available, first_fit=first_fit)
    if len(chosen) < state.job.min_available:
        return None
    helpers = state.missing_servers
    trial = PlacementTrial(cluster, state, now, iter(()))
    trial.place_workers(chosen)
    if not trial.place_helpers(helpers):
        if state.job.required_level:
            return None
        trial = PlacementTrial(cluster, state, now, iter(()))
        if not trial.place_gang(nodes, helpers, helpers_first=True):
            return None
    return trial.nodes, trial.helper_nodes


def start_helpers(context: PlannerContext, state: JobState, helper_nodes: Sequence[NodeState], now: float) -> None:
    """Start the missing parameter servers and the chief of a gang on these nodes."""
    missing = state.missing_servers if helper_nodes else []
    places = [(one, node.node.site, node.node.name) for one, node in zip(missing, helper_nodes, strict=True)]
    _start_helpers(context, state, places, now)


def start_helpers_at(context: PlannerContext, state: JobState, site: str, now: float) -> None:
    """Start the missing parameter servers and the chief of a gang at an unlimited site."""
    _start_helpers(context, state, [(one, site, None) for one in state.missing_servers], now)


def _start_helpers(
    context: PlannerContext, state: JobState, places: Sequence[tuple[MissingHelper, str, str | None]], now: float
) -> None:
    """Start parameter servers and chief, each at its site and node."""
    placed: list[Server] = []
    for one, site, node in places:
        state.attempts += 1
        planned = PlannedServer(one.number, state.attempts, site, node, is_chief=one.is_chief)
        placed.append(Server(planned, one.shape.requests, now))
        context.cluster.add_server(state, placed[-1])
    if placed:
        start_servers(context, state, placed)
