"""Jobs of a round: chunked ones, with servers or staged data too, gangs, with a chief too, and one that must fail."""

import random
from dataclasses import dataclass
from typing import Any

from chaos.labs import SITES

BATCHES = 50
AT_ONCE = 3
"""Jobs that come first, so that there is something to break from the beginning."""
NEVER = 1000
"""Back-off limit of jobs that have to succeed whatever is done to their pods."""
TOLERANCES = ("3s", "1h")
"""Tolerances of disconnected sites: one that ends while they are disconnected, and one that does not."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job, when it is submitted (seconds after the round's start) and how it has to end."""

    at: float
    name: str
    body: dict[str, Any]
    expected: str


def draw(chance: random.Random, jobs: int, seconds: float, *, staged: bool) -> list[Arrival]:
    """Draw ``jobs`` jobs within ``seconds``, of each kind in turn, and one that fails, in the order of their arrivals.

    Data are staged only where sites are declared, as otherwise their location is unknown, and under policies that plan
    where data are brought.
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
    """`disconnectTolerance` by site; none in every second round, which declares no sites."""
    return {site: chance.choice(TOLERANCES) for site in SITES} if chance.random() < 0.5 else {}


def eager(
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
    """Return a job of a fault, with little work and a large weight, so that it ranks before the others if it is `high`.

    Args:
        name: Its name.
        site: The zone that its pods select.
        gpus: GPUs of a pod.
        chunks: Chunks, and workers at once.
        seconds: Time of a chunk.
        high: Whether it ranks first.
        cpu: CPU requested by a pod; None: no request.
        labels: Labels of its pods.
        annotations: Further annotations of its pods, without the prefix of the simulated kubelet.
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
    """As TensorFlow's ParameterServerStrategy: the servers, and mostly the workers, serve until they are stopped."""
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
    """Its data are at one site; a pod brings them to others."""
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
