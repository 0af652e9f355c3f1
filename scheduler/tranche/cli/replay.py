"""``tranche replay``: what would have become of a cluster's last weeks under other policies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import tranche
from tranche.cli.errors import InputError, OneLineCommand, input_errors
from tranche.cli.option_types import POLICY, SECONDS, several
from tranche.cli.output import (
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
    "--policies", default="fifo,chunk", show_default=True, callback=several(POLICY), help="With commas between them."
)
@click.option("--gpus", type=click.IntRange(1), help="Replay on one pool of so many GPUs [default: its nodes].")
@click.option("--cluster", type=FILE, help="Replay on these sites and nodes, as YAML.")
@click.option("--restart-seconds", default=30.0, show_default=True, type=SECONDS, help="ρ: charged at every pod start.")
@click.option("--never-preempt", is_flag=True, help="As if no job could go on where it was stopped.")
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
    """Compare a cluster's history with what policies would have made of it.

    EXPORT is what kubectl tranche export -A prints, or kubectl get pods,nodes,jobs -A -o json, also of clusters that
    have never seen tranche.
    """
    from tranche.replay.export import scan_export
    from tranche.replay.replay import ReplaySettings, facts_of
    from tranche.replay.replay import replay as replayed

    output = output_of(context)
    settings = ReplaySettings(policies, restart_seconds, never_preempt, seed)
    with input_errors():
        known = scan_export(export)
        cluster = chosen_cluster(known, export, values["gpus"], values["cluster"])
        with progress_bar("simulations", quiet=quiet) as on_progress:
            result = replayed(known, cluster, settings, on_progress)
    facts = facts_of(result, known, cluster.name) | {"command": output.command, "version": tranche.__version__}
    rows = [{key: value for key, value in row.items() if key != "sites"} for row in facts["rows"]]
    if output.form == "json":
        print_json(facts)
    elif output.form == "csv":
        print_csv(rows)
    else:
        _print_table(result, cluster, settings.restart_seconds)
        print_notes([*notes(result, known, never_preempt=never_preempt), facts["command"]], quiet=quiet)
    if output.out is not None:
        sites = [{"label": row["label"], **use} for row in facts["rows"] for use in row["sites"]]
        texts = {"replay.json": json_of(facts), "replay.csv": csv_of(rows), "sites.csv": csv_of(sites)}
        write(output, "", [], [], texts)


def chosen_cluster(export: "Export", path: Path, gpus: int | None, file: Path | None) -> "ClusterSpec":
    """The cluster that is asked for, else the export's own.

    Raises:
        InputError: both are asked for, or the export says nothing of nodes.
    """
    from tranche.simulation.cluster_spec import ClusterSpec, pool, read_cluster

    if gpus is not None and file is not None:
        raise InputError("--gpus and --cluster contradict each other: one cluster at a time")
    if file is not None:
        return read_cluster(file)
    if gpus is not None:
        return pool(gpus)
    if not export.nodes:
        raise InputError(f"{path} says nothing of nodes: add --gpus N or --cluster FILE, or export nodes too")
    total = sum(node.allocatable.gpus for node in export.nodes)
    return ClusterSpec(f"{total} GPUs on {len(export.nodes)} nodes", export.nodes, export.sites)


def notes(result: "Replay", export: "Export", *, never_preempt: bool) -> list[str]:
    """What the figures do not say, and between which bounds the truth is."""
    told = [
        "jobs take as long as they did, on whichever node; those that Kubernetes has forgotten are missing",
        "a policy that is told durations does at best as in its first row, and told none as in its second",
    ]
    if not never_preempt:
        told.append("a job that is stopped goes on where it was: its code must save (--never-preempt: it never does)")
    if result.running or export.waiting:
        told.append(f"not counted: {result.running:,} that have not ended, {export.waiting:,} that have not begun")
    if result.unfit:
        told.append(f"not counted, since they would never run here: {named(result.unfit)}")
    if export.problems:
        told.append(f"left out: {named(export.problems, separator='; ')}")
    return told


def _print_table(result: "Replay", cluster: "ClusterSpec", restart_seconds: float) -> None:
    from tranche.simulation_report import format_table
    from tranche.simulation_report.formatting import format_duration
    from tranche.simulation_report.site_table import format_uses

    table = format_table([(row.label, row.summary) for row in result.rows])
    hours = ", ".join(f"{row.label} {row.gpu_hours:,.2f}" for row in result.rows)
    caption = f"{result.counted:,} jobs over {format_duration(result.span_seconds)} on {cluster.name}"
    print_table(table, f"{caption}, restart cost {restart_seconds:g} s\nGPU hours: {hours}")
    if any(row.knows_sites for row in result.rows):
        print_table(format_uses([(row.label, row.sites) for row in result.rows]), "Jobs are those of the table above.")
