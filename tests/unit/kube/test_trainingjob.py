"""API objects as the planner's values, and back."""

import copy
import json
from dataclasses import replace
from math import exp, inf
from typing import Any

import pytest

from tranche.kube.api.fields import MAX_CHUNKS, MAX_SITES
from tranche.kube.api.resources import Condition, Plan, PlannedWindow, Progress, SiteObject, TrainingJob
from tranche.kube.convert.trainingjob import (
    plan_status,
    planned_condition,
    progress_status,
    read_plan,
    read_progress,
    to_job,
    to_site,
)
from tranche.model import (
    AttemptRecord,
    Checkpoint,
    Interval,
    JobPlan,
    JobProgress,
    PlannedServer,
    PreemptedJob,
    SiteProgress,
    Tier,
    Window,
    WindowState,
)
from tranche.model.attempt_record import pack
from tranche_operator.manifests.environment import worker_environment

TEMPLATE = {
    "spec": {
        "containers": [
            {"name": "t", "resources": {"requests": {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "2"}}}
        ]
    }
}


def resource(**spec: Any) -> TrainingJob:
    metadata = {"name": "a", "namespace": "team", "uid": "u", "creationTimestamp": "2027-01-15T08:00:00Z"}
    return TrainingJob.model_validate(
        {"metadata": metadata, "spec": {"workers": {"maxReplicas": 4, "template": TEMPLATE}, **spec}}
    )


def test_the_smallest_job_is_a_gang_with_an_assumed_duration() -> None:
    job = to_job(resource())
    assert job.is_gang
    assert (job.key, job.chunks, job.max_workers, job.gpus) == ("team/a", 4, 4, 2)
    assert job.step_seconds == 3600.0


@pytest.mark.parametrize(
    ("topology", "levels"),
    [
        (None, ("", "")),
        ({"required": "tranche.dev/rack"}, ("tranche.dev/rack", "")),
        ({"preferred": "island"}, ("", "island")),
    ],
)
def test_topology_level_of_a_gang_is_read(topology: dict[str, str] | None, levels: tuple[str, str]) -> None:
    job = to_job(resource(workers={"maxReplicas": 4, "template": TEMPLATE, "topology": topology}))
    assert (job.required_level, job.preferred_level) == levels


@pytest.mark.parametrize(
    ("model", "duration", "bits"),
    [
        ({"gradientSize": "1M"}, "1h", 8e6),
        ({"gradientSize": "1M", "stepTime": "2s"}, None, 8e6),
        ({"gradientSize": "1M", "stepTime": "2s"}, "1h", 1800 * 8e6),
        ({"stepTime": "2s"}, "1h", 0.0),
    ],
)
def test_run_of_a_gang_sends_gradients_of_all_mini_batches(
    model: dict[str, str], duration: str | None, bits: float
) -> None:
    assert to_job(resource(model=model, estimatedDuration=duration)).gradient_bits == bits


def test_gang_with_a_step_time_of_zero_is_an_error() -> None:
    """The API server rejects it, but objects of a file or a record reach the planner without that check."""
    with pytest.raises(ValueError, match="longer than zero"):
        to_job(resource(model={"gradientSize": "1M", "stepTime": "0s"}, estimatedDuration="1h"))


def test_declared_utility_is_converted_to_seconds() -> None:
    job = to_job(resource(utility={"priority": 40, "target": "2h", "decay": 0.5}))
    assert job.utility is not None
    assert (job.utility.priority, job.utility.target_seconds) == (40.0, 7200.0)
    assert job.utility.at(7200.0) == 20.0
    assert job.utility.at(3 * 3600.0) == pytest.approx(40.0 / (1.0 + exp(0.5)))
    assert to_job(resource()).utility is None


@pytest.mark.parametrize(
    "wrong", [{"priority": 0, "target": "2h"}, {"priority": 1}, {"priority": 1, "target": "2h", "decay": -1}]
)
def test_utility_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="utility"):
        resource(utility=wrong)


def test_a_chunked_job_keeps_sizes_in_bits_and_seconds() -> None:
    data = {"chunks": 6, "epochs": 3, "batchesPerChunk": 10, "chunkSize": "64Mi", "site": "edge-a"}
    job = to_job(resource(data=data, model={"gradientSize": "1M", "stepTime": "120ms"}))
    assert not job.is_gang
    assert (job.gradient_bits, job.step_seconds, job.chunk_bytes) == (8e6, 0.12, 64 * 2**20)
    assert job.batches_per_chunk_total == 30
    assert job.worker.requests.cpu == 500


