"""Policies that distribute all workers at once: who may have how many, and whose workers stop for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tranche.policies.drafts import competitors, most_units

if TYPE_CHECKING:
    from tranche.planner.machines import Planner
    from tranche.planner.queues import JobQueue


def distribute(planner: Planner, queue: JobQueue, now: float) -> None:
    """Have the policy distribute the workers anew if somebody has come or gone since it last did.

    Before the turns of a decision: these give each job at most what it was granted.
    """
    if not queue.policy.distributes:
        return
    cluster = planner.cluster
    sharing = tuple((s.job.key, s.job.generation, most_units(s)) for s in competitors(cluster, now))
    if queue.distributed == (cluster.epoch, sharing):
        return
    queue.distributed = (cluster.epoch, sharing)
    scarce = not any(cluster.unlimited_sites())
    draft = queue.policy.distribute(cluster, now) if scarce else None
    for state in cluster.jobs.values():
        state.granted, state.place = (0 if scarce else None), 0
    for place, state in enumerate(draft.jobs if draft is not None else ()):
        assert draft is not None
        state.granted, state.place = draft.workers(state), place
    for state, run in list(draft.stopped()) if draft is not None else ():
        if not run.closing:
            planner.close(state, run)
    queue.stale.update(dict.fromkeys(cluster.jobs))
    queue.grown.add("")
