"""Kubernetes' own Jobs with the simulated kubelet's annotations."""

from typing import Any

from tranche_testcluster.site import GPU

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def batch_job(name: str, pods: int, run_seconds: float, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Job of one-GPU pods that all run at the same time, each for `run_seconds` from its own start.

    Args:
        name: Its name.
        pods: Number of pods; an Indexed Job if there are several.
        run_seconds: Run time of each pod.
        labels: Labels of the Job and of its pods.
    """
    amounts = {"cpu": "1", "memory": "1Gi", GPU: "1"}
    container = {
        "name": "train",
        "image": f"registry.example/{name}:1",
        "resources": {"requests": amounts, "limits": {GPU: "1"}},
    }
    template = {
        "metadata": {"labels": labels or {}, "annotations": {"kwok.tranche.dev/run-seconds": f"{run_seconds:.6f}"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    if pods > 1:
        spec["completionMode"] = "Indexed"
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
