"""Requests to etcd over its HTTP gateway."""

import base64
import json
import urllib.request
from typing import Any

from ..workspace import HOST

_TIMEOUT_SECONDS = 30.0


def post(port: int, method: str, body: dict[str, Any]) -> Any:
    """Send a request, such as ``kv/range``, and return the open response.

    Args:
        port: Port of etcd.
        method: Path after ``/v3/``.
        body: Fields of the request.

    Raises:
        OSError: etcd does not answer, or refuses the request.
    """
    url = f"http://{HOST}:{port}/v3/{method}"
    return urllib.request.urlopen(url, json.dumps(body).encode(), timeout=_TIMEOUT_SECONDS)


def encoded(plain: str) -> str:
    """Return a key or a value as the gateway expects it."""
    return base64.b64encode(plain.encode()).decode()


def set_full(port: int, *, full: bool) -> None:
    """Raise or clear the alarm that etcd raises when its quota for data is used up.

    As long as it is raised, etcd refuses all writes except deletions.

    Args:
        port: Port of etcd.
        full: Whether to raise it.

    Raises:
        OSError: etcd does not answer.
    """
    action = "ACTIVATE" if full else "DEACTIVATE"
    post(port, "maintenance/alarm", {"action": action, "alarm": "NOSPACE", "memberID": _member(port)}).close()


def _member(port: int) -> str:
    with post(port, "maintenance/status", {}) as answer:
        return str(json.load(answer)["header"]["member_id"])
