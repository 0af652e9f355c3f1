"""Creation of pods, and the reasons why the API server rejects them."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tranche.kube.api.core_types import Metadata
from tranche.kube.api.names import FINALIZER_LEDGER, OPERATOR_MANAGER, ROLE_CHIEF
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.client.errors import is_object_rejected
from tranche.kube.convert.pod_identity import owner_uid
from tranche_operator import api_paths
from tranche_operator.reconcile.actions import CreatePod, Manifest
from tranche_operator.reconcile.observed import PodView
from tranche_operator.watch.pod_decoder import job_key, read_pod

FIRST_BATCH, LARGEST_BATCH = 16, 32
_REFUSED = frozenset({400, 403, 413, 422})
"""Status codes of a create request that reject this pod; a retry succeeds only after something else has changed."""
CREATION_SECONDS = 40.0
"""Time for a request: longer than a webhook may take (30 s), so that the API server names the one that did not answer.
"""
_TRANSIENT_403 = re.compile(
    'User ".*" cannot create resource|not yet ready to handle request|'
    "status unknown for quota|looking up service account"
)
"""Messages of transient 403 responses: an API server that has just started has not loaded RBAC, a new namespace has no
service account yet, or the usage of a new quota is not computed yet."""


def is_transient_403(error: ApiError) -> bool:
    """Return whether the API server forbids a creation only until it has loaded or computed something."""
    return error.status == 403 and _TRANSIENT_403.search(error.message) is not None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Rejection of a pod by the API server."""

    pod: str
    reason: str
    """CamelCase reason for a condition."""
    message: str
    passing: bool = False
    """Whether the rejection is most often transient, as by a webhook that restarts."""


@dataclass(slots=True)
class Creation:
    """Result of the creation of several pods."""

    created: list[CreatePod] = field(default_factory=list)
    """Actions whose pod did not exist before."""
    pods: list[PodView] = field(default_factory=list)
    """The created pods."""
    admitted: dict[str, tuple[Manifest, dict[str, Any]]] = field(default_factory=dict)
    """One created pod of each role, as sent and as admitted."""
    refusal: Refusal | None = None
    """First rejection, if any; later batches were not tried."""
    error: ApiError | None = None
    """First other failure, if any; later batches were not tried."""


async def create_pods(client: ApiClient, job: TrainingJob, actions: Sequence[CreatePod]) -> Creation:
    """Create pods in batches of 16, 32, 32, …, so that an exhausted quota costs few requests instead of one per pod.

    The chief is created when all other pods exist, since its success ends the job. After a failure or a crash in
    between, it must not run, and perhaps succeed, without them.
    """
    creation = Creation()
    for batch in _batches(actions):
        await asyncio.gather(*(_create(client, job, action, creation) for action in batch))
        if creation.refusal is not None or creation.error is not None:
            break
    return creation


def _batches(actions: Sequence[CreatePod]) -> Iterator[Sequence[CreatePod]]:
    others = [action for action in actions if action.role != ROLE_CHIEF]
    position, size = 0, FIRST_BATCH
    while position < len(others):
        yield others[position : position + size]
        position, size = position + size, min(2 * size, LARGEST_BATCH)
    if len(others) < len(actions):
        yield [action for action in actions if action.role == ROLE_CHIEF]


async def _create(client: ApiClient, job: TrainingJob, action: CreatePod, creation: Creation) -> None:
    name = action.manifest["metadata"]["name"]
    try:
        made = await post_pod(client, job, action.manifest)
        creation.created.append(action)
        creation.pods.append(read_pod(made)[1])
        creation.admitted.setdefault(action.role, (action.manifest, made))
    except ApiError as error:
        try:
            refusal = await _explain(client, job, name, error)
        except ApiError as other:
            creation.error = creation.error or other
        else:
            creation.refusal = creation.refusal or refusal


async def _explain(client: ApiClient, job: TrainingJob, name: str, error: ApiError) -> Refusal | None:
    """Return why a pod was not created; None if it exists, or if a pod of a deleted job with this name is terminating.

    A pod without the label of the job is neither, whatever its owner: the operator watches only pods with the label.

    Raises:
        ApiError: if the failure is not a decision about this pod.
    """
    if error.status in _REFUSED or is_object_rejected(error):
        reason = "QuotaExceeded" if "exceeded quota" in error.message else re.sub(r"[^A-Za-z]", "", error.reason)
        return Refusal(name, reason or "Refused", error.message, error.status >= 500 or is_transient_403(error))
    if error.status != 409:
        raise error
    found = await client.request("GET", api_paths.pod(job.metadata.namespace, name))
    metadata = msgspec.convert(found.get("metadata"), Metadata)
    if owner_uid(metadata) is not None and job_key(metadata) == job.key:
        released = metadata.deletion_timestamp is not None and FINALIZER_LEDGER not in metadata.finalizers
        return _name_kept(name, metadata) if released and owner_uid(metadata) != job.metadata.uid else None
    return Refusal(name, "NameTaken", "a pod of this name exists and does not belong to this TrainingJob: delete it")


def _name_kept(name: str, metadata: Metadata) -> Refusal:
    """Return the refusal because of a pod of a deleted job that should be gone."""
    by = f"the finalizer {metadata.finalizers[0]} keeps it" if metadata.finalizers else "its containers do not stop"
    message = f"a pod with this name, of a deleted TrainingJob, still exists, because {by}"
    return Refusal(name, "NameTaken", message, passing=True)


async def post_pod(client: ApiClient, job: TrainingJob, manifest: Manifest, *, dry_run: bool = False) -> dict[str, Any]:
    """Create a pod, or let the API server admit it without creating it; returns the admitted pod.

    Raises:
        ApiError: if the request fails.
    """
    params = {"fieldManager": OPERATOR_MANAGER} | ({"dryRun": "All"} if dry_run else {})
    path = api_paths.pods(job.metadata.namespace)
    return await client.request("POST", path, body=manifest, params=params, timeout=CREATION_SECONDS)
