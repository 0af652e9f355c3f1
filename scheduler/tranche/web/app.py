"""Web application for users: the page and its API. Every route with data requires authentication."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from starlette.responses import JSONResponse

from tranche import __version__
from tranche.auth.user_access import AccessReviewer
from tranche.extender.view import View, ViewSources
from tranche.kube.client.client import ApiClient
from tranche.model.chunk_ranges import MAX_CHUNK
from tranche.model.share_text import share_text, with_share
from tranche.runtime.http_errors import add_error_handlers
from tranche.web import job_views
from tranche.web.authorization import RETRY_SECONDS, Guard, Refusal, Visitor, answered
from tranche.web.chunk_plan import ChunkWindows, no_windows, page_of
from tranche.web.job_action import action_routes, allowed_actions
from tranche.web.job_events import Occurrences
from tranche.web.manifest_plan import WhatIfs, what_if_routes
from tranche.web.overview_index import (
    GROUPS,
    OVER,
    SORT_KEYS,
    Board,
    Expected,
    PlannedWindows,
    Selection,
    nothing_expected,
    nothing_planned,
)
from tranche.web.site_timeline import Timelines
from tranche.web.static_files import SafeHeaders, etag, static_files

MAX_PAGE_JOBS = 1000
"""Maximum number of jobs or chunks in one response."""
MAX_LANES = 100
"""Maximum number of nodes in one response."""
DEFAULT_JOBS = 50
"""Default number of jobs per group."""

_encode = msgspec.json.Encoder().encode
Name = Annotated[str, Query(max_length=63)]
Find = Annotated[str, Query(max_length=127)]
Sort = Annotated[str, Query(pattern=rf"^(-?({'|'.join(SORT_KEYS)}))?$", max_length=20)]
Phase = Annotated[str, Query(pattern=rf"^({'|'.join(phase for group in GROUPS.values() for phase in group)})?$")]
PathName = Annotated[str, Path(max_length=253)]


async def nothing() -> None:
    """Do nothing."""


class TrainedBatches(Protocol):
    """Progress of a job."""

    @property
    def batches(self) -> float:
        """Mini-batches trained."""

    @property
    def total(self) -> float:
        """Mini-batches at which the job is done."""


Trained = Callable[[str], TrainedBatches | None]
"""Function from a job key to its progress; None if no planner has it."""


def always() -> bool:
    """Return True, without a planner that could be missing."""
    return True


def nothing_trained(key: str) -> None:
    """Return None, without a planner."""


@dataclass(frozen=True, slots=True)
class Planning:
    """Access to state that only the leader's planner has."""

    progress: job_views.Progress = job_views.not_planning
    """Progress of a job."""
    expected: Expected = nothing_expected
    """Expected site and node of a waiting job, as of the last `refresh`."""
    trained: Trained = nothing_trained
    """Current progress of a job with windows, as of the last `refresh`."""
    windows: PlannedWindows = nothing_planned
    """Windows that the forecast opens later at a site, as of the last `refresh`."""
    chunk_windows: ChunkWindows = no_windows
    """Node and time window of each chunk of a job."""
    what_if: WhatIfs | None = None
    """Plan of a job that is not submitted; None if users may not ask for it."""
    refresh: Callable[[], Awaitable[None]] = nothing
    """Reads those of these values again that are as of the last `refresh`, if they are old."""
    responds: Callable[[], bool] = always
    """Whether the planner has answered the last `refresh`; else plans, times and reasons are from before."""


@dataclass(frozen=True, slots=True)
class WebContext:
    """State that the routes share."""

    view: View
    board: Board
    timelines: Timelines
    occurrences: Occurrences
    planning: Planning
    actions: bool
    """Whether users may act on jobs."""


