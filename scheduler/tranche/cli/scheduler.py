"""``tranche scheduler``: planner and extender in one process, beside kube-scheduler."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from tranche.auth.pod_token import TokenReviewer
from tranche.cli.option_types import LIVE_POLICY, Finite
from tranche.cli.shadow import run_shadow
from tranche.extender.app import create_app, create_metrics_app
from tranche.extender.bind import add_bind
from tranche.extender.view import View
from tranche.kube.api.names import GPU_RESOURCE
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.client.leader_election import DeposedError, Leadership
from tranche.live import Controller, ControllerSettings
from tranche.live.informers import Informers
from tranche.live.journal_file import JournalError, journal
from tranche.live.lease_annotations import PlannerConfig
from tranche.metrics.scheduler import Metrics
from tranche.planner.forecast.chunk_windows import listing
from tranche.planner.journal import Fact
from tranche.replay.jsonl_store import RecordError
from tranche.runtime.gc_tuning import freeze_periodically
from tranche.runtime.http_server import ListenError, serve
from tranche.web.app import Planning, create_page_app
from tranche.worker_api.app import create_report_app

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """Values of the command line options."""

    kubeconfig: str | None
    host: str
    port: int
    report_host: str
    report_port: int | None
    page_host: str
    page_port: int | None
    metrics_host: str
    metrics_port: int | None
    policy: str
    share_weights: dict[str, float]
    seed: int
    lease_namespace: str
    gpu_resource: str
    estimate_seconds: float
    server_idle_seconds: float
    bind: bool
    validate: bool
    journal: Path | None
    shadow: bool
    shadow_dir: Path | None
    shadow_decide_seconds: float
    shadow_replay_seconds: float

    def config(self) -> PlannerConfig:
        """Return the planner configuration."""
        return PlannerConfig(
            self.policy, self.seed, self.gpu_resource, self.server_idle_seconds, dict(self.share_weights)
        )


def _weights(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """Parse share weights by namespace."""
    weights: dict[str, float] = {}
    for value in values:
        namespace, _, number = value.partition("=")
        weights[namespace] = Finite(0, 1e6, min_open=True).convert(number, parameter, context)
    return weights


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False),
    help="Kubeconfig file [default: in-cluster, else ~/.kube/config].",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen address of the extender.")
@click.option("--port", default=10262, show_default=True, type=click.IntRange(0, 65535))
@click.option("--report-host", default="127.0.0.1", show_default=True, help="Listen address of the report API.")
@click.option(
    "--report-port",
    type=click.IntRange(0, 65535),
    help="Port of the report API, which training pods send progress reports to [default: off].",
)
@click.option("--page-host", default="127.0.0.1", show_default=True, help="Listen address of the web page.")
@click.option(
    "--page-port", type=click.IntRange(0, 65535), help="Port of the web page and the read API [default: off]."
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Listen address of probes and metrics.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Additional port for /healthz, /readyz and /metrics [default: off].",
)
@click.option(
    "--policy",
    default="chunk",
    show_default=True,
    type=LIVE_POLICY,
    help="Scheduling policy, with options as in chunk:aging=0.",
)
@click.option(
    "--share-weight",
    "share_weights",
    multiple=True,
    metavar="NAMESPACE=WEIGHT",
    callback=_weights,
    help="With fair=1: fair-share weight of a namespace; other namespaces have weight 1. May be repeated.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the policy's random choices.")
@click.option(
    "--lease-namespace", default="tranche-system", show_default=True, help="Namespace of the leader election Lease."
)
@click.option("--gpu-resource", default=GPU_RESOURCE, show_default=True, help="Resource name of the GPUs.")
@click.option(
    "--estimate-seconds",
    default=300.0,
    show_default=True,
    help="Write planned times again when they moved by more than this number of seconds.",
)
@click.option(
    "--server-idle-seconds",
    default=300.0,
    show_default=True,
    type=Finite(0, 1e9),
    help="Seconds after which parameter servers without workers save and stop, if later ones can load what they saved.",
)
@click.option(
    "--bind", is_flag=True, help="Serve the bind verb (also set bindVerb in the configuration of kube-scheduler)."
)
@click.option("--validate", is_flag=True, help="Check the planner's invariants after every event (slow).")
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append the events of every window to this file, as JSON lines.",
)
@click.option(
    "--shadow",
    is_flag=True,
    help="Shadow mode: write nothing to the cluster; record what other schedulers do and what tranche would do.",
)
@click.option(
    "--shadow-dir",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Directory for the records of shadow mode [default: in memory].",
)
@click.option("--shadow-decide-seconds", default=60.0, show_default=True, type=Finite(0.1, 1e6), hidden=True)
@click.option(
    "--shadow-replay-seconds",
    default=3600.0,
    show_default=True,
    type=Finite(0.1, 1e7),
    help="Seconds between two comparisons in shadow mode.",
)
@click.option("--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]))
def scheduler(log_level: str, **options: object) -> None:
    """Run the planner and the extender of kube-scheduler."""
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    try:
        with ExitStack() as stack:
            chosen = Options(**options)  # type: ignore[arg-type]
            note = stack.enter_context(journal(chosen.journal)) if chosen.journal else None
            asyncio.run(_main(chosen, note))
    except* DeposedError as group:
        raise click.ClickException(f"another scheduler is the leader now: {_cause(group)}") from None
    except* (ApiError, JournalError, ListenError, RecordError) as group:
        raise click.ClickException(str(_cause(group))) from None


def _cause(fault: BaseException) -> BaseException:
    """Return the first exception of a group; task groups can be nested."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


