"""Counting what jobs use at each site: GPU time, completed chunks, and copies of data; the same live and simulated.

Source: ours [I]. What is counted:

* GPU-seconds that workers hold, from the opening of a window to the end of its pod, times the GPUs of a worker; of
  these, the GPU-seconds that they train.
* Chunks, where they were completed first. A chunk that has to train again, because a parameter server lost what it had
  not saved, does not count twice.
* Bytes of uploads that were begun: one `chunk_bytes` for each chunk and upload, none to the site of the data itself. A
  copy is unused if no worker trains from it: the chunk is completed at another site, another upload of the chunk to
  the same site begins before the first one was of use, or the job is deleted. A copy that may still be of use is
  not counted as unused.
"""

from collections.abc import Iterable

from tranche.model import SiteProgress, Tier
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.site_usage import JobUse, SiteUsage, usage_of
from tranche.state.window import TrackedWindow


def count_uploads(cluster: ClusterState, state: JobState, chunks: Iterable[int], site: str) -> None:
    """Count uploads of chunks to the site that begin now."""
    job = state.job
    if job.data_site is None or job.data_site == site or not job.chunk_bytes:
        return
    unused, number, repeated = state.use.unused.setdefault(site, set()), 0, 0
    for chunk in chunks:
        number += 1
        repeated += chunk in unused
        unused.add(chunk)
    for usage in _amounts(cluster, state, site) if number else ():
        usage.add(copied_bytes=number * job.chunk_bytes, in_vain_bytes=repeated * job.chunk_bytes)


def count_all_uploads(cluster: ClusterState, state: JobState, chunks: Iterable[int], site: str) -> None:
    """Count uploads of all data of the job to the site, unless an earlier planner has begun them."""
    usage = state.use.sites.get(site)
    if usage is None or not usage.copied_bytes:
        count_uploads(cluster, state, chunks, site)


def count_window_uploads(cluster: ClusterState, state: JobState, chunks: Iterable[int], site: str) -> None:
    """Count uploads by the worker of a window that opens, for chunks that no earlier window had at the site."""
    present = state.use.trained_chunks.get(site, ())
    count_uploads(cluster, state, [chunk for chunk in chunks if chunk not in present], site)


def count_window(cluster: ClusterState, state: JobState, run: TrackedWindow, at: float) -> None:
    """Count the GPU time and the completed chunks of an ended window, whose batches are in the ledger.

    Args:
        cluster: State with the totals of sites and namespaces.
        state: State of the job.
        run: The ended window.
        at: End of its pod or, if the pod trains other chunks now, the beginning of these, in seconds.
    """
    use, site, gpus = state.use, run.window.site, max(1, state.job.gpus)
    trained = max(0.0, at - run.started) if run.started is not None else 0.0
    held = max(trained, at - _held_since(run)) if _has_held(cluster, run) else 0.0
    for usage in _amounts(cluster, state, site):
        usage.gpu_seconds += held * gpus
        usage.trained_gpu_seconds += trained * gpus
    if run.started is not None:
        use.trained_chunks.setdefault(site, set()).update(run.window.chunks)
    for chunk in run.window.chunks if run.started is not None else ():
        use.unused.get(site, set()).discard(chunk)
        if chunk not in use.counted:
            use.trained_at[chunk] = site
        if chunk not in state.done:
            break  # chunks of a window train in their order
    count_completions(cluster, state, run.window.chunks)


def count_completions(cluster: ClusterState, state: JobState, chunks: Iterable[int]) -> None:
    """Count the chunks that are done and were not counted before."""
    use = state.use
    for chunk in chunks:
        if chunk not in state.done or chunk in use.counted:
            continue
        use.counted.add(chunk)
        site = use.trained_at.pop(chunk, None)
        for usage in _amounts(cluster, state, site) if site is not None else ():
            usage.chunks += 1
        for unused_site, unused in use.unused.items():
            if chunk in unused:
                unused.discard(chunk)
                for usage in _amounts(cluster, state, unused_site):
                    usage.add(in_vain_bytes=state.job.chunk_bytes)


def count_removal(cluster: ClusterState, state: JobState, now: float) -> None:
    """Count the windows of a deleted job, and its copies as unused."""
    for run in state.runs.values():
        count_window(cluster, state, run, now)
    for site, unused in state.use.unused.items():
        for usage in _amounts(cluster, state, site):
            usage.add(in_vain_bytes=len(unused) * state.job.chunk_bytes)
        unused.clear()


def progress_of(state: JobState) -> tuple[SiteProgress, ...]:
    """Return the amounts of the job as a value, by site."""
    use = state.use
    return tuple(
        SiteProgress(
            site,
            usage.gpu_seconds,
            usage.trained_gpu_seconds,
            usage.chunks,
            usage.copied_bytes,
            usage.in_vain_bytes,
            frozenset(use.unused.get(site, ())),
        )
        for site, usage in sorted(use.sites.items())
    )


def restore(state: JobState, sites: Iterable[SiteProgress]) -> None:
    """Set the job's amounts to what an earlier planner wrote; the totals begin with this planner."""
    state.use = JobUse(counted=set(state.done))
    for progress in sites:
        state.use.sites[progress.site] = SiteUsage(
            progress.gpu_seconds,
            progress.trained_gpu_seconds,
            progress.chunks,
            progress.copied_bytes,
            progress.in_vain_bytes,
        )
        if unused := {chunk for chunk in progress.unused if chunk < state.job.chunks} - state.done:
            state.use.unused[progress.site] = unused


def _amounts(cluster: ClusterState, state: JobState, site: str) -> tuple[SiteUsage, ...]:
    """Return the amounts of the job and of all jobs at the site, and those of the job's namespace at all sites."""
    declared = cluster.sites.get(site)
    place = (site, declared.tier if declared is not None else Tier.EDGE)
    return (
        usage_of(state.use.sites, site),
        usage_of(cluster.site_uses, place),
        usage_of(cluster.namespace_uses, state.job.namespace),
    )


def _has_held(cluster: ClusterState, run: TrackedWindow) -> bool:
    """Return whether the window held GPUs; at an unlimited site, only a window with a node does."""
    return run.started is not None or run.window.node is not None or not cluster.is_unlimited(run.window.site)


def _held_since(run: TrackedWindow) -> float:
    """Return the time when the window opened; for a window of an earlier planner, the time in its plan."""
    return run.window.start if run.window.renewed else run.opened_at
