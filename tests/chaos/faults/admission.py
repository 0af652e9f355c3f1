"""Faults at admission: policies, webhooks and LimitRanges that reject or change pods and statuses."""

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from chaos import webhooks
from chaos.checks.eviction import Bound
from chaos.crowds import occupy
from chaos.labs import PODS, Begin, Lab, Undo
from chaos.workloads import fault_job

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
LIMITS = "/api/v1/namespaces/default/limitranges"
OURS = {"matchExpressions": [{"key": "tranche.dev/job", "operator": "Exists"}]}
DENIED_LABELS = {"chaos": "denied"}
DENIED = {"matchLabels": DENIED_LABELS}
NOT_ALLOWED = "images of this registry are not allowed"
ENFORCED_SECONDS = 60.0
"""Longest wait until the API server uses a policy."""
REFUSED = "refused-"
"""Prefix of the names of jobs whose status is rejected."""


def _policy(lab: Lab, name: str, rule: dict[str, Any], selector: dict[str, Any], validation: dict[str, Any]) -> Undo:
    """Create a ValidatingAdmissionPolicy and its binding."""
    policies, bindings = (f"{REGISTRATION}/validatingadmissionpolic{end}" for end in ("ies", "ybindings"))
    constraints = {"resourceRules": [rule], "objectSelector": selector}
    spec = {"failurePolicy": "Fail", "matchConstraints": constraints, "validations": [validation]}
    lab.ask("POST", policies, {"metadata": {"name": name}, "spec": spec})
    lab.ask("POST", bindings, {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}})

    def undo() -> None:
        lab.ask("DELETE", f"{bindings}/{name}")
        lab.ask("DELETE", f"{policies}/{name}")

    return undo


def _no_pods(lab: Lab, name: str, selector: dict[str, Any], reason: str | None) -> Undo:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    validation = {"expression": "false", "message": NOT_ALLOWED}
    return _policy(lab, name, rule, selector, validation | ({"reason": reason} if reason else {}))


def denying_policy(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Deny all pods of TrainingJobs; without a reason, the API server responds with 422."""
    reason = chance.choice([None, None, "Forbidden"])
    return f"a policy denies pods ({reason or 'Invalid'})", _no_pods(lab, "no-pods", OURS, reason)


def denied_job(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Submit a job that ranks first, and deny its pods: no eviction for it is allowed during the fault."""
    name = "denied"
    occupy(lab, "before-denied", 25.0)
    back = _no_pods(lab, "no-such-pods", DENIED, chance.choice([None, "Forbidden"]))
    lab.until(lambda: _is_denied(lab), ENFORCED_SECONDS)
    first = lab.revision()
    body = fault_job(name, gpus=2, labels=DENIED_LABELS)
    lab.fault_jobs.add(name)
    lab.submit(name, body, "Succeeded")

    def undo() -> None:
        lab.bounds.append(Bound(name, 0, first, lab.revision()))
        back()

    return f"pods of {name}, which ranks first, are denied", undo


def _is_denied(lab: Lab) -> bool:
    """Return whether the API server uses a policy that denies such a pod: it learns of a policy some time later."""
    spec = {"containers": [{"name": "main", "image": "none"}]}
    pod = {"metadata": {"name": "probe", "labels": DENIED_LABELS}, "spec": spec}
    status, answer = lab.ask("POST", f"{PODS}?dryRun=All", pod)
    return status in (403, 422) and NOT_ALLOWED in str(answer)


def refused_statuses(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Reject every status of twelve jobs, as an admission webhook for one namespace may."""
    rule = {
        "apiGroups": ["tranche.dev"],
        "apiVersions": ["v1alpha1"],
        "resources": ["trainingjobs/status"],
        "operations": ["UPDATE"],
    }
    expression = f"!object.metadata.name.startsWith('{REFUSED}')"
    validation = {"expression": expression, "reason": "Forbidden", "message": "the status of this job is frozen"}
    back = _policy(lab, "no-statuses", rule, {}, validation)
    lab.wait(2.0)
    names = [f"{REFUSED}{number}" for number in range(12)]
    for name in names:
        lab.fault_jobs.add(name)
        lab.submit(name, fault_job(name, high=False), "gone")

    def undo() -> None:
        for name in names:
            lab.delete(name)
        back()

    return f"statuses of {len(names)} jobs are refused", undo


def _webhook(
    what: str, name: str, choose: Callable[[random.Random], webhooks.Answer], *, mutating: bool = False
) -> Begin:
    kind = f"{'mutating' if mutating else 'validating'}webhookconfigurations"

    def begin(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
        answer = choose(chance)
        stack = ExitStack()
        server = stack.enter_context(webhooks.Webhook(lab.cluster.directory, answer))
        lab.ask("POST", f"{REGISTRATION}/{kind}", server.configuration(name, OURS, mutating=mutating))
        if chance.random() < 0.2 and answer is not webhooks.inject_proxy:
            stack.close()  # now the API server cannot reach the webhook

        def undo() -> None:
            lab.ask("DELETE", f"{REGISTRATION}/{kind}/{name}")
            lab.wait(1.0)  # the API server may call the webhook until then
            stack.close()

        return f"{what} ({answer.__name__})", undo

    return begin


def _deny(chance: random.Random) -> webhooks.Answer:
    return chance.choice([webhooks.deny, webhooks.deny, webhooks.deny_as_invalid, webhooks.fail, webhooks.hang])


def limit_range(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Add default CPU requests with which one pod fits on a node instead of four."""
    limit = {"type": "Container", "defaultRequest": {"cpu": "20"}, "default": {"cpu": "20"}}
    lab.ask("POST", LIMITS, {"metadata": {"name": "defaults"}, "spec": {"limits": [limit]}})
    lab.fault_jobs.add("lean")
    lab.submit("lean", fault_job("lean", site="cloud", chunks=4, cpu=None), "Succeeded")
    return "a LimitRange adds 20 CPUs to each pod of lean", lambda: lab.ask("DELETE", f"{LIMITS}/defaults")


FAULTS: dict[str, Begin] = {
    "denying policy": denying_policy,
    "denied job": denied_job,
    "refused statuses": refused_statuses,
    "denying webhook": _webhook("a webhook denies pods", "no-pods", _deny),
    "injected sidecar": _webhook("a proxy is put first", "mesh", lambda chance: webhooks.inject_proxy, mutating=True),
    "limit range": limit_range,
}
SECONDS = {"denied job": (25.0, 35.0), "refused statuses": (8.0, 15.0), "limit range": (15.0, 25.0)}
"""Shortest and longest duration of the faults that need more time than others to have an effect."""
