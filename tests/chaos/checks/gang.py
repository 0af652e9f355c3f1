"""Check that gangs start and end as a whole. Pure, over the history of jobs and pods.

The members of a gang, its parameter servers and its chief are planned together or not at all. If one of them succeeds
before all exist, the others are created at most a minute after it: simulated pods do not wait for their peers, and
faults keep the operator from creating the others. A pod that was created with a scheduling gate, because its gang had
been refused a pod, gets no node before. The chief's success is the end of the job: nothing of it is started afterwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from chaos.checks.ledger import has_succeeded, own_status
from tranche.kube.api.names import LABEL_ATTEMPT, LABEL_ROLE, ROLE_CHIEF
from tranche.kube.convert.pods_and_nodes import Pod
from tranche.model import parse_chunks
from tranche_testcluster import Change

LATE_SECONDS = 60.0
"""Longest time from the creation of a pod that succeeds alone to that of another pod of its gang."""


@dataclass(slots=True)
class _Gang:
    """A gang as the history has shown it so far."""

    members: frozenset[int]
    servers: int
    has_chief: bool
    together: dict[int, frozenset[int]] = field(default_factory=dict)
    """By attempt: all that were open in the first plan that contained it."""
    created: dict[int, float] = field(default_factory=dict)
    """Time of creation by attempt."""
    awaited: dict[int, float] = field(default_factory=dict)
    """By attempt that did not exist when another one of its gang succeeded: time of creation of the latter."""
    gated: set[int] = field(default_factory=set)
    """Attempts whose pods were created with a scheduling gate."""
    chief: int | None = None
    """Attempt of the chief in the plan as it is."""
    won: int | None = None
    """Attempt of the chief that has succeeded while it was planned."""


def check_gangs(history: Sequence[Change]) -> Iterator[str]:
    """Gangs that are planned, bound or ended in part."""
    gangs: dict[str, _Gang] = {}
    for change in history:
        where = f"revision {change.revision}: {change.key}"
        if change.after is None:
            continue
        meta = change.after["metadata"]
        if change.resource == "tranche.dev/trainingjobs" and "data" not in change.after["spec"]:
            gang = gangs.setdefault(meta["uid"], _gang(change.after["spec"]))
            yield from (f"{where} {wrong}" for wrong in _planned(gang, own_status(change.after)))
        elif change.resource == "pods" and LABEL_ATTEMPT in meta.get("labels", {}):
            owner = gangs.get(meta["ownerReferences"][0]["uid"])
            if owner is not None:
                yield from (f"{where} {wrong}" for wrong in _lived(owner, change.before or {}, change.after))


def _gang(spec: Mapping[str, Any]) -> _Gang:
    servers = spec.get("parameterServers", {}).get("replicas", 0)
    return _Gang(frozenset(range(spec["workers"]["maxReplicas"])), servers, "chief" in spec)


def _planned(gang: _Gang, status: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a plan."""
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
    later = opened - gang.together.keys()
    if gang.won is not None and later:
        yield f"starts attempts {sorted(later)}, and its chief has succeeded in attempt {gang.won}"
    for attempt in opened:
        gang.together.setdefault(attempt, opened)


def _lived(gang: _Gang, before: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a pod."""
    labels = pod["metadata"]["labels"]
    attempt = int(labels[LABEL_ATTEMPT])
    born = gang.created.setdefault(attempt, datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp())
    if (late := born - gang.awaited.pop(attempt, born)) > LATE_SECONDS:
        yield f"was created {late:.0f} s after a pod of its gang that has succeeded without it"
    if pod["spec"].get("schedulingGates"):
        gang.gated.add(attempt)
    missing = gang.together.get(attempt, frozenset()) - gang.created.keys()
    is_new_on_node = pod["spec"].get("nodeName") and not before.get("spec", {}).get("nodeName")
    if missing and is_new_on_node and attempt in gang.gated:
        yield f"is bound, and attempts {sorted(missing)} of its gang do not exist"
    if has_succeeded(msgspec.convert(pod, Pod)):
        gang.awaited |= {other: min(born, gang.awaited.get(other, born)) for other in missing}
        if labels[LABEL_ROLE] == ROLE_CHIEF and gang.chief == attempt:
            gang.won = attempt
