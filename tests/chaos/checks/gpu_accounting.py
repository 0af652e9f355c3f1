"""Check that no GPU that a pod or a plan holds was counted as free. Pure, over the history of nodes, pods and jobs.

A plan must not open windows, parameter servers or a chief on GPUs that a pod without a plan entry holds. Such a pod is
a foreign pod, whatever its labels, or a pod of a job that has ended. It counts from `KNOWN_SECONDS` after its binding.
A pod that is being deleted counts from `KNOWN_SECONDS` after the end of its grace period.

All plans together must not use more GPUs of a node than it has, for longer than `KNOWN_SECONDS`: plans of several jobs
are written one after the other, and a fault may delay a part of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

import msgspec

from chaos.checks.ledger import own_status, plan_entries, time_of_write
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import LABEL_ATTEMPT
from tranche.kube.convert.node import node_allocatable
from tranche.kube.convert.pod_shape import pod_requests
from tranche_testcluster import Change

KNOWN_SECONDS = 15.0
"""Time in which the planner must know a pod: longer than a network fault, and than a take-over."""
_Attempt = tuple[str, int]
"""UID of a job, and attempt number."""


ROLES = ("workers", "parameterServers", "chief")
"""Fields of a plan, and of the specification of a job."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """Open window, parameter server or chief of a plan."""

    attempt: _Attempt
    node: str
    """Planned node; empty at an unlimited site."""
    gpus: int
    """GPUs that the template of its pods requests."""


class _Cluster:
    """State of the cluster at one revision."""

    def __init__(self) -> None:
        self.gpus: dict[str, int] = {}
        """GPUs by node."""
        self._pods: dict[str, tuple[dict[str, Any], int]] = {}
        """Bound pods that have not ended, with their GPUs, by key."""
        self._places: dict[_Attempt, tuple[str, int]] = {}
        """Node and GPUs of the bound pods of attempts; an ended pod has none."""
        self._opened: dict[str, list[_Entry]] = {}
        """Open entries of plans, by key of the job."""
        self._planned: dict[str, set[_Attempt]] = {}
        """All attempts in plans, by key of the job."""
        self._since: dict[str, float] = {}
        """Time since which a pod has been bound without a plan entry, by key."""

    def note(self, change: Change, now: float) -> None:
        after, key = change.after, change.key
        if change.resource == "minions":
            self.gpus.pop(key, None)
            if after is not None:
                self.gpus[key] = node_allocatable(msgspec.convert(after, NodeObject)).gpus
        elif change.resource == "pods":
            self._note_pod(key, after)
        elif change.resource == "tranche.dev/trainingjobs":
            self._planned.pop(key, None)
            self._opened.pop(key, None)
            if after is not None:
                uid, plan = after["metadata"]["uid"], own_status(after).get("plan", {})
                self._planned[key] = {(uid, entry["attempt"]) for entry in plan_entries(plan)}
                self._opened[key] = list(_open_entries(after))
        planned = {attempt for attempts in self._planned.values() for attempt in attempts}
        unplanned = {key for key, (pod, _) in self._pods.items() if _attempt(pod) not in planned}
        self._since = {key: self._since.get(key, now) for key in unplanned}

    def _note_pod(self, key: str, pod: dict[str, Any] | None) -> None:
        self._pods.pop(key, None)
        if pod is None or not pod["spec"].get("nodeName"):
            return
        attempt, gpus = _attempt(pod), 0 if _is_over(pod) else pod_requests(msgspec.convert(pod, Pod)).gpus
        if not _is_over(pod):
            self._pods[key] = (pod, gpus)
        if attempt is not None:
            self._places[attempt] = (pod["spec"]["nodeName"], gpus)

    def opened(self, job: str) -> list[_Entry]:
        """Return the open entries of the job's plan."""
        return self._opened.get(job, [])

    def used(self, node: str, entries: Sequence[_Entry]) -> int:
        """Return the GPUs of a node that entries use: those of their pods, or as planned while they have none."""
        places = (self._places.get(one.attempt, (one.node, one.gpus)) for one in entries)
        return sum(gpus for place, gpus in places if place == node)

    def overbooked(self) -> Iterator[str]:
        """Yield the nodes of which the open entries of all plans use more GPUs than there are."""
        entries = [one for opened in self._opened.values() for one in opened]
        for node in {one.node for one in entries} & self.gpus.keys():
            if self.used(node, entries) > self.gpus[node]:
                yield node

    def held(self, node: str, now: float, but: set[_Attempt]) -> dict[str, int]:
        """Return the GPUs of pods on a node that the planner must count in addition to entries of plans, by pod.

        Args:
            node: Name of the node.
            now: Time of the revision.
            but: Attempts whose entries are counted.
        """
        there = {key: entry for key, entry in self._pods.items() if entry[0]["spec"]["nodeName"] == node}
        return {
            key: gpus
            for key, (pod, gpus) in there.items()
            if gpus and _attempt(pod) not in but and now - self._from(key, pod) > KNOWN_SECONDS
        }

    def _from(self, key: str, pod: Mapping[str, Any]) -> float:
        """Return the time from which a pod counts."""
        deleted = pod["metadata"].get("deletionTimestamp")
        if deleted is not None:
            return datetime.fromisoformat(deleted).timestamp()
        return self._since.get(key, float("inf"))


