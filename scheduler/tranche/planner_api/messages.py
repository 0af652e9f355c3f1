"""Messages between the API process and the planner, in MessagePack."""

from types import MappingProxyType
from typing import Any

import msgspec

from tranche.model import ChunkGrant, ChunkRequest, ChunkWindow, PlannedWindow, Report, WhatIf

KEY_VARIABLE = "TRANCHE_PLANNER_KEY"
"""Environment variable with the key that the processes of one machine share."""
CONTENT_TYPE = "application/msgpack"
ACCEPTED, SUPERSEDED = 204, 409
"""Results of one report."""
TOO_MANY, UNREADABLE = 429, 422
"""Statuses of what-ifs: another one is computed, or the job cannot be planned as it is."""
REPORTS, CHUNK_REQUESTS, PROGRESS, OUTLOOK, CHUNKS, WHAT_IF = (
    "/v1/reports",
    "/v1/chunk-requests",
    "/v1/progress",
    "/v1/outlook",
    "/v1/chunks",
    "/v1/what-if",
)
"""Paths."""


class ExpectedPlace(msgspec.Struct, frozen=True, array_like=True):
    """Expected site and node of a waiting job."""

    site: str
    node: str


class Trained(msgspec.Struct, frozen=True, array_like=True):
    """Current progress of a job."""

    batches: float
    """Mini-batches trained."""
    total: float
    """Mini-batches at which the job is done."""
    estimated: bool
    """Whether the progress of some worker is estimated from its run time alone."""


class Outlook(msgspec.Struct, frozen=True):
    """State of all jobs that only the planner has."""

    places: dict[str, ExpectedPlace]
    """Expected places of waiting jobs, by job key."""
    trained: dict[str, Trained]
    """Current progress of jobs with windows, by job key."""
    windows: list[PlannedWindow]
    """Windows of the forecast that are not open yet, by start."""


def _plain(value: object) -> object:
    if isinstance(value, MappingProxyType):  # the default of empty vectors
        return dict(value)
    raise NotImplementedError(type(value).__name__)


encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
decode_reports = msgspec.msgpack.Decoder(list[Report]).decode
decode_results = msgspec.msgpack.Decoder(list[int]).decode
decode_request = msgspec.msgpack.Decoder(ChunkRequest).decode
decode_grant = msgspec.msgpack.Decoder(ChunkGrant).decode
decode_progress = msgspec.msgpack.Decoder(dict[str, Any]).decode
decode_what_if = msgspec.msgpack.Decoder(WhatIf).decode
decode_outlook = msgspec.msgpack.Decoder(Outlook).decode
decode_windows = msgspec.msgpack.Decoder(tuple[ChunkWindow, ...]).decode
