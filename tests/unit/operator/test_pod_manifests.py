"""Manifests: the template of the user, and what we add to it."""

import copy
from typing import Any

import pytest

from support.operator_objects import UID, plan, server, training_job, window
from tranche.kube.api.resources import SiteSpec, TrainingJob
from tranche.model.attempt_record import AttemptRecord, pack
from tranche_operator.manifests import node_affinity
from tranche_operator.manifests import pod as pods
from tranche_operator.settings import ReportCa, Settings

SETTINGS = Settings()
TEMPLATE: dict[str, Any] = {
    "metadata": {
        "labels": {"team": "vision", "app.kubernetes.io/name": "mine"},
        "annotations": {"note": "x"},
        "finalizers": ["example.com/own"],
    },
    "spec": {
        "serviceAccountName": "trainer",
        "terminationGracePeriodSeconds": 90,
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "initContainers": [{"name": "fetch", "image": "fetch:1"}],
        "containers": [
            {
                "name": "train",
                "image": "trainer:1",
                "env": [
                    {"name": "TRANCHE_CHUNKS", "value": "mine"},
                    {"name": "ARGS", "value": "--chunks=$(TRANCHE_CHUNKS)"},
                ],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
            {"name": "side", "image": "side:1"},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    },
}
LOG = "TRANCHE_TERMINATION_LOG"
VOLUME = {"checkpoint": {"volume": {"nfs": {"server": "nas", "path": "/ckpt"}}}}


def job_with_template(template: dict[str, Any] = TEMPLATE, **more: Any) -> TrainingJob:
    state = {"plan": plan(window(1, 3, chunks=[4, 2]), servers=[server(0, 1)])}
    return training_job(template=template, status=state, **more)


def worker(job: TrainingJob) -> dict[str, Any]:
    assert job.status.plan is not None
    return pods.worker_pod(job, job.status.plan.workers[0], SETTINGS)


def test_identity() -> None:
    manifest = worker(job_with_template())
    metadata, spec = manifest["metadata"], manifest["spec"]
    assert (metadata["name"], metadata["namespace"]) == ("cats-worker-1-3", "lab")
    assert (spec["hostname"], spec["subdomain"]) == ("cats-worker-1", "cats")
    assert metadata["labels"] == {
        "team": "vision",
        "app.kubernetes.io/name": "mine",
        "app.kubernetes.io/managed-by": "tranche",
        "app.kubernetes.io/component": "worker",
        "tranche.dev/job": "cats",
        "tranche.dev/role": "worker",
        "tranche.dev/index": "1",
        "tranche.dev/attempt": "3",
    }
    assert {**metadata["annotations"], "tranche.dev/template-requests": "?", "tranche.dev/template": "?"} == {
        "note": "x",
        "tranche.dev/plan": "1.7",
        "tranche.dev/step-seconds": "180",
        "tranche.dev/template-requests": "?",
        "tranche.dev/template": "?",
        "tranche.dev/training-container": "train",
    }
    assert metadata["finalizers"] == ["example.com/own", "tranche.dev/ledger"]
    (owner,) = metadata["ownerReferences"]
    assert owner == {
        "apiVersion": "tranche.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": "cats",
        "uid": UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_scheduling() -> None:
    spec = worker(job_with_template(spec={"priorityClassName": "tranche-high"}))["spec"]
    assert spec["schedulerName"] == "tranche"
    assert spec["priorityClassName"] == "tranche-high"
    assert spec["restartPolicy"] == "Never"
    assert spec["tolerations"] == TEMPLATE["spec"]["tolerations"]
    assert spec["terminationGracePeriodSeconds"] == 90
    assert spec["serviceAccountName"] == "trainer"
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["edge-a-0"], ["edge-a-1"]]


@pytest.mark.parametrize(("slept", "left"), [(20, "70"), (89, "2"), (0, "90")])
def test_hook_before_sigterm_leaves_less_time_to_save(slept: int, left: str) -> None:
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": slept}}}
    train, side = worker(job_with_template(template))["spec"]["containers"]
    assert {"name": "TRANCHE_GRACE_SECONDS", "value": left} in train["env"]
    assert {"name": "TRANCHE_GRACE_SECONDS", "value": "90"} in side["env"]


def test_grace_period_of_zero_becomes_one_second() -> None:
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["terminationGracePeriodSeconds"] = 0
    spec = worker(job_with_template(template))["spec"]
    assert spec["terminationGracePeriodSeconds"] == 1
    assert {"name": "TRANCHE_GRACE_SECONDS", "value": "1"} in spec["containers"][0]["env"]


@pytest.mark.parametrize(
    ("own", "policy"),
    [
        ({}, None),
        ({"hostNetwork": True}, "ClusterFirstWithHostNet"),
        ({"hostNetwork": True, "dnsPolicy": "None"}, "None"),
        ({"hostNetwork": False}, None),
    ],
)
def test_pod_on_its_nodes_network_resolves_services(own: dict[str, Any], policy: str | None) -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], **own}}
    assert worker(job_with_template(template))["spec"].get("dnsPolicy") == policy


