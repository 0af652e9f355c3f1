"""The objects rendered for a platform team's values are valid by the API server's schemas and known to the programs."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml

from support import json_schemas
from support.doc_pages import pages
from support.yaml_text import load_all_yaml
from tranche.cli.api import api
from tranche.cli.extender import extender
from tranche.cli.planner import planner
from tranche.cli.scheduler import scheduler
from tranche_operator.main import main as operator
from tranche_testcluster import Cluster, ensure

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "helm" / "tranche"
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Render = Callable[..., list[dict[str, Any]]]
SETS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "two replicas of everything": {
        "scheduler": {"replicas": 2, "bind": True, "seed": 7, "validate": True, "extraArgs": ["--journal=/tmp/j"]},
        "policy": "chunk:fair=1:aging=0",
        "shareWeights": {"research": 2, "interns": 0.5},
        "priorityClassName": "system-cluster-critical",
        "podLabels": {"team": "ml"},
        "podAnnotations": {"note": "x"},
    },
    "private and locked down": {
        "image": {"registry": "registry.example.com/ml", "pullPolicy": "Always", "pullSecrets": [{"name": "key"}]},
        "operator": {"image": {"digest": "sha256:" + "0" * 64}, "serviceAccountAnnotations": {"a": "b"}},
        "kubeScheduler": {"image": {"registry": "mirror.example.com"}, "qps": 50, "verbosity": 4, "burst": 100},
        "networkPolicy": {
            "reportsFrom": [{"namespaceSelector": {"matchLabels": {"team": "ml"}}}],
            "metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
            "egress": {"enabled": True, "apiServerCidrs": ["10.0.0.1/32", "fd00::1/128"]},
        },
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "scheduler": {
            "nodeSelector": {"pool": "infra"},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "scheduler"}},
                }
            ],
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
        },
    },
    "watched": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "tranche"}, "namespace": "monitoring"},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
    },
    "shadow": {
        "mode": "shadow",
        "gpuResource": "amd.com/gpu",
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "reports": {"tls": {"existingSecret": "mine"}},
    },
    "two vendors": {
        "gpuResources": ["nvidia.com/gpu", "amd.com/gpu"],
        "gpuKindLabels": ["example.org/gpu"],
        "topologyLevels": ["kubernetes.io/hostname", "example.org/island", "tranche.dev/rack"],
        "levelBandwidths": ["300G", "100G", "1G"],
        "gpuSpeeds": {"Tesla-T4": 0.3, "NVIDIA-A100-SXM4-80GB": 1},
    },
    "the least": {
        "crds": {"enabled": False},
        "priorityClasses": {"enabled": False},
        "rbac": {"create": False},
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
    "another one's roles": {"rbac": {"aggregate": False}, "crds": {"keep": False}},
}


@pytest.fixture(scope="module")
def folder(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the schemas of all kinds that the cluster has, our own among them; return their folder."""
    made = tmp_path_factory.mktemp("schemas")
    assert json_schemas.write(cluster, made) > 100
    json_schemas.write_monitoring(made)
    for kind in ("trainingjob", "site"):
        assert (made / f"{kind}-tranche-v1alpha1.json").exists()
    return made


def conform(folder: Path, *files: Path) -> "subprocess.CompletedProcess[str]":
    """Check files against the schemas; a kind without one is an error."""
    location = f"{folder}/{json_schemas.PATTERN}"
    command = [str(ensure("kubeconform")["kubeconform"]), "-strict", "-summary", "-schema-location", location]
    return subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)


@pytest.fixture
def chosen(tmp_path: Path) -> Callable[[dict[str, Any]], str]:
    """The option of helm for some values."""

    def option(values: dict[str, Any]) -> str:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        return f"--values={file}"

    return option


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_everything_that_is_rendered_is_valid(
    helm: Run, folder: Path, tmp_path: Path, chosen: Callable[[dict[str, Any]], str], values: dict[str, Any]
) -> None:
    text = helm("template", "tranche", "tranche", "-n", "tranche-system", chosen(values)).stdout
    file = tmp_path / "rendered.yaml"
    file.write_text(text)
    count = sum(1 for document in load_all_yaml(text) if document)
    answer = conform(folder, file)
    assert answer.returncode == 0, answer.stdout
    assert f"{count} resources found in 1 file - Valid: {count}, Invalid: 0, Errors: 0, Skipped: 0" in answer.stdout
    assert helm("lint", "--strict", "tranche", chosen(values)).returncode == 0


