"""Questions to the API server about who somebody is and what he may do, and its answers, remembered for a while."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

import msgspec

from tranche.kube.clients import ApiError

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


class BusyError(Exception):
    """Too many questions wait for their answer."""


class Requests(Protocol):
    """The part of an `ApiClient` that is used."""

    async def request(self, method: str, path: str, *, body: object | bytes | None = None) -> dict[str, object]:
        """Send and return the answer's object."""


async def ask(client: Requests, api: str, kind: str, spec: object, form: type[T]) -> T:
    """What the API server says to a review.

    Args:
        client: Of the API server.
        api: Group and version, such as ``authentication.k8s.io/v1``.
        kind: Such as TokenReview.
        spec: Of the review.
        form: What the answer is read as.

    Raises:
        ApiError: if it refuses, does not answer, or answers something else.
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
        ApiError: the API server does not answer.
    """
    spec: dict[str, object] = {"token": token} if audience is None else {"token": token, "audiences": [audience]}
    return (await ask(client, AUTHENTICATION, "TokenReview", spec, _TokenReview)).status


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long answers are believed, and how many questions there may be."""

    trusted_seconds: float
    """Of a yes."""
    refused_seconds: float
    """Of a no: a new token or right may be known to one API server before the other."""
    remembered: int
    at_once: int
    longest_line: int
    """More that wait are turned away."""


class Reviews(Generic[T]):
    """Answers by what was asked; None is a no."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[T | None, float]] = OrderedDict()
        self._slots = asyncio.Semaphore(bounds.at_once)
        self._line = 0

    async def find(self, question: bytes, ask: Callable[[], Awaitable[T | None]]) -> T | None:
        """What is known, else what `ask` finds out; only a digest of the question is kept.

        Raises:
            ApiError: if the API server does not answer; that is not remembered.
            BusyError: if too many questions are under way.
        """
        digest = blake2b(question, digest_size=16).digest()
        if (known := self._fresh(digest)) is not None:
            return known[0]
        if self._line >= self._bounds.longest_line:
            raise BusyError
        self._line += 1
        try:
            async with self._slots:
                if (known := self._fresh(digest)) is not None:  # asked by another one meanwhile
                    return known[0]
                answer = await ask()
        finally:
            self._line -= 1
        self._remember(digest, answer)
        return answer

    def _fresh(self, digest: bytes) -> tuple[T | None, float] | None:
        known = self._known.get(digest)
        return known if known is not None and self._clock() < known[1] else None

    def _remember(self, digest: bytes, answer: T | None) -> None:
        bounds = self._bounds
        seconds = bounds.trusted_seconds if answer is not None else bounds.refused_seconds
        self._known[digest] = (answer, self._clock() + seconds)
        self._known.move_to_end(digest)
        while len(self._known) > bounds.remembered:
            self._known.popitem(last=False)