def check_accounts(history: Sequence[Change]) -> Iterator[str]:
    """Yield plans on GPUs that other pods hold, and nodes of which plans use more GPUs than there are."""
    cluster, seen, now = _Cluster(), set[_Attempt](), 0.0
    since: dict[str, float] = {}
    """Time since which the plans have used more GPUs of a node than it has, by node; infinite once it is reported."""
    for change in history:
        now = max(now, time_of_write(change.after))
        cluster.note(change, now)
        where = f"revision {change.revision}: {change.key}"
        if change.resource == "tranche.dev/trainingjobs":
            yield from (f"{where} {wrong}" for wrong in _check_opened(cluster, cluster.opened(change.key), seen, now))
        since = {node: since.get(node, now) for node in cluster.overbooked()}
        for node in [node for node, began in since.items() if now - began > KNOWN_SECONDS]:
            since[node] = inf
            yield f"{where}: for {KNOWN_SECONDS:g} s, plans have used more than the {cluster.gpus[node]} GPUs of {node}"


def _check_opened(cluster: _Cluster, entries: Sequence[_Entry], seen: set[_Attempt], now: float) -> Iterator[str]:
    """Yield the nodes on which a plan opens entries on GPUs that others hold, and record its entries as seen."""
    fresh = [one for one in entries if one.attempt not in seen]
    seen.update(one.attempt for one in fresh)
    for node in sorted({one.node for one in fresh if one.gpus} & cluster.gpus.keys()):
        there = [one for one in entries if cluster.used(node, [one])]
        held, gpus = cluster.held(node, now, {one.attempt for one in there}), cluster.gpus[node]
        if sum(held.values()) + cluster.used(node, there) > gpus:
            opened = ", ".join(str(one.attempt[1]) for one in fresh if one.node == node and one.gpus)
            yield f"opens attempt {opened} on {node}, of whose {gpus} GPUs others hold {held}"


def _open_entries(job: Mapping[str, Any]) -> Iterator[_Entry]:
    """Yield the open entries of the job's plan."""
    plan, uid = own_status(job).get("plan", {}), job["metadata"]["uid"]
    for role in ROLES:
        of_role = plan.get(role) or ()
        for entry in [of_role] if isinstance(of_role, dict) else of_role:
            if entry["state"] == "Open":
                yield _Entry((uid, entry["attempt"]), entry.get("node") or "", _requested_gpus(job, role))


def _attempt(pod: Mapping[str, Any]) -> _Attempt | None:
    meta = pod["metadata"]
    number, owners = meta.get("labels", {}).get(LABEL_ATTEMPT), meta.get("ownerReferences")
    return (owners[0]["uid"], int(number)) if number and owners else None


def _requested_gpus(job: Mapping[str, Any], role: str) -> int:
    """Return the number of GPUs that the template of a role requests."""
    containers = job["spec"].get(role, {}).get("template", {}).get("spec", {}).get("containers", ())
    return sum(int(one.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) for one in containers)


def _is_over(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")
