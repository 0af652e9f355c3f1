"""What a shadow scheduler tells over HTTP."""

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Response

from tranche.extender.app import json_response
from tranche.replay.shadow_scheduler import Shadow


def shadow_routes(shadow: Shadow) -> APIRouter:
    """``/v1/shadow``: the last comparison; ``/v1/shadow/decisions``: what would have been done, newest first."""
    router = APIRouter(prefix="/v1/shadow", tags=["shadow"])

    @router.get("")
    async def comparison() -> Response:
        """As `tranche replay --format json`; `problem` says why there is none yet."""
        return json_response({**shadow.comparison, "problem": shadow.problem})

    @router.get("/decisions")
    async def decisions(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
        """The last decisions."""
        return json_response({"decisions": list(islice(reversed(shadow.decisions.kept), limit))})

    return router
