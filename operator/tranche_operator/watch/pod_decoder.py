"""Decoding of pods into `PodView`."""

from datetime import datetime

import msgspec

from tranche.kube.api.core_types import Metadata, Narrow, Pod
from tranche.kube.api.names import LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY
from tranche.kube.convert.container_start import StartProblem, start_delay
from tranche.kube.convert.pod_identity import identity, owner_uid
from tranche.kube.convert.pod_state import is_over
from tranche.kube.convert.training_container import has_terminated, others_go_on
from tranche_operator.reconcile.observed import PodView

_DEFAULT_GRACE_SECONDS = 30


class ListMetadata(Narrow, frozen=True):
    """ListMeta."""

    # The field's own name clashes with the keyword.
    next_page: str = msgspec.field(name="continue", default="")


class PodList(Narrow, frozen=True):
    """One page of pods."""

    metadata: ListMetadata = ListMetadata()
    items: tuple[Pod, ...] = ()


_PODS = msgspec.json.Decoder(PodList)


def read_pods(raw: bytes) -> PodList:
    """Decode a page of pods.

    Raises:
        msgspec.DecodeError: if it is none.
    """
    return _PODS.decode(raw)


def job_key(metadata: Metadata) -> str:
    """Return the key of the job that the pod's label names."""
    return f"{metadata.namespace}/{metadata.labels.get(LABEL_JOB, '')}"


def read_pod(raw: object) -> tuple[str, PodView]:
    """Convert a pod that was decoded from JSON; return the key of its job, and its `PodView`.

    Raises:
        msgspec.ValidationError: if it is none.
    """
    pod = msgspec.convert(raw, Pod)
    return job_key(pod.metadata), view(pod)


def _bound(pod: Pod) -> datetime | None:
    found = (c.last_transition_time for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "True")
    return next(found, None)


def view(pod: Pod) -> PodView:
    """Extract the fields that `reconcile` reads."""
    metadata, who = pod.metadata, identity(pod)
    delay = start_delay(pod) if metadata.deletion_timestamp is None else None
    creating = delay is not None and delay.kind is StartProblem.CREATION
    grace = pod.spec.termination_grace_period_seconds
    return PodView(
        name=metadata.name,
        uid=metadata.uid,
        owner=owner_uid(metadata),
        role=who.role if who else "",
        attempt=who.attempt if who else 0,
        phase=pod.status.phase,
        over=is_over(pod),
        terminating=metadata.deletion_timestamp is not None,
        trained=has_terminated(pod),
        sidecars=others_go_on(pod),
        node=pod.spec.node_name,
        ends_by=metadata.deletion_timestamp,
        deletion_grace_seconds=metadata.deletion_grace_period_seconds or 0,
        finalizers=metadata.finalizers,
        selected=metadata.labels.get(LABEL_MANAGED_BY) == MANAGED_BY,
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates),
        grace_seconds=_DEFAULT_GRACE_SECONDS if grace is None else max(1, grace),
        delay=None if creating else delay,
        creating_since=_bound(pod) if creating else None,
        creating=delay.message if delay is not None and creating else "",
        version=int(metadata.resource_version or 0),
    )