def test_estimated_duration_is_divided_by_waves_and_batches() -> None:
    job = to_job(resource(data={"chunks": 6, "batchesPerChunk": 10}, estimatedDuration="2h"))
    assert job.step_seconds == pytest.approx(7200 / 2 / 10)


def test_a_duration_that_cannot_be_read_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="soon"):
        to_job(
            resource().model_copy(update={"spec": resource().spec.model_copy(update={"estimated_duration": "soon"})})
        )


def test_plan_and_ledger_survive_being_written_and_read() -> None:
    plan = JobPlan(
        generation=3,
        explanation="because",
        attempts=7,
        estimated_start=1_800_000_000.0,
        estimated_completion=1_800_000_100.0,
        completion_interval=Interval(1_800_000_050.0, 1_800_000_400.0),
        homes={"edge-a": "0-3"},
        windows=(
            Window(0, 6, "edge-a", "n1", (1, 2), ("n2",), 1_800_000_000.0, 1_800_000_050.0),
            Window(
                1,
                7,
                "cloud",
                None,
                (3,),
                (),
                1_800_000_000.0,
                1_800_000_050.0,
                WindowState.CLOSING,
                preempted_by="team/b",
                why="which came earlier",
            ),
        ),
        servers=(
            PlannedServer(0, 5, "edge-a", "n1"),
            PlannedServer(1, 4, "edge-a", "n1", (), WindowState.CLOSING, preempted_by="team/b", why="x"),
        ),
    )
    written_plan = Plan.model_validate(plan_status(plan, "u", 2, 9))
    assert written_plan.completion_interval is not None
    assert written_plan.completion_interval.latest.timestamp() == 1_800_000_400.0
    assert written_plan.start_interval is None
    again = read_plan(written_plan)
    assert (again.windows, again.servers, again.homes, again.attempts) == (
        plan.windows,
        plan.servers,
        plan.homes,
        plan.attempts,
    )
    records = (
        AttemptRecord(0, 1, "n1", "Failed", 3),
        AttemptRecord(0, 2, "n1", "Preempted", 143, preempted_by="pod/team/guest"),
        AttemptRecord(0, 3, "n2", "Failed", 1, role="chief"),
    )
    progress = JobProgress(frozenset({0, 4}), {1: 12.0}, 5.5, 7.5, 1, 2, 3.0, records)
    job = to_job(resource(data={"chunks": 6, "batchesPerChunk": 20}))
    written = progress_status(progress, job, 57.5, estimated=True)
    assert read_progress(Progress.model_validate(written)) == progress
    assert (written["chunks"], written["batches"], written["estimated"]) == ("2/6", 57.5, True)
    assert [one["role"] for one in written["attempts"]] == ["worker", "worker", "chief"]


def test_history_totals_and_victims_survive_in_the_status() -> None:
    job = to_job(resource(data={"chunks": 6, "batchesPerChunk": 20}))
    ended = AttemptRecord(0, 1, "n1", "Preempted", 143, preempted_by="a/b", why="which came earlier", ended=60.0)
    known = JobProgress(
        records=(replace(ended, started=30.0, lost_seconds=12.5),),
        history=(pack(ended),),
        ended={"Preempted": 7},
        victims=(PreemptedJob("c/d", 3, 90.0),),
        preempted_workers=8,
    )
    written = progress_status(known, job, 0.0, estimated=False)
    assert read_progress(Progress.model_validate(written)) == known
    assert written["attempts"][0]["end"] == "1970-01-01T00:01:00Z"


def test_status_of_an_earlier_version_is_read() -> None:
    old = {"index": 0, "attempt": 1, "node": "n1", "reason": "Preempted", "exitCode": 143, "preemptedBy": "a/b"}
    read = read_progress(Progress.model_validate({"attempts": [{"role": "chief", **old}]}))
    assert read.records == (AttemptRecord(0, 1, "n1", "Preempted", 143, role="chief", preempted_by="a/b"),)
    assert (read.history, dict(read.ended), read.victims) == ((), {}, ())


