"""Requests to the API server on a user's behalf: jobs with their plans, pods, events and logs."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec
from pydantic import ValidationError

from tranche.client.errors import ClusterError, JobFailed, ManifestError, NoSuchJob, WaitedTooLong, refusal
from tranche.client.job_history import Attempt, History, JobEvent, attempts_of, events_of
from tranche.kube.api.core_types import Pod
from tranche.kube.api.invalid_object import first_problem
from tranche.kube.api.names import CONDITION_FAILED, LABEL_JOB
from tranche.kube.api.resources import GROUP, VERSION, TrainingJob
from tranche.kube.client.client import ApiClient
from tranche.kube.client.errors import ApiError, Unreachable
from tranche.kube.convert.attempt_history import count_attempts
from tranche.web import job_views

logger = logging.getLogger(__name__)

API = f"/apis/{GROUP}/{VERSION}"
PAGE_ITEMS = 500
"""Number of objects that are listed with one request."""
REOPEN_SECONDS = 1.0
"""Delay before a broken watch is reopened."""
LOG_PODS = 20
"""Maximum number of attempts whose logs are read."""
POD_GONE, NODE_GONE = "the pod no longer exists", "the node of the pod no longer exists"
NOT_STARTED = "the container has not started"
NOT_READ = f"only the last {LOG_PODS} logs are read"
OVER = ("Succeeded", "Failed")
"""Phases of jobs that have ended."""
OnChange = Callable[[TrainingJob], None]


class _Meta(msgspec.Struct):
    continue_: str = msgspec.field(name="continue", default="")


class _Items(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _PodList(msgspec.Struct):
    items: list[Pod] | None = None


class _Change(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Session:
    """Session of one user with one cluster."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api

    def now(self) -> datetime:
        """Return the time by the clock of the API server; before its first response, by that of this machine."""
        return datetime.fromtimestamp(self.api.server_time(), UTC)

    async def items(self, path: str, kind: str) -> list[bytes]:
        """List all objects of a collection as JSON, page by page.

        Args:
            path: Path of the collection.
            kind: Kind of its objects in the plural, for the message of an error.

        Raises:
            ClusterError: the API server rejects the request.
        """
        items: list[bytes] = []
        params: dict[str, str | int] = {"limit": PAGE_ITEMS}
        with refusals(f"list {kind}"):
            while True:
                page = msgspec.json.decode(await self.api.get(path, **params), type=_Items)
                items += [bytes(raw) for raw in page.items or ()]
                if not page.metadata.continue_:
                    return items
                params["continue"] = page.metadata.continue_

    async def jobs(self, namespace: str) -> list[TrainingJob]:
        """List the TrainingJobs of a namespace; of all namespaces if it is empty.

        A job that cannot be read, as one of another release of the CRD, is left out with a warning in the log, which
        Python prints to stderr.
        """
        path = f"{API}/namespaces/{quote(namespace, '')}/trainingjobs" if namespace else f"{API}/trainingjobs"
        found = []
        for raw in await self.items(path, "TrainingJobs"):
            try:
                found.append(TrainingJob.model_validate_json(raw))
            except ValidationError as error:
                logger.warning("%s and is left out: %s", _unreadable(raw), _problem(error))
        return found

    async def job(self, namespace: str, name: str) -> TrainingJob:
        """Read one TrainingJob.

        Raises:
            NoSuchJob: the job does not exist.
            ClusterError: the API server rejects the request, or this version cannot read the job.
        """
        with refusals("read TrainingJobs"):
            try:
                return _read(await self.api.get(job_path(namespace, name)))
            except ApiError as error:
                if error.status == 404 and name in error.message:
                    raise NoSuchJob(namespace, name) from None
                raise

    async def create(self, namespace: str, manifest: dict[str, Any], *, dry_run: bool = False) -> TrainingJob:
        """Create a TrainingJob; with `dry_run`, only let the API server validate it and apply defaults.

        Unknown and duplicate fields are errors, as for kubectl.

        Raises:
            ManifestError: the manifest is for another namespace, or the API server rejects it.
            ClusterError: the request fails for another reason.
        """
        metadata = manifest["metadata"]
        named = metadata.get("name") or metadata.get("generateName") or ""
        if metadata.get("namespace", namespace) != namespace:
            raise ManifestError(f"{named}: the manifest is for namespace {metadata['namespace']}, not {namespace}")
        path = f"{API}/namespaces/{quote(namespace, '')}/trainingjobs"
        params = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        with refusals("create TrainingJobs"):
            try:
                return TrainingJob.model_validate(await self.api.request("POST", path, body=manifest, params=params))
            except ApiError as error:
                text = " ".join(error.message.split())
                if error.status == 409:
                    raise ManifestError(
                        f"TrainingJob {named} already exists in namespace {namespace}: choose another name"
                    ) from None
                if error.status in (400, 422):
                    raise ManifestError(text) from None
                raise

    async def wait(
        self, namespace: str, name: str, on_change: OnChange | None = None, timeout: float | None = None
    ) -> TrainingJob:
        """Watch a job until it ends; broken connections are reopened.

        Args:
            namespace: Namespace of the job.
            name: Name of the job.
            on_change: Called with each state of the job.
            timeout: Time limit in seconds; None: no limit.

        Raises:
            JobFailed: the job ended without success.
            NoSuchJob: the job does not exist or was deleted.
            WaitedTooLong: the job has not ended in time.
            ClusterError: the API server rejects the request.
        """
        try:
            async with asyncio.timeout(timeout):
                job = await self._until_over(namespace, name, on_change or _nothing)
        except TimeoutError:
            raise WaitedTooLong(
                f"TrainingJob {name} in namespace {namespace} has not ended after {timeout:g} s; it continues"
            ) from None
        if job.status.phase != "Succeeded":
            raise JobFailed(f"TrainingJob {name} in namespace {namespace} has failed: {failure_of(job)}")
        return job

    async def _until_over(self, namespace: str, name: str, on_change: OnChange) -> TrainingJob:
        uid = ""
        with refusals("watch TrainingJobs"):
            while True:
                try:
                    job = await self.job(namespace, name)
                    if job.metadata.uid != (uid or job.metadata.uid):  # another job has the name now
                        raise NoSuchJob(namespace, name)
                    uid = job.metadata.uid
                    on_change(job)
                    if job.status.phase in OVER:
                        return job
                    async for changed in self._changes(job):
                        if changed is None or changed.metadata.uid != uid:
                            raise NoSuchJob(namespace, name)
                        on_change(changed)
                        if changed.status.phase in OVER:
                            return changed
                except (Unreachable, ApiError) as error:
                    if not (error.status in (0, 410, 429) or error.status >= 500):
                        raise
                except ClusterError as error:
                    if not isinstance(error.__cause__, Unreachable):
                        raise
                await asyncio.sleep(REOPEN_SECONDS)

    async def _changes(self, job: TrainingJob) -> AsyncIterator[TrainingJob | None]:
        """Yield later states of the job, None when it is deleted; ends when the server ends the watch."""
        path = f"{API}/namespaces/{quote(job.metadata.namespace, '')}/trainingjobs"
        params: dict[str, str | int] = {
            "watch": "true",
            "fieldSelector": f"metadata.name={job.metadata.name}",
            "resourceVersion": job.metadata.resource_version,
            "allowWatchBookmarks": "true",
        }
        async with self.api.stream(path, params) as lines:
            async for line in lines:
                change = msgspec.json.decode(line, type=_Change)
                if change.type in ("ADDED", "MODIFIED"):
                    yield _read(bytes(change.object))
                elif change.type == "DELETED":
                    yield None
                elif change.type == "ERROR":
                    return

    async def history(self, namespace: str, name: str, lines: int) -> History:
        """Return the attempts of a job with their last log lines, and its events.

        Args:
            namespace: Namespace of the job.
            name: Name of the job.
            lines: Lines of each log; 0: no logs.

        Raises:
            NoSuchJob: the job does not exist.
            ClusterError: the API server rejects the request.
        """
        job = await self.job(namespace, name)
        core = f"/api/v1/namespaces/{quote(namespace, '')}"
        with refusals("list pods"):
            raw = await self.api.get(f"{core}/pods", labelSelector=f"{LABEL_JOB}={name}")
        pods = msgspec.json.decode(raw, type=_PodList).items or ()
        attempts = attempts_of(job, pods, self.now())
        if lines:
            existing = {pod.metadata.name for pod in pods}
            with_log = [attempt.pod for attempt in attempts if attempt.started is not None and attempt.pod in existing][
                -LOG_PODS:
            ]
            missing = {
                attempt.pod: _why_no_log(attempt, existing) for attempt in attempts if attempt.pod not in with_log
            }
            attempts = await asyncio.gather(*(self._with_log(core, attempt, missing, lines) for attempt in attempts))
        events = await self._events(core, job)
        detail = job_views.detail(job)
        return History(
            detail.namespace,
            detail.name,
            detail.phase,
            attempts,
            events,
            detail.sites,
            count_attempts(job, len(attempts)),
            detail.attempt_totals,
            detail.victims,
            detail.preempted_workers,
        )

    async def _with_log(self, core: str, attempt: Attempt, missing: Mapping[str, str], lines: int) -> Attempt:
        """Add the last log lines to an attempt, or the reason why they cannot be read."""
        if attempt.pod in missing and attempt.log is not None:
            return attempt
        if attempt.pod in missing:
            return msgspec.structs.replace(attempt, no_log=missing[attempt.pod])
        try:
            raw = await self.api.get(f"{core}/pods/{quote(attempt.pod, '')}/log", tailLines=lines, limitBytes=64 * 1024)
        except ApiError as error:
            no_log = "" if attempt.log is not None else _why_unread(attempt, error)
            return msgspec.structs.replace(attempt, no_log=no_log)
        return msgspec.structs.replace(attempt, log=raw.decode(errors="replace").splitlines()[-lines:])

    async def _events(self, core: str, job: TrainingJob) -> list[JobEvent]:
        selector = f"involvedObject.kind=TrainingJob,involvedObject.name={job.metadata.name}"
        with refusals("list events"):
            raw = await self.api.get(f"{core}/events", fieldSelector=selector)
        items = msgspec.json.decode(raw, type=dict[str, Any]).get("items") or []
        return events_of(items, job.metadata.uid)


