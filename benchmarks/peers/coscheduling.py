"""The coscheduling plugin of scheduler-plugins with its controller, built from their Go module."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from peers.batch_job import GROUP_LABEL, JOBS, batch_job
from peers.process import started
from peers.system import Objects, System, documents, install_kinds
from tranche_testcluster import Cluster, ensure
from tranche_testcluster.binaries import binary_cache
from tranche_testcluster.site import GPU

API = "scheduling.x-k8s.io/v1alpha1"
GROUPS = f"/apis/{API}/namespaces/default/podgroups"
QPS = 1000
_PLUGIN = {"name": "Coscheduling"}


def coscheduling() -> System:
    """Return kube-scheduler with the plugin, and its controller."""
    title = f"coscheduling {binary_cache.version('coscheduling-scheduler').lstrip('v')}"
    return System(title, f"PodGroup with minResources, its controller with {QPS} QPS", _start, _job)


def _job(name: str, pods: int, run_seconds: float) -> Objects:
    group = {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": pods, "minResources": {GPU: str(pods)}},
    }
    return [(GROUPS, group), (JOBS, batch_job(name, pods, run_seconds, {GROUP_LABEL: name}))]


@contextmanager
def _start(cluster: Cluster, gpus: int) -> Iterator[Mapping[str, int]]:
    del gpus
    objects = [
        document
        for file in binary_cache.manifests("coscheduling-scheduler")
        for document in documents(file.read_text())
    ]
    install_kinds(cluster, [document for document in objects if document["kind"] == "CustomResourceDefinition"])
    sort = {"enabled": [_PLUGIN], "disabled": [{"name": "*"}]}
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [_PLUGIN]}, "queueSort": sort},
    }
    config = {"profiles": [profile], "clientConnection": {"kubeconfig": str(cluster.kubeconfig)}}
    programs = ensure("coscheduling-scheduler", "coscheduling-controller")
    cluster.start_scheduler(config, program=programs["coscheduling-scheduler"])
    options = ("--metricsAddr=0", "--probeAddr=0", f"--qps={QPS}", f"--burst={2 * QPS}")
    with started(cluster, "controller", str(programs["coscheduling-controller"]), *options) as pid:
        yield {"kube-scheduler": cluster.pid("kube-scheduler"), "controller": pid}
