"""Scenario of one run: everything that decides its outcome, as a value that can be sent and repeated to the digit."""

import copyreg
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil, inf
from types import MappingProxyType
from typing import Any

from tranche.estimate import LevelNetwork
from tranche.estimate.transfer_start import SHARED, START_RULES
from tranche.model import UNKNOWN_DURATION_SECONDS, Job, Node, Site, Tier, Window
from tranche.model.gpu_kind import GpuKinds
from tranche.model.topology import Topology
from tranche.planner import NodeChanged, Planner, PlannerSettings
from tranche.policies import get_policy
from tranche.policies.seeded_choice import uniform
from tranche.simulation.engine.link_traffic import LinkTraffic
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation.engine.shared_uploads import SharedUploads
from tranche.simulation.engine.simulation import Simulation, prepare
from tranche.simulation.engine.single_transfers import SingleTransfers
from tranche.simulation.engine.true_transfers import TrueUploads
from tranche.simulation.named_random import lognormal
from tranche.state.node_health import HealthSettings


def _view(items: dict[Any, Any]) -> "MappingProxyType[Any, Any]":
    return MappingProxyType(items)


copyreg.pickle(MappingProxyType, lambda view: (_view, (dict(view),)))
"""Labels of nodes and links of sites are read-only views, which Python does not send to other processes by itself."""

RARE_COLLECTIONS = 70_000
"""Number of new objects after which a run searches for cyclic garbage, a hundred times that of Python."""
OnProgress = Callable[[int, int], None]
"""Callback with the numbers of completed and of all jobs, called from time to time."""


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """Loss of a node with its pods, and its return."""

    node: str
    at: float
    until: float = float("inf")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs, cluster, policy, and how reality differs from the planner's estimates."""

    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    sites: tuple[Site, ...] = ()
    policy: str = "fifo"
    seed: int = 0
    """Seed of the policy's random choices and of all draws below."""
    restart_seconds: float = 0.0
    """True ρ, charged at every pod start."""
    period_seconds: float = 0.0
    """Period to whose multiples the planner's decisions are limited; 0: it decides at every event, as live."""
    speed_sigma: float = 0.0
    """σ of the log-normal factor of a worker's true speed, drawn by node; unknown to the planner."""
    estimate_sigma: float = 0.0
    """σ of the log-normal factor between a job's true duration and the planner's estimate."""
    link_sigma: float = 0.0
    """σ of the log-normal factor of the true time of uploads, drawn by link; unknown to a planner that copies data."""
    unsized: float = 0.0
    """Share of jobs, 0 … 1, drawn, whose duration the planner does not get."""
    failures: tuple[NodeFailure, ...] = ()
    topology: Topology = field(default_factory=Topology)
    """Topology levels of the nodes."""
    level_network: LevelNetwork | None = None
    """Network model: links by topology level; None: off, gangs communicate in no time, and sites have no uplink."""
    contention: bool = True
    """Whether, with the network model, gangs, gradients and uploads that cross the same links slow each other down."""
    transfers: str = SHARED
    """Start rule of the transfers of gangs (`START_RULES`), which are then simulated one by one, or `SHARED`."""
    record: bool = False
    """Whether to keep every occupation for the Gantt chart."""
    by_site: bool = False
    """Whether to keep the use of each site by each job; the sums of all jobs are always kept."""

    def __post_init__(self) -> None:
        if self.transfers != SHARED:
            _check_transfers(self)


def _check_transfers(scenario: Scenario) -> None:
    """Check that transfers can be simulated one by one.

    Raises:
        ValueError: There is no such rule, no link is shared, or a job sends other data than the gradients of a gang.
    """
    rule = scenario.transfers
    if rule not in START_RULES:
        raise ValueError(f"there is no start rule {rule!r} of transfers: choose {SHARED}, {', '.join(START_RULES)}")
    if scenario.level_network is None or not scenario.contention:
        raise ValueError(f"start rule {rule} of transfers: it requires the network model with contention")
    for job in scenario.jobs:
        if job.data_site is not None or (job.servers and not job.is_gang):
            raise ValueError(
                f"start rule {rule} of transfers: it applies to the gradients of gangs, and {job.key} uploads data or "
                "has parameter servers"
            )


def run(scenario: Scenario, on_progress: OnProgress | None = None) -> SimulationResult:
    """Simulate the scenario.

    Raises:
        ValueError: The policy does not exist, or a failure names a node that does not.
    """
    simulation = prepared(scenario, on_progress)
    with _few_collections():
        simulation.run()
    return simulation.result()


@contextmanager
def _few_collections() -> Iterator[None]:
    """Search for cyclic garbage a hundred times less often: a run has many jobs, windows and events, and no cycles."""
    young, *older = gc.get_threshold()
    gc.set_threshold(max(young, RARE_COLLECTIONS) if young else 0, *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)


