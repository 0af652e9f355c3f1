"""Planner configuration on the Lease annotation, so that a what-if can use the same planner as the scheduler.

Learnt state of the planner on the Lease: written with every renewal, read by the next leader and by what-ifs.

The Lease has one writer and is renewed anyway, so this needs no additional request.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tranche.kube.api.names import GPU_RESOURCE
from tranche.planner import Planner, PlannerSettings
from tranche.planner.journal import Fact, JournaledPlanner
from tranche.planner.learned_state import Memory
from tranche.policies import get_live_policy

ANNOTATION = "tranche.dev/planner"


class PlannerConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Planner configuration: everything besides the cluster that affects its decisions.

    Defaults as on the command line.
    """

    policy: str = "chunk"
    seed: int = 0
    gpu_resource: str = GPU_RESOURCE
    server_idle_seconds: float = 300.0
    share_weights: dict[str, float] = {}

    def planner(self, note: Callable[[Fact], None] | None = None, *, validate: bool = False) -> Planner:
        """Create a planner without state.

        Args:
            note: Called with every event of every window, for the journal.
            validate: Check the invariants after every event.

        Raises:
            ValueError: the policy is not known to this version.
        """
        policy, settings = get_live_policy(self.policy), self.settings(validate=validate)
        return JournaledPlanner(policy, settings, note) if note else Planner(policy, settings)

    def settings(self, *, validate: bool = False) -> PlannerSettings:
        """Return the settings of the planner."""
        return PlannerSettings(
            seed=self.seed,
            validate=validate,
            server_idle_seconds=self.server_idle_seconds,
            share_weights=self.share_weights,
        )

    def annotations(self) -> dict[str, str]:
        """Return the annotation for the Lease."""
        return {ANNOTATION: msgspec.json.encode(self).decode()}


def read_config(lease: dict[str, Any]) -> PlannerConfig | None:
    """Read the planner configuration from a Lease; None if it is absent or unreadable."""
    text = lease.get("metadata", {}).get("annotations", {}).get(ANNOTATION)
    try:
        return msgspec.json.decode(text, type=PlannerConfig) if text else None
    except msgspec.DecodeError:
        return None


logger = logging.getLogger(__name__)

MEMORY_ANNOTATION = "tranche.dev/memory"


def annotations_of(memory: Memory) -> dict[str, str]:
    """Return the annotation for the Lease. The memory is bounded, so the size is tens of kilobytes at most."""
    return {MEMORY_ANNOTATION: msgspec.json.encode(memory).decode()}


def read_memory(annotations: Mapping[str, Any]) -> Memory:
    """Read the memory from the annotations of a Lease; empty if it is absent or unreadable."""
    text = annotations.get(MEMORY_ANNOTATION)
    try:
        return msgspec.json.decode(text, type=Memory) if text else Memory()
    except (msgspec.DecodeError, TypeError) as error:
        logger.warning("the memory annotation of an earlier scheduler cannot be read: %s", error)
        return Memory()