def create_page_app(
    view: View,
    watches: ViewSources,
    client: ApiClient,
    planning: Planning | None = None,
    clock: Callable[[], float] = time.monotonic,
    *,
    actions: bool = False,
) -> FastAPI:
    """Create the application. It shares the event loop with the watches and the report API, so handlers yield often.

    Args:
        view: View of the extender verbs.
        watches: Watches of the view.
        client: Client for token and access reviews, and for events.
        planning: Access to the planner; default: none.
        clock: Monotonic seconds, for caches.
        actions: Whether users may suspend, resume, delete and weight the jobs that RBAC lets them.
    """
    planning = planning or Planning()
    board = Board(view, watches, planning.expected, planning.windows)
    context = WebContext(view, board, Timelines(view, board, clock), Occurrences(client, clock), planning, actions)
    guard = Guard(AccessReviewer(client, clock))
    app = FastAPI(title="tranche", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(SafeHeaders)
    app.add_exception_handler(Refusal, _refused)
    add_error_handlers(app)
    app.include_router(static_files())
    app.include_router(_overview_routes(context, guard))
    app.include_router(_list_routes(context, guard))
    app.include_router(_job_routes(context, guard))
    app.include_router(_job_part_routes(context, guard))
    if planning.what_if is not None:
        app.include_router(what_if_routes(board, client, planning.what_if, guard, clock))
    if actions:
        app.include_router(action_routes(view, client, guard, clock))
    return app


def _overview_routes(context: WebContext, guard: Guard) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["read"])
    board = context.board

    @router.get("/overview")
    async def read_overview(
        request: Request,
        visitor: Annotated[Visitor, Depends(guard)],
        namespace: Name = "",
        find: Find = "",
        phase: Phase = "",
        since: datetime | None = None,
        waiting: Sort = "",
        running: Sort = "",
        finished: Sort = "",
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_JOBS)] = DEFAULT_JOBS,
    ) -> Response:
        """Overview page: user, visible namespaces, totals, sites with the use of each, and jobs by group.

        `since` is the time from which finished jobs count in the totals. `waiting`, `running` and `finished` are the
        order of each group: name, created, start, completion, completed or jct, with "-" before it for descending.
        """
        visible = await visitor.scope(board.namespaces)
        scope = await visitor.scope((), namespace) if namespace else visible
        whole = await visitor.may("list", "sites")
        await context.planning.refresh()
        sorts = {"waiting": waiting, "running": running, "finished": finished}
        groups = {}
        for group in GROUPS:
            total, jobs = await board.jobs(group, scope, Selection(find, phase, sorts[group], limit))
            groups[group] = total, [_with_progress(job, context.planning.trained) for job in jobs]
            await asyncio.sleep(0)  # let other requests run in between
        answer = {
            "user": visitor.user.username,
            "namespaces": [name for name in board.namespaces if name in visible],
            "sites": await context.timelines.sites() if whole else [{"name": site} for site in board.own_sites(scope)],
            "uses": board.uses(scope),
            "whatIf": context.planning.what_if is not None,
            "plannerResponds": context.planning.responds(),
            "totals": await board.totals(scope, since if since is None or since.tzinfo else since.replace(tzinfo=UTC)),
            **{group: {"total": total, "jobs": jobs} for group, (total, jobs) in groups.items()},
        }
        return data_response(answer, request)

    return router


def _list_routes(context: WebContext, guard: Guard) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["read"])
    board = context.board

    @router.get("/timeline/{site}")
    async def read_timeline(
        request: Request,
        visitor: Annotated[Visitor, Depends(guard)],
        site: PathName,
        namespace: Name = "",
        after: Annotated[str, Query(max_length=253)] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_LANES)] = 16,
    ) -> Response:
        """Nodes of a site with their windows, paginated; `next` is the `after` of the next page."""
        whole = await visitor.may("list", "sites")
        scope = await visitor.scope(board.namespaces, namespace)
        await context.planning.refresh()
        return data_response(await context.timelines.timeline(site, scope, whole, after, limit), request)

    @router.get("/jobs")
    async def list_jobs(
        request: Request,
        visitor: Annotated[Visitor, Depends(guard)],
        namespace: Name = "",
        phase: Phase = "",
        after: Annotated[str, Query(max_length=127)] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_JOBS)] = 500,
    ) -> Response:
        """Jobs by namespace and name, paginated; `next` is the `after` of the next page."""
        scope = await visitor.scope(board.namespaces, namespace)
        jobs = await board.list_jobs(scope, phase, after, limit)
        last = f"{jobs[-1].namespace}/{jobs[-1].name}" if len(jobs) == limit else None
        return data_response({"jobs": jobs, "next": last}, request)

    @router.get("/sites")
    async def list_sites(request: Request, visitor: Annotated[Visitor, Depends(guard)]) -> Response:
        """All sites with capacity, usage and reservations."""
        await visitor.require("list", "sites")
        return data_response({"sites": await context.timelines.sites()}, request)

    return router


