"""Helpers for the operator's tests: the real process with its service account's rights, and plans written by hand."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.waiting import eventually
from tranche.kube.api.names import SCHEDULER_MANAGER
from tranche_testcluster import Cluster, spawn

SITE = "op"
TEMPLATE = {"spec": {"terminationGracePeriodSeconds": 7, "containers": [{"name": "train", "image": "trainer:1"}]}}


@dataclass
class Process:
    """Process of ``tranche-operator``."""

    command: list[str]
    log: Path
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.process = spawn(self.command, log=self.log)

    def kill(self) -> None:
        """Kill the process, as in a crash."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> int:
        """Terminate the process as Kubernetes does, which kills it after 30 s; return the exit code."""
        self.process.terminate()
        return self.process.wait(30)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Lab:
    """Namespace with jobs."""

    cluster: Cluster
    namespace: str

    def path(self, *parts: str) -> str:
        return "/".join((f"/apis/tranche.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs", *parts))

    def core(self, *parts: str) -> str:
        return "/".join((f"/api/v1/namespaces/{self.namespace}", *parts))

    def ask(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        status, answer = self.cluster.request(method, path, body, content_type)
        assert status < 300, answer
        return answer

    def create(self, name: str = "cats", *, chunks: int | None = 4, **spec: Any) -> dict[str, Any]:
        workers = {"maxReplicas": spec.pop("workers", 4), "template": spec.pop("template", TEMPLATE)}
        data = {"data": {"chunks": chunks, "epochs": 2, "batchesPerChunk": 10}} if chunks else {}
        body = {
            "apiVersion": "tranche.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {"workers": workers, **data, **spec},
        }
        job: dict[str, Any] = self.ask("POST", self.path(), body)
        return job

    def job(self, name: str = "cats") -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", self.path(name))
        return found

    def status(self, name: str = "cats") -> dict[str, Any]:
        found: dict[str, Any] = self.job(name).get("status", {})
        return found

    def condition(self, kind: str, name: str = "cats") -> dict[str, Any]:
        conditions = self.status(name).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def plan(self, *windows: dict[str, Any], name: str = "cats", **more: Any) -> None:
        """Write plan and progress as the planner does: in one server-side apply."""
        job = self.job(name)
        plan = {
            "term": 1,
            "revision": job.get("status", {}).get("plan", {}).get("revision", 0) + 1,
            "observedGeneration": more.pop("generation", job["metadata"]["generation"]),
            "workers": list(windows),
            "parameterServers": more.pop("servers", []),
            "explanation": more.pop("explanation", ""),
        }
        if "chief" in more:
            plan["chief"] = more.pop("chief")
        status = {"plan": plan, "progress": more.pop("progress", job.get("status", {}).get("progress", {}))}
        body = {
            "apiVersion": "tranche.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name},
            "status": status,
        }
        path = f"{self.path(name, 'status')}?fieldManager={SCHEDULER_MANAGER}&force=true"
        self.ask("PATCH", path, body, "application/apply-patch+yaml")

    def pods(self, name: str = "cats") -> dict[str, dict[str, Any]]:
        items = self.ask("GET", self.core(f"pods?labelSelector=tranche.dev/job={name}"))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def is_stopping_or_gone(self, name: str, job: str = "cats") -> bool:
        """Return whether a pod has been deleted; the operator removes one that is counted a second later."""
        pod = self.pods(job).get(name)
        return pod is None or "deletionTimestamp" in pod["metadata"]

    def has_pods(self, *names: str, job: str = "cats") -> None:
        """Wait until exactly these pods exist."""

        def look() -> bool:
            assert sorted(self.pods(job)) == sorted(names)
            return True

        eventually(look)

    def bind(self, name: str, node: str = f"{SITE}-0") -> None:
        """Bind a pod as kube-scheduler does; then wait until the pod runs."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.ask("POST", self.core("pods", name, "binding"), body)
        eventually(lambda: self.ask("GET", self.core("pods", name))["status"]["phase"] != "Pending")

    def events(self, job: str = "cats") -> dict[str, dict[str, Any]]:
        items = self.ask("GET", self.core(f"events?fieldSelector=involvedObject.name={job}"))["items"]
        return {item["reason"]: item for item in items}


def window(index: int, attempt: int, state: str = "Open", **changes: Any) -> dict[str, Any]:
    """Return an entry of status.plan.workers."""
    node = {"site": SITE, "node": f"{SITE}-0", "fallbacks": [f"{SITE}-1"]}
    whole = {"index": index, "attempt": attempt, "chunks": [index], "state": state, **node, **changes}
    return {field: value for field, value in whole.items() if value is not None}


def server(index: int, attempt: int) -> dict[str, Any]:
    """Return an entry of status.plan.parameterServers."""
    return {"index": index, "attempt": attempt, "site": SITE, "node": f"{SITE}-1", "fallbacks": []}


def operator_command(cluster: Cluster, *options: str) -> list[str]:
    kubeconfig = cluster.service_account_kubeconfig("tranche-system", "tranche-operator")
    return [sys.executable, "-m", "tranche_operator", "--kubeconfig", str(kubeconfig), *options]
