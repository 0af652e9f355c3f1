"""Training of other schedulers, put together from its pods."""

from datetime import UTC, datetime
from math import isnan
from typing import Any

import msgspec
import pytest

from tranche.kube.api.core_types import Pod
from tranche.model import Job
from tranche.replay.pod_history import UNKNOWN_SITE, PastRun, group_key, histories, is_foreign

T0 = 1_800_000_000


def stamp(second: float) -> str:
    return datetime.fromtimestamp(T0 + second, UTC).isoformat()


def pod(
    name: str, created: float, started: float | None = None, ended: float | None = None, *, gpus: int = 1, **more: Any
) -> Pod:
    phase = more.pop("phase", "Pending" if started is None else "Running" if ended is None else "Succeeded")
    terminated = {"startedAt": stamp(started or 0), "finishedAt": stamp(ended or 0)}
    running = {"startedAt": stamp(started or 0)}
    node = more.pop("node", "")
    state = {} if started is None else {"running": running} if ended is None else {"terminated": terminated}
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "2"} if gpus else {"cpu": "2"}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "team", "creationTimestamp": stamp(created), **more},
            "spec": {"containers": [{"name": "t", "resources": {"limits": limits}}], "nodeName": node},
            "status": {"phase": phase, "containerStatuses": [{"name": "t", "state": state}]},
        },
        Pod,
    )


def labelled(job: str, label: str = "training.kubeflow.org/job-name") -> dict[str, Any]:
    return {"labels": {label: job}}


def told(*pods: Pod, until: float = 1000, **submissions: float) -> tuple[dict[str, tuple[Job, PastRun]], int]:
    at = {f"team/{name}": T0 + second for name, second in submissions.items()}
    found, waiting = histories(pods, T0 + until, at)
    return {job.key: (job, past) for job, past in found}, waiting


def test_concurrent_pods_of_one_group_become_a_gang() -> None:
    found, _ = told(pod("a", 0, 10, 110, gpus=2, **labelled("bert")), pod("b", 1, 10, 110, gpus=2, **labelled("bert")))
    job, past = found["team/bert"]
    assert (job.is_gang, job.chunks, job.gpus, job.step_seconds, job.submitted) == (True, 2, 2, 100.0, T0)
    assert (past.started - T0, past.completed - T0, past.gpus, past.gpu_seconds) == (10, 110, 4, 400)
    assert past.end == "Succeeded"


def test_successive_pods_of_one_group_become_one_member() -> None:
    found, _ = told(
        pod("try-1", 0, 5, 25, phase="Failed", **labelled("x", "job-name")),
        pod("try-2", 25, 25, 65, **labelled("x", "job-name")),
    )
    job, past = found["team/x"]
    assert (job.chunks, job.step_seconds, past.gpus, past.end) == (1, 60.0, 1, "Succeeded")


def test_submission_is_that_of_the_workload_if_the_export_has_it() -> None:
    found, _ = told(pod("a", 50, 60, 70, **labelled("late")), late=20)
    assert found["team/late"][1].submitted == T0 + 20


def test_gpu_time_is_that_of_the_sites_of_the_nodes() -> None:
    bert = labelled("bert")
    pods = [pod(f"p{n}", 0, 10, 110, gpus=2, node=node, **bert) for n, node in enumerate(("a1", "a2", "b1", "gone"))]
    ((_, past),), _ = histories(pods, T0 + 1000, {}, sites={"a1": "a", "a2": "a", "b1": "b"})
    assert [(one.site, one.gpu_seconds) for one in past.uses] == [(UNKNOWN_SITE, 200), ("a", 400), ("b", 200)]
    assert all(isnan(one.copied_bytes) for one in past.uses), "pods do not say what they read from elsewhere"


def test_what_still_runs_has_run_until_the_history_ends() -> None:
    found, _ = told(pod("a", 0, 10), until=40)
    job, past = found["team/a"]
    assert (job.step_seconds, past.end, past.completed - T0) == (30.0, "Running", 40)


def test_what_has_not_begun_is_counted_and_left_out() -> None:
    found, waiting = told(pod("a", 0), pod("b", 0, 1, 2))
    assert (list(found), waiting) == (["team/b"], 1)


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        (labelled("j", "volcano.sh/job-name"), "team/j"),
        (labelled("j", "jobset.sigs.k8s.io/jobset-name"), "team/j"),
        (labelled("j", "unknown"), "team/alone"),
        ({"ownerReferences": [{"kind": "Workflow", "uid": "7", "controller": True}]}, "team/workflow-7"),
        ({"ownerReferences": [{"kind": "ReplicaSet", "uid": "7", "controller": True}]}, "team/alone"),
    ],
)
def test_group_key_uses_label_or_owner_but_not_replica_set(metadata: dict[str, Any], key: str) -> None:
    assert group_key(pod("alone", 0, 1, 2, **metadata)) == key


def test_pods_of_ours_and_pods_without_gpus_are_none_of_them() -> None:
    assert is_foreign(pod("a", 0))
    assert not is_foreign(pod("a", 0, gpus=0))
    assert not is_foreign(pod("a", 0, **labelled("j", "tranche.dev/job")))
