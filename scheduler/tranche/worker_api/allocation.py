"""Shares of bandwidth and batch for the workers of a job: the response to a progress report.

The shares depend only on the job, its present plan and the report. So they follow windows that open and end and new
speeds, every replica computes the same ones, and there is nothing to restore.
"""

from collections.abc import Mapping, Sequence
from math import inf

from tranche.estimate.iteration.bandwidth_share import (
    RULES,
    Rule,
    WorkerLoad,
    decoupled_shares,
    equal_shares,
    min_max_shares,
)
from tranche.estimate.iteration.batch_size import SampleTime, equal_split, fitted, split
from tranche.kube.api.resources import Communication, TrainingJob
from tranche.kube.convert.trainingjob import declared_step_seconds
from tranche.model.quantity import parse_quantity

Iterations = Mapping[int, Sequence[tuple[float, float, float]]]
"""Last iterations by worker: samples, seconds of computation, seconds of fetches before it."""
UNMEASURED = SampleTime(0.0, 1.0)
"""Model of a worker to correct by its iterations."""


def allocations(
    job: TrainingJob, applied: Mapping[int, float], iterations: Iterations
) -> dict[int, dict[str, float]] | None:
    """Return the share of each worker as JSON values; None if the job asks for none.

    Args:
        job: The job with its present plan.
        applied: Mini-batches by chunk that the model has applied.
        iterations: Last iterations by worker.
    """
    asked = job.spec.communication
    if asked is None or (asked.bandwidth_shares is None and asked.batching is None):
        return None
    shares: dict[int, dict[str, float]] = {}
    for worker, bits in _bandwidths(job, asked, applied, iterations).items():
        shares.setdefault(worker, {})["bitsPerSecond"] = bits
    for worker, samples in enumerate(_batch_sizes(job, asked, iterations)):
        shares.setdefault(worker, {})["samples"] = samples
    return shares


def _bandwidths(
    job: TrainingJob, asked: Communication, applied: Mapping[int, float], iterations: Iterations
) -> dict[int, float]:
    """Return the bit/s of each worker with a window that has batches left."""
    model, data, plan = job.spec.model, job.spec.data, job.status.plan
    if asked.bandwidth_shares is None or asked.server_bandwidth is None or model is None or data is None or not plan:
        return {}
    measured = {worker: sum(one[1] for one in last) / len(last) for worker, last in iterations.items() if last}
    usual = sum(measured.values()) / len(measured) if measured else declared_step_seconds(job)
    link = float(parse_quantity(asked.worker_bandwidth)) if asked.worker_bandwidth is not None else inf
    whole = data.epochs * data.batches_per_chunk
    left = {chunk: max(0.0, whole - applied.get(chunk, 0.0)) for chunk in range(data.chunks)}
    windows = [window for window in plan.workers if window.state == "Open"]
    loads = [
        WorkerLoad(measured.get(window.index, usual), sum(left.get(chunk, 0.0) for chunk in window.chunks), link)
        for window in windows
    ]
    held = {chunk for window in windows for chunk in window.chunks}
    rule = _rule(asked, waiting=any(batches for chunk, batches in left.items() if chunk not in held))
    bits = 8.0 * float(parse_quantity(model.gradient_size or 0))
    shares = rule(loads, bits, float(parse_quantity(asked.server_bandwidth)))
    return {window.index: share for window, share in zip(windows, shares, strict=True) if 0 < share < inf}


def _rule(asked: Communication, *, waiting: bool) -> Rule:
    """Return the rule that the job asks for.

    The SaSP-like rule is for the last windows. While chunks wait, a worker whose window ends requests more, so the
    latest end of the present windows does not matter, and shares are equal [I].
    """
    if asked.bandwidth_shares != "sasp-like":
        return RULES[asked.bandwidth_shares or "equal"]
    if waiting:
        return equal_shares
    return decoupled_shares if asked.decoupled else min_max_shares


def _batch_sizes(job: TrainingJob, asked: Communication, iterations: Iterations) -> Sequence[int]:
    """Return the samples of each member of a gang: equal ones until every member has been measured."""
    if asked.batching is None or asked.batch_size is None:
        return ()
    members = range(job.spec.workers.max_replicas)
    if asked.batching == "equal" or not all(iterations.get(member) for member in members):
        return equal_split(len(members), asked.batch_size)
    fetches = asked.batching == "loft-like"
    prior = SampleTime(UNMEASURED.fixed_seconds, UNMEASURED.seconds_per_sample, asked.smallest_part)
    models = [
        fitted([(samples, compute + fetch * fetches) for samples, compute, fetch in iterations[member]], prior)
        for member in members
    ]
    return split(models, asked.batch_size).sizes
