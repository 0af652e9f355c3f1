"""Time of communication by topology level."""

import pytest

from support.builders import gang, job
from tranche.estimate import LevelNetwork

NETWORK = LevelNetwork((400e9, 100e9, 10e9, 1e9))


@pytest.mark.parametrize(("level", "seconds"), [(0, 0.00375), (1, 0.015), (2, 0.15), (3, 1.5)])
def test_ring_of_four_sends_one_and_a_half_gradients(level: int, seconds: float) -> None:
    one = gang("a", members=4, gradient_bits=1e9)
    assert NETWORK.ring_seconds(one, level) == pytest.approx(seconds, rel=1e-12)


def test_one_gpu_sends_nothing() -> None:
    assert NETWORK.ring_seconds(job("a", gradient_bits=1e9), 3) == 0.0


def test_ring_counts_the_gpus_of_all_members() -> None:
    wide = gang("a", members=2, gradient_bits=1e9, worker=job("b").worker)
    assert NETWORK.ring_seconds(wide, 2) == pytest.approx(0.1)


def test_wider_level_with_faster_links_is_no_faster() -> None:
    network = LevelNetwork((10e9, 100e9))
    assert network.slowest(1) == network.slowest(0) == 10e9


@pytest.mark.parametrize("capacities", [(), (1e9, 0.0)])
def test_network_needs_a_positive_capacity(capacities: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="capacity above 0"):
        LevelNetwork(capacities)
