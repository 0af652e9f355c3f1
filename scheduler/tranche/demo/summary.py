"""Summary of the demo: measured and simulated completion times, and those of FIFO."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from statistics import mean, quantiles

from rich.console import Console
from rich.table import Table

from tranche.demo.delay_measurement import Kinds, start_errors
from tranche.demo.deviation import Deviation, compare, spread, within
from tranche.demo.job_timeline import JobTimeline, read_timelines
from tranche.demo.machine_load import MachineLoad
from tranche.model import Job, Node, Site
from tranche.planner import PlannerSettings
from tranche.planner.journal import Fact, JournaledPlanner
from tranche.policies import get_policy
from tranche.policies.seeded_choice import choose
from tranche.simulation import SimulationResult
from tranche.simulation.engine.autoscaling import Autoscaling
from tranche.simulation.engine.control_plane_delays import DelayedSimulation, Delays
from tranche.simulation.engine.result import SiteUse
from tranche.simulation.engine.simulation import prepare
from tranche.simulation_report.site_table import format_uses

LISTED_SHARE = 0.15
"""Relative difference above which a job is listed."""
MAX_LISTED = 10
"""Maximum number of listed jobs."""
DRAWS = 10
"""Number of simulations with varied pod starts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Measured outcome; jobs by key, times in seconds since the epoch."""

    completed: Mapping[str, float]
    """Completion time from the status of each succeeded job."""
    preemptions: int
    timelines: Mapping[str, JobTimeline]
    """Timeline of each job from the scheduler's journal."""
    delays: Delays
    report_seconds: float
    """Mean time from the end of a job's last worker to its completion."""
    jobs: tuple[Job, ...]
    """Planner jobs with the submission times of this run."""
    sites: tuple[Site, ...]
    nodes: tuple[Node, ...]
    """Nodes, without those of unlimited sites."""
    autoscaling: Mapping[str, Autoscaling] = field(default_factory=dict)
    """Autoscaling of unlimited sites, by name."""
    node_seconds: Mapping[str, float] = field(default_factory=dict)
    """Minimum node start time of unlimited sites in seconds, from the autoscaler settings."""
    uses: tuple[SiteUse, ...] = ()
    """GPU time and bytes by site, as the statuses of the jobs have them."""
    load: MachineLoad | None = None
    """Load of the machine while the jobs ran; None if it was not measured."""

    @property
    def kinds(self) -> Kinds:
        """Starts that are measured separately."""
        return Kinds({job.key for job in self.jobs if job.min_available > 1}, self.node_seconds)

    @property
    def clouds(self) -> tuple[str, ...]:
        """Names of the unlimited sites."""
        return tuple(site.name for site in self.sites if site.unlimited)

    @property
    def jct_seconds(self) -> list[float]:
        """Completion times of the succeeded jobs, in seconds."""
        return [self.completed[job.key] - job.submitted for job in self.jobs if job.key in self.completed]


def report(console: Console, outcome: Outcome, policy: str, seed: int) -> None:
    """Print the completion times, what each site was used for, and how well the simulation predicts the jobs."""
    table = Table(title="Job completion time (JCT), seconds", title_justify="left", box=None, header_style="dim")
    for column in ("", "average", "median", "p95", "preemptions"):
        table.add_column(column, justify="left" if column == "" else "right")
    measured = outcome.jct_seconds
    _row(table, f"[bold]{policy}[/], measured here", measured, outcome.preemptions)
    uses = [(f"{policy}, measured here", outcome.uses)]
    simulated = {name: simulate_outcome(outcome, name, seed) for name in dict.fromkeys((policy, "fifo"))}
    for name, (result, _) in simulated.items():
        times = [job.jct_seconds + outcome.report_seconds for job in result.jobs]
        _row(table, f"{name}, simulated", times, sum(job.preemptions for job in result.jobs))
        uses.append((f"{name}, simulated", result.sites))
    console.print()
    console.print(table)
    if not measured:
        return
    console.print()
    console.print(format_uses(uses))
    console.print()
    fifo = simulated["fifo"][0].average_jct_seconds + outcome.report_seconds
    console.print(
        f"{len(measured)} of {len(outcome.jobs)} jobs succeeded; their average JCT is [bold]{mean(measured):.1f} s[/], "
        f"{_beside(mean(measured), fifo)} FIFO ({fifo:.1f} s). Simulated: the production planner on the "
        f"same jobs in virtual time, with the control plane delays measured in this run, equal for all "
        f"jobs: {_delays(outcome)}."
    )
    deviations = compare(outcome.timelines, simulated[policy][1], outcome.completed, outcome.report_seconds)
    if _compare(console, deviations, simulated_ranges(outcome, policy, seed)) and outcome.load is not None:
        _print_load(console, outcome.load)


def _beside(average: float, reference: float) -> str:
    """Return by how much an average is below or above another one, as text."""
    share = average / reference - 1
    return f"[bold]{abs(share):.0%}[/] {'above' if share > 0 else 'below'}"


