"""Slower means slower, and nothing else."""

import pytest

from tranche.demo.workloads import Compression, load


def test_slowed_jobs_are_the_same_jobs_with_longer_times() -> None:
    usual, slowed = load(1), load(1, Compression().slowed(3.0))
    assert [(job.name, job.chunks, job.site) for job in slowed] == [(job.name, job.chunks, job.site) for job in usual]
    assert [job.arrival_seconds for job in slowed] == pytest.approx([3 * job.arrival_seconds for job in usual])
    assert [job.chunk_seconds for job in slowed] == pytest.approx([3 * job.chunk_seconds for job in usual])
