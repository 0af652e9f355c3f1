"""Contention for links: worked numbers of the published model, and conservation of what is sent."""

from random import Random

import pytest

from tranche.estimate.link_contention import LinkLoads, SharedLinks, unit_seconds
from tranche.estimate.transfer_start import ada_dual, fewer_than, largest_ratio

ALONE, PENALTY = 0.856, 0.235
"""10 Gbit/s Ethernet, in ms per MB."""


def links(alone: float = ALONE, penalty: float = PENALTY) -> SharedLinks[str, str]:
    return SharedLinks(LinkLoads(lambda _: alone, penalty / alone))


def run(shared: SharedLinks[str, str], sent: list[tuple[float, str, float, str]]) -> dict[str, float]:
    """Start transfers (time, name, units, links by letter) in order; return when each ends."""
    ends: dict[str, float] = {}
    for start, name, units, path in [*sent, (1e9, "", 0.0, "")]:
        while (first := shared.next_end())[0] <= start and first[1] is not None:
            shared.end(first[1], first[0])
            ends[first[1]] = first[0]
        if name:
            shared.start(name, units, path, start)
    return ends


@pytest.mark.parametrize(
    ("transfers", "seconds", "speed"), [(1, 0.856, None), (2, 1.947, 0.513611), (3, 3.038, 0.329164)]
)
def test_unit_time_of_k_transfers_is_that_of_the_source(transfers: int, seconds: float, speed: float | None) -> None:
    assert unit_seconds(transfers, ALONE, PENALTY) == pytest.approx(seconds, abs=1e-12)
    assert speed is None or round(1 / unit_seconds(transfers, ALONE, PENALTY), 6) == speed


def test_two_equal_transfers_end_together() -> None:
    assert run(links(), [(0.0, "a", 100.0, "x"), (0.0, "b", 100.0, "x")]) == pytest.approx({"a": 194.7, "b": 194.7})


def test_transfers_one_after_the_other_take_their_own_time() -> None:
    assert run(links(), [(0.0, "a", 100.0, "x"), (85.6, "b", 100.0, "x")]) == pytest.approx({"a": 85.6, "b": 171.2})


@pytest.mark.parametrize(
    ("new", "shared", "serial", "starts"),
    [(30.0, (58.41, 118.33), (111.28, 85.6), True), (40.0, (77.88, 129.24), (119.84, 85.6), False)],
)
def test_ada_dual_chooses_the_smaller_sum_of_ends(
    new: float, shared: tuple[float, float], serial: tuple[float, float], starts: bool
) -> None:
    together = run(links(), [(0.0, "old", 100.0, "x"), (0.0, "new", new, "x")])
    apart = run(links(), [(0.0, "old", 100.0, "x"), (85.6, "new", new, "x")])
    assert (together["new"], together["old"]) == pytest.approx(shared)
    assert (apart["new"], apart["old"]) == pytest.approx(serial)
    assert ada_dual(ALONE, PENALTY)(new, [100.0], 1) is starts is (sum(shared) < sum(serial))


def test_ada_dual_waits_beside_larger_or_more_transfers() -> None:
    rule = ada_dual(ALONE, PENALTY)
    assert round(largest_ratio(ALONE, PENALTY), 4) == 0.3923
    assert rule(500.0, [], 0)
    assert not rule(100.0, [100.0], 1)
    assert not rule(1.0, [100.0, 100.0], 2)
    assert not rule(30.0, [100.0, 50.0], 1)  # on different links; the second is too short


def test_srsf_n_counts_transfers_on_the_fullest_link() -> None:
    assert [fewer_than(2)(1.0, [], most) for most in (0, 1, 2)] == [True, True, False]


def test_one_transfer_alone_takes_its_size_over_the_capacity() -> None:
    bits, capacity = 8e8, 1e9
    assert run(links(1 / capacity, 0.0), [(5.0, "a", bits, "x")])["a"] == pytest.approx(5.0 + 0.8, rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_k_equal_transfers_end_together_at_the_printed_time(count: int) -> None:
    ends = run(links(), [(0.0, str(number), 60.0, "xy") for number in range(count)])
    assert list(ends.values()) == pytest.approx([60 * (count * ALONE + (count - 1) * PENALTY)] * count, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("penalty", [0.0, PENALTY])
def test_shares_stay_within_capacity_and_bits_are_conserved(seed: int, penalty: float) -> None:
    draw, shared = Random(seed), links(ALONE, penalty)
    units = {str(number): draw.uniform(1.0, 100.0) for number in range(20)}
    starts = sorted((draw.uniform(0.0, 400.0), name) for name in units)
    sent, now = dict.fromkeys(units, 0.0), 0.0
    while starts or shared.transfers:
        end, ended = shared.next_end()
        following = min(end, starts[0][0] if starts else end)
        for link in "xyz":
            rates = [1 / one.unit_seconds for one in shared.on(link)]
            assert sum(rates) <= 1 / ALONE * (1 + 1e-9)
        alone = [1 / one.unit_seconds for one in shared.transfers.values() if one.links == ("x",)]
        if penalty == 0 and alone and len(alone) == len(list(shared.on("x"))):
            assert sum(alone) == pytest.approx(1 / ALONE)
        for name, one in shared.transfers.items():
            sent[name] += (following - now) / one.unit_seconds
        now = following
        if now == end and ended is not None:
            assert shared.end(ended, now) == pytest.approx(0.0, abs=1e-9)
        else:
            name = starts.pop(0)[1]
            before = {key: one.unit_seconds for key, one in shared.transfers.items()}
            shared.start(name, units[name], draw.sample("xyz", draw.randint(1, 2)), now)
            assert all(shared.transfers[key].unit_seconds >= seconds for key, seconds in before.items())
    assert sent == pytest.approx(units)
    assert not shared.loads.loads


def test_slowest_link_of_a_path_decides() -> None:
    loads = LinkLoads[str]({"fast": 1.0, "slow": 5.0}.__getitem__, 0.5)
    loads.change(["fast", "slow"], 1.0)
    loads.change(["fast"], 1.0)
    assert (loads.unit_seconds(["fast"]), loads.unit_seconds(["fast", "slow"])) == (2.5, 5.0)
    assert loads.unit_seconds([]) == 0.0


def test_transfer_that_pauses_counts_in_part_for_others() -> None:
    loads = LinkLoads[str](lambda _: 2.0, 0.5)
    loads.change(["x"], 0.25)
    loads.change(["x"], 1.0)
    assert loads.unit_seconds(["x"], own=0.25) == unit_seconds(2.0, 2.0, 1.0)
    assert loads.unit_seconds(["x"], own=1.0) == unit_seconds(1.25, 2.0, 1.0)
