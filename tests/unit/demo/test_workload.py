"""Slower means slower, and nothing else."""

import pytest

from tranche.demo.workload import CLOUD_LINK, EDGE_LINK, SITES, Compression, load
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.trainingjob import to_job


def test_slowed_jobs_are_the_same_jobs_with_longer_times() -> None:
    usual, slowed = load(1), load(1, Compression().slowed(3.0))
    assert [(job.name, job.chunks, job.site) for job in slowed] == [(job.name, job.chunks, job.site) for job in usual]
    assert [job.arrival_seconds for job in slowed] == pytest.approx([3 * job.arrival_seconds for job in usual])
    assert [job.chunk_seconds for job in slowed] == pytest.approx([3 * job.chunk_seconds for job in usual])


def test_gangs_are_drawn_among_jobs_of_several_gpus_only() -> None:
    jobs = load(1)
    gangs = [job for job in jobs if job.gang]
    assert len(gangs) >= 3
    assert all(job.chunks == Compression().max_members and not job.site for job in gangs)
    assert all(job.site for job in jobs if not job.gang)
    assert not any(job.gang for job in load(1, gangs=False))


def test_manifests_are_read_as_chunked_jobs_and_gangs() -> None:
    for drawn in load(1):
        job = to_job(TrainingJob.model_validate(drawn.manifest("default")))
        work = job.chunks * job.batches_per_chunk_total * job.step_seconds
        assert work == pytest.approx(drawn.chunks * drawn.chunk_seconds, rel=1e-3)
        assert (job.is_gang, job.servers) == (drawn.gang, 0 if drawn.gang else 1)
        assert job.data_site == (drawn.site or None)


def test_only_paths_to_the_cloud_are_slow() -> None:
    *edges, cloud = SITES
    assert cloud.unlimited
    assert {one.link_to(cloud) for one in edges} == {cloud.link_to(one) for one in edges} == {CLOUD_LINK}
    assert {one.link_to(other) for one in edges for other in edges} == {EDGE_LINK}
