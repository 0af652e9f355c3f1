"""``tranche replay`` and ``tranche simulate`` on the export of a cluster that has never seen tranche."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tranche.cli.main import main

TRAINING_JOBS = Path(__file__).resolve().parents[2] / "data/trainingjobs.json"
T0 = 1_800_000_000


def stamp(second: float) -> str:
    return datetime.fromtimestamp(T0 + second, UTC).isoformat()


def pod(name: str, created: float, started: float, ended: float | None, node: str = "n1") -> dict[str, Any]:
    began = {"startedAt": stamp(started)}
    state = {"running": began} if ended is None else {"terminated": {**began, "finishedAt": stamp(ended)}}
    limits = {"nvidia.com/gpu": "1"}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": stamp(created)},
        "spec": {"containers": [{"name": "t", "resources": {"limits": limits}}], "nodeName": node},
        "status": {
            "phase": "Running" if ended is None else "Succeeded",
            "containerStatuses": [{"name": "t", "state": state}],
        },
    }


def node(name: str, gpus: int, zone: str = "") -> dict[str, Any]:
    allocatable = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": str(gpus)}
    metadata = {"name": name, "labels": {"zone": zone}}
    return {"kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}


def site(name: str, tier: str) -> dict[str, Any]:
    return {"kind": "Site", "metadata": {"name": name}, "spec": {"tier": tier, "nodeSelector": {"zone": name}}}


# One GPU: a long job first, then two short ones that really had to wait for it.
HISTORY = [
    pod("long", 0, 0, 1000),
    pod("short-1", 10, 1000, 1100),
    pod("short-2", 20, 1100, 1200),
    node("n1", 1),
]

# Two sites; the node of the third job is gone.
PLACED = [
    pod("long", 0, 0, 1000),
    pod("short-1", 10, 10, 110, "n2"),
    pod("short-2", 20, 110, 210, "n3"),
    node("n1", 1, "edge"),
    node("n2", 1, "cloud"),
    site("edge", "Edge"),
    site("cloud", "Cloud"),
]


def replayed(path: Path, items: list[dict[str, Any]], *options: str) -> Result:
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return CliRunner().invoke(main, ["replay", str(path), *options])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.json"


def rows_of(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return {row["label"]: row for row in json.loads(result.stdout)["rows"]}


def test_replay_compares_past_with_fifo_and_production_policy(path: Path) -> None:
    rows = rows_of(replayed(path, HISTORY, "--format", "json", "--restart-seconds", "0"))
    assert rows["as it was"]["average_jct_seconds"] == pytest.approx((1000 + 1090 + 1180) / 3)
    assert rows["fifo"]["average_jct_seconds"] == pytest.approx(rows["as it was"]["average_jct_seconds"])
    assert "fifo, no durations given" not in rows, "fifo knows no durations: one row"
    assert rows["chunk"]["average_jct_seconds"] == pytest.approx((1200 + 100 + 190) / 3)
    assert {row["jobs"] for row in rows.values()} == {3}
    for row in rows.values():
        assert row["gpu_hours"] == pytest.approx(1200 / 3600)


def test_replay_shows_no_copied_bytes_for_the_past(path: Path) -> None:
    rows = rows_of(replayed(path, HISTORY, "--format", "json", "--restart-seconds", "0"))
    assert (rows["as it was"]["cloud_gpu_seconds"], rows["as it was"]["copied_bytes"]) == (None, None)
    assert (rows["fifo"]["cloud_gpu_seconds"], rows["fifo"]["copied_bytes"]) == (0.0, 0.0)
    assert "copied GB" not in replayed(path, HISTORY).stdout


def test_gpu_time_is_told_by_site_where_the_history_names_nodes(path: Path) -> None:
    rows = rows_of(replayed(path, PLACED, "--format", "json", "--restart-seconds", "0", "--policies", "fifo"))
    past = {one["site"]: one for one in rows["as it was"]["sites"]}
    assert {name: one["gpu_seconds"] for name, one in past.items()} == {"(unknown)": 100, "cloud": 100, "edge": 1000}
    assert (past["cloud"]["tier"], past["cloud"]["copied_bytes"]) == ("Cloud", None)
    assert rows["as it was"]["cloud_gpu_seconds"] is None, "some node is not known"
    fifo = {one["site"]: one["gpu_seconds"] for one in rows["fifo"]["sites"]}
    assert set(fifo) == {"cloud", "edge"}
    assert sum(fifo.values()) == pytest.approx(rows["fifo"]["gpu_hours"] * 3600)
    assert fifo["cloud"] == pytest.approx(rows["fifo"]["cloud_gpu_seconds"])
    known = rows_of(replayed(path, [*PLACED, node("n3", 0, "cloud")], "--format", "json"))["as it was"]
    assert known["cloud_gpu_seconds"] == 200


def test_past_at_an_unlimited_site_is_no_use_of_nodes(path: Path) -> None:
    cloud = site("cloud", "Cloud")
    cloud["spec"]["unlimited"] = True
    items = [*PLACED[:2], *PLACED[3:6], cloud]
    past = rows_of(replayed(path, items, "--format", "json", "--restart-seconds", "0"))["as it was"]
    assert (past["gpu_seconds"], past["cloud_gpu_seconds"], past["utilisation"]) == (1100, 100, 1.0)


def test_only_counted_jobs_are_in_the_use_of_sites(path: Path) -> None:
    items = [*PLACED, pod("late", 1150, 1200, None, "n2"), pod("end", 1150, 1900, 2000)]
    rows = rows_of(replayed(path, items, "--format", "json", "--restart-seconds", "0"))
    assert sum(one["gpu_seconds"] for one in rows["as it was"]["sites"]) == 1300
    assert sum(one["gpu_seconds"] for one in rows["chunk"]["sites"]) == pytest.approx(1300)


def test_the_table_of_sites_is_printed_where_there_are_several(path: Path) -> None:
    lines = replayed(path, PLACED).stdout.splitlines()
    table = {
        line.split("  ")[0].strip(): line for line in lines[lines.index(next(x for x in lines if "Use of" in x)) :]
    }
    assert "1,000 GPU s" in table["edge"]
    assert "100 GPU s" in table["(unknown)"]
    assert "Use of sites" not in replayed(path, HISTORY).stdout


def test_a_folder_gets_the_rows_and_the_use_of_sites(path: Path, tmp_path: Path) -> None:
    result = replayed(path, PLACED, "--policies", "fifo", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    written = {file.name: file.read_text().splitlines() for file in (tmp_path / "out").iterdir()}
    assert set(written) == {"replay.json", "replay.csv", "sites.csv"}
    assert written["sites.csv"][0] == "label,site,tier,unlimited,gpu_seconds,copied_bytes,in_vain_bytes"
    assert "as it was,edge,Edge,False,1000.0,," in written["sites.csv"]
    assert [line.split(",")[0] for line in written["replay.csv"]] == ["label", "as it was", "fifo"]
    assert "sites" not in written["replay.csv"][0].split(",")
    assert f"--out {tmp_path / 'out'}" in json.loads("\n".join(written["replay.json"]))["command"]


def test_lost_work_of_the_past_is_part_of_its_gpu_hours(path: Path) -> None:
    """The time that workers of a TrainingJob trained includes what they trained again."""
    items = json.loads(TRAINING_JOBS.read_text())["items"]
    (item,) = (item for item in items if item["metadata"]["name"] == "job-1650")
    sites = [{"site": "edge", "gpuSeconds": 360, "trainedGpuSeconds": 180}]
    item["status"]["progress"] |= {"attainedSeconds": 180.0, "batches": 100, "lostBatches": 80, "sites": sites}
    row = rows_of(replayed(path, [item, *PLACED], "--policies", "fifo", "--format", "json"))["as it was"]
    of_pods = (1000 + 100 + 100) / 3600
    assert row["gpu_hours"] == pytest.approx(0.1 + of_pods)
    assert row["lost_gpu_seconds"] == pytest.approx(360 - 100)
    assert sum(use["gpu_seconds"] for use in row["sites"]) == pytest.approx(3600 * row["gpu_hours"])


def test_restarts_cost_and_what_may_not_be_stopped_is_not(path: Path) -> None:
    costly = rows_of(replayed(path, HISTORY, "--format", "json", "--restart-seconds", "60"))["chunk"]
    assert costly["gpu_hours"] > 1200 / 3600
    kept = rows_of(replayed(path, HISTORY, "--format", "json", "--restart-seconds", "0", "--never-preempt"))["chunk"]
    assert kept["preemptions"] == 0
    assert kept["average_jct_seconds"] == pytest.approx((1000 + 1090 + 1180) / 3)


def test_a_restart_cost_above_the_median_job_is_noted(path: Path) -> None:
    noted = "the restart cost of 16.7 min is longer than the median job, which ran for "
    assert noted in replayed(path, HISTORY, "--restart-seconds", "1000").stderr
    assert "restart cost of" not in replayed(path, HISTORY, "--restart-seconds", "1").stderr


def test_what_still_runs_takes_room_and_is_not_counted(path: Path) -> None:
    items = [*HISTORY, pod("late", 1150, 1200, None)]
    result = replayed(path, items, "--format", "json")
    facts = json.loads(result.stdout)
    assert (facts["counted"], facts["running"]) == (3, 1)
    text = replayed(path, items)
    assert "not counted: 1 not ended, 0 not started" in text.stderr
    assert "3 jobs over 20 min on 1 GPU on 1 node," in text.stdout


def test_the_table_names_the_past_and_both_bounds_of_a_policy(path: Path) -> None:
    result = replayed(path, HISTORY)
    assert result.stdout.startswith("Job completion time (JCT) and cost, as recorded and simulated")
    starts = [line.split("  ")[0].strip() for line in result.stdout.splitlines()]
    assert "as it was" in starts
    assert "fifo" in starts
    assert "chunk" in starts
    assert "GPU hours: as it was: 0.33; " in result.stdout
    between = "between the two rows of a policy"
    assert between in result.stderr
    assert between not in replayed(path, HISTORY, "--policies", "fifo").stderr, "it has one row"
    assert "tranche replay" in result.stderr


@pytest.mark.parametrize(
    ("items", "options", "words"),
    [
        (HISTORY[:3], (), "contains no nodes: add --gpus N or --cluster FILE, or export nodes too"),
        (HISTORY, ("--gpus", "4", "--cluster", __file__), "--gpus and --cluster are mutually exclusive"),
        (
            [HISTORY[3]],
            (),
            "contains neither a TrainingJob that can be simulated nor pods that requested nvidia.com/gpu: ",
        ),
        ([pod("long", 0, 0, None), HISTORY[3]], (), "no job of this history has ended"),
        ([HISTORY[0], node("n1", 0)], (), "the job that ended could not run on 0 GPUs on 1 node: "),
    ],
)
def test_a_history_that_says_too_little_is_one_line(
    path: Path, items: list[dict[str, Any]], options: tuple[str, ...], words: str
) -> None:
    result = replayed(path, items, *options)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert words in result.stderr


def amd_history() -> list[dict[str, Any]]:
    return json.loads(json.dumps(HISTORY).replace("nvidia.com/gpu", "amd.com/gpu"))  # type: ignore[no-any-return]


def test_history_of_other_gpus_needs_the_name_of_their_resource(path: Path) -> None:
    refused = replayed(path, amd_history())
    assert "pods that requested nvidia.com/gpu: create it with" in refused.stderr
    assert "name the resource of its GPUs with --gpu-resource" in refused.stderr
    rows = rows_of(replayed(path, amd_history(), "--gpu-resource", "amd.com/gpu", "--format", "json"))
    assert rows == rows_of(replayed(path, HISTORY, "--format", "json"))


def test_gpu_resources_that_the_export_records_are_read(path: Path) -> None:
    metadata = {"annotations": {"tranche.dev/gpu-resources": "nvidia.com/gpu,amd.com/gpu"}}
    path.write_text(json.dumps({"kind": "List", "metadata": metadata, "items": amd_history()}))
    for command in ("replay", "simulate"):
        result = CliRunner().invoke(main, [command, str(path), "--format", "json", "--quiet"])
        assert result.exit_code == 0, result.output


def test_command_repeats_each_gpu_resource(path: Path) -> None:
    path.write_text(json.dumps({"kind": "List", "items": HISTORY}))
    words = ["--gpu-resource", "amd.com/gpu", "--gpu-resource", "nvidia.com/gpu", "--format", "json"]
    for command in ("replay", "simulate"):
        first = json.loads(CliRunner().invoke(main, [command, str(path), *words]).stdout)
        again = CliRunner().invoke(main, [*first["command"].split()[1:], "--format", "json"])
        assert again.exit_code == 0, again.output
        assert json.loads(again.stdout) == first


def test_simulate_takes_nodes_from_the_export_too(path: Path) -> None:
    path.write_text(json.dumps({"kind": "List", "items": HISTORY}))
    result = CliRunner().invoke(main, ["simulate", str(path), "--policy", "fifo", "--format", "json", "--quiet"])
    facts = json.loads(result.stdout)
    assert (facts["cluster"], facts["capacity_gpus"], facts["jobs"]) == ("the node of the export", 1, 3)


def test_each_output_says_that_the_network_model_is_off(path: Path, tmp_path: Path) -> None:
    assert "network model off" in replayed(path, HISTORY).stdout
    assert json.loads(replayed(path, HISTORY, "--format", "json").stdout)["network"] == "off"
    header, row = replayed(path, HISTORY, "--format", "csv").stdout.splitlines()[:2]
    assert dict(zip(header.split(","), row.split(","), strict=True))["network"] == "off"
