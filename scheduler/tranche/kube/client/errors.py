"""What can go wrong between us and the API server."""

from collections.abc import Mapping
from types import MappingProxyType


class ApiError(Exception):
    """The API server refused a request."""

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
        """HTTP status; 0 when no answer arrived."""
        self.reason = reason
        """CamelCase reason of the answer's Status object, such as ``Conflict``; otherwise HTTP's phrase."""
        self.message = message
        self.retry_after = retry_after
        """Seconds that the server asks us to wait, or None."""
        self.causes = causes
        """Messages of the Status object's causes, by their reasons."""


class Unreachable(ApiError):  # noqa: N818 (says what happened, like ConnectionRefused)
    """No answer: the network, TLS, a time-out, or credentials that cannot be read. Trying again may help."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(0, reason, message)
