"""What a scheduler has learnt, on its Lease: written with every renewal, read by who takes over and by what-ifs.

The Lease has one writer, and is written anyway; so remembering costs no request.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from tranche.planner.memories import Memory

logger = logging.getLogger(__name__)

ANNOTATION = "tranche.dev/memory"


def annotations_of(memory: Memory) -> dict[str, str]:
    """Of the Lease; tens of kilobytes at most, since a memory is bounded."""
    return {ANNOTATION: msgspec.json.encode(memory).decode()}


def read_memory(annotations: Mapping[str, Any]) -> Memory:
    """What the annotations of a Lease tell; nothing if they tell nothing that can be read."""
    text = annotations.get(ANNOTATION)
    try:
        return msgspec.json.decode(text, type=Memory) if text else Memory()
    except (msgspec.DecodeError, TypeError) as error:
        logger.warning("the memory annotation of an earlier scheduler cannot be read: %s", error)
        return Memory()
