"""The planner records every ended pod with its role, times and the cause of its end, up to a limit."""

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.model import AttemptRecord, ChunkRequest, Job, PodOutcome, Report
from tranche.model.attempt_record import KEPT_ATTEMPTS, unpack
from tranche.planner import (
    ChiefEnded,
    ChunksRequested,
    CloseParameterServer,
    CloseWindow,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    ParameterServerEnded,
    Planner,
    PodStartFailed,
    ProgressReported,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
)

KEY = "default/a"
DRAINED = "node n1 is drained"


def started(one: Job, policy: str = "srsf") -> Planner:
    """A planner whose workers of the job have trained since 10 s."""
    made = planner(policy, [node("n1", gpus=2)])
    made.handle(JobSubmitted(one), 0.0)
    for attempt in made.cluster.jobs[one.key].runs:
        made.handle(WorkerStarted(one.key, attempt, 10.0), 10.0)
    return made


def history(made: Planner, key: str = KEY) -> list[AttemptRecord]:
    found = [unpack(text) for text in made.progress_of(key).history]
    assert None not in found
    return [one for one in found if one is not None]


@pytest.mark.parametrize("policy", ["srsf", "chunk", "chunk-faithful"])
def test_suspended_attempt_says_so_and_names_no_job(policy: str) -> None:
    made = started(job("a"), policy)
    made.handle(JobChanged(job("a", suspended=True)), 20.0)
    made.handle(WorkerEnded(KEY, 1, "Preempted", 21.0, {0: 11.0}, 143, stopped_by="its pod was deleted"), 21.0)
    (one,) = history(made)
    assert (one.reason, one.why, one.preempted_by) == ("Preempted", "suspended by spec.suspend", "")
    assert (one.started, one.ended, one.exit_code) == (10.0, 21.0, 143)


def test_drained_attempt_says_so() -> None:
    made = started(job("a"))
    made.handle(NodeChanged(node("n1", gpus=2, unschedulable=True)), 20.0)
    made.handle(WorkerEnded(KEY, 1, "Preempted", 21.0, {0: 11.0}, 143, stopped_by=DRAINED), 21.0)
    (one,) = history(made)
    assert (one.why, one.preempted_by) == (DRAINED, "")


def test_rest_of_a_gang_says_which_member_ended_first() -> None:
    made = started(gang("a"))
    out = made.handle(WorkerEnded(KEY, 1, "Preempted", 21.0, None, 143, stopped_by=DRAINED), 21.0)
    (closed,) = of_type(CloseWindow, out)
    assert closed.window.why == f"worker 0 ended (Preempted: {DRAINED})"


def test_resized_attempt_says_so() -> None:
    made = started(job("a"))
    (closed,) = of_type(CloseWindow, made.handle(JobChanged(job("a", worker=worker(cpu=2000))), 20.0))
    assert closed.window.why == "the worker template has other requests now"


def test_attempt_that_did_not_start_says_why() -> None:
    made = planner("srsf", [node("n1")])
    made.handle(JobSubmitted(job("a")), 0.0)
    made.handle(PodStartFailed(KEY, 1, "ErrImagePull", "no such image"), 20.0)
    made.handle(WorkerEnded(KEY, 1, "Preempted", 21.0), 21.0)
    (one,) = history(made)
    assert (one.reason, one.why) == ("ErrImagePull", "its containers did not start: ErrImagePull: no such image")
    assert (one.started, one.ended) == (None, 21.0)
    assert made.progress_of(KEY).ended == {"NotStarted": 1}


def test_attempt_of_a_refused_job_says_why() -> None:
    made = planner("srsf", [node("n1")])
    made.handle(JobSubmitted(job("a")), 0.0)
    (closed,) = of_type(CloseWindow, made.handle(WorkerRejected(KEY, "Forbidden", "exceeded quota"), 1.0))
    assert closed.window.why == "the API server refused its pods (Forbidden): exceeded quota"


