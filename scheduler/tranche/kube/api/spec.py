"""The specs of TrainingJob and Site, with CEL rules whose messages say at apply time what is wrong."""

from typing import Literal

from pydantic import ConfigDict, Field

from tranche.kube.api.fields import (
    MAX_CHUNKS,
    Duration,
    LabelKey,
    NodeLabels,
    PodBandwidth,
    PositiveDuration,
    PositiveQuantity,
    Quantity,
    Resource,
    ServerTemplate,
    SiteName,
    SiteReference,
    StagingTemplate,
    Template,
    Volume,
    by_key,
    rules,
)


class Staging(Resource):
    """Pods that copy the data of chunks to another site before these train there."""

    template: StagingTemplate
    """Pod template, without GPUs. Its program copies the chunks in TRANCHE_CHUNKS from TRANCHE_DATA_SITE to a volume
    that the workers at TRANCHE_SITE mount, such as checkpoint.volume (at TRANCHE_CHECKPOINT_DIR), and exits with 0. It
    must be idempotent, since it may run again."""


class Data(Resource):
    """The training data in equal chunks. With data, the job is elastic and asynchronous; without, it is a gang."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.chunks == oldSelf.chunks && self.epochs == oldSelf.epochs "
                "&& self.batchesPerChunk == oldSelf.batchesPerChunk",
                "chunks, epochs and batchesPerChunk cannot change: finished work is counted in them; create a new job",
            ),
            (
                "has(self.staging) == has(oldSelf.staging)",
                "staging cannot be added or removed: data already at a site was counted that way; create a new job",
            ),
            (
                "!has(self.staging) || (has(self.site) && has(self.chunkSize))",
                "staging needs site and chunkSize: the source of the data and their size",
            ),
        )
    )

    chunks: int = Field(ge=1, le=MAX_CHUNKS)
    """Number of equal parts of the data (D). One worker at a time trains a chunk."""
    epochs: int = Field(default=1, ge=1, le=1_000_000)
    """Number of times that each chunk is trained (E)."""
    batches_per_chunk: int = Field(default=1, ge=1, le=1_000_000_000)
    """Number of mini-batches in one chunk (B)."""
    chunk_size: Quantity | None = None
    """Size of one chunk in bytes, such as 64Mi; it determines the transfer time to a site. Under the policy chunk, a
    job with `site` and without chunkSize trains only there or at an unlimited site: its data are never copied."""
    site: SiteReference | None = None
    """Site that holds the data when the job starts; default: every site. Declare chunkSize too, so that the chunks can
    train elsewhere."""
    staging: Staging | None = None
    """Pods that copy the data of chunks to another site before these train there; default: workers copy the data."""


class WorkerTopology(Resource):
    """How close the members of a gang are: topology levels are label keys of nodes, such as tranche.dev/rack."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.required) != has(self.preferred)",
                "name one topology level, either as required or as preferred",
            ),
        )
    )

    required: LabelKey | None = None
    """Topology level that all members must share: nodes with the same value of this label, which is one of the chart
    value topologyLevels, such as tranche.dev/rack. Until a group of nodes has room for all members, the job waits."""
    preferred: LabelKey | None = None
    """Topology level that the members should share. They start at the narrowest level that has room for all of them: at
    a wider one than this if no group of nodes has room."""


class Workers(Resource):
    """The worker pods, which train."""

    min_replicas: int | None = Field(default=None, ge=1, le=MAX_CHUNKS)
    """Members of a gang; may only equal maxReplicas. A job with data has no minimum and must leave it out."""
    max_replicas: int = Field(ge=1, le=MAX_CHUNKS)
    """Highest number of workers at a time."""
    template: Template
    """Pod template of a worker. On SIGTERM, its program saves and exits; it may run again on another node."""
    topology: WorkerTopology | None = None
    """How close the members of a gang are; default: as the policy places them."""


