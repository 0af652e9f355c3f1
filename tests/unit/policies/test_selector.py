"""The policy selector: which member decides, when that changes, and what it refuses."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from support.builders import gang, job, node, planner
from tranche.model import Job, JobProgress
from tranche.planner import JobSubmitted, Planner
from tranche.policies import get_policy
from tranche.policies.queue.selector import Selector, unfinished
from tranche.simulation.scenario import Scenario, run
from tranche.state.tenant_usage import KEPT_JOBS, CompletedJob, History

JOBS = (
    job("first", seconds=100.0),
    job("wide", 1.0, seconds=50.0, chunks=2, is_gang=True),
    job("long", 2.0, seconds=90.0),
    job("short", 3.0, seconds=80.0),
)
NODES = (node("n1", gpus=2),)
LONG = [CompletedJob(1100.0, 0.0, 1, 1100.0) for _ in range(10)]
SHORT = [CompletedJob(200.0, 1.0, 2, 200.0) for _ in range(10)]
"""On three GPUs: under fifo-skip the long jobs keep two of them, so that no short one starts before all have begun."""


def completed(policy: str, jobs: tuple[Job, ...] = JOBS, unsized: float = 0.0) -> dict[str, float]:
    """Return the completion of each job."""
    return {one.key: one.completed for one in run(Scenario(jobs, NODES, policy=policy, unsized=unsized)).jobs}


def choice(
    history: list[CompletedJob], gpus: int, policy: str = "selector", waiting: Sequence[CompletedJob] = ()
) -> str:
    """Return the name of the chosen member."""
    made = get_policy(policy)
    assert isinstance(made, Selector)
    return made.members.split("+")[made.best(history, waiting, gpus)]


@pytest.mark.parametrize("member", ["srsf", "srtf", "sjf", "las", "fifo-skip"])
def test_usual_member_decides_until_jobs_have_completed(member: str) -> None:
    other = "srsf" if member != "srsf" else "las"
    assert completed(f"selector:members={member}+{other}") == completed(member)


def test_usual_member_depends_on_whether_sizes_were_declared() -> None:
    assert choice([], 4) == "srsf"
    for declared, usual in ((True, "srsf"), (False, "las")):
        assert choice([CompletedJob(60.0, size_declared=declared)] * 3, 4) == usual
    half = [CompletedJob(60.0, size_declared=n % 2 == 0) for n in range(4)]
    assert choice(half, 4) == "srsf"
    assert choice(half[1:], 4) == "las"


def test_before_any_completion_unfinished_jobs_count() -> None:
    made = planner("selector", [node("n1", gpus=1)])
    policy = made.policy
    assert isinstance(policy, Selector)
    assert policy.rank_epoch(made.cluster) == 0
    made.handle(JobSubmitted(job("known")), 0.0)
    assert policy.rank_epoch(made.cluster) == 0
    for name in ("b", "c"):
        made.handle(JobSubmitted(job(name, size_declared=False)), 0.0)
    assert policy.rank_epoch(made.cluster) == 1


def test_member_with_the_least_average_jct_is_chosen() -> None:
    """One GPU: a job of 910 s, and then nine of 10 s every 100 s; each is known to need an hour at most.

    Under las the long job stops for each of them after its first 1,024 GPU-seconds only, so they wait as under
    fifo-skip. With a first job of 9,100 s they need not wait from the 1,024th second on.
    """
    short = [CompletedJob(10.0, 100.0 * n, 1, 3600.0) for n in range(1, 10)]
    members = "selector:members=fifo-skip+las"
    assert choice([CompletedJob(910.0, 0.0, 1, 3600.0), *short], 1, members) == "fifo-skip"
    later = [CompletedJob(10.0, 1000.0 * n, 1, 3600.0) for n in range(1, 10)]
    assert choice([CompletedJob(9100.0, 0.0, 1, 3600.0), *later], 1, members) == "las"


def test_unusual_member_has_to_be_better_by_the_margin() -> None:
    """One GPU and ten jobs of 100 s, the last of which takes one second less: srsf gains 0.2 %."""
    jobs = [CompletedJob(100.0 - (n == 9), 0.0, 1, 100.0 - (n == 9)) for n in range(10)]
    assert choice(jobs, 1, "selector:members=fifo-skip+srsf:margin=0") == "srsf"
    assert choice(jobs, 1, "selector:members=fifo-skip+srsf") == "fifo-skip"


def test_only_the_last_completed_jobs_count() -> None:
    def epoch(policy: str) -> int:
        made = planner(policy, [node("n1", gpus=3)])
        made.cluster.history.completed = [*LONG, *SHORT]
        made.cluster.history.observed = 20
        assert isinstance(made.policy, Selector)
        return made.policy.rank_epoch(made.cluster)

    assert epoch("selector:members=fifo-skip+srsf") == 1
    assert epoch("selector:members=fifo-skip+srsf:jobs=5") == 0


def test_jobs_that_an_order_starves_count() -> None:
    """One job of two GPUs cannot start under fifo-skip on two GPUs, because each job of one GPU overlaps the next."""
    narrow = [CompletedJob(150.0, 100.0 * n, 1, 150.0) for n in range(20)]
    wide = [CompletedJob(0.0, 110.0 + n, 2, 20.0) for n in range(2)]
    members = "selector:members=fifo-skip+srsf"
    assert choice(narrow, 2, members) == "fifo-skip"
    assert choice(narrow, 2, members, wide) == "srsf"


def test_jobs_submitted_before_the_last_completed_one_count() -> None:
    made = planner("selector", [node("n1", gpus=2)])
    made.cluster.history.completed = [CompletedJob(100.0, float(n)) for n in range(5)]
    for name, at in (("before", 1.5), ("after", 9.0)):
        made.handle(JobSubmitted(job(name, at, size_declared=False)), at)
    assert [one.submitted for one in unfinished(made.cluster, made.cluster.history.completed)] == [1.5]
    assert [one.submitted for one in unfinished(made.cluster, made.cluster.history.completed[:3])] == [1.5]


def test_all_jobs_are_ranked_again_when_the_choice_changes() -> None:
    made = planner("selector:members=fifo-skip+srsf", [node("n1", gpus=3)])
    for number in range(4):
        made.handle(JobSubmitted(job(f"j{number}", 5.0, seconds=100.0 - number)), 5.0)
    assert {state.rank_epoch for state in made.cluster.jobs.values()} == {0}
    for number in range(12):
        long = number < 6
        size = 1100.0 if long else 200.0
        made.cluster.history.add(CompletedJob(size, float(not long), 1 if long else 2, size))
    made.handle(JobSubmitted(job("last", 6.0)), 6.0)
    assert {state.rank_epoch for state in made.cluster.jobs.values()} == {1}


def test_restarted_planner_makes_the_same_choice() -> None:
    def restarted() -> Planner:
        made = planner("selector:members=fifo-skip+srsf", [node("n1", gpus=3)])
        for number in range(14):
            long = number % 2 == 0
            one = job(f"j{number}", float(not long), seconds=1100.0) if long else gang(f"j{number}", 1.0, seconds=100.0)
            done = frozenset(range(one.chunks))
            made.learn_from_completed(
                JobSubmitted(one, None, JobProgress(done=done, attained_gpu_seconds=1100.0 if long else 200.0))
            )
        return made

    first, second = restarted(), restarted()
    policy = first.policy
    assert isinstance(policy, Selector)
    assert policy.rank_epoch(first.cluster) == policy.rank_epoch(second.cluster) == 1


def test_completions_in_a_rollout_do_not_change_the_choice() -> None:
    made = planner("selector:members=fifo-skip+srsf", [node("n1", gpus=3)])
    for _ in range(9):
        made.cluster.history.add(CompletedJob(200.0, 1.0, 2, 200.0))
    policy, copied = made.policy, made.cluster.history.copied()
    assert isinstance(policy, Selector)
    made.cluster.history = copied
    for _ in range(9):
        copied.add(CompletedJob(1100.0, 0.0, 1, 1100.0))
    assert len(copied) == 18
    assert policy.rank_epoch(made.cluster) == 0
    made.cluster.history = replace(copied, observed=18)
    assert policy.rank_epoch(made.cluster) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selector:members=srsf+chunk", "different ones of"),
        ("selector:members=srsf+srsf", "different ones of"),
        ("selector:members=srsf", "different ones of"),
        ("selector:jobs=0", "jobs of at least 1"),
        ("selector:margin=1", "less than 1"),
    ],
    ids=["unknown", "twice", "one", "jobs", "margin"],
)
def test_impossible_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_policy(text)


def test_reason_is_that_of_the_chosen_policy() -> None:
    made = planner("selector:members=las+srsf", [node("n1")])
    for one in JOBS[2:]:
        made.handle(JobSubmitted(one), 3.0)
    first, second = made.cluster.jobs.values()
    policy = made.policy
    assert isinstance(policy, Selector)
    assert policy.chosen(first).name == "las"
    assert policy.precedence_reason(first, second, made.cluster, 3.0) == "which came earlier"


def test_history_forgets_the_earliest_of_very_many_jobs() -> None:
    history = History()
    for number in range(5 * KEPT_JOBS // 2):
        history.add(CompletedJob(float(number)))
    assert len(history) == history.observed == 3 * KEPT_JOBS // 2
    assert history.completed[0].gpu_seconds == KEPT_JOBS
    assert history.derive("last", len(history), lambda jobs: jobs[-1].gpu_seconds) == 5 * KEPT_JOBS // 2 - 1
