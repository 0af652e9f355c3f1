"""Cluster whose nodes run real containers, and tranche installed on it by its chart."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from numpy_ps import chunks
from numpy_ps.models import Network as Model
from support import product_images
from support.full_stack import Jobs, declare_site
from support.product_images import ROOT
from support.waiting import WAIT_SECONDS, eventually
from tranche.demo.local_stack import await_kinds
from tranche_testcluster import Cluster
from tranche_testcluster.binaries import binary_cache
from tranche_testcluster.images import program_image
from tranche_testcluster.node import HostState, Network, RealNode, cluster_dns
from tranche_testcluster.node.reservation import Reservation

GPU = "nvidia.com/gpu"
WORKER_IMAGE = product_images.image_name("worker")
NAMESPACE = "tranche-system"
SITES = ("edge-a", "edge-b")
"""Sites with GPUs; tranche itself runs there too, and at `cloud`."""
SETTINGS = ("scheduler.startLimits.configurationSeconds=5", "scheduler.estimateSeconds=1")
"""Settings of the chart: besides a short limit for pods that cannot start, and frequent plans, those of every user."""


@dataclass(frozen=True)
class Lab:
    """Cluster and nodes by name."""

    cluster: Cluster
    nodes: Mapping[str, RealNode]


@contextmanager
def unchanged_host() -> Iterator[None]:
    """Check that the machine is as before; what earlier, killed processes have left is removed first."""
    Reservation().close()
    before = HostState.read()
    yield
    assert before.changes(HostState.read()) == []


@contextmanager
def real_lab(nodes: Mapping[str, Mapping[str, Any]]) -> Iterator[Lab]:
    """Start a cluster with kube-scheduler, CoreDNS and real nodes; afterwards the machine is as before.

    Args:
        nodes: Arguments of `RealNode` by name.
    """
    with unchanged_host(), Network() as network, Cluster(pod_address=network.address) as cluster, ExitStack() as stack:
        cluster.start_scheduler()
        found = {name: RealNode(cluster, network, name, **options) for name, options in nodes.items()}
        with ThreadPoolExecutor(len(found)) as pool:  # an import of images mostly waits
            list(pool.map(stack.enter_context, found.values()))
        cluster_dns.install(cluster)
        yield Lab(cluster, found)


def product_archives() -> list[Path]:
    """Return the archives of all images that tranche and its jobs use."""
    version = binary_cache.version("kube-scheduler")
    scheduler = binary_cache.ensure("kube-scheduler")["kube-scheduler"]
    own = [product_images.archive(target) for target in product_images.TARGETS]
    return [*own, program_image.archive(f"registry.k8s.io/kube-scheduler:{version}", scheduler)]


class Helm:
    """The helm command for a cluster, with the chart of this checkout."""

    def __init__(self, cluster: Cluster) -> None:
        self._program = binary_cache.ensure("helm")["helm"]
        self._cluster = cluster

    def __call__(self, *words: str) -> str:
        """Run helm in the namespace of tranche, and return its output.

        Raises:
            AssertionError: It fails; the text is its output and the state of the pods.
        """
        options = [f"--kubeconfig={self._cluster.kubeconfig}", f"--namespace={NAMESPACE}"]
        command = [str(self._program), *words, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self._state()}"
        return done.stdout

    def install(self, *settings: str) -> None:
        """Install the chart, or upgrade it to these settings, and wait until all pods are ready."""
        chart = str(ROOT / "helm" / "tranche")
        options = ["--install", "--create-namespace", "--wait", f"--timeout={WAIT_SECONDS:g}s"]
        values = [f"--set={value}" for value in ("image.pullPolicy=Never", *settings)]
        self("upgrade", "tranche", chart, *options, *values)

    def _state(self) -> str:
        pods = self._cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=wide", check=False)
        events = self._cluster.kubectl("events", f"--namespace={NAMESPACE}", "--types=Warning", check=False)
        return f"{pods}\n{events}"


class Installed(Jobs):
    """tranche as its chart installs it, with methods for jobs of real containers."""

    def __init__(self, lab: Lab, helm: Helm, folder: Path) -> None:
        super().__init__(lab.cluster)
        self.lab, self.helm, self.folder = lab, helm, folder

    def submit_program(
        self,
        name: str,
        program: str,
        *,
        chunks: int = 1,
        batches: int = 50,
        seconds: float = 1.0,
        container: Mapping[str, Any] | None = None,
        pod: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """Submit a job whose workers run a Python program with one GPU each; a chunk takes `seconds`."""
        main = {**worker_container(["python", "-c", program]), "resources": resources(gpus=1), **(container or {})}
        whole = {"containers": [main], "terminationGracePeriodSeconds": 60, **(pod or {})}
        body = {
            "data": {"chunks": chunks, "batchesPerChunk": batches},
            "workers": {"maxReplicas": chunks, "template": {"spec": whole}},
            "model": {"stepTime": f"{1000 * seconds / batches:.3f}ms"},
            **spec,
        }
        self.create(name, body)

    def submit_digits(self, name: str, *, epochs: int, workers: int) -> None:
        """Submit the example numpy_ps: a parameter server and workers, with data and checkpoints on the machine."""
        data, checkpoints, diaries = (self.folder / one for one in ("data", f"checkpoints/{name}", "diaries"))
        for folder in (checkpoints, diaries):  # the containers have another user
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o777)
        volumes = [{"name": "data", "hostPath": {"path": str(data), "type": "Directory"}}]
        worker = worker_container(["python", "-m", "numpy_ps.worker", "/data"])
        worker |= {"resources": resources(gpus=1), "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        # The step size decreases, so that runs in which workers took turns differently have the same loss at the end.
        halving = str(epochs * DIGIT_CHUNKS * DIGIT_BATCHES / 6)
        command = ["python", "-m", "numpy_ps.server", "--diary", f"/diary/{name}", "--halving", halving]
        server = worker_container(command)
        server |= {"volumeMounts": [{"name": "diary", "mountPath": "/diary"}]}
        diary = {"name": "diary", "hostPath": {"path": str(diaries), "type": "Directory"}}
        pod = {"containers": [worker], "volumes": volumes, "terminationGracePeriodSeconds": 20}
        serving = {"containers": [server], "volumes": [diary], "terminationGracePeriodSeconds": 20}
        body = {
            "data": {"chunks": DIGIT_CHUNKS, "epochs": epochs, "batchesPerChunk": DIGIT_BATCHES},
            "workers": {"maxReplicas": workers, "template": {"spec": pod}},
            "parameterServers": {"replicas": 1, "template": {"spec": serving}},
            "model": {"stepTime": "20ms"},
            "checkpoint": {"volume": {"hostPath": {"path": str(checkpoints), "type": "Directory"}}, "scope": "Cluster"},
        }
        self.create(name, body)

    def kill(self, pod: Mapping[str, Any]) -> None:
        """Kill the process of a pod's only container with SIGKILL."""
        self.lab.nodes[pod["spec"]["nodeName"]].kill_container(pod["status"]["containerStatuses"][0]["containerID"])

    def events(self, job: str) -> set[str]:
        """Return the reasons of the events of a job."""
        selector = f"involvedObject.kind=TrainingJob,involvedObject.name={job}"
        _, answer = self.cluster.request("GET", f"/api/v1/namespaces/default/events?fieldSelector={selector}")
        return {one["reason"] for one in answer["items"]}

    def plugin(self, *words: str) -> str:
        """Run kubectl-tranche as the administrator, and return its output."""
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        program = str(Path(sys.executable).with_name("kubectl-tranche"))
        done = subprocess.run([program, *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def loss(self, job: str) -> float:
        """Return the loss over all digits of the parameters in the newest checkpoint of a job."""
        found = (file for file in (self.folder / "checkpoints" / job).rglob("*") if file.is_file())
        files = sorted(found, key=lambda file: file.stat().st_mtime)
        with np.load(files[-1]) as held:
            parameters = held["parameters"]
        parts = [chunks.load(self.folder / "data", chunk) for chunk in range(DIGIT_CHUNKS)]
        pixels, classes = (np.concatenate(part) for part in zip(*parts, strict=True))
        return float(Model().loss(parameters, pixels, classes))

    def applied(self, job: str) -> list[tuple[int, int]]:
        """Return chunk and batch of each gradient that the job's parameter server has applied."""
        file = self.folder / "diaries" / job
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(int(line[1]), int(line[2])) for line in lines if line[0] == "apply"]

    def logs(self, pod: str) -> str:
        """Return the log of a pod of a job; empty if it has none yet."""
        return self.cluster.kubectl("logs", pod, check=False)

    def ended(self, job: str) -> list[list[str]]:
        """Return the history of a job: the words of a line for each attempt that has ended."""
        return [line.split() for line in self.status(job).get("progress", {}).get("history", ())]


DIGIT_CHUNKS, DIGIT_BATCHES = 6, 13
"""Chunks of the data of the example, and mini-batches of each chunk."""


def worker_container(command: Sequence[str], name: str = "main") -> dict[str, Any]:
    """Return a container of the worker image."""
    return {
        "name": name,
        "image": WORKER_IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "resources": resources(),
    }


def resources(gpus: int = 0, memory: str = "256Mi") -> dict[str, dict[str, str]]:
    """Return requests of a container that wait most of the time, and its limits."""
    extended = {GPU: str(gpus)} if gpus else {}
    return {"requests": {"cpu": "50m", "memory": "64Mi", **extended}, "limits": {"memory": memory, **extended}}


@contextmanager
def installed_chart(folder: Path) -> Iterator[Installed]:
    """Install tranche by its chart on three real nodes: one in the cloud without GPUs, one with two at each edge.

    Args:
        folder: Folder for data and checkpoints, which the containers can read.
    """
    chunks.stage(folder / "data", DIGIT_CHUNKS)
    images = [cluster_dns.archive(), *product_archives()]
    edges = {f"{site}-0": {"site": site, "gpus": 2, "images": images} for site in SITES}
    with real_lab({"cloud-0": {"site": "cloud", "images": images}, **edges}) as lab:
        helm = Helm(lab.cluster)
        lab.cluster.kubectl("create", "namespace", NAMESPACE)
        lab.cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        helm.install(*SETTINGS)
        await_kinds(lab.cluster)
        for site in ("cloud", *SITES):
            declare_site(lab.cluster, site)
        yield Installed(lab, helm, folder)


def system_pods(cluster: Cluster, component: str = "") -> list[dict[str, Any]]:
    """Return the pods of tranche itself."""
    selector = "app.kubernetes.io/name=tranche" + (f",app.kubernetes.io/component={component}" if component else "")
    text = cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", f"--selector={selector}", "--output=json")
    return list(json.loads(text)["items"])


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is ready and not being deleted."""
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def await_system(cluster: Cluster, pods: int = 4) -> list[dict[str, Any]]:
    """Wait until this number of tranche's pods is ready, and no other exists; return them."""

    def ready() -> list[dict[str, Any]]:
        found = system_pods(cluster)
        return found if len(found) == pods and all(map(is_ready, found)) else []

    return list(eventually(ready, f"{pods} pods of tranche are ready"))
