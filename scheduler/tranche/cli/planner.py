"""``tranche planner``: the planner alone, and its internal API."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import click

from tranche.cli import process_options as common
from tranche.cli.option_types import GPU
from tranche.extender.app import serve_metrics
from tranche.kube.api.names import GpuResources
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiClient
from tranche.kube.client.leader_election import Leadership, LeadershipLostError
from tranche.kube.convert.tenancy import TenancyDirectory
from tranche.live.controller import Controller
from tranche.live.informers import Informers
from tranche.live.job_events import submission
from tranche.live.journal_file import JournalError, journal
from tranche.live.lease_annotations import config_annotation
from tranche.live.planner_config import PlannerConfig
from tranche.live.settings import ControllerSettings
from tranche.metrics.scheduler import PLANNER, Metrics, count_jobs
from tranche.model import WhatIf
from tranche.planner import HealthSettings, Planner
from tranche.planner.forecast.chunk_windows import listing
from tranche.planner.forecast.planned_window import planned_windows
from tranche.planner.forecast.what_if import what_if
from tranche.planner.journal import Fact
from tranche.planner_api.app import PlannerViews, create_planner_app
from tranche.planner_api.leader_address import ANNOTATION
from tranche.planner_api.messages import ExpectedPlace, Outlook, Trained
from tranche.planner_api.peer_token import PeerGate
from tranche.planner_api.receiver import PlannerReceiver
from tranche.runtime.connection_guard import ConnectionLimits
from tranche.runtime.file_limit import RESERVED, raise_file_limit
from tranche.runtime.gc_tuning import freeze_periodically
from tranche.runtime.http_server import serve
from tranche.runtime.log_output import Format, Level, LogSettings

logger = logging.getLogger(__name__)
ACCOUNT = "tranche-scheduler"
"""Service account of the processes of the scheduler."""
CONNECTIONS = ConnectionLimits(total=1024, per_peer=256)
"""Limits of the planner API; the API process of each replica opens up to 200 connections."""
MAX_WINDOWS = 5000
"""Maximum number of windows of the forecast that the web page receives."""


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """Values of the command line options."""

    kubeconfig: str | None
    planner_host: str
    planner_port: int
    api_account: str | None
    identity: str | None
    policy: str
    share_weights: dict[str, float]
    gpu_kind_labels: tuple[str, ...]
    gpu_speeds: dict[str, float]
    topology_levels: tuple[str, ...]
    level_bandwidths: tuple[float, ...]
    tenancy_dir: Path | None
    seed: int
    estimate_seconds: float
    server_idle_seconds: float
    start_error_seconds: float
    image_pull_seconds: float
    pod_start_seconds: float
    verdict_seconds: float
    node_health_jobs: int
    node_exclusion_seconds: float
    node_exclusion_max_seconds: float
    node_exclusion_share: float
    validate: bool
    journal: Path | None
    metrics_host: str
    metrics_port: int | None
    gpu_resources: GpuResources
    lease_namespace: str

    def config(self) -> PlannerConfig:
        """Return the planner configuration."""
        return PlannerConfig(
            self.policy,
            self.seed,
            self.gpu_resources,
            self.server_idle_seconds,
            dict(self.share_weights),
            gpu_kind_labels=self.gpu_kind_labels,
            gpu_speeds=dict(self.gpu_speeds),
            topology_levels=self.topology_levels,
            level_bandwidths=self.level_bandwidths,
            health=HealthSettings(
                jobs=self.node_health_jobs,
                first_seconds=self.node_exclusion_seconds,
                longest_seconds=self.node_exclusion_max_seconds,
                site_share=self.node_exclusion_share,
            ),
        )

    def settings(self) -> ControllerSettings:
        """Return the settings of the controller."""
        return ControllerSettings(
            self.gpu_resources,
            self.estimate_seconds,
            start_error_seconds=self.start_error_seconds,
            image_pull_seconds=self.image_pull_seconds,
            pod_start_seconds=self.pod_start_seconds,
            provisioning_seconds=self.verdict_seconds,
        )


@click.command()
@common.options(
    common.KUBECONFIG,
    common.PLANNER,
    click.option(
        "--api-account",
        metavar="NAMESPACE:NAME",
        help="Service account of the API processes [default: tranche-scheduler in the namespace of the Lease].",
    ),
    click.option("--identity", hidden=True, help="Name of this candidate in the leader election."),
    common.METRICS,
    GPU,
    common.LEASE_NAMESPACE,
    common.LOG,
)
def planner(log_level: Level, log_format: Format, **options: object) -> None:
    """Run the planner.

    Of all replicas, the one that holds the Lease plans. Its address is on the Lease, so that the API processes find it.
    """
    chosen = PlannerOptions(**options)  # type: ignore[arg-type]
    log = LogSettings(log_level, log_format)
    note = journal(chosen.journal) if chosen.journal else nullcontext(None)
    try:
        common.run_process("planner", log, lambda fact: _main(chosen, fact), note, JournalError)
    except (ExceptionGroup, LeadershipLostError) as fault:
        cause = common.expected_cause(fault, LeadershipLostError)
        if cause is None:
            raise
        raise click.ClickException(f"this planner is not the leader any more: {cause}") from None


async def _main(options: PlannerOptions, note: Callable[[Fact], None] | None) -> None:
    async with ApiClient.connect(options.kubeconfig) as client:
        watches = Informers(client)
        metrics = Metrics(parts=(PLANNER,))
        client.observe = metrics.observe_api_request
        for kind, watch in watches:
            metrics.add_watch(kind, watch)
        count_jobs(metrics, watches.jobs.subscribe)
        tenancy = TenancyDirectory(options.tenancy_dir)
        config = options.config().limited(tenancy.current)
        planner = config.planner(note, validate=options.validate, requires_admission=True)
        controller = Controller(client, watches, planner, metrics, options.settings(), tenancy=tenancy)
        address: dict[str, str] = {}

        def listening(port: int) -> None:
            host = f"[{options.planner_host}]" if ":" in options.planner_host else options.planner_host
            address[ANNOTATION] = f"http://{host}:{port}"

        leadership = Leadership(
            client,
            options.lease_namespace,
            options.identity or f"{socket.gethostname()}_{os.getpid()}",
            annotations=lambda: {
                **config_annotation(config.limited(tenancy.current)),
                **controller.learned_annotations(),
                **address,
            },
        )
        gate = PeerGate(client, options.api_account or f"{options.lease_namespace}:{ACCOUNT}")
        receiver = PlannerReceiver(controller.reports, controller.chunk_requests)
        app = create_planner_app(receiver, _views(controller, planner, options.gpu_resources), gate, watches.unsynced)
        limits = CONNECTIONS.within(raise_file_limit() - RESERVED)
        logger.info("policy %s", options.policy)
        async with asyncio.TaskGroup() as group:
            group.create_task(watches.run())
            group.create_task(controller.run(leadership))
            group.create_task(
                serve(app, options.planner_host, options.planner_port, listening=listening, limits=limits)
            )
            group.create_task(serve_metrics(metrics, watches.unsynced, options.metrics_host, options.metrics_port))
            group.create_task(freeze_periodically(watches.synced()))


def _views(controller: Controller, planner: Planner, gpu_resources: GpuResources) -> PlannerViews:
    def outlook() -> Generator[None, None, Outlook]:
        waiting = ((key, estimate) for key, estimate in planner.estimates.items() if estimate.site)
        places = {key: ExpectedPlace(estimate.site, estimate.node) for key, estimate in waiting}
        trained: dict[str, Trained] = {}
        for key in [key for key, state in planner.cluster.jobs.items() if state.runs]:
            yield
            if (progress := controller.reports.training_progress(key)) is not None:
                trained[key] = Trained(progress.batches, progress.total_batches, progress.estimated)
        return Outlook(places, trained, (yield from planned_windows(planner, MAX_WINDOWS)))

    def what_if_of(body: bytes) -> Generator[None, None, WhatIf]:
        submitted = submission(TrainingJob.model_validate_json(body), gpu_resources)
        return (yield from what_if(planner.context, planner.blank, submitted, controller.clock()))

    return PlannerViews(
        controller.reports.training_progress,
        outlook,
        lambda key: listing(planner, key, controller.clock()),
        what_if_of,
    )