def _job_routes(context: WebContext, guard: Guard) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["read"])

    @router.get("/jobs/{namespace}/{name}")
    async def read_job(
        request: Request, visitor: Annotated[Visitor, Depends(guard)], namespace: PathName, name: PathName
    ) -> Response:
        """One job with its plan and progress."""
        await visitor.require("get", "trainingjobs", namespace, name)
        job = await job_views.read_job(context.view, namespace, name, context.planning.progress)
        if job is None:
            return _absent(namespace, name)
        await context.planning.refresh()
        gpus = row.gpus if (row := context.board.rows.get(f"{namespace}/{name}")) is not None else 0
        may = await allowed_actions(visitor, namespace, name) if context.actions else []
        expected = context.planning.expected(f"{namespace}/{name}")
        place = {"site": expected.site, "node": expected.node} if expected is not None and not job.windows else None
        more = {
            "gpus": gpus,
            "expectedAt": place,
            "actions": may,
            "plannerResponds": context.planning.responds(),
        }
        return data_response({**msgspec.to_builtins(job), **more}, request)

    @router.get("/openapi.json", dependencies=[Depends(guard)], include_in_schema=False)
    async def describe(request: Request) -> Response:
        """OpenAPI description of this API."""
        return data_response(request.app.openapi(), request)

    return router


def _job_part_routes(context: WebContext, guard: Guard) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["read"])

    @router.get("/jobs/{namespace}/{name}/chunks")
    async def read_chunks(
        request: Request,
        visitor: Annotated[Visitor, Depends(guard)],
        namespace: PathName,
        name: PathName,
        after: Annotated[int, Query(ge=-1, le=MAX_CHUNK)] = -1,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_JOBS)] = 500,
    ) -> Response:
        """Node and time window of each chunk or gang member, paginated; `next` is the `after` of the next page."""
        await visitor.require("get", "trainingjobs", namespace, name)
        key = f"{namespace}/{name}"
        job = context.view.jobs.get(key)
        if job is None:
            return _absent(namespace, name)
        windows = await context.planning.chunk_windows(key)
        return data_response(page_of(windows, after, limit, ended=job.status.phase in OVER), request)

    @router.get("/jobs/{namespace}/{name}/events")
    async def read_events(
        request: Request, visitor: Annotated[Visitor, Depends(guard)], namespace: PathName, name: PathName
    ) -> Response:
        """Recent Kubernetes events of the job; `refused` has the reason if the user may not list events."""
        await visitor.require("get", "trainingjobs", namespace, name)
        if refused := await visitor.objection("list", "/events", namespace):
            return data_response({"events": [], "refused": refused}, request)
        job = context.view.jobs.get(f"{namespace}/{name}")
        if job is None:
            return _absent(namespace, name)
        events = await answered(lambda: context.occurrences.of(namespace, name, job.metadata.uid))
        return data_response({"events": events, "refused": ""}, request)

    return router


def _with_progress(job: job_views.JobSummary, trained: Trained) -> job_views.JobSummary:
    """Return the summary with the planner's progress, which is newer than the status."""
    progress = trained(f"{job.namespace}/{job.name}")
    if progress is None:
        return job
    share = share_text(progress.batches, progress.total)
    return msgspec.structs.replace(
        job,
        batches=progress.batches,
        total_batches=progress.total,
        trained_share=share,
        explanation=with_share(job.explanation, share),
    )


def data_response(value: Any, request: Request) -> Response:
    """Encode a response as JSON, or return 304 if the client has the same version."""
    body = _encode(value)
    headers = {"ETag": etag(body), "Cache-Control": "no-cache, private", "Vary": "Authorization, Tranche-Token"}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _absent(namespace: str, name: str) -> Response:
    return JSONResponse({"error": f"TrainingJob {namespace}/{name} does not exist"}, 404)


async def _refused(request: Request, refusal: Exception) -> Response:
    status = refusal.status if isinstance(refusal, Refusal) else 500
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(RETRY_SECONDS)}}.get(status, {})
    return JSONResponse({"error": str(refusal)}, status, {**headers, "Cache-Control": "no-store"})
