"""A preemptive queue policy on a real control plane: the planner of the simulator, live."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import Whole
from tranche.demo.local_stack import Stack, apply_manifests
from tranche_testcluster import Cluster


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    with Cluster() as cluster:
        apply_manifests(cluster)
        cluster.add_site("edge-a", nodes=2, gpus=2)
        with Stack(cluster, "srsf", scheduler_options=["--validate", "--estimate-seconds", "1"]) as stack:
            yield Whole(cluster, stack)


def test_job_with_least_work_runs_first_and_victim_resumes(whole: Whole) -> None:
    whole.submit("large", chunks=4, seconds=8.0)
    whole.until("all four run", lambda: whole.status("large").get("activeWorkers") == 4)
    whole.until_trained("large", 8)
    whole.submit("small", chunks=2, seconds=1.0)
    whole.until_phase("small", "Succeeded")
    assert whole.status("large")["progress"]["preemptions"] == 2
    assert preemptors(whole.status("large")) == ["default/small"] * 2
    status = whole.until_phase("large", "Succeeded")
    assert status["progress"]["chunks"] == "4/4"
    whole.delete("large", "small")


def preemptors(status: dict[str, Any]) -> list[str]:
    return [one.get("preemptedBy", "") for one in status["progress"]["attempts"] if one["reason"] == "Preempted"]


def test_killed_planner_restores_queue_and_preemption(whole: Whole) -> None:
    whole.submit("long", chunks=4, seconds=25.0)
    whole.until("all four run", lambda: whole.status("long").get("activeWorkers") == 4)
    whole.stack.kill("scheduler")
    whole.submit("short", chunks=1, seconds=0.5)
    whole.stack.start_scheduler()
    whole.until_phase("short", "Succeeded")
    status = whole.until_phase("long", "Succeeded")
    assert status["progress"]["preemptions"] == 1
    assert status["plan"]["attempts"] == 5
    assert preemptors(status) == ["default/short"]
    whole.delete("long", "short")
