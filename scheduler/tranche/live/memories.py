"""Learnt state of the planner on the Lease: written with every renewal, read by the next leader and by what-ifs.

The Lease has one writer and is renewed anyway, so this needs no additional request.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from tranche.planner.memories import Memory

logger = logging.getLogger(__name__)

ANNOTATION = "tranche.dev/memory"


def annotations_of(memory: Memory) -> dict[str, str]:
    """Return the annotation for the Lease. The memory is bounded, so the size is tens of kilobytes at most."""
    return {ANNOTATION: msgspec.json.encode(memory).decode()}


def read_memory(annotations: Mapping[str, Any]) -> Memory:
    """Read the memory from the annotations of a Lease; empty if it is absent or unreadable."""
    text = annotations.get(ANNOTATION)
    try:
        return msgspec.json.decode(text, type=Memory) if text else Memory()
    except (msgspec.DecodeError, TypeError) as error:
        logger.warning("the memory annotation of an earlier scheduler cannot be read: %s", error)
        return Memory()
