"""Refusals are paused for longer and longer."""

from datetime import timedelta

from support.operator_objects import NOW
from tranche_operator.execute.reconciler_cache import ReconcilerCache
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
