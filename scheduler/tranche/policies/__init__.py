"""Published scheduling algorithms, one file each, as pure functions of state, clock and seed; one registry."""

from tranche.policies.base import BindingPolicy, Placement, Policy, QueuePolicy, Rank, Standing
from tranche.policies.registry import LIVE_POLICIES, POLICIES, get_live_policy, get_policy

__all__ = [
    "LIVE_POLICIES",
    "POLICIES",
    "BindingPolicy",
    "Placement",
    "Policy",
    "QueuePolicy",
    "Rank",
    "Standing",
    "get_live_policy",
    "get_policy",
]
