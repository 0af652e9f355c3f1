"""Changes of several pods for one reason are one event."""

from tranche_operator.execute.event_recorder import SERIES, merged, series_of
from tranche_operator.reconcile.actions import EmitEvent


def test_a_gang_that_opens_is_one_event_that_names_its_pods() -> None:
    opened = [EmitEvent("Normal", "WindowOpened", f"worker {rank}", f"cats-worker-{rank}-7") for rank in range(3)]
    stopped = EmitEvent("Normal", "Preempting", "pod dogs-worker-0-1 is stopped", "dogs-worker-0-1")
    several, alone = merged([*opened, stopped])
    assert several.message == "3 pods: worker 0; worker 1; worker 2"
    assert several.subject == "cats-worker-0-7"
    assert alone is stopped


def test_sentences_are_joined_into_one() -> None:
    stopped = [EmitEvent("Normal", "Preempting", f"Preempted by ns/b: pod {n} stops.", str(n)) for n in range(2)]
    (event,) = merged(stopped)
    assert event.message == "2 pods: Preempted by ns/b: pod 0 stops; Preempted by ns/b: pod 1 stops."


def test_warnings_are_not_mixed_with_what_is_normal() -> None:
    assert len(merged([EmitEvent("Normal", "R", "a", "1"), EmitEvent("Warning", "R", "b", "2")])) == 2


def test_attempts_of_a_job_that_churns_share_event_objects() -> None:
    pods = [f"cats-worker-{attempt % 100}-{attempt}" for attempt in range(1000)]
    assert len({series_of(name) for name in pods}) == SERIES
    assert series_of("cats-worker-3-7") == series_of("cats-worker-3-8") != series_of("cats-worker-4-9")
    assert series_of("cats-ps-3-7") != series_of("cats-worker-3-7")


def test_event_about_the_job_itself_has_a_series_of_its_own() -> None:
    assert series_of("") == ""