def simulate_outcome(
    outcome: Outcome, policy: str, seed: int, start_error: Callable[[], float] | None = None
) -> tuple[SimulationResult, dict[str, JobTimeline]]:
    """Simulate the jobs of a run from arrivals, specifications and measured delays only.

    Args:
        outcome: Outcome of the run.
        policy: Name of the policy.
        seed: Seed of the planner.
        start_error: Returns the additional seconds of the next pod start; None: no variation.
    """
    facts: list[Fact] = []
    planner = JournaledPlanner(get_policy(policy), PlannerSettings(seed=seed), facts.append)
    simulation = DelayedSimulation(
        planner, delays=outcome.delays, autoscaling=outcome.autoscaling, start_error=start_error
    )
    prepare(simulation, outcome.jobs, outcome.nodes, outcome.sites)
    simulation.run()
    return simulation.result(), read_timelines(facts, outcome.clouds)


def simulated_ranges(outcome: Outcome, policy: str, seed: int) -> dict[str, tuple[float, float]]:
    """Return minimum and maximum JCT of each job in seconds, with pod start errors drawn from those of this run."""
    errors = start_errors(outcome.timelines, outcome.delays, outcome.kinds)
    times: dict[str, list[float]] = {}
    for number in range(DRAWS if errors else 0):
        drawn = map(partial(choose, errors, seed, number), count())
        for job in simulate_outcome(outcome, policy, seed, drawn.__next__)[0].jobs:
            times.setdefault(job.key, []).append(job.jct_seconds + outcome.report_seconds)
    return {key: (min(values), max(values)) for key, values in times.items()}


def _row(table: Table, name: str, times: Sequence[float], preemptions: int) -> None:
    if len(times) > 1:
        cuts = quantiles(times, n=20, method="inclusive")
        table.add_row(name, f"{mean(times):.1f}", f"{cuts[9]:.1f}", f"{cuts[18]:.1f}", str(preemptions))


def _delays(outcome: Outcome) -> str:
    delays = outcome.delays
    gang = f"{delays.gang_seconds:.2f} s more for a gang member, " if outcome.kinds.gangs else ""
    node = f"{delays.node_seconds:.2f} s to start a pod that waits for a node of the cloud, " if outcome.clouds else ""
    return (
        f"{delays.start_seconds:.2f} s to start a pod, {gang}{node}{delays.notice_seconds:.2f} s until a worker "
        f"receives its stop signal (both {delays.concurrency_seconds:.2f} s more for each concurrent start or stop), "
        f"{delays.save_seconds:.2f} s for its checkpoint, {delays.handover_seconds:.2f} s from its end to its "
        f"successor's start, {outcome.report_seconds:.2f} s until the job status shows completion"
    )


def _print_load(console: Console, load: MachineLoad) -> None:
    """Print that the load of the machine is a likely cause of differences, if it was high."""
    if load.is_high:
        console.print(
            f"\nWhile the jobs ran, the demo used {load.own:.0%} of this machine's processor time and other programs "
            f"{load.other:.0%}. On a loaded machine, delays vary, and the simulation uses their means: the load is a "
            f"likely cause of these differences. Run the demo again while nothing else runs, or slow the jobs down "
            f"(make demo SLOWER=3)."
        )


def _compare(console: Console, deviations: Sequence[Deviation], ranges: Mapping[str, tuple[float, float]]) -> int:
    """Print how the jobs differ from the simulation; returns how many differ by more than `LISTED_SHARE`."""
    middle, high = spread(deviations)
    listed = [deviation for deviation in deviations if deviation.relative > LISTED_SHARE]
    inside = sum(within(deviation.measured.total, ranges.get(deviation.job)) for deviation in deviations)
    console.print(
        f"\nPer job, simulated completion times differ from the measured ones by [bold]{middle:.1%}[/] at the median "
        f"and [bold]{high:.1%}[/] at p95; {len(listed)} of {len(deviations)} jobs by more than {LISTED_SHARE:.0%}. "
        f"{inside} of them lie in the range of {DRAWS} simulations with pod starts that vary as in this run."
    )
    if not listed:
        return 0
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("job", "measured", "simulated", "range", ""):
        table.add_column(column, justify="left" if column == "job" else "right", no_wrap=True)
    table.add_column("source of the difference")
    for deviation in listed[:MAX_LISTED]:
        low, high = ranges.get(deviation.job, (0.0, 0.0))
        table.add_row(
            deviation.job.rpartition("/")[2],
            f"{deviation.measured.total:.1f} s",
            f"{deviation.simulated.total:.1f} s",
            f"{low:.1f}-{high:.1f} s",
            f"{deviation.seconds / deviation.measured.total:+.0%}",
            deviation.cause(),
        )
    console.print(table)
    if len(listed) > MAX_LISTED:
        console.print(f"[dim]and {len(listed) - MAX_LISTED} more[/]")
    return len(listed)
