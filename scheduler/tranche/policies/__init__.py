"""Published scheduling algorithms, one file each, as pure functions of state, clock and seed; one registry."""

from tranche.policies.hosts import Hosts
from tranche.policies.interfaces import BindingPolicy, Placement, Policy, QueuePolicy, Rank, Standing
from tranche.policies.jobs import ARRIVED, Entry, JobState
from tranche.policies.nodes import NodeState
from tranche.policies.phases import JobPhase, WindowPhase
from tranche.policies.quotas import NOBODY, Kind, Quotas, Shortage, kind_of
from tranche.policies.registry import LIVE_POLICIES, POLICIES, get_live_policy, get_policy
from tranche.policies.runs import Home, Run
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
    "Entry",
    "History",
    "Home",
    "Hosts",
    "JobPhase",
    "JobState",
    "JobUse",
    "Kind",
    "NodeState",
    "Placement",
    "Policy",
    "QueuePolicy",
    "Quotas",
    "Rank",
    "Run",
    "Server",
    "Shares",
    "Shortage",
    "SiteUsage",
    "Staging",
    "Standing",
    "WindowPhase",
    "expected_copies",
    "get_live_policy",
    "get_policy",
    "is_cloud",
    "kind_of",
]
