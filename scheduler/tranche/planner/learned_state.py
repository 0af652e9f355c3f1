"""Learned state of the cluster that no API object holds, to pass to the planner that takes over.

What was learned about one job is in the job's ledger (`tranche.model.JobProgress`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import TypeVar

from tranche.estimate import link_between
from tranche.planner import node_exclusion
from tranche.planner.context import PlannerContext
from tranche.state.cluster import ClusterState
from tranche.state.distribution import Distribution, Inherited, mark_of
from tranche.state.node_health import Exclusion

One = TypeVar("One")
MAX_ENTRIES = 200
"""Maximum number of links, of nodes, of excluded nodes and of gangs that are passed on: those with the
factors that differ most from 1, those that stay excluded longest, and those that have declined longest."""
MAX_MOVE_NODES = 500
"""Maximum number of node names in all moves that are passed on."""
MIN_LOG_FACTOR = 0.02
"""Smallest absolute logarithm of a factor that is passed on."""


@dataclass(frozen=True, slots=True)
class LearnedLink:
    """Measured upload time between two sites."""

    origin: str
    target: str
    promised: float
    """Specified bit/s at that time; the factor is void if the specification has changed since."""
    factor: float
    """Measured over specified time."""
    namespace: str = ""
    """Namespace whose jobs have measured it; empty: it counts for all namespaces."""


@dataclass(frozen=True, slots=True)
class LearnedWaits:
    """Observed waits of gangs for capacity at a topology level (`tranche.estimate.capacity_wait`)."""

    level: str
    """Label key of the topology level."""
    size_class: int
    seconds: tuple[float, ...]
    """Last observations, oldest first."""


@dataclass(frozen=True, slots=True)
class LearnedGang:
    """Declined places of a gang, and waits that have not ended (`tranche.state.gang_locality`)."""

    declined_seconds: float
    """Time for which it has declined places since it began to wait."""
    observed: dict[str, float] = field(default_factory=dict)
    """Times since which there has been no capacity for it, by label key of the topology level."""


@dataclass(frozen=True, slots=True)
class LearnedState:
    """Learned state of a planner; empty if it has learned nothing."""

    links: list[LearnedLink] = field(default_factory=list)
    nodes: dict[str, float] = field(default_factory=dict)
    """Measured over expected seconds of a mini-batch, by node."""
    start_seconds: float | None = None
    """Time from the opening of a window to its first mini-batch, over the namespaces; None if unknown."""
    save_seconds: float | None = None
    """Time from the closing of a window to the end of its worker, over the namespaces; None if unknown."""
    kinds: dict[str, float] = field(default_factory=dict)
    """Measured over expected seconds of a mini-batch, by GPU kind."""
    forecast_bounds: dict[str, float] = field(default_factory=dict)
    """Bounds of the errors of plans (`tranche.estimate.ForecastErrors`), by name."""
    exclusions: list[Exclusion] = field(default_factory=list)
    """Nodes that are excluded because pods of several jobs had problems there, and those that have recovered."""
    waits: list[LearnedWaits] = field(default_factory=list)
    gangs: dict[str, LearnedGang] = field(default_factory=dict)
    """Gangs that decline places or wait for capacity, by job."""
    moves: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes of the members of stopped gangs that move to a narrower topology level, by job."""
    distribution: Inherited | None = None
    """Last worker distribution, of a policy that distributes workers."""


def learned_state_of(cluster: ClusterState, now: float) -> LearnedState:
    """Return the learned state of a planner's cluster at a time of its clock."""
    known, level_name = cluster.locality, cluster.places.topology.name
    return LearnedState(
        links=[
            LearnedLink(here, there, _promised(cluster, here, there), _digits(exp(correction)), namespace)
            for (here, there, namespace), correction in _links(cluster)
        ],
        nodes={
            name: _digits(exp(mean))
            for name, mean in _largest((name, one.mean) for name, one in cluster.speed_model.nodes.items())
        },
        kinds={
            kind: _digits(exp(mean))
            for kind, mean in _largest((kind, one.mean) for kind, one in cluster.speed_model.kinds.items())
        },
        forecast_bounds={name: _digits(bound) for name, bound in cluster.forecast_errors.bounds().items()},
        start_seconds=cluster.restarts.start_seconds,
        save_seconds=cluster.restarts.save_seconds,
        exclusions=_exclusions(cluster),
        waits=[
            LearnedWaits(level_name(level), size_class, tuple(map(_digits, seconds)))
            for size_class, level, seconds in known.waits.samples()
        ],
        gangs=_waiting_gangs(cluster, now),
        moves=_first_moves(known.moving),
        distribution=_distribution(cluster),
    )


