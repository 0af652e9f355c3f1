"""Time of an iteration from the times of its layers: computation, and the transfers that overlap with it.

Design ours [I], after the abstract of Network Scheduling for Distributed Machine Learning (HKUST thesis, 2019),
whose DeepProphet predicts iteration times from the dataflow graph and the hardware [P of the abstract]; no formula of
it was read. Therefore the page calls this model DeepProphet-like. Worked numbers:
docs/reference/systems/deepprophet-like.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from tranche.estimate.layer_graph import LayerTime


@dataclass(frozen=True, slots=True)
class Worker:
    """Worker with its own layer times and the rates of its transfers, after contention."""

    layers: tuple[LayerTime, ...]
    """From the input to the output."""
    up_bits_per_second: float = inf
    down_bits_per_second: float = inf


@dataclass(frozen=True, slots=True)
class ServerPorts:
    """Ports of a job's parameter servers, among which the parameters are divided evenly."""

    servers: int
    bits_per_second: float
    """Capacity of one port, per direction if it is full duplex."""
    half_duplex: bool = False
    """Whether pushes and pulls share the port in time."""

    def bound_seconds(self, workers: int, gradient_bits: float) -> float:
        """Return the least time of an iteration in which all workers push and pull all gradients once."""
        moved = workers * gradient_bits * (2 if self.half_duplex else 1)
        return moved / (self.servers * self.bits_per_second)


def gradients_ready(layers: Sequence[LayerTime]) -> tuple[float, ...]:
    """Return D, the ends of the layers' backward passes: D_l = Σ f + Σ_{k ≥ l} g_k."""
    forward = sum(layer.forward_seconds for layer in layers)
    ends = accumulate((layer.backward_seconds for layer in reversed(layers)), initial=forward)
    return tuple(ends)[:0:-1]


def transfers(ready: Sequence[float], seconds: Iterable[float]) -> tuple[float, ...]:
    """Return the ends of transfers on one link, from the last layer to the first: max(end of the next, ready) + time.

    Args:
        ready: Earliest start of each layer's transfer, from the input to the output.
        seconds: Times of the transfers alone, in the same order.
    """
    ends: list[float] = []
    for moment, time in zip(reversed(ready), reversed(tuple(seconds)), strict=True):
        ends.append(max(ends[-1] if ends else 0.0, moment) + time)
    return tuple(reversed(ends))


def pushes(worker: Worker) -> tuple[float, ...]:
    """Return the ends of the pushes of a worker's gradients."""
    times = (layer.gradient_bits / worker.up_bits_per_second for layer in worker.layers)
    return transfers(gradients_ready(worker.layers), times)


def pulls(worker: Worker, ready: Sequence[float]) -> tuple[float, ...]:
    """Return the ends of a worker's pulls of parameters, each of which begins when its layer is `ready`."""
    return transfers(ready, (layer.gradient_bits / worker.down_bits_per_second for layer in worker.layers))


def asynchronous_seconds(worker: Worker, ports: ServerPorts | None = None, workers: int = 1) -> float:
    """Return the iteration time of a worker that waits for no other one (ASP).

    Args:
        worker: The worker.
        ports: Ports of the parameter servers; None if they limit nothing.
        workers: Number of workers that share the ports.
    """
    return max(pulls(worker, pushes(worker))[0], _bound(ports, workers, worker.layers))


def synchronous_seconds(workers: Sequence[Worker], ports: ServerPorts | None = None) -> float:
    """Return the iteration time of workers that wait for each other in each layer (BSP)."""
    ready = [max(ends) for ends in zip(*(pushes(worker) for worker in workers), strict=True)]
    slowest = max(pulls(worker, ready)[0] for worker in workers)
    return max(slowest, _bound(ports, len(workers), workers[0].layers))


def all_reduce_seconds(workers: Sequence[Sequence[LayerTime]], bits_per_second: float) -> float:
    """Return the iteration time of workers that reduce each layer's gradients over a ring.

    Args:
        workers: Layer times of each worker.
        bits_per_second: Rate of the slowest link of the ring.
    """
    ready = [max(ends) for ends in zip(*(gradients_ready(layers) for layers in workers), strict=True)]
    share = 2.0 * (len(workers) - 1) / len(workers) / bits_per_second
    return transfers(ready, (share * layer.gradient_bits for layer in workers[0]))[0]


def _bound(ports: ServerPorts | None, workers: int, layers: Sequence[LayerTime]) -> float:
    return ports.bound_seconds(workers, sum(layer.gradient_bits for layer in layers)) if ports is not None else 0.0
