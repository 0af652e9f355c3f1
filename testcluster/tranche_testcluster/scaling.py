"""When a site's nodes come and go: what a stand-in for a cluster autoscaler decides. Pure.

A pod that kube-scheduler has called unschedulable and that requires the site's labels, by its node selector or required
node affinity, gets a node after a set time; pods share nodes first fit. A node without pods for a set time is cordoned,
looked at once more, and deleted.

Not known here, unlike to a real autoscaler: taints, anti-affinity, volumes, daemons, and operators of affinity other
than In, NotIn, Exists and DoesNotExist.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import site as sites

MADE = "testcluster.tranche.dev/autoscaled"
"""Label of the nodes that an autoscaler has made; its value is the site."""
_SUFFIXES = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"([0-9.]+)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")

Amounts = dict[str, float]
"""Amounts that a node offers or a pod requests, by the name of the resource."""


@dataclass(frozen=True)
class Scaling:
    """Nodes to create, and when to create and delete them."""

    site: str
    """Value of the zone label; nodes are called after it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes, besides the zone."""
    gpus: int = 8
    """Number of GPUs of each node."""
    cpu: str = "32"
    memory: str = "128Gi"
    start_seconds: float = 5.0
    """From the moment when a pod is first seen to be unschedulable to its node."""
    idle_seconds: float = 10.0
    """Time without pods after which a node is deleted."""
    most_nodes: int = 100
    """More are never made."""

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
        """Return the capacity of each node, in the form of the API."""
        return {"cpu": self.cpu, "memory": self.memory, "pods": "110"} | (
            {sites.GPU: str(self.gpus)} if self.gpus else {}
        )

    def flags(self) -> list[str]:
        """The same for the command line."""
        labels = [word for key, value in self.labels.items() for word in ("--label", f"{key}={value}")]
        return [
            *("--site", self.site, "--gpus", str(self.gpus), "--cpu", self.cpu, "--memory", self.memory),
            *("--start-seconds", str(self.start_seconds), "--idle-seconds", str(self.idle_seconds)),
            *("--most-nodes", str(self.most_nodes), *labels),
        ]


@dataclass(slots=True)
class Decisions:
    """Changes that one look at the cluster leads to."""

    create: list[str] = field(default_factory=list)
    cordon: list[str] = field(default_factory=list)
    uncordon: list[str] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


class Autoscaler:
    """Decides from the objects of each poll, without requests of its own."""

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self.labels = {sites.ZONE: scaling.site, MADE: scaling.site, **scaling.labels}
        """Labels of the nodes that it creates."""
        self._size = {name: parse_quantity(text) for name, text in scaling.capacity.items()}
        self._coming: dict[str, float] = {}
        """Nodes that were ordered, and when they come."""
        self._idle_since: dict[str, float] = {}
        self._number = -1
        """Number of the last node."""
        self._refused: set[str] = set()
        """Pods for which there was no node within the limit."""

    def next_due(self) -> float:
        """When the next node comes that was ordered; infinite if none was."""
        return min(self._coming.values(), default=math.inf)

    def look(self, pods: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]], now: float) -> Decisions:
        """Decide what is to be done.

        Args:
            pods: All that are not over.
            nodes: All of the site.
            now: Monotonic clock in seconds.
        """
        found = Decisions()
        own = {
            n["metadata"]["name"]: n for n in nodes if n["metadata"].get("labels", {}).get(MADE) == self.scaling.site
        }
        self._number = max([self._number, *(_number(name) for name in own)])
        found.create = [name for name, due in self._coming.items() if due <= now or name in own]
        for name in found.create:
            del self._coming[name]
        found.create = [name for name in found.create if name not in own]
        awaited = self._order(pods, own, [*found.create, *self._coming], now, found)
        self._tidy(pods, own, awaited, now, found)
        return found

    def _order(
        self,
        pods: Sequence[Mapping[str, Any]],
        own: Mapping[str, Any],
        more: Sequence[str],
        now: float,
        found: Decisions,
    ) -> set[str]:
        """Order nodes for pods that fit neither what is there nor what comes; returns where the others should fit.

        kube-scheduler may need seconds to look at a pod again when its node has come.
        """
        awaited: set[str] = set()
        rooms = {name: self._free(node, pods) for name, node in own.items() if not _is_cordoned(node)}
        rooms |= {name: dict(self._size) for name in more}
        waiting = [pod for pod in pods if is_unschedulable(pod) and asks_for(pod, self.labels)]
        self._refused &= {_key(pod) for pod in waiting}
        for pod in sorted(waiting, key=lambda one: (one["metadata"].get("creationTimestamp") or "", _key(one))):
            wanted = requests_of(pod)
            name = next((name for name, room in rooms.items() if _fits(wanted, room)), "")
            room = rooms.get(name)
            awaited.add(name)
            if room is None and _fits(wanted, self._size) and len(own) + len(more) < self.scaling.most_nodes:
                self._number += 1
                name = f"{self.scaling.site}-{self._number}"
                more = [*more, name]
                self._coming[name] = now + self.scaling.start_seconds
                room = rooms[name] = dict(self._size)
                count = f"{len(own) + len(more)} of {self.scaling.most_nodes}"
                found.messages.append(
                    f"node {name} is ordered for {_key(pod)} and comes in {self.scaling.start_seconds:g} s ({count})"
                )
            if room is not None:
                for resource, amount in wanted.items():
                    room[resource] = room.get(resource, 0.0) - amount
            elif _key(pod) not in self._refused:
                self._refused.add(_key(pod))
                reason = "there are as many nodes as allowed" if _fits(wanted, self._size) else "it fits no such node"
                found.messages.append(f"no node for {_key(pod)}: {reason}")
        return awaited

    def _tidy(
        self,
        pods: Sequence[Mapping[str, Any]],
        own: Mapping[str, Any],
        awaited: Collection[str],
        now: float,
        found: Decisions,
    ) -> None:
        """Cordon nodes that have been idle for long enough, and delete them a look later if they still are."""
        busy = {pod["spec"].get("nodeName") for pod in pods}.union(awaited)
        self._idle_since = {name: self._idle_since.get(name, now) for name in own if name not in busy}
        for name, node in own.items():
            cordoned, since = _is_cordoned(node), self._idle_since.get(name, math.inf)
            if cordoned and name in busy:
                found.uncordon.append(name)
                found.messages.append(f"node {name} is uncordoned: a pod has come")
            elif now - since < self.scaling.idle_seconds:
                continue
            elif cordoned:
                found.delete.append(name)
            else:
                found.cordon.append(name)

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
    """A Kubernetes quantity as a number.

    Raises:
        ValueError: it is none, or of a form that is not known here.
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
    """Whether kube-scheduler has looked for a node for the pod and found none."""
    if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod["status"].get("conditions") or []
    return any(
        one["type"] == "PodScheduled" and one["status"] == "False" and one.get("reason") == "Unschedulable"
        for one in conditions
    )


def asks_for(pod: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether the pod's required affinity or node selector names one of the labels and a node with them would do.

    A pod without either could go anywhere, and is none of this site's business.
    """
    spec = pod["spec"]
    selector = spec.get("nodeSelector") or {}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or []
    named = set(selector) | {one["key"] for term in terms for one in term.get("matchExpressions") or ()}
    if not named & labels.keys():
        return False
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    return not terms or any(_matches(term, labels) for term in terms)


def _matches(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or []
    if term.get("matchFields") or not expressions:  # a node that is named is none that is yet to come
        return False
    return all(_holds(one, labels) for one in expressions)


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


def _fits(wanted: Amounts, room: Amounts) -> bool:
    return all(amount <= room.get(resource, 0.0) + 1e-9 for resource, amount in wanted.items())


def _key(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _number(name: str) -> int:
    text = name.rpartition("-")[2]
    return int(text) if text.isdigit() else -1
