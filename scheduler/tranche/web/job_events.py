"""Kubernetes events of a job, read from the API server on request and cached for a short time."""

import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import msgspec

from tranche.kube.client.client import ApiError

FRESH_SECONDS = 3.0
"""Time for which the events of a job are cached."""
MAX_CACHED_JOBS = 200
MAX_EVENTS = 100
"""Maximum number of events of one job."""


class Reads(Protocol):
    """The part of `ApiClient` that is used."""

    async def get(self, path: str, **params: str | int) -> bytes:
        """Send a GET request and return the raw body."""


class Occurrence(msgspec.Struct, frozen=True, rename="camel"):
    """One event, as in kubectl describe."""

    at: datetime | None
    type: str
    reason: str
    message: str
    count: int


class _Series(msgspec.Struct, rename="camel"):
    count: int = 0
    last_observed_time: datetime | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime | None = None


class _Event(msgspec.Struct, rename="camel"):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    series: _Series | None = None


class _Events(msgspec.Struct):
    items: list[_Event] = []


_decode = msgspec.json.Decoder(_Events).decode


class Occurrences:
    """Cache of the events of jobs."""

    def __init__(self, client: Reads, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._cache: OrderedDict[str, tuple[float, list[Occurrence]]] = OrderedDict()

    async def of(self, namespace: str, name: str, uid: str) -> list[Occurrence]:
        """Return the latest events of a job, newest first, at most `MAX_EVENTS`.

        Raises:
            ApiError: the API server does not respond.
        """
        cached = self._cache.get(uid)
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        selector = f"involvedObject.kind=TrainingJob,involvedObject.name={name},involvedObject.uid={uid}"
        body = await self._client.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector, limit=500)
        try:
            events = _decode(body).items
        except msgspec.DecodeError as error:
            raise ApiError(502, "Malformed", f"EventList: {error}") from error
        occurrences = sorted(map(_occurrence, events), key=lambda event: event.at.timestamp() if event.at else 0.0)
        self._cache[uid] = (self._clock() + FRESH_SECONDS, occurrences[::-1][:MAX_EVENTS])
        self._cache.move_to_end(uid)
        while len(self._cache) > MAX_CACHED_JOBS:
            self._cache.popitem(last=False)
        return self._cache[uid][1]


def _occurrence(event: _Event) -> Occurrence:
    series = event.series or _Series()
    at = series.last_observed_time or event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    return Occurrence(at, event.type, event.reason, event.message, series.count or event.count or 1)
