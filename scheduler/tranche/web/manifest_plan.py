"""Plan of a job that is not created, from a manifest: a what-if on the page.

The leader's planner computes it on its live state, for the job as a dry run of the API server returns it. Without a
right to dry runs, the manifest is checked against the schema of the CRD alone, and a note says so. Of the other jobs,
the answer has only those that the user may list.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import yaml
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ValidationError

from tranche.auth.review_cache import BusyError
from tranche.auth.user_access import Scope
from tranche.kube.api.invalid_object import first_problem
from tranche.kube.api.resources import API_VERSION, TrainingJob
from tranche.kube.api.timestamp import whole_second
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.convert.manifest import training_job_manifest
from tranche.model import WhatIf
from tranche.planner_api.receiver import NotLeadingError
from tranche.runtime.rate_limit import RateLimit
from tranche.web.authorization import Guard, Refusal, Visitor
from tranche.web.job_views import TimeInterval, time_interval
from tranche.web.overview_index import Board
from tranche.web.request_origin import page_body

MAX_BODY_BYTES = 96 * 2**10
MAX_NESTING = 50
"""Maximum nesting of a manifest."""
PER_SECOND, BURST = 0.2, 5
"""Rate limit of what-ifs by user."""
MAX_DELAYS = 50
"""Maximum number of delayed jobs in a response."""
WhatIfs = Callable[[bytes], Awaitable[WhatIf]]
"""Function from a TrainingJob in JSON to its plan; raises NotLeadingError, BusyError and ValueError."""
WITHOUT_RIGHT = "cannot create resource"
"""Part of the message of the API server if RBAC does not let this process make a dry run."""
NOT_CHECKED = (
    "not checked by the API server: rules of the API, admission policies, webhooks and quotas (no right to dry runs)"
)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class WhatIfRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a request."""

    manifest: str
    """A TrainingJob in YAML or JSON."""
    namespace: str = "default"
    """Namespace of a manifest without one."""


class DelayedJob(msgspec.Struct, frozen=True):
    """Job that would complete later."""

    namespace: str
    name: str
    before: datetime | None
    after: datetime | None


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """Plan of the job."""

    namespace: str
    name: str
    planned_start: datetime | None
    planned_completion: datetime | None
    site: str
    behind: str
    explanation: str
    workers: int
    """Workers that would start at once."""
    delays: list[DelayedJob]
    """Jobs that the user may list and that would complete later, the longest delay first."""
    delayed: int
    """Number of these jobs."""
    cut_short: bool
    note: str
    """Checks that the API server has not made; empty if it has made all."""
    completion_interval: TimeInterval | None


@dataclass(frozen=True, slots=True)
class Checked:
    """A job that the API server would accept, but for the checks in `note`."""

    job: TrainingJob
    note: str = ""
    """As in `Answer`."""


_decode = msgspec.json.Decoder(WhatIfRequest).decode
_encode = msgspec.json.Encoder().encode


def what_if_routes(
    board: Board, client: ApiClient, planned: WhatIfs, guard: Guard, clock: Callable[[], float] = time.monotonic
) -> APIRouter:
    """Create the route of what-ifs.

    Args:
        board: The jobs.
        client: Client for dry runs.
        planned: Plan of a job, from the leader's planner.
        guard: Authentication of users.
        clock: Monotonic seconds, for the rate limit.
    """
    router = APIRouter(prefix="/v1", tags=["read"])
    limit = RateLimit(PER_SECOND, BURST)

    @router.post("/what-if")
    async def plan(request: Request, visitor: Annotated[Visitor, Depends(guard)]) -> Response:
        """Plan a job without creating it: ``{"manifest": "…", "namespace": "…"}``."""
        body = await page_body(request, MAX_BODY_BYTES)
        if not limit.admits(visitor.user.username, clock()):
            raise Refusal(429, "too many what-ifs: retry in a few seconds")
        try:
            what_if = _decode(body)
            manifest = await asyncio.to_thread(read_manifest, what_if.manifest, what_if.namespace)
            job = await asyncio.to_thread(read_job, manifest)
        except msgspec.DecodeError as error:
            raise Refusal(400, f"the body is not a what-if: {error}") from None
        except ValueError as error:
            raise Refusal(422, str(error)) from None
        await visitor.require("create", "trainingjobs", job.metadata.namespace)
        if job.key in board.rows:
            raise Refusal(409, f"TrainingJob {job.key} already exists: choose another name")
        scope = await visitor.scope(board.namespaces)
        checked = await _dry_run(client, job, manifest)
        job = checked.job
        try:
            result = await planned(job.model_dump_json(by_alias=True, exclude_none=True).encode())
        except BusyError:
            raise Refusal(503, "another what-if is computed: retry in a moment") from None
        except NotLeadingError as error:
            raise Refusal(503, f"no planner answers: {error}") from None
        except ValueError as error:
            raise Refusal(422, str(error)) from None
        return Response(_encode(_answer(checked, result, scope)), media_type="application/json")

    return router


