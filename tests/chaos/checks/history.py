"""Invariants of the history of pods, nodes and jobs: all versions that etcd has stored in a round. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from chaos.checks.eviction import Bound, check_bounds, check_evictions
from chaos.checks.gang import check_gangs
from chaos.checks.gpu_accounting import check_accounts
from chaos.checks.job_failure import check_failures
from chaos.checks.ledger import check_ledger, environment, has_succeeded, own_status
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import LABEL_ROLE, ROLE_STAGING
from tranche.kube.convert.node import node_allocatable
from tranche.kube.convert.pod_identity import identity
from tranche.kube.convert.pod_outcome import outcome
from tranche.kube.convert.pod_shape import pod_requests
from tranche.kube.convert.pod_state import is_over
from tranche.model import Resources, parse_chunks
from tranche_testcluster import Change

NODES, PODS, JOBS, SERVICES = "minions", "pods", "tranche.dev/trainingjobs", "services/specs"
RESOURCES = (NODES, PODS, JOBS, SERVICES)
_SIZES = ("cpu", "memory", "gpus", "pods")


def check(history: Sequence[Change], bounds: Sequence[Bound] = ()) -> list[str]:
    """Return the violations that all checks of the history find.

    Args:
        history: All versions of the objects.
        bounds: Limits of evictions for jobs that a fault keeps from starting.
    """
    checks = (
        check_capacity,
        check_identities,
        check_plans,
        check_gangs,
        check_stagings,
        check_ledger,
        check_failures,
        check_accounts,
    )
    found = [problem for one in checks for problem in one(history)]
    return [*found, *check_evictions(history, bounds), *check_bounds(history, bounds)]


def check_capacity(history: Sequence[Change]) -> Iterator[str]:
    """Yield events at which the pods of a node request more than the node offers."""
    used: defaultdict[str, dict[str, Resources]] = defaultdict(dict)
    offered: dict[str, Resources] = {}
    for change in history:
        if change.resource == NODES:
            if change.after is None:
                offered.pop(change.key, None)
            else:
                offered[change.key] = _offered(change.after)
            continue
        if change.resource != PODS:
            continue
        node, _requests = _place(change.before or {}) or _place(change.after or {}) or ("", None)
        if not node:
            continue
        before = used[node].pop(change.key, None)
        if (now := _place(change.after or {})) is not None:
            used[node][change.key] = now[1]
        if before is None and now is not None and node in offered:
            total = sum(used[node].values(), Resources())
            if any(getattr(total, size) > getattr(offered[node], size) for size in _SIZES):
                yield f"revision {change.revision}: {node} offers {offered[node]}, {sorted(used[node])} ask {total}"


def check_identities(history: Sequence[Change]) -> Iterator[str]:
    """Yield pods that execute a window a second time: each attempt of a role of a job may have one pod."""
    seen: dict[tuple[Any, ...], str] = {}
    for change in history:
        if change.resource != PODS or change.after is None:
            continue
        meta = change.after["metadata"]
        labels = meta.get("labels", {})
        if "tranche.dev/attempt" not in labels:
            continue
        owner = meta["ownerReferences"][0]["uid"]
        attempt = (owner, labels["tranche.dev/role"], labels["tranche.dev/index"], labels["tranche.dev/attempt"])
        if seen.setdefault(attempt, meta["uid"]) != meta["uid"]:
            seen[attempt] = meta["uid"]
            yield f"revision {change.revision}: {change.key} is executed a second time"


def check_plans(history: Sequence[Change]) -> Iterator[str]:
    """Yield plans that replace a newer one, and plans with a chunk in two windows."""
    for change in history:
        if change.resource != JOBS or change.after is None:
            continue
        plan, where = _plan(change.after), f"revision {change.revision}: {change.key}"
        if plan is None:
            continue
        old = _plan(change.before or {}) if _uid(change.before) == _uid(change.after) else None
        if old is not None and (plan["term"], plan["revision"]) < (old["term"], old["revision"]):
            yield f"{where}: an older plan is written over a newer one"
        chunks = [chunk for window in plan["workers"] for chunk in window["chunks"]]
        if len(set(chunks)) < len(chunks):
            yield f"{where}: a chunk is in two windows: {plan['workers']}"


def check_stagings(history: Sequence[Change]) -> Iterator[str]:
    """Yield windows of jobs with staged data at sites that have no data of their chunks."""
    brought: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for change in history:
        if change.after is None:
            continue
        if change.resource == PODS and has_succeeded(msgspec.convert(change.after, Pod)):
            meta = change.after["metadata"]
            if meta.get("labels", {}).get(LABEL_ROLE) == ROLE_STAGING:
                variables = environment(change.after)
                place = (meta["ownerReferences"][0]["uid"], variables["TRANCHE_SITE"])
                brought[place] |= parse_chunks(variables["TRANCHE_CHUNKS"])
        data = change.after["spec"].get("data", {}) if change.resource == JOBS else {}
        for window in (_plan(change.after) or {}).get("workers", ()) if "staging" in data else ():
            missing = set(window["chunks"]) - brought[_uid(change.after), window["site"]]
            if missing and window["site"] != data["site"]:
                yield f"revision {change.revision}: {change.key} trains {missing}, not copied there: {window}"


def check_ends(jobs: Mapping[str, Mapping[str, Any]], expected: Mapping[str, str]) -> Iterator[str]:
    """Yield jobs that have not ended as expected."""
    for name, wanted in expected.items():
        status = jobs[name].get("status", {}) if name in jobs else {}
        phase = status.get("phase") if name in jobs else "gone"
        if phase != wanted:
            explanation = status.get("plan", {}).get("explanation")
            yield f"{name} is {phase} and has to be {wanted}: {explanation} {status.get('progress')}"


def summarize(history: Sequence[Change]) -> str:
    """Return the numbers of writes, pods and outcomes that the checks have read."""
    written = [change.after for change in history if change.resource == PODS and change.after is not None]
    pods = [pod for pod in (msgspec.convert(one, Pod) for one in written) if identity(pod)]
    outcomes = {
        pod.metadata.uid: outcome(pod) for pod in reversed(pods) if is_over(pod)
    }  # deletion comes after the end
    ends, created = Counter(outcomes.values()), len({pod.metadata.uid for pod in pods})
    plans = sum(change.resource == JOBS for change in history)
    said = ", ".join(f"{count} {kind.lower()}" for kind, count in sorted(ends.items()))
    return f"{plans} writes of jobs, {created} pods ({said})"


def _plan(job: Mapping[str, Any]) -> dict[str, Any] | None:
    return own_status(job).get("plan") if job else None


def _uid(thing: Mapping[str, Any] | None) -> str:
    return str(thing["metadata"]["uid"]) if thing else ""


def _place(pod: Mapping[str, Any]) -> tuple[str, Resources] | None:
    """Return node and requests of a pod that occupies resources of a node; None for other pods."""
    node = pod.get("spec", {}).get("nodeName")
    if not node or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return None
    return node, pod_requests(msgspec.convert(pod, Pod))


def _offered(node: Mapping[str, Any]) -> Resources:
    return node_allocatable(msgspec.convert(node, NodeObject))