class ParameterServers(Resource):
    """The parameter server pods, which hold the model."""

    replicas: int = Field(default=1, ge=1, le=100)
    """Number of pods that share the model."""
    template: ServerTemplate
    """Pod template of a parameter server, without GPUs."""


class Chief(Resource):
    """The coordinator of a TensorFlow ParameterServerStrategy job. The job ends when the chief ends."""

    template: Template
    """Pod template of the chief, which usually requests no GPU."""


class TrainingModel(Resource):
    """Estimates of the training speed. Measurements correct them while the job runs."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.stepTimes) || size(self.stepTimes) == 0 || has(self.stepTime)",
                "stepTimes has the times on single GPU kinds: declare stepTime, the time on all others, too",
            ),
        )
    )

    gradient_size: Quantity | None = None
    """Size of the gradients that a worker pushes per mini-batch (q), such as 98Mi. A job without data that does not
    declare both stepTime and estimatedDuration counts as sending them once in its whole run."""
    step_time: PositiveDuration | None = None
    """Time of one mini-batch on one worker without communication, such as 120ms. Without data, it does not determine
    the duration of the job: estimatedDuration over it is the number of mini-batches, each of which exchanges the
    gradients."""
    step_times: dict[str, PositiveDuration] = Field(default={}, max_length=32)
    """The same time on single GPU kinds, by the name of the kind, such as {Tesla-T4: 400ms}; it has an effect for jobs
    with data. On other kinds, stepTime applies, with the speeds that the administrator declares."""


class Communication(Resource):
    """How workers share the network and a batch, and when they wait for each other. All of it is off by default."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.bandwidthShares) || has(self.serverBandwidth)",
                "bandwidthShares needs serverBandwidth: the port that the workers share",
            ),
            ("!has(self.batching) || has(self.batchSize)", "batching needs batchSize: the samples to divide"),
        )
    )

    server_bandwidth: PodBandwidth | None = None
    """Bandwidth of the parameter server's pod in bits per second, such as 1G. The CNI bandwidth plugin, where it is
    installed, limits the pod to it."""
    worker_bandwidth: PodBandwidth | None = None
    """Highest bandwidth of a worker's pod in bits per second; enforced in the same way."""
    bandwidth_shares: Literal["sasp-like", "equal", "proportional"] | None = None
    """Rule by which workers share serverBandwidth: sasp-like minimizes the latest end of the job's last windows,
    proportional follows the time of a computation. Workers limit themselves."""
    decoupled: bool = False
    """true: workers communicate one batch beside the computation of the next."""
    batching: Literal["loft-like", "lb-bsp-like", "equal"] | None = None
    """Rule by which the members of a gang divide a batch: loft-like evens out computation and fetches, lb-bsp-like
    computation alone."""
    batch_size: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Samples of one batch of all members."""
    smallest_part: int = Field(default=1, ge=1, le=1_000_000)
    """Least number of samples of a member."""
    barrier: int | None = Field(default=None, ge=1, le=MAX_CHUNKS)
    """Number of workers whose gradients close a round (k of n); default: workers are asynchronous."""
    staleness: int | None = Field(default=None, ge=0, le=1_000_000)
    """Rounds that a worker may miss in a row, or, without barrier, batches that it may be ahead of the slowest;
    default: any number."""
    aggregation: Literal["mean", "median", "trimmed-mean"] = "mean"
    """Rule for the gradients of a round."""


class Checkpoint(Resource):
    """Volume for checkpoints, and where an attempt may resume from them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.resumeFrom) || has(self.volume)",
                "resumeFrom names a directory of checkpoint.volume: declare the volume, or leave out resumeFrom",
            ),
        )
    )

    scope: Literal["Node", "Site", "Cluster"] = "Cluster"
    """Nodes that can mount the volume: the same node, nodes at the same site, or all nodes. It does not restrict where
    workers start; it decides whether the saved state of parameter servers is still there when they start again. To keep
    the pods near the volume, use a node selector or affinity."""
    volume: Volume | None = None
    """Volume source whose directory NAME-UID of the job is mounted into the job's pods, at TRANCHE_CHECKPOINT_DIR."""
    resume_from: str | None = Field(default=None, max_length=100, pattern=r"^(/|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$")
    """Directory of an earlier job on the same volume (its status.checkpointDirectory), or / for the root of the volume.
    It is mounted read-only at TRANCHE_RESUME_DIR, and this job continues from the checkpoint in it."""


