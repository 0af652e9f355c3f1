"""Trials of excluded nodes: which job tries a node, and what follows from its pods."""

import pytest

from support.bad_nodes import HOUR, POLICIES, excluded_node, exclusion, fail, on
from support.builders import gang, job, node, planner
from support.take_over import successor
from tranche.model import Job
from tranche.planner import (
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    Planner,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.learned_state import learned_state_of, recall
from tranche.state.node_health import ExclusionPhase, HealthSettings


def test_node_recovers_while_a_trial_worker_trains() -> None:
    p = excluded_node(nodes=2)
    p.handle(Tick(), 301.0)
    (state,) = [state for state in p.cluster.jobs.values() if state.runs]
    (attempt,) = state.runs
    p.handle(WorkerStarted(state.job.key, attempt, 302.0), 302.0)
    p.handle(Tick(), 601.0)
    assert exclusion(p)
    p.handle(Tick(), 602.0)
    assert not exclusion(p)
    assert p.cluster.health.exclusions["bad"].phase is ExclusionPhase.RECOVERED


def test_trial_is_of_one_job_on_a_node_with_room_for_two() -> None:
    p = planner("chunk", [node("bad", gpus=2), node("n1")])
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name))), 0.0)
    for name in ("one", "two"):
        fail(p, f"default/{name}", 1.0)
    p.handle(Tick(), 301.0)
    states = [p.cluster.jobs[f"default/{name}"] for name in ("one", "two")]
    assert sum(len(state.runs) for state in states) == 1
    (key,) = [state.job.key for state in states if state.runs]
    attempt = next(iter(p.cluster.jobs[key].runs))
    p.handle(WorkerStarted(key, attempt, 302.0), 302.0)
    p.handle(WorkerEnded(key, attempt, "Succeeded", 400.0), 400.0)
    assert all(state.runs or state.finished for state in states)


def trial_job(p: Planner, name: str = "bad") -> str:
    """Return the key of the job with an open window on the node."""
    (key,) = [state.job.key for state, run in p.cluster.nodes[name].runs.values() if not run.closing]
    return key


def test_trials_that_two_jobs_fail_double_the_exclusion() -> None:
    p = excluded_node(health=HealthSettings(first_seconds=100.0, longest_seconds=400.0))
    lengths, now = [], 1.0
    for number in range(4):
        known = exclusion(p)
        assert known
        lengths.append(known.until - now)
        for name in ("first", "second"):
            p.handle(JobSubmitted(on("bad", job(f"{name}{number}"))), known.until - 1.0)
        now = known.until + 1.0
        p.handle(Tick(), known.until)
        for _ in range(2):
            fail(p, trial_job(p), now)
    assert lengths == [100.0, 200.0, 400.0, 400.0]


def test_trial_passes_on_from_a_failing_job_to_one_that_trains() -> None:
    p = excluded_node()
    p.handle(JobSubmitted(on("bad", job("doomed", 2.0))), 2.0)
    p.handle(Tick(), 301.0)
    assert trial_job(p) == "default/doomed"
    fail(p, "default/doomed", 302.0)
    key = trial_job(p)
    assert key in ("default/one", "default/two"), "they have failed before the trial, and no other job waits"
    (attempt,) = p.cluster.jobs[key].runs
    p.handle(WorkerStarted(key, attempt, 303.0), 303.0)
    p.handle(WorkerEnded(key, attempt, "Succeeded", 310.0), 310.0)
    assert not exclusion(p)


def test_trial_passes_on_to_jobs_that_have_not_failed_first() -> None:
    p = excluded_node()
    p.handle(JobSubmitted(on("bad", job("doomed", 2.0))), 2.0)
    p.handle(JobSubmitted(on("bad", job("honest", 3.0, seconds=HOUR))), 3.0)
    p.handle(Tick(), 301.0)
    fail(p, "default/doomed", 302.0)
    assert trial_job(p) == "default/honest"


def test_job_that_fails_a_trial_alone_does_not_lengthen_it() -> None:
    p = excluded_node()
    p.handle(JobRemoved("default/one"), 2.0)
    p.handle(Tick(), 301.0)
    assert fail(p, "default/two", 302.0) == "bad"
    known = exclusion(p)
    assert known
    assert (known.phase, known.until, known.count) == (ExclusionPhase.EXCLUDED, 602.0, 1)


