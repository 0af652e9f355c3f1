"""Plans and attempt records name the job, or the foreign pod, that preempted a worker."""

from dataclasses import replace

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.kube.api.resources import Plan, Progress
from tranche.kube.convert.trainingjob import plan_status, progress_status, read_plan, read_progress
from tranche.model import AttemptRecord, Job, Quota, QuotaLimit, Resources, Window
from tranche.model.tenancy import PRIORITY_CLASSES
from tranche.planner import (
    ChiefEnded,
    CloseParameterServer,
    CloseWindow,
    EvictionRefused,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    Planner,
    QuotaChanged,
    WorkerEnded,
    WorkerStarted,
)

POLICIES = ("chunk", "srsf", "chunk-faithful")
GUEST = "pod/default/guest"


def preempted(policy: str = "srsf", large: Job | None = None) -> tuple[Planner, list[Window]]:
    """A planner whose job `large` has just been preempted by `small`, and the closed windows."""
    made = planner(policy, [node("n1", gpus=2)], eviction_hold_seconds=1e6)
    one = large or job("large", chunks=2, seconds=5000.0)
    made.handle(JobSubmitted(one), 0.0)
    for attempt in made.cluster.jobs[one.key].runs:
        made.handle(WorkerStarted(one.key, attempt, 0.0), 0.0)
    out = made.handle(JobSubmitted(job("small", 100.0, chunks=2, seconds=10.0)), 100.0)
    return made, [closed.window for closed in of_type(CloseWindow, out)]


def records(made: Planner, name: str = "large") -> list[AttemptRecord]:
    return list(made.progress_of(f"default/{name}").records)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_window_closed_for_another_job_names_it(policy: str) -> None:
    made, closed = preempted(policy)
    assert [window.preempted_by for window in closed] == ["default/small"] * 2
    planned = made.plan_of("default/large", 100.0).windows
    assert [window.preempted_by for window in planned] == ["default/small"] * 2


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("outcome", ["Preempted", "Lost"])
def test_a_preempted_attempt_is_recorded_with_its_preemptor(policy: str, outcome: str) -> None:
    made, closed = preempted(policy)
    made.handle(WorkerEnded("default/large", closed[0].attempt, outcome, 101.0, None, 143), 101.0)  # type: ignore[arg-type]
    (record,) = records(made)
    assert (record.attempt, record.reason, record.preempted_by) == (closed[0].attempt, outcome, "default/small")


def test_a_worker_that_succeeds_while_it_stops_was_not_preempted() -> None:
    made, closed = preempted()
    made.handle(WorkerEnded("default/large", closed[0].attempt, "Succeeded", 101.0), 101.0)
    assert records(made)[-1].preempted_by == ""


@pytest.mark.parametrize("policy", POLICIES)
def test_a_window_closed_for_its_own_job_names_no_preemptor(policy: str) -> None:
    made = planner(policy, [node("n1")])
    made.handle(JobSubmitted(job("large")), 0.0)
    out = made.handle(JobChanged(job("large", suspended=True)), 1.0)
    assert [closed.window.preempted_by for closed in of_type(CloseWindow, out)] == [""]


def test_the_preemptor_survives_a_restart_of_the_planner() -> None:
    first, closed = preempted()
    now, jobs = 100.5, [state.job for state in first.cluster.jobs.values()]
    second = planner("srsf", [node("n1", gpus=2)])
    second.restore(
        [
            JobSubmitted(
                one,
                read_plan(Plan.model_validate(plan_status(first.plan_of(one.key, now), one.uid, 1, 1))),
                first.progress_of(one.key),
            )
            for one in jobs
        ],
        now,
    )
    second.handle(WorkerEnded("default/large", closed[0].attempt, "Preempted", 101.0, None, 143), 101.0)
    assert records(second)[-1].preempted_by == "default/small"


def test_a_window_whose_eviction_was_refused_names_no_preemptor() -> None:
    made, closed = preempted()
    made.handle(EvictionRefused("default/large", tuple(window.attempt for window in closed), "budget"), 101.0)
    windows = made.plan_of("default/large", 101.0).windows
    assert [(window.state, window.preempted_by) for window in windows] == [("Open", "")] * 2