def _read(raw: bytes) -> TrainingJob:
    """Read a TrainingJob from JSON.

    Raises:
        ClusterError: this version cannot read it.
    """
    try:
        return TrainingJob.model_validate_json(raw)
    except ValidationError as error:
        raise ClusterError(f"{_unreadable(raw)}: {_problem(error)}") from None


def _unreadable(raw: bytes) -> str:
    metadata = msgspec.json.decode(raw)["metadata"]
    return f"TrainingJob {metadata['name']} in namespace {metadata['namespace']} cannot be read"


def _problem(error: ValidationError) -> str:
    """Return the first problem in one line."""
    text = " ".join(first_problem(error).split())
    return text if text.isprintable() else ascii(text)


def _nothing(job: TrainingJob) -> None:
    """Ignore a state of the job."""


def job_path(namespace: str, name: str) -> str:
    """Return the API path of one TrainingJob.

    Raises:
        NoSuchJob: no job can have this name, so that the path would be that of something else.
    """
    if not name or "/" in name:
        raise NoSuchJob(namespace, name)
    return f"{API}/namespaces/{quote(namespace, '')}/trainingjobs/{quote(name, '')}"


def failure_of(job: TrainingJob) -> str:
    """Return why a job failed, from its condition, else from its plan."""
    message = next((c.message for c in job.status.conditions if c.type == CONDITION_FAILED and c.status == "True"), "")
    return message or job_views.summary(job).explanation or "no reason was recorded"


@contextmanager
def refusals(doing: str) -> Iterator[None]:
    """Convert API errors to a `ClusterError` that names the attempted action."""
    try:
        yield
    except ApiError as error:
        raise refusal(doing, error) from error


def _why_unread(attempt: Attempt, error: ApiError) -> str:
    """Return why the log of an existing pod cannot be read, without the name of the pod if that is possible."""
    if attempt.node and error.message == f'pods "{attempt.node}" not found':  # what the API server says of a node
        return NODE_GONE
    return re.sub(rf' in pod "[^"]*/{re.escape(attempt.pod)}"', "", error.message or error.reason)


def _why_no_log(attempt: Attempt, existing: Collection[str]) -> str:
    if attempt.pod not in existing:
        return POD_GONE
    return NOT_STARTED if attempt.started is None else NOT_READ
