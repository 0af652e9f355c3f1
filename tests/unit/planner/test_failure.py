"""Jobs that may be stopped, and the course of the jobs that were to get the room of one that cannot be."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from support.policy_groups import BY_RANK
from support.take_over import successor, taken_over
from tranche.model import Job, Node, Preemption, Resources, WindowState
from tranche.planner import (
    CloseWindow,
    EvictionRefused,
    JobChanged,
    JobFailed,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Outcome,
    ParameterServerEnded,
    Planner,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)
from tranche.policies import get_policy

PREEMPTIVE = [name for name in BY_RANK if get_policy(name).traits.preemptive]
QUEUED = [name for name in PREEMPTIVE if name not in ("chunk-faithful", "least-loaded", "random", "round-robin")]
BY_SERVICE = ("gittins", "las")
"""They go by the service that jobs have attained, which is little for all of these."""
BY_LEASE = ("themis",)
"""They stop no worker before its lease is over."""
BY_ARRIVAL = ("random", "round-robin")
"""Policies that do not stop jobs that came earlier."""


def running(made: Planner, one: Job, now: float = 0.0) -> dict[int, tuple[int, ...]]:
    """Submit a job and start all its windows; their chunks by attempt."""
    made.handle(JobSubmitted(one), now)
    state = made.cluster.jobs[one.key]
    for attempt, run in state.runs.items():
        made.handle(WorkerBound(one.key, attempt, run.window.node or ""), now)
        made.handle(WorkerStarted(one.key, attempt, now), now)
    return {attempt: run.window.chunks for attempt, run in state.runs.items()}


def urgent(name: str, submitted: float, **changes: object) -> Job:
    return job(name, submitted, **{"seconds": 1.0, "priority": -8, **changes})  # type: ignore[arg-type]


def nodes_of(made: Planner, key: str, state: WindowState = WindowState.OPEN) -> list[str | None]:
    return [run.window.node for run in made.cluster.jobs[key].runs.values() if run.window.state is state]


@pytest.mark.parametrize("policy", PREEMPTIVE)
@pytest.mark.parametrize("preemption", list(Preemption))
def test_only_immediately_preemptible_job_is_preempted(policy: str, preemption: Preemption) -> None:
    made = planner(policy, [node("n1"), node("n2", "edge-b")])
    victim = job("victim", chunks=2, seconds=1e4, preemption=preemption, restart_seconds=1.0)
    assert running(made, victim)
    stopped = []
    for number in range(6):
        now = 10.0 + number
        rival = urgent(f"rival-{number}", now, weight=1e6)
        stopped += of_type(CloseWindow, made.handle(JobSubmitted(rival), now))
    for now in (100.0, 5000.0):
        stopped += of_type(CloseWindow, made.handle(Tick(), now))
    is_stopped = victim.key in {close.job for close in stopped}
    assert is_stopped == (preemption is Preemption.IMMEDIATE and policy not in BY_ARRIVAL)


def test_chunk_end_preemption_gives_windows_of_one_chunk() -> None:
    made = planner("srsf", [node("n1")])
    long = job("long", chunks=4, seconds=10.0, max_workers=1, restart_seconds=30.0)
    assert list(running(planner("srsf", [node("n1")]), long).values()) == [(0, 1, 2, 3)]
    polite = replace(long, preemption=Preemption.AT_CHUNK_END)
    assert list(running(made, polite).values()) == [(0,)]
    made.handle(JobSubmitted(urgent("short", 5.0)), 5.0)
    out = made.handle(WorkerEnded(polite.key, 1, "Succeeded", 40.0), 40.0)
    assert [opened.job for opened in of_type(OpenWindow, out)] == ["default/short"]


@pytest.mark.parametrize("policy", [policy for policy in QUEUED if policy not in (*BY_SERVICE, *BY_LEASE)])
def test_refused_victim_runs_on_and_rival_is_planned_elsewhere(policy: str) -> None:
    made = planner(policy, [node("n1"), node("n2", "edge-b", taints=())], eviction_hold_seconds=300.0)
    first, second = job("first", seconds=1e4), job("second", 1.0, seconds=2e4)
    running(made, first)
    running(made, second, 1.0)
    made.handle(JobSubmitted(urgent("small", 10.0)), 10.0)
    closing = [key for key in (first.key, second.key) if nodes_of(made, key, WindowState.CLOSING)]
    (victim,) = closing
    (attempt,) = made.cluster.jobs[victim].runs
    where = nodes_of(made, victim, WindowState.CLOSING)
    out = made.handle(EvictionRefused(victim, (attempt,), "budget"), 11.0)
    assert nodes_of(made, victim) == where
    assert made.cluster.jobs[victim].eviction_blocked
    closed = [close.job for close in of_type(CloseWindow, out)]
    assert closed[0] == "default/small", "its pod cannot be bound there"
    assert victim not in closed
    ended = made.handle(WorkerEnded("default/small", 1, "Preempted", 12.0), 12.0)
    other = ({first.key, second.key} - {victim}).pop()
    found = [opened.window.node for opened in of_type(OpenWindow, ended) if opened.job == "default/small"]
    assert found == nodes_of(made, other, WindowState.CLOSING), "the other one makes way instead"
    assert found


def test_spared_victim_is_preempted_when_spare_time_ends() -> None:
    made = planner("srsf", [node("n1")], eviction_hold_seconds=300.0)
    victim = job("victim", seconds=1e4)
    running(made, victim)
    made.handle(JobSubmitted(urgent("small", 10.0)), 10.0)
    made.handle(EvictionRefused(victim.key, (1,), "budget"), 11.0)
    made.handle(WorkerEnded("default/small", 1, "Preempted", 12.0), 12.0)
    assert not made.cluster.jobs["default/small"].runs
    made.forecast(12.0)
    assert "disruption budget" in made.plan_of("default/small", 12.0).explanation
    assert made.next_wakeup() == 311.0
    out = made.handle(Tick(), 311.0)
    assert [close.job for close in of_type(CloseWindow, out)] == [victim.key]


def test_gang_with_a_stopped_member_is_not_reopened() -> None:
    made = planner("srsf", [node("n1", gpus=2)])
    gang = job("gang", chunks=2, seconds=1e4, is_gang=True)
    running(made, gang)
    made.handle(JobSubmitted(urgent("small", 10.0)), 10.0)
    assert not of_type(OpenWindow, made.handle(EvictionRefused(gang.key, (2,), "budget"), 11.0))
    assert all(run.closing for run in made.cluster.jobs[gang.key].runs.values())
    made.handle(EvictionRefused(gang.key, (1, 2), "budget"), 12.0)
    assert not any(run.closing for run in made.cluster.jobs[gang.key].runs.values())


@pytest.mark.parametrize("change", [{"suspended": True}, {"worker": worker(cpu=2000)}])
def test_pods_that_have_to_go_for_another_reason_are_not_kept(change: dict[str, object]) -> None:
    made = planner("srsf", [node("n1")])
    one = job("one", seconds=1e4)
    running(made, one)
    made.handle(JobChanged(replace(one, generation=2, **change)), 10.0)  # type: ignore[arg-type]
    made.handle(EvictionRefused(one.key, (1,), "budget"), 11.0)
    assert made.cluster.jobs[one.key].runs[1].closing


@pytest.mark.parametrize(
    "taken", [Resources(gpus=1), Resources(cpu=63_500), Resources(memory=256 * 2**30), Resources(pods=110)]
)
def test_unbound_window_leaves_filled_node_and_bound_one_stays(
    taken: Resources,
) -> None:
    homes: list[Node] = [node("n1"), node("n2")]
    made = planner("srsf", homes)
    early, late = job("early", seconds=1e4), job("late", 1.0, seconds=1e4)
    made.handle(JobSubmitted(early), 0.0)
    (where,) = nodes_of(made, early.key)
    full = [replace(one, foreign=taken) for one in homes if one.name == where]
    out = made.handle(NodeChanged(full[0]), 1.0)
    assert [close.job for close in of_type(CloseWindow, out)] == [early.key]
    out = made.handle(WorkerEnded(early.key, 1, "Preempted", 1.1), 1.1)
    (opened,) = of_type(OpenWindow, out)
    assert opened.window.node != where
    made.handle(NodeChanged(replace(full[0], foreign=Resources())), 2.0)
    running(made, late, 2.0)
    out = made.handle(NodeChanged(full[0]), 3.0)
    assert not of_type(CloseWindow, out), "what is bound there runs there"


@pytest.mark.parametrize("outcome", ["Preempted", "Lost"])
@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful"])
def test_pods_that_somebody_deletes_at_once_are_few(policy: str, outcome: str) -> None:
    """Such as a controller that enforces a policy. The job fails never, and trains when the pods stay."""
    p = planner(policy, [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("j", seconds=1000.0)), 0.0)
    state, now, pods = p.cluster.jobs["default/j"], 0.0, 0
    while now < 3600.0:
        now += 2.0
        for attempt, run in list(state.runs.items()):
            p.handle(WorkerBound("default/j", attempt, run.window.node or ""), now)
            p.handle(WorkerStarted("default/j", attempt, now), now)
            p.handle(WorkerEnded("default/j", attempt, outcome, now), now)  # type: ignore[arg-type]
            pods += 1
        p.handle(Tick(), now)
    assert pods <= 18
    assert state.failures == 0
    assert "ended soon" in p.plan_of("default/j", now).explanation
    for _ in range(200):
        now += 2.0
        p.handle(Tick(), now)
    assert state.runs


@pytest.mark.parametrize("outcome", ["Preempted", "Lost", "Succeeded"])
def test_servers_that_end_at_once_are_few(outcome: str) -> None:
    p = planner("chunk", [node("n1", gpus=2)])
    p.handle(JobSubmitted(job("j", servers=1, server=worker(0), chunks=4, seconds=1000.0)), 0.0)
    state, now, pods = p.cluster.jobs["default/j"], 0.0, 0
    while now < 3600.0:
        now += 2.0
        for one in list(state.servers):
            p.handle(ParameterServerEnded("default/j", 0, one.planned.attempt, outcome), now)  # type: ignore[arg-type]
            pods += 1
        for attempt, run in list(state.runs.items()):
            if run.closing:
                p.handle(WorkerEnded("default/j", attempt, "Preempted", now), now)
        p.handle(Tick(), now)
    assert pods <= 18
    assert state.failures == 0


@pytest.mark.parametrize("members", [1, 8])
def test_one_drain_is_no_reason_to_pause(members: int) -> None:
    """All pods of the job end with it, and a second one much later."""
    p = planner("chunk", [node(f"n{i}", gpus=8) for i in range(3)])
    p.handle(JobSubmitted(job("j", chunks=members, seconds=1e5)), 0.0)
    state = p.cluster.jobs["default/j"]
    for now in (10.0, 4000.0):
        for attempt in list(state.runs):
            p.handle(WorkerEnded("default/j", attempt, "Preempted", now), now)
        assert len(state.runs) == members
        assert state.held_until <= now


def test_job_that_the_operator_ends_counts_its_pods() -> None:
    p = planner("chunk", [node("n1", gpus=2)])
    p.handle(JobSubmitted(job("late", chunks=2)), 0.0)
    for attempt in (1, 2):
        p.handle(WorkerStarted("default/late", attempt, 0.0), 0.0)
    p.forecast(0.0)
    closed = of_type(CloseWindow, p.handle(JobFailed("default/late", "not done after 30 s"), 30.0))
    assert len(closed) == 2
    p.handle(JobSubmitted(job("next", 1.0, chunks=2)), 31.0)
    for attempt in (1, 2):
        p.handle(WorkerEnded("default/late", attempt, "Preempted", 32.0, None, 143), 32.0)
    plan, progress = p.plan_of("default/late", 33.0), p.progress_of("default/late")
    assert plan.explanation == "failed: not done after 30 s; 0 of 2 chunks done, 0 % trained"
    assert (plan.windows, plan.estimated_start, plan.estimated_completion) == ((), None, None)
    assert (progress.attained_gpu_seconds, len(progress.history)) == (64.0, 2)
    assert all("the job failed" in line for line in progress.history)
    assert len(p.plan_of("default/next", 33.0).windows) == 2, "the GPUs are free for others"


@pytest.mark.parametrize("members", [2, 8])
def test_gang_whose_members_fail_together_has_one_failure(members: int) -> None:
    """The others lose their connections to the first one, and exit before they are stopped."""
    p = planner("chunk", [node(f"n{i}", gpus=1) for i in range(members)])
    p.handle(JobSubmitted(gang("g", members=members)), 0.0)
    state = p.cluster.jobs["default/g"]
    for attempt in list(state.runs):
        p.handle(WorkerStarted("default/g", attempt, 0.0), 0.0)
    for attempt in list(state.runs):
        p.handle(WorkerEnded("default/g", attempt, "Failed", 60.0, exit_code=1), 60.0)
    assert (state.failures, state.failed, state.ended) == (1, False, {"Failed": members})


@pytest.mark.parametrize(("lost", "failures"), [("Lost", 0), ("Preempted", 1)])
def test_gang_that_lost_a_node_has_no_failure(lost: Outcome, failures: int) -> None:
    p = planner("chunk", [node(f"n{i}", gpus=1) for i in range(3)])
    p.handle(JobSubmitted(gang("g", members=3)), 0.0)
    state = p.cluster.jobs["default/g"]
    first, second, last = state.runs
    for attempt in (first, second, last):
        p.handle(WorkerStarted("default/g", attempt, 0.0), 0.0)
    p.handle(WorkerEnded("default/g", first, "Failed", 60.0, exit_code=1), 60.0)
    p.handle(WorkerEnded("default/g", second, "Failed", 60.0, exit_code=1), 60.0)
    assert state.failures == 1
    p.handle(WorkerEnded("default/g", last, lost, 180.0), 180.0)
    assert state.failures == failures


def test_later_loss_of_a_node_excuses_no_earlier_failure() -> None:
    p = planner("chunk", [node(f"n{i}", gpus=1) for i in range(4)])
    p.handle(JobSubmitted(gang("g", members=2)), 0.0)
    state = p.cluster.jobs["default/g"]
    ends: list[tuple[Outcome, Outcome, float]] = [("Failed", "Preempted", 60.0), ("Lost", "Lost", 1000.0)]
    for one, other, at in ends:
        for attempt in state.runs:
            p.handle(WorkerStarted("default/g", attempt, at - 1.0), at - 1.0)
        first, second = state.runs
        p.handle(WorkerEnded("default/g", first, one, at), at)
        p.handle(WorkerEnded("default/g", second, other, at), at)
        p.handle(Tick(), at + 100.0)
    assert state.failures == 1


def with_server(chunks: int = 8, **changes: Any) -> Planner:
    """A planner with a chunked job whose workers train, one on each node, with one parameter server."""
    p = planner("chunk", [*(node(f"n{i}") for i in range(chunks)), node("c0", gpus=0), node("c1", gpus=0)])
    one = job("j", chunks=chunks, seconds=3600.0, servers=1, server=worker(gpus=0), **changes)
    running(p, one)
    [server] = p.cluster.jobs["default/j"].servers
    p.handle(WorkerStarted("default/j", server.planned.attempt, 0.0), 0.0)
    return p


def end_server(p: Planner, at: float, outcome: Outcome, exit_code: int | None = None) -> None:
    [server] = p.cluster.jobs["default/j"].servers
    p.handle(ParameterServerEnded("default/j", 0, server.planned.attempt, outcome, exit_code), at)


def fail_workers(p: Planner, at: float, count: int = 100) -> None:
    """Let workers fail one after the other, within a second."""
    for number, attempt in enumerate(list(p.cluster.jobs["default/j"].runs)[:count]):
        p.handle(WorkerEnded("default/j", attempt, "Failed", at + 0.1 * number, exit_code=1), at + 0.1 * number)


@pytest.mark.parametrize(("outcome", "failures"), [("Preempted", 0), ("Lost", 0), ("Failed", 1), ("Succeeded", 0)])
def test_workers_that_fail_after_their_server_do_not_count(outcome: Outcome, failures: int) -> None:
    p = with_server()
    end_server(p, 600.0, outcome, 1 if outcome == "Failed" else None)
    fail_workers(p, 600.5)
    state = p.cluster.jobs["default/j"]
    assert (state.failures, state.failed) == (failures, False)
    assert set(state.node_failures) <= {"c0"}
    assert len(state.runs) == 8, "the chunks train again at once"


@pytest.mark.parametrize(("outcome", "failures"), [("Preempted", 0), ("Lost", 0), ("Failed", 1)])
def test_workers_that_fail_before_their_server_do_not_count(outcome: Outcome, failures: int) -> None:
    """A drained server still saves when its connections end, and a node counts as lost long after it has died."""
    p = with_server()
    fail_workers(p, 600.0)
    state = p.cluster.jobs["default/j"]
    assert (state.failures, state.failed) == (1, False)
    end_server(p, 710.0, outcome, 1 if outcome == "Failed" else None)
    assert state.failures == failures


def test_workers_that_fail_in_each_attempt_fail_their_job() -> None:
    p, now = with_server(backoff_limit=2), 600.0
    for failures in (1, 2, 3):
        fail_workers(p, now)
        state = p.cluster.jobs["default/j"]
        assert (state.failures, state.failed) == (failures, failures > 2)
        now = state.held_until
        p.handle(Tick(), now)
        for attempt in state.runs:
            p.handle(WorkerStarted("default/j", attempt, now), now)
        now += 5.0


@pytest.mark.parametrize(("outcome", "limit"), [("Preempted", 4), ("Failed", 2)])
def test_failures_before_ends_of_servers_fail_a_job_at_last(outcome: Outcome, limit: int) -> None:
    p, now, rounds = with_server(backoff_limit=2), 600.0, 0
    state = p.cluster.jobs["default/j"]
    while not state.failed:
        fail_workers(p, now, 1)
        if not state.failed:
            end_server(p, now + 1.0, outcome)
        for attempt in [attempt for attempt, run in state.runs.items() if run.closing]:
            p.handle(WorkerEnded("default/j", attempt, "Preempted", now + 2.0), now + 2.0)
        now, rounds = max(now + 100.0, state.held_until), rounds + 1
        p.handle(Tick(), now)
        for attempt in [*state.runs, *(server.planned.attempt for server in state.servers)]:
            p.handle(WorkerStarted("default/j", attempt, now), now)
        now += 70.0
    assert rounds == limit + 1


def test_failures_of_workers_at_different_times_count() -> None:
    p = with_server()
    state = p.cluster.jobs["default/j"]
    for number in range(3):
        fail_workers(p, 600.0 + 100.0 * number, 1)
    end_server(p, 2000.0, "Lost")
    assert state.failures == 3


def test_workers_without_servers_fail_each_for_itself() -> None:
    p = planner("chunk", [node("n1", gpus=4)])
    running(p, job("j", chunks=4, seconds=3600.0))
    fail_workers(p, 600.0)
    assert p.cluster.jobs["default/j"].failures == 4


def test_workers_that_fail_with_their_server_do_not_count() -> None:
    p = planner("chunk", [node("n1", gpus=4)])
    p.handle(JobSubmitted(job("j", chunks=4, servers=1, server=worker(gpus=0))), 0.0)
    state = p.cluster.jobs["default/j"]
    state.failures = 1
    (server,) = state.servers
    attempts = list(state.runs)
    for attempt in attempts:
        p.handle(WorkerStarted("default/j", attempt, 0.0), 0.0)
    p.handle(ParameterServerEnded("default/j", 0, server.planned.attempt, "Failed", exit_code=1), 60.0)
    for attempt in attempts:
        p.handle(WorkerEnded("default/j", attempt, "Failed", 60.0, exit_code=1), 60.0)
    assert state.failures == 2


def test_long_run_that_ends_after_take_over_did_not_end_soon() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("j", seconds=1e5)), 0.0)
    p.handle(WorkerStarted("default/j", 1, 5.0), 5.0)
    after = successor(p, 3600.0)
    state = after.cluster.jobs["default/j"]
    for now in (3601.0, 3602.0, 3603.0):
        (attempt,) = state.runs
        after.handle(WorkerEnded("default/j", attempt, "Lost", now), now)
    assert state.runs
    assert state.held_until <= 3603.0


def test_pause_after_failure_goes_on_after_take_over() -> None:
    """The job ranks first, and would stop the other one at each take-over although its next worker fails, too."""
    begin = at = 1e6
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("bad", begin, seconds=50.0)), begin)
    for attempt in (1, 2, 3):
        p.handle(Tick(), begin + 100.0 * attempt)
        p.handle(WorkerStarted("default/bad", attempt, begin + 100.0 * attempt), begin + 100.0 * attempt)
        at = begin + 100.0 * attempt + 5.0
        p.handle(WorkerEnded("default/bad", attempt, "Failed", at, exit_code=1), at)
    (opened,) = of_type(OpenWindow, p.handle(JobSubmitted(job("long", at, seconds=1e5)), at))
    p.handle(WorkerStarted("default/long", opened.window.attempt, at), at)
    after, instructions = taken_over(p, at + 10.0)
    assert of_type(CloseWindow, instructions) == []
    before, state = p.cluster.jobs["default/bad"], after.cluster.jobs["default/bad"]
    assert (state.held_until, state.hold_reason) == (before.held_until, before.hold_reason) != (0.0, "")
    (closed,) = of_type(CloseWindow, after.handle(Tick(), before.held_until))
    assert closed.job == "default/long"


def test_gang_that_lost_a_node_in_an_outage_has_no_failure() -> None:
    p = planner("chunk", [node(f"n{i}", gpus=1) for i in range(2)])
    p.handle(JobSubmitted(gang("g")), 0.0)
    for attempt in list(p.cluster.jobs["default/g"].runs):
        p.handle(WorkerStarted("default/g", attempt, 10.0), 10.0)
    after = successor(p, 60.0)
    state = after.cluster.jobs["default/g"]
    first, second = state.runs
    failed = WorkerEnded("default/g", first, "Failed", 60.0, exit_code=1)
    after.handle_all([failed, WorkerEnded("default/g", second, "Lost", 60.0)], 60.0)
    assert state.failures == 0


def starts_until_the_end(made: Planner, one: Job, saved: Callable[[int], float], **end: Any) -> int:
    """Let all pods of a job exit with 0 after 5 s, having saved as much of each chunk; the number of times they start.

    Args:
        made: Planner of the cluster.
        one: The job.
        saved: Mini-batches of each chunk that are saved after this number of starts.
        end: Further fields of the ends of the pods.
    """
    made.handle(JobSubmitted(one), 0.0)
    state, starts, now = made.cluster.jobs[one.key], 0, 0.0
    while not (state.finished or state.failed) and starts < 20:
        now = max(now, made.next_wakeup() or now) if not state.runs else now
        made.handle(Tick(), now)
        starts += bool(state.runs)
        for attempt in state.runs:
            made.handle(WorkerStarted(one.key, attempt, now), now)
        now += 5.0
        for attempt, run in list(state.runs.items()):
            progress = dict.fromkeys(run.window.chunks, saved(starts))
            made.handle(WorkerEnded(one.key, attempt, "Succeeded", now, progress, 0, **end), now)
    return starts


@pytest.mark.parametrize("make", [job, gang])
@pytest.mark.parametrize("saved", [0.0, 60.0])
def test_pods_that_exit_with_0_and_save_nothing_new_have_failed(make: Callable[..., Job], saved: float) -> None:
    made = planner("chunk", [node("n1", gpus=4)])
    one = make("one")
    assert starts_until_the_end(made, one, lambda start: saved) == (8 if saved else 7)
    state = made.cluster.jobs[one.key]
    assert (state.failed, state.failures) == (True, one.backoff_limit + 1)
    assert {record.why for record in state.records[-1:]} == {"exit code 0 before all was done, with nothing new saved"}


@pytest.mark.parametrize("make", [job, gang])
def test_pods_that_exit_with_0_and_save_more_have_not_failed(make: Callable[..., Job]) -> None:
    made = planner("chunk", [node("n1", gpus=4)])
    assert starts_until_the_end(made, make("one"), lambda start: 10.0 * start) == 10
    state = made.cluster.jobs["default/one"]
    assert (state.finished, state.failures) == (True, 0)


def test_pods_that_others_stop_and_exit_with_0_have_not_failed() -> None:
    made = planner("chunk", [node("n1")])
    assert starts_until_the_end(made, job("one"), lambda start: 10.0, stopped_by="node n1 is drained") == 20
    assert made.cluster.jobs["default/one"].failures == 0
