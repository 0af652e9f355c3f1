"""Published scheduling algorithms, one file each, as pure functions of state, clock and seed; one registry."""

from tranche.policies.interfaces import BindingPolicy, Placement, Policy, QueuePolicy, Rank
from tranche.policies.registry import LIVE_POLICIES, POLICIES, get_policy
from tranche.policies.shares import History, Shares
from tranche.policies.states import ClusterState, Entry, Home, JobState, NodeState, Run, Server

__all__ = [
    "LIVE_POLICIES",
    "POLICIES",
    "BindingPolicy",
    "ClusterState",
    "Entry",
    "History",
    "Home",
    "JobState",
    "NodeState",
    "Placement",
    "Policy",
    "QueuePolicy",
    "Rank",
    "Run",
    "Server",
    "Shares",
    "get_policy",
]
