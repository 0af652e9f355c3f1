"""Kopf handlers. They only store a changed TrainingJob and enqueue its key.

They use no index (its start-up is quadratic), no handler that needs a finalizer or an annotation, and no events of
Kopf's own. Kopf runs in a thread with its own event loop, which is its documented way of being embedded: when it stops
or fails, it cancels all tasks on its loop.

`JobEventFilter` selects the watch events that change an input of `reconcile`. Every write to a job's status, also by
the operator itself, causes an event, and each relevant event costs a reconcile. The next resync finds what the filter
misses. (`tranche_operator.watch.pod_cache` filters the events of pods.)
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import aiohttp
import kopf

from tranche.kube.api.resources import GROUP, VERSION
from tranche.kube.client.credentials import Credentials
from tranche.model import without_moments

_MOMENTS = ("phase", "startTime", "completionTime")
"""Fields of the status that the operator writes and that its timers depend on."""


_STAMP_AND_ESTIMATES = frozenset(
    {"term", "revision", "attempts", "estimatedStart", "estimatedCompletion", "startInterval", "completionInterval"}
    | {"homes", "explanation", "workers"}
)
_TIMES_AND_CHUNKS = frozenset({"start", "end", "chunks", "renewed"})


class JobEventFilter:
    """Event predicate that keeps, for each job, the fields that `reconcile` reads."""

    def __init__(self) -> None:
        self._seen: dict[str, object] = {}

    def clear(self) -> None:
        """Forget all jobs: the watch restarts, and jobs may have been deleted in between."""
        self._seen.clear()

    def is_relevant(self, job: Mapping[str, Any], *, gone: bool) -> bool:
        """Return whether a TrainingJob is new, being deleted or deleted, or has another spec, plan, end or phase."""
        meta, status = job["metadata"], job.get("status", {})
        moments = tuple(status.get(field) for field in _MOMENTS)
        planned, progress = _planned(status.get("plan", {})), status.get("progress", {})
        counted = (progress.get("done"), progress.get("failures"))
        looks = (meta.get("generation"), meta.get("deletionTimestamp"), planned, counted, moments)
        if gone:
            self._seen.pop(meta["uid"], None)
            return True
        before = self._seen.get(meta["uid"])
        self._seen[meta["uid"]] = looks
        return before != looks


def _planned(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan without what changes no pod: its stamp, its estimates, and what running pods train when.

    The explanation counts, without its times, while no worker is planned: then an event says it.
    """
    kept = {field: value for field, value in plan.items() if field not in _STAMP_AND_ESTIMATES}
    workers = [
        {field: value for field, value in one.items() if field not in _TIMES_AND_CHUNKS}
        for one in plan.get("workers", ())
    ]
    return kept | {"workers": workers, "waits": "" if workers else without_moments(plan.get("explanation", ""))}


CONVENTION = f"operator.{GROUP}"
"""Prefix of Kopf's annotations and finalizers; none of our handlers makes Kopf write them."""
LOGIN_RETRY_SECONDS = 5.0
MIN_WATCH_SECONDS = 1.0
"""Time between the begins of two watches: Kopf begins the next one without a pause when the server ends one."""
LONGEST_RETRY_AFTER_SECONDS = 60
"""Longest pause between two requests of Kopf that a response may ask for; a proxy may set it to any value."""


class Backoffs:
    """Endless pauses between Kopf's retries of one request, so that it waits for an absent API server."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.5, 1.0, 2.0, 4.0), itertools.repeat(8.0))


class NoDiffBase(kopf.DiffBaseStorage):
    """Storage that keeps nothing: ``on.event`` handlers need no diffs, and a copy of every object costs memory."""

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        """Return an empty essence."""
        return kopf.BodyEssence({})

    def fetch(self, *, body: kopf.Body) -> None:
        """Return None: nothing is stored."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


def make_settings() -> kopf.OperatorSettings:
    """Return Kopf's settings (decision 14)."""
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = None  # it would kill our whole process
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True  # needs no access to namespaces and CRDs
    settings.queueing.exit_timeout = 0.2
    settings.queueing.idle_timeout = 1.0
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 10.0
    settings.networking.error_backoffs = Backoffs()
    settings.persistence.finalizer = f"{CONVENTION}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=CONVENTION)
    settings.persistence.diffbase_storage = NoDiffBase()
    return settings


def make_registry(
    kubeconfig: str | None,
    on_job: Callable[[str, Mapping[str, Any], bool, bool], None],
    on_listing: Callable[[], None],
) -> kopf.OperatorRegistry:
    """Register the handlers.

    Args:
        kubeconfig: As for `Credentials.load`.
        on_job: Called with the key of a changed job, the job, whether it is gone, and whether the change is relevant.
        on_listing: Called when a watch restarts with a list, because events may have been missed.
    """
    registry, job_filter = kopf.OperatorRegistry(), JobEventFilter()

    @kopf.on.login(registry=registry, backoff=LOGIN_RETRY_SECONDS)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return await open_session(kubeconfig)

    @kopf.on.event(GROUP, VERSION, "trainingjobs", registry=registry)
    async def note_job(event: kopf.RawEvent, namespace: str | None, name: str, **_: Any) -> None:
        if event["type"] is None:
            job_filter.clear()
            on_listing()
            return
        job, gone = event["object"], event["type"] == "DELETED"
        on_job(f"{namespace}/{name}", job, gone, job_filter.is_relevant(job, gone=gone))

    return registry


async def open_session(kubeconfig: str | None) -> kopf.AiohttpSession:
    """Open Kopf's connection with the operator's credentials; Kopf requests a new one after a 401.

    It also does when it finds the session closed, as after a certificate that the known CA has not signed: the CA may
    have been replaced. Kopf would wait for any time that a 429 names, and end at one that is no number; after a failed
    connection, it waits as `Backoffs` says.

    Raises:
        Unreachable: if there are no usable credentials.
    """
    credentials = await Credentials.load(kubeconfig)
    connection, began = credentials.connection, float("-inf")

    async def authorize(
        request: aiohttp.ClientRequest,
        send: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]],
    ) -> aiohttp.ClientResponse:
        nonlocal began
        if "watch" in request.url.query:
            await asyncio.sleep(began + MIN_WATCH_SECONDS - time.monotonic())
            began = time.monotonic()
        request.headers.update(await credentials.headers())
        request.server_hostname = connection.get("server_hostname")
        try:
            response = await send(request)
        except aiohttp.ClientSSLError:
            await session.close()
            raise
        asked = response.headers.get("Retry-After", "0")
        if response.status == 429 and not (asked.isdecimal() and int(asked) <= LONGEST_RETRY_AFTER_SECONDS):
            response.close()
            raise aiohttp.ClientConnectionError(f"status 429 with Retry-After: {asked}")
        return response

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.get("ssl", True)),
        proxy=connection.get("proxy"),
        middlewares=(authorize,),
    )
    return kopf.AiohttpSession(server=credentials.host, aiohttp_session=session)
