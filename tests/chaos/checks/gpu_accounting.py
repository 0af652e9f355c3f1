"""Check that no GPU that a pod held was counted as free. Pure, over the history of nodes, pods and jobs.

A plan must not open a window on GPUs that a pod without a plan entry holds. Such a pod is a foreign pod, whatever its
labels, or a pod of a job that has ended. It counts from `KNOWN_SECONDS` after its binding. A pod that is being deleted
counts from `KNOWN_SECONDS` after the end of its grace period.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from chaos.checks.ledger import own_status
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import LABEL_ATTEMPT
from tranche.kube.convert.node import node_allocatable
from tranche.kube.convert.pod_shape import pod_requests
from tranche_testcluster import Change

KNOWN_SECONDS = 15.0
"""Time in which the planner must know a pod: longer than a network fault, and than a take-over."""
_Attempt = tuple[str, int]
"""UID of a job, and attempt number."""


class _Cluster:
    """State of the cluster at one revision."""

    def __init__(self) -> None:
        self.gpus: dict[str, int] = {}
        """GPUs by node."""
        self._pods: dict[str, tuple[dict[str, Any], int]] = {}
        """Bound pods that have not ended, with their GPUs, by key."""
        self._plans: dict[str, tuple[str, set[int]]] = {}
        """UID of the job and attempts in its plan, by key of the job."""
        self._since: dict[str, float] = {}
        """Time since which a pod has been bound without a plan entry, by key."""

    def note(self, change: Change, now: float) -> None:
        after, key = change.after, change.key
        if change.resource == "minions":
            self.gpus.pop(key, None)
            if after is not None:
                self.gpus[key] = node_allocatable(msgspec.convert(after, NodeObject)).gpus
        elif change.resource == "pods":
            self._pods.pop(key, None)
            if after is not None and after["spec"].get("nodeName") and not _is_over(after):
                self._pods[key] = (after, pod_requests(msgspec.convert(after, Pod)).gpus)
        elif change.resource == "tranche.dev/trainingjobs":
            self._plans.pop(key, None)
            if after is not None:
                plan = own_status(after).get("plan", {})
                self._plans[key] = (after["metadata"]["uid"], {entry["attempt"] for entry in _entries(plan)})
        planned = {(uid, attempt) for uid, attempts in self._plans.values() for attempt in attempts}
        unplanned = {key for key, (pod, _) in self._pods.items() if _attempt(pod) not in planned}
        self._since = {key: self._since.get(key, now) for key in unplanned}

    def held(self, node: str, now: float) -> dict[str, int]:
        """Return the GPUs of the pods on a node that the planner must count in addition to its windows, by pod."""
        there = {key: entry for key, entry in self._pods.items() if entry[0]["spec"]["nodeName"] == node}
        return {key: gpus for key, (pod, gpus) in there.items() if gpus and now - self._from(key, pod) > KNOWN_SECONDS}

    def _from(self, key: str, pod: Mapping[str, Any]) -> float:
        """Return the time from which a pod counts."""
        deleted = pod["metadata"].get("deletionTimestamp")
        if deleted is not None:
            return datetime.fromisoformat(deleted).timestamp()
        return self._since.get(key, float("inf"))


def check_accounts(history: Sequence[Change]) -> Iterator[str]:
    """Yield windows that were opened on GPUs that other pods hold."""
    cluster, seen, now = _Cluster(), set[_Attempt](), 0.0
    for change in history:
        now = max(now, _time(change.after))
        cluster.note(change, now)
        if change.resource != "tranche.dev/trainingjobs" or change.after is None:
            continue
        uid, plan = change.after["metadata"]["uid"], own_status(change.after).get("plan", {})
        for window in plan.get("workers", ()):
            node, attempt = window.get("node"), (uid, window["attempt"])
            if attempt in seen or window["state"] != "Open" or node not in cluster.gpus:
                continue
            seen.add(attempt)
            held, gpus = cluster.held(node, now), cluster.gpus[node]
            if sum(held.values()) + _requested_gpus(change.after) > gpus:
                what = f"opens attempt {attempt[1]} on {node}, of whose {gpus} GPUs others hold {held}"
                yield f"revision {change.revision}: {change.key} {what}"


def _entries(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from plan.get("workers", ())
    yield from plan.get("parameterServers", ())
    if plan.get("chief"):
        yield plan["chief"]


def _attempt(pod: Mapping[str, Any]) -> _Attempt | None:
    meta = pod["metadata"]
    number, owners = meta.get("labels", {}).get(LABEL_ATTEMPT), meta.get("ownerReferences")
    return (owners[0]["uid"], int(number)) if number and owners else None


def _requested_gpus(job: Mapping[str, Any]) -> int:
    """Return the number of GPUs that the template of the workers requests."""
    containers = job["spec"]["workers"].get("template", {}).get("spec", {}).get("containers", ())
    return sum(int(one.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) for one in containers)


def _is_over(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _time(thing: Mapping[str, Any] | None) -> float:
    """Return the time of the last write of an object, in whole seconds; 0 if it is unknown."""
    fields = thing["metadata"].get("managedFields", ()) if thing else ()
    return max((datetime.fromisoformat(one["time"]).timestamp() for one in fields if "time" in one), default=0.0)
