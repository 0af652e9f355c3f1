"""A job that waits has an event with the reason, a new one only for a new reason, and at a bounded rate."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from support.operator_objects import ACCEPTED, NOW, observed, plan, pod, training_job, window
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.reconcile.actions import Action, EmitPendingEvent, RequeueAfter
from tranche_operator.reconcile.event_merge import SPACING_SECONDS
from tranche_operator.reconcile.observed import Observed, Wait
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings

SETTINGS = Settings(wait_events_per_second=10.0, wait_settle_seconds=2.0)
BEHIND = "waits for 1 GPU at edge-a until 14:20:00Z, behind team-b/vgg16, which has less work left"
QUOTA = "waits for the quota lab/small: 4 of 4 gpu in use, and 1 needed"


def waiting(sentence: str, *windows: dict[str, Any], wait: Wait | None = None, **more: Any) -> Observed:
    status = {"phase": "Waiting", "plan": plan(*windows, explanation=sentence, **more)}
    return observed(training_job(status=status), wait=wait or Wait())


def decide(seen: Observed) -> list[Action]:
    return [action for action in reconcile(seen, SETTINGS, NOW) if isinstance(action, EmitPendingEvent | RequeueAfter)]


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class TestWhatIsTold:
    def test_a_job_that_waits_tells_the_sentence_of_its_plan(self) -> None:
        assert decide(waiting(BEHIND)) == [EmitPendingEvent(BEHIND)]

    def test_a_job_that_cannot_be_planned_warns_with_the_reason(self) -> None:
        condition = {**ACCEPTED, "type": "Planned", "reason": "Unschedulable"}
        status = {"phase": "Waiting", "plan": plan(explanation="no node has 2 GPUs"), "conditions": [condition]}
        seen = observed(training_job(status=status), wait=Wait())
        assert decide(seen) == [EmitPendingEvent("no node has 2 GPUs", "Unschedulable")]

    def test_another_constraint_is_news(self) -> None:
        assert decide(waiting(QUOTA, wait=Wait(last_message=BEHIND))) == [EmitPendingEvent(QUOTA)]

    @pytest.mark.parametrize("moment", [" until 15:00:01Z", " until 2027-01-01 00:00:00Z", ""])
    def test_a_moment_that_moves_is_no_news(self, moment: str) -> None:
        moved = BEHIND.replace(" until 14:20:00Z", moment)
        assert not decide(waiting(moved, wait=Wait(last_message=BEHIND)))

    def test_early_new_reason_is_requeued_until_the_quiet_time_ends(self) -> None:
        assert decide(waiting(QUOTA, wait=Wait(BEHIND, after(7.0)))) == [RequeueAfter(7.0)]

    def test_a_job_with_an_open_window_does_not_wait(self) -> None:
        assert not decide(waiting("1 worker (1 at edge-a); 0 of 4 chunks done", window(0, 1)))

    def test_a_job_whose_pods_still_run_does_not_wait(self) -> None:
        seen = waiting(BEHIND, window(0, 1, "Closing"))
        assert not decide(observed(seen.job, pod(0, 1)))

    def test_a_plan_for_another_generation_says_nothing(self) -> None:
        assert not decide(waiting(BEHIND, generation=7))

    def test_a_suspended_job_says_so_by_its_phase(self) -> None:
        status = {"plan": plan(explanation="suspended by spec.suspend")}
        assert not decide(observed(training_job(spec={"suspend": True}, status=status)))


class TestTurns:
    def test_waiting_event_is_sent_after_the_reason_lasted(self) -> None:
        cache = ReconcilerCache()
        assert cache.event_slot("lab/cats", SETTINGS, NOW) == 2.0
        assert cache.event_slot("lab/cats", SETTINGS, after(0.5)) == 1.5
        assert cache.event_slot("lab/cats", SETTINGS, after(2.0)) == 0.0

    def test_simultaneous_waiting_jobs_get_turns_at_the_event_rate(self) -> None:
        cache = ReconcilerCache()
        turns = sorted(cache.event_slot(f"lab/job-{number}", SETTINGS, NOW) for number in range(10_000))
        assert turns[-1] == pytest.approx(999.9)
        for second in range(2, 1000):
            assert sum(second < turn <= second + 1 for turn in turns) <= 11

    def test_jobs_of_a_namespace_do_not_delay_events_of_others(self) -> None:
        cache = ReconcilerCache()
        for number in range(10_000):
            cache.event_slot(f"lab/job-{number}", SETTINGS, NOW)
            cache.forget(f"lab/job-{number}")
        assert cache.event_slot("team-b/cats", SETTINGS, NOW) == 2.0

    def test_namespaces_that_wait_at_once_share_the_event_rate(self) -> None:
        cache = ReconcilerCache()
        keys = [f"n{namespace}/job-{number}" for number in range(500) for namespace in range(20)]
        turns = sorted(cache.event_slot(key, SETTINGS, NOW) for key in keys)
        assert 950.0 < turns[-1] < 1010.0
        assert sum(100.0 < turn <= 200.0 for turn in turns) == pytest.approx(1000, rel=0.02)

    def test_waiting_event_starts_quiet_time_then_needs_new_turn(self) -> None:
        cache = ReconcilerCache()
        cache.record_event("lab/cats", BEHIND, NOW)
        assert cache.waits["lab/cats"].not_before == after(SPACING_SECONDS)
        assert cache.event_slot("lab/cats", SETTINGS, after(SPACING_SECONDS)) == 2.0

    def test_a_job_that_had_workers_tells_again_why_it_waits(self) -> None:
        cache = ReconcilerCache()
        cache.record_event("lab/cats", BEHIND, NOW)
        cache.has_workers("lab/cats")
        wait = cache.waits["lab/cats"]
        assert decide(waiting(BEHIND, wait=wait)) == [RequeueAfter(SPACING_SECONDS)], "not counted only"
        later = reconcile(waiting(BEHIND, wait=wait), SETTINGS, after(SPACING_SECONDS))
        assert EmitPendingEvent(BEHIND) in later

    def test_a_job_that_is_gone_is_forgotten(self) -> None:
        cache = ReconcilerCache()
        cache.event_slot("lab/cats", SETTINGS, NOW)
        cache.forget("lab/cats")
        assert not cache.waits
