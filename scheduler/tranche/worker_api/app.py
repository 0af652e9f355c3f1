"""Worker API: ``POST /v1/jobs/{namespace}/{name}/progress`` receives progress reports of running jobs.

The response to a report of a job with spec.communication has the shares of bandwidth and batch of its workers.

``POST /v1/jobs/{namespace}/{name}/next`` grants the next chunks to a worker that has trained its chunks.

The API has its own port, because training pods connect to it, while the extender verbs listen on loopback only.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Protocol

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from tranche import __version__
from tranche.auth.pod_token import Bearer, TokenReviewer
from tranche.auth.review_cache import BusyError, TooManyRefusalsError
from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import PLANNED_ROLES, ROLE_CHIEF, ROLE_SERVER, ROLE_WORKER, pod_name
from tranche.kube.api.resources import MAX_CHUNKS, TrainingJob
from tranche.kube.client.client import ApiError
from tranche.kube.convert.pod_identity import (
    Identity,
    identity,
    may_report_progress,
    may_request_chunks,
    owner_uid,
)
from tranche.kube.convert.pod_state import is_over
from tranche.metrics.scheduler import Metrics
from tranche.model import ChunkGrant, ChunkRequest, Report, Timings
from tranche.planner_api.receiver import NotLeadingError
from tranche.runtime.http_errors import add_error_handlers
from tranche.runtime.rate_limit import RateLimit
from tranche.runtime.request_body import read_body
from tranche.worker_api.allocation import allocations

LARGEST_REPORT = 256 * 2**10
"""Maximum size of a request body in bytes; two vectors of 2,000 chunks take a quarter of it."""
REPORTS_PER_SECOND, BURST = 1.0, 10
"""Rate limit of progress reports per pod; a pod reports every 15 to 30 s."""
REQUESTS_PER_SECOND = 10.0
"""Rate limit of chunk requests per pod."""
REPORTER_NAMES = {ROLE_CHIEF: "the chief", ROLE_SERVER: "parameter server 0", ROLE_WORKER: "worker 0"}
MAX_ITERATIONS, SMALLEST_FIGURE, LARGEST_FIGURE = 64, 1e-12, 1e9
"""Limits of the iterations in a report, so that the shares are finite."""
RETRY_SECONDS = 5
"""Value of Retry-After in responses with status 429 and 503."""


Answer = Callable[[Request], Awaitable[Response]]


class ReportReceiver(Protocol):
    """Receiver of progress reports and chunk requests: the leader's planner."""

    async def take(self, report: Report) -> bool:
        """Pass a report to the planner; False if a newer attempt has superseded this one.

        Raises:
            NotLeadingError: no leader accepts it now.
        """

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        """Return the next chunks for the worker; None if its attempt has ended.

        Raises:
            NotLeadingError: no leader answers now.
            TimeoutError: the plan with the grant could not be written in time.
        """


