"""Which attempt of which job a pod is, by the labels and the annotation that the operator wrote."""

from dataclasses import dataclass

from tranche.kube.names import ANNOTATION_PLAN, LABEL_ATTEMPT, LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from tranche.kube.structs import Pod


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


def plan_stamp(pod: Pod) -> tuple[int, int]:
    """Term and revision of the plan that the pod was made from; (0, 0), older than all, if it does not say."""
    term, _, revision = pod.metadata.annotations.get(ANNOTATION_PLAN, "").partition(".")
    try:
        return int(term), int(revision)
    except ValueError:
        return 0, 0
