"""Progress reports to the scheduler, sent by a separate thread so that they neither delay nor fail the training."""

import logging
import os
import random
import threading
import time
import urllib.error
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tranche_worker.allocation import Allocation, makes_sense, read_allocations
from tranche_worker.api_request import post, reason_of
from tranche_worker.assignment import Assignment

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 22.5
"""Mean interval of reports, with a jitter of one third; TRANCHE_REPORT_SECONDS overrides it."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""Pauses after failures; they double."""
TIMEOUT_SECONDS = 10.0
LAST_TIMEOUT_SECONDS = 2.0
"""Timeout of one attempt to send the last report, short so that there is time for another attempt."""
LAST_SECONDS = 20.0
"""Time for the last report, at most the grace period; a failover of the scheduler takes at most 15 s."""
LAST_RESERVE_SECONDS = 1.0
"""Part of the grace period that is left when the last report is given up."""
SHORTEST_PERIOD_SECONDS = 1.0
"""Time before a report that `Reporter.report_soon` asks for: the scheduler accepts one per second."""
FENCED = 409
TRANSIENT = frozenset({408, 425, 429})
"""Client errors after which a repeated report may be accepted; so may it after any server error."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the job, or of this worker's chunks."""

    applied: Mapping[int, float] = field(default_factory=dict)
    """Applied batches by chunk: those that the model has seen."""
    durable: Mapping[int, float] = field(default_factory=dict)
    """Durable batches by chunk: those in a checkpoint."""
    batch_seconds: float | None = None
    fetch_seconds: float | None = None
    """Part of `batch_seconds` spent waiting for parameters and data."""
    compute_seconds: float | None = None
    iterations: Mapping[int, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    """Last iterations by worker (`Iterations.dump`); sent if the scheduler assigns bandwidth or batch sizes."""


class Reporter:
    """Context that sends the result of `progress` at once, then every 15 to 30 s, and once more at the end.

    It does nothing if this pod does not report for its job (no TRANCHE_API).
    """

    def __init__(
        self,
        mine: Assignment,
        progress: Callable[[], Progress],
        refused: Callable[[], None] = lambda: None,
        period_seconds: float | None = None,
        seconds_left: Callable[[], float] | None = None,
    ) -> None:
        """Store the arguments; nothing is sent before the context is entered.

        Args:
            mine: Assignment with job, attempt and address.
            progress: Returns the progress; called in the reporter's thread.
            refused: Called in that thread if the attempt is superseded; the process should stop training and exit.
            period_seconds: Mean interval; default: TRANCHE_REPORT_SECONDS, or 22.5.
            seconds_left: Returns the time for the last report; default: the pod's grace period, at most 20 s.
        """
        self._mine = mine
        self._progress = progress
        self._refused = refused
        self._period = period_seconds or float(os.environ.get("TRANCHE_REPORT_SECONDS", PERIOD_SECONDS))
        self._seconds_left = seconds_left or (lambda: min(mine.grace_seconds, LAST_SECONDS))
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._fenced = False
        self._rejected = False
        """Whether the last report was refused for good."""
        self._allocations: Mapping[int, Allocation] = {}
        self._thread = threading.Thread(target=self._run, name="tranche-reports", daemon=True)

    @property
    def allocations(self) -> Mapping[int, Allocation]:
        """Bandwidth and batch size by worker, from the last report's response; empty if the job asks for none."""
        return self._allocations

    def report_soon(self) -> None:
        """Send the next report at once, for example because a worker has joined or left; failures are not hurried."""
        self._wake.set()

    def __enter__(self) -> Self:
        if self._mine.api:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Send the last report until it is accepted, or refused for good, or the time is over."""
        deadline = time.monotonic() + self._seconds_left() - LAST_RESERVE_SECONDS
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(max(0.0, min(TIMEOUT_SECONDS, deadline - time.monotonic())))
        if self._mine.api and not self._fenced:
            self._send_last(deadline)

    def _send_last(self, deadline: float) -> None:
        pause = FIRST_PAUSE_SECONDS / 2
        while True:
            min_pause = self._send(LAST_TIMEOUT_SECONDS)
            seconds_left = deadline - time.monotonic()
            if min_pause is None or self._rejected or seconds_left <= 0:
                return
            time.sleep(min(max(min_pause, pause * random.uniform(2 / 3, 4 / 3)), seconds_left))  # noqa: S311 - as in `_run`
            pause = min(2 * pause, LAST_TIMEOUT_SECONDS)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            pause = self._send(TIMEOUT_SECONDS)
            if self._fenced:
                self._refused()
                return
            failures = 0 if pause is None else failures + 1
            if pause is None:
                pause, woken = self._period, self._wake
            else:
                pause = min(max(pause, FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1)), LONGEST_PAUSE_SECONDS)
                woken = self._stop
            pause *= random.uniform(2 / 3, 4 / 3)  # noqa: S311 - so that not all come at once
            if woken.wait(pause) and not self._stop.is_set():
                self._wake.clear()
                self._stop.wait(SHORTEST_PERIOD_SECONDS)

    def _send(self, timeout: float) -> float | None:
        """Send one report; return None if it was accepted, else the minimum seconds to wait."""
        self._rejected = False
        try:
            current = self._progress()
            body: dict[str, Any] = {
                "attempt": self._mine.attempt,
                "applied": _plain(current.applied),
                "durable": _plain(current.durable),
                "batchSeconds": _measured(current.batch_seconds),
                "fetchSeconds": _measured(current.fetch_seconds),
                "computeSeconds": _measured(current.compute_seconds),
            }
            if current.iterations and self._mine.communication.shared:
                body["iterations"] = current.iterations
            self._allocations = read_allocations(post(self._mine, self._mine.api, "progress", body, timeout))
            return None
        except urllib.error.HTTPError as error:
            reason = reason_of(error)
            self._fenced = error.code == FENCED
            self._rejected = 400 <= error.code < 500 and error.code not in TRANSIENT
            logger.warning("the scheduler responded with status %d to a report: %s", error.code, reason)
            after = error.headers.get("Retry-After", "")
            return float(after) if after.isdecimal() else 0.0
        except Exception as error:  # a failed report must not stop the training
            logger.warning("a report failed: %s: %s", type(error).__name__, error)
            return 0.0


def _plain(batches: Mapping[int, float]) -> dict[int, float]:
    """Return the numbers of batches as JSON has them; those of a program may be scalars of an array library."""
    return {int(chunk): float(count) for chunk, count in batches.items()}


def _measured(seconds: float | None) -> float | None:
    """Return a measured time; None if it makes no sense, because a report with it is refused as a whole."""
    return float(seconds) if seconds is not None and makes_sense(seconds) else None