def test_failed_attempt_keeps_its_last_log_lines() -> None:
    made = started(job("a"))
    log = "".join(f"line {n}\n" for n in range(9)) + "ValueError: x\n"
    made.handle(WorkerEnded(KEY, 1, "Failed", 21.0, None, 1, reason="OOMKilled", log=log), 21.0)
    (one,) = history(made)
    assert (one.exit_code, one.why) == (1, "OOMKilled")
    assert one.log.splitlines() == ["line 5", "line 6", "line 7", "line 8", "ValueError: x"]


def test_ended_parameter_server_is_in_the_history() -> None:
    made = started(job("a", servers=1, server=worker(gpus=0)))
    (attempt,) = [server.planned.attempt for server in made.cluster.jobs[KEY].servers]
    made.handle(ParameterServerEnded(KEY, 0, attempt, "Failed", 1, started=3.0, reason="OOMKilled"), 21.0)
    (one,) = history(made)
    assert (one.role, one.attempt, one.reason, one.why) == ("ps", attempt, "Failed", "OOMKilled")
    assert (one.started, one.ended) == (3.0, 21.0)
    assert made.progress_of(KEY).records == (), "earlier versions of the scheduler read no other roles there"


def test_parameter_server_of_a_finished_job_is_in_the_history() -> None:
    made = started(job("a", servers=1, server=worker(gpus=0)))
    (attempt,) = made.cluster.jobs[KEY].runs
    made.handle(WorkerEnded(KEY, attempt, "Succeeded", 110.0, {0: 100.0}, 0), 110.0)
    assert [(one.role, one.reason, one.why) for one in history(made)] == [
        ("worker", "Succeeded", ""),
        ("ps", "Stopped", "the job is done"),
    ]


def test_idle_parameter_server_says_that_no_worker_needed_it() -> None:
    made = planner("srsf", [node("n1")], server_idle_seconds=5.0)
    made.handle(JobSubmitted(job("a", chunks=2, max_workers=1, servers=1, server=worker(gpus=0), durable=True)), 0.0)
    state = made.cluster.jobs[KEY]
    (attempt,) = state.runs
    made.handle(WorkerStarted(KEY, attempt, 1.0), 1.0)
    made.handle(NodeChanged(node("n1", unschedulable=True)), 2.0)
    made.handle(WorkerEnded(KEY, attempt, "Preempted", 3.0, {}, 143, stopped_by=DRAINED), 3.0)
    out = made.handle(NodeChanged(node("n2", gpus=0)), 9.0)
    assert [one.server.why for one in of_type(CloseParameterServer, out)] == ["no worker needed it"]


def test_chief_is_in_records_and_history() -> None:
    made = started(gang("a", members=1, chief=worker(gpus=0)))
    chief = made.cluster.jobs[KEY].chief
    assert chief is not None
    made.handle(ChiefEnded(KEY, chief.planned.attempt, "Failed", 1, started=2.0), 21.0)
    assert [one.role for one in history(made)] == ["chief"]
    assert [one.role for one in made.progress_of(KEY).records] == ["chief"]


