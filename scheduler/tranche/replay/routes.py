"""HTTP routes of shadow mode."""

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Response

from tranche.extender.app import json_response
from tranche.replay.shadow_scheduler import Shadow


def shadow_routes(shadow: Shadow) -> APIRouter:
    """Create ``/v1/shadow`` (last comparison) and ``/v1/shadow/decisions`` (decisions, newest first)."""
    router = APIRouter(prefix="/v1/shadow", tags=["shadow"])

    @router.get("")
    async def comparison() -> Response:
        """Last comparison, as from `tranche replay --format json`; `problem` has the reason if there is none."""
        return json_response({**shadow.comparison, "problem": shadow.problem})

    @router.get("/decisions")
    async def decisions(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
        """Latest decisions."""
        return json_response({"decisions": list(islice(reversed(shadow.decisions.kept), limit))})

    return router
