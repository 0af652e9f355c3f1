"""Reviews of invalid tokens: limited by peer, and without effect on valid ones."""

import asyncio
from typing import Any

import pytest

from tranche.auth import review_cache
from tranche.auth.pod_token import TokenReviewer
from tranche.auth.review_cache import REFUSALS_BURST, Bounds, Reviews, TooManyRefusalsError
from tranche.auth.user_access import REVIEWS_BURST, AccessReviewer
from tranche.kube.api.names import REPORT_AUDIENCE

EXTRA = {f"authentication.kubernetes.io/pod-{what}": ["cats"] for what in ("name", "uid")}


class Api:
    """API server that knows the tokens that begin with "good", and lets users list the namespace of their name."""

    def __init__(self) -> None:
        self.asked = 0

    async def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        self.asked += 1
        if not path.endswith("tokenreviews"):
            spec = body["spec"]
            return {"status": {"allowed": spec["resourceAttributes"]["namespace"] == spec["user"]}}
        user = {"username": "system:serviceaccount:ns:default", "extra": EXTRA}
        known = body["spec"]["token"].startswith("good")
        return {"status": {"authenticated": known, "audiences": [REPORT_AUDIENCE], "user": user}}


def test_invalid_tokens_do_not_displace_valid_ones() -> None:
    bounds = Bounds(60.0, 60.0, max_accepted=10, parallel=1, max_pending=10, max_refusals=5)
    reviews: Reviews[bool] = Reviews(bounds, lambda: 0.0)
    tokens: list[str] = []

    async def ask(token: str) -> bool | None:
        tokens.append(token)
        return True if token == "good" else None

    async def scene() -> None:
        await reviews.find(b"good", lambda: ask("good"))
        for number in range(100):
            await reviews.find(f"bad{number}".encode(), lambda: ask("bad"))
        await reviews.find(b"good", lambda: ask("good"))

    asyncio.run(scene())
    assert tokens.count("good") == 1


def test_invalid_tokens_of_one_peer_are_limited() -> None:
    api, now = Api(), [0.0]
    reviewer = TokenReviewer(api, lambda: now[0])

    async def scene() -> None:
        for number in range(REFUSALS_BURST):
            assert await reviewer.review(f"bad{number}", "10.0.0.1") is None
        with pytest.raises(TooManyRefusalsError):
            await reviewer.review("bad", "10.0.0.1")
        assert await reviewer.review("good", "10.0.0.2") is not None
        assert api.asked == REFUSALS_BURST + 1
        now[0] += 1.0
        assert await reviewer.review("bad again", "10.0.0.1") is None

    asyncio.run(scene())


def test_valid_tokens_of_one_peer_are_not_limited() -> None:
    reviewer = TokenReviewer(Api(), lambda: 0.0)

    async def scene() -> None:
        for number in range(3 * REFUSALS_BURST):
            assert await reviewer.review(f"good{number}", "10.0.0.1") is not None

    asyncio.run(scene())


def test_user_without_rights_costs_a_limited_number_of_reviews() -> None:
    api, now = Api(), [0.0]
    reviewer = AccessReviewer(api, lambda: now[0])
    names = [f"team-{number}" for number in range(3 * REVIEWS_BURST)]

    async def scene() -> None:
        for _ in range(5):
            assert not (await reviewer.scope(review_cache.User("outsider"), names)).namespaces
        assert api.asked == 1 + REVIEWS_BURST
        now[0] += 10.0
        await reviewer.scope(review_cache.User("outsider"), names)
        assert api.asked == 1 + 2 * REVIEWS_BURST

    asyncio.run(scene())


def test_many_visitors_see_their_namespaces_at_each_refresh() -> None:
    api, now = Api(), [0.0]
    reviewer = AccessReviewer(api, lambda: now[0])
    names = [f"team-{number:03}" for number in range(200)]

    async def scene() -> None:
        for refresh in range(50):
            now[0] = 2.0 * refresh
            for name in names[10:200:25]:
                assert (await reviewer.scope(review_cache.User(name), names)).namespaces == {name}

    asyncio.run(scene())
    assert api.asked <= 2 * 8 * (len(names) + 1), "each question once a minute"


def test_namespaces_beyond_the_rate_limit_get_their_turn() -> None:
    api, now = Api(), [0.0]
    reviewer = AccessReviewer(api, lambda: now[0])
    names = [f"team-{number:04}" for number in range(8 * REVIEWS_BURST)]
    visible: list[bool] = []

    async def scene() -> None:
        for refresh in range(24):
            now[0] = 10.0 * refresh
            visible.append(names[-1] in await reviewer.scope(review_cache.User(names[-1]), names))

    asyncio.run(scene())
    assert visible == 7 * [False] + 17 * [True]
