"""The specifications: what users write, with the rules that say at apply time what is wrong."""

from typing import Literal

from pydantic import ConfigDict, Field

from tranche.kube.api.fields import (
    MAX_CHUNKS,
    Duration,
    PositiveDuration,
    PositiveQuantity,
    Quantity,
    Resource,
    SiteName,
    StagingTemplate,
    Template,
    Volume,
    by_key,
    rules,
)


class Staging(Resource):
    """How data are brought to a site where chunks are to train."""

    template: StagingTemplate
    """Pod template, without GPUs. Its program brings the chunks of TRANCHE_CHUNKS from TRANCHE_DATA_SITE to the job's
    volume at TRANCHE_SITE and exits with 0; it may run again."""


class Data(Resource):
    """The training data in equal chunks. Present: the job is elastic and asynchronous. Absent: a gang."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.chunks == oldSelf.chunks && self.epochs == oldSelf.epochs "
                "&& self.batchesPerChunk == oldSelf.batchesPerChunk",
                "chunks, epochs and batchesPerChunk cannot change: finished work is counted in them; create a new job",
            ),
            (
                "has(self.staging) == has(oldSelf.staging)",
                "staging cannot be added or removed: what is at a site already was counted so; create a new job",
            ),
            (
                "!has(self.staging) || (has(self.site) && has(self.chunkSize))",
                "staging needs site and chunkSize: from where, and how much, the data are brought",
            ),
        )
    )

    chunks: int = Field(ge=1, le=MAX_CHUNKS)
    """Equal parts of the data (D). Each is trained by one worker at a time."""
    epochs: int = Field(default=1, ge=1, le=1_000_000)
    """Times that each chunk is trained (E)."""
    batches_per_chunk: int = Field(default=1, ge=1, le=1_000_000_000)
    """Mini-batches in one chunk (B)."""
    chunk_size: Quantity | None = None
    """Size of one chunk in bytes, such as 64Mi, for the upload to a site."""
    site: SiteName | None = None
    """Site that holds the data at the start; default: every site."""
    staging: Staging | None = None
    """Pods that bring the data of chunks to another site before these train there; default: the workers do it."""


class Workers(Resource):
    """The pods that train."""

    min_replicas: int | None = Field(default=None, ge=1, le=MAX_CHUNKS)
    """Members of a gang; may only equal maxReplicas. A job with data has no minimum and must leave it out."""
    max_replicas: int = Field(ge=1, le=MAX_CHUNKS)
    """Most workers at a time."""
    template: Template
    """Pod template of a worker. On SIGTERM the program saves and exits; it may run again elsewhere."""


class ParameterServers(Resource):
    """The pods that hold the model."""

    replicas: int = Field(default=1, ge=1, le=100)
    """How many pods share the model."""
    template: Template
    """Pod template of a parameter server."""


class Chief(Resource):
    """The coordinator of a TensorFlow ParameterServerStrategy job; its end is the job's end."""

    template: Template
    """Pod template of the chief."""


class TrainingModel(Resource):
    """What is known of the speed beforehand; corrected by what is measured."""

    gradient_size: Quantity | None = None
    """Bytes pushed per mini-batch (q), such as 98Mi."""
    step_time: PositiveDuration | None = None
    """One mini-batch on one worker without communication, such as 120ms."""


class Checkpoint(Resource):
    """Where an attempt may resume."""

    scope: Literal["Node", "Site", "Cluster"] = "Cluster"
    """From where the volume can be read: the same node, the same site, anywhere."""
    volume: Volume | None = None
    """Mounted into the job's pods; its path is in TRANCHE_CHECKPOINT_DIR."""


class PreemptionSpec(Resource):
    """When and at what cost the job's workers may be stopped for another job."""

    policy: Literal["Immediate", "AtChunkEnd", "Never"] = "Immediate"
    """When a worker may be stopped: at once (SIGTERM), after its chunk, or not at all."""
    restart_overhead: Duration | None = None
    """Time lost at every start of a pod (image, imports, reading the checkpoint); default: measured."""


class RunPolicy(Resource):
    """Limits of the run and what is left after it."""

    backoff_limit: int = Field(default=6, ge=0, le=1000)
    """Failed pods before the job is Failed. Preempted pods never count."""
    active_deadline_seconds: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """The job is Failed when it is not done so long after its first pod started."""
    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """The finished job is deleted after so long; default: kept."""
    clean_pod_policy: Literal["All", "Running", "None"] = "Running"
    """Which pods are deleted when the job is over."""


class TrainingJobSpec(Resource):
    """What the user asks for."""

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
                "the size of a gang cannot change, its members are told it when they start: create a new job",
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
                "!has(self.model) || !has(self.model.stepTime) || !has(self.estimatedDuration)",
                "give model.stepTime or estimatedDuration, not both",
            ),
        )
    )

    suspend: bool = False
    """true stops the job's pods and keeps its progress; false resumes it."""
    weight: float = Field(default=1.0, gt=0, le=1_000_000)
    """Above 1: more urgent than its size says."""
    priority_class_name: Literal["tranche-low", "tranche-normal", "tranche-high"] = "tranche-normal"
    """Strict tier: a job of a higher tier always comes first."""
    data: Data | None = None
    workers: Workers
    parameter_servers: ParameterServers | None = None
    chief: Chief | None = None
    model: TrainingModel | None = None
    estimated_duration: PositiveDuration | None = None
    """Of the whole job on maxReplicas workers, such as 2h; only a first guess."""
    checkpoint: Checkpoint | None = None
    preemption: PreemptionSpec = PreemptionSpec()
    run_policy: RunPolicy = RunPolicy()


class SiteLink(Resource):
    """A network path to another site (or, with the site's own name, its internal network)."""

    to: SiteName
    """Name of the other site."""
    bandwidth: PositiveQuantity
    """Bits per second, such as 500M."""
    latency: Duration = "0s"
    """One way, such as 20ms."""


class SiteSpec(Resource):
    """What the cluster's administrator declares of a site."""

    tier: Literal["Edge", "Cloud"] = "Edge"
    """Edge: near the data, few nodes. Cloud: far, many nodes."""
    node_selector: dict[str, str] = Field(min_length=1, max_length=32)
    """Labels of the site's nodes. A node belongs to one site."""
    unlimited: bool = False
    """Behind an autoscaler: capacity is made on demand."""
    node_startup: Duration = "0s"
    """Time that the autoscaler of an unlimited site takes to make a node, such as 3m."""
    disconnect_tolerance: Duration = "1h"
    """So long the pods of a site that fell silent keep their chunks."""
    links: list[SiteLink] = Field(default=[], max_length=256, json_schema_extra=by_key("to"))
    """Network paths from this site to others."""
