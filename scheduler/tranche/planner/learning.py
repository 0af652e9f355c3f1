"""Learning from ended workers and jobs: the speed of jobs and nodes, restart costs, and the work of templates."""

from tranche.estimate import DECLARED_SIGMA, UNKNOWN_SIGMA
from tranche.model import Job
from tranche.planner.context import PlannerContext
from tranche.planner.events import WorkerEnded
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.progress_ledger import least_measured_batches
from tranche.state.remaining_work import completed_job, nominal_gpu_seconds
from tranche.state.window import TrackedWindow


def predict_size(context: PlannerContext, state: JobState, measured_factor: float) -> None:
    """Predict the size of a new job whose specification does not declare it.

    Args:
        context: Context of the planner, with the policy and the speed model.
        state: State of the job, with its declared nominal speed.
        measured_factor: Measured over predicted seconds of a mini-batch by an earlier planner; 1 without measurements.
    """
    job, cluster = state.job, context.cluster
    state.size_sigma = DECLARED_SIGMA if job.size_declared or measured_factor != 1.0 else UNKNOWN_SIGMA
    if not context.policy.traits.uses_learned_estimates:
        return
    if measured_factor != 1.0:
        cluster.speed_model.assume(job.key, measured_factor)
    elif not job.size_declared:
        size = cluster.history.sizes.predict(_template(job))
        if size is None:
            cluster.speed_model.assume(job.key, 1.0, UNKNOWN_SIGMA)
            state.assumed = True
        else:
            state.size_sigma = cluster.history.sizes.sigma(_template(job))
            cluster.speed_model.assume(job.key, size / _size(job, nominal_gpu_seconds(state)))
    elif context.policy.corrects_declared_sizes and _is_corrected(job):
        factor = cluster.history.declared.factor(job.namespace, nominal_gpu_seconds(state))
        if factor != 1.0:
            cluster.speed_model.assume(job.key, factor)
    state.nominal_batch_seconds = cluster.nominal_batch_seconds(state)


def record_completion(context: PlannerContext, state: JobState) -> None:
    """Record the service that a completed job needed."""
    context.cluster.history.add(completed_job(state, state.counted_gpu_seconds))
    context.cluster.forecast_errors.completed(state.job.key, context.now)
    if context.policy.traits.uses_learned_estimates:
        context.cluster.history.sizes.add(_template(state.job), _size(state.job, state.counted_gpu_seconds))
        if context.policy.corrects_declared_sizes and _is_corrected(state.job):
            declared = nominal_gpu_seconds(state) / context.cluster.speed_model.job_factor(state.job.key)
            context.cluster.history.declared.add(state.job.namespace, declared, state.counted_gpu_seconds)
        context.cluster.speed_model.forget_job(state.job.key)


def learn_pace(
    context: PlannerContext, state: JobState, run: TrackedWindow, event: WorkerEnded, batches: float
) -> None:
    """Compare the pace of an ended worker, which trained `batches` mini-batches, with the prediction.

    Workers that failed, or were stopped without a report, are ignored, because their progress is unknown. Gangs and
    jobs of one chunk are ignored too: their predicted duration is a guess, so their pace says nothing about the node.
    """
    counts = event.outcome == "Succeeded" or (event.outcome == "Preempted" and event.progress is not None)
    if not (context.policy.traits.uses_learned_estimates and counts) or state.job.is_indivisible:
        return
    trained, batches = _measured(context, state, run, event.at, batches)
    if trained <= 0 or batches <= least_measured_batches(state):
        return
    job, site, cluster = state.job, run.home.site, context.cluster
    node = cluster.nodes.get(run.home.node or "")
    kind, name = (node.node.gpu_kind, node.node.name) if node is not None else ("", None)
    if kind in state.job.step_seconds_by_kind:  # its own time there says nothing about the declared speed
        name = None
    state.assumed = False
    speeds, before = cluster.speed_model, cluster.speed_model.kinds.get(kind)
    if speeds.observe(job.key, kind, site, name, trained / batches / run.declared_batch_seconds, trained):
        state.nominal_batch_seconds = cluster.nominal_batch_seconds(state)
        if node is not None:
            node.learn(speeds.node_factor(node.node.name, kind))
    if speeds.kinds.get(kind) is not before:
        for other in cluster.nodes.values():
            if other.node.gpu_kind == kind:
                other.learn(speeds.node_factor(other.node.name, kind))


def _measured(
    context: PlannerContext, state: JobState, run: TrackedWindow, at: float, batches: float
) -> tuple[float, float]:
    """Return the seconds and mini-batches of an ended worker from which its pace follows; 0 if it is unknown.

    They begin with its first report, since that may count what the worker, or a parameter server, found in a
    checkpoint, or what the worker trained under an earlier planner. Without reports they begin with its start, unless
    an earlier planner opened the window and the ledger has more of its chunks: this worker may have trained that.
    """
    if run.first_report is not None:
        began, counted = run.first_report
        return at - began, batches - counted
    known = state.job.batches_per_chunk_total * len(run.window.chunks) - state.batches_left(run.window.chunks)
    unknown = run.adopted and known - batches > least_measured_batches(state)
    if run.started is None or unknown or not context.settings.learns_from_silent_windows:
        return 0.0, 0.0
    return at - run.started, batches


def note_start(cluster: ClusterState, state: JobState, run: TrackedWindow) -> None:
    """Record the start time of a worker, unless its slot was not free or its pod existed already.

    Starts at an unlimited site are ignored, because they may include the wait for a new node.
    """
    known = not (run.adopted or run.handover or run.window.renewed or cluster.is_unlimited(run.home.site))
    if known and run.started is not None and run.started >= run.opened:
        state.restarts.started(run.started - run.opened)


def note_stop(state: JobState, run: TrackedWindow, event: WorkerEnded) -> None:
    """Record the time that a stopped worker took to save, unless it had ended before it was to stop."""
    if run.closed is not None and run.started is not None and event.outcome == "Preempted" and event.at >= run.closed:
        state.restarts.saved(max(0.0, event.at - max(run.closed, run.started)))


def forget_learned_speed(context: PlannerContext, state: JobState) -> None:
    """Discard what was learned about a job whose declared speed changed, because it was relative to the old one."""
    context.cluster.speed_model.forget_job(state.job.key)
    state.assumed = False
    predict_size(context, state, 1.0)


def _is_corrected(job: Job) -> bool:
    """Return whether policies may correct the declared size of the job, and learn from it."""
    return job.size_declared and job.is_indivisible


def _template(job: Job) -> str:
    """Return the template key of a job; indivisible jobs have one of their own, since their size has another unit."""
    return f"{job.template} whole" if job.template and job.is_indivisible else job.template


def _size(job: Job, gpu_seconds: float) -> float:
    """Return the size to compare between jobs of a template: GPU-seconds of an indivisible job, else per mini-batch."""
    return gpu_seconds if job.is_indivisible else gpu_seconds / (job.chunks * job.batches_per_chunk_total)
