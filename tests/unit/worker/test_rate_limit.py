"""Rate limit of a worker's traffic, in virtual time."""

import io
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tranche_worker import RateLimit, TokenBucket


class Time:
    """Clock that only sleeps advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_bits_beyond_the_burst_wait_for_the_rate() -> None:
    bucket = TokenBucket(100.0, burst_bits=50.0)
    assert bucket.take(50, 0.0) == 0
    assert bucket.take(100, 0.0) == 1.0
    assert bucket.take(50, 1.0) == 0.5
    assert bucket.take(50, 10.0) == 0


def test_without_a_rate_nothing_waits() -> None:
    assert TokenBucket().take(1e12, 0.0) == 0


def test_a_new_rate_applies_from_now_on() -> None:
    bucket = TokenBucket(100.0, burst_bits=0.0)
    assert bucket.take(200, 0.0) == 2.0
    bucket.set_rate(400.0, 1.0)
    assert bucket.take(300, 1.0) == 1.0
    bucket.set_rate(inf, 1.0)
    assert bucket.take(1e9, 1.0) == 0
    bucket.set_rate(100.0, 5.0)
    assert bucket.take(100, 5.0) == 1.0


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 500)), max_size=20), st.floats(1, 200), st.floats(0, 100))
def test_no_interval_has_more_than_burst_and_rate(takes: list[tuple[float, float]], rate: float, burst: float) -> None:
    bucket, now, passed = TokenBucket(rate, burst), 0.0, []
    for pause, bits in takes:
        now += pause
        now += bucket.take(bits, now)
        passed.append((now, bits))
    for first, (start, _) in enumerate(passed):
        for last in range(first, len(passed)):
            sent = sum(bits for _, bits in passed[first + 1 : last + 1])
            assert sent <= burst + rate * (passed[last][0] - start) + 1e-6


def test_sends_and_reads_share_one_rate() -> None:
    time = Time()
    limit = RateLimit(8e6, lambda: time.now, time.sleep)
    body = bytes(3_000_000)
    assert b"".join(limit.pieces(body)) == body
    assert limit.read(io.BytesIO(body)) == body
    assert time.now == pytest.approx(6.0 - 0.1)  # without the burst of a tenth of a second


def test_a_rate_is_changed_while_it_sends() -> None:
    time = Time()
    limit = RateLimit(8e6, lambda: time.now, time.sleep)
    for _ in limit.pieces(bytes(1_000_000)):
        limit.bits_per_second = 4e6
    assert limit.bits_per_second == 4e6
    assert time.now == pytest.approx(2.0, abs=0.3)
