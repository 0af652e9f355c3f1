"""The statuses: what the scheduler and the operator say of a TrainingJob and a Site.

The bounds are far above what is written; they keep an object within etcd's size and the rules within their budget.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from tranche.kube.fields import ATOMIC, MAX_CHUNKS, MAX_SITES, ChunkSet, NodeName, Resource, SiteName, by_key, rules

Preemptor = Annotated[str, Field(max_length=321)]
"""``namespace/name`` of a TrainingJob, or ``pod/namespace/name`` of a foreign pod."""


class PlannedWindow(Resource):
    """One worker pod on one slot with an ordered list of chunks."""

    index: int
    attempt: int
    site: SiteName
    node: NodeName | None = None
    fallbacks: list[NodeName] = Field(default=[], max_length=16, json_schema_extra=ATOMIC)
    chunks: list[int] = Field(max_length=MAX_CHUNKS, json_schema_extra=ATOMIC)
    start: datetime | None = None
    end: datetime | None = None
    state: Literal["Open", "Closing"] = "Open"
    generation: int | None = None
    """metadata.generation that its pod was made from."""
    renewed: int | None = None
    """Fencing token of the chunks, if the pod has trained others before."""
    preempted_by: Preemptor | None = None
    """Job for which the window closes, namespace/name; absent if it closes for another reason."""


class PlannedParameterServer(Resource):
    """Where one parameter server runs."""

    index: int
    attempt: int
    site: SiteName
    node: NodeName | None = None
    fallbacks: list[NodeName] = Field(default=[], max_length=16, json_schema_extra=ATOMIC)
    state: Literal["Open", "Closing"] = "Open"
    preempted_by: Preemptor | None = None
    """Job for which the pod stops, namespace/name; absent if it stops for another reason."""


class PlannedChief(PlannedParameterServer):
    """Where the chief of a gang runs."""


class PlannedStaging(Resource):
    """Data of chunks on their way to a site."""

    site: SiteName
    attempt: int | None = None
    """Of the pod that brings them; absent: there is none now."""
    chunks: ChunkSet = ""
    """That the pod brings."""
    wanted: ChunkSet = ""
    """For the next pod."""
    failures: int = 0
    """Pods that failed since one succeeded."""
    given_up: bool = False
    """Too many did: nothing more is brought there until the specification changes."""


class Plan(Resource):
    """The planner's decision; owned by manager tranche-scheduler."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.term > oldSelf.term || (self.term == oldSelf.term && self.revision >= oldSelf.revision)",
                "a newer planner has written this plan (term, revision)",
            ),
        )
    )

    term: int
    """Lease transitions: which planner wrote it."""
    revision: int
    """Rises with every plan of the same term."""
    job_uid: str | None = Field(None, max_length=64)
    """metadata.uid of the job that the plan is for: a late write may hit a new job of the same name."""
    observed_generation: int
    """metadata.generation that the plan is for."""
    explanation: str = Field(default="", max_length=2048)
    """Why the job runs or waits, in one sentence."""
    attempts: int = 0
    """Attempt numbers given out so far."""
    estimated_start: datetime | None = None
    """When the first worker is expected to start."""
    estimated_completion: datetime | None = None
    """When the last chunk is expected to be done."""
    homes: dict[str, ChunkSet] = Field(default={}, max_length=MAX_CHUNKS)
    """Chunks whose data are placed at a site, such as 0-11,14."""
    parameter_servers: list[PlannedParameterServer] = Field(default=[], max_length=100, json_schema_extra=ATOMIC)
    chief: PlannedChief | None = None
    staging: list[PlannedStaging] = Field(default=[], max_length=256, json_schema_extra=ATOMIC)
    workers: list[PlannedWindow] = Field(default=[], max_length=2 * MAX_CHUNKS, json_schema_extra=ATOMIC)
    """Open and closing windows."""


class PartialChunk(Resource):
    """A chunk that is begun and not done."""

    chunk: int
    batches: float
    attempt: int = 0


class SavedProgress(Resource):
    """What the parameter servers have said is in their checkpoint; the ledger falls back to it when they are lost."""

    attempt: int
    """Of the parameter server that said so."""
    done: ChunkSet = ""
    """Chunks that it holds in full."""
    running: list[PartialChunk] = Field(default=[], max_length=MAX_CHUNKS, json_schema_extra=ATOMIC)


