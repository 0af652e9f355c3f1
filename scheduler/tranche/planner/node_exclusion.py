"""Exclusion of nodes on which pods of different jobs fail or are refused (`tranche.state.node_health`), and trials.

An excluded node is not eligible for any pod of ours, as if it were cordoned; pods that run there continue. An
exclusion ends when its node is uncordoned or replaced, so that a repaired node is used at once.
"""

from math import floor

from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import unbind_chunks
from tranche.planner.job_queue import can_use_window
from tranche.planner.scheduling.placement import count_fitting
from tranche.state.helper import Server
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.node_health import LONGEST_DETAIL, Exclusion, ExclusionPhase, PodResult
from tranche.state.window import TrackedWindow

LOSS_SECONDS = 180.0
"""Time in seconds after the failure of its workers within which a parameter server turns out to be lost: Kubernetes
notices a dead node in about 50 s, and the pods there are lost a minute later."""


def avoid_after_failure(context: PlannerContext, state: JobState, node: str | None) -> None:
    """Exclude a node for the job because its pod failed there, for longer each time, unless it needs that node.

    The failure may be the node's. If the job could not run without the nodes where its pods have failed, it tries all
    of them again.
    """
    if node is None or node not in context.cluster.nodes:
        return
    before = state.node_failures.get(node, 0)
    state.node_failures[node] = before + 1
    pause = context.settings.node_exclusion_seconds * 2.0 ** min(before, 30)
    until = context.now + min(pause, context.settings.health.longest_seconds)
    state.excluded_nodes[node] = max(until, state.excluded_nodes.get(node, 0.0))
    others = [one for one in context.cluster.hosts(state) if not state.excludes(one.node.name, context.now)]
    members, rooms = state.job.min_available, (one.capacity for one in others)
    if count_fitting(state.job.worker.requests, rooms, members) == members:
        context.wake(state.excluded_nodes[node], state.job.key)
        return
    for name in state.node_failures:
        state.excluded_nodes.pop(name, None)


def note_problem(
    context: PlannerContext,
    state: JobState,
    name: str | None,
    problem: str,
    *,
    counted: bool = False,
    lasted: float = 0.0,
) -> PodResult | None:
    """Record that a pod of the job failed or was refused on a node, and exclude the node if that is one of several.

    Args:
        context: Context of the planner.
        state: State of the pod's job.
        name: Name of the node; nodes of unlimited sites and removed nodes are ignored.
        problem: What happened, in a few words without the name of the job, because all users may read it.
        counted: Whether it counts towards the back-off limit of the job; a node that explains it takes it back.
        lasted: Time in seconds for which the pod ran.

    Returns:
        What was recorded; None if nothing was.
    """
    cluster, now = context.cluster, context.now
    health, node = cluster.health, cluster.nodes.get(name or "")
    if node is None:
        return None
    result = PodResult(state.job.key, now, problem[:LONGEST_DETAIL], counted, lasted)
    health.note(node.node.name, result)
    known = health.exclusions.get(node.node.name)
    if known is None or known.phase is ExclusionPhase.RECOVERED:
        _exclude(context, node, known)
    elif known.phase is ExclusionPhase.TRIAL and health.is_evidence(known.node, result):
        known.detail = result.problem
        if counted and state.job.backoff_limit and health.count_evidence(known.node, result.job, known.until) == 1:
            _take_back(context, state, result)
        if health.evidence(known.node, known.until):
            _begin(context, node, known, known.count)
    _end_unfounded(context)
    _take_back_failures(context, node.node.name, state)
    return result


def excuse_gang(context: PlannerContext, state: JobState, run: TrackedWindow) -> None:
    """Take back the failure that stopped a gang when another member of it turns out to be lost with its node.

    The members that remain lose their connections and fail long before the node counts as lost.
    """
    result = state.gang_failure
    if result is not None and result.counted and result.at > run.opened_at and not state.failed:
        _take_back(context, state, result)


