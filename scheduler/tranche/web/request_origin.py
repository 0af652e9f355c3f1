"""Protection of requests that change or compute something against forgery by other web pages.

The page sends its token in a header of its own, which another site cannot do. A proxy in front of the page may identify
the user by a cookie, however, and browsers send cookies with forged requests too. Therefore such a request needs the
origin of the page, and a header that browsers let another site send only after a CORS preflight, which this server does
not grant.
"""

from urllib.parse import urlsplit

from fastapi import Request

from tranche.runtime.request_body import read_body
from tranche.web.authorization import Refusal

HEADER, VALUE = "Tranche-Request", "page"


async def page_body(request: Request, largest: int) -> bytes:
    """Check the origin of a request, and return its body.

    Args:
        request: A POST request.
        largest: Maximum size of the body in bytes.

    Raises:
        Refusal: 403 if another site may have caused the request, 415 for another content type, 413 for a larger body.
    """
    headers = request.headers
    if headers.get(HEADER) != VALUE:
        raise Refusal(403, f"this request needs the header {HEADER}: {VALUE}")
    fetched_from = headers.get("Sec-Fetch-Site")
    if fetched_from not in (None, "same-origin"):
        raise Refusal(403, f"requests of other sites are refused (Sec-Fetch-Site: {fetched_from})")
    # Browsers send Sec-Fetch-Site to HTTPS and to localhost only. A proxy replaces Host and sends the original one.
    origin = headers.get("Origin")
    if fetched_from is None and origin is not None:
        hosts = {headers.get("Host"), headers.get("X-Forwarded-Host")}
        if urlsplit(origin).netloc not in hosts - {None, ""}:
            raise Refusal(403, f"requests of other sites are refused (Origin: {origin[:200]})")
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "the body must be application/json")
    body = await read_body(request, largest)
    if body is None:
        raise Refusal(413, f"the body is larger than {largest} bytes")
    return body
