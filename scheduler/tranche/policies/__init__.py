"""Scheduling policies, one file each: pure functions of state, clock and seed. The state that they read; a registry."""

from tranche.policies.hosts import Hosts
from tranche.policies.interfaces import BindingPolicy, Placement, Policy, PolicyTraits, QueuePolicy, Rank, Standing
from tranche.policies.jobs import ARRIVED, JobState, QueuedChunk
from tranche.policies.nodes import NodeState
from tranche.policies.phases import JobPhase, WindowPhase
from tranche.policies.quotas import NOBODY, Kind, Quotas, Shortage, kind_of
from tranche.policies.registry import LIVE_POLICIES, POLICIES, get_live_policy, get_policy
from tranche.policies.runs import SlotBinding, TrackedWindow
from tranche.policies.servers import Server
from tranche.policies.shares import History, Shares
from tranche.policies.site_uses import JobUse, SiteUsage, is_cloud
from tranche.policies.stagings import Staging, expected_copies
from tranche.policies.states import ClusterState

__all__ = [
    "ARRIVED",
    "LIVE_POLICIES",
    "NOBODY",
    "POLICIES",
    "BindingPolicy",
    "ClusterState",
    "History",
    "Hosts",
    "JobPhase",
    "JobState",
    "JobUse",
    "Kind",
    "NodeState",
    "Placement",
    "Policy",
    "PolicyTraits",
    "QueuePolicy",
    "QueuedChunk",
    "Quotas",
    "Rank",
    "Server",
    "Shares",
    "Shortage",
    "SiteUsage",
    "SlotBinding",
    "Staging",
    "Standing",
    "TrackedWindow",
    "WindowPhase",
    "expected_copies",
    "get_live_policy",
    "get_policy",
    "is_cloud",
    "kind_of",
]
