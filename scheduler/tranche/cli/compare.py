"""``tranche compare``: comparison of policies on the same jobs over loads and seeds, in parallel."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

import tranche
from tranche.cli.errors import InputError, OneLineCommand, input_errors
from tranche.cli.option_types import LOAD, POLICY, several, several_numbers
from tranche.cli.output import (
    Output,
    csv_of,
    json_of,
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
from tranche.cli.simulate import (
    data_notes,
    refuse,
    refuse_oversized,
    report_title,
    setting_caption,
    setting_facts,
    setting_notes,
)
from tranche.cli.workload_options import Setting, WorkloadOptions, setting, workload_options

if TYPE_CHECKING:
    from tranche.simulation.analysis.comparison import Comparison
    from tranche.simulation.executors import Pool
    from tranche.simulation.study import Outcome, StudyResult

RATIO_HEADINGS = ("average ratio", "p99 ratio")
"""Headings of the ratios, in the order of `comparison.RATIOS`."""
DASK_SECONDS = 5.0
"""Connection timeout of the Dask scheduler, in seconds."""


@click.command(cls=OneLineCommand)
@workload_options
@click.option("--policies", required=True, callback=several(POLICY), help="Policies, separated by commas.")
@click.option("--baseline", type=POLICY, help="Policy that ratios are relative to [default: the first policy].")
@click.option(
    "--loads",
    callback=several_numbers(LOAD),
    help="Loads to stretch arrivals to, separated by commas [default: as logged].",
)
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1, 10_000), help="Number of seeds, starting at --seed."
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="First seed.")
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    help="Processes on this machine [default: one per core; 1: this process only].",
)
@click.option("--dask", metavar="ADDRESS", help="Run on this Dask cluster, such as tcp://host:8786.")
@output_options
@click.pass_context
def compare(context: click.Context, /, policies: tuple[str, ...], **values: Any) -> None:
    """Compare policies on the same jobs.

    Ratios are to the baseline, for each seed and load. With several seeds, a ratio is the mean over them with its 95 %
    confidence interval (Student's t); with --resample, the interval is that of the ratio on one such log, and more
    seeds make it more exact, not smaller. Exit status 1 if a simulation failed; the other results are printed.
    """
    options = WorkloadOptions.pop_from(values)
    baseline = values["baseline"] or policies[0]
    if baseline not in policies:
        raise InputError(f"--baseline {baseline} is not among --policies {','.join(policies)}")
    if values["dask"] and values["processes"]:
        raise InputError("--processes and --dask are mutually exclusive")
    chosen = setting(options)
    output = output_of(context, loads=chosen.load)
    result = _run(chosen, policies, baseline, values, kept=output.out is not None, quiet=output.quiet)
    _report(options, chosen, baseline, result, output)
    for failure in result.failures:
        click.echo(f"Error: {failure.name} failed: {failure.reason}", err=True)
    if result.failures:
        context.exit(1)


def _run(
    chosen: Setting, policies: tuple[str, ...], baseline: str, values: dict[str, Any], *, kept: bool, quiet: bool
) -> "StudyResult":
    from tranche.simulation.study import Study, run_study

    seeds = tuple(range(values["seed"], values["seed"] + values["seeds"]))
    loads = values["loads"] or (chosen.load,)
    with input_errors():
        scenario = chosen.recipe.build(policies[0], seeds[0], loads[0])
        recipe = chosen.recipe.portable() if values["dask"] else chosen.recipe
    if values["strict_fit"]:
        refuse_oversized(scenario, chosen.cluster)
    del scenario
    study = Study(recipe, policies, baseline, loads, seeds, kept)
    with (
        _opened_pool(values["processes"], values["dask"]) as pool,
        progress_bar("simulations", quiet=quiet) as on_progress,
    ):
        result = run_study(study, pool, on_progress)
    none_ran = not any(outcome.summary.jobs for outcome in result.outcomes)
    for outcome in result.outcomes:
        if values["strict_fit"] or none_ran:
            refuse(outcome, values["strict_fit"])
    return result


def _report(options: WorkloadOptions, chosen: Setting, baseline: str, result: "StudyResult", output: Output) -> None:
    from tranche.simulation.analysis.comparison import compare as compared

    comparisons = compared(result, baseline)
    notes = _notes(chosen, baseline, comparisons, result)
    facts = _facts(options, chosen, baseline, comparisons, result, output.command) | {"notes": notes}
    if output.form == "json":
        print_json(facts)
    elif output.form == "csv":
        print_csv([_cell_facts(chosen, outcome) for outcome in result.outcomes])
    else:
        _print_table(chosen, facts, comparisons)
        print_notes([*notes, output.command], quiet=output.quiet)
    if output.out is not None:
        _write(output, chosen, result, comparisons, facts, notes)


def _facts(
    options: WorkloadOptions,
    chosen: Setting,
    baseline: str,
    comparisons: "Sequence[Comparison]",
    result: "StudyResult",
    command: str,
) -> dict[str, Any]:
    """Return the values of the JSON output."""
    return {
        "baseline": baseline,
        "trace": chosen.trace,
        "cluster": chosen.cluster,
        "options": chosen.options,
        "mode": chosen.mode,
        **setting_facts(options, chosen),
        "comparisons": [_comparison_facts(comparison) for comparison in comparisons],
        "simulations": [_cell_facts(chosen, outcome) for outcome in result.outcomes],
        "failures": [{"simulation": failure.name, "reason": failure.reason} for failure in result.failures],
        "skipped_rows": list(chosen.skipped),
        "command": command,
        "version": tranche.__version__,
    }


def _comparison_facts(comparison: "Comparison") -> dict[str, Any]:
    ratios = {
        name: {"mean": ratio.mean, "half_width_95": ratio.half_width, "seeds": ratio.count}
        for name, ratio in comparison.ratios.items()
    }
    return {
        "policy": comparison.policy,
        "load": comparison.load,
        "seeds": list(comparison.seeds),
        **comparison.figures,
        "lower_bound_seconds": comparison.bound_seconds,
        "ratios": ratios,
        "incomparable_seeds": list(comparison.incomparable),
    }


def _cell_facts(chosen: Setting, outcome: "Outcome") -> dict[str, Any]:
    return {
        "policy": outcome.policy,
        "network": chosen.network,
        "load": outcome.load,
        "seed": outcome.seed,
        **outcome.summary.as_dict(),
        "lower_bound_seconds": outcome.bound_seconds,
        "never_fit": [name for name, _ in outcome.reasons],
    }


def _notes(chosen: Setting, baseline: str, comparisons: "Sequence[Comparison]", result: "StudyResult") -> list[str]:
    notes = [*setting_notes(chosen), *data_notes(result.outcomes)]
    worst: dict[str, Outcome] = {}
    for outcome in result.outcomes:
        if outcome.unfinished > (worst[outcome.policy].unfinished if outcome.policy in worst else 0):
            worst[outcome.policy] = outcome
    notes += [f"{name}: {never_ran(outcome.reasons, outcome.unfinished)}" for name, outcome in worst.items()]
    for policy in dict.fromkeys(c.policy for c in comparisons if c.incomparable):
        notes.append(
            f"{policy} and {baseline} did not complete the same jobs for every seed: those seeds have no ratio, and "
            f"{policy} no lower bound"
        )
    if result.seedless:
        notes.append(
            f"{', '.join(result.seedless)}: no confidence interval, because nothing is random; "
            "--resample draws similar logs"
        )
    if result.outcomes and all(c.bound_seconds is None for c in comparisons):
        notes.append("no lower bound: speeds are random, or the baseline has no result")
    return notes


def _print_table(chosen: Setting, facts: dict[str, Any], comparisons: "Sequence[Comparison]") -> None:
    from rich.table import Table

    from tranche.simulation_report.table import columns_of, shown_cells

    table = Table(box=None, header_style="bold", title_justify="left")
    table.title = f"Simulated; ratios to {facts['baseline']}"
    if any(ratio.half_width is not None for comparison in comparisons for ratio in comparison.ratios.values()):
        table.title = f"Simulated, means over seeds; ratios to {facts['baseline']} within a seed, ± 95 % confidence"
    for heading in ("load", "policy"):
        table.add_column(heading)
    bounds = [comparison.bound_seconds for comparison in comparisons]
    columns = columns_of([comparison.figures for comparison in comparisons], bounds=bounds)
    for heading in (*RATIO_HEADINGS, *(column.heading for column in columns)):
        table.add_column(heading, justify="right")
    for comparison in comparisons:
        table.add_row(
            "as logged" if comparison.load is None else f"{comparison.load:g}",
            comparison.policy,
            *_shown_ratios(comparison, facts["baseline"]),
            *shown_cells(comparison.figures, columns, comparison.bound_seconds),
        )
    print_table(table, f"{chosen.trace}: {setting_caption(facts)}")


def _shown_ratios(comparison: "Comparison", baseline: str) -> list[str]:
    from tranche.simulation.analysis.comparison import RATIOS

    ratios = [comparison.ratios.get(name) for name in RATIOS]
    own = comparison.policy == baseline
    return ["–" if ratio is None else "1" if own else str(ratio) for ratio in ratios]


def _write(
    output: Output,
    chosen: Setting,
    result: "StudyResult",
    comparisons: "Sequence[Comparison]",
    facts: dict[str, Any],
    notes: Sequence[str],
) -> None:
    from tranche.simulation_report import Means, ReportRun

    bounds = {
        (outcome.load, outcome.seed, outcome.completed): outcome.bound_seconds
        for outcome in result.outcomes
        if outcome.bound_seconds is not None
    }
    headings = [f"{name}, to {facts['baseline']}" for name in RATIO_HEADINGS]
    ratios = {
        (comparison.load, comparison.policy): dict(
            zip(headings, _shown_ratios(comparison, facts["baseline"]), strict=True)
        )
        for comparison in comparisons
    }
    several = len({outcome.seed for outcome in result.outcomes}) > 1
    means = {
        (comparison.load, comparison.policy): Means(comparison.figures, comparison.bound_seconds)
        for comparison in comparisons
        if several
    }
    runs = [
        ReportRun(
            outcome.policy if outcome.load is None else f"{outcome.policy}, load {outcome.load:g}",
            outcome.result,
            outcome.summary,
            bounds.get((outcome.load, outcome.seed, outcome.completed)),
            ratios[outcome.load, outcome.policy],
            means.get((outcome.load, outcome.policy)),
        )
        for outcome in result.outcomes
        if outcome.result is not None
    ]
    if several:
        first_seed = min(outcome.seed for outcome in result.outcomes)
        scope = (
            f"the table has means over the seeds; pictures, use of sites, summary and jobs are for seed {first_seed}"
        )
        notes = [*notes, f"{scope}; simulations.csv has every seed"]
    texts = {
        "simulations.csv": csv_of([_cell_facts(chosen, outcome) for outcome in result.outcomes]),
        "comparison.json": json_of(facts) + "\n",
    }
    write(output, report_title(chosen), runs, notes, texts)


@contextmanager
def _opened_pool(processes: int | None, dask: str | None) -> "Iterator[Pool]":
    """Open the pool that the options select.

    Raises:
        InputError: the Dask cluster cannot be reached, or it has no workers.
    """
    from tranche.simulation.executors import ProcessPool, SerialPool

    if dask is not None:
        with _dask_pool(dask) as pool:
            yield pool
    elif processes == 1:
        yield SerialPool()
    else:
        yield ProcessPool(processes)


@contextmanager
def _dask_pool(address: str) -> "Iterator[Pool]":
    from tranche.simulation.executors import ExternalPool

    try:
        from distributed import Client
    except ImportError:
        raise InputError("--dask requires the package distributed: pip install 'tranche[dask]'") from None
    try:
        client = Client(address, timeout=DASK_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise InputError(f"--dask {address}: no Dask scheduler responded within {DASK_SECONDS:g} s ({error})") from None
    with client:
        threads = sum(client.nthreads().values())  # type: ignore[no-untyped-call]
        if not threads:
            raise InputError(f"--dask {address}: the Dask cluster has no workers; start one with dask worker {address}")
        yield ExternalPool(client.get_executor(), threads)  # type: ignore[no-untyped-call]