def test_the_use_of_sites_survives_in_whole_seconds_and_bytes() -> None:
    job = to_job(resource(data={"chunks": 6, "batchesPerChunk": 20}))
    used = SiteProgress("cloud", 7200.4, 7000.6, 3, 3e15, 1e15, frozenset({1, 2, 5}))
    written = progress_status(JobProgress(sites=(used,)), job, 0.0, estimated=False)
    assert written["sites"] == [
        {
            "site": "cloud",
            "gpuSeconds": 7200,
            "trainedGpuSeconds": 7001,
            "chunks": 3,
            "copiedBytes": 3 * 10**15,
            "inVainBytes": 10**15,
            "unused": "1-2,5",
        }
    ]
    (again,) = read_progress(Progress.model_validate(written)).sites
    assert again == replace(used, gpu_seconds=7200.0, trained_gpu_seconds=7001.0)


def test_site_use_beyond_int64_is_capped() -> None:
    job = to_job(resource())
    used = SiteProgress("cloud", 1e30, 1e30, 3, 1e30, 1e30)
    (written,) = progress_status(JobProgress(sites=(used,)), job, 0.0, estimated=False)["sites"]
    assert {written[name] for name in ("gpuSeconds", "trainedGpuSeconds", "copiedBytes", "inVainBytes")} == {2**63 - 1}


def test_progress_status_keeps_most_used_sites_up_to_limit() -> None:
    job = to_job(resource(data={"chunks": 6, "batchesPerChunk": 20}))
    used = tuple(SiteProgress(f"edge-{number:02}", float(number)) for number in range(70))
    written = progress_status(JobProgress(sites=used), job, 0.0, estimated=False)["sites"]
    assert [one["site"] for one in written] == [f"edge-{number:02}" for number in range(6, 70)]
    assert len(Progress.model_validate({"sites": written}).sites) == MAX_SITES


def test_a_checkpoint_survives_with_whole_chunks_as_a_set() -> None:
    job = to_job(resource(data={"chunks": 6, "batchesPerChunk": 20}))
    progress = JobProgress(checkpoint=Checkpoint(9, {0: 20.0, 1: 20.0, 2: 7.0, 3: 0.0}))
    written = progress_status(progress, job, 47.0, estimated=False)
    assert written["checkpoint"] == {"attempt": 9, "done": "0-1", "running": [{"chunk": 2, "batches": 7.0}]}
    again = read_progress(Progress.model_validate(written)).checkpoint
    assert again is not None
    assert (again.attempt, again.batches) == (9, {0: inf, 1: inf, 2: 7.0})


def test_plan_written_for_deleted_namesake_is_ignored() -> None:
    written = {
        "plan": plan_status(JobPlan(1, ""), "old", 1, 1),
        "progress": progress_status(JobProgress(), to_job(resource()), 0.0, estimated=False),
    }
    body = resource().model_dump(by_alias=True, exclude_none=True, mode="json")
    late = TrainingJob.model_validate({**body, "status": {**written, "phase": "Waiting"}})
    assert (late.status.plan, late.status.progress, late.status.phase) == (None, None, "Waiting")
    own = TrainingJob.model_validate({**body, "status": {"plan": plan_status(JobPlan(1, ""), "u", 1, 1)}})
    assert own.status.plan is not None


def test_plan_status_omits_empty_homes() -> None:
    assert "homes" not in plan_status(JobPlan(1, ""), "u", 1, 1)


def test_planned_condition_keeps_transition_time_of_same_status() -> None:
    first = planned_condition(JobPlan(1, ""), 1, (), 1_800_000_000.0)
    known = [Condition.model_validate(first)]
    later = planned_condition(JobPlan(1, ""), 1, known, 1_800_000_500.0)
    assert later["lastTransitionTime"] == first["lastTransitionTime"]
    turned = planned_condition(JobPlan(1, "why", unplannable="NoGpuRequested"), 1, known, 1_800_000_500.0)
    assert turned["lastTransitionTime"] != first["lastTransitionTime"]
    assert (turned["status"], turned["reason"], turned["message"]) == ("False", "NoGpuRequested", "why")


def test_a_site_keeps_its_links_in_bits_per_second() -> None:
    spec = {
        "tier": "Cloud",
        "nodeSelector": {"zone": "c"},
        "links": [{"to": "edge-a", "bandwidth": "500M", "latency": "20ms"}],
    }
    site = to_site(SiteObject.model_validate({"metadata": {"name": "cloud"}, "spec": spec}))
    assert site.tier is Tier.CLOUD
    assert site.links["edge-a"].bits_per_second == 500e6
    assert site.links["edge-a"].transfer_seconds(500e6 / 8) == pytest.approx(1.02)


