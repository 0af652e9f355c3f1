"""Users of the web page: TokenReview for authentication, SubjectAccessReview for authorization.

The API server identifies the user, and its RBAC decides which namespaces' TrainingJobs the user may read. Both results
are cached for a short time.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from tranche.auth.review_cache import Bounds, Requests, Reviews, TokenReviews, User, ask, review_token
from tranche.runtime.rate_limit import RateLimit

AUDIENCE = "page.tranche.dev"
"""Audience of tokens that are valid for this page only; ``kubectl create token --audience`` creates them."""
TOKENS = Bounds(trusted_seconds=60.0, refused_seconds=10.0, max_accepted=1000, parallel=8, max_pending=200)
RIGHTS = Bounds(
    trusted_seconds=60.0,
    refused_seconds=60.0,
    max_accepted=50_000,
    parallel=16,
    max_pending=20_000,
    max_refusals=50_000,  # a visitor has one for nearly each namespace
)
REVIEWS_PER_SECOND, REVIEWS_BURST = 50.0, 500
"""Rate limit of access reviews by user to find the namespaces that a user may see; without rights, each costs one."""
AUTHORIZATION = "authorization.k8s.io/v1"
GROUP = "tranche.dev"


class _Decision(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _Decision = msgspec.field(default_factory=_Decision)


@dataclass(frozen=True, slots=True)
class Scope:
    """Namespaces whose jobs a user may list."""

    everything: bool = False
    namespaces: frozenset[str] = frozenset()

    def __contains__(self, namespace: str) -> bool:
        return self.everything or namespace in self.namespaces


class AccessReviewer:
    """Authenticates and authorizes users through the API server."""

    def __init__(self, client: Requests, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._users: TokenReviews[User] = TokenReviews(TOKENS, clock)
        self._rights: Reviews[bool] = Reviews(RIGHTS, clock)
        self._budget = RateLimit(REVIEWS_PER_SECOND, REVIEWS_BURST)

    async def identify(self, token: str, peer: str = "") -> User | None:
        """Return the user of a token, None if it is not valid here; raises the errors of `TokenReviews.find`."""
        return await self._users.find(token, lambda: self._review(token), peer)

    async def may(self, user: User, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Return whether RBAC allows the user an action.

        Args:
            user: The user.
            verb: API verb, such as list.
            resource: Resource of the group tranche.dev, such as trainingjobs; with a leading slash, of the core group.
            namespace: Namespace; empty: all namespaces.
            name: Object name; empty: any.

        Raises:
            ApiError: the API server does not respond.
            BusyError: too many reviews are pending.
        """
        spec = _spec(user, verb, resource, namespace, name)
        return bool(await self._rights.find(msgspec.json.encode(spec), lambda: self._access(spec)))

    async def may_now(self, user: User, verb: str, resource: str, namespace: str, name: str) -> bool:
        """Review as `may` does, but without the cache; the caller limits the rate."""
        return bool(await self._access(_spec(user, verb, resource, namespace, name)))

    async def scope(self, user: User, namespaces: Collection[str]) -> Scope:
        """Return which of these namespaces' jobs the user may list; raises the same errors as `may`.

        Reviews beyond the user's rate limit are left to later requests; such a namespace is not visible until then.
        Namespaces that were visible come first, then those that were reviewed the longest time ago.
        """
        if await self.may(user, "list", "trainingjobs"):
            return Scope(everything=True)
        last_reviews = {name: self._last(user, name) for name in namespaces}
        order = sorted(last_reviews, key=lambda name: (not last_reviews[name][0], last_reviews[name][1], name))
        now = self._clock()
        names = [name for name in order if now < last_reviews[name][1] or self._budget.admits(user.username, now)]
        allowed = await asyncio.gather(*(self.may(user, "list", "trainingjobs", name) for name in names))
        return Scope(namespaces=frozenset(name for name, is_allowed in zip(names, allowed, strict=True) if is_allowed))

    def _last(self, user: User, namespace: str) -> tuple[bool, float]:
        """Return whether the user could last list the jobs of a namespace, and the time until which that counts."""
        review = self._rights.last(msgspec.json.encode(_spec(user, "list", "trainingjobs", namespace)))
        return (bool(review[0]), review[1]) if review is not None else (False, float("-inf"))

    async def _review(self, token: str) -> User | None:
        """Review a token with the audience of the page, then with that of the API server."""
        for audience in (AUDIENCE, None):
            status = await review_token(self._client, token, audience)
            # An authenticator without audience support returns none; such a token is for the API server only.
            is_meant_for_us = audience is None or audience in status.audiences
            if status.authenticated and is_meant_for_us and status.user.username:
                return status.user
        return None

    async def _access(self, spec: dict[str, Any]) -> bool | None:
        status = (await ask(self._client, AUTHORIZATION, "SubjectAccessReview", spec, _AccessReview)).status
        return True if status.allowed and not status.denied else None


def _spec(user: User, verb: str, resource: str, namespace: str = "", name: str = "") -> dict[str, Any]:
    """Return the specification of a SubjectAccessReview; the arguments are those of `AccessReviewer.may`."""
    group = "" if resource.startswith("/") else GROUP
    attributes = {"verb": verb, "group": group, "resource": resource.lstrip("/"), "namespace": namespace}
    if name:
        attributes["name"] = name
    spec: dict[str, Any] = {**msgspec.to_builtins(user), "resourceAttributes": attributes}
    spec["user"] = spec.pop("username")
    return spec
