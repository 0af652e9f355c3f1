"""Jobs of a round: chunked jobs, some with parameter servers or staged data, gangs with and without chief."""

import random
from dataclasses import dataclass
from typing import Any

from chaos.labs import SITES

BATCHES = 50
AT_ONCE = 3
"""Number of jobs that are submitted at the beginning, so that the first fault has targets."""
NEVER = 1000
"""Back-off limit of jobs that must succeed whatever faults do to their pods."""
TOLERANCES = ("3s", "1h")
"""Values of `disconnectTolerance`: one that ends during a fault, and one that does not."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Job with the time of its submission (seconds after the start of the round) and its expected end."""

    at: float
    name: str
    body: dict[str, Any]
    expected: str


def draw(chance: random.Random, jobs: int, seconds: float, *, staged: bool) -> list[Arrival]:
    """Draw ``jobs`` jobs within ``seconds``, of each kind in turn, and one that fails, in order of arrival.

    Some jobs have staged data if `staged`, which requires declared sites and a policy that plans copies of data.
    """
    makers = (_chunked, _served, _chiefed, _gang, *([_staged] if staged else []))
    arrivals = []
    for number in range(jobs):
        maker = makers[number % len(makers)]
        name = f"{maker.__name__.strip('_')}-{number}"
        at = 0.0 if number < AT_ONCE else chance.uniform(0, seconds)
        arrivals.append(Arrival(at, name, _body(name, maker(chance)), "Succeeded"))
    spec = {**_chunked(chance, exit_code=3), "runPolicy": {"backoffLimit": 0}}
    arrivals.append(Arrival(chance.uniform(0, seconds), "doomed", _body("doomed", spec), "Failed"))
    return sorted(arrivals, key=lambda arrival: arrival.at)


def tolerances(chance: random.Random) -> dict[str, str]:
    """Return `disconnectTolerance` by site; empty in half of the rounds, which declare no sites."""
    return {site: chance.choice(TOLERANCES) for site in SITES} if chance.random() < 0.5 else {}


