"""Shares of bandwidth and batch in the response to a report."""

from typing import Any

import pytest

from support.operator_objects import plan, training_job, window
from tranche.kube.api.resources import TrainingJob
from tranche.worker_api.allocation import allocations


def served_job(*windows: dict[str, Any], chunks: int | None = None, **communication: Any) -> TrainingJob:
    """Return a job with a parameter server: chunks of 20 batches, gradients of 1 Mbit, a port of 3 Mbit/s.

    By default, its windows hold all of its chunks.
    """
    whole = {"bandwidthShares": "sasp-like", "serverBandwidth": "3M", **communication}
    spec = {"model": {"stepTime": "2s", "gradientSize": "125k"}, "communication": whole}
    chunks = chunks or 1 + max(chunk for one in windows for chunk in one["chunks"])
    return training_job(chunks=chunks, servers=1, spec=spec, status={"plan": plan(*windows)})


def gang(**communication: Any) -> TrainingJob:
    """Return a gang of three members with a batch of 96 samples."""
    whole = {"batching": "loft-like", "batchSize": 96, **communication}
    return training_job(chunks=None, workers=3, spec={"communication": whole})


def bandwidths(job: TrainingJob, applied: dict[int, float], seconds: dict[int, float]) -> dict[int, float]:
    """Return the bit/s of each worker, by the seconds in which each computes a batch."""
    found = allocations(job, applied, {worker: [(1.0, one, 0.0)] for worker, one in seconds.items()})
    assert found is not None
    return {worker: share["bitsPerSecond"] for worker, share in found.items()}


def test_a_job_that_asks_for_no_shares_receives_none() -> None:
    assert allocations(training_job(), {}, {}) is None
    assert allocations(training_job(spec={"communication": {"barrier": 2}}), {}, {}) is None


def test_shares_minimize_the_latest_end_of_the_open_windows() -> None:
    windows = [window(0, 1, chunks=[0, 1, 2, 3, 4]), window(1, 2, chunks=[5, 6, 7]), window(2, 3, chunks=[8, 9, 10])]
    job = served_job(*windows)
    applied = {5: 10.0, 8: 10.0}
    found = bandwidths(job, applied, {0: 1.0, 1: 2.0, 2: 4.0})
    assert found == pytest.approx({0: 1.13148e6, 1: 0.565741e6, 2: 1.30278e6}, rel=1e-5)


def test_shares_follow_windows_that_end_and_new_speeds() -> None:
    windows = [window(index, index + 1, chunks=[index]) for index in range(3)]
    assert bandwidths(served_job(*windows), {}, {}) == pytest.approx(dict.fromkeys(range(3), 1e6))
    fewer = bandwidths(served_job(windows[0], {**windows[1], "state": "Closing"}, windows[2]), {1: 20.0}, {})
    assert fewer == pytest.approx({0: 1.5e6, 2: 1.5e6})
    faster = bandwidths(served_job(*windows[:2]), {}, {0: 1.0, 1: 2.0})
    assert faster[0] < faster[1]
    done = bandwidths(served_job(*windows[:2]), {1: 20.0}, {})
    assert set(done) == {0}


def test_shares_are_equal_while_chunks_wait() -> None:
    job = served_job(window(0, 1, chunks=[0]), window(1, 2, chunks=[1]), chunks=3)
    seconds = {0: 1.0, 1: 4.0}
    assert bandwidths(job, {}, seconds) == pytest.approx({0: 1.5e6, 1: 1.5e6})
    assert bandwidths(job, {2: 20.0}, seconds)[1] > 1.6e6


def test_decoupled_and_limited_workers_have_their_own_rules() -> None:
    windows = [window(0, 1, chunks=[0, 1]), window(1, 2, chunks=[2])]
    found = bandwidths(served_job(*windows, decoupled=True), {}, {0: 0.1, 1: 0.1})
    assert found == pytest.approx({0: 2e6, 1: 1e6})
    limited = bandwidths(served_job(*windows, workerBandwidth="500k", bandwidthShares="equal"), {}, {})
    assert limited == pytest.approx({0: 5e5, 1: 5e5})


def test_batches_are_equal_until_every_member_is_measured() -> None:
    one = {0: [(32.0, 0.3, 0.0)]}
    assert allocations(gang(), {}, one) == {member: {"samples": 32} for member in range(3)}


def test_batches_even_out_computation_and_fetches() -> None:
    seconds = {0: (0.01, 0.0), 1: (0.02, 0.0), 2: (0.01, 0.02)}
    iterations = {
        member: [(samples, 0.1 + compute * samples, fetch * samples) for samples in (16.0, 32.0)]
        for member, (compute, fetch) in seconds.items()
    }
    found = {}
    for batching in ("loft-like", "lb-bsp-like", "equal"):
        shares = allocations(gang(batching=batching), {}, iterations)
        assert shares is not None
        found[batching] = [share["samples"] for share in shares.values()]
    assert found["loft-like"] == [52, 26, 18]
    assert sorted(found["lb-bsp-like"]) == [19, 38, 39]
    assert found["equal"] == [32, 32, 32]
