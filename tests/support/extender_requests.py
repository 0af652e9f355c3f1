"""OpenAPI documents of the extender and of the report API, with names that occur in the tests, and any others."""

from typing import Any

Schema = dict[str, Any]


def document(described: Schema) -> Schema:
    """Return all routes: those that FastAPI describes, and those that parse their bodies themselves."""
    verbs = {"filter": _NAMES, "prioritize": _NAMES, "preempt": _CANDIDATES, "bind": _BINDING}
    own = {f"/{verb}": {"post": _takes(body)} for verb, body in verbs.items()}
    return {"openapi": "3.1.0", "info": described["info"], "paths": {**described["paths"], **own}}


def with_token(described: Schema) -> Schema:
    """Return the page's routes with an authenticated caller."""
    token = _parameter("Tranche-Token", "header", {"enum": ["ns/someone"]})
    for path in described["paths"].values():
        for operation in path.values():
            operation.setdefault("parameters", []).append(token)
    return described


def report_document() -> Schema:
    """Return the report API's document, which the API itself does not provide."""
    known = {"namespace": ["ns"], "name": ["cats", "gang"]}  # other names are drawn as invalid ones
    names = [_parameter(name, "path", {"enum": values}) for name, values in known.items()]
    token = _parameter("Authorization", "header", {"enum": ["Bearer ns/cats-ps-0-7/u7", "Bearer a/b/c", "Bearer"]})
    route = {"post": {**_takes(_REPORT), "parameters": [*names, token]}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "reports", "version": "1"},
        "paths": {f"/v1/jobs/{{namespace}}/{{name}}/{what}": route for what in ("progress", "next")},
    }


def _takes(body: Schema) -> Schema:
    answers = {"200": {"description": "done"}}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}, "responses": answers}


def _parameter(name: str, where: str, schema: Schema) -> Schema:
    return {"name": name, "in": where, "required": True, "schema": schema}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "maxItems": 3}


def _among(*known: str) -> Schema:
    return {"anyOf": [{"type": "string", "enum": list(known)}, {"type": "string", "maxLength": 8}]}


_TEXT: Schema = {"type": "string", "maxLength": 8}
_NODE = _among("n1", "n2", "absent")
_QUANTITY: Schema = {
    "anyOf": [{"type": "integer"}, {"type": "number"}, _among("1", "100m", "1Gi", "1e9", "-1", "much")]
}
_ASKED: Schema = _object(
    requests=_object(**{"nvidia.com/gpu": _QUANTITY, "cpu": _QUANTITY}),
    limits={"type": "object", "additionalProperties": _QUANTITY},
)
_CONTAINER = _object("name", name=_TEXT, resources=_ASKED, restartPolicy=_among("Always"))
_LABELS = _object(
    **{
        "tranche.dev/job": _among("cats", "gang", "dogs"),
        "tranche.dev/role": _among("worker", "ps", "staging", "chief"),
        "tranche.dev/index": _among("0", "-1", "1"),
        "tranche.dev/attempt": _among("1", "7", "9999999999999999999999"),
    }
)
_OWNER = _object(
    apiVersion=_among("tranche.dev/v1alpha1"), kind=_among("TrainingJob"), uid=_TEXT, controller={"enum": [True]}
)
_POD = _object(
    "metadata",
    "spec",
    metadata=_object(
        name=_among("cats-worker-0-8"),
        namespace=_among("ns"),
        uid=_among("u8"),
        labels=_LABELS,
        annotations=_object(**{"tranche.dev/plan": _among("1.1", "9.9", "1", "x.y")}),
        ownerReferences=_list(_OWNER),
    ),
    spec=_object(
        "containers",
        containers=_list(_CONTAINER),
        initContainers=_list(_CONTAINER),
        priority={"type": "integer"},
        overhead={"type": "object", "additionalProperties": _QUANTITY},
    ),
)
_NAMES = _object("Pod", "NodeNames", Pod=_POD, NodeNames=_list(_NODE), Nodes={"type": "null"})
_VICTIM = _object("UID", UID=_among("u8", "u9"))
_VICTIMS = _object("Pods", Pods=_list(_VICTIM), NumPDBViolations={"type": "integer"})
_CANDIDATES = _object("Pod", "NodeNameToMetaVictims", Pod=_POD, NodeNameToMetaVictims=_object(n1=_VICTIMS, x=_VICTIMS))
_BINDING = _object(
    "PodName", "PodNamespace", "PodUID", "Node", PodName=_TEXT, PodNamespace=_among("ns"), PodUID=_TEXT, Node=_NODE
)
_BATCHES: Schema = {
    "type": "object",
    "additionalProperties": {"type": "number"},
    "propertyNames": _among("0", "1", "-1", "4294967296"),
}
_SECONDS: Schema = {"type": "number"}
_REPORT = _object(
    "attempt",
    attempt={"anyOf": [{"type": "integer"}, {"enum": [7]}]},
    applied=_BATCHES,
    durable=_BATCHES,
    batchSeconds=_SECONDS,
    fetchSeconds=_SECONDS,
    computeSeconds=_SECONDS,
)
