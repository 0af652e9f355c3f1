"""The cache of TrainingJobs, and when a reconcile reads the job from the API server all the same."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from support.operator_objects import observed, plan, pod, training_job, window
from tranche.kube.client.client import ApiError
from tranche_operator.controller import Controller
from tranche_operator.execute import reader
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.reconcile.actions import Action, CreatePod, WriteStatus
from tranche_operator.reconcile.observed import Observed
from tranche_operator.settings import Settings
from tranche_operator.watch.job_cache import CURRENT_SECONDS, GONE_SECONDS, JobCache

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


def test_list_from_before_a_deletion_does_not_restore_the_job() -> None:
    """Its pods would be created without a read of the job, since a job without pods needs none."""
    now = 0.0
    cache = JobCache(clock=lambda: now)
    cache.note("lab/cats", raw(9))
    cache.note_deletion("lab/cats", "u")
    cache.note("lab/cats", raw(9))
    assert cache.get("lab/cats") is None
    again = raw(12)
    again["metadata"]["uid"] = "v"
    cache.note("lab/cats", again)
    assert cache.get("lab/cats") is not None, "another job of this name"
    now = GONE_SECONDS + 1.0
    cache.note_deletion("lab/cats", "v")
    assert list(cache._gone) == ["v"]


def test_watch_is_current_for_a_second_after_an_event() -> None:
    cache = JobCache()
    assert not cache.is_current(0.0)
    cache.note_watch_event(10.0)
    assert cache.is_current(10.0 + CURRENT_SECONDS)
    assert not cache.is_current(10.1 + CURRENT_SECONDS)
    cache.clear()
    assert not cache.is_current(10.0)


class Gets:
    """API server with one job, which counts the reads of it."""

    def __init__(self, version: int) -> None:
        self.job = raw(version) | {"status": {"plan": plan(window(0, 1), revision=version)}}
        self.reads = 0

    async def request(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        assert method == "GET"
        assert path.endswith("/trainingjobs/cats")
        self.reads += 1
        return self.job

    async def get(self, path: str) -> bytes:
        raise ApiError(404, "NotFound", "no such Site")


@pytest.mark.parametrize(("age", "pods", "reads"), [(0.0, (), 0), (9.0, (), 1), (0.0, (pod(0, 1, phase="Failed"),), 1)])
def test_job_with_missing_pods_is_read_unless_they_are_the_first(
    age: float, pods: Any, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=lambda: 100.0))
    server, cache = Gets(9), ReconcilerCache()
    cache.jobs.note("lab/cats", server.job | {"status": {"plan": plan(window(0, 2), revision=8)}})
    cache.jobs.note_watch_event(100.0 - age)
    cache.pods.sync([("lab/cats", one) for one in pods], 100.0)
    seen = asyncio.run(Reader(server, cache, lambda: NOW).observe("lab/cats", fresh=False))  # type: ignore[arg-type]
    assert server.reads == reads
    assert seen.may_create
    assert seen.is_fresh is bool(reads)


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

    def forget(self, key: str) -> None:
        del key

    def put(self, seen: Observed, actions: list[Action]) -> None:
        del seen
        self.actions += actions


def run(cached: Observed, served: Observed) -> Sources:
    sources = Sources(cached, served)
    controller = Controller(sources, sources, sources, sources, ReconcilerCache(), Settings(), lambda: NOW)  # type: ignore[arg-type]
    asyncio.run(controller.run("lab/cats"))
    return sources


def from_cache(seen: Observed) -> Observed:
    return replace(seen, is_fresh=False, may_create=False)


def test_first_pods_need_no_read_while_the_watch_is_current() -> None:
    seen = observed(training_job(chunks=None, workers=1, status={"plan": plan(window(0, 1))}))
    sources = run(replace(seen, is_fresh=False, may_create=True), observed(None))
    assert sources.reads == [False]
    assert [type(action) for action in sources.actions].count(CreatePod) == 1


def test_pods_are_created_after_a_read_if_watch_may_hang() -> None:
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
