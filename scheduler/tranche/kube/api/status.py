"""The statuses of TrainingJob and Site, which the scheduler and the operator write.

The bounds are far above real values; they keep an object within etcd's size limit and the CEL rules within their cost
budget.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from tranche.kube.api.fields import (
    ATOMIC,
    MAX_ATTEMPT_TEXT,
    MAX_CELL_ENTRIES,
    MAX_CHUNKS,
    MAX_SITES,
    MAX_UNPLACED_MESSAGE,
    MAX_UNPLACED_NODES,
    WHOLE,
    ChunkSet,
    NodeName,
    Resource,
    SiteName,
    by_key,
    rules,
)
from tranche.kube.api.names import ROLE_CHIEF, ROLE_SERVER, ROLE_WORKER
from tranche.model.attempt_record import KEPT_ATTEMPTS, KEPT_VICTIMS

Preemptor = Annotated[str, Field(max_length=321)]
"""``namespace/name`` of a TrainingJob, or ``pod/namespace/name`` of a foreign pod."""
StopReason = Annotated[str, Field(max_length=1024)]
RequestedAmount = Annotated[str, Field(max_length=32)]
"""A quantity that Kubernetes has accepted."""
LabelValue = Annotated[str, Field(max_length=63)]


class PlannedWindow(Resource):
    """One worker pod on one slot with an ordered list of chunks."""

    index: int
    """Number of the worker, from 0."""
    attempt: int
    """Number of the attempt, which is part of the name of the pod; it increases over all pods of the job."""
    site: SiteName
    """Site of the pod."""
    node: NodeName | None = None
    """Node of the pod; absent at an unlimited site, where kube-scheduler chooses it."""
    fallbacks: list[NodeName] = Field(default=[], max_length=16, json_schema_extra=ATOMIC)
    """Nodes on which the pod may start if its node is not available."""
    chunks: list[int] = Field(max_length=MAX_CHUNKS, json_schema_extra=ATOMIC)
    """Chunks of the window, in the order in which the worker trains them; for a gang, the number of the member."""
    start: datetime | None = None
    """Time at which the window opened."""
    end: datetime | None = None
    """Expected end of the window."""
    state: Literal["Open", "Closing"] = "Open"
    """Closing: the pod is to stop, and its end has not been counted yet."""
    generation: int | None = None
    """metadata.generation from which its pod was created."""
    renewed: int | None = None
    """Fencing token of the chunks, if the pod trained other chunks before."""
    preempted_by: Preemptor | None = None
    """Job for which the window closes, namespace/name; absent if it closes for another reason."""
    why: StopReason | None = None
    """Why the window closes: with preemptedBy a relative clause about that job, such as "which has less work left"."""


class PlannedParameterServer(Resource):
    """Placement of one parameter server."""

    index: int
    """Number of the parameter server, from 0; 0 for a chief."""
    attempt: int
    """Number of the attempt, which is part of the name of the pod; it increases over all pods of the job."""
    site: SiteName
    """Site of the pod."""
    node: NodeName | None = None
    """Node of the pod; absent at an unlimited site, where kube-scheduler chooses it."""
    fallbacks: list[NodeName] = Field(default=[], max_length=16, json_schema_extra=ATOMIC)
    """Nodes on which the pod may start if its node is not available."""
    state: Literal["Open", "Closing"] = "Open"
    """Closing: the pod is to stop, and its end has not been counted yet."""
    preempted_by: Preemptor | None = None
    """Job for which the pod stops, namespace/name; absent if it stops for another reason."""
    why: StopReason | None = None
    """Why the pod stops: with preemptedBy a relative clause about that job, such as "which has less work left"."""


class PlannedChief(PlannedParameterServer):
    """Placement of the chief of a gang."""


class PlannedStaging(Resource):
    """A copy of data to a site."""

    site: SiteName
    """Site that receives the data."""
    attempt: int | None = None
    """Attempt of the pod that copies the data; absent if there is no pod now."""
    chunks: ChunkSet = ""
    """Chunks that the pod copies."""
    wanted: ChunkSet = ""
    """Chunks that the next pod copies."""
    failures: int = 0
    """Number of pods that failed since one succeeded."""
    given_up: bool = False
    """true if too many pods failed; no data is copied to the site for an hour or longer, or until the spec changes."""
    why: StopReason | None = None
    """Why the last pod that did not succeed ended."""


class UnplacedPods(Resource):
    """Pods of the job that found no place, that the API server rejected or that did not start, since one was placed."""

    failures: int
    """Number of these pods."""
    nodes: list[NodeName] = Field(default=[], max_length=MAX_UNPLACED_NODES, json_schema_extra=ATOMIC)
    """Nodes on which they found no place."""
    message: str = Field(default="", max_length=MAX_UNPLACED_MESSAGE)
    """Last message of kube-scheduler or the API server."""
    failed_at: datetime | None = None
    """Time of the last failure."""
    preempts_from: datetime | None = None
    """Time before which the job preempts no other."""
    held_until: datetime | None = None
    """Time before which no pod of the job starts."""
    failed_preemptions: int = 0
    """Number of times that workers of others were stopped for the job and its pods were not placed, since the last time
    that they were."""
    unstarted: bool = False
    """Whether one of these pods had a place and ended before it started; then only a pod that starts ends the pause."""
    sites: list[SiteName] = Field(default=[], max_length=MAX_UNPLACED_NODES, json_schema_extra=ATOMIC)
    """Unlimited sites where pods of the job found no place lately, and none since."""


class NodePods(Resource):
    """Number of pods on one node."""

    node: NodeName
    """Name of the node."""
    pods: int = Field(ge=1, le=MAX_CHUNKS)
    """Number of pods."""


class PodPlaces(Resource):
    """Numbers of pods by node."""

    workers: list[NodePods] = Field(default=[], max_length=MAX_CHUNKS, json_schema_extra=ATOMIC)
    """Workers by node."""
    parameter_servers: list[NodePods] = Field(default=[], max_length=100, json_schema_extra=ATOMIC)
    """Parameter servers by node."""


class ReservedCells(PodPlaces):
    """Pods for which the job has reserved room in each of several successive time slots."""

    first: int = Field(ge=0, le=2**53)
    """First time slot."""
    last: int = Field(ge=0, le=2**53)
    """Last time slot."""


class SlotOffer(Resource):
    """Last offer of a policy with a slot table, and the cells that the job has reserved."""

    seconds: float
    """Length of a time slot in seconds; time slot n begins n times this length after 1970-01-01T00:00:00Z."""
    offered: int = Field(ge=0, le=2**53)
    """First time slot of the offer."""
    payoff: float | None = None
    """Utility of the job's completion less the price of its cells; absent if no completion was found."""
    returned: int = Field(default=0, ge=0, le=2**53)
    """Number of times that jobs had given back their cells by then: after a later time, another offer is due."""
    cells: list[ReservedCells] = Field(default=[], max_length=MAX_CELL_ENTRIES, json_schema_extra=ATOMIC)
    """Reserved cells in order of slots; absent if the job was not admitted."""
    too_large: bool = False
    """true if the job was not admitted because its cells would exceed 64 KiB here."""


