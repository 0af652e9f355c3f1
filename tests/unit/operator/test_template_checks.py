"""Dry runs: which answers of the API server are final, which are repeated, and what is reported of admitted pods."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from support.operator_objects import ACCEPTED, NOW, observed, plan, training_job, window
from support.reconcile_summary import of_type
from tranche.kube.api.names import LABEL_ROLE
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.errors import ApiError, Unreachable
from tranche.kube.convert.admitted_pod import admitted_pod
from tranche_operator.execute.template_check import admitted_verdict, check_template
from tranche_operator.manifests.pod import checked_pods
from tranche_operator.reconcile.actions import CheckByCreation, CheckTemplate, CreatePod, RequeueAfter, WriteStatus
from tranche_operator.reconcile.observed import Observed, Rejection, TemplateVerdict
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings

SETTINGS = Settings()
DENIED = 'admission webhook "validate.kyverno.svc-fail" denied the request: registry cannot be reached'
FORBIDDEN = "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
QUOTA = 'pods "cats-worker-0-check" is forbidden: exceeded quota: q, requested: {0}=2, used: {0}=8, limited: {0}=9'


class Api:
    """API server that answers every dry run alike."""

    def __init__(self, error: ApiError | None = None) -> None:
        self.error = error

    async def request(self, *_: Any, body: dict[str, Any], **__: Any) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return body


def check(error: ApiError | None = None, known: TemplateVerdict | None = None) -> TemplateVerdict:
    job = training_job(checked=False)
    action = CheckTemplate(1, checked_pods(job, SETTINGS))
    return asyncio.run(check_template(Api(error), job, action, known, SETTINGS, NOW))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        ApiError(400, "BadRequest", DENIED),
        ApiError(403, "Forbidden", DENIED),
        ApiError(422, "Invalid", DENIED, kind="Pod", fields=("spec",)),
        ApiError(422, "Invalid", FORBIDDEN, kind="pods"),
        ApiError(422, "Invalid", "the server rejected our request", kind="", fields=()),
        ApiError(403, "Forbidden", QUOTA.format("limits.cpu")),
        ApiError(403, "Forbidden", 'pods "x" is forbidden: no PriorityClass with name tranche-high was found'),
        ApiError(403, "Forbidden", 'pods "x" is forbidden: because it is being terminated'),
        ApiError(413, "RequestEntityTooLarge", "limit is 3145728"),
        ApiError(500, "InternalError", "failed calling webhook"),
        ApiError(429, "TooManyRequests", "try again"),
    ],
)
def test_denials_are_not_final(error: ApiError) -> None:
    verdict = check(error)
    assert verdict.update.status == "Unknown"
    assert error.message in verdict.update.message
    assert verdict.until == NOW + timedelta(seconds=SETTINGS.check_backoff_seconds)


@pytest.mark.parametrize(
    "error",
    [
        ApiError(422, "Invalid", 'Pod "x" is invalid: spec.containers', kind="Pod", fields=("spec.containers",)),
        ApiError(400, "BadRequest", 'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal'),
    ],
)
def test_invalid_pod_is_rejected_and_checked_again(error: ApiError) -> None:
    """A LimitRange, which may be corrected, can have made it invalid."""
    verdict = check(error)
    later = NOW + timedelta(seconds=SETTINGS.check_backoff_seconds)
    assert (verdict.update.status, verdict.until) == ("True", later)
    invalid = {**ACCEPTED, "status": "True", "reason": "TemplateRejected", "message": verdict.update.message}
    job = training_job(status={"conditions": [invalid]}, checked=False)
    assert not checks(job, verdict, NOW)
    assert checks(job, verdict, later)
    assert checks(job, None, NOW), "an operator that has just started has no result"


def checks(job: TrainingJob, verdict: TemplateVerdict | None, at: datetime) -> list[CheckTemplate]:
    return of_type(CheckTemplate, reconcile(observed(job, verdict=verdict), SETTINGS, at))


def test_the_pause_between_dry_runs_doubles() -> None:
    verdict = None
    pauses = []
    for _ in range(6):
        verdict = check(ApiError(403, "Forbidden", DENIED), verdict)
        assert verdict.until is not None
        pauses.append((verdict.until - NOW).total_seconds())
    assert pauses == [30, 60, 120, 240, 300, 300]


def test_retry_after_lengthens_the_pause() -> None:
    verdict = check(ApiError(429, "TooManyRequests", "slow down", retry_after=90.0))
    assert verdict.until == NOW + timedelta(seconds=90)


def test_an_unreachable_api_server_is_no_result() -> None:
    with pytest.raises(Unreachable):
        check(Unreachable("Timeout", "no answer"))


@pytest.mark.parametrize("limit", ["pods", "requests.cpu", "memory", "requests.nvidia.com/gpu", "count/pods"])
def test_a_full_quota_that_is_planned_is_no_objection(limit: str) -> None:
    verdict = check(ApiError(403, "Forbidden", QUOTA.format(limit)))
    assert (verdict.update.status, verdict.update.reason) == ("False", "QuotaFull")
    assert verdict.until is not None


def test_a_webhook_without_dry_run_is_named() -> None:
    verdict = check(ApiError(400, "BadRequest", 'admission webhook "w" does not support dry run'))
    assert (verdict.update.status, verdict.update.reason) == ("Unknown", "DryRunUnsupported")


def test_admitted_pods_are_written_to_the_status() -> None:
    job, verdict = training_job(checked=False), check()
    (write,) = [a for a in reconcile(observed(job, verdict=verdict), SETTINGS, NOW) if isinstance(a, WriteStatus)]
    assert write.status["admitted"]["generation"] == 1
    assert [pod["role"] for pod in write.status["admitted"]["pods"]] == ["worker"]


def test_a_result_that_is_not_final_is_checked_again() -> None:
    job, verdict = training_job(checked=False), check(ApiError(403, "Forbidden", DENIED))
    early = reconcile(observed(job, verdict=verdict), SETTINGS, NOW)
    assert [a.seconds for a in early if isinstance(a, RequeueAfter)] == [30]
    assert not any(isinstance(a, CheckTemplate) for a in early)
    late = reconcile(observed(job, verdict=verdict), SETTINGS, NOW + timedelta(seconds=30))
    assert any(isinstance(a, CheckTemplate) for a in late)


def test_admitted_requests_are_those_of_kube_scheduler() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu, "rdma/hca": "1"}}, **more}

    spec = {
        "initContainers": [container("250m", restartPolicy="Always"), container("4")],
        "containers": [container("1"), container("500m")],
        "overhead": {"cpu": "100m", "memory": "64Mi"},
    }
    summary = admitted_pod("worker", {"spec": spec}, {"spec": spec})
    assert summary.requests == {"cpu": "4350m", "memory": str(64 * 2**20), "rdma/hca": "3"}
    assert summary.overhead == {"cpu": "100m", "memory": str(64 * 2**20)}


def test_constraints_left_to_kube_scheduler_are_named() -> None:
    rule = [{"topologyKey": "zone", "labelSelector": {}}]
    spec = {
        "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}},
        "topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}],
        "resourceClaims": [{"name": "gpu"}],
    }
    found = admitted_pod("worker", {"spec": spec}, {"spec": spec}).unplanned
    assert found == ["hostPorts", "podAntiAffinity", "resourceClaims", "topologySpreadConstraints", "volumes"]


def test_preferences_are_no_constraints() -> None:
    spec = {
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}},
        "topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    assert admitted_pod("worker", {"spec": spec}, {"spec": spec}).unplanned == []


def test_node_affinity_that_admission_adds_is_named() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gold"]}]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    assert admitted_pod("worker", {"spec": {}}, {"spec": spec}).unplanned == ["nodeAffinity"]
    assert admitted_pod("worker", {"spec": spec}, {"spec": spec}).unplanned == []


def test_scheduler_that_admission_sets_is_named() -> None:
    sent = {"spec": {"schedulerName": "tranche"}}
    assert admitted_pod("worker", sent, {"spec": {"schedulerName": "yunikorn"}}).unplanned == ["schedulerName"]
    assert admitted_pod("worker", sent, sent).unplanned == []


def unchecked(**more: Any) -> Any:
    return training_job(chunks=None, workers=2, checked=False, **more)


def kinds(seen: Observed) -> list[type]:
    return [type(action) for action in reconcile(seen, SETTINGS, NOW)]


def test_pods_that_are_created_need_no_dry_run() -> None:
    found = kinds(observed(unchecked(status={"plan": plan(window(0, 1), window(1, 2))})))
    assert found.count(CreatePod) == 2
    assert CheckByCreation in found
    assert CheckTemplate not in found
    assert WriteStatus not in found


def test_pods_that_are_forbidden_at_first_need_a_dry_run() -> None:
    """Else a job whose service account is missing would have neither a phase nor an explanation for 30 s."""
    found = kinds(observed(unchecked(status={"plan": plan(window(0, 1), window(1, 2))}), is_forbidden=True))
    assert found.count(CreatePod) == 2, "the rejection is most often transient"
    assert CheckTemplate in found


def test_a_role_without_a_created_pod_needs_a_dry_run() -> None:
    job = training_job(workers=2, servers=1, checked=False, status={"plan": plan(window(0, 1))})
    found = kinds(observed(job))
    assert CreatePod in found
    assert CheckTemplate in found


def test_rejected_pods_are_checked_by_a_dry_run() -> None:
    rejection = Rejection("cats-worker-0-1", "Forbidden", "no", NOW + timedelta(seconds=5))
    found = kinds(observed(unchecked(status={"plan": plan(window(0, 1))}), rejection=rejection))
    assert CreatePod not in found
    assert CheckTemplate in found


@pytest.mark.parametrize(("busy", "age", "check"), [(False, 1, True), (True, 1, False), (True, 60, True)])
def test_a_new_job_waits_for_its_plan_while_many_do(busy: bool, age: float, check: bool) -> None:
    job = unchecked()
    created = {"creation_timestamp": NOW - timedelta(seconds=age)}
    job = job.model_copy(update={"metadata": job.metadata.model_copy(update=created)})
    actions = reconcile(observed(job, is_busy=busy), SETTINGS, NOW)
    assert any(isinstance(action, CheckTemplate) for action in actions) is check
    assert any(isinstance(action, RequeueAfter) for action in actions) is not check
    assert not any(isinstance(action, WriteStatus) for action in actions)


def test_created_pods_are_reported_as_admitted() -> None:
    job = unchecked()
    pods = {one["metadata"]["labels"][LABEL_ROLE]: (one, one) for one in checked_pods(job, SETTINGS)}
    assert admitted_verdict(1, pods) == check_of(job)


def check_of(job: Any) -> TemplateVerdict:
    action = CheckTemplate(1, checked_pods(job, SETTINGS))
    return asyncio.run(check_template(Api(), job, action, None, SETTINGS, NOW))  # type: ignore[arg-type]
