"""Log lines about a watch that is interrupted: one line when it works again, and warnings while it stays down."""

import logging

from tranche.kube.client.errors import ApiError

DOWN_SECONDS = 30.0
"""Time after which a watch that is down is a warning, and between two warnings. Shorter interruptions are normal: the
API server restarts, and sends nothing about a collection in which nothing has ever changed."""
STEADY_SECONDS = 1.0
"""A watch that ends sooner than this time after it was resumed has not recovered."""

log = logging.getLogger(__name__)


class WatchOutage:
    """Record of the interruptions of one watch. All times are of one monotonic clock, in seconds."""

    def __init__(self, path: str) -> None:
        """Create the record of a watch that has not failed.

        Args:
            path: Path of the collection, for the log lines.
        """
        self._path = path
        self._since: float | None = None
        """Begin of the last interruption; None if there has been none."""
        self._resumed: float | None = None
        """End of that interruption; None while it lasts."""
        self._warned: float | None = None
        """Time of the last warning about that interruption; None if there was none."""
        self._cause = ""

    def failed(self, error: ApiError, now: float) -> None:
        """Record a failed request; warn if the watch is down for long, or if a retry cannot succeed."""
        recovered = self._resumed is not None and now - self._resumed >= STEADY_SECONDS
        if self._since is None or recovered:
            self._since, self._warned = now, None
            self._cause = _short(error)
        self._resumed = None
        down = now - self._since
        if (down < DOWN_SECONDS and _may_pass(error)) or (
            self._warned is not None and now - self._warned < DOWN_SECONDS
        ):
            return
        self._warned = now
        log.warning("%s: the watch has been down for %.0f s and is retried: %s", self._path, down, error)

    def resumed(self, now: float) -> None:
        """Record that the API server accepts the watch; log how long it was interrupted, if it was."""
        if self._since is None or self._resumed is not None:
            return
        self._resumed = now
        took = now - self._since
        log.info("%s: the watch was interrupted (%s) and works again after %.1f s", self._path, self._cause, took)


def _may_pass(error: ApiError) -> bool:
    """Return whether the error is one of an API server that restarts or is overloaded, or of the network."""
    return error.status in (0, 410, 429) or error.status >= 500


def _short(error: ApiError) -> str:
    """Name the error in a few words."""
    return f"{error.status} {error.reason}".strip() if error.status else error.reason
