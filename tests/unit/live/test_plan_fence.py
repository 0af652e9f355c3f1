"""Plans of other planners: the Lease on the API server determines the leader."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from support.live_controller import NOW, condition_alone, reported, resource, taken_over, written
from tranche.kube.api.core_types import Pod
from tranche.kube.api.resources import TrainingJob
from tranche.live import plan_fence
from tranche.planner import WorkerEnded


def planned(term: int, revision: int, **plan: Any) -> dict[str, Any]:
    return {"term": term, "revision": revision, "observedGeneration": 1, **plan}


def versioned(job: TrainingJob, version: str) -> TrainingJob:
    return job.model_copy(update={"metadata": job.metadata.model_copy(update={"resource_version": version})})


FORGED = [(3, 1), (2**31 - 1, 1), (2, 2**40)]
"""Pairs (term, revision) above those of a leader of term 2."""


@pytest.mark.parametrize(("term", "revision"), FORGED)
def test_forged_plan_ends_no_leader_and_loses_its_capacity(term: int, revision: int) -> None:
    controller = asyncio.run(taken_over(resource("a", "1m"), resource("b"), policy="chunk"))
    states = controller.planner.cluster.jobs
    assert len(states["default/a"].runs) == 2
    reported(controller, "jobs", "default/a", resource("a", "1m", plan=planned(term, revision)))
    assert set(states) == {"default/b"}
    assert len(states["default/b"].runs) == 2
    (condition,) = condition_alone(controller, "a")["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "InvalidPlan")
    assert "delete the job" in condition["message"]


@pytest.mark.parametrize(("term", "revision"), FORGED)
def test_forged_plan_is_not_taken_over(term: int, revision: int) -> None:
    window = {"index": 0, "attempt": 7, "site": "default", "node": "n1", "chunks": [1]}
    forged = resource("a", plan=planned(term, revision, workers=[window]))
    controller = asyncio.run(taken_over(forged, resource("b")))
    assert set(controller.planner.cluster.jobs) == {"default/b"}
    assert condition_alone(controller, "a")["conditions"][0]["reason"] == "InvalidPlan"


def test_new_job_with_the_name_of_a_forged_one_is_planned() -> None:
    controller = asyncio.run(taken_over(resource("a", plan=planned(9, 1))))
    new = resource("a")
    new = new.model_copy(update={"metadata": new.metadata.model_copy(update={"uid": "other"})})
    reported(controller, "jobs", "default/a", new)
    assert len(written(controller, "a")["plan"]["workers"]) == 2


def test_term_of_a_deleted_lease_ignores_absurd_terms() -> None:
    jobs = [resource("a", plan=planned(41, 1)), resource("b", plan=planned(2**31 - 1, 1)), resource("c")]
    assert plan_fence.largest_known_term(jobs) == 41


def test_own_plans_and_plans_at_takeover_depose_no_leader() -> None:
    controller = asyncio.run(taken_over(resource("a", plan=planned(0, 9)), resource("b")))
    reported(controller, "jobs", "default/a", resource("a", plan=planned(0, 9), phase="Waiting"))
    written(controller, "b")
    reported(controller, "jobs", "default/b", resource("b", plan=planned(controller.term, 1)))
    assert len(controller.planner.cluster.jobs) == 2


def test_late_plan_of_previous_leader_is_adopted() -> None:
    late = [{"index": 0, "attempt": 7, "site": "default", "node": "n1", "chunks": [1]}]
    controller = asyncio.run(taken_over(resource("a", plan=planned(1, 9)), term=2))
    ours = dict(controller.planner.cluster.jobs["default/a"].runs)
    assert set(ours) == {1, 2}
    reported(controller, "jobs", "default/a", resource("a", plan=planned(1, 10, workers=late, attempts=7)))
    runs = controller.planner.cluster.jobs["default/a"].runs
    assert runs[7].window.chunks == (1,)
    assert [run.window.chunks for attempt, run in runs.items() if attempt != 7] == [(0,)]
    assert min(attempt for attempt in runs if attempt != 7) == 8  # an attempt is never given out twice
    assert not {window for window in controller._unpublished if window[1] in ours}


def running_pod(attempt: int) -> Pod:
    """Return the pod of worker 0 of job a, which has trained for a minute."""
    labels = {"job": "a", "role": "worker", "index": "0", "attempt": str(attempt)}
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "a", "controller": True}
    metadata = {"labels": {f"tranche.dev/{key}": value for key, value in labels.items()}, "ownerReferences": [owner]}
    container = {"name": "t", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "1"}}}
    began = datetime.fromtimestamp(NOW - 60.0, UTC).isoformat()
    status = {"phase": "Running", "containerStatuses": [{"name": "t", "state": {"running": {"startedAt": began}}}]}
    name = f"a-worker-0-{attempt}"
    whole = {"name": name, "namespace": "default", "uid": name, **metadata}
    return msgspec.convert(
        {"metadata": whole, "spec": {"nodeName": "n1", "containers": [container]}, "status": status}, Pod
    )


@pytest.mark.parametrize("cause", ["late plan", "unreadable before"])
@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful"])
def test_workers_of_a_plan_adopted_late_are_known_to_train(policy: str, cause: str) -> None:
    """Otherwise they would stop when their node is cordoned, as workers that have not started."""
    plan = planned(
        1, 10, attempts=7, workers=[{"index": 0, "attempt": 7, "site": "default", "node": "n1", "chunks": [1]}]
    )
    known = resource("a", plan=planned(1, 9)) if cause == "late plan" else resource("a", "a while", plan=plan)
    controller = asyncio.run(taken_over(known, term=2, policy=policy))
    reported(controller, "pods", "default/a-worker-0-7", running_pod(7))
    reported(controller, "jobs", "default/a", resource("a", plan=plan))
    run = controller.planner.cluster.jobs["default/a"].runs[7]
    assert run.started is not None
    node = controller.watches.nodes.store["n1"]
    spec = msgspec.structs.replace(node.spec, unschedulable=True)
    reported(controller, "nodes", "n1", msgspec.structs.replace(node, spec=spec))
    assert not run.closing


def test_plan_adopted_late_counts_no_gpu_time_twice() -> None:
    opened = datetime.fromtimestamp(NOW - 3600.0, UTC).isoformat()
    window = {"index": 0, "attempt": 7, "site": "default", "node": "n1", "chunks": [1], "start": opened}
    used = {"attainedSeconds": 500.0, "sites": [{"site": "default", "gpuSeconds": 500}]}
    plans = [planned(1, revision, attempts=7, workers=[window]) for revision in (9, 10)]
    before, late = (resource("a", plan=plan, progress=used) for plan in plans)
    controller = asyncio.run(taken_over(before, term=2, policy="chunk:fair=1"))
    reported(controller, "pods", "default/a-worker-0-7", running_pod(7))
    recent = controller.planner.cluster.shares.recent("default", NOW)
    assert recent > 0
    reported(controller, "jobs", "default/a", late)
    assert controller.planner.cluster.shares.recent("default", NOW) == pytest.approx(recent)
    controller.handle(WorkerEnded("default/a", 7, "Succeeded", NOW))
    value = controller.metrics.registry.get_sample_value
    assert value("tranche_namespace_gpu_seconds_total", {"namespace": "default"}) == 3600
    assert value("tranche_namespace_trained_gpu_seconds_total", {"namespace": "default"}) == 60


def test_plan_adopted_late_is_no_failed_preemption() -> None:
    """Five of them would keep the namespace from preempting for an hour."""
    controller = asyncio.run(taken_over(resource("a", plan=planned(1, 9)), term=2, policy="chunk"))
    cluster = controller.planner.cluster
    cluster.jobs["default/a"].placement.preempted_at = NOW
    reported(controller, "jobs", "default/a", resource("a", plan=planned(1, 10)))
    assert "default/a" in cluster.jobs
    assert cluster.failed_preemptions.times == {}


def test_first_plan_of_a_term_is_bound_to_the_version_it_read() -> None:
    async def scene() -> list[dict[str, Any]]:
        before = versioned(resource("a", plan=planned(1, 9)), "31")
        controller = await taken_over(before, term=2)
        bodies = [body(controller, "a")]
        reported(controller, "jobs", "default/a", versioned(resource("a", plan=planned(2, 1)), "32"))
        bodies.append(body(controller, "a"))
        now = controller.stopwatch()
        for name, elapsed in (("skewed", 1.0), ("new", plan_fence.LATE_WRITE_SECONDS + 1.0)):
            controller.stopwatch = lambda elapsed=elapsed: now + elapsed  # type: ignore[misc]
            after = resource(name)  # created one hour ahead by the API server's clock
            created = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=1)
            metadata = after.metadata.model_copy(update={"creation_timestamp": created})
            after = after.model_copy(update={"metadata": metadata})
            reported(controller, "jobs", f"default/{name}", versioned(after, "33"))
            bodies.append(body(controller, name))
        return bodies

    first, second, skewed, fresh = asyncio.run(scene())
    assert first["metadata"]["resourceVersion"] == "31"
    assert "resourceVersion" not in second["metadata"], "only this process can have written it"
    assert skewed["metadata"]["resourceVersion"] == "33", "the planner before us may have seen it"
    assert "resourceVersion" not in fresh["metadata"], "the planner before us cannot have planned it"


def body(controller: Any, name: str) -> dict[str, Any]:
    """The object to apply, whose status is `written`."""
    status = written(controller, name)
    built = controller._status(f"default/{name}")
    assert built["status"]["plan"]["term"] == status["plan"]["term"]
    return dict(built)


def test_news_that_come_while_another_one_leads_are_not_kept() -> None:
    controller = asyncio.run(taken_over(resource("a")))
    controller.term = 0
    for kind in ("jobs", "pods"):
        for notice in controller.watches.by_kind(kind)._callbacks:
            notice("default/a", None, resource("a"))
    assert not controller._changes


@pytest.mark.parametrize(("elapsed", "version"), [(-1.0, "31"), (1.0, None)])
def test_first_write_of_a_term_is_bound_for_late_writes_only(elapsed: float, version: str | None) -> None:
    async def scene() -> dict[str, Any]:
        controller = await taken_over(versioned(resource("a", plan=planned(1, 9)), "31"), term=2)
        end = controller.stopwatch() + plan_fence.LATE_WRITE_SECONDS
        controller.stopwatch = lambda: end + elapsed
        return body(controller, "a")

    assert asyncio.run(scene())["metadata"].get("resourceVersion") == version
