"""Robust rules for gradients, at a parameter server and over an all-reduce."""

import importlib
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations
from queue import SimpleQueue

import numpy as np
import pytest

from numpy_ps.aggregation import RULES, mean, median, trimmed_mean
from numpy_ps.all_reduce import Collective, connect, reduce_segments
from numpy_ps.models import Array, Network
from support.waiting import WAIT_SECONDS

VALUES, WEIGHTS = np.array([[1.0], [2.0], [100.0]]), np.array([0.5, 0.3, 0.2])


def collectives(size: int) -> list[Collective]:
    """Return connected workers of one process."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(size)]
    addresses = [one.getsockname() for one in listening]
    with ThreadPoolExecutor(size) as threads:
        made = list(threads.map(lambda rank: connect(rank, addresses, listening[rank]), range(size)))
    for one in listening:
        one.close()
    return made


def reduced(workers: list[Collective], gradients: Array, weights: Array, rule: str) -> list[Array]:
    """Return the result of an all-reduce at each worker."""
    with ThreadPoolExecutor(len(workers)) as threads:
        return list(threads.map(lambda one: one.reduce(gradients[one.rank], weights[one.rank], rule), workers))


def test_rules_give_the_values_of_the_example() -> None:
    assert mean(VALUES, WEIGHTS) == pytest.approx([21.1])
    assert median(VALUES, WEIGHTS) == [1.0]
    assert trimmed_mean(VALUES, WEIGHTS, 0.2) == pytest.approx([1.5])


@pytest.mark.parametrize("rule", RULES)
def test_aggregate_of_equal_gradients_is_that_gradient(rule: str) -> None:
    draw = np.random.default_rng(1)
    gradient, weights = draw.standard_normal(20), draw.uniform(0.1, 1, 6)
    assert RULES[rule](np.tile(gradient, (6, 1)), weights) == pytest.approx(gradient)


def test_an_outlier_below_half_the_weight_stays_in_range() -> None:
    draw = np.random.default_rng(2)
    for seed in range(30):
        gradients = draw.standard_normal((5, 8))
        weights = draw.uniform(0.1, 1, 5)
        weights[seed % 5] = 0.45 * (weights.sum() - weights[seed % 5])
        others = np.delete(gradients, seed % 5, 0)
        gradients[seed % 5] = 1e6 * draw.choice((-1, 1), 8)
        found = median(gradients, weights)
        assert (others.min(0) <= found).all()
        assert (found <= others.max(0)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize(
    ("rule", "size"), [("median", 3), ("median", 7), ("trimmed-mean", 5), ("trimmed-mean", 7), ("trimmed-mean", 11)]
)
def test_gradient_that_is_not_finite_stays_outside(rule: str, bad: float, size: int) -> None:
    """A member with a failing GPU, or whose loss has overflowed, must not make the model of all useless."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        gradients, weights = draw.standard_normal((size, 6)), np.full(size, 7 / (7 * size))
        gradients[seed % size] = bad
        found, others = RULES[rule](gradients, weights), np.delete(gradients, seed % size, 0)
        assert (others.min(0) <= found).all()
        assert (found <= others.max(0)).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_reduce_equals_the_parameter_server(rule: str, size: int) -> None:
    draw = np.random.default_rng(size)
    gradients, weights = draw.standard_normal((size, 37)), draw.uniform(0.1, 1, size)
    workers = collectives(size)
    for found in reduced(workers, gradients, weights, rule):
        assert found == pytest.approx(RULES[rule](gradients, weights), abs=1e-6)
    for one in workers:
        one.close()


class Channels:
    """Vectors on their way between the members of one process, of which receivers must know the length."""

    def __init__(self, size: int) -> None:
        self._queues = {pair: SimpleQueue[Array]() for pair in permutations(range(size), 2)}

    def exchange(self, rank: int, outgoing: Mapping[int, Array], lengths: Mapping[int, int]) -> dict[int, Array]:
        for peer, vector in outgoing.items():
            self._queues[rank, peer].put(vector)
        received = {peer: self._queues[peer, rank].get(timeout=WAIT_SECONDS) for peer in lengths}
        assert {peer: len(vector) for peer, vector in received.items()} == lengths
        return received


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("length", [2, 37])
def test_segments_over_any_exchange_equal_the_server(rule: str, length: int) -> None:
    draw = np.random.default_rng(length)
    gradients, weights, channels = draw.standard_normal((3, length)), draw.uniform(1, 9, 3), Channels(3)
    with ThreadPoolExecutor(3) as threads:
        found = threads.map(
            lambda n: reduce_segments(gradients[n], float(weights[n]), rule, n, 3, partial(channels.exchange, n)),
            range(3),
        )
        for one in found:
            assert one == pytest.approx(RULES[rule](gradients, weights), abs=1e-12)


def test_robust_rules_of_torch_gang_import_without_torch() -> None:
    assert callable(importlib.import_module("torch_gang.robust").aggregate)


def test_all_reduce_sends_as_much_as_a_ring() -> None:
    workers, length = collectives(4), 100_000
    reduced(workers, np.ones((4, length)), np.ones(4), "median")
    for one in workers:
        assert one.sent_bytes == pytest.approx(2 * 3 / 4 * length * 8, rel=1e-3)
        one.close()


def trained_loss(rule: str, attack: float, workers: list[Collective] | None) -> float:
    """Return the loss after 60 rounds of five workers, of which one sends a multiple of its gradient."""
    network, draw = Network(inputs=6, hidden=8, classes=3, decay=1e-3), np.random.default_rng(3)
    x = draw.standard_normal((150, 6))
    y = (x @ draw.standard_normal((6, 3))).argmax(1)
    parameters, weights = network.initial(0), np.full(5, 0.2)
    for step in range(60):
        parts = np.array_split(np.random.default_rng(step).permutation(150), 5)
        gradients = np.stack([network.gradient(parameters, x[rows], y[rows]) for rows in parts])
        gradients[4] *= attack
        if workers is None:
            parameters = parameters - 0.5 * RULES[rule](gradients, weights)
        else:
            parameters = parameters - 0.5 * reduced(workers, gradients, weights, rule)[0]
    return network.loss(parameters, x, y)


def test_an_attacker_ruins_the_mean_and_not_the_robust_rules() -> None:
    clean = trained_loss("mean", 1.0, None)
    assert trained_loss("mean", -10.0, None) > 5 * clean
    for rule in ("median", "trimmed-mean"):
        assert trained_loss(rule, -10.0, None) < 1.35 * clean


def test_attacked_all_reduce_with_median_trains_as_a_server() -> None:
    workers = collectives(5)
    over_sockets = trained_loss("median", -10.0, workers)
    assert over_sockets == pytest.approx(trained_loss("median", -10.0, None), abs=1e-6)
    for one in workers:
        one.close()
