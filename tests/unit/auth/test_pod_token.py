"""Conditions on the review of a token before a request is accepted."""

import asyncio
from typing import Any

import pytest

from tranche.auth.pod_token import Bearer, TokenReviewer
from tranche.kube.api.names import REPORT_AUDIENCE

EXTRA = {f"authentication.kubernetes.io/pod-{what}": [value] for what, value in (("name", "cats"), ("uid", "u7"))}
USER = {"username": "system:serviceaccount:ns:default", "extra": EXTRA}


class Answers:
    """An API server that answers every review in the same way."""

    def __init__(self, **status: Any) -> None:
        self.status = status

    async def request(self, method: str, path: str, *, body: object = None) -> dict[str, object]:
        return {"status": self.status}


def reviewed(**status: Any) -> Bearer | None:
    return asyncio.run(TokenReviewer(Answers(**status)).review("token"))


def test_review_for_our_audience_names_the_pod() -> None:
    assert reviewed(authenticated=True, audiences=[REPORT_AUDIENCE], user=USER) == Bearer("ns", "cats", "u7")


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False, "audiences": [REPORT_AUDIENCE], "user": USER},
        {"audiences": [REPORT_AUDIENCE], "user": USER},
        {"authenticated": True, "audiences": ["https://kubernetes.default.svc"], "user": USER},
        {"authenticated": True, "user": USER},
        {"authenticated": True, "audiences": [REPORT_AUDIENCE], "user": {**USER, "username": "alice"}},
        {"authenticated": True, "audiences": [REPORT_AUDIENCE], "user": {**USER, "extra": {}}},
    ],
)
def test_incomplete_review_names_no_pod(status: dict[str, Any]) -> None:
    assert reviewed(**status) is None
