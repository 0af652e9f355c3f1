"""Wait for a condition of a running system, or observe that it holds, with one limit for slow machines."""

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tranche_testcluster import Cluster

Found = TypeVar("Found")
WAIT_SECONDS = 180.0
"""Limit of a wait whose duration is not what the test asserts: a wait that passes ends with its condition."""
POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 0.2
"""Seconds between two looks: at first, and in a wait of over four seconds. Looks cost CPU time of all tests."""


def eventually(
    look: Callable[[], Found], what: object = "", *, seconds: float = WAIT_SECONDS, pause: float = 0.0
) -> Found:
    """Call a function until its result is true, and return that result.

    Args:
        look: The condition; an AssertionError counts as false.
        what: The text of the failure, or a function that returns it.
        seconds: The limit.
        pause: Seconds between two calls (default: a twentieth of the time waited, within limits).

    Raises:
        AssertionError: The result is not true within the limit; the last call's own error where it raised one.
    """
    began = time.monotonic()
    while True:
        try:
            if found := look():
                return found
            failure = None
        except AssertionError as error:
            failure = error
        waited = time.monotonic() - began
        if waited > seconds:
            raise failure or AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(pause or min(max(waited / 20, POLL_SECONDS), LONGEST_POLL_SECONDS))


def stays(look: Callable[[], Any], what: object = "", *, seconds: float) -> None:
    """Assert that a condition holds in every look for some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert look(), what
        time.sleep(POLL_SECONDS)


def changes(cluster: Cluster, path: str, seconds: int) -> list[dict[str, Any]]:
    """Watch a collection for some seconds and return every event of it, as the API server sends them."""
    version = cluster.request("GET", path)[1]["metadata"]["resourceVersion"]
    watch = f"{path}{'&' if '?' in path else '?'}watch=true&resourceVersion={version}&timeoutSeconds={seconds}"
    return [json.loads(line) for line in cluster.kubectl("get", "--raw", watch).splitlines()]
