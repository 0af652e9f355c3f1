"""``tranche scheduler --shadow``: watches, plans on paper, and writes nothing to the cluster."""

import asyncio
from pathlib import Path

from tranche.extender.apps import create_app, create_metrics_app
from tranche.extender.servers import serve
from tranche.kube.clients import ApiClient
from tranche.kube.metrics import Metrics
from tranche.live.choices import PlannerConfig


async def run_shadow(
    client: ApiClient,
    choice: PlannerConfig,
    host: str,
    port: int,
    directory: Path | None,
    intervals: tuple[float, float],
    probed: tuple[str, int | None],
) -> None:
    """Serve and watch for ever.

    Args:
        client: Of the cluster; it need only read.
        choice: The planner that would decide.
        host: Address of the read API.
        port: Of the read API.
        directory: Of the records, if they are to outlive the process.
        intervals: Seconds between decisions, and between comparisons.
        probed: Address and port of probes and metrics alone, if there is one.

    Raises:
        RecordError: the records cannot be read or written.
    """
    from tranche.shadow.routes import shadow_routes
    from tranche.shadow.watchers import Shadow, ShadowInformers, ShadowSettings, serves_our_kinds

    watches = ShadowInformers(client, served=await serves_our_kinds(client))
    metrics = Metrics()
    shadow = Shadow(watches, choice, ShadowSettings(*intervals, directory=directory), metrics.registry)
    app = create_app(watches, metrics, watches.unsynced, choice.gpu_resource)
    app.include_router(shadow_routes(shadow))
    async with asyncio.TaskGroup() as group:
        group.create_task(watches.run())
        group.create_task(shadow.run())
        group.create_task(serve(app, host, port))
        if probed[1] is not None:
            group.create_task(serve(create_metrics_app(metrics, watches.unsynced), probed[0], probed[1]))
