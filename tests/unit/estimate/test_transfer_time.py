"""Uploads share links, and measured ones correct what links promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.estimate import Uploads
from tranche.estimate.link_contention import PENALTY_RATIO
from tranche.model import Link

ENDS = ("here", "there")
LINK = Link(8e6, 1.0)
MEGABYTES = 10e6
"""Ten seconds on the link, and a second of latency."""


def test_single_upload_takes_transfer_time_plus_latency() -> None:
    assert Uploads().begin(ENDS, LINK, MEGABYTES, 5.0) == [16.0]


def test_uploads_that_share_a_link_come_one_after_the_other() -> None:
    uploads = Uploads()
    assert uploads.begin(ENDS, LINK, MEGABYTES, 0.0, 2) == [11.0, 21.0]
    assert uploads.begin(ENDS, LINK, MEGABYTES, 0.0) == [31.0]
    assert uploads.begin(("there", "here"), LINK, MEGABYTES, 0.0) == [11.0]
    assert uploads.begin(ENDS, LINK, MEGABYTES, 100.0) == [111.0]


def test_dedicated_link_gives_each_upload_full_bandwidth() -> None:
    uploads, link = Uploads(), Link(8e6, 1.0, dedicated=True)
    assert uploads.begin(ENDS, link, MEGABYTES, 0.0, 3) == [11.0] * 3


def test_uploads_of_one_site_expect_to_share_its_uplink() -> None:
    uploads = Uploads(shares_uplinks=True)
    assert uploads.begin(ENDS, LINK, MEGABYTES, 0.0) == [11.0]
    second = 11.0 * (2 + PENALTY_RATIO)
    assert uploads.begin(("here", "elsewhere"), LINK, MEGABYTES, 0.0) == [pytest.approx(second)]
    assert uploads.begin(("other", "there"), LINK, MEGABYTES, 0.0) == [11.0]
    assert uploads.ready(ENDS, LINK, MEGABYTES, second + 1) == second + 12


def test_uploads_share_uplinks_of_both_sites_if_expected() -> None:
    uploads = Uploads(shares_uplinks=True, shares_targets=True)
    uploads.begin(ENDS, LINK, MEGABYTES, 0.0)
    two, three = 11.0 * (2 + PENALTY_RATIO), 11.0 * (3 + 2 * PENALTY_RATIO)
    assert uploads.begin(("other", "there"), LINK, MEGABYTES, 0.0) == [pytest.approx(two)]
    assert uploads.ready(("there", "elsewhere"), LINK, MEGABYTES, 0.0) == pytest.approx(three)
    assert uploads.ready(("other", "elsewhere"), LINK, MEGABYTES, 0.0) == pytest.approx(two)
    assert uploads.ready(("new", "elsewhere"), LINK, MEGABYTES, 0.0) == 11.0
    assert uploads.slowed_seconds(("there", "elsewhere"), LINK, MEGABYTES, 1e3) == 11.0


def test_cloud_uplink_is_not_shared() -> None:
    uploads = Uploads(shares_uplinks=True, shares_targets=True, clouds={"there"})
    uploads.begin(ENDS, LINK, MEGABYTES, 0.0)
    assert uploads.begin(("other", "there"), LINK, MEGABYTES, 0.0) == [11.0]
    assert uploads.ready(("here", "elsewhere"), LINK, MEGABYTES, 0.0) == pytest.approx(11.0 * (2 + PENALTY_RATIO))


def test_sharing_does_not_count_as_a_slow_link() -> None:
    uploads = Uploads(shares_uplinks=True)
    uploads.begin(ENDS, LINK, MEGABYTES, 0.0)
    uploads.begin(("here", "elsewhere"), LINK, MEGABYTES, 0.0)
    uploads.measured(ENDS, LINK, MEGABYTES, 11.0 * (2 + PENALTY_RATIO), 5.0)
    assert uploads.seconds(ENDS, LINK, MEGABYTES) == pytest.approx(11.0)


def test_measured_uploads_correct_a_link_and_no_other() -> None:
    uploads = Uploads()
    uploads.measured(ENDS, LINK, MEGABYTES, 44.0, 0.0)
    assert uploads.seconds(ENDS, LINK, MEGABYTES) == pytest.approx(44.0)
    assert uploads.seconds(("there", "here"), LINK, MEGABYTES) == 11.0
    for _ in range(20):
        uploads.measured(ENDS, LINK, MEGABYTES, 22.0, 0.0)
    assert uploads.seconds(ENDS, LINK, MEGABYTES) == pytest.approx(22.0, rel=0.01)


@given(st.lists(st.floats(1e-300, 1e300), min_size=1))
def test_no_measurement_makes_an_upload_instant_or_endless(measured: list[float]) -> None:
    uploads = Uploads()
    for seconds in measured:
        uploads.measured(ENDS, LINK, MEGABYTES, seconds, 0.0)
    assert 0.0109 < uploads.seconds(ENDS, LINK, MEGABYTES) < 11_001
