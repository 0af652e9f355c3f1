"""Faults caused by users through the API: on pods, jobs, disruption budgets and quotas."""

import random
from collections.abc import Callable
from typing import Any

from chaos.labs import JOBS, MERGE, PODS, Begin, Lab, Undo

MAX_FAILURES = 2
"""Largest number of failed pods of a job: each failure doubles the back-off of the job, from 10 s."""
AWAIT_SECONDS = 4.0
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def _fail(role: str) -> Begin:
    """Return a fault that ends the container of a pod: by a crash (1), lack of memory (137) or SIGTERM (143)."""

    def begin(lab: Lab, chance: random.Random) -> tuple[str, None]:
        fit = _await(lambda: [one for one in lab.pods(role) if _may_fail(lab, one)], lab)
        if not fit:
            return f"{role} exit: none runs", None
        pod, code = chance.choice(fit), chance.choice([1, 137, 143])
        now = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        ended = {"exitCode": code, "reason": "Error", "startedAt": now, "finishedAt": now}
        status = {**pod["status"]["containerStatuses"][0], "ready": False, "state": {"terminated": ended}}
        name = pod["metadata"]["name"]
        version = {"resourceVersion": pod["metadata"]["resourceVersion"]}
        body = {"metadata": version, "status": {"phase": "Failed", "containerStatuses": [status]}}
        if lab.ask("PATCH", f"{PODS}/{name}/status", body, MERGE)[0] == 200:
            lab.failed[_job(pod)] = lab.failed.get(_job(pod), 0) + 1
        return f"{name} exits with {code}", None

    return begin


def _delete(role: str) -> Begin:
    def begin(lab: Lab, chance: random.Random) -> tuple[str, None]:
        pods = _await(lambda: lab.pods(role), lab)
        if not pods:
            return f"delete a {role} pod: none there", None
        name = chance.choice(pods)["metadata"]["name"]
        grace = chance.choice(["", "?gracePeriodSeconds=0"])
        lab.ask("DELETE", f"{PODS}/{name}{grace}")
        return f"delete {name}{grace}", None

    return begin


