"""Record what a real kube-scheduler sends to an extender, in ``*.json`` here.

``PYTHONPATH=tests python tests/contract/record.py`` repeats it.

A pod with planned nodes is filtered, prioritized and bound; then one that fits nowhere asks whom it may evict.
"""

import json
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.installed_cluster import installed_cluster
from support.priority_classes import add_priority_class
from tranche_testcluster import Cluster

HERE = Path(__file__).parent
VERBS = ("filter", "prioritize", "preempt", "bind")
PODS = "/api/v1/namespaces/default/pods"
API_VERSION = "tranche.dev/v1alpha1"
JOBS = f"/apis/{API_VERSION}/namespaces/default/trainingjobs"
GPU = "nvidia.com/gpu"
SECONDS = 60


class Recorder(ThreadingHTTPServer):
    """An extender that agrees with everything and keeps the first body of each verb."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: dict[str, bytes] = {}
        self.bind: Callable[[dict[str, Any]], str] = lambda body: "there is no cluster yet"
        self.complete = threading.Event()

    def answer(self, verb: str, raw: bytes) -> Any:
        """Record the body, and return the answer that accepts the pod."""
        self.bodies.setdefault(verb, raw)
        if set(self.bodies) == set(VERBS):
            self.complete.set()
        body = json.loads(raw)
        match verb:
            case "filter":
                return {"NodeNames": body["NodeNames"]}
            case "prioritize":
                return [{"Host": name, "Score": 1} for name in body["NodeNames"]]
            case "bind":
                return {"Error": self.bind(body)}
            case _:
                return {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps(self.server.answer(self.path.rsplit("/", 1)[-1], raw)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Say nothing."""


def bind(cluster: Cluster, asked: dict[str, Any]) -> str:
    """Execute the request of kube-scheduler."""
    target = {"apiVersion": "v1", "kind": "Node", "name": asked["Node"]}
    body = {"metadata": {"name": asked["PodName"], "uid": asked["PodUID"]}, "target": target}
    status, answer = cluster.request("POST", f"{PODS}/{asked['PodName']}/binding", body)
    return "" if status == 201 else str(answer)


def config(port: int) -> dict[str, Any]:
    """Return the configuration of the kube-scheduler under observation."""
    verbs = {f"{verb}Verb": verb for verb in VERBS}
    extender = {"urlPrefix": f"http://127.0.0.1:{port}", "weight": 1, "nodeCacheCapable": True, **verbs}
    return {"profiles": [{"schedulerName": "tranche"}], "extenders": [extender]}


def submit(cluster: Cluster) -> dict[str, Any]:
    """Create the job of the pods, which no operator serves, and return the reference to it as their owner."""
    container = {"name": "main", "image": "trainer", "resources": {"limits": {GPU: "2"}}}
    workers = {"maxReplicas": 3, "template": {"spec": {"containers": [container]}}}
    spec = {"data": {"chunks": 3, "batchesPerChunk": 1}, "workers": workers}
    body = {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": {"name": "cats"}, "spec": spec}
    status, made = cluster.request("POST", JOBS, body)
    assert status == 201, made
    return {"apiVersion": API_VERSION, "kind": "TrainingJob", "name": "cats", "uid": made["metadata"]["uid"]}


def pod(name: str, gpus: int, priority_class: str, nodes: list[str], owner: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as the operator makes it."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    labels = {
        "tranche.dev/job": "cats",
        "tranche.dev/role": "worker",
        "tranche.dev/index": "0",
        "tranche.dev/attempt": "1",
    }
    limits = {GPU: str(gpus), "cpu": "500m", "memory": "64Mi"}
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"tranche.dev/plan": "1.7"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "schedulerName": "tranche",
            "priorityClassName": priority_class,
            "containers": [{"name": "main", "image": "trainer", "resources": {"requests": limits, "limits": limits}}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            },
        },
    }


def main() -> None:
    """Record."""
    recorder = Recorder()
    threading.Thread(target=recorder.serve_forever, daemon=True).start()
    with installed_cluster() as cluster:
        recorder.bind = partial(bind, cluster)
        nodes = cluster.add_site("edge-a", nodes=3, gpus=2)
        for name, value in (("low", -10), ("high", 10)):
            add_priority_class(cluster, name, value)
        cluster.start_scheduler(config(recorder.server_port))
        owner = submit(cluster)
        for number in range(len(nodes)):  # each takes a node for itself
            assert cluster.request("POST", PODS, pod(f"cats-worker-{number}-1", 2, "low", nodes, owner))[0] == 201
        cluster.kubectl("wait", "pod", "--all", "--for=condition=PodScheduled", f"--timeout={SECONDS}s")
        assert cluster.request("POST", PODS, pod("evictor", 2, "high", nodes, owner))[0] == 201
        assert recorder.complete.wait(SECONDS), f"only {sorted(recorder.bodies)}"
        version = cluster.request("GET", "/version")[1]["gitVersion"]
    for verb, raw in recorder.bodies.items():
        file = HERE / f"{verb}-{version}.json"
        file.write_text(json.dumps(json.loads(raw), indent=1) + "\n")


if __name__ == "__main__":
    main()
