"""Annotations of the scheduler's Lease: configuration and learned state of the planner, for what-ifs and new leaders.

The Lease has one writer and is renewed anyway, so this needs no additional request.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from tranche.kube.api.timestamp import rfc3339
from tranche.live.planner_config import PlannerConfig
from tranche.planner.learned_state import LearnedState

logger = logging.getLogger(__name__)

CONFIG_ANNOTATION = "tranche.dev/planner"
LEARNED_ANNOTATION = "tranche.dev/memory"
SCHEDULER_ANNOTATION = "tranche.dev/kube-scheduler"


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


def learned_annotation(learned: LearnedState) -> dict[str, str]:
    """Return the annotation with the learned state. The state is bounded: tens of kilobytes at most."""
    return {LEARNED_ANNOTATION: msgspec.json.encode(learned).decode()}


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
