"""``tranche replay``: replay of a cluster's recorded history under other policies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import tranche
from tranche.cli.errors import InputError, OneLineCommand, input_errors
from tranche.cli.option_types import EXPORT_GPU, POLICY, SECONDS, several
from tranche.cli.output import (
    counted,
    csv_of,
    json_of,
    named,
    output_of,
    print_csv,
    print_json,
    print_notes,
    print_table,
    progress_bar,
    write,
)
from tranche.cli.workload_options import FILE

if TYPE_CHECKING:
    from tranche.replay.export import Export
    from tranche.replay.replay import Replay
    from tranche.simulation.cluster_spec import ClusterSpec


@click.command(cls=OneLineCommand)
@click.argument("export", type=FILE)
@click.option(
    "--policies",
    default="fifo,chunk",
    show_default=True,
    callback=several(POLICY),
    help="Policies, separated by commas.",
)
@click.option(
    "--gpus",
    type=click.IntRange(1),
    help="Replay on one pool of this number of GPUs [default: the nodes of the export].",
)
@click.option("--cluster", type=FILE, help="Replay on the sites and nodes of this YAML file.")
@EXPORT_GPU
@click.option(
    "--restart-seconds",
    default=30,
    show_default=True,
    type=SECONDS,
    help="ρ: restart cost in seconds, added at every pod start.",
)
@click.option(
    "--never-preempt", is_flag=True, help="Never preempt jobs of other schedulers, as if they could not resume."
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Of a policy's random choices.")
@click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json", "csv"]))
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write replay.json, replay.csv and sites.csv."
)
@click.option("--quiet", is_flag=True, help="No progress bar, no notes.")
@click.pass_context
def replay(
    context: click.Context,
    /,
    export: Path,
    policies: tuple[str, ...],
    restart_seconds: float,
    never_preempt: bool,
    seed: int,
    quiet: bool,
    **values: Any,
) -> None:
    """Compare the history of a cluster with other policies.

    EXPORT is the output of kubectl tranche export -A, or of kubectl get pods,nodes,jobs -A -o json from a cluster that
    does not run tranche.
    """
    from tranche.replay.export import scan_export
    from tranche.replay.replay import ReplaySettings, facts_of
    from tranche.replay.replay import replay as replayed

    output = output_of(context)
    settings = ReplaySettings(policies, restart_seconds, never_preempt, seed)
    with input_errors():
        history = scan_export(export, values["gpu_resources"])
        cluster = chosen_cluster(history, export, values["gpus"], values["cluster"])
        with progress_bar("simulations", quiet=quiet) as on_progress:
            result = replayed(history, cluster, settings, on_progress)
    facts = facts_of(result, history, cluster.name) | {
        "network": "off",
        "command": output.command,
        "version": tranche.__version__,
    }
    rows = [
        {key: value for key, value in row.items() if key != "sites"} | {"network": facts["network"]}
        for row in facts["rows"]
    ]
    if output.form == "json":
        print_json(facts)
    elif output.form == "csv":
        print_csv(rows)
    else:
        _print_table(result, cluster, settings.restart_seconds)
        remarks = notes(result, history, never_preempt=never_preempt, restart_seconds=restart_seconds)
        print_notes([*remarks, facts["command"]], quiet=quiet)
    if output.out is not None:
        sites = [{"label": row["label"], **use} for row in facts["rows"] for use in row["sites"]]
        texts = {"replay.json": json_of(facts), "replay.csv": csv_of(rows), "sites.csv": csv_of(sites)}
        write(output, "", [], [], texts)


def chosen_cluster(export: "Export", path: Path, gpus: int | None, file: Path | None) -> "ClusterSpec":
    """Return the cluster from the options, else that of the export.

    Raises:
        InputError: both options are given, or the export contains no nodes.
    """
    from tranche.simulation.cluster_spec import ClusterSpec, pool, read_cluster

    if gpus is not None and file is not None:
        raise InputError("--gpus and --cluster are mutually exclusive: give one cluster")
    if file is not None:
        return read_cluster(file)
    if gpus is not None:
        return pool(gpus)
    if not export.nodes:
        raise InputError(f"{path} contains no nodes: add --gpus N or --cluster FILE, or export nodes too")
    total = sum(node.allocatable.gpus for node in export.nodes)
    return ClusterSpec(f"{counted(total, 'GPU')} on {counted(len(export.nodes), 'node')}", export.nodes, export.sites)


def notes(result: "Replay", export: "Export", *, never_preempt: bool, restart_seconds: float) -> list[str]:
    """Return notes on the assumptions and limits of the comparison."""
    from tranche.simulation_report.formatting import format_duration

    remarks = []
    if restart_seconds > result.median_run_seconds:
        remarks.append(
            f"the restart cost of {format_duration(restart_seconds)} is longer than the median job, which ran for "
            f"{format_duration(result.median_run_seconds)}, so policies look worse than they are: set "
            "--restart-seconds to the cost on this cluster"
        )
    remarks.append("jobs take as long as recorded, on any node; jobs whose pods were deleted are missing")
    if any(not row.with_durations for row in result.rows):
        remarks.append(
            "an installed tranche would be between the two rows of a policy: with exact durations as in its first row, "
            "without durations as in its second"
        )
    if not never_preempt:
        remarks.append(
            "a stopped job resumes where it was, so its code must save checkpoints (--never-preempt: never stopped)"
        )
    if result.running or export.waiting:
        remarks.append(f"not counted: {result.running:,} not ended, {export.waiting:,} not started")
    if result.unfit:
        remarks.append(f"not counted, because they would never run here: {named(result.unfit)}")
    if export.problems:
        remarks.append(f"left out: {named(export.problems, separator='; ')}")
    return remarks


def _print_table(result: "Replay", cluster: "ClusterSpec", restart_seconds: float) -> None:
    from tranche.simulation_report import format_table
    from tranche.simulation_report.formatting import format_duration
    from tranche.simulation_report.site_table import format_uses

    title = "Job completion time (JCT) and cost, as recorded and simulated"
    table = format_table([(row.label, row.summary) for row in result.rows], title)
    hours = "; ".join(f"{row.label}: {row.gpu_hours:,.2f}" for row in result.rows)
    caption = f"{counted(result.counted, 'job')} over {format_duration(result.span_seconds)} on {cluster.name}"
    print_table(table, f"{caption}, restart cost {restart_seconds:g} s, network model off\nGPU hours: {hours}")
    if any(row.has_sites for row in result.rows):
        print_table(format_uses([(row.label, row.sites) for row in result.rows]), "Jobs are those of the table above.")
