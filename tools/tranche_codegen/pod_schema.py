"""Schemas of pod templates and volumes from Kubernetes, in the form that a CustomResourceDefinition can embed.

The source is the OpenAPI (v3) of a running API server. Descriptions are removed: with them, one template has 398 KB,
and client-side ``kubectl apply`` stores the whole object in an annotation of at most 256 KiB.
"""

from collections.abc import Collection, Mapping
from typing import Any

from tranche_codegen.structural_schema import Schema, map_schemas

OPENAPI_PATH = "/openapi/v3/api/v1"
_CORE = "io.k8s.api.core.v1."
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_QUANTITY_PATTERN = r"^[+-]?([0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"
"""As `tranche.model.quantity` reads it: Kubernetes' own pattern has no bound on digits, and a fraction as exponent."""
_LONGEST_ARGUMENT = 128 * 1024 - 1
"""Maximum length of an argument or an environment variable (MAX_ARG_STRLEN); no program starts with a longer one."""
_INT_OR_STRING: Schema = {"x-kubernetes-int-or-string": True}
_REPLACED: dict[str, Schema] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {**_INT_OR_STRING, "pattern": _QUANTITY_PATTERN},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
    # Of the template metadata, only these two fields reach the pod (or the volume claim).
    _META + "ObjectMeta": {"type": "object", "properties": {"annotations": _STRINGS, "labels": _STRINGS}},
}
_KEPT = {
    "additionalProperties", "enum", "format", "items", "properties", "required", "type",
    "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type",
}  # fmt: skip
_MAX_LABELS = 64
_MAX_CONTAINERS = _MAX_RESOURCES = 32
"""Maximum containers, and resources of one, far above real ones; a CEL rule that reads each of them needs a bound."""
_STAGING_POD = {
    "activeDeadlineSeconds", "automountServiceAccountToken", "containers", "dnsPolicy", "hostNetwork", "hostname",
    "hostnameOverride", "imagePullSecrets", "nodeName", "nodeSelector", "preemptionPolicy", "priority",
    "priorityClassName", "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "securityContext",
    "serviceAccountName", "subdomain", "terminationGracePeriodSeconds", "tolerations", "volumes",
}  # fmt: skip
_STAGING_CONTAINER = {
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "name", "resources", "securityContext",
    "volumeMounts", "workingDir",
}  # fmt: skip
_STAGING_VOLUME = {"configMap", "csi", "emptyDir", "hostPath", "name", "nfs", "persistentVolumeClaim", "secret"}
_FORBIDDEN = ("ephemeralContainers", "schedulingGroup", "evictionResponders")
"""Pod fields that a template must not have: rejected at creation, or not in every supported release."""

_REMOVED_VOLUMES = (
    "cephfs", "flocker", "glusterfs", "photonPersistentDisk", "quobyte", "rbd", "scaleIO", "storageos",
)  # fmt: skip
"""Volumes whose plugins Kubernetes has removed from all supported releases: the API server takes them, and no kubelet
mounts them. CSI drivers have replaced them."""


def template_schema(openapi: Mapping[str, Any]) -> Schema:
    """Build the schema of a PodTemplateSpec with at least one container and an image in each container."""
    schemas: Mapping[str, Schema] = openapi["components"]["schemas"]
    template = _resolve(schemas[_CORE + "PodTemplateSpec"], schemas)
    template["required"] = ["spec"]
    labels = {**_STRINGS, "maxProperties": _MAX_LABELS}
    template["properties"]["metadata"] = {"type": "object", "properties": {"annotations": _STRINGS, "labels": labels}}
    pod = template["properties"]["spec"]
    for name in _FORBIDDEN:
        pod["properties"].pop(name, None)
    _drop_removed_volumes(pod["properties"]["volumes"]["items"])
    for name in ("containers", "initContainers"):
        container = pod["properties"][name]["items"]
        container["required"] = sorted({*container["required"], "image"})
        for key in ("image", "name"):
            container["properties"][key]["minLength"] = 1
        _bound_arguments(container["properties"])
    pod["properties"]["containers"]["minItems"] = 1
    return template


def _bound_arguments(container: Schema) -> None:
    """Bound the length of arguments and of the values of variables."""
    for key in container.keys() & {"args", "command"}:
        container[key]["items"]["maxLength"] = _LONGEST_ARGUMENT
    if "env" in container:
        container["env"]["items"]["properties"]["value"]["maxLength"] = _LONGEST_ARGUMENT


def server_schema(openapi: Mapping[str, Any]) -> Schema:
    """Build the schema of the PodTemplateSpec of a parameter server, bounded for rules about its requests."""
    template = template_schema(openapi)
    for name in ("containers", "initContainers"):
        _bound_requests(template["properties"]["spec"]["properties"][name])
    return template


def _bound_requests(containers: Schema) -> None:
    """Limit the number of containers of a template, and the number of resources that each container requests."""
    containers["maxItems"] = _MAX_CONTAINERS
    amounts = containers["items"]["properties"]["resources"]["properties"]
    for part in ("limits", "requests"):
        amounts[part]["maxProperties"] = _MAX_RESOURCES


def staging_schema(openapi: Mapping[str, Any]) -> Schema:
    """Build the reduced PodTemplateSpec of a staging pod: a fourth full one would exceed the size limit of the CRD."""
    template = template_schema(openapi)
    pod = template["properties"]["spec"]
    _keep(pod, _STAGING_POD)
    containers = pod["properties"]["containers"]
    _bound_requests(containers)
    _keep(containers["items"], _STAGING_CONTAINER)
    _keep(containers["items"]["properties"]["resources"], ("limits", "requests"))
    _keep(pod["properties"]["volumes"]["items"], _STAGING_VOLUME)
    return template


def _keep(schema: Schema, names: Collection[str]) -> None:
    """Keep only the named properties of a schema."""
    schema["properties"] = {name: schema["properties"][name] for name in schema["properties"] if name in names}


def volume_schema(openapi: Mapping[str, Any]) -> Schema:
    """Build the schema of a volume source: a volume of a pod without its name."""
    schemas: Mapping[str, Schema] = openapi["components"]["schemas"]
    volume = _resolve(schemas[_CORE + "Volume"], schemas)
    del volume["properties"]["name"], volume["required"]
    _drop_removed_volumes(volume)
    return volume


def _drop_removed_volumes(volume: Schema) -> None:
    """Drop the sources that no kubelet mounts, so that `kubectl apply` rejects them as unknown fields."""
    for name in _REMOVED_VOLUMES:
        volume["properties"].pop(name, None)


def _resolve(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """Inline references; keep only what a structural schema allows and a user needs."""
    reference = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", [])), None)
    if reference is not None:
        name = reference.rpartition("/")[2]
        return dict(_REPLACED[name]) if name in _REPLACED else _resolve(schemas[name], schemas)
    supported = {key: value for key, value in schema.items() if key in _KEPT}
    result = map_schemas(supported, lambda child: _resolve(child, schemas))
    if "items" in result and "x-kubernetes-list-map-keys" in schema:
        result["items"] = _with_key_defaults(result["items"], schema, schemas)
    return result


def _with_key_defaults(items: Schema, array: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """Give optional keys of a list-map the default of Kubernetes (protocol: TCP), as a CRD requires."""
    item = schemas[array["items"]["$ref"].rpartition("/")[2]]
    for key in array["x-kubernetes-list-map-keys"]:
        if key not in items.get("required", []):
            items["properties"][key] = {**items["properties"][key], "default": item["properties"][key]["default"]}
    return items
