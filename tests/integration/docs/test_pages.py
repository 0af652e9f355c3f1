"""The commands of README and of the pages on what to do, typed as they are written with names filled in.

Which page is typed where, and which commands no test can type: typed_commands.py.
"""

import json
import re
from collections.abc import Iterator, Mapping

import pytest

from support.doc_pages import Block, blocks, pages
from support.doc_shell import Shell
from support.installed_release import Release
from support.typed_commands import PAGES, typed_by
from support.waiting import eventually
from support.yaml_text import load_all_yaml
from tranche.demo.local_stack import await_kinds
from tranche_testcluster import Cluster

FILLED: Mapping[str, str] = {
    "YOUR.REGISTRY": "registry.example.com/ml",
    "NAMESPACE": "default",
    "NAME": "first",
    "JOB": "first",
    "FILE": "another.yaml",
    "NODE": "edge-b-0",
    "SITE": "edge-b",
    "kubectl proxy": "kubectl proxy --port=0",  # the usual one may be taken
    "deployment/tranche-scheduler 10264": "deployment/tranche-scheduler :10264",
    "deployment/tranche-scheduler 10265": "deployment/tranche-scheduler :10265",
}
MERGE = "application/merge-patch+json"
LOGS = re.compile(r"\blogs\b")
"""Pattern of the commands that a kubelet answers: that of a simulated node has no log of these pods."""
ENDLESS = {"port-forward": "Forwarding from 127.0.0.1:", "kubectl proxy": "Starting to serve on 127.0.0.1:"}
"""Commands that run until they are stopped, and their output when they have begun."""
YAML = [block for page in pages() for block in blocks(page) if block.language == "yaml"]


def filled(command: str, **more: str) -> str:
    """The command with names filled in: those of this module, and more that a test knows."""
    names = {**FILLED, **more}
    return re.sub("|".join(map(re.escape, names)), lambda match: names[match[0]], command)


def typed(shell: Shell, page: str, **more: str) -> dict[str, str]:
    """Run the commands of a page; return the output of each, by the command as the page states it."""
    said = {}
    for command in typed_by(PAGES, page):
        if LOGS.search(command):
            answer = shell.answer(filled(command, **more))
            assert answer.returncode == 1
            assert re.search(r"no logs found|/containerLogs/tranche-system/", answer.stderr), answer.stderr
        elif says := next((text for part, text in ENDLESS.items() if part in command), None):
            shell.run_until(says, filled(command, **more))
        else:
            said[command] = shell.run(filled(command, **more))
    return said


@pytest.fixture(scope="module")
def readme(own: Cluster, shell: Shell) -> Iterator[tuple[Release, dict[str, str]]]:
    """Tranche as README installs it, with a job that is done; and what README's commands said."""
    commands = typed_by(PAGES, "README.md")
    (install,) = [command for command in commands if command.startswith("helm install ")]
    said = {install: shell.run(filled(install))}
    with Release(own) as release:
        await_kinds(own)  # `kubectl explain` reads what the API server publishes last
        shell.run("export PATH=$PWD/.venv/bin:$PATH")  # what `make demo KEEP=1` says
        said |= {command: shell.run(filled(command)) for command in commands if command != install}
        yield release, said


@pytest.fixture(scope="module")
def release(readme: tuple[Release, dict[str, str]]) -> Release:
    return readme[0]


def test_readme(readme: tuple[Release, dict[str, str]], shell: Shell) -> None:
    said = readme[1]
    assert "is installed in the namespace tranche-system" in next(iter(said.values()))
    head, row = said["kubectl get trainingjobs"].splitlines()
    assert head.split() == [
        "NAME", "PHASE", "DONE", "TRAINED", "WORKERS", "SITES", "PLANNED-START", "PLANNED-COMPLETION", "PREEMPTIONS",
        "AGE",
    ]  # fmt: skip
    assert row.split()[:3] == ["first", "Succeeded", "4/4"]
    assert said["kubectl tranche history first"].count("Succeeded") >= 2
    describe = "kubectl describe tj NAME"
    assert "Name:" in said[describe]
    eventually(lambda: "Completed" in shell.run(filled(describe)), "the event, which is written after the status")


@pytest.mark.usefixtures("release")
def test_references_explain_every_kind(shell: Shell) -> None:
    assert "FIELDS:" in typed(shell, "docs/reference/site.md")["kubectl explain site.spec"]
    assert "FIELDS:" in typed(shell, "docs/reference/trainingjob.md")["kubectl explain trainingjob.spec"]


@pytest.mark.usefixtures("release")
def test_the_plugin(shell: Shell) -> None:
    shell.run("sed 's/name: first/name: another/' docs/samples/first.yaml > another.yaml")
    said = typed(shell, "docs/how-to/kubectl-plugin.md")
    assert "kubectl-tranche" in said["kubectl plugin list"]
    assert said["kubectl tranche why JOB"] == "finished: 4 of 4 chunks done\n"
    assert said["kubectl tranche plan JOB --chunks"].startswith("no chunks of TrainingJob first are planned")
    assert said["kubectl tranche history JOB"].count("Succeeded") >= 2
    assert "planned completion" in said["kubectl tranche whatif -f FILE"]
    kinds = {item["kind"] for item in json.loads(said["kubectl tranche export -A"])["items"]}
    assert {"TrainingJob", "Node"} <= kinds


