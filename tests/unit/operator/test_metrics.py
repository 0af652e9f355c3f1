"""Metrics of the operator."""

import asyncio
import urllib.request

import pytest

from support.waiting import WAIT_SECONDS
from tranche_operator.health_server import serve_health
from tranche_operator.metrics import OperatorMetrics
from tranche_testcluster import free_port


def test_reconciles_are_timed_and_failures_counted_and_raised() -> None:
    metrics = OperatorMetrics()

    async def good() -> float:
        return 3.0

    async def bad() -> float:
        raise ValueError("unreadable")

    assert asyncio.run(metrics.measure(good())) == 3.0
    with pytest.raises(ValueError, match="unreadable"):
        asyncio.run(metrics.measure(bad()))
    value = metrics.registry.get_sample_value
    assert value("tranche_operator_reconcile_seconds_count") == 2
    assert value("tranche_operator_reconcile_errors_total") == 1


def test_readiness_and_queue_are_as_they_are_when_read() -> None:
    waiting, ready = 0, False
    metrics = OperatorMetrics(lambda: waiting, lambda: ready)
    assert metrics.registry.get_sample_value("tranche_operator_ready") == 0
    waiting, ready = 4, True
    assert metrics.registry.get_sample_value("tranche_operator_queue_jobs") == 4
    assert metrics.registry.get_sample_value("tranche_operator_ready") == 1


def test_they_are_served_beside_the_probes() -> None:
    metrics = OperatorMetrics()
    metrics.count_pod("worker", "created")
    port = free_port()

    async def scenario() -> str:
        async with serve_health(port, str, metrics.render):
            return await asyncio.to_thread(_read, f"http://127.0.0.1:{port}/metrics")

    assert 'tranche_operator_pods_total{result="created",role="worker"} 1.0' in asyncio.run(scenario())


def test_pods_with_names_of_users_share_one_series() -> None:
    metrics = OperatorMetrics()
    for number in range(3):
        metrics.count_pod(f"forged{number}", "deleted")
    labels = {"role": "other", "result": "deleted"}
    assert metrics.registry.get_sample_value("tranche_operator_pods_total", labels) == 3
    assert b"forged" not in metrics.render()


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(reply.read().decode())
