"""One run as a value: everything that decides its outcome, to be sent to another process and repeated to the digit."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from tranche.model import Job, Node, Site, Window
from tranche.planner import NodeChanged, Planner, PlannerSettings
from tranche.policies import get_policy
from tranche.simulation.draws import lognormal
from tranche.simulation.engines import Simulation, prepare
from tranche.simulation.results import SimulationResult

OnProgress = Callable[[int, int], None]
"""Told now and then how many jobs of how many have completed."""


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A node that is lost with its pods, and comes back."""

    node: str
    at: float
    until: float = float("inf")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs, cluster, policy, and how reality differs from what the planner believes."""

    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    sites: tuple[Site, ...] = ()
    policy: str = "fifo"
    seed: int = 0
    """Of the policy's random choices and of everything drawn below."""
    restart_seconds: float = 0.0
    """ρ as it really is, charged at every pod start."""
    period_seconds: float = 0.0
    """The planner decides only at multiples of it; 0: at every event, as live."""
    speed_sigma: float = 0.0
    """σ of the log-normal factor of a worker's true speed, drawn by (job, node); unknown to the planner."""
    estimate_sigma: float = 0.0
    """σ of the log-normal factor between a job's true duration and what the planner believes."""
    failures: tuple[NodeFailure, ...] = ()
    record: bool = False
    """Keep every occupation for the Gantt chart."""


def run(scenario: Scenario, on_progress: OnProgress | None = None) -> SimulationResult:
    """Simulate.

    Raises:
        ValueError: the policy does not exist, or a failure names a node that does not.
    """
    planner = Planner(get_policy(scenario.policy), PlannerSettings(seed=scenario.seed))
    belief = {job.key: lognormal(scenario.estimate_sigma, scenario.seed, job.uid, "estimate") for job in scenario.jobs}
    jobs = scenario.jobs
    if scenario.restart_seconds:  # the planner knows ρ, as live from the specification
        restart = scenario.restart_seconds
        jobs = tuple(job if job.restart_seconds else replace(job, restart_seconds=restart) for job in jobs)
    if scenario.estimate_sigma:
        jobs = tuple(replace(job, step_seconds=job.step_seconds * belief[job.key]) for job in jobs)

    def batch_seconds(job: Job, window: Window) -> float:
        expected = planner.cluster.jobs[job.key].runs[window.attempt].batch_seconds
        speed = lognormal(scenario.speed_sigma, scenario.seed, job.uid, window.node or window.site, "speed")
        return expected / belief[job.key] / speed

    total = len(jobs)
    simulation = Simulation(
        planner,
        scenario.restart_seconds,
        batch_seconds if scenario.speed_sigma or scenario.estimate_sigma else None,
        scenario.period_seconds,
        keep_history=False,
        forget_finished=True,
        record=scenario.record,
        truths={job.key: job for job in scenario.jobs} if scenario.estimate_sigma else {},
        on_completion=None if on_progress is None else lambda count: on_progress(count, total),
    )
    prepare(simulation, jobs, scenario.nodes, scenario.sites)
    nodes = {node.name: node for node in scenario.nodes}
    for failure in scenario.failures:
        if failure.node not in nodes:
            raise ValueError(f"a failure names the node {failure.node!r}, which the cluster does not have")
        simulation.at(failure.at, NodeChanged(replace(nodes[failure.node], ready=False)))
        if failure.until < inf:
            simulation.at(failure.until, NodeChanged(nodes[failure.node]))
    simulation.run()
    return simulation.result()
