"""Faults at admission: policies, webhooks and defaults of a namespace that refuse or change pods and statuses."""

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from chaos import webhooks
from chaos.checks.eviction import Bound
from chaos.crowds import occupy
from chaos.labs import Begin, Lab, Undo
from chaos.workloads import eager

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
LIMITS = "/api/v1/namespaces/default/limitranges"
OURS = {"matchExpressions": [{"key": "tranche.dev/job", "operator": "Exists"}]}
DENIED = {"matchLabels": {"chaos": "denied"}}
REFUSED = "refused-"
"""Prefix of the jobs whose status is refused."""


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
    validation = {"expression": "false", "message": "images of this registry are not allowed"}
    return _policy(lab, name, rule, selector, validation | ({"reason": reason} if reason else {}))


def denying_policy(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Deny all pods of TrainingJobs; without a reason the answer is 422."""
    reason = chance.choice([None, None, "Forbidden"])
    return f"a policy denies pods ({reason or 'Invalid'})", _no_pods(lab, "no-pods", OURS, reason)


def denied_job(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """A job that ranks first, and whose pods are denied while this lasts: nothing may be evicted for it until then."""
    name = "denied"
    occupy(lab, "before-denied", 25.0)
    back = _no_pods(lab, "no-such-pods", DENIED, chance.choice([None, "Forbidden"]))
    lab.wait(2.0)  # until the API server uses the policy
    first = lab.revision()
    body = eager(name, gpus=2, labels={"chaos": "denied"})
    lab.apart.add(name)
    lab.submit(name, body, "Succeeded")

    def undo() -> None:
        lab.bounds.append(Bound(name, 0, first, lab.revision()))
        back()

    return f"pods of {name}, which ranks first, are denied", undo


def refused_statuses(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Refuse every status of a dozen jobs, as an admission webhook for one namespace may."""
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
        lab.apart.add(name)
        lab.submit(name, eager(name, high=False), "gone")

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
            stack.close()  # the API server cannot reach it

        def undo() -> None:
            lab.ask("DELETE", f"{REGISTRATION}/{kind}/{name}")
            lab.wait(1.0)  # until the API server calls it no more
            stack.close()

        return f"{what} ({answer.__name__})", undo

    return begin


def _deny(chance: random.Random) -> webhooks.Answer:
    return chance.choice([webhooks.deny, webhooks.deny, webhooks.deny_as_invalid, webhooks.fail, webhooks.hang])


def limit_range(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Default requests of CPU that let one pod fit where the template's requests would let four."""
    limit = {"type": "Container", "defaultRequest": {"cpu": "20"}, "default": {"cpu": "20"}}
    lab.ask("POST", LIMITS, {"metadata": {"name": "defaults"}, "spec": {"limits": [limit]}})
    lab.apart.add("lean")
    lab.submit("lean", eager("lean", site="cloud", chunks=4, cpu=None), "Succeeded")
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
"""Least and most duration of the faults that need longer than others to have an effect."""