def test_our_variables_win_and_come_first_in_every_container() -> None:
    spec = worker(job_with_template())["spec"]
    containers = [*spec["initContainers"], *spec["containers"]]
    assert len(containers) == 3
    for container in containers:
        values = {variable["name"]: variable["value"] for variable in container["env"]}
        assert values["TRANCHE_CHUNKS"] == "4,2"
        assert len(values) == len(container["env"]), "each name once"
    names = [variable["name"] for variable in spec["containers"][0]["env"]]
    assert names.index("TRANCHE_CHUNKS") < names.index("ARGS")


def test_kubelet_reports_the_last_log_lines_of_the_trainer() -> None:
    spec = worker(job_with_template())["spec"]
    policies = {one["name"]: one.get("terminationMessagePolicy") for one in spec["containers"]}
    assert policies.pop("train") == "FallbackToLogsOnError"
    assert set(policies.values()) <= {None}
    assert {one["terminationMessagePolicy"] for one in spec["initContainers"]} == {"FallbackToLogsOnError"}


def test_own_policy_of_termination_messages_is_kept() -> None:
    container = {"name": "train", "image": "x", "terminationMessagePolicy": "File"}
    (made,) = worker(job_with_template({"spec": {"containers": [container]}}))["spec"]["containers"]
    assert made["terminationMessagePolicy"] == "File"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, None),
        ({"terminationMessagePath": "/dev/termination-log"}, None),
        ({"terminationMessagePath": ""}, None),
        ({"terminationMessagePath": "/run/end"}, "/run/end"),
        ({"terminationMessagePath": "/run/end", "env": [{"name": LOG, "value": "/run/own"}]}, "/run/own"),
    ],
)
def test_container_gets_its_own_termination_message_path(own: dict[str, Any], expected: str | None) -> None:
    containers = [{"name": "train", "image": "x", **own}, {"name": "side", "image": "x"}]
    made, side = worker(job_with_template({"spec": {"containers": containers}}))["spec"]["containers"]
    values = [variable["value"] for variable in made["env"] if variable["name"] == LOG]
    assert values == ([] if expected is None else [expected])
    assert LOG not in {variable["name"] for variable in side["env"]}


def test_the_checkpoint_volume_is_mounted_in_every_container() -> None:
    spec = worker(job_with_template(spec=VOLUME))["spec"]
    assert {"name": "tranche-checkpoint", "nfs": {"server": "nas", "path": "/ckpt"}} in spec["volumes"]
    for container in [*spec["initContainers"], *spec["containers"]]:
        mount = {
            "name": "tranche-checkpoint",
            "mountPath": "/var/lib/tranche/checkpoint",
            "subPath": f"cats-{UID}",
        }
        assert mount in container["volumeMounts"]
    assert {"name": "data", "mountPath": "/data"} in spec["containers"][0]["volumeMounts"]


