"""Planner configuration on the Lease annotation, so that a what-if can use the same planner as the scheduler."""

from collections.abc import Callable
from typing import Any

import msgspec

from tranche.kube.names import GPU_RESOURCE
from tranche.planner import Planner, PlannerSettings
from tranche.planner.journals import Fact, JournaledPlanner
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
