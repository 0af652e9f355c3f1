"""Which planner a scheduler runs, told in the Lease, so that others can ask one like it.

What a scheduler has learnt, on its Lease: written with every renewal, read by who takes over and by what-ifs.

The Lease has one writer, and is written anyway; so remembering costs no request.
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


class PlannerChoice(msgspec.Struct, frozen=True, rename="camel"):
    """What decides what a planner decides, besides the cluster; the defaults are those of the command line."""

    policy: str = "chunk"
    seed: int = 0
    gpu_resource: str = GPU_RESOURCE
    server_idle_seconds: float = 300.0
    share_weights: dict[str, float] = {}

    def planner(self, note: Callable[[Fact], None] | None = None, *, validate: bool = False) -> Planner:
        """A planner that knows nothing yet.

        Args:
            note: Told what becomes of every window.
            validate: Check the invariants after every event.

        Raises:
            ValueError: there is no such policy here.
        """
        policy, settings = get_live_policy(self.policy), self.settings(validate=validate)
        return JournaledPlanner(policy, settings, note) if note else Planner(policy, settings)

    def settings(self, *, validate: bool = False) -> PlannerSettings:
        """Of the planner."""
        return PlannerSettings(
            seed=self.seed,
            validate=validate,
            server_idle_seconds=self.server_idle_seconds,
            share_weights=self.share_weights,
        )

    def annotations(self) -> dict[str, str]:
        """Of the Lease."""
        return {ANNOTATION: msgspec.json.encode(self).decode()}


def read_choice(lease: dict[str, Any]) -> PlannerChoice | None:
    """What the holder of a Lease has told; None if it has told nothing that can be read."""
    text = lease.get("metadata", {}).get("annotations", {}).get(ANNOTATION)
    try:
        return msgspec.json.decode(text, type=PlannerChoice) if text else None
    except msgspec.DecodeError:
        return None


logger = logging.getLogger(__name__)

MEMORY_ANNOTATION = "tranche.dev/memory"


def annotations_of(memory: Memory) -> dict[str, str]:
    """Of the Lease; tens of kilobytes at most, since a memory is bounded."""
    return {MEMORY_ANNOTATION: msgspec.json.encode(memory).decode()}


def read_memory(annotations: Mapping[str, Any]) -> Memory:
    """What the annotations of a Lease tell; nothing if they tell nothing that can be read."""
    text = annotations.get(MEMORY_ANNOTATION)
    try:
        return msgspec.json.decode(text, type=Memory) if text else Memory()
    except (msgspec.DecodeError, TypeError) as error:
        logger.warning("what an earlier scheduler has learnt cannot be read: %s", error)
        return Memory()
