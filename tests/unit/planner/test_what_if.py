"""Plans of jobs that are not submitted, on the live state, with exact numbers on small clusters."""

import pytest

from support.builders import gang, job, node, planner
from tranche.model import WhatIf
from tranche.planner import JobSubmitted, Planner, WorkerStarted
from tranche.planner.forecast.steps import run_to_completion
from tranche.planner.forecast.what_if import what_if


def asked(p: Planner, submitted: JobSubmitted, now: float = 0.0) -> WhatIf:
    return run_to_completion(what_if(p.context, p.blank, submitted, now))


def one_gpu(policy: str) -> Planner:
    """One GPU, which job a holds until 100; b waits for it and needs 300 s."""
    p = planner(policy, [node("n1", gpus=1)])
    p.handle(JobSubmitted(job("a", chunks=1)), 0.0)
    p.handle(WorkerStarted("default/a", 1, 0.0), 0.0)
    p.handle(JobSubmitted(job("b", chunks=3)), 0.0)
    return p


def test_the_plan_is_that_of_a_job_which_is_submitted() -> None:
    p = one_gpu("fifo")
    result = asked(p, JobSubmitted(job("new", chunks=1)))
    p.handle(JobSubmitted(job("new", chunks=1)), 0.0)
    estimate = p.forecast(0.0)["default/new"]
    assert (result.start, result.completion, result.site) == (estimate.start, estimate.completion, "edge-a")
    assert (result.start, result.completion, result.workers, result.delays) == (400.0, 500.0, 0, ())
    assert result.behind == "default/b"


def test_jobs_that_would_complete_later_have_both_times() -> None:
    result = asked(one_gpu("srsf"), JobSubmitted(job("new", chunks=1)))
    assert (result.start, result.completion) == (100.0, 200.0)
    assert [(one.job, one.before, one.after) for one in result.delays] == [("default/b", 400.0, 500.0)]


def test_a_what_if_changes_nothing() -> None:
    p = one_gpu("chunk")
    before = p.forecast(0.0)
    asked(p, JobSubmitted(job("new", chunks=1)))
    assert set(p.cluster.jobs) == {"default/a", "default/b"}
    assert p.forecast(0.0) == before


def test_a_job_that_starts_at_once_has_workers() -> None:
    p = planner("chunk", [node("n1", gpus=4)])
    result = asked(p, JobSubmitted(gang("new", members=3)))
    assert (result.start, result.workers, result.behind) == (0.0, 3, "")
    assert result.explanation.partition(";")[0] == "would start at once: 3 workers (3 at edge-a)"


def test_a_job_that_never_runs_has_a_reason() -> None:
    result = asked(planner("chunk", [node("n1", gpus=4)]), JobSubmitted(gang("new", members=5)))
    assert (result.start, result.completion) == (None, None)
    assert "more than the cluster can hold" in result.explanation


def test_the_name_of_an_existing_job_is_refused() -> None:
    with pytest.raises(ValueError, match="default/b already exists"):
        asked(one_gpu("fifo"), JobSubmitted(job("b", chunks=1)))


def test_plan_under_binding_policy_is_that_of_a_submitted_job() -> None:
    p = one_gpu("round-robin")
    result = asked(p, JobSubmitted(job("new", chunks=1)))
    assert (result.start, result.completion, result.site, result.behind) == (400.0, 500.0, "edge-a", "default/b")
    p.handle(JobSubmitted(job("new", chunks=1)), 0.0)
    estimate = p.forecast(0.0)["default/new"]
    assert (estimate.start, estimate.completion) == (result.start, result.completion)


def test_denser_chunk_of_a_binding_policy_delays_others() -> None:
    p = planner("chunk-faithful", [node("n1", gpus=1)])
    p.handle(JobSubmitted(job("long", chunks=1, seconds=1000.0)), 0.0)
    result = asked(p, JobSubmitted(job("new", chunks=1, seconds=100.0)))
    assert [one.job for one in result.delays] == ["default/long"]
