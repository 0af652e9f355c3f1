"""Result of the operator's dry run as the planner reads it, and the record of pods that found no place."""

from typing import Any

import msgspec
import pytest

from tranche.kube.api.core_types import NodeObject
from tranche.kube.api.resources import Plan, TrainingJob
from tranche.kube.convert.node import node_of
from tranche.kube.convert.trainingjob import plan_status, read_plan, to_job, unplaced_conditions
from tranche.model import Admission, JobPlan, PodShape, Resources, UnplacedPods
from tranche.state.node import NodeState

NOW = 1_800_000_000.0


def resource(
    *conditions: dict[str, Any], admitted: dict[str, Any] | None = None, requests: dict[str, str] | None = None
) -> TrainingJob:
    container = {"name": "t", "resources": {"requests": {"nvidia.com/gpu": "1", **(requests or {})}}}
    template = {"spec": {"containers": [container]}}
    metadata = {"name": "a", "namespace": "team", "uid": "u", "generation": 2}
    status: dict[str, Any] = {"conditions": list(conditions)}
    status |= {"admitted": admitted} if admitted is not None else {}
    spec = {"workers": {"maxReplicas": 1, "template": template}}
    return TrainingJob.model_validate({"metadata": metadata, "spec": spec, "status": status})


def verdict(status: str, reason: str = "TemplateAccepted", generation: int = 2, message: str = "") -> dict[str, Any]:
    return {
        "type": "InvalidTemplate",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }


def summary(*unplanned: str) -> dict[str, Any]:
    return {"generation": 2, "pods": [{"role": "worker", "unplanned": list(unplanned)}]}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (resource(), Admission.UNCHECKED),
        (resource(verdict("False", generation=1)), Admission.UNCHECKED),
        (resource(verdict("False"), admitted=summary()), Admission.PASSED),
        (resource(verdict("False", "QuotaFull")), Admission.UNPROVEN),
        (resource(verdict("False"), admitted=summary("volumes")), Admission.UNPROVEN),
        (resource(verdict("Unknown", "DryRunUnsupported")), Admission.UNPROVEN),
        (resource(verdict("Unknown", "NotChecked")), Admission.REFUSED),
        (resource(verdict("False"), admitted=summary(), requests={"rdma/hca": "1"}), Admission.UNPROVEN),
    ],
)
def test_admission_follows_the_dry_run(one: TrainingJob, expected: Admission) -> None:
    assert to_job(one).admission is expected


@pytest.mark.parametrize(("cpu", "best_effort"), [("250m", True), ("300m", False)])
def test_only_overhead_that_admission_adds_is_best_effort(cpu: str, best_effort: bool) -> None:
    """A LimitRange adds requests to the containers, a RuntimeClass does not."""
    pod = {"role": "worker", "requests": {"cpu": cpu, "nvidia.com/gpu": "1"}, "overhead": {"cpu": "250m"}}
    shape = to_job(resource(verdict("False"), admitted={"generation": 2, "pods": [pod]})).worker
    assert shape.is_best_effort(shape.requests) is best_effort


def test_a_refusal_carries_the_message() -> None:
    assert to_job(resource(verdict("Unknown", "NotChecked", message="denied by p"))).refusal == "denied by p"


@pytest.mark.parametrize(("offered", "objection"), [({}, "offer too little rdma/hca"), ({"rdma/hca": "1"}, None)])
def test_nodes_must_offer_extended_resources(offered: dict[str, str], objection: str | None) -> None:
    job = to_job(resource(requests={"rdma/hca": "1"}))
    allocatable = {"cpu": "8", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "8", **offered}
    conditions = ({"type": "Ready", "status": "True"},)
    whole = {"metadata": {"name": "n"}, "status": {"allocatable": allocatable, "conditions": conditions}}
    found = NodeState(node_of(msgspec.convert(whole, NodeObject), "edge-a", Resources()))
    found.set_node(found.node)
    assert found.objection(PodShape(job.worker.requests, job.worker.constraints)) == objection


def test_the_record_of_unplaced_pods_survives_the_status() -> None:
    unplaced = UnplacedPods(3, ("n1", "n2"), "no disk", NOW, NOW + 3600.0, NOW + 60.0, sites=("cloud",))
    written = plan_status(JobPlan(1, "", unplaced=unplaced), "u", 1, 1)
    assert read_plan(Plan.model_validate(written)).unplaced == unplaced


def test_refusing_cloud_sets_the_condition_of_unplaced_pods() -> None:
    plan = JobPlan(1, "", unplaced=UnplacedPods(0, message="no nodes", sites=("cloud",)))
    (condition,) = unplaced_conditions(plan, 2, (), NOW)
    assert (condition["status"], condition["reason"], condition["message"]) == ("True", "Retrying", "no nodes")


def test_unplaced_pods_set_a_condition() -> None:
    held = JobPlan(1, "", unplaced=UnplacedPods(5, message="no disk", held_until=NOW + 60.0))
    (condition,) = unplaced_conditions(held, 2, (), NOW)
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodsUnplaced", "True", "Held")
    assert condition["message"] == "no disk"
    known = resource(condition).status.conditions
    (after,) = unplaced_conditions(JobPlan(1, ""), 2, known, NOW)
    assert (after["status"], after["reason"]) == ("False", "Placed")
    assert unplaced_conditions(JobPlan(1, ""), 2, (), NOW) == []