def test_all_pods_of_a_preempted_gang_name_the_preemptor() -> None:
    large = gang("large", members=1, seconds=5000.0, chief=worker(gpus=0), server=worker(gpus=0), servers=1)
    made = planner("srsf", [node("n1")])
    made.handle(JobSubmitted(large), 0.0)
    out = made.handle(JobSubmitted(job("small", 1.0, seconds=10.0)), 1.0)
    assert [closed.window.preempted_by for closed in of_type(CloseWindow, out)] == ["default/small"]
    helpers = [closed.server for closed in of_type(CloseParameterServer, out)]
    assert [one.preempted_by for one in helpers] == ["default/small"] * 2
    chief = next(one for one in helpers if one.is_chief)
    made.handle(ChiefEnded("default/large", chief.attempt, "Preempted", 143), 2.0)
    (record,) = records(made)
    assert (record.attempt, record.reason, record.preempted_by) == (chief.attempt, "Preempted", "default/small")


def test_a_window_closed_for_a_quota_names_the_job_that_needs_it() -> None:
    made = planner("srsf", [node("n1", gpus=2)])
    made.handle(QuotaChanged(Quota("default", "gpus", (QuotaLimit("requests.nvidia.com/gpu", "gpus", 1),))), 0.0)
    made.handle(JobSubmitted(job("large", seconds=5000.0)), 0.0)
    out = made.handle(JobSubmitted(job("small", 1.0, seconds=10.0)), 1.0)
    assert [closed.window.preempted_by for closed in of_type(CloseWindow, out)] == ["default/small"]


def test_a_foreign_pod_that_preempts_a_worker_is_recorded() -> None:
    made = planner("srsf", [node("n1")])
    made.handle(JobSubmitted(job("large")), 0.0)
    made.handle(WorkerEnded("default/large", 1, "Preempted", 1.0, None, 143, preempted_by=GUEST), 1.0)
    assert records(made)[-1].preempted_by == GUEST


def test_foreign_pod_that_preempts_one_member_preempts_gang() -> None:
    made = planner("srsf", [node("n1", gpus=2)])
    made.handle(JobSubmitted(gang("large")), 0.0)
    out = made.handle(WorkerEnded("default/large", 1, "Preempted", 1.0, None, 143, preempted_by=GUEST), 1.0)
    assert [closed.window.preempted_by for closed in of_type(CloseWindow, out)] == [GUEST]
    made.handle(WorkerEnded("default/large", 2, "Preempted", 2.0, None, 143), 2.0)
    assert [record.preempted_by for record in records(made)] == [GUEST, GUEST]


def test_a_window_on_a_lost_node_names_no_preemptor() -> None:
    made = planner("chunk-faithful", [node("n1"), node("n2")])
    made.handle(JobSubmitted(job("large", seconds=5000.0)), 0.0)
    window = made.plan_of("default/large", 0.0).windows[0]
    made.handle(NodeRemoved(window.node or ""), 1.0)
    made.handle(WorkerEnded("default/large", 1, "Lost", 2.0), 2.0)
    assert records(made) == [replace(records(made)[0], reason="NotStarted", preempted_by="")]


def test_a_window_closed_for_a_foreign_pods_room_names_no_job() -> None:
    made = planner("chunk-faithful", [node("n1", gpus=2)])
    made.handle(JobSubmitted(job("large", chunks=3, seconds=5000.0)), 0.0)
    out = made.handle(NodeChanged(node("n1", gpus=2, foreign=Resources(gpus=1))), 1.0)
    assert [closed.window.preempted_by for closed in of_type(CloseWindow, out)] == [""]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_preempted_attempt_gives_reason_and_lost_work(policy: str) -> None:
    made, closed = preempted(policy)
    clause = made.policy.traits.precedence_reason
    assert {window.why for window in closed} == {clause}
    made.handle(WorkerEnded("default/large", closed[0].attempt, "Preempted", 101.0, {0: 0.0, 1: 0.0}, 143), 101.0)
    (record,) = records(made)
    assert (record.why, record.started, record.ended) == (clause, 0.0, 101.0)
    assert record.lost_seconds == pytest.approx(101.0), "nothing was saved since its start"


