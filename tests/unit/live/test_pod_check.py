"""Questions about pods to the API server, before a window ends for what the watch shows."""

import asyncio
import json
from collections import deque

import pytest

from tranche.kube.client.errors import ApiError
from tranche.live.pods.pod_check import PodChecker

OWNER = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "uid-a", "controller": True}
METADATA = {"name": "a-worker-0-1", "resourceVersion": "7", "ownerReferences": [OWNER]}
UNREADABLE = json.dumps({"metadata": METADATA, "status": {"startTime": "0000-01-01T00:00:00Z"}}).encode()
"""A pod as the API server returns it if a kubelet, or another client, has written this time. Python has no year 0."""


class Answers:
    """API server with these answers, and 404 after them."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = deque(answers)

    async def get(self, path: str) -> bytes:
        if self._answers:
            return self._answers.popleft()
        raise ApiError(404, "NotFound", 'pods "a-worker-0-1" not found')


def test_confirmation_that_is_not_used_at_once_is_void() -> None:
    """Such as one for a pod whose time does not count while kube-scheduler is silent. It may run when that ends."""

    async def scenario() -> list[bool]:
        now, confirmed, found = 0.0, asyncio.Event(), []
        checker = PodChecker(Answers(), confirmed.set, lambda: now)  # type: ignore[arg-type]
        running = asyncio.create_task(checker.run())
        for later in (60.0, 1.0, 0.0):
            found.append(checker.confirmed_absent("default", "a-worker-0-1", "uid-a"))
            if not found[-1]:
                confirmed.clear()
                await confirmed.wait()
            now += later
        running.cancel()
        return found

    assert asyncio.run(scenario()) == [False, False, True]


@pytest.mark.parametrize("answer", [UNREADABLE, b"<html>"])
def test_answer_that_is_no_readable_pod_ends_no_checks(answer: bytes) -> None:
    async def scenario() -> None:
        answered = asyncio.Event()
        checker = PodChecker(Answers(answer), answered.set, lambda: 0.0)  # type: ignore[arg-type]
        running = asyncio.create_task(checker.run())
        for _ in range(2):  # the second time, the pod is gone
            assert not checker.confirmed_absent("default", "a-worker-0-1", "uid-a")
            while checker._asked and not running.done():
                await asyncio.sleep(0)
        assert not running.done(), "the leader would end with it"
        assert answered.is_set()
        assert checker.confirmed_absent("default", "a-worker-0-1", "uid-a")
        running.cancel()

    asyncio.run(scenario())
