"""Histories of one job and its pods, written by hand, for the checks of chaos rounds."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from chaos.checks.history import JOBS, NODES, PODS
from tranche_testcluster import Change

CHUNKS, BATCHES = 3, 50
Entry = tuple[int, str]
"""Attempt and state."""


class History:
    """Builder of changes of one job, its pods, and one node with two GPUs.

    The job has chunks; or it is a gang with the given members, and optionally parameter servers and a chief.
    """

    def __init__(self, members: int = 0, servers: int = 0, *, chief: bool = False, staged: bool = False) -> None:
        staging = {"site": "home", "staging": {}} if staged else {}
        data = {"chunks": CHUNKS, "batchesPerChunk": BATCHES, **staging}
        self.spec: dict[str, Any] = {"workers": {"maxReplicas": members or CHUNKS}}
        self.spec |= {} if members else {"data": data}
        self.spec |= {"parameterServers": {"replicas": servers}} if servers else {}
        self.spec |= {"chief": {}} if chief else {}
        self.changes: list[Change] = []
        self._revisions: Iterator[int] = itertools.count(1)
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self.write(
            NODES,
            "n",
            {
                "metadata": {"name": "n"},
                "status": {"allocatable": {"nvidia.com/gpu": "2", "cpu": "9", "pods": "9", "memory": "9Gi"}},
            },
        )
        self.job()

    def write(self, resource: str, key: str, after: dict[str, Any] | None) -> None:
        before = self._known.get((resource, key))
        self.changes.append(Change(next(self._revisions), resource, key, before, after))
        self._known[resource, key] = after or {}

    def job(
        self,
        *windows: tuple[int, list[int]],
        done: str = "",
        running: dict[int, float] | None = None,
        revision: int = 1,
        uid: str = "j",
        plan_of: str | None = None,
        state: str = "Open",
        site: str = "home",
        servers: Sequence[Entry] = (),
        chief: Entry | None = None,
        preempted_by: str = "",
        why: str = "",
        failures: int = 0,
        time: str = "",
    ) -> None:
        more = {"preemptedBy": preempted_by, "why": why} if preempted_by else {}
        where = {"site": site, "node": "n", "state": state}
        workers = [{"attempt": attempt, "chunks": chunks, **where, **more} for attempt, chunks in windows]
        progress = {
            "failures": failures,
            "done": done,
            "running": [{"chunk": c, "batches": b} for c, b in (running or {}).items()],
        }
        plan: dict[str, Any] = {"jobUid": plan_of or uid, "term": 1, "revision": revision, "workers": workers}
        plan |= {"parameterServers": [_helper(one) for one in servers]}
        plan |= {"chief": _helper(chief)} if chief else {}
        meta = {"name": "cats", "namespace": "default", "uid": uid, **_written(time)}
        status = {"plan": plan, "progress": progress}
        self.write(JOBS, "default/cats", {"metadata": meta, "spec": self.spec, "status": status})

    def pod(
        self,
        attempt: int,
        chunks: str = "",
        *,
        phase: str = "Running",
        message: str = "",
        held: bool = True,
        gpus: int = 1,
        uid: str = "",
        role: str = "worker",
        node: str | None = "n",
        site: str = "home",
        code: int = 0,
        deleted: str = "",
        reason: str = "Completed",
        time: str = "",
        created: str = "2026-01-01T00:00:00Z",
        gated: bool = False,
    ) -> None:
        name = f"cats-{role}-0-{attempt}"
        labels = {
            "tranche.dev/job": "cats",
            "tranche.dev/role": role,
            "tranche.dev/index": "0",
            "tranche.dev/attempt": str(attempt),
        }
        meta = {
            "name": name,
            "namespace": "default",
            "uid": uid or name,
            "creationTimestamp": created,
            "labels": labels,
            "ownerReferences": [{"uid": "j"}],
            "finalizers": ["tranche.dev/ledger"] if held else [],
            **({"deletionTimestamp": deleted} if deleted else {}),
            **_written(time),
        }
        requests = {"nvidia.com/gpu": str(gpus)}
        variables = {"TRANCHE_CHUNKS": chunks, "TRANCHE_SITE": site}
        container = {
            "name": "t",
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "resources": {"requests": requests, "limits": requests},
        }
        ended = {"exitCode": code, "reason": reason, "message": message, "startedAt": "2026-01-01T00:00:00Z"}
        statuses = [{"name": "t", "state": {"terminated": ended}}] if phase in ("Succeeded", "Failed") else []
        spec: dict[str, Any] = {"containers": [container], **({"nodeName": node} if node else {})}
        if gated:
            spec["schedulingGates"] = [{"name": "tranche.dev/gang"}]
        status = {"phase": phase, "containerStatuses": statuses}
        self.write(PODS, f"default/{name}", {"metadata": meta, "spec": spec, "status": status})


def _helper(entry: Entry) -> dict[str, Any]:
    return {"attempt": entry[0], "state": entry[1], "site": "home", "node": "n"}


def _written(time: str) -> dict[str, Any]:
    """The time of an object's last write, as its metadata show it."""
    return {"managedFields": [{"time": time}]} if time else {}
