"""Refusals are paused for longer and longer, and results are those of one job, not of its namesakes."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from support.operator_objects import NOW, UID, plan, pod, training_job, window
from tranche.kube.client.client import ApiError
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.manifests.pod import service
from tranche_operator.reconcile.observed import Observed, ServiceState, TemplateVerdict
from tranche_operator.reconcile.status import NO_TIMES, ConditionUpdate, PodTimes
from tranche_operator.settings import Settings

SETTINGS = Settings(rejection_backoff_seconds=5.0, longest_rejection_backoff_seconds=60.0)


def test_the_pause_doubles_for_the_same_pod_up_to_the_limit() -> None:
    cache = ReconcilerCache()
    pauses = [
        (cache.reject("lab/cats", "p", "Forbidden", "no", SETTINGS, NOW).until - NOW).total_seconds() for _ in range(6)
    ]
    assert pauses == [5, 10, 20, 40, 60, 60]


def test_rejection_of_another_pod_restarts_the_backoff() -> None:
    cache = ReconcilerCache()
    rejections = [cache.reject("lab/cats", pod, "Forbidden", "no", SETTINGS, NOW) for pod in ("p", "p", "q")]
    rejection = rejections[-1]
    assert (rejection.until - NOW).total_seconds() == 5
    assert rejection.count == 1


def test_a_refusal_that_may_pass_is_borne_for_a_while() -> None:
    cache, later = ReconcilerCache(), NOW + timedelta(seconds=SETTINGS.forbidden_patience_seconds)
    assert cache.is_transient("lab/cats", SETTINGS, NOW)
    assert cache.is_transient("lab/dogs", SETTINGS, later)
    assert not cache.is_transient("lab/cats", SETTINGS, later)


def test_a_job_that_is_gone_is_forgotten() -> None:
    cache = ReconcilerCache()
    cache.is_transient("lab/cats", SETTINGS, NOW)
    cache.reject("lab/cats", "p", "Forbidden", "no", SETTINGS, NOW)
    cache.forget("lab/cats")
    assert not cache.rejections
    assert not cache.forbidden


def test_refusals_of_pods_no_longer_evicted_are_removed() -> None:
    cache = ReconcilerCache()
    for name in ("one", "one", "other"):
        cache.refuse("ns/job", name, "the budget", Settings(), NOW)
    assert {name: refusal.count for name, refusal in cache.refusals["ns/job"].items()} == {"one": 2, "other": 1}
    cache.keep_refusals("ns/job", {"one"})
    assert set(cache.refusals["ns/job"]) == {"one"}
    cache.keep_refusals("ns/job", ())
    assert not cache.refusals


class Jobs:
    """API server with one TrainingJob."""

    def __init__(self, uid: str) -> None:
        self.uid = uid

    async def request(self, method: str, path: str) -> dict[str, Any]:
        return training_job(uid=self.uid, checked=False).model_dump(mode="json", by_alias=True)


def test_namesake_inherits_no_result_of_the_deleted_job() -> None:
    """The pods of the deleted job still stop, so that its name was never without an object."""
    cache = ReconcilerCache()
    cache.pods.complete = True
    cache.pods.note("lab/cats", pod(0, 1, terminating=True))

    def observe(uid: str) -> Observed:
        return asyncio.run(Reader(Jobs(uid), cache).observe("lab/cats"))  # type: ignore[arg-type]

    observe(UID)
    cache.verdicts["lab/cats"] = TemplateVerdict(1, ConditionUpdate("InvalidTemplate", "True", "TemplateRejected"))
    cache.times["lab/cats"] = PodTimes(start=NOW)
    cache.reject("lab/cats", "cats-worker-0-1", "Forbidden", "no", SETTINGS, NOW)
    cache.refuse("lab/cats", "cats-worker-0-1", "the budget", SETTINGS, NOW)
    found = observe(UID)
    assert found.verdict is not None
    assert found.rejection is not None
    found = observe("another")
    assert (found.verdict, found.rejection, found.refusals, found.times) == (None, None, {}, NO_TIMES)


class Services:
    """API server with the Service of job ``cats``, and with the site of its window if that is given."""

    def __init__(self, site: dict[str, Any] | None = None, **changes: dict[str, Any]) -> None:
        self.site = site
        own = service(training_job())
        del own["metadata"]["ownerReferences"]
        self.service = {**own, **{part: {**own[part], **changes.get(part, {})} for part in ("metadata", "spec")}}

    async def request(self, method: str, path: str) -> dict[str, Any]:
        if path.endswith("/services/cats"):
            return self.service
        return training_job(chunks=None, status={"plan": plan(window(0, 1))}).model_dump(mode="json", by_alias=True)

    async def get(self, path: str) -> bytes:
        assert "/sites/" in path
        if self.site is None:
            raise ApiError(404, "NotFound", "no Site")
        return json.dumps({"metadata": {"name": "edge-a"}, "spec": self.site}).encode()


OTHER_OWNER = {"apiVersion": "example.com/v1", "kind": "Mesh", "name": "m", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, ServiceState.OWN),
        ({"spec": {"ipFamilies": ["IPv4"], "type": "ClusterIP"}}, ServiceState.OWN),
        ({"spec": {"selector": {"tranche.dev/job": "cats"}}}, ServiceState.OUTDATED),
        ({"metadata": {"labels": {}}}, ServiceState.FOREIGN),
        ({"metadata": {"ownerReferences": [OTHER_OWNER]}}, ServiceState.FOREIGN),
        ({"spec": {"clusterIP": "10.0.0.1"}}, ServiceState.FOREIGN),
        ({"spec": {"selector": {"tranche.dev/job": "dogs"}}}, ServiceState.FOREIGN),
        ({"spec": {"publishNotReadyAddresses": False}}, ServiceState.FOREIGN),
    ],
    ids=["restored", "defaults", "earlier release", "labels", "owner", "address", "selector", "readiness"],
)
def test_service_that_lost_its_owner_belongs_to_the_job(changes: dict[str, Any], state: ServiceState) -> None:
    cache = ReconcilerCache()
    cache.pods.complete = True
    cache.services["lab/cats"] = UID, float("-inf")  # as after the refusal of a second Service of the name
    found = asyncio.run(Reader(Services(**changes), cache).observe("lab/cats"))  # type: ignore[arg-type]
    assert found.service is state


def unreadable_job(**metadata: Any) -> dict[str, Any]:
    """Return a job with a value of a newer release, in which a deletion has begun unless `metadata` says otherwise."""
    job = training_job(deleting=True).model_dump(mode="json", by_alias=True)
    return job | {"spec": {**job["spec"], "workers": "elastic"}, "metadata": job["metadata"] | metadata}


class Answers:
    """API server with one object."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    async def request(self, method: str, path: str) -> dict[str, Any]:
        return self.found


