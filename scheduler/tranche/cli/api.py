"""``tranche api``: the report API, the web page and the read API."""

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click

from tranche.auth.certificate_keeper import CaPublisher, CertificateKeeper
from tranche.auth.pod_token import TokenReviewer
from tranche.auth.report_certificate import CA_FILE, CERTIFICATE_FILE, KEY_FILE, validity
from tranche.cli import process_options as common
from tranche.cli.option_types import GPU
from tranche.extender.app import serve_metrics
from tranche.extender.view import View
from tranche.kube.api.names import GpuResources
from tranche.kube.client.client import ApiClient
from tranche.live.informers import Informers
from tranche.metrics.scheduler import API, Metrics
from tranche.planner_api.client import CONNECTIONS, PlannerClient
from tranche.planner_api.leader_address import LeaderAddress
from tranche.planner_api.peer_token import PeerToken
from tranche.runtime.connection_guard import ConnectionLimits
from tranche.runtime.file_limit import RESERVED, raise_file_limit
from tranche.runtime.gc_tuning import freeze_periodically
from tranche.runtime.http_server import serve
from tranche.runtime.log_output import Format, Level, LogSettings
from tranche.runtime.server_tls import ServerTls
from tranche.web.app import Planning, create_page_app
from tranche.worker_api.app import create_report_app

