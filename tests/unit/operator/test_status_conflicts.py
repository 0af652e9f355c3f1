"""Writes of the operator's status beside the planner, which writes the status of the same object."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from support.operator_objects import NOW, observed, training_job
from tranche.kube.client.client import ApiError
from tranche_operator.execute.executor import CHANGED_SECONDS, ActionExecutor
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.reconcile.actions import WriteStatus
from tranche_operator.reconcile.observed import Observed
from tranche_operator.settings import Settings

STATUS = {"phase": "Waiting"}


class StatusEndpoint:
    """Status of one job, with optimistic locking as in the API server."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.codes: list[int] = []

    async def apply(self, path: str, document: dict[str, Any], manager: str) -> dict[str, Any]:
        fits = document["metadata"]["resourceVersion"] == str(self.version)
        self.codes.append(200 if fits else 409)
        if not fits:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.version += 1
        return raw(self.version)


def raw(version: int) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}}


def seen_at(version: int) -> Observed:
    seen = observed(training_job())
    assert seen.job is not None
    metadata = seen.job.metadata.model_copy(update={"resource_version": str(version)})
    return replace(seen, job=seen.job.model_copy(update={"metadata": metadata}))


def write(endpoint: StatusEndpoint, cache: ReconcilerCache, version: int) -> float | None:
    """Return the delay of the next reconcile after a write over this version."""
    executor = ActionExecutor(endpoint, cache, None, Settings(), lambda: NOW)  # type: ignore[arg-type]
    return asyncio.run(executor.execute(seen_at(version), [WriteStatus(str(version), STATUS)]))


def test_status_over_older_version_than_known_is_not_sent() -> None:
    endpoint, cache = StatusEndpoint(9), ReconcilerCache()
    cache.jobs.note(seen_at(9).key, raw(9))
    assert write(endpoint, cache, 8) == 0.0
    assert not endpoint.codes
    assert write(endpoint, cache, 9) is None
    assert endpoint.codes == [200]


def test_first_conflict_of_status_is_retried_without_a_pause() -> None:
    endpoint, cache = StatusEndpoint(9), ReconcilerCache()
    assert write(endpoint, cache, 8) == 0.0
    assert not cache.jobs.has_newer(seen_at(8).key, "0")
    assert write(endpoint, cache, 9) is None
    assert endpoint.codes == [409, 200]


def test_conflicts_of_status_in_a_row_are_retried_with_pauses() -> None:
    endpoint, cache = StatusEndpoint(9), ReconcilerCache()
    assert [write(endpoint, cache, 8) for _ in range(3)] == [0.0, CHANGED_SECONDS, CHANGED_SECONDS]
    assert write(endpoint, cache, 9) is None
    endpoint.version = 20
    assert write(endpoint, cache, 10) == 0.0


@pytest.mark.parametrize(("known", "version", "newer"), [("9", "8", True), ("9", "9", False), (None, "8", False)])
def test_job_cache_compares_versions(known: str | None, version: str, newer: bool) -> None:
    cache = ReconcilerCache()
    if known is not None:
        cache.jobs.note("lab/cats", raw(int(known)))
    assert cache.jobs.has_newer("lab/cats", version) is newer
