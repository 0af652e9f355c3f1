"""``tranche simulate``: simulation of jobs on a cluster under one policy."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import tranche
from tranche.cli.errors import InputError, OneLineCommand, input_errors
from tranche.cli.option_types import LOAD, POLICY
from tranche.cli.output import (
    OnProgress,
    Output,
    named,
    never_ran,
    output_of,
    output_options,
    print_csv,
    print_json,
    print_notes,
    print_table,
    progress_bar,
    write,
)
from tranche.cli.workload_options import Setting, WorkloadOptions, setting, workload_options

if TYPE_CHECKING:
    from tranche.simulation.engine.result import SimulationResult
    from tranche.simulation.scenario import Scenario
    from tranche.simulation.study import Outcome


@click.command(cls=OneLineCommand)
@workload_options
@click.option(
    "--policy",
    default="chunk",
    show_default=True,
    type=POLICY,
    help="Policy (tranche policies lists them), with options as in tiresias:order=arrival.",
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Seed of all random draws.")
@click.option("--load", type=LOAD, help="Stretch arrivals to this load [default: as logged; 0.9 for drawn jobs].")
@output_options
@click.pass_context
def simulate(
    context: click.Context, /, policy: str, seed: int, load: float | None, strict_fit: bool, **values: Any
) -> None:
    """Simulate the jobs of a log under one policy.

    The production planner decides, event by event.

    TRACE is a job log (CSV; the header determines the layout) or the JSON export of a cluster.
    """
    options = WorkloadOptions.pop_from(values)
    chosen = setting(options)
    output = output_of(context, load=chosen.load)
    with progress_bar("jobs", quiet=output.quiet) as on_progress, input_errors():
        record = output.out is not None
        result, outcome = _run(chosen, policy, seed, load, on_progress, strict=strict_fit, record=record)
    facts = _facts(options, chosen, outcome, result, output.command)
    notes = _notes(chosen, outcome)
    if output.form == "json":
        print_json(facts)
    elif output.form == "csv":
        print_csv([{key: value for key, value in facts.items() if key != "sites"}])
    else:
        _print_table(chosen, facts, outcome)
        _print_sites(result)
        print_notes([*notes, output.command], quiet=output.quiet)
    if output.out is not None:
        _write(output, chosen, outcome, result, notes)


def _run(
    chosen: Setting,
    policy: str,
    seed: int,
    load: float | None,
    on_progress: OnProgress | None,
    *,
    strict: bool,
    record: bool,
) -> "tuple[SimulationResult, Outcome]":
    from tranche.simulation.scenario import run
    from tranche.simulation.study import Cell, assess

    cell = Cell(chosen.recipe, policy, seed, chosen.load if load is None else load, bounded=True)
    scenario = chosen.recipe.build(policy, seed, cell.load, record=record)
    if strict:
        refuse_oversized(scenario, chosen.cluster)
    result = run(scenario, on_progress)
    outcome = assess(cell, scenario, result)
    refuse(outcome, strict)
    return result, outcome


def refuse_oversized(scenario: "Scenario", cluster: str) -> None:
    """Raise before the simulation if a job requests more GPUs than the cluster has.

    Raises:
        InputError: a job is too large; the message names the jobs.
    """
    from tranche.simulation.study import job_name
    from tranche.simulation.workload.from_log import oversized

    if large := oversized(scenario.jobs, scenario.nodes, scenario.sites):
        names = named([job_name(job.key) for job in large])
        raise InputError(f"{cluster} can never run {len(large):,} of {len(scenario.jobs):,} jobs: {names}")


def refuse(outcome: "Outcome", strict: bool) -> None:
    """Raise if no job ran or, with `strict`, if any job did not run.

    Raises:
        InputError: jobs did not run; the message names them with the planner's reason.
    """
    if outcome.unfinished and (strict or not outcome.summary.jobs):
        raise InputError(f"policy {outcome.policy}: {never_ran(outcome.reasons, outcome.unfinished)}")


def _facts(
    options: WorkloadOptions,
    chosen: Setting,
    outcome: "Outcome",
    result: "SimulationResult",
    command: str,
) -> dict[str, Any]:
    """Return the values of the JSON output."""
    from tranche.simulation.study import job_name

    return {
        **outcome.summary.as_dict(),
        "policy": outcome.policy,
        "mode": chosen.mode,
        "seed": outcome.seed,
        "load": outcome.load,
        "trace": chosen.trace,
        "cluster": chosen.cluster,
        "options": chosen.options,
        "capacity_gpus": result.capacity_gpus,
        **setting_facts(options, chosen),
        "lower_bound_seconds": outcome.bound_seconds,
        "sites": [asdict(site) for site in result.sites],
        "never_fit": [job_name(key) for key in result.unfinished],
        "reasons": dict(outcome.reasons),
        "skipped_rows": list(chosen.skipped),
        "command": command,
        "version": tranche.__version__,
    }


def setting_facts(options: WorkloadOptions, chosen: Setting) -> dict[str, Any]:
    """Return the values of the JSON output that describe the simulator."""
    return {
        "period_seconds": options.period,
        "restart_seconds": options.restart_seconds,
        "estimate_sigma": options.estimate_sigma,
        "speed_sigma": options.speed_sigma,
        "link_sigma": options.link_sigma,
        "unsized": options.unsized,
        "speed_factor": options.speed_factor,
        "network": chosen.network,
    }


def _notes(chosen: Setting, outcome: "Outcome") -> list[str]:
    notes = [*setting_notes(chosen), *data_notes([outcome])]
    if outcome.unfinished:
        notes.append(never_ran(outcome.reasons, outcome.unfinished))
    if outcome.bound_seconds is None:
        notes.append("no lower bound: speeds are random, so a worker may be faster than its node's kind")
    return notes


def setting_notes(chosen: Setting) -> list[str]:
    """Return a note on skipped rows."""
    if not chosen.skipped:
        return []
    predicate = "row was" if len(chosen.skipped) == 1 else "rows were"
    return [f"{len(chosen.skipped):,} {predicate} skipped: {named(chosen.skipped, separator='; ')}"]


def data_notes(outcomes: "Sequence[Outcome]") -> list[str]:
    """Return notes on policies that do not plan transfers, if data moved."""
    from tranche.policies import QueuePolicy, get_policy

    moved = dict.fromkeys(outcome.policy for outcome in outcomes if outcome.summary.copied_bytes > 0)
    unaware = {
        name: policy
        for name in moved
        if isinstance(policy := get_policy(name), QueuePolicy)
        and not (policy.traits.needs_local_data or policy.traits.free_data_movement)
    }
    texts = {
        True: "all data of a job are uploaded to every site from its arrival on; chunk plans transfers",
        False: "a worker holds its GPU while the data of its chunks are uploaded; chunk plans transfers",
    }
    groups = {
        ahead: [name for name, policy in unaware.items() if policy.uploads_on_arrival() is ahead] for ahead in texts
    }
    return [f"{', '.join(names)}: {texts[ahead]}" for ahead, names in groups.items() if names]


def report_title(chosen: Setting) -> str:
    """Return the title of a report: log, cluster, whether the network model is on, and a start rule of transfers."""
    from tranche.simulation.cluster_spec import rule_text

    rule = rule_text(chosen.recipe.transfers)
    network = chosen.network.partition(" ")[0] + (f", {rule}" if rule else "")
    return f"{Path(chosen.trace).name} on {chosen.cluster}, network model {network}"


def setting_caption(facts: dict[str, Any]) -> str:
    """Describe the setting in one line."""
    period = facts["period_seconds"]
    parts = [
        facts["cluster"] + (f" ({facts['options']})" if facts["options"] else ""),
        "jobs as recorded" if facts["mode"] == "recorded" else f"{facts['mode']} jobs",
        f"decisions every {period:g} s" if period else "decisions at every event",
        f"restart cost {facts['restart_seconds']:g} s",
        f"network model {facts['network']}",
    ]
    parts += [
        f"σ of {error}s {facts[f'{error}_sigma']:g}" for error in ("estimate", "speed") if facts[f"{error}_sigma"]
    ]
    if facts["unsized"]:
        parts.append(f"no duration given for {facts['unsized']:.0%} of the jobs")
    return ", ".join(parts)


def _print_table(chosen: Setting, facts: dict[str, Any], outcome: "Outcome") -> None:
    from tranche.simulation_report import format_table
    from tranche.simulation_report.formatting import format_duration

    load = "arrivals as logged" if outcome.load is None else f"load {outcome.load:g}"
    caption = f"{chosen.trace}, {load}: {setting_caption(facts)}"
    if outcome.bound_seconds is not None:
        caption += f"; no policy has an average below {format_duration(outcome.bound_seconds)}"
    print_table(format_table([(outcome.policy, outcome.summary)]), caption)


def _print_sites(result: "SimulationResult") -> None:
    """Print the usage by site if there are several sites."""
    from tranche.simulation_report.site_table import SITE_KEY, format_sites

    if len(result.sites) > 1:
        print_table(format_sites(result.sites), SITE_KEY)


def _write(
    output: Output, chosen: Setting, outcome: "Outcome", result: "SimulationResult", notes: Sequence[str]
) -> None:
    from tranche.simulation_report import ReportRun

    run = ReportRun(outcome.policy, result, outcome.summary, outcome.bound_seconds)
    write(output, report_title(chosen), [run], notes)