def test_preempted_attempt_that_saved_lost_no_work() -> None:
    made, closed = preempted()
    chunk, attempt = closed[0].chunks[0], closed[0].attempt
    made.handle(WorkerEnded("default/large", attempt, "Preempted", 101.0, {chunk: 3.0}, 143), 101.0)
    assert records(made)[-1].lost_seconds == 0.0


def test_preemption_by_priority_class_says_so() -> None:
    made = planner("chunk", [node("n1")])
    made.handle(JobSubmitted(job("large", seconds=100.0)), 0.0)
    vip = job("vip", 1.0, seconds=5000.0, priority=PRIORITY_CLASSES["tranche-high"])
    (closed,) = of_type(CloseWindow, made.handle(JobSubmitted(vip), 1.0))
    assert closed.window.why == "which has the higher priority class tranche-high"


@pytest.mark.parametrize("policy", POLICIES)
def test_preemptor_records_its_victims(policy: str) -> None:
    made, _ = preempted(policy)
    progress = made.progress_of("default/small")
    assert [(one.job, one.workers, one.at) for one in progress.victims] == [("default/large", 2, 100.0)]
    assert progress.preempted_workers == 2
    assert made.progress_of("default/large").victims == ()


def test_gang_is_one_victim_with_all_of_its_members() -> None:
    made, _ = preempted(large=gang("large", members=2, seconds=5000.0))
    assert [(one.job, one.workers) for one in made.progress_of("default/small").victims] == [("default/large", 2)]


def test_victims_whose_eviction_was_refused_do_not_count() -> None:
    made, closed = preempted()
    made.handle(EvictionRefused("default/large", (closed[0].attempt,), "budget"), 101.0)
    progress = made.progress_of("default/small")
    assert ([one.workers for one in progress.victims], progress.preempted_workers) == ([1], 1)
    made.handle(EvictionRefused("default/large", (closed[1].attempt,), "budget"), 101.0)
    progress = made.progress_of("default/small")
    assert (progress.victims, progress.preempted_workers) == ((), 0)


def test_quota_preemption_names_the_quota() -> None:
    made = planner("srsf", [node("n1", gpus=2)])
    made.handle(QuotaChanged(Quota("default", "gpus", (QuotaLimit("requests.nvidia.com/gpu", "gpus", 1),))), 0.0)
    made.handle(JobSubmitted(job("large", seconds=5000.0)), 0.0)
    out = made.handle(JobSubmitted(job("small", 1.0, seconds=10.0)), 1.0)
    assert [one.window.why for one in of_type(CloseWindow, out)] == [
        "which has less work left, for the quota default/gpus"
    ]
    assert made.progress_of("default/small").preempted_workers == 1


def test_reason_and_victims_survive_a_restart() -> None:
    first, closed = preempted()
    second = planner("srsf", [node("n1", gpus=2)])
    found = []
    for state in first.cluster.jobs.values():
        status = plan_status(first.plan_of(state.job.key, 100.5), state.job.uid, 1, 1)
        written = progress_status(first.progress_of(state.job.key), state.job, 0.0, estimated=False)
        plan, progress = read_plan(Plan.model_validate(status)), read_progress(Progress.model_validate(written))
        found.append(JobSubmitted(state.job, plan, progress))
    second.restore(found, 100.5)
    second.handle(WorkerEnded("default/large", closed[0].attempt, "Preempted", 101.0, None, 143), 101.0)
    assert records(second)[-1].why == "which has less work left"
    assert second.progress_of("default/small").victims == first.progress_of("default/small").victims
    assert second.progress_of("default/small").preempted_workers == 2


def test_job_whose_pod_kube_scheduler_preferred_records_it() -> None:
    made = planner("srsf", [node("n1", gpus=2)])
    for name in ("large", "other"):
        made.handle(JobSubmitted(job(name)), 0.0)
    made.handle(WorkerEnded("default/large", 1, "Preempted", 1.0, None, 143, preempted_by="default/other"), 1.0)
    assert [(one.job, one.workers) for one in made.progress_of("default/other").victims] == [("default/large", 1)]
