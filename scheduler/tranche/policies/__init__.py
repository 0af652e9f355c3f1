"""Scheduling policies, one file each: pure functions of state, clock and seed. The state that they read; a registry."""

from tranche.policies.base import BindingPolicy, Placement, Policy, PolicyTraits, QueuePolicy, Rank, Standing
from tranche.policies.registry import LIVE_POLICIES, POLICIES, get_live_policy, get_policy

__all__ = [
    "LIVE_POLICIES",
    "POLICIES",
    "BindingPolicy",
    "Placement",
    "Policy",
    "PolicyTraits",
    "QueuePolicy",
    "Rank",
    "Standing",
    "get_live_policy",
    "get_policy",
]
