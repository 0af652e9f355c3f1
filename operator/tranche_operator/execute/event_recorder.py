"""Kubernetes events about jobs, applied under deterministic names so that equal events are counted, not multiplied."""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tranche.kube.api.names import OPERATOR_MANAGER
from tranche.kube.api.resources import API_VERSION, TrainingJob
from tranche.kube.api.timestamp import rfc3339
from tranche.kube.client.client import ApiClient, ApiError
from tranche_operator import api_paths
from tranche_operator.reconcile.actions import EmitEvent

logger = logging.getLogger(__name__)

REMEMBERED = 4096
SERIES = 16
"""Largest number of series with equal type and reason for the pods of one role of a job."""
_LONGEST_MESSAGE = 1024


@dataclass(slots=True)
class _Series:
    first: datetime
    count: int = 0


class EventRecorder:
    """Writer of events; a failure is logged and otherwise ignored."""

    def __init__(self, client: ApiClient, clock: Callable[[], datetime]) -> None:
        self._client = client
        self._clock = clock
        self._series: OrderedDict[str, _Series] = OrderedDict()

    async def emit(self, job: TrainingJob, event: EmitEvent, at: datetime | None = None, count: int = 1) -> None:
        """Write an event about a job, into the Event object of its series if there is one.

        Args:
            job: The job.
            event: The event.
            at: Time of its last occurrence; None for now.
            count: Number of occurrences since the last event of the series.
        """
        now, name = at or self._clock(), _name(job, event)
        series = self._series.pop(name, None) or _Series(now)
        self._series[name] = series
        while len(self._series) > REMEMBERED:
            self._series.popitem(last=False)
        is_new = series.count == 0
        series.count += count
        try:
            await self._write(job.metadata.namespace, name, _document(job, event, name, series, now), is_new=is_new)
        except ApiError as error:
            logger.warning("%s: cannot write event %s: %s", job.key, event.reason, error)

    async def _write(self, namespace: str, name: str, document: dict[str, Any], *, is_new: bool) -> None:
        """Create an event that this process has not written before: that costs less than to apply it."""
        if is_new:
            params = {"fieldManager": OPERATOR_MANAGER}
            try:
                await self._client.request("POST", api_paths.events(namespace), body=document, params=params)
            except ApiError as error:
                if error.status != 409:
                    raise
            else:
                return
        await self._client.apply(api_paths.event(namespace, name), document, OPERATOR_MANAGER)


def series_of(subject: str) -> str:
    """Return the part of an event's subject that names its series: a pod's name without its attempt.

    A job may have any number of pods over time, and one Event object for each would fill etcd.
    """
    worker = subject.rpartition("-")[0]
    role, _, index = worker.rpartition("-")
    return f"{role}-{int(index) % SERIES}" if index.isascii() and index.isdigit() else worker


def _name(job: TrainingJob, event: EmitEvent) -> str:
    identity = "\0".join((job.metadata.uid, event.type, event.reason, series_of(event.subject)))
    return f"{job.metadata.name}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _document(job: TrainingJob, event: EmitEvent, name: str, series: _Series, now: datetime) -> dict[str, Any]:
    metadata = job.metadata
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": "TrainingJob",
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:_LONGEST_MESSAGE],
        "source": {"component": OPERATOR_MANAGER},
        "reportingComponent": OPERATOR_MANAGER,
        "firstTimestamp": rfc3339(series.first),
        "lastTimestamp": rfc3339(now),
        "count": series.count,
    }
