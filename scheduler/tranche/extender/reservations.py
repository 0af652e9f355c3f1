"""Index of node capacity, usage and reservations of plans, updated from watch changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import (
    PLANNED_ROLES,
    PRIORITIES,
    ROLE_CHIEF,
    ROLE_SERVER,
    ROLE_WORKER,
    GpuResources,
    pod_name,
)
from tranche.kube.api.resources import AdmittedPods, Plan, PlannedParameterServer, PlannedWindow, TrainingJob
from tranche.kube.convert.admitted_pod import planned_shape
from tranche.kube.convert.node import node_allocatable
from tranche.kube.convert.pod_identity import Identity, controlled_identity, plan_stamp
from tranche.kube.convert.pod_shape import pod_of_template, pod_usage, usage_index
from tranche.kube.convert.pod_state import is_over
from tranche.model import Resources

NOTHING = Resources()
MAX_REFUSALS = 16
"""Maximum number of kinds of foreign pods (priority, GPUs, GPU resource) whose refusals are kept."""
Entry = PlannedWindow | PlannedParameterServer


@dataclass(frozen=True, slots=True)
class Claim:
    """Reservation of a plan for a pod that is not bound yet."""

    node: str
    requests: Resources
    priority: int


@dataclass(slots=True)
class NodeUse:
    """Capacity, usage and reservations of one node."""

    capacity: Resources | None = None
    """Allocatable resources; None if the node is unknown."""
    used: Resources = NOTHING
    free: Resources = NOTHING
    """Resources that kube-scheduler can still assign."""
    pods: set[str] = field(default_factory=set)
    """Keys of the pods that are bound to the node and have not ended."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """Reservations by pod key."""

    usage: tuple[Resources, ...] = ()
    """Sum of the requests of `pods`, once for each of the GPU resources (`pod_usage`); empty without pods."""

    def change(self, capacity: Resources | None, usage: tuple[Resources, ...], gpu_resources: GpuResources) -> None:
        """Set capacity and usage."""
        self.capacity, self.usage = capacity, usage
        name = capacity.gpu_resource if capacity is not None else ""
        self.used = usage[usage_index(name, gpu_resources)] if usage else NOTHING
        self.free = (capacity or NOTHING) - self.used


@dataclass(slots=True)
class Refusals:
    """Nodes that pods of one priority and number of GPUs may not use, with reasons."""

    reasons: dict[str, str] = field(default_factory=dict)
    """Reasons by node, up to date except for `stale`."""
    stale: set[str] = field(default_factory=set)
    """Nodes that have changed since they were last examined."""


class Reservations:
    """Index over the stores of pods, nodes and jobs.

    The cost of a query depends only on the nodes or pods it concerns.
    """

    def __init__(self, pods: Mapping[str, Pod], jobs: Mapping[str, TrainingJob], gpu_resources: GpuResources) -> None:
        self._pods = pods
        self._jobs = jobs
        self._gpu_resources = gpu_resources
        self._nodes: dict[str, NodeUse] = {}
        self._placed: dict[str, tuple[str, tuple[Resources, ...]]] = {}
        self._planned: dict[str, dict[str, Claim]] = {}
        """Reservations of each job's plan, by pod key."""
        self._claims: dict[str, Claim] = {}
        self._shapes: dict[str, tuple[tuple[str, int, AdmittedPods | None], Mapping[str, Resources]]] = {}
        self._unknown = NodeUse()
        self._claimed_nodes: set[str] = set()
        """Nodes with reservations."""
        self._refusals: dict[tuple[int, int, str], Refusals] = {}
        """By priority, GPUs and GPU resource of a foreign pod, the latest used last."""

    # ---- updates from the watches

    def note_node(self, name: str, old: NodeObject | None, new: NodeObject | None) -> None:
        """Update the index for a changed node."""
        capacity = node_allocatable(new, self._gpu_resources) if new is not None else None
        use = self._use(name)
        use.change(capacity, use.usage, self._gpu_resources)
        self._note_change(name)

    def note_pod(self, key: str, old: Pod | None, new: Pod | None) -> None:
        """Update the index for a changed pod."""
        after = None
        if new is not None and new.spec.node_name and not is_over(new):
            after = (new.spec.node_name, pod_usage(new, self._gpu_resources))
        before = self._placed.pop(key, None)
        if after is not None:
            self._placed[key] = after
        if before != after:
            if before is not None:
                use = self._use(before[0])
                self._count(use, before[1], add=False)
                use.pods.discard(key)
                self._note_change(before[0])
            if after is not None:
                use = self._use(after[0])
                self._count(use, after[1], add=True)
                use.pods.add(key)
                self._note_change(after[0])
        claim = self._claims.get(key)
        if claim is not None:
            self._add_claim(key, claim)

    def note_job(self, key: str, old: TrainingJob | None, new: TrainingJob | None) -> None:
        """Update the index for a changed job, in most cases a new plan."""
        before = self._planned.pop(key, {})
        after = self._claims_of(key, new) if new is not None else {}
        for pod, claim in before.items():
            if after.get(pod) != claim:
                self._claims.pop(pod, None)
                self._remove_claim(pod, claim)
        for pod, claim in after.items():
            if before.get(pod) != claim:
                self._claims[pod] = claim
                self._add_claim(pod, claim)
        if after:
            self._planned[key] = after
        if new is None:
            self._shapes.pop(key, None)

    # ---- queries

    def node(self, name: str) -> NodeUse:
        """Return the usage of a node; without capacity if the node is unknown."""
        return self._nodes.get(name, self._unknown)

    def objection(self, name: str, pod: str, requests: Resources) -> str:
        """Return why this pod may not use a node that kube-scheduler offers; empty if it may.

        Args:
            name: Name of the node.
            pod: Key of the pod; its own reservation is not counted against it.
            requests: Requests of the pod.
        """
        use = self.node(name)
        if use.capacity is None:
            return f"{name} is not yet in tranche's cache"
        room, holder = use.free, ""
        if not requests.fits(room):
            return f"{name} has insufficient free resources"
        for other_pod, claim in use.claims.items():
            if other_pod != pod:
                room, holder = room - claim.requests, holder or other_pod
        return "" if requests.fits(room) else f"{name} is reserved for {holder}"

    def protection(self, name: str, priority: int, gpu_resource: str = "") -> tuple[int, str]:
        """Return the GPUs of a node reserved with at least this priority, and one of the pods they are reserved for.

        Args:
            name: Name of the node.
            priority: The priority.
            gpu_resource: Resource of the GPUs, as in `Resources.gpu_resource`.
        """
        gpus, holder = 0, ""
        use = self._nodes.get(name)
        if use is None or not use.claims:
            return gpus, holder
        if use.capacity is not None and use.capacity.gpu_resource != gpu_resource:
            return gpus, holder
        for pod, claim in use.claims.items():
            if claim.priority >= priority and claim.requests.gpus:
                gpus, holder = gpus + claim.requests.gpus, holder or pod
        return gpus, holder

    def refusals(self, priority: int, gpus: int, gpu_resource: str = "") -> Mapping[str, str]:
        """Return why each node that a foreign pod may not use is refused: its free GPUs are reserved for others.

        Only nodes that have changed since the last call with these arguments are examined.

        Args:
            priority: Priority of the pod.
            gpus: GPUs that it requests.
            gpu_resource: Their resource, as in `Resources.gpu_resource`.
        """
        kind = priority, gpus, gpu_resource
        refusals = self._refusals.pop(kind, None)
        if refusals is None:
            refusals = Refusals(stale=set(self._claimed_nodes))
            if len(self._refusals) >= MAX_REFUSALS:
                del self._refusals[next(iter(self._refusals))]
        self._refusals[kind] = refusals
        for name in refusals.stale:
            reserved, holder = self.protection(name, priority, gpu_resource)
            if reserved and gpus > self.node(name).free.gpus - reserved:
                refusals.reasons[name] = (
                    f"the free GPUs of {name} are reserved for {holder}, which has the same or a higher priority"
                )
            else:
                refusals.reasons.pop(name, None)
        refusals.stale.clear()
        return refusals.reasons

    def leaving(self, name: str) -> str:
        """Return the key of a training pod that is terminating or not planned any more on a node.

        Empty if there is none.
        """
        for key in self.node(name).pods:
            pod = self._pods.get(key)
            identity = controlled_identity(pod) if pod is not None else None
            if pod is None or identity is None:
                continue
            if pod.metadata.deletion_timestamp is not None or self._is_not_planned(pod, identity):
                return key
        return ""

    def entry(self, identity: Identity) -> Entry | None:
        """Return the plan entry of a pod in the latest plan that the watch has shown; None if there is none."""
        job = self._jobs.get(identity.job)
        return find_entry(job.status.plan, identity) if job is not None and job.status.plan is not None else None

    # ---- internals

    def _count(self, use: NodeUse, requests: tuple[Resources, ...], *, add: bool) -> None:
        usage = use.usage or (NOTHING,) * len(requests)
        total = tuple(
            amount + request if add else amount - request for amount, request in zip(usage, requests, strict=True)
        )
        use.change(use.capacity, total if any(amount != NOTHING for amount in total) else (), self._gpu_resources)

    def _is_not_planned(self, pod: Pod, identity: Identity) -> bool:
        if identity.role not in PLANNED_ROLES:
            return False
        job = self._jobs.get(identity.job)
        if job is None or job.status.plan is None or plan_stamp(pod) > (job.status.plan.term, job.status.plan.revision):
            return False
        entry = find_entry(job.status.plan, identity)
        return entry is None or is_closing(entry)

    def _claims_of(self, key: str, job: TrainingJob) -> dict[str, Claim]:
        plan, over = job.status.plan, job.status.phase in ("Succeeded", "Failed")
        if plan is None or over or job.metadata.deletion_timestamp is not None:
            return {}
        entries = [(role, entry) for role, entry in plan.entries_by_role() if entry.node and not is_closing(entry)]
        if not entries:
            return {}
        try:
            requests = self._requests(key, job)
        except ValueError:  # such a job gets no plan; this plan is from before the template was changed
            return {}
        priority = PRIORITIES[job.priority_class_name]
        name = job.metadata.name
        return {
            f"{job.metadata.namespace}/{pod_name(name, role, entry.index, entry.attempt)}": Claim(
                entry.node or "", requests[role], priority
            )
            for role, entry in entries
        }

    def _requests(self, key: str, job: TrainingJob) -> Mapping[str, Resources]:
        """Return the requests of a pod of each role; they are computed once per generation and result of admission."""
        cached, admitted = self._shapes.get(key), job.status.admitted
        version = job.metadata.uid, job.metadata.generation, admitted
        if cached is None or cached[0] != version:
            spec = job.spec
            roles = {ROLE_WORKER: spec.workers, ROLE_SERVER: spec.parameter_servers, ROLE_CHIEF: spec.chief}
            requests = {
                role: planned_shape(job, role, pod_of_template(part.template), self._gpu_resources).requests
                if part
                else NOTHING
                for role, part in roles.items()
            }
            cached = self._shapes[key] = (version, requests)
        return cached[1]

    def _add_claim(self, key: str, claim: Claim) -> None:
        """Add a reservation unless its pod is bound, on any node, or has ended."""
        pod = self._pods.get(key)
        if pod is None or not (pod.spec.node_name or is_over(pod)):
            self._use(claim.node).claims[key] = claim
            self._claimed_nodes.add(claim.node)
            self._note_change(claim.node)
        else:
            self._remove_claim(key, claim)

    def _remove_claim(self, key: str, claim: Claim) -> None:
        """Remove a reservation."""
        claims = self._use(claim.node).claims
        claims.pop(key, None)
        if not claims:
            self._claimed_nodes.discard(claim.node)
        self._note_change(claim.node)

    def _use(self, name: str) -> NodeUse:
        return self._nodes.setdefault(name, NodeUse())

    def _note_change(self, name: str) -> None:
        """Mark the node as changed, and drop a deleted node once no pod or reservation refers to it."""
        for refusals in self._refusals.values():
            refusals.stale.add(name)
        use = self._nodes[name]
        if use.capacity is None and not use.pods and not use.claims:
            del self._nodes[name]


def find_entry(plan: Plan, identity: Identity) -> Entry | None:
    """Return the plan entry (worker window, parameter server or chief) of a pod; None if there is none."""
    sought = identity.role, identity.index, identity.attempt
    entries = plan.entries_by_role()
    return next((entry for role, entry in entries if (role, entry.index, entry.attempt) == sought), None)


def is_closing(entry: Entry) -> bool:
    """Return whether the entry's pod must stop."""
    return entry.state == "Closing"
