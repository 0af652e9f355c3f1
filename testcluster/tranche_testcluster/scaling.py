"""Pure decisions of the stand-in for a cluster autoscaler: when a site's nodes come and go.

A pod that kube-scheduler has marked unschedulable and that requires the site's labels, by its node selector or required
node affinity, gets a node after a set time; pods share nodes first fit. A node without pods for a set time is cordoned,
checked once more, and deleted.

Not supported, unlike in a real autoscaler: taints, anti-affinity, volumes, daemons, and operators of affinity other
than In, NotIn, Exists and DoesNotExist.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import site as sites

AUTOSCALED = "testcluster.tranche.dev/autoscaled"
"""Label of the nodes that an autoscaler has created; its value is the site."""
_SUFFIXES = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"([0-9.]+)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")

Amounts = dict[str, float]
"""Amounts that a node offers or a pod requests, by the name of the resource."""


@dataclass(frozen=True)
class Scaling:
    """Nodes to create and delays."""

    site: str
    """Value of the zone label, and prefix of the nodes' names."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes, besides the zone."""
    gpus: int = 8
    """GPUs of each node."""
    cpu: str = "32"
    memory: str = "128Gi"
    start_seconds: float = 5.0
    """Time from the moment when a pod is first seen to be unschedulable to its node."""
    idle_seconds: float = 10.0
    """Time without pods after which a node is removed."""
    most_nodes: int = 100
    """Maximum number of nodes."""

    def __post_init__(self) -> None:
        for name in ("start_seconds", "idle_seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a number of seconds from 0, not {value}")
        if self.gpus < 0 or self.most_nodes < 1:
            raise ValueError("gpus must be at least 0, and most_nodes at least 1")
        parse_quantity(self.cpu)
        parse_quantity(self.memory)

    @property
    def capacity(self) -> dict[str, str]:
        """Return the capacity of each node, as in the API."""
        return {"cpu": self.cpu, "memory": self.memory, "pods": "110"} | (
            {sites.GPU: str(self.gpus)} if self.gpus else {}
        )

    def flags(self) -> list[str]:
        """Return the settings as flags of the command line."""
        labels = [word for key, value in self.labels.items() for word in ("--label", f"{key}={value}")]
        return [
            *("--site", self.site, "--gpus", str(self.gpus), "--cpu", self.cpu, "--memory", self.memory),
            *("--start-seconds", str(self.start_seconds), "--idle-seconds", str(self.idle_seconds)),
            *("--most-nodes", str(self.most_nodes), *labels),
        ]


@dataclass(slots=True)
class Decisions:
    """Decisions after one poll of the cluster."""

    create: list[str] = field(default_factory=list)
    cordon: list[str] = field(default_factory=list)
    uncordon: list[str] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


