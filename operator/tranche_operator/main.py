"""The command ``tranche-operator``."""

import asyncio
import logging
import signal
import sys

import click

from tranche import __version__
from tranche.kube.client.client import ApiClient, Unreachable
from tranche_operator.app import Operator
from tranche_operator.health_server import serve_health
from tranche_operator.settings import Settings

logger = logging.getLogger(__name__)

_LEVELS = ("debug", "info", "warning", "error")


@click.command(context_settings={"show_default": True, "auto_envvar_prefix": "TRANCHE_OPERATOR"})
@click.option(
    "--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then the pod's service account, then ~/.kube/config."
)
@click.option("--namespace", metavar="NAME|all", default="all", help="Namespace to reconcile, or all.")
@click.option(
    "--health-port", metavar="PORT", type=click.IntRange(1, 65535), help="Port of the probes and of /metrics."
)
@click.option(
    "--checkpoint-dir",
    metavar="PATH",
    default=Settings().checkpoint_directory,
    help="Mount path of the checkpoint volume.",
)
@click.option("--report-url", metavar="URL", default="", help="Address to which training pods report their progress.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", help="Minimum severity of log lines.")
@click.version_option(__version__, prog_name="tranche-operator")
def main(
    kubeconfig: str | None,
    namespace: str,
    health_port: int | None,
    checkpoint_dir: str,
    report_url: str,
    log_level: str,
) -> None:
    """Create, evict and resume the pods of TrainingJobs as tranche-scheduler has planned them.

    Run one replica; a second one is safe but redundant. The operator keeps no local state and can be restarted at any
    time.
    """
    configure_logging(log_level)
    settings = Settings(checkpoint_directory=checkpoint_dir.rstrip("/") or "/", report_url=report_url.rstrip("/"))
    try:
        asyncio.run(run(kubeconfig, None if namespace == "all" else namespace, health_port, settings))
    except Unreachable as error:
        raise click.ClickException(f"no credentials for an API server: {error.message}") from error


async def run(kubeconfig: str | None, namespace: str | None, health_port: int | None, settings: Settings) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises:
        Unreachable: if there are no usable credentials.
        OSError: if the health port is in use.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ApiClient.connect(kubeconfig) as client:
        operator = Operator(client, settings, kubeconfig, namespace)
        async with serve_health(health_port, lambda: operator.obstacle, operator.metrics.render):
            serving = asyncio.create_task(operator.serve())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                stopping.cancel()
                serving.result()
            logger.info("stopping")
            serving.cancel()
            await asyncio.wait([serving])


def configure_logging(level: str) -> None:
    """Log one line per record to stderr, and Kopf's records only from severity warning, except at level debug."""
    form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format=form, force=True)
    if level == "debug":
        return
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
    # It warns that it receives no signals: this process handles them and stops it.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_without_kopfs_traceback)


def _without_kopfs_traceback(record: logging.LogRecord) -> bool:
    """Remove tracebacks from Kopf's records: failed watches restart, and our own record has the reason."""
    if record.name.startswith("kopf."):
        record.exc_info = record.exc_text = None
    return True