def _budgets(*names: str) -> Begin:
    """Return a fault that blocks all evictions; with two budgets for a pod, the Eviction API responds with 500."""

    def begin(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
        selector = {"matchExpressions": [{"key": "tranche.dev/job", "operator": "Exists"}]}
        spec = {"minAvailable": 1000, "selector": selector}
        for name in names:
            body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
            lab.ask("POST", BUDGETS, body)

        def undo() -> None:
            for name in names:
                lab.ask("DELETE", f"{BUDGETS}/{name}")

        return f"{len(names)} budgets refuse all evictions", undo

    return begin


def exceeded_quota(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    sizes = ({"pods": "2"}, {"requests.nvidia.com/gpu": "2"}, {"count/pods": "3"}, {"limits.cpu": "1"})
    hard = chance.choice(sizes)
    lab.ask("POST", QUOTAS, {"metadata": {"name": "tight"}, "spec": {"hard": hard}})
    return f"quota {hard}", lambda: lab.ask("DELETE", f"{QUOTAS}/tight")


def deleted_job(lab: Lab, chance: random.Random) -> tuple[str, None]:
    return _remove(lab, chance, again=False)


def replaced_job(lab: Lab, chance: random.Random) -> tuple[str, None]:
    """Delete a job, and create another one of the same name at once."""
    return _remove(lab, chance, again=True)


def _remove(lab: Lab, chance: random.Random, again: bool) -> tuple[str, None]:
    jobs = _await(lambda: [one for one in _unfinished(lab) if _windows(one)], lab)
    stopping = [one for one in jobs if any(window["state"] == "Closing" for window in _windows(one))]
    if not jobs:
        return "delete a job: none runs", None
    job = chance.choice(stopping or jobs)
    name, how = job["metadata"]["name"], "while it is preempted" if stopping else "while it runs"
    lab.ask("DELETE", f"{JOBS}/{name}")
    lab.expected[name] = "gone"
    if again:
        body = {**job, "metadata": {"name": name, "namespace": "default"}, "status": None}
        lab.ask("POST", JOBS, body)
        lab.expected[name] = "Succeeded"
    return f"delete {name} {how}{', create it again' if again else ''}", None


def suspended_job(lab: Lab, chance: random.Random) -> tuple[str, Undo | None]:
    jobs = _await(lambda: [one for one in _unfinished(lab) if _windows(one)], lab)
    if not jobs:
        return "suspend a job: none runs", None
    name = _name(chance.choice(jobs))
    lab.ask("PATCH", f"{JOBS}/{name}", {"spec": {"suspend": True}}, MERGE)
    return f"suspend {name}", lambda: lab.ask("PATCH", f"{JOBS}/{name}", {"spec": {"suspend": False}}, MERGE)


def changed_spec(lab: Lab, chance: random.Random) -> tuple[str, None]:
    jobs = _unfinished(lab)
    if not jobs:
        return "change a spec: no job", None
    job = chance.choice(jobs)
    name = job["metadata"]["name"]
    what, patch = chance.choice(_patches(job, chance))
    lab.ask("PATCH", f"{JOBS}/{name}", {"spec": patch}, MERGE)
    return f"{name}: {what}", None


def _patches(job: dict[str, Any], chance: random.Random) -> list[tuple[str, dict[str, Any]]]:
    template = job["spec"]["workers"]["template"]
    container = template["spec"]["containers"][0]
    requests = {**container["resources"]["requests"], "cpu": "2"}
    asked = {**container, "resources": {**container["resources"], "requests": requests}}
    patches: list[tuple[str, dict[str, Any]]] = [
        ("weight 50", {"weight": 50}),
        ("priority high", {"priorityClassName": "tranche-high"}),
        ("other requests", {"workers": {"template": {"spec": {"containers": [asked]}}}}),
    ]
    if "data" in job["spec"]:
        most = chance.randint(1, job["spec"]["data"]["chunks"])
        patches.append((f"maxReplicas {most}", {"workers": {"maxReplicas": most}}))
    return patches


def _await(find: Callable[[], list[dict[str, Any]]], lab: Lab) -> list[dict[str, Any]]:
    """Wait for objects to act on, and return them."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found[:] = find()
        return bool(found)

    lab.until(look, AWAIT_SECONDS)
    return found


def _may_fail(lab: Lab, pod: dict[str, Any]) -> bool:
    runs = pod["status"]["phase"] == "Running"
    return runs and lab.failed.get(_job(pod), 0) < MAX_FAILURES and _job(pod) not in {"doomed", *lab.fault_jobs}


def _windows(job: dict[str, Any]) -> list[dict[str, Any]]:
    return list(job.get("status", {}).get("plan", {}).get("workers", ()))


def _unfinished(lab: Lab) -> list[dict[str, Any]]:
    jobs = lab.jobs().values()
    over, apart = ("Succeeded", "Failed"), {"doomed", *lab.fault_jobs}
    return [one for one in jobs if one.get("status", {}).get("phase") not in over and _name(one) not in apart]


def _name(thing: dict[str, Any]) -> str:
    return str(thing["metadata"]["name"])


def _job(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["tranche.dev/job"])


FAULTS: dict[str, Begin] = {
    "failed worker": _fail("worker"),
    "failed worker again": _fail("worker"),
    "failed parameter server": _fail("ps"),
    "failed chief": _fail("chief"),
    "deleted pod": _delete("worker"),
    "lost parameter server": _delete("ps"),
    "lost chief": _delete("chief"),
    "lost staging pod": _delete("staging"),
    "suspended job": suspended_job,
    "disruption budget": _budgets("none"),
    "two disruption budgets": _budgets("none-first", "none-second"),
    "exceeded quota": exceeded_quota,
    "deleted job": deleted_job,
    "replaced job": replaced_job,
    "changed spec": changed_spec,
}