def test_history_keeps_its_limit_and_exact_totals() -> None:
    made = planner("srsf", [node("n1")], failure_backoff_seconds=0.0)
    made.handle(JobSubmitted(job("a", chunks=3 * KEPT_ATTEMPTS, max_workers=1, seconds=1.0)), 0.0)
    ends = 2 * KEPT_ATTEMPTS + 7
    for number in range(ends):
        (attempt,) = made.cluster.jobs[KEY].runs
        now = float(2 * number)
        made.handle(WorkerStarted(KEY, attempt, now), now)
        outcome: PodOutcome = "Preempted" if number % 3 == 0 else "Succeeded"
        made.handle(WorkerEnded(KEY, attempt, outcome, now + 1.0, None), now + 1.0)
        if number % 10 == 0:
            made.progress_of(KEY)
    progress = made.progress_of(KEY)
    assert [one.attempt for one in history(made)] == list(range(ends - KEPT_ATTEMPTS + 1, ends + 1))
    assert progress.ended == {"Preempted": -(-ends // 3), "Succeeded": ends - -(-ends // 3)}
    assert len(progress.records) == 5


def test_history_of_an_earlier_version_begins_with_its_records() -> None:
    made = started(job("a", chunks=2))
    made.handle(WorkerEnded(KEY, 1, "Preempted", 21.0, {0: 0.0}, 143), 21.0)
    old = made.progress_of(KEY)
    known = AttemptRecord(0, 1, "n1", "Preempted", 143, preempted_by="default/b")
    again = planner("srsf", [node("n1", gpus=2)])
    before = type(old)(done=old.done, partial=old.partial, preemptions=1, records=(known,))
    again.restore([JobSubmitted(job("a", chunks=2), None, before)], 30.0)
    assert history(again) == [known]
    assert again.progress_of(KEY).ended == {"Preempted": 1}


def after_outage(*, renewed: bool = False, ran: float | None = 1200.0, seen: float = 9000.0) -> Planner:
    """Return a planner that takes over at `seen`, when the worker of another one has ended after `ran` seconds."""
    first, many = planner("chunk", [node("n1")]), job("many", chunks=4, seconds=600.0, max_workers=1)
    first.handle(JobSubmitted(many), 0.0)
    key, attempt, now = many.key, 1, 10.0
    first.handle(WorkerStarted(key, attempt, 10.0), now)
    if renewed:
        now = 610.0
        first.handle(ChunksRequested(ChunkRequest(key, attempt, attempt, {0: 100.0}), now), now)
    (run,) = first.cluster.jobs[key].runs.values()
    p = planner("chunk", [node("n1")], learns_from_silent_windows=True)
    submission = JobSubmitted(many, first.plan_of(key, now), first.progress_of(key))
    done = dict.fromkeys(run.window.chunks, 100.0)
    end = WorkerEnded(key, attempt, "Preempted", seen, done, ran=ran)
    p.restore([submission], seen, [WorkerStarted(key, attempt, 10.0), end])
    return p


@pytest.mark.parametrize(
    ("renewed", "ran", "seen", "ended"),
    [
        (False, 600.0, 9000.0, 610.0),
        (True, 1200.0, 9000.0, 1210.0),
        (False, 600.0, 614.0, 614.0),
        (False, None, 9000.0, 9000.0),
        (False, 0.0, 9000.0, 10.0),
        (True, 1e9, 9000.0, 9000.0),
    ],
)
def test_worker_that_ended_in_an_outage_counts_its_run_time(
    renewed: bool, ran: float | None, seen: float, ended: float
) -> None:
    p = after_outage(renewed=renewed, ran=ran, seen=seen)
    progress = p.progress_of("default/many")
    assert progress.records[-1].ended == ended
    assert progress.attained_gpu_seconds == sum(one.trained_gpu_seconds for one in progress.sites) == ended - 10.0


def test_end_after_a_clock_was_set_back_counts_to_last_report() -> None:
    """The kubelet says that the container ran for a minute, since NTP has set the clock of its node back by an hour."""
    p, one = planner("chunk", [node("n1")]), job("a", seconds=3600.0)
    p.handle(JobSubmitted(one), 0.0)
    p.handle(WorkerStarted(KEY, 1, 10.0), 10.0)
    p.handle(ProgressReported(Report(KEY, 1, {0: 99.0}, {0: 99.0}), 3655.0), 3655.0)
    p.handle(WorkerEnded(KEY, 1, "Succeeded", 3660.0, ran=60.0), 3660.0)
    assert p.progress_of(KEY).records[-1].ended == 3660.0
    assert sum(used.trained_gpu_seconds for used in p.progress_of(KEY).sites) == 3650.0


def test_outage_after_the_end_of_a_worker_teaches_no_speed() -> None:
    assert after_outage(ran=600.0).cluster.speed_model.job_factor("default/many") == pytest.approx(1.0)
    assert after_outage(ran=None).cluster.speed_model.job_factor("default/many") > 2.0
