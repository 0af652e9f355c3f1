"""Pydantic models of the custom resources: specification, status, and the source of the CRDs.

`tranche_codegen.crds` generates the manifests from these models, and a test keeps both equal. CEL rules, defaults,
bounds and list types stand beside the field that they concern; ``kubectl explain`` shows the docstrings.
"""

from datetime import datetime
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from tranche.kube.api.fields import (
    MAX_CHUNKS,
    MAX_JOB_NAME,
    MAX_SITE_NAME,
    Duration,
    Quantity,
    Resource,
    Template,
    Volume,
    rules,
)
from tranche.kube.api.spec import (
    Checkpoint,
    Chief,
    Communication,
    Data,
    ParameterServers,
    PreemptionSpec,
    RunPolicy,
    SiteLink,
    SiteSpec,
    Staging,
    TrainingJobSpec,
    TrainingModel,
    Workers,
)
from tranche.kube.api.status import (
    AdmittedPod,
    AdmittedPods,
    AdmittedToleration,
    Condition,
    EndedAttempt,
    NodePods,
    PartialChunk,
    Plan,
    PlannedChief,
    PlannedParameterServer,
    PlannedStaging,
    PlannedWindow,
    PodPlaces,
    PreemptedJob,
    Progress,
    ReservedCells,
    SavedProgress,
    SiteProgress,
    SiteStatus,
    SlotOffer,
    TrainingJobStatus,
    UnplacedPods,
    WorkerGrant,
)

GROUP = "tranche.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
__all__ = [
    "API_VERSION",
    "GROUP",
    "MAX_CHUNKS",
    "MAX_JOB_NAME",
    "VERSION",
    "AdmittedPod",
    "AdmittedPods",
    "AdmittedToleration",
    "Checkpoint",
    "Chief",
    "Communication",
    "Condition",
    "Data",
    "Duration",
    "EndedAttempt",
    "Metadata",
    "NodePods",
    "ParameterServers",
    "PartialChunk",
    "Plan",
    "PlannedChief",
    "PlannedParameterServer",
    "PlannedStaging",
    "PlannedWindow",
    "PodPlaces",
    "PreemptedJob",
    "PreemptionSpec",
    "Progress",
    "Quantity",
    "ReservedCells",
    "Resource",
    "RunPolicy",
    "SavedProgress",
    "SiteLink",
    "SiteObject",
    "SiteProgress",
    "SiteSpec",
    "SiteStatus",
    "SlotOffer",
    "Staging",
    "Template",
    "TrainingJob",
    "TrainingJobSpec",
    "TrainingJobStatus",
    "TrainingModel",
    "UnplacedPods",
    "Volume",
    "WorkerGrant",
    "Workers",
]


class Metadata(Resource):
    """ObjectMeta, with only the fields that are read."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 1
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    finalizers: list[str] = Field(default=[])
    labels: dict[str, str] = Field(default={})
    annotations: dict[str, str] = Field(default={})


class TrainingJob(Resource):
    """A distributed training job; `tranche` decides which of its chunks trains where and when."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                f"size(self.metadata.name) <= {MAX_JOB_NAME} "
                "&& self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                f"metadata.name must have at most {MAX_JOB_NAME} characters, lower case letters, digits and '-', "
                "and begin with a letter: pods and a Service are named after it",
            ),
            (
                "!has(oldSelf.spec.checkpoint) || !has(oldSelf.spec.checkpoint.volume) || oldSelf.spec.suspend "
                "|| !has(oldSelf.status) || !has(oldSelf.status.startTime) "
                "|| (has(self.spec.checkpoint) && has(self.spec.checkpoint.volume) "
                "&& self.spec.checkpoint.volume == oldSelf.spec.checkpoint.volume)",
                "checkpoint.volume has the saved progress of this job: suspend the job before you change the volume, "
                "and copy the directory status.checkpointDirectory to the new one",
            ),
        )
    )

    metadata: Metadata
    spec: TrainingJobSpec
    status: TrainingJobStatus = TrainingJobStatus()

    @model_validator(mode="before")
    @classmethod
    def _drop_status_of_earlier_job(cls, data: Any) -> Any:
        """Drop a plan and ledger that a late write for a deleted job of the same name left in the status."""
        if not isinstance(data, dict) or not isinstance(status := data.get("status"), dict):
            return data
        plan, metadata = status.get("plan"), data.get("metadata")
        owner = plan.get("jobUid") if isinstance(plan, dict) else None
        if owner is None or not isinstance(metadata, dict) or owner == metadata.get("uid"):
            return data
        return {**data, "status": {name: part for name, part in status.items() if name not in ("plan", "progress")}}

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def priority_class_name(self) -> str:
        """Priority class of the pods: that of the spec, unless the plan names a lower one."""
        plan = self.status.plan
        return (plan.priority_class_name if plan is not None else None) or self.spec.priority_class_name

    @property
    def preemption_policy(self) -> str:
        """Preemption policy that counts: that of the spec, unless the plan names another one."""
        plan = self.status.plan
        return (plan.preemption_policy if plan is not None else None) or self.spec.preemption.policy


class SiteObject(Resource):
    """A group of nodes with fast links among themselves: an edge site, or a cloud.

    Optional: without any Site, all nodes form one site.
    """

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                f"size(self.metadata.name) <= {MAX_SITE_NAME} "
                "&& self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
                f"metadata.name must have at most {MAX_SITE_NAME} characters, lower case letters, digits and '-'",
            )
        )
    )

    metadata: Metadata
    spec: SiteSpec
    status: SiteStatus = SiteStatus()