class PreemptionSpec(Resource):
    """When, and at what cost, another job may preempt the job's workers."""

    policy: Literal["Immediate", "AtChunkEnd", "Never"] = "Immediate"
    """When a worker may be preempted: at once (SIGTERM), after its chunk, or never."""
    restart_overhead: Duration | None = None
    """Time that each start of a pod costs (image, imports, reading the checkpoint); default: as measured."""


class UtilitySpec(Resource):
    """Utility of completing the job: priority / (1 + exp(decay · (hours since creation − target)))."""

    priority: float = Field(gt=0, le=1_000_000)
    """Largest utility, that of an early completion."""
    target: PositiveDuration
    """Time since the job's creation at which half of the utility is left, such as 6h."""
    decay: float = Field(default=1.0, ge=0, le=10_000)
    """Steepness of the decrease per hour; 0: the time of completion does not matter."""


class RunPolicy(Resource):
    """Limits of the run, and clean-up after it."""

    backoff_limit: int = Field(default=6, ge=0, le=1000)
    """Number of failed pods after which the job fails. Preempted pods do not count, nor do as many failures that a bad
    node explains."""
    active_deadline_seconds: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """Seconds after the creation of the first pod (status.firstPodTime) at which the job fails if it is not done;
    default: no limit."""
    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Seconds after which a finished job is deleted; default: never."""
    clean_pod_policy: Literal["All", "Running", "None"] = "Running"
    """Pods that are deleted when the job ends. While it runs, its last 16 failed pods and its last two succeeded ones
    are kept."""


class TrainingJobSpec(Resource):
    """Desired state of a TrainingJob."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("has(self.data) == has(oldSelf.data)", "data cannot be added or removed: create a new job"),
            (
                "has(self.data) || !has(self.workers.minReplicas) "
                "|| self.workers.minReplicas == self.workers.maxReplicas",
                "a job without data is a gang: workers.minReplicas must equal workers.maxReplicas (or be left out)",
            ),
            (
                "!has(self.data) || !has(self.workers.minReplicas)",
                "workers.minReplicas is for jobs without data (gangs): "
                "leave it out, a job with data trains with any number of workers",
            ),
            (
                "has(self.data) || self.workers.maxReplicas == oldSelf.workers.maxReplicas",
                "the size of a gang cannot change, since its members receive it when they start: create a new job",
            ),
            (
                "!has(self.data) || !has(self.workers.topology)",
                "workers.topology is for jobs without data (gangs): workers of a job with data train independently",
            ),
            ("!has(self.data) || !has(self.chief)", "chief belongs to gangs: leave out data or chief"),
            (
                "has(self.data) || !has(self.parameterServers) || has(self.chief)",
                "parameterServers need data (chunks that workers train on their own) or a chief (a gang)",
            ),
            (
                "has(self.parameterServers) == has(oldSelf.parameterServers) && has(self.chief) == has(oldSelf.chief) "
                "&& (!has(self.parameterServers) "
                "|| self.parameterServers.replicas == oldSelf.parameterServers.replicas)",
                "parameterServers (and their replicas) and chief cannot be added, removed or scaled: "
                "the trained model is in them; create a new job",
            ),
            (
                "has(self.data) || self.preemption.policy != 'AtChunkEnd'",
                "a job without data has no chunks: preemption.policy must be Immediate or Never",
            ),
            (
                "!has(self.data) || !has(self.model) || !has(self.model.stepTime) || !has(self.estimatedDuration)",
                "with data, give model.stepTime or estimatedDuration, not both",
            ),
            (
                "!has(self.communication) || !has(self.communication.bandwidthShares) "
                "|| (has(self.parameterServers) && has(self.data) && has(self.model) && has(self.model.gradientSize))",
                "communication.bandwidthShares needs data, parameterServers and model.gradientSize",
            ),
            (
                "!has(self.communication) || !has(self.communication.batching) || (!has(self.data) "
                "&& self.communication.batchSize >= self.communication.smallestPart * self.workers.maxReplicas)",
                "communication.batching is for jobs without data (gangs), "
                "and batchSize must be at least smallestPart times workers.maxReplicas",
            ),
        )
    )

    suspend: bool = False
    """true stops the job's pods and keeps its progress; false resumes the job."""
    weight: float = Field(default=1.0, gt=0, le=1_000_000)
    """Weight of the job in the queue; above 1, the job is more urgent than its size suggests. A weight below 0.000001
    counts as 0.000001. Policies that do not use weights set the condition PriorityIgnored."""
    priority_class_name: Literal["tranche-low", "tranche-normal", "tranche-high"] = "tranche-normal"
    """Strict priority tier: a job of a higher tier always precedes one of a lower tier. Policies that bind chunks at
    the arrival of a job, or distribute all workers at once, do not use tiers and set the condition PriorityIgnored."""
    utility: UtilitySpec | None = None
    """Utility of completing the job, by its duration. The policies oasis, pd-ors-like and rrh maximize it; others
    do not use it."""
    data: Data | None = None
    workers: Workers
    parameter_servers: ParameterServers | None = None
    chief: Chief | None = None
    model: TrainingModel | None = None
    communication: Communication | None = None
    estimated_duration: PositiveDuration | None = None
    """Estimated duration of the whole job on maxReplicas workers, such as 2h. Measurements correct it. Without it and,
    with data, without model.stepTime, the planner assumes 1h until jobs of the same template have completed or the
    workers have reported progress."""
    checkpoint: Checkpoint | None = None
    preemption: PreemptionSpec = PreemptionSpec()
    run_policy: RunPolicy = RunPolicy()


