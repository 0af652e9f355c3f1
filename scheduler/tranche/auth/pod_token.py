"""Authentication of pods by their projected service-account tokens, with TokenReview.

Only tokens with the audience of tranche are accepted. A pod's tokens for other services are not valid here, and the
tokens for tranche are not valid elsewhere.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tranche.auth.review_cache import Bounds, Requests, TokenReviews, User, review_token
from tranche.kube.api.names import REPORT_AUDIENCE

TRUSTED_SECONDS = 300.0
"""Cache time of a positive review; whether the pod still exists is checked for each request."""
REFUSED_SECONDS = 10.0
"""Cache time of a negative review, short because API servers learn of a new token at different times."""
MAX_CACHED = 50_000
"""Cache size in reviews, for 1,000 reports a second with one report per pod every 15 to 30 s."""
PARALLEL_REVIEWS = 32
MAX_PENDING = 1000
"""Maximum number of pending reviews."""
_PREFIX = "system:serviceaccount:"
_EXTRA = "authentication.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Bearer:
    """Pod that a token is bound to."""

    namespace: str
    pod: str
    uid: str


class TokenReviewer:
    """Reviewer of pod tokens with a cache."""

    def __init__(self, client: Requests, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        bounds = Bounds(TRUSTED_SECONDS, REFUSED_SECONDS, MAX_CACHED, PARALLEL_REVIEWS, MAX_PENDING)
        self._reviews: TokenReviews[Bearer] = TokenReviews(bounds, clock)

    async def review(self, token: str, peer: str = "") -> Bearer | None:
        """Return the pod that the token is bound to.

        None if it is invalid, for another audience, or not bound to a pod. Raises the errors of `TokenReviews.find`.
        """
        return await self._reviews.find(token, lambda: self._ask(token), peer)

    async def _ask(self, token: str) -> Bearer | None:
        status = await review_token(self._client, token, REPORT_AUDIENCE)
        if not status.authenticated or REPORT_AUDIENCE not in status.audiences:
            return None
        return _bearer(status.user)


def _bearer(user: User) -> Bearer | None:
    namespace, _, account = user.username.removeprefix(_PREFIX).partition(":")
    pods, uids = user.extra.get(f"{_EXTRA}pod-name"), user.extra.get(f"{_EXTRA}pod-uid")
    if not (user.username.startswith(_PREFIX) and account and pods and uids):
        return None
    return Bearer(namespace, pods[0], uids[0])
