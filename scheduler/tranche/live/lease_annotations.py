"""Annotations of the scheduler's Lease: configuration and learned state of the planner, for what-ifs and new leaders.

The Lease has one writer and is renewed anyway, so this needs no additional request.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tranche.kube.api.timestamp import rfc3339
from tranche.live.planner_config import PlannerConfig
from tranche.planner.learned_state import LearnedState

logger = logging.getLogger(__name__)

CONFIG_ANNOTATION = "tranche.dev/planner"
LEARNED_ANNOTATION = "tranche.dev/memory"
SCHEDULER_ANNOTATION = "tranche.dev/kube-scheduler"
MAX_LEARNED_BYTES = 100_000
"""Largest size of the learned state. The API server refuses an object with more than 256 KiB of annotations."""
OMITTED_FIRST = ("moves", "gangs", "nodes", "waits", "links", "exclusions", "kinds")
"""Parts of the learned state that are left out if it is larger, in this order."""


def config_annotation(config: PlannerConfig) -> dict[str, str]:
    """Return the annotation with the configuration of the planner."""
    return {CONFIG_ANNOTATION: msgspec.json.encode(config).decode()}


def read_config(lease: dict[str, Any]) -> PlannerConfig | None:
    """Read the planner configuration from a Lease; None if it is absent or unreadable."""
    text = lease.get("metadata", {}).get("annotations", {}).get(CONFIG_ANNOTATION)
    try:
        return msgspec.json.decode(text, type=PlannerConfig) if text else None
    except msgspec.DecodeError:
        return None


def learned_text(learned: LearnedState) -> tuple[str, tuple[str, ...]]:
    """Return the learned state as a text of at most `MAX_LEARNED_BYTES`, and the parts that are left out for that."""
    encoded, omitted = msgspec.json.encode(learned), 0
    while len(encoded) > MAX_LEARNED_BYTES and omitted < len(OMITTED_FIRST):
        part = OMITTED_FIRST[omitted]
        learned = replace(learned, **{part: getattr(LearnedState(), part)})
        encoded, omitted = msgspec.json.encode(learned), omitted + 1
    return encoded.decode(), OMITTED_FIRST[:omitted]


def scheduler_annotation(silent_since: float | None) -> dict[str, str]:
    """Return the annotation that says whether kube-scheduler responds, and since when it does not."""
    state = "Responding" if silent_since is None else f"Silent since {rfc3339(silent_since)}"
    return {SCHEDULER_ANNOTATION: state}


def read_learned_state(annotations: Mapping[str, Any]) -> LearnedState:
    """Read the learned state from the annotations of a Lease; empty if it is absent or unreadable."""
    text = annotations.get(LEARNED_ANNOTATION)
    try:
        return msgspec.json.decode(text, type=LearnedState) if text else LearnedState()
    except (msgspec.DecodeError, TypeError) as error:
        logger.warning("the learned state of an earlier scheduler cannot be read: %s", error)
        return LearnedState()
