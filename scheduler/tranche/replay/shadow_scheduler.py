"""Shadow mode: records training under other schedulers, decisions of the planner, and replays under its policy."""

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import Gauge
from prometheus_client.registry import CollectorRegistry

from tranche.kube.client.client import ApiClient
from tranche.kube.client.errors import ApiError
from tranche.kube.client.reflector import Reflector
from tranche.live.informers import API, Informers
from tranche.live.planner_config import PlannerConfig
from tranche.replay.export import Export, export_of
from tranche.replay.jsonl_store import Records
from tranche.replay.pod_archive import PodArchive, decode_watched_pod
from tranche.replay.pod_history import is_foreign
from tranche.replay.replay import ReplayError, ReplaySettings, facts_of, replay
from tranche.replay.shadow_planner import Decision, decide
from tranche.simulation.cluster_spec import ClusterSpec

logger = logging.getLogger(__name__)

MAX_DECISIONS = 20_000


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """Settings of shadow mode."""

    decide_seconds: float = 60.0
    """Time between two decisions."""
    replay_seconds: float = 3600.0
    """Time between two comparisons."""
    baseline: str = "fifo"
    directory: Path | None = None
    """Directory of the records; None: memory only."""


class ShadowInformers(Informers):
    """Watches with all fields of foreign pods; without TrainingJobs and Sites if their CRDs are not installed."""

    def __init__(self, client: ApiClient, *, served: bool) -> None:
        super().__init__(client, decode_watched_pod)
        self._served = served

    def __iter__(self) -> Iterator[tuple[str, Reflector[Any]]]:
        ours = () if self._served else ("jobs", "sites")
        yield from ((kind, reflector) for kind, reflector in super().__iter__() if kind not in ours)

    def by_kind(self, kind: str) -> Reflector[Any]:
        """Return the reflector of a kind, whether it runs or not."""
        reflector: Reflector[Any] = getattr(self, kind)
        return reflector


async def serves_our_kinds(client: ApiClient) -> bool:
    """Return whether the CRDs are installed.

    Raises:
        ApiError: the API server does not respond.
    """
    try:
        await client.get(API)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


class Shadow:
    """Shadow scheduler: it only watches, and writes nothing to the cluster."""

    def __init__(
        self,
        watches: ShadowInformers,
        config: PlannerConfig,
        settings: ShadowSettings,
        registry: CollectorRegistry,
    ) -> None:
        """Read the records of an earlier process.

        Args:
            watches: Watches of the cluster, run by the caller.
            config: Planner configuration for decisions and replays.
            settings: Intervals and directory.
            registry: Metrics registry of the process.

        Raises:
            RecordError: the records cannot be read.
        """
        self._watches = watches
        self._config = config
        self._settings = settings
        folder = settings.directory
        self._archive = PodArchive(config.gpu_resources, time.time, folder / "pods.jsonl" if folder else None)
        path = folder / "decisions.jsonl" if folder else None
        self.decisions = Records(Decision, MAX_DECISIONS, path)
        self._last: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.comparison: dict[str, Any] = {}
        """Last comparison, as from ``tranche replay --format json``; empty before the first one."""
        self.problem = "no comparison has been made yet"
        """Reason if there is no comparison."""
        self._completion = Gauge(
            "tranche_shadow_completion_seconds",
            "Actual and replayed job completion times, over the same jobs.",
            ["fate", "statistic"],
            registry=registry,
        )
        self._jobs = Gauge("tranche_shadow_jobs", "Jobs counted in the last comparison.", registry=registry)
        watches.pods.subscribe(self._archive.note)

    async def run(self) -> None:
        """Decide and compare periodically, forever."""
        await self._watches.synced()
        logger.info("shadow mode: this process does not write to the cluster")
        decided = compared = float("-inf")
        while True:
            now = time.monotonic()
            if now - decided >= self._settings.decide_seconds:
                decided = now
                self.decide()
            if now - compared >= self._settings.replay_seconds:
                compared = now
                await asyncio.to_thread(self.compare, self.export())
            due = min(decided + self._settings.decide_seconds, compared + self._settings.replay_seconds)
            await asyncio.sleep(max(0.05, due - time.monotonic()))

    def decide(self) -> None:
        """Record the decision for each waiting job if it differs from the last recorded one."""
        decisions = decide(self._watches.objects, self._config, time.time())
        for decision in decisions:
            essence = (decision.decision, tuple(decision.nodes))
            if self._last.get(decision.job) != essence:
                self.decisions.add(decision)
        self._last = {decision.job: (decision.decision, tuple(decision.nodes)) for decision in decisions}

    def export(self) -> Export | None:
        """Export the archived and current pods; None if nothing has trained."""
        gpu_resources = self._config.gpu_resources
        present = [
            pod
            for pod in self._watches.pods.store.values()
            if is_foreign(pod, gpu_resources) and not self._archive.contains(pod)
        ]
        return export_of(
            [*self._archive.pods(), *present],
            list(self._watches.nodes.store.values()),
            dict(self._watches.sites.store),
            time.time(),
            gpu_resources,
        )

    def compare(self, export: Export | None) -> None:
        """Replay an export under the baseline and the configured policy; runs in a thread."""
        if export is None:
            self.problem = "no pod with GPUs has run yet"
            return
        cluster = ClusterSpec("the nodes of the cluster", export.nodes, export.sites)
        settings = ReplaySettings((self._settings.baseline, self._config.policy))
        try:
            result = replay(export, cluster, settings)
        except ReplayError as error:
            self.problem = str(error)
            return
        self.comparison, self.problem = facts_of(result, export, cluster.name), ""
        self._jobs.set(result.counted)
        for row in result.rows:
            summary = row.summary
            self._completion.labels(row.label, "average").set(summary.average_jct_seconds)
            self._completion.labels(row.label, "median").set(summary.median_jct_seconds)
            self._completion.labels(row.label, "p95").set(summary.p95_jct_seconds)
