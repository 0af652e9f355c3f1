"""``tranche scheduler --shadow``: shadow mode, which writes nothing to the cluster."""

import asyncio
from pathlib import Path

from tranche.extender.app import create_app, create_metrics_app
from tranche.kube.client.client import ApiClient
from tranche.live.lease_annotations import PlannerConfig
from tranche.metrics.scheduler import Metrics
from tranche.runtime.http_server import serve


async def run_shadow(
    client: ApiClient,
    config: PlannerConfig,
    host: str,
    port: int,
    directory: Path | None,
    intervals: tuple[float, float],
    probed: tuple[str, int | None],
) -> None:
    """Run shadow mode and its HTTP API forever.

    Args:
        client: Client of the cluster; read permission is sufficient.
        config: Planner configuration.
        host: Listen address of the read API.
        port: Port of the read API.
        directory: Directory of the records; None: memory only.
        intervals: Seconds between decisions and between comparisons.
        probed: Listen address and port of probes and metrics; no port: not served separately.

    Raises:
        RecordError: the records cannot be read or written.
    """
    from tranche.replay.routes import shadow_routes
    from tranche.replay.shadow_scheduler import Shadow, ShadowInformers, ShadowSettings, serves_our_kinds

    watches = ShadowInformers(client, served=await serves_our_kinds(client))
    metrics = Metrics()
    shadow = Shadow(watches, config, ShadowSettings(*intervals, directory=directory), metrics.registry)
    app = create_app(watches, metrics, watches.unsynced, config.gpu_resource)
    app.include_router(shadow_routes(shadow))
    async with asyncio.TaskGroup() as group:
        group.create_task(watches.run())
        group.create_task(shadow.run())
        group.create_task(serve(app, host, port))
        if probed[1] is not None:
            group.create_task(serve(create_metrics_app(metrics, watches.unsynced), probed[0], probed[1]))