def test_own_mount_at_the_checkpoint_directory_is_kept() -> None:
    template = copy.deepcopy(TEMPLATE)
    own = {"name": "data", "mountPath": "/var/lib/tranche/checkpoint/"}
    template["spec"]["containers"][0]["volumeMounts"] = [own]
    spec = worker(job_with_template(template, spec=VOLUME))["spec"]
    assert spec["containers"][0]["volumeMounts"] == [own]
    assert spec["containers"][1]["volumeMounts"][0]["name"] == "tranche-checkpoint"


def test_without_a_volume_nothing_is_mounted() -> None:
    spec = worker(job_with_template())["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["data"]
    assert "volumeMounts" not in spec["containers"][1]


def test_the_template_itself_is_not_changed() -> None:
    job = job_with_template(spec=VOLUME)
    before = job.model_dump()
    worker(job)
    assert job.model_dump() == before


def test_a_parameter_server_is_made_from_its_own_template() -> None:
    job = job_with_template(servers=1)
    assert job.status.plan is not None
    manifest = pods.server_pod(job, job.status.plan.parameter_servers[0], SETTINGS)
    assert manifest["metadata"]["name"] == "cats-ps-0-1"
    assert manifest["metadata"]["labels"]["tranche.dev/role"] == "ps"
    assert manifest["spec"]["hostname"] == "cats-ps-0"


def test_a_planned_server_of_a_job_without_servers_is_an_error() -> None:
    job = job_with_template()
    assert job.status.plan is not None
    with pytest.raises(ValueError, match="lab/cats"):
        pods.server_pod(job, job.status.plan.parameter_servers[0], SETTINGS)


def test_service_selects_job_pods_before_they_are_ready() -> None:
    service = pods.service(training_job())
    assert service["metadata"]["name"] == "cats"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    selector = service["spec"]["selector"]
    assert selector == {"tranche.dev/job": "cats", "app.kubernetes.io/managed-by": "tranche"}
    job = job_with_template(servers=1, chief=True)
    for pod in pods.checked_pods(job, SETTINGS):
        assert selector.items() <= pod["metadata"]["labels"].items()


def test_checked_pods_have_names_that_no_attempt_has() -> None:
    names = [pod["metadata"]["name"] for pod in pods.checked_pods(job_with_template(servers=1), SETTINGS)]
    assert names == ["cats-worker-0-check", "cats-ps-0-check"]


class TestReporting:
    settings = Settings(report_url="http://reports.test", token_seconds=1200)

    def made(self, job: TrainingJob, role: str) -> dict[str, Any]:
        assert job.status.plan is not None
        if role == "ps":
            return pods.server_pod(job, job.status.plan.parameter_servers[0], self.settings)
        return pods.worker_pod(job, job.status.plan.workers[0], self.settings)

    @pytest.mark.parametrize(
        ("role", "job", "reports", "asks"),
        [
            ("ps", job_with_template(servers=1), True, False),
            ("worker", job_with_template(servers=1), False, True),
            ("worker", job_with_template(), True, True),
            ("worker", training_job(chunks=None, status={"plan": plan(window(0, 1))}), True, False),
            ("worker", training_job(chunks=None, status={"plan": plan(window(1, 1))}), False, False),
        ],
        ids=["server", "worker of a server", "worker", "rank 0", "rank 1"],
    )
    def test_reporting_or_renewing_pod_gets_address_and_token(
        self, role: str, job: TrainingJob, reports: bool, asks: bool
    ) -> None:
        spec = self.made(job, role)["spec"]
        environment = {v["name"]: v["value"] for v in spec["containers"][0]["env"]}
        assert (environment.get("TRANCHE_API") == "http://reports.test") == reports
        assert (environment.get("TRANCHE_NEXT") == "http://reports.test") == asks
        assert any(v["name"] == "tranche-token" for v in spec.get("volumes", [])) == (reports or asks)

    def test_token_has_own_audience_and_matches_mounted_path(self) -> None:
        spec = self.made(job_with_template(), "worker")["spec"]
        volume = next(v for v in spec["volumes"] if v["name"] == "tranche-token")
        source = {"audience": "tranche.dev", "expirationSeconds": 1200, "path": "token"}
        assert volume["projected"]["sources"] == [{"serviceAccountToken": source}]
        for container in [*spec["initContainers"], *spec["containers"]]:
            mount = next(m for m in container["volumeMounts"] if m["name"] == "tranche-token")
            environment = {v["name"]: v["value"] for v in container["env"]}
            assert environment["TRANCHE_TOKEN"] == f"{mount['mountPath']}/token"
            assert mount["readOnly"]

    def test_without_a_report_api_there_is_nothing_of_it(self) -> None:
        spec = worker(job_with_template())["spec"]
        assert all(v["name"] != "tranche-token" for v in spec["volumes"])
        assert all(v["name"] != "TRANCHE_API" for v in spec["containers"][0]["env"])


def silence(spec: dict[str, Any]) -> dict[str, int]:
    return {t["key"]: t["tolerationSeconds"] for t in spec["tolerations"] if "tolerationSeconds" in t}


def test_a_pod_stays_on_a_silent_node_as_long_as_its_site_says() -> None:
    job = job_with_template()
    assert job.status.plan is not None
    site = SiteSpec(node_selector={"zone": "a"}, disconnect_tolerance="1h30m")
    both = {"node.kubernetes.io/not-ready": 5400, "node.kubernetes.io/unreachable": 5400}
    pod = pods.worker_pod(job, job.status.plan.workers[0], SETTINGS, site)
    assert silence(pod["spec"]) == both
    assert TEMPLATE["spec"]["tolerations"][0] in pod["spec"]["tolerations"]
    servers = {"parameterServers": {"replicas": 1, "template": TEMPLATE}}
    job = job_with_template(spec=servers)
    assert job.status.plan is not None
    assert silence(pods.server_pod(job, job.status.plan.parameter_servers[0], SETTINGS, site)["spec"]) == both


def ended(attempt: int, node: str, outcome: str) -> str:
    return pack(AttemptRecord(0, attempt, node, outcome))


@pytest.mark.parametrize(
    ("history", "avoided"),
    [
        ([], ""),
        ([ended(1, "c1", "Failed"), ended(2, "c2", "Succeeded")], "c1"),
        ([ended(1, "c1", "Failed"), ended(2, "c2", "Refused")], "c2"),
        ([ended(1, "c1", "Failed"), ended(2, "c1", "Succeeded")], ""),
        ([ended(1, "c1", "Preempted"), ended(2, "c2", "ErrImagePull")], "c2"),
        ([ended(1, "c1", "ContainerCreating"), ended(2, "c2", "Preempted")], "c1"),
        ([ended(1, "c1", "Preempted"), ended(2, "c2", "NotStarted")], ""),
        ([ended(1, "c1", "Failed"), ended(2, "c2", "Failed"), ended(3, "c2", "Succeeded")], "c1"),
    ],
)
def test_pod_at_unlimited_site_avoids_last_failed_node(history: list[str], avoided: str) -> None:
    state = {"plan": plan(window(1, 9, node=None, fallbacks=[])), "progress": {"history": history}}
    job = training_job(template=TEMPLATE, status=state)
    assert job.status.plan is not None
    pod = pods.worker_pod(job, job.status.plan.workers[0], SETTINGS, SiteSpec(node_selector={"zone": "c"}))
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][node_affinity.REQUIRED]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "zone", "operator": "In", "values": ["c"]}]
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [avoided]}] if avoided else None
    assert term.get("matchFields") == fields