class SiteLink(Resource):
    """A network path to another site or, with the site's own name, its internal network."""

    to: SiteName
    """Name of the other site."""
    bandwidth: PositiveQuantity
    """Bandwidth in bits per second, such as 500M."""
    latency: Duration = "0s"
    """One-way latency, such as 20ms."""


class SiteSpec(Resource):
    """Desired state of a Site, which the cluster's administrator declares."""

    tier: Literal["Edge", "Cloud"] = "Edge"
    """Edge: a few nodes near the data. Cloud: many nodes, far from the data."""
    node_selector: NodeLabels
    """Labels that select the site's nodes. A node belongs to one site."""
    unlimited: bool = False
    """true if a cluster autoscaler adds nodes to the site on demand."""
    node_startup: Duration = "0s"
    """Time that the autoscaler of an unlimited site needs to add a node, such as 3m."""
    gpu_resource: str | None = Field(default=None, max_length=253)
    """Resource name of the GPUs of an unlimited site, such as amd.com/gpu. Default: the first one of the
    installation."""
    gpu_kind: str | None = Field(default=None, max_length=63)
    """Kind of the GPUs of an unlimited site, such as NVIDIA-A100-SXM4-80GB: the value of the label on its nodes."""
    disconnect_tolerance: Duration = "1h"
    """Time for which pods on unreachable nodes of the site keep their chunks. For gangs of several pods that
    report no progress, unless all nodes of their sites are unreachable, and for parameter servers whose workers are
    not cut off with them, it is one minute at most."""
    links: list[SiteLink] = Field(default=[], max_length=256, json_schema_extra=by_key("to"))
    """Network paths from this site to others."""
