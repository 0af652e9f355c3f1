"""The report API: ``POST /v1/jobs/{namespace}/{name}/progress``, where running jobs say how far they are.

``POST /v1/jobs/{namespace}/{name}/next`` is where a worker that has trained its chunks asks for more.

It has a port of its own: training pods reach it, and the extender verbs listen on loopback only.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from tranche import __version__
from tranche.auth.pod_token import Bearer, TokenReviewer
from tranche.auth.review_cache import BusyError
from tranche.extender.app import read_body
from tranche.kube.api.names import PLANNED_ROLES, ROLE_CHIEF, ROLE_SERVER, ROLE_WORKER, pod_name
from tranche.kube.api.resources import MAX_CHUNKS, TrainingJob
from tranche.kube.client.client import ApiError
from tranche.kube.convert.pod_identity import Identity, asks, identity, reports
from tranche.kube.convert.pods_and_nodes import Pod, is_over
from tranche.metrics.scheduler import Metrics
from tranche.model import ChunkGrant, ChunkRequest, Report, Timings
from tranche.runtime.rate_limit import RateLimit

LARGEST_REPORT = 256 * 2**10
"""Bytes; two vectors of 2,000 chunks have a quarter of it."""
REPORTS_PER_SECOND, BURST = 1.0, 10
"""Of one pod; it reports every 15–30 s."""
REQUESTS_PER_SECOND = 10.0
"""For chunks, of one pod."""
SPEAKERS = {ROLE_CHIEF: "the chief", ROLE_SERVER: "parameter server 0", ROLE_WORKER: "worker 0"}
RETRY_SECONDS = 5
"""After which a client that was turned away may come again."""


Answer = Callable[[Request], Awaitable[Response]]


class Desk(Protocol):
    """Where reports are taken to the planner."""

    @property
    def leading(self) -> bool:
        """Whether this process plans."""

    def take(self, report: Report) -> bool:
        """Have the report counted soon; False if another attempt has taken over."""


class Counter(Protocol):
    """Where workers are given chunks."""

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        """What the worker is to train next; None if its attempt is over.

        Raises:
            TimeoutError: if that could not be written down in time.
        """


class _Body(msgspec.Struct, rename="camel"):
    attempt: int
    fence: int | None = None
    applied: dict[int, float] = {}
    durable: dict[int, float] = {}
    batch_seconds: float | None = None
    fetch_seconds: float | None = None
    compute_seconds: float | None = None


_DECODER = msgspec.json.Decoder(_Body)


class _Refusal(Exception):  # noqa: N818 - an answer, not a fault
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class ReportRoute:
    """Decides what becomes of one report or request."""

    pods: Mapping[str, Pod]
    """By ``namespace/name``."""
    jobs: Mapping[str, TrainingJob]
    desk: Desk
    counter: Counter
    reviewer: TokenReviewer
    limit: RateLimit
    """Of reports."""
    request_limit: RateLimit
    clock: Callable[[], float]

    async def receive(self, request: Request) -> None:
        """Check one report from its head to its body, and pass it on.

        Raises:
            _Refusal: with a status and one line.
            ClientDisconnect: if the body does not arrive.
        """
        who, body = await self._admit(request, _may_report, self.limit)
        if not self.desk.take(_report(body, who.job)):
            raise _Refusal(409, f"attempt {who.attempt} is over: exit")

    async def allot(self, request: Request) -> ChunkGrant:
        """Check one request for chunks, and answer it; raises what `receive` does."""
        who, body = await self._admit(request, _may_ask, self.request_limit)
        asked = ChunkRequest(who.job, who.attempt, body.fence or who.attempt, body.durable)
        try:
            given = await self.counter.ask(asked)
        except TimeoutError:
            raise _Refusal(503, "the plan could not be written in time: ask again") from None
        if given is None:
            raise _Refusal(409, f"attempt {who.attempt} is over: exit")
        return given

    async def _admit(
        self, request: Request, objection: Callable[[TrainingJob, Identity], str | None], limit: RateLimit
    ) -> tuple[Identity, _Body]:
        """Who sends it, and what."""
        if not self.desk.leading:
            raise _Refusal(503, "this scheduler does not plan: another one leads, or it has just started")
        who, bearer = self._identify(await self._authenticate(request))
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        if who.job != key:
            raise _Refusal(403, f"pod {bearer.pod} belongs to TrainingJob {who.job}")
        job = self.jobs.get(key)
        if job is None:
            raise _Refusal(404, f"there is no TrainingJob {key}")
        if (reason := objection(job, who)) is not None:
            raise _Refusal(403, reason)
        if not limit.admits(bearer.uid, self.clock()):
            raise _Refusal(429, "too many of one pod in a second")
        text = await read_body(request, LARGEST_REPORT)
        if text is None:
            raise _Refusal(413, f"the body is larger than {LARGEST_REPORT} bytes")
        body = _read(text)
        if body.attempt != who.attempt:
            raise _Refusal(409, f"the body is of attempt {body.attempt}, and the pod is attempt {who.attempt}")
        return who, body

    async def _authenticate(self, request: Request) -> Bearer:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _Refusal(401, "a bearer token is needed: the pod's projected service-account token")
        try:
            bearer = await self.reviewer.review(token.strip())
        except BusyError:
            raise _Refusal(503, "too many tokens wait for their review") from None
        except ApiError as error:
            raise _Refusal(503, f"the token cannot be reviewed now: {error.reason or error.status}") from error
        if bearer is None:
            raise _Refusal(401, "the token is not valid, not for this audience, or not bound to a pod")
        return bearer

    def _identify(self, bearer: Bearer) -> tuple[Identity, Bearer]:
        """Which attempt of which job the pod is. Its name must say so too: nobody else can have that name."""
        pod = self.pods.get(f"{bearer.namespace}/{bearer.pod}")
        if pod is None or pod.metadata.uid != bearer.uid or is_over(pod):
            raise _Refusal(403, f"pod {bearer.pod} is not known, or is over")
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
    desk: Desk,
    counter: Counter,
    reviewer: TokenReviewer,
    metrics: Metrics,
    clock: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """Make the application of the report API.

    Args:
        pods: Copies of the API server's pods …
        jobs: … and TrainingJobs, by ``namespace/name``.
        desk: Where reports go.
        counter: Where workers are given chunks.
        reviewer: Of tokens.
        metrics: Where requests are counted.
        clock: Seconds, of rate limits.
    """
    limits = RateLimit(REPORTS_PER_SECOND, BURST), RateLimit(REQUESTS_PER_SECOND, BURST)
    route = ReportRoute(pods, jobs, desk, counter, reviewer, *limits, clock)
    app = FastAPI(title="tranche reports", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)

    async def receive(request: Request) -> Response:
        await route.receive(request)
        metrics.count_report("accepted")
        return Response(status_code=204)

    async def allot(request: Request) -> Response:
        given = await route.allot(request)
        metrics.count_request("continued" if given.chunks else "exit")
        resume = {str(chunk): batches for chunk, batches in given.resume.items()}
        return JSONResponse({"chunks": given.chunks, "fence": given.fence, "resume": resume})

    for path, answer, count in (("progress", receive, metrics.count_report), ("next", allot, metrics.count_request)):
        app.add_route(f"/v1/jobs/{{namespace}}/{{name}}/{path}", _answering(answer, count), methods=["POST"])
    return app


def _answering(answer: Answer, count: Callable[[str], None]) -> Answer:
    """Refusals as their answers."""

    async def answering(request: Request) -> Response:
        try:
            return await answer(request)
        except _Refusal as refusal:
            count(str(refusal.status))
            headers = {"Retry-After": str(RETRY_SECONDS)} if refusal.status in (429, 503) else None
            return JSONResponse({"error": str(refusal)}, refusal.status, headers)
        except ClientDisconnect:
            return JSONResponse({"error": "the body is not complete"}, 400)

    return answering


def _may_report(job: TrainingJob, who: Identity) -> str | None:
    """Why the pod must not report; None if it may."""
    if reports(job, who.role, who.index):
        return None
    return f"{next(SPEAKERS[role] for role in SPEAKERS if reports(job, role, 0))} reports for this job"


def _may_ask(job: TrainingJob, who: Identity) -> str | None:
    return None if asks(job, who.role) else "only workers of jobs with spec.data ask for chunks"


def _read(body: bytes) -> _Body:
    try:
        told = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _Refusal(422, f"the body: {error}") from error
    for vector in (told.applied, told.durable):
        if len(vector) > MAX_CHUNKS or not all(0 <= chunk < MAX_CHUNKS for chunk in vector):
            raise _Refusal(422, f"the body: chunks are numbered from 0 to {MAX_CHUNKS - 1}")
        if not all(isfinite(batches) and batches >= 0 for batches in vector.values()):
            raise _Refusal(422, "the body: batches are numbers from 0 on")
    seconds = (told.batch_seconds, told.fetch_seconds, told.compute_seconds)
    if not all(one is None or (isfinite(one) and one >= 0) for one in seconds):
        raise _Refusal(422, "the body: seconds are numbers from 0 on")
    return told


def _report(told: _Body, job: str) -> Report:
    timings = Timings(told.batch_seconds, told.fetch_seconds, told.compute_seconds)
    return Report(job, told.attempt, told.applied, told.durable, timings)