def _links(cluster: ClusterState) -> list[tuple[tuple[str, str, str], float]]:
    """Return the corrections of links: those between declared sites first, since a job may name any source of data."""
    known: list[tuple[tuple[str, str, str], float]] = []
    others: list[tuple[tuple[str, str, str], float]] = []
    for ends, namespace, correction in cluster.uploads.corrections.items():
        (known if cluster.sites.keys() >= set(ends) else others).append(((*ends, namespace), correction))
    first = _largest(known)
    return first + _largest(others)[: MAX_ENTRIES - len(first)]


def _exclusions(cluster: ClusterState) -> list[Exclusion]:
    """Return the longest exclusions, without the jobs that leave or have failed a trial: their number has no bound."""
    longest = sorted(cluster.health.exclusions.values(), key=lambda one: (-one.until, one.node))[:MAX_ENTRIES]
    return [replace(one, put_last={}, failed_jobs=[]) for one in longest]


def _distribution(cluster: ClusterState) -> Inherited | None:
    """Return the last worker distribution, or that of an earlier planner if there has been none since."""
    last = cluster.distribution
    if last.inputs is None:
        return last.inherited
    mark = ""
    if not last.is_partial:
        mark = mark_of(last.policy, last.inputs, cluster.nodes.values(), cluster.sites.values(), cluster.jobs.values())
    return Inherited(mark, last.inputs.period, last.returned, len(last.holders))


def _first_moves(moving: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the moves that began first and have at most `MAX_MOVE_NODES` names of nodes together."""
    moves, total = {}, 0
    for key, nodes in moving.items():
        total += len(nodes)
        if total <= MAX_MOVE_NODES:
            moves[key] = nodes
    return moves


def _waiting_gangs(cluster: ClusterState, now: float) -> dict[str, LearnedGang]:
    """Return the gangs that have declined places for longest, or wait for capacity."""
    found = {}
    for key, gang in cluster.locality.jobs.items():
        declined = gang.waited(now)
        if declined > 0 or gang.observed:
            observed = {cluster.places.topology.name(level): since for level, since in gang.observed.items()}
            found[key] = LearnedGang(declined, observed)
    return dict(sorted(found.items(), key=lambda one: (-one[1].declined_seconds, one[0]))[:MAX_ENTRIES])


def recall(context: PlannerContext, learned: LearnedState) -> None:
    """Restore the learned state of an earlier planner for existing sites and nodes; call it before `restore`."""
    cluster = context.cluster
    for one in learned.links:
        if _promised(cluster, one.origin, one.target) == one.promised and one.factor > 0:
            cluster.uploads.corrections.recall((one.origin, one.target), one.namespace, log(one.factor))
    for kind, factor in learned.kinds.items() if context.policy.traits.uses_learned_estimates else ():
        if factor > 0 and cluster.speed_model.kind_evidence is not None:
            cluster.speed_model.recall_kind(kind, factor)
    for node in cluster.nodes.values() if cluster.speed_model.kinds else ():
        node.learn(cluster.speed_model.node_factor(node.node.name, node.node.gpu_kind))
    for name, factor in learned.nodes.items() if context.policy.traits.uses_learned_estimates else ():
        known = cluster.nodes.get(name)
        if known is not None and factor > 0:
            cluster.speed_model.recall_node(name, factor)
            known.learn(factor)
    cluster.forecast_errors.recall(learned.forecast_bounds)
    node_exclusion.restore(context, learned.exclusions)
    cluster.restarts.recall(learned.start_seconds, learned.save_seconds)
    if context.policy.traits.places_by_level:
        _recall_gangs(cluster, learned)
    if context.queue is not None and context.queue.policy.traits.allocates_workers:
        cluster.distribution = Distribution(inherited=learned.distribution)


def _recall_gangs(cluster: ClusterState, learned: LearnedState) -> None:
    """Restore what is known about gangs by a policy that places them by topology level."""
    level_of = cluster.places.topology.level
    for waits in learned.waits:
        if (level := level_of(waits.level)) is not None:
            cluster.locality.waits.recall(waits.size_class, level, waits.seconds)
    for key, gang in learned.gangs.items():
        known = cluster.locality.of(key)
        known.declined_seconds = max(0.0, gang.declined_seconds)
        observed = ((level_of(name), since) for name, since in gang.observed.items())
        known.observed = {level: since for level, since in observed if level is not None}
    cluster.locality.moving.update(learned.moves)


def _promised(cluster: ClusterState, origin: str, target: str) -> float:
    return link_between(cluster.network, cluster.sites, origin, target).bits_per_second


def _largest(logarithms: Iterable[tuple[One, float]]) -> list[tuple[One, float]]:
    """Return the largest factors, in order of name."""
    worth = [one for one in logarithms if abs(one[1]) >= MIN_LOG_FACTOR]
    return sorted(sorted(worth, key=lambda one: -abs(one[1]))[:MAX_ENTRIES], key=lambda one: str(one[0]))


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