@pytest.mark.usefixtures("release")
@pytest.mark.parametrize("block", YAML, ids=lambda block: block.name)
def test_yaml_is_taken_by_the_api_server_or_by_the_chart(shell: Shell, block: Block) -> None:
    (shell.work / "block.yaml").write_text(block.text)
    if all("apiVersion" in document for document in load_all_yaml(block.text)):
        said = shell.run("kubectl apply --dry-run=server --validate=strict -f block.yaml")
        assert "(server dry run)" in said
    else:
        assert "kind: Deployment" in shell.run("helm template tranche helm/tranche --values block.yaml")


@pytest.mark.usefixtures("release")
def test_accounting(shell: Shell) -> None:
    said = typed(shell, "docs/how-to/accounting.md")
    head, *rows, total = said["kubectl tranche usage -A"].splitlines()
    assert "HELD GPU-HOURS" in head
    assert [row.split()[:3] for row in rows] == [["default", "first", "Succeeded"]]
    assert total.startswith("total")
    (row,) = json.loads((shell.work / "usage.json").read_text())
    assert row["heldGpuSeconds"] >= row["trainedGpuSeconds"] > 0
    november = (shell.work / "november.csv").read_text().splitlines()
    assert november[0].split(",")[:3] == ["namespace", "name", "uid"]


@pytest.mark.usefixtures("release")
def test_migrating(shell: Shell) -> None:
    said = typed(shell, "docs/how-to/migrating.md")
    applied, planned = said.values()
    assert "trainingjob.tranche.dev/resnet created (server dry run)" in applied
    assert "planned completion" in planned


def test_the_web_page_and_its_api(shell: Shell, release: Release) -> None:
    forwarded = {"http://localhost:10265": release.page_url}  # where the forwarded port would lead
    said = typed(shell, "docs/how-to/web-page.md", **forwarded)
    (answer,) = [json.loads(text) for command, text in said.items() if command.startswith("curl ")]
    assert answer["jobs"] == [], "none waits"


@pytest.mark.usefixtures("release")
def test_what_is_to_be_replayed_is_exported(shell: Shell) -> None:
    typed(shell, "docs/how-to/shadow-mode.md")
    assert {item["kind"] for item in json.loads((shell.work / "export.json").read_text())["items"]} >= {"Pod", "Node"}


@pytest.fixture
def _node_without_site(own: Cluster) -> Iterator[None]:
    """The node that the pages name, without the label of its site until the test is done."""
    node, zone = f"/api/v1/nodes/{FILLED['NODE']}", "topology.kubernetes.io/zone"
    before = own.request("GET", node)[1]["metadata"]["labels"][zone]
    for value in (None, before):
        status, answer = own.request("PATCH", node, {"metadata": {"labels": {zone: value}}}, MERGE)
        assert status == 200, answer
        if value is None:
            yield


@pytest.mark.usefixtures("release", "_node_without_site")
def test_sites(shell: Shell) -> None:
    said = typed(shell, "docs/how-to/sites.md")
    assert said["kubectl get sites"].count("\n") == 5
    assert "edge-c" in said["kubectl delete site edge-c"]


@pytest.mark.usefixtures("release")
def test_multi_tenancy(shell: Shell) -> None:
    secret = "kubectl -n tranche-system get secret tranche-reports-tls -o jsonpath='{.data.ca\\.crt}'"
    before = shell.run(secret)
    typed(shell, "docs/explanation/multi-tenancy.md")
    assert before
    eventually(lambda: shell.run(secret) not in ("", before), "there is another CA")


@pytest.mark.usefixtures("release")
def test_the_runbook(shell: Shell) -> None:
    said = typed(shell, "docs/how-to/runbook.md")
    assert "tranche-scheduler" in said["kubectl -n tranche-system get pods,lease"]
    assert said["kubectl get --raw /readyz"] == "ok"
    assert "first" in said["kubectl get tj -A"]


@pytest.mark.usefixtures("release")
def test_recovery(shell: Shell) -> None:
    said = typed(shell, "docs/how-to/recovering.md")
    suspended = [text for command, text in said.items() if "suspend" in command]
    assert [text.strip() for text in suspended] == ["trainingjob.tranche.dev/first patched"] * 2
    deleted = [text for command, text in said.items() if "delete pod" in command]
    assert all(text.startswith('pod "tranche-') for text in deleted)
    assert len(deleted) == 2


def test_a_policy_is_chosen(shell: Shell, release: Release) -> None:
    said = typed(shell, "docs/how-to/choose-a-policy.md")
    assert any("has been upgraded" in text for text in said.values())
    release.stop()
    release.start()
    leases = "timeout 180 kubectl -n tranche-system get lease tranche-scheduler -o yaml --watch"
    shell.run_until("chunk:aging=20", leases)  # a replica is ready before it leads
