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
        kind: str = "",
        fields: tuple[str, ...] = (),
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
        self.kind = kind
        """Kind in the details of the Status object: a kind such as ``Pod`` for an object that is invalid, a resource
        such as ``pods`` for a request that is forbidden."""
        self.fields = fields
        """Paths of the fields that the causes name."""


class Unreachable(ApiError):  # noqa: N818 (says what happened, like ConnectionRefused)
    """No response: network, TLS, timeout, or credentials that cannot be read. A retry may succeed."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(0, reason, message)


_REJECTED_STATUSES = frozenset({400, 403, 413, 422})
_REJECTED_TEXTS = (
    "request is too large",
    "failed calling webhook",
    "denied the request",
    "field not declared in schema",
)
"""Fragments of messages about one object that the API server sends with status 500: the object exceeds etcd's limit, an
admission webhook for it does not respond or denies it, or it has a field that an older CRD does not have."""
_NO_RIGHTS_TEXT = "cannot patch resource"
"""Fragment of the message that RBAC forbids the request: this concerns all objects, while an installation changes."""


def is_object_rejected(error: ApiError) -> bool:
    """Return whether the API server rejects this object, so that a repetition fails again while others may succeed."""
    text = str(error)
    if error.status == 403 and _NO_RIGHTS_TEXT in text:
        return False
    return error.status in _REJECTED_STATUSES or (error.status >= 500 and any(one in text for one in _REJECTED_TEXTS))