def test_site_with_a_value_of_another_release_gets_pods() -> None:
    cache = ReconcilerCache()
    cache.pods.complete = True
    server = Services({"nodeSelector": {"zone": "a"}, "tier": "Fog"})
    observed = asyncio.run(Reader(server, cache).observe("lab/cats"))  # type: ignore[arg-type]
    assert observed.sites["edge-a"].node_selector == {"zone": "a"}


@pytest.mark.parametrize("fresh", [True, False])
def test_unreadable_job_that_is_deleted_releases_its_pods(fresh: bool) -> None:
    """Its deletion in the foreground waits for the pods, and these for the removal of their finalizer."""
    cache = ReconcilerCache()
    cache.pods.complete = True
    cache.pods.note("lab/cats", pod(0, 1, terminating=True))
    found = unreadable_job(finalizers=["foregroundDeletion"])
    cache.jobs.note("lab/cats", unreadable_job(deletionTimestamp=None))
    observed = asyncio.run(Reader(Answers(found), cache).observe("lab/cats", fresh=fresh))  # type: ignore[arg-type]
    assert (observed.job, [one.name for one in observed.pods]) == (None, ["cats-worker-0-1"])
    assert observed.is_fresh


@pytest.mark.parametrize("metadata", [{"deletionTimestamp": None}, {"finalizers": ["orphan"]}], ids=["kept", "orphans"])
def test_pods_of_an_unreadable_job_that_may_run_stay(metadata: dict[str, Any]) -> None:
    cache = ReconcilerCache()
    cache.pods.complete = True
    with pytest.raises(ValueError, match="workers"):
        asyncio.run(Reader(Answers(unreadable_job(**metadata)), cache).observe("lab/cats"))  # type: ignore[arg-type]