class WorkerGrant(Resource):
    """Result of the last distribution of workers for the job; a planner that takes over restores it."""

    policy: str = Field(max_length=64)
    """Policy that distributed the workers."""
    workers: int = Field(ge=0, le=MAX_CHUNKS)
    """Most workers on nodes that the job may have."""
    place: float
    """Place in the order of the distribution; smaller numbers are served first."""
    nodes: PodPlaces | None = None
    """Nodes on which its pods start as long as they have room."""
    slots: SlotOffer | None = None
    """Offer and cells, under a policy with a slot table."""


class PlannedInterval(Resource):
    """Interval that contains a planned time with a probability of 80 %."""

    earliest: datetime
    """Start of the interval."""
    latest: datetime
    """End of the interval."""


class Plan(Resource):
    """Decision of the planner; its field manager is tranche-scheduler."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.term > oldSelf.term || (self.term == oldSelf.term && self.revision >= oldSelf.revision)",
                "a newer planner has written this plan (term, revision)",
            ),
            **WHOLE,
        )
    )

    term: int = Field(le=2**31 - 1)
    """Lease transitions when the plan was written; it identifies the planner."""
    revision: int = Field(le=2**53)
    """Counter that increases with every plan of the same term."""
    job_uid: str | None = Field(None, max_length=64)
    """metadata.uid of the job that the plan is for; it protects a new job of the same name from a late write."""
    observed_generation: int
    """metadata.generation of the spec that the plan is for."""
    explanation: str = Field(default="", max_length=2048)
    """Reason why the job runs or waits, in one sentence."""
    attempts: int = 0
    """Highest attempt number used so far."""
    priority_class_name: Literal["tranche-low", "tranche-normal", "tranche-high"] | None = None
    """Priority class of the pods, if the namespace's limit is below spec.priorityClassName."""
    preemption_policy: Literal["Immediate", "AtChunkEnd", "Never"] | None = None
    """When a worker may be preempted, if the namespace does not allow spec.preemption.policy."""
    estimated_start: datetime | None = None
    """Expected start of the next worker; while workers run, the start of the oldest one of them."""
    estimated_completion: datetime | None = None
    """Expected completion of the last chunk."""
    start_interval: PlannedInterval | None = None
    """Interval of the start, from the errors of earlier plans."""
    completion_interval: PlannedInterval | None = None
    """Interval of the completion, from the errors of earlier plans and the uncertainty of the job's size."""
    homes: dict[str, ChunkSet] = Field(default={}, max_length=MAX_CHUNKS)
    """Chunks whose data is placed at a site, such as 0-11,14, by site."""
    parameter_servers: list[PlannedParameterServer] = Field(default=[], max_length=100, json_schema_extra=ATOMIC)
    """Parameter servers that run or start."""
    chief: PlannedChief | None = None
    unplaced: UnplacedPods | None = None
    """Failed attempts to place a pod, failed preemptions, and their consequences; absent without them."""
    grant: WorkerGrant | None = None
    """Number of workers that the policy grants the job, if it distributes workers among all jobs."""
    staging: list[PlannedStaging] = Field(default=[], max_length=256, json_schema_extra=ATOMIC)
    """Copies of data by staging pods."""
    workers: list[PlannedWindow] = Field(default=[], max_length=2 * MAX_CHUNKS, json_schema_extra=ATOMIC)
    """Open and closing windows."""

    @property
    def entries(self) -> Sequence[PlannedWindow | PlannedParameterServer]:
        """Windows, parameter servers and the chief."""
        return tuple(entry for _, entry in self.entries_by_role())

    def entries_by_role(self) -> Iterator[tuple[str, PlannedWindow | PlannedParameterServer]]:
        """Yield windows, parameter servers and the chief, each with the role of its pod."""
        yield from ((ROLE_WORKER, window) for window in self.workers)
        yield from ((ROLE_SERVER, server) for server in self.parameter_servers)
        if self.chief is not None:
            yield ROLE_CHIEF, self.chief