logger = logging.getLogger(__name__)
MEMORY = "/dev/shm"  # noqa: S108 - the directory in it has a random name and is this user's only
"""File system in memory, so that the private key is not written to the node's disk."""


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Values of the command line options."""

    kubeconfig: str | None
    report_host: str
    report_port: int | None
    report_tls_secret: str | None
    report_tls_dir: Path | None
    report_http_port: int | None
    report_tls_hosts: tuple[str, ...]
    page_host: str
    page_port: int | None
    page_actions: bool
    page_what_if: bool
    planner_token_file: Path | None
    metrics_host: str
    metrics_port: int | None
    gpu_resources: GpuResources
    lease_namespace: str
    connections: int
    connections_per_peer: int


@click.command()
@common.options(
    common.KUBECONFIG,
    common.API,
    click.option(
        "--planner-token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File with a service account token for the audience planner.tranche.dev "
        "[default: the environment variable TRANCHE_PLANNER_KEY].",
    ),
    click.option(
        "--connections",
        default=ConnectionLimits().total,
        show_default=True,
        type=click.IntRange(8),
        help="Maximum number of connections to each port.",
    ),
    click.option(
        "--connections-per-peer",
        default=ConnectionLimits().per_peer,
        show_default=True,
        type=click.IntRange(4),
        help="Maximum number of connections of one address to each port.",
    ),
    common.METRICS,
    GPU,
    common.LEASE_NAMESPACE,
    common.LOG,
)
def api(log_level: Level, log_format: Format, **options: object) -> None:
    """Run the report API, the web page and the read API.

    Reports are passed to the leader's planner, whichever replica that is.
    """
    chosen = ApiOptions(**options)  # type: ignore[arg-type]
    common.run_process("api", LogSettings(log_level, log_format), lambda _: _main(chosen))


async def _main(options: ApiOptions) -> None:
    requested = ConnectionLimits(options.connections, options.connections_per_peer)
    limits = requested.within((raise_file_limit() - RESERVED) // 3)
    with ExitStack() as cleanup:
        await _run(options, limits, cleanup)


async def _run(options: ApiOptions, limits: ConnectionLimits, cleanup: ExitStack) -> None:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with (
        ApiClient.connect(options.kubeconfig) as client,
        aiohttp.ClientSession(connector=connector, trust_env=False) as session,
    ):
        watches = Informers(client, with_quotas=False)
        metrics = Metrics(parts=(API,))
        client.observe = metrics.observe_api_request
        for kind, watch in watches:
            metrics.add_watch(kind, watch)
        leader = LeaderAddress(client, options.lease_namespace)
        planner = PlannerClient(session, leader, PeerToken(options.planner_token_file))
        tls: ServerTls | None = None
        async with asyncio.TaskGroup() as group:
            group.create_task(watches.run())
            group.create_task(planner.run())
            if options.report_port is not None:
                pods, jobs = watches.pods.store, watches.jobs.store
                reports = create_report_app(pods, jobs, planner, TokenReviewer(client), metrics)
                tls, coroutines = _report_tls(
                    client,
                    options.lease_namespace,
                    options.report_tls_secret,
                    options.report_tls_dir,
                    options.report_tls_hosts,
                    cleanup,
                )
                metrics.set_certificate(lambda: certificate_times(tls))
                for coroutine in coroutines:
                    group.create_task(coroutine)
                group.create_task(serve(reports, options.report_host, options.report_port, limits=limits, tls=tls))
                if options.report_http_port is not None:
                    group.create_task(serve(reports, options.report_host, options.report_http_port, limits=limits))
            if options.page_port is not None:
                planning = Planning(
                    progress=planner.progress,
                    expected=planner.expected,
                    trained=planner.trained,
                    windows=planner.planned_windows,
                    chunk_windows=planner.chunk_windows,
                    refresh=planner.refresh,
                    responds=lambda: planner.responds,
                    what_if=planner.what_if if options.page_what_if else None,
                )
                page = create_page_app(
                    View(watches, options.gpu_resources), watches, client, planning, actions=options.page_actions
                )
                group.create_task(serve(page, options.page_host, options.page_port, limits=limits))
            group.create_task(
                serve_metrics(metrics, unready(watches.unsynced, tls), options.metrics_host, options.metrics_port)
            )
            group.create_task(freeze_periodically(watches.synced()))


def unready(unsynced: Callable[[], list[str]], tls: ServerTls | None) -> Callable[[], list[str]]:
    """Return the function that names what /readyz waits for.

    Args:
        unsynced: Names the watches that are not synchronized.
        tls: TLS of the report API; None for HTTP.
    """
    return lambda: [*unsynced(), *(["certificate"] if tls is not None and not tls.is_loaded else [])]


def certificate_times(tls: ServerTls | None) -> list[tuple[float, float]]:
    """Return from when and until when the certificate is valid, in Unix time; nothing without a certificate."""
    if tls is None or not tls.is_loaded:
        return []
    try:
        begin, end = validity(tls.certificate)
    except ValueError:  # OpenSSL accepts more certificates
        return []
    return [(begin.timestamp(), end.timestamp())]


def _report_tls(
    client: ApiClient,
    namespace: str,
    secret: str | None,
    directory: Path | None,
    hosts: tuple[str, ...],
    stack: ExitStack,
) -> tuple[ServerTls | None, list[Coroutine[Any, Any, None]]]:
    """Return the TLS of the report API, None for HTTP, and coroutines to run beside the server.

    Args:
        client: Client of the API server.
        namespace: Namespace of the Secret and of the ConfigMap with the CA.
        secret: Value of --report-tls-secret.
        directory: Value of --report-tls-dir.
        hosts: Values of --report-tls-host.
        stack: Removes the private files at its end.

    Raises:
        UsageError: the options contradict each other.
    """
    if secret is not None and directory is not None:
        raise click.UsageError("--report-tls-secret and --report-tls-dir exclude each other")
    if directory is not None:
        following = CaPublisher(client, namespace).follow(directory / CA_FILE)
        return ServerTls(directory / CERTIFICATE_FILE, directory / KEY_FILE), [following]
    if secret is None:
        return None, []
    if not hosts:
        raise click.UsageError("--report-tls-secret needs --report-tls-host")
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tranche-tls-", dir=memory)))
    keeper = CertificateKeeper(client, namespace, secret, hosts, private)
    return ServerTls(private / CERTIFICATE_FILE, private / KEY_FILE), [keeper.run()]
