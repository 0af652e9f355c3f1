"""The command ``tranche-operator``."""

import asyncio
import logging
import signal

import click

from tranche import __version__
from tranche.kube.client.client import ApiClient, Unreachable
from tranche.kube.client.leader_election import LeadershipLostError
from tranche.runtime.file_limit import raise_file_limit
from tranche.runtime.log_output import FORMATS, LEVELS, Format, Level, LogSettings, log_to_stderr
from tranche_operator.app import Operator
from tranche_operator.election import Election
from tranche_operator.execute.fair_client import FairClient
from tranche_operator.health_server import serve_health
from tranche_operator.settings import ReportCa, Settings

logger = logging.getLogger(__name__)


@click.command(context_settings={"show_default": True, "auto_envvar_prefix": "TRANCHE_OPERATOR"})
@click.option(
    "--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then the pod's service account, then ~/.kube/config."
)
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
@click.option(
    "--report-ca-config-map",
    metavar="NAME",
    help="ConfigMap in --lease-namespace with the CA certificates of --report-url, which pods receive.",
)
@click.option(
    "--lease-namespace",
    metavar="NAME",
    help="Namespace of the leader election Lease; of several replicas, one reconciles [default: no election].",
)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", help="Minimum severity of log lines.")
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    help="Form of log lines: text, or one JSON object for each line.",
)
@click.version_option(__version__, prog_name="tranche-operator")
def main(
    kubeconfig: str | None,
    health_port: int | None,
    checkpoint_dir: str,
    report_url: str,
    report_ca_config_map: str | None,
    lease_namespace: str | None,
    log_level: Level,
    log_format: Format,
) -> None:
    """Create, evict and resume the pods of TrainingJobs as tranche-scheduler has planned them.

    With --lease-namespace, further replicas wait until the one that reconciles ends. Without it, run one replica; a
    second one is safe but redundant. The operator keeps no local state and can be restarted at any time.
    """
    configure_logging(LogSettings(log_level, log_format))
    raise_file_limit()
    if report_ca_config_map and not lease_namespace:
        raise click.UsageError("--report-ca-config-map needs --lease-namespace")
    settings = Settings(
        checkpoint_directory=checkpoint_dir.rstrip("/") or "/",
        report_url=report_url.rstrip("/"),
        report_ca=ReportCa() if report_ca_config_map else None,
        report_ca_source=(lease_namespace or "", report_ca_config_map) if report_ca_config_map else None,
    )
    try:
        asyncio.run(run(kubeconfig, health_port, settings, lease_namespace))
    except LeadershipLostError as error:
        raise click.ClickException(f"another operator reconciles now: {error}") from None
    except Unreachable as error:
        raise click.ClickException(f"no credentials for an API server: {error.message}") from error


async def run(
    kubeconfig: str | None,
    health_port: int | None,
    settings: Settings,
    lease_namespace: str | None = None,
) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises:
        Unreachable: if there are no usable credentials.
        LeadershipLostError: if another replica holds the Lease.
        OSError: if the health port is in use.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # The Lease has connections of its own, so that no number of other requests delays its renewal.
    async with FairClient.connect(kubeconfig) as client, ApiClient.connect(kubeconfig) as lease_client:
        operator = Operator(client, settings, kubeconfig)
        lease_client.observe = client.observe
        election = Election(lease_client, lease_namespace) if lease_namespace else None

        def obstacle() -> str:
            return "" if election is not None and election.is_standby else operator.obstacle

        async with serve_health(health_port, obstacle, operator.metrics.render):
            serving = asyncio.create_task(election.run(operator.serve) if election is not None else operator.serve())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                stopping.cancel()
                serving.result()
            logger.info("stopping")
            serving.cancel()
            await asyncio.wait([serving])


def configure_logging(settings: LogSettings) -> None:
    """Log one line per record to stderr, and Kopf's records only from severity warning, except at level debug."""
    log_to_stderr("operator", settings)
    if settings.level == "debug":
        return
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLevelName(settings.level.upper())))
    # It warns that it receives no signals: this process handles them and stops it.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_without_kopfs_traceback)


def _without_kopfs_traceback(record: logging.LogRecord) -> bool:
    """Remove tracebacks from Kopf's records: failed watches restart, and our own record has the reason."""
    if record.name.startswith("kopf."):
        record.exc_info = record.exc_text = None
    return True
