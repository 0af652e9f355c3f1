"""Actions of users on jobs: suspend, resume, delete and set the weight.

The API process writes with its own service account, because a token for the page is not valid at the API server. For
each action the API server reviews, without a cache, whether the user may do exactly this to this job.
"""

import logging
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Depends, Path, Request, Response
from starlette.responses import JSONResponse

from tranche.extender.view import View
from tranche.kube.api.resources import API_VERSION
from tranche.kube.client.client import ApiClient, ApiError
from tranche.runtime.rate_limit import RateLimit
from tranche.web.authorization import Guard, Refusal, Visitor
from tranche.web.request_origin import page_body

logger = logging.getLogger(__name__)
FIELD_MANAGER = "tranche-page"
MAX_BODY_BYTES = 4096
ACTIONS_PER_SECOND, ACTIONS_BURST = 1.0, 20
"""Rate limit of actions by user."""
VERBS = {"suspend": "patch", "resume": "patch", "weight": "patch", "delete": "delete"}
"""Verb of the API server by action."""
OTHER_JOB = ("UID in the precondition", "UID in precondition", "metadata.uid")
"""Parts of the API server's message if the UID is that of another job: for a deletion (two checks) and a change."""
PathName = Annotated[str, Path(max_length=253)]


class Action(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a request."""

    action: Literal["suspend", "resume", "weight", "delete"]
    uid: str
    """UID of the job that the user sees, so that no other job with its name is changed."""
    weight: float | None = None
    """New value of `spec.weight`, for the action weight."""

    @property
    def spec(self) -> dict[str, Any]:
        """Fields of `spec` to change; empty for the action delete."""
        if self.action == "delete":
            return {}
        return {"weight": self.weight} if self.action == "weight" else {"suspend": self.action == "suspend"}


_decode = msgspec.json.Decoder(Action).decode


async def allowed_actions(visitor: Visitor, namespace: str, name: str) -> list[str]:
    """Return the actions that the user may take on a job; a cached review may be up to a minute old.

    Raises:
        Refusal: 503 if the API server does not respond.
    """
    verbs = {verb for verb in set(VERBS.values()) if await visitor.may(verb, "trainingjobs", namespace, name)}
    return [action for action, verb in VERBS.items() if verb in verbs]


def action_routes(
    view: View, client: ApiClient, guard: Guard, clock: Callable[[], float] = time.monotonic
) -> APIRouter:
    """Create the route of actions.

    Args:
        view: The jobs.
        client: Client whose account may patch and delete TrainingJobs.
        guard: Authentication of users.
        clock: Monotonic seconds, for the rate limit.
    """
    router = APIRouter(prefix="/v1", tags=["write"])
    limit = RateLimit(ACTIONS_PER_SECOND, ACTIONS_BURST)

    @router.post("/jobs/{namespace}/{name}/actions")
    async def act(
        request: Request, visitor: Annotated[Visitor, Depends(guard)], namespace: PathName, name: PathName
    ) -> Response:
        """Suspend, resume, delete or set the weight of a job: ``{"action": "suspend", "uid": "…"}``."""
        body = await page_body(request, MAX_BODY_BYTES)
        try:
            action = _decode(body)
        except msgspec.DecodeError as error:
            raise Refusal(400, f"the body is not an action: {error}") from None
        if action.action == "weight" and action.weight is None:
            raise Refusal(400, "the action weight needs the field weight")
        if not limit.admits(visitor.user.username, clock()):
            raise Refusal(429, "too many actions: retry later")
        await visitor.require_now(VERBS[action.action], "trainingjobs", namespace, name)
        if f"{namespace}/{name}" not in view.jobs:
            raise Refusal(404, f"TrainingJob {namespace}/{name} does not exist")
        await _write(client, namespace, name, action)
        job, user = f"{namespace}/{name}", visitor.user.username
        change = f"weight {action.weight:g}" if action.action == "weight" else action.action
        logger.info("%s: action on the web page: %s (user %s)", job, change, user, extra={"job": job, "user": user})
        return JSONResponse({"done": action.action})

    return router


async def _write(client: ApiClient, namespace: str, name: str, action: Action) -> None:
    """Write an action.

    Raises:
        Refusal: the API server rejects it, with the message of the API server, or the job is another one of its name.
    """
    path = f"/apis/{API_VERSION}/namespaces/{quote(namespace, '')}/trainingjobs/{quote(name, '')}"
    try:
        if action.action == "delete":
            options = {"preconditions": {"uid": action.uid}, "propagationPolicy": "Background"}
            body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
            await client.request("DELETE", path, body=body)
        else:
            await client.request(
                "PATCH",
                path,
                body={"metadata": {"uid": action.uid}, "spec": action.spec},
                content_type="application/merge-patch+json",
                params={"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"},
            )
    except ApiError as error:
        if error.status in (409, 422) and any(words in error.message for words in OTHER_JOB):
            text = f"TrainingJob {namespace}/{name} was deleted and created again since this page showed it: reload"
            raise Refusal(409, text) from error
        # 401 would be about the account of this process, and the page would ask the user for another token.
        status = error.status if 400 <= error.status < 500 and error.status != 401 else 502
        raise Refusal(status, error.message or error.reason) from error
