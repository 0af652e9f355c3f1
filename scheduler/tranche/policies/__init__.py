"""Scheduling policies, one file each: pure functions of state, clock and seed. The state that they read; a registry."""

from tranche.policies.base import BindingPolicy, Placement, Policy, PolicyTraits, QueuePolicy, Rank, TieredRank
from tranche.policies.registry import POLICIES, get_live_policy, get_policy, live_policies

__all__ = [
    "POLICIES",
    "BindingPolicy",
    "Placement",
    "Policy",
    "PolicyTraits",
    "QueuePolicy",
    "Rank",
    "TieredRank",
    "get_live_policy",
    "get_policy",
    "live_policies",
]
