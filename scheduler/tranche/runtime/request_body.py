"""Reading of request bodies of limited size."""

from starlette.requests import Request


async def read_body(request: Request, largest: int) -> bytes | None:
    """Read the body; None if it has more than `largest` bytes, in which case the rest is not kept."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > largest:
            return None
        pieces.append(piece)
    return b"".join(pieces)
