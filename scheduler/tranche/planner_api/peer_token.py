"""Authentication of the API process at the planner.

In a cluster, the API process has a projected token of the scheduler's service account with an audience of its own,
which only the container of the API mounts. The planner reviews it. On one machine, `tranche scheduler` gives a random
key to both processes.
"""

import hmac
import os
import time
from collections.abc import Callable
from pathlib import Path

from tranche.auth.review_cache import Bounds, Requests, TokenReviews, review_token
from tranche.planner_api.messages import KEY_VARIABLE

AUDIENCE = "planner.tranche.dev"
"""Audience of the token of the API process; tokens for the API server or for reports are rejected."""
BOUNDS = Bounds(trusted_seconds=60.0, refused_seconds=10.0, max_accepted=100, parallel=2, max_pending=20)


class PeerToken:
    """Token that the API process sends; a file is read again when the kubelet has renewed it."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._text = os.environ.get(KEY_VARIABLE, "")
        self._read_at = float("-inf")

    def read(self) -> str:
        """Return the token; empty if there is none."""
        now = time.monotonic()
        if self._file is not None and now - self._read_at > BOUNDS.trusted_seconds:
            self._text, self._read_at = self._file.read_text().strip(), now
        return self._text


class PeerGate:
    """Check of the tokens that clients of the planner's API send."""

    def __init__(self, client: Requests, account: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Accept one user.

        Args:
            client: Client of the API server, for TokenReview.
            account: Service account of the API process, as ``namespace:name``.
            clock: Monotonic seconds.
        """
        self._client = client
        self._user = f"system:serviceaccount:{account}"
        self._key = os.environ.get(KEY_VARIABLE, "")
        self._reviews: TokenReviews[bool] = TokenReviews(BOUNDS, clock)

    async def admits(self, authorization: str, peer: str = "") -> bool:
        """Return whether a request with this Authorization header comes from an API process.

        Args:
            authorization: The header.
            peer: Address of the client, which limits the number of invalid tokens.

        Raises the errors of `TokenReviews.find`.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer":
            return False
        if self._key and hmac.compare_digest(token.encode(errors="replace"), self._key.encode()):
            return True
        return bool(await self._reviews.find(token, lambda: self._review(token), peer))

    async def _review(self, token: str) -> bool | None:
        status = await review_token(self._client, token, AUDIENCE)
        known = status.authenticated and AUDIENCE in status.audiences and status.user.username == self._user
        return True if known else None