def test_without_a_site_kubernetes_says_how_long() -> None:
    assert silence(worker(job_with_template())["spec"]) == {}


@pytest.mark.parametrize(
    ("own", "ours"),
    [
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, {"node.kubernetes.io/unreachable": 60}),
        ({"operator": "Exists"}, {}),
    ],
)
def test_what_the_user_tolerates_of_silent_nodes_stays(own: dict[str, Any], ours: dict[str, int]) -> None:
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["tolerations"] = [own]
    job = job_with_template(template)
    assert job.status.plan is not None
    site = SiteSpec(node_selector={"zone": "a"}, disconnect_tolerance="1m")
    pod = pods.worker_pod(job, job.status.plan.workers[0], SETTINGS, site)
    assert silence(pod["spec"]) == ours
    assert pod["spec"]["tolerations"][0] == own


@pytest.mark.parametrize("more", [{}, {"servers": 1}, {"chunks": None, "workers": 2, "chief": True}])
def test_checked_roles_are_those_of_the_checked_pods(more: dict[str, Any]) -> None:
    job = training_job(**more)
    checked = {pod["metadata"]["labels"]["tranche.dev/role"] for pod in pods.checked_pods(job, Settings())}
    assert pods.checked_roles(job) == checked


def test_reporting_pod_receives_the_ca_as_a_file() -> None:
    settings = Settings(report_url="https://reports.test", report_ca=ReportCa("-----BEGIN"))
    job = job_with_template()
    assert job.status.plan is not None
    pod = pods.worker_pod(job, job.status.plan.workers[0], settings)
    assert pod["metadata"]["annotations"]["tranche.dev/report-ca"] == "-----BEGIN"
    sources = pod["spec"]["volumes"][-1]["projected"]["sources"]
    field = {"fieldPath": "metadata.annotations['tranche.dev/report-ca']"}
    assert sources[1] == {"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": field}]}}
    variables = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
    assert variables["TRANCHE_CA"] == "/var/run/secrets/tranche.dev/ca.crt"