class EndedAttempt(Resource):
    """How one pod of the job ended."""

    index: int
    attempt: int
    node: str = Field(max_length=253)
    reason: str = Field(max_length=1024)
    exit_code: int | None = None
    preempted_by: Preemptor | None = None
    """Job that preempted the pod, namespace/name, or a pod of no TrainingJob, pod/namespace/name."""


class SiteProgress(Resource):
    """What the job has used at one site."""

    site: SiteName
    gpu_seconds: int = 0
    """GPU-seconds that workers held there, from the opening of a window to the end of its pod."""
    trained_gpu_seconds: int = 0
    """Of these, in which they trained."""
    chunks: int = 0
    """Chunks that were completed there."""
    copied_bytes: int = 0
    """Of uploads to the site that were begun."""
    in_vain_bytes: int = 0
    """Of these, what no chunk trained from."""
    unused: ChunkSet = ""
    """Chunks of which a copy was begun, and from which no worker has trained yet."""


class Progress(Resource):
    """The ledger of finished work; owned by manager tranche-scheduler."""

    chunks: str = Field(default="", max_length=64)
    """Done of all, for people: 12/27."""
    done: ChunkSet = ""
    """Numbers of the chunks that are done, such as 0-11,14."""
    running: list[PartialChunk] = Field(default=[], max_length=MAX_CHUNKS, json_schema_extra=ATOMIC)
    checkpoint: SavedProgress | None = None
    """Only of jobs whose parameter servers report."""
    batches: float = 0.0
    """Mini-batches trained when this was written, those included that no checkpoint holds yet."""
    estimated: bool = False
    """Some worker reports nothing, so that `batches` is estimated from its run time."""
    attained_seconds: float = 0.0
    """GPU-seconds that the job's workers have run."""
    busy_seconds: float = 0.0
    """Time with a window open, before the present ones: the rest since submission was waiting, by which jobs age."""
    learnt: float = 1.0
    """Measured over expected time of a mini-batch; 1 until something was measured."""
    busy_since: datetime | None = None
    """Since when a window has been open, or the job suspended."""
    start_seconds: float | None = None
    """From the opening of a window to its first mini-batch, as measured."""
    save_seconds: float | None = None
    """From being told to stop to the end of a worker, as measured."""
    restart_seconds: float | None = None
    """What stopping a worker and starting it again is reckoned to cost: as the user says, else as was measured."""
    preemptions: int = 0
    """Worker pods stopped for another job."""
    failures: int = 0
    """Worker pods that failed; see runPolicy.backoffLimit."""
    lost_batches: float = 0.0
    """Mini-batches trained and lost again by preemption or failure."""
    attempts: list[EndedAttempt] = Field(default=[], max_length=256, json_schema_extra=ATOMIC)
    """The last few ended pods."""
    sites: list[SiteProgress] = Field(default=[], max_length=MAX_SITES, json_schema_extra=by_key("site"))
    """What the job has used at each site; of more sites, those where it used most."""


class Condition(Resource):
    """metav1.Condition."""

    type: str = Field(max_length=316)
    status: Literal["True", "False", "Unknown"]
    observed_generation: int | None = None
    last_transition_time: datetime
    reason: str = Field(max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    message: str = Field(default="", max_length=32768)


class TrainingJobStatus(Resource):
    """What is; `plan`, `progress` and condition Planned by tranche-scheduler, the rest by tranche-operator."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("!has(oldSelf.plan) || has(self.plan)", "the plan cannot be removed: its (term, revision) is the fence"),
        )
    )

    phase: Literal["Waiting", "Starting", "Running", "Suspended", "Succeeded", "Failed"] | None = None
    conditions: list[Condition] = Field(default=[], max_length=64, json_schema_extra=by_key("type"))
    observed_generation: int | None = None
    plan: Plan | None = None
    progress: Progress | None = None
    active_workers: int | None = None
    """Worker pods that exist and are not over."""
    active_parameter_servers: int | None = None
    """Parameter server pods that exist and are not over."""
    sites: str | None = Field(default=None, max_length=4096)
    """Where pods of the job run now, for people: edge-a, cloud."""
    start_time: datetime | None = None
    """When the first pod started."""
    completion_time: datetime | None = None
    """When the job was over."""


class SiteStatus(Resource):
    """What is, by tranche-scheduler."""

    nodes: int | None = None
    """Nodes of the site that are ready."""
    gpus: int | None = None
    """GPUs of these nodes."""
    allocated_gpus: int | None = None
    """GPUs that pods hold."""
    connected: bool | None = None
    """Whether any node of the site reports."""
    conditions: list[Condition] = Field(default=[], max_length=64, json_schema_extra=by_key("type"))