def note_worker_failure(context: PlannerContext, state: JobState, result: PodResult | None) -> None:
    """Record a failure that counts of a worker of a chunked job with servers; others that fail with it do not count."""
    state.disconnected_at = context.now
    known = [one for one in state.worker_failures if context.now - one.at <= LOSS_SECONDS]
    state.worker_failures = [*known, result or PodResult(state.job.key, context.now, counted=True)]


def excuse_workers(context: PlannerContext, state: JobState, server: Server, *, counted: bool) -> None:
    """Let the workers of a chunked job that fail because this parameter server has ended not count as failures.

    Failures of the last minutes are taken back. Workers may fail before it ends: it saves, or its node is not known to
    be lost. At most `backoff_limit` failures of a job are taken back, besides those with a server that counts itself.

    Args:
        context: Context of the planner.
        state: State of the job.
        server: The server, which did not end because its job was stopped.
        counted: Whether its end counts as a failure of the job.
    """
    state.disconnected_at = context.now
    since = max(server.since, context.now - LOSS_SECONDS)
    for result in state.worker_failures if not state.failed else ():
        if result.counted and result.at >= since and (counted or state.uncounted_failures < state.job.backoff_limit):
            state.uncounted_failures += not counted
            _take_back(context, state, result)
    state.worker_failures = []


def _take_back_failures(context: PlannerContext, node: str, last: JobState) -> None:
    """Take the failures that a node explains off the counts of their jobs, at most `backoff_limit` of each job.

    The job may be the cause as well as the node, so a job that always fails must end.

    Args:
        context: Context of the planner.
        node: Name of the node.
        last: The job that had a problem there last. Other jobs that have failed remain so.
    """
    health = context.cluster.health
    since = context.now - health.settings.memory_seconds
    for result in health.explained(node, since):
        state = context.cluster.jobs.get(result.job)
        if not result.counted or state is None or result.at < state.job.submitted:
            continue
        if state.uncounted_failures < state.job.backoff_limit and (state is last or not state.failed):
            state.uncounted_failures += 1
            _take_back(context, state, result)


def _take_back(context: PlannerContext, state: JobState, result: PodResult) -> None:
    result.counted = False
    state.failures -= 1
    context.publish(state.job.key)


def note_trained(context: PlannerContext, state: JobState, run: TrackedWindow) -> None:
    """Record that a worker has trained on its node, which passes its trial if there is one."""
    name, health = run.home.node or "", context.cluster.health
    if name not in context.cluster.nodes:
        return
    health.note(name, PodResult(state.job.key, context.now))
    known = health.exclusions.get(name)
    if known is not None and known.phase is ExclusionPhase.TRIAL and _is_on_trial(known, run):
        _recover(context, known)


def note_started(context: PlannerContext, run: TrackedWindow) -> None:
    """Set a timer for the time at which a worker that has started passes the trial of its node."""
    known = context.cluster.health.exclusions.get(run.home.node or "")
    if known is not None and known.phase is ExclusionPhase.TRIAL:
        context.wake(context.now + context.settings.health.proof_seconds, "")


def review(context: PlannerContext, *, is_due: bool) -> None:
    """Pass on trials that need another job, and if a timer is due begin and end trials and forget old recoveries."""
    _pass_on_trials(context)
    if not is_due:
        return
    now = context.now
    for known in list(context.cluster.health.exclusions.values()):
        node = context.cluster.nodes.get(known.node)
        if known.phase is ExclusionPhase.TRIAL:
            if node is not None and _passed(context, node, known):
                _recover(context, known)
            elif _trial_end(context, known) <= now:
                _end_exclusion(context, known)
        elif known.until <= now:
            if known.phase is ExclusionPhase.RECOVERED or node is None:
                context.cluster.health.exclusions.pop(known.node)
            else:
                known.phase = ExclusionPhase.TRIAL
                context.wake(_trial_end(context, known), "")
                _put_failed_jobs_last(context, known, node)
                _admit(context, node)


