"""``kubectl tranche``: plans, explanations and history of TrainingJobs, read from the API server.

kubectl finds the plugin by name: the console script ``kubectl-tranche`` must be on the PATH.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import tranche
from tranche.cli.errors import InputError, OneLineCommand, OneLineGroup
from tranche.cli.kubectl_tables import (
    attempts_text,
    chunks_text,
    completion_text,
    event_text,
    plan_text,
    queue_text,
    usage_csv,
    usage_text,
    whatif_text,
)
from tranche.cli.option_types import GPU
from tranche.kube.api.names import GpuResources

if TYPE_CHECKING:
    from tranche.client import Client

Command = TypeVar("Command", bound=Callable[..., Any])
EXIT_STATUS = """
\b
Exit status:
  0  success
  1  the API server cannot be reached, or rejects the request
  2  the command line or a file is invalid
  3  the TrainingJob does not exist
"""


class NoSuchJobError(click.ClickException):
    """The TrainingJob does not exist."""

    exit_code = 3


@click.group(cls=OneLineGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_STATUS)
@click.version_option(tranche.__version__, prog_name="kubectl-tranche")
def main() -> None:
    """Show what tranche plans: kubectl tranche COMMAND."""


_PLACE_OPTIONS = (
    click.option("-n", "--namespace", help="Namespace of the jobs [default: the namespace of the context]."),
    click.option("--context", help="Context of the kubeconfig [default: its current context]."),
    click.option("--kubeconfig", help="Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config]."),
)
_SYSTEM_NAMESPACE = click.option(
    "--system-namespace",
    default="tranche-system",
    show_default=True,
    envvar="TRANCHE_SYSTEM_NAMESPACE",
    show_envvar=True,
    help="Namespace of the scheduler.",
)
DATE_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ")
"""Formats of times on the command line, in UTC."""


def place_options(command: Command) -> Command:
    """Add the options of kubectl that select the cluster and the namespace to a command."""
    for option in reversed(_PLACE_OPTIONS):
        command = option(command)
    return command


def cluster_options(command: Command) -> Command:
    """Add the cluster options of kubectl to a command, and the output format."""
    formats = click.Choice(["table", "json"])
    return place_options(click.option("-o", "--output", type=formats, default="table", show_default=True)(command))


@contextmanager
def open_client(values: dict[str, Any]) -> "Iterator[Client]":
    """Open a client from the options; client errors end the command with one line.

    Raises:
        click.ClickException: with the documented exit status.
    """
    from tranche.client import Client, ClientError, ManifestError, NoSuchJob

    try:
        with Client(values["namespace"], kubeconfig=values["kubeconfig"], context=values["context"]) as client:
            yield client
    except ManifestError as error:
        raise InputError(str(error)) from None
    except ClientError as error:
        raise (NoSuchJobError if isinstance(error, NoSuchJob) else click.ClickException)(str(error)) from None


def answer(values: dict[str, Any], value: Any, text: str) -> None:
    """Print `text`, or the whole value as JSON, by the option ``--output``."""
    text = _json(value, indent=2).decode() if values["output"] == "json" else _printable(text)
    click.echo(text.rstrip("\n"))


def _printable(text: str) -> str:
    """Escape control characters: a sentence may quote what a container runtime says of another tenant's command."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _json(value: Any, indent: int) -> bytes:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=indent)


def _note(text: str) -> None:
    """Print a note to stderr, unless it is empty."""
    if text:
        click.echo(text, err=True)


@main.command(cls=OneLineCommand)
@click.option("-A", "--all-namespaces", is_flag=True)
@click.option("--over", is_flag=True, help="Include jobs that have ended.")
@_SYSTEM_NAMESPACE
@cluster_options
def queue(all_namespaces: bool, over: bool, system_namespace: str, **values: Any) -> None:
    """List running and waiting jobs, with the reason for each wait.

    Running jobs come first, then waiting jobs, each by planned completion.
    """
    with open_client(values) as client:
        jobs = client.queue(all_namespaces=all_namespaces, over=over)
        place = "" if all_namespaces else client.namespace
        absent = client.scheduler_absence(system_namespace)
    answer(values, jobs, queue_text(jobs, place))
    _note(absent)


@main.command(cls=OneLineCommand)
@click.argument("job")
@_SYSTEM_NAMESPACE
@cluster_options
def why(job: str, system_namespace: str, **values: Any) -> None:
    """Explain in one sentence what JOB does or waits for."""
    with open_client(values) as client:
        sentence = client.why(job)
        row = {"namespace": client.namespace, "name": job, "explanation": sentence}
        expected, absent = completion_text(client.plan(job)), client.scheduler_absence(system_namespace)
    answer(values, row, sentence)
    _note(expected)
    _note(absent)


