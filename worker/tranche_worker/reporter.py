"""Progress reports to the scheduler, sent by a separate thread so that they neither delay nor fail the training."""

import json
import logging
import os
import random
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tranche_worker.assignment import Assignment

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 22.5
"""Mean interval of reports, with a jitter of one third; TRANCHE_REPORT_SECONDS overrides it."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""Pauses after failures; they double."""
TIMEOUT_SECONDS = 10.0
LAST_TIMEOUT_SECONDS = 2.0
"""Timeout of the last report, short because the grace period is for saving."""
FENCED = 409


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
    ) -> None:
        """Store the arguments; nothing is sent before the context is entered.

        Args:
            mine: Assignment with job, attempt and address.
            progress: Returns the progress; called in the reporter's thread.
            refused: Called in that thread if the attempt is superseded; the process should stop training and exit.
            period_seconds: Mean interval; default: TRANCHE_REPORT_SECONDS, or 22.5.
        """
        self._mine = mine
        self._progress = progress
        self._refused = refused
        self._period = period_seconds or float(os.environ.get("TRANCHE_REPORT_SECONDS", PERIOD_SECONDS))
        self._stop = threading.Event()
        self._fenced = False
        self._thread = threading.Thread(target=self._run, name="tranche-reports", daemon=True)

    def __enter__(self) -> Self:
        if self._mine.api:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Send the last report, with a short timeout."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(TIMEOUT_SECONDS)
        if self._mine.api and not self._fenced:
            self._send(LAST_TIMEOUT_SECONDS)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            pause = self._send(TIMEOUT_SECONDS)
            if self._fenced:
                self._refused()
                return
            failures = 0 if pause is None else failures + 1
            if pause is None:
                pause = self._period
            else:
                pause = min(max(pause, FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1)), LONGEST_PAUSE_SECONDS)
            self._stop.wait(pause * random.uniform(2 / 3, 4 / 3))  # noqa: S311 - so that not all come at once

    def _send(self, timeout: float) -> float | None:
        """Send one report; return None if it was accepted, else the minimum seconds to wait."""
        try:
            current = self._progress()
            token = self._mine.token.read_text().strip() if self._mine.token is not None else ""
            body = {
                "attempt": self._mine.attempt,
                "applied": current.applied,
                "durable": current.durable,
                "batchSeconds": current.batch_seconds,
                "fetchSeconds": current.fetch_seconds,
                "computeSeconds": current.compute_seconds,
            }
            request = urllib.request.Request(  # noqa: S310 - the operator's address
                f"{self._mine.api}/v1/jobs/{self._mine.job}/progress",
                json.dumps(body).encode(),
                {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=timeout):  # noqa: S310
                return None
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read(1000).decode(errors="replace").strip()
            self._fenced = error.code == FENCED
            logger.warning("the scheduler responded with status %d to a report: %s", error.code, reason)
            after = error.headers.get("Retry-After", "")
            return float(after) if after.isdecimal() else 0.0
        except Exception as error:  # a failed report must not stop the training
            logger.warning("a report failed: %s: %s", type(error).__name__, error)
            return 0.0
