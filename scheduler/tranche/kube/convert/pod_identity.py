"""Identity of a pod (job, role, index, attempt), from the labels and the annotation that the operator sets."""

from dataclasses import dataclass

from tranche.kube.api.core_types import Metadata, Pod
from tranche.kube.api.names import (
    ANNOTATION_PLAN,
    LABEL_ATTEMPT,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_ROLE,
    ROLE_CHIEF,
    ROLE_SERVER,
    ROLE_WORKER,
)
from tranche.kube.api.resources import GROUP, TrainingJob


@dataclass(frozen=True, slots=True)
class Identity:
    """The entry of a plan that a pod belongs to."""

    job: str
    """``namespace/name``."""
    role: str
    index: int
    attempt: int


def identity(pod: Pod) -> Identity | None:
    """Return the identity of a pod; None if it does not belong to a TrainingJob."""
    labels = pod.metadata.labels
    try:
        index, attempt = int(labels[LABEL_INDEX]), int(labels[LABEL_ATTEMPT])
        return Identity(f"{pod.metadata.namespace}/{labels[LABEL_JOB]}", labels[LABEL_ROLE], index, attempt)
    except (KeyError, ValueError):
        return None


def controlled_identity(pod: Pod) -> Identity | None:
    """Return the identity of a pod that a TrainingJob controls; None for one that only has the labels, as a copy."""
    return identity(pod) if owner_uid(pod.metadata) is not None else None


def may_report_progress(job: TrainingJob, role: str, index: int) -> bool:
    """Return whether this pod reports progress.

    The reporter is the chief, else parameter server 0, else rank 0 of a gang, else every worker.
    """
    if job.spec.chief is not None:
        return role == ROLE_CHIEF
    if job.spec.parameter_servers is not None:
        return role == ROLE_SERVER and index == 0
    return role == ROLE_WORKER and (job.spec.data is not None or index == 0)


def may_request_chunks(job: TrainingJob, role: str) -> bool:
    """Return whether this pod may request its next chunks: every worker of a chunked job."""
    return role == ROLE_WORKER and job.spec.data is not None


def owner_uid(metadata: Metadata) -> str | None:
    """Return the UID of the TrainingJob that controls an object; None if there is none.

    The job name is not sufficient: pods of a deleted job take time to stop, and a new job may have the same name.
    """
    for owner in metadata.owner_references:
        if owner.controller and owner.kind == "TrainingJob" and owner.api_version.partition("/")[0] == GROUP:
            return owner.uid
    return None


def plan_stamp(pod: Pod) -> tuple[int, int]:
    """Return the term and revision of the plan that the pod was created from.

    (0, 0), older than any plan, if unknown.
    """
    term, _, revision = pod.metadata.annotations.get(ANNOTATION_PLAN, "").partition(".")
    try:
        return int(term), int(revision)
    except ValueError:
        return 0, 0
