"""RFC 3339 timestamps."""

from datetime import UTC, datetime, timedelta, timezone

from tranche.kube.api.timestamp import LATEST, rfc3339, whole_second

AT = datetime(2026, 11, 22, 14, 20, 0, 987654, tzinfo=UTC)


def test_rfc3339_cuts_off_the_fraction() -> None:
    assert rfc3339(AT) == rfc3339(AT.timestamp()) == "2026-11-22T14:20:00Z"


def test_rfc3339_of_another_time_zone_is_in_utc() -> None:
    assert rfc3339(AT.astimezone(timezone(timedelta(hours=5.5)))) == "2026-11-22T14:20:00Z"


def test_rfc3339_with_microseconds_has_six_digits() -> None:
    assert rfc3339(AT, microseconds=True) == "2026-11-22T14:20:00.987654Z"
    assert rfc3339(AT.replace(microsecond=0), microseconds=True) == "2026-11-22T14:20:00.000000Z"


def test_times_beyond_the_year_9999_are_cut_to_it() -> None:
    assert rfc3339(2 * LATEST) == "9999-12-31T23:59:59Z"
    assert whole_second(float("inf")) == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_whole_second_of_no_time_is_none() -> None:
    assert whole_second(None) is None
    assert whole_second(0.0) is None
    assert whole_second(AT.timestamp()) == AT.replace(microsecond=0)
