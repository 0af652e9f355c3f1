"""Requests to the scheduler's report API."""

import json
import ssl
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tranche_worker.assignment import Assignment


def post(mine: Assignment, api: str, action: str, body: Mapping[str, Any], timeout: float) -> bytes:
    """Send a request with the pod's token, and return the response body.

    The token and the CA are read again for each request, because both are renewed while the pod runs. A proxy of the
    environment is ignored: the API is a Service of the cluster, and a proxy outside would get the token.

    Args:
        mine: Assignment with job, token and CA.
        api: Address of the API.
        action: Last part of the path.
        body: Content of the request.
        timeout: Seconds without a response.

    Raises:
        HTTPError: the scheduler rejects the request.
        OSError: there is no connection, or the certificate is not of the CA.
    """
    token = mine.token.read_text().strip() if mine.token is not None else ""
    request = urllib.request.Request(  # noqa: S310 - the operator's address
        f"{api}/v1/jobs/{mine.job}/{action}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if api.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=_context(mine.authority)))
    with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
        received: bytes = answer.read()
        return received


def reason_of(error: HTTPError) -> str:
    """Return the reason in a rejection, and close it; empty if the connection is lost before the reason is read."""
    try:
        with error:
            return error.read(1000).decode(errors="replace").strip()
    except (OSError, HTTPException):
        return ""


def _context(authority: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority) if authority is not None else None)
