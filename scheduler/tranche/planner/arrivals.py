"""Jobs that come: admitted, restored from what an earlier planner wrote, and dispatched."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tranche.estimate import Restarts
from tranche.model import Job, JobPlan, Window, parse_chunks
from tranche.planner import changes, lessons, releases, site_uses, stagings
from tranche.policies import BindingPolicy, Policy, QueuePolicy
from tranche.policies.binding.slot_projection import planned_window
from tranche.state import progress_ledger
from tranche.state.entities import ARRIVED, JobState, NodeState, QueuedChunk, Server, SlotBinding, TrackedWindow

if TYPE_CHECKING:
    from tranche.planner.events import JobSubmitted
    from tranche.planner.machines import Planner


def objection(policy: Policy, job: Job) -> tuple[str, str] | None:
    """Why the policy can never plan this job: a CamelCase reason and a sentence; None if it can."""
    if job.gpus == 0:
        return "NoGpuRequested", "the worker template asks for no GPU: add the GPU resource to its requests"
    if job.is_gang and (job.chunks > 1 or job.helper_count) and not policy.traits.supports_gangs:
        return (
            "GangNotPlanned",
            f"policy {policy.name} plans jobs with spec.data only, and this job is a gang of {job.chunks}: add "
            "spec.data, or choose a policy that plans gangs (such as fifo or srsf)",
        )
    if job.staged and not (isinstance(policy, QueuePolicy) and policy.traits.needs_local_data):
        return (
            "StagingNotPlanned",
            f"policy {policy.name} does not plan where data are brought: leave out spec.data.staging, or choose a "
            "policy that does (such as chunk)",
        )
    return None


def admit(planner: Planner, event: JobSubmitted, now: float) -> None:
    """Make the job known, with its ledger and its running windows; dispatch follows when all are known."""
    job = event.job
    state = planner.cluster.jobs[job.key] = JobState(
        job, idle_since=job.submitted, level_since=now, restarts=Restarts(planner.cluster.restarts)
    )
    state.nominal_batch_seconds = planner.cluster.nominal_batch_seconds(state)
    state.unplannable = objection(planner.policy, job)
    if event.progress is not None:
        progress_ledger.restore(state, event.progress)
        planner.cluster.shares.restore(job.tenant, state.counted_gpu_seconds, job.submitted, now)
    if state.finished and not (event.plan is not None and any(one.is_chief for one in event.plan.servers)):
        lessons.conclude(planner, state)
    else:
        lessons.begin(planner, state, event.progress.learnt if event.progress is not None else 1.0)
    if event.plan is not None:
        _restore_plan(planner, state, event.plan, now)
        _catch_up(planner, state, event.plan, event.outdated)
    changes.settle_busy(state, now)
    if job.suspended or state.unplannable or state.failed:  # nobody may have been there to stop it
        changes.stop(planner, state)
    planner.touch(state)
    planner.publish(job.key)


def remember(planner: Planner, event: JobSubmitted) -> None:
    """Learn what a completed job needed."""
    state = JobState(event.job)
    state.nominal_batch_seconds = planner.cluster.nominal_batch_seconds(state)
    if event.progress is not None:
        progress_ledger.restore(state, event.progress)
    if state.finished:
        lessons.conclude(planner, state)


def _restore_plan(planner: Planner, state: JobState, plan: JobPlan, now: float) -> None:
    state.attempts = plan.attempts
    job = state.job
    for planned in plan.servers if not state.finished or any(one.is_chief for one in plan.servers) else ():
        shape = job.chief if planned.is_chief else job.server
        if shape is None:
            continue
        server = Server(planned, shape.requests, now)
        state.servers.append(server)
        planner.cluster.quotas.take(state.job, planned.attempt, server.requests)
        node = planner.cluster.nodes.get(planned.node or "")
        if node is not None:
            node.reserved = node.reserved + server.requests
    for window in plan.windows:
        if any(c in state.chunk_runs or c in state.done or c >= state.job.chunks for c in window.chunks):
            continue
        state.attempts = max(state.attempts, window.attempt)
        pace = planner.cluster.batch_seconds(state, window.site)
        host = None if planner.cluster.is_unlimited(window.site) else window.node
        told = planner.cluster.told_batch_seconds(state, window.site, node=window.node)
        run = TrackedWindow(
            window, SlotBinding(window.site, host), now, pace, told, adopted=True, held_from=window.start
        )
        changes.attach(planner, state, run)
        if planner.binding is not None:
            bind_window(planner, planner.binding, state, run, window)
    releases.watch(planner, state)
    for site, text in plan.homes.items():
        for chunk in parse_chunks(text):
            if planner.queue is None:
                state.data_sites[chunk] = site
            else:
                state.copy(chunk, site, ARRIVED)
                if planner.cluster.is_unlimited(site):
                    state.burst_sites.add(site)
    if state.job.staged:
        stagings.restore(planner, state, plan.staging, now)


def _catch_up(planner: Planner, state: JobState, plan: JobPlan, outdated: Collection[int]) -> None:
    """The specification may have changed while nobody was there; see `changes`, where somebody is."""
    if plan.generation == state.job.generation:
        return
    stagings.renew(planner, state)
    for run in [run for attempt, run in state.runs.items() if attempt in outdated]:
        run.obsolete = True
        planner.close(state, run)


def bind_window(planner: Planner, policy: BindingPolicy, state: JobState, run: TrackedWindow, window: Window) -> None:
    """Put the chunks of a window that a policy did not place itself (restored, or bound elsewhere) into queues."""
    node = planner.cluster.nodes.get(window.node or "")
    slots = free_slots(node, state.job.gpus) if node is not None else ()
    unlimited = node is None and (window.node is None or planner.cluster.is_unlimited(window.site))
    if not unlimited and len(slots) < state.job.gpus:
        return
    run.home = SlotBinding(window.site, window.node if node is not None else None, slots)
    for chunk in window.chunks:
        key = policy.queue_key(state, chunk, run.batch_seconds)
        planner.cluster.bind(QueuedChunk(key, state, chunk, run.home, run.opened, run.batch_seconds))


def free_slots(node: NodeState, width: int) -> tuple[int, ...]:
    """The first `width` slots of the node that no window holds, or fewer if there are not as many."""
    held = {slot for _, run in node.runs.values() if not run.closing for slot in run.home.slots}
    return tuple(slot for slot in range(len(node.queues)) if slot not in held)[:width]


def dispatch(planner: Planner, policy: BindingPolicy, state: JobState, now: float) -> None:
    """Bind the job's waiting chunks that have no home; chunks that an earlier planner placed stay at their site."""
    unbound = [c for c in state.waiting if c not in state.entries]
    planner.unbound.discard(state.job.key)
    groups: dict[str | None, list[int]] = {}
    for chunk in unbound:
        groups.setdefault(state.data_sites.get(chunk), []).append(chunk)
    for site, chunks in sorted(groups.items(), key=lambda item: item[0] or ""):
        known = site is not None and _site_serves(planner, state, site)
        placements, colocated = policy.dispatch(
            planner.cluster, state, chunks, now, (site,) if known and site is not None else None
        )
        state.colocated = state.colocated or colocated
        for placed in placements:
            began = state.job.submitted if known else now
            ready_at = planner.cluster.begin_copies(state, placed.home.site, 1, began)[0]
            if not known:
                site_uses.copied(planner.cluster, state, (placed.chunk,), placed.home.site)
            entry = QueuedChunk(
                placed.key, state, placed.chunk, placed.home, ready_at, placed.batch_seconds, placed.cost
            )
            planner.cluster.bind(entry)
            node = planner.cluster.nodes.get(placed.home.node or "")
            entry.planned_start, entry.planned_end = planned_window(node, entry, now)
            planner.cluster.dispatched += 1
            state.data_sites[placed.chunk] = placed.home.site
            if placed.home.node is not None:
                planner.dirty_nodes.add(placed.home.node)
            if ready_at > now:
                planner.wake(ready_at, state.job.key)
        if placements:
            planner.publish(state.job.key)
        if len(placements) < len(chunks):
            planner.unbound.add(state.job.key)


def _site_serves(planner: Planner, state: JobState, site: str) -> bool:
    """Whether the site can still take workers of the job."""
    if planner.cluster.is_unlimited(site):
        return True
    return any(node.node.site == site for node in planner.cluster.eligible(state.job.worker))
