"""The cache of TrainingJobs, and when a reconcile reads the job from the API server all the same."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from support.operator_objects import observed, plan, pod, training_job, window
from tranche_operator.controller import Controller
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.reconcile.actions import Action, CreatePod, WriteStatus
from tranche_operator.reconcile.observed import Observed
from tranche_operator.settings import Settings
from tranche_operator.watch.job_cache import JobCache

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def raw(version: int, phase: str = "Waiting") -> dict[str, Any]:
    job = training_job()
    spec = job.spec.model_dump(by_alias=True, mode="json", exclude_none=True)
    metadata = {"name": "cats", "namespace": "lab", "uid": "u", "generation": 1, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def phase_of(cache: JobCache) -> str | None:
    job = cache.get("lab/cats")
    return job.status.phase if job is not None else None


FORGETS = (lambda cache: cache.drop("lab/cats"), JobCache.clear, lambda cache: cache.keep({"lab/dogs"}))


def test_job_cache_keeps_the_latest_version() -> None:
    cache = JobCache()
    cache.note("lab/cats", raw(9, "Running"))
    cache.note("lab/cats", raw(8, "Starting"))
    assert phase_of(cache) == "Running"
    cache.note("lab/cats", raw(10, "Succeeded"))
    assert phase_of(cache) == "Succeeded"


@pytest.mark.parametrize("forget", FORGETS, ids=["drop", "clear", "keep"])
def test_job_cache_forgets(forget: Any) -> None:
    cache = JobCache()
    cache.note("lab/cats", raw(9))
    forget(cache)
    assert cache.get("lab/cats") is None


class Sources:
    """Reader with one version in the cache and another on the server; executor that records its actions."""

    def __init__(self, cached: Observed, served: Observed) -> None:
        self._cached, self._served = cached, served
        self.reads: list[bool] = []
        self.actions: list[Action] = []

    async def observe(self, key: str, *, fresh: bool = True) -> Observed:
        del key
        self.reads.append(fresh)
        return self._served if fresh else self._cached

    async def execute(self, seen: Observed, actions: list[Action]) -> None:
        del seen
        self.actions += actions

    def put(self, seen: Observed, actions: list[Action]) -> None:
        del seen
        self.actions += actions


def run(cached: Observed, served: Observed) -> Sources:
    sources = Sources(cached, served)
    controller = Controller(sources, sources, sources, ReconcilerCache(), Settings(), lambda: NOW)  # type: ignore[arg-type]
    asyncio.run(controller.run("lab/cats"))
    return sources


def from_cache(seen: Observed) -> Observed:
    return replace(seen, is_fresh=False)


def test_pods_are_created_from_a_fresh_read_only() -> None:
    old = observed(training_job(chunks=None, workers=1, status={"plan": plan(window(0, 1))}))
    new = observed(training_job(chunks=None, workers=1, status={"plan": plan()}))
    sources = run(from_cache(old), new)
    assert sources.reads == [False, True]
    assert not [action for action in sources.actions if isinstance(action, CreatePod)]


def test_pods_of_a_later_plan_than_is_cached_are_left_alone() -> None:
    pods = (pod(0, 1), pod(1, 2), pod(2, 3, phase="Failed"))
    old = observed(training_job(status={"plan": plan(window(0, 1))}), *pods)
    new = observed(training_job(status={"plan": plan(*(window(n, n + 1) for n in range(3)), revision=8)}), *pods)
    sources = run(from_cache(old), new)
    assert sources.reads == [False, True]
    assert {type(action) for action in sources.actions} == {WriteStatus}


def test_a_status_is_written_without_a_fresh_read() -> None:
    status = {"plan": plan(window(0, 1)), "phase": "Starting"}
    seen = observed(training_job(chunks=None, workers=1, status=status), pod(0, 1, phase="Running"))
    sources = run(from_cache(seen), seen)
    assert sources.reads == [False]
    assert [type(action) for action in sources.actions if not isinstance(action, CreatePod)].count(WriteStatus) == 1
