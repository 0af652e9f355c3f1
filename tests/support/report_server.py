"""Real report API on this machine; only its TokenReview is a stand-in."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tranche.auth.pod_token import TokenReviewer
from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import REPORT_AUDIENCE
from tranche.kube.api.resources import TrainingJob
from tranche.live.chunk_requests import ChunkRequestQueue
from tranche.live.planner_inbox import ReportInbox
from tranche.metrics.scheduler import Metrics
from tranche.planner_api.receiver import PlannerReceiver
from tranche.runtime.http_server import serve
from tranche.worker_api.app import create_report_app


class Reviews:
    """Stand-in for the API server: a token names the pod that it is bound to."""

    async def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        namespace, name, uid = body["spec"]["token"].split("/")
        extra = {"authentication.kubernetes.io/pod-name": [name], "authentication.kubernetes.io/pod-uid": [uid]}
        user = {"username": f"system:serviceaccount:{namespace}:default", "extra": extra}
        return {"status": {"authenticated": True, "audiences": [REPORT_AUDIENCE], "user": user}}


@asynccontextmanager
async def served(
    pods: Mapping[str, Pod],
    jobs: Mapping[str, TrainingJob],
    inbox: ReportInbox,
    chunk_requests: ChunkRequestQueue,
    clock: Callable[[], float],
) -> AsyncIterator[str]:
    """Serve it; gives its address."""
    app = create_report_app(
        pods, jobs, PlannerReceiver(inbox, chunk_requests), TokenReviewer(Reviews()), Metrics(), clock
    )
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(app, "127.0.0.1", 0, listening=listening.set_result))
    try:
        yield f"http://127.0.0.1:{await listening}"
    finally:
        serving.cancel()
        await asyncio.wait([serving])