def test_without_tls_pods_receive_no_ca() -> None:
    job = job_with_template()
    assert job.status.plan is not None
    pod = pods.worker_pod(job, job.status.plan.workers[0], Settings(report_url="http://reports.test"))
    assert "tranche.dev/report-ca" not in pod["metadata"]["annotations"]
    assert len(pod["spec"]["volumes"][-1]["projected"]["sources"]) == 1
    assert "TRANCHE_CA" not in {one["name"] for one in pod["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({"spec": {"model": {"stepTime": "120ms"}}}, "0.12"),
        ({"chunks": None, "spec": {"estimatedDuration": "30m"}}, "1800"),
        ({"chunks": None}, "3600"),
    ],
)
def test_worker_has_its_declared_step_time(more: dict[str, Any], seconds: str) -> None:
    assert worker(job_with_template(**more))["metadata"]["annotations"]["tranche.dev/step-seconds"] == seconds


def test_parameter_server_has_no_step_time() -> None:
    job = job_with_template(servers=1)
    assert job.status.plan is not None
    made = pods.server_pod(job, job.status.plan.parameter_servers[0], SETTINGS)
    assert "tranche.dev/step-seconds" not in made["metadata"]["annotations"]


def test_pods_carry_the_bandwidth_that_the_job_asks_for() -> None:
    limited = {"communication": {"serverBandwidth": "1G", "workerBandwidth": "200M"}}
    for spec, limits in ((limited, {"worker": "200M", "ps": "1G"}), ({}, {"worker": None, "ps": None})):
        job = training_job(servers=1, spec=spec, status={"plan": plan(window(0, 1), servers=[server(0, 2)])})
        assert job.status.plan is not None
        made = {
            "worker": pods.worker_pod(job, job.status.plan.workers[0], SETTINGS),
            "ps": pods.server_pod(job, job.status.plan.parameter_servers[0], SETTINGS),
        }
        for role, pod in made.items():
            for direction in ("ingress", "egress"):
                assert pod["metadata"]["annotations"].get(f"kubernetes.io/{direction}-bandwidth") == limits[role]
