"""Traits of the registered policies: complete, frozen, and in agreement with the hooks that they switch on."""

import re
from dataclasses import FrozenInstanceError, fields

import pytest

from support.builders import gang, job, node, worker
from tranche.policies import POLICIES, BindingPolicy, PolicyTraits, QueuePolicy
from tranche.policies.allocation.allocation_policy import DistributingPolicy
from tranche.simulation.scenario import Scenario, run
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState

NEEDED = {
    "ranks_by_group": "rank_group",
    "allocates_workers": "allocate_workers",
    "needs_local_data": "prefetch_site_count",
}
"""Traits that do nothing without a hook, and hooks that are never called without their trait."""
NAMES = sorted(POLICIES)


@pytest.mark.parametrize("name", NAMES)
def test_policy_has_the_name_under_which_it_is_registered(name: str) -> None:
    assert POLICIES[name].name == name


@pytest.mark.parametrize("name", NAMES)
def test_precedence_reason_is_a_relative_clause(name: str) -> None:
    assert re.fullmatch(r"(which|whose) \w.*[^.]", POLICIES[name].traits.precedence_reason)


@pytest.mark.parametrize(("trait", "hook"), NEEDED.items())
@pytest.mark.parametrize("name", NAMES)
def test_trait_and_hook_come_together(name: str, trait: str, hook: str) -> None:
    overridden = getattr(type(POLICIES[name]), hook, None) not in (None, getattr(QueuePolicy, hook))
    assert overridden == getattr(POLICIES[name].traits, trait)


@pytest.mark.parametrize("name", NAMES)
def test_base_class_and_traits_agree(name: str) -> None:
    policy = POLICIES[name]
    assert policy.traits.allocates_workers == isinstance(policy, DistributingPolicy)
    if isinstance(policy, BindingPolicy):
        assert policy.traits.preemptive != policy.traits.supports_gangs  # a waiting gang keeps slots that are not taken


@pytest.mark.parametrize("name", NAMES)
def test_only_preemptive_policies_decide_on_preemption(name: str) -> None:
    kind = type(POLICIES[name])
    for hook in ("min_remaining_to_preempt", "may_preempt_window"):
        if getattr(kind, hook, None) not in (None, getattr(QueuePolicy, hook)):
            assert POLICIES[name].traits.preemptive


@pytest.mark.parametrize("name", NAMES)
def test_policy_that_stops_workers_is_listed_as_preemptive(name: str) -> None:
    long = job("long", 0.0, seconds=1000.0, worker=worker(2))
    short = (
        gang("short", 100.0, 2, batches_per_chunk=50) if POLICIES[name].traits.supports_gangs else job("short", 100.0)
    )
    results = run(Scenario((long, short), (node("n1", gpus=2),), policy=name)).jobs
    assert POLICIES[name].preempts or not sum(one.preemptions for one in results)


def test_traits_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        POLICIES["fifo"].traits.preemptive = True  # type: ignore[misc]


def test_defaults_are_a_recoverable_queue_without_preemption() -> None:
    given = PolicyTraits(precedence_reason="which came earlier")
    assert [field.name for field in fields(given) if getattr(given, field.name) is True] == [
        "supports_gangs",
        "recoverable",
    ]


def test_default_rank_group_and_level_are_the_same_for_all_jobs() -> None:
    policy, cluster = POLICIES["fifo"], ClusterState()
    assert isinstance(policy, QueuePolicy)
    states = [JobState(job("a")), JobState(job("b", 5.0, weight=3.0))]
    assert {(policy.rank_group(one), policy.level(one, cluster, 9.0)) for one in states} == {("", 0)}
