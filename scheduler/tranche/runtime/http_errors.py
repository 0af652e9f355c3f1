"""JSON answers to requests that no route of an application takes."""

from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

MAX_SHOWN = 64
"""Maximum length of an invalid value in an error."""


def add_error_handlers(app: FastAPI) -> None:
    """Give the framework's errors the key `error`, which all other errors have."""
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(RequestValidationError, _invalid)


async def _no_route(request: Request, error: Exception) -> Response:
    """Answer a request whose path or method does not exist; `detail` is the framework's key, kept for old clients."""
    assert isinstance(error, HTTPException)
    text = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse({"error": text, "detail": error.detail}, error.status_code, error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer a request with invalid parameters; `detail` is the framework's list of them, kept for old clients."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    text = "; ".join(f"{one['loc'][-1]}={str(one['input'])[:MAX_SHOWN]!r}: {one['msg']}" for one in found)
    return JSONResponse({"error": text, "detail": jsonable_encoder(found)}, 422)
