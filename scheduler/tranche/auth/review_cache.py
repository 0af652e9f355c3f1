"""Token and access reviews by the API server, with a cache of their results."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

import msgspec

from tranche.kube.client.client import ApiError
from tranche.runtime.rate_limit import RateLimit

T = TypeVar("T")


class User(msgspec.Struct, frozen=True):
    """UserInfo of ``authentication.k8s.io/v1``: a user as the API server authenticated them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


class TokenReviewStatus(msgspec.Struct):
    """Status of a TokenReview."""

    authenticated: bool = False
    audiences: list[str] = []
    """Those of the requested audiences that the token is valid for; empty from an authenticator without audiences."""
    user: User = User()


class _TokenReview(msgspec.Struct):
    status: TokenReviewStatus = msgspec.field(default_factory=TokenReviewStatus)


AUTHENTICATION = "authentication.k8s.io/v1"
LONGEST_TOKEN = 16 * 2**10
"""Maximum token size in bytes; service-account tokens have one or two thousand, those of some identity providers
several thousand."""
REFUSALS_PER_SECOND, REFUSALS_BURST = 1.0, 64
"""Rate limit of invalid tokens by peer address; reviews in progress count until they succeed."""


class BusyError(Exception):
    """Too many reviews are pending."""


class TooManyRefusalsError(Exception):
    """Too many reviews for one peer had a negative result."""


class Requests(Protocol):
    """The part of `ApiClient` that reviews use."""

    async def request(self, method: str, path: str, *, body: object | bytes | None = None) -> dict[str, object]:
        """Send a request and return the decoded object."""


async def ask(client: Requests, api: str, kind: str, spec: object, form: type[T]) -> T:
    """Create a review object and return the response of the API server.

    Args:
        client: Client of the API server.
        api: Group and version, such as ``authentication.k8s.io/v1``.
        kind: Kind of the review, such as TokenReview.
        spec: Specification of the review.
        form: Type that the response is decoded to.

    Raises:
        ApiError: the request fails, or the response has another form.
    """
    body = {"apiVersion": api, "kind": kind, "spec": spec}
    answer = await client.request("POST", f"/apis/{api}/{kind.lower()}s", body=body)
    try:
        return msgspec.convert(answer, form)
    except msgspec.ValidationError as error:
        raise ApiError(502, "Malformed", f"{kind}: {error}") from error


async def review_token(client: Requests, token: str, audience: str | None = None) -> TokenReviewStatus:
    """Have the API server review a bearer token.

    Args:
        client: Client of the API server.
        token: The token.
        audience: Audience that the token must be meant for; None: the API server's own.

    Raises:
        ApiError: the API server does not respond.
    """
    spec: dict[str, object] = {"token": token} if audience is None else {"token": token, "audiences": [audience]}
    return (await ask(client, AUTHENTICATION, "TokenReview", spec, _TokenReview)).status


@dataclass(frozen=True, slots=True)
class Bounds:
    """Cache times and limits of reviews."""

    trusted_seconds: float
    """Cache time of a positive result."""
    refused_seconds: float
    """Cache time of a negative result, short because API servers learn of a new token or permission at different
    times."""
    max_accepted: int
    """Cache size of positive results."""
    parallel: int
    """Maximum number of requests to the API server at a time."""
    max_pending: int
    """Maximum number of pending reviews; further ones raise `BusyError`. There is as much room again for reviews that
    renew a positive result, so that invalid tokens do not keep valid ones away."""
    max_refusals: int = 1000
    """Cache size of negative results, separate so that they do not evict positive ones."""