def test_jobs_of_same_namespace_and_pod_template_share_template() -> None:
    data = {"chunks": 8, "epochs": 4, "batchesPerChunk": 50}
    one, other = to_job(resource(data=data)), to_job(resource(data={**data, "chunks": 3}))
    assert one.template == other.template
    changed: dict[str, Any] = copy.deepcopy(TEMPLATE)
    changed["spec"]["containers"][0]["args"] = ["--learning-rate=1"]
    assert to_job(resource(workers={"maxReplicas": 4, "template": changed})).template != one.template


def test_job_is_size_declared_with_step_time_or_duration() -> None:
    assert not to_job(resource()).size_declared
    assert to_job(resource(estimatedDuration="2h")).size_declared
    data = {"chunks": 4, "batchesPerChunk": 10}
    assert to_job(resource(model={"stepTime": "120ms"}, data=data)).size_declared
    assert not to_job(resource(model={"stepTime": "120ms"})).size_declared, "how many mini-batches a gang trains"


def test_a_chief_has_a_shape_of_its_own() -> None:
    requests = {"cpu": "250m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    job = to_job(resource(chief={"template": {"spec": {"containers": [{"resources": {"requests": requests}}]}}}))
    assert job.chief is not None
    assert (job.chief.requests.cpu, job.chief.requests.gpus, job.helper_count, job.chunks) == (250, 1, 1, 4)


def test_the_place_of_a_chief_survives_the_status() -> None:
    servers = (
        PlannedServer(0, 3, "s", "n1", is_chief=True),
        PlannedServer(0, 4, "s", "n2", ("n3",), WindowState.CLOSING),
    )
    written = plan_status(JobPlan(1, "runs", 4, servers=servers), "u", 1, 2)
    assert (written["chief"]["node"], len(written["parameterServers"])) == ("n1", 1)
    assert read_plan(Plan.model_validate(written)).servers == servers
    assert "chief" not in plan_status(JobPlan(1, "waits", 4), "u", 1, 3)


def test_plan_status_of_widest_job_leaves_room_for_its_templates() -> None:
    node = "n" * 63
    windows = tuple(
        Window(i, i + 1, "s" * 63, f"{i:04}{node}", (i,), (node, node), 1.8e9, 1.8e9) for i in range(MAX_CHUNKS)
    )
    status = plan_status(JobPlan(1, "x" * 40_000, windows=windows), "u" * 36, 1, 1)
    assert len(json.dumps(status)) < 1_000_000
    assert len(status["explanation"]) == 2048
    assert status["workers"][0]["fallbacks"] == [node, node]
    assert status["workers"][-1]["fallbacks"] == []


def test_templates_too_large_for_a_status_are_value_errors() -> None:
    variable = {"name": "BIG", "value": "x" * 300_000}
    container = {"name": "t", "image": "i", "env": [variable]}
    large = resource(workers={"maxReplicas": 1, "template": {"spec": {"containers": [container]}}})
    with pytest.raises(ValueError, match="at most 256 KiB"):
        to_job(large)


@pytest.mark.parametrize("shape", [(1, 101), (101, 1), (101, 0)])
def test_node_affinity_with_too_many_expressions_is_refused(shape: tuple[int, int]) -> None:
    terms, expressions = shape
    term = {"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["1"]}] * expressions}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term] * terms}}
    container = {"name": "t", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"containers": [container], "affinity": {"nodeAffinity": required}}
    costly = resource(workers={"maxReplicas": 1, "template": {"spec": spec}})
    with pytest.raises(ValueError, match="has 101 expressions, at most 100 are planned"):
        to_job(costly)


def wide_job(workers: int) -> TrainingJob:
    template = {"spec": {"containers": [{"name": "t", "image": "i"}]}}
    servers = {"replicas": 2, "template": template}
    data = {"chunks": workers}
    made = resource(data=data, workers={"maxReplicas": workers, "template": template}, parameterServers=servers)
    names = {"name": "n" * 50, "namespace": "s" * 63}
    return made.model_copy(update={"metadata": made.metadata.model_copy(update=names)})


def test_cluster_addresses_above_a_variable_are_errors() -> None:
    with pytest.raises(ValueError, match="TF_CONFIG with the addresses of 1000 workers has 184 KiB"):
        to_job(wide_job(1000))


def test_cluster_addresses_that_pass_the_check_fit() -> None:
    job = wide_job(690)
    to_job(job)
    window = PlannedWindow(index=689, attempt=1, site="s", chunks=[1])
    assert len("TF_CONFIG=" + worker_environment(job, window, "/c")["TF_CONFIG"]) < 128 * 1024
