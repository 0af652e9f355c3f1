"""Asking the scheduler for the next chunks, so that this pod goes on as long as its slot stays with its job."""

import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import replace

from tranche_worker.assignment import Assignment

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
"""After failures, doubling."""
TIMEOUT_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
"""So long a GPU waits for an answer; then the pod ends as if there were nobody to ask."""
FENCED, REFUSALS = 409, (400, 401, 403, 404, 405, 413, 422)


class FencedError(Exception):
    """Another attempt has taken over."""


def ask(mine: Assignment, durable: Mapping[int, float], stop: threading.Event) -> Assignment | None:
    """What to train next; None if the pod is to end.

    An answer that was lost on its way is given again: the question names the fence of the chunks that are done.

    Args:
        mine: What was trained.
        durable: Its batches by chunk that outlive this pod.
        stop: Nothing is asked any more when it is set.

    Raises:
        FencedError: see there.
    """
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, FIRST_PAUSE_SECONDS
    while mine.next_api and not stop.is_set():
        try:
            return _ask(mine, durable)
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read(1000).decode(errors="replace").strip()
            if error.code == FENCED:
                raise FencedError(reason) from None
            logger.warning("the scheduler answers %d to a request for chunks: %s", error.code, reason)
            if error.code in REFUSALS:
                return None
        except Exception as error:  # whatever is wrong with asking, what was trained is done
            logger.warning("no chunks yet: %s: %s", type(error).__name__, error)
        if time.monotonic() + pause > deadline:
            return None
        stop.wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    return None


def _ask(mine: Assignment, durable: Mapping[int, float]) -> Assignment | None:
    token = mine.token.read_text().strip() if mine.token is not None else ""
    request = urllib.request.Request(  # noqa: S310 - the operator's address
        f"{mine.next_api}/v1/jobs/{mine.job}/next",
        json.dumps({"attempt": mine.attempt, "fence": mine.fence, "durable": durable}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
        given = json.load(answer)
    if not given["chunks"]:
        return None
    resume = {int(chunk): int(batches) for chunk, batches in given["resume"].items()}
    return replace(mine, chunks=tuple(given["chunks"]), resume=resume, renewed=given["fence"])
