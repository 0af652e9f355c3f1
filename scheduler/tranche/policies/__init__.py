"""Published scheduling algorithms, one file each, as pure functions of state, clock and seed; one registry."""

from tranche.policies.interfaces import Placement, Policy
from tranche.policies.registry import POLICIES, get_policy
from tranche.policies.states import ClusterState, Entry, Home, JobState, NodeState, Run, Server

__all__ = [
    "POLICIES",
    "ClusterState",
    "Entry",
    "Home",
    "JobState",
    "NodeState",
    "Placement",
    "Policy",
    "Run",
    "Server",
    "get_policy",
]