class Autoscaler:
    """Decides from the objects of each poll, without requests of its own."""

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self.labels = {sites.ZONE: scaling.site, AUTOSCALED: scaling.site, **scaling.labels}
        """Labels of the nodes that it creates."""
        self._size = {name: parse_quantity(text) for name, text in scaling.capacity.items()}
        self._coming: dict[str, float] = {}
        """Nodes that were ordered, and the times when they come."""
        self._idle_since: dict[str, float] = {}
        self._number = -1
        """Number of the last node."""
        self._refused: set[str] = set()
        """Pods without a node because of the limit."""

    def next_due(self) -> float:
        """Return when the next ordered node comes; infinite without orders."""
        return min(self._coming.values(), default=math.inf)

    def decide(self, pods: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]], now: float) -> Decisions:
        """Decide what to create, cordon and delete.

        Args:
            pods: All pods that have not ended.
            nodes: All nodes of the site.
            now: Monotonic clock in seconds.
        """
        decisions = Decisions()
        own_nodes = {
            node["metadata"]["name"]: node
            for node in nodes
            if node["metadata"].get("labels", {}).get(AUTOSCALED) == self.scaling.site
        }
        self._number = max([self._number, *(_number(name) for name in own_nodes)])
        decisions.create = [name for name, due in self._coming.items() if due <= now or name in own_nodes]
        for name in decisions.create:
            del self._coming[name]
        decisions.create = [name for name in decisions.create if name not in own_nodes]
        awaited = self._order(pods, own_nodes, [*decisions.create, *self._coming], now, decisions)
        self._tidy(pods, own_nodes, awaited, now, decisions)
        return decisions

    def _order(
        self,
        pods: Sequence[Mapping[str, Any]],
        own_nodes: Mapping[str, Any],
        coming: Sequence[str],
        now: float,
        decisions: Decisions,
    ) -> set[str]:
        """Order nodes for pods that fit neither existing nor ordered ones; return where the others should fit.

        kube-scheduler may need seconds to retry a pod when its node has come.
        """
        awaited: set[str] = set()
        rooms = {name: self._free(node, pods) for name, node in own_nodes.items() if not _is_cordoned(node)}
        rooms |= {name: dict(self._size) for name in coming}
        waiting = [pod for pod in pods if is_unschedulable(pod) and asks_for(pod, self.labels)]
        self._refused &= {_key(pod) for pod in waiting}
        for pod in sorted(waiting, key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", _key(pod))):
            requests = requests_of(pod)
            name = next((name for name, room in rooms.items() if _fits(requests, room) and not excludes(pod, name)), "")
            room = rooms.get(name)
            awaited.add(name)
            if room is None and _fits(requests, self._size) and len(own_nodes) + len(coming) < self.scaling.most_nodes:
                self._number += 1
                name = f"{self.scaling.site}-{self._number}"
                coming = [*coming, name]
                self._coming[name] = now + self.scaling.start_seconds
                room = rooms[name] = dict(self._size)
                count = f"{len(own_nodes) + len(coming)} of {self.scaling.most_nodes}"
                decisions.messages.append(
                    f"node {name} is ordered for {_key(pod)} and comes in {self.scaling.start_seconds:g} s ({count})"
                )
            if room is not None:
                for resource, amount in requests.items():
                    room[resource] = room.get(resource, 0.0) - amount
            elif _key(pod) not in self._refused:
                self._refused.add(_key(pod))
                reason = "there are as many nodes as allowed" if _fits(requests, self._size) else "it fits no such node"
                decisions.messages.append(f"no node for {_key(pod)}: {reason}")
        return awaited

    def _tidy(
        self,
        pods: Sequence[Mapping[str, Any]],
        own_nodes: Mapping[str, Any],
        awaited: Collection[str],
        now: float,
        decisions: Decisions,
    ) -> None:
        """Cordon nodes that have been idle for long enough, and delete them at a later poll if they still are."""
        busy = {pod["spec"].get("nodeName") for pod in pods}.union(awaited)
        self._idle_since = {name: self._idle_since.get(name, now) for name in own_nodes if name not in busy}
        for name, node in own_nodes.items():
            cordoned, since = _is_cordoned(node), self._idle_since.get(name, math.inf)
            if cordoned and name in busy:
                decisions.uncordon.append(name)
                decisions.messages.append(f"node {name} is uncordoned: a pod has come")
            elif now - since < self.scaling.idle_seconds:
                continue
            elif cordoned:
                decisions.delete.append(name)
            else:
                decisions.cordon.append(name)

    def _free(self, node: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> Amounts:
        free = {name: parse_quantity(text) for name, text in node["status"].get("allocatable", {}).items()}
        for pod in pods:
            if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                for resource, amount in requests_of(pod).items():
                    free[resource] = free.get(resource, 0.0) - amount
        return free


def _is_cordoned(node: Mapping[str, Any]) -> bool:
    return bool(node["spec"].get("unschedulable"))


def parse_quantity(text: str) -> float:
    """Return a Kubernetes quantity as a number.

    Raises:
        ValueError: The text is not a quantity, or has an unsupported form.
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    return float(match[1]) * _SUFFIXES.get(match[2] or "", 1.0)


def requests_of(pod: Mapping[str, Any]) -> Amounts:
    """Return the sum of the requests of the pod's containers, and one place for the pod."""
    total: Amounts = {"pods": 1.0}
    for container in pod["spec"]["containers"]:
        for resource, text in (container.get("resources", {}).get("requests") or {}).items():
            total[resource] = total.get(resource, 0.0) + parse_quantity(text)
    return total


def is_unschedulable(pod: Mapping[str, Any]) -> bool:
    """Return whether kube-scheduler has searched for a node for the pod and found none."""
    if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod["status"].get("conditions") or []
    return any(
        condition["type"] == "PodScheduled"
        and condition["status"] == "False"
        and condition.get("reason") == "Unschedulable"
        for condition in conditions
    )


def asks_for(pod: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether the pod's required affinity or node selector names one of the labels and matches a node with them.

    A pod without either could run anywhere, so that no site is responsible for it.
    """
    selector, terms = pod["spec"].get("nodeSelector") or {}, _required_terms(pod)
    named = set(selector) | {expression["key"] for term in terms for expression in term.get("matchExpressions") or ()}
    if not named & labels.keys():
        return False
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    return not terms or any(_matches(term, labels) for term in terms)


def excludes(pod: Mapping[str, Any], name: str) -> bool:
    """Return whether each term of the pod's required affinity excludes a node by its name."""
    terms = _required_terms(pod)
    return bool(terms) and all(name in _excluded(term) for term in terms)


def _required_terms(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return required.get("nodeSelectorTerms") or []


def _excluded(term: Mapping[str, Any]) -> set[str]:
    fields = term.get("matchFields") or []
    return {name for one in fields if one["operator"] == "NotIn" for name in one["values"]}


def _matches(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions or any(one["operator"] == "In" for one in fields):  # a named node is not one that is yet to come
        return False
    return all(_holds(expression, labels) for expression in expressions)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def _fits(requests: Amounts, room: Amounts) -> bool:
    return all(amount <= room.get(resource, 0.0) + 1e-9 for resource, amount in requests.items())


def _key(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _number(name: str) -> int:
    text = name.rpartition("-")[2]
    return int(text) if text.isdigit() else -1
