"""``tranche extender``: the extender of kube-scheduler alone."""

import asyncio
import logging
from dataclasses import dataclass

import click

from tranche.cli import process_options as common
from tranche.cli.option_types import GPU
from tranche.extender.app import create_app, serve_metrics
from tranche.extender.bind import add_bind
from tranche.extender.view import View
from tranche.kube.api.names import GpuResources
from tranche.kube.client.client import ApiClient
from tranche.live.informers import Informers
from tranche.metrics.scheduler import EXTENDER, Metrics
from tranche.runtime.gc_tuning import freeze_periodically
from tranche.runtime.http_server import serve
from tranche.runtime.log_output import Format, Level, LogSettings
from tranche.runtime.loop_delay import observe_delays

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    """Values of the command line options."""

    kubeconfig: str | None
    host: str
    port: int
    bind: bool
    metrics_host: str
    metrics_port: int | None
    gpu_resources: GpuResources


@click.command()
@common.options(common.KUBECONFIG, common.EXTENDER, common.METRICS, GPU, common.LOG)
def extender(log_level: Level, log_format: Format, **options: object) -> None:
    """Run the extender of kube-scheduler.

    It needs no planner: all that it uses is in the objects of the API server.
    """
    chosen = ExtenderOptions(**options)  # type: ignore[arg-type]
    common.run_process("extender", LogSettings(log_level, log_format), lambda _: _main(chosen))


async def _main(options: ExtenderOptions) -> None:
    async with ApiClient.connect(options.kubeconfig) as client:
        watches = Informers(client, with_quotas=False)
        metrics = Metrics(parts=(EXTENDER,))
        client.observe = metrics.observe_api_request
        view = View(watches, options.gpu_resources)
        app = create_app(watches, metrics, watches.unsynced, options.gpu_resources, view, client.server_time)
        if options.bind:
            add_bind(app, client, metrics)
        logger.info("extender on http://%s:%d", options.host, options.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(watches.run())
            group.create_task(serve(app, options.host, options.port))
            group.create_task(serve_metrics(metrics, watches.unsynced, options.metrics_host, options.metrics_port))
            group.create_task(freeze_periodically(watches.synced()))
            group.create_task(observe_delays(metrics.observe_delay))
