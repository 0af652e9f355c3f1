"""Before every answer with data: a token is asked for, and every namespace is checked."""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from fastapi import Request

from tranche.extender.reviews import BusyError, User
from tranche.kube.clients import ApiError
from tranche.web.users import AccessReviewer, Scope

T = TypeVar("T")
HEADER = "Tranche-Token"
"""As good as ``Authorization: Bearer``, which the API server's service proxy keeps for itself."""
RETRY_SECONDS = 5


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A status and one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Visitor:
    """Somebody whose token is good."""

    def __init__(self, user: User, reviewer: AccessReviewer) -> None:
        self.user = user
        self._doorkeeper = reviewer

    async def scope(self, namespaces: Collection[str], only: str = "") -> Scope:
        """Which namespaces' jobs to show: those he may list, or the one that he asks for.

        Raises:
            Refusal: 403 if he may not list that one, 503 if the API server does not answer.
        """
        if only:
            await self.require("list", "trainingjobs", only)
            return Scope(namespaces=frozenset({only}))
        return await answered(lambda: self._doorkeeper.scope(self.user, namespaces))

    async def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """As `AccessReviewer.may`; raises Refusal 503 if the API server does not answer."""
        return await answered(lambda: self._doorkeeper.may(self.user, verb, resource, namespace, name))

    async def objection(self, verb: str, resource: str, namespace: str = "", name: str = "") -> str:
        """Why he may not do that; empty if he may. Raises what `may` does."""
        if await self.may(verb, resource, namespace, name):
            return ""
        where = f" in namespace {namespace}" if namespace else ""
        what = resource[1:] if resource.startswith("/") else f"{resource}.tranche.dev"
        return f"{self.user.username} is not allowed to {verb} {what}{where} (RBAC)"

    async def require(self, verb: str, resource: str, namespace: str = "", name: str = "") -> None:
        """Raise Refusal 403 if he may not."""
        if reason := await self.objection(verb, resource, namespace, name):
            raise Refusal(403, reason)


class Guard:
    """A dependency of every route with data: the visitor, or a refusal."""

    def __init__(self, reviewer: AccessReviewer) -> None:
        self._doorkeeper = reviewer

    async def __call__(self, request: Request) -> Visitor:
        """The visitor.

        Raises:
            Refusal: 401 without a good token, 503 if the API server does not answer.
        """
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        token = request.headers.get(HEADER, "") or (bearer if scheme.lower() == "bearer" else "")
        if not token.strip():
            raise Refusal(401, f"a token is required: set the header Authorization: Bearer TOKEN or {HEADER}: TOKEN")
        user = await answered(lambda: self._doorkeeper.identify(token.strip()))
        if user is None:
            raise Refusal(401, "the API server rejected this token: it may have expired")
        return Visitor(user, self._doorkeeper)


async def answered(question: Callable[[], Awaitable[T]]) -> T:
    """The API server's answer; raises Refusal 503 if there is none."""
    try:
        return await question()
    except BusyError:
        raise Refusal(503, "too many token and access reviews are pending") from None
    except ApiError as error:
        raise Refusal(503, f"the API server is not available: {error.reason or error.status}") from error
