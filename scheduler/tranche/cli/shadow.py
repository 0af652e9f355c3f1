"""``tranche scheduler --shadow``: shadow mode, which writes nothing to the cluster."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tranche.cli import process_options as common
from tranche.extender.app import create_app, serve_metrics
from tranche.kube.client.client import ApiClient
from tranche.live.planner_config import PlannerConfig
from tranche.metrics.scheduler import Metrics
from tranche.replay.jsonl_store import RecordError
from tranche.runtime.http_server import serve
from tranche.runtime.log_output import LogSettings


class ShadowProcess:
    """Shadow mode and its HTTP API, in this process."""

    def __init__(self, options: Mapping[str, Any], directory: Path | None, intervals: tuple[float, float]) -> None:
        """Store the arguments.

        Args:
            options: Values of the options of `tranche scheduler`.
            directory: Directory of the records; None: memory only.
            intervals: Seconds between decisions and between comparisons.
        """
        self._options = options
        self._directory = directory
        self._intervals = intervals
        self._config = PlannerConfig(
            options["policy"],
            options["seed"],
            options["gpu_resources"],
            options["server_idle_seconds"],
            dict(options["share_weights"]),
            gpu_kind_labels=options["gpu_kind_labels"],
            gpu_speeds=dict(options["gpu_speeds"]),
            topology_levels=options["topology_levels"],
            level_bandwidths=options["level_bandwidths"],
        )

    def run(self, log: LogSettings) -> None:
        """Run until a signal arrives."""
        common.run_process("shadow", log, lambda _: self._main(), None, RecordError)

    async def _main(self) -> None:
        """Run forever; read permission for the cluster is sufficient."""
        from tranche.replay.routes import shadow_routes
        from tranche.replay.shadow_scheduler import Shadow, ShadowInformers, ShadowSettings, serves_our_kinds

        options = self._options
        async with ApiClient.connect(options["kubeconfig"]) as client:
            watches = ShadowInformers(client, served=await serves_our_kinds(client))
            metrics = Metrics()
            settings = ShadowSettings(*self._intervals, directory=self._directory)
            shadow = Shadow(watches, self._config, settings, metrics.registry)
            app = create_app(watches, metrics, watches.unsynced, self._config.gpu_resources)
            app.include_router(shadow_routes(shadow))
            async with asyncio.TaskGroup() as group:
                group.create_task(watches.run())
                group.create_task(shadow.run())
                group.create_task(serve(app, options["host"], options["port"]))
                group.create_task(
                    serve_metrics(metrics, watches.unsynced, options["metrics_host"], options["metrics_port"])
                )
