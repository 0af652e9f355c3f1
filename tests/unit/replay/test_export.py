"""History of a cluster: a recorded export, and broken ones."""

import json
from copy import deepcopy
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tranche.model import Job
from tranche.replay import export as exports
from tranche.replay.export import Export, ExportError, scan_export
from tranche.replay.pod_history import UNKNOWN_SITE, PastUse

RECORDED = Path(__file__).resolve().parents[2] / "data/trainingjobs.json"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.json"


def recorded(*names: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(RECORDED.read_text())["items"]
    return [deepcopy(item) for item in items if not names or item["metadata"]["name"] in names]


def written(path: Path, *items: object) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def read_export(path: Path) -> list[Job]:
    """Return the jobs of an export without problems; raise the first problem as `ExportError`."""
    export = scan_export(path)
    if export.problems:
        more = f" (and {len(export.problems) - 1:,} more)" if len(export.problems) > 1 else ""
        raise ExportError(f"{export.problems[0]}{more}")
    return list(export.jobs)


def complaint(path: Path) -> str:
    with pytest.raises(ExportError) as caught:
        read_export(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    return message.removeprefix(f"{path}: ")


def test_recorded_export_keeps_jobs_and_gpu_seconds_of_succeeded() -> None:
    export = scan_export(RECORDED)
    items = {f"{i['metadata']['namespace']}/{i['metadata']['name']}": i for i in recorded()}
    assert {job.key for job in export.jobs} == set(items) - {"team-b/smallest"}
    succeeded = [job for job in export.jobs if items[job.key]["status"]["phase"] == "Succeeded"]
    assert len(succeeded) == 5
    for job in succeeded:
        attained = items[job.key]["status"]["progress"]["attainedSeconds"]
        work = job.gpus * job.chunks * job.batches_per_chunk_total * job.step_seconds
        assert work == pytest.approx(attained, rel=1e-12)
    believed = {"default/job-1650": 0.030103, "default/job-1657": 0.110653}
    for job in succeeded:
        if job.key in believed:  # the simulated kubelet takes what the job says
            assert job.step_seconds == pytest.approx(believed[job.key], rel=0.05)
            assert job.step_seconds != believed[job.key]


def test_measured_time_replaces_declared_times_on_kinds(path: Path) -> None:
    (item,) = recorded("job-1650")
    item["spec"]["model"] |= {"stepTimes": {"A100": "10ms"}}
    (job,) = read_export(written(path, item))
    assert job.step_seconds_by_kind == {}
    assert job.step_seconds == pytest.approx(item["status"]["progress"]["attainedSeconds"] / 100)
    item["status"]["phase"] = "Running"
    (job,) = read_export(written(path, item))
    assert job.step_seconds_by_kind == {"A100": 0.01}


def test_submissions_count_from_the_earliest_job() -> None:
    jobs = {job.key: job for job in scan_export(RECORDED).jobs}
    assert [jobs[f"default/job-{n}"].submitted for n in (1650, 1651, 1652, 1657)] == [0.0, 1.0, 3.0, 9.0]
    assert list(jobs) == sorted(jobs, key=lambda key: (jobs[key].submitted, key))


def test_shape_data_and_prior_are_those_of_the_specification() -> None:
    jobs = {job.key: job for job in scan_export(RECORDED).jobs}
    waiting = jobs["team-b/resnet50"]
    assert (waiting.chunks, waiting.epochs, waiting.batches_per_chunk, waiting.data_site) == (27, 40, 58, "edge-a")
    assert (round(waiting.step_seconds, 9), waiting.restart_seconds, waiting.servers) == (0.35, 20.0, 2)
    assert (waiting.gradient_bits, waiting.chunk_bytes) == (8 * 98 * 2**20, 256 * 2**20)
    failed = jobs["team-b/broken"]
    assert (failed.step_seconds, failed.chunks, failed.tenant) == (0.030103, 2, "team-b")


def test_unfinished_job_without_estimate_is_reported() -> None:
    export = scan_export(RECORDED)
    assert "team-b/unestimated" in {job.key for job in export.jobs}
    (problem,) = export.problems
    assert problem.startswith(f"{RECORDED}: team-b/smallest: is Waiting and has neither model.stepTime nor ")
    assert complaint(RECORDED).startswith("team-b/smallest: is Waiting")


def test_an_export_without_problems_is_read_as_a_whole(path: Path) -> None:
    items = recorded("job-1650", "job-1657")
    assert [job.key for job in read_export(written(path, *items))] == ["default/job-1650", "default/job-1657"]
    path.write_text(json.dumps(items[1]))
    (job,) = read_export(path)
    assert (job.key, job.submitted) == ("default/job-1657", 0.0)


def test_export_excludes_lost_batches_from_job_work(path: Path) -> None:
    (item,) = recorded("job-1650")
    item["status"]["progress"] |= {"attainedSeconds": 2 * 50 * 0.030103 + 40 * 0.030103, "lostBatches": 40}
    (job,) = read_export(written(path, item))
    assert job.step_seconds == pytest.approx(0.030103)
    item["status"]["progress"]["lostBatches"] = 10_000
    (job,) = read_export(written(path, item))
    assert job.step_seconds == pytest.approx(140 * 0.030103 / 100)


def test_past_run_has_the_preemptions_and_lost_work_of_the_job(path: Path) -> None:
    (item,) = recorded("job-1650")
    item["status"]["progress"] |= {"attainedSeconds": 14.0, "batches": 100, "lostBatches": 40, "preemptions": 3}
    (past,) = scan_export(written(path, item)).past_runs.values()
    assert past.preemptions == 3
    assert past.lost_gpu_seconds == pytest.approx(4.0)


def test_export_divides_attained_seconds_by_gpus_of_worker(path: Path) -> None:
    (item,) = recorded("job-1650")
    for part in ("limits", "requests"):
        item["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"][part]["nvidia.com/gpu"] = "4"
    item["status"]["progress"]["attainedSeconds"] = 400.0
    (job,) = read_export(written(path, item))
    assert (job.gpus, job.step_seconds) == (4, 1.0)


def test_export_of_measured_job_has_no_gradient_time(path: Path) -> None:
    (item,) = recorded("resnet50")
    assert read_export(written(path, item))[0].gradient_bits > 0
    item["status"]["phase"] = "Succeeded"
    item["status"]["progress"]["attainedSeconds"] = 27 * 40 * 58 * 0.5
    (job,) = read_export(written(path, item))
    assert (job.gradient_bits, job.step_seconds) == (0.0, 0.5)


@pytest.mark.parametrize("attained", [0, -5])
def test_succeeded_job_without_attained_time_keeps_its_prior(path: Path, attained: float) -> None:
    (item,) = recorded("job-1650")
    item["status"]["progress"]["attainedSeconds"] = attained
    assert read_export(written(path, item))[0].step_seconds == 0.030103
    del item["spec"]["model"]
    assert "is Succeeded and has neither" in complaint(written(path, item))


def test_only_a_job_that_is_not_over_stays_suspended(path: Path) -> None:
    items = recorded("job-1650", "resnet50")
    for item in items:
        item["spec"]["suspend"] = True
    assert [job.suspended for job in read_export(written(path, *items))] == [False, True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "Secret"}, "default/job-1650: is a Secret, not a TrainingJob: create the export with kubectl get"),
        ({"metadata": {"name": "x"}}, "/x: has no metadata.creationTimestamp"),
        ({"metadata": {}}, "items[0]: metadata.name: Field required"),
        ({"metadata": {"name": "a\nb"}}, "'/a\\nb': has no metadata.creationTimestamp"),
        ({"metadata": 5}, "items[0]: metadata: Input should be"),
        ({"spec": {}}, "default/job-1650: spec.workers: Field required"),
    ],
)
def test_an_item_that_is_no_job_is_named(path: Path, change: dict[str, Any], words: str) -> None:
    (item,) = recorded("job-1650")
    assert words in complaint(written(path, {**item, **change}))
    assert len(scan_export(written(path, {**item, **change}, *recorded("job-1657"))).problems) == 1


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("data", "chunks"), 0, "spec.data.chunks: Input should be greater than or equal to 1"),
        (("data", "chunkSize"), "huge", "'huge' is not a quantity such as 64Mi"),
        (("model", "stepTime"), "0s", "has an estimated duration that is not positive"),
        (("model", "stepTime"), "soon", "'soon' is not a duration such as 1h30m"),
        (("workers", "template"), {"spec": {"containers": 5}}, "Expected"),
    ],
)
def test_a_value_that_cannot_be_read_is_named(path: Path, place: tuple[str, str], value: object, words: str) -> None:
    (item,) = recorded("broken")
    item["spec"][place[0]][place[1]] = value
    message = complaint(written(path, item))
    assert "team-b/broken: " in message
    assert words in message