def _pass_on_trials(context: PlannerContext) -> None:
    """Let other jobs try the nodes on trial whose job has no open window there any more.

    The pods of one job may fail through the job alone. If no other job waits for the node, it is excluded again, for as
    long as before.
    """
    health = context.cluster.health
    for known in list(health.lasting()):
        node, job = context.cluster.nodes.get(known.node), known.trial_job
        if node is None or known.phase is not ExclusionPhase.TRIAL or not job:
            continue
        if any(state.job.key == job for state, run in node.runs.values() if not run.closing):
            continue
        if health.count_evidence(known.node, job, known.until) and not _another_tries(context, known, node):
            _begin(context, node, known, known.count - 1)
        else:
            known.trial_job = ""
            _admit(context, node, for_trial=True)


def _another_tries(context: PlannerContext, known: Exclusion, node: NodeState) -> bool:
    """Return whether another job tries the node now after the failure of its trial job, which may do so once a trial.

    Where jobs block those behind them, the job that has failed would be the next one again.
    """
    if _queue_is_strict(context) or known.trial_job in known.failed_jobs:
        return False
    _end_wait_for_trial(context, known)
    others = (one for one in context.cluster.jobs.values() if one.job.key != known.trial_job)
    if not any(_could_use_node(context, one, node) for one in others):
        return False
    known.failed_jobs.append(known.trial_job)
    _put_failed_jobs_last(context, known, node)
    return True


def _queue_is_strict(context: PlannerContext) -> bool:
    """Return whether a job that waits blocks those behind it, so that no other job can try a node before it."""
    return context.queue is not None and context.queue.policy.traits.head_of_line_blocking


def _could_use_node(context: PlannerContext, state: JobState, node: NodeState) -> bool:
    """Return whether a worker of the job could open a window on the node, whatever runs there."""
    return (
        can_use_window(state, context.now)
        and not state.excludes(node.node.name, context.now)
        and node.misfit(state.job.worker) is None
    )


def _put_failed_jobs_last(context: PlannerContext, known: Exclusion, node: NodeState) -> None:
    """Let jobs whose pods have failed wait for the trial of a node if another job could try it now.

    A job that fails everywhere, or on purpose, would fail the trial of a good node. If jobs block those behind them, no
    other could try it before.
    """
    known.put_last = {}
    if _queue_is_strict(context):
        return
    until = context.now + context.settings.health.first_seconds
    jobs = context.cluster.jobs.values()
    failed = [
        one for one in jobs if one.node_failures and not one.training_workers and can_use_window(one, context.now)
    ]
    if not failed or not any(not one.node_failures and _could_use_node(context, one, node) for one in jobs):
        return
    for state in failed:
        before = state.excluded_nodes.get(node.node.name, 0.0)
        if before < until:
            known.put_last[state.job.key] = until, before
            state.excluded_nodes[node.node.name] = until
        context.wake(max(before, until), state.job.key)


def _end_wait_for_trial(context: PlannerContext, known: Exclusion) -> None:
    """Let the jobs use the node that have left its trial to others."""
    for key, (until, before) in known.put_last.items():
        state = context.cluster.jobs.get(key)
        if state is None or state.excluded_nodes.get(known.node) != until:
            continue
        if before > context.now:
            state.excluded_nodes[known.node] = before
            context.wake(before, key)
        else:
            del state.excluded_nodes[known.node]
        context.touch(state)
    known.put_last = {}


def restore(context: PlannerContext, exclusions: list[Exclusion]) -> None:
    """Continue the exclusions that an earlier planner decided, for nodes that still exist."""
    for known in exclusions:
        node = context.cluster.nodes.get(known.node)
        is_same = node is not None and known.uid in ("", node.node.uid)
        if node is not None and is_same and node.node.site == known.site and context.settings.health.jobs:
            known.trial_job = ""
            context.cluster.health.exclusions[known.node] = known
            context.wake(_trial_end(context, known) if known.phase is ExclusionPhase.TRIAL else known.until, "")
            if known.takes_no_pods:
                context.cluster.set_exclusion_reason(node, known.reason)


