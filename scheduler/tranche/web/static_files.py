"""Static files of the page, and security headers for all responses."""

from collections.abc import Awaitable, Callable
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request, Response

KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content security policy: only own files, no inline code, no framing, and Trusted Types for scripts."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Application = Callable[..., Awaitable[None]]


class SafeHeaders:
    """Middleware that adds `HEADERS` to every response, including errors."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._raw = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""

        async def send_safely(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._raw]
            await send(message)

        await self._app(scope, receive, send_safely)


def static_files() -> APIRouter:
    """Create the routes of the static files.

    They contain no data and need no authentication: the page shows a login.
    """
    router = APIRouter(include_in_schema=False)
    for file in files("tranche.web").joinpath("static").iterdir():
        kind = KINDS.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            router.add_api_route(path, _answer(file.read_bytes(), kind), methods=["GET", "HEAD"])
    return router


def _answer(body: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    headers = {"ETag": etag(body), "Cache-Control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return answer


def etag(body: bytes) -> str:
    """Return the ETag of a body."""
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'
