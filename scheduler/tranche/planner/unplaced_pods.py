"""Pods that found no place or that the API server rejected, and what follows for the preemptions of their job.

`tranche.state.placement_record` has the rules.
"""

from collections.abc import Mapping
from math import inf

from tranche.model import Admission, UnplacedPods
from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import exclude_node, hold
from tranche.policies import Policy
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.phases import WindowPhase
from tranche.state.placement_record import PlacementRecord, PreemptionScope, SiteRefusal


def scope_now(cluster: ClusterState, policy: Policy, state: JobState) -> PreemptionScope:
    """Return for how many windows at a time the job may stop workers now (`tranche.state.placement_record`)."""
    if cluster.scheduler_silent or not policy.traits.preemptive:
        return PreemptionScope.NONE
    return cluster.preemption_scope(state)


def preempts_any(cluster: ClusterState, policy: Policy, state: JobState) -> bool:
    """Return whether the job may preempt others now."""
    return scope_now(cluster, policy, state) is not PreemptionScope.NONE


def note_unplaced(
    context: PlannerContext,
    state: JobState,
    node: str | None,
    message: str,
    opened: float = inf,
    *,
    unstarted: bool = False,
) -> int:
    """Record that a pod of the job found no place, or that the API server rejected it; the job preempts no other now.

    Pods that were planned before the last failure belong to the same attempt, which counts once.

    Args:
        context: Context of the planner.
        state: State of the job.
        node: Planned node of the pod; None if the pod did not exist.
        message: What kube-scheduler or the API server said.
        opened: Time at which the pod was planned, in seconds.
        unstarted: Whether the pod had a place, and ended before it started.

    Returns:
        Number of earlier failures since a pod of the job was placed.
    """
    record = state.placement
    record.unstarted = record.unstarted or unstarted
    if node is not None:
        record.nodes[node] = None
    if (record.failures or record.failed_preemptions) and opened <= record.failed_at:
        return max(record.failures - 1, 0)
    before = record.failures
    record.failures, record.placed = before + 1, False
    _pause(context, state, message, max(before, record.failed_preemptions))
    context.touch(state)
    context.publish(state.job.key)
    return before


def note_refusing_cloud(context: PlannerContext, state: JobState, site: str, message: str, opened: float) -> int:
    """Record that a pod of the job found no place at an unlimited site; preemption on nodes goes on.

    Args:
        context: Context of the planner.
        state: State of the job.
        site: The unlimited site.
        message: What kube-scheduler said.
        opened: Time at which the pod was planned, in seconds; pods that were planned before the last failure there
            belong to the same attempt, which counts once.

    Returns:
        Number of earlier failures there since a pod of the job was placed at the site.
    """
    record, settings, now = state.placement, context.settings, context.now
    known = record.refusals.get(site)
    if known is not None and opened < known.at:
        return known.count - 1
    before = known.count if known is not None else 0
    until = now + settings.pause_seconds(settings.preemption_pause_seconds, before)
    record.refusals = {**record.refusals, site: SiteRefusal("", before + 1, until, now)}
    record.message = message
    context.wake(until, state.job.key)
    context.touch(state)
    context.publish(state.job.key)
    return before


def forget_refusals(context: PlannerContext, site: str) -> None:
    """Let all jobs use an unlimited site again that refused them, because it has got a new node."""
    for state in context.cluster.jobs.values():
        record = state.placement
        if site in record.refusals and not record.refusals[site].node:
            record.refusals = {name: refusal for name, refusal in record.refusals.items() if name != site}
            context.touch(state)
            context.publish(state.job.key)


def _pause(context: PlannerContext, state: JobState, message: str, earlier: int) -> None:
    """Let the job preempt no other for a time that doubles with the `earlier` failures."""
    record, settings = state.placement, context.settings
    record.message, record.failed_at = message, context.now
    record.paused_until = context.now + settings.pause_seconds(settings.preemption_pause_seconds, earlier)
    context.wake(record.paused_until, state.job.key)
    _note_failed_preemption(context, state)


def _note_failed_preemption(context: PlannerContext, state: JobState) -> None:
    """Count the last preemption of a job as failed, unless it has succeeded or is counted."""
    record, cluster, settings = state.placement, context.cluster, context.settings
    if record.preempted_at is None:
        return
    record.preempted_at, record.failed_preemptions = None, record.failed_preemptions + 1
    namespace = state.job.namespace
    until = cluster.failed_preemptions.note(namespace, context.now, settings.failed_preemptions_per_hour)
    if until is not None:
        context.wake(until, "")
        _touch_namespace(context, namespace)


