"""docs/sites.md and docs/recovering.md, typed as they are written with names filled in."""

import re

from pages import ROOT, blocks
from releases import Release
from shells import Shell
from tranche_testcluster import Cluster

NAMES = {"NAME": "first", "NAMESPACE": "default", "NODE": "edge-b-0"}
BY_HAND = "kubectl patch pod POD"
"""Takes the finalizer off a pod of a tranche that is gone for good."""


def commands(page: str) -> list[str]:
    lines = [line for block in blocks(ROOT / "docs" / page) for line in block.commands]
    return [re.sub(r"\b(NAME|NAMESPACE|NODE)\b", lambda match: NAMES[match[1]], line) for line in lines]


def test_commands_of_the_pages_do_what_they_are_for(own: Cluster, shell: Shell) -> None:
    shell.run("helm install tranche helm/tranche --namespace tranche-system --create-namespace --wait --timeout 60s")
    with Release(own):
        shell.run("kubectl apply -f docs/samples/first.yaml")
        shell.run(f"kubectl label node {NAMES['NODE']} topology.kubernetes.io/zone-")  # a node without a site
        sites = {command: shell.run(command) for command in commands("sites.md")}
        recovery = [command for command in commands("recovering.md") if not command.startswith(BY_HAND)]
        said = {command: shell.run(command) for command in recovery}
    assert sites["kubectl get sites"].count("\n") == 5
    assert "edge-c" in sites["kubectl delete site edge-c"]
    suspended = [text for command, text in said.items() if "suspend" in command]
    assert [text.strip() for text in suspended] == ["trainingjob.tranche.dev/first patched"] * 2
    assert "tranche-scheduler" in said["kubectl -n tranche-system get pods,lease"]
    deleted = [text for command, text in said.items() if "delete pod" in command]
    assert all(text.startswith('pod "tranche-') for text in deleted)
    assert len(deleted) == 2