class PartialChunk(Resource):
    """A chunk that has been started and is not done."""

    chunk: int
    """Number of the chunk."""
    batches: float
    """Trained mini-batches of the chunk."""


class SavedProgress(Resource):
    """Contents of the parameter servers' checkpoint, as they reported. Progress falls back to it when they are lost."""

    attempt: int
    """Attempt of the parameter server that reported."""
    done: ChunkSet = ""
    """Chunks that the checkpoint contains completely."""
    running: list[PartialChunk] = Field(default=[], max_length=MAX_CHUNKS, json_schema_extra=ATOMIC)
    """Chunks that the checkpoint contains in part."""


class EndedAttempt(Resource):
    """End of one pod of the job."""

    role: Literal["worker", "chief"] = "worker"
    """Role of the pod."""
    index: int
    """Number of the worker; 0 for a chief."""
    attempt: int
    """Number of the attempt."""
    node: str = Field(max_length=253)
    """Node on which the pod ran."""
    reason: str = Field(max_length=1024)
    """Outcome of the pod, such as Preempted or Stopped, or why its containers did not start, such as ErrImagePull."""
    exit_code: int | None = None
    """Exit code of the training container; absent if none is known."""
    preempted_by: Preemptor | None = None
    """Job that preempted the pod, namespace/name, or a pod of no TrainingJob, pod/namespace/name."""
    why: StopReason | None = None
    """Why the pod ended: with preemptedBy a relative clause about the preemptor, such as "which has less work left"."""
    start: datetime | None = None
    """Time at which the pod began to train; absent if it did not."""
    end: datetime | None = None
    """Time at which the planner counted the end of the pod."""
    lost_seconds: float | None = None
    """Estimated seconds of training that were lost, because their result was not saved."""


class PreemptedJob(Resource):
    """Workers of another job that were stopped for this job at one time."""

    job: Preemptor
    """The other job, namespace/name."""
    workers: int
    """Number of its workers that were stopped."""
    at: datetime
    """Time of the decision."""


