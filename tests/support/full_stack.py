"""Cluster with tranche, with short methods for tests."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.installed_cluster import installed_cluster
from support.waiting import WAIT_SECONDS, eventually
from tranche.demo.local_stack import SYSTEM_NAMESPACE, Stack
from tranche.demo.page_account import create_visitor, visitor_token
from tranche.kube.client.leader_election import leases_path
from tranche_testcluster import Cluster, free_port

API = "/apis/tranche.dev/v1alpha1"
LEASES = leases_path(SYSTEM_NAMESPACE)
"""Path of the Leases of tranche."""
ANSWER_SECONDS = 60.0
"""Longest time for an answer of tranche's own servers on a machine that runs other tests."""
VALIDATED = ("--validate", "--estimate-seconds", "1")
"""Options of a scheduler that checks its plan after each event and renews explanations each second."""


@contextmanager
def full_stack(
    sites: Mapping[str, Mapping[str, Any]],
    policy: str = "chunk",
    options: Sequence[str] = VALIDATED,
    *,
    declared: Mapping[str, Mapping[str, Any]] | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> Iterator["System"]:
    """Run tranche on a cluster of its own.

    Args:
        sites: Arguments of `Cluster.add_site` for each site.
        policy: Policy of the scheduler.
        options: Further options of the scheduler.
        declared: Fields of a Site object for each site that has one.
        cluster: Arguments of `Cluster` (default: none).
    """
    with installed_cluster(**(cluster or {})) as started:
        for name, nodes in sites.items():
            started.add_site(name, **nodes)
        for name, fields in (declared or {}).items():
            declare_site(started, name, **fields)
        with Stack(started, policy, scheduler_options=options) as stack:
            yield System(started, stack)


def declare_site(cluster: Cluster, name: str, **fields: Any) -> None:
    """Create the Site object of the nodes in a zone."""
    spec = {"nodeSelector": {"topology.kubernetes.io/zone": name}, **fields}
    body = {"apiVersion": "tranche.dev/v1alpha1", "kind": "Site", "metadata": {"name": name}, "spec": spec}
    status, answer = cluster.request("POST", f"{API}/sites", body)
    assert status == 201, answer


class Jobs:
    """TrainingJobs of a cluster, with short methods for tests."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def create(self, name: str, spec: Mapping[str, Any], namespace: str = "default") -> None:
        """Create a job with this specification."""
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}
        status, answer = self.cluster.request("POST", f"{API}/namespaces/{namespace}/trainingjobs", body)
        assert status == 201, answer

    def job(self, name: str) -> dict[str, Any]:
        """Return the current job; empty if it is gone."""
        status, answer = self.cluster.request("GET", f"{API}/namespaces/default/trainingjobs/{name}")
        return answer if status == 200 else {}

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.job(name).get("status", {}))

    def pods(self, name: str) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/default/pods?labelSelector=tranche.dev/job={name}"
        return list(self.cluster.request("GET", path)[1]["items"])

    def until(self, what: str, true: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        """Wait until the result of a function is true, and return it."""
        return eventually(true, what, seconds=seconds)

    def until_phase(self, name: str, phase: str, seconds: float = WAIT_SECONDS) -> dict[str, Any]:
        """Wait until a job has this phase, and return its status, which the text of a failure has too."""
        eventually(
            lambda: self.status(name).get("phase") == phase,
            lambda: f"{name} {phase}, but {self.status(name)}",
            seconds=seconds,
        )
        return self.status(name)

    def end_worker(self, pod: Mapping[str, Any], message: str = "") -> None:
        """Let a running pod exit with status 0 and leave this termination message."""
        path = _path(pod)
        eventually(lambda: self._end(self.cluster.request("GET", path)[1], message), f"the end of {path} is written")

    def end_workers(self, name: str) -> None:
        """Let the workers of a job that run exit with status 0."""
        ended = lambda: all([self._end(pod) for pod in self._running(name)])  # noqa: C419, E731 - each of them
        eventually(ended, f"the ends of the workers of {name} are written")

    def complete(self, *names: str) -> dict[str, Any]:
        """Let each worker of these jobs exit with status 0 as soon as it runs, until the jobs have succeeded.

        A test that does this may submit long jobs, which train as long as it needs them, however slow the machine is.

        Returns:
            The status of the last job.
        """
        for name in names:
            self.until(f"{name} Succeeded", lambda name=name: self._has_succeeded(name))  # type: ignore[misc]
        return self.status(names[-1])

    def _has_succeeded(self, name: str) -> bool:
        """Return whether a job has succeeded, after its workers that run have ended."""
        self.end_workers(name)
        return bool(self.status(name).get("phase") == "Succeeded")

    def _running(self, name: str) -> list[dict[str, Any]]:
        """Return the workers of a job that run."""
        return [pod for pod in self.pods(name) if is_running(pod) and role(pod) == "worker"]

    def _end(self, pod: dict[str, Any], message: str = "") -> bool:
        """Write the end of a pod as a kubelet does; return whether no other client has changed the pod meanwhile."""
        (container,) = pod["status"]["containerStatuses"]
        began, ended = container["state"]["running"]["startedAt"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        over = {"exitCode": 0, "message": message, "startedAt": began, "finishedAt": ended}
        pod["status"] |= {"phase": "Succeeded", "containerStatuses": [{**container, "state": {"terminated": over}}]}
        status, answer = self.cluster.request("PUT", f"{_path(pod)}/status", pod)
        assert status in (200, 404, 409), answer
        return bool(status == 200)

    def until_running(self, name: str, workers: int) -> None:
        """Wait until this many workers of a job run; its `activeWorkers` counts pods that have not started, too."""
        self.until(f"{workers} workers of {name} run", lambda: len(self._running(name)) == workers)

    def delete(self, *names: str) -> None:
        """Delete jobs, all of them before a pod ends whose place another one would take, and wait for their pods."""
        for name in names:
            self.cluster.request("DELETE", f"{API}/namespaces/default/trainingjobs/{name}")
        for name in names:
            self.until(f"pods of {name} gone", lambda name=name: not self.pods(name))  # type: ignore[misc]


class System(Jobs):
    """Cluster of simulated nodes with tranche on it."""

    def __init__(self, cluster: Cluster, stack: Stack) -> None:
        super().__init__(cluster)
        self.stack = stack
        self._token = ""

    def submit(
        self,
        name: str,
        *,
        chunks: int = 1,
        seconds: float = 1.0,
        gpus: int = 1,
        zone: str | None = None,
        node: str | None = None,
        exit_code: int = 0,
        checkpoint_seconds: float | str = 0.3,
        namespace: str = "default",
        container: dict[str, Any] | None = None,
        pod: dict[str, Any] | None = None,
        sidecar: bool = False,
        **spec: Any,
    ) -> None:
        """Apply a job whose chunks take `seconds` each, in 50 batches; with `sidecar`, a proxy before the trainer."""
        annotations = {
            "kwok.tranche.dev/batch-seconds": str(seconds / 50),
            "kwok.tranche.dev/checkpoint-seconds": str(checkpoint_seconds),
            "kwok.tranche.dev/exit-code": str(exit_code),
        }
        requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
        resources = {"requests": requests, "limits": {"nvidia.com/gpu": str(gpus)}}
        containers = [{"name": "t", "image": "x", "resources": resources, **(container or {})}]
        pod = {"containers": containers, "terminationGracePeriodSeconds": 5, **(pod or {})}
        if sidecar:
            pod["containers"] = [{"name": "proxy", "image": "x"}, *containers]
            annotations |= {"kwok.tranche.dev/trainer": "t", "kubectl.kubernetes.io/default-container": "t"}
        if zone:
            pod["nodeSelector"] = {"topology.kubernetes.io/zone": zone}
        if node:
            pod["nodeSelector"] = {"kubernetes.io/hostname": node}
        template = {"metadata": {"annotations": annotations}, "spec": pod}
        body = {
            "data": {"chunks": chunks, "batchesPerChunk": 50},
            "workers": {"maxReplicas": chunks, "template": template},
            "model": {"stepTime": f"{1000 * seconds / 50:.3f}ms"},
            **spec,
        }
        self.create(name, body, namespace)

    def lease(self, program: str = "scheduler") -> dict[str, Any]:
        """Return the Lease of a program."""
        return dict(self.cluster.request("GET", f"{LEASES}/tranche-{program}")[1])

    def term(self, program: str = "scheduler") -> int:
        """Return the term of the leading replica of a program."""
        return int(self.lease(program)["spec"]["leaseTransitions"])

    def leader(self, program: str = "scheduler") -> str:
        """Return the name of the process that holds the Lease of a program; empty if none of the stack does."""
        pid = self.lease(program)["spec"]["holderIdentity"].rpartition("_")[2]
        return next((name for name, process in self.stack.processes.items() if str(process.pid) == pid), "")

    def children(self) -> dict[str, int]:
        """Return the process IDs of the processes of the scheduler, by name."""
        parent = self.stack.processes["scheduler"].pid
        found: dict[str, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_text().split("\0")
                status = (folder / "status").read_text()
            except OSError:
                continue
            if f"\nPPid:\t{parent}\n" in status and "tranche" in words:
                found[words[words.index("tranche") + 1]] = int(folder.name)
        return found

    def has_plan_after(self, term: int) -> bool:
        """Return whether a job has the plan of a later term."""
        jobs = self.cluster.request("GET", f"{API}/namespaces/default/trainingjobs")[1]["items"]
        return any(job.get("status", {}).get("plan", {}).get("term", 0) > term for job in jobs)

    def change_leader(self) -> int:
        """Kill the scheduler while a standby runs, start it again, and return the term of the killed one."""
        killed = self.term()
        self.stack.start_scheduler("standby", free_port())
        self.stack.processes["scheduler"].kill()
        self.until("another leader", lambda: self.term() > killed)
        self.stack.processes.pop("scheduler").wait(WAIT_SECONDS)
        self.stack.start_scheduler()
        return killed

    def read(self, path: str, replica: str = "scheduler") -> Any:
        """Return the read API's answer for a user who may read all jobs.

        Raises:
            AssertionError: There is no answer, as while the process starts again, or while its watch is behind.
        """
        if not self._token:
            create_visitor(self.cluster)
            self._token = visitor_token(self.cluster)
        url = f"http://127.0.0.1:{self.stack.page_ports[replica]}/v1/{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._token}"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except OSError as error:
            raise AssertionError(f"{url}: {error}") from error

    def pod_token(self, pod: Mapping[str, Any] | None, audience: str = "tranche.dev") -> str:
        """Return a token as the kubelet projects it into a pod; bound to none without a pod."""
        spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 600}
        if pod is not None:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        status, answer = self.cluster.request("POST", path, {"spec": spec})
        assert status == 201, answer
        return str(answer["status"]["token"])

    def report(self, job: str, token: str, body: Mapping[str, Any], replica: str = "scheduler") -> tuple[int, str]:
        """Report the progress of a job to a replica; return status and error."""
        url = f"http://127.0.0.1:{self.stack.report_ports[replica]}/v1/jobs/default/{job}/progress"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())["error"]

    def report_when_known(self, job: str, token: str, body: Mapping[str, Any], replica: str = "scheduler") -> int:
        """Report until the replica's own watch has shown the pod; return the status."""
        known = lambda: (status := self.report(job, token, body, replica)[0]) != 503 and status  # noqa: E731
        return int(self.until("the replica knows the pod", known))

    def change(self, name: str, spec: Mapping[str, Any]) -> None:
        """Change fields of the specification of a job."""
        path, kind = f"{API}/namespaces/default/trainingjobs/{name}", "application/merge-patch+json"
        status, answer = self.cluster.request("PATCH", path, {"spec": spec}, kind)
        assert status == 200, answer

    def until_trained(self, name: str, batches: float) -> None:
        """Wait until the pods of a job that run now have each trained at least this many batches."""
        self.until(
            f"{name} has trained {batches} batches",
            lambda: (
                (done := [trained_batches(pod) for pod in self.pods(name) if is_running(pod)]) and min(done) >= batches
            ),
        )


def _path(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"


def role(pod: Mapping[str, Any]) -> str:
    """Return the role of a pod in its job."""
    return str(pod["metadata"]["labels"]["tranche.dev/role"])


def is_running(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod runs and has not been deleted."""
    return bool(pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"])


def trained_batches(pod: Mapping[str, Any]) -> float:
    """The batches that a simulated node counts for a pod that runs, as it would write them down if it stopped now."""
    (started,) = [c["message"] for c in pod["status"]["conditions"] if c["type"] == "kwok.tranche.dev/started"]
    seconds = float(pod["metadata"]["annotations"]["kwok.tranche.dev/batch-seconds"])
    return (time.time() - float(started) / 1000) / seconds
