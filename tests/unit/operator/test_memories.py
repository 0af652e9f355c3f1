"""Refusals are paused for longer and longer."""

from datetime import timedelta

from support.operator_objects import NOW
from tranche_operator.execute.reconciler_cache import Memory
from tranche_operator.settings import Settings

SETTINGS = Settings(rejection_backoff=5.0, rejection_backoff_limit=60.0)


def test_the_pause_doubles_for_the_same_pod_up_to_the_limit() -> None:
    memory = Memory()
    pauses = [
        (memory.reject("lab/cats", "p", "Forbidden", "no", SETTINGS, NOW).until - NOW).total_seconds() for _ in range(6)
    ]
    assert pauses == [5, 10, 20, 40, 60, 60]


def test_another_pod_begins_anew() -> None:
    memory = Memory()
    rejections = [memory.reject("lab/cats", pod, "Forbidden", "no", SETTINGS, NOW) for pod in ("p", "p", "q")]
    rejection = rejections[-1]
    assert (rejection.until - NOW).total_seconds() == 5
    assert rejection.count == 1


def test_a_refusal_that_may_pass_is_borne_for_a_while() -> None:
    memory, later = Memory(), NOW + timedelta(seconds=SETTINGS.forbidden_patience)
    assert memory.bears("lab/cats", SETTINGS, NOW)
    assert memory.bears("lab/dogs", SETTINGS, later)
    assert not memory.bears("lab/cats", SETTINGS, later)


def test_a_job_that_is_gone_is_forgotten() -> None:
    memory = Memory()
    memory.bears("lab/cats", SETTINGS, NOW)
    memory.reject("lab/cats", "p", "Forbidden", "no", SETTINGS, NOW)
    memory.forget("lab/cats")
    assert not memory.rejections
    assert not memory.forbidden


def test_refusals_of_pods_that_are_not_to_be_evicted_any_more_are_forgotten() -> None:
    memory = Memory()
    for name in ("one", "one", "other"):
        memory.refuse("ns/job", name, "the budget", Settings(), NOW)
    assert {name: refusal.count for name, refusal in memory.refusals["ns/job"].items()} == {"one": 2, "other": 1}
    memory.keep_refusals("ns/job", {"one"})
    assert set(memory.refusals["ns/job"]) == {"one"}
    memory.keep_refusals("ns/job", ())
    assert not memory.refusals
