"""Limits of namespaces in the controller: what the planner counts, and what the status says."""

import asyncio
from pathlib import Path
from typing import Any

from support.live_controller import resource, taken_over
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.tenancy import TenancyDirectory
from tranche.live.controller import Controller
from tranche.live.lease_annotations import config_annotation, read_config
from tranche.live.planner_config import PlannerConfig
from tranche.model import Preemption
from tranche.planner import TenancyChanged

KEY = "default/greedy"


def greedy(**status: Any) -> TrainingJob:
    whole = resource("greedy", **status).model_dump(by_alias=True, mode="json")
    claims = {
        "weight": 1e6,
        "priorityClassName": "tranche-high",
        "preemption": {"policy": "Never", "restartOverhead": "2h"},
    }
    return TrainingJob.model_validate({**whole, "spec": {**whole["spec"], **claims}})


def limited(directory: Path) -> Controller:
    """Return a controller that has taken over the job under limits for all namespaces."""
    limits = {"maxWeight": "10", "highestPriorityClass": "tranche-normal", "allowNever": "false"}
    for key, value in {**limits, "maxRestartSeconds": "600"}.items():
        (directory / key).write_text(value)
    controller = asyncio.run(taken_over(greedy(), policy="chunk"))
    controller.tenancy = TenancyDirectory(directory)
    controller.handle(TenancyChanged(controller.tenancy.current))
    for event in controller._translator.all_jobs_changed():
        controller.handle(event)
    return controller


def test_planner_counts_clamped_claims(tmp_path: Path) -> None:
    job = limited(tmp_path).planner.cluster.jobs[KEY].job
    assert (job.weight, job.priority, job.preemption) == (10, -9, Preemption.IMMEDIATE)
    assert job.restart_seconds == 600.0


def test_status_says_which_claims_are_clamped(tmp_path: Path) -> None:
    body = limited(tmp_path)._status(KEY)
    assert body is not None
    plan, conditions = body["status"]["plan"], {one["type"]: one for one in body["status"]["conditions"]}
    limits = "weight to 10, priorityClassName to tranche-normal, preemption.policy to Immediate"
    sentence = f"namespace default limits {limits}, preemption.restartOverhead to 600 s"
    assert plan["explanation"].endswith(f"; {sentence}")
    assert (plan["priorityClassName"], plan["preemptionPolicy"]) == ("tranche-normal", "Immediate")
    assert conditions["ClaimsLimited"]["message"] == sentence
    assert conditions["ClaimsLimited"]["status"] == "True"


def test_job_within_the_limits_has_no_such_condition() -> None:
    controller = asyncio.run(taken_over(greedy(), policy="chunk"))
    body = controller._status(KEY)
    assert body is not None
    assert [one["type"] for one in body["status"]["conditions"]] == ["Planned"]
    assert not {"priorityClassName", "preemptionPolicy"} & body["status"]["plan"].keys()


def test_changed_limits_apply_without_a_restart(tmp_path: Path) -> None:
    controller = limited(tmp_path)
    (tmp_path / "maxWeight").write_text("50")
    (tmp_path / "highestPriorityClass").write_text("tranche-high")
    controller.stopwatch = lambda: 1e9
    controller.step()
    job = controller.planner.cluster.jobs[KEY].job
    assert (job.weight, job.priority) == (50, -8)


def test_later_edit_of_the_job_is_clamped_too(tmp_path: Path) -> None:
    controller = limited(tmp_path)
    old = controller.watches.jobs.store[KEY]
    new = old.model_copy(update={"metadata": old.metadata.model_copy(update={"generation": 2})})
    new = new.model_copy(update={"spec": new.spec.model_copy(update={"weight": 500.0})})
    for event in controller._translator.events_of("jobs", KEY, old, new):
        controller.handle(event)
    assert controller.planner.cluster.jobs[KEY].job.weight == 10


def test_limits_reach_a_what_if_through_the_lease(tmp_path: Path) -> None:
    tenancy = limited(tmp_path).tenancy.current
    published = PlannerConfig().limited(tenancy)
    found = read_config({"metadata": {"annotations": config_annotation(published)}})
    assert found is not None
    assert found.settings().tenancy == tenancy