class SiteProgress(Resource):
    """Resources that the job used at one site."""

    site: SiteName
    """Name of the site."""
    gpu_seconds: int = 0
    """GPU-seconds that workers held, from the opening of a window to the end of its pod."""
    trained_gpu_seconds: int = 0
    """Part of these GPU-seconds in which workers trained."""
    chunks: int = 0
    """Number of chunks completed at the site."""
    copied_bytes: int = 0
    """Bytes of the copies to the site that were started."""
    in_vain_bytes: int = 0
    """Part of these bytes that no chunk trained from."""
    unused: ChunkSet = ""
    """Chunks whose copy was started and has not been used for training yet."""


class Progress(Resource):
    """Finished work; its field manager is tranche-scheduler."""

    model_config = ConfigDict(json_schema_extra=WHOLE)

    chunks: str = Field(default="", max_length=64)
    """Completed chunks over all chunks, such as 12/27."""
    done: ChunkSet = ""
    """Completed chunks, such as 0-11,14."""
    running: list[PartialChunk] = Field(default=[], max_length=MAX_CHUNKS, json_schema_extra=ATOMIC)
    """Chunks that are partly trained, with their completed mini-batches."""
    checkpoint: SavedProgress | None = None
    """Checkpoint of the parameter servers, if these report."""
    batches: float = 0.0
    """Mini-batches trained when this was written, including those that are in no checkpoint yet."""
    trained: str = Field(default="", max_length=16)
    """These mini-batches as a share of all, rounded down, such as 31 %."""
    estimated: bool = False
    """true if a worker does not report, so that `batches` is estimated from its run time."""
    # Without "gpu" in its name: renamed, the field would lose what the statuses in a cluster hold.
    attained_seconds: float = 0.0
    """GPU-seconds for which the job's workers have run."""
    busy_seconds: float = 0.0
    """Seconds with an open window, before the current ones; the rest since submission is waiting, by which jobs age."""
    learnt: float = 1.0
    """Measured over expected time of a mini-batch; 1 before the first measurement."""
    busy_since: datetime | None = None
    """Time since which a window has been open, or the job has been suspended."""
    start_seconds: float | None = None
    """Measured seconds from the opening of a window to its first mini-batch."""
    save_seconds: float | None = None
    """Measured seconds from the request to stop to the end of a worker."""
    restart_seconds: float | None = None
    """Estimated cost in seconds of stopping and restarting a worker: preemption.restartOverhead, else as measured."""
    preemptions: int = 0
    """Number of worker pods that were preempted."""
    failures: int = 0
    """Number of failed pods that count towards runPolicy.backoffLimit, of any role except staging."""
    lost_batches: float = 0.0
    """Mini-batches lost through preemption or failure, which must be trained again."""
    attempts: list[EndedAttempt] = Field(default=[], max_length=256, json_schema_extra=ATOMIC)
    """The last workers and chiefs that ended, at most five, oldest first; `history` has more."""
    history: list[Annotated[str, Field(max_length=MAX_ATTEMPT_TEXT)]] = Field(
        default=[], max_length=KEPT_ATTEMPTS, json_schema_extra=ATOMIC
    )
    """The last pods of all roles that ended, oldest first: attempt, role and index, node, outcome, exit code, end,
    seconds of training, seconds of lost work, preemptor ("-" for absent values), reason; then lines of the log of a
    failed pod. At most 64, and 48 KiB of JSON together. Read it with kubectl tranche history."""
    attempt_totals: dict[str, int] = Field(default={}, max_length=16)
    """Number of all pods that ended, by outcome; staging pods are left out."""
    victims: list[PreemptedJob] = Field(default=[], max_length=KEPT_VICTIMS, json_schema_extra=ATOMIC)
    """Jobs whose workers were stopped for this job, oldest first: the last 16 such decisions."""
    preempted_workers: int = 0
    """Number of workers of other jobs that were stopped for this job."""
    sites: list[SiteProgress] = Field(default=[], max_length=MAX_SITES, json_schema_extra=by_key("site"))
    """Resources that the job used, by site; the 64 sites with the highest use if there are more."""


