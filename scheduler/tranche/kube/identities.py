"""Which attempt of which job a pod is, by the labels and the annotation that the operator wrote."""

from dataclasses import dataclass

from tranche.kube.names import (
    ANNOTATION_PLAN,
    LABEL_ATTEMPT,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_ROLE,
    ROLE_CHIEF,
    ROLE_SERVER,
    ROLE_WORKER,
)
from tranche.kube.resources import GROUP, TrainingJob
from tranche.kube.structs import Metadata, Pod


@dataclass(frozen=True, slots=True)
class Identity:
    """One entry of a plan, by its pod."""

    job: str
    """``namespace/name``."""
    role: str
    index: int
    attempt: int


def identity(pod: Pod) -> Identity | None:
    """Who the pod is; None if it is not one of ours."""
    labels = pod.metadata.labels
    try:
        index, attempt = int(labels[LABEL_INDEX]), int(labels[LABEL_ATTEMPT])
        return Identity(f"{pod.metadata.namespace}/{labels[LABEL_JOB]}", labels[LABEL_ROLE], index, attempt)
    except (KeyError, ValueError):
        return None


def may_report_progress(job: TrainingJob, role: str, index: int) -> bool:
    """Whether its reports count: of the chief, else of parameter server 0, else of rank 0 of a gang, else of all."""
    if job.spec.chief is not None:
        return role == ROLE_CHIEF
    if job.spec.parameter_servers is not None:
        return role == ROLE_SERVER and index == 0
    return role == ROLE_WORKER and (job.spec.data is not None or index == 0)


def may_request_chunks(job: TrainingJob, role: str) -> bool:
    """Whether this pod may ask for its next chunks: every worker of a chunked job."""
    return role == ROLE_WORKER and job.spec.data is not None


def owner_uid(metadata: Metadata) -> str | None:
    """UID of the TrainingJob that controls an object; None if there is none.

    A job's name does not tell: the pods of a deleted job take a while to stop, and another job may have the name.
    """
    for owner in metadata.owner_references:
        if owner.controller and owner.kind == "TrainingJob" and owner.api_version.partition("/")[0] == GROUP:
            return owner.uid
    return None


def plan_stamp(pod: Pod) -> tuple[int, int]:
    """Term and revision of the plan that the pod was made from; (0, 0), older than all, if it does not say."""
    term, _, revision = pod.metadata.annotations.get(ANNOTATION_PLAN, "").partition(".")
    try:
        return int(term), int(revision)
    except ValueError:
        return 0, 0
