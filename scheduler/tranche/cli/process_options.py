"""Options and common parts of the commands that run a process of the scheduler."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from tranche.cli.option_types import GPU_KINDS, LIVE_POLICY, SECONDS, TOPOLOGY_LEVELS, Finite
from tranche.kube.client.errors import ApiError, Unreachable
from tranche.runtime.file_limit import raise_file_limit
from tranche.runtime.log_output import FORMATS, LEVELS, LogSettings, log_to_stderr
from tranche.runtime.parent_process import end_with_parent, parent_ended

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
PORT = click.IntRange(0, 65535)


def _weights(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """Parse share weights by namespace."""
    weights: dict[str, float] = {}
    for value in values:
        namespace, equals, number = value.partition("=")
        if not (namespace and equals):
            raise click.BadParameter(f"{value!r} is not NAMESPACE=WEIGHT", context, parameter)
        weights[namespace] = Finite(0, 10**6, min_open=True).convert(number, parameter, context)
    return weights


KUBECONFIG = click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False),
    help="Kubeconfig file [default: $KUBECONFIG, else in-cluster, else ~/.kube/config].",
)
LOG = (
    click.option(
        "--log-level",
        default="info",
        show_default=True,
        type=click.Choice(LEVELS),
        help="Minimum severity of log lines.",
    ),
    click.option(
        "--log-format",
        default="text",
        show_default=True,
        type=click.Choice(FORMATS),
        help="Form of log lines: text, or one JSON object for each line.",
    ),
)
LEASE_NAMESPACE = click.option(
    "--lease-namespace", default="tranche-system", show_default=True, help="Namespace of the leader election Lease."
)
METRICS = (
    click.option(
        "--metrics-host", default="127.0.0.1", show_default=True, help="Listen address of probes and metrics."
    ),
    click.option(
        "--metrics-port",
        type=PORT,
        help="Additional port for /healthz, /readyz and /metrics [default: off].",
    ),
)
EXTENDER = (
    click.option("--host", default="127.0.0.1", show_default=True, help="Listen address of the extender."),
    click.option("--port", default=10262, show_default=True, type=PORT),
    click.option(
        "--bind", is_flag=True, help="Serve the bind verb (also set bindVerb in the configuration of kube-scheduler)."
    ),
)
API = (
    click.option("--report-host", default="127.0.0.1", show_default=True, help="Listen address of the report API."),
    click.option(
        "--report-port",
        type=PORT,
        help="Port of the report API, which training pods send progress reports to [default: off].",
    ),
    click.option(
        "--report-tls-secret",
        help="Secret in the Lease's namespace for the report API's certificate, which this program renews.",
    ),
    click.option(
        "--report-tls-dir",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Mounted Secret with tls.crt, tls.key and ca.crt for the report API, such as one of cert-manager.",
    ),
    click.option(
        "--report-http-port",
        type=PORT,
        help="Additional port of the report API without TLS, for pods that were started before it had TLS.",
    ),
    click.option(
        "--report-tls-host",
        "report_tls_hosts",
        multiple=True,
        help="DNS name of the report API, for --report-tls-secret. May be repeated.",
    ),
    click.option("--page-host", default="127.0.0.1", show_default=True, help="Listen address of the web page."),
    click.option("--page-port", type=PORT, help="Port of the web page and the read API [default: off]."),
    click.option(
        "--page-what-if",
        is_flag=True,
        help="Let users of the page who may create TrainingJobs ask for the plan of a job without creating it.",
    ),
    click.option(
        "--page-actions",
        is_flag=True,
        help="Let users of the page suspend, resume, delete and weight the jobs that RBAC lets them patch or delete.",
    ),
)
START_LIMITS = (
    click.option(
        "--start-error-seconds",
        default=60,
        show_default=True,
        type=SECONDS,
        help="Seconds after which a pod fails that cannot start without a change, such as a missing ConfigMap.",
    ),
    click.option(
        "--image-pull-seconds",
        default=600,
        show_default=True,
        type=SECONDS,
        help="Seconds after which a pod fails whose image cannot be pulled.",
    ),
    click.option(
        "--pod-start-seconds",
        default=1800,
        show_default=True,
        type=SECONDS,
        help="Seconds after which a pod with a node fails whose containers have not started for no reported reason.",
    ),
    click.option("--verdict-seconds", default=630, show_default=True, type=Finite(1, 10**9), hidden=True),
)
NODE_HEALTH = (
    click.option(
        "--node-health-jobs",
        default=2,
        show_default=True,
        type=click.IntRange(0, 1000),
        help="Number of different jobs whose pods fail or are refused on a node before it is excluded; 0: never.",
    ),
    click.option(
        "--node-exclusion-seconds",
        default=300,
        show_default=True,
        type=Finite(1, 10**9),
        help="Seconds for which a node is excluded first; doubles with each failed trial.",
    ),
    click.option(
        "--node-exclusion-max-seconds",
        default=3600,
        show_default=True,
        type=Finite(1, 10**9),
        help="Longest time in seconds for which a node is excluded.",
    ),
    click.option(
        "--node-exclusion-share",
        default=0.25,
        show_default=True,
        type=Finite(0, 1),
        help="Largest share of the nodes of a site that is excluded at the same time; one node is always allowed.",
    ),
)
PLANNER = (
    click.option(
        "--planner-host",
        default="127.0.0.1",
        show_default=True,
        help="Listen address of the planner API, which the API processes of all replicas must reach.",
    ),
    click.option("--planner-port", default=10266, show_default=True, type=PORT),
    click.option(
        "--policy",
        default="chunk",
        show_default=True,
        type=LIVE_POLICY,
        help="Scheduling policy, with options as in chunk:aging=0.",
    ),
    click.option(
        "--share-weight",
        "share_weights",
        multiple=True,
        metavar="NAMESPACE=WEIGHT",
        callback=_weights,
        help="With fair=1: fair-share weight of a namespace; other namespaces have weight 1. May be repeated.",
    ),
    *GPU_KINDS,
    *TOPOLOGY_LEVELS,
    click.option(
        "--tenancy-dir",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Mounted ConfigMap with the limits of namespaces for weight, priority class and preemption policy Never.",
    ),
    click.option("--seed", default=0, show_default=True, help="Seed of the policy's random choices."),
    click.option(
        "--estimate-seconds",
        default=300,
        show_default=True,
        type=SECONDS,
        help="Write planned times again when they moved by more than this number of seconds.",
    ),
    click.option(
        "--server-idle-seconds",
        default=300,
        show_default=True,
        type=SECONDS,
        help="Seconds after which parameter servers without workers save and stop, if later ones can load what they "
        "saved.",
    ),
    *START_LIMITS,
    *NODE_HEALTH,
    click.option("--validate", is_flag=True, help="Check the planner's invariants after every event (slow)."),
    click.option(
        "--journal",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Append the events of every window to this file, as JSON lines.",
    ),
)


def options(*groups: Callable[[F], F] | Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """Return a decorator that adds options in the given order."""
    chosen = [option for group in groups for option in (group if isinstance(group, Sequence) else (group,))]

    def decorate(command: F) -> F:
        for option in reversed(chosen):
            command = option(command)
        return command

    return decorate


def parameters(*groups: Callable[..., Any] | Sequence[Callable[..., Any]]) -> tuple[str, ...]:
    """Return the parameter names of options."""

    @click.command()
    @options(*groups)
    def holder(**_: object) -> None:
        """Hold the options."""

    return tuple(parameter.name for parameter in holder.params if parameter.name)


def run_process(
    name: str,
    log: LogSettings,
    main: Callable[[T], Coroutine[Any, Any, None]],
    resource: AbstractContextManager[T] | None = None,
    *expected: type[Exception],
) -> None:
    """Run a process of the scheduler until it ends or receives SIGTERM or SIGINT.

    Args:
        name: Name of the process, for its log lines.
        log: Severity and form of its log lines.
        main: Runs the process; cancelled by the signals.
        resource: Context whose value `main` receives.
        expected: Exceptions, besides those of API server and listen address, that end the process with a message.

    Raises:
        ClickException: the process ended with an expected error.
    """
    from tranche.runtime.http_server import ListenError  # the supervisor needs no HTTP server

    end_with_parent()
    log_to_stderr(name, log)
    raise_file_limit()
    try:
        with resource or nullcontext() as value:
            asyncio.run(until_signal(main(value)))  # type: ignore[arg-type]
    except (ExceptionGroup, ApiError, ListenError, *expected) as fault:  # type: ignore[misc]
        cause = expected_cause(fault, ApiError, ListenError, *expected)
        if cause is None:
            raise
        raise click.ClickException(_text(cause)) from None


def _text(cause: Exception) -> str:
    if isinstance(cause, Unreachable) and cause.reason == "NoConfiguration":
        return f"no cluster is configured: {cause.message.rstrip('.')}: use --kubeconfig, or set KUBECONFIG"
    return str(cause)


def expected_cause(fault: Exception, *expected: type[Exception]) -> Exception | None:
    """Return the first exception of a group, or the exception itself; None if any of them is not expected.

    An ``except*`` clause is no alternative: what it raises becomes part of a group, and Click prints a traceback.
    """
    if isinstance(fault, ExceptionGroup):
        _, unexpected = fault.split(expected)
        return None if unexpected is not None else expected_cause(fault.exceptions[0], *expected)
    return fault if isinstance(fault, expected) else None


async def until_signal(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it ends, a signal arrives, or the supervisor ends."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    work = asyncio.ensure_future(main)
    waiters = [asyncio.ensure_future(stopping.wait()), asyncio.ensure_future(parent_ended())]
    await asyncio.wait([*waiters, work], return_when=asyncio.FIRST_COMPLETED)
    ended = work.done()
    for task in (*waiters, work):
        task.cancel()
    try:
        await work
    except asyncio.CancelledError:
        if ended:
            raise
