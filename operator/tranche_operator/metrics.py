"""Prometheus metrics of an operator process. Labels are bounded: no label has a job's name."""

from collections.abc import Callable, Coroutine
from typing import Any

from tranche.kube.api.names import ROLE_CHIEF, ROLE_SERVER, ROLE_STAGING, ROLE_WORKER
from tranche.metrics.process import ProcessMetrics

RECONCILE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
ROLES = (ROLE_WORKER, ROLE_SERVER, ROLE_CHIEF, ROLE_STAGING)
OTHER = "other"
"""Role of pods that are not named as pods of jobs are."""
RESULTS = ("created", "evicted", "deleted", "refused")
"""Results of requests for pods; refused: by the API server, or an eviction by a disruption budget."""


class OperatorMetrics(ProcessMetrics):
    """All metrics of one operator process."""

    def __init__(
        self, waiting: Callable[[], int] = int, ready: Callable[[], bool] = bool, stuck: Callable[[], int] = int
    ) -> None:
        """Define the metrics.

        Args:
            waiting: Returns the number of jobs that are being reconciled or are queued.
            ready: Returns whether the operator follows plans.
            stuck: Returns the number of pods that hold their resources after their grace period.
        """
        super().__init__("operator")
        self._reconcile = self.histogram(
            "tranche_operator_reconcile_seconds", "Duration of one reconcile of one job.", (), RECONCILE_BUCKETS
        )
        self._errors = self.counter(
            "tranche_operator_reconcile_errors_total", "Reconciles that failed and are retried."
        )
        text = "Pods that the operator created, evicted or deleted, and requests for pods that were refused."
        self._pods = self.counter("tranche_operator_pods_total", text, ("role", "result"), ROLES, RESULTS)
        text = "Jobs that are being reconciled or are queued."
        self.computed("gauge", "tranche_operator_queue_jobs", text, (), lambda: [((), waiting())])
        text = "1 if the operator follows plans, 0 while it waits for the API server or the CRD."
        self.computed("gauge", "tranche_operator_ready", text, (), lambda: [((), ready())])
        text = "Pods of jobs that have not stopped 15 s after their grace period, and hold their resources."
        self.computed("gauge", "tranche_operator_pods_not_stopping", text, (), lambda: [((), stuck())])

    def count_pod(self, role: str, result: str) -> None:
        """Count the result of one request for a pod. Without the admission policies, users choose names of pods."""
        self._pods.labels(role if role in ROLES else OTHER, result).inc()

    async def measure(self, reconcile: Coroutine[Any, Any, float | None]) -> float | None:
        """Await one reconcile, measure its duration, and count and raise its failure."""
        with self._reconcile.time():
            try:
                return await reconcile
            except Exception:
                self._errors.inc()
                raise
