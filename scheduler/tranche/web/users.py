"""Who looks: a bearer token, reviewed by the API server, and what that user may read, by SubjectAccessReview.

Nothing is decided here: the API server says who somebody is, and its RBAC says which namespaces' TrainingJobs he may
read. Both answers are believed for a short while.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from tranche.extender.reviews import Bounds, Requests, Reviews, User, ask, review_token

AUDIENCE = "page.tranche.dev"
"""Of tokens that are worth a look at this page and nothing else, as ``kubectl create token --audience`` makes them."""
LONGEST_TOKEN = 16 * 2**10
"""Bytes; those of some identity providers have several thousand."""
TOKENS = Bounds(trusted_seconds=60.0, refused_seconds=10.0, remembered=1000, at_once=8, longest_line=200)
RIGHTS = Bounds(trusted_seconds=60.0, refused_seconds=10.0, remembered=50_000, at_once=16, longest_line=20_000)
AUTHORIZATION = "authorization.k8s.io/v1"
GROUP = "tranche.dev"


class _Decision(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _Decision = msgspec.field(default_factory=_Decision)


@dataclass(frozen=True, slots=True)
class Scope:
    """Namespaces whose jobs somebody may list."""

    everything: bool = False
    namespaces: frozenset[str] = frozenset()

    def __contains__(self, namespace: str) -> bool:
        return self.everything or namespace in self.namespaces


class AccessReviewer:
    """Asks the API server who comes in and what he may see."""

    def __init__(self, client: Requests, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._users: Reviews[User] = Reviews(TOKENS, clock)
        self._rights: Reviews[bool] = Reviews(RIGHTS, clock)

    async def identify(self, token: str) -> User | None:
        """Whose token it is; None if it is not valid here.

        Raises:
            ApiError: if the API server does not answer.
            BusyError: if too many reviews are under way.
        """
        if not token or len(token) > LONGEST_TOKEN:
            return None
        return await self._users.find(token.encode(errors="replace"), lambda: self._review(token))

    async def may(self, user: User, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Whether RBAC lets the user do that.

        Args:
            user: Who.
            verb: Of Kubernetes, such as list.
            resource: Of our group, such as trainingjobs; of the core group with a leading slash, such as /events.
            namespace: Empty: all of them.
            name: Empty: any.

        Raises:
            ApiError: if the API server does not answer.
            BusyError: if too many reviews are under way.
        """
        group = "" if resource.startswith("/") else GROUP
        attributes = {"verb": verb, "group": group, "resource": resource.lstrip("/"), "namespace": namespace}
        if name:
            attributes["name"] = name
        spec = {**msgspec.to_builtins(user), "resourceAttributes": attributes}
        spec["user"] = spec.pop("username")
        return bool(await self._rights.find(msgspec.json.encode(spec), lambda: self._access(spec)))

    async def scope(self, user: User, namespaces: Collection[str]) -> Scope:
        """Which of these namespaces' jobs the user may list; raises what `may` does."""
        if await self.may(user, "list", "trainingjobs"):
            return Scope(everything=True)
        names = sorted(namespaces)
        allowed = await asyncio.gather(*(self.may(user, "list", "trainingjobs", name) for name in names))
        return Scope(namespaces=frozenset(name for name, yes in zip(names, allowed, strict=True) if yes))

    async def _review(self, token: str) -> User | None:
        """With our audience, or else with the API server's own."""
        for audience in (AUDIENCE, None):
            status = await review_token(self._client, token, audience)
            # An authenticator that knows no audiences names none; its token then is good for the API server only.
            meant = audience is None or audience in status.audiences
            if status.authenticated and meant and status.user.username:
                return status.user
        return None

    async def _access(self, spec: dict[str, Any]) -> bool | None:
        status = (await ask(self._client, AUTHORIZATION, "SubjectAccessReview", spec, _AccessReview)).status
        return True if status.allowed and not status.denied else None