@main.command(cls=OneLineCommand)
@click.argument("job")
@click.option("--chunks", is_flag=True, help="Print the node and time window of each chunk, planned by this command.")
@_SYSTEM_NAMESPACE
@cluster_options
def plan(job: str, chunks: bool, system_namespace: str, **values: Any) -> None:
    """Show the plan and the progress of JOB.

    The plan has the planned start and completion, and the windows.

    With --chunks, this command reads the whole cluster and runs its own planner.
    """
    with open_client(values) as client:
        if not chunks:
            detail = client.plan(job)
            absent = client.scheduler_absence(system_namespace)
            answer(values, detail, plan_text(detail))
            _note(absent)
            return
        listing = client.chunks(job, system_namespace=system_namespace)
    answer(values, listing, chunks_text(listing))
    if values["output"] == "table":
        _note(listing.note)


@main.command(cls=OneLineCommand)
@click.argument("job")
@click.option(
    "--log-lines",
    default=5,
    show_default=True,
    type=click.IntRange(0, 1000),
    help="Lines to print of each attempt's log.",
)
@cluster_options
def history(job: str, log_lines: int, **values: Any) -> None:
    """Show the attempts and the events of JOB.

    An attempt has times, node, outcome, exit code and last log lines.
    """
    with open_client(values) as client:
        job_history = client.history(job, log_lines=log_lines)
    answer(
        values, job_history, "\n".join(part for part in (attempts_text(job_history), event_text(job_history)) if part)
    )


@main.command(cls=OneLineCommand)
@click.option("-A", "--all-namespaces", is_flag=True)
@GPU
@click.option("-n", "--namespace", help="Namespace of jobs and pods [default: the namespace of the context].")
@click.option("--context", help="Context of the kubeconfig [default: its current context].")
@click.option("--kubeconfig", help="Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config].")
def export(all_namespaces: bool, gpu_resources: GpuResources, **values: Any) -> None:
    """Print a snapshot for tranche simulate and tranche replay.

    The snapshot contains jobs, pods with GPUs, nodes and Sites. It omits environment variables, volumes, annotations
    and messages.
    """
    from tranche.client.cluster_export import snapshot

    with open_client(values) as client:
        namespace = "" if all_namespaces else client.namespace
        objects, notes = client.call(snapshot(client.session, namespace, gpu_resources))
    click.echo(_json(objects, indent=1))
    for note in notes:
        click.echo(note, err=True)


@main.command(cls=OneLineCommand)
@click.option("-A", "--all-namespaces", is_flag=True)
@click.option("--by", "group", type=click.Choice(["job", "namespace"]), default="job", show_default=True)
@click.option("--since", type=click.DateTime(DATE_FORMATS), help="Omit jobs that ended before this time (UTC).")
@click.option("--until", type=click.DateTime(DATE_FORMATS), help="Only jobs that ended before this time (UTC).")
@_SYSTEM_NAMESPACE
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@place_options
def usage(
    all_namespaces: bool,
    group: str,
    since: datetime | None,
    until: datetime | None,
    system_namespace: str,
    **values: Any,
) -> None:
    """Show the GPU time of jobs or namespaces.

    The GPU time is that which workers held, that in which they trained, and the part of it that was lost. Jobs that
    have been deleted are missing; the metric tranche_namespace_gpu_seconds_total counts them.
    """
    from tranche.client.job_usage import by_namespace

    with open_client(values) as client:
        jobs = client.usage(
            all_namespaces=all_namespaces, since=_utc(since), until=_utc(until), system_namespace=system_namespace
        )
    rows = by_namespace(jobs) if group == "namespace" else jobs
    if values["output"] == "csv":
        click.echo(usage_csv(rows), nl=False)
    else:
        answer(values, rows, usage_text(rows))


def _utc(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at is not None else None


@main.command(cls=OneLineCommand)
@click.option("-f", "--filename", required=True, metavar="FILE", help="File with the TrainingJob; - for stdin.")
@_SYSTEM_NAMESPACE
@cluster_options
def whatif(filename: str, system_namespace: str, **values: Any) -> None:
    """Show when the job in FILE would start and complete.

    The forecast is for a job that is submitted now; nothing is created. This command reads the whole cluster and runs
    its own planner.
    """
    from tranche.client.manifest import read_manifest

    with open_client(values) as client:
        manifest = read_manifest(sys.stdin.read() + "\n", "stdin") if filename == "-" else None
        result = client.what_if(manifest or Path(filename), values["namespace"], system_namespace=system_namespace)
    answer(values, result, whatif_text(result))
    if result.note and values["output"] == "table":
        click.echo(result.note, err=True)
