"""Staging pods as the operator creates, reports and deletes them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.operator_objects import NOW, observed, plan, training_job, window
from tranche.kube.api import names
from tranche.kube.api.resources import SiteSpec, TrainingJob
from tranche_operator.reconcile.actions import (
    CreatePod,
    DeletePod,
    EmitEvent,
    EvictPod,
    ReleasePod,
    RequeueAfter,
    WithdrawPod,
    WriteStatus,
)
from tranche_operator.reconcile.observed import PodView, Rejection
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings

SETTINGS = Settings(report_url="http://api")
SITES = {"edge-b": SiteSpec(node_selector={"zone": "b"}), "edge-a": SiteSpec(node_selector={"zone": "a"})}
NAME = "cats-staging-edge-b-5"
TEMPLATE = {"spec": {"nodeSelector": {"disk": "fast"}, "containers": [{"name": "copy", "image": "copier:1"}]}}


def entry(**changes: Any) -> dict[str, Any]:
    return {"site": "edge-b", "attempt": 5, "chunks": "0-2", "wanted": "3", "failures": 0, "givenUp": False, **changes}


def job(*staging: dict[str, Any], windows: tuple[dict[str, Any], ...] = (), **more: Any) -> TrainingJob:
    data = {"chunks": 4, "site": "edge-a", "chunkSize": "1Mi", "staging": {"template": TEMPLATE}}
    volume = {"hostPath": {"path": "/mnt/data"}}
    spec = {"data": data, "checkpoint": {"volume": volume}, **more.pop("spec", {})}
    directory = {"checkpointDirectory": "cats-7d1c6a1e-0001"}
    status = {"plan": plan(*windows, staging=list(staging)), **directory, **more.pop("status", {})}
    return training_job(spec=spec, status=status, **more)


def pod(phase: str = "Running", **changes: Any) -> PodView:
    known = PodView(
        name=NAME,
        uid="u5",
        owner="7d1c6a1e-0001",
        role=names.ROLE_STAGING,
        attempt=5,
        phase=phase,
        over=phase in ("Succeeded", "Failed"),
        terminating=False,
        finalizers=(names.FINALIZER_LEDGER,),
    )
    return replace(known, **changes)


def decided(kind: type[Any], one: TrainingJob, *pods: PodView, **more: Any) -> list[Any]:
    actions = reconcile(observed(one, *pods, sites=SITES, **more), SETTINGS, NOW)
    return [action for action in actions if isinstance(action, kind)]


def test_staging_pod_has_site_chunks_and_volume_but_no_gpu() -> None:
    (created,) = decided(CreatePod, job(entry()))
    manifest = created.manifest
    assert manifest["metadata"]["name"] == NAME
    assert manifest["metadata"]["labels"][names.LABEL_ROLE] == "staging"
    assert manifest["metadata"]["finalizers"] == [names.FINALIZER_LEDGER]
    spec = manifest["spec"]
    assert (spec["schedulerName"], spec["nodeSelector"]) == ("tranche", {"disk": "fast"})
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    (container,) = spec["containers"]
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "TRANCHE_JOB": "lab/cats",
        "TRANCHE_JOB_UID": "7d1c6a1e-0001",
        "TRANCHE_ATTEMPT": "5",
        "TRANCHE_CHUNK_COUNT": "4",
        "TRANCHE_CHUNKS": "0,1,2",
        "TRANCHE_CHECKPOINT_DIR": SETTINGS.checkpoint_directory,
        "TRANCHE_DATA_SITE": "edge-a",
        "TRANCHE_SITE": "edge-b",
    }
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [SETTINGS.checkpoint_directory]
    assert [volume["name"] for volume in spec["volumes"]] == ["tranche-checkpoint"]
    assert not {"hostname", "subdomain"} & set(spec)


def test_staging_pod_without_site_objects_runs_on_any_node() -> None:
    """The data come from outside, such as from an object store, to the only site."""
    (created,) = decided(CreatePod, job(entry(site="cluster")))
    assert created.manifest["metadata"]["name"] == "cats-staging-cluster-5"
    assert "affinity" not in created.manifest["spec"]
    assert decided(CreatePod, job(entry(site="edge-c"))) == []


def test_a_pause_after_a_failure_has_no_pod() -> None:
    assert decided(CreatePod, job(entry(attempt=None, chunks="", failures=1))) == []


def test_ended_staging_pod_is_released_when_plan_counted_it() -> None:
    assert decided(ReleasePod, job(entry()), pod("Succeeded")) == []
    assert [one.name for one in decided(ReleasePod, job(), pod("Succeeded"))] == [NAME]


def test_a_pod_that_the_plan_does_not_know_any_more_is_stopped() -> None:
    assert decided(EvictPod, job(entry()), pod()) == []
    assert [one.name for one in decided(EvictPod, job(entry(attempt=6)), pod())] == [NAME]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_of_a_job_that_is_over_is_deleted(phase: str) -> None:
    over = job(entry(), status={"phase": phase, "completionTime": NOW.isoformat()})
    assert [one.name for one in decided(DeletePod, over, pod())] == [NAME]


def test_rejected_staging_pod_is_retried_and_workers_go_on() -> None:
    rejection = Rejection(NAME, "QuotaExceeded", "exceeded quota", NOW + timedelta(seconds=20))
    one = job(entry(), windows=(window(0, 1),))
    actions = decided(CreatePod, one, staging_rejection=rejection)
    assert [action.manifest["metadata"]["name"] for action in actions] == ["cats-worker-0-1"]
    assert [wish.seconds for wish in decided(RequeueAfter, one, staging_rejection=rejection)] == [20.0]
    (status,) = decided(WriteStatus, one, staging_rejection=rejection)
    found = {c["type"]: c for c in status.status["conditions"]}
    assert found["StagingFailed"]["message"] == f"the API server rejected pod {NAME}: exceeded quota"
    assert "PodsRejected" not in found


def test_condition_quotes_why_the_last_staging_pod_failed() -> None:
    failing = job(entry(attempt=None, chunks="", failures=1, why="ErrImagePull: no such image"))
    (status,) = decided(WriteStatus, failing)
    (condition,) = [c for c in status.status["conditions"] if c["type"] == "StagingFailed"]
    assert condition["message"] == (
        "1 staging pod for site edge-b failed: ErrImagePull: no such image; another one is created"
    )


def test_staging_failures_set_a_condition_and_send_one_event() -> None:
    failing = job(
        entry(attempt=None, chunks="", failures=2), entry(site="edge-c", attempt=None, failures=7, givenUp=True)
    )
    (status,) = decided(WriteStatus, failing)
    (condition,) = [c for c in status.status["conditions"] if c["type"] == "StagingFailed"]
    assert (condition["status"], condition["reason"]) == ("True", "GivenUp")
    assert condition["message"] == (
        "2 staging pods for site edge-b failed; another one is created; "
        "7 staging pods for site edge-c failed; no more are created for an hour or longer, "
        "so chunks train where their data is"
    )
    assert [one.message for one in decided(EmitEvent, failing) if one.reason == "StagingFailed"] == [
        condition["message"]
    ]
    status_before = {"conditions": [condition]}
    again = job(*(s.model_dump(by_alias=True) for s in failing.status.plan.staging), status=status_before)  # type: ignore[union-attr]
    assert [one for one in decided(EmitEvent, again) if one.reason == "StagingFailed"] == []
    (status,) = decided(WriteStatus, job(entry(), status=status_before))
    assert {c["type"]: c["status"] for c in status.status["conditions"]}["StagingFailed"] == "False"


def test_staging_pods_have_no_host_name_to_give_away() -> None:
    lost = pod(name="cats-staging-edge-b-4", attempt=4, terminating=True)
    assert len(decided(CreatePod, job(entry()), lost)) == 1
    assert decided(WithdrawPod, job(entry()), lost) == []
    assert decided(WithdrawPod, job(entry()), lost, pod()) == []