def test_job_that_fails_tries_a_node_twice_at_most() -> None:
    p = excluded_node()
    for name in ("one", "two"):
        p.handle(JobRemoved(f"default/{name}"), 2.0)
    p.handle(JobSubmitted(on("bad", gang("waits", members=2))), 2.0)
    p.handle(JobSubmitted(on("bad", job("doomed"))), 3.0)
    p.handle(Tick(), 301.0)
    fail(p, "default/doomed", 302.0)
    known = exclusion(p)
    assert known
    assert (known.phase, known.failed_jobs) == (ExclusionPhase.TRIAL, ["default/doomed"])
    p.handle(Tick(), 320.0)
    fail(p, "default/doomed", 321.0)
    assert (known.phase, known.until, known.count) == (ExclusionPhase.EXCLUDED, 621.0, 1)
    p.handle(Tick(), 621.0)
    assert not known.failed_jobs, "each trial begins without them"


def test_trial_of_a_job_that_fails_everywhere_stays_open() -> None:
    p = excluded_node()
    for name in ("one", "two"):
        p.handle(JobRemoved(f"default/{name}"), 2.0)
    p.handle(JobSubmitted(job("doomed", key="team/doomed")), 2.0)
    for now in (3.0, 40.0):
        p.handle(Tick(), now)
        assert fail(p, "team/doomed", now) != "bad"
    p.handle(NodeChanged(node("n3", ready=False)), 50.0)
    p.handle(NodeChanged(node("n2", ready=False)), 50.0)
    p.handle(NodeChanged(node("n1", ready=False)), 50.0)
    p.handle(Tick(), 301.0)
    assert fail(p, "team/doomed", 302.0) == "bad"
    known = exclusion(p)
    assert known
    assert (known.phase, known.trial_job) == (ExclusionPhase.TRIAL, "")


def test_job_that_has_failed_leaves_the_trial_to_another() -> None:
    p = excluded_node()
    p.handle(JobSubmitted(on("bad", job("honest", 2.0, seconds=HOUR))), 2.0)
    p.handle(Tick(), 301.0)
    assert [key for key, state in p.cluster.jobs.items() if state.runs] == ["default/honest"]


@pytest.mark.parametrize("other", [None, on("n1", job("elsewhere")), job("idle", suspended=True)])
def test_failed_job_tries_the_node_if_no_other_wants_it(other: Job | None) -> None:
    p = excluded_node()
    if other is not None:
        p.handle(JobSubmitted(other), 2.0)
    p.handle(Tick(), 301.0)
    (tried,) = [state.job.key for state, _ in p.cluster.nodes["bad"].runs.values()]
    assert tried in ("default/one", "default/two")


@pytest.mark.parametrize(
    ("memory", "until"), [(HOUR, 601.0), (100.0, 401.0)], ids=["after its wait", "after the trial"]
)
def test_failed_job_tries_the_node_later_than_others(memory: float, until: float) -> None:
    """Failed jobs leave the trial to another job, which does not start, until their wait or the trial ends."""
    p = excluded_node(health=HealthSettings(memory_seconds=memory))
    p.handle(JobSubmitted(on("bad", job("honest", 2.0))), 2.0)
    p.handle(Tick(), 301.0)
    p.handle(JobRemoved("default/honest"), 302.0)
    assert not p.cluster.nodes["bad"].runs
    p.handle(Tick(), until)
    assert len(p.cluster.nodes["bad"].runs) == 1


def test_failed_job_that_blocks_the_others_tries_the_node() -> None:
    p = excluded_node(policy="fifo")
    p.handle(JobSubmitted(on("bad", job("honest", 2.0))), 2.0)
    p.handle(Tick(), 301.0)
    (run,) = p.cluster.nodes["bad"].runs.values()
    assert run[0].job.key == "default/one"


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "fifo"])
def test_failed_jobs_use_the_node_once_another_has_trained(policy: str) -> None:
    p = excluded_node(policy=policy)
    p.handle(JobSubmitted(on("bad", job("honest", 2.0))), 2.0)
    p.handle(Tick(), 301.0)
    (attempt,) = p.cluster.jobs["default/honest"].runs
    p.handle(WorkerStarted("default/honest", attempt, 302.0), 302.0)
    p.handle(WorkerEnded("default/honest", attempt, "Succeeded", 310.0), 310.0)
    assert p.cluster.health.exclusions["bad"].phase is ExclusionPhase.RECOVERED
    p.handle(Tick(), 330.0)
    (run,) = p.cluster.nodes["bad"].runs.values()
    assert run[0].job.key in ("default/one", "default/two")


