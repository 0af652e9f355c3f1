"""Field types of the custom resources: base class, quantities, durations, pod templates, and their CEL rules.

The ``x-tranche-…`` keys are replaced by `tranche_codegen.crds`; all other extras are copied into the CRDs.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_CHUNKS = 2000
MAX_JOB_NAME = 50
MAX_SITE_NAME = 63
MAX_UNPLACED_MESSAGE = 1024
MAX_UNPLACED_NODES = 64
"""Bounds of status.plan.unplaced."""
MAX_ATTEMPT_TEXT = 2048
"""Bound of one text in status.progress.history, above what `tranche.model.attempt_record` writes."""
MAX_CELL_ENTRIES = 1000
"""Bound of status.plan.grant.slots.cells, above what `MAX_CELLS_BYTES` of `tranche.model.plan` allows."""
MAX_SITES = 64
"""Maximum number of sites with usage in status.progress."""


def rules(*pairs: tuple[str, str], **more: Any) -> dict[str, Any]:
    """Return the schema extension with CEL rules (rule, message) of a model or field."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs], **more}


_DURATION = r"^([0-9]{1,12}([.][0-9]{1,12})?(ms|s|m|h))+$"
_QUANTITY = r"^[0-9]{1,19}([.][0-9]{1,19})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
_DURATION_RULE = (
    f"self.matches('{_DURATION}') && duration(self) <= duration('87600h')",
    "must be a duration such as 120ms, 90s or 1h30m, at most 87600h",
)
_LONGER_THAN_ZERO = (f"!self.matches('{_DURATION}') || duration(self) > duration('0s')", "must be longer than zero")
_QUANTITY_RULE = (f"string(self).matches('{_QUANTITY}')", "must be a quantity such as 64Mi, 1.5G or 500M, not negative")
_INT_OR_STRING = {"x-kubernetes-int-or-string": True, "maxLength": 32}

_FORBIDDEN_FIELDS = (
    (
        ("nodeName", "schedulerName", "schedulingGates"),
        "tranche places the pods: leave out nodeName, schedulerName and schedulingGates; "
        "narrow the choice by nodeSelector or affinity",
    ),
    (
        ("hostname", "subdomain", "hostnameOverride"),
        "tranche names the pods, so that they find each other: leave out hostname, subdomain and hostnameOverride",
    ),
    (
        ("priorityClassName", "priority", "preemptionPolicy"),
        "the priority belongs to the job: leave out priorityClassName, priority and preemptionPolicy here "
        "and set spec.priorityClassName",
    ),
)
# Each rule is at the field that it concerns, and so costs nothing where the field is absent. The API server evaluates
# all rules of an object at every write, also of its status, and for `self.spec.nodeName` it copies the schemas of all
# fields of a pod.
_TEMPLATE_RULES = {
    **{f"spec.{name}": ("false", message) for names, message in _FORBIDDEN_FIELDS for name in names},
    "spec.restartPolicy": (
        "self == 'Never'",
        "tranche starts ended pods again itself, as a new attempt: restartPolicy must be Never (or be left out)",
    ),
    "metadata.labels": (
        "self.all(key, !key.startsWith('tranche.dev/'))",
        "labels that begin with tranche.dev/ are set by tranche: leave them out",
    ),
}


def _template(kind: str, **more: tuple[str, str]) -> Any:
    """Return the field of a pod template: the marker of its schema, and its CEL rules by path."""
    inside = {path: rules(rule)["x-kubernetes-validations"] for path, rule in {**_TEMPLATE_RULES, **more}.items()}
    return Field(json_schema_extra={f"x-tranche-{kind}": True, "x-tranche-rules-inside": inside})


def _without_gpus(message: str, *containers: str) -> dict[str, tuple[str, str]]:
    """Return the rules by which the containers of a template request no GPUs. They have the usual names of GPUs."""
    prefixes = " || ".join(f"k.startsWith('{vendor}/')" for vendor in ("nvidia.com", "amd.com", "gpu.intel.com"))
    gpu = f"k.endsWith('/gpu') || {prefixes}"
    parts = [f"spec.{name}.resources.{part}" for name in containers for part in ("requests", "limits")]
    return dict.fromkeys(parts, (f"!self.exists(k, {gpu})", message))


