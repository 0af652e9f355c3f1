"""Refusals are paused for longer and longer."""

from operator_objects import NOW
from tranche_operator.memories import Memory
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


def test_a_job_that_is_gone_is_forgotten() -> None:
    memory = Memory()
    memory.reject("lab/cats", "p", "Forbidden", "no", SETTINGS, NOW)
    memory.forget("lab/cats")
    assert not memory.rejections
