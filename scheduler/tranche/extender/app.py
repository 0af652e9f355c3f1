"""HTTP application for kube-scheduler and probes: extender verbs, health and metrics. `tranche.web` serves users."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from tranche import __version__
from tranche.extender import verbs, wire_format
from tranche.extender.site_summary import list_sites
from tranche.extender.view import View, ViewSources
from tranche.kube.api.names import GPU_RESOURCES, GpuResources
from tranche.metrics.scheduler import PLANNER, Metrics, Watched, count_jobs
from tranche.runtime.connection_guard import PROBES
from tranche.runtime.http_errors import add_error_handlers
from tranche.runtime.http_server import readiness, serve
from tranche.runtime.request_body import read_body

LARGEST_BODY = 16 * 2**20
"""Maximum size of a request body in bytes; the names of 5,000 nodes take a hundredth of it."""

_encode = msgspec.json.Encoder().encode
Answer = Callable[[bytes], tuple[Any, int, int]]
"""Function from a request body to the response object and the numbers of passed and rejected nodes."""


def create_app(
    watches: ViewSources,
    metrics: Metrics,
    unready: Callable[[], list[str]],
    gpu_resources: GpuResources = GPU_RESOURCES,
    view: View | None = None,
    clock: Callable[[], float] = time.time,
) -> FastAPI:
    """Create the application.

    It performs no I/O per request, but it shares the event loop with its watches: a request waits while a change is
    read. All that it uses is in the watched objects, so it responds whether or not a planner runs.

    Args:
        watches: Watches of pods, nodes, TrainingJobs and Sites.
        metrics: Metrics that count requests; the watches are added to them.
        unready: Returns the names of watches that are not synced; empty when ready.
        gpu_resources: Resource names of the GPUs.
        view: Existing view of these watches; default: a new one.
        clock: Seconds since the epoch, by the clock that the times of pods are compared with.
    """
    view = view or View(watches, gpu_resources)
    kinds: dict[str, Watched] = {
        "pods": watches.pods,
        "nodes": watches.nodes,
        "jobs": watches.jobs,
        "sites": watches.sites,
    }
    for kind, watch in kinds.items():
        metrics.add_watch(kind, watch)
    if PLANNER in metrics.parts:
        count_jobs(metrics, watches.jobs.subscribe)
    metrics.set_sites(lambda: list_sites(view))
    app = FastAPI(title="tranche", version=__version__, docs_url=None, redoc_url=None)
    add_error_handlers(app)
    for verb, answer in _answers(view, clock).items():
        # a plain route, so that FastAPI does not decode the body
        app.add_route(f"/{verb}", _endpoint(verb, answer, metrics), methods=["POST"])
    app.include_router(_probes(metrics, unready))
    return app


def create_metrics_app(metrics: Metrics, unready: Callable[[], list[str]]) -> FastAPI:
    """Create an application with probes and metrics only, for an address that other pods can reach."""
    app = FastAPI(title="tranche metrics", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    add_error_handlers(app)
    app.include_router(_probes(metrics, unready))
    return app


async def serve_metrics(metrics: Metrics, unready: Callable[[], list[str]], host: str, port: int | None) -> None:
    """Serve probes and metrics with the limits of such a server; returns at once without a port.

    Raises:
        ListenError: the address cannot be used.
    """
    if port is not None:
        await serve(create_metrics_app(metrics, unready), host, port, limits=PROBES)


def _answers(view: View, clock: Callable[[], float]) -> dict[str, Answer]:
    def answer_filter(body: bytes) -> tuple[Any, int, int]:
        request = wire_format.decode_names(body)
        result = verbs.filter_nodes(request.pod, request.nodes, view)
        return result, len(result.node_names), len(result.failed_and_unresolvable_nodes)

    def answer_prioritize(body: bytes) -> tuple[Any, int, int]:
        request = wire_format.decode_names(body)
        scores = verbs.prioritize(request.pod, request.nodes, view)
        return scores, len(scores), 0

    def answer_preempt(body: bytes) -> tuple[Any, int, int]:
        request = wire_format.decode_candidates(body)
        remaining = verbs.preempt(request.pod, request.victims, view, clock())
        return wire_format.PreemptResult(remaining), len(remaining), len(request.victims) - len(remaining)

    return {"filter": answer_filter, "prioritize": answer_prioritize, "preempt": answer_preempt}


def _endpoint(verb: str, answer: Answer, metrics: Metrics) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        try:
            body = await read_body(request, LARGEST_BODY)
            if body is None:
                metrics.count_error("request")
                return error_response(413, f"the request body is larger than {LARGEST_BODY} bytes")
            began = time.perf_counter()
            result, passed, rejected = answer(body)
        except wire_format.MalformedError as error:
            metrics.count_error("request")
            return error_response(400, str(error))
        except ClientDisconnect:
            return error_response(400, "the request body is incomplete")
        response = Response(_encode(result), media_type="application/json")
        metrics.observe_request(verb, time.perf_counter() - began, passed, rejected)
        return response

    return endpoint


def _probes(metrics: Metrics, unready: Callable[[], list[str]]) -> APIRouter:
    router = APIRouter(tags=["probes"])

    @router.get("/healthz")
    async def healthz() -> Response:
        """Report that the process runs."""
        return Response("ok\n", media_type="text/plain")

    @router.get("/readyz")
    async def readyz() -> Response:
        """Return 200 if all watches are synced; otherwise 503 with the names of the others."""
        return readiness(unready())

    @router.get("/metrics")
    async def read_metrics() -> Response:
        """Return the metrics in the Prometheus text format."""
        return Response(await metrics.read(), media_type="text/plain; version=0.0.4")

    return router


def json_response(value: Any) -> Response:
    """Encode structs and plain values as a JSON response."""
    return Response(_encode(value), media_type="application/json")


def error_response(status: int, text: str) -> Response:
    """Return a JSON error response."""
    return JSONResponse({"error": text}, status)