def read_manifest(text: str, namespace: str) -> dict[str, Any]:
    """Read the name, the namespace and the specification of one TrainingJob from YAML or JSON, as written.

    Raises:
        ValueError: the text is not exactly one TrainingJob with known fields.
    """
    objects = _parsed(text)
    try:
        document = training_job_manifest(objects)
    except ValueError as error:
        raise ValueError(f"the manifest {error}") from None
    metadata = document["metadata"]
    if not isinstance(metadata.get("name"), str):
        raise ValueError("metadata.name is missing")
    if unknown := next(_unknown_fields(TrainingJob, document, ""), None):
        raise ValueError(f'unknown field "{unknown}"')
    identity = {"name": metadata["name"], "namespace": metadata.get("namespace") or namespace}
    manifest = {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": identity, "spec": document.get("spec")}
    try:
        _encode(manifest)
    except TypeError as error:
        raise ValueError(f"the manifest has no form in JSON: {error}") from None
    return manifest


def read_job(manifest: dict[str, Any]) -> TrainingJob:
    """Return the job of a manifest, with the defaults of the CRD.

    Raises:
        ValueError: a value is not valid.
    """
    metadata = manifest["metadata"] | {"uid": "what-if", "creationTimestamp": datetime.now(UTC).isoformat()}
    try:
        return TrainingJob.model_validate(manifest | {"metadata": metadata})
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def _parsed(text: str) -> list[Any]:
    """Parse YAML documents without aliases, which could stand for far more than the text.

    Raises:
        ValueError: the text is not valid, has aliases, or is nested too deeply.
    """
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("the manifest must not have aliases (*name)")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_NESTING:
                raise ValueError(f"the manifest is nested more than {MAX_NESTING} times")
        return list(yaml.load_all(text, Loader=_LOADER))
    except (yaml.YAMLError, OverflowError) as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None


def _unknown_fields(model: type[BaseModel], values: Mapping[Any, Any], path: str) -> Iterator[str]:
    """Yield the paths of fields that the CRD does not have; templates, metadata and status are not examined."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in values.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in fields:
            if path or key not in ("apiVersion", "kind"):
                yield where
            continue
        kind = _model_of(fields[key].annotation)
        if kind is not None and isinstance(value, Mapping) and where not in ("metadata", "status"):
            yield from _unknown_fields(kind, value, where)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a field, also of an optional one; None if it has none."""
    for type_ in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(type_, type) and issubclass(type_, BaseModel):
            return type_
    return None


async def _dry_run(client: ApiClient, job: TrainingJob, manifest: dict[str, Any]) -> Checked:
    """Return the job with the spec that the API server would store.

    Raises:
        Refusal: the API server would not accept the job, or does not respond.
    """
    path = f"/apis/{API_VERSION}/namespaces/{quote(job.metadata.namespace, '')}/trainingjobs"
    try:
        stored = await client.request(
            "POST", path, body=manifest, params={"dryRun": "All", "fieldValidation": "Strict"}
        )
    except ApiError as error:
        if error.status == 403 and WITHOUT_RIGHT in error.message:
            return Checked(job, NOT_CHECKED)
        if 400 <= error.status < 500 and error.status not in (401, 429):
            raise Refusal(422, " ".join(error.message.split()) or error.reason) from error
        raise Refusal(503, f"the API server does not check the job: {error.reason or error.status}") from error
    return Checked(job.model_copy(update={"spec": TrainingJob.model_validate(stored).spec}))


def _answer(checked: Checked, result: WhatIf, scope: Scope) -> Answer:
    job = checked.job
    delays = [
        DelayedJob(
            delay.job.partition("/")[0],
            delay.job.partition("/")[2],
            whole_second(delay.before),
            whole_second(delay.after),
        )
        for delay in result.delays
        if delay.job.partition("/")[0] in scope
    ]
    return Answer(
        job.metadata.namespace,
        job.metadata.name,
        whole_second(result.start),
        whole_second(result.completion),
        result.site,
        result.behind,
        result.explanation,
        result.workers,
        delays[:MAX_DELAYS],
        len(delays),
        result.cut_short,
        checked.note,
        time_interval(result.completion_interval),
    )