Template = Annotated[dict[str, Any], _template("template")]
"""A PodTemplateSpec; the CRD generator puts Kubernetes' own schema here."""
ServerTemplate = Annotated[
    dict[str, Any],
    _template(
        "server-template",
        **_without_gpus(
            "parameter servers run without GPUs: leave them out, only workers and the chief train on GPUs",
            "containers",
            "initContainers",
        ),
    ),
]
"""A PodTemplateSpec without GPUs. The planner refuses those that the installation names."""
StagingTemplate = Annotated[
    dict[str, Any],
    _template("staging-template", **_without_gpus("a staging pod copies data: leave out GPUs", "containers")),
]
"""The part of a PodTemplateSpec that copying takes. The planner refuses the GPUs that the installation names."""
Volume = Annotated[
    dict[str, Any],
    Field(
        min_length=1,
        json_schema_extra=rules(
            (
                "!has(self.emptyDir)",
                "an emptyDir ends with its pod, so nothing could resume from it: "
                "use hostPath, nfs, persistentVolumeClaim or another source that stays",
            ),
            **{"x-tranche-volume": True},
        ),
    ),
]
"""A pod's volume source (without a name); the CRD generator puts Kubernetes' own schema here."""
Quantity = Annotated[str | int, Field(json_schema_extra=rules(_QUANTITY_RULE, **_INT_OR_STRING))]
"""A non-negative Kubernetes quantity, such as ``64Mi`` or ``500M``."""
PositiveQuantity = Annotated[
    str | int,
    Field(
        json_schema_extra=rules(
            _QUANTITY_RULE,
            ("!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))", "must be above zero"),
            **_INT_OR_STRING,
        )
    ),
]
"""A Kubernetes quantity above zero."""
PodBandwidth = Annotated[
    str | int,
    Field(
        json_schema_extra=rules(
            _QUANTITY_RULE,
            (
                "!isQuantity(string(self)) || (!quantity(string(self)).isLessThan(quantity('1k')) "
                "&& !quantity(string(self)).isGreaterThan(quantity('1P')))",
                "must be from 1k to 1P, in bits per second, such as 500M: "
                "container runtimes start no pod with another limit",
            ),
            **_INT_OR_STRING,
        )
    ),
]
"""A bandwidth in bits per second within the limits of the annotations for the CNI bandwidth plugin."""
Duration = Annotated[str, Field(max_length=32, json_schema_extra=rules(_DURATION_RULE))]
"""A duration as Go writes it: ``120ms``, ``1h30m``; at most ten years."""
PositiveDuration = Annotated[str, Field(max_length=32, json_schema_extra=rules(_DURATION_RULE, _LONGER_THAN_ZERO))]
"""A duration above zero."""
NodeName = Annotated[str, Field(max_length=253)]
SiteName = Annotated[str, Field(max_length=MAX_SITE_NAME)]
_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
SiteReference = Annotated[str, Field(max_length=MAX_SITE_NAME, pattern=f"^{_NAME}$")]
"""Name of a site in a user's words. Messages, which others read, quote it, so control characters are refused."""
_LABEL_KEY = f"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_NAME}$"
LabelKey = Annotated[str, Field(min_length=1, max_length=316, pattern=_LABEL_KEY)]
"""Key of a label, such as ``tranche.dev/rack``."""
_LABEL_RULE = (
    f"self.all(k, k.matches('{_LABEL_KEY}'))",
    "must have keys of labels, such as topology.kubernetes.io/zone",
)
_LABEL_VALUE = {"maxLength": 63, "pattern": f"^({_NAME})?$"}
NodeLabels = Annotated[
    dict[str, Annotated[str, Field(json_schema_extra=_LABEL_VALUE)]],
    Field(min_length=1, max_length=32, json_schema_extra=rules(_LABEL_RULE)),
]
"""Labels of nodes. The API server refuses pods that require an invalid one."""
_CHUNKS = "[0-9]{1,4}(-[0-9]{1,4})?"
ChunkSet = Annotated[str, Field(max_length=16_384, pattern=f"^({_CHUNKS}(,{_CHUNKS})*)?$")]
"""Chunk numbers as `tranche.model.chunk_ranges` writes them: ``0-11,14``."""
ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
WHOLE: dict[str, Any] = {"x-kubernetes-map-type": "atomic"}
"""Schema extension of an object that one field manager always writes as a whole.

Server-side apply then records and compares one field, and not every field inside: the records of the single fields were
a fifth of a job, and each write of its status decodes and encodes them.
"""


def by_key(key: str) -> dict[str, Any]:
    """Return the schema extensions of a list whose entries one field identifies.

    Server-side apply merges such a list by entry, and the API server refuses duplicates.
    """
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class Resource(BaseModel):
    """Base of everything below: camelCase outside, snake_case inside; unknown fields are ignored when reading."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )
