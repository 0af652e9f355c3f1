"""Phases of windows and jobs: which follows which, and what is checked."""

import pytest

from support.builders import job, node
from tranche.model import Window, WindowState
from tranche.planner import JobChanged, JobSubmitted, Planner, PlannerSettings, Tick, WorkerEnded, WorkerStarted
from tranche.planner.invariants import InvariantError, check_phases
from tranche.planner.job_actions import close_window
from tranche.policies import get_policy
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.phases import (
    ACTIVE_PHASES,
    JOB_TRANSITIONS,
    PROGRESS,
    WINDOW_TRANSITIONS,
    JobPhase,
    PhaseError,
    WindowPhase,
)
from tranche.state.window import SlotBinding, TrackedWindow

KEY = "default/a"


def opened(state: WindowState = WindowState.OPEN) -> tuple[ClusterState, JobState, TrackedWindow]:
    """A cluster that checks transitions, with one window."""
    cluster = ClusterState(validate=True)
    cluster.add_node(NodeState(node("n1", gpus=2)))
    owner = cluster.jobs[KEY] = JobState(job("a"))
    run = TrackedWindow(Window(0, 1, "edge-0", "n1", (0,), state=state), SlotBinding("edge-0", "n1"), 0.0, 1.0, 1.0)
    cluster.enter_window(owner, run, 0.0)
    return cluster, owner, run


def reserved(cluster: ClusterState) -> int:
    return cluster.nodes["n1"].reserved.gpus


def test_window_begins_pending_or_closing_as_its_plan_says() -> None:
    assert opened()[2].phase is WindowPhase.PENDING
    cluster, _, run = opened(WindowState.CLOSING)
    assert run.phase is WindowPhase.CLOSING
    assert reserved(cluster) == 0


def test_a_window_never_goes_back_to_an_earlier_phase() -> None:
    cluster, state, run = opened()
    cluster.note_window(state, run, WindowPhase.TRAINING)
    cluster.note_window(state, run, WindowPhase.BOUND)
    assert run.phase is WindowPhase.TRAINING


def test_closing_window_reserves_nothing_until_it_ends() -> None:
    cluster, state, run = opened()
    assert reserved(cluster) == 1
    assert cluster.close_window(state, run, 1.0) is cluster.nodes["n1"]
    assert reserved(cluster) == 0
    cluster.note_window(state, run, WindowPhase.TRAINING)
    assert (run.phase, run.window.state) == (WindowPhase.CLOSING, WindowState.CLOSING)
    cluster.end_window(state, run, 2.0)
    assert run.phase is WindowPhase.ENDED
    assert (state.runs, cluster.nodes["n1"].runs, cluster.quotas.holders()) == ({}, {}, set())


def test_window_reopens_in_the_phase_its_pod_has_reached() -> None:
    cluster, state, run = opened()
    cluster.close_window(state, run, 1.0)
    cluster.note_window(state, run, WindowPhase.BOUND)
    cluster.reopen_window(state, run, 2.0)
    assert (run.phase, run.window.state, run.closed) == (WindowPhase.BOUND, WindowState.OPEN, None)
    assert reserved(cluster) == 1


def test_window_that_moves_to_another_node_keeps_its_phase() -> None:
    cluster, state, run = opened()
    cluster.note_window(state, run, WindowPhase.BOUND)
    cluster.end_window(state, run, 1.0, moves=True)
    cluster.enter_window(state, run, 1.0)
    assert run.phase is WindowPhase.BOUND
    assert reserved(cluster) == 1


def test_a_window_that_has_ended_cannot_close() -> None:
    cluster, state, run = opened()
    cluster.end_window(state, run, 1.0)
    with pytest.raises(PhaseError, match="default/a: window 1 goes from Ended to Closing"):
        cluster.close_window(state, run, 2.0)


def test_transitions_are_not_checked_without_validate() -> None:
    cluster, state, run = opened()
    cluster.validate = False
    cluster.end_window(state, run, 1.0)
    cluster.close_window(state, run, 2.0)
    assert run.closing


def test_tables_have_all_phases_and_end_in_the_last_one() -> None:
    assert set(WINDOW_TRANSITIONS) == set(WindowPhase)
    assert set(JOB_TRANSITIONS) == set(JobPhase)
    assert not WINDOW_TRANSITIONS[WindowPhase.ENDED]
    assert not JOB_TRANSITIONS[JobPhase.FINISHED]
    assert set(PROGRESS) == set(WindowPhase) - {WindowPhase.CLOSING, WindowPhase.ENDED}
    forward = [(one, other) for one in PROGRESS for other in PROGRESS if other in WINDOW_TRANSITIONS[one]]
    assert all(PROGRESS[one] < PROGRESS[other] for one, other in forward)


def test_a_job_goes_through_its_phases() -> None:
    p = Planner(get_policy("fifo"), PlannerSettings(validate=True))
    p.handle(JobSubmitted(job("a")), 0.0)
    state = p.cluster.jobs[KEY]
    seen = [state.phase(0.0)]
    p.context.cluster.add_node(NodeState(node("n1")))
    p.context.cluster.nodes_changed()
    p.context.capacity_changed()
    p.handle(Tick(), 1.0)
    seen.append(state.phase(1.0))
    p.handle(WorkerStarted(KEY, 1, 1.0), 1.0)
    p.handle(JobChanged(job("a", suspended=True)), 2.0)
    seen.append(state.phase(2.0))
    p.handle(JobChanged(job("a")), 3.0)
    seen.append(state.phase(3.0))
    p.handle(WorkerEnded(KEY, 1, "Failed", 4.0, exit_code=1), 4.0)
    seen.append(state.phase(4.0))
    p.handle(Tick(), 60.0)
    p.handle(WorkerEnded(KEY, 2, "Succeeded", 61.0), 61.0)
    seen.append(state.phase(61.0))
    assert seen == [
        JobPhase.WAITING,
        JobPhase.RUNNING,
        JobPhase.SUSPENDED,
        JobPhase.STOPPING,
        JobPhase.HELD,
        JobPhase.FINISHED,
    ]
    assert [phase in ACTIVE_PHASES for phase in seen] == [True, True, False, True, True, False]


def test_a_finished_job_that_waits_again_is_a_defect() -> None:
    state = JobState(job("a"))
    with pytest.raises(InvariantError, match="default/a: goes from Finished to Waiting"):
        check_phases({KEY: state}, {KEY: JobPhase.FINISHED}, 0.0)


def test_an_open_window_of_a_suspended_job_is_a_defect() -> None:
    p = Planner(get_policy("fifo"), PlannerSettings())
    p.context.cluster.add_node(NodeState(node("n1")))
    p.handle(JobSubmitted(job("a")), 0.0)
    state = p.cluster.jobs[KEY]
    state.job = job("a", suspended=True)
    with pytest.raises(InvariantError, match="default/a: is Suspended and has open windows"):
        check_phases(p.cluster.jobs, {}, 0.0)
    close_window(p.context, state, state.runs[1], "test")
    check_phases(p.cluster.jobs, {}, 0.0)
