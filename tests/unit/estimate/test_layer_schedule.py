"""Tests of the DeepProphet-like iteration times against the worked numbers of the page, and their properties."""

from dataclasses import replace
from random import Random

import pytest

from tranche.estimate.layer_graph import NETWORKS, Device, LayerTime, layer_times, lstm
from tranche.estimate.layer_schedule import (
    ServerPorts,
    Worker,
    all_reduce_seconds,
    asynchronous_seconds,
    gradients_ready,
    pulls,
    pushes,
    synchronous_seconds,
)

LAYERS = tuple(LayerTime(*one) for one in ((1.0, 2.0, 1.0), (2.0, 4.0, 2.0), (3.0, 6.0, 8.0)))
"""Three layers in ms and MB."""
FAST = Worker(LAYERS, 1.0, 1.0)
SLOW = Worker(
    tuple(LayerTime(2 * f.forward_seconds, 2 * f.backward_seconds, f.gradient_bits) for f in LAYERS), 1.0, 1.0
)


def test_pushes_and_pulls_as_worked() -> None:
    assert gradients_ready(LAYERS) == (18.0, 16.0, 12.0)
    assert pushes(FAST) == (23.0, 22.0, 20.0)
    assert pulls(FAST, pushes(FAST)) == (31.0, 30.0, 28.0)
    assert asynchronous_seconds(FAST) == 31.0


def test_slow_worker_delays_synchronous_iteration() -> None:
    assert gradients_ready(SLOW.layers) == (36.0, 32.0, 24.0)
    assert pushes(SLOW) == (37.0, 34.0, 32.0)
    assert pulls(FAST, pushes(SLOW)) == (43.0, 42.0, 40.0)
    assert synchronous_seconds([FAST, SLOW]) == 43.0


@pytest.mark.parametrize(("half_duplex", "seconds"), [(False, 44.0), (True, 88.0)])
def test_server_port_bounds_four_workers(half_duplex: bool, seconds: float) -> None:
    ports = ServerPorts(1, 1.0, half_duplex)
    assert ports.bound_seconds(4, 11.0) == seconds
    assert asynchronous_seconds(FAST, ports, 4) == seconds
    assert synchronous_seconds([FAST] * 4, ports) == seconds
    assert synchronous_seconds([FAST] * 4, ServerPorts(2, 1.0)) == 31.0


def test_ring_of_two_takes_a_push_alone() -> None:
    """With two workers, 2(n - 1)/n is 1: the ring takes the time of the pushes."""
    assert all_reduce_seconds([LAYERS, LAYERS], 1.0) == 23.0
    assert all_reduce_seconds([LAYERS] * 4, 1.0) == max(12 + 12, 16) + 3 + 1.5
    assert all_reduce_seconds([LAYERS], 1.0) == 18.0


def _worker(random: Random) -> Worker:
    layers = tuple(LayerTime(*(random.uniform(0, 9) for _ in range(3))) for _ in range(random.randint(1, 7)))
    return Worker(layers, random.uniform(0.2, 5), random.uniform(0.2, 5))


@pytest.mark.parametrize("seed", range(60))
def test_iteration_within_proved_bounds(seed: int) -> None:
    worker = _worker(Random(seed))
    compute = sum(one.forward_seconds + one.backward_seconds for one in worker.layers)
    forward, total = (
        sum(one.forward_seconds for one in worker.layers),
        sum(one.gradient_bits for one in worker.layers),
    )
    up, down = total / worker.up_bits_per_second, total / worker.down_bits_per_second
    first = worker.layers[0].gradient_bits / worker.down_bits_per_second
    seconds = asynchronous_seconds(worker)
    assert seconds >= compute
    assert seconds >= forward + worker.layers[-1].backward_seconds + up + first - 1e-9
    assert seconds <= compute + up + down + 1e-9
    assert asynchronous_seconds(Worker(worker.layers)) == pytest.approx(compute)


@pytest.mark.parametrize("seed", range(60))
def test_iteration_grows_with_each_input(seed: int) -> None:
    random = Random(f"monotone {seed}")
    worker = _worker(random)
    index, name = (
        random.randrange(len(worker.layers)),
        random.choice(("forward_seconds", "backward_seconds", "gradient_bits")),
    )
    layers = list(worker.layers)
    layers[index] = replace(layers[index], **{name: getattr(layers[index], name) + 1.0})
    grown = replace(worker, layers=tuple(layers))
    for other in (grown, replace(worker, up_bits_per_second=worker.up_bits_per_second / 2)):
        assert asynchronous_seconds(other) >= asynchronous_seconds(worker) - 1e-9
        assert synchronous_seconds([other, other]) >= synchronous_seconds([worker, worker]) - 1e-9
    assert synchronous_seconds([grown, worker]) >= asynchronous_seconds(worker) - 1e-9


@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds"),
    [
        ("alexnet", 61_100_840, 0.714e9),
        ("vgg16", 138_357_544, 15.47e9),
        ("resnet18", 11_689_512, 1.814e9),
        ("resnet50", 25_557_032, 4.089e9),
    ],
)
def test_networks_have_published_sizes(name: str, parameters: int, multiply_adds: float) -> None:
    layers = NETWORKS[name]()
    assert sum(layer.parameters for layer in layers) == parameters
    assert sum(layer.multiply_adds for layer in layers) == pytest.approx(multiply_adds, rel=2e-3)


def test_language_networks_count_their_parameters() -> None:
    base = sum(layer.parameters for layer in NETWORKS["transformer"]())
    assert base == 37000 * 512 + 6 * (3_152_384 + 4_204_032)  # embedding, and the blocks of encoder and decoder
    medium = sum(layer.parameters for layer in lstm())
    assert medium == 2 * 6_500_000 + 10_000 + 2 * (8 * 650 * 650 + 8 * 650)


def test_roofline_takes_the_slower_of_flops_and_bytes() -> None:
    layers = NETWORKS["alexnet"]()
    many, few = layer_times(layers, Device(1e12, 1e12), 64), layer_times(layers, Device(1e12, 1e9), 1, 1.5)
    assert many[0].forward_seconds == pytest.approx(2 * 64 * layers[0].multiply_adds / 1e12)
    assert few[-1].forward_seconds == pytest.approx(1.5 * 4 * (4096 * 1000 + 1000 + 5096) / 1e9)
    assert few[-1].backward_seconds == 2 * few[-1].forward_seconds
    assert few[-1].gradient_bits == 32 * (4096 * 1000 + 1000)


def test_example_without_overlap_takes_40() -> None:
    """Computation, pushes and pulls one after the other; with overlap the iteration takes 31."""
    computation = sum(layer.forward_seconds + layer.backward_seconds for layer in LAYERS)
    transfer = sum(layer.gradient_bits for layer in LAYERS) / FAST.up_bits_per_second
    assert computation + 2 * transfer == 40.0
    assert asynchronous_seconds(FAST) == 31.0


@pytest.mark.parametrize("seed", range(30))
def test_slower_pulls_never_shorten_an_iteration(seed: int) -> None:
    worker = _worker(Random(f"down {seed}"))
    slower = replace(worker, down_bits_per_second=worker.down_bits_per_second / 2)
    assert asynchronous_seconds(slower) >= asynchronous_seconds(worker)
    assert synchronous_seconds([slower, worker]) >= synchronous_seconds([worker, worker])
