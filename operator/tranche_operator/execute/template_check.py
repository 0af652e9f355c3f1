"""Dry run of a job's pods: whether the API server admits them, and what admission makes of them."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tranche.kube.api.names import CONDITION_INVALID_TEMPLATE, LABEL_ROLE, REASON_NO_DRY_RUN
from tranche.kube.api.resources import AdmittedPod, AdmittedPods, TrainingJob
from tranche.kube.client.client import ApiClient, ApiError, Unreachable
from tranche.kube.convert.admitted_pod import admitted_pod
from tranche_operator.execute.pod_creator import is_transient_403, post_pod
from tranche_operator.reconcile.actions import CheckTemplate
from tranche_operator.reconcile.observed import TemplateVerdict
from tranche_operator.reconcile.status import ConditionUpdate, Truth
from tranche_operator.settings import Settings

REASON_ADMITTED = "TemplateAccepted"
ADMITTED = "the API server accepts the pods of the job"
REASON_QUOTA_FULL = "QuotaFull"
_FIRST_TRANSIENT_PAUSE_SECONDS = 1.0
"""First pause after a rejection that is usually transient; it doubles like the other."""
_POLICY = ("admission webhook", "ValidatingAdmissionPolicy")
_UNREADABLE = re.compile('Pod in version "v1" cannot be handled as a Pod')
"""Message of the API server for a body that it cannot decode, before any webhook sees it."""
_NO_DRY_RUN = "does not support dry run"
_QUOTA = re.compile(r"exceeded quota: [^,]+, requested: (.*?), used: ")
_PLANNED_LIMIT = re.compile(r"(requests\.)?(cpu|memory)|requests\.[^/]+/.+|(count/)?pods")
"""Limits of a ResourceQuota that the planner keeps itself. The operator does not know which device is the GPU."""


async def check_template(
    client: ApiClient,
    job: TrainingJob,
    action: CheckTemplate,
    known: TemplateVerdict | None,
    settings: Settings,
    now: datetime,
) -> TemplateVerdict:
    """Check by a dry run whether the API server admits the job's pods.

    A pod that is not valid is rejected: most often its template is wrong. Webhooks, policies, Pod Security and failures
    depend on more than the template: their result is Unknown. In both cases the dry run is repeated after a pause,
    because a LimitRange or a webhook, which may be corrected, can have made the pod invalid. A quota that is full is no
    obstacle, because it is evaluated last and the planner counts it itself.

    Args:
        client: Client of the API server.
        job: The job.
        action: Generation of the spec, and one pod of each role.
        known: Last result for the job.
        settings: The operator's settings.
        now: Current time, with a time zone.

    Raises:
        Unreachable: if a request is not answered.
    """
    admitted, quota = [], ""
    for manifest in action.manifests:
        role = manifest["metadata"]["labels"][LABEL_ROLE]
        try:
            admitted.append(admitted_pod(role, manifest, await post_pod(client, job, manifest, dry_run=True)))
        except Unreachable:
            raise
        except ApiError as error:
            message = f"template of role {role}: {error.message}"
            if is_invalid_pod(error):
                return _repeated(action, error, _update("True", "TemplateRejected", message), known, settings, now)
            if not _is_planned_quota(error):
                reason = REASON_NO_DRY_RUN if _NO_DRY_RUN in error.message else "NotChecked"
                return _repeated(action, error, _update("Unknown", reason, message), known, settings, now)
            quota = message
    if quota:
        return _repeated(action, None, _update("False", REASON_QUOTA_FULL, quota), known, settings, now)
    pods = AdmittedPods(generation=action.generation, pods=admitted)
    return TemplateVerdict(action.generation, _update("False", REASON_ADMITTED, ADMITTED), pods)


def admitted_verdict(
    generation: int, pods: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> TemplateVerdict:
    """Return the result for pods that have been admitted.

    Args:
        generation: Generation of the job's spec.
        pods: One pod of each role, as sent and as admitted, as JSON.

    Raises:
        ValueError: a pod cannot be read.
    """
    summaries = [admitted_pod(role, *pods[role]) for role in sorted(pods)]
    admitted = AdmittedPods(generation=generation, pods=summaries)
    return TemplateVerdict(generation, _update("False", REASON_ADMITTED, ADMITTED), admitted)


def changed_admission(
    known: AdmittedPods, pods: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> TemplateVerdict | None:
    """Return the result for pods of which admission has made something else than before; None if there is none.

    A webhook or policy may be installed, and a LimitRange changed, long after the dry run.

    Args:
        known: The pods as they were admitted before.
        pods: As in `admitted_verdict`.

    Raises:
        ValueError: a pod cannot be read.
    """
    before = {one.role: one for one in known.pods}
    now = {role: admitted_pod(role, *pods[role]) for role in before.keys() & pods.keys()}
    if all(_is_alike(before[role], one) for role, one in now.items()):
        return None
    admitted = AdmittedPods(generation=known.generation, pods=list({**before, **now}.values()))
    return TemplateVerdict(known.generation, _update("False", REASON_ADMITTED, ADMITTED), admitted)


def _is_alike(one: AdmittedPod, other: AdmittedPod) -> bool:
    """Return whether both have the same constraints; the order of tolerations does not matter."""
    first, second = (
        (pod.requests, pod.overhead, pod.node_selector, sorted(map(repr, pod.tolerations)), pod.unplanned)
        for pod in (one, other)
    )
    return first == second


def is_invalid_pod(error: ApiError) -> bool:
    """Return whether the API server itself found the pod invalid, as its template and admission have made it."""
    if error.message.startswith(_POLICY):
        return False
    if error.status == 400:
        return _UNREADABLE.match(error.message) is not None
    return error.status == 422 and error.kind == "Pod" and bool(error.fields)


def _is_planned_quota(error: ApiError) -> bool:
    """Return whether the only obstacle are limits of quotas that the planner keeps itself."""
    if error.status != 403 or error.message.startswith(_POLICY):
        return False
    found = _QUOTA.search(error.message)
    limits = [amount.partition("=")[0] for amount in found[1].split(",")] if found else []
    return bool(limits) and all(_PLANNED_LIMIT.fullmatch(limit) for limit in limits)


def _repeated(
    action: CheckTemplate,
    error: ApiError | None,
    update: ConditionUpdate,
    known: TemplateVerdict | None,
    settings: Settings,
    now: datetime,
) -> TemplateVerdict:
    """Return a result after which the dry run is repeated."""
    again = known is not None and known.generation == action.generation and known.until is not None
    count = known.count + 1 if known is not None and again else 1
    passing = error is not None and is_transient_403(error)
    first = _FIRST_TRANSIENT_PAUSE_SECONDS if passing else settings.check_backoff_seconds
    pause = max(first * 2.0 ** min(count - 1, 32), (error.retry_after or 0.0) if error is not None else 0.0)
    until = now + timedelta(seconds=min(pause, settings.longest_check_backoff_seconds))
    return TemplateVerdict(action.generation, update, until=until, count=count)


def _update(status: Truth, reason: str, message: str) -> ConditionUpdate:
    return ConditionUpdate(CONDITION_INVALID_TEMPLATE, status, reason, message)
