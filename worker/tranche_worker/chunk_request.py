"""Requests for more chunks, so that this pod continues while its slot stays with its job."""

import json
import logging
import time
import urllib.error
from collections.abc import Mapping
from dataclasses import replace

from tranche_worker.api_request import post, reason_of
from tranche_worker.assignment import Assignment
from tranche_worker.stop_flag import StopFlag

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
"""Pauses after failures; they double."""
TIMEOUT_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
"""Time for which a GPU waits for chunks; after it, the pod ends as if there were no more."""
UNREACHED_SECONDS = 20.0
"""The same without any response: as long as a failover takes. If a NetworkPolicy keeps the pod from the scheduler, the
wait is repeated at the end of each pod, and its GPU could be used meanwhile."""
FENCED, REFUSALS = 409, (400, 401, 403, 404, 405, 413, 422)


class FencedError(Exception):
    """Another attempt has taken over the chunks."""


def ask(mine: Assignment, durable: Mapping[int, float], stop: StopFlag) -> Assignment | None:
    """Request the next chunks; None if the pod is to end.

    A lost response is repeated: the request contains the fencing token of the completed chunks.

    Args:
        mine: The completed assignment.
        durable: Durable batches by chunk.
        stop: No request is made once it is set.

    Raises:
        FencedError: if another attempt has taken over the chunks.
    """
    began, pause = time.monotonic(), FIRST_PAUSE_SECONDS
    is_reached = bool(mine.renewed)
    while mine.next_api and not stop.is_set():
        try:
            return _ask(mine, durable)
        except urllib.error.HTTPError as error:
            is_reached = True
            reason = reason_of(error)
            if error.code == FENCED:
                raise FencedError(reason) from None
            logger.warning("the scheduler responded with status %d to a request for chunks: %s", error.code, reason)
            if error.code in REFUSALS:
                return None
        except Exception as error:  # the chunks are done, however the request fails
            logger.warning("a request for chunks failed: %s: %s", type(error).__name__, error)
        if time.monotonic() + pause > began + (PATIENCE_SECONDS if is_reached else UNREACHED_SECONDS):
            if not is_reached:
                logger.warning("%s does not respond: does a NetworkPolicy keep this pod from it?", mine.next_api)
            return None
        stop.wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    return None


def _ask(mine: Assignment, durable: Mapping[int, float]) -> Assignment | None:
    body = {"attempt": mine.attempt, "fence": mine.fence, "durable": durable}
    grant = json.loads(post(mine, mine.next_api, "next", body, TIMEOUT_SECONDS))
    if not grant["chunks"]:
        return None
    resume = {int(chunk): int(batches) for chunk, batches in grant["resume"].items()}
    return replace(mine, chunks=tuple(grant["chunks"]), resume=resume, renewed=grant["fence"])