class Reviews(Generic[T]):
    """Cache of review results; None is a negative result."""

    def __init__(
        self, bounds: Bounds, clock: Callable[[], float] = time.monotonic, limit: RateLimit | None = None
    ) -> None:
        """Create an empty cache.

        Args:
            bounds: Cache times and limits.
            clock: Monotonic seconds.
            limit: Limit by peer of reviews with a negative result.
        """
        self._bounds = bounds
        self._clock = clock
        self._limit = limit
        self._accepted: OrderedDict[bytes, tuple[T | None, float]] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[T | None, float]] = OrderedDict()
        self._slots = asyncio.Semaphore(bounds.parallel)
        self._pending: Counter[bytes] = Counter()
        """Tasks that wait for a review, by its digest."""

    async def find(self, question: bytes, ask: Callable[[], Awaitable[T | None]], peer: str = "") -> T | None:
        """Return the cached result, else the result of `ask`. Only a digest of the question is stored.

        Args:
            question: What is reviewed.
            ask: Asks the API server.
            peer: Address of the client, for the limit of negative results.

        Raises:
            ApiError: the API server does not respond; this is not cached.
            BusyError: too many reviews are pending.
            TooManyRefusalsError: too many reviews for this peer had a negative result.
        """
        digest = blake2b(question, digest_size=16).digest()
        if (cached := self._fresh(digest)) is not None:
            return cached[0]
        if digest in self._pending:  # its result counts for all tasks
            return await self._review(digest, ask)
        renews = digest in self._accepted
        if len(self._pending) >= self._bounds.max_pending * (1 + renews):
            raise BusyError
        if self._limit is None or renews:
            return await self._review(digest, ask)
        if not self._limit.admits(peer, self._clock()):
            raise TooManyRefusalsError
        refused = False
        try:
            answer = await self._review(digest, ask)
            refused = answer is None
        finally:
            if not refused:
                self._limit.refund(peer)
        return answer

    def last(self, question: bytes) -> tuple[T | None, float] | None:
        """Return the last result and the time until which it counts, which may be over; None if there is none."""
        digest = blake2b(question, digest_size=16).digest()
        return self._accepted.get(digest) or self._refused.get(digest)

    async def _review(self, digest: bytes, ask: Callable[[], Awaitable[T | None]]) -> T | None:
        self._pending[digest] += 1
        try:
            async with self._slots:
                if (cached := self._fresh(digest)) is not None:  # another task has asked meanwhile
                    return cached[0]
                answer = await ask()
        finally:
            self._pending[digest] -= 1
            if not self._pending[digest]:
                del self._pending[digest]
        self._store(digest, answer)
        return answer

    def _fresh(self, digest: bytes) -> tuple[T | None, float] | None:
        cached = self._accepted.get(digest) or self._refused.get(digest)
        return cached if cached is not None and self._clock() < cached[1] else None

    def _store(self, digest: bytes, answer: T | None) -> None:
        bounds = self._bounds
        cache, seconds, size = self._accepted, bounds.trusted_seconds, bounds.max_accepted
        if answer is None:
            cache, seconds, size = self._refused, bounds.refused_seconds, bounds.max_refusals
            self._accepted.pop(digest, None)
        cache[digest] = (answer, self._clock() + seconds)
        cache.move_to_end(digest)
        while len(cache) > size:
            cache.popitem(last=False)


class TokenReviews(Generic[T]):
    """Cache of the reviews of bearer tokens, with limits on their size and on invalid ones by peer address."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float]) -> None:
        self._reviews: Reviews[T] = Reviews(bounds, clock, RateLimit(REFUSALS_PER_SECOND, REFUSALS_BURST))

    async def find(self, token: str, ask: Callable[[], Awaitable[T | None]], peer: str) -> T | None:
        """Return the cached result, else the result of `ask`; None for a token that is empty or too long.

        Args:
            token: The token.
            ask: Asks the API server.
            peer: Address of the client, which limits the number of invalid tokens.

        Raises:
            ApiError: the API server does not respond.
            BusyError: too many reviews are pending.
            TooManyRefusalsError: too many tokens from this peer were invalid.
        """
        if not token or len(token) > LONGEST_TOKEN:
            return None
        return await self._reviews.find(token.encode(errors="replace"), ask, peer)