async def _main(options: Options, note: Callable[[Fact], None] | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with ApiClient.connect(options.kubeconfig) as client:
        if options.shadow:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(_shadow(client, options))
                await _first(stopping, [watching])
                watching.cancel()
            return
        watches = Informers(client)
        metrics = Metrics()
        client.observe = metrics.observe_api_request
        config = options.config()
        planner = config.planner(note, validate=options.validate)
        controller = Controller(
            client, watches, planner, metrics, ControllerSettings(options.gpu_resource, options.estimate_seconds)
        )
        inbox = controller.reports
        metrics.add_watch("quotas", watches.quotas)  # the planner's alone
        view = View(watches, options.gpu_resource)
        app = create_app(watches, metrics, watches.unsynced, options.gpu_resource, view)
        if options.bind:
            add_bind(app, client, metrics)
        identity = f"{socket.gethostname()}_{os.getpid()}"
        leadership = Leadership(
            client,
            options.lease_namespace,
            identity,
            annotations=lambda: {**config.annotations(), **controller.memory_annotations()},
        )
        logger.info("policy %s, extender on http://%s:%d", options.policy, options.host, options.port)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(watches.run()),
                group.create_task(controller.run(leadership)),
                group.create_task(serve(app, options.host, options.port)),
            ]
            if options.report_port is not None:
                reports = create_report_app(
                    watches.pods.store, watches.jobs.store, inbox, controller.renewals, TokenReviewer(client), metrics
                )
                tasks.append(group.create_task(serve(reports, options.report_host, options.report_port)))
            if options.page_port is not None:
                planning = Planning(
                    inbox.trained,
                    lambda key: planner.estimates.get(key) if inbox.leading else None,
                    lambda key: listing(planner, key, controller.clock()) if inbox.leading else None,
                )
                page = create_page_app(view, watches, client, planning)
                tasks.append(group.create_task(serve(page, options.page_host, options.page_port)))
            if options.metrics_port is not None:
                probes = create_metrics_app(metrics, watches.unsynced)
                tasks.append(group.create_task(serve(probes, options.metrics_host, options.metrics_port)))
            tending = group.create_task(freeze_periodically(watches.synced()))
            await _first(stopping, tasks)
            for task in (tending, *tasks):
                task.cancel()


async def _shadow(client: ApiClient, options: Options) -> None:
    intervals = options.shadow_decide_seconds, options.shadow_replay_seconds
    probed = options.metrics_host, options.metrics_port
    await run_shadow(client, options.config(), options.host, options.port, options.shadow_dir, intervals, probed)


async def _first(stopping: asyncio.Event, tasks: list["asyncio.Task[None]"]) -> None:
    """Wait for a stop signal or the end of a task."""
    waiter = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
