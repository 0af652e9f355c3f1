"""Pods that bring a job's data to sites: windows wait for them, failures are retried, and nothing is forgotten."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import Job, Link, Site
from tranche.planner import (
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeRemoved,
    OpenWindow,
    Planner,
    StageData,
    StagingEnded,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.data_staging import MAX_PODS, request_copies

DELTA = 50.0
"""Seconds that a chunk takes between the two sites by their links."""
SITES = [Site("here", links={"there": Link(1e9)}), Site("there", links={"here": Link(1e9)})]
KEY = "default/j"
HOUR = 3600.0


def cluster(*names: str, policy: str = "chunk", **settings: Any) -> Planner:
    return planner(policy, [node(name, name, 1) for name in names or ("here", "there")], SITES, **settings)


def submit(p: Planner, **changes: Any) -> Job:
    fields = {"data_site": "here", "chunk_bytes": DELTA * 1e9 / 8, "staged": True, "chunks": 3, "seconds": 1000.0}
    one = job("j", 0.0, **{**fields, **changes})
    for opened in of_type(OpenWindow, p.handle(JobSubmitted(one), 0.0)):
        p.handle(WorkerStarted(opened.job, opened.window.attempt, 0.0), 0.0)
    return one


def sites_opened(p: Planner, *events: Any, at: float) -> list[str]:
    return [i.window.site for i in of_type(OpenWindow, p.handle_all(events or (Tick(),), at))]


def staging(p: Planner) -> Any:
    (one,) = p.cluster.jobs[KEY].stagings.values()
    return one


def test_window_at_other_site_opens_after_staging_pod_succeeds() -> None:
    p = cluster()
    submit(p)
    one = staging(p)
    assert (one.site, one.attempt, one.chunks) == ("there", 2, (2, 1, 0))
    assert sites_opened(p, at=100 * DELTA) == []
    assert sites_opened(p, StagingEnded(KEY, 2, "Succeeded", 9 * DELTA), at=100 * DELTA) == ["there"]
    assert p.plan_of(KEY, 100 * DELTA).staging == ()
    assert p.plan_of(KEY, 100 * DELTA).homes == {"there": "0-2"}


def test_transfer_time_is_learnt_from_staging_run_time() -> None:
    p = cluster()
    submit(p)
    p.handle(StagingEnded(KEY, 2, "Succeeded", 9 * DELTA), 9 * DELTA)
    assert p.cluster.transfer_seconds(p.cluster.jobs[KEY], "there") == pytest.approx(3 * DELTA)


def test_copies_without_staging_are_assumed_after_transfer_time() -> None:
    p = cluster()
    submit(p, staged=False)
    assert p.cluster.jobs[KEY].stagings == {}
    assert sites_opened(p, at=DELTA) == ["there"]


@pytest.mark.parametrize("staged", [True, False])
def test_copied_data_stay_available_when_the_clock_is_set_back(staged: bool) -> None:
    p = cluster()
    submit(p, staged=staged)
    came = StagingEnded(KEY, 2, "Succeeded", 9 * DELTA) if staged else Tick()
    assert sites_opened(p, came, at=100 * DELTA) == ["there"]
    (there,) = (attempt for attempt, run in p.cluster.jobs[KEY].runs.items() if run.home.site == "there")
    p.handle(WorkerStarted(KEY, there, 100 * DELTA), 100 * DELTA)
    assert sites_opened(p, WorkerEnded(KEY, there, "Succeeded", DELTA / 2), at=DELTA / 2) == ["there"]


def test_one_staging_pod_per_site_runs_and_new_chunks_wait() -> None:
    p = cluster()
    submit(p, chunks=2)
    state = p.cluster.jobs[KEY]
    state.job = replace(state.job, chunks=3, max_workers=3)
    state.ledger_changed()
    state.windows_changed()
    state.copy(2, "there", 99.0, reported=True)
    request_copies(p.context, state, (2,), "there")
    assert of_type(StageData, p.handle(Tick(), 1.0)) == []
    assert (staging(p).chunks, staging(p).wanted) == ((1, 0), (2,))
    (instruction,) = of_type(StageData, p.handle(StagingEnded(KEY, 2, "Succeeded", DELTA), 60.0))
    assert instruction.chunks == (2,)


def test_failed_staging_pod_is_retried_after_doubling_pauses() -> None:
    p = cluster()
    submit(p)
    assert of_type(StageData, p.handle(StagingEnded(KEY, 2, "Failed"), 20.0)) == []
    assert p.plan_of(KEY, 20.0).staging[0].failures == 1
    assert of_type(StageData, p.handle(Tick(), 29.0)) == []
    (again,) = of_type(StageData, p.handle(Tick(), 30.0))
    assert (again.chunks, staging(p).attempt) == ((2, 1, 0), 3)
    p.handle(StagingEnded(KEY, 3, "Failed"), 40.0)
    assert of_type(StageData, p.handle(Tick(), 59.0)) == []
    assert of_type(StageData, p.handle(Tick(), 60.0))


def test_preempted_or_lost_staging_pod_is_no_failure() -> None:
    p = cluster()
    submit(p, backoff_limit=0)
    for attempt, outcome in ((2, "Preempted"), (3, "Lost")):
        p.handle(StagingEnded(KEY, attempt, outcome), 100.0 * attempt)  # type: ignore[arg-type]
        assert of_type(StageData, p.handle(Tick(), 100.0 * attempt + 10.0))
    assert staging(p).failures == 0


def test_refused_staging_pods_are_few_and_no_failures() -> None:
    p = cluster()
    submit(p, backoff_limit=0)
    pods, now = 0, 20.0
    while now < 3620.0:
        for instruction in of_type(StageData, p.handle(Tick(), now)):
            pods += instruction.site == "there"
        if staging(p).attempt:
            p.handle(StagingEnded(KEY, staging(p).attempt, "Refused", node="there", reason="OutOfcpu"), now)
        now += 1.0
    assert pods <= 15
    assert (staging(p).failures, staging(p).given_up) == (0, False)


def test_node_that_refuses_a_staging_pod_has_a_problem() -> None:
    p = cluster()
    submit(p)
    p.handle(StagingEnded(KEY, 2, "Refused", node="there", reason="OutOfcpu"), 20.0)
    assert p.cluster.health.has_results("there")


def test_succeeded_staging_pod_ends_the_growth_of_pauses() -> None:
    p = cluster()
    submit(p)
    p.handle(StagingEnded(KEY, 2, "Refused", node="there"), 20.0)
    one = staging(p)
    p.handle(Tick(), 30.0)
    p.handle(StagingEnded(KEY, one.attempt, "Succeeded", 9.0), 40.0)
    assert one.refusals == 0


def test_why_names_the_reason_of_the_last_failed_staging_pod() -> None:
    p = cluster("there")
    submit(p, backoff_limit=0)
    p.handle(StagingEnded(KEY, staging(p).attempt, "Failed", reason="ErrImagePull: no such image"), 1000.0)
    assert p.plan_of(KEY, 1001.0).explanation.endswith("too many staging pods failed: ErrImagePull: no such image")


def test_end_of_unknown_staging_attempt_is_ignored() -> None:
    p = cluster()
    submit(p)
    p.handle(StagingEnded(KEY, 2, "Failed"), 1.0)
    p.handle(Tick(), 11.0)
    assert sites_opened(p, StagingEnded(KEY, 2, "Succeeded", 1.0), at=12.0) == []


def test_job_with_failed_staging_trains_at_its_data_site() -> None:
    p = cluster()
    one = submit(p, backoff_limit=0)
    p.handle(StagingEnded(KEY, 2, "Failed"), 1.0)
    assert p.plan_of(KEY, 1.0).staging[0].given_up
    for at in (100.0, 1000.0):
        assert not [i for i in p.handle(Tick(), at) if isinstance(i, StageData | OpenWindow)]
    assert [w.site for w in p.plan_of(KEY, 1000.0).windows] == ["here"]
    (again,) = of_type(StageData, p.handle(JobChanged(replace(one, generation=2, weight=2.0)), 1001.0))
    assert again.site == "there"


def fail_staging(p: Planner, start: float, end: float) -> list[float]:
    """Let each staging pod fail after 10 s, as while its source cannot be reached; return when they started."""
    started, now = list[float](), start
    while now < end:
        p.handle(Tick(), now)
        for one in list(p.cluster.jobs[KEY].stagings.values()):
            if one.attempt:
                started.append(now)
                p.handle(StagingEnded(KEY, one.attempt, "Failed", reason="connection refused"), now + 10.0)
        now += 20.0
    return started


def test_staging_begins_again_after_an_outage_of_its_source() -> None:
    p = cluster("there")
    submit(p, backoff_limit=2)
    fail_staging(p, 0.0, HOUR / 2)
    assert staging(p).given_up
    (again,) = of_type(StageData, p.handle_all([Tick()], 2 * HOUR))
    assert again.site == "there"
    assert sites_opened(p, StagingEnded(KEY, staging(p).attempt, "Succeeded", 9.0), at=2 * HOUR + 9.0) == ["there"]


def test_staging_that_always_fails_is_tried_ever_less() -> None:
    p = cluster("there")
    submit(p, backoff_limit=2)
    started = fail_staging(p, 0.0, 72 * HOUR)
    pauses = [round((later - at) / HOUR) for at, later in itertools.pairwise(started) if later - at > HOUR / 2]
    assert pauses == [1, 2, 4, 8, 16, 24]
    assert p.plan_of(KEY, 72 * HOUR).explanation.endswith("connection refused")


def test_a_restarted_planner_tries_staging_again_later() -> None:
    p = cluster("there")
    one = submit(p, backoff_limit=0)
    p.handle(StagingEnded(KEY, 1, "Failed"), 1.0)
    again = cluster("there")
    again.restore([JobSubmitted(one, p.plan_of(KEY, 2.0), p.progress_of(KEY))], 2.0)
    assert of_type(StageData, again.handle(Tick(), HOUR / 2)) == []
    assert of_type(StageData, again.handle(Tick(), HOUR + 2.0))


def test_job_with_undeliverable_data_is_explained() -> None:
    p = cluster("there")
    submit(p, backoff_limit=0)
    assert p.plan_of(KEY, 0.0).explanation == "its data are on the way to there until 00:00:50Z"
    assert p.plan_of(KEY, 1000.0).explanation == "its data are on the way to there"
    p.handle(StagingEnded(KEY, 1, "Failed"), 1001.0)
    assert p.plan_of(KEY, 1001.0).explanation == "its data cannot be brought to there: too many staging pods failed"


def test_suspended_job_stages_no_data_until_resumed() -> None:
    p = cluster()
    one = submit(p)
    p.handle(JobChanged(replace(one, suspended=True, generation=2)), 1.0)
    (halted,) = p.plan_of(KEY, 1.0).staging
    assert (halted.attempt, halted.wanted) == (0, (2, 1, 0))
    instructions = p.handle(JobChanged(replace(one, generation=3)), 2.0)
    assert [i.chunks for i in of_type(StageData, instructions)] == [(2, 1, 0)]


def test_a_restarted_planner_waits_for_the_pod_that_is_under_way() -> None:
    p = cluster()
    one = submit(p)
    again = cluster()
    restored = again.restore([JobSubmitted(one, p.plan_of(KEY, 10.0), p.progress_of(KEY))], 10.0)
    assert of_type(StageData, restored) == []
    assert sites_opened(again, at=100 * DELTA) == []
    assert sites_opened(again, StagingEnded(KEY, 2, "Succeeded", DELTA), at=101 * DELTA) == ["there"]


@pytest.mark.parametrize(("limit", "expected"), [(6, 1), (0, 0)])
def test_a_restarted_planner_knows_what_has_failed(limit: int, expected: int) -> None:
    p = cluster()
    one = submit(p, backoff_limit=limit)
    p.handle(StagingEnded(KEY, 2, "Failed"), 1.0)
    again = cluster()
    again.restore([JobSubmitted(one, p.plan_of(KEY, 2.0), p.progress_of(KEY))], 2.0)
    assert of_type(StageData, again.handle(Tick(), 11.0)) == []
    assert len(of_type(StageData, again.handle(Tick(), 12.0))) == expected
    assert staging(again).failures == 1


def test_a_restarted_planner_knows_why_staging_failed() -> None:
    p = cluster("there")
    one = submit(p, backoff_limit=0)
    p.handle(StagingEnded(KEY, staging(p).attempt, "Failed", reason="ErrImagePull: no such image"), 1000.0)
    before = p.plan_of(KEY, 1001.0)
    again = cluster("there")
    again.restore([JobSubmitted(one, before, p.progress_of(KEY))], 1001.0)
    assert again.plan_of(KEY, 1001.0).explanation == before.explanation
    assert "ErrImagePull: no such image" in before.explanation


def test_staging_pod_is_replaced_when_its_template_changes() -> None:
    p = cluster()
    one = submit(p)
    (again,) = of_type(StageData, p.handle(JobChanged(replace(one, generation=2), frozenset({"staging"})), 10.0))
    assert (again.chunks, staging(p).attempt) == ((2, 1, 0), 3)
    assert sites_opened(p, StagingEnded(KEY, 2, "Succeeded", 5.0), at=11.0) == []
    assert sites_opened(p, StagingEnded(KEY, 3, "Succeeded", 5.0), at=20.0) == ["there"]


@pytest.mark.parametrize(
    "edit",
    [
        {"weight": 3.0},
        {"priority": 1000},
        {"max_workers": 2},
        {"chunk_bytes": 1e12},
        {"backoff_limit": 0},
        {"step_seconds": 9.0},
        {"restart_seconds": 500.0},
    ],
    ids=lambda edit: next(iter(edit)),
)
def test_other_changes_leave_a_staging_pod_alone(edit: dict[str, Any]) -> None:
    p = cluster()
    one = submit(p)
    assert of_type(StageData, p.handle(JobChanged(replace(one, generation=2, **edit)), 10.0)) == []
    assert (staging(p).attempt, staging(p).chunks) == (2, (2, 1, 0))
    p.handle(StagingEnded(KEY, 2, "Succeeded", 5.0), 20.0)
    assert {window.site for window in p.plan_of(KEY, 20.0).windows} == {"here", "there"}


def test_chunks_done_meanwhile_are_not_staged_again() -> None:
    p = cluster()
    submit(p)
    p.handle(StagingEnded(KEY, 2, "Failed"), 1.0)
    p.cluster.jobs[KEY].done.add(2)
    (again,) = of_type(StageData, p.handle(Tick(), 11.0))
    assert again.chunks == (1, 0)


def test_a_policy_that_does_not_plan_copies_refuses_the_job() -> None:
    p = cluster(policy="srsf")
    submit(p)
    plan = p.plan_of(KEY, 0.0)
    assert plan.unplannable == "StagingNotPlanned"
    assert plan.windows == ()


def test_estimates_count_with_data_that_are_on_the_way() -> None:
    p = cluster()
    submit(p, seconds=100.0)
    p.handle(NodeRemoved("here"), 1.0)
    estimate = p.forecast(1.0)[KEY]
    assert estimate.completion is not None
    assert DELTA < estimate.completion < 20 * DELTA
    assert staging(p).attempt == 2  # a rollout leaves the plan as it is


def test_staging_pods_of_a_namespace_are_limited_at_a_time() -> None:
    def staged(key: str) -> Job:
        return job(key, key=key, data_site="here", chunk_bytes=1e6, staged=True, chunks=3, seconds=1000.0)

    def started(*events: Any) -> list[str]:
        return [one.job for one in of_type(StageData, p.handle_all(events, 1.0))]

    p = cluster()
    jobs = [staged(f"lab/j{number:03}") for number in range(2 * MAX_PODS)]
    assert len(started(*map(JobSubmitted, jobs))) == MAX_PODS
    assert started(JobSubmitted(staged("default/j"))) == ["default/j"]
    assert started(JobRemoved(jobs[0].key)) == [jobs[MAX_PODS].key]
    attempt = next(iter(p.cluster.jobs[jobs[1].key].stagings.values())).attempt
    assert started(StagingEnded(jobs[1].key, attempt, "Succeeded", DELTA)) == [jobs[MAX_PODS + 1].key]
    removed = JobRemoved(jobs[MAX_PODS + 2].key), JobRemoved(jobs[2].key)
    assert started(*removed) == [jobs[MAX_PODS + 3].key]
