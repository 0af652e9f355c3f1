"""Authentication and authorization of every request for data."""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from fastapi import Request

from tranche.auth.review_cache import BusyError, TooManyRefusalsError, User
from tranche.auth.user_access import AccessReviewer, Scope
from tranche.kube.client.client import ApiError

T = TypeVar("T")
HEADER = "Tranche-Token"
"""Alternative to ``Authorization: Bearer``, which the service proxy of the API server does not forward."""
RETRY_SECONDS = 5


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """Rejection of a request, with an HTTP status and a one-line reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Visitor:
    """Authenticated user of one request."""

    def __init__(self, user: User, reviewer: AccessReviewer) -> None:
        self.user = user
        self._reviewer = reviewer

    async def scope(self, namespaces: Collection[str], only: str = "") -> Scope:
        """Return the namespaces to show: those in which the user may list jobs, or only the requested one.

        Raises:
            Refusal: 403 if the user may not list the requested one, 503 if the API server does not respond.
        """
        if only:
            await self.require("list", "trainingjobs", only)
            return Scope(namespaces=frozenset({only}))
        return await answered(lambda: self._reviewer.scope(self.user, namespaces))

    async def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Return `AccessReviewer.may` for this user; raises Refusal 503 if the API server does not respond."""
        return await answered(lambda: self._reviewer.may(self.user, verb, resource, namespace, name))

    async def objection(self, verb: str, resource: str, namespace: str = "", name: str = "") -> str:
        """Return why the user may not do that; empty if allowed. Raises the same errors as `may`."""
        if await self.may(verb, resource, namespace, name):
            return ""
        return _forbidden(self.user, verb, resource, namespace)

    async def require(self, verb: str, resource: str, namespace: str = "", name: str = "") -> None:
        """Raise Refusal 403 if the user may not do that."""
        if reason := await self.objection(verb, resource, namespace, name):
            raise Refusal(403, reason)

    async def require_now(self, verb: str, resource: str, namespace: str, name: str) -> None:
        """Raise Refusal 403 unless the API server allows that at this moment; no cached review is used."""
        if not await answered(lambda: self._reviewer.may_now(self.user, verb, resource, namespace, name)):
            raise Refusal(403, _forbidden(self.user, verb, resource, namespace))


class Guard:
    """FastAPI dependency of every route with data, which authenticates the user."""

    def __init__(self, reviewer: AccessReviewer) -> None:
        self._reviewer = reviewer

    async def __call__(self, request: Request) -> Visitor:
        """Authenticate the request.

        Raises:
            Refusal: 401 without a valid token, 503 if the API server does not respond.
        """
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        token = request.headers.get(HEADER, "") or (bearer if scheme.lower() == "bearer" else "")
        if not token.strip():
            raise Refusal(401, f"a token is required: set the header Authorization: Bearer TOKEN or {HEADER}: TOKEN")
        peer = request.client.host if request.client is not None else ""
        user = await answered(lambda: self._reviewer.identify(token.strip(), peer))
        if user is None:
            raise Refusal(401, "the API server rejected this token: it may have expired")
        return Visitor(user, self._reviewer)


def _forbidden(user: User, verb: str, resource: str, namespace: str) -> str:
    where = f" in namespace {namespace}" if namespace else ""
    resource_name = resource[1:] if resource.startswith("/") else f"{resource}.tranche.dev"
    return f"{user.username} is not allowed to {verb} {resource_name}{where} (RBAC)"


async def answered(question: Callable[[], Awaitable[T]]) -> T:
    """Await a review; raises Refusal 503 if the API server does not respond."""
    try:
        return await question()
    except BusyError:
        raise Refusal(503, "too many token and access reviews are pending") from None
    except TooManyRefusalsError:
        raise Refusal(429, "too many refused requests: retry later") from None
    except ApiError as error:
        raise Refusal(503, f"the API server is not available: {error.reason or error.status}") from error
