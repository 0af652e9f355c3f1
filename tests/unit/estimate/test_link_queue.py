"""Uploads of several tenants on one link have equal shares of it; those of one tenant come one after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.estimate import Uploads
from tranche.model import Link

ENDS = ("here", "there")
LINK = Link(8e6)
"""A megabyte a second."""
MEGABYTE = 1e6


def begin(uploads: Uploads, tenant: str, megabytes: float, now: float, count: int = 1) -> list[float]:
    return uploads.begin(ENDS, LINK, megabytes * MEGABYTE, now, count, tenant)


def test_second_tenant_has_half_of_the_link() -> None:
    uploads = Uploads()
    assert begin(uploads, "a", 100.0, 0.0) == [100.0]
    assert begin(uploads, "b", 10.0, 0.0, 2) == [20.0, 40.0]
    assert begin(uploads, "c", 1.0, 0.0) == [3.0]


def test_short_uploads_of_others_are_waited_for_once() -> None:
    uploads = Uploads()
    begin(uploads, "a", 10.0, 0.0)
    assert begin(uploads, "b", 100.0, 0.0) == [110.0]
    assert begin(uploads, "b", 100.0, 0.0) == [210.0]


def test_shares_up_to_now_are_counted() -> None:
    uploads = Uploads()
    begin(uploads, "a", 10.0, 0.0)
    begin(uploads, "b", 100.0, 0.0)
    assert begin(uploads, "b", 1.0, 15.0) == [pytest.approx(111.0)]
    assert begin(uploads, "a", 1.0, 50.0) == [pytest.approx(52.0)]
    assert uploads.busy() == {ENDS: pytest.approx(112.0)}
    assert begin(uploads, "a", 1.0, 1000.0) == [1001.0]


UPLOADS = st.tuples(st.sampled_from("abc"), st.floats(0.1, 1e4), st.floats(0.0, 100.0), st.integers(1, 3))


@given(st.lists(UPLOADS, min_size=1, max_size=20))
def test_link_does_all_work_and_no_upload_waits_beyond_it(drawn: list[tuple[str, float, float, int]]) -> None:
    shared, whole, now = Uploads(), Uploads(), 0.0
    alone = {tenant: Uploads() for tenant in "abc"}
    for tenant, megabytes, wait, count in drawn:
        now += wait
        ends = begin(shared, tenant, megabytes, now, count)
        last = begin(whole, "", megabytes, now, count)[-1]
        best = begin(alone[tenant], "", megabytes, now, count)
        assert all(least * (1 - 1e-9) <= end <= last * (1 + 1e-9) for least, end in zip(best, ends, strict=True))
        assert shared.busy()[ENDS] == pytest.approx(last)