def _touch_namespace(context: PlannerContext, namespace: str) -> None:
    """Reconsider all jobs of a namespace, because its restraint has begun or ended."""
    for state in context.cluster.jobs.values():
        if state.job.namespace == namespace:
            context.touch(state)
            context.publish(state.job.key)


def end_restraints(context: PlannerContext) -> None:
    """Let jobs of the namespaces preempt again that have fewer recent failed preemptions now."""
    for namespace in context.cluster.failed_preemptions.end_restraints(context.now):
        _touch_namespace(context, namespace)


def abandon_preemption(context: PlannerContext, state: JobState, message: str) -> None:
    """Count the last preemption of a job as failed, because its user stops the job before its pods have started."""
    if state.placement.preempted_at is not None:
        _pause(context, state, message, state.placement.failed_preemptions)


def renew_placement(context: PlannerContext, state: JobState) -> None:
    """Let a job with a new specification try again: in free capacity at once, and by preemption after a shorter pause.

    Its failed preemptions still count, so that a specification that changes all the time does not stop others all the
    time.
    """
    old, settings = state.placement, context.settings
    state.placement = PlacementRecord(
        preempted_at=old.preempted_at,
        failed_preemptions=old.failed_preemptions,
        message=old.message,
        failed_at=old.failed_at,
    )
    if old.failed_preemptions and old.paused:
        shortened = old.failed_at + settings.pause_seconds(settings.node_exclusion_seconds, old.failed_preemptions - 1)
        state.placement.paused_until = max(context.now, min(old.paused_until, shortened))
        context.wake(state.placement.paused_until, state.job.key)


def hold_unplaced(context: PlannerContext, state: JobState, seconds: float, reason: str) -> None:
    """Hold a job with an unschedulable pod; for long if that was on several different nodes in a row.

    The pods of one attempt count once, because the next attempt may be at another site. The nodes are not forgotten, so
    that a site that has not been tried comes first after the hold.
    """
    record, settings = state.placement, context.settings
    nodes, limit = len(record.nodes), settings.nodes_before_hold
    if nodes >= limit and record.failures % limit == 0:
        seconds, reason = settings.unplaced_hold_seconds, f"{nodes} nodes in a row: {reason}"
    if seconds:
        hold(context, state, seconds, reason)


def note_placed(context: PlannerContext, state: JobState, site: str, *, started: bool = False) -> None:
    """Record that a worker of a job has a place at a site, or has started there; for a gang, all of its members.

    Without its parameter servers and its chief a job does not train, so the record changes only when these have a place
    too, or have started.

    Then the failures of the job are forgotten, but not the sites where its pods found no place
    (`PlacementRecord.refusals`). Failures of pods that had a place and did not start are forgotten only when a pod has
    started. The failed preemptions of the job are forgotten when a preemption has succeeded: when all windows that were
    opened since then have started.
    """
    record = state.placement
    if site in record.refusals:
        record.refusals = {name: refusal for name, refusal in record.refusals.items() if name != site}
    if record.placed and record.preempted_at is None and state.job.admission is Admission.PASSED:
        return
    helpers = sum(server.started if started else server.placed for server in state.servers)
    if helpers < state.job.helper_count or (record.unstarted and not started):
        return
    runs = [run for run in state.runs.values() if not run.closing]
    pending = [run for run in runs if (run.started is None if started else run.phase is WindowPhase.PENDING)]
    if state.job.is_gang and pending:
        return
    limited = context.cluster.preemption_scope(state) is not PreemptionScope.ALL
    preempted_at = record.preempted_at
    if preempted_at is not None and any(run.opened >= preempted_at for run in pending):
        return
    if (preempted_at is None and record.failed_preemptions) or (preempted_at is not None and not started):
        record.refusals = _refusals(context, state, site)
        record.placed, record.failures, record.nodes, record.unstarted = True, 0, {}, False
    else:
        state.placement = PlacementRecord(placed=True, refusals=_refusals(context, state, site))
    if limited:
        context.touch(state)
        context.publish(state.job.key)


