"""The web application: kube-scheduler's verbs, probes, metrics, and a read-only API of jobs and sites."""

import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, Query, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from tranche import __version__
from tranche.extender import reads, verbs, wires
from tranche.extender.views import View, Watches
from tranche.kube.metrics import Metrics, Watched
from tranche.kube.names import GPU_RESOURCE

LARGEST_BODY = 16 * 2**20
"""Bytes; the names of 5,000 nodes are a hundredth of it."""
LARGEST_PAGE = 1000

_encode = msgspec.json.Encoder().encode
Answer = Callable[[bytes], tuple[Any, int, int]]
"""From a body to the object to send, and how many nodes it passes and rejects."""


def create_app(
    watches: Watches,
    metrics: Metrics,
    unready: Callable[[], list[str]],
    gpu_resource: str = GPU_RESOURCE,
    progress: reads.Progress = reads.not_planning,
) -> FastAPI:
    """Make the application; it answers in the event loop that runs the watches and never blocks.

    Args:
        watches: Copies of the API server's pods, nodes, TrainingJobs and Sites.
        metrics: Where requests are counted; the watches are added to it.
        unready: Names of what is not in step yet; none: ready.
        gpu_resource: Name of the devices' resource.
        progress: How far a job is, if this process plans.
    """
    view = View(watches, gpu_resource)
    kinds: dict[str, Watched] = {
        "pods": watches.pods,
        "nodes": watches.nodes,
        "jobs": watches.jobs,
        "sites": watches.sites,
    }
    for kind, watch in kinds.items():
        metrics.add_watch(kind, watch)
    metrics.set_jobs(view.jobs.values())
    app = FastAPI(title="tranche", version=__version__, docs_url=None, redoc_url=None)
    for verb, answer in _answers(view).items():
        # A bare route: the body is decoded once, by us.
        app.add_route(f"/{verb}", _endpoint(verb, answer, metrics), methods=["POST"])
    app.include_router(_probes(metrics, unready))
    app.include_router(_jobs(view, progress))
    return app


def create_metrics_app(metrics: Metrics, unready: Callable[[], list[str]]) -> FastAPI:
    """Probes and metrics alone, for an address that others may reach."""
    app = FastAPI(title="tranche metrics", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(_probes(metrics, unready))
    return app


def _answers(view: View) -> dict[str, Answer]:
    def answer_filter(body: bytes) -> tuple[Any, int, int]:
        asked = wires.decode_names(body)
        result = verbs.filter_nodes(asked.pod, asked.nodes, view)
        return result, len(result.node_names), len(result.failed_and_unresolvable_nodes)

    def answer_prioritize(body: bytes) -> tuple[Any, int, int]:
        asked = wires.decode_names(body)
        scores = verbs.prioritize(asked.pod, asked.nodes, view)
        return scores, len(scores), 0

    def answer_preempt(body: bytes) -> tuple[Any, int, int]:
        asked = wires.decode_candidates(body)
        kept = verbs.preempt(asked.pod, asked.victims, view, time.time())
        return wires.PreemptResult(kept), len(kept), len(asked.victims) - len(kept)

    return {"filter": answer_filter, "prioritize": answer_prioritize, "preempt": answer_preempt}


def _endpoint(verb: str, answer: Answer, metrics: Metrics) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        try:
            body = await read_body(request)
            if body is None:
                return error_response(413, f"the body is larger than {LARGEST_BODY} bytes")
            began = time.perf_counter()
            result, passed, rejected = answer(body)
        except wires.MalformedError as error:
            return error_response(400, str(error))
        except ClientDisconnect:
            return error_response(400, "the body is not complete")
        response = Response(_encode(result), media_type="application/json")
        metrics.observe_request(verb, time.perf_counter() - began, passed, rejected)
        return response

    return endpoint


async def read_body(request: Request, largest: int = LARGEST_BODY) -> bytes | None:
    """The whole body, or None if it has more bytes than that; no more of it is kept than is allowed."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > largest:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _probes(metrics: Metrics, unready: Callable[[], list[str]]) -> APIRouter:
    router = APIRouter(tags=["probes"])

    @router.get("/healthz")
    async def healthz() -> Response:
        """The process runs."""
        return Response("ok\n", media_type="text/plain")

    @router.get("/readyz")
    async def readyz() -> Response:
        """200 once all watches are in step; else 503, with the names of those that are not."""
        waiting = unready()
        text = f"waiting for {', '.join(waiting)}\n" if waiting else "ok\n"
        return Response(text, 503 if waiting else 200, media_type="text/plain")

    @router.get("/metrics")
    async def read_metrics() -> Response:
        """For Prometheus."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4")

    return router


def _jobs(view: View, progress: reads.Progress) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["read"])

    @router.get("/jobs")
    async def list_jobs(
        namespace: Annotated[str, Query(max_length=63)] = "",
        phase: Annotated[str, Query(max_length=63)] = "",
        after: Annotated[str, Query(max_length=127)] = "",
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 500,
    ) -> Response:
        """Jobs by namespace and name, a page at a time; `next` is the next page's `after`, if there is one."""
        jobs = reads.list_jobs(view, namespace, phase, after, limit)
        last = f"{jobs[-1].namespace}/{jobs[-1].name}" if len(jobs) == limit else None
        return json_response({"jobs": jobs, "next": last})

    @router.get("/jobs/{namespace}/{name}")
    async def read_job(namespace: str, name: str) -> Response:
        """One job with its plan."""
        job = reads.read_job(view, namespace, name, progress)
        if job is None:
            return error_response(404, f"there is no TrainingJob {namespace}/{name}")
        return json_response(job)

    @router.get("/sites")
    async def list_sites() -> Response:
        """All sites with what they have, use and hold for plans."""
        return json_response({"sites": reads.list_sites(view)})

    return router


def json_response(value: Any) -> Response:
    """An answer of structs and plain values."""
    return Response(_encode(value), media_type="application/json")


def error_response(status: int, text: str) -> Response:
    """An answer that says what is wrong."""
    return JSONResponse({"error": text}, status)
