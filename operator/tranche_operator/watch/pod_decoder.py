"""Decoding of pods into `PodView`."""

import msgspec

from tranche.kube.api.core_types import Metadata, Narrow, Pod, PodSpec
from tranche.kube.api.names import LABEL_JOB
from tranche.kube.convert.pod_identity import identity, owner_uid, plan_stamp
from tranche.kube.convert.pods_and_nodes import is_over
from tranche_operator.reconcile.observed import PodView

_DEFAULT_GRACE_SECONDS = 30


class Gate(Narrow, frozen=True):
    """A scheduling gate."""

    name: str = ""


class GatedSpec(PodSpec, frozen=True):
    """A pod's spec, with its scheduling gates."""

    scheduling_gates: tuple[Gate, ...] = ()


class OwnedPod(Pod, frozen=True):
    """A pod, with the fields that only the operator reads."""

    spec: GatedSpec = GatedSpec()


class ListMetadata(Narrow, frozen=True):
    """ListMeta."""

    # The field's own name clashes with the keyword.
    next_page: str = msgspec.field(name="continue", default="")


class PodList(Narrow, frozen=True):
    """One page of pods."""

    metadata: ListMetadata = ListMetadata()
    items: tuple[OwnedPod, ...] = ()


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
    pod = msgspec.convert(raw, OwnedPod)
    return job_key(pod.metadata), view(pod)


def view(pod: OwnedPod) -> PodView:
    """Extract the fields that `reconcile` reads."""
    metadata, who = pod.metadata, identity(pod)
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
        finalizers=metadata.finalizers,
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates),
        grace_seconds=_DEFAULT_GRACE_SECONDS if grace is None else grace,
        plan=plan_stamp(pod),
        version=int(metadata.resource_version or 0),
    )
