"""Dorm-like: utilisation within limits of fairness and change."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job, node, of_type, planner
from tranche.model import Node, PodShape, Resources, Site
from tranche.planner import CloseWindow, JobSubmitted, NodeChanged, Planner, PlannerSettings, SiteChanged, WorkerEnded
from tranche.policies import get_policy
from tranche.policies.allocation.dorm import Dorm, fair_units
from tranche.policies.allocation.draft import Draft, node_runs
from tranche.state.cluster import ClusterState


def workers(made: Planner, names: str) -> list[int]:
    return [len(node_runs(made.cluster.jobs[f"default/{name}"])) for name in names]


class Watched(Dorm):
    """Checks each distribution as it is made."""

    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        draft = super().allocate_workers(cluster, now)
        fair = fair_units(Draft(cluster, now))
        limited = self._attempt(Draft(cluster, now), fair, limited=True)
        running = {state.job.key: len(node_runs(state)) for state in draft.jobs if node_runs(state)}
        most = ceil(0.2 * len(running) - 1e-9)
        assert len(limited.changed()) <= most
        kept = {state.job.key: draft.units(state) for state in draft.jobs}
        assert all(kept[key] >= 1 for key in running)
        changed = sum(kept[key] != count for key, count in running.items())
        unfair = sum(abs(kept[s.job.key] - fair[s.job.key]) * draft.dominant(s) for s in draft.jobs)
        if changed > most:
            assert unfair < limited.unfairness() > limited.most_unfair
        return draft


def test_drf_of_two_jobs_gives_three_and_two_workers() -> None:
    large = Node("n0", "edge-a", Resources(cpu=9, memory=18, gpus=100, pods=100))
    made = planner("dorm", [large])
    for name, cpu, memory in (("a", 1, 4), ("b", 3, 1)):
        shape = PodShape(Resources(cpu=cpu, memory=memory, gpus=1, pods=1))
        made.handle(JobSubmitted(job(name, chunks=10, worker=shape)), 0.0)
    assert fair_units(Draft(made.cluster, 0.0)) == {"default/a": 3, "default/b": 2}


def test_arriving_job_evens_shares_out_to_the_slack() -> None:
    made = planner("dorm", [node("n0", gpus=10)])
    made.handle(JobSubmitted(job("a", chunks=50)), 0.0)
    assert workers(made, "a") == [10]
    answer = made.handle(JobSubmitted(job("b", 5.0, chunks=50)), 5.0)
    assert len(of_type(CloseWindow, answer)) == 4
    assert workers(made, "ab") == [6, 4]  # |.6 − .5| + |.4 − .5| = .2 · 2 · .5


def test_without_slack_shares_are_those_of_drf() -> None:
    made = planner("dorm:slack=0", [node("n0", gpus=10)])
    made.handle(JobSubmitted(job("a", chunks=50)), 0.0)
    made.handle(JobSubmitted(job("b", 5.0, chunks=50)), 5.0)
    assert workers(made, "ab") == [5, 5]


def test_one_of_five_running_jobs_makes_room_for_a_sixth() -> None:
    made = planner("dorm", [node("n0", gpus=10)])
    made.handle_all([JobSubmitted(job(name, chunks=20)) for name in "abcde"], 0.0)
    assert workers(made, "abcde") == [2, 2, 2, 2, 2]
    made.handle(JobSubmitted(job("f", 5.0, chunks=20)), 5.0)
    assert workers(made, "abcdef") == [2, 2, 2, 2, 1, 1]


@settings(max_examples=80)
@given(
    gpus=st.integers(2, 12),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.integers(1, 2)), min_size=4, max_size=14),
)
def test_more_running_jobs_change_only_if_shares_need_it(gpus: int, steps: list[tuple[bool, int, int]]) -> None:
    made = Planner(Watched(), PlannerSettings(validate=True))
    made.handle_all([SiteChanged(Site("edge-a")), NodeChanged(node("n0", gpus=gpus))], 0.0)
    for number, (arrives, chunks, each) in enumerate(steps):
        at = float(number)
        running = [(key, attempt) for key, state in made.cluster.jobs.items() for attempt in state.runs]
        if arrives or not running:
            shape = PodShape(Resources(cpu=1000, memory=2**30, gpus=each, pods=1))
            made.handle(JobSubmitted(job(f"j{number}", at, chunks=chunks, worker=shape)), at)
        else:
            made.handle(WorkerEnded(*running[chunks % len(running)], "Succeeded", at), at)


@pytest.mark.parametrize("option", ["slack=-1", "changes=-1"])
def test_negative_limits_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match="dorm needs"):
        get_policy(f"dorm:{option}")
