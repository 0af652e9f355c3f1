"""Requests to the API server by user, from its audit log."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts:tranche-system"]}, {"level": "None"}],
}


class Right(NamedTuple):
    """A verb on a resource; its subresource follows a slash, its group a dot."""

    verb: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


class Asked(NamedTuple):
    """One request."""

    account: str
    program: str  # kube-scheduler or tranche
    right: Right
    status: int
    reason: str  # which binding allowed it


@dataclass(frozen=True)
class Audit:
    """A folder for policy and log."""

    folder: Path

    def flags(self) -> list[str]:
        """For kube-apiserver; the policy is written now."""
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(_POLICY))
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self._log}", "--audit-log-maxsize=1000"]

    def asked(self) -> Iterator[Asked]:
        """All requests for resources so far by service accounts of tranche-system."""
        for line in self._log.read_text().splitlines():
            event = json.loads(line)
            target = event.get("objectRef")
            if target and event["stage"] != "Panic":
                yield Asked(
                    event["user"]["username"].rpartition(":")[2],
                    "kube-scheduler" if event.get("userAgent", "").startswith("kube-scheduler/") else "tranche",
                    Right(event["verb"], _resource(target)),
                    event.get("responseStatus", {}).get("code", 0),
                    event.get("annotations", {}).get("authorization.k8s.io/reason", ""),
                )

    @property
    def _log(self) -> Path:
        return self.folder / "audit.log"


def granted(role: dict[str, Any]) -> set[Right]:
    """Every verb on every resource that a Role or ClusterRole allows."""
    return {
        Right(verb, _resource({"resource": resource, "apiGroup": group}))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _resource(target: dict[str, str]) -> str:
    resource, _, subresource = target["resource"].partition("/")
    subresource = subresource or target.get("subresource", "")
    group = target.get("apiGroup", "")
    return resource + (f".{group}" if group else "") + (f"/{subresource}" if subresource else "")
