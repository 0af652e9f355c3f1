"""Structs of pods, nodes and quotas with only the fields that are read, decoded directly from JSON.

A struct without garbage collection must never be part of a reference cycle. These structs hold plain data only, with
tuples for lists, so that the collector need not traverse tens of thousands of pods.
"""

from datetime import datetime

import msgspec


class Narrow(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base class; fields that are not declared are ignored."""


Quantities = dict[str, str | int | float]


class Owner(Narrow, frozen=True):
    """OwnerReference."""

    api_version: str = ""
    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Narrow, frozen=True):
    """ObjectMeta; a template's has no name."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[Owner, ...] = ()


class ResourceRequirements(Narrow, frozen=True):
    """ResourceRequirements of a container or a pod."""

    requests: Quantities = {}
    limits: Quantities = {}

    def request(self, name: str) -> str | int | float:
        """Return the request for a resource; if only a limit is set, Kubernetes uses the limit."""
        return self.requests.get(name, self.limits.get(name, 0))


class Container(Narrow, frozen=True):
    """A container or an init container (with `restart_policy` Always: a sidecar)."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    restart_policy_rules: tuple[dict[str, object], ...] = ()


class Expression(Narrow, frozen=True):
    """NodeSelectorRequirement."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(Narrow, frozen=True):
    """NodeSelectorTerm."""

    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(Narrow, frozen=True):
    """NodeSelector: terms of which at least one must match."""

    node_selector_terms: tuple[Term, ...] | None = ()


class NodeAffinity(Narrow, frozen=True):
    """NodeAffinity; only kube-scheduler uses the preferences."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(Narrow, frozen=True):
    """Affinity; only kube-scheduler uses affinity to other pods."""

    node_affinity: NodeAffinity | None = None


class PodToleration(Narrow, frozen=True):
    """A toleration."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Gate(Narrow, frozen=True):
    """A scheduling gate."""

    name: str = ""


class VolumeSource(Narrow, frozen=True):
    """Source of a volume, without its fields."""


class PodVolume(Narrow, frozen=True):
    """A volume, with the sources that may have to be provisioned."""

    persistent_volume_claim: VolumeSource | None = None
    ephemeral: VolumeSource | None = None


class PodResourceClaim(Narrow, frozen=True):
    """A resource claim of a pod, without what it refers to."""

    name: str = ""


class PodSpec(Narrow, frozen=True):
    """PodSpec: requests, constraints and node of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[Container, ...] | None = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Quantities = {}
    resources: ResourceRequirements | None = None
    priority: int | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[PodToleration, ...] = ()
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    scheduling_gates: tuple[Gate, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()


class PodCondition(Narrow, frozen=True):
    """A pod's condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class Running(Narrow, frozen=True):
    """ContainerStateRunning."""

    started_at: datetime | None = None


class Terminated(Narrow, frozen=True):
    """ContainerStateTerminated."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Waiting(Narrow, frozen=True):
    """ContainerStateWaiting."""

    reason: str = ""
    message: str = ""


class ContainerState(Narrow, frozen=True):
    """ContainerState; if all fields are absent, the container waits."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Narrow, frozen=True):
    """ContainerStatus, with the requests that the kubelet has allocated and set."""

    name: str = ""
    state: ContainerState = ContainerState()
    allocated_resources: Quantities | None = None
    resources: ResourceRequirements | None = None


class PodStatus(Narrow, frozen=True):
    """PodStatus, with the requests of the whole pod that the kubelet has allocated and set."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    start_time: datetime | None = None
    allocated_resources: Quantities | None = None
    resources: ResourceRequirements | None = None
    nominated_node_name: str = ""
    """Node where kube-scheduler has evicted other pods to make room for this one."""


class Pod(Narrow, frozen=True):
    """A pod, or a PodTemplateSpec (no name, no status)."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class ScopeExpression(Narrow, frozen=True):
    """ScopedResourceSelectorRequirement."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class ScopeSelector(Narrow, frozen=True):
    """ScopeSelector: expressions that must all match."""

    match_expressions: tuple[ScopeExpression, ...] = ()


class QuotaSpec(Narrow, frozen=True):
    """ResourceQuotaSpec: limits and scopes."""

    hard: Quantities = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class QuotaStatus(Narrow, frozen=True):
    """ResourceQuotaStatus: enforced limits and usage."""

    hard: Quantities = {}
    used: Quantities = {}


class QuotaObject(Narrow, frozen=True):
    """A ResourceQuota."""

    metadata: Metadata = Metadata()
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class NodeTaint(Narrow, frozen=True):
    """A taint."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Narrow, frozen=True):
    """NodeSpec: taints and the unschedulable flag."""

    taints: tuple[NodeTaint, ...] = ()
    unschedulable: bool = False


class NodeCondition(Narrow, frozen=True):
    """A node's condition, without its heartbeat."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class NodeStatus(Narrow, frozen=True):
    """NodeStatus: allocatable resources and conditions."""

    allocatable: Quantities = {}
    conditions: tuple[NodeCondition, ...] = ()


class NodeObject(Narrow, frozen=True):
    """A node."""

    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether the condition Ready is True; False without the condition."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)
