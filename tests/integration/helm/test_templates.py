"""Objects that the chart renders, without a cluster."""

import copy
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.doc_pages import blocks
from support.yaml_text import load_all_yaml, load_yaml
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.trainingjob import to_job
from tranche_testcluster import free_port

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = ROOT / "manifests"
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Render = Callable[..., list[dict[str, Any]]]
Key = tuple[str, str, str]
SYSTEM = "tranche-system"
OF_EACH = ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")
NODE_LOSS = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for taint in ("not-ready", "unreachable")
]
RELEASE_LABELS = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}


def by_key(objects: list[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    result = {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}
    assert len(result) == len(objects)
    return result


def manifests() -> dict[Key, dict[str, Any]]:
    files = [*sorted((MANIFESTS / "crds").glob("*.yaml")), MANIFESTS / "priorityclasses.yaml", MANIFESTS / "rbac.yaml"]
    files += [MANIFESTS / "admission-policies.yaml", MANIFESTS / "page-policy.yaml"]
    documents = [one for file in files for one in load_all_yaml(file.read_text(encoding="utf-8"))]
    return by_key([one for one in documents if one["kind"] != "Namespace"])


def plain(objects: dict[Key, dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """The objects without labels of the release and without annotations, which the chart adds."""
    result = copy.deepcopy(objects)
    for one in result.values():
        one["metadata"].pop("annotations", None)
        labels = one["metadata"].pop("labels", {})
        kept = {key: value for key, value in labels.items() if key not in RELEASE_LABELS}
        if kept and one["kind"] != "CustomResourceDefinition":
            one["metadata"]["labels"] = kept
    return result


def containers(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    deployments = [o for o in objects if o["kind"] == "Deployment"]
    return {c["name"]: c for d in deployments for c in d["spec"]["template"]["spec"]["containers"]}


def test_the_chart_lints_without_a_warning(helm: Run) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", "tranche").stdout


def test_chart_renders_the_manifests_and_the_programs(render: Render) -> None:
    rendered = by_key(render())
    expected = manifests()
    own = {key: rendered.pop(key) for key in set(rendered) - set(expected)}
    assert plain(rendered) == plain(expected)
    kept = {"helm.sh/resource-policy": "keep"}
    crds = [one for one in rendered.values() if one["kind"] == "CustomResourceDefinition"]
    assert [one["metadata"]["annotations"] for one in crds] == [kept] * 2
    programs = {(kind, SYSTEM, f"tranche-{name}") for kind in OF_EACH for name in ("scheduler", "operator")}
    assert set(own) == programs | {
        ("ConfigMap", SYSTEM, "tranche-kube-scheduler"),
        ("ConfigMap", SYSTEM, "tranche-tenancy"),
        ("ConfigMap", SYSTEM, "tranche-reports-ca"),
        ("Secret", SYSTEM, "tranche-reports-tls"),
        ("ResourceQuota", SYSTEM, "tranche-priority-class"),
        ("Service", SYSTEM, "tranche-reports"),
        ("Pod", SYSTEM, "tranche-test"),
        ("Lease", SYSTEM, "tranche-scheduler"),
        ("Lease", SYSTEM, "tranche-kube-scheduler"),
        ("Lease", SYSTEM, "tranche-operator"),
    }
    config = own["ConfigMap", SYSTEM, "tranche-kube-scheduler"]["data"]["config.yaml"]
    assert load_yaml(config) == load_yaml((MANIFESTS / "scheduler-config.yaml").read_text(encoding="utf-8"))


def test_every_object_says_whose_it_is(render: Render) -> None:
    for one in render():
        assert set(one["metadata"]["labels"]) >= RELEASE_LABELS, one["metadata"]["name"]
        assert one["metadata"]["labels"]["app.kubernetes.io/instance"] == "tranche"


def test_report_url_of_training_pods_reaches_the_report_port(render: Render) -> None:
    objects = render(namespace="training")
    service = next(o for o in objects if o["kind"] == "Service" and o["metadata"]["name"] == "tranche-reports")
    url = f"--report-url=https://{service['metadata']['name']}.training.svc"
    assert url in containers(objects)["operator"]["args"]
    scheduler = next(o for o in objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "tranche-scheduler")
    labels = scheduler["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    target = service["spec"]["ports"][0]["targetPort"]
    port = next(p["containerPort"] for p in containers(objects)["api"]["ports"] if p["name"] == target)
    assert f"--report-port={port}" in containers(objects)["api"]["args"]


def test_release_namespace_reaches_all_objects_and_config(render: Render) -> None:
    objects = render(namespace="training")
    assert {o["metadata"]["namespace"] for o in objects if "namespace" in o["metadata"]} == {"training", "kube-system"}
    subjects = [subject for o in objects for subject in o.get("subjects", [])]
    assert {subject["namespace"] for subject in subjects} == {"training"}
    config = by_key(objects)["ConfigMap", "training", "tranche-kube-scheduler"]["data"]["config.yaml"]
    assert load_yaml(config)["leaderElection"]["resourceNamespace"] == "training"
    for name in ("planner", "api"):
        assert "--lease-namespace=training" in containers(objects)[name]["args"]


@pytest.mark.parametrize(
    ("version", "tag"),
    [
        ("v1.37.1", "v1.37.1"),
        ("v1.36.2+k3s1", "v1.36.2"),
        ("v1.35.1-gke.1000", "v1.35.1"),
        ("v1.34.4-eks-a737599", "v1.34.4"),
        ("v1.38.0-rc.1", "v1.38.0-rc.1"),
        ("1.34", "v1.34.0"),  # as Argo CD passes it
    ],
)
def test_kube_scheduler_is_of_the_release_of_the_cluster(render: Render, version: str, tag: str) -> None:
    image = containers(render("--kube-version", version))["kube-scheduler"]["image"]
    assert image == f"registry.k8s.io/kube-scheduler:{tag}"


def test_images_can_come_from_a_private_registry_by_digest(render: Render) -> None:
    digest = "sha256:" + "0" * 64
    values = ["image.registry=registry.example.com/ml", f"operator.image.digest={digest}", "scheduler.image.tag=1.2"]
    rendered = containers(render("--set", ",".join([*values, "image.pullSecrets[0].name=key"])))
    assert rendered["operator"]["image"] == f"registry.example.com/ml/tranche-operator@{digest}"
    assert rendered["planner"]["image"] == "registry.example.com/ml/tranche-scheduler:1.2"


def test_definitions_and_priorities_can_be_left_out(render: Render) -> None:
    kinds = {o["kind"] for o in render("--set", "crds.enabled=false,priorityClasses.enabled=false")}
    assert not kinds & {"CustomResourceDefinition", "PriorityClass"}


def test_pods_can_be_placed_and_labelled(render: Render) -> None:
    values = (
        "priorityClassName=system-cluster-critical,podLabels.team=ml,podAnnotations.note=x,tolerations[0].key=infra"
    )
    for deployment in (o for o in render("--set", values) if o["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]
        assert pod["spec"]["priorityClassName"] == "system-cluster-critical"
        assert pod["spec"]["tolerations"] == [{"key": "infra"}, *NODE_LOSS]
        assert pod["metadata"]["labels"]["team"] == "ml"
        assert pod["metadata"]["annotations"]["note"] == "x"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("polcy=fifo", "additional properties 'polcy' not allowed"),
        ("image.pullPolicy=Sometimes", "image/pullPolicy"),
        ("operator.image.repository=tranche-operator:latest", "operator/image/repository"),
        ("scheduler.image.digest=abc", "scheduler/image/digest"),
        ("scheduler.extraArgs[0]=debug", "scheduler/extraArgs/0"),
        ("gpuResource=gpu", "gpuResource"),
        ("gpuResources={gpu}", "gpuResources"),
        ("mode=dry", "mode"),
        ("policy=", "policy"),
        ("policy=chunky", "policy"),
        ("policy=chunk:agin=3", "policy"),
        ("policy=tiresias", "policy"),  # for the simulator only
        ("scheduler.logLevel=loud", "scheduler/logLevel"),
        ("scheduler.replicas=0", "scheduler/replicas"),
        ("kubeScheduler.extenderTimeout=1", "kubeScheduler/extenderTimeout"),
        ("podDisruptionBudget.maxUnavailable=0", "podDisruptionBudget/maxUnavailable"),
        ("networkPolicy.egress.apiServerCidrs[0]=10.0.0.1", "apiServerCidrs/0"),
        ("shareWeights.Team=2", "Team"),
        ("tenancy.namespaces.Team.maxWeight=2", "Team"),
        ("tenancy.defaults.maxWeight=0", "maxWeight"),
        ("tenancy.defaults.maxRestartSeconds=10m", "maxRestartSeconds"),
        ("tenancy.defaults.highestPriorityClass=high", "highestPriorityClass"),
        ("topologyLevels={tranche.dev/wan}", "topologyLevels/0"),
        ("levelBandwidths={0G}", "levelBandwidths/0"),
        ("levelBandwidths={1G,1G,1G,1G,1G}", "more entries than there are topologyLevels"),
        ("scheduler.estimateSeconds=1e10", "scheduler/estimateSeconds"),
        ("podLabels.app\\.kubernetes\\.io/component=x", "podLabels"),
        ("podAnnotations.tranche\\.dev/config-checksum=x", "podAnnotations"),
        ("serviceMonitor.labels.app\\.kubernetes\\.io/name=x", "serviceMonitor"),
        ("prometheusRule.labels.app\\.kubernetes\\.io/name=x", "prometheusRule"),
        ("dashboards.labels.app\\.kubernetes\\.io/part-of=x", "dashboards"),
        ("nodeLossSeconds=-1", "nodeLossSeconds"),
        ("operator.checkpointDirectory=ckpt", "operator/checkpointDirectory"),
        ("prometheusRule.runbookUrl=docs/how-to/runbook.md", "prometheusRule/runbookUrl"),
    ],
)
def test_a_wrong_value_is_refused_by_name(helm: Run, value: str, message: str) -> None:
    answer = helm("template", "tranche", "tranche", "--set", value, check=False)
    assert answer.returncode != 0
    assert message in answer.stderr


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "cpu"])
def test_the_job_in_the_notes_can_be_planned(helm: Run, resource: str) -> None:
    words = ("--dry-run=client", "-n", SYSTEM, "--set", f"gpuResource={resource}")
    notes = helm("install", "tranche", "tranche", *words).stdout.partition("\nNOTES:\n")[2]
    manifest = textwrap.dedent(notes.partition("<<EOF\n")[2].partition("  EOF\n")[0])
    job = TrainingJob.model_validate(
        load_yaml(manifest) | {"metadata": {"name": "first", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    )
    assert to_job(job, (resource,)).gpus == 1


def test_notes_of_shadow_mode_read_results_and_start_no_job(helm: Run, render: Render) -> None:
    words = ("--dry-run=client", "-n", SYSTEM, "--set", "mode=shadow")
    notes = helm("install", "tranche", "tranche", *words).stdout.partition("\nNOTES:\n")[2]
    assert "kubectl apply" not in notes
    assert "port-forward deployment/tranche-scheduler 10262" in notes
    assert "--port=10262" in containers(render("--set", "mode=shadow"))["scheduler"]["args"]


def test_every_value_is_explained() -> None:
    lines = (ROOT / "helm" / "tranche" / "values.yaml").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        is_value = ":" in line and not line.lstrip().startswith(("#", "requests", "limits"))
        is_group = line.endswith(":") and not line.endswith("resources:")
        if is_value and not is_group:
            assert lines[number - 1].lstrip().startswith("# -- "), line


def test_the_version_is_that_of_the_package() -> None:
    chart = load_yaml((ROOT / "helm" / "tranche" / "Chart.yaml").read_text(encoding="utf-8"))
    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_second_replica_and_bind_verb_render_when_enabled(render: Render) -> None:
    plain, asked = render(), render("--set", "scheduler.replicas=3", "--set", "scheduler.bind=true")
    for objects, replicas, verb in ((plain, 2, None), (asked, 3, "bind")):
        found = by_key(objects)
        config = found["ConfigMap", "tranche-system", "tranche-kube-scheduler"]["data"]["config.yaml"]
        assert load_yaml(config)["extenders"][0].get("bindVerb") == verb
        assert found["Deployment", "tranche-system", "tranche-scheduler"]["spec"]["replicas"] == replicas
        assert ("--bind" in containers(objects)["extender"]["args"]) == (verb is not None)


def test_replicas_survive_the_loss_of_a_node_by_default(render: Render) -> None:
    objects = by_key(render())
    for name in ("scheduler", "operator"):
        spec = objects["Deployment", SYSTEM, f"tranche-{name}"]["spec"]
        pod = spec["template"]["spec"]
        assert spec["replicas"] == 2
        assert pod["priorityClassName"] == "system-cluster-critical"
        assert pod["tolerations"] == NODE_LOSS
        (spread,) = pod["topologySpreadConstraints"]
        assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")
        assert spread["labelSelector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        assert ("PodDisruptionBudget", SYSTEM, f"tranche-{name}") in objects
    assert f"--lease-namespace={SYSTEM}" in containers(list(objects.values()))["operator"]["args"]


def test_limits_of_namespaces_are_keys_of_the_config_map(render: Render) -> None:
    namespaces = '{"research": {"maxWeight": 0.5}, "ops": {"allowNever": false}}'
    values = ["--set=tenancy.defaults.maxWeight=10", f"--set-json=tenancy.namespaces={namespaces}"]
    data = by_key(render(*values))["ConfigMap", SYSTEM, "tranche-tenancy"]["data"]
    assert data == {
        "maxWeight": "10",
        "highestPriorityClass": "tranche-high",
        "allowNever": "true",
        "maxWeight.research": "0.5",
        "allowNever.ops": "false",
    }
    assert by_key(render())["ConfigMap", SYSTEM, "tranche-tenancy"]["data"]["maxWeight"] == "1000000"


def test_policies_name_the_accounts_of_the_release(render: Render) -> None:
    policies = [o for o in render(namespace="training") if o["kind"].startswith("ValidatingAdmissionPolicy")]
    assert len(policies) == 10
    assert "tranche-system" not in yaml.safe_dump(policies)
    assert "system:serviceaccount:training:tranche-operator" in yaml.safe_dump(policies)
    for switch in ("admissionPolicies.enabled=false", "rbac.create=false", "mode=shadow"):
        assert not [o for o in render("--set", switch) if o["kind"].startswith("ValidatingAdmissionPolicy")]


def test_page_actions_need_a_right_that_a_value_removes(render: Render) -> None:
    objects = render()
    name = "tranche-page-actions"
    role = next(one for one in objects if one["kind"] == "ClusterRole" and one["metadata"]["name"] == name)
    assert role["rules"] == [
        {"apiGroups": ["tranche.dev"], "resources": ["trainingjobs"], "verbs": ["patch", "delete"]}
    ]
    assert "--page-actions" in containers(objects)["api"]["args"]
    for switch in ("page.actions.enabled=false", "admissionPolicies.enabled=false"):
        without = render("--set", switch)
        rbac = [one for one in without if one["apiVersion"].startswith("rbac.authorization")]
        assert "tranche-page-actions" not in yaml.safe_dump(rbac)
        assert "--page-actions" not in containers(without)["api"]["args"]
    shadow = [one for one in render("--set", "mode=shadow") if one["apiVersion"].startswith("rbac.authorization")]
    assert "tranche-page-actions" not in yaml.safe_dump(shadow)


def test_dry_runs_of_the_page_need_their_admission_policy(render: Render) -> None:
    name = "tranche-page-what-if"
    objects = by_key(render())
    assert objects["ClusterRole", "", name]["rules"] == [
        {"apiGroups": ["tranche.dev"], "resources": ["trainingjobs"], "verbs": ["create"]}
    ]
    assert ("ValidatingAdmissionPolicyBinding", "", "tranche-page-actions") in objects
    for value in ("page.whatIf.enabled=false", "admissionPolicies.enabled=false", "mode=shadow"):
        assert not [key for key in by_key(render("--set", value)) if key[2] == name]


def test_reports_are_open_to_pods_with_the_address_of_a_node(render: Render) -> None:
    def peers(*words: str) -> dict[str, Any]:
        policy = by_key(render("--set", "reports.http.enabled=true", *words))[
            "NetworkPolicy", SYSTEM, "tranche-scheduler"
        ]
        return {rule["ports"][0]["port"]: rule.get("from", "any") for rule in policy["spec"]["ingress"]}

    pods: list[dict[str, Any]] = [{"namespaceSelector": {}}]
    default = peers()
    assert default["reports"] == default["reports-http"] == "any"
    assert default["metrics"] == default["ext-metrics"] == default["api-metrics"] == pods
    named = {"ipBlock": {"cidr": "10.0.0.0/16"}}
    chosen = peers("--set-json", f"networkPolicy.reportsFrom=[{json.dumps(named)}]")
    assert named in chosen["reports"]
    assert chosen["reports"] == chosen["reports-http"]


def test_policies_admit_dns_at_the_ports_of_its_pods(render: Render) -> None:
    """A policy sees the port of the pod behind the Service, which is 5353 on OpenShift."""
    policies = [o for o in render("--set=networkPolicy.egress.enabled=true") if o["kind"] == "NetworkPolicy"]
    texts = [one.text for one in blocks(ROOT / "docs/explanation/multi-tenancy.md")]
    policies += [load_yaml(text) for text in texts if "kind: NetworkPolicy" in text]
    assert len(policies) == 3
    for policy in policies:
        ports = {
            (port["protocol"], port["port"]) for rule in policy["spec"]["egress"] for port in rule.get("ports", ())
        }
        assert {(protocol, port) for protocol in ("TCP", "UDP") for port in (53, 5353)} <= ports


def test_certificate_of_the_reports_can_be_of_cert_manager(render: Render) -> None:
    objects = by_key(render("--set", "reports.tls.existingSecret=mine"))
    assert ("Secret", SYSTEM, "tranche-reports-tls") not in objects
    pod = objects["Deployment", SYSTEM, "tranche-scheduler"]["spec"]["template"]["spec"]
    assert {"name": "reports-tls", "secret": {"secretName": "mine"}} in pod["volumes"]
    assert "--report-tls-dir=/etc/tranche-reports" in containers(list(objects.values()))["api"]["args"]


def test_reports_can_be_served_over_http(render: Render) -> None:
    objects = render("--set", "reports.tls.enabled=false")
    assert f"--report-url=http://tranche-reports.{SYSTEM}.svc" in containers(objects)["operator"]["args"]
    assert not [one for one in containers(objects)["api"]["args"] if "tls" in one]
    both = by_key(render("--set", "reports.http.enabled=true"))
    ports = both["Service", SYSTEM, "tranche-reports"]["spec"]["ports"]
    assert {port["port"]: port["targetPort"] for port in ports} == {443: "reports", 80: "reports-http"}


def test_chart_can_be_a_conditional_dependency(helm: Run, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "helm" / "tranche", tmp_path / "charts" / "tranche")
    dependency = {"name": "tranche", "version": "0.x.x", "condition": "tranche.enabled"}
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(chart))
    for enabled in (True, False):
        values = {"tranche": {"enabled": enabled, "policy": "fifo"}, "global": {"imageRegistry": "registry.example"}}
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
        objects = [one for one in load_all_yaml(helm("template", "x", str(tmp_path)).stdout) if one]
        assert ("--policy=fifo" in containers(objects).get("planner", {"args": []})["args"]) == enabled


class _Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


def test_helm_test_ignores_a_proxy_of_the_environment() -> None:
    proxy = f"http://127.0.0.1:{free_port()}"  # no process listens there
    environment = {**os.environ, "HTTP_PROXY": proxy, "http_proxy": proxy, "NO_PROXY": "", "no_proxy": ""}
    with ThreadingHTTPServer(("127.0.0.1", 0), _Ready) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{http.server_address[1]}/readyz"
        command = [sys.executable, str(ROOT / "helm" / "tranche" / "files" / "ready.py"), url]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        http.shutdown()
    assert answer.stdout == f"{url}: 200\n", answer.stderr
