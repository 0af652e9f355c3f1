"""Attempts of a job share Event objects."""

from tranche_operator.execute.event_recorder import SERIES, series_of


def test_attempts_of_a_job_that_churns_share_event_objects() -> None:
    pods = [f"cats-worker-{attempt % 100}-{attempt}" for attempt in range(1000)]
    assert len({series_of(name) for name in pods}) == SERIES
    assert series_of("cats-worker-3-7") == series_of("cats-worker-3-8") != series_of("cats-worker-4-9")
    assert series_of("cats-ps-3-7") != series_of("cats-worker-3-7")


def test_event_about_the_job_itself_has_a_series_of_its_own() -> None:
    assert series_of("") == ""
