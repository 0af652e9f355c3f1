"""JSON schemas for kubeconform, made of what an API server says of its kinds, ours among them.

kubeconform's usual schemas come from the network; these are of exactly the release that the tests run.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.waiting import eventually
from tranche_testcluster import Cluster

_REF = "#/definitions/"
PATTERN = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
"""Pattern of the file names, for ``-schema-location``."""


def write(cluster: Cluster, folder: Path) -> int:
    """Write a schema for each kind of a cluster into a folder, and return the number of kinds.

    Waits until the OpenAPI document has the kinds of every CRD: the API server adds them after it serves the CRDs.
    """
    definitions = eventually(lambda: _published(cluster), "the OpenAPI document has all CRDs")
    for definition in definitions.values():
        _close(definition)
    count = 0
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            group = kind["group"].split(".")[0]
            suffix = f"-{group}-{kind['version']}" if group else f"-{kind['version']}"
            needed = {one: definitions[one] for one in _needed(definitions, name)}
            schema = {"$ref": f"{_REF}{name}", "definitions": needed}
            (folder / f"{kind['kind'].lower()}{suffix}.json").write_text(json.dumps(schema))
            count += 1
    return count


def _published(cluster: Cluster) -> dict[str, Any]:
    """The definitions of the OpenAPI document, or nothing while the kind of a CRD is missing."""
    status, answer = cluster.request("GET", "/openapi/v2")
    assert status == 200, answer
    definitions: dict[str, Any] = answer["definitions"]
    crds = cluster.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")[1]["items"]
    wanted = {(one["spec"]["group"], one["spec"]["names"]["kind"]) for one in crds}
    kinds = [kind for one in definitions.values() for kind in one.get("x-kubernetes-group-version-kind", ())]
    return definitions if wanted <= {(kind["group"], kind["kind"]) for kind in kinds} else {}


_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_DURATION = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _listed(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": item}


_ENDPOINT = _closed(["port"], port={"type": "string"}, interval=_DURATION, scrapeTimeout=_DURATION)
_RULE = _closed(
    ["expr"],
    alert={"type": "string"},
    record={"type": "string"},
    expr={"type": "string"},
    **{"for": _DURATION, "keep_firing_for": _DURATION},
    labels=_TEXTS,
    annotations=_TEXTS,
)
_GROUP = _closed(["name", "rules"], name={"type": "string"}, interval=_DURATION, rules=_listed(_RULE))
_MONITORING = {
    "ServiceMonitor": _closed(
        ["selector", "endpoints"], selector=_closed(["matchLabels"], matchLabels=_TEXTS), endpoints=_listed(_ENDPOINT)
    ),
    "PrometheusRule": _closed(["groups"], groups=_listed(_GROUP)),
}


def write_monitoring(folder: Path) -> None:
    """The fields of the Prometheus operator's kinds that the chart uses, as its API reference describes them."""
    for kind, spec in _MONITORING.items():
        metadata = _closed(["name", "namespace"], name={"type": "string"}, namespace={"type": "string"}, labels=_TEXTS)
        head = {"apiVersion": {"const": "monitoring.coreos.com/v1"}, "kind": {"const": kind}}
        schema = _closed(["metadata", "spec"], **head, metadata=metadata, spec=spec)
        (folder / f"{kind.lower()}-monitoring-v1.json").write_text(json.dumps(schema))


def _close(schema: dict[str, Any]) -> None:
    """Refuse unknown fields everywhere, and take numbers where numbers or texts are meant."""
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        schema.clear()
        schema["type"] = ["string", "integer"]
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    inside = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for one in inside:
        if isinstance(one, dict):
            _close(one)


def _needed(definitions: Mapping[str, Any], name: str) -> set[str]:
    found, todo = {name}, [name]
    while todo:
        for one in _references(definitions[todo.pop()]):
            if one not in found:
                found.add(one)
                todo.append(one)
    return found


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(_REF)
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)
