"""Plans of other planners: who leads is what the API server says."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.live_controller import NOW, reported, resource, taken_over, written
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.leader_election import DeposedError


def planned(term: int, revision: int, **plan: Any) -> dict[str, Any]:
    return {"term": term, "revision": revision, "observedGeneration": 1, **plan}


def versioned(job: TrainingJob, version: str) -> TrainingJob:
    return job.model_copy(update={"metadata": job.metadata.model_copy(update={"resource_version": version})})


def test_a_plan_of_a_newer_planner_that_is_seen_deposes_at_once() -> None:
    controller = asyncio.run(taken_over(resource("a"), resource("b")))
    with pytest.raises(DeposedError, match="default/a"):
        reported(controller, "jobs", "default/a", resource("a", plan=planned(controller.term + 1, 1)))


def test_own_plans_and_plans_at_takeover_depose_no_leader() -> None:
    controller = asyncio.run(taken_over(resource("a", plan=planned(0, 9)), resource("b")))
    reported(controller, "jobs", "default/a", resource("a", plan=planned(0, 9), phase="Waiting"))
    reported(controller, "jobs", "default/b", resource("b", plan=planned(controller.term, 1)))


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


def test_first_plan_of_a_term_is_bound_to_the_version_it_read() -> None:
    async def scene() -> list[dict[str, Any]]:
        before = versioned(resource("a", plan=planned(1, 9)), "31")
        controller = await taken_over(before, term=2)
        bodies = [body(controller, "a")]
        reported(controller, "jobs", "default/a", versioned(resource("a", plan=planned(2, 1)), "32"))
        bodies.append(body(controller, "a"))
        after = resource("new")
        created = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=1)
        after = after.model_copy(update={"metadata": after.metadata.model_copy(update={"creation_timestamp": created})})
        reported(controller, "jobs", "default/new", versioned(after, "33"))
        return [*bodies, body(controller, "new")]

    first, second, fresh = asyncio.run(scene())
    assert first["metadata"]["resourceVersion"] == "31"
    assert "resourceVersion" not in second["metadata"], "only this process can have written it"
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
