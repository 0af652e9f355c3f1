"""The real report API on this machine; its TokenReview alone is a stand-in."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tranche.extender.reports import create_report_app
from tranche.extender.servers import serve
from tranche.extender.tokens import TokenReviewer
from tranche.kube.metrics import Metrics
from tranche.kube.names import REPORT_AUDIENCE
from tranche.kube.objects import Pod
from tranche.kube.resources import TrainingJob
from tranche.live.renewals import ChunkRequestQueue
from tranche.live.reports import ReportInbox


class Reviews:
    """Stands in for the API server: a token says which pod it is bound to."""

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
    renewals: ChunkRequestQueue,
    clock: Callable[[], float],
) -> AsyncIterator[str]:
    """Serve it; gives its address."""
    app = create_report_app(pods, jobs, inbox, renewals, TokenReviewer(Reviews()), Metrics(), clock)
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(app, "127.0.0.1", 0, listening=listening.set_result))
    try:
        yield f"http://127.0.0.1:{await listening}"
    finally:
        serving.cancel()
        await asyncio.wait([serving])