def test_trial_without_a_result_passes_to_another_job() -> None:
    p = excluded_node()
    p.handle(JobSubmitted(on("bad", job("a"))), 2.0)
    p.handle(JobSubmitted(on("bad", job("b", 1.0))), 2.0)
    p.handle(Tick(), 301.0)
    fail(p, "default/a" if p.cluster.jobs["default/a"].runs else "default/b", 302.0, "Preempted")
    assert exclusion(p)
    assert sum(bool(state.runs) for state in p.cluster.jobs.values()) == 1


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_trial_of_a_job_that_leaves_passes_to_another(how: str) -> None:
    p = excluded_node()
    for name in ("a", "b"):
        p.handle(JobSubmitted(on("bad", job(name))), 2.0)
    p.handle(Tick(), 301.0)
    ((state, run),) = p.cluster.nodes["bad"].runs.values()
    first = state.job
    if how == "removed":
        p.handle(JobRemoved(first.key), 302.0)
    else:
        p.handle(WorkerBound(first.key, run.window.attempt, "n1"), 302.0)
    (tried,) = [one.job.key for one, run in p.cluster.nodes["bad"].runs.values() if not run.closing]
    assert {first.key, tried} == {"default/a", "default/b"}


def test_idle_trial_gives_way_to_another_bad_node() -> None:
    p = excluded_node()
    for name in ("one", "two"):
        p.handle(JobRemoved(f"default/{name}"), 2.0)
    p.handle(Tick(), 301.0)
    known = exclusion(p)
    assert known
    assert not known.takes_no_pods
    for number in range(2):
        p.handle(JobSubmitted(on("n1", job(f"new{number}", 400.0))), 400.0 + number)
        fail(p, f"default/new{number}", 400.5 + number)
    assert exclusion(p, "n1")
    assert not exclusion(p), "one of four nodes is excluded at the same time"


@pytest.mark.parametrize("takes_over", [False, True])
def test_trial_that_no_job_wants_ends_with_the_memory(takes_over: bool) -> None:
    p = excluded_node()
    for name in ("one", "two"):
        p.handle(JobRemoved(f"default/{name}"), 2.0)
    p.handle(Tick(), 301.0)
    if takes_over:
        memory = learned_state_of(p.cluster, 302.0)
        p = planner("chunk", [node("bad"), node("n1"), node("n2"), node("n3")])
        recall(p.context, memory)
        p.handle(Tick(), 303.0)
    p.handle(Tick(), 301.0 + HOUR - 1.0)
    assert exclusion(p)
    due = p.next_wakeup()
    assert due == 301.0 + HOUR
    p.handle(Tick(), due)
    assert not p.cluster.health.exclusions


def test_jobs_that_leave_a_trial_to_others_are_not_on_the_lease() -> None:
    """They may be thousands, and the API server refuses a Lease with annotations above 256 KiB."""
    p = excluded_node()
    p.handle(JobSubmitted(on("bad", job("honest", 2.0, seconds=HOUR))), 2.0)
    p.handle(Tick(), 301.0)
    known = exclusion(p)
    assert known
    assert known.put_last
    (handed_on,) = learned_state_of(p.cluster, 302.0).exclusions
    assert handed_on.node == "bad"
    assert not handed_on.put_last


@pytest.mark.parametrize(("limit", "failures"), [(0, 1), (1, 0)])
def test_failed_trial_is_no_failure_of_its_job(limit: int, failures: int) -> None:
    p = excluded_node()
    p.handle(JobSubmitted(on("bad", job("trial", backoff_limit=limit))), 2.0)
    p.handle(Tick(), 301.0)
    fail(p, "default/trial", 302.0)
    state = p.cluster.jobs["default/trial"]
    assert (state.failures, state.uncounted_failures) == (failures, 0)


def test_worker_of_before_exclusion_passes_no_trial_of_successor() -> None:
    p = planner("chunk", [node("bad", gpus=2), *(node(f"n{n}") for n in range(1, 4))])
    p.handle(JobSubmitted(on("bad", job("long", seconds=40000.0))), 0.0)
    p.handle(WorkerStarted("default/long", 1, 0.0), 0.0)
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name, 1000.0))), 1000.0)
        fail(p, f"default/{name}", 1001.0)
    for name in ("one", "two"):
        p.handle(JobRemoved(f"default/{name}"), 1002.0)
    p.handle(Tick(), 1302.0)
    after = successor(p, 1400.0)
    after.handle(Tick(), 1401.0)
    after.handle(WorkerEnded("default/long", 1, "Succeeded", 1500.0), 1500.0)
    known = exclusion(after)
    assert known is not None
    assert known.phase is ExclusionPhase.TRIAL


def test_trial_worker_passes_trial_after_take_over() -> None:
    p = excluded_node(nodes=2)
    p.handle(Tick(), 301.75)
    p.cluster.health.exclusions["bad"].until = 301.75
    (state,) = [state for state in p.cluster.jobs.values() if state.runs]
    (run,) = state.runs.values()
    assert run.opened == 301.75
    p.handle(WorkerStarted(state.job.key, run.window.attempt, 301.75), 301.75)
    after = successor(p, 400.0)
    after.handle(Tick(), 401.0)
    assert exclusion(after)
    after.handle(Tick(), 710.0)
    assert not exclusion(after)