def test_export_counts_problems_and_reports_duplicate_jobs(path: Path) -> None:
    items = recorded("job-1650", "smallest")
    message = complaint(written(path, *items, *items))
    assert message.startswith("team-b/smallest: ")
    assert message.endswith("(and 2 more)")
    assert any(problem.endswith("default/job-1650: is a duplicate") for problem in scan_export(path).problems)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not valid JSON: "),
        (b"{", "is not valid JSON: "),
        (b"[" * 100_000, "is not valid JSON: "),
        (b"\xff\xfe", "is not valid JSON: "),
        (b'{"items": NaN}', "is not valid JSON: "),
        (
            b"[]",
            "is not a List of objects: create it with kubectl get trainingjobs -A -o json, or "
            "kubectl get pods,nodes,jobs -A -o json",
        ),
        (b"5", "is not a List of objects"),
        (b'{"kind": "List", "items": {}}', "is not a List of objects"),
        (
            b'{"kind": "List", "items": []}',
            "can be simulated nor pods that requested nvidia.com/gpu: create it with",
        ),
        (b'{"kind": "List", "items": [5]}', "nor pods that requested nvidia.com/gpu: items[0]: is not a TrainingJob"),
        (b'{"kind": "List", "items": [null]}', "items[0]: is not a TrainingJob"),
        (b'{"kind": "List", "items": [{"kind": null}]}', "items[0]: is not a TrainingJob"),
    ],
)
def test_invalid_export_is_rejected_with_the_export_command(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    assert words in complaint(path)


def test_what_is_no_file_is_refused(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complaint(tmp_path) == "Is a directory"
    assert complaint(path) == "No such file or directory"
    with pytest.raises(ExportError, match="null byte"):
        read_export(Path("a\0"))
    monkeypatch.setattr(exports, "MAX_BYTES", 10)
    assert "export namespace by namespace" in complaint(written(path))


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
PLACES = [
    ("spec",), ("status",), ("metadata",), ("spec", "data"), ("spec", "data", "epochs"), ("spec", "model"),
    ("spec", "model", "stepTime"), ("spec", "workers", "template"), ("spec", "workers", "maxReplicas"),
    ("spec", "data", "chunkSize"), ("status", "progress", "attainedSeconds"), ("status", "progress", "lostBatches"),
    ("metadata", "creationTimestamp"), ("metadata", "name"), ("status", "phase"), ("spec", "estimatedDuration"),
]  # fmt: skip


@settings(max_examples=300)
@given(st.sampled_from(PLACES), VALUES)
def test_any_value_anywhere_gives_jobs_or_one_line_of_complaint(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[str, ...], value: object
) -> None:
    (item,) = recorded("job-1650")
    where: dict[str, Any] = item
    for part in place[:-1]:
        where = where[part]
    where[place[-1]] = value
    path = written(tmp_path_factory.getbasetemp() / "any.json", item, *recorded("job-1657"))
    export: Export = scan_export(path)
    assert len(export.jobs) + len(export.problems) == 2
    assert all(problem.isprintable() for problem in export.problems)
    assert all(isfinite(job.step_seconds) and job.step_seconds > 0 for job in export.jobs)


def test_succeeded_job_has_site_use_of_its_status(path: Path) -> None:
    (item,) = recorded("job-1650")
    attained = item["status"]["progress"]["attainedSeconds"]
    (past,) = scan_export(written(path, item)).past_runs.values()
    assert [(use.site, use.gpu_seconds) for use in past.uses] == [(UNKNOWN_SITE, attained)], "no sites in this status"
    sites = [
        {"site": "cloud", "gpuSeconds": 7, "copiedBytes": 64, "inVainBytes": 32},
        {"site": "edge-a", "gpuSeconds": 3},
    ]
    item["status"]["progress"]["sites"] = sites
    (past,) = scan_export(written(path, item)).past_runs.values()
    assert past.uses == (PastUse("cloud", 7, 64, 32), PastUse("edge-a", 3, 0, 0))
