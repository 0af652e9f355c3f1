"""Objects that a user or an administrator may send to the API server, from valid to nonsensical."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import yaml

from support.structural_objects import Schema, instance, quantity, some, text

ROOT = Path(__file__).resolve().parents[2]
_POD = ("affinity", "containers", "initContainers", "nodeSelector", "overhead", "resources", "tolerations", "volumes",
        "terminationGracePeriodSeconds", "activeDeadlineSeconds", "hostNetwork", "enableServiceLinks")  # fmt: skip
_CONTAINER = ("name", "image", "resources", "env", "restartPolicy", "args")
_OURS = ("nodeName", "schedulerName", "schedulingGates", "hostname", "subdomain", "hostnameOverride", "priority",
         "priorityClassName", "preemptionPolicy", "restartPolicy")  # fmt: skip
_LABELS = {"topology.kubernetes.io/zone": ("edge-a", "edge-b", "a", ""), "a": ("train", "x")}
_RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu", "ephemeral-storage", "hugepages-2Mi", "a.b/c")
_QUOTAS = ("cpu", "requests.cpu", "memory", "pods", "count/pods", "requests.nvidia.com/gpu", "limits.cpu", "services")
_SCOPES = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "PriorityClass", "CrossNamespacePodAffinity")


def spec_schema(plural: str) -> Schema:
    """Return the schema of `spec` in one of our definitions."""
    definition = yaml.load((ROOT / f"manifests/crds/{plural}.yaml").read_text(), Loader=yaml.CSafeLoader)
    schema: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


class Jobs:
    """Source of TrainingJob specifications: half are unrestricted, half such that most of their pods can be created."""

    def __init__(self) -> None:
        self._wild = spec_schema("trainingjobs")
        self._sound = _narrowed(self._wild)

    def __call__(self, random: Random) -> dict[str, Any]:
        if random.random() < 0.4:
            return _consistent(random, instance(random, self._wild))
        spec = _consistent(random, instance(random, self._sound))
        for template in _templates(spec):
            _name_containers(template["spec"])
        if random.random() < 0.8:
            asked = spec["workers"]["template"]["spec"]["containers"][0].setdefault("resources", {})
            for kind in ("requests", "limits"):
                asked.setdefault(kind, {})["nvidia.com/gpu"] = random.choice(("1", "1", "2", 9))
        return spec


def site(random: Random, schema: Schema) -> dict[str, Any]:
    """Return the specification of a Site, which mostly selects existing nodes."""
    spec: dict[str, Any] = instance(random, schema)
    if random.random() < 0.7:
        spec["nodeSelector"] = _labels(random)
    return spec


def node(random: Random, name: str) -> dict[str, Any]:
    """Return a node as a faulty kubelet would leave it."""
    allocatable = {resource: quantity(random) for resource in some(random, _RESOURCES, 6)}
    condition = {"type": "Ready", "status": random.choice(("True", "True", "False", "Unknown"))}
    taint = {"key": text(random), "effect": random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))}
    return {
        "metadata": {"name": name, "labels": _labels(random), "annotations": {text(random): text(random)}},
        "spec": {"unschedulable": random.random() < 0.2, "taints": some(random, [taint], 1)},
        "status": {"allocatable": allocatable, "capacity": allocatable, "conditions": some(random, [condition], 1)},
    }


def quota(random: Random, name: str) -> dict[str, Any]:
    """Return a ResourceQuota with limits and scopes of all kinds."""
    spec: dict[str, Any] = {"hard": {resource: quantity(random) for resource in some(random, _QUOTAS, 4)}}
    if random.random() < 0.3:
        spec["scopes"] = some(random, _SCOPES, 2)
    if random.random() < 0.3:
        expression = {
            "scopeName": "PriorityClass",
            "operator": random.choice(("In", "NotIn", "Exists", "DoesNotExist")),
        }
        values = some(random, ("tranche-low", "tranche-normal", "x"), 2)
        spec["scopeSelector"] = {"matchExpressions": [expression | ({"values": values} if values else {})]}
    return {"metadata": {"name": name}, "spec": spec}


def _labels(random: Random) -> dict[str, str]:
    labels = {key: random.choice(values) for key, values in _LABELS.items() if random.random() < 0.5}
    return labels or {text(random): text(random)}


def _narrowed(schema: Schema) -> Schema:
    """Return the schema with only those pod fields that planner and operator read."""
    properties = dict(schema.get("properties", {}))
    if "initContainers" in properties:
        properties = {name: properties[name] for name in _POD if name in properties}
    elif "imagePullPolicy" in properties:
        properties = {name: properties[name] for name in _CONTAINER if name in properties}
    narrowed = {**schema, "properties": {name: _narrowed(child) for name, child in properties.items()}}
    if isinstance(schema.get("items"), Mapping):
        narrowed["items"] = _narrowed(schema["items"])
    return narrowed


def _consistent(random: Random, spec: dict[str, Any]) -> dict[str, Any]:
    """Mostly keep to the rules about several fields; otherwise hardly any object would be accepted."""
    if random.random() < 0.1:
        return spec
    workers = spec["workers"]
    workers.pop("minReplicas", None)
    if "data" in spec:
        spec.pop("chief", None)
    elif "chief" not in spec:
        spec.pop("parameterServers", None)
    if "data" not in spec and spec.get("preemption", {}).get("policy") == "AtChunkEnd":
        del spec["preemption"]
    if "stepTime" in spec.get("model", {}):
        spec.pop("estimatedDuration", None)
    else:
        spec.get("model", {}).pop("stepTimes", None)
    if "staging" in spec.get("data", {}):
        spec["data"] = {"chunkSize": "1Mi", "site": "edge-a", **spec["data"]}
    for template in _templates(spec):
        for name in _OURS:
            template["spec"].pop(name, None)
    return spec


def _templates(spec: dict[str, Any]) -> list[dict[str, Any]]:
    staging = spec.get("data", {}).get("staging")
    holders = (spec["workers"], spec.get("chief"), spec.get("parameterServers"), staging)
    return [holder["template"] for holder in holders if holder]


def _name_containers(pod: dict[str, Any]) -> None:
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(pod.get(kind, ())):
            container |= {"name": f"{kind.lower()}-{number}", "image": "x"}
