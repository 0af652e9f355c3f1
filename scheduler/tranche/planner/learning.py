"""What the ends of workers and jobs teach: how fast a job and a node are, and how much work a template needs."""

from tranche.model import Job
from tranche.planner.context import PlannerContext
from tranche.planner.events import WorkerEnded
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState, TrackedWindow
from tranche.state.remaining_work import told_gpu_seconds

UNKNOWN_SIGMA = 2.0
"""Of the logarithm of a mini-batch's time that was only assumed."""


def begin(context: PlannerContext, state: JobState, learnt: float) -> None:
    """A job is new here: predict what its user does not say.

    Args:
        context: Has the policy, which may learn, and what is known.
        state: The job, with its nominal speed as told.
        learnt: Measured over predicted seconds of a mini-batch by an earlier planner; 1 if nothing was learnt.
    """
    if not context.policy.traits.uses_learned_estimates:
        return
    job, cluster = state.job, context.cluster
    if learnt != 1.0:
        cluster.speed_model.assume(job.key, learnt)
    elif not job.size_declared:
        size = cluster.history.sizes.predict(_template(job))
        if size is None:
            cluster.speed_model.assume(job.key, 1.0, UNKNOWN_SIGMA)
            state.assumed = True
        else:
            cluster.speed_model.assume(job.key, size / _size(job, told_gpu_seconds(state)))
    state.nominal_batch_seconds = cluster.nominal_batch_seconds(state)


def conclude(context: PlannerContext, state: JobState) -> None:
    """The job has completed: remember what it needed."""
    context.cluster.history.add(state.counted_gpu_seconds)
    if context.policy.traits.uses_learned_estimates:
        context.cluster.history.sizes.add(_template(state.job), _size(state.job, state.counted_gpu_seconds))
        context.cluster.speed_model.forget_job(state.job.key)


def learn(context: PlannerContext, state: JobState, run: TrackedWindow, event: WorkerEnded, batches: float) -> None:
    """A worker has ended after so many mini-batches: compare its pace with the prediction.

    Nothing is concluded from one that failed, or said nothing and was stopped: what it trained is not known. A gang and
    a job of one chunk teach no pace: how long they take is a guess about the job, and says nothing of its node.
    """
    told = event.outcome == "Succeeded" or (event.outcome == "Preempted" and event.progress is not None)
    trained = event.at - run.started if run.started is not None else 0.0
    if (
        not (context.policy.traits.uses_learned_estimates and told and batches > 0 and trained > 0)
        or state.job.is_indivisible
    ):
        return
    job, site, cluster = state.job, run.home.site, context.cluster
    node = cluster.nodes.get(run.home.node or "")
    kind, name = (node.node.gpu_kind, node.node.name) if node is not None else ("", None)
    state.assumed = False
    if cluster.speed_model.observe(job.key, kind, site, name, trained / batches / run.told_batch_seconds, trained):
        state.nominal_batch_seconds = cluster.nominal_batch_seconds(state)
        if node is not None:
            node.learn(cluster.speed_model.node_factor(node.node.name))


def note_start(cluster: ClusterState, state: JobState, run: TrackedWindow) -> None:
    """A worker has begun to train: what starting it took, unless its slot was not free or its pod there already.

    At an unlimited site the start may have waited for a node, which says nothing of starts elsewhere.
    """
    known = not (run.adopted or run.handover or run.window.renewed or cluster.is_unlimited(run.home.site))
    if known and run.started is not None and run.started >= run.opened:
        state.restarts.started(run.started - run.opened)


def note_stop(state: JobState, run: TrackedWindow, event: WorkerEnded) -> None:
    """A worker that was told to stop has ended: how long it took to save."""
    if run.closed is not None and run.started is not None and event.outcome == "Preempted":
        state.restarts.saved(max(0.0, event.at - max(run.closed, run.started)))


def restate(context: PlannerContext, state: JobState) -> None:
    """The user says something else about its speed: what was learnt was relative to that."""
    context.cluster.speed_model.forget_job(state.job.key)
    state.assumed = False
    begin(context, state, 1.0)


def _template(job: Job) -> str:
    """Whom a job is compared with: what jobs with and without a ledger needed is not the same quantity."""
    return f"{job.template} whole" if job.template and job.is_indivisible else job.template


def _size(job: Job, gpu_seconds: float) -> float:
    """What is comparable between jobs of one template: the whole, or a mini-batch where their number is known."""
    return gpu_seconds if job.is_indivisible else gpu_seconds / (job.chunks * job.batches_per_chunk_total)