def repaired(context: PlannerContext, name: str) -> None:
    """Forget the health of a node that was removed, moved to another site, or uncordoned."""
    context.cluster.health.forget(name)
    node = context.cluster.nodes.get(name)
    if node is not None and node.exclusion_reason:
        _admit(context, node)


def _trial_end(context: PlannerContext, known: Exclusion) -> float:
    """Return when a trial without a result ends: the problems that led to it do not count any more by then."""
    return known.until + context.settings.health.memory_seconds


def _passed(context: PlannerContext, node: NodeState, known: Exclusion) -> bool:
    proof = context.settings.health.proof_seconds
    return any(
        run.started is not None and _is_on_trial(known, run) and context.now - run.started >= proof
        for _, run in node.runs.values()
        if not run.closing
    )


def _is_on_trial(known: Exclusion, run: TrackedWindow) -> bool:
    """Return whether the window opened after the trial of its node began; plans have whole seconds."""
    return run.opened_at >= floor(known.until)


def _exclude(context: PlannerContext, node: NodeState, earlier: Exclusion | None) -> None:
    """Exclude the node if its last results suffice and its site may have one more excluded node."""
    cluster, health, now = context.cluster, context.cluster.health, context.now
    evidence = health.evidence(node.node.name, now - health.settings.memory_seconds)
    if not evidence:
        return
    site, jobs = node.node.site, {one.job for one in evidence}
    namespaces = len({one.namespace for one in evidence})
    free, weaker = health.room(site, len(cluster.free.nodes_at(site)), namespaces)
    if not free:
        return
    if weaker is not None:
        _end_exclusion(context, weaker)
    reason, uid = evidence[-1].problem, node.node.uid
    known = Exclusion(node.node.name, site, now, now, len(jobs), namespaces, reason, uid=uid)
    health.exclusions[node.node.name] = known
    _begin(context, node, known, earlier.count if earlier is not None else 0)


def _begin(context: PlannerContext, node: NodeState, known: Exclusion, before: int) -> None:
    """Begin an exclusion after `before` others in a row."""
    known.count, known.phase, known.trial_job, known.failed_jobs = before + 1, ExclusionPhase.EXCLUDED, "", []
    known.until = context.now + context.settings.health.exclusion_seconds(before)
    context.cluster.health.started += 1
    context.wake(known.until, "")
    context.cluster.set_exclusion_reason(node, known.reason)
    for entry in node.entries():
        if entry.chunk not in entry.state.chunk_runs:
            unbind_chunks(context, entry.state, (entry.chunk,))
    context.work.nodes.add(node.node.name)
    context.capacity_changed()


def _recover(context: PlannerContext, known: Exclusion) -> None:
    known.phase, known.trial_job = ExclusionPhase.RECOVERED, ""
    known.until = context.now + context.settings.health.memory_seconds
    context.cluster.health.clear_results(known.node)
    context.wake(known.until, "")
    _end_wait_for_trial(context, known)
    node = context.cluster.nodes.get(known.node)
    if node is not None:
        _admit(context, node)


def _end_unfounded(context: PlannerContext) -> None:
    """End first exclusions whose evidence has become void, because the same jobs have problems on most nodes."""
    health = context.cluster.health
    for known in list(health.lasting()):
        if known.count == 1 and health.has_results(known.node) and not health.evidence(known.node):
            _end_exclusion(context, known)


def _end_exclusion(context: PlannerContext, known: Exclusion) -> None:
    del context.cluster.health.exclusions[known.node]
    _end_wait_for_trial(context, known)
    node = context.cluster.nodes.get(known.node)
    if node is not None:
        _admit(context, node)


def _admit(context: PlannerContext, node: NodeState, *, for_trial: bool = False) -> None:
    """Let pods of ours start on the node again."""
    context.cluster.set_exclusion_reason(node, "", for_trial=for_trial)
    context.work.nodes.add(node.node.name)
    context.capacity_changed()
