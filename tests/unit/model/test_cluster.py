import math
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.model import Job, Link, Node, PodShape, Resources, Site

amounts = st.builds(Resources, *[st.integers(0, 2**40) for _ in range(4)])


@given(amounts, amounts)
def test_adding_and_taking_away_cancel(first: Resources, second: Resources) -> None:
    assert first + second - second == first
    assert first + second == second + first


@given(amounts, amounts)
def test_a_request_fits_where_nothing_falls_below_zero(request: Resources, room: Resources) -> None:
    rest = room - request
    assert request.fits(room) is (min(rest.cpu, rest.memory, rest.gpus, rest.pods) >= 0)
    assert request.fits(request + room)


@pytest.mark.parametrize(
    "room", [Resources(1, 9, 9, 9), Resources(9, 1, 9, 9), Resources(9, 9, 1, 9), Resources(9, 9, 9, 1)]
)
def test_one_resource_that_is_short_is_enough_to_refuse(room: Resources) -> None:
    assert not Resources(2, 2, 2, 2).fits(room)
    assert Resources(2, 2, 2, 2).fits(Resources(2, 2, 2, 2))


@pytest.mark.parametrize(
    ("request_", "free"),
    [
        (Resources(0, 1, 1, 1), Resources(-1, 9, 9, 9)),
        (Resources(1, 0, 1, 1), Resources(9, -1, 9, 9)),
        (Resources(1, 1, 0, 1), Resources(9, 9, -1, 9)),
    ],
)
def test_resource_that_is_not_requested_does_not_count(request_: Resources, free: Resources) -> None:
    """As in `fitsRequest` of kube-scheduler; each pod counts as one pod."""
    assert request_.fits(free)
    assert not Resources(1, 1, 1, 1).fits(free)
    assert not Resources(pods=1).fits(Resources(9, 9, 9, -1))


def test_gpus_of_another_resource_are_no_room_for_a_request() -> None:
    amd, nvidia = Resources(9, 9, 9, 9, "amd.com/gpu"), Resources(9, 9, 9, 9, "nvidia.com/gpu")
    assert Resources(1, 1, 1, 1, "amd.com/gpu").fits(amd)
    assert not Resources(1, 1, 1, 1, "amd.com/gpu").fits(nvidia)
    assert Resources(1, 1, 0, 1).fits(amd)
    assert (amd - Resources(1, 1, 0, 1)).gpu_resource == "amd.com/gpu"


def test_nothing_fits_into_nothing() -> None:
    assert Resources().fits(Resources())


def test_bytes_travel_at_bits_per_second_after_the_latency() -> None:
    assert math.isclose(Link(100e6, 0.02).transfer_seconds(64 * 2**20), 0.02 + 64 * 2**20 * 8 / 100e6)
    assert Link(1e9, 0.5).transfer_seconds(0) == 0.5


def test_values_are_frozen_and_their_maps_cannot_be_changed() -> None:
    site, node = Site("edge-a"), Node("edge-a-0", "edge-a", Resources())
    with pytest.raises(FrozenInstanceError):
        site.name = "edge-b"  # type: ignore[misc]
    with pytest.raises(TypeError):
        site.links["cloud"] = Link(1.0)  # type: ignore[index]
    with pytest.raises(TypeError):
        node.labels["a"] = "b"  # type: ignore[index]


def test_a_chunk_is_finished_by_epochs_times_batches() -> None:
    shape = PodShape(Resources(cpu=1000, gpus=2, pods=1))
    job = Job("ns/a", "uid", 0.0, shape, chunks=27, epochs=40, batches_per_chunk=58)
    assert job.batches_per_chunk_total == 2320
    assert job.gpus == 2
