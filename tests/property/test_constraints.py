"""The constraint that is named for a waiting job binds: with the constraint removed, the job starts earlier.

35 random states under each policy that runs in clusters but those that distribute workers, and 150 where shares and
age decide too. `benchmarks/explanations.py` has 1,000 of each, and 50 under the policies left out here. In each state,
the constraint of one waiting job is removed, and both courses are simulated on. At least 95 % must start earlier,
under one policy within two standard errors of that. A plan knows no later arrivals; how far they change the answer is
measured too. Most of the rest wait for capacity that the absence of no single job gives them earlier.
"""

import sys

import pytest

from support.constraint_trials import POLICIES, TrialCount, trial_count
from support.policy_groups import DISTRIBUTING

SEED = 20260
STATES = {
    policy: 150 if "fair=" in policy else 35 for policy in POLICIES if policy not in DISTRIBUTING
}  # whose trials take long
"""Number of states under each policy: those in which weights decide are rare."""
SEEDS = {policy: 3 if "aging=" in policy else SEED for policy in STATES}
"""Seeds: age decides in one of 300 states, and in two of the 150 of this seed."""
SHARE = 0.95
SHARE_WITH_LATER_ARRIVALS = 0.85

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def counts() -> dict[str, TrialCount]:
    return {policy: trial_count(policy, states, SEEDS[policy]) for policy, states in STATES.items()}


def report(count: TrialCount) -> str:
    lines = [f"{count.policy}, seed {SEEDS[count.policy]}: earlier in {count.earlier['all']} of {count.total['all']}"]
    lines += [f"{kind:12} {count.earlier[kind]:4} of {total:4}" for kind, total in count.total.most_common()]
    written = "\n".join([*lines, *count.failed, ""])
    sys.stdout.write(written)
    return written


@pytest.mark.parametrize("policy", STATES)
def test_waiting_job_starts_earlier_without_named_constraint(policy: str, counts: dict[str, TrialCount]) -> None:
    found, states = counts[policy], STATES[policy]
    share = SHARE - 2 * (SHARE * (1 - SHARE) / states) ** 0.5
    assert found.earlier["all"] >= share * states, report(found)
    assert not found.missing(1), report(found)


def test_named_constraints_bind_over_all_policies(counts: dict[str, TrialCount]) -> None:
    earlier = sum(one.earlier["all"] for one in counts.values())
    assert earlier >= SHARE * sum(STATES.values()), "\n".join(map(report, counts.values()))


def test_named_constraints_bind_with_later_arrivals() -> None:
    states = STATES["chunk"]
    found = trial_count("chunk", states, SEED, later=1.0)
    assert found.earlier["all"] >= SHARE_WITH_LATER_ARRIVALS * states, report(found)
