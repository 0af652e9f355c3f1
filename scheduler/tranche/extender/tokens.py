"""Who sends a report: a pod, by its projected service-account token, as the API server reviews it.

Only tokens of our own audience count, so one that a pod was given for the API server or for anything else is worth
nothing here, and ours is worth nothing there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tranche.extender.reviews import Bounds, Requests, Reviews, User, review_token
from tranche.kube.names import REPORT_AUDIENCE

LONGEST_TOKEN = 16 * 2**10
"""Bytes; service-account tokens have one or two thousand."""
TRUSTED_SECONDS = 300.0
"""How long a review is believed; whether the pod still exists is looked up each time."""
REFUSED_SECONDS = 10.0
"""How long a refusal is: a new token may be known to one API server before the other."""
REMEMBERED = 50_000
"""Reviews that are kept: 1,000 reports a second, each pod's every 15–30 s."""
REVIEWS_AT_ONCE = 32
LONGEST_LINE = 1000
"""More that wait for a review are turned away."""
_PREFIX = "system:serviceaccount:"
_EXTRA = "authentication.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Bearer:
    """The pod that a token is bound to."""

    namespace: str
    pod: str
    uid: str


class TokenReviewer:
    """Asks the API server, and remembers its answers for a while."""

    def __init__(self, client: Requests, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        bounds = Bounds(TRUSTED_SECONDS, REFUSED_SECONDS, REMEMBERED, REVIEWS_AT_ONCE, LONGEST_LINE)
        self._reviews: Reviews[Bearer] = Reviews(bounds, clock)

    async def review(self, token: str) -> Bearer | None:
        """The pod that the token is bound to; None if it is not valid, not for us, or not bound to a pod.

        Raises:
            ApiError: if the API server does not answer.
            BusyError: if too many reviews are under way.
        """
        if not token or len(token) > LONGEST_TOKEN:
            return None
        return await self._reviews.find(token.encode(errors="replace"), lambda: self._ask(token))

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