class Condition(Resource):
    """metav1.Condition."""

    model_config = ConfigDict(json_schema_extra=WHOLE)

    type: str = Field(max_length=316)
    """Name of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    observed_generation: int | None = None
    """metadata.generation of the spec that the condition is for."""
    last_transition_time: datetime
    """Time at which `status` changed last."""
    reason: str = Field(max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    """Reason as one word, for programs."""
    message: str = Field(default="", max_length=32768)
    """Details for users."""


class AdmittedToleration(Resource):
    """Toleration of an admitted pod."""

    key: str = Field(default="", max_length=317)
    """Key of the taint; empty: all keys."""
    operator: str = Field(default="Equal", max_length=64)
    """Exists: the value does not matter."""
    value: str = Field(default="", max_length=63)
    """Value of the taint."""
    effect: str = Field(default="", max_length=64)
    """Effect of the taint; empty: all effects."""


class AdmittedPod(Resource):
    """Requirements of the pods of one role after admission: defaults, LimitRanges, webhooks and RuntimeClass."""

    role: str = Field(max_length=64)
    """Role of the pods."""
    requests: dict[str, RequestedAmount] = Field(default={}, max_length=64)
    """Requests as kube-scheduler counts them: containers, init containers, sidecars and overhead."""
    overhead: dict[str, RequestedAmount] = Field(default={}, max_length=64)
    """Part of the requests that the RuntimeClass adds."""
    node_selector: dict[str, LabelValue] = Field(default={}, max_length=64)
    """Labels that the nodes of the pods need."""
    tolerations: list[AdmittedToleration] = Field(default=[], max_length=64, json_schema_extra=ATOMIC)
    """Taints that the pods tolerate without a time limit."""
    unplanned: list[LabelValue] = Field(default=[], max_length=16, json_schema_extra=ATOMIC)
    """Constraints that the planner does not plan with: podAffinity, podAntiAffinity, topologySpreadConstraints,
    resourceClaims, volumes and hostPorts, and nodeAffinity and schedulerName if admission has changed them."""


class AdmittedPods(Resource):
    """The job's pods after admission, as a dry run returned them; written by tranche-operator."""

    model_config = ConfigDict(json_schema_extra=WHOLE)

    generation: int
    """metadata.generation of the spec that the dry run was made for."""
    pods: list[AdmittedPod] = Field(default=[], max_length=8, json_schema_extra=ATOMIC)
    """Requirements by role."""


class TrainingJobStatus(Resource):
    """Observed state. tranche-scheduler writes `plan`, `progress` and condition Planned, tranche-operator the rest."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("!has(oldSelf.plan) || has(self.plan)", "the plan cannot be removed: its (term, revision) is the fence"),
        )
    )

    phase: Literal["Waiting", "Starting", "Running", "Suspended", "Succeeded", "Failed"] | None = None
    """Phase of the job, from its pods and its plan. Waiting: no worker and no chief has a pod. Starting: their pods
    exist, and none runs. Running: one of them runs. Suspended: spec.suspend is true, and all pods have stopped.
    Succeeded: all chunks, or all members of the gang, are done. Failed: the condition Failed says why."""
    conditions: list[Condition] = Field(default=[], max_length=64, json_schema_extra=by_key("type"))
    """Conditions of the job."""
    observed_generation: int | None = None
    """metadata.generation of the spec that tranche-operator read last."""
    plan: Plan | None = None
    progress: Progress | None = None
    admitted: AdmittedPods | None = None
    """Result of the last dry run of the job's pods that the API server admitted."""
    active_workers: int | None = None
    """Number of worker pods that exist and have not ended."""
    active_parameter_servers: int | None = None
    """Number of parameter server pods that exist and have not ended."""
    sites: str | None = Field(default=None, max_length=4096)
    """Sites where pods of the job run now, such as edge-a, cloud."""
    first_pod_time: datetime | None = None
    """Creation of the first pod, staging pods left out; runPolicy.activeDeadlineSeconds counts from it."""
    checkpoint_directory: str | None = Field(default=None, max_length=100)
    """Directory of the job on checkpoint.volume; / for a job that began before tranche had a directory for each job."""
    start_time: datetime | None = None
    """Start of the first pod."""
    completion_time: datetime | None = None
    """End of the job."""


class SiteStatus(Resource):
    """Observed state of a Site, which tranche-scheduler writes."""

    nodes: int | None = None
    """Number of ready nodes."""
    gpus: int | None = None
    """Number of GPUs of these nodes."""
    allocated_gpus: int | None = None
    """Number of GPUs that pods hold."""
    connected: bool | None = None
    """true if at least one node of the site is ready, or if the site has no nodes."""
    conditions: list[Condition] = Field(default=[], max_length=64, json_schema_extra=by_key("type"))