def prepared(scenario: Scenario, on_progress: OnProgress | None = None) -> Simulation:
    """Return the simulation that `run` runs, before its first event.

    Raises:
        ValueError: As for `run`.
    """
    planner = Planner(get_policy(scenario.policy), _planner_settings(scenario))
    belief = {job.key: _belief(scenario, job) for job in scenario.jobs}
    misled = scenario.estimate_sigma > 0 or scenario.unsized > 0

    def batch_seconds(job: Job, window: Window) -> float:
        state = planner.cluster.jobs[job.key]
        declared = planner.cluster.declared_batch_seconds(state, window.site, node=window.node)
        computing = planner.cluster.computing_seconds(state, window.site, window.node)
        speed = lognormal(scenario.speed_sigma, scenario.seed, window.node or window.site, "speed")
        return (computing / belief[job.key] + (declared - computing)) / speed

    def link_factor(source: str, target: str) -> float:
        return lognormal(scenario.link_sigma, scenario.seed, source, target, "link")

    total, traffic = len(scenario.jobs), None
    if scenario.level_network is not None and scenario.contention:
        clouds = frozenset(site.name for site in scenario.sites if site.tier is Tier.CLOUD)
        traffic = LinkTraffic(scenario.level_network, planner.cluster.places, clouds)
    rule = START_RULES.get(scenario.transfers)
    simulation = Simulation(
        planner,
        scenario.restart_seconds,
        batch_seconds if scenario.speed_sigma or misled else None,
        period_seconds=scenario.period_seconds,
        traffic=traffic,
        transfers=SingleTransfers(traffic, rule) if traffic is not None and rule is not None else None,
        shared_uploads=SharedUploads(link_factor, traffic) if traffic is not None else None,
        uploads=TrueUploads(link_factor) if scenario.link_sigma and traffic is None else None,
        keep_history=False,
        forget_finished=True,
        record=scenario.record,
        by_site=scenario.by_site,
        truths={job.key: job for job in scenario.jobs} if misled else {},
        on_completion=None if on_progress is None else lambda count: on_progress(count, total),
    )
    prepare(simulation, _declared_jobs(scenario, belief if misled else None), scenario.nodes, scenario.sites)
    _prepare_failures(simulation, scenario)
    return simulation


def _planner_settings(scenario: Scenario) -> PlannerSettings:
    contention = scenario.level_network is not None and scenario.contention
    return PlannerSettings(
        seed=scenario.seed,
        publishes=False,
        health=HealthSettings(jobs=0),  # no pod fails because of its node
        fallbacks=0,  # no kube-scheduler chooses among the fallback nodes of a window
        gpu_kinds=_gpu_kinds(scenario.nodes),
        uploads_reported=scenario.link_sigma > 0 or contention,
        shared_uplinks=contention,
        topology=scenario.topology,
        level_network=scenario.level_network,
    )


def _declared_jobs(scenario: Scenario, belief: Mapping[str, float] | None) -> tuple[Job, ...]:
    """Return the jobs as declared to the planner, with step times multiplied by the factors of `belief`."""
    jobs = scenario.jobs
    if scenario.restart_seconds:  # the planner knows ρ, as live from the specification
        restart = scenario.restart_seconds
        jobs = tuple(job if job.restart_seconds else replace(job, restart_seconds=restart) for job in jobs)
    if belief is None:
        return jobs
    return tuple(_believed(job, belief[job.key], size_declared=not _unsized(scenario, job)) for job in jobs)


def _believed(job: Job, factor: float, *, size_declared: bool) -> Job:
    by_kind = {kind: seconds * factor for kind, seconds in job.step_seconds_by_kind.items()}
    return replace(
        job, step_seconds=job.step_seconds * factor, step_seconds_by_kind=by_kind, size_declared=size_declared
    )


def _prepare_failures(simulation: Simulation, scenario: Scenario) -> None:
    """Schedule the events at which nodes fail and return.

    Raises:
        ValueError: a failure names a node that the cluster does not have.
    """
    nodes = {node.name: node for node in scenario.nodes}
    for failure in scenario.failures:
        if failure.node not in nodes:
            raise ValueError(f"a failure names the node {failure.node!r}, which the cluster does not have")
        simulation.at(failure.at, NodeChanged(replace(nodes[failure.node], ready=False)))
        if failure.until < inf:
            simulation.at(failure.until, NodeChanged(nodes[failure.node]))


def _gpu_kinds(nodes: Sequence[Node]) -> GpuKinds | None:
    """Return the declared speeds of the GPU kinds, as live from the installation.

    None if no kinds differ in speed, or if nodes of one kind do: the planner takes a node's speed from its kind.
    """
    speeds = {node.gpu_kind: node.speed for node in nodes}
    differ, by_kind = len(set(speeds.values())) > 1, all(node.speed == speeds[node.gpu_kind] for node in nodes)
    return GpuKinds(speeds=speeds) if differ and by_kind else None


def _unsized(scenario: Scenario, job: Job) -> bool:
    """Return whether the job's duration is hidden from the planner."""
    return scenario.unsized > 0 and uniform(scenario.seed, job.uid, "unsized") < scenario.unsized


def _belief(scenario: Scenario, job: Job) -> float:
    """Return the time of a mini-batch that the planner gets, over the true one."""
    if _unsized(scenario, job):
        return UNKNOWN_DURATION_SECONDS / (
            ceil(job.chunks / job.width) * job.batches_per_chunk_total * job.step_seconds
        )
    return lognormal(scenario.estimate_sigma, scenario.seed, job.uid, "estimate")
