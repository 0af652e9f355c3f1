"""What the demo ends with: measured completion times beside those of first in, first out on the same jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, quantiles

from rich.console import Console
from rich.table import Table

from tranche.model import Job, Node, Site
from tranche.planner import PlannerSettings
from tranche.policies import get_policy
from tranche.simulation import SimulationResult, simulate


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured."""

    jct_seconds: dict[str, float]
    """By job that succeeded."""
    preemptions: int
    start_seconds: float
    """Mean time from the opening of a window on a free slot to the start of its worker."""
    jobs: tuple[Job, ...]
    """As the planner saw them, with the submission times of this run."""
    sites: tuple[Site, ...]
    nodes: tuple[Node, ...]


def report(console: Console, outcome: Outcome, policy: str, seed: int) -> None:
    """Print the table."""
    table = Table(title="Job completion time (JCT), seconds", title_justify="left", box=None, header_style="dim")
    for column in ("", "average", "median", "p95", "preemptions"):
        table.add_column(column, justify="left" if column == "" else "right")
    measured = list(outcome.jct_seconds.values())
    _row(table, f"[bold]{policy}[/], measured here", measured, outcome.preemptions)
    simulated = {name: _simulate(outcome, name, seed) for name in dict.fromkeys((policy, "fifo"))}
    for name, result in simulated.items():
        _row(table, f"{name}, simulated", [j.jct_seconds for j in result.jobs], sum(j.preemptions for j in result.jobs))
    console.print()
    console.print(table)
    fifo = simulated["fifo"].average_jct_seconds
    console.print(
        f"{len(measured)} of {len(outcome.jobs)} jobs succeeded; their average JCT is [bold]{mean(measured):.1f} s[/], "
        f"[bold]{1 - mean(measured) / fifo:.0%}[/] below FIFO ({fifo:.1f} s). Simulated: the production planner on the "
        f"same jobs in virtual time, every pod start charged with the {outcome.start_seconds:.2f} s measured here."
    )


def _row(table: Table, name: str, times: Sequence[float], preemptions: int) -> None:
    if len(times) > 1:
        cuts = quantiles(times, n=20, method="inclusive")
        table.add_row(name, f"{mean(times):.1f}", f"{cuts[9]:.1f}", f"{cuts[18]:.1f}", str(preemptions))


def _simulate(outcome: Outcome, policy: str, seed: int) -> SimulationResult:
    return simulate(
        outcome.jobs,
        outcome.nodes,
        outcome.sites,
        get_policy(policy),
        restart_seconds=outcome.start_seconds,
        settings=PlannerSettings(seed=seed),
    )