_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Number that the message to the planner can hold."""


class _Body(msgspec.Struct, rename="camel"):
    attempt: _Number
    fence: _Number | None = None
    applied: dict[int, float] = {}
    durable: dict[int, float] = {}
    batch_seconds: float | None = None
    fetch_seconds: float | None = None
    compute_seconds: float | None = None
    iterations: dict[int, list[tuple[float, float, float]]] = {}


_DECODER = msgspec.json.Decoder(_Body)


class _Refusal(Exception):  # noqa: N818 - an answer, not a fault
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class ReportRoute:
    """Handler of progress reports and chunk requests."""

    pods: Mapping[str, Pod]
    """Pods by ``namespace/name``."""
    jobs: Mapping[str, TrainingJob]
    receiver: ReportReceiver
    reviewer: TokenReviewer
    limit: RateLimit
    """Rate limit of reports."""
    request_limit: RateLimit
    clock: Callable[[], float]

    async def receive(self, request: Request) -> dict[int, dict[str, float]] | None:
        """Authenticate, authorize and validate one report, and pass it to the sink; return the workers' shares.

        Raises:
            _Refusal: the report is rejected, with an HTTP status and a one-line reason.
            ClientDisconnect: the body is incomplete.
        """
        who, uid, body = await self._admit(request, _may_report, self.limit)
        try:
            taken = await self.receiver.take(_report(body, who.job, uid))
        except NotLeadingError as error:
            raise _Refusal(503, str(error)) from None
        if not taken:
            raise _Refusal(409, f"attempt {who.attempt} has ended: exit")
        job = self.jobs.get(who.job)
        return None if job is None else allocations(job, body.applied, body.iterations)

    async def allot(self, request: Request) -> ChunkGrant:
        """Check one chunk request and return the grant; raises the same errors as `receive`."""
        who, uid, body = await self._admit(request, _may_ask, self.request_limit)
        asked = ChunkRequest(who.job, who.attempt, body.fence or who.attempt, body.durable, uid)
        try:
            given = await self.receiver.ask(asked)
        except TimeoutError:
            raise _Refusal(503, "the plan could not be written in time: retry") from None
        except NotLeadingError as error:
            raise _Refusal(503, str(error)) from None
        if given is None:
            raise _Refusal(409, f"attempt {who.attempt} has ended: exit")
        return given

    async def _admit(
        self, request: Request, objection: Callable[[TrainingJob, Identity], str | None], limit: RateLimit
    ) -> tuple[Identity, str, _Body]:
        """Authenticate and validate a request; return the identity of the pod, the UID of its job, and the body."""
        who, bearer = self._identify(await self._authenticate(request))
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        if who.job != key:
            raise _Refusal(403, f"pod {bearer.pod} belongs to TrainingJob {who.job}")
        job = self.jobs.get(key)
        if job is None:
            raise _Refusal(404, f"TrainingJob {key} does not exist")
        if owner_uid(self.pods[f"{bearer.namespace}/{bearer.pod}"].metadata) != job.metadata.uid:
            raise _Refusal(403, f"pod {bearer.pod} is not controlled by TrainingJob {key} with UID {job.metadata.uid}")
        if (reason := objection(job, who)) is not None:
            raise _Refusal(403, reason)
        if not limit.admits(bearer.uid, self.clock()):
            raise _Refusal(429, "too many requests from this pod")
        text = await read_body(request, LARGEST_REPORT)
        if text is None:
            raise _Refusal(413, f"the request body is larger than {LARGEST_REPORT} bytes")
        body = _read(text)
        if body.attempt != who.attempt:
            raise _Refusal(409, f"the body is for attempt {body.attempt}, but the pod is attempt {who.attempt}")
        return who, job.metadata.uid, body

    async def _authenticate(self, request: Request) -> Bearer:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _Refusal(401, "a bearer token is required: the pod's projected service-account token")
        try:
            peer = request.client.host if request.client is not None else ""
            bearer = await self.reviewer.review(token.strip(), peer)
        except BusyError:
            raise _Refusal(503, "too many token reviews are pending") from None
        except TooManyRefusalsError:
            raise _Refusal(429, "too many invalid tokens from this address") from None
        except ApiError as error:
            raise _Refusal(503, f"the token cannot be reviewed now: {error.reason or error.status}") from error
        if bearer is None:
            raise _Refusal(401, "the token is invalid, is for another audience, or is not bound to a pod")
        return bearer

    def _identify(self, bearer: Bearer) -> tuple[Identity, Bearer]:
        """Return the identity of the pod.

        Its name must match its labels, because only the planned pod can have that name. The API server has said that
        the token is that of an existing pod, so that a pod which the watch does not show is new, and may ask again: the
        last report of a short pod must not be lost while the watch lags behind.
        """
        pod = self.pods.get(f"{bearer.namespace}/{bearer.pod}")
        if pod is None or pod.metadata.uid != bearer.uid:
            raise _Refusal(503, f"pod {bearer.pod} is not known yet: retry")
        if is_over(pod):
            raise _Refusal(403, f"pod {bearer.pod} has ended")
        who = identity(pod)
        name = who.job.partition("/")[2] if who is not None else ""
        if (
            who is None
            or who.role not in PLANNED_ROLES
            or bearer.pod != pod_name(name, who.role, who.index, who.attempt)
        ):
            raise _Refusal(403, f"pod {bearer.pod} belongs to no TrainingJob")
        return who, bearer


def create_report_app(
    pods: Mapping[str, Pod],
    jobs: Mapping[str, TrainingJob],
    receiver: ReportReceiver,
    reviewer: TokenReviewer,
    metrics: Metrics,
    clock: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """Create the application of the worker API.

    Args:
        pods: Pods by ``namespace/name``.
        jobs: TrainingJobs by ``namespace/name``.
        receiver: Receiver of reports and chunk requests.
        reviewer: Reviewer of pod tokens.
        metrics: Metrics that count requests.
        clock: Monotonic seconds, for rate limits.
    """
    limits = RateLimit(REPORTS_PER_SECOND, BURST), RateLimit(REQUESTS_PER_SECOND, BURST)
    route = ReportRoute(pods, jobs, receiver, reviewer, *limits, clock)
    app = FastAPI(title="tranche reports", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    add_error_handlers(app)

    async def receive(request: Request) -> Response:
        shares = await route.receive(request)
        metrics.count_report("accepted")
        if shares is None:
            return Response(status_code=204)
        return JSONResponse({"workers": {str(worker): share for worker, share in shares.items()}})

    async def allot(request: Request) -> Response:
        given = await route.allot(request)
        metrics.count_request("continued" if given.chunks else "exit")
        resume = {str(chunk): batches for chunk, batches in given.resume.items()}
        return JSONResponse({"chunks": given.chunks, "fence": given.fence, "resume": resume})

    for path, answer, count in (("progress", receive, metrics.count_report), ("next", allot, metrics.count_request)):
        app.add_route(f"/v1/jobs/{{namespace}}/{{name}}/{path}", _answering(answer, count), methods=["POST"])
    return app


def _answering(answer: Answer, count: Callable[[str], None]) -> Answer:
    """Wrap a handler so that refusals become HTTP responses."""

    async def answering(request: Request) -> Response:
        try:
            return await answer(request)
        except _Refusal as refusal:
            count(str(refusal.status))
            headers = {"Retry-After": str(RETRY_SECONDS)} if refusal.status in (429, 503) else None
            return JSONResponse({"error": str(refusal)}, refusal.status, headers)
        except ClientDisconnect:
            return JSONResponse({"error": "the request body is incomplete"}, 400)

    return answering


def _may_report(job: TrainingJob, who: Identity) -> str | None:
    """Return why the pod must not report; None if it may."""
    if may_report_progress(job, who.role, who.index):
        return None
    reporter = next(name for role, name in REPORTER_NAMES.items() if may_report_progress(job, role, 0))
    return f"only {reporter} reports progress for this job"


def _may_ask(job: TrainingJob, who: Identity) -> str | None:
    return None if may_request_chunks(job, who.role) else "only workers of jobs with spec.data may request chunks"


def _read(body: bytes) -> _Body:
    try:
        message = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _Refusal(422, f"request body: {error}") from error
    for vector in (message.applied, message.durable):
        if len(vector) > MAX_CHUNKS or not all(0 <= chunk < MAX_CHUNKS for chunk in vector):
            raise _Refusal(422, f"request body: chunk numbers must be from 0 to {MAX_CHUNKS - 1}")
        if not all(isfinite(batches) and batches >= 0 for batches in vector.values()):
            raise _Refusal(422, "request body: batches must be finite numbers of at least 0")
    seconds = (message.batch_seconds, message.fetch_seconds, message.compute_seconds)
    if not all(one is None or (isfinite(one) and one >= 0) for one in seconds):
        raise _Refusal(422, "request body: seconds must be finite numbers of at least 0")
    if len(message.iterations) > MAX_CHUNKS or any(len(last) > MAX_ITERATIONS for last in message.iterations.values()):
        raise _Refusal(422, f"request body: at most {MAX_ITERATIONS} iterations per worker")
    figures = (one for last in message.iterations.values() for iteration in last for one in iteration)
    if not all(one == 0 or SMALLEST_FIGURE <= one <= LARGEST_FIGURE for one in figures):
        limits = f"0, or from {SMALLEST_FIGURE:g} to {LARGEST_FIGURE:g}"
        raise _Refusal(422, f"request body: samples and seconds of iterations must be {limits}")
    return message


def _report(message: _Body, job: str, job_uid: str) -> Report:
    timings = Timings(message.batch_seconds, message.fetch_seconds, message.compute_seconds)
    return Report(job, message.attempt, message.applied, message.durable, timings, job_uid)