def test_what_is_wrong_is_found(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {selectors: {}}\n")
    answer = conform(folder, file)
    assert answer.returncode == 1
    assert "selectors" in answer.stdout


def test_the_samples_are_valid(folder: Path) -> None:
    files = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
    answer = conform(folder, *files)
    assert answer.returncode == 0, answer.stdout
    assert f"found in {len(files)} files" in answer.stdout


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_the_programs_take_every_argument(
    render: Render, chosen: Callable[[dict[str, Any]], str], tmp_path: Path, values: dict[str, Any]
) -> None:
    tenancy = ("--tenancy-dir=/etc/tranche-tenancy", f"--tenancy-dir={tmp_path}")  # must exist
    commands: dict[str, click.Command] = {
        "extender": extender, "planner": planner, "api": api, "scheduler": scheduler, "operator": operator,
    }  # fmt: skip
    for one in (o for o in render(chosen(values)) if o["kind"] == "Deployment"):
        for container in one["spec"]["template"]["spec"]["containers"]:
            if command := commands.get(container["name"]):
                arguments = [word.replace(*tenancy) for word in container["args"]]
                command.make_context("tranche", arguments)  # raises what the program would say


def containers(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    deployments = [o for o in objects if o["kind"] == "Deployment"]
    return {c["name"]: c for d in deployments for c in d["spec"]["template"]["spec"]["containers"]}


def test_settings_reach_the_programs(render: Render, chosen: Callable[[dict[str, Any]], str]) -> None:
    found = containers(
        render(
            chosen(
                {
                    "policy": "fifo",
                    "gpuResource": "amd.com/gpu",
                    "shareWeights": {"research": 2.5},
                    "scheduler": {
                        "logLevel": "debug", "logFormat": "json", "seed": 12345678, "estimateSeconds": 60,
                        "serverIdleSeconds": 9.5, "readinessProbe": {"periodSeconds": 3},
                    },
                    "operator": {"checkpointDirectory": "/ckpt", "reportUrl": "https://r"},
                }
            )
        )
    )  # fmt: skip
    assert {
        "--policy=fifo", "--gpu-resource=amd.com/gpu", "--share-weight=research=2.5", "--log-level=debug",
        "--log-format=json", "--seed=12345678", "--estimate-seconds=60", "--server-idle-seconds=9.5",
    } <= set(found["planner"]["args"])  # fmt: skip
    assert {found[name]["readinessProbe"]["periodSeconds"] for name in ("extender", "planner", "api")} == {3}
    resources = {arg for arg in found["planner"]["args"] if arg.startswith("--gpu-resource")}
    assert resources == {"--gpu-resource=amd.com/gpu"}
    assert {"--checkpoint-dir=/ckpt", "--report-url=https://r"} <= set(found["operator"]["args"])


def test_gpu_settings_reach_the_planner(render: Render, chosen: Callable[[dict[str, Any]], str]) -> None:
    found = containers(render(chosen(SETS["two vendors"])))
    assert [arg for arg in found["planner"]["args"] if arg.startswith("--gpu")] == [
        "--gpu-kind-label=example.org/gpu",
        "--gpu-speed=NVIDIA-A100-SXM4-80GB=1",
        "--gpu-speed=Tesla-T4=0.3",
        "--gpu-resource=nvidia.com/gpu",
        "--gpu-resource=amd.com/gpu",
    ]
    assert [arg for arg in found["planner"]["args"] if arg.startswith("--topology")] == [
        "--topology-level=kubernetes.io/hostname",
        "--topology-level=example.org/island",
        "--topology-level=tranche.dev/rack",
    ]
    assert [arg for arg in found["planner"]["args"] if arg.startswith("--level")] == [
        "--level-bandwidth=300G",
        "--level-bandwidth=100G",
        "--level-bandwidth=1G",
    ]
    for name in ("extender", "api"):
        resources = [arg for arg in found[name]["args"] if arg.startswith("--gpu")]
        assert resources == ["--gpu-resource=nvidia.com/gpu", "--gpu-resource=amd.com/gpu"]


def test_shadow_mode_installs_nothing_that_can_change_pods(render: Render) -> None:
    objects = render("--set", "mode=shadow")
    assert "--shadow" in containers(objects)["scheduler"]["args"]
    assert set(containers(objects)) == {"scheduler"}
    assert not [o for o in objects if o["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "operator"]


def test_account_of_shadow_mode_has_rights_to_read_only(render: Render) -> None:
    objects = render("--set", "mode=shadow")
    bindings = [one for one in objects if one["kind"].endswith("RoleBinding")]
    assert [(one["kind"], one["roleRef"]["name"]) for one in bindings] == [("ClusterRoleBinding", "tranche-scheduler")]
    (role,) = [
        one for one in objects if one["kind"] == "ClusterRole" and one["metadata"]["name"] == "tranche-scheduler"
    ]
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    watched = ("nodes", "pods", "resourcequotas", "sites", "trainingjobs")
    assert granted == {(kind, verb) for kind in watched for verb in ("list", "watch")} | {("pods", "get")}


def test_alerts_of_shadow_mode_expect_no_other_process(render: Render) -> None:
    def alerts(*values: str) -> list[str]:
        objects = render("--set=prometheusRule.enabled=true", *values)
        (groups,) = [one["spec"]["groups"] for one in objects if one["kind"] == "PrometheusRule"]
        return [rule["alert"] for group in groups for rule in group["rules"]]

    live = alerts()
    never_quiet = {"TrancheNoLeader", "TrancheOperatorNotReady", "TrancheProcessMissing"}
    assert never_quiet < set(live)
    assert alerts("--set=mode=shadow") == [alert for alert in live if alert not in never_quiet]


@pytest.mark.parametrize(
    "values", ["mode=live", "mode=shadow", "reports.tls.enabled=false", "mode=shadow,reports.tls.enabled=false"]
)
def test_helm_test_asks_only_for_addresses_that_are_served(render: Render, values: str) -> None:
    objects = render("--set", values)
    (test,) = [one for one in objects if one["kind"] == "Pod"]
    served = {
        (one["metadata"]["name"], port["port"])
        for one in objects
        if one["kind"] == "Service"
        for port in one["spec"]["ports"]
        if port["targetPort"] in {p["name"] for c in containers(objects).values() for p in c["ports"]}
    }
    _, *urls = test["spec"]["containers"][0]["args"]
    for url in map(urlsplit, urls):
        assert ((url.hostname or "").partition(".")[0], url.port or {"https": 443, "http": 80}[url.scheme]) in served
    assert len(urls) == (2 if "shadow" in values else 6)


def test_documented_port_forwards_reach_a_listening_process(render: Render) -> None:
    """The kubelet connects to loopback of the pod, not to its address."""
    reached = {
        value
        for mode in ("live", "shadow")
        for container in containers(render("--set", f"mode={mode}")).values()
        for value in forwardable(container.get("args", []))
    }
    texts = [page.read_text(encoding="utf-8") for page in [*pages(), CHART / "templates" / "NOTES.txt"]]
    named = {port for text in texts for port in re.findall(r"port-forward deployment/tranche-scheduler (\d+)", text)}
    assert named
    # The Service of the report API may have another address family than the address of the pod.
    assert named | {"10263"} <= reached


def forwardable(arguments: list[str]) -> Iterator[str]:
    """Yield the ports at which a process listens on loopback."""
    given = dict(word.partition("=")[::2] for word in arguments)
    for kind in ("", "metrics-", "report-", "page-"):
        if given.get(f"--{kind}host", "127.0.0.1") in ("", "0.0.0.0", "127.0.0.1") and f"--{kind}port" in given:
            yield given[f"--{kind}port"]


def test_rules_and_dashboards_are_what_is_in_the_folders(helm: Run, tmp_path: Path) -> None:
    chart = tmp_path / "tranche"
    shutil.copytree(ROOT / "helm" / "tranche", chart)
    for name in ("rules", "dashboards"):
        shutil.rmtree(chart / "files" / name, ignore_errors=True)
    switches = ["--set", "prometheusRule.enabled=true,dashboards.enabled=true"]

    def rendered() -> list[dict[str, Any]]:
        documents = load_all_yaml(helm("template", "tranche", str(chart), *switches).stdout)
        return [d for d in documents if d and ("dashboard" in d["metadata"]["name"] or d["kind"] == "PrometheusRule")]

    assert rendered() == []
    for name in ("rules", "dashboards"):
        (chart / "files" / name).mkdir()
    rule = {"alert": "Down", "expr": 'up{job="a"} == 0', "annotations": {"summary": "{{ $labels.pod }} is down"}}
    groups = {"groups": [{"name": "tranche", "rules": [rule]}]}
    (chart / "files" / "rules" / "alerts.yaml").write_text(f"# Generated.\n{yaml.safe_dump(groups)}")
    panel = '{"title": "{{ not a template }}"}\n'
    (chart / "files" / "dashboards" / "jct.json").write_text(panel)
    found = {o["metadata"]["name"]: o for o in rendered()}
    assert found["tranche-alerts"]["spec"] == groups
    assert found["tranche-dashboard-jct"]["data"] == {"jct.json": panel}
    assert found["tranche-dashboard-jct"]["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize(
    ("setting", "annotation", "address"),
    [
        ((), "runbook", "docs/how-to/runbook.md"),
        (("--set", "prometheusRule.runbookUrl=https://w.example/r.html"), "runbook_url", "https://w.example/r.html"),
    ],
)
def test_every_alert_leads_to_its_section_of_the_runbook(
    render: Render, setting: tuple[str, ...], annotation: str, address: str
) -> None:
    objects = render("--set", "prometheusRule.enabled=true", *setting)
    (rules,) = [one["spec"]["groups"] for one in objects if one["kind"] == "PrometheusRule"]
    alerts = [alert for group in rules for alert in group["rules"]]
    assert len(alerts) > 10
    for alert in alerts:
        found = {name: text for name, text in alert["annotations"].items() if name.startswith("runbook")}
        assert found == {annotation: f"{address}#{alert['alert'].lower()}"}
