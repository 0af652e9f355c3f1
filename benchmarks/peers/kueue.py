"""Kueue with batch/v1 Jobs, built from its Go module, with one ClusterQueue for all GPUs.

Its webhooks are reached by URL at 127.0.0.1, with the API server's certificate. Kueue reads the certificate of its
metrics from a fixed path below /etc, even if it serves none, so it runs in a mount namespace with an /etc of its own.
That needs root or unprivileged user namespaces.
"""

import base64
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers.batch_job import JOBS, QUEUE_LABEL, batch_job
from peers.process import started
from peers.system import Objects, System, create, documents, install_kinds
from tranche_testcluster import Cluster, ensure, free_port
from tranche_testcluster.binaries import binary_cache
from tranche_testcluster.site import GPU

GROUP = "kueue.x-k8s.io"
API = f"{GROUP}/v1beta2"
QPS = 1000
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_SERVED_GROUPS = ("batch", GROUP)
"""API groups whose webhooks are registered: the others belong to integrations that are off."""
_CONVERTED = ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")
"""Kinds whose versions its webhook converts, as in config/components/crd/kustomization.yaml of its module."""
_CERTIFICATES = Path("kueue/metrics/certs")


def kueue(strategy: str) -> System:
    """Return Kueue with this queueing strategy, StrictFIFO or BestEffortFIFO."""
    title = f"Kueue {binary_cache.version('kueue').lstrip('v')} {strategy}"
    settings = f"batch/v1 Jobs, one ClusterQueue, {QPS} QPS, kube-scheduler with 5,000 QPS"
    return System(title, settings, lambda cluster, gpus: _start(cluster, gpus, strategy), _job)


def _job(name: str, pods: int, run_seconds: float) -> Objects:
    return [(JOBS, batch_job(name, pods, run_seconds, {QUEUE_LABEL: "queue"}))]


@contextmanager
def _start(cluster: Cluster, gpus: int, strategy: str) -> Iterator[Mapping[str, int]]:
    port, own = free_port(), cluster.directory / "kueue-etc"
    certificates = own / _CERTIFICATES
    certificates.mkdir(parents=True)
    for suffix in ("crt", "key"):
        shutil.copy(cluster.directory / f"server.{suffix}", certificates / f"tls.{suffix}")
    kinds, webhooks = _manifests(cluster, port)
    install_kinds(cluster, kinds)
    create(cluster, "/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
    configuration = cluster.directory / "kueue.json"
    configuration.write_text(json.dumps(_configuration(port)))
    mounted = f'mount --bind "{own}" /etc && exec "$@"'
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    command = ("unshare", "--mount", *user, "sh", "-c", mounted, "sh", str(ensure("kueue")["kueue"]))
    options = (f"--config={configuration}", "--feature-gates=VisibilityOnDemand=false")
    cluster.start_scheduler()
    with started(cluster, "kueue", *command, *options) as pid:
        for body in webhooks:
            create(cluster, f"{_WEBHOOKS}/{body['kind'].lower()}s", body)
        for plural, body in _queues(gpus, strategy):
            scope = "namespaces/default/" if plural == "localqueues" else ""
            create(cluster, f"/apis/{API}/{scope}{plural}", body)
        yield {"kueue": pid, "kube-scheduler": cluster.pid("kube-scheduler")}


def _manifests(cluster: Cluster, port: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the CRDs and the webhook configurations, with the address of this process instead of a Service."""
    authority = base64.b64encode((cluster.directory / "ca.crt").read_bytes()).decode()
    objects = [document for file in binary_cache.manifests("kueue") for document in documents(file.read_text())]
    kinds = [document for document in objects if document.get("kind") == "CustomResourceDefinition"]
    webhooks = [document for document in objects if document.get("kind", "").endswith("WebhookConfiguration")]
    for kind in kinds:
        if kind["spec"]["names"]["plural"] in _CONVERTED:
            client = {"url": f"https://127.0.0.1:{port}/convert", "caBundle": authority}
            conversion = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
            kind["spec"]["conversion"] = {"strategy": "Webhook", "webhook": conversion}
    for document in webhooks:
        document["metadata"]["name"] = f"kueue-{document['metadata']['name']}"
        document["webhooks"] = [
            hook for hook in document["webhooks"] if hook["rules"][0]["apiGroups"][0] in _SERVED_GROUPS
        ]
        for hook in document["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
    return kinds, webhooks


def _configuration(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": f"/etc/{_CERTIFICATES}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": QPS, "burst": 2 * QPS},
        "integrations": {"frameworks": ["batch/job"]},
    }


def _queues(gpus: int, strategy: str) -> list[tuple[str, dict[str, Any]]]:
    quota: list[dict[str, Any]] = [
        {"name": "cpu", "nominalQuota": "100000"},
        {"name": "memory", "nominalQuota": "1000Ti"},
        {"name": GPU, "nominalQuota": gpus},
    ]
    covered = [resource["name"] for resource in quota]
    groups = [{"coveredResources": covered, "flavors": [{"name": "any", "resources": quota}]}]
    cluster_queue = {"namespaceSelector": {}, "queueingStrategy": strategy, "resourceGroups": groups}
    return [
        ("resourceflavors", _object("ResourceFlavor", "any", {})),
        ("clusterqueues", _object("ClusterQueue", "all", cluster_queue)),
        ("localqueues", _object("LocalQueue", "queue", {"clusterQueue": "all"})),
    ]


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