def fault_job(
    name: str,
    *,
    site: str | None = None,
    gpus: int = 1,
    chunks: int = 1,
    seconds: float = 2.0,
    high: bool = True,
    cpu: str | None = "1",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    pod: dict[str, Any] | None = None,
    host_port: int | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a job for a fault, with little work; with `high`, it ranks before all other jobs.

    Args:
        name: Name of the job.
        site: Zone that its pods select; None: any.
        gpus: GPUs of a pod.
        chunks: Number of chunks, and of workers.
        seconds: Time of a chunk.
        high: Whether it has a large weight and a high priority.
        cpu: CPU requested by a pod; None: no request.
        labels: Labels of its pods.
        annotations: Further annotations of its pods for the simulated kubelet, without their prefix.
        pod: Further fields of the pods' specification.
        host_port: Port of its node that a pod uses.
        spec: Further fields of the job's specification.
    """
    resources = _resources(gpus)
    if cpu is None:
        del resources["requests"]["cpu"]
    asked = {"batch-seconds": f"{seconds / BATCHES:.4f}", **(annotations or {})}
    ports = [{"containerPort": host_port, "hostPort": host_port}] if host_port else []
    containers = [{"name": "t", "image": "x", "resources": resources, "ports": ports}]
    template = {"containers": containers, "terminationGracePeriodSeconds": 1, **(pod or {})}
    if site:
        template["nodeSelector"] = {"topology.kubernetes.io/zone": site}
    metadata = {"annotations": {f"kwok.tranche.dev/{key}": value for key, value in asked.items()}}
    body = {
        "data": {"chunks": chunks, "batchesPerChunk": BATCHES},
        "workers": {
            "maxReplicas": chunks,
            "template": {"metadata": {**metadata, "labels": labels or {}}, "spec": template},
        },
        "model": {"stepTime": f"{1000 * seconds / BATCHES:.1f}ms"},
        **({"weight": 100, "priorityClassName": "tranche-high"} if high else {}),
        **spec,
    }
    return _body(name, body)


def _body(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}


def _chunked(chance: random.Random, exit_code: int = 0) -> dict[str, Any]:
    chunks, seconds = chance.randint(2, 7), chance.uniform(1.0, 4.0)
    annotations = {"batch-seconds": f"{seconds / BATCHES:.4f}", "exit-code": str(exit_code)}
    zone = chance.choice([None, None, *SITES])
    return {
        "data": {"chunks": chunks, "batchesPerChunk": BATCHES},
        "workers": {"maxReplicas": chance.randint(1, chunks), "template": _template(chance, annotations, zone)},
        "model": {"stepTime": f"{1000 * seconds / BATCHES:.1f}ms"},
        "weight": chance.choice([1, 1, 3]),
        "preemption": {"policy": chance.choice(["Immediate", "Immediate", "AtChunkEnd", "Never"])},
        "runPolicy": {"backoffLimit": NEVER},
    }


def _served(chance: random.Random) -> dict[str, Any]:
    return {**_chunked(chance), "parameterServers": {"replicas": 1, "template": _template(chance, {}, None, gpus=0)}}


def _gang(chance: random.Random) -> dict[str, Any]:
    seconds, members = chance.uniform(2.0, 6.0), chance.randint(2, 3)
    template = _template(chance, {"run-seconds": f"{seconds:.3f}"}, None)
    return {
        "workers": {"maxReplicas": members, "template": template},
        "estimatedDuration": f"{seconds:.1f}s",
        "runPolicy": {"backoffLimit": NEVER},
    }


def _chiefed(chance: random.Random) -> dict[str, Any]:
    """Return a job of TensorFlow's ParameterServerStrategy: servers and most workers run until they are stopped."""
    gang, serves = _gang(chance), _template(chance, {}, None)
    chief = gang["workers"]["template"]
    chief["spec"]["containers"][0]["resources"] = _resources(gpus=chance.choice([0, 0, 1]))
    early = _template(chance, {"run-seconds": "1"}, None)
    return {
        **gang,
        "workers": {**gang["workers"], "template": chance.choice([serves, serves, early])},
        "parameterServers": {"replicas": chance.randint(1, 2), "template": _template(chance, {}, None, gpus=0)},
        "chief": {"template": chief},
    }


def _staged(chance: random.Random) -> dict[str, Any]:
    """Return a job whose data are at one site; a staging pod copies them to others."""
    job = _chunked(chance)
    job["workers"]["template"]["spec"].pop("nodeSelector", None)
    asked = {"kwok.tranche.dev/run-seconds": f"{chance.uniform(0.2, 1.5):.2f}"}
    containers = [{"name": "t", "image": "x", "resources": {"requests": {"cpu": "1"}}}]
    staging = {"template": {"metadata": {"annotations": asked}, "spec": {"containers": containers}}}
    return {**job, "data": {**job["data"], "site": chance.choice(list(SITES)), "chunkSize": "1Mi", "staging": staging}}


def _template(chance: random.Random, annotations: dict[str, str], zone: str | None, gpus: int = 1) -> dict[str, Any]:
    asked = {**annotations, "checkpoint-seconds": f"{chance.choice([0.1, 0.5, 1.5]):g}"}
    if chance.random() < 0.5:
        asked["start-seconds"] = f"{chance.uniform(0.1, 1.0):.2f}"
    spec: dict[str, Any] = {"containers": [{"name": "t", "image": "x", "resources": _resources(gpus)}]}
    spec["terminationGracePeriodSeconds"] = chance.choice([1, 5])
    if zone:
        spec["nodeSelector"] = {"topology.kubernetes.io/zone": zone}
    return {"metadata": {"annotations": {f"kwok.tranche.dev/{k}": v for k, v in asked.items()}}, "spec": spec}


def _resources(gpus: int) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {"requests": {"cpu": "1", "memory": "1Gi", **limits}, "limits": limits}
