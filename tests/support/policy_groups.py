"""Live policies by the way in which they plan."""

from tranche.policies import BindingPolicy, get_policy
from tranche.policies.registry import live_policies

DISTRIBUTING = tuple(name for name in live_policies() if get_policy(name).traits.allocates_workers)
"""Policies that distribute the workers of all jobs: weights change shares or utilities, and not always the order."""
BY_RANK = tuple(name for name in live_policies() if name not in DISTRIBUTING)
"""Policies under which jobs come first, and preempt others, by their rank."""
BINDING = tuple(name for name in live_policies() if isinstance(get_policy(name), BindingPolicy))
"""Policies that bind chunks to slots when their job arrives."""
