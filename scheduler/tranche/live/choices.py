"""Which planner a scheduler runs, told in the Lease, so that others can ask one like it."""

from collections.abc import Callable
from typing import Any

import msgspec

from tranche.kube.names import GPU_RESOURCE
from tranche.planner import Planner, PlannerSettings
from tranche.planner.journals import Fact, JournaledPlanner
from tranche.policies import get_live_policy

ANNOTATION = "tranche.dev/planner"


class PlannerConfig(msgspec.Struct, frozen=True, rename="camel"):
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


def read_config(lease: dict[str, Any]) -> PlannerConfig | None:
    """What the holder of a Lease has told; None if it has told nothing that can be read."""
    text = lease.get("metadata", {}).get("annotations", {}).get(ANNOTATION)
    try:
        return msgspec.json.decode(text, type=PlannerConfig) if text else None
    except msgspec.DecodeError:
        return None
