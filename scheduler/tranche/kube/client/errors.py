"""Errors of requests to the API server."""

from collections.abc import Mapping
from types import MappingProxyType


class ApiError(Exception):
    """Error response of the API server."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        causes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"{reason}: {message}")
        self.status = status
        """HTTP status; 0 if no response arrived."""
        self.reason = reason
        """CamelCase reason of the Status object, such as ``Conflict``; otherwise the HTTP reason phrase."""
        self.message = message
        self.retry_after = retry_after
        """Seconds to wait before a retry, from the server; None if not given."""
        self.causes = causes
        """Messages of the causes in the Status object, by reason."""


class Unreachable(ApiError):  # noqa: N818 (says what happened, like ConnectionRefused)
    """No response: network, TLS, time-out, or credentials that cannot be read. A retry may succeed."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(0, reason, message)
