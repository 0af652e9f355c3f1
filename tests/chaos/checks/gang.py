"""Check that gangs start and end as a whole. Pure, over the history of jobs and pods.

The members of a gang, its parameter servers and its chief are planned together or not at all. If one of their pods
succeeds before all pods exist, the others must be created at most a minute after it: simulated pods do not wait for
their peers, and a fault may delay the operator. A pod with a scheduling gate, which the operator sets after a
rejection, must not be bound before all pods exist. No pod of the job starts after the success of its chief.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from chaos.checks.ledger import has_succeeded, own_status
from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import LABEL_ATTEMPT, LABEL_ROLE, ROLE_CHIEF
from tranche.model import parse_chunks
from tranche_testcluster import Change

LATE_SECONDS = 60.0
"""Longest time between the creations of a pod that succeeds early and of another pod of its gang."""


@dataclass(slots=True)
class _Gang:
    """State of a gang at one revision of the history."""

    members: frozenset[int]
    servers: int
    has_chief: bool
    planned_with: dict[int, frozenset[int]] = field(default_factory=dict)
    """All attempts that were open in the first plan with an attempt, by that attempt."""
    created: dict[int, float] = field(default_factory=dict)
    """Time of creation by attempt."""
    awaited: dict[int, float] = field(default_factory=dict)
    """Creation of a pod that succeeded while an attempt of its gang had no pod, by that attempt."""
    gated: set[int] = field(default_factory=set)
    """Attempts whose pods were created with a scheduling gate."""
    chief: int | None = None
    """Attempt of the chief in the present plan."""
    succeeded_chief: int | None = None
    """Attempt of the chief that succeeded while the plan contained it."""


def check_gangs(history: Sequence[Change]) -> Iterator[str]:
    """Yield gangs of which only a part was planned, bound or ended."""
    gangs: dict[str, _Gang] = {}
    for change in history:
        where = f"revision {change.revision}: {change.key}"
        if change.after is None:
            continue
        meta = change.after["metadata"]
        if change.resource == "tranche.dev/trainingjobs" and "data" not in change.after["spec"]:
            gang = gangs.setdefault(meta["uid"], _gang(change.after["spec"]))
            yield from (f"{where} {wrong}" for wrong in _check_plan(gang, own_status(change.after)))
        elif change.resource == "pods" and LABEL_ATTEMPT in meta.get("labels", {}):
            owner = gangs.get(meta["ownerReferences"][0]["uid"])
            if owner is not None:
                yield from (f"{where} {wrong}" for wrong in _check_pod(owner, change.before or {}, change.after))


def _gang(spec: Mapping[str, Any]) -> _Gang:
    servers = spec.get("parameterServers", {}).get("replicas", 0)
    return _Gang(frozenset(range(spec["workers"]["maxReplicas"])), servers, "chief" in spec)


def _check_plan(gang: _Gang, status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the violations of a plan."""
    plan = status.get("plan", {})
    chief = plan.get("chief")
    gang.chief = chief["attempt"] if chief else None
    helpers = [*plan.get("parameterServers", ()), *([chief] if chief else [])]
    windows = [window for window in plan.get("workers", ()) if window["state"] == "Open"]
    beside = [helper for helper in helpers if helper["state"] == "Open"]
    opened = frozenset(entry["attempt"] for entry in (*windows, *beside))
    if not opened:
        return
    done = parse_chunks(status.get("progress", {}).get("done", ""))
    missing = gang.members - done - {member for window in windows for member in window["chunks"]}
    if missing or len(beside) != gang.servers + gang.has_chief:
        yield f"is planned in part: members {sorted(missing)} are missing, beside them are attempts {beside}"
    later = opened - gang.planned_with.keys()
    if gang.succeeded_chief is not None and later:
        yield f"starts attempts {sorted(later)}, and its chief has succeeded in attempt {gang.succeeded_chief}"
    for attempt in opened:
        gang.planned_with.setdefault(attempt, opened)


def _check_pod(gang: _Gang, before: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield the violations of a pod."""
    labels = pod["metadata"]["labels"]
    attempt = int(labels[LABEL_ATTEMPT])
    born = gang.created.setdefault(attempt, datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp())
    if (late := born - gang.awaited.pop(attempt, born)) > LATE_SECONDS:
        yield f"was created {late:.0f} s after a pod of its gang that has succeeded without it"
    if pod["spec"].get("schedulingGates"):
        gang.gated.add(attempt)
    missing = gang.planned_with.get(attempt, frozenset()) - gang.created.keys()
    is_new_on_node = pod["spec"].get("nodeName") and not before.get("spec", {}).get("nodeName")
    if missing and is_new_on_node and attempt in gang.gated:
        yield f"is bound, and attempts {sorted(missing)} of its gang do not exist"
    if has_succeeded(msgspec.convert(pod, Pod)):
        gang.awaited |= {other: min(born, gang.awaited.get(other, born)) for other in missing}
        if labels[LABEL_ROLE] == ROLE_CHIEF and gang.chief == attempt:
            gang.succeeded_chief = attempt