def _refusals(context: PlannerContext, state: JobState, placed_at: str) -> Mapping[str, SiteRefusal]:
    """Return the sites where pods of a job found no place, when one is placed at another site."""
    if not state.placement.nodes:
        return state.placement.refusals
    record, settings, known = state.placement, context.settings, dict(state.placement.refusals)
    sites = {context.cluster.nodes[name].node.site: name for name in record.nodes if name in context.cluster.nodes}
    for site, name in sites.items():
        if site != placed_at:
            count = known[site].count if site in known else 0
            until = context.now + settings.pause_seconds(settings.preemption_pause_seconds, count)
            known[site] = SiteRefusal(name, count + 1, until)
            context.wake(until, state.job.key)
    return known


def unplaced_pods(state: JobState, now: float) -> UnplacedPods | None:
    """Return the job's failures to be placed as a value for its plan, with one node of each site that refuses it."""
    record = state.placement
    refusing = {site: refusal for site, refusal in record.refusals.items() if refusal.until > now}
    if not (record.failures or record.failed_preemptions or refusing):
        return None
    held = state.held_until if state.held_until > now else 0.0
    return UnplacedPods(
        record.failures,
        tuple(dict.fromkeys([*record.nodes, *(one.node for one in refusing.values() if one.node)])),
        record.message,
        max([record.failed_at, *(one.at for one in refusing.values())]),
        record.paused_until,
        held,
        record.failed_preemptions,
        record.unstarted,
        tuple(site for site, one in refusing.items() if not one.node),
    )


def restore_unplaced(context: PlannerContext, state: JobState, known: UnplacedPods) -> None:
    """Restore what `unplaced_pods` returned to an earlier planner; the time of a site that refuses begins again.

    The clock of the earlier planner may have been ahead, so that no pause is longer than it was at its beginning.
    """
    paused, held = (_ends(context, known, until) for until in (known.paused_until, known.held_until))
    until = context.now + context.settings.preemption_pause_seconds
    nodes = dict.fromkeys(known.nodes)
    refusals = {site: SiteRefusal("", 1, until, context.now) for site in known.sites}
    if not known.failures:
        hosts = (context.cluster.nodes[name].node for name in nodes if name in context.cluster.nodes)
        refusals |= {host.site: SiteRefusal(host.name, 1, until) for host in hosts}
    state.placement = PlacementRecord(
        placed=not known.failures,
        failed_preemptions=known.failed_preemptions,
        failures=known.failures,
        unstarted=known.unstarted,
        nodes=nodes if known.failures else {},
        refusals=refusals,
        message=known.message,
        failed_at=known.failed_at,
        paused_until=paused,
    )
    if paused:
        context.wake(paused, state.job.key)
    if held > context.now:
        hold(context, state, held - context.now, known.message)


def _ends(context: PlannerContext, known: UnplacedPods, until: float) -> float:
    """Return the end of a pause from the last failure until a time by the clock of the earlier planner."""
    return min(until, context.now + until - known.failed_at) if until else 0.0


def end_preemption_pause(context: PlannerContext, state: JobState) -> None:
    """Let the job preempt again if its pause is over."""
    record = state.placement
    if record.paused and record.paused_until <= context.now:
        record.paused_until = 0.0


def shorten_pauses(context: PlannerContext) -> None:
    """Let jobs that could not be placed try again earlier, because changed nodes may now take their pods.

    A job waits for at least the time for which it excludes a node, so that a node that changes all the time does not
    make it preempt other jobs all the time.
    """
    for state in context.cluster.jobs.values():
        record, settings = state.placement, context.settings
        failures = max(record.failures, record.failed_preemptions)
        if not failures:
            continue
        earliest = record.failed_at + settings.pause_seconds(settings.node_exclusion_seconds, failures - 1)
        at = max(context.now, earliest)
        if record.paused_until > at:
            record.paused_until = at
            context.wake(at, state.job.key)
        if state.held_until > at and state.placement.failures:
            state.held_until = at
            context.wake(at, state.job.key)


def pause_after_refusal(context: PlannerContext, state: JobState, node: str | None, reason: str) -> None:
    """Exclude the node whose kubelet refused a pod for the job; from the second such pod in a row, back off too.

    A gang backs off at once, since all of its pods start again. Meanwhile the job preempts no other.
    """
    exclude_node(context, state, node)
    note_unplaced(context, state, node, reason, unstarted=True)
    before, state.refusals = state.refusals, state.refusals + 1
    if before or state.job.is_gang or node not in context.cluster.nodes:
        pause = context.settings.backoff_seconds(context.settings.failure_backoff_seconds, before)
        hold(context, state, pause, reason)
